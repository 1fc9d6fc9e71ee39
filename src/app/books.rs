//! The ledger of the process: opened, swept, and looked after.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::error::StartError;
use crate::call::time::Wall;
use crate::clock::{self, Clock};
use crate::config::resolved::Sync as SyncLevel;
use crate::config::{LedgerConfig, LedgerUrl};
use crate::crash::{self, Point};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::sqlite::{self, Observer, Options, SqliteLedger};
use crate::ledger::{Ledger, LedgerError, Owner, OwnerTest};
use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;

/// Listens to the ledger's own threads.
pub(super) struct LedgerObserver {
    metrics: Arc<Metrics>,
    /// Entries of history lost since they were last told.
    lost: AtomicU64,
}

impl LedgerObserver {
    pub(super) fn new(metrics: &Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            metrics: Arc::clone(metrics),
            lost: AtomicU64::new(0),
        })
    }

    /// Entries of history lost since the last time this was asked.
    pub(super) fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Observer for LedgerObserver {
    fn committed(&self, _records: usize, took: Duration) {
        self.metrics.ledger_commit(took);
    }

    // A refused call is counted by `flow`, which tells its caller; a failed group shows in the
    // ledger's health, which upkeep reads. Both would be told twice here.

    fn crowded(&self) {
        self.metrics.bounds.inc(Bound::LedgerReaders);
        tracing::debug!("as many questions wait for the ledger's readers as may; one was refused");
    }

    fn history_lost(&self, entries: usize) {
        self.metrics.bounds.inc(Bound::LedgerQueue);
        self.lost.fetch_add(entries as u64, Ordering::Relaxed);
    }
}

/// Between two looks whether another process has let the ledger go.
const LOCKED_AGAIN: Duration = Duration::from_millis(20);

/// Opens the ledger of the configuration, waiting at most `patience` for another process that has
/// it.
///
/// # Errors
/// What is wrong with it, or that the other process still has it.
pub(super) async fn open_within(
    config: &LedgerConfig,
    clock: &Clock,
    observer: &Arc<LedgerObserver>,
    patience: Duration,
) -> Result<Arc<dyn Ledger>, StartError> {
    let began = clock.mono();
    let mut told = false;
    loop {
        let source = match open(config, clock.wall(), observer) {
            Ok(ledger) => return Ok(ledger),
            Err(source @ LedgerError::Locked { .. }) if !patience.is_zero() => source,
            Err(error) => return Err(error.into()),
        };
        if clock.mono().since(began) >= patience {
            let waited = patience;
            return Err(StartError::Waited { waited, source });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::info!(%source, "waiting for another process to let the ledger go");
        }
        clock::sleep(LOCKED_AGAIN).await;
    }
}

/// Looks whether this ledger can be taken over, while another process works on it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn examine(config: &LedgerConfig) -> Result<(), LedgerError> {
    match &config.url {
        LedgerUrl::Sqlite(path) => sqlite::examine(path),
        LedgerUrl::Memory => Ok(()),
    }
}

/// Opens the ledger of the configuration. For a file: locks it, so that this process is the only
/// one that works on it.
fn open(
    config: &LedgerConfig,
    now: Wall,
    observer: &Arc<LedgerObserver>,
) -> Result<Arc<dyn Ledger>, LedgerError> {
    match &config.url {
        LedgerUrl::Sqlite(path) => {
            let options = Options {
                path: path.clone(),
                sync: match config.sync {
                    SyncLevel::Full => sqlite::Sync::Full,
                    SyncLevel::Normal => sqlite::Sync::Normal,
                },
                queue: config.queue,
                retention: config.retention,
                now,
            };
            let observer: Arc<dyn Observer> = Arc::clone(observer) as _;
            Ok(Arc::new(SqliteLedger::open(&options, observer)?))
        }
        // What that means is one of the configuration's own warnings.
        LedgerUrl::Memory => Ok(Arc::new(MemoryLedger::new(now, config.retention))),
    }
}

/// The sweep before serving: what dead predecessors had under way is unclear, and due at once.
/// Everybody else is dead, because this process holds the only lock.
pub(super) async fn sweep(
    ledger: &dyn Ledger,
    owner: &Owner,
    now: Wall,
) -> Result<(), LedgerError> {
    crash::at(Point::Sweeping);
    let found = ledger
        .recover(owner.clone(), now, OwnerTest::AllOthers)
        .await?;
    crash::at(Point::Swept);
    let any = found.parked + found.never_sent + found.requeued > 0;
    if any {
        tracing::warn!(
            parked = found.parked,
            never_sent = found.never_sent,
            requeued = found.requeued,
            "found calls of a gateway that ended in the middle; the compensation queue asks about \
             those that may have been sent"
        );
    }
    Ok(())
}
