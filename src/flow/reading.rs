//! What a complete answer says, as its route reads it.
//!
//! The status says it all, unless the route has an `answer` mapping (tools that say "failed" in a
//! 200), takes a 202 as a promise (`accepted: pending`), or another callgate answers there: then
//! its word counts before the status (contract, "Chains"), because only the hop next to the tool
//! may resend, and a gateway's refusal is not the tool's.

use http::{HeaderMap, StatusCode};

use super::told::{Shown, Word};
use crate::call::code::{Code, Sent};
use crate::call::outcome::{NotSent, Outcome, Reading};
use crate::call::receipt::State;
use crate::config::route::{Accepted, Route, UpstreamKind};
use crate::config::template::JsonPointer;
use crate::ledger::{Kept, Reply};
use crate::telemetry::log;
use crate::upstream::headers::{PROXY_STATUS, TRACEPARENT, X_CALL_ATTEMPTS, X_CALL_OUTCOME};
use crate::upstream::json::Json;
use crate::upstream::{Answer, StreamAnswer};

/// How `Proxy-Status` begins when a callgate made the answer itself.
const BY_CALLGATE: &[u8] = b"callgate;";

/// Reads a complete answer.
#[must_use]
pub(super) fn read(route: &Route, answer: &Answer) -> Outcome {
    inner(route, answer.status, &answer.headers, &answer.body)
        .unwrap_or_else(|| Outcome::Answered(of_tool(route, answer)))
}

/// Reads the answer to a reversal: its status says it all, unless a gateway further in speaks of
/// itself.
#[must_use]
pub(super) fn read_undo(
    route: &Route,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> Outcome {
    let plain = Outcome::Answered(Reading::by_status(status));
    inner(route, status, headers, body).unwrap_or(plain)
}

/// Reads an answer that was streamed away and kept as its record.
#[must_use]
pub(super) fn read_kept(route: &Route, reply: &Reply) -> Outcome {
    let body = match &reply.body {
        Kept::Whole(body) => &**body,
        Kept::Digest { .. } => &[],
    };
    inner(route, reply.status, &reply.headers, body)
        .unwrap_or_else(|| Outcome::Answered(by_status(route, reply.status)))
}

/// Whether the head of an answer leaves open what it means: it only promises the work, or a gateway
/// further in speaks of itself.
#[must_use]
pub(super) fn is_open(route: &Route, head: &StreamAnswer) -> bool {
    let promise = matches!(by_status(route, head.status), Reading::Pending(_));
    promise || inner(route, head.status, &head.headers, &[]).is_some()
}

/// The word for an answer that is passed on as the call's end: a gateway's refusal stays one.
#[must_use]
pub(super) fn word(route: &Route, shown: &Shown) -> Word {
    if route.upstream.kind == UpstreamKind::Tool {
        return Word::Answered;
    }
    match shown.headers().and_then(|headers| word_of(route, headers)) {
        Some(word) if word == Word::Refused.as_str() => Word::Refused,
        Some(_) | None => Word::Answered,
    }
}

/// Whether a gateway made the answer, and so has resent as often as it is worth.
#[must_use]
pub(super) fn came_through_a_gateway(shown: &Shown) -> bool {
    match shown {
        Shown::Whole(whole) if !whole.headers.may_tell_of_calls() => false,
        _ => shown
            .headers()
            .is_some_and(|headers| headers.contains_key(X_CALL_ATTEMPTS)),
    }
}

/// The outcome word of the callgate that answers on this route.
fn word_of<'a>(route: &Route, headers: &'a HeaderMap) -> Option<&'a str> {
    match route.upstream.kind {
        UpstreamKind::Tool => None,
        // No text at all is no word either, and so nothing that is known.
        UpstreamKind::Callgate => Some(headers.get(X_CALL_OUTCOME)?.to_str().unwrap_or("")),
    }
}

