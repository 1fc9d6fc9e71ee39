//! What a receipt can say, how much of it is believed, and which word outlives which.

use std::time::Duration;

/// A receipt state: the tool's word about a call it knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Known, not started.
    Received,
    /// Being worked on.
    Processing,
    /// Done. Terminal.
    Success,
    /// Refused or failed for good. Terminal.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// The answer to one receipt query, as far as it is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// A state word for exactly this call id.
    State(State),
    /// "Never heard of it", and believed: the only answer that allows a resend.
    NotFound,
}

/// Everything that decides whether "never heard of it" is believed (contract, section 3, rule 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Belief {
    /// The tool has shown before that it knows this very call: a receipt named it with a state, or
    /// an answer promised its work. It cannot unlearn that; only its memory can be at fault.
    pub recognised: bool,
    /// The endpoint has once recognised an id sent to this upstream (or the route says
    /// `believe_not_found: always`) and is not found broken.
    pub proven: bool,
    /// The question went to the upstream address the call was first sent to.
    pub same_address: bool,
    /// Age of the call's first send.
    pub age: Duration,
    /// How long the tool remembers receipts (`receipt.retention`).
    pub retention: Duration,
    /// The answering gateway's `knowsSince` lies after the first send.
    pub forgotten: bool,
    /// The question carried the credential the send had.
    pub same_credential: bool,
}

/// Why a "not found" counts as UNKNOWN; logged, and shown by `why`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The tool has recognised this call before: it did arrive, whoever answers now.
    Recognised,
    /// The endpoint never recognised an id, or stopped recognising answered calls.
    Unproven,
    /// Asked at another address than the call was sent to.
    OtherAddress,
    /// The first send is older than the tool's memory.
    Forgotten,
    /// Asked without the credential of the send.
    OtherCredential,
}

impl Belief {
    /// Whether a "not found" under these circumstances is believed.
    ///
    /// # Errors
    /// The first reason for doubt, in the order of the documentation.
    pub fn judge(self) -> Result<(), Doubt> {
        if self.recognised {
            Err(Doubt::Recognised)
        } else if !self.proven {
            Err(Doubt::Unproven)
        } else if !self.same_address {
            Err(Doubt::OtherAddress)
        } else if self.forgotten || self.age > self.retention {
            Err(Doubt::Forgotten)
        } else if !self.same_credential {
            Err(Doubt::OtherCredential)
        } else {
            Ok(())
        }
    }
}

impl Doubt {
    /// Every doubt, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Recognised,
        Self::Unproven,
        Self::OtherAddress,
        Self::Forgotten,
        Self::OtherCredential,
    ];

    /// The word in logs and history.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Recognised => "recognised-before",
            Self::Unproven => "unproven",
            Self::OtherAddress => "other-address",
            Self::Forgotten => "forgotten",
            Self::OtherCredential => "other-credential",
        }
    }
}

impl State {
    /// Every state, weakest word last.
    pub const ALL: [Self; 5] = [
        Self::Received,
        Self::Processing,
        Self::Success,
        Self::Failed,
        Self::Unknown,
    ];

    /// The word on the wire, in the ledger and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Received => "RECEIVED",
            Self::Processing => "PROCESSING",
            Self::Success => "SUCCESS",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The state a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// `SUCCESS` and `FAILED` end a call; nothing overwrites them.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Success | Self::Failed)
    }
}

impl Answer {
    /// The word in logs, history and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::State(state) => state.as_str(),
            Self::NotFound => "NOT_FOUND",
        }
    }

    /// The answer a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        if word == Self::NotFound.as_str() {
            return Some(Self::NotFound);
        }
        State::from_word(word).map(Self::State)
    }
}

/// What a new word does to an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The newer word takes its place.
    Take,
    /// Nothing new was said, or nothing stronger.
    Stay,
    /// The newer word contradicts a terminal one: recorded as a difference, never applied.
    Difference,
}

/// Weighs a newer answer against the state held so far.
///
/// A terminal state stays whatever comes; what contradicts it is a difference. `UNKNOWN` and
/// `NOT_FOUND` carry no state and change nothing.
#[must_use]
pub const fn merge(held: State, newer: Answer) -> Merge {
    match (held, newer) {
        (State::Success, Answer::State(State::Success | State::Unknown))
        | (State::Failed, Answer::State(State::Failed | State::Unknown)) => Merge::Stay,
        (State::Success | State::Failed, _) => Merge::Difference,
        (_, Answer::NotFound | Answer::State(State::Unknown)) => Merge::Stay,
        (State::Processing, Answer::State(State::Received | State::Processing))
        | (State::Received, Answer::State(State::Received)) => Merge::Stay,
        (State::Received | State::Processing | State::Unknown, Answer::State(_)) => Merge::Take,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn a_terminal_state_outlives_every_later_word() {
        let answers = State::ALL
            .map(Answer::State)
            .into_iter()
            .chain([Answer::NotFound]);
        for newer in answers {
            for held in State::ALL {
                let merged = merge(held, newer);
                if held.is_terminal() {
                    assert_ne!(merged, Merge::Take, "{held:?} {newer:?}");
                }
                let silent = matches!(newer, Answer::NotFound | Answer::State(State::Unknown));
                if !held.is_terminal() && silent {
                    assert_eq!(merged, Merge::Stay, "{held:?} {newer:?}");
                }
            }
        }
        let table = [
            (
                State::Success,
                Answer::State(State::Failed),
                Merge::Difference,
            ),
            (
                State::Failed,
                Answer::State(State::Success),
                Merge::Difference,
            ),
            (
                State::Success,
                Answer::State(State::Processing),
                Merge::Difference,
            ),
            (State::Success, Answer::NotFound, Merge::Difference),
            (State::Success, Answer::State(State::Success), Merge::Stay),
            (State::Success, Answer::State(State::Unknown), Merge::Stay),
            (State::Unknown, Answer::State(State::Received), Merge::Take),
            (
                State::Received,
                Answer::State(State::Processing),
                Merge::Take,
            ),
            (
                State::Processing,
                Answer::State(State::Received),
                Merge::Stay,
            ),
            (
                State::Processing,
                Answer::State(State::Success),
                Merge::Take,
            ),
        ];
        for (held, newer, expected) in table {
            assert_eq!(merge(held, newer), expected, "{held:?} {newer:?}");
        }
    }

    #[test]
    fn not_found_is_believed_only_without_any_doubt() {
        let sure = Belief {
            recognised: false,
            proven: true,
            same_address: true,
            age: DAY,
            retention: DAY,
            forgotten: false,
            same_credential: true,
        };
        assert_eq!(sure.judge(), Ok(()));
        let late = DAY + Duration::from_nanos(1);
        let table = [
            (
                Belief {
                    recognised: true,
                    ..sure
                },
                Doubt::Recognised,
            ),
            (
                Belief {
                    proven: false,
                    ..sure
                },
                Doubt::Unproven,
            ),
            (
                Belief {
                    same_address: false,
                    ..sure
                },
                Doubt::OtherAddress,
            ),
            (Belief { age: late, ..sure }, Doubt::Forgotten),
            (
                Belief {
                    forgotten: true,
                    ..sure
                },
                Doubt::Forgotten,
            ),
            (
                Belief {
                    same_credential: false,
                    ..sure
                },
                Doubt::OtherCredential,
            ),
        ];
        for (belief, doubt) in table {
            assert_eq!(belief.judge(), Err(doubt));
        }
        for doubt in Doubt::ALL {
            assert!(table.iter().any(|(_, told)| *told == doubt), "{doubt:?}");
        }
    }
}
