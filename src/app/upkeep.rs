//! What runs behind the calls, on the background runtime: the ledger's health, the gauges of dead
//! letters, the removal of what has expired.
//!
//! Each is a loop of its own, so that a slow list never delays the look at the ledger's health.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::books::LedgerObserver;
use crate::clock::{self, Clock};
use crate::ledger::{DeadState, Ledger, LedgerError, Tally};
use crate::telemetry::labels::OpenState;
use crate::telemetry::metrics::{Metrics, OpenDeadLetters};
use crate::telemetry::readiness::{Readiness, Trouble};

/// How often the ledger's health is looked at: a load balancer's patience is a few seconds.
const HEALTH_EVERY: Duration = Duration::from_secs(1);

/// How often dead letters are counted: below the usual scrape interval.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// A count walks the open dead letters: after one it rests so many times as long as it took, so
/// that a million of them keep one of the ledger's readers busy a fiftieth of the time.
const COUNT_PAUSE_TIMES: u32 = 50;

/// How often expired calls are removed.
const PURGE_EVERY: Duration = Duration::from_secs(60);

/// Calls removed in one record; calls wait for the same writer, so it stays short.
const PURGE_BATCH: usize = 200;

/// Between two batches the writer is left to the calls so many times as long as the last batch
/// took, and at most the longest pause. As many calls are removed as have expired, however many a
/// busy gateway adds: some thousands a second.
const PURGE_PAUSE_TIMES: u32 = 4;
const PURGE_PAUSE_MAX: Duration = Duration::from_millis(50);

/// What upkeep looks after.
#[derive(Clone)]
pub(super) struct Upkeep {
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) observer: Arc<LedgerObserver>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: Arc<Readiness>,
    pub(super) clock: Clock,
    /// What the callers' door reads before it takes a body.
    pub(super) ledger_fails: Arc<AtomicBool>,
}

impl Upkeep {
    /// Runs until `stop`.
    pub(super) async fn run(self, stop: CancellationToken) {
        let all = async { tokio::join!(self.watch(), self.keep_count(), self.purge()) };
        tokio::select! {
            _ = all => {}
            () = stop.cancelled() => {}
        }
    }

    async fn watch(&self) {
        loop {
            self.look();
            clock::sleep(HEALTH_EVERY).await;
        }
    }

    /// Reads the ledger's health; while it fails, that also makes it try again.
    pub(super) fn look(&self) {
        let lost = self.observer.take_lost();
        if lost > 0 {
            tracing::warn!(
                entries = lost,
                "history of calls was not recorded: the queue is full"
            );
        }
        match self.ledger.health().failing {
            Some(error) => {
                self.ledger_fails.store(true, Ordering::Relaxed);
                let detail = format!("{error}; calls are refused until it can be written again");
                if self.readiness.raise(Trouble::Ledger, "", detail) {
                    tracing::error!(error = &*error, "the ledger cannot be written");
                }
            }
            None => {
                self.ledger_fails.store(false, Ordering::Relaxed);
                if self.readiness.clear(Trouble::Ledger, "") {
                    tracing::info!("the ledger can be written again");
                }
            }
        }
    }

    async fn keep_count(&self) {
        let mut told = false;
        loop {
            let began = self.clock.mono();
            let counted = self.count().await;
            told = tell_once(counted, told, "dead letters could not be counted");
            let took = self.clock.mono().since(began);
            clock::sleep(COUNT_EVERY.max(took * COUNT_PAUSE_TIMES)).await;
        }
    }

    /// Sets the gauges of dead letters from the ledger.
    pub(super) async fn count(&self) -> Result<(), LedgerError> {
        let tally = self.ledger.tally().await?;
        let now = self.clock.wall();
        let open: Vec<_> = tally
            .iter()
            .filter_map(|row| {
                Some(OpenDeadLetters {
                    route: row.route.to_string(),
                    state: open_state(row)?,
                    count: row.count,
                    oldest: now.since(row.oldest),
                })
            })
            .collect();
        self.metrics.set_dead_letters(&open);
        Ok(())
    }

    async fn purge(&self) {
        let mut told = false;
        loop {
            clock::sleep(PURGE_EVERY).await;
            let purged = self.purge_once().await;
            told = tell_once(purged, told, "expired calls could not be removed");
        }
    }

    /// Removes what has expired, in batches.
    async fn purge_once(&self) -> Result<(), LedgerError> {
        let mut calls = 0;
        loop {
            let began = self.clock.mono();
            let purged = self.ledger.purge(self.clock.wall(), PURGE_BATCH).await?;
            calls += purged.calls;
            if !purged.more {
                break;
            }
            let took = self.clock.mono().since(began);
            clock::sleep((took * PURGE_PAUSE_TIMES).min(PURGE_PAUSE_MAX)).await;
        }
        if calls > 0 {
            tracing::debug!(calls, "removed expired calls");
        }
        Ok(())
    }
}

/// One line for the first of several failures in a row. Returns whether it has been told.
fn tell_once(done: Result<(), LedgerError>, told: bool, what: &'static str) -> bool {
    match done {
        Ok(()) => false,
        Err(error) => {
            if !told {
                tracing::warn!(error = &error as &dyn std::error::Error, "{what}");
            }
            true
        }
    }
}

/// The label of an open state; ended dead letters are not counted.
const fn open_state(row: &Tally) -> Option<OpenState> {
    match row.state {
        DeadState::Queued => Some(OpenState::Queued),
        DeadState::Running => Some(OpenState::Running),
        DeadState::Reversing => Some(OpenState::Reversing),
        DeadState::Manual => Some(OpenState::Manual),
        DeadState::Settled | DeadState::Failed | DeadState::Reversed | DeadState::Discarded => None,
    }
}