/// What a gateway further in says of itself; `None` when its status says it all.
fn inner(route: &Route, status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Option<Outcome> {
    let word = word_of(route, headers)?;
    match Word::ALL.into_iter().find(|known| known.as_str() == word) {
        Some(Word::Answered | Word::Receipt | Word::Replayed) => None,
        Some(Word::Refused) => Some(refused(status, body)),
        // A word this version does not know says no more than "unresolved".
        Some(Word::Unresolved) | None => Some(Outcome::Answered(unresolved(status, headers))),
    }
}

/// A refusal of a gateway: nothing was sent by it, which is not yet to say that the call is over.
fn refused(status: StatusCode, body: &[u8]) -> Outcome {
    match status {
        // It knows the call, was sent it before, and only cannot show its answer now.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
            if may_have_arrived(body) =>
        {
            Outcome::Answered(Reading::Pending(status))
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Outcome::NotSent(NotSent::Refused)
        }
        // The call is known there and runs, or has ended in a way only its receipt tells.
        StatusCode::CONFLICT if !is_other_conflict(body) => {
            Outcome::Answered(Reading::Pending(status))
        }
        // What a gateway of an earlier version wrote of a request that it did not record.
        StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT if may_have_arrived(body) => {
            Outcome::Answered(Reading::Pending(status))
        }
        _ => Outcome::Answered(Reading::Unbinding(status)),
    }
}

/// Whether a problem says that the tool was sent the call, or may have been.
fn may_have_arrived(body: &[u8]) -> bool {
    let at = JsonPointer::parse("/sent").expect("it is one");
    let sent = Json::read(body).and_then(|problem| problem.text(&at));
    let sent = sent.ok().flatten();
    [Sent::Maybe, Sent::Yes]
        .map(|sent| Some(sent.as_str()))
        .contains(&sent.as_deref())
}

/// Whether a 409 is certainly none of those that leave the call open.
fn is_other_conflict(body: &[u8]) -> bool {
    let at = JsonPointer::parse("/code").expect("it is one");
    let code = Json::read(body).and_then(|problem| problem.text(&at));
    code.ok().flatten().is_some_and(|code| {
        ![Code::InProgress, Code::ResultNotKept]
            .map(Code::as_str)
            .contains(&&*code)
    })
}

/// Nobody knows there either. A 5xx of the tool that was handed through is kept; what the gateway
/// wrote itself is no answer that could be shown as the call's.
fn unresolved(status: StatusCode, headers: &HeaderMap) -> Reading {
    let own = headers
        .get_all(PROXY_STATUS)
        .iter()
        .any(|line| line.as_bytes().starts_with(BY_CALLGATE));
    if status.is_server_error() && !own {
        Reading::Kept(status)
    } else {
        Reading::Pending(status)
    }
}

/// Reads a tool's answer.
fn of_tool(route: &Route, answer: &Answer) -> Reading {
    let by_status = by_status(route, answer.status);
    match by_status {
        Reading::Success(status) if status.is_success() => {
            by_word(route, answer, status).unwrap_or(by_status)
        }
        Reading::Success(_)
        | Reading::Failure(_)
        | Reading::Unbinding(_)
        | Reading::Pending(_)
        | Reading::Kept(_) => by_status,
    }
}

/// Reads a status, which may only promise the work.
fn by_status(route: &Route, status: StatusCode) -> Reading {
    if status == StatusCode::ACCEPTED && route.accepted == Accepted::Pending {
        return Reading::Pending(status);
    }
    Reading::by_status(status)
}

/// Reads a 2xx by the state word in its body; `None` when the route does not look there.
fn by_word(route: &Route, answer: &Answer, status: StatusCode) -> Option<Reading> {
    let rule = route.answer.as_ref()?;
    let body: Result<serde_json::Value, _> = serde_json::from_slice(&answer.body);
    let word = body.as_ref().ok().and_then(|body| rule.state.word(body));
    let doubled = || Json::read(&answer.body).is_ok_and(|json| json.is_doubled(&rule.state));
    if word.is_some() && doubled() {
        tracing::warn!(
            route = %route.name,
            at = rule.state.as_str(),
            "an answer names its state twice: nobody knows what it says; check the tool"
        );
        return Some(Reading::Kept(status));
    }
    let state = word.and_then(|word| rule.states.state(&word));
    Some(match state {
        Some(State::Success) => Reading::Success(status),
        Some(State::Failed) => Reading::Failure(status),
        Some(State::Received | State::Processing) => Reading::Pending(status),
        // A word nobody mapped, or none where one was promised.
        Some(State::Unknown) | None => Reading::Kept(status),
    })
}

/// The trace a request belongs to, for the log.
#[must_use]
pub(super) fn trace_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(TRACEPARENT)?
        .to_str()
        .ok()
        .and_then(log::trace_id)
}

#[cfg(test)]
mod tests;
