//! Receipts as documents: running, settled, by a human, in the queue.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use serde_json::json;

use super::*;
use crate::call::id::{ClientName, Fingerprint, IdSource};
use crate::call::receipt::State;
use crate::ledger::record::{Owner, RowId};
use crate::ledger::step::Verdict;
use crate::ledger::view::{DeadLetter, DeadState, Settlement};

/// The receipt of a call under its own name.
fn document(call: &CallView, rounds: usize) -> Value {
    serde_json::from_str(&document_for(&call.call_id, call, rounds)).unwrap()
}

/// A call that is running.
pub(in crate::ingress) fn view() -> CallView {
    CallView {
        row: RowId(1),
        life: 1,
        call_id: CallId::parse(b"c-1").unwrap(),
        source: IdSource::Client,
        client: ClientName::anonymous(),
        route: Arc::from("orders"),
        upstream: Arc::from("http://tool"),
        idempotency_key: None,
        business_key: None,
        fingerprint: Fingerprint([0; 32]),
        trace: None,
        state: State::Processing,
        binds: true,
        owner: Owner::new("o"),
        lease_until: Wall(0),
        received_at: Wall(1_764_460_800_000),
        updated_at: Wall(1_764_460_800_123),
        first_sent: None,
        sends: 2,
        promised: false,
        recognised: false,
        told: false,
        settled: None,
        kept: None,
        dead_letter: None,
        differences: Vec::new(),
        history: Vec::new(),
    }
}

fn settled(by: SettledBy, reply: Option<Reply>) -> CallView {
    let end = Settlement {
        verdict: Verdict::Success,
        by,
        at: Wall(0),
        reply,
        document: None,
    };
    CallView {
        state: State::Success,
        settled: Some(end),
        ..view()
    }
}

fn reply(body: Kept) -> Reply {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.append("link", HeaderValue::from_static("<a>"));
    headers.append("link", HeaderValue::from_static("<b>"));
    Reply {
        status: StatusCode::CREATED,
        headers,
        body,
    }
}

#[test]
fn a_running_call_has_no_result_yet() {
    let expected = json!({
        "callId": "c-1", "state": "PROCESSING", "route": "orders", "attempts": 2,
        "receivedAt": "2025-11-30T00:00:00Z", "updatedAt": "2025-11-30T00:00:00.123Z",
        "result": null, "deadLetter": null,
    });
    assert_eq!(document(&view(), 5), expected);
    let joined = CallId::parse(b"c-2").unwrap();
    let text = document_for(&joined, &view(), 5);
    assert!(
        text.starts_with("{\"callId\":\"c-2\",\"state\":\"PROCESSING\","),
        "{text}"
    );
    assert!(
        text.ends_with("\"deadLetter\":null,\"originalCallId\":\"c-1\"}"),
        "{text}"
    );
}

#[test]
fn a_result_is_carried_whole_or_by_its_digest() {
    let by = SettledBy::Answer(1);
    let result = |kept| document(&settled(by, Some(reply(kept))), 5)["result"].clone();
    let headers = json!({ "content-type": "application/json", "link": ["<a>", "<b>"] });
    assert_eq!(
        result(Kept::Whole(Bytes::from_static(b"{\"a\":1}"))),
        json!({ "status": 201, "headers": headers, "body": "{\"a\":1}", "bodyEncoding": "utf8" })
    );
    assert_eq!(
        result(Kept::Whole(Bytes::from_static(b"\xff\x00"))),
        json!({ "status": 201, "headers": headers, "body": "/wA=", "bodyEncoding": "base64" })
    );
    let digest = result(Kept::Digest {
        bytes: 9,
        sha256: Some([0xab; 32]),
    });
    assert_eq!(digest["body"], Value::Null);
    assert_eq!(
        (&digest["bodyBytes"], &digest["bodySha256"]),
        (&json!(9), &json!("ab".repeat(32)))
    );
    let unread = result(Kept::Digest {
        bytes: 9,
        sha256: None,
    });
    assert_eq!(unread["bodyBytes"], json!(9));
    assert_eq!(unread.get("bodySha256"), None);
}

#[test]
fn a_human_and_a_dead_letter_are_named() {
    let by_hand = document(&settled(SettledBy::Operator, None), 5);
    assert_eq!(
        (&by_hand["settledBy"], &by_hand["result"]),
        (&json!("operator"), &Value::Null)
    );
    let dead = DeadLetter {
        row: RowId(1),
        life: 1,
        call_id: CallId::parse(b"c-1").unwrap(),
        route: Arc::from("orders"),
        client: ClientName::anonymous(),
        business_key: None,
        idempotency_key: None,
        reason: Arc::from("timeout"),
        last_error: Arc::from(""),
        fail_count: 1,
        next_retry_time: Some(Wall(1_764_460_800_000)),
        create_time: Wall(0),
        state: DeadState::Queued,
        round: 1,
        owner: None,
        fence: 1,
        lease_until: None,
        ended_at: None,
        by_hand: false,
        reversals: 0,
        last_receipt: None,
        begun_by: None,
    };
    let queued = CallView {
        state: State::Unknown,
        dead_letter: Some(dead),
        ..view()
    };
    let expected = json!({
        "state": "QUEUED", "round": 1, "rounds": 5, "nextRetryTime": "2025-11-30T00:00:00Z",
        "reason": "timeout",
    });
    assert_eq!(document(&queued, 5)["deadLetter"], expected);
}

#[test]
fn an_address_names_a_call_or_it_does_not() {
    assert_eq!(call_id_in("/_callgate/receipts"), None);
    assert_eq!(
        call_id_in("/_callgate/receipts/a")
            .unwrap()
            .unwrap()
            .as_str(),
        "a"
    );
    assert_eq!(
        call_id_in("/_callgate/receipts/x%3Ay%2fz")
            .unwrap()
            .unwrap()
            .as_str(),
        "x:y/z"
    );
    assert_eq!(
        call_id_in("/_callgate/receipts/x:y/z")
            .unwrap()
            .unwrap()
            .as_str(),
        "x:y/z"
    );
    assert_eq!(
        call_id_in("/_callgate/receipts/%2E").unwrap(),
        Err(CallIdError::OnlyDots)
    );
}
