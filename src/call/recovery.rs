//! The recovery machine: one round of the compensation queue over one dead letter (contract
//! "Compensation queue").
//!
//! The same events and steps as in line, so that one driver performs both; `Park` here means "the
//! round is over": the next round, or a human. A round asks the receipt; only one that believes
//! NOT_FOUND, on a route with `resend: true`, sends again, at most once, and never the last round.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Outcome, Reading};
use super::policy::{OnFailed, Policy};
use super::receipt::{Answer, State};
use super::step::{Ending, Event, Parked, Parking, Reason, Step};
use super::tally::Tally;
use super::time::{Chance, Mono};

/// One round over one dead letter.
#[derive(Clone, Debug)]
pub struct Recovery {
    policy: Arc<Policy>,
    tally: Tally,
    round: usize,
    sending: Sending,
    phase: Phase,
}

/// Whether this dead letter may be sent again at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It may, if the policy and the receipt allow it.
    Allowed,
    /// The call came with a credential that was not kept, and nothing supplies it.
    NoCredential,
    /// The upstream is another one now, or the route is gone.
    RouteChanged,
    /// The caller cancelled it.
    Cancelled,
}

/// What the round is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Leased.
    New,
    /// The first question of the round.
    Asking,
    /// Exchanges left from before are being closed.
    Closing,
    /// `settle` is running.
    Settling,
    /// The question a resend, or a refusal, hangs on.
    Confirming,
    /// The resend is in flight.
    InFlight,
    /// The question after an unclear resend.
    AskingAgain,
    /// Over; late answers still count.
    Ended,
}

impl Recovery {
    /// Round number `round` (1-based) over a call sent `sends` times, `unclear` when any of these
    /// may have had an effect.
    #[must_use]
    pub fn new(
        policy: Arc<Policy>,
        now: Mono,
        round: u32,
        (sends, unclear): (u8, bool),
        sending: Sending,
    ) -> Self {
        Self {
            tally: Tally::recovered(now, sends, unclear),
            round: round as usize,
            policy,
            sending,
            phase: Phase::New,
        }
    }

    /// What is known about the attempts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// How long the attempt of a round may take.
    #[must_use]
    pub fn attempt_bound(&self) -> Duration {
        self.policy.timeouts.attempt
    }

    /// The next step after `event`.
    pub fn on(&mut self, event: Event, now: Mono, chance: Chance) -> Step {
        match event {
            Event::Begun => self.begun(chance),
            Event::Receipt(answer) => self.receipt(now, chance, answer),
            Event::Closed => self.closed(now, chance),
            Event::Waited => self.waited(chance),
            Event::Attempted {
                outcome,
                retry_after,
                open,
            } => {
                self.tally.attempted(now, outcome, retry_after, open);
                self.attempted(chance, outcome)
            }
            Event::LateAnswer { n, reading } => self.late_answer(now, n, reading),
            Event::LateEnded { .. } => {
                self.tally.late_ended(now);
                Step::Keep
            }
            Event::Denied | Event::LedgerFailed | Event::Draining => {
                self.over(Reason::LedgerFailed, chance)
            }
            // A round has no caller and no deadline; answers of a round are always collected.
            Event::ClientGone | Event::DeadlinePassed => Step::Keep,
            Event::Head(_) => self.impossible(chance),
        }
    }

    /// Whether this is the last round, which only asks.
    fn is_last(&self) -> bool {
        self.round >= self.policy.compensation.rounds.len()
    }

    fn may_send(&self) -> bool {
        self.policy.compensation.resend && !self.is_last() && self.sending == Sending::Allowed
    }

    fn begun(&mut self, chance: Chance) -> Step {
        if self.phase != Phase::New {
            return self.impossible(chance);
        }
        if !self.tally.is_unclear() {
            // Nothing ever reached the tool: there is nothing to ask about.
            return if self.may_send() {
                self.send()
            } else {
                self.over_unsettled(chance)
            };
        }
        if self.policy.receipt.is_some() {
            self.phase = Phase::Asking;
            return Step::Ask;
        }
        let declared = self
            .tally
            .permits(Answer::State(State::Unknown), &self.policy);
        if declared && self.may_send() {
            self.send()
        } else {
            self.manual(Reason::NoReceipt)
        }
    }

    fn send(&mut self) -> Step {
        self.phase = Phase::InFlight;
        let cause = (self.tally.sends() > 0).then(|| self.tally.cause());
        Step::Send {
            n: self.tally.begin_send(),
            cause,
        }
    }

