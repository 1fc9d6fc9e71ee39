//! What an answer means, by its status and by the word of a gateway further in.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use super::*;
use crate::call::outcome::Reading::{Failure, Kept as Again, Pending, Success, Unbinding};

fn route(kind: &str) -> Arc<Route> {
    let text = format!(
        "routes: [{{ name: r, upstream: {{ url: \"http://t\", kind: {kind} }}, receipt: {{}} }}]"
    );
    let config = crate::config::parse(&text, "test", Path::new(""), &|_| None).unwrap();
    Arc::clone(&config.routes[0])
}

/// An answer with this outcome word (none when empty); `code` makes it a problem of a gateway.
fn answer(status: u16, word: &str, code: &str) -> Answer {
    let mut headers = HeaderMap::new();
    if !word.is_empty() {
        headers.insert(X_CALL_OUTCOME, HeaderValue::from_str(word).unwrap());
    }
    let mut body = Bytes::from_static(b"the tool's own");
    if !code.is_empty() {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        let made_by = HeaderValue::from_static("callgate; error=proxy_internal_response");
        headers.insert(PROXY_STATUS, made_by);
        body = Bytes::from(format!(r#"{{"code":"{code}","status":{status}}}"#));
    }
    Answer {
        status: StatusCode::from_u16(status).unwrap(),
        headers: headers.into(),
        body,
        cut: false,
    }
}

#[test]
fn an_inner_refusal_of_what_may_have_arrived_is_no_refusal() {
    for (sent, made) in [
        ("maybe", Pending as fn(StatusCode) -> Reading),
        ("no", Unbinding),
        ("unknown", Unbinding),
    ] {
        for status in [502, 504] {
            let mut answer = answer(status, "refused", "tool-timeout");
            answer.body = format!(r#"{{"code":"tool-timeout","sent":"{sent}"}}"#).into();
            let expected = Outcome::Answered(made(answer.status));
            assert_eq!(
                read(&route("callgate"), &answer),
                expected,
                "{status} {sent}"
            );
        }
    }
}

#[test]
fn the_word_of_an_inner_gateway_counts_before_its_status() {
    type Made = fn(StatusCode) -> Reading;
    let not_sent: Option<Made> = None;
    let table: [(u16, &str, &str, Option<Made>); 30] = [
        // Settled there: by status.
        (201, "answered", "", Some(Success)),
        (422, "answered", "", Some(Failure)),
        (401, "answered", "", Some(Unbinding)),
        (200, "receipt", "", Some(Success)),
        (502, "receipt", "tool-reported-failure", Some(Again)),
        (201, "replayed", "", Some(Success)),
        (502, "replayed", "resolved-as-failed", Some(Again)),
        (409, "answered", "in-progress", Some(Failure)),
        // Nothing was sent by it, and a repeat may be.
        (429, "refused", "rate-limited", not_sent),
        (503, "refused", "draining", not_sent),
        (503, "refused", "ledger-unavailable", not_sent),
        (503, "refused", "overloaded", not_sent),
        // The call is known there; its receipt tells.
        (409, "refused", "in-progress", Some(Pending)),
        (409, "refused", "result-not-kept", Some(Pending)),
        (409, "refused", "", Some(Pending)),
        (202, "unresolved", "", Some(Pending)),
        (202, "unresolved", "unresolved", Some(Pending)),
        (409, "unresolved", "unresolved", Some(Pending)),
        (504, "unresolved", "unresolved", Some(Pending)),
        (503, "unresolved", "unresolved", Some(Pending)),
        // The tool's own, handed through.
        (503, "unresolved", "", Some(Again)),
        // Refused for good: passed on, and bound to nothing.
        (400, "refused", "invalid-call-id", Some(Unbinding)),
        (401, "refused", "unauthorized", Some(Unbinding)),
        (409, "refused", "reversed", Some(Unbinding)),
        (422, "refused", "call-id-reused", Some(Unbinding)),
        (502, "refused", "tool-unreachable", Some(Unbinding)),
        (508, "refused", "loop-detected", Some(Unbinding)),
        // A later version's word, and none at all (something in between answered).
        (200, "postponed", "", Some(Pending)),
        (503, "", "", Some(Again)),
        (404, "", "", Some(Failure)),
    ];
    let (callgate, tool) = (route("callgate"), route("tool"));
    for (status, word, code, reading) in table {
        let answer = answer(status, word, code);
        let expected = reading.map_or(Outcome::NotSent(NotSent::Refused), |made| {
            Outcome::Answered(made(answer.status))
        });
        assert_eq!(read(&callgate, &answer), expected, "{status} {word} {code}");
        // A tool that happens to use the field is only a tool.
        let by_status = Outcome::Answered(Reading::by_status(answer.status));
        assert_eq!(read(&tool, &answer), by_status, "{status} {word} {code}");
        // The same once its body was streamed away, as far as the body counts.
        let kept = Reply {
            status: answer.status,
            headers: answer.headers.clone().into_map(),
            body: Kept::Whole(answer.body.clone()),
        };
        assert_eq!(
            read_kept(&callgate, &kept),
            expected,
            "{status} {word} {code}"
        );
    }
}

/// An inner gateway that cannot show a settled call's answer (503 `overloaded`, `sent: yes`) has
/// not refused the call: taken for that, resends that all meet it would end as "never sent".
#[test]
fn a_refusal_of_a_call_that_was_sent_leaves_it_open() {
    let route = route("callgate");
    for status in [429, 503] {
        let said = |sent: &str| {
            let mut answer = answer(status, "refused", "overloaded");
            answer.body = Bytes::from(format!(r#"{{"code":"overloaded","sent":"{sent}"}}"#));
            read(&route, &answer)
        };
        let status = StatusCode::from_u16(status).unwrap();
        let open = Outcome::Answered(Pending(status));
        let unsent = Outcome::NotSent(NotSent::Refused);
        assert_eq!(
            ["yes", "maybe", "no", "unknown"].map(said),
            [open, open, unsent, unsent]
        );
    }
}

#[test]
fn a_gateways_refusal_stays_one_on_its_way_out() {
    let shown = |word: &str| {
        let Answer {
            status,
            headers,
            body,
            ..
        } = answer(502, word, "tool-unreachable");
        Shown::Whole(crate::flow::told::Whole {
            status,
            headers,
            body,
        })
    };
    let table = [
        ("callgate", "refused", Word::Refused),
        ("callgate", "answered", Word::Answered),
        ("callgate", "", Word::Answered),
        ("tool", "refused", Word::Answered),
    ];
    for (kind, said, expected) in table {
        assert_eq!(word(&route(kind), &shown(said)), expected, "{kind} {said}");
    }
}
