//! Whether one address is used: in, out, or tried again with one send.
//!
//! Pure: time is an argument. Only failures that somebody has seen count (passive): a row of them,
//! or their share of the sends of late. Out is out for a while that doubles each time; after it one
//! send at a time is let through, and its end decides. Before that, one send is let through for
//! which somebody vouches; should it fail, the address stays out as long as it would have.
//! Deliberately absent: which address is chosen (`pick`), and what counts as a failure
//! (`upstream.ejection.on`).

use std::time::Duration;

use crate::call::time::Mono;
use crate::config::ejection::Ejection;

/// Parts of the window; what is older than the window goes part by part.
const SLOTS: usize = 10;

/// Doublings after which no cap is still to be reached.
const DOUBLINGS_MAX: u32 = 20;

/// How a send went, as far as the address is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Sample {
    /// The tool answered.
    Good,
    /// It did not, or with an error of its own.
    Bad,
}

/// What an address is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is used.
    In,
    /// It is left alone.
    Out {
        /// Until then; after it the next send may be a probe.
        until: Mono,
    },
    /// One send finds out whether it can be used again.
    Probing,
}

/// Why an address was ejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many failures in a row.
    Row,
    /// The share of failures.
    Share,
    /// The probe failed.
    Probe,
}

/// What has changed about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is left alone now.
    Ejected {
        /// Why.
        why: Why,
        /// For how long.
        out_for: Duration,
    },
    /// It is used again.
    Returned,
}

/// What is known about one address.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct Level {
    state: State,
    /// Sends that began before the last change say nothing about the time after it.
    epoch: u32,
    streak: u32,
    window: Window,
    /// Ejections that were not yet lived down.
    times: u32,
    /// How long it was last left alone, and until when.
    out_for: Duration,
    until: Mono,
    /// Since when it is in.
    since: Mono,
}

/// Sends and failures of late.
#[derive(Clone, Debug, Default)]
struct Window {
    slots: [(u32, u32); SLOTS],
    newest: u64,
}

impl Level {
    pub(in crate::upstream) fn new(now: Mono) -> Self {
        Self {
            state: State::In,
            epoch: 0,
            streak: 0,
            window: Window::default(),
            times: 0,
            out_for: Duration::ZERO,
            until: now,
            since: now,
        }
    }

    pub(in crate::upstream) const fn state(&self) -> State {
        self.state
    }

    /// What a send that begins now is weighed by.
    pub(in crate::upstream) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Failures in a row, and ejections that were not yet lived down.
    pub(in crate::upstream) const fn counts(&self) -> (u32, u32) {
        (self.streak, self.times)
    }

    /// Whether the next send may be a probe.
    pub(in crate::upstream) fn is_due(&self, now: Mono) -> bool {
        matches!(self.state, State::Out { until } if until <= now)
    }

    /// Takes the probe, if one is due: whoever gets it has to tell its end, or give it back.
    pub(in crate::upstream) fn take_probe(&mut self, now: Mono) -> bool {
        let due = self.is_due(now);
        if due {
            self.state = State::Probing;
        }
        due
    }

    /// Takes the probe though it may not be due, because the address has just shown that it lives.
    pub(in crate::upstream) fn take_vouched(&mut self) -> bool {
        let out = matches!(self.state, State::Out { .. });
        if out {
            self.state = State::Probing;
        }
        out
    }

    /// The probe did not take place: another one may.
    pub(in crate::upstream) fn give_back(&mut self) {
        if self.state == State::Probing {
            self.state = State::Out { until: self.until };
        }
    }

    /// The probe has ended.
    pub(in crate::upstream) fn probed(
        &mut self,
        rule: &Ejection,
        now: Mono,
        sample: Sample,
    ) -> Option<Change> {
        if self.state != State::Probing {
            return None;
        }
        match sample {
            // It was before its time, and has taught nothing new.
            Sample::Bad if now < self.until => {
                self.give_back();
                None
            }
            Sample::Bad => Some(self.eject(rule, now, Why::Probe)),
            Sample::Good => {
                self.state = State::In;
                self.since = now;
                self.anew();
                Some(Change::Returned)
            }
        }
    }

    /// A send that began in `epoch` has ended.
    pub(in crate::upstream) fn ended(
        &mut self,
        rule: &Ejection,
        now: Mono,
        epoch: u32,
        sample: Sample,
    ) -> Option<Change> {
        if epoch != self.epoch || self.state != State::In {
            return None;
        }
        self.window.note(now, rule.window, sample);
        match sample {
            Sample::Good => {
                self.streak = 0;
                None
            }
            Sample::Bad => {
                self.streak = self.streak.saturating_add(1);
                let why = self.tires(rule, now)?;
                Some(self.eject(rule, now, why))
            }
        }
    }

    fn tires(&mut self, rule: &Ejection, now: Mono) -> Option<Why> {
        if rule.consecutive > 0 && self.streak >= rule.consecutive {
            return Some(Why::Row);
        }
        let (sends, bad) = self.window.of_late(now, rule.window);
        let enough = rule.share > 0.0 && sends >= rule.samples;
        (enough && f64::from(bad) >= rule.share * f64::from(sends)).then_some(Why::Share)
    }

    fn eject(&mut self, rule: &Ejection, now: Mono, why: Why) -> Change {
        if why != Why::Probe {
            // Every time it was in for as long as it had been out counts one ejection less.
            let well = now.since(self.since).as_nanos();
            let lived_down = well.checked_div(self.out_for.as_nanos()).unwrap_or(0);
            let lived_down = u32::try_from(lived_down).unwrap_or(u32::MAX);
            self.times = self.times.saturating_sub(lived_down);
        }
        let doubled = 1_u32 << self.times.min(DOUBLINGS_MAX);
        self.out_for = rule.base.saturating_mul(doubled).min(rule.cap);
        self.times = self.times.saturating_add(1).min(DOUBLINGS_MAX);
        self.until = now.after(self.out_for);
        self.state = State::Out { until: self.until };
        self.anew();
        Change::Ejected {
            why,
            out_for: self.out_for,
        }
    }

    fn anew(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.streak = 0;
        self.window = Window::default();
    }
}

impl Window {
    fn note(&mut self, now: Mono, window: Duration, sample: Sample) {
        self.pass(now, window);
        let (sends, bad) = &mut self.slots[slot(self.newest)];
        *sends = sends.saturating_add(1);
        *bad = bad.saturating_add(u32::from(sample == Sample::Bad));
    }

    fn of_late(&mut self, now: Mono, window: Duration) -> (u32, u32) {
        self.pass(now, window);
        let add = |(sends, bad): (u32, u32), (more, worse): &(u32, u32)| {
            (sends.saturating_add(*more), bad.saturating_add(*worse))
        };
        self.slots.iter().fold((0, 0), add)
    }

    /// Forgets what has left the window.
    fn pass(&mut self, now: Mono, window: Duration) {
        let part = (window.as_nanos() / SLOTS as u128).max(1);
        let present = u64::try_from(u128::from(now.0) / part).unwrap_or(u64::MAX);
        let gone = present.saturating_sub(self.newest).min(SLOTS as u64);
        for n in 0..gone {
            self.slots[slot(present - n)] = (0, 0);
        }
        self.newest = present.max(self.newest);
    }
}

fn slot(number: u64) -> usize {
    usize::try_from(number % SLOTS as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
