//! The runner of bulk jobs: one verb over many dead letters, at a rate, one after the other.
//!
//! A job is rows of the ledger; this only takes them up in order and writes what each came to. An
//! item is marked before it is begun, so that a crash leaves it marked: the next process takes it
//! up first, and since every order asks the receipt before it sends, what was sent before the
//! crash is found there and not sent again. Deliberately absent: any judgement about a row.

mod pace;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::verbs::{Verbs, words};
use crate::clock;
use crate::flow::operate::{Ordered, Refusal};
use crate::ledger::desk::job::{ItemEnd, Job, JobId, Taken};
use crate::ledger::desk::{By, Decided, Verb};
use crate::ledger::{LedgerError, RowId};
use crate::telemetry::labels::Bound;
use pace::Pace;

/// Items of one job under way at once. A slow tool at a high rate reaches it; then the job is
/// slower than it was asked to be, and says so.
const AT_ONCE: usize = 64;

/// Items begun with one record of the ledger's writer, which calls wait for too.
const TAKEN_MAX: usize = 32;

/// How often an item whose row somebody else holds is tried again, and after how long.
const HELD_TRIES: u32 = 4;
const HELD_WAIT: Duration = Duration::from_secs(1);

/// How long a ledger that fails is left alone: doubled up to the longest.
const AWAY_FIRST: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(30);

/// The runner of one process. Clones are the same.
#[derive(Clone)]
pub struct Jobs {
    verbs: Verbs,
    stop: CancellationToken,
    running: Arc<Mutex<HashSet<JobId>>>,
    tasks: TaskTracker,
}

impl Jobs {
    /// A runner that begins nothing once `stop` is cancelled.
    #[must_use]
    pub fn new(verbs: Verbs, stop: CancellationToken) -> Self {
        Self {
            verbs,
            stop,
            running: Arc::default(),
            tasks: TaskTracker::new(),
        }
    }

