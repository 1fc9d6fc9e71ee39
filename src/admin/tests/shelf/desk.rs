//! The desk of a shelf: differences and the audit may be put there, what changes is refused.

use super::*;
use crate::ledger::desk::job::{Cancelled, ItemEnd, Job, JobId, JobItem, JobMade, NewJob, Taken};
use crate::ledger::desk::{
    AuditId, AuditLine, Decided, Decision, Desk, DifferenceCursor, DifferencePage, OrderLine,
    Sample, WhichDifferences,
};

impl Desk for Shelf {
    fn decide(&self, _: Decision) -> Pending<Decided> {
        refused()
    }
    fn order(&self, _: OrderLine) -> Pending<AuditId> {
        refused()
    }
    fn performed(&self, _: AuditId, _: Wall, _: Arc<str>) -> Pending<()> {
        refused()
    }
    fn audit(&self, _: RowId) -> Pending<Vec<AuditLine>> {
        self.read(&self.audit)
    }
    fn differences(
        &self,
        _: WhichDifferences,
        _: Option<DifferenceCursor>,
        _: usize,
    ) -> Pending<DifferencePage> {
        self.read(&DifferencePage {
            items: self.differing.clone(),
            next: None,
        })
    }
    fn sample(&self, _: Filter, _: usize) -> Pending<Sample> {
        refused()
    }
    fn make_job(&self, _: NewJob) -> Pending<JobMade> {
        refused()
    }
    fn jobs(&self, _: usize) -> Pending<Vec<Job>> {
        self.read(&self.jobs)
    }
    fn job(&self, id: JobId) -> Pending<Option<Job>> {
        self.read(&self.jobs.iter().find(|job| job.id == id).cloned())
    }
    fn job_items(&self, _: JobId, _: u32, _: usize) -> Pending<Vec<JobItem>> {
        self.read(&Vec::new())
    }
    fn resume_jobs(&self, _: Owner, _: Wall) -> Pending<Vec<Job>> {
        refused()
    }
    fn take_items(&self, _: JobId, _: Owner, _: usize) -> Pending<Vec<Taken>> {
        refused()
    }
    fn end_item(&self, _: JobId, _: u32, _: Wall, _: ItemEnd) -> Pending<()> {
        refused()
    }
    fn cancel_job(&self, _: JobId, _: Arc<str>, _: Wall) -> Pending<Cancelled> {
        refused()
    }
}
