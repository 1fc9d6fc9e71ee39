//! The operator's verbs in memory: decisions, the audit, differences.

mod jobs;

use std::sync::Arc;
use std::time::Duration;

use super::{Books, MemoryLedger, list, row};
use crate::call::time::Wall;
use crate::ledger::desk::job::{Cancelled, ItemEnd, Job, JobId, JobItem, JobMade, NewJob, Taken};
use crate::ledger::desk::judge::{Judgement, Standing, after, judge};
use crate::ledger::desk::{
    AuditId, AuditLine, By, Decided, Decision, Desk, DifferenceCursor, DifferencePage, Differing,
    OrderLine, Sample, Verb, WhichDifferences,
};
use crate::ledger::{DeadLetter, Filter, Owner, PAGE_MAX, Pending, RowId};
use jobs::JobRow;

/// What operators have on record.
#[derive(Default)]
pub(super) struct Drawer {
    lines: Vec<(RowId, AuditLine)>,
    last_line: i64,
    jobs: Vec<JobRow>,
    last_job: i64,
}

impl Drawer {
    /// The call is gone, and what was done to it with it.
    pub(super) fn forget(&mut self, row: RowId) {
        self.lines.retain(|(of, _)| *of != row);
    }

    /// Forgets jobs that ended longer ago than the retention.
    pub(super) fn purge(&mut self, now: Wall, retention: Duration) {
        self.jobs.retain(|job| !job.is_old(now, retention));
    }
}

impl Desk for MemoryLedger {
    fn decide(&self, decision: Decision) -> Pending<Decided> {
        self.write(|books| books.decide(decision))
    }

    fn order(&self, order: OrderLine) -> Pending<AuditId> {
        self.write(|books| {
            let before = books.state_word(order.row, order.life);
            books.write_line((order.row, order.life), order.verb, &order.by, before)
        })
    }

    fn performed(&self, line: AuditId, now: Wall, told: Arc<str>) -> Pending<()> {
        self.write(|books| books.performed(line, now, told))
    }

    fn audit(&self, row: RowId) -> Pending<Vec<AuditLine>> {
        self.read(|books| books.audit_of(row))
    }

    fn differences(
        &self,
        which: WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> Pending<DifferencePage> {
        self.read(|books| books.differences(&which, from, limit))
    }

    fn sample(&self, filter: Filter, limit: usize) -> Pending<Sample> {
        self.read(|books| {
            let limit = limit.clamp(1, PAGE_MAX);
            let matching = books.matching(&filter);
            let step = matching.len().div_ceil(limit).max(1);
            Sample {
                matching: matching.len() as u64,
                items: matching.into_iter().step_by(step).cloned().collect(),
            }
        })
    }

    fn make_job(&self, job: NewJob) -> Pending<JobMade> {
        self.write(|books| books.make_job(job))
    }

    fn jobs(&self, limit: usize) -> Pending<Vec<Job>> {
        self.read(|books| {
            let newest = books.desk.jobs.iter().rev();
            newest
                .take(limit.clamp(1, PAGE_MAX))
                .map(JobRow::view)
                .collect()
        })
    }

    fn job(&self, id: JobId) -> Pending<Option<Job>> {
        self.read(|books| books.desk.job(id).map(JobRow::view))
    }

    fn job_items(&self, id: JobId, from: u32, limit: usize) -> Pending<Vec<JobItem>> {
        self.read(|books| {
            let job = books.desk.job(id);
            job.map_or_else(Vec::new, |job| {
                job.items_after(from, limit.clamp(1, PAGE_MAX))
            })
        })
    }

    fn resume_jobs(&self, owner: Owner, now: Wall) -> Pending<Vec<Job>> {
        self.write(|books| books.desk.resume(&owner, now))
    }

    fn take_items(&self, id: JobId, owner: Owner, limit: usize) -> Pending<Vec<Taken>> {
        self.write(|books| {
            let job = books.desk.job_mut(id);
            job.map_or_else(Vec::new, |job| job.take(&owner, limit))
        })
    }

    fn end_item(&self, id: JobId, seq: u32, now: Wall, end: ItemEnd) -> Pending<()> {
        self.write(|books| {
            if let Some(job) = books.desk.job_mut(id) {
                job.end(seq, now, end);
            }
        })
    }

    fn cancel_job(&self, id: JobId, who: Arc<str>, now: Wall) -> Pending<Cancelled> {
        self.write(|books| match books.desk.job_mut(id) {
            None => Cancelled::Gone,
            Some(job) => job.cancel(who, now),
        })
    }
}

impl Books {
    /// The lines about a row, oldest first.
    pub(super) fn audit_of(&self, row: RowId) -> Vec<AuditLine> {
        let lines = self.desk.lines.iter().filter(|(of, _)| *of == row);
        lines.map(|(_, line)| line.clone()).collect()
    }

