//! The operators' verbs on the simulated disk: handed through, on the disk's terms.

use std::sync::atomic::Ordering;

use super::*;
use callgate::ledger::Desk;
use callgate::ledger::desk::job::{
    Cancelled, ItemEnd, Job, JobId, JobItem, JobMade, NewJob, Taken,
};
use callgate::ledger::desk::{
    AuditId, AuditLine, Decided, Decision, DifferenceCursor, DifferencePage, OrderLine, Sample,
    WhichDifferences,
};

impl Desk for Book {
    fn decide(&self, decision: Decision) -> Pending<Decided> {
        let what = self.tell(|| format!("row {} {:?}", decision.row, decision.verb));
        self.write(what, move |ledger| ledger.decide(decision))
    }

    fn order(&self, order: OrderLine) -> Pending<AuditId> {
        let what = self.tell(|| format!("row {} order {:?}", order.row, order.verb));
        self.write(what, move |ledger| ledger.order(order))
    }

    fn performed(&self, line: AuditId, now: Wall, told: Arc<str>) -> Pending<()> {
        let what = self.tell(|| format!("an order came to {told}"));
        self.write(what, move |ledger| ledger.performed(line, now, told))
    }

    fn audit(&self, row: RowId) -> Pending<Vec<AuditLine>> {
        self.inner.audit(row)
    }

    fn differences(
        &self,
        which: WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> Pending<DifferencePage> {
        self.inner.differences(which, from, limit)
    }

    fn sample(&self, filter: Filter, limit: usize) -> Pending<Sample> {
        self.inner.sample(filter, limit)
    }

    fn make_job(&self, job: NewJob) -> Pending<JobMade> {
        let what = self.tell(|| format!("job {}", job.text));
        self.write(what, move |ledger| ledger.make_job(job))
    }

    fn jobs(&self, limit: usize) -> Pending<Vec<Job>> {
        self.inner.jobs(limit)
    }

    fn job(&self, id: JobId) -> Pending<Option<Job>> {
        self.inner.job(id)
    }

    fn job_items(&self, id: JobId, from: u32, limit: usize) -> Pending<Vec<JobItem>> {
        self.inner.job_items(id, from, limit)
    }

    fn resume_jobs(&self, owner: Owner, now: Wall) -> Pending<Vec<Job>> {
        let what = self.tell(|| "resume jobs".to_owned());
        self.write(what, move |ledger| ledger.resume_jobs(owner, now))
    }

    fn take_items(&self, id: JobId, owner: Owner, limit: usize) -> Pending<Vec<Taken>> {
        let what = self.tell(|| format!("job {} takes", id.0));
        let again = Arc::clone(&self.world.lock().bulk_again);
        let taken = self.write(what, move |ledger| {
            let taken = ledger.take_items(id, owner, limit).wait();
            let items = taken.iter().flatten();
            let resumed = items.filter(|item| item.again).count();
            again.fetch_add(resumed as u64, Ordering::Relaxed);
            Pending::ready(taken)
        });
        self.world.lock().may_die_of_a_job(25);
        taken
    }

    fn end_item(&self, id: JobId, seq: u32, now: Wall, end: ItemEnd) -> Pending<()> {
        let what = self.tell(|| format!("job {} item {seq}: {}", id.0, end.result));
        self.write(what, move |ledger| ledger.end_item(id, seq, now, end))
    }

    fn cancel_job(&self, id: JobId, who: Arc<str>, now: Wall) -> Pending<Cancelled> {
        let what = self.tell(|| format!("job {} cancelled", id.0));
        self.write(what, move |ledger| ledger.cancel_job(id, who, now))
    }
}
