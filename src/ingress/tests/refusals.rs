//! What every refusal before the ledger was asked says about the call (C66): the same id may have
//! been sent before, so nothing is claimed, and a repeat is safe under the same id only.

use std::time::Duration;

use crate::config::Limits;
use crate::ingress::Found;

use super::gate::LIMITS;
use super::peer::Answer;
use super::{Gate, told_whole};

const SHORT: Duration = Duration::from_millis(100);

fn gate(limits: Limits) -> Gate {
    Gate::scripted(limits, |seen| {
        Box::pin(async move {
            let named = Some((seen.call_id, seen.source));
            told_whole(named, 200, Default::default(), b"")
        })
    })
}

#[track_caller]
fn assert_claims_nothing(answer: &Answer, status: u16, code: &str) {
    assert_eq!((answer.status, &*answer.code()), (status, code));
    let document = answer.json();
    let said = (&document["sent"], &document["repeat"]);
    let nothing = (&"unknown".into(), &"same-call-id-only".into());
    assert_eq!(said, nothing, "{document}");
}

/// The answer to these bytes on a connection of their own.
async fn answer(gate: &Gate, bytes: &str) -> Answer {
    let mut peer = gate.peer().await;
    peer.send(bytes).await;
    peer.answer().await
}

#[tokio::test]
async fn a_refusal_before_the_ledger_was_asked_claims_nothing_about_the_call() {
    let mut gate = gate(Limits {
        headers: 20,
        body_timeout: SHORT,
        header_timeout: SHORT,
        ..LIMITS
    });
    let post =
        |lines: &str| format!("POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: c\r\n{lines}\r\n");
    let many: String = (0..30).map(|n| format!("x-{n}: 1\r\n")).collect();
    let get = |path: &str, lines: &str| format!("GET {path} HTTP/1.1\r\nHost: t\r\n{lines}\r\n");
    let table = [
        (get("/nowhere", "X-Call-Id: c\r\n"), 404, "no-route"),
        (post("Host: u\r\n"), 400, "bad-request"),
        (post("x-stranger: 1\r\n"), 401, "unauthorized"),
        (post("Content-Length: 99999999\r\n"), 413, "body-too-large"),
        (post(&many), 431, "headers-too-large"),
        (post("Via: 1.1 callgate-test\r\n"), 508, "loop-detected"),
        (
            "CONNECT t:80 HTTP/1.1\r\nHost: t:80\r\n\r\n".to_owned(),
            501,
            "upgrade-refused",
        ),
        (post("Content-Length: 5\r\n"), 408, "request-timeout"),
        (
            post("Transfer-Encoding: chunked\r\n") + "nonsense\r\n",
            400,
            "bad-request",
        ),
        (
            "POST /orders/1 HTTP/1.1\r\nHo".to_owned(),
            408,
            "request-timeout",
        ),
        // About a call, though nothing could have been sent for it.
        (
            get("/_callgate/receipts/c", "x-stranger: 1\r\n"),
            401,
            "unauthorized",
        ),
        (get("/_callgate/calls/c", ""), 404, "no-route"),
        (
            "DELETE /_callgate/receipts/c HTTP/1.1\r\nHost: t\r\n\r\n".to_owned(),
            405,
            "bad-request",
        ),
    ];
    for (bytes, status, code) in table {
        let answer = answer(&gate, &bytes).await;
        assert_claims_nothing(&answer, status, code);
        let challenge = answer.header("www-authenticate");
        let expected = (status == 401).then_some("Bearer realm=\"callgate\"");
        assert_eq!(challenge, expected, "{bytes}");
    }
    *gate.door.found.lock() = Some(Found::Unavailable {
        detail: "The disk is full.".to_owned(),
    });
    let unread = answer(&gate, &get("/_callgate/receipts/c", "")).await;
    assert_claims_nothing(&unread, 503, "ledger-unavailable");
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn without_room_the_gateway_claims_nothing_either() {
    let gate = gate(Limits {
        connections: 1,
        ..LIMITS
    });
    let mut inside = gate.peer().await;
    inside.post("/orders/1", "X-Call-Id: c\r\n", "").await;
    assert_eq!(inside.answer().await.status, 200);
    let mut outside = gate.peer().await;
    assert_claims_nothing(&outside.answer().await, 503, "overloaded");
}

#[tokio::test]
async fn an_id_that_breaks_the_rules_was_never_sent_and_never_will_be() {
    let gate = gate(LIMITS);
    for id in ["X-Call-Id: a b\r\n", "X-Call-Id: a\r\nX-Call-Id: b\r\n"] {
        let bytes = format!("POST /orders/1 HTTP/1.1\r\nHost: t\r\n{id}\r\n");
        let document = answer(&gate, &bytes).await.json();
        let said = (&document["sent"], &document["repeat"]);
        assert_eq!(said, (&"no".into(), &"never".into()), "{document}");
    }
}
