//! Bulk jobs in memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Books, Drawer};
use crate::call::time::Wall;
use crate::ledger::Owner;
use crate::ledger::desk::job::{
    Cancelled, ITEMS_MAX, ItemEnd, ItemState, Job, JobId, JobItem, JobMade, JobState, NewJob,
    RUNNING_MAX, Taken,
};

/// A job with its items.
pub(super) struct JobRow {
    job: Job,
    items: Vec<(JobItem, Option<Owner>)>,
}

impl JobRow {
    pub(super) fn view(&self) -> Job {
        let mut results: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        for (item, _) in &self.items {
            if let Some(result) = &item.result {
                *results.entry(Arc::clone(result)).or_default() += 1;
            }
        }
        Job {
            results: results.into_iter().collect(),
            ..self.job.clone()
        }
    }

    pub(super) fn items_after(&self, from: u32, limit: usize) -> Vec<JobItem> {
        let items = self.items.iter().map(|(item, _)| item);
        let behind = items.filter(|item| item.seq > from);
        behind.take(limit).cloned().collect()
    }

    pub(super) fn is_old(&self, now: Wall, retention: Duration) -> bool {
        let ended = self.job.ended_at;
        self.job.state != JobState::Running && ended.is_some_and(|at| at.after(retention) <= now)
    }

    pub(super) fn take(&mut self, owner: &Owner, limit: usize) -> Vec<Taken> {
        if self.job.state != JobState::Running {
            return Vec::new();
        }
        let mut taken = Vec::new();
        for (item, holder) in &mut self.items {
            let again = item.state == ItemState::Begun && holder.as_ref() != Some(owner);
            if taken.len() < limit && (item.state == ItemState::Waiting || again) {
                item.state = ItemState::Begun;
                *holder = Some(owner.clone());
                taken.push(Taken {
                    seq: item.seq,
                    row: item.row,
                    life: item.life,
                    again,
                });
            }
        }
        taken
    }

    pub(super) fn end(&mut self, seq: u32, now: Wall, end: ItemEnd) {
        let begun = |(item, _): &&mut (JobItem, Option<Owner>)| {
            item.seq == seq && item.state == ItemState::Begun
        };
        let Some((item, _)) = self.items.iter_mut().find(begun) else {
            return;
        };
        item.state = ItemState::Done;
        item.result = Some(end.result.into());
        item.detail = end.detail;
        item.ended_at = Some(now);
        let job = &mut self.job;
        job.unended -= 1;
        if job.unended == 0 {
            job.ended_at.get_or_insert(now);
            if job.state == JobState::Running {
                job.state = JobState::Done;
            }
        }
    }

    pub(super) fn cancel(&mut self, who: Arc<str>, now: Wall) -> Cancelled {
        if self.job.state != JobState::Running {
            return Cancelled::Already(self.view());
        }
        self.job.state = JobState::Cancelled;
        self.job.ended_at = Some(now);
        self.job.ended_by = Some(who);
        Cancelled::Applied(self.view())
    }
}

impl Drawer {
    pub(super) fn job(&self, id: JobId) -> Option<&JobRow> {
        self.jobs.iter().find(|row| row.job.id == id)
    }

    pub(super) fn job_mut(&mut self, id: JobId) -> Option<&mut JobRow> {
        self.jobs.iter_mut().find(|row| row.job.id == id)
    }

    pub(super) fn resume(&mut self, owner: &Owner, now: Wall) -> Vec<Job> {
        for row in &mut self.jobs {
            if row.job.state == JobState::Cancelled {
                let left = row.items.iter().filter(|(item, holder)| {
                    item.state == ItemState::Begun && holder.as_ref() != Some(owner)
                });
                let left: Vec<u32> = left.map(|(item, _)| item.seq).collect();
                for seq in left {
                    let detail =
                        "the gateway ended while it was at it, and the job is cancelled".into();
                    let end = ItemEnd {
                        result: "interrupted",
                        detail: Some(detail),
                    };
                    row.end(seq, now, end);
                }
            }
        }
        let running = self.jobs.iter().map(|row| &row.job);
        let running = running.filter(|job| job.state == JobState::Running);
        running.cloned().collect()
    }
}

impl Books {
    pub(super) fn make_job(&mut self, new: NewJob) -> JobMade {
        let running = |row: &&JobRow| row.job.state == JobState::Running;
        let same = |row: &&JobRow| row.job.verb == new.verb && row.job.text == new.text;
        if let Some(job) = self.desk.jobs.iter().filter(running).find(same) {
            return JobMade::Joined(job.view());
        }
        if self.desk.jobs.iter().filter(running).count() >= RUNNING_MAX {
            return JobMade::TooMany;
        }
        let matching = self.matching(&new.filter);
        let items: Vec<_> = (1..)
            .zip(matching.iter().take(ITEMS_MAX))
            .map(|(seq, letter)| {
                let item = JobItem {
                    seq,
                    row: letter.row,
                    life: letter.life,
                    call_id: letter.call_id.clone(),
                    client: letter.client.clone(),
                    state: ItemState::Waiting,
                    result: None,
                    detail: None,
                    ended_at: None,
                };
                (item, None)
            })
            .collect();
        if items.is_empty() {
            return JobMade::Nothing;
        }
        let total = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let beyond = matching.len().saturating_sub(items.len());
        self.desk.last_job += 1;
        let job = Job {
            id: JobId(self.desk.last_job),
            verb: new.verb,
            text: new.text,
            who: new.by.who,
            why: new.by.why,
            at: new.by.now,
            per_minute: new.per_minute,
            state: JobState::Running,
            total,
            unended: total,
            beyond: u32::try_from(beyond).unwrap_or(u32::MAX),
            ended_at: None,
            ended_by: None,
            results: Vec::new(),
        };
        self.desk.jobs.push(JobRow {
            job: job.clone(),
            items,
        });
        JobMade::Made(job)
    }
}
