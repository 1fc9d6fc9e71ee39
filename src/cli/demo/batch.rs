//! The batch as both columns push it: the same items, dealt in order to the same number of workers,
//! with the same progress on the screen. What a worker does with an answer is its own affair.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinSet;

use super::audit::{Account, Told};
use super::faults::Plan;
use super::parcel::{Parcel, tracking_no};
use crate::clock::Clock;

/// How often plain lines report progress where there is no terminal.
const LINES: u32 = 4;

/// How much is pushed by how many.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch {
    pub plan: Plan,
    pub calls: u32,
    pub workers: u32,
}

/// One worker: pushes an item and says what it was told in the end.
pub(super) trait Worker: Send + 'static {
    fn push(&mut self, item: u32, parcel: Parcel) -> impl Future<Output = Told> + Send;
}

/// What came of a batch: the accounts in the order of the items, and how long the push took.
#[derive(Debug)]
pub(super) struct Pushed {
    pub accounts: Vec<Account>,
    pub took: Duration,
}

impl Batch {
    /// Pushes the whole batch. Time counts from the first call.
    ///
    /// # Errors
    /// When a worker panicked: its accounts are gone, so no figure could be trusted.
    pub(super) async fn push<W: Worker>(
        self,
        label: &'static str,
        hire: impl Fn() -> W,
    ) -> anyhow::Result<Pushed> {
        let next = Arc::new(AtomicU32::new(0));
        let progress = Arc::new(Progress::new(label, self.calls));
        let watch = Stopwatch::start();
        let mut workers = JoinSet::new();
        for _ in 0..self.workers {
            let (worker, next, progress) = (hire(), Arc::clone(&next), Arc::clone(&progress));
            workers.spawn(self.work(worker, next, progress));
        }
        let mut told = Vec::with_capacity(self.calls as usize);
        while let Some(share) = workers.join_next().await {
            told.extend(share?);
        }
        let took = watch.elapsed();
        progress.finish();
        told.sort_unstable_by_key(|(item, _)| *item);
        let accounts = told
            .into_iter()
            .map(|(item, told)| self.account(item, told))
            .collect();
        Ok(Pushed { accounts, took })
    }

    async fn work<W: Worker>(
        self,
        mut worker: W,
        next: Arc<AtomicU32>,
        progress: Arc<Progress>,
    ) -> Vec<(u32, Told)> {
        let mut share = Vec::new();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= self.calls {
                return share;
            }
            let parcel = Parcel::of(item, self.plan.mistyped(item));
            share.push((item, worker.push(item, parcel).await));
            progress.advance();
        }
    }

    fn account(&self, item: u32, told: Told) -> Account {
        Account {
            tracking_no: tracking_no(item, self.plan.mistyped(item)),
            told,
        }
    }
}

/// Measures spans: a clock of its own, whose zero is its start.
#[derive(Debug)]
pub(super) struct Stopwatch(Clock);

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Clock::start())
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.0.mono().0)
    }
}

/// A bar on a terminal, a few plain lines otherwise; always on stderr.
#[derive(Debug)]
struct Progress {
    label: &'static str,
    calls: u32,
    done: AtomicU32,
    bar: ProgressBar,
}

impl Progress {
    fn new(label: &'static str, calls: u32) -> Self {
        let style = ProgressStyle::with_template("{msg:28} {wide_bar} {pos}/{len} {elapsed}")
            .expect("the template is well-formed");
        let bar = ProgressBar::new(u64::from(calls))
            .with_style(style)
            .with_message(label);
        Self {
            label,
            calls,
            done: AtomicU32::new(0),
            bar,
        }
    }

    fn advance(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        self.bar.inc(1);
        let step = self.calls.div_ceil(LINES);
        if self.bar.is_hidden() && (done.is_multiple_of(step) || done == self.calls) {
            eprintln!("{}: {done} of {} calls", self.label, self.calls);
        }
    }

    fn finish(&self) {
        self.bar.finish();
    }
}
