//! Looks after every batch: begins those that run, stops those that were turned, ends what a
//! cancelled one left, and lets unresolved items follow their calls.
//!
//! The ledger is polled, as the compensation worker does it: a batch is turned by an operator, by
//! the intake, some day by another process, and one question by index a second costs less than
//! keeping a signal right. The intake's signal only makes the next look come sooner; what is turned
//! by hand here stops at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::intake::{Going, Intake, Runs};
use super::run::{LEASE, Run};
use crate::call::time::Mono;
use crate::clock;
use crate::flow::Flow;
use crate::ledger::batch::{BatchId, BatchState, BatchView, FollowLook, WhichBatches};
use crate::ledger::{LedgerError, OwnerTest};
use crate::upstream::Core;

/// Between two looks while a batch is open, and while none is.
const LOOK_BUSY: Duration = Duration::from_millis(250);
const LOOK_IDLE: Duration = Duration::from_secs(1);

/// Batches worked off at once; the others wait their turn, the oldest first.
const RUNS_MAX: usize = 8;

/// Open batches looked at; more is a ledger full of unresolved ones.
const OPEN_MAX: usize = 1_000;

/// Items of one look at those unresolved, and of one step of a cancellation.
const FOLLOW_MAX: usize = 500;
const CANCEL_MAX: usize = 1_000;

/// How often batches past their retention are looked for, and how much is removed at once.
const PURGE_EVERY: Duration = Duration::from_secs(60);
const PURGE_MAX: usize = 500;
const PURGES_MAX: u32 = 40;

/// Looks after the batches of one process.
pub struct Worker {
    flow: Arc<Flow>,
    core: Core,
    news: Arc<Notify>,
    stop: CancellationToken,
    tasks: JoinSet<BatchId>,
    /// Runs begun so far; each is an owner of its own.
    begun: u64,
    runs: Runs,
    /// The last line that was looked at, per batch with unresolved items.
    followed: HashMap<BatchId, u32>,
    recovered: Option<Mono>,
    purged: Mono,
    /// The ledger failed at the last look.
    failing: bool,
}

impl Worker {
    /// A worker whose calls run on `core`. Begins nothing once `stop` is cancelled.
    #[must_use]
    pub fn new(flow: Arc<Flow>, core: Core, intake: &Intake, stop: CancellationToken) -> Self {
        let purged = core.clock.mono();
        Self {
            flow,
            core,
            news: Arc::clone(&intake.news),
            stop,
            tasks: JoinSet::new(),
            begun: 0,
            runs: Arc::clone(&intake.runs),
            followed: HashMap::new(),
            recovered: None,
            purged,
            failing: false,
        }
    }

