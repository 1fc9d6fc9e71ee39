//! Claims dead letters that are due and runs their rounds, a bounded number at once.
//!
//! The bound is one for all routes: the sum of their `compensation.workers`. Rows are claimed only
//! when a round can begin at once, the longest due first, so that nothing waits under a lease and
//! no route's flood puts another route's rows behind more than those that were due before them.
//!
//! The ledger is polled: it is shared with whatever parks (callers, a sweep, some day another
//! process), and a question by index costs less than keeping a signal right. Deliberately absent:
//! any decision about a call, and leases, which the ledger keeps and `flow` extends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call::time::Mono;
use crate::clock;
use crate::flow::{Flow, Routes};
use crate::ledger::{Due, LedgerError};
use crate::telemetry::labels::Bound;
use crate::upstream::Core;

/// Between two questions while rounds are being made: what was begun is often due again soon.
const POLL_BUSY: Duration = Duration::from_millis(200);

/// Between two questions while nothing has been due for a while.
const POLL_IDLE: Duration = Duration::from_secs(1);

/// How long after the last claim the worker counts as busy.
const BUSY_FOR: Duration = Duration::from_secs(30);

/// Rows of one claim. A claim is one record of the ledger's writer, which calls wait for too.
const CLAIM_MAX: usize = 32;

/// How long the worker stays away from a ledger that fails: doubled up to the longest.
const AWAY_FIRST: Duration = Duration::from_secs(1);
const AWAY_MAX: Duration = Duration::from_secs(30);

/// The worker of one process.
pub struct Worker {
    flow: Arc<Flow>,
    core: Core,
    /// One permit per round that may run.
    slots: Arc<Semaphore>,
    /// How many permits there are.
    size: usize,
    rounds: TaskTracker,
    stop: CancellationToken,
}

/// How the worker and its ledger get on.
#[derive(Debug)]
enum Mood {
    /// Something was due lately.
    Busy { until: Mono },
    /// Nothing was.
    Idle,
    /// The ledger fails.
    Away { wait: Duration },
}

impl Worker {
    /// A worker for the routes of `flow`, whose rounds run on `core`. Claims nothing once `stop`
    /// is cancelled.
    #[must_use]
    pub fn new(flow: Arc<Flow>, core: Core, stop: CancellationToken) -> Self {
        let size = bound(&flow.routes);
        Self {
            slots: Arc::new(Semaphore::new(size)),
            size,
            rounds: TaskTracker::new(),
            flow,
            core,
            stop,
        }
    }

    /// Makes rounds until it is told to stop; returns when those under way have ended. Whoever
    /// cannot wait that long drops it: the leases lapse and the next worker asks again.
    pub async fn run(mut self) {
        let mut mood = Mood::Idle;
        while !self.stop.is_cancelled() {
            self.resize();
            mood = self.claim(mood).await;
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = clock::sleep(mood.pause(self.core.clock.mono())) => {}
            }
        }
        self.rounds.close();
        self.rounds.wait().await;
    }

    /// As many slots as the routes in use ask for; a round that runs keeps its own.
    fn resize(&mut self) {
        let wanted = bound(&self.flow.routes);
        if wanted > self.size {
            self.slots.add_permits(wanted - self.size);
            self.size = wanted;
        } else {
            self.size -= self.slots.forget_permits(self.size - wanted);
        }
    }

    /// Until when a fresh claim holds without a heartbeat.
    fn lease(&self) -> Duration {
        let routes = self.flow.routes.all();
        let leases = routes
            .iter()
            .map(|route| route.conf.policy.compensation.lease);
        leases.max().unwrap_or(POLL_IDLE)
    }

    /// Takes up what is due, as long as there is room for it.
    async fn claim(&self, mut mood: Mood) -> Mood {
        while let Some(mut room) = self.room() {
            let wanted = room.num_permits();
            let now = self.core.clock.wall();
            let (owner, until) = (self.flow.owner.clone(), now.after(self.lease()));
            let found = match self.flow.ledger.claim_due(owner, now, until, wanted).await {
                Ok(found) => found,
                Err(error) => return mood.failed(&error),
            };
            let last = found.len() < wanted;
            mood = mood.claimed(found.len(), self.core.clock.mono());
            for due in found {
                let slot = room
                    .split(1)
                    .expect("no more rows come than were asked for");
                self.rounds
                    .spawn(round(Arc::clone(&self.flow), self.core.clone(), due, slot));
            }
            if last || self.stop.is_cancelled() {
                return mood;
            }
        }
        // Every slot is taken: some round will end soon.
        self.flow.metrics.bounds.inc(Bound::Rounds);
        Mood::Busy {
            until: self.core.clock.mono().after(BUSY_FOR),
        }
    }

    /// Room for the rounds of one claim; `None` while every slot is taken.
    fn room(&self) -> Option<OwnedSemaphorePermit> {
        let free = self.slots.available_permits().min(CLAIM_MAX);
        // Only this worker takes permits, so that those counted as free are there.
        let free = u32::try_from(free).ok().filter(|free| *free > 0)?;
        Arc::clone(&self.slots).try_acquire_many_owned(free).ok()
    }
}

async fn round(flow: Arc<Flow>, core: Core, due: Due, slot: OwnedSemaphorePermit) {
    let call_id = due.call.call_id.clone();
    let brought = flow.round(&core, due).await;
    tracing::debug!(%call_id, brought = brought.as_str(), "a round ended");
    drop(slot);
}

/// Rounds that may run at once: what every route adds to the common bound, at least one.
fn bound(routes: &Routes) -> usize {
    let routes = routes.all();
    let each = routes.iter().map(|route| route.conf.compensation_workers);
    each.fold(0, usize::saturating_add)
        .clamp(1, Semaphore::MAX_PERMITS)
}

impl Mood {
    /// After a claim that brought `found` rows.
    fn claimed(self, found: usize, now: Mono) -> Self {
        if let Self::Away { .. } = self {
            tracing::info!("the compensation queue can be read again");
        }
        match self {
            _ if found > 0 => Self::Busy {
                until: now.after(BUSY_FOR),
            },
            Self::Busy { until } if now < until => self,
            Self::Busy { .. } | Self::Idle | Self::Away { .. } => Self::Idle,
        }
    }

    /// After a claim that failed. One line each time, and the times grow apart.
    fn failed(self, error: &LedgerError) -> Self {
        let wait = match self {
            Self::Away { wait } => wait.saturating_mul(2).min(AWAY_MAX),
            Self::Busy { .. } | Self::Idle => AWAY_FIRST,
        };
        tracing::warn!(
            error = error as &dyn std::error::Error,
            again_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the compensation queue cannot be read; calls in it wait"
        );
        Self::Away { wait }
    }

    /// How long until the next question.
    fn pause(&self, now: Mono) -> Duration {
        match self {
            Self::Busy { until } if now < *until => POLL_BUSY,
            Self::Busy { .. } | Self::Idle => POLL_IDLE,
            Self::Away { wait } => *wait,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
