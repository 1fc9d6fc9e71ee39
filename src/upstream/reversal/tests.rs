//! The undo request as a tool sees it.

use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::clock::Clock;
use crate::upstream::tests::peer::{self, Peer};
use crate::upstream::{Ended, Mode};

fn id(text: &str) -> CallId {
    CallId::parse(text.as_bytes()).unwrap()
}

fn rule(path: &str, body: Option<&str>) -> ReversalRule {
    ReversalRule {
        elsewhere: None,
        path: UndoTemplate::parse(path).unwrap(),
        method: Method::POST,
        headers: HeaderMap::new(),
        body: body.map(|body| UndoTemplate::parse(body).unwrap()),
    }
}

fn endpoint(rule: &ReversalRule) -> Arc<ReversalEndpoint> {
    let upstream = peer::upstream(&peer::endpoint("127.0.0.1:9".parse().unwrap()));
    ReversalEndpoint::new(&upstream, rule, 1).unwrap()
}

fn made(path: &str, body: Option<&str>) -> Option<UndoRequest> {
    endpoint(&rule(path, body)).request(&Undone {
        call_id: &id("o/1"),
        reversal_id: &id("rev-1"),
        key: Some("k\"1"),
        body: br#"{"order":{"id":"A \"1\"","n":7},"lines":[1,2]}"#,
        receipt: Some(br#"{"state":"UNKNOWN","no":12}"#),
    })
}

#[test]
fn an_undo_request_is_filled_in_from_the_call_and_its_receipt() {
    let made = |path: &str, body: Option<&str>| {
        let made = made(path, body).unwrap();
        let body = String::from_utf8(made.body.to_vec()).unwrap();
        (made.target.to_string(), body)
    };
    assert_eq!(
        made(
            "/orders/{call_id}/cancel?by={reversal_id}&n={body:/order/n}",
            None
        ),
        (
            "/orders/o%2F1/cancel?by=rev-1&n=7".to_owned(),
            String::new()
        )
    );
    let json = concat!(
        r#"{"o":"{body:/order/id}","n":{body:/order/n},"l":{body:/lines},"#,
        r#""k":"{idempotency_key}","s":"{receipt:/state}","no":{receipt:/no}}"#
    );
    assert_eq!(
        made("/undo", Some(json)).1,
        r#"{"o":"A \"1\"","n":7,"l":[1,2],"k":"k\"1","s":"UNKNOWN","no":12}"#
    );
    assert_eq!(
        made("/undo", Some("of={call_id}&o={body:/order/id}")).1,
        "of=o%2F1&o=A%20%221%22"
    );
}

#[test]
fn a_request_that_names_what_is_not_there_is_none() {
    assert_eq!(made("/undo/{body:/order/no}", None), None);
    assert_eq!(made("/undo/{receipt:/reason}", None), None);
    assert_eq!(
        made("/undo/{body:/lines}", None),
        None,
        "no text for a path"
    );
    let twice = |path: &str, body: &[u8], receipt: Option<&[u8]>| {
        endpoint(&rule(path, None)).request(&Undone {
            call_id: &id("o1"),
            reversal_id: &id("rev-1"),
            key: None,
            body,
            receipt,
        })
    };
    let said = br#"{"a":1,"b":2,"b":3}"#;
    assert!(twice("/undo/{body:/a}", said, None).is_some());
    assert_eq!(twice("/undo/{body:/b}", said, None), None, "which one?");
    assert_eq!(twice("/undo/{receipt:/b}", b"{}", Some(said)), None);
    let broken = r#"{"o": {body:/order/id}}"#;
    assert_eq!(made("/undo", Some(broken)), None, "that would be no JSON");
}

#[tokio::test]
async fn a_reversal_goes_under_its_own_id_and_names_the_original() {
    let peer = Peer::bind().await;
    let mut upstream = peer::upstream(&peer.endpoint());
    upstream
        .headers
        .insert("x-token", HeaderValue::from_static("t"));
    let mut rule = rule("/undo/{call_id}", Some("{\"of\":\"{call_id}\"}"));
    rule.headers
        .insert("x-why", HeaderValue::from_static("timeout"));
    let endpoint = ReversalEndpoint::new(&upstream, &rule, 1).unwrap();
    let core = Core::start(0, Clock::start());
    let (call_id, reversal_id) = (id("o-1"), id("rev-1"));
    let request = endpoint
        .request(&Undone {
            call_id: &call_id,
            reversal_id: &reversal_id,
            key: None,
            body: b"",
            receipt: None,
        })
        .unwrap();
    let (client, node) = (ClientName::new("billing"), Node::new("n1"));
    let send = Send {
        field: &headers::X_CALL_ID,
        call_id: &call_id,
        reversal_id: &reversal_id,
        client: &client,
        n: 2,
        traceparent: None,
        node: &node,
    };
    let terms = Terms {
        connect: Duration::from_secs(5),
        idle: Duration::from_secs(5),
        max_kept: 1_024,
        mode: Mode::Collect,
    };
    let exchange = endpoint.send(&core, &request, &send, terms).unwrap();
    let answered = async {
        let mut line = peer.accept().await;
        let (head, body) = line.request().await;
        line.write("HTTP/1.1 204 No Content\r\n\r\n").await;
        format!("{head}{}", String::from_utf8(body).unwrap())
    };
    let (ended, seen) = tokio::join!(exchange, answered);
    assert!(matches!(ended, Ended::Collected(a) if a.status == StatusCode::NO_CONTENT));
    let seen = seen.to_lowercase();
    for field in [
        "post /undo/o-1 http/1.1",
        "x-call-id: rev-1",
        "x-call-id-source: gateway",
        "x-call-reverses: o-1",
        "x-call-attempt: 2",
        "x-token: t",
        "x-why: timeout",
        "content-type: application/json",
        "content-length: 12",
        "via: ",
        "{\"of\":\"o-1\"}",
    ] {
        assert!(seen.contains(field), "{field} is missing in\n{seen}");
    }
}