    fn receipt(&mut self, now: Mono, chance: Chance, answer: Answer) -> Step {
        let asking = matches!(
            self.phase,
            Phase::Asking | Phase::Confirming | Phase::AskingAgain
        );
        if !asking {
            return self.impossible(chance);
        }
        let answer = self.tally.weigh(now, answer, &self.policy);
        match answer {
            Answer::State(State::Success) => return self.end(Ending::ReceiptSuccess),
            Answer::State(State::Failed) => return self.reported_failure(),
            Answer::State(State::Received | State::Processing | State::Unknown)
            | Answer::NotFound => {}
        }
        match self.phase {
            Phase::Confirming => self.confirmed(answer, chance),
            Phase::Asking if self.may_send() && self.tally.permits(answer, &self.policy) => {
                match answer {
                    Answer::NotFound => self.close(),
                    // Declared: the tool dedupes by call id.
                    Answer::State(_) => self.send(),
                }
            }
            Phase::AskingAgain if answer == Answer::NotFound && self.refused().is_some() => {
                self.close()
            }
            Phase::New
            | Phase::Asking
            | Phase::Closing
            | Phase::Settling
            | Phase::InFlight
            | Phase::AskingAgain
            | Phase::Ended => self.over_unsettled(chance),
        }
    }

    fn reported_failure(&mut self) -> Step {
        match self.policy.compensation.on_failed {
            OnFailed::Keep => self.manual(Reason::ReportedFailure),
            OnFailed::Drop => {
                let kept = self.tally.kept().map(|kept| kept.n);
                self.end(Ending::ReceiptFailed { kept })
            }
        }
    }

    fn close(&mut self) -> Step {
        // Exchanges of the in-line part may still be open in this process; whether they are is
        // not in the row, so the driver is told to close in any case.
        self.phase = Phase::Closing;
        Step::CloseEarlier
    }

    fn closed(&mut self, now: Mono, chance: Chance) -> Step {
        if self.phase != Phase::Closing {
            return self.impossible(chance);
        }
        self.tally.all_closed(now);
        self.phase = Phase::Settling;
        Step::Wait(self.tally.settle_left(now, &self.policy))
    }

    fn waited(&mut self, chance: Chance) -> Step {
        if self.phase != Phase::Settling {
            return self.impossible(chance);
        }
        self.phase = Phase::Confirming;
        Step::Ask
    }

    fn confirmed(&mut self, answer: Answer, chance: Chance) -> Step {
        if let (Answer::NotFound, Some(ending)) = (answer, self.refused()) {
            return self.end(ending);
        }
        // A refusal forbids a resend, so a round sends at most once.
        if self.may_send() && self.tally.permits(answer, &self.policy) {
            self.send()
        } else {
            self.over_unsettled(chance)
        }
    }

    /// The definite refusal of this round's resend. What binds nothing (401, 403, 429) is unclear
    /// here: it may speak of the gateway's credential instead of the call.
    fn refused(&self) -> Option<Ending> {
        let refusal = self.tally.refusal()?;
        matches!(refusal.reading, Reading::Failure(_)).then(|| refusal.ending())
    }

    fn attempted(&mut self, chance: Chance, outcome: Outcome) -> Step {
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

    fn late_answer(&mut self, now: Mono, n: u8, reading: Reading) -> Step {
        if !self.tally.was_sent(n) {
            return self.impossible(Chance::new(0.5));
        }
        self.tally.late_ended(now);
        self.tally.answered(n, reading);
        match self.tally.settled_by(n, reading) {
            Some(ending) if self.phase != Phase::InFlight => self.end(ending),
            Some(Ending::Success(_)) => self.end(Ending::Success(n)),
            Some(_) | None => Step::Keep,
        }
    }

    /// Nothing was learnt that ends the call: the next round, or a human after the last.
    fn over_unsettled(&mut self, chance: Chance) -> Step {
        let reason = match self.sending {
            Sending::Allowed | Sending::Cancelled => Reason::RoundsExhausted,
            Sending::NoCredential => Reason::CredentialNotKept,
            Sending::RouteChanged => Reason::RouteChanged,
        };
        self.over(reason, chance)
    }

    fn over(&mut self, reason: Reason, chance: Chance) -> Step {
        let Some(gap) = self.policy.compensation.rounds.get(self.round).copied() else {
            return self.manual(reason);
        };
        self.phase = Phase::Ended;
        let state = Parked::Queued(self.policy.retry.spread(gap, chance));
        Step::Park(Parking {
            reason,
            state,
            kept: None,
        })
    }

    fn manual(&mut self, reason: Reason) -> Step {
        self.phase = Phase::Ended;
        Step::Park(Parking {
            reason,
            state: Parked::Manual,
            kept: None,
        })
    }

    fn end(&mut self, ending: Ending) -> Step {
        self.phase = Phase::Ended;
        Step::Answer(ending)
    }

    fn impossible(&mut self, chance: Chance) -> Step {
        if self.phase == Phase::Ended {
            return Step::Keep;
        }
        if self.phase == Phase::InFlight {
            self.tally.doubt();
        }
        self.over(Reason::Impossible, chance)
    }
}

#[cfg(test)]
mod tests;
