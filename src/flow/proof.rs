//! Whether a receipt endpoint's "never heard of it" can be believed (contract, rule 5).
//!
//! A mistyped path, a load balancer's default page or half a roll-out answers 404 for everything,
//! and each such answer would send a call again. So the endpoint first has to recognise an id that
//! was sent: the gateway asks about the first answered calls and remembers what it finds. An
//! endpoint that says it does not know an answered call is broken until it does. One that cannot be
//! asked has said nothing: it stays unproven.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::policy::BelieveNotFound;
use crate::call::time::Mono;
use crate::ledger::Proof;

/// Gaps between the questions about one answered call, counted from its answer; the first one is
/// at least `settle`. Three questions, as the contract says.
const GAPS: [Duration; 3] = [
    Duration::ZERO,
    Duration::from_secs(1),
    Duration::from_secs(4),
];

/// Probes of one endpoint that may run at once: the first calls of a burst are enough.
const PROBES_MAX: u8 = 4;

/// After a probe that proved nothing the next answered call is asked about no sooner.
const PAUSE: Duration = Duration::from_secs(10);

/// What is known about one receipt endpoint. One per route, shared by its calls.
#[derive(Debug)]
pub struct Trust {
    believe: BelieveNotFound,
    /// The same as the standing, for the calls that only ask whether there is anything to do.
    proven: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    standing: Standing,
    running: u8,
    not_before: Mono,
    /// The last time it was asked about an answered call, it said nothing that could be used.
    silent: bool,
}

/// What the endpoint has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not yet seen to recognise anything.
    Unproven,
    /// It recognised an id that was sent.
    Proven,
    /// It said that it did not know a call that was answered.
    Broken,
}

/// The right to ask about one answered call. Given back when dropped.
#[derive(Debug)]
pub struct Probe<'a>(&'a Trust);

impl Trust {
    /// An endpoint as it was remembered, or a new one.
    #[must_use]
    pub const fn new(believe: BelieveNotFound, remembered: Option<Proof>) -> Self {
        let standing = match remembered {
            None => Standing::Unproven,
            Some(Proof::Proven) => Standing::Proven,
            Some(Proof::Broken) => Standing::Broken,
        };
        let state = State {
            standing,
            running: 0,
            not_before: Mono(0),
            silent: false,
        };
        Self {
            believe,
            proven: AtomicBool::new(matches!(standing, Standing::Proven)),
            state: Mutex::new(state),
        }
    }

    /// Whether this is how its word is taken.
    #[must_use]
    pub fn believes(&self, believe: BelieveNotFound) -> bool {
        self.believe == believe
    }

    /// Whether a "not found" of this endpoint can be believed at all.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        match self.believe {
            BelieveNotFound::Always => true,
            BelieveNotFound::Proven => self.proven.load(Ordering::Acquire),
        }
    }

    /// What the endpoint has shown so far.
    #[must_use]
    pub fn standing(&self) -> Standing {
        self.state.lock().standing
    }

    /// Whether there is still something to find out about the endpoint; cheap.
    #[must_use]
    pub fn is_curious(&self) -> bool {
        self.believe == BelieveNotFound::Proven && !self.proven.load(Ordering::Acquire)
    }

    /// Whether a call answered now shall be asked about.
    #[must_use]
    pub fn probe(&self, now: Mono) -> Option<Probe<'_>> {
        if !self.is_curious() {
            return None;
        }
        let mut state = self.state.lock();
        let wanted = state.running < PROBES_MAX && now >= state.not_before;
        wanted.then(|| {
            state.running += 1;
            Probe(self)
        })
    }

    /// The endpoint recognised an id that was sent. Whether that is news.
    pub fn recognised(&self) -> bool {
        let mut state = self.state.lock();
        let news = state.standing != Standing::Proven;
        state.standing = Standing::Proven;
        state.silent = false;
        self.proven.store(true, Ordering::Release);
        news
    }

    /// Whether it could not be asked when it should have shown what it is worth.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.state.lock().silent
    }

    /// The endpoint could not be asked about an answered call, tried as often as [`waits`] says.
    /// Whether that is news. It has denied nothing, so it is no better and no worse than before.
    pub fn unheard(&self, now: Mono) -> bool {
        let mut state = self.state.lock();
        state.not_before = now.after(PAUSE);
        let news = state.standing == Standing::Unproven && !state.silent;
        state.silent |= news;
        news
    }

    /// The endpoint denied an answered call, asked as often as [`waits`] says. Whether that is
    /// news. A proof that came in the meantime stands: other calls are recognised.
    pub fn missed(&self, now: Mono) -> bool {
        let mut state = self.state.lock();
        state.not_before = now.after(PAUSE);
        let news = state.standing == Standing::Unproven;
        if news {
            state.standing = Standing::Broken;
            state.silent = false;
        }
        news
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        self.0.state.lock().running -= 1;
    }
}

