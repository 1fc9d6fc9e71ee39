//! The recovery machine: one pass over one dead letter, by a round of the compensation queue or on
//! behalf of a caller who repeats the call (contract "Compensation queue", "Duplicates").
//!
//! The same events and steps as in line, so that one driver performs both; `Park` here means "the
//! pass is over": the next round, a human, or the row as it was. A pass asks the receipt and sends
//! at most once, when it believes NOT_FOUND: a round on routes with `resend: true`, never the last
//! one; a repeat within the allowance that the line and all repeats share (rule 6).

use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Outcome, Reading};
use super::policy::{OnFailed, Policy};
use super::receipt::{Answer, State};
use super::step::{Ending, Event, Parked, Parking, Reason, Step};
use super::tally::Tally;
use super::time::{Chance, Mono};

/// One pass over one dead letter.
#[derive(Clone, Debug)]
pub struct Recovery {
    policy: Arc<Policy>,
    tally: Tally,
    errand: Errand,
    sending: Sending,
    phase: Phase,
    /// The last receipt says that a gateway further in still works on the call.
    worked_on: bool,
}

/// On whose behalf the dead letter is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    /// This round of the queue, 1-based.
    Round(usize),
    /// A caller who repeats the call.
    Repeat(Patience),
}

/// What bounds a pass on behalf of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// When the caller is told that nobody knows.
    pub deadline: Mono,
    /// How long ago the call was sent last; its backoff counts from there.
    pub last_sent: Duration,
}

/// Whether this dead letter may be sent again at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It may, if the policy and the receipt allow it.
    Allowed,
    /// The same, and its first send is owed: the caller was promised the call, so as long as
    /// nothing has reached the tool every round sends it, whatever `compensation.resend` says.
    Owed,
    /// The call came with a credential that was not kept, and nothing supplies it.
    NoCredential,
    /// The upstream is another one now, or the route is gone.
    RouteChanged,
    /// The caller cancelled it.
    Cancelled,
    /// A human decides about it; it is only asked about.
    WithHuman,
}

