//! What a repeat of a known call is told (contract, section 3, "Duplicates").
//!
//! The ledger's claim has already decided that the id is taken; here the known call is only put
//! into words. A mismatch is found before anything else, so that another request under a used id
//! never learns more than that. Deliberately absent: waiting for a running call (`join`), asking
//! about an unresolved one (`repeat`), and any send.

use std::time::Duration;

use serde_json::json;

use super::record;
use super::told::{Problem, Shown, Told, Whole, Word};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::call::receipt::State;
use crate::config::route::UpstreamKind;
use crate::ledger::{CallView, DeadState, Kept, Known, Reply, SettledBy, Settlement, Verdict};

/// How soon a repeat of a running call may ask again: as good a guess as any before the call's end.
const RUNNING_RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the repeat of the same request is told about the known call, which was sent to a `kind`.
#[must_use]
pub fn told(known: &Known, kind: UpstreamKind) -> Told {
    let call = &known.call;
    if let Some(settled) = &call.settled {
        return match settled.by {
            SettledBy::Reversal => reversed(call),
            SettledBy::Answer(_)
            | SettledBy::Receipt
            | SettledBy::NeverSent
            | SettledBy::Operator => replayed(call, settled),
        };
    }
    match call.dead_letter.as_ref().map(|letter| letter.state) {
        None => running(call),
        Some(DeadState::Reversing | DeadState::Reversed) => reversed(call),
        Some(
            state @ (DeadState::Queued
            | DeadState::Running
            | DeadState::Manual
            | DeadState::Discarded
            | DeadState::Settled
            | DeadState::Failed),
        ) => queued(call, state, kind),
    }
}

/// What a request under another client's id is told: nothing about that call, not even whether it
/// is the same request.
#[must_use]
pub fn foreign_problem() -> Problem {
    Problem::new(
        Code::CallIdReused,
        "This call id cannot be used. Send this request under another id.",
        Sent::No,
        Repeat::Never,
    )
}

/// What another request under a used id is told.
#[must_use]
pub fn reused_problem() -> Problem {
    Problem::new(
        Code::CallIdReused,
        "This call id belongs to another request (other method, path, query or body). \
         Send this request under an id of its own.",
        Sent::No,
        Repeat::Never,
    )
}

/// What a request under a used id is told that differs in nothing but its key.
#[must_use]
pub fn other_key_problem(first: Option<&str>) -> Problem {
    let had = first.map_or_else(
        || "had no idempotency key".to_owned(),
        |key| format!("had another idempotency key ({key:?})"),
    );
    Problem::new(
        Code::CallIdReused,
        format!(
            "This call id belongs to a request that {had}; all else is the same. Send this request \
             under an id of its own, or repeat the first one with its key, or without any."
        ),
        Sent::No,
        Repeat::Never,
    )
}

/// What another request under a taken key is told.
#[must_use]
pub fn key_reused_problem() -> Problem {
    Problem::new(
        Code::IdempotencyKeyReused,
        "This idempotency key belongs to another request (other method, path, query or body). \
         Send this request under a key of its own.",
        Sent::No,
        Repeat::Never,
    )
}

fn told_about(call: &CallView, word: Word, shown: Shown) -> Told {
    Told {
        call: Some((call.call_id.clone(), call.source)),
        word,
        attempts: call.sends,
        shown,
        original: None,
        same_id_only: false,
        recorded: true,
    }
}

fn running(call: &CallView) -> Told {
    in_progress((call.call_id.clone(), call.source), call.sends, call.state)
}

/// What a repeat is told when the call runs and it cannot wait for its end.
#[must_use]
pub(super) fn in_progress(named: (CallId, IdSource), sends: u32, state: State) -> Told {
    let sent = if sends == 0 { Sent::No } else { Sent::Maybe };
    let problem = Problem {
        state: Some(state),
        retry_after: Some(RUNNING_RETRY_AFTER),
        ..Problem::new(
            Code::InProgress,
            "This call is running. Repeat it under the same id, or read its receipt.",
            sent,
            Repeat::SameCallIdOnly,
        )
    };
    Told {
        call: Some(named),
        word: Word::Refused,
        attempts: sends,
        shown: Shown::Problem(problem),
        original: None,
        same_id_only: false,
        recorded: true,
    }
}

fn reversed(call: &CallView) -> Told {
    let problem = Problem {
        state: Some(call.state),
        ..Problem::new(
            Code::Reversed,
            "This call was reversed, or is being reversed; it is never sent again. \
             A new operation needs an id of its own.",
            Sent::Maybe,
            Repeat::Never,
        )
    };
    told_about(call, Word::Refused, Shown::Problem(problem))
}

