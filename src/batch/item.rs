//! One item run to its end, by the way that a caller's request takes, and counted like one.
//!
//! An item is a caller's request: it obeys the rates of its route, what it comes to is one
//! `calls_total`, and "not now" makes it wait as it would make a caller wait. Deliberately absent:
//! what an answer means (`outcome`), and where the end is written (`run`).

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::outcome::{self, Outcome};
use crate::call::code::{Code, Word};
use crate::call::id::IdSource;
use crate::clock;
use crate::flow::{Errand, Flow};
use crate::ledger::batch::{ItemEnd, ItemState};
use crate::upstream::Core;

/// How often a tool may say "not now" to one item before that is its end.
const NOT_NOW_MAX: u32 = 10;

/// The longest that nothing is begun because a rate is used up; then it is looked at again, since
/// an interval may end long before its length has passed.
const HELD_MAX: Duration = Duration::from_secs(1);

/// The longest between two tries of one item while the ledger cannot be written: doubled up to
/// here, so that a disk that is full for a night does not fill the log as well.
const FAULT_MAX: Duration = Duration::from_secs(15);

/// An item under way.
pub(super) struct Item {
    pub(super) flow: Arc<Flow>,
    pub(super) core: Core,
    pub(super) line: u32,
    pub(super) errand: Errand,
    /// Cancelled when nothing is to be begun again.
    pub(super) stop: CancellationToken,
}

/// Lets an item in by the rates of its route; how long nothing is to be begun when one is used up.
pub(super) fn admit(flow: &Flow, errand: &Errand) -> Result<(), Duration> {
    let admitted = errand.route.admit(&errand.client, &flow.metrics);
    admitted.map_err(|problem| problem.retry_after.unwrap_or(HELD_MAX).min(HELD_MAX))
}

impl Item {
    /// Runs an item that was let in; `None` when it stopped before there was an end.
    pub(super) async fn run(self) -> Option<ItemEnd> {
        let mut left = NOT_NOW_MAX;
        let mut faults = 0;
        loop {
            let began = self.core.clock.mono();
            let Ok(request) = self.flow.errand(&self.errand) else {
                self.count(Word::Refused, Some(Code::BadRequest), Duration::ZERO);
                return Some(no_path(self.line));
            };
            let counted = self.errand.route.metrics.in_flight();
            let told = self.flow.call(&self.core, request).await;
            drop(counted);
            let took = self.core.clock.mono().since(began);
            let (after, ours, at_last) =
                match outcome::read(self.line, &told, self.core.clock.wall()) {
                    Outcome::Ended(end) => {
                        self.count(told.word, told.shown.code(), took);
                        return Some(end);
                    }
                    Outcome::Again {
                        after,
                        ours,
                        at_last,
                    } => (after, ours, at_last),
                };
            left -= u32::from(!ours);
            if left == 0 {
                self.count(told.word, told.shown.code(), took);
                return Some(at_last);
            }
            faults = match told.shown.code() {
                Some(Code::LedgerUnavailable) => faults + 1,
                _ => 0,
            };
            self.wait(longer(after, faults)).await?;
        }
    }

    /// Waits, and then for its turn by the rates; `None` when it is stopped.
    async fn wait(&self, after: Duration) -> Option<()> {
        let mut wait = after;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = clock::sleep(wait) => {}
            }
            match admit(&self.flow, &self.errand) {
                Ok(()) => return Some(()),
                Err(held) => wait = held,
            }
        }
    }

    /// Counts it, once: what the last answer said, and how long that took.
    fn count(&self, word: Word, code: Option<Code>, took: Duration) {
        let metrics = &self.errand.route.metrics;
        if self.errand.source == IdSource::Gateway {
            metrics.backfilled.inc();
        }
        metrics.told(word, code, took);
    }
}

/// A wait that was told, after so many faults of the ledger in a row.
fn longer(told: Duration, faults: u32) -> Duration {
    let doubled = 1_u32
        .checked_shl(faults.saturating_sub(1))
        .unwrap_or(u32::MAX);
    match faults {
        0 => told,
        _ => told.saturating_mul(doubled).min(FAULT_MAX.max(told)),
    }
}

fn no_path(line: u32) -> ItemEnd {
    ItemEnd {
        line,
        state: ItemState::Refused,
        attempts: 0,
        status: None,
        outcome: Arc::from(Word::Refused.as_str()),
        error: Some(Arc::from(Code::BadRequest.as_str())),
        original: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_that_stays_away_is_asked_less_and_less() {
        let told = Duration::from_secs(1);
        let waits = [0, 1, 2, 3, 4, 5, 6, 40].map(|faults| longer(told, faults).as_secs());
        assert_eq!(waits, [1, 1, 2, 4, 8, 15, 15, 15]);
        let shed = Duration::from_millis(100);
        assert_eq!(longer(shed, 0), shed);
    }
}