/// The waits before each question about an answered call.
#[must_use]
pub(super) fn waits(settle: Duration) -> [Duration; 3] {
    GAPS.map(|gap| gap.max(settle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_believed_only_after_it_recognised_something() {
        let trust = Trust::new(BelieveNotFound::Proven, None);
        assert!(!trust.is_proven());
        assert!(trust.missed(Mono(0)));
        assert_eq!(trust.standing(), Standing::Broken);
        assert!(!trust.is_proven());
        assert!(!trust.missed(Mono(0)), "told once");
        assert!(trust.recognised());
        assert!(trust.is_proven());
        assert!(!trust.recognised());
        assert!(Trust::new(BelieveNotFound::Proven, Some(Proof::Proven)).is_proven());
        assert!(!Trust::new(BelieveNotFound::Proven, Some(Proof::Broken)).is_proven());
        assert!(Trust::new(BelieveNotFound::Always, None).is_proven());
    }

    #[test]
    fn an_endpoint_that_cannot_be_asked_is_unproven_and_not_broken() {
        let trust = Trust::new(BelieveNotFound::Proven, None);
        assert!(trust.unheard(Mono(0)));
        assert!(!trust.unheard(Mono(0)), "told once");
        assert_eq!(
            (trust.standing(), trust.is_silent()),
            (Standing::Unproven, true)
        );
        assert!(!trust.is_proven());
        assert!(trust.probe(Mono(0)).is_none(), "a pause");
        assert!(trust.missed(Mono(0)), "then it denies a call");
        assert_eq!(
            (trust.standing(), trust.is_silent()),
            (Standing::Broken, false)
        );
        assert!(!trust.unheard(Mono(0)), "that it was broken stands");
        assert_eq!(trust.standing(), Standing::Broken);
        let trust = Trust::new(BelieveNotFound::Proven, None);
        assert!(trust.unheard(Mono(0)) && trust.recognised());
        assert!(!trust.is_silent() && !trust.unheard(Mono(0)));
    }

    #[test]
    fn only_a_few_answered_calls_are_asked_about_and_none_once_it_is_proven() {
        let trust = Trust::new(BelieveNotFound::Proven, None);
        let probes: Vec<_> = (0..10).filter_map(|_| trust.probe(Mono(0))).collect();
        assert_eq!(probes.len(), usize::from(PROBES_MAX));
        drop(probes);
        assert!(trust.probe(Mono(0)).is_some());
        trust.missed(Mono(0));
        assert!(trust.probe(Mono(0)).is_none(), "a pause after a miss");
        assert!(trust.probe(Mono(0).after(PAUSE)).is_some());
        trust.recognised();
        assert!(trust.probe(Mono(u64::MAX)).is_none());
        assert!(
            Trust::new(BelieveNotFound::Always, None)
                .probe(Mono(0))
                .is_none()
        );
    }
}