/// What a call is told whose client has undone it, perhaps before it arrived.
#[must_use]
pub(super) fn undone(call_id: CallId, source: IdSource, sends: u32) -> Told {
    let sent = if sends == 0 { Sent::No } else { Sent::Maybe };
    let problem = Problem::new(
        Code::Reversed,
        "The reversal of this call came first, so it is never sent. A new operation needs an id of \
         its own.",
        sent,
        Repeat::Never,
    );
    Told {
        attempts: sends,
        ..Told::refused(Some((call_id, source)), problem)
    }
}

fn queued(call: &CallView, state: DeadState, kind: UpstreamKind) -> Told {
    let whose = match state {
        DeadState::Queued | DeadState::Running => "the gateway goes on asking the tool",
        DeadState::Manual => "it is in front of an operator",
        DeadState::Discarded => "an operator has given it up, and nothing is sent for it",
        DeadState::Settled | DeadState::Failed | DeadState::Reversing | DeadState::Reversed => {
            "its end is recorded"
        }
    };
    let sent = if call.may_have_left() {
        Sent::Maybe
    } else if kind == UpstreamKind::Callgate && call.was_refused() {
        // Which says nothing of what that gateway may have sent before.
        Sent::Unknown
    } else {
        Sent::No
    };
    let problem = Problem {
        state: Some(call.state),
        more: vec![("deadLetter", json!({ "state": state.as_str() }))],
        ..Problem::new(
            Code::Unresolved,
            format!(
                "Nobody knows yet what became of this call; {whose}. \
                 Repeat it under the same id only, or read its receipt."
            ),
            sent,
            Repeat::SameCallIdOnly,
        )
    };
    told_about(call, Word::Unresolved, Shown::Problem(problem))
}

fn replayed(call: &CallView, settled: &Settlement) -> Told {
    if let Some(reply) = &settled.reply {
        return match record::whole(reply) {
            Some(whole) => told_about(call, Word::Replayed, Shown::Whole(whole)),
            None => not_kept(call, settled, reply),
        };
    }
    match settled.verdict {
        Verdict::Success => {
            let whole = document(settled.document.clone().unwrap_or_default());
            told_about(call, Word::Replayed, Shown::Whole(whole))
        }
        Verdict::Failed => {
            let problem = failed(settled.by);
            told_about(call, Word::Replayed, Shown::Problem(problem))
        }
    }
}

/// A receipt document as an answer of its own.
#[must_use]
pub fn document(body: bytes::Bytes) -> Whole {
    let mut headers = http::HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    Whole {
        status: http::StatusCode::OK,
        headers: headers.into(),
        body,
    }
}

/// The failure of a call that has no answer to show.
#[must_use]
pub fn failed(by: SettledBy) -> Problem {
    let (code, sent, detail) = match by {
        // What the tool did is what nobody could find out by asking it.
        SettledBy::Operator => (
            Code::ResolvedAsFailed,
            Sent::Maybe,
            "An operator resolved this call as failed. A new operation needs an id of its own.",
        ),
        SettledBy::Answer(_) | SettledBy::Receipt | SettledBy::NeverSent | SettledBy::Reversal => (
            Code::ToolReportedFailure,
            Sent::Yes,
            "The tool's receipt says that this call failed, without an answer to show. \
             A new operation needs an id of its own.",
        ),
    };
    Problem {
        state: Some(State::Failed),
        ..Problem::new(code, detail, sent, Repeat::Never)
    }
}

fn not_kept(call: &CallView, settled: &Settlement, reply: &Reply) -> Told {
    let problem = digest(reply, Some(settled.verdict.state()));
    told_about(call, Word::Refused, Shown::Problem(problem))
}

/// A kept answer as it can be shown: whole, or what identifies it, with the state that its call is
/// in because of it; none when it binds nothing.
#[must_use]
pub fn kept(reply: &Reply, state: Option<State>) -> Shown {
    match record::whole(reply) {
        Some(whole) => Shown::Whole(whole),
        None => Shown::Problem(digest(reply, state)),
    }
}

/// What is left of an answer whose body was not kept.
fn digest(reply: &Reply, state: Option<State>) -> Problem {
    let (bytes, sha256) = match &reply.body {
        Kept::Digest { bytes, sha256 } => (*bytes, sha256.as_ref().map(|sum| hex(sum))),
        Kept::Whole(body) => (body.len() as u64, None),
    };
    let headers: serde_json::Map<_, _> = reply
        .headers
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                json!(String::from_utf8_lossy(value.as_bytes())),
            )
        })
        .collect();
    let result = json!({
        "status": reply.status.as_u16(),
        "headers": headers,
        "bodyBytes": bytes,
        "bodySha256": sha256,
    });
    Problem {
        state,
        more: vec![("result", result)],
        ..Problem::new(
            Code::ResultNotKept,
            "This call is settled, but its answer was too large to keep. \
             Status, headers, length and digest are in `result`.",
            Sent::Yes,
            Repeat::Never,
        )
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a String takes every write");
            text
        })
}
