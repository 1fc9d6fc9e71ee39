//! Problem documents (RFC 9457) and what `Proxy-Status` (RFC 9209) says beside them.
//!
//! Deliberately absent: the sentences in `detail`, which belong to whoever knows the case.

use std::sync::LazyLock;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value, json};

use super::{CONTENT_TYPE, PROBLEM_JSON, RETRY_AFTER, ReplyBody, X_CALL_OUTCOME, receipt_link};
use crate::call::code::{Code, Repeat, Sent, Word};
use crate::call::id::{CallId, IdSource};
use crate::flow::told::Problem;
use crate::upstream::headers::PROXY_STATUS;

/// How a caller proves who it is (RFC 6750); `X-Api-Key` has no scheme that could stand here.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"callgate\"");

/// The rate a refused caller went over, and what is left of it
/// (draft-ietf-httpapi-ratelimit-headers).
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Where a code is explained.
const PAGE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/errors.md#");

/// What a caller reads whose head did not arrive in time. Written past hyper, which has no request
/// yet that it could answer.
pub(in crate::ingress) static SLOW_HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let detail = "The head of the request was not complete within limits.header_timeout. Nothing \
                  was sent. Send it again, with the same call id if it had one.";
    raw(&Problem::new(
        Code::RequestTimeout,
        detail,
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    ))
});

/// What a caller reads who comes when `limits.connections` are open.
pub(in crate::ingress) static NO_ROOM: LazyLock<Vec<u8>> = LazyLock::new(|| {
    no_room(
        "As many connections are open as limits.connections allows. Nothing was read and nothing \
         was sent. Repeat with the same call id.",
    )
});

/// What a caller reads whose address has `limits.connections_per_address` open.
pub(in crate::ingress) static NO_ROOM_FOR_ADDRESS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    no_room(
        "As many connections are open from this address as limits.connections_per_address allows. \
         Nothing was read and nothing was sent. Repeat with the same call id.",
    )
});

fn no_room(detail: &str) -> Vec<u8> {
    let problem = Problem::new(
        Code::Overloaded,
        detail,
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    );
    raw(&Problem {
        retry_after: Some(SOON),
        ..problem
    })
}

/// When a refusal that passes by itself is worth a repeat.
pub(in crate::ingress) const SOON: Duration = Duration::from_secs(1);

/// What the document says besides the problem itself.
pub(in crate::ingress) struct Facts<'a> {
    pub(in crate::ingress) call: Option<&'a (CallId, IdSource)>,
    pub(in crate::ingress) attempts: u32,
    pub(in crate::ingress) recorded: bool,
}

/// The fields of a problem's answer.
pub(in crate::ingress) fn headers(problem: &Problem) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(
        PROXY_STATUS,
        HeaderValue::from_static(proxy_status(problem.code)),
    );
    if problem.code == Code::Unauthorized {
        headers.insert(WWW_AUTHENTICATE, CHALLENGE);
    }
    if let Some(exceeded) = &problem.exceeded {
        let (whose, per) = (exceeded.whose, exceeded.rate.per.as_secs());
        let policy = format!("\"{whose}\";q={};w={per}", exceeded.rate.requests);
        for (name, value) in [
            (RATE_LIMIT_POLICY, policy),
            (RATE_LIMIT, format!("\"{whose}\";r=0;t={per}")),
        ] {
            let value = HeaderValue::from_maybe_shared(bytes::Bytes::from(value));
            headers.insert(name, value.expect("words and numbers"));
        }
    }
    if let Some(wait) = problem.retry_after {
        // Whole seconds, rounded up: a caller that comes too early is refused again.
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    headers
}

/// The document as a body.
pub(in crate::ingress) fn body(problem: &Problem, facts: &Facts<'_>) -> ReplyBody {
    ReplyBody::Whole(document(problem, facts).into())
}

fn document(problem: &Problem, facts: &Facts<'_>) -> String {
    let link = facts
        .call
        .filter(|_| facts.recorded)
        .map(|(id, _)| receipt_link(id));
    let code = problem.code;
    let mut document = Map::new();
    let mut put = |name: &str, value: Value| document.insert(name.to_owned(), value);
    let anchor = format!("{PAGE}{}-{}", code.as_str(), code.status().as_u16());
    put("type", Value::String(anchor));
    put("title", Value::from(title(code)));
    put("status", Value::from(problem.status.as_u16()));
    put("detail", Value::from(problem.detail.as_str()));
    put("code", Value::from(code.as_str()));
    put("callId", json!(facts.call.map(|(id, _)| id.as_str())));
    put("sent", Value::from(problem.sent.as_str()));
    put("attempts", Value::from(facts.attempts));
    put("state", json!(problem.state.map(|state| state.as_str())));
    put("receipt", json!(link));
    put("repeat", Value::from(problem.repeat.as_str()));
    for (name, value) in &problem.more {
        put(name, value.clone());
    }
    Value::Object(document).to_string()
}

