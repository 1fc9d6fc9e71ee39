//! What goes wrong, and when: the seeded plan of the faulty tool. A fault is a pure function of
//! (seed, item, attempt), and the two outages begin at fixed places of the batch, so both columns
//! of the demonstration meet the same plan whatever the scheduler does. The generator is SplitMix64
//! written out, because a seed printed in a bug report must mean the same batch for ever, and the
//! streams of the `rand` crate may change between versions.

use std::time::Duration;

/// How the tool misbehaves on one arrival of one item. *Before* and *after* mean the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Fault {
    /// Answers at once.
    Honest,
    /// Does the work at once, answers when the caller has long stopped waiting.
    AnswerLate(Duration),
    /// Works that long, then answers; its receipt says `PROCESSING` meanwhile.
    WorkSlowly(Duration),
    ResetBefore,
    ResetAfter,
    CloseBefore,
    CloseAfter,
    ErrorBefore,
    ErrorAfter,
    /// 429 with `Retry-After: 1`, nothing done.
    RateLimit,
}

/// A time in which the whole tool is away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Outage {
    /// The listener is closed: connects are refused (a restart).
    Refuse(Duration),
    /// Accepts and reads, answers nothing (a stopped process). What it has read it does on waking.
    LieDead(Duration),
}

/// Items at the start that meet no fault: callgate believes a receipt endpoint's "never heard of
/// it" only after it has recognised a call that was answered, as a real one does on day one.
const CALM_MAX: u32 = 300;
/// Longer than `timeouts.attempt` of demo.yaml, so the answer always comes too late in line.
const LATE_MS: (u64, u64) = (350, 900);
/// Longer than `timeouts.total` of demo.yaml, so the call must go to the queue and end there.
const CRAWL_MS: (u64, u64) = (6_000, 6_500);
const REFUSE: Duration = Duration::from_millis(600);
const LIE_DEAD: Duration = Duration::from_millis(1_500);

/// Shares of first arrivals, in ten thousandths.
const FIRST: [(Kind, u32); 11] = [
    (Kind::AnswerLate, 250),
    (Kind::WorkSlowly, 150),
    (Kind::Crawl, 20),
    (Kind::ResetBefore, 100),
    (Kind::ResetAfter, 150),
    (Kind::CloseBefore, 100),
    (Kind::CloseAfter, 150),
    (Kind::ErrorBefore, 100),
    (Kind::ErrorAfter, 250),
    (Kind::RateLimit, 50),
    (Kind::Hopeless, 30),
];
/// How much likelier a fault is once an item has met one: trouble comes in series.
const SERIES_FACTOR: u32 = 3;
/// Share of mistyped tracking numbers, in ten thousandths.
const MISTYPED: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    AnswerLate,
    WorkSlowly,
    /// Works longer than any caller waits in line.
    Crawl,
    ResetBefore,
    ResetAfter,
    CloseBefore,
    CloseAfter,
    ErrorBefore,
    ErrorAfter,
    RateLimit,
    /// Fails before the work at every arrival: nothing but a human can help.
    Hopeless,
}

/// The seeded plan of one batch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    seed: u64,
    calls: u32,
}

impl Plan {
    pub(super) fn new(seed: u64, calls: u32) -> Self {
        Self { seed, calls }
    }

    /// How the tool behaves when `item` arrives for the `attempt`th time (1, 2, ..).
    pub(super) fn fault(&self, item: u32, attempt: u32) -> Fault {
        if item < self.calm() || item >= self.calls {
            return Fault::Honest;
        }
        if self.drawn(item, 1) == Some(Kind::Hopeless) {
            return self.hopeless(item, attempt);
        }
        match self.drawn(item, attempt) {
            None | Some(Kind::Hopeless) => Fault::Honest,
            Some(Kind::AnswerLate) => Fault::AnswerLate(self.span(item, attempt, LATE_MS)),
            Some(Kind::WorkSlowly) => Fault::WorkSlowly(self.span(item, attempt, LATE_MS)),
            Some(Kind::Crawl) => Fault::WorkSlowly(self.span(item, attempt, CRAWL_MS)),
            Some(Kind::ResetBefore) => Fault::ResetBefore,
            Some(Kind::ResetAfter) => Fault::ResetAfter,
            Some(Kind::CloseBefore) => Fault::CloseBefore,
            Some(Kind::CloseAfter) => Fault::CloseAfter,
            Some(Kind::ErrorBefore) => Fault::ErrorBefore,
            Some(Kind::ErrorAfter) => Fault::ErrorAfter,
            Some(Kind::RateLimit) => Fault::RateLimit,
        }
    }

    /// The outage that begins when the `seen`th distinct item (1, 2, ..) has arrived.
    pub(super) fn outage(&self, seen: u32) -> Option<Outage> {
        if self.calls < 3 {
            None
        } else if seen == self.calls / 3 {
            Some(Outage::Refuse(REFUSE))
        } else if seen == self.calls / 3 * 2 {
            Some(Outage::LieDead(LIE_DEAD))
        } else {
            None
        }
    }

    /// Whether the batch carries this item with a mistyped tracking number.
    pub(super) fn mistyped(&self, item: u32) -> bool {
        item < self.calls && self.draw(item, 0, "mistyped") % 10_000 < u64::from(MISTYPED)
    }

