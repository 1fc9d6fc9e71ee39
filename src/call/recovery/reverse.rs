//! The reversal of a call that stays unclear: when it may begin, and how it ends.
//!
//! It begins after the last round, or on an operator's order. Every exchange has been closed for
//! `min_age` by then and the receipt was asked with nothing in between, so that the tool's word is
//! as fresh as it can be. From its first send on the original is never sent again, whatever comes;
//! it is itself repeated while it is unclear, and ends undone or in front of a human.

use std::time::Duration;

use super::{Errand, Goal, Order, Phase, Recovery, Sending};
use crate::call::receipt::{Answer, State};
use crate::call::step::{Parked, Reason, Step, Undo};
use crate::call::time::{Chance, Mono};

impl Recovery {
    /// Whether `answer` lets this pass undo the call.
    pub(super) fn may_reverse(&self, now: Mono, answer: Answer) -> bool {
        let Some(reversal) = self.policy.compensation.reversal else {
            return false;
        };
        let asked_for = match self.errand {
            Errand::Round(round) => {
                round >= self.policy.compensation.rounds.len() && !self.worked_on
            }
            Errand::Order(Order::Reverse) => true,
            Errand::Order(Order::Ask | Order::Resend) | Errand::Repeat(_) | Errand::Undo => false,
        };
        let there = match self.sending {
            // It has a request of its own, and is no send of the original.
            Sending::Allowed
            | Sending::Owed
            | Sending::NoCredential
            | Sending::Cancelled
            | Sending::Told => true,
            Sending::RouteChanged | Sending::WithHuman => false,
        };
        let age = self.known.sent_for.saturating_add(now.since(self.began));
        asked_for
            && there
            && self.tally.is_unclear()
            && self.policy.receipt.is_some()
            && reversal.wants(answer)
            && age <= reversal.max_age
    }

    /// What has to come before the reversal that `answer` allows: nothing, when it was asked late
    /// enough after every exchange was closed.
    pub(super) fn prepare_reversal(&mut self, answer: Answer) -> Step {
        let is_late_enough = !self.known.open && self.min_age_left().is_zero();
        match answer {
            Answer::State(State::Unknown) if is_late_enough => self.reverse(),
            // "Never heard of it" is believed only after closing and settling.
            Answer::NotFound | Answer::State(_) => self.close(Goal::Reverse),
        }
    }

    /// What is left of `min_age`, if everything is closed by now.
    pub(super) fn min_age_left(&self) -> Duration {
        let closed_for = if self.known.open {
            Duration::ZERO
        } else {
            self.known.closed_for
        };
        let min_age = self.policy.compensation.reversal.map(|r| r.min_age);
        min_age.unwrap_or_default().saturating_sub(closed_for)
    }

    /// The answer immediately before the reversal.
    pub(super) fn reverse_if(&mut self, now: Mono, answer: Answer, chance: Chance) -> Step {
        if self.may_reverse(now, answer) {
            self.reverse()
        } else {
            self.over_unsettled(chance)
        }
    }

    fn reverse(&mut self) -> Step {
        self.phase = Phase::Reversing;
        self.known.reversals = self.known.reversals.saturating_add(1);
        Step::Reverse {
            n: self.known.reversals,
        }
    }

    /// A reversal that has begun: it is sent again with its own id, as often as its policy allows
    /// or an operator wants.
    pub(super) fn undo_again(&mut self, chance: Chance) -> Step {
        match self.errand {
            Errand::Undo if self.sending == Sending::RouteChanged => {
                self.manual(Reason::RouteChanged)
            }
            Errand::Undo if self.known.reversals > self.reversals_max() => {
                self.manual(Reason::ReversalUnclear)
            }
            Errand::Undo | Errand::Order(Order::Reverse) => self.reverse(),
            Errand::Order(Order::Ask) | Errand::Repeat(_) if self.policy.receipt.is_some() => {
                self.phase = Phase::Asking;
                Step::Ask
            }
            Errand::Round(_) | Errand::Repeat(_) | Errand::Order(_) => self.over_unsettled(chance),
        }
    }

    /// How the reversal in flight has ended.
    pub(super) fn reversed(&mut self, undo: Undo, chance: Chance) -> Step {
        if self.phase != Phase::Reversing {
            return self.impossible(chance);
        }
        match undo {
            Undo::Done => self.leave(Reason::RoundsExhausted, Parked::Reversed),
            Undo::Refused => self.manual(Reason::ReversalRefused),
            Undo::Unsendable => self.manual(Reason::ReversalIncomplete),
            Undo::Unclear if self.known.reversals > self.reversals_max() => {
                self.manual(Reason::ReversalUnclear)
            }
            Undo::Unclear => self.undo_later(Reason::ReversalUnclear, chance),
        }
    }

    /// The reversal goes on after its backoff, in whatever process.
    pub(super) fn undo_later(&mut self, reason: Reason, chance: Chance) -> Step {
        let wait = self.policy.retry.backoff(self.known.reversals, chance);
        self.leave(reason, Parked::Reversing(wait))
    }

    /// Repeats of the reversal without a human.
    fn reversals_max(&self) -> u32 {
        u32::from(self.policy.retry.max_retries())
    }
}
