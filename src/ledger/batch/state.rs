//! The states of batches and items: their words, where they lead, and what moves with them.

use super::{BatchState, BatchView, Counts, ItemEnd, ItemState, Turn};
use crate::call::time::Wall;
use crate::ledger::view::SettledBy;

impl BatchState {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Loading,
        Self::Running,
        Self::Paused,
        Self::Cancelled,
        Self::Finished,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Running => "RUNNING",
            Self::Paused => "PAUSED",
            Self::Cancelled => "CANCELLED",
            Self::Finished => "FINISHED",
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Where a batch stands after this turn; `None` when it cannot take it.
    #[must_use]
    pub const fn after(self, turn: Turn) -> Option<Self> {
        match (self, turn) {
            (Self::Running | Self::Paused, Turn::Pause) => Some(Self::Paused),
            (Self::Running | Self::Paused, Turn::Resume) => Some(Self::Running),
            (Self::Loading | Self::Running | Self::Paused | Self::Cancelled, Turn::Cancel) => {
                Some(Self::Cancelled)
            }
            (Self::Loading | Self::Cancelled | Self::Finished, Turn::Pause | Turn::Resume)
            | (Self::Finished, Turn::Cancel) => None,
        }
    }
}

impl ItemState {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Waiting,
        Self::Leased,
        Self::Done,
        Self::Refused,
        Self::Unresolved,
        Self::Bad,
        Self::Cancelled,
    ];

    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Leased => "LEASED",
            Self::Done => "DONE",
            Self::Refused => "REFUSED",
            Self::Unresolved => "UNRESOLVED",
            Self::Bad => "BAD",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The state of that word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// How a call stands that ended so, in the words of `X-Call-Outcome`; one that a human ended says
/// so.
pub(in crate::ledger) const fn outcome_of(by: SettledBy) -> &'static str {
    match by {
        SettledBy::Answer(_) => "answered",
        SettledBy::Receipt => "receipt",
        SettledBy::NeverSent => "refused",
        SettledBy::Operator => "operator",
        SettledBy::Reversal => "reversed",
    }
}

impl Counts {
    /// All items.
    #[must_use]
    pub const fn total(&self) -> i64 {
        self.waiting
            + self.leased
            + self.done
            + self.refused
            + self.unresolved
            + self.bad
            + self.cancelled
    }

    /// Items that somebody still has to run.
    #[must_use]
    pub const fn to_run(&self) -> i64 {
        self.waiting + self.leased
    }

    /// The count of a state.
    pub const fn of(&mut self, state: ItemState) -> &mut i64 {
        match state {
            ItemState::Waiting => &mut self.waiting,
            ItemState::Leased => &mut self.leased,
            ItemState::Done => &mut self.done,
            ItemState::Refused => &mut self.refused,
            ItemState::Unresolved => &mut self.unresolved,
            ItemState::Bad => &mut self.bad,
            ItemState::Cancelled => &mut self.cancelled,
        }
    }

    /// Items that went from one state to another, as a difference to add.
    pub(in crate::ledger) const fn moved(&mut self, from: ItemState, to: ItemState) {
        *self.of(from) -= 1;
        *self.of(to) += 1;
    }

    /// What an item's end adds besides its state.
    pub(in crate::ledger) fn how(&mut self, end: &ItemEnd) {
        // What was answered by a stored result, or is another call's, was not sent for this item.
        let own = end.original.is_none() && *end.outcome != *"replayed";
        self.retried += i64::from(end.attempts > 1 && own);
        self.by_receipt += i64::from(*end.outcome == *"receipt");
        self.replayed += i64::from(*end.outcome == *"replayed");
    }

    /// Adds a difference.
    pub(in crate::ledger) const fn add(&mut self, more: &Self) {
        self.waiting += more.waiting;
        self.leased += more.leased;
        self.done += more.done;
        self.refused += more.refused;
        self.unresolved += more.unresolved;
        self.bad += more.bad;
        self.cancelled += more.cancelled;
        self.retried += more.retried;
        self.by_receipt += more.by_receipt;
        self.replayed += more.replayed;
    }
}

impl BatchView {
    /// The batch after its items moved: over when nothing is left to run.
    pub(in crate::ledger) const fn close_if_over(&mut self, now: Wall) {
        self.updated_at = now;
        if self.counts.to_run() > 0 {
            return;
        }
        match self.state {
            BatchState::Running => {
                self.state = BatchState::Finished;
                self.ended_at = Some(now);
            }
            BatchState::Cancelled if self.ended_at.is_none() => self.ended_at = Some(now),
            BatchState::Cancelled
            | BatchState::Loading
            | BatchState::Paused
            | BatchState::Finished => {}
        }
    }

    /// Whether somebody has to look after it.
    pub(in crate::ledger) const fn is_open(&self) -> bool {
        match self.state {
            BatchState::Running => true,
            BatchState::Cancelled => self.counts.to_run() > 0 || self.counts.unresolved > 0,
            BatchState::Loading | BatchState::Paused | BatchState::Finished => {
                self.counts.unresolved > 0
            }
        }
    }
}