    /// Works until it is told to stop; returns when what was begun has ended. Whoever cannot wait
    /// that long drops it: the leases lapse, and the next worker runs the same items.
    pub async fn run(mut self) {
        while !self.stop.is_cancelled() {
            let open = match self.look().await {
                Ok(open) => {
                    self.failing = false;
                    open
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.failing, true) {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "batches cannot be looked after; they wait");
                    }
                    false
                }
            };
            let pause = if open { LOOK_BUSY } else { LOOK_IDLE };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = self.news.notified() => {}
                Some(ended) = self.tasks.join_next() => self.ended(ended),
                () = clock::sleep(pause) => {}
            }
        }
        for run in self.runs.lock().values() {
            run.stop.cancel();
        }
        while self.tasks.join_next().await.is_some() {}
    }

    /// One look at everything; whether any batch is open.
    async fn look(&mut self) -> Result<bool, LedgerError> {
        self.recover().await?;
        self.purge().await?;
        let open = self
            .flow
            .ledger
            .batches(WhichBatches::Open, OPEN_MAX)
            .await?;
        for batch in open.iter().rev() {
            self.turn(batch);
            if batch.state == BatchState::Cancelled && batch.counts.waiting > 0 {
                self.cancel(batch).await?;
            }
            if batch.counts.unresolved > 0 {
                self.follow(batch).await?;
            }
        }
        // A run whose batch is not open any more was paused.
        let is_open = |id: &BatchId| open.iter().any(|batch| batch.id == *id);
        for (id, run) in &*self.runs.lock() {
            if !is_open(id) {
                run.stop.cancel();
            }
        }
        self.followed.retain(|id, _| is_open(id));
        Ok(!open.is_empty())
    }

    /// What dead owners held goes back: all of it at the start, later what ran out.
    async fn recover(&mut self) -> Result<(), LedgerError> {
        let now = self.core.clock.mono();
        let dead = match self.recovered {
            None => OwnerTest::AllOthers,
            Some(last) if now >= last.after(LEASE) => OwnerTest::LeaseRanOut,
            Some(_) => return Ok(()),
        };
        let (owner, wall) = (self.flow.owner.clone(), self.core.clock.wall());
        let items = self.flow.ledger.recover_items(owner, wall, dead).await?;
        self.recovered = Some(now);
        if items > 0 {
            tracing::info!(items, "items of batches are run again under their call ids");
        }
        Ok(())
    }

    async fn purge(&mut self) -> Result<(), LedgerError> {
        let now = self.core.clock.mono();
        if now < self.purged.after(PURGE_EVERY) {
            return Ok(());
        }
        self.purged = now;
        for _ in 0..PURGES_MAX {
            let wall = self.core.clock.wall();
            if !self.flow.ledger.purge_batches(wall, PURGE_MAX).await?.more {
                break;
            }
        }
        Ok(())
    }

    /// Begins a batch that runs and has something waiting; stops one that was turned.
    fn turn(&mut self, batch: &BatchView) {
        if batch.state != BatchState::Running {
            if let Some(run) = self.runs.lock().get(&batch.id) {
                run.stop.cancel();
            }
            return;
        }
        let free = self.tasks.len() < RUNS_MAX && !self.runs.lock().contains_key(&batch.id);
        if !free || batch.counts.waiting == 0 {
            return;
        }
        if self.flow.routes.named(&batch.route).is_none() {
            tracing::debug!(
                batch = &*batch.name,
                route = &*batch.route,
                "the route of a batch is not configured; it waits"
            );
            return;
        }
        let going = Going {
            stop: self.stop.child_token(),
            ..Going::default()
        };
        self.begun += 1;
        let of_run = (self.begun, going.clone());
        let run = Run::new(&self.flow, &self.core, batch, of_run);
        let id = batch.id;
        self.runs.lock().insert(id, going);
        self.tasks.spawn(async move {
            run.work().await;
            id
        });
    }

    fn ended(&mut self, ended: Result<BatchId, tokio::task::JoinError>) {
        match ended {
            Ok(id) => drop(self.runs.lock().remove(&id)),
            // Nobody knows which it was: all that are left are stopped and begun again.
            Err(_panic) => {
                tracing::error!("a batch's run panicked; the batches are begun again");
                for run in self.runs.lock().drain().map(|(_, run)| run) {
                    run.stop.cancel();
                }
            }
        }
    }

    async fn cancel(&self, batch: &BatchView) -> Result<(), LedgerError> {
        loop {
            let now = self.core.clock.wall();
            let cancelled = self
                .flow
                .ledger
                .cancel_items(batch.id, now, CANCEL_MAX)
                .await?;
            if cancelled < CANCEL_MAX as u64 || self.stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    async fn follow(&mut self, batch: &BatchView) -> Result<(), LedgerError> {
        let after = self.followed.get(&batch.id).copied().unwrap_or(0);
        let now = self.core.clock.wall();
        let look = FollowLook {
            batch: batch.id,
            client: self.flow.clients.called(batch.client.as_str()),
            after,
            limit: FOLLOW_MAX,
        };
        let looked = self.flow.ledger.follow_items(look, now).await?;
        self.followed.insert(batch.id, looked.next.unwrap_or(0));
        Ok(())
    }
}