    fn decide(&mut self, decision: Decision) -> Decided {
        let now = decision.by.now;
        let row = self.rows.get_mut(&decision.row);
        let Some(row) = row.filter(|row| row.view.life == decision.life) else {
            return Decided::Gone;
        };
        let before = row.held().dead;
        let standing = Standing {
            dead: before,
            by: row.view.settled.as_ref().map(|end| end.by),
            has_key: row.view.idempotency_key.is_some(),
            key_binds: row.key_binds,
        };
        let judgement = judge(standing, decision.verb);
        let Some(before) = before else {
            return match judgement {
                Judgement::Refuse(refusal) => Decided::Refused(refusal),
                Judgement::Settle(_)
                | Judgement::Discard
                | Judgement::FreeKey
                | Judgement::Already => Decided::Gone,
            };
        };
        let mut told = "done";
        match judgement {
            Judgement::Refuse(refusal) => return Decided::Refused(refusal),
            Judgement::Already => return Decided::Already(before),
            Judgement::Settle(verdict) => row.resolve(now, verdict, decision.document),
            Judgement::Discard => row.discard(now),
            Judgement::FreeKey => {
                told = "the key is free";
                row.key_binds = false;
                row.view.updated_at = now;
            }
        }
        let after = after(judgement, before);
        let place = (decision.row, decision.life);
        let line = self.write_line(place, decision.verb, &decision.by, before.as_str().into());
        self.performed(line, now, told.into());
        Decided::Applied { before, after }
    }

    fn state_word(&self, row: RowId, life: u32) -> Arc<str> {
        let Some(row) = self.rows.get(&row) else {
            return "GONE".into();
        };
        let letters = row.past.iter().chain(&row.view.dead_letter);
        let letter = letters.into_iter().find(|letter| letter.life == life);
        let word = letter.map(|letter| letter.state.as_str());
        let call = (row.view.life == life).then(|| row.view.state.as_str());
        word.or(call).unwrap_or("GONE").into()
    }

    fn write_line(
        &mut self,
        (row, life): (RowId, u32),
        verb: Verb,
        by: &By,
        before: Arc<str>,
    ) -> AuditId {
        self.desk.last_line += 1;
        let id = AuditId(self.desk.last_line);
        let line = AuditLine {
            id,
            life,
            at: by.now,
            who: Arc::clone(&by.who),
            verb,
            why: by.why.clone(),
            job: by.job,
            before,
            after: None,
            told: None,
            ended_at: None,
        };
        self.desk.lines.push((row, line));
        id
    }

    fn performed(&mut self, id: AuditId, now: Wall, told: Arc<str>) {
        let found = self.desk.lines.iter().find(|(_, line)| line.id == id);
        let Some((row, life)) = found.map(|(row, line)| (*row, line.life)) else {
            return;
        };
        let after = self.state_word(row, life);
        let line = self.desk.lines.iter_mut().find(|(_, line)| line.id == id);
        if let Some((_, line)) = line {
            line.after = Some(after);
            line.told = Some(told);
            line.ended_at = Some(now);
        }
    }

    fn matching(&self, filter: &Filter) -> Vec<&DeadLetter> {
        let letters = self.letters();
        letters
            .filter(|letter| list::matches(filter, letter))
            .collect()
    }

    fn differences(
        &self,
        which: &WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> DifferencePage {
        let limit = limit.clamp(1, PAGE_MAX);
        let mut items: Vec<Differing> = self
            .rows
            .values()
            .flat_map(differing)
            .filter(|item| which.kind.is_none_or(|kind| kind == item.place.kind))
            .filter(|item| {
                which
                    .route
                    .as_ref()
                    .is_none_or(|route| *route == item.route)
            })
            .filter(|item| {
                which
                    .client
                    .as_ref()
                    .is_none_or(|client| *client == item.client)
            })
            .filter(|item| which.since.is_none_or(|since| item.place.at >= since))
            .collect();
        // By the word of the kind, as the file sorts it.
        let place = |at: DifferenceCursor| (at.at, at.row, at.life, at.kind.as_str());
        items.retain(|item| from.is_none_or(|from| place(item.place) < place(from)));
        items.sort_by_key(|item| std::cmp::Reverse(place(item.place)));
        let more = items.len() > limit;
        items.truncate(limit);
        let last = items.last().map(|item| item.place);
        DifferencePage {
            next: if more { last } else { None },
            items,
        }
    }
}

/// The contradictions of the life a call lives now.
fn differing(row: &row::Row) -> impl Iterator<Item = Differing> {
    let view = &row.view;
    view.differences.iter().map(|seen| Differing {
        place: DifferenceCursor {
            at: seen.at,
            row: view.row,
            life: view.life,
            kind: seen.kind,
        },
        told: Arc::clone(&seen.told),
        call_id: view.call_id.clone(),
        client: view.client.clone(),
        route: Arc::clone(&view.route),
        business_key: view.business_key.clone(),
        idempotency_key: view.idempotency_key.clone(),
        recorded: Some(view.state),
        by: view.settled.as_ref().map(|end| end.by),
        settled_at: view.settled.as_ref().map(|end| end.at),
        dead: view.dead_letter.as_ref().map(|letter| letter.state),
    })
}
