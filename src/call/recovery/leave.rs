//! How a pass ends: settled, the next round, a human, or everything as it was.

use std::time::Duration;

use super::{Errand, Phase, Recovery, Sending};
use crate::call::outcome::Reading;
use crate::call::policy::OnFailed;
use crate::call::step::{Ending, Parked, Parking, Reason, Step};
use crate::call::time::{Chance, Mono};

/// Sends past the planned ones after which the gap between them doubles. A tool that comes back is
/// then noticed after about an eighth of the time that it was away.
const SENDS_PER_DOUBLING: u8 = 8;

impl Recovery {
    pub(super) fn reported_failure(&mut self) -> Step {
        match self.policy.compensation.on_failed {
            OnFailed::Keep => self.manual(Reason::ReportedFailure),
            OnFailed::Drop => {
                let kept = self.tally.kept().map(|kept| kept.n);
                self.end(Ending::ReceiptFailed { kept })
            }
        }
    }

    pub(super) fn late_answer(&mut self, now: Mono, n: u8, reading: Reading) -> Step {
        if !self.tally.was_sent(n) {
            return self.impossible(Chance::new(0.5));
        }
        self.tally.late_ended(now);
        self.tally.answered(n, reading);
        // Whether the call was undone decides the reversal; the ledger notes what contradicts it.
        if self.phase == Phase::Reversing {
            return Step::Keep;
        }
        match self.tally.settled_by(n, reading) {
            Some(ending) if self.phase != Phase::InFlight => self.end(ending),
            Some(Ending::Success(_)) => self.end(Ending::Success(n)),
            Some(_) | None => Step::Keep,
        }
    }

    /// Nothing was learnt that ends the call: the next round, or a human after the last.
    pub(super) fn over_unsettled(&mut self, chance: Chance) -> Step {
        let reason = match self.sending {
            Sending::Allowed | Sending::Owed | Sending::Cancelled | Sending::WithHuman => {
                Reason::RoundsExhausted
            }
            Sending::Told => Reason::StreamCut,
            Sending::NoCredential => Reason::CredentialNotKept,
            Sending::RouteChanged => Reason::RouteChanged,
        };
        self.over(reason, chance)
    }

    pub(super) fn over(&mut self, reason: Reason, chance: Chance) -> Step {
        match (self.errand, self.phase) {
            (Errand::Undo, _) => self.undo_later(reason, chance),
            // The reversal could not be recorded, so it did not begin.
            (Errand::Round(_), Phase::Reversing) | (Errand::Repeat(_) | Errand::Order(_), _) => {
                self.as_before(reason)
            }
            (
                Errand::Round(round),
                Phase::New
                | Phase::Asking
                | Phase::Resting(_)
                | Phase::Closing(_)
                | Phase::Settling(_)
                | Phase::Confirming(_)
                | Phase::InFlight
                | Phase::AskingAgain
                | Phase::Ended,
            ) => self.next_round(round, reason, chance),
        }
    }

    /// What is not on record was not done; but where the call's end is not, the record must not
    /// read "never sent".
    pub(super) fn ledger_failed(&mut self, chance: Chance) -> Step {
        if self.phase == Phase::Ended {
            self.tally.doubt();
        }
        self.over(Reason::LedgerFailed, chance)
    }

    /// The process ends. The next one makes this round anew, also the last, so that a restart
    /// brings no call to a human; only a round that has sent already is used up.
    pub(super) fn draining(&mut self, chance: Chance) -> Step {
        // Nobody hears the end of what is in flight.
        if self.phase == Phase::InFlight {
            self.tally.doubt();
        }
        match (self.errand, self.phase) {
            // A reversal in flight ends by its own bound; the row says how far it came.
            (_, Phase::Reversing | Phase::Ended) => Step::Keep,
            (Errand::Undo, _) | (Errand::Round(_), Phase::InFlight | Phase::AskingAgain) => {
                self.over(Reason::Drain, chance)
            }
            (
                Errand::Round(_) | Errand::Repeat(_) | Errand::Order(_),
                Phase::New
                | Phase::Asking
                | Phase::Resting(_)
                | Phase::Closing(_)
                | Phase::Settling(_)
                | Phase::Confirming(_)
                | Phase::InFlight
                | Phase::AskingAgain,
            ) => self.as_before(Reason::Drain),
        }
    }

