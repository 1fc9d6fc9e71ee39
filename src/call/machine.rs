//! The in-line machine: what happens to a call from its durable record until it is answered or
//! parked (contract "What happens to a call", rules 2 to 8).
//!
//! `on` is total: an event that cannot happen in a phase parks the call, so that one call stops
//! and the others live. The machine holds no bytes; the driver keeps the answers by attempt
//! number. After a crash it is not revived: what the ledger holds goes to `recovery`.

use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Outcome, Reading};
use super::policy::Policy;
use super::receipt::{Answer, State};
use super::step::{Ending, Event, Reason, Step};
use super::tally::Tally;
use super::time::{Chance, Mono};

/// One call in line.
#[derive(Clone, Debug)]
pub struct Machine {
    policy: Arc<Policy>,
    deadline: Mono,
    tally: Tally,
    phase: Phase,
    sending: Sending,
}

/// Whether the call may still be sent at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Allowed,
    /// It may, and it has to: its caller was promised the call and need not stay.
    Owed,
    /// The caller has gone and the route says `cancel`.
    Cancelled,
    /// A part of a streamed answer has reached the caller.
    Told,
}

impl Sending {
    const fn may_send(self) -> bool {
        matches!(self, Self::Allowed | Self::Owed)
    }
}

/// What the call is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Recorded, nothing sent.
    New,
    /// Attempt in flight.
    InFlight,
    /// The head of this attempt's answer was passed to the caller; its body is running.
    Streaming(u8),
    /// A receipt query is running.
    Asking(Question),
    /// Waiting.
    Waiting(Next),
    /// Earlier exchanges are being closed before a resend.
    Closing,
    /// Settled, refused or parked.
    Ended,
    /// Parked: late answers still count.
    Parked,
}

/// What a receipt query is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// To learn the state.
    State,
    /// To confirm, after close and settle, that a resend is allowed.
    Confirm,
    /// The last one before parking: the deadline has passed or a stream was cut.
    Last(Reason),
}

/// What follows a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Ask again.
    Ask,
    /// Close the earlier exchanges.
    Close,
    /// Ask to confirm (`settle` is over).
    Confirm,
    /// Send again; nothing was unclear, or there is nothing to ask.
    Send,
    /// Only an open exchange can still bring anything.
    Late,
}

impl Machine {
    /// A call whose record became durable at `now`.
    #[must_use]
    pub fn new(policy: Arc<Policy>, now: Mono) -> Self {
        Self {
            deadline: now.after(policy.timeouts.total),
            policy,
            tally: Tally::new(now),
            phase: Phase::New,
            sending: Sending::Allowed,
        }
    }

    /// The same for a call whose caller was promised it: whoever leaves, and however little reached
    /// the tool by then, it is never given up as never sent.
    #[must_use]
    pub fn promised(policy: Arc<Policy>, now: Mono) -> Self {
        Self {
            sending: Sending::Owed,
            ..Self::new(policy, now)
        }
    }

