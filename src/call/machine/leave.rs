//! How a call leaves the line: settled, refused, or parked, and where a parked call goes.

use std::time::Duration;

use super::{Machine, Next, Phase, Sending};
use crate::call::code::Code;
use crate::call::policy::OnClientGone;
use crate::call::step::{Ending, Parked, Parking, Reason, Step};
use crate::call::time::{Chance, Mono};

impl Machine {
    pub(super) fn client_gone(&mut self) -> Step {
        if self.policy.on_client_gone == OnClientGone::Cancel && self.sending == Sending::Allowed {
            self.sending = Sending::Cancelled;
        }
        Step::Keep
    }

    /// A repeat asks for the call, so it may be sent again.
    pub(super) fn client_back(&mut self) -> Step {
        if self.sending == Sending::Cancelled {
            self.sending = Sending::Allowed;
        }
        Step::Keep
    }

    pub(super) fn deadline_reached(&mut self, chance: Chance) -> Step {
        if self.tally.is_unclear() && !self.tally.was_asked() {
            return self.ask_last(Reason::Deadline, chance);
        }
        let reason = match self.policy.receipt {
            None if self.tally.is_unclear() => Reason::NoReceipt,
            None | Some(_) => Reason::Deadline,
        };
        self.park(reason, chance)
    }

    /// The process ends: what is in flight counts as unclear, and the next process goes on.
    pub(super) fn draining(&mut self, chance: Chance) -> Step {
        match self.phase {
            Phase::New => self.end(Ending::Refused(Code::Draining)),
            // An answer that is still on its way may break off.
            Phase::InFlight | Phase::Streaming(_) => {
                self.tally.doubt();
                self.park(Reason::Drain, chance)
            }
            Phase::Asking(_) | Phase::Waiting(_) | Phase::Closing => {
                self.park(Reason::Drain, chance)
            }
            Phase::Ended | Phase::Parked => Step::Keep,
        }
    }

    pub(super) fn denied(&mut self, chance: Chance) -> Step {
        if self.phase != Phase::InFlight {
            return self.impossible();
        }
        self.tally.withdraw_send();
        self.park(Reason::Denied, chance)
    }

    /// Every address it may go to is left alone. Of what was held back nothing is known to the
    /// tool and nothing is used up. A call that may have arrived waits for its address as long as
    /// there is time, and asks once more before it is sent; one of which nothing has arrived waits
    /// as often as it would be sent again, and then its caller is told, who may repeat it.
    pub(super) fn held_back(&mut self, now: Mono, chance: Chance) -> Step {
        if self.phase != Phase::InFlight {
            return self.impossible();
        }
        let held = self.tally.hold_back();
        let unclear = self.tally.is_unclear();
        let tries = self.tally.sends().saturating_add(held);
        let waits = unclear || tries <= self.policy.retry.max_retries();
        if !waits || !self.policy.retry.resends_after(self.tally.cause()) {
            return self.park(Reason::Ejected, chance);
        }
        let (next, question) = match self.policy.receipt {
            Some(_) if unclear => (Next::Confirm, self.policy.timeouts.receipt),
            Some(_) | None => (Next::Send, Duration::ZERO),
        };
        let needed = self.policy.timeouts.useful().saturating_add(question);
        let room = self.deadline.since(now.after(needed));
        if room.is_zero() {
            return self.park_or_linger(now, chance, Reason::Ejected);
        }
        let backoff = self.policy.retry.backoff(u32::from(tries), chance);
        self.wait(next, backoff.min(room))
    }

    /// An intention that is not durable is not performed.
    pub(super) fn ledger_failed(&mut self, chance: Chance) -> Step {
        match self.phase {
            Phase::New => self.end(Ending::Refused(Code::LedgerUnavailable)),
            Phase::InFlight => {
                self.tally.withdraw_send();
                self.park(Reason::LedgerFailed, chance)
            }
            // What the tool said is not on record: the record must not read "never sent".
            Phase::Ended | Phase::Streaming(_) => {
                self.tally.doubt();
                self.park(Reason::LedgerFailed, chance)
            }
            _ => self.park(Reason::LedgerFailed, chance),
        }
    }

    pub(super) fn end(&mut self, ending: Ending) -> Step {
        self.phase = Phase::Ended;
        Step::Answer(ending)
    }

    pub(super) fn park(&mut self, reason: Reason, chance: Chance) -> Step {
        self.phase = Phase::Parked;
        let kept = self.tally.kept_5xx();
        let first = self
            .policy
            .compensation
            .rounds
            .first()
            .copied()
            .unwrap_or_default();
        let due = match reason {
            // The next process has no reason to wait.
            Reason::Drain => Duration::ZERO,
            _ => self.policy.retry.spread(first, chance),
        };
        let state = if !self.tally.is_unclear() && self.tally.refusal().is_none() {
            let resend = self.policy.compensation.resend;
            match self.sending {
                Sending::Owed => Parked::Unsent(due),
                Sending::Allowed if resend => Parked::Unsent(due),
                Sending::Allowed | Sending::Cancelled | Sending::Told => Parked::NeverSent,
            }
        } else if self.policy.receipt.is_some() {
            Parked::Queued(due)
        } else if self.tally.open() > 0 {
            // A human sees it only when no exchange can speak any more.
            Parked::Queued(self.policy.timeouts.late)
        } else {
            Parked::Manual
        };
        let reason = match state {
            Parked::NeverSent | Parked::Unsent(_) => Reason::NeverSent,
            Parked::Queued(_) if self.sending == Sending::Cancelled => Reason::Cancelled,
            Parked::Queued(_)
            | Parked::Manual
            | Parked::AsBefore
            | Parked::Reversing(_)
            | Parked::Reversed => reason,
        };
        Step::Park(Parking {
            reason,
            state,
            kept,
        })
    }

    /// An event that cannot happen in this phase: this call stops, the others live.
    pub(super) fn impossible(&mut self) -> Step {
        if matches!(self.phase, Phase::Ended | Phase::Parked) {
            return Step::Keep;
        }
        if matches!(self.phase, Phase::InFlight | Phase::Streaming(_)) {
            self.tally.doubt();
        }
        self.park(Reason::Impossible, Chance::new(0.5))
    }
}
