//! What is known about a call's attempts so far, and the waits that follow from it.
//!
//! Shared by the in-line machine and the recovery machine, so that both count alike.

use std::time::Duration;

use super::outcome::{Cause, Outcome, Reading};
use super::policy::{Policy, Records, ResendOn};
use super::receipt::{Answer, State};
use super::step::Ending;
use super::time::{Chance, Mono};

/// The facts about a call's attempts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tally {
    /// Sends begun over the life of the call, failed connects included.
    sends: u8,
    /// One bit per attempt that may have had an effect.
    unclear: u32,
    /// The last attempt with a complete 4xx/5xx answer that did not settle the call.
    kept: Option<Kept>,
    /// Receipt queries that ended.
    asked: u32,
    /// Question waits since the last send.
    waits: u32,
    /// How often a send was held back since the last one.
    held: u8,
    /// Exchanges past their attempt timeout that may still speak.
    open: u8,
    /// When the last attempt ended; its backoff counts from here.
    ended: Mono,
    /// When the last exchange was closed; `settle` counts from here.
    closed: Mono,
    /// The last answer's `Retry-After`, as an instant.
    not_before: Mono,
    /// Why the last attempt did not settle the call.
    cause: Cause,
}

/// A complete answer that did not settle the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The attempt it answers.
    pub n: u8,
    /// What it says.
    pub reading: Reading,
}

impl Kept {
    /// What a refusal that speaks only for itself becomes once a believed NOT_FOUND has ruled the
    /// other attempts out.
    #[must_use]
    pub const fn ending(self) -> Ending {
        match self.reading {
            Reading::Unbinding(_) => Ending::Unbinding(self.n),
            Reading::Failure(_) | Reading::Success(_) | Reading::Pending(_) | Reading::Kept(_) => {
                Ending::Failure(self.n)
            }
        }
    }
}

impl Tally {
    /// A call nothing was sent for yet.
    #[must_use]
    pub const fn new(now: Mono) -> Self {
        Self {
            sends: 0,
            unclear: 0,
            kept: None,
            asked: 0,
            waits: 0,
            held: 0,
            open: 0,
            ended: now,
            closed: now,
            not_before: now,
            cause: Cause::Connect,
        }
    }

    /// A call taken from the ledger: `sends` so far, whether any of them may have had an effect,
    /// and why the last one did not settle it.
    /// `settle` counts from `now`, since nobody knows when the old process's exchanges died.
    #[must_use]
    pub const fn recovered(now: Mono, sends: u8, unclear: bool, cause: Cause) -> Self {
        let mut tally = Self::new(now);
        tally.sends = sends;
        tally.cause = cause;
        // Which of the earlier sends it was does not matter: none of them can speak any more.
        tally.unclear = unclear as u32;
        tally
    }

    /// Sends begun so far.
    #[must_use]
    pub const fn sends(&self) -> u8 {
        self.sends
    }

    /// Whether there is an attempt of this number that could be answered.
    #[must_use]
    pub const fn was_sent(&self, n: u8) -> bool {
        1 <= n && n <= self.sends
    }

    /// Some attempt may have had an effect.
    #[must_use]
    pub const fn is_unclear(&self) -> bool {
        self.unclear != 0
    }

    /// Whether it may go to another address of its tool: nothing of it can have arrived at the one
    /// it was meant for, so that no other one has to know it.
    #[must_use]
    pub const fn may_move(&self) -> bool {
        !self.is_unclear()
    }

    /// Exchanges that may still speak.
    #[must_use]
    pub const fn open(&self) -> u8 {
        self.open
    }

    /// Whether the receipt was ever asked.
    #[must_use]
    pub const fn was_asked(&self) -> bool {
        self.asked > 0
    }

    /// Why the last attempt did not settle the call.
    #[must_use]
    pub const fn cause(&self) -> Cause {
        self.cause
    }

    /// The attempt whose complete 5xx may be handed through to the caller.
    #[must_use]
    pub const fn kept_5xx(&self) -> Option<u8> {
        match self.kept {
            Some(Kept {
                n,
                reading: Reading::Kept(status),
            }) if status.as_u16() >= 500 => Some(n),
            Some(_) | None => None,
        }
    }

    /// The attempt with the last complete 4xx or 5xx answer.
    #[must_use]
    pub const fn kept(&self) -> Option<Kept> {
        self.kept
    }

    /// A definite refusal of a later attempt, which speaks only for itself: nothing is resent
    /// after it, and a believed NOT_FOUND makes it the call's answer.
    #[must_use]
    pub const fn refusal(&self) -> Option<Kept> {
        match self.kept {
            Some(kept) => match kept.reading {
                Reading::Failure(_) | Reading::Unbinding(_) => Some(kept),
                Reading::Success(_) | Reading::Pending(_) | Reading::Kept(_) => None,
            },
            None => None,
        }
    }

    /// Notes that attempt number `sends + 1` begins and returns its number.
    pub const fn begin_send(&mut self) -> u8 {
        self.sends = self.sends.saturating_add(1);
        self.waits = 0;
        self.sends
    }

    /// The attempt that was begun last did not take place.
    pub const fn withdraw_send(&mut self) {
        self.sends = self.sends.saturating_sub(1);
    }

