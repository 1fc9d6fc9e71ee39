//! The recovery machine: one pass over one dead letter, by a round of the compensation queue, on
//! behalf of a caller who repeats the call, or on an operator's order (contract "Compensation
//! queue", "Duplicates").
//!
//! The same events and steps as in line, so that one driver performs both; `Park` here means "the
//! pass is over": the next round, a human, or the row as it was. A pass asks the receipt and sends
//! at most once, when it believes NOT_FOUND: a round on routes with `resend: true`, never the last
//! one; a repeat within the allowance that the line and all repeats share (rule 6); an operator's
//! order whatever the allowance. Instead of a human the last round may undo the call (`reverse`).

use std::sync::Arc;
use std::time::Duration;

use super::outcome::Cause;
use super::policy::Policy;
use super::receipt::{Answer, State};
use super::step::{Ending, Event, Reason, Step};
use super::tally::Tally;
use super::time::{Chance, Mono};

/// One pass over one dead letter.
#[derive(Clone, Debug)]
pub struct Recovery {
    policy: Arc<Policy>,
    tally: Tally,
    known: Known,
    errand: Errand,
    sending: Sending,
    phase: Phase,
    /// The last receipt says that a gateway further in still works on the call.
    worked_on: bool,
    began: Mono,
}

/// What is known about a dead letter when a pass over it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// Sends noted so far.
    pub sends: u8,
    /// Some of them may have had an effect.
    pub unclear: bool,
    /// An exchange of one of them may still speak, heard by somebody else of this process.
    pub open: bool,
    /// For how long at least no exchange of it can have been open; counts only when none is.
    pub closed_for: Duration,
    /// For how long an exchange of it may still be open in another process. Nobody here can close
    /// that one: it is outlasted before its NOT_FOUND is believed.
    pub elsewhere: Duration,
    /// How long ago it was first sent.
    pub sent_for: Duration,
    /// How often its reversal was sent.
    pub reversals: u32,
    /// Why the last of the sends did not settle it.
    pub cause: Cause,
}

/// On whose behalf the dead letter is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errand {
    /// This round of the queue, 1-based.
    Round(usize),
    /// A caller who repeats the call.
    Repeat(Patience),
    /// An operator.
    Order(Order),
    /// A reversal that has begun goes on.
    Undo,
}

/// What an operator wants to be done about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Ask the tool's receipt, now.
    Ask,
    /// Ask, and send it again if that is safe.
    Resend,
    /// Ask, and undo it if it may have been done.
    Reverse,
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
    /// A part of its streamed answer has reached the caller, or may have.
    Told,
    /// A human decides about it; it is only asked about.
    WithHuman,
}

/// What closing, settling and confirming are done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    /// To send the call again, or to believe its refusal.
    Resend,
    /// To undo it.
    Reverse,
}

/// What the pass is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Leased.
    New,
    /// The first question of the pass.
    Asking,
    /// The rest of the backoff is running; this answer allowed the resend.
    Resting(Answer),
    /// Exchanges left from before are being closed.
    Closing(Goal),
    /// `settle` (before a reversal also `min_age`) is running.
    Settling(Goal),
    /// The question a resend, a refusal or a reversal hangs on.
    Confirming(Goal),
    /// The resend is in flight.
    InFlight,
    /// The question after an unclear resend.
    AskingAgain,
    /// The reversal is in flight.
    Reversing,
    /// Over; late answers still count.
    Ended,
}

impl Known {
    /// A call sent `sends` times, some of which may have had an effect. Nothing else is known.
    #[must_use]
    pub const fn of(sends: u8, unclear: bool) -> Self {
        Self {
            sends,
            unclear,
            open: false,
            closed_for: Duration::ZERO,
            elsewhere: Duration::ZERO,
            sent_for: Duration::ZERO,
            reversals: 0,
            cause: Cause::Connect,
        }
    }
}

impl Recovery {
    /// Round number `round` (1-based) over a dead letter.
    #[must_use]
    pub fn new(policy: Arc<Policy>, now: Mono, round: u32, known: Known, sending: Sending) -> Self {
        Self::on_errand(policy, now, Errand::Round(round as usize), known, sending)
    }

    /// A pass on behalf of a caller who repeats the call.
    #[must_use]
    pub fn repeat(
        policy: Arc<Policy>,
        now: Mono,
        patience: Patience,
        known: Known,
        sending: Sending,
    ) -> Self {
        Self::on_errand(policy, now, Errand::Repeat(patience), known, sending)
    }

    /// A pass on an operator's order.
    #[must_use]
    pub fn order(
        policy: Arc<Policy>,
        now: Mono,
        order: Order,
        known: Known,
        sending: Sending,
    ) -> Self {
        Self::on_errand(policy, now, Errand::Order(order), known, sending)
    }

    /// A reversal that has begun goes on, also in another process.
    #[must_use]
    pub fn undo(policy: Arc<Policy>, now: Mono, known: Known, sending: Sending) -> Self {
        Self::on_errand(policy, now, Errand::Undo, known, sending)
    }

