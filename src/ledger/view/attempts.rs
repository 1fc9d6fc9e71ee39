//! The sends of a call, read off its history.

use std::time::Duration;

use super::{CallView, Entry};
use crate::call::outcome::{Cause, NotSent, Outcome, Reading};
use crate::call::receipt::{Answer, State};
use crate::call::time::Wall;

/// One send and its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// Which send, 1-based.
    pub n: u32,
    /// When it was noted.
    pub at: Wall,
    /// Why it was sent again.
    pub cause: Option<Cause>,
    /// How it ended; `None` while it runs, or when the process died: unclear.
    pub outcome: Option<Outcome>,
    /// How long it took, when it ended.
    pub took: Option<Duration>,
}

impl CallView {
    /// The sends with their ends, in order.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let mut attempts: Vec<Attempt> = Vec::new();
        for entry in &self.history {
            match entry {
                Entry::Sent { at, n, cause } => attempts.push(Attempt {
                    n: *n,
                    at: *at,
                    cause: *cause,
                    outcome: None,
                    took: None,
                }),
                Entry::Ended {
                    n, outcome, took, ..
                } => {
                    if let Some(attempt) = attempts.iter_mut().find(|a| a.n == *n) {
                        (attempt.outcome, attempt.took) = (Some(*outcome), Some(*took));
                    }
                }
                Entry::Receipt { .. }
                | Entry::Waited { .. }
                | Entry::Reconnected { .. }
                | Entry::Moved { .. }
                | Entry::Claimed { .. }
                | Entry::Parked { .. }
                | Entry::Reversing { .. }
                | Entry::Undone { .. }
                | Entry::Differs { .. } => {}
            }
        }
        attempts
    }

    /// Why the last send did not settle the call; a send without a seen end broke off.
    #[must_use]
    pub fn last_cause(&self) -> Cause {
        let last = self.attempts().pop();
        last.map_or(Cause::Connect, |attempt| {
            attempt.outcome.map_or(Cause::Disconnect, Outcome::cause)
        })
    }

    /// Whether something of the call may have reached the tool. Where the end of every send is on
    /// record and none of them has left, nothing has, whatever was feared in between.
    #[must_use]
    pub fn may_have_left(&self) -> bool {
        let unsent = |attempt: &&Attempt| matches!(attempt.outcome, Some(Outcome::NotSent(_)));
        let attempts = self.attempts();
        let all_unsent = u32::try_from(attempts.iter().filter(unsent).count()) == Ok(self.sends);
        self.state != State::Received && !all_unsent
    }

    /// Whether some send was refused unread: by the tool, or by a gateway further in.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        let refused = Some(Outcome::NotSent(NotSent::Refused));
        (self.attempts().iter()).any(|attempt| attempt.outcome == refused)
    }

    /// What the receipt said last, if it was asked.
    #[must_use]
    pub fn last_receipt(&self) -> Option<Answer> {
        self.history.iter().rev().find_map(|entry| match entry {
            Entry::Receipt { answer, .. } => Some(*answer),
            _ => None,
        })
    }
}

impl Attempt {
    /// Whether this send may have reached the tool without a final answer.
    #[must_use]
    pub const fn is_unclear(&self) -> bool {
        match self.outcome {
            None | Some(Outcome::Unclear(_)) => true,
            Some(Outcome::NotSent(_)) => false,
            Some(Outcome::Answered(reading)) => match reading {
                Reading::Pending(_) | Reading::Kept(_) => true,
                Reading::Success(_) | Reading::Failure(_) | Reading::Unbinding(_) => false,
            },
        }
    }
}
