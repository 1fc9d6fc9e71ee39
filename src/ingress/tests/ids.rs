//! Which call ids are taken, made, and refused (contract, section 2; C14, C16, C17).

use crate::call::id::IdSource;

use super::{Gate, told_whole};

#[tokio::test]
async fn an_id_is_passed_on_byte_for_byte() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    let tildes = "~".repeat(128);
    let longest = "a".repeat(256);
    for id in [
        "123E4567-E89B-42D3-A456-426614174000",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "a",
        &tildes,
        &longest,
        "x:y/z",
        "0123",
        "%0d%0aERROR",
        "${jndi}",
        "a\"b",
        "..a",
    ] {
        peer.post("/orders/1", &format!("x-CALL-id: {id}\r\n"), "{}")
            .await;
        let answer = peer.answer().await;
        assert_eq!((answer.status, answer.header("x-call-id")), (200, Some(id)));
        assert_eq!(answer.header("x-call-id-source"), Some("client"));
        let link = answer.header("x-call-receipt").unwrap();
        let encoded = link.strip_prefix("/_callgate/receipts/").unwrap();
        let decoded = percent_encoding::percent_decode_str(encoded)
            .decode_utf8()
            .unwrap();
        assert_eq!(decoded, id);
        assert!(!encoded.contains('/'), "{link}");
        assert_eq!(gate.arrivals.recv().await.as_deref(), Some(id));
    }
}

#[tokio::test]
async fn an_id_that_breaks_the_rules_is_refused_and_never_replaced() {
    let mut gate = Gate::echo();
    let long = "a".repeat(8 * 1024);
    let slightly_long = "a".repeat(257);
    let table: Vec<Vec<u8>> = vec![
        b"X-Call-Id: a\r\nx-call-id: a\r\n".to_vec(),
        b"X-Call-Id: a\r\nX-Call-Id: b\r\n".to_vec(),
        b"X-Call-Id: a, b\r\n".to_vec(),
        b"X-Call-Id: a,b\r\n".to_vec(),
        b"X-Call-Id:\r\n".to_vec(),
        b"X-Call-Id:   \r\n".to_vec(),
        b"X-Call-Id: a\tb\r\n".to_vec(),
        b"X-Call-Id: a\x80b\r\n".to_vec(),
        b"X-Call-Id: %0d%0aERROR forged\r\n".to_vec(),
        b"X-Call-Id: .\r\n".to_vec(),
        b"X-Call-Id: ...\r\n".to_vec(),
        format!("X-Call-Id: {slightly_long}\r\n").into_bytes(),
        format!("X-Call-Id: {long}\r\n").into_bytes(),
        b"X-Call-Id: a b\r\nX-Call-Id-Source: gateway\r\n".to_vec(),
    ];
    for lines in table {
        let mut peer = gate.peer().await;
        let shown = String::from_utf8_lossy(&lines).into_owned();
        peer.send("POST /orders/1 HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n")
            .await;
        peer.send([&lines[..], b"\r\n{}"].concat()).await;
        let answer = peer.answer().await;
        assert_eq!(
            (answer.status, &*answer.code()),
            (400, "invalid-call-id"),
            "{shown}"
        );
        assert_eq!(answer.header("x-call-id"), None, "{shown}");
        assert_eq!(answer.header("x-call-outcome"), Some("refused"));
        let document = answer.json();
        assert_eq!(document["sent"], "no");
        assert_eq!(document["callId"], serde_json::Value::Null);
        let detail = document["detail"].as_str().unwrap();
        assert!(detail.len() < 400 && detail.is_ascii(), "{detail}");
    }
    gate.assert_nothing_arrived();
    assert_eq!(gate.route(0).metrics.backfilled.get(), 0);
}

#[tokio::test]
async fn an_id_the_parser_cannot_read_is_refused_with_a_bare_status_and_counted() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    peer.send(b"POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: a\x1b[31m\r\n\r\n")
        .await;
    assert_eq!(peer.answer().await.status, 400);
    peer.assert_closed().await;
    gate.until_open(0).await;
    gate.assert_nothing_arrived();
    let malformed = crate::telemetry::labels::Refusal::Malformed;
    assert_eq!(gate.unrouted.refused.get(malformed), 1);
}

#[tokio::test]
async fn an_absent_id_is_made_and_tagged() {
    let gate = Gate::scripted(super::gate::LIMITS, |seen| {
        Box::pin(async move {
            assert_eq!(seen.source, IdSource::Gateway);
            assert!(seen.once);
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                b"",
            )
        })
    });
    let mut peer = gate.peer().await;
    let mut made = std::collections::HashSet::new();
    for _ in 0..3 {
        // The tag alone is no id.
        peer.post("/orders/1", "X-Call-Id-Source: gateway\r\n", "{}")
            .await;
        let answer = peer.answer().await;
        let id = answer.header("x-call-id").unwrap().to_owned();
        assert!(id.starts_with("ord-") && id.ends_with("-test"), "{id}");
        assert_eq!(answer.header("x-call-id-source"), Some("gateway"));
        assert!(made.insert(id));
    }
    assert_eq!(gate.route(0).metrics.backfilled.get(), 3);
}

#[tokio::test]
async fn a_pair_made_by_a_gateway_in_front_passes_untouched() {
    let gate = Gate::echo();
    let mut peer = gate.peer().await;
    peer.post(
        "/orders/1",
        "X-Call-Id: g-1\r\nX-Call-Id-Source: gateway\r\n",
        "",
    )
    .await;
    let answer = peer.answer().await;
    assert_eq!(answer.header("x-call-id"), Some("g-1"));
    assert_eq!(answer.header("x-call-id-source"), Some("gateway"));
    assert_eq!(gate.route(0).metrics.backfilled.get(), 0);
}

#[tokio::test]
async fn an_id_in_the_body_has_to_agree_with_the_one_in_the_head() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    let told = [
        ("", r#"{"task":{"id":"t-1"}}"#, Some("t-1")),
        (
            "X-Task-Id: t-1\r\n",
            r#"{"task":{"id":"t-1"}}"#,
            Some("t-1"),
        ),
        ("X-Task-Id: t-2\r\n", r#"{"task":{}}"#, Some("t-2")),
        ("X-Task-Id: t-2\r\n", r#"{"task":{"id":null}}"#, Some("t-2")),
        ("X-Task-Id: t-2\r\n", "no json", Some("t-2")),
        ("X-Task-Id: t-2\r\n", r#"{"task":{"id":"t-1"}}"#, None),
        ("", r#"{"task":{"id":"t 1"}}"#, None),
        ("", r#"{"task":{"id":""}}"#, None),
        ("X-Task-Id: 7\r\n", r#"{"task":{"id":7}}"#, None),
    ];
    for (lines, body, id) in told {
        peer.post("/body/1", lines, body).await;
        let answer = peer.answer().await;
        match id {
            Some(id) => {
                assert_eq!(
                    (answer.status, answer.header("x-task-id")),
                    (200, Some(id)),
                    "{body}"
                );
                assert_eq!(answer.body, body);
                assert_eq!(gate.arrivals.recv().await.as_deref(), Some(id));
            }
            None => assert_eq!(answer.code(), "invalid-call-id", "{lines}{body}"),
        }
    }
    gate.assert_nothing_arrived();
}