/// The whole answer as HTTP/1.1, for a connection that ends with it.
fn raw(problem: &Problem) -> Vec<u8> {
    let document = document(
        problem,
        &Facts {
            call: None,
            attempts: 0,
            recorded: false,
        },
    );
    let mut bytes = format!("HTTP/1.1 {}\r\n", problem.status).into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        bytes.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    };
    for (name, value) in &headers(problem) {
        line(name.as_str(), value.as_bytes());
    }
    line(X_CALL_OUTCOME.as_str(), Word::Refused.as_str().as_bytes());
    line("connection", b"close");
    line("content-length", document.len().to_string().as_bytes());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(document.as_bytes());
    bytes
}

const fn title(code: Code) -> &'static str {
    match code {
        Code::NoRoute => "No route matches the request",
        Code::ReceiptNotFound => "This ledger knows no such call",
        Code::InvalidCallId => "The call id breaks the rules",
        Code::BadRequest => "The request cannot be used as it is",
        Code::IdempotencyKeyRequired => "The route demands an idempotency key",
        Code::Unauthorized => "No valid client key",
        Code::RequestTimeout => "The request did not arrive in time",
        Code::InProgress => "The call is running",
        Code::ResultNotKept => "The call is settled, but its answer was not kept",
        Code::Reversed => "The call was or is being reversed",
        Code::NewIdForRunningCall => "The same request is running under another id",
        Code::OrderRefused => "The verb does not fit the state of the call",
        Code::BodyTooLarge => "The request body is over the limit",
        Code::CallIdReused => "The call id belongs to another request",
        Code::IdempotencyKeyReused => "The idempotency key belongs to another request",
        Code::RateLimited => "A rate limit was reached",
        Code::HeadersTooLarge => "The request headers are over the limit",
        Code::Internal => "A fault of the gateway itself",
        Code::UpgradeRefused => "Upgrades are not supported",
        Code::ToolReportedFailure => "The tool reported a failure",
        Code::ResolvedAsFailed => "An operator resolved the call as failed",
        Code::ToolUnreachable => "Nothing could be sent to the tool",
        Code::ToolDisconnected => "The tool closed the connection",
        Code::Overloaded => "The gateway has more work than it may take",
        Code::Draining => "The gateway is shutting down",
        Code::LedgerUnavailable => "The durable record could not be written",
        Code::Unresolved => "Nobody knows yet what became of this call",
        Code::ToolTimeout => "The tool did not answer in time",
        Code::LoopDetected => "The request has been through this gateway before",
    }
}

/// The registered error type that says the most without saying more than is known.
const fn proxy_status(code: Code) -> &'static str {
    match code {
        Code::NoRoute => "callgate; error=destination_not_found",
        Code::InvalidCallId
        | Code::BadRequest
        | Code::IdempotencyKeyRequired
        | Code::RequestTimeout
        | Code::BodyTooLarge
        | Code::HeadersTooLarge
        | Code::CallIdReused
        | Code::IdempotencyKeyReused => "callgate; error=http_request_error",
        Code::Unauthorized | Code::RateLimited => "callgate; error=http_request_denied",
        Code::ReceiptNotFound
        | Code::InProgress
        | Code::ResultNotKept
        | Code::Reversed
        | Code::NewIdForRunningCall
        | Code::OrderRefused
        | Code::ToolReportedFailure
        | Code::ResolvedAsFailed
        | Code::Draining => "callgate; error=proxy_internal_response",
        Code::Internal | Code::LedgerUnavailable => "callgate; error=proxy_internal_error",
        Code::UpgradeRefused => "callgate; error=http_upgrade_failed",
        Code::ToolUnreachable => "callgate; error=destination_unavailable",
        Code::ToolDisconnected => "callgate; error=connection_terminated",
        Code::Overloaded => "callgate; error=connection_limit_reached",
        Code::Unresolved => "callgate; error=http_response_incomplete",
        Code::ToolTimeout => "callgate; error=connection_read_timeout",
        Code::LoopDetected => "callgate; error=proxy_loop_detected",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_past_hyper_is_a_whole_answer() {
        for (bytes, status) in [
            (&*SLOW_HEAD, 408),
            (&*NO_ROOM, 503),
            (&*NO_ROOM_FOR_ADDRESS, 503),
        ] {
            let text = std::str::from_utf8(bytes).unwrap();
            let (head, document) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            assert!(
                head.ends_with(&format!("\r\ncontent-length: {}", document.len())),
                "{head}"
            );
            let document: Value = serde_json::from_str(document).unwrap();
            assert_eq!(document["status"], status);
        }
    }

    #[test]
    fn every_code_names_a_registered_error_and_a_page() {
        for code in Code::ALL.iter().copied() {
            let problem = Problem::new(code, "Detail.", Sent::No, Repeat::Safe);
            assert!(
                headers(&problem)[PROXY_STATUS]
                    .as_bytes()
                    .starts_with(b"callgate; error=")
            );
            let facts = Facts {
                call: None,
                attempts: 0,
                recorded: false,
            };
            let document: Value = serde_json::from_str(&document(&problem, &facts)).unwrap();
            let anchor = format!("#{}-{}", code.as_str(), code.status().as_u16());
            assert!(document["type"].as_str().unwrap().ends_with(&anchor));
        }
    }
}
