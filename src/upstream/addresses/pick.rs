//! Which of several addresses a send goes to. Pure: what is known about them is an argument.
//!
//! The one with the fewest sends under way; among equals they take turns. Deliberately absent:
//! weights, and anything about the call: where a call may go at all is the caller's business.

use std::time::Duration;

/// One address, as a choice sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whose it is: the number of its url.
    pub(super) site: usize,
    /// It is used.
    pub(super) is_in: bool,
    /// Sends under way, as they weigh.
    pub(super) load: usize,
}

/// Where a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Nothing of it can have arrived anywhere, or all addresses know the same.
    Any {
        /// The url that has just not been reached; another one is tried first.
        avoid: Option<usize>,
    },
    /// The url it was first sent to, and nowhere else.
    Only(usize),
}

/// What `load` sends under way weigh at an address that was brought back `ago`: eight times as
/// much at first, then four times and twice, a quarter of `ramp` each, so that what has just
/// recovered is not given everything that waits at once.
pub(super) fn returning(load: usize, ago: Duration, ramp: Duration) -> usize {
    let quarter = (ramp / 4).as_nanos().max(1);
    let passed = u32::try_from(ago.as_nanos() / quarter).unwrap_or(u32::MAX);
    match 3_u32.saturating_sub(passed) {
        0 => load,
        doublings => load.saturating_add(1).saturating_mul(1 << doublings),
    }
}

/// Whether so many are out that all are used.
pub(super) fn is_panic(out: usize, all: usize, max_ejected: f64) -> bool {
    // Counts of addresses are small.
    #[expect(clippy::cast_precision_loss, reason = "at most a few thousand")]
    let (out, most) = (out as f64, all as f64 * max_ejected);
    all > 1 && out > most
}

/// The place of the address to send to; `None` when all that the call may go to are out.
pub(super) fn pick(all: &[Seen], reach: Reach, panic: bool, turn: usize) -> Option<usize> {
    let may = |seen: &Seen| (seen.is_in || panic) && reach.allows(seen.site);
    let avoided =
        |seen: &Seen| matches!(reach, Reach::Any { avoid: Some(site) } if site == seen.site);
    let len = all.len().max(1);
    let from = turn % len;
    let order = (from..len).chain(0..from);
    order
        .filter(|at| all.get(*at).is_some_and(may))
        .min_by_key(|at| (avoided(&all[*at]), all[*at].load))
}

impl Reach {
    /// Whether the call may go to this url.
    #[must_use]
    pub const fn allows(self, site: usize) -> bool {
        match self {
            Self::Any { .. } => true,
            Self::Only(only) => only == site,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ANY: Reach = Reach::Any { avoid: None };

    fn seen(site: usize, is_in: bool, load: usize) -> Seen {
        Seen { site, is_in, load }
    }

    #[test]
    fn the_least_loaded_is_picked_and_equals_take_turns() {
        let three = [seen(0, true, 2), seen(1, true, 1), seen(2, true, 1)];
        let picked: Vec<_> = (0..6).map(|turn| pick(&three, ANY, false, turn)).collect();
        assert_eq!(picked, [1, 1, 2, 1, 1, 2].map(Some));
        let equal = [seen(0, true, 0), seen(1, true, 0)];
        let picked: Vec<_> = (0..4).map(|turn| pick(&equal, ANY, false, turn)).collect();
        assert_eq!(picked, [0, 1, 0, 1].map(Some));
        assert_eq!(pick(&[], ANY, true, 7), None);
    }

    #[test]
    fn what_has_just_come_back_gets_its_share_step_by_step() {
        let ramp = Duration::from_secs(8);
        let at = |load, secs| returning(load, Duration::from_secs(secs), ramp);
        let weights: Vec<_> = [0, 1, 2, 4, 6, 7, 100].map(|secs| at(3, secs)).to_vec();
        assert_eq!(weights, [32, 32, 16, 8, 3, 3, 3]);
        // Beside three that are busy with seven each it takes nothing, beside busier ones one.
        let busy = |load| [1, 2, 3].map(|site| seen(site, true, load));
        let with = |load, own| [&[seen(0, true, own)][..], &busy(load)[..]].concat();
        assert_ne!(pick(&with(7, at(0, 0)), ANY, false, 1), Some(0));
        assert_eq!(pick(&with(9, at(0, 0)), ANY, false, 1), Some(0));
        assert_ne!(
            pick(&with(9, at(1, 0)), ANY, false, 1),
            Some(0),
            "one at a time"
        );
        // Alone it takes everything.
        assert_eq!(pick(&[seen(0, true, at(5, 0))], ANY, false, 1), Some(0));
        assert_eq!(returning(2, Duration::ZERO, Duration::ZERO), 24);
        assert_eq!(returning(2, Duration::from_nanos(9), Duration::ZERO), 2);
    }

    #[test]
    fn what_is_out_is_left_alone_unless_too_many_are() {
        let all = [seen(0, false, 0), seen(1, true, 9)];
        assert_eq!(pick(&all, ANY, false, 0), Some(1));
        assert_eq!(pick(&all, ANY, true, 0), Some(0));
        let out = [seen(0, false, 0), seen(1, false, 0)];
        assert_eq!(pick(&out, ANY, false, 0), None);
        for (count, all, max, expected) in [
            (1, 1, 0.0, false),
            (1, 2, 0.8, false),
            (2, 2, 0.8, true),
            (2, 2, 1.0, false),
            (2, 3, 0.5, true),
            (1, 2, 0.5, false),
            (1, 2, 0.0, true),
            (0, 2, 0.0, false),
        ] {
            assert_eq!(
                is_panic(count, all, max),
                expected,
                "{count} of {all}, {max}"
            );
        }
    }

    #[test]
    fn one_that_was_not_reached_is_the_last_to_be_tried() {
        let all = [seen(0, true, 0), seen(1, true, 5)];
        let reach = Reach::Any { avoid: Some(0) };
        assert_eq!(pick(&all, reach, false, 0), Some(1));
        assert_eq!(pick(&all[..1], reach, false, 0), Some(0));
    }

    proptest! {
        #[test]
        fn a_call_that_is_bound_to_an_address_goes_nowhere_else(
            all in prop::collection::vec((0_usize..4, any::<bool>(), 0_usize..5), 0..8),
            only in 0_usize..4,
            panic: bool,
            turn: usize,
        ) {
            let of = |(site, is_in, load)| seen(site, is_in, load);
            let all: Vec<_> = all.into_iter().map(of).collect();
            let picked = pick(&all, Reach::Only(only), panic, turn);
            if let Some(at) = picked {
                prop_assert_eq!(all[at].site, only);
                prop_assert!(all[at].is_in || panic);
            } else {
                prop_assert!(all.iter().all(|seen| seen.site != only || !(seen.is_in || panic)));
            }
        }
    }
}