    /// Works jobs off until it is told to stop; returns when the items under way have ended.
    pub async fn run(self) {
        let mut away = AWAY_FIRST;
        while !self.stop.is_cancelled() {
            let (owner, now) = (self.verbs.flow().owner.clone(), self.verbs.now());
            match self.verbs.flow().ledger.resume_jobs(owner, now).await {
                Ok(jobs) => {
                    away = AWAY_FIRST;
                    jobs.into_iter().for_each(|job| self.begin(job));
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = self.verbs.job_made() => {}
                    }
                }
                Err(error) => away = self.stay_away(away, &error).await,
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Begins to work on a job, unless it is being worked on.
    fn begin(&self, job: Job) {
        if self.running.lock().insert(job.id) {
            let this = self.clone();
            self.tasks.spawn(async move {
                let id = job.id;
                this.work(job).await;
                this.running.lock().remove(&id);
            });
        }
    }

    async fn work(&self, job: Job) {
        let slots = Arc::new(Semaphore::new(AT_ONCE));
        let clock = self.verbs.flow().clock.clone();
        let mut pace = Pace::new(job.per_minute, clock.mono());
        let mut away = AWAY_FIRST;
        let job = Arc::new(job);
        let mut full = false;
        while !self.stop.is_cancelled() {
            let room = match pace.due(clock.mono()) {
                Err(wait) => {
                    tokio::select! {
                        () = self.stop.cancelled() => {}
                        () = clock::sleep(wait) => {}
                    }
                    continue;
                }
                Ok(due) => {
                    let was = std::mem::replace(&mut full, slots.available_permits() == 0);
                    if full && !was {
                        self.say_full(&job);
                    }
                    room(&slots, due).await
                }
            };
            match self.take(&job, room.num_permits()).await {
                Ok(taken) if taken.is_empty() => break,
                Ok(taken) => {
                    away = AWAY_FIRST;
                    pace.begun(taken.len(), clock.mono());
                    self.spawn(&job, taken, room);
                }
                Err(error) => {
                    drop(room);
                    away = self.stay_away(away, &error).await;
                }
            }
        }
        // Whoever has every slot back knows that nothing is under way.
        let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        drop(slots.acquire_many(all).await);
        tracing::info!(
            job = job.id.0,
            verb = job.verb.as_str(),
            "a bulk job has nothing to begin"
        );
    }

    /// One line and one count for a stretch in which a job is slower than its rate.
    fn say_full(&self, job: &Job) {
        self.verbs.flow().metrics.bounds.inc(Bound::JobItems);
        tracing::info!(
            job = job.id.0,
            at_once = AT_ONCE,
            "a bulk job is slower than its rate: so many items are under way"
        );
    }

    fn spawn(&self, job: &Arc<Job>, taken: Vec<Taken>, mut room: OwnedSemaphorePermit) {
        for item in taken {
            let slot = room.split(1).expect("no more come than were asked for");
            let (this, job) = (self.clone(), Arc::clone(job));
            self.tasks.spawn(async move {
                this.item(&job, item).await;
                drop(slot);
            });
        }
    }

    async fn take(&self, job: &Job, limit: usize) -> Result<Vec<Taken>, LedgerError> {
        let owner = self.verbs.flow().owner.clone();
        let ledger = &self.verbs.flow().ledger;
        ledger.take_items(job.id, owner, limit).await
    }

    /// One row of a job, and what it came to.
    async fn item(&self, job: &Job, item: Taken) {
        if item.again {
            tracing::info!(
                job = job.id.0,
                row = %item.row,
                "an item was begun before a restart; its receipt is asked first"
            );
        }
        let by = By {
            who: Arc::clone(&job.who),
            why: job.why.clone(),
            now: self.verbs.now(),
            job: Some(job.id),
        };
        let place = (item.row, item.life);
        let end = match job.verb {
            Verb::Receipt | Verb::Resend | Verb::Reverse => self.order(place, job.verb, by).await,
            Verb::Resolve(_) | Verb::Discard | Verb::ReleaseKey => {
                self.decide(place, job.verb, by).await
            }
        };
        let end = end.unwrap_or_else(|error| ItemEnd {
            result: "unrecorded",
            detail: Some(error.to_string().into()),
        });
        self.end(job.id, item.seq, end).await;
    }

    async fn order(&self, place: (RowId, u32), verb: Verb, by: By) -> Result<ItemEnd, LedgerError> {
        let mut tries = 0;
        loop {
            let Some(ongoing) = self.verbs.order(place, verb, by.clone()).await? else {
                return Ok(no_end("refused"));
            };
            let ordered = ongoing.ordered.await.unwrap_or(Ordered::Unrecorded);
            tries += 1;
            if matches!(ordered, Ordered::Held { .. })
                && tries < HELD_TRIES
                && !self.stop.is_cancelled()
            {
                clock::sleep(HELD_WAIT).await;
                continue;
            }
            return Ok(ItemEnd {
                result: came_to(&ordered),
                detail: Some(words::sentence(&ordered).into()),
            });
        }
    }

    async fn decide(
        &self,
        (row, life): (RowId, u32),
        verb: Verb,
        by: By,
    ) -> Result<ItemEnd, LedgerError> {
        let ledger = &self.verbs.flow().ledger;
        let Some(due) = ledger
            .dossier(row)
            .await?
            .filter(|due| due.call.life == life)
        else {
            return Ok(no_end("gone"));
        };
        Ok(match self.verbs.decide(&due.call, verb, by).await? {
            Decided::Applied { .. } => no_end("discarded"),
            Decided::Already(_) => no_end("already"),
            Decided::Gone => no_end("gone"),
            Decided::Refused(refusal) => ItemEnd {
                result: "refused",
                detail: Some(words::why_not_decided(refusal).into()),
            },
        })
    }

    /// Writes the result of an item, as often as it takes: without it the row would be taken up
    /// again by the next process.
    async fn end(&self, job: JobId, seq: u32, end: ItemEnd) {
        let mut away = AWAY_FIRST;
        loop {
            let (ledger, now) = (&self.verbs.flow().ledger, self.verbs.now());
            match ledger.end_item(job, seq, now, end.clone()).await {
                Ok(()) => return,
                Err(_) if self.stop.is_cancelled() => return,
                Err(error) => away = self.stay_away(away, &error).await,
            }
        }
    }

    async fn stay_away(&self, wait: Duration, error: &LedgerError) -> Duration {
        let again_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(
            error = error as &dyn std::error::Error,
            again_in_ms,
            "bulk jobs wait: the ledger fails"
        );
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = clock::sleep(wait) => {}
        }
        wait.saturating_mul(2).min(AWAY_MAX)
    }
}

/// Room for as many items as are due, at least one; waits while there is none.
async fn room(slots: &Arc<Semaphore>, due: usize) -> OwnedSemaphorePermit {
    let free = slots.available_permits();
    let wanted = due.min(free).clamp(1, TAKEN_MAX);
    let wanted = u32::try_from(wanted).unwrap_or(1);
    let room = Arc::clone(slots).acquire_many_owned(wanted).await;
    room.expect("the slots are never closed")
}

/// What an order came to for its job. A row that has ended by itself meanwhile, or by this very
/// job before a crash, is where the job wanted it.
const fn came_to(ordered: &Ordered) -> &'static str {
    match ordered {
        Ordered::Refused(Refusal::Settled) => "settled",
        Ordered::Refused(Refusal::Failed) => "failed",
        Ordered::Refused(Refusal::Reversed) => "reversed",
        other => words::result(other),
    }
}

const fn no_end(result: &'static str) -> ItemEnd {
    ItemEnd {
        result,
        detail: None,
    }
}
