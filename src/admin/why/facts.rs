//! From a ledger's story to the facts a judgement is made from.

use crate::call::history::{End, Event, Facts, Kin};
use crate::call::id::IdSource;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::config::snapshot;
use crate::ledger::desk::{AuditLine, Verb};
use crate::ledger::story::{self, Story};
use crate::ledger::{CallView, DeadState, Entry, SettledBy, Verdict};

/// The facts of a story.
pub(super) fn of(story: &Story) -> Facts {
    let call = &story.call;
    // A policy of a newer version is no reason not to tell the rest.
    let policy = snapshot::decode(&story.policy).ok();
    Facts {
        id: call.call_id.to_string(),
        events: call
            .history
            .iter()
            .filter_map(|entry| event(entry, &story.acts))
            .collect(),
        key_released: released(&story.acts),
        end: end(call),
        received: call.received_at,
        key: call.idempotency_key.as_deref().map(str::to_owned),
        remembered_until: story.remembered_until,
        aliases: story
            .aliases
            .iter()
            .filter(|alias| alias.life == call.life)
            .map(|alias| alias.call_id.to_string())
            .collect(),
        kin: story.kin.iter().map(kin).collect(),
        differences: call
            .differences
            .iter()
            .map(|difference| difference.told.to_string())
            .collect(),
        attempt: policy.as_ref().map(|policy| policy.timeouts.attempt),
        has_receipts: policy.is_none_or(|policy| policy.receipt.is_some()),
    }
}

fn event(entry: &Entry, acts: &[AuditLine]) -> Option<Event> {
    match entry {
        Entry::Sent { at, n, .. } => Some(Event::Sent {
            at: *at,
            n: *n,
            by_hand: acts.iter().any(|act| is_of(act, *at)),
        }),
        Entry::Ended {
            at,
            n,
            outcome,
            took,
            late,
            ..
        } => Some(Event::Ended {
            at: *at,
            n: *n,
            outcome: *outcome,
            took: *took,
            late: *late,
        }),
        Entry::Receipt { at, answer, .. } => Some(Event::Receipt {
            at: *at,
            answer: *answer,
        }),
        Entry::Waited { .. }
        | Entry::Reconnected { .. }
        | Entry::Moved { .. }
        | Entry::Claimed { .. }
        | Entry::Parked { .. }
        | Entry::Reversing { .. }
        | Entry::Undone { .. }
        | Entry::Differs { .. } => None,
    }
}

/// Whether a send belongs to an operator's order: it lies within it.
fn is_of(act: &AuditLine, sent: Wall) -> bool {
    act.verb == Verb::Resend && act.at <= sent && act.ended_at.is_none_or(|ended| sent <= ended)
}

/// Whether an operator has freed the key.
fn released(acts: &[AuditLine]) -> bool {
    acts.iter().any(|act| act.verb == Verb::ReleaseKey)
}

fn end(call: &CallView) -> End {
    let dead = call.dead_letter.as_ref().map(|letter| letter.state);
    if matches!(dead, Some(DeadState::Reversing | DeadState::Reversed)) {
        return End::Reversed;
    }
    let Some(settled) = &call.settled else {
        return match dead {
            Some(DeadState::Discarded) => End::Operator,
            _ => End::Open,
        };
    };
    let success = settled.verdict == Verdict::Success;
    match settled.by {
        SettledBy::Answer(n) => End::Answer { n, success },
        SettledBy::Receipt => End::Receipt { success },
        SettledBy::NeverSent => End::NeverSent,
        SettledBy::Reversal => End::Reversed,
        SettledBy::Operator => End::Operator,
    }
}

fn kin(kin: &story::Kin) -> Kin {
    let open = matches!(kin.state, State::Processing | State::Unknown);
    Kin {
        id: kin.call_id.to_string(),
        made_here: kin.source == IdSource::Gateway,
        same_key: kin.same_key,
        same_request: kin.same_request,
        keyed: kin.idempotency_key.is_some(),
        received: kin.received_at,
        may_have_acted: kin.state == State::Success || (open && kin.sends > 0),
        settled: kin.settled.is_some(),
        remembered_until: kin.remembered_until,
    }
}
