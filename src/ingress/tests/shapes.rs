//! The shapes of answers: fields, documents, streams, HEAD, receipts.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use http_body_util::BodyExt as _;
use tokio::sync::mpsc;

use crate::call::code::{Code, Repeat, Sent};
use crate::flow::told::{BodyError, Problem, Stream, Word};
use crate::ingress::Found;

use super::gate::LIMITS;
use super::{Gate, told_stream, told_whole};

type Piece = Result<Frame<Bytes>, BodyError>;

/// A body of what is sent into a channel.
struct Receiving(mpsc::UnboundedReceiver<Piece>);

impl http_body::Body for Receiving {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Piece>> {
        self.0.poll_recv(cx)
    }
}

fn channel() -> (mpsc::UnboundedSender<Piece>, Stream) {
    let (say, saying) = mpsc::unbounded_channel();
    (say, Receiving(saying).boxed_unsync())
}

fn data(text: &'static str) -> Piece {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn a_tools_answer_keeps_its_fields_and_gets_ours_once() {
    let gate = Gate::scripted(LIMITS, |seen| {
        Box::pin(async move {
            let mut headers = HeaderMap::new();
            for (name, value) in [
                ("x-call-attempts", "9"),
                ("x-call-id", "inner"),
                ("x-call-outcome", "unresolved"),
                ("x-call-receipt", "/inner"),
                ("content-type", "text/plain"),
                ("content-length", "999"),
            ] {
                headers.insert(name, HeaderValue::from_static(value));
            }
            headers.append("link", HeaderValue::from_static("<a>"));
            headers.append("link", HeaderValue::from_static("<b>"));
            let mut told = told_whole(Some((seen.call_id, seen.source)), 201, headers, b"made");
            told.word = Word::Replayed;
            told.attempts = 12;
            told.same_id_only = true;
            told
        })
    });
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "X-Call-Id: mine\r\n", "").await;
    let answer = peer.answer().await;
    assert_eq!((answer.status, &*answer.body), (201, "made"));
    let ours = [
        ("x-call-id", "mine"),
        ("x-call-id-source", "client"),
        ("x-call-attempts", "12"),
        ("x-call-outcome", "replayed"),
        ("x-call-receipt", "/_callgate/receipts/mine"),
        ("x-call-repeat", "same-call-id-only"),
        ("idempotent-replayed", "true"),
        ("content-type", "text/plain"),
        ("content-length", "4"),
    ];
    for (name, value) in ours {
        assert_eq!(
            (answer.header(name), answer.count(name)),
            (Some(value), 1),
            "{name}"
        );
    }
    assert_eq!(answer.count("link"), 2);
    assert_eq!(answer.count("proxy-status"), 0);
}

#[tokio::test]
async fn a_refusal_says_what_a_repeat_would_do() {
    let gate = Gate::echo();
    let mut problem = Problem::new(
        Code::RateLimited,
        "Slow down.",
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    );
    problem.retry_after = Some(std::time::Duration::from_millis(1500));
    *gate.door.refuse.lock() = Some(problem);
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "X-Call-Id: a/b\r\n", "").await;
    let answer = peer.answer().await;
    assert_eq!((answer.status, &*answer.code()), (429, "rate-limited"));
    assert_eq!(answer.header("retry-after"), Some("2"));
    assert_eq!(answer.header("x-call-attempts"), Some("0"));
    assert_eq!(answer.header("x-call-receipt"), None);
    let document = answer.json();
    let members: Vec<_> = document
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected = [
        "type", "title", "status", "detail", "code", "callId", "sent", "attempts", "state",
        "receipt", "repeat",
    ];
    assert_eq!(members, expected);
    assert_eq!(document["callId"], "a/b");
    assert_eq!(
        (&document["sent"], &document["repeat"]),
        (&"unknown".into(), &"same-call-id-only".into())
    );
    assert!(
        document["type"]
            .as_str()
            .unwrap()
            .ends_with("docs/errors.md#rate-limited-429")
    );
    let metrics = &gate.route(0).metrics;
    assert_eq!(metrics.refused.get(Code::RateLimited), 1);
    assert_eq!(metrics.calls.get(Word::Refused), 1);
}

#[tokio::test]
async fn head_and_bodiless_statuses_carry_no_body() {
    let gate = Gate::scripted(LIMITS, |seen| {
        Box::pin(async move {
            let status = seen.headers["x-status"].to_str().unwrap().parse().unwrap();
            told_whole(
                Some((seen.call_id, seen.source)),
                status,
                HeaderMap::new(),
                b"body",
            )
        })
    });
    let mut peer = gate.peer().await;
    for (method, status) in [("HEAD", 200), ("GET", 204), ("GET", 304), ("HEAD", 404)] {
        let request = format!("{method} /look/1 HTTP/1.1\r\nHost: t\r\nX-Status: {status}\r\n\r\n");
        peer.send(request).await;
        let answer = peer.answer_to(method == "HEAD").await;
        assert_eq!((answer.status, &*answer.body), (status, ""));
        if method == "HEAD" {
            assert_eq!(answer.header("content-length"), Some("4"));
        }
    }
    // Nothing of a body was left on the wire.
    peer.send("GET /look/1 HTTP/1.1\r\nHost: t\r\nX-Status: 200\r\n\r\n")
        .await;
    assert_eq!(peer.answer().await.body, "body");
}