    /// What is known about the attempts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        &self.tally
    }

    /// When `timeouts.total` passes.
    #[must_use]
    pub const fn deadline(&self) -> Mono {
        self.deadline
    }

    /// How long the attempt that begins now may take: `timeouts.attempt`, but never so long that
    /// no receipt could be asked before the deadline.
    #[must_use]
    pub fn attempt_bound(&self, now: Mono) -> Duration {
        let left = self.deadline.since(now);
        let reserve = match self.policy.receipt {
            Some(_) => self.policy.timeouts.receipt.min(left / 4),
            None => Duration::ZERO,
        };
        self.policy.timeouts.attempt.min(left - reserve)
    }

    /// The next step after `event`.
    pub fn on(&mut self, event: Event, now: Mono, chance: Chance) -> Step {
        match event {
            Event::Begun => self.begun(),
            Event::Attempted {
                outcome,
                retry_after,
                open,
            } => self.attempted(now, chance, outcome, retry_after, open),
            Event::Head(reading) => self.head(reading),
            Event::LateAnswer { n, reading } => self.late_answer(now, n, reading),
            Event::LateEnded { .. } => self.late_ended(now),
            Event::Receipt(answer) => self.receipt(now, chance, answer),
            Event::Waited => self.waited(now, chance),
            Event::Closed => self.closed(now),
            Event::ClientGone => self.client_gone(),
            Event::ClientBack => self.client_back(),
            Event::DeadlinePassed => self.deadline_passed(),
            Event::Draining => self.draining(chance),
            Event::Denied => self.denied(chance),
            Event::HeldBack => self.held_back(now, chance),
            Event::LedgerFailed => self.ledger_failed(chance),
            // Only a dead letter is reversed.
            Event::Reversed(_) => self.impossible(),
        }
    }

    fn begun(&mut self) -> Step {
        match self.phase {
            Phase::New => self.send(),
            _ => self.impossible(),
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

    fn attempted(
        &mut self,
        now: Mono,
        chance: Chance,
        outcome: Outcome,
        retry_after: Option<Duration>,
        open: bool,
    ) -> Step {
        let streamed = match self.phase {
            Phase::InFlight => false,
            Phase::Streaming(_) => true,
            _ => return self.impossible(),
        };
        self.tally.attempted(now, outcome, retry_after, open);
        let n = self.tally.sends();
        match outcome {
            Outcome::Answered(reading) => match self.tally.settled_by(n, reading) {
                Some(ending) => self.end(ending),
                None if matches!(reading, Reading::Pending(_)) => self.ask_later(now, chance),
                None => self.ask_or_wait(now, chance),
            },
            Outcome::NotSent(_) if !self.tally.is_unclear() => match self.tally.refusal() {
                Some(refusal) => self.end(refusal.ending()),
                None => self.unsent(now, chance),
            },
            Outcome::Unclear(_) if streamed => {
                self.sending = Sending::Told;
                self.ask_last(Reason::StreamCut, chance)
            }
            Outcome::NotSent(_) | Outcome::Unclear(_) => self.ask_or_wait(now, chance),
        }
    }

    fn head(&mut self, reading: Reading) -> Step {
        if self.phase != Phase::InFlight {
            return self.impossible();
        }
        let n = self.tally.sends();
        match reading {
            // A refusal is known with its head; its record does not wait for the body.
            Reading::Failure(_) | Reading::Unbinding(_) if !self.tally.is_unclear() => {
                self.tally.answered(n, reading);
                match self.tally.settled_by(n, reading) {
                    Some(ending) => self.end(ending),
                    None => self.impossible(),
                }
            }
            Reading::Success(_) => {
                self.phase = Phase::Streaming(n);
                self.sending = Sending::Told;
                Step::PassHead(n)
            }
            // The driver collects every other answer before it reports it.
            Reading::Failure(_)
            | Reading::Unbinding(_)
            | Reading::Pending(_)
            | Reading::Kept(_) => self.impossible(),
        }
    }

    /// Nothing ever reached the tool: wait and send again, or end as never sent.
    fn unsent(&mut self, now: Mono, chance: Chance) -> Step {
        if !self.policy.retry.resends_after(self.tally.cause()) {
            return self.park(Reason::NeverSent, chance);
        }
        let wait = self.tally.resend_wait(now, &self.policy, chance);
        match self.no_room(now, wait) {
            Some(reason) => self.park(reason, chance),
            None => self.wait(Next::Send, wait),
        }
    }

    /// Some attempt is unclear: ask at once; with nothing to ask, resend where the operator
    /// declared it harmless, else wait for an exchange that may still speak.
    fn ask_or_wait(&mut self, now: Mono, chance: Chance) -> Step {
        if self.policy.receipt.is_some() {
            return self.ask(Question::State);
        }
        self.without_receipt(now, chance)
    }

    fn without_receipt(&mut self, now: Mono, chance: Chance) -> Step {
        let unknown = Answer::State(State::Unknown);
        if self.sending.may_send() && self.tally.permits(unknown, &self.policy) {
            let wait = self.tally.resend_wait(now, &self.policy, chance);
            return match self.no_room(now, wait) {
                Some(reason) => self.park_or_linger(now, chance, reason),
                None => self.wait(Next::Send, wait),
            };
        }
        self.park_or_linger(now, chance, Reason::NoReceipt)
    }

    /// With nothing else to do, the call waits for an open exchange until the deadline.
    fn park_or_linger(&mut self, now: Mono, chance: Chance, reason: Reason) -> Step {
        let left = self.deadline.since(now);
        if self.tally.open() > 0 && left > Duration::ZERO {
            self.wait(Next::Late, left)
        } else {
            self.park(reason, chance)
        }
    }

    fn ask(&mut self, question: Question) -> Step {
        self.phase = Phase::Asking(question);
        Step::Ask
    }

    /// The question before parking, when there is an endpoint to ask.
    fn ask_last(&mut self, reason: Reason, chance: Chance) -> Step {
        if self.policy.receipt.is_some() {
            self.ask(Question::Last(reason))
        } else {
            self.park(reason, chance)
        }
    }

    fn receipt(&mut self, now: Mono, chance: Chance, answer: Answer) -> Step {
        let Phase::Asking(question) = self.phase else {
            return self.impossible();
        };
        let answer = self.tally.weigh(now, answer, &self.policy);
        match answer {
            Answer::State(State::Success) => return self.end(Ending::ReceiptSuccess),
            Answer::State(State::Failed) => {
                let kept = self.tally.kept().map(|kept| kept.n);
                return self.end(Ending::ReceiptFailed { kept });
            }
            Answer::State(State::Received | State::Processing | State::Unknown)
            | Answer::NotFound => {}
        }
        match question {
            Question::Last(reason) => self.park(reason, chance),
            Question::Confirm => self.confirmed(now, chance, answer),
            Question::State => self.asked(now, chance, answer),
        }
    }

    /// The first answer on the way: it may lead to a resend, or to a later question.
    fn asked(&mut self, now: Mono, chance: Chance, answer: Answer) -> Step {
        // A refusal that speaks only for itself becomes the answer once NOT_FOUND is confirmed.
        if answer == Answer::NotFound && self.tally.refusal().is_some() {
            return self.close(now);
        }
        if !self.sending.may_send() || !self.tally.permits(answer, &self.policy) {
            return self.ask_later(now, chance);
        }
        // Without a retry left, an exchange that may still speak is worth more than closing it.
        let exhausted = self.tally.sends() > self.policy.retry.max_retries();
        if exhausted && self.tally.open() > 0 {
            return self.ask_later(now, chance);
        }
        let wait = self.tally.resend_wait(now, &self.policy, chance);
        let by_tool = self.tally.waits_for_tool(now);
        if by_tool && now.after(wait).after(self.useful()) > self.deadline {
            return self.park(Reason::RetryAfter, chance);
        }
        match answer {
            // NOT_FOUND says "never arrived" only when nothing can arrive any more.
            Answer::NotFound => self.wait(Next::Close, wait),
            // The operator declared that the tool dedupes: an open exchange may go on speaking.
            Answer::State(_) => self.wait(Next::Confirm, wait),
        }
    }

    /// The answer that a resend hangs on.
    fn confirmed(&mut self, now: Mono, chance: Chance, answer: Answer) -> Step {
        if let (Answer::NotFound, Some(refusal)) = (answer, self.tally.refusal()) {
            return self.end(refusal.ending());
        }
        if !self.sending.may_send() || !self.tally.permits(answer, &self.policy) {
            return self.ask_later(now, chance);
        }
        match self.no_room(now, Duration::ZERO) {
            Some(reason) => self.park(reason, chance),
            None => self.send(),
        }
    }

    /// Waits and asks again; the last question of a call begins early enough to be answered.
    fn ask_later(&mut self, now: Mono, chance: Chance) -> Step {
        if self.policy.receipt.is_none() {
            return self.park_or_linger(now, chance, Reason::NoReceipt);
        }
        let left = self.deadline.since(now);
        let answerable = left.saturating_sub(self.policy.timeouts.receipt);
        let wait = self.tally.question_wait(&self.policy, chance);
        if wait <= answerable {
            self.wait(Next::Ask, wait)
        } else if !answerable.is_zero() {
            self.wait(Next::Ask, answerable)
        } else if left.is_zero() {
            self.park(Reason::Deadline, chance)
        } else {
            self.wait(Next::Late, left)
        }
    }

    /// Why a send after `wait` is out of the question, if it is.
    fn no_room(&self, now: Mono, wait: Duration) -> Option<Reason> {
        if self.tally.sends() > self.policy.retry.max_retries() {
            return Some(Reason::RetriesExhausted);
        }
        (!self.has_room(now.after(wait))).then_some(Reason::Deadline)
    }

    /// Whether enough of `timeouts.total` is left at `then` for a send to be answered. The record
    /// of a send takes its time, so this is asked once more when it is durable.
    #[must_use]
    pub fn has_room(&self, then: Mono) -> bool {
        then.after(self.useful()) <= self.deadline
    }

    fn useful(&self) -> Duration {
        self.policy.timeouts.useful()
    }

    fn wait(&mut self, next: Next, wait: Duration) -> Step {
        self.phase = Phase::Waiting(next);
        Step::Wait(wait)
    }

    fn close(&mut self, now: Mono) -> Step {
        if self.tally.open() > 0 {
            self.phase = Phase::Closing;
            return Step::CloseEarlier;
        }
        self.settle(now)
    }

    fn settle(&mut self, now: Mono) -> Step {
        let left = self.tally.settle_left(now, &self.policy);
        self.wait(Next::Confirm, left)
    }

    fn waited(&mut self, now: Mono, chance: Chance) -> Step {
        let Phase::Waiting(next) = self.phase else {
            return self.impossible();
        };
        match next {
            Next::Ask => self.ask(Question::State),
            Next::Close => self.close(now),
            Next::Confirm if self.policy.receipt.is_some() => self.ask(Question::Confirm),
            Next::Confirm => self.impossible(),
            Next::Send => self.send_or_park(now, chance),
            Next::Late => self.deadline_reached(chance),
        }
    }

    fn send_or_park(&mut self, now: Mono, chance: Chance) -> Step {
        if !self.sending.may_send() {
            return self.park(Reason::Denied, chance);
        }
        match self.no_room(now, Duration::ZERO) {
            Some(reason) => self.park(reason, chance),
            None => self.send(),
        }
    }

    fn closed(&mut self, now: Mono) -> Step {
        if self.phase != Phase::Closing {
            return self.impossible();
        }
        self.tally.all_closed(now);
        self.settle(now)
    }

    fn late_answer(&mut self, now: Mono, n: u8, reading: Reading) -> Step {
        if !self.tally.was_sent(n) {
            return self.impossible();
        }
        self.tally.late_ended(now);
        if self.phase == Phase::Ended {
            return Step::Keep;
        }
        // While another attempt is in flight its effect is open, so only a success settles.
        let in_flight = matches!(self.phase, Phase::InFlight | Phase::Streaming(_));
        self.tally.answered(n, reading);
        match self.tally.settled_by(n, reading) {
            Some(Ending::Success(_)) => self.end(Ending::Success(n)),
            Some(ending) if !in_flight => self.end(ending),
            Some(_) | None => self.unless_silent(),
        }
    }

    fn late_ended(&mut self, now: Mono) -> Step {
        self.tally.late_ended(now);
        self.unless_silent()
    }

    /// A wait for late answers is over when no exchange is left that could bring one.
    const fn unless_silent(&self) -> Step {
        if matches!(self.phase, Phase::Waiting(Next::Late)) && self.tally.open() == 0 {
            return Step::Wait(Duration::ZERO);
        }
        Step::Keep
    }

    fn deadline_passed(&mut self) -> Step {
        match self.phase {
            Phase::New => self.impossible(),
            // An attempt in flight ends by its own bound, which never lies behind the deadline;
            // `total` stops at the head of a streamed answer; a last question bounds itself.
            Phase::InFlight
            | Phase::Streaming(_)
            | Phase::Asking(Question::Last(_))
            | Phase::Ended
            | Phase::Parked => Step::Keep,
            Phase::Asking(_) | Phase::Waiting(_) | Phase::Closing => {
                self.deadline_reached(Chance::new(0.5))
            }
        }
    }
}

mod leave;
#[cfg(test)]
pub(in crate::call) mod tests;
