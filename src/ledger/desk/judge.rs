//! Whether a dead letter may be decided about by hand: pure, so that it stands once and not once
//! per store.
//!
//! An open dead letter may be resolved or discarded unless somebody works on it: whoever does
//! learns more in a moment, and a decision beneath him would be made on old news. A discarded one
//! may still be resolved, for a human may find the truth later. A key is freed only where nothing
//! is ever sent again and no success holds it.

use super::{Refusal, Verb};
use crate::ledger::step::Verdict;
use crate::ledger::view::{DeadState, SettledBy};

/// What a judgement looks at.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The state of the dead letter of this life; `None` when there is none.
    pub dead: Option<DeadState>,
    /// What settled the call.
    pub by: Option<SettledBy>,
    /// Whether it has an idempotency key.
    pub has_key: bool,
    /// Whether that key still binds.
    pub key_binds: bool,
}

/// What is to be done about a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Settle the call as this.
    Settle(Verdict),
    /// End the dead letter, the call stays unknown.
    Discard,
    /// Free the key, the state stays.
    FreeKey,
    /// It is so already.
    Already,
    /// It may not be done.
    Refuse(Refusal),
}

/// Judges `verb`. Verbs that ask or send are not decided here and are refused.
#[must_use]
pub fn judge(standing: Standing, verb: Verb) -> Judgement {
    let Some(state) = standing.dead else {
        return Judgement::Refuse(Refusal::NotParked);
    };
    match verb {
        Verb::Resolve(verdict) => resolve(standing, state, verdict),
        Verb::Discard => match state {
            DeadState::Queued | DeadState::Manual => Judgement::Discard,
            DeadState::Discarded => Judgement::Already,
            other => Judgement::Refuse(hindrance(other)),
        },
        Verb::ReleaseKey => release(standing, state),
        Verb::Receipt | Verb::Resend | Verb::Reverse => Judgement::Refuse(Refusal::StillOpen),
    }
}

fn resolve(standing: Standing, state: DeadState, verdict: Verdict) -> Judgement {
    let same = matches!(
        (state, verdict),
        (DeadState::Settled, Verdict::Success) | (DeadState::Failed, Verdict::Failed)
    );
    match state {
        DeadState::Queued | DeadState::Manual | DeadState::Discarded => Judgement::Settle(verdict),
        DeadState::Settled | DeadState::Failed
            if same && standing.by == Some(SettledBy::Operator) =>
        {
            Judgement::Already
        }
        other => Judgement::Refuse(hindrance(other)),
    }
}

const fn release(standing: Standing, state: DeadState) -> Judgement {
    match state {
        DeadState::Reversed | DeadState::Discarded | DeadState::Failed => {
            if !standing.has_key {
                Judgement::Refuse(Refusal::NoKey)
            } else if standing.key_binds {
                Judgement::FreeKey
            } else {
                Judgement::Already
            }
        }
        DeadState::Settled => Judgement::Refuse(Refusal::Settled),
        DeadState::Reversing => Judgement::Refuse(Refusal::Reversing),
        DeadState::Queued | DeadState::Running | DeadState::Manual => {
            Judgement::Refuse(Refusal::StillOpen)
        }
    }
}

/// Why a dead letter in this state is not to be changed.
#[must_use]
pub const fn hindrance(state: DeadState) -> Refusal {
    match state {
        DeadState::Queued | DeadState::Manual => Refusal::StillOpen,
        DeadState::Running => Refusal::Running,
        DeadState::Settled => Refusal::Settled,
        DeadState::Failed => Refusal::Failed,
        DeadState::Reversing => Refusal::Reversing,
        DeadState::Reversed => Refusal::Reversed,
        DeadState::Discarded => Refusal::Discarded,
    }
}

/// Where a decided dead letter stands now.
pub(in crate::ledger) const fn after(judgement: Judgement, before: DeadState) -> DeadState {
    match judgement {
        Judgement::Settle(Verdict::Success) => DeadState::Settled,
        Judgement::Settle(Verdict::Failed) => DeadState::Failed,
        Judgement::Discard => DeadState::Discarded,
        Judgement::FreeKey | Judgement::Already | Judgement::Refuse(_) => before,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole table: every state against every decision.
    #[test]
    fn every_state_and_every_decision_have_an_answer() {
        use DeadState::{Discarded, Failed, Manual, Queued, Reversed, Reversing, Running, Settled};
        let settle = Judgement::Settle(Verdict::Success);
        let no = Judgement::Refuse;
        let table = [
            (Queued, settle, Judgement::Discard, no(Refusal::StillOpen)),
            (
                Running,
                no(Refusal::Running),
                no(Refusal::Running),
                no(Refusal::StillOpen),
            ),
            (
                Settled,
                no(Refusal::Settled),
                no(Refusal::Settled),
                no(Refusal::Settled),
            ),
            (
                Failed,
                no(Refusal::Failed),
                no(Refusal::Failed),
                Judgement::FreeKey,
            ),
            (
                Reversing,
                no(Refusal::Reversing),
                no(Refusal::Reversing),
                no(Refusal::Reversing),
            ),
            (
                Reversed,
                no(Refusal::Reversed),
                no(Refusal::Reversed),
                Judgement::FreeKey,
            ),
            (Manual, settle, Judgement::Discard, no(Refusal::StillOpen)),
            (Discarded, settle, Judgement::Already, Judgement::FreeKey),
        ];
        assert_eq!(table.map(|row| row.0), DeadState::ALL);
        for (state, resolved, discarded, released) in table {
            let standing = Standing {
                dead: Some(state),
                by: None,
                has_key: true,
                key_binds: true,
            };
            let as_success = Verb::Resolve(Verdict::Success);
            assert_eq!(judge(standing, as_success), resolved, "{state:?}");
            assert_eq!(judge(standing, Verb::Discard), discarded, "{state:?}");
            assert_eq!(judge(standing, Verb::ReleaseKey), released, "{state:?}");
        }
    }

    #[test]
    fn a_second_decision_of_the_same_kind_is_one_already_made() {
        let by = |by| Standing {
            dead: Some(DeadState::Settled),
            by: Some(by),
            has_key: false,
            key_binds: false,
        };
        let resolved = by(SettledBy::Operator);
        let as_success = Verb::Resolve(Verdict::Success);
        let as_failed = Verb::Resolve(Verdict::Failed);
        assert_eq!(judge(resolved, as_success), Judgement::Already);
        let refused = Judgement::Refuse(Refusal::Settled);
        assert_eq!(judge(resolved, as_failed), refused);
        // What the tool settled was not resolved by anybody.
        assert_eq!(judge(by(SettledBy::Receipt), as_success), refused);
        let never = Standing {
            dead: None,
            ..resolved
        };
        let refused = Judgement::Refuse(Refusal::NotParked);
        assert_eq!(judge(never, Verb::Discard), refused);
    }

    #[test]
    fn a_key_that_is_free_or_was_never_there_is_told_so() {
        let standing = Standing {
            dead: Some(DeadState::Reversed),
            by: None,
            has_key: true,
            key_binds: false,
        };
        assert_eq!(judge(standing, Verb::ReleaseKey), Judgement::Already);
        let keyless = Standing {
            has_key: false,
            ..standing
        };
        let refused = Judgement::Refuse(Refusal::NoKey);
        assert_eq!(judge(keyless, Verb::ReleaseKey), refused);
    }
}