#[tokio::test]
async fn a_stream_flows_at_once_and_breaks_visibly() {
    let (say, saying) = channel();
    let saying = parking_lot::Mutex::new(Some(saying));
    let gate = Gate::scripted(LIMITS, move |seen| {
        let body = saying.lock().take().unwrap();
        Box::pin(
            async move { told_stream(Some((seen.call_id, seen.source)), HeaderMap::new(), body) },
        )
    });
    let mut peer = gate.peer().await;
    peer.send("GET /look/1 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    say.send(data("one")).unwrap();
    let head = peer.head().await;
    assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    say.send(Err("the tool hung up".into())).unwrap();
    let rest = peer.rest().await.unwrap_or_default();
    assert!(!rest.ends_with(b"0\r\n\r\n"), "no end was told: {rest:?}");
}

#[tokio::test]
async fn a_stream_to_http_1_0_breaks_with_a_reset() {
    let (say, saying) = channel();
    let saying = parking_lot::Mutex::new(Some(saying));
    let gate = Gate::scripted(LIMITS, move |seen| {
        let body = saying.lock().take().unwrap();
        Box::pin(
            async move { told_stream(Some((seen.call_id, seen.source)), HeaderMap::new(), body) },
        )
    });
    let mut peer = gate.peer().await;
    peer.send("GET /look/1 HTTP/1.0\r\n\r\n").await;
    say.send(data("one")).unwrap();
    peer.head().await;
    say.send(Err("the tool hung up".into())).unwrap();
    assert!(
        peer.rest().await.is_err(),
        "a FIN would read as the end of the answer"
    );
}

#[tokio::test]
async fn h2c_is_served_and_a_broken_stream_is_reset() {
    let (say, saying) = channel();
    let saying = parking_lot::Mutex::new(Some(saying));
    let gate = Gate::scripted(LIMITS, move |seen| {
        let stream = seen
            .target
            .ends_with("stream")
            .then(|| saying.lock().take().unwrap());
        Box::pin(async move {
            let call = Some((seen.call_id, seen.source));
            match stream {
                Some(body) => told_stream(call, HeaderMap::new(), body),
                None => told_whole(call, 200, HeaderMap::new(), &seen.body),
            }
        })
    });
    let stream = tokio::net::TcpStream::connect(gate.ingress.address())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = |path: &str, body: &str| {
        let uri = format!("http://t{path}");
        http::Request::post(uri)
            .header("x-call-id", "h2")
            .body(body.to_owned())
            .unwrap()
    };
    let answer = send
        .send_request(request("/orders/1", "hello"))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["x-call-id"], "h2");
    assert_eq!(
        answer.into_body().collect().await.unwrap().to_bytes(),
        "hello"
    );
    say.send(data("one")).unwrap();
    let answer = send
        .send_request(request("/look/stream", ""))
        .await
        .unwrap();
    say.send(Err("the tool hung up".into())).unwrap();
    assert!(answer.into_body().collect().await.is_err());
    // The connection outlives the stream.
    assert_eq!(
        send.send_request(request("/orders/1", ""))
            .await
            .unwrap()
            .status(),
        200
    );
    drop(send);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_gateways_own_paths_answer_receipts_and_nothing_else() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    let unknown = peer.get("/_callgate/receipts/x%3Ay%2Fz").await;
    assert_eq!(
        (unknown.status, &*unknown.code()),
        (404, "receipt-not-found")
    );
    assert_eq!(unknown.json()["knowsSince"], "1970-01-01T00:00:00Z");
    assert_eq!(unknown.json()["callId"], "x:y/z");
    assert_eq!(
        peer.get("/_callgate/receipts/a%20b").await.code(),
        "invalid-call-id"
    );
    assert_eq!(
        peer.get("/_callgate/receipts/").await.code(),
        "invalid-call-id"
    );
    assert_eq!(peer.get("/_callgate/metrics").await.code(), "no-route");
    peer.send("DELETE /_callgate/receipts/a HTTP/1.1\r\nHost: t\r\n\r\n")
        .await;
    let refused = peer.answer().await;
    assert_eq!(
        (refused.status, refused.header("allow")),
        (405, Some("GET, HEAD"))
    );
    *gate.door.found.lock() = Some(Found::Unavailable {
        detail: "The disk is full.".to_owned(),
    });
    let unavailable = peer.get("/_callgate/receipts/a").await;
    assert_eq!(
        (unavailable.status, &*unavailable.code()),
        (503, "ledger-unavailable")
    );
    let view = crate::ingress::receipts::tests::view();
    *gate.door.found.lock() = Some(Found::Call {
        view: Box::new(view),
        rounds: 3,
    });
    let found = peer.get("/_callgate/receipts/c-1?now").await;
    assert_eq!(
        (found.status, found.header("content-type")),
        (200, Some("application/json"))
    );
    assert_eq!(found.json()["callId"], "c-1");
    let view = crate::ingress::receipts::tests::view();
    *gate.door.found.lock() = Some(Found::Call {
        view: Box::new(view),
        rounds: 3,
    });
    peer.send("HEAD /_callgate/receipts/c-1 HTTP/1.1\r\nHost: t\r\n\r\n")
        .await;
    let head = peer.answer_to(true).await;
    assert_eq!(
        head.header("content-length"),
        Some(&*found.body.len().to_string())
    );
    gate.assert_nothing_arrived();
    assert_eq!(gate.unrouted.refused.get(Code::ReceiptNotFound), 1);
}