    fn next_round(&mut self, round: usize, reason: Reason, chance: Chance) -> Step {
        let rounds = &self.policy.compensation.rounds;
        let planned = rounds.get(round).copied();
        let Some(gap) = planned.or_else(|| self.beyond_the_last()) else {
            return self.manual(reason);
        };
        let wait = self.policy.retry.spread(gap, chance);
        self.leave(reason, Parked::Queued(wait))
    }

    /// The gap to a round after the last one, where there is something to wait for: a first send
    /// that is still owed, one that was owed to the very end and deserves one question more, or a
    /// gateway further in that still works on the call.
    fn beyond_the_last(&self) -> Option<Duration> {
        let last = self.policy.compensation.rounds.last().copied()?;
        if self.is_owed() {
            return Some(self.overtime(last));
        }
        let just_sent = self.phase == Phase::AskingAgain;
        (self.worked_on || just_sent).then_some(last)
    }

    /// What is owed is tried for as long as its tool is away: ever more rarely, so that a tool away
    /// for months costs some dozens of sends, and so often that the last wait is a small part of
    /// all of them.
    fn overtime(&self, last: Duration) -> Duration {
        let rounds = u8::try_from(self.policy.compensation.rounds.len()).unwrap_or(u8::MAX);
        let planned = rounds.saturating_add(self.policy.retry.max_retries());
        let more = self.tally.sends().saturating_sub(planned);
        last.saturating_mul(1 << (more / SENDS_PER_DOUBLING))
    }

    pub(super) fn manual(&mut self, reason: Reason) -> Step {
        let decides = match reason {
            Reason::ReportedFailure
            | Reason::ReversalRefused
            | Reason::ReversalIncomplete
            | Reason::ReversalUnclear => true,
            Reason::RetriesExhausted
            | Reason::Deadline
            | Reason::RetryAfter
            | Reason::NoReceipt
            | Reason::NeverSent
            | Reason::Crash
            | Reason::Drain
            | Reason::Cancelled
            | Reason::StreamCut
            | Reason::Denied
            | Reason::Ejected
            | Reason::LedgerFailed
            | Reason::RoundsExhausted
            | Reason::RouteChanged
            | Reason::CredentialNotKept
            | Reason::Impossible => false,
        };
        // Whether a human is needed is for the rounds to find out; a receipt FAILED that one shall
        // see, and a reversal that failed, are no questions of time.
        match self.errand {
            Errand::Repeat(_) | Errand::Order(_) if !decides => self.as_before(reason),
            Errand::Repeat(_) | Errand::Order(_) | Errand::Round(_) | Errand::Undo => {
                self.leave(reason, Parked::Manual)
            }
        }
    }

    fn as_before(&mut self, reason: Reason) -> Step {
        self.leave(reason, Parked::AsBefore)
    }

    pub(super) fn leave(&mut self, reason: Reason, state: Parked) -> Step {
        self.phase = Phase::Ended;
        Step::Park(Parking {
            reason,
            state,
            kept: None,
        })
    }

    pub(super) fn end(&mut self, ending: Ending) -> Step {
        self.phase = Phase::Ended;
        Step::Answer(ending)
    }

    pub(super) fn impossible(&mut self, chance: Chance) -> Step {
        if self.phase == Phase::Ended {
            return Step::Keep;
        }
        if self.phase == Phase::InFlight {
            self.tally.doubt();
        }
        self.over(Reason::Impossible, chance)
    }
}
