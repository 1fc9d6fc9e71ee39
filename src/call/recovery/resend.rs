//! The one resend of a pass: what has to come before it, and what its answer means.

use std::time::Duration;

use super::{Errand, Goal, Order, Phase, Recovery, Sending};
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::Answer;
use crate::call::step::{Ending, Step};
use crate::call::time::{Chance, Mono};

impl Recovery {
    pub(super) fn may_send(&self, now: Mono) -> bool {
        let policy = &self.policy;
        let allowance = match self.errand {
            // The last round only asks.
            Errand::Round(round) => {
                let is_last = round >= policy.compensation.rounds.len();
                self.is_owed() || (policy.compensation.resend && !is_last)
            }
            Errand::Order(Order::Resend) => true,
            Errand::Order(Order::Ask | Order::Reverse) | Errand::Undo => false,
            Errand::Repeat(patience) => {
                let useful = policy.timeouts.useful();
                self.tally.sends() <= policy.retry.max_retries()
                    && patience.deadline.since(now) >= useful
            }
        };
        allowance && matches!(self.sending, Sending::Allowed | Sending::Owed)
    }

    /// Whether a promised call still waits for the first send that reaches the tool.
    pub(super) fn is_owed(&self) -> bool {
        self.sending == Sending::Owed && !self.tally.has_reached()
    }

    pub(super) fn send(&mut self) -> Step {
        self.phase = Phase::InFlight;
        let cause = (self.tally.sends() > 0).then(|| self.tally.cause());
        Step::Send {
            n: self.tally.begin_send(),
            cause,
        }
    }

    /// The rest of the backoff before a resend that `answer` allows. Rounds lie further apart than
    /// any backoff.
    pub(super) fn rest(&mut self, answer: Answer, chance: Chance) -> Step {
        let patience = match self.errand {
            Errand::Repeat(patience) => patience,
            Errand::Round(_) | Errand::Order(_) | Errand::Undo => return self.allowed_by(answer),
        };
        let backoff = self.policy.retry.backoff(self.tally.sends().into(), chance);
        let rest = backoff.saturating_sub(patience.last_sent);
        if rest.is_zero() {
            return self.allowed_by(answer);
        }
        self.phase = Phase::Resting(answer);
        Step::Wait(rest)
    }

    pub(super) fn allowed_by(&mut self, answer: Answer) -> Step {
        match answer {
            Answer::NotFound => self.close(Goal::Resend),
            // Declared (the tool dedupes by call id), or nothing ever reached it.
            Answer::State(_) => self.send(),
        }
    }

    pub(super) fn close(&mut self, goal: Goal) -> Step {
        // Exchanges of the in-line part may still be open in this process; whether they are is
        // not in the row, so the driver is told to close in any case.
        self.phase = Phase::Closing(goal);
        Step::CloseEarlier
    }

    pub(super) fn closed(&mut self, now: Mono, chance: Chance) -> Step {
        let Phase::Closing(goal) = self.phase else {
            return self.impossible(chance);
        };
        self.tally.all_closed(now);
        self.phase = Phase::Settling(goal);
        let settle = self.tally.settle_left(now, &self.policy);
        let settle = settle.saturating_add(self.elsewhere_left(now));
        Step::Wait(match goal {
            Goal::Resend => settle,
            Goal::Reverse => settle.max(self.min_age_left()),
        })
    }

    /// How much longer an exchange may be open that another process holds.
    fn elsewhere_left(&self, now: Mono) -> Duration {
        self.known.elsewhere.saturating_sub(now.since(self.began))
    }

    pub(super) fn waited(&mut self, now: Mono, chance: Chance) -> Step {
        match self.phase {
            Phase::Settling(goal) => {
                self.phase = Phase::Confirming(goal);
                Step::Ask
            }
            Phase::Resting(answer) if self.may_send(now) => self.allowed_by(answer),
            Phase::Resting(_) => self.over_unsettled(chance),
            Phase::New
            | Phase::Asking
            | Phase::Closing(_)
            | Phase::Confirming(_)
            | Phase::InFlight
            | Phase::AskingAgain
            | Phase::Reversing
            | Phase::Ended => self.impossible(chance),
        }
    }

    pub(super) fn confirmed(&mut self, now: Mono, answer: Answer, chance: Chance) -> Step {
        if let (Answer::NotFound, Some(ending)) = (answer, self.refused()) {
            return self.end(ending);
        }
        // A refusal forbids a resend, so a round sends at most once.
        if self.may_send(now) && self.tally.permits(answer, &self.policy) {
            self.send()
        } else {
            self.over_unsettled(chance)
        }
    }

    /// The definite refusal of this round's resend. What binds nothing (401, 403, 429) is unclear
    /// here: it may speak of the gateway's credential instead of the call.
    pub(super) fn refused(&self) -> Option<Ending> {
        let refusal = self.tally.refusal()?;
        matches!(refusal.reading, Reading::Failure(_)).then(|| refusal.ending())
    }

    pub(super) fn attempted(&mut self, chance: Chance, outcome: Outcome) -> Step {
        if self.phase != Phase::InFlight {
            return self.impossible(chance);
        }
        if let Outcome::Answered(reading) = outcome {
            let binds_nothing = matches!(reading, Reading::Unbinding(_));
            match self.tally.settled_by(self.tally.sends(), reading) {
                Some(ending) if !binds_nothing => return self.end(ending),
                Some(_) | None => {}
            }
        }
        if self.policy.receipt.is_some() && self.tally.is_unclear() {
            self.phase = Phase::AskingAgain;
            return Step::Ask;
        }
        self.over_unsettled(chance)
    }
}
