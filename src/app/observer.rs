//! What the ledger's own threads tell, counted and logged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::ledger::LedgerError;
use crate::ledger::sqlite::Observer;
use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;

/// Listens to the ledger of one process.
pub(super) struct LedgerObserver {
    metrics: Arc<Metrics>,
    /// The last group failed: one line for the first, not one for each.
    failing: AtomicBool,
}

impl LedgerObserver {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { metrics: Arc::clone(metrics), failing: AtomicBool::new(false) })
    }
}

impl Observer for LedgerObserver {
    fn committed(&self, _records: usize, took: Duration) {
        self.metrics.ledger_commit(took);
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!("the ledger can be written again");
        }
    }

    fn overloaded(&self) {
        self.metrics.bounds.inc(Bound::LedgerQueue);
    }

    fn history_lost(&self, entries: usize) {
        tracing::warn!(entries, "history of calls was not recorded: too many records wait");
    }

    fn failed(&self, error: &LedgerError) {
        if !self.failing.swap(true, Ordering::Relaxed) {
            tracing::error!(
                error = error as &dyn std::error::Error,
                "the ledger cannot be written; new calls are refused until it can"
            );
        }
    }
}