    /// The attempt that was begun last was held back here; how often that was since the last send.
    pub const fn hold_back(&mut self) -> u8 {
        self.withdraw_send();
        self.held = self.held.saturating_add(1);
        self.held
    }

    /// Notes how the attempt that was begun last has ended.
    pub fn attempted(&mut self, now: Mono, outcome: Outcome, after: Option<Duration>, open: bool) {
        self.ended = now;
        self.held = 0;
        self.not_before = after.map_or(now, |d| now.after(d));
        self.cause = outcome.cause();
        match outcome {
            Outcome::NotSent(_) => {}
            Outcome::Unclear(_) => self.unclear |= bit(self.sends),
            Outcome::Answered(reading) => self.answered(self.sends, reading),
        }
        if open {
            self.open = self.open.saturating_add(1);
        } else {
            self.closed = now;
        }
    }

    /// Notes that the attempt in flight may have had an effect, though its end was not seen.
    pub const fn doubt(&mut self) {
        self.unclear |= bit(self.sends);
    }

    /// Notes a complete answer of attempt `n` that did not settle the call (yet).
    pub fn answered(&mut self, n: u8, reading: Reading) {
        match reading {
            Reading::Kept(_) => {
                self.unclear |= bit(n);
                self.kept = Some(Kept { n, reading });
            }
            Reading::Pending(_) => self.unclear |= bit(n),
            Reading::Failure(_) | Reading::Unbinding(_) => {
                self.unclear &= !bit(n);
                self.kept = Some(Kept { n, reading });
            }
            Reading::Success(_) => self.unclear &= !bit(n),
        }
    }

    /// Whether an answer of attempt `n`, already counted, settles the call: a success always, a
    /// refusal only when no other attempt may have had an effect.
    #[must_use]
    pub const fn settled_by(&self, n: u8, reading: Reading) -> Option<Ending> {
        match reading {
            Reading::Success(_) => Some(Ending::Success(n)),
            Reading::Failure(_) if !self.is_unclear() => Some(Ending::Failure(n)),
            Reading::Unbinding(_) if !self.is_unclear() => Some(Ending::Unbinding(n)),
            Reading::Failure(_)
            | Reading::Unbinding(_)
            | Reading::Pending(_)
            | Reading::Kept(_) => None,
        }
    }

    /// Notes that a late exchange ended.
    pub const fn late_ended(&mut self, now: Mono) {
        self.open = self.open.saturating_sub(1);
        self.closed = now;
    }

    /// Notes that every exchange is closed.
    pub const fn all_closed(&mut self, now: Mono) {
        self.open = 0;
        self.closed = now;
    }

    /// Notes one receipt answer and weighs it: a tool that records with its commit says "not
    /// found" while it works, which then means PROCESSING (`records: commit`).
    pub fn weigh(&mut self, now: Mono, answer: Answer, policy: &Policy) -> Answer {
        self.asked = self.asked.saturating_add(1);
        let may_work = self.open > 0 || self.settle_left(now, policy) > Duration::ZERO;
        let at_commit = policy.receipt.is_some_and(|r| r.records == Records::Commit);
        match answer {
            Answer::NotFound if at_commit && may_work => Answer::State(State::Processing),
            Answer::NotFound | Answer::State(_) => answer,
        }
    }

    /// The next question wait: the backoff formula with the number of waits since the last send.
    pub fn question_wait(&mut self, policy: &Policy, chance: Chance) -> Duration {
        self.waits = self.waits.saturating_add(1);
        policy.retry.backoff(self.waits, chance)
    }

    /// What is left of the backoff before the next resend, `Retry-After` included.
    #[must_use]
    pub fn resend_wait(&self, now: Mono, policy: &Policy, chance: Chance) -> Duration {
        let backoff = policy.retry.backoff(u32::from(self.sends), chance);
        let due = self.ended.after(backoff).max(self.not_before);
        due.since(now)
    }

    /// Whether the wait before the next resend is the tool's own wish.
    #[must_use]
    pub fn waits_for_tool(&self, now: Mono) -> bool {
        self.not_before > now
    }

    /// What is left of `settle`, counted from the last close.
    #[must_use]
    pub fn settle_left(&self, now: Mono, policy: &Policy) -> Duration {
        let settle = policy.receipt.map_or(Duration::ZERO, |r| r.settle);
        self.closed.after(settle).since(now)
    }

    /// Whether this answer allows a resend at all (`retry.resend_on`, `retry.on`, no refusal).
    #[must_use]
    pub fn permits(&self, answer: Answer, policy: &Policy) -> bool {
        let by_answer = match (policy.retry.resend_on(), answer) {
            (ResendOn::Nothing, _) => false,
            (ResendOn::NotFound | ResendOn::NotFoundOrUnknown, Answer::NotFound)
            | (ResendOn::NotFoundOrUnknown, Answer::State(State::Unknown)) => true,
            (ResendOn::NotFound | ResendOn::NotFoundOrUnknown, Answer::State(_)) => false,
        };
        by_answer && policy.retry.resends_after(self.cause) && self.refusal().is_none()
    }
}

const fn bit(n: u8) -> u32 {
    1_u32.wrapping_shl(n as u32)
}
