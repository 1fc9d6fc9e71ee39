//! How many requests are let in per interval, and how many of one client at once.
//!
//! Rates are counted by sketches in fixed intervals. A sketch only over-counts, so that it may
//! refuse a request too many and never lets one in for free; around the edge of two intervals up to
//! twice the number can come within one interval's length. Therefore a rate only sheds load, and
//! whatever must be exact (requests at once) is counted, not estimated.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::call::id::ClientName;
use crate::config::limits::{RATE_INTERVAL_MIN, Rate};

/// A rate and what was counted in the present interval.
pub(super) struct Meter {
    pub(super) rate: Rate,
    sketch: pingora_limits::rate::Rate,
}

/// Requests under way per client.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: DashMap<ClientName, usize>,
}

/// One request of a client under way; counted until this is dropped.
#[derive(Debug)]
pub(in crate::flow) struct Slot {
    slots: Arc<Slots>,
    client: ClientName,
}

impl Meter {
    pub(super) fn new(rate: Rate) -> Self {
        // Shorter ones make the sketch's own arithmetic panic; the file allows none.
        let per = rate.per.max(RATE_INTERVAL_MIN);
        Self {
            rate,
            sketch: pingora_limits::rate::Rate::new(per),
        }
    }

    /// Counts a request; how many more the interval would take, `None` when it is one too many.
    pub(super) fn admit(&self, key: &impl Hash) -> Option<u32> {
        let counted = self.sketch.observe(key, 1).max(1);
        let counted = u32::try_from(counted).unwrap_or(u32::MAX);
        self.rate.requests.checked_sub(counted)
    }
}

impl fmt::Debug for Meter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Meter({})", self.rate)
    }
}

impl Slots {
    /// Whether nobody holds one.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Takes a slot, unless the client has `most` already.
    pub(super) fn take(self: &Arc<Self>, client: &ClientName, most: usize) -> Option<Slot> {
        match self.taken.entry(client.clone()) {
            Entry::Occupied(mut taken) if *taken.get() < most => *taken.get_mut() += 1,
            Entry::Occupied(_) => return None,
            Entry::Vacant(free) => {
                free.insert(1);
            }
        }
        Some(Slot {
            slots: Arc::clone(self),
            client: client.clone(),
        })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Entry::Occupied(mut taken) = self.slots.taken.entry(self.client.clone()) {
            *taken.get_mut() -= 1;
            if *taken.get() == 0 {
                taken.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn meter(requests: u32) -> Meter {
        Meter::new(Rate {
            requests,
            per: RATE_INTERVAL_MIN,
        })
    }

    #[test]
    #[allow(clippy::disallowed_methods, reason = "the sketch reads the real clock")]
    fn c61e_around_an_edge_twice_the_rate_may_pass_and_no_more() {
        let meter = meter(50);
        let began = Instant::now();
        let mut passed = Vec::new();
        while began.elapsed() < Duration::from_millis(2_500) {
            if meter.admit(&"a").is_some() {
                passed.push(began.elapsed());
            }
            std::thread::yield_now();
        }
        assert!(
            passed.len() >= 100,
            "{} in two and a half seconds",
            passed.len()
        );
        for from in &passed {
            let until = *from + RATE_INTERVAL_MIN;
            let within = passed
                .iter()
                .filter(|at| (from..&until).contains(at))
                .count();
            assert!(within <= 100, "{within} within a second");
        }
    }

    #[test]
    fn c61e_many_threads_never_let_one_through_too_many_nor_panic() {
        let meter = meter(1_000);
        let passed: usize = std::thread::scope(|threads| {
            let count = || (0..2_000).filter(|_| meter.admit(&1u8).is_some()).count();
            let all: Vec<_> = (0..4).map(|_| threads.spawn(count)).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        // An edge may fall into the test.
        assert!((1_000..=2_000).contains(&passed), "{passed}");
    }

    #[test]
    fn slots_are_exact_and_nobody_is_remembered() {
        let slots = Arc::new(Slots::default());
        let (a, b) = (ClientName::new("a"), ClientName::new("b"));
        let first = slots.take(&a, 2).unwrap();
        let second = slots.take(&a, 2).unwrap();
        assert!(slots.take(&a, 2).is_none());
        let other = slots.take(&b, 1).unwrap();
        drop(first);
        let third = slots.take(&a, 2).unwrap();
        drop((second, third, other));
        assert!(slots.taken.is_empty());
    }
}
