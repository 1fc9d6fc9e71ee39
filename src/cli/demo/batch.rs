//! The batch as both columns push it: the same items, in the same order, by the same number of
//! workers, with the same progress on the screen. Who the workers are is their own affair.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

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

/// What came of a batch: the accounts in the order of the items, and how long the push took.
#[derive(Debug)]
pub(super) struct Pushed {
    pub accounts: Vec<Account>,
    pub took: Duration,
}

impl Batch {
    /// The parcel of one item.
    pub(super) fn parcel(&self, item: u32) -> Parcel {
        Parcel::of(item, self.plan.mistyped(item))
    }

    /// What its caller was told of one item.
    pub(super) fn account(&self, item: u32, told: Told) -> Account {
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
pub(super) struct Progress {
    label: &'static str,
    calls: u32,
    done: AtomicU32,
    bar: ProgressBar,
}

impl Progress {
    pub(super) fn new(label: &'static str, calls: u32) -> Self {
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

    /// One call more has ended.
    pub(super) fn advance(&self) {
        self.show(self.done.fetch_add(1, Ordering::Relaxed) + 1, 1);
    }

    /// So many calls have ended by now.
    pub(super) fn reach(&self, done: u32) {
        let before = self.done.swap(done, Ordering::Relaxed);
        self.show(done, done.saturating_sub(before));
    }

    fn show(&self, done: u32, more: u32) {
        self.bar.set_position(u64::from(done));
        let step = self.calls.div_ceil(LINES);
        let (now, before) = (done / step, (done - more) / step);
        if self.bar.is_hidden() && more > 0 && (now > before || done == self.calls) {
            eprintln!("{}: {done} of {} calls", self.label, self.calls);
        }
    }

    pub(super) fn finish(&self) {
        self.bar.finish();
    }
}
