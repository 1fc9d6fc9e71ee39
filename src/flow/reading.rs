//! What a complete answer says, as its route reads it.
//!
//! The status says it all, unless the route has an `answer` mapping (tools that say "failed" in a
//! 200) or takes a 202 as a promise (`accepted: pending`).

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;

use super::record;
use crate::call::outcome::Reading;
use crate::call::receipt::State;
use crate::config::route::{Accepted, Route};
use crate::ledger::Reply;
use crate::telemetry::log;
use crate::upstream::headers::TRACEPARENT;
use crate::upstream::{Answer, StreamAnswer};

/// Reads a complete answer.
#[must_use]
pub(super) fn read(route: &Route, answer: &Answer) -> Reading {
    let by_status = Reading::by_status(answer.status);
    match by_status {
        Reading::Success(status) if status.is_success() => {
            if status == StatusCode::ACCEPTED && route.accepted == Accepted::Pending {
                return Reading::Pending(status);
            }
            by_word(route, answer, status).unwrap_or(by_status)
        }
        Reading::Success(_)
        | Reading::Failure(_)
        | Reading::Unbinding(_)
        | Reading::Pending(_)
        | Reading::Kept(_) => by_status,
    }
}

/// Reads a 2xx by the state word in its body; `None` when the route does not look there.
fn by_word(route: &Route, answer: &Answer, status: StatusCode) -> Option<Reading> {
    let rule = route.answer.as_ref()?;
    let body: Result<serde_json::Value, _> = serde_json::from_slice(&answer.body);
    let word = body.as_ref().ok().and_then(|body| rule.state.word(body));
    let state = word.and_then(|word| rule.states.state(&word));
    Some(match state {
        Some(State::Success) => Reading::Success(status),
        Some(State::Failed) => Reading::Failure(status),
        Some(State::Received | State::Processing) => Reading::Pending(status),
        // A word nobody mapped, or none where one was promised.
        Some(State::Unknown) | None => Reading::Kept(status),
    })
}

/// `Retry-After` in seconds. Dates are not read: a wrong clock must not hold a call.
#[must_use]
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers
        .get(RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some(Duration::from_secs(seconds))
}

/// Reads a streamed answer to its end, for whom nobody waits; `None` when it was cut short.
pub(super) async fn drain(stream: StreamAnswer) -> Option<Reply> {
    let StreamAnswer {
        status,
        headers,
        mut body,
        end,
    } = stream;
    // An error ends the loop; the report says what it was.
    while let Some(Ok(_)) = body.frame().await {}
    drop(body);
    let report = end.await;
    report
        .broken
        .is_none()
        .then(|| record::passed(status, &headers, &report))
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
