//! Exchanges past their attempt timeout: they may still speak, until somebody closes them.
//!
//! Many tools cancel their work when the caller hangs up, so an exchange that timed out stays
//! open. It runs on its own task; its call hears how it ended. Closing one is a reset, and is
//! waited for, because "never arrived" is only true once nothing can arrive any more. The number
//! of open ones is bounded per route (`upstream.late_max`): past it the oldest is reset.
//! Deliberately absent: what a late answer means, which the machine decides.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::call::Said;
use super::passing::read_out;
use crate::ledger::RowId;
use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{Core, Ended, Exchange};

/// Every late exchange of this process, by the call it belongs to.
#[derive(Debug, Default)]
pub struct Registry {
    open: DashMap<RowId, Vec<Hold>>,
}

/// The late exchanges of one route, oldest first.
#[derive(Debug)]
pub struct Allowance {
    max: usize,
    open: Mutex<VecDeque<CancellationToken>>,
}

/// The hold others have on one late exchange.
#[derive(Clone, Debug)]
struct Hold {
    close: CancellationToken,
    closed: CancellationToken,
}

/// One late exchange leaves the registry, also when its task is aborted. Declared before the
/// exchange it speaks for, so that the exchange is gone first.
struct Leaving {
    registry: Arc<Registry>,
    row: RowId,
    hold: Hold,
}

/// The late exchanges of one call, as its driver holds them.
#[derive(Debug)]
pub(super) struct LateSet {
    registry: Arc<Registry>,
    row: RowId,
    running: JoinSet<LateEnd>,
}

/// How a late exchange ended.
#[derive(Debug)]
pub(super) struct LateEnd {
    /// The attempt it belongs to.
    pub(super) n: u8,
    /// Its complete answer; `None` when it had none, was closed, or its time was over.
    pub(super) said: Option<Said>,
}

/// What a late exchange is bounded by.
pub(super) struct Bounds<'a> {
    /// How long it may go on (`timeouts.late`).
    pub(super) late: Duration,
    /// The route's allowance.
    pub(super) allowance: &'a Allowance,
    /// Where a reached bound is counted.
    pub(super) metrics: &'a Metrics,
}

impl Allowance {
    /// At most `max` open at once.
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            max,
            open: Mutex::default(),
        }
    }

    /// Admits one more; the oldest beyond the bound is told to close.
    fn admit(&self, close: &CancellationToken, metrics: &Metrics) {
        let mut open = self.open.lock();
        open.retain(|token| !token.is_cancelled());
        open.push_back(close.clone());
        while open.len() > self.max {
            let Some(oldest) = open.pop_front() else {
                return;
            };
            oldest.cancel();
            metrics.bounds.inc(Bound::LateExchanges);
            tracing::warn!(
                late_max = self.max,
                "the oldest late exchange is reset: `upstream.late_max` is reached"
            );
        }
    }
}

impl Registry {
    /// Closes every late exchange of a call, whoever drives it, and returns when they are gone.
    pub async fn close(&self, row: RowId) {
        // Cloned out, so that no guard of the map lives over an await.
        let holds = self
            .open
            .get(&row)
            .map(|holds| holds.clone())
            .unwrap_or_default();
        for hold in &holds {
            hold.close.cancel();
        }
        for hold in holds {
            hold.closed.cancelled().await;
        }
    }

    /// Whether a call still has an exchange that may speak.
    #[must_use]
    pub fn is_open(&self, row: RowId) -> bool {
        self.open.contains_key(&row)
    }

    fn forget(&self, row: RowId) {
        if let Some(mut holds) = self.open.get_mut(&row) {
            holds.retain(|hold| !hold.closed.is_cancelled());
        }
        self.open.remove_if(&row, |_, holds| holds.is_empty());
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.hold.close.cancel();
        self.hold.closed.cancel();
        self.registry.forget(self.row);
    }
}

impl LateSet {
    /// None yet, for the call in `row`.
    #[must_use]
    pub(super) fn new(registry: &Arc<Registry>, row: RowId) -> Self {
        Self {
            registry: Arc::clone(registry),
            row,
            running: JoinSet::new(),
        }
    }

    /// Whether none can speak any more.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Takes over the exchange of attempt `n`.
    pub(super) fn push(&mut self, core: &Core, n: u8, exchange: Exchange, bounds: &Bounds<'_>) {
        let hold = Hold {
            close: CancellationToken::new(),
            closed: CancellationToken::new(),
        };
        bounds.allowance.admit(&hold.close, bounds.metrics);
        self.registry
            .open
            .entry(self.row)
            .or_default()
            .push(hold.clone());
        let leaving = Leaving {
            registry: Arc::clone(&self.registry),
            row: self.row,
            hold,
        };
        let over = core.wheel.sleep(bounds.late);
        self.running.spawn(async move {
            let said = speak(exchange, over, &leaving.hold.close).await;
            LateEnd { n, said }
        });
    }

    /// The next one to end; never resolves when there is none.
    pub(super) async fn next(&mut self) -> LateEnd {
        loop {
            match self.running.join_next().await {
                Some(Ok(end)) => return end,
                // A task of ours that panicked has dropped, and so reset, its exchange.
                Some(Err(e)) => tracing::error!(error = %e, "a late exchange ended abnormally"),
                None => pending().await,
            }
        }
    }

    /// Closes all of this call's, also those another driver of this process left open.
    pub(super) async fn close(&mut self) {
        self.registry.close(self.row).await;
        self.running.shutdown().await;
    }
}

/// Waits for the exchange, and for all of its answer, until its time is over or somebody closes it;
/// then it is reset, and nothing of it is on its way any more.
async fn speak(
    mut exchange: Exchange,
    over: impl Future<Output = ()>,
    close: &CancellationToken,
) -> Option<Said> {
    let said = async {
        match (&mut exchange).await {
            Ended::Collected(answer) => Some(Said::Answer(answer)),
            Ended::Streaming(stream) => read_out(*stream, pending()).await.ok().map(Said::Kept),
            Ended::NotSent(_) | Ended::Unclear(_) => None,
        }
    };
    tokio::select! {
        biased;
        () = close.cancelled() => {}
        said = said => return said,
        () = over => {}
    }
    exchange.reset().await;
    None
}