    /// A number in [0, 1) for the jitter of the plain client, from the plan as well.
    pub(super) fn chance(&self, item: u32, attempt: u32) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (self.draw(item, attempt, "jitter") >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn calm(&self) -> u32 {
        CALM_MAX.min(self.calls / 10)
    }

    fn drawn(&self, item: u32, attempt: u32) -> Option<Kind> {
        let factor = if attempt == 1 { 1 } else { SERIES_FACTOR };
        let mut ticket = (self.draw(item, attempt, "fault") % 10_000) as u32;
        for (kind, share) in FIRST {
            let share = share * factor;
            if ticket < share {
                return Some(kind);
            }
            ticket -= share;
        }
        None
    }

    fn hopeless(&self, item: u32, attempt: u32) -> Fault {
        match self.draw(item, attempt, "hopeless") % 3 {
            0 => Fault::ErrorBefore,
            1 => Fault::ResetBefore,
            _ => Fault::CloseBefore,
        }
    }

    fn span(&self, item: u32, attempt: u32, (from, to): (u64, u64)) -> Duration {
        Duration::from_millis(from + self.draw(item, attempt, "span") % (to - from))
    }

    fn draw(&self, item: u32, attempt: u32, purpose: &str) -> u64 {
        let place = u64::from(item) << 32 | u64::from(attempt);
        purpose
            .bytes()
            .fold(splitmix(splitmix(self.seed) ^ place), |state, byte| {
                splitmix(state ^ u64::from(byte))
            })
    }
}

impl Fault {
    /// The fault of that name, for a caller who asks for one (`scene` of a call outside the batch).
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "answer-late" => Self::AnswerLate(Duration::from_millis(LATE_MS.0)),
            "work-slowly" => Self::WorkSlowly(Duration::from_millis(LATE_MS.1)),
            "crawl" => Self::WorkSlowly(Duration::from_millis(CRAWL_MS.0)),
            "reset-before" => Self::ResetBefore,
            "reset-after" => Self::ResetAfter,
            "close-before" => Self::CloseBefore,
            "close-after" => Self::CloseAfter,
            "error-before" => Self::ErrorBefore,
            "error-after" => Self::ErrorAfter,
            "rate-limit" => Self::RateLimit,
            _ => return None,
        })
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood 2014).
fn splitmix(state: u64) -> u64 {
    let mut mixed = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::{Discriminant, discriminant};

    use super::*;

    const CALLS: u32 = 3_000;

    fn kinds(plan: Plan) -> HashSet<Discriminant<Fault>> {
        (0..CALLS)
            .map(|item| discriminant(&plan.fault(item, 1)))
            .collect()
    }

    #[test]
    fn splitmix_is_the_published_one() {
        // First output of the reference implementation for seed 0.
        assert_eq!(splitmix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_in_any_order() {
        let (one, other) = (Plan::new(7, CALLS), Plan::new(7, CALLS));
        let forward: Vec<_> = (0..CALLS).map(|item| one.fault(item, 2)).collect();
        let mut backward: Vec<_> = (0..CALLS).rev().map(|item| other.fault(item, 2)).collect();
        backward.reverse();
        assert_eq!(forward, backward);
        let differs =
            (0..CALLS).any(|item| one.fault(item, 1) != Plan::new(8, CALLS).fault(item, 1));
        assert!(differs, "another seed is another plan");
    }

    #[test]
    fn every_fault_occurs_in_a_batch_of_the_usual_size() {
        for seed in 0..20 {
            assert_eq!(kinds(Plan::new(seed, CALLS)).len(), 10, "seed {seed}");
        }
    }

    #[test]
    fn both_outages_and_mistyped_numbers_occur() {
        let plan = Plan::new(7, CALLS);
        let outages: Vec<_> = (1..=CALLS).filter_map(|seen| plan.outage(seen)).collect();
        assert_eq!(outages, [Outage::Refuse(REFUSE), Outage::LieDead(LIE_DEAD)]);
        let mistyped = (0..CALLS).filter(|item| plan.mistyped(*item)).count();
        assert!((10..=60).contains(&mistyped), "{mistyped}");
    }

    #[test]
    fn the_start_is_calm_and_about_an_eighth_of_the_rest_is_not() {
        let plan = Plan::new(7, CALLS);
        assert!((0..CALM_MAX).all(|item| plan.fault(item, 1) == Fault::Honest));
        let faulty = (CALM_MAX..CALLS)
            .filter(|item| plan.fault(*item, 1) != Fault::Honest)
            .count();
        assert!((270..=460).contains(&faulty), "{faulty} of 2700");
        assert_eq!(
            plan.fault(CALLS + 5, 1),
            Fault::Honest,
            "outside the batch nothing is planned"
        );
    }

    #[test]
    fn a_hopeless_item_never_gets_to_the_work() {
        let plan = Plan::new(7, CALLS);
        let hopeless: Vec<_> = (CALM_MAX..CALLS)
            .filter(|item| plan.drawn(*item, 1) == Some(Kind::Hopeless))
            .collect();
        assert!(!hopeless.is_empty());
        for item in hopeless {
            for attempt in 1..=6 {
                let fault = plan.fault(item, attempt);
                let before = [Fault::ErrorBefore, Fault::ResetBefore, Fault::CloseBefore];
                assert!(before.contains(&fault), "{item} {attempt}: {fault:?}");
            }
        }
    }

    #[test]
    fn chance_stays_in_its_half_open_interval() {
        let plan = Plan::new(7, CALLS);
        let mean = (0..CALLS).map(|item| plan.chance(item, 1)).sum::<f64>() / f64::from(CALLS);
        assert!((0.47..0.53).contains(&mean), "{mean}");
        assert!((0..CALLS).all(|item| (0.0..1.0).contains(&plan.chance(item, 2))));
    }
}
