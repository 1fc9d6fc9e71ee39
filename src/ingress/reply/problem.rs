//! Problem documents (RFC 9457) and what `Proxy-Status` (RFC 9209) says beside them.
//!
//! Deliberately absent: the sentences in `detail`, which belong to whoever knows the case.

use std::sync::LazyLock;
use std::time::Duration;

use http::header::WWW_AUTHENTICATE;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Serialize;

use super::{CONTENT_TYPE, PROBLEM_JSON, RETRY_AFTER, ReplyBody, X_CALL_OUTCOME, receipt_link};
use crate::call::code::{Code, Repeat, Sent, Word};
use crate::call::id::CallId;
use crate::call::receipt::State;
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

/// Longer than nearly every document.
const DOCUMENT_BYTES: usize = 768;

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
    pub(in crate::ingress) call: Option<&'a CallId>,
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

fn document(problem: &Problem, facts: &Facts<'_>) -> Vec<u8> {
    let code = problem.code;
    let link = facts.call.filter(|_| facts.recorded).map(receipt_link);
    let mut document = Document(Vec::with_capacity(DOCUMENT_BYTES));
    document.say(&["{\"type\":\"", PAGE, code.as_str()]);
    document.say(&["-", code.status().as_str(), "\""]);
    document.put("title", title(code));
    document.put("status", &problem.status.as_u16());
    document.put("detail", &problem.detail);
    document.put("code", code.as_str());
    document.put("callId", &facts.call.map(CallId::as_str));
    document.put("sent", problem.sent.as_str());
    document.put("attempts", &facts.attempts);
    document.put("state", &problem.state.map(State::as_str));
    document.put("receipt", &link);
    document.put("repeat", problem.repeat.as_str());
    for (name, value) in &problem.more {
        document.put(name, value);
    }
    document.say(&["}"]);
    document.0
}

/// A document that is being written. By hand, since most of them are written when there is no time
/// to lose: a tree of values first takes ten times as long.
struct Document(Vec<u8>);

impl Document {
    /// Words of our own, which need no escape.
    fn say(&mut self, words: &[&str]) {
        for word in words {
            self.0.extend_from_slice(word.as_bytes());
        }
    }

    /// One more member.
    fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.say(&[",\"", name, "\":"]);
        serde_json::to_writer(&mut self.0, value).expect("memory takes every write");
    }
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
    bytes.extend_from_slice(&document);
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
    use serde_json::{Value, json};

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
    fn a_document_is_what_it_says_in_its_order_whatever_stands_in_it() {
        let id = CallId::parse(b"a\"b\\c").unwrap();
        let facts = Facts {
            call: Some(&id),
            attempts: 12,
            recorded: true,
        };
        let problem = Problem {
            state: Some(State::Unknown),
            more: vec![("deadLetter", json!({ "state": "MANUAL" }))],
            ..Problem::new(
                Code::Unresolved,
                "It said \"no\",\nand \u{e9}.",
                Sent::Maybe,
                Repeat::SameCallIdOnly,
            )
        };
        let text = String::from_utf8(document(&problem, &facts)).unwrap();
        let page = format!("{PAGE}unresolved-504");
        let whole = json!({
            "type": page,
            "title": title(Code::Unresolved),
            "status": 504,
            "detail": "It said \"no\",\nand \u{e9}.",
            "code": "unresolved",
            "callId": "a\"b\\c",
            "sent": "maybe",
            "attempts": 12,
            "state": "UNKNOWN",
            "receipt": "/_callgate/receipts/a%22b%5Cc",
            "repeat": "same-call-id-only",
            "deadLetter": { "state": "MANUAL" },
        });
        assert_eq!(text, whole.to_string());
        let nothing = Facts {
            call: None,
            attempts: 0,
            recorded: false,
        };
        let text = String::from_utf8(document(&problem, &nothing)).unwrap();
        assert!(
            text.contains("\"callId\":null,\"sent\":\"maybe\",\"attempts\":0,"),
            "{text}"
        );
        assert!(text.contains("\"receipt\":null,"), "{text}");
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
            let document: Value = serde_json::from_slice(&document(&problem, &facts)).unwrap();
            let anchor = format!("#{}-{}", code.as_str(), code.status().as_u16());
            assert!(document["type"].as_str().unwrap().ends_with(&anchor));
        }
    }
}
