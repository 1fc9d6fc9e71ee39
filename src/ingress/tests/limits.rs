//! Bounds of one connection and of all of them (C41, issue 2 "Bad input").

use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::call::code::Code;
use crate::config::Limits;
use crate::telemetry::labels::{Bound, Refusal};

use super::gate::LIMITS;
use super::{Gate, told_whole};

const SHORT: Duration = Duration::from_millis(120);

fn echo_within(limits: Limits) -> Gate {
    Gate::scripted(limits, |seen| {
        Box::pin(async move {
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                &seen.body,
            )
        })
    })
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_before_anything_is_sent() {
    let mut gate = Gate::echo();
    let limit = 64 * 1024;
    for (length, status) in [
        (limit - 1, 200),
        (limit, 200),
        (limit + 1, 413),
        (2 * limit, 413),
    ] {
        let body = "x".repeat(length);
        let mut peer = gate.peer().await;
        peer.post("/orders/1", "X-Call-Id: sized\r\n", &body).await;
        let sized = peer.answer().await;
        assert_eq!(sized.status, status, "{length} announced");
        let mut peer = gate.peer().await;
        let head = "POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: chunked\r\n\
                    Transfer-Encoding: chunked\r\n\r\n";
        peer.send(format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n"))
            .await;
        let chunked = peer.answer().await;
        assert_eq!(chunked.status, status, "{length} in chunks");
        for answer in [sized, chunked] {
            if status == 200 {
                assert_eq!(answer.body.len(), length);
                gate.arrivals.recv().await.unwrap();
            } else {
                assert_eq!(answer.code(), "body-too-large");
                let document = answer.json();
                assert_eq!(document["sent"], "unknown");
                assert_eq!(document["repeat"], "same-call-id-only");
                assert!(document["callId"].is_string());
            }
        }
    }
    gate.assert_nothing_arrived();
    assert_eq!(gate.route(0).metrics.refused.get(Code::BodyTooLarge), 4);
}

#[tokio::test]
async fn a_refusal_reaches_a_caller_that_is_still_uploading() {
    let gate = Gate::echo();
    let mut peer = gate.peer().await;
    let body = "x".repeat(10 * 1024 * 1024);
    let (mut read, mut write) = peer.stream.split();
    let head = format!(
        "POST /orders/1 HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let upload = async {
        use tokio::io::AsyncWriteExt as _;
        write.write_all(head.as_bytes()).await.unwrap();
        // The gateway stops reading at some point; what matters is the answer.
        drop(write.write_all(body.as_bytes()).await);
    };
    let answer = async {
        use tokio::io::AsyncReadExt as _;
        let mut text = vec![0; 4096];
        let n = read.read(&mut text).await.unwrap();
        String::from_utf8_lossy(&text[..n]).into_owned()
    };
    let (answer, ()) = tokio::join!(answer, upload);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(
        answer
            .to_ascii_lowercase()
            .contains("connection: close\r\n"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_flood_of_header_fields_is_refused() {
    let mut gate = echo_within(Limits {
        headers: 20,
        header_bytes: 4096,
        ..LIMITS
    });
    let many = (0..30).map(|n| format!("x-{n}: 1\r\n")).collect::<String>();
    let big = format!("x-big: {}\r\n", "b".repeat(5000));
    for lines in [many, big] {
        let mut peer = gate.peer().await;
        peer.post("/orders/1", &lines, "").await;
        let answer = peer.answer().await;
        assert_eq!((answer.status, &*answer.code()), (431, "headers-too-large"));
    }
    assert_eq!(gate.unrouted.refused.get(Code::HeadersTooLarge), 2);
    // Past what the parser itself holds there is no document.
    for lines in [
        (0..200)
            .map(|n| format!("x-{n}: 1\r\n"))
            .collect::<String>(),
        format!("x-big: {}\r\n", "b".repeat(300_000)),
    ] {
        let mut peer = gate.peer().await;
        peer.post("/orders/1", &lines, "").await;
        assert_eq!(peer.answer().await.status, 431);
    }
    gate.until_open(0).await;
    assert_eq!(gate.unrouted.refused.get(Refusal::Malformed), 2);
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn a_head_that_does_not_end_is_answered_408() {
    let gate = echo_within(Limits {
        header_timeout: SHORT,
        ..LIMITS
    });
    let mut peer = gate.peer().await;
    peer.send("POST /orders/1 HTTP/1.1\r\nHo").await;
    let answer = peer.answer().await;
    assert_eq!((answer.status, &*answer.code()), (408, "request-timeout"));
    peer.assert_closed().await;
    assert_eq!(gate.unrouted.refused.get(Code::RequestTimeout), 1);
    // Also on a connection that has served before.
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "", "one").await;
    assert_eq!(peer.answer().await.body, "one");
    peer.send("POST").await;
    assert_eq!(peer.answer().await.status, 408);
    // Nor one that could yet become a preface of HTTP/2.
    let mut peer = gate.peer().await;
    peer.send("PR").await;
    assert_eq!(peer.answer().await.status, 408);
    peer.assert_closed().await;
}

#[tokio::test]
async fn a_head_that_was_given_up_leaves_nothing_open() {
    let gate = Gate::echo();
    for begun in [
        "",
        "P",
        "PR",
        "PRI",
        "PRI * HTTP/2.0\r\n",
        "G",
        "GET / HTTP/1.1\r\nHo",
    ] {
        let mut peer = gate.peer().await;
        peer.send(begun).await;
        peer.stream.shutdown().await.unwrap();
        drop(peer.rest().await);
        gate.until_open(0).await;
    }
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let gate = echo_within(Limits {
        header_timeout: SHORT,
        keepalive: SHORT,
        ..LIMITS
    });
    let mut fresh = gate.peer().await;
    fresh.assert_closed().await;
    let mut idle = gate.peer().await;
    idle.post("/orders/1", "", "one").await;
    assert_eq!(idle.answer().await.body, "one");
    idle.assert_closed().await;
}

#[tokio::test]
async fn a_silent_http_2_connection_is_closed() {
    let gate = echo_within(Limits {
        keepalive: SHORT,
        ..LIMITS
    });
    let stream = tokio::net::TcpStream::connect(gate.ingress.address())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (send, connection) = hyper::client::conn::http2::handshake::<_, _, String>(executor, io)
        .await
        .unwrap();
    // Ends while its sender is still there: it was the gateway that closed.
    drop(connection.await);
    assert!(send.is_closed());
    gate.until_open(0).await;
}

#[tokio::test]
async fn a_body_that_pauses_too_long_is_answered_408() {
    let mut gate = echo_within(Limits {
        body_timeout: SHORT,
        ..LIMITS
    });
    let mut peer = gate.peer().await;
    peer.send(
        "POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: slow\r\nContent-Length: 9\r\n\r\n12",
    )
    .await;
    let answer = peer.answer().await;
    assert_eq!((answer.status, &*answer.code()), (408, "request-timeout"));
    assert_eq!(answer.header("x-call-id"), Some("slow"));
    assert_eq!(answer.header("connection"), Some("close"));
    gate.assert_nothing_arrived();
    // Also when it is streamed, and whatever the door makes of its end.
    let mut peer = gate.peer().await;
    let head = "POST /look/1 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    peer.send(format!("{head}2\r\n12\r\n")).await;
    assert_eq!(peer.answer().await.code(), "request-timeout");
}

#[tokio::test]
async fn a_body_that_is_passed_on_has_no_limit() {
    let gate = Gate::echo();
    let much = "x".repeat(1024 * 1024 + 1);
    let head = "POST /look/1 HTTP/1.1\r\nHost: t\r\n";
    for body in [
        format!("Content-Length: {}\r\n\r\n{much}", much.len()),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{much}\r\n0\r\n\r\n",
            much.len()
        ),
    ] {
        let mut peer = gate.peer().await;
        peer.send(format!("{head}{body}")).await;
        let answer = peer.answer().await;
        assert_eq!((answer.status, answer.body.len()), (200, much.len()));
    }
}

#[tokio::test]
async fn a_caller_that_does_not_read_its_answer_is_cut_off() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let gate = Gate::scripted(
        Limits {
            body_timeout: SHORT,
            ..LIMITS
        },
        move |seen| {
            let tell = tell.clone();
            Box::pin(async move {
                tell.send(seen.gone.clone()).unwrap();
                let much = vec![b'x'; 64 * 1024 * 1024];
                told_whole(
                    Some((seen.call_id, seen.source)),
                    200,
                    Default::default(),
                    &much,
                )
            })
        },
    );
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "", "").await;
    told.recv().await.unwrap();
    // Nothing is read until the gateway has given up.
    gate.until_open(0).await;
    assert!(
        peer.rest().await.is_err(),
        "cut off by a reset, so that nobody takes it for whole"
    );
}

#[tokio::test]
async fn past_the_connection_limit_newcomers_are_told_so() {
    let gate = echo_within(Limits {
        connections: 2,
        ..LIMITS
    });
    let mut first = gate.peer().await;
    first.post("/orders/1", "", "one").await;
    assert_eq!(first.answer().await.status, 200);
    let mut second = gate.peer().await;
    second.post("/orders/1", "", "two").await;
    assert_eq!(second.answer().await.status, 200);
    let mut third = gate.peer().await;
    let answer = third.answer().await;
    assert_eq!((answer.status, &*answer.code()), (503, "overloaded"));
    third.assert_closed().await;
    assert_eq!(gate.metrics.bounds.get(Bound::Connections), 1);
    // Those inside are served as before, and room that was made is given away.
    first.post("/orders/1", "", "again").await;
    assert_eq!(first.answer().await.body, "again");
    drop(second);
    gate.until_open(1).await;
    let mut fourth = gate.peer().await;
    fourth.post("/orders/1", "", "four").await;
    assert_eq!(fourth.answer().await.body, "four");
}