/// What the round is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Leased.
    New,
    /// The first question of the round.
    Asking,
    /// The rest of the backoff is running; this answer allowed the resend.
    Resting(Answer),
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
            errand: Errand::Round(round as usize),
            policy,
            sending,
            phase: Phase::New,
            worked_on: false,
        }
    }

    /// Notes what the answer to the question under way says besides its state: whether a gateway
    /// further in still works on the call. While it does, a human here could only wait as well, so
    /// the queue goes on asking after the last round.
    pub const fn worked_on(&mut self, worked_on: bool) {
        self.worked_on = worked_on;
    }

    /// A pass on behalf of a caller who repeats the call, over a call as in [`new`](Self::new).
    #[must_use]
    pub fn repeat(
        policy: Arc<Policy>,
        now: Mono,
        patience: Patience,
        known: (u8, bool),
        sending: Sending,
    ) -> Self {
        Self {
            errand: Errand::Repeat(patience),
            ..Self::new(policy, now, 0, known, sending)
        }
    }

    /// What is known about the attempts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// When its caller is told; a round has none.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        match self.errand {
            Errand::Round(_) => None,
            Errand::Repeat(patience) => Some(patience.deadline),
        }
    }

    /// How long the attempt that begins now may take.
    #[must_use]
    pub fn attempt_bound(&self, now: Mono) -> Duration {
        let attempt = self.policy.timeouts.attempt;
        self.deadline()
            .map_or(attempt, |deadline| attempt.min(deadline.since(now)))
    }

    /// The next step after `event`.
    pub fn on(&mut self, event: Event, now: Mono, chance: Chance) -> Step {
        match event {
            Event::Begun => self.begun(now, chance),
            Event::Receipt(answer) => self.receipt(now, chance, answer),
            Event::Closed => self.closed(now, chance),
            Event::Waited => self.waited(now, chance),
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
            Event::DeadlinePassed => self.deadline_passed(chance),
            // A round has no caller, and what was begun for one is finished; answers are always
            // collected.
            Event::ClientGone | Event::ClientBack => Step::Keep,
            Event::Head(_) => self.impossible(chance),
        }
    }

    fn may_send(&self, now: Mono) -> bool {
        let policy = &self.policy;
        let allowance = match self.errand {
            // The last round only asks.
            Errand::Round(round) => {
                let is_last = round >= policy.compensation.rounds.len();
                self.is_owed() || (policy.compensation.resend && !is_last)
            }
            Errand::Repeat(patience) => {
                let useful = policy.timeouts.useful();
                self.tally.sends() <= policy.retry.max_retries()
                    && patience.deadline.since(now) >= useful
            }
        };
        allowance && matches!(self.sending, Sending::Allowed | Sending::Owed)
    }

    /// Whether a promised call still waits for the first send that reaches the tool.
    fn is_owed(&self) -> bool {
        self.sending == Sending::Owed && !self.tally.is_unclear()
    }

    fn begun(&mut self, now: Mono, chance: Chance) -> Step {
        if self.phase != Phase::New {
            return self.impossible(chance);
        }
        if !self.tally.is_unclear() {
            // Nothing ever reached the tool: there is nothing to ask about.
            return if self.may_send(now) {
                self.rest(Answer::State(State::Unknown), chance)
            } else {
                self.over_unsettled(chance)
            };
        }
        if self.policy.receipt.is_some() {
            self.phase = Phase::Asking;
            return Step::Ask;
        }
        let unknown = Answer::State(State::Unknown);
        if self.tally.permits(unknown, &self.policy) && self.may_send(now) {
            self.rest(unknown, chance)
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
            Phase::Confirming => self.confirmed(now, answer, chance),
            Phase::Asking if self.may_send(now) && self.tally.permits(answer, &self.policy) => {
                self.rest(answer, chance)
            }
            Phase::AskingAgain if answer == Answer::NotFound && self.refused().is_some() => {
                self.close()
            }
            Phase::New
            | Phase::Asking
            | Phase::Resting(_)
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

    /// The rest of the backoff before a resend that `answer` allows. Rounds lie further apart than
    /// any backoff.
    fn rest(&mut self, answer: Answer, chance: Chance) -> Step {
        let Errand::Repeat(patience) = self.errand else {
            return self.allowed_by(answer);
        };
        let backoff = self.policy.retry.backoff(self.tally.sends().into(), chance);
        let rest = backoff.saturating_sub(patience.last_sent);
        if rest.is_zero() {
            return self.allowed_by(answer);
        }
        self.phase = Phase::Resting(answer);
        Step::Wait(rest)
    }

    fn allowed_by(&mut self, answer: Answer) -> Step {
        match answer {
            Answer::NotFound => self.close(),
            // Declared (the tool dedupes by call id), or nothing ever reached it.
            Answer::State(_) => self.send(),
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

    fn waited(&mut self, now: Mono, chance: Chance) -> Step {
        match self.phase {
            Phase::Settling => {
                self.phase = Phase::Confirming;
                Step::Ask
            }
            Phase::Resting(answer) if self.may_send(now) => self.allowed_by(answer),
            Phase::Resting(_) => self.over_unsettled(chance),
            Phase::New
            | Phase::Asking
            | Phase::Closing
            | Phase::Confirming
            | Phase::InFlight
            | Phase::AskingAgain
            | Phase::Ended => self.impossible(chance),
        }
    }

    fn confirmed(&mut self, now: Mono, answer: Answer, chance: Chance) -> Step {
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

    /// The caller has waited long enough. An attempt in flight ends by its own bound.
    fn deadline_passed(&mut self, chance: Chance) -> Step {
        match (self.errand, self.phase) {
            (Errand::Round(_), _) | (Errand::Repeat(_), Phase::InFlight | Phase::Ended) => {
                Step::Keep
            }
            (
                Errand::Repeat(_),
                Phase::New
                | Phase::Asking
                | Phase::Resting(_)
                | Phase::Closing
                | Phase::Settling
                | Phase::Confirming
                | Phase::AskingAgain,
            ) => self.over(Reason::Deadline, chance),
        }
    }

    /// Nothing was learnt that ends the call: the next round, or a human after the last.
    fn over_unsettled(&mut self, chance: Chance) -> Step {
        let reason = match self.sending {
            Sending::Allowed | Sending::Owed | Sending::Cancelled | Sending::WithHuman => {
                Reason::RoundsExhausted
            }
            Sending::NoCredential => Reason::CredentialNotKept,
            Sending::RouteChanged => Reason::RouteChanged,
        };
        self.over(reason, chance)
    }

    fn over(&mut self, reason: Reason, chance: Chance) -> Step {
        let Errand::Round(round) = self.errand else {
            return self.as_before(reason);
        };
        let rounds = &self.policy.compensation.rounds;
        // A first send that was owed to the very end deserves one question more, too.
        let just_sent = self.phase == Phase::AskingAgain;
        let beyond = rounds.last().filter(|_| self.worked_on || just_sent);
        let Some(gap) = rounds.get(round).or(beyond).copied() else {
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
        // Whether a human is needed is for the rounds to find out; a receipt FAILED that one shall
        // see is no question of time.
        if matches!(self.errand, Errand::Repeat(_)) && reason != Reason::ReportedFailure {
            return self.as_before(reason);
        }
        self.phase = Phase::Ended;
        Step::Park(Parking {
            reason,
            state: Parked::Manual,
            kept: None,
        })
    }

    fn as_before(&mut self, reason: Reason) -> Step {
        self.phase = Phase::Ended;
        Step::Park(Parking {
            reason,
            state: Parked::AsBefore,
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