    fn on_errand(
        policy: Arc<Policy>,
        now: Mono,
        errand: Errand,
        known: Known,
        sending: Sending,
    ) -> Self {
        Self {
            tally: Tally::recovered(now, known.sends, known.unclear, known.cause),
            policy,
            known,
            errand,
            sending,
            phase: Phase::New,
            worked_on: false,
            began: now,
        }
    }

    /// Notes what the answer to the question under way says besides its state: whether a gateway
    /// further in still works on the call. While it does, a human here could only wait as well, so
    /// the queue goes on asking after the last round.
    pub const fn worked_on(&mut self, worked_on: bool) {
        self.worked_on = worked_on;
    }

    /// What is known about the attempts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// When its caller is told; nobody else waits.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        match self.errand {
            Errand::Round(_) | Errand::Order(_) | Errand::Undo => None,
            Errand::Repeat(patience) => Some(patience.deadline),
        }
    }

    /// How long the attempt that begins now may take.
    #[must_use]
    pub fn attempt_bound(&self, now: Mono) -> Duration {
        self.answer_bound(now, Duration::ZERO)
    }

    /// How much longer an attempt may take that has taken `took` so far.
    #[must_use]
    pub fn answer_bound(&self, now: Mono, took: Duration) -> Duration {
        let attempt = self.policy.timeouts.attempt.saturating_sub(took);
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
            Event::Reversed(undo) => self.reversed(undo, chance),
            Event::LateAnswer { n, reading } => self.late_answer(now, n, reading),
            Event::LateEnded { .. } => {
                self.tally.late_ended(now);
                Step::Keep
            }
            Event::Denied => {
                self.tally.withdraw_send();
                self.over(Reason::Denied, chance)
            }
            Event::HeldBack => {
                self.tally.hold_back();
                self.over(Reason::Ejected, chance)
            }
            Event::LedgerFailed => self.ledger_failed(chance),
            Event::Draining => self.draining(chance),
            Event::DeadlinePassed => self.deadline_passed(chance),
            // A round has no caller, and what was begun for one is finished; answers are always
            // collected.
            Event::ClientGone | Event::ClientBack => Step::Keep,
            Event::Head(_) => self.impossible(chance),
        }
    }

    fn begun(&mut self, now: Mono, chance: Chance) -> Step {
        if self.phase != Phase::New {
            return self.impossible(chance);
        }
        if self.known.reversals > 0 {
            return self.undo_again(chance);
        }
        let asks_whatever = matches!(self.errand, Errand::Order(Order::Ask));
        if !self.tally.is_unclear() && !asks_whatever {
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

    fn receipt(&mut self, now: Mono, chance: Chance, said: Answer) -> Step {
        let asking = matches!(
            self.phase,
            Phase::Asking | Phase::Confirming(_) | Phase::AskingAgain
        );
        if !asking {
            return self.impossible(chance);
        }
        let answer = self.tally.weigh(now, said, &self.policy);
        match answer {
            Answer::State(State::Success) => return self.end(Ending::ReceiptSuccess),
            Answer::State(State::Failed) => return self.reported_failure(),
            Answer::State(State::Received | State::Processing | State::Unknown)
            | Answer::NotFound => {}
        }
        match self.phase {
            Phase::Asking => self.asked(now, said, answer, chance),
            Phase::Confirming(Goal::Resend) => self.confirmed(now, answer, chance),
            Phase::Confirming(Goal::Reverse) => self.reverse_if(now, answer, chance),
            Phase::AskingAgain if answer == Answer::NotFound && self.refused().is_some() => {
                self.close(Goal::Resend)
            }
            Phase::New
            | Phase::Resting(_)
            | Phase::Closing(_)
            | Phase::Settling(_)
            | Phase::InFlight
            | Phase::AskingAgain
            | Phase::Reversing
            | Phase::Ended => self.over_unsettled(chance),
        }
    }

    /// The first answer of the pass. What it `said` may be weighed down to PROCESSING because
    /// nothing has settled yet (`records: commit`); where nothing is open any more, closing and
    /// settling come next, and only the question after that decides.
    fn asked(&mut self, now: Mono, said: Answer, answer: Answer, chance: Chance) -> Step {
        let hint = if self.known.open { answer } else { said };
        if self.may_send(now) && self.tally.permits(hint, &self.policy) {
            return self.rest(hint, chance);
        }
        if self.may_reverse(now, hint) {
            return self.prepare_reversal(hint);
        }
        self.over_unsettled(chance)
    }

    /// The caller has waited long enough. An attempt in flight ends by its own bound.
    fn deadline_passed(&mut self, chance: Chance) -> Step {
        match self.errand {
            Errand::Round(_) | Errand::Order(_) | Errand::Undo => return Step::Keep,
            Errand::Repeat(_) => {}
        }
        match self.phase {
            Phase::InFlight | Phase::Reversing | Phase::Ended => Step::Keep,
            Phase::New
            | Phase::Asking
            | Phase::Resting(_)
            | Phase::Closing(_)
            | Phase::Settling(_)
            | Phase::Confirming(_)
            | Phase::AskingAgain => self.over(Reason::Deadline, chance),
        }
    }
}

mod leave;
mod resend;
mod reverse;
#[cfg(test)]
mod tests;
