//! Where a request ends, and what else its head may say (C18, C40, C42, C47, C48).

use std::time::Duration;

use super::Gate;
use super::peer::Peer;

#[tokio::test]
async fn keep_alive_and_pipelined_requests_are_answered_in_order() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    let one = |id: &str, body: &str| {
        let length = body.len();
        format!(
            "POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: {id}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    };
    // The last one comes with half its head behind the others.
    let last = one("4", "four");
    let (half, rest) = last.split_at(30);
    peer.send(format!(
        "{}{}{}{half}",
        one("1", "one"),
        one("2", ""),
        one("3", "three")
    ))
    .await;
    for (id, body) in [("1", "one"), ("2", ""), ("3", "three")] {
        let answer = peer.answer().await;
        assert_eq!(
            (answer.header("x-call-id"), &*answer.body),
            (Some(id), body)
        );
    }
    peer.send(rest).await;
    assert_eq!(peer.answer().await.body, "four");
    for id in ["1", "2", "3", "4"] {
        assert_eq!(gate.arrivals.recv().await.as_deref(), Some(id));
    }
}

#[tokio::test]
async fn a_body_in_single_bytes_arrives_whole() {
    let gate = Gate::echo();
    let mut peer = gate.peer().await;
    let body = r#"{"on":true,"bri":9}"#;
    peer.send("POST /orders/1 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await;
    for byte in body.chars() {
        peer.send(format!("1\r\n{byte}\r\n")).await;
    }
    peer.send("0\r\nX-Trailer: dropped\r\n\r\n").await;
    assert_eq!(peer.answer().await.body, body);
}

#[tokio::test]
async fn odd_framing_is_refused_or_read_one_way_and_the_connection_ends() {
    let refused = [
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "Content-Length: +5\r\n\r\nhello",
        "Content-Length: 5, 5\r\n\r\nhello",
        "Content-Length: -1\r\n\r\n",
        "Content-Length : 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
        "X-Folded: a\r\n b\r\n\r\n",
    ];
    let mut gate = Gate::echo();
    for lines in refused {
        let mut peer = gate.peer().await;
        peer.send(format!("POST /orders/1 HTTP/1.1\r\nHost: t\r\n{lines}"))
            .await;
        assert_eq!(peer.answer().await.status, 400, "{lines}");
        peer.assert_closed().await;
    }
    gate.assert_nothing_arrived();
    let smuggled = "POST /orders/2 HTTP/1.1\r\nHost: t\r\nX-Call-Id: hidden\r\n\r\n";
    for both in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    ] {
        let mut peer = gate.peer().await;
        let head = "POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: seen\r\n";
        peer.send(format!("{head}{both}{smuggled}")).await;
        let answer = peer.answer().await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, Some("close"))
        );
        peer.assert_closed().await;
        assert_eq!(gate.arrivals.recv().await.as_deref(), Some("seen"));
    }
    gate.assert_nothing_arrived();
}

/// RFC 9112, section 2.2, lets a recipient take a bare LF for the end of a line; what matters is
/// that it is read one way only.
#[tokio::test]
async fn a_bare_line_feed_ends_a_line_and_hides_nothing() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    peer.send("POST /orders/1 HTTP/1.1\nHost: t\nX-Call-Id: lf\nContent-Length: 2\n\nhi")
        .await;
    assert_eq!(peer.answer().await.body, "hi");
    assert_eq!(gate.arrivals.recv().await.as_deref(), Some("lf"));
    let mut peer = gate.peer().await;
    let head = "POST /orders/1 HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    peer.send(format!("{head}2\nhi\n0\n\n")).await;
    assert_eq!(peer.answer().await.code(), "bad-request");
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn http_1_0_is_answered_in_kind_and_knows_no_chunks() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    peer.send("POST /orders/1 HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi")
        .await;
    let head = peer.head().await;
    assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
    assert_eq!(peer.rest().await.unwrap(), b"hi");
    gate.arrivals.recv().await.unwrap();
    let mut peer = gate.peer().await;
    peer.send("POST /orders/1 HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        .await;
    assert_eq!(peer.answer().await.status, 400);
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn a_request_needs_exactly_one_host() {
    let mut gate = Gate::echo();
    for hosts in [
        "",
        "Host: a\r\nHost: b\r\n",
        "Host: a b/c@d\r\n",
        "Host: h:x\r\n",
    ] {
        let mut peer = gate.peer().await;
        peer.send(format!("GET /look/1 HTTP/1.1\r\n{hosts}\r\n"))
            .await;
        assert_eq!(peer.answer().await.code(), "bad-request");
    }
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn the_target_of_an_absolute_request_names_the_host() {
    let gate = Gate::scripted(super::gate::LIMITS, |seen| {
        Box::pin(async move {
            let text = format!("{} {} {:?}", seen.method, seen.target, seen.host);
            super::told_whole(None, 200, Default::default(), text.as_bytes())
        })
    });
    let mut peer = gate.peer().await;
    peer.send("PUT http://real:81/look/1?q=%2F HTTP/1.1\r\nHost: other\r\n\r\n")
        .await;
    assert_eq!(
        peer.answer().await.body,
        r#"PUT /look/1?q=%2F Some("real:81")"#
    );
    assert_eq!(
        peer.get("/look//2/..a/%41").await.body,
        r#"GET /look//2/..a/%41 Some("t")"#
    );
}

#[tokio::test]
async fn a_body_is_asked_for_only_when_it_will_be_read() {
    let mut gate = Gate::echo();
    let expecting = |peer_lines: &str, path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\n\
             Content-Length: 4\r\n{peer_lines}\r\n"
        )
    };
    let mut peer = gate.peer().await;
    peer.send(expecting("", "/orders/1")).await;
    assert_eq!(peer.answer().await.status, 100);
    peer.send("ping").await;
    assert_eq!(peer.answer().await.body, "ping");
    gate.arrivals.recv().await.unwrap();
    // Refused by its head: the final status comes alone, and the connection ends.
    for (lines, path, status) in [
        ("X-Call-Id: a b\r\n", "/orders/1", 400),
        ("", "/nowhere", 404),
        ("X-Stranger: 1\r\n", "/orders/1", 401),
        ("Via: 1.1 callgate-test\r\n", "/orders/1", 508),
    ] {
        let mut peer = gate.peer().await;
        peer.send(expecting(lines, path)).await;
        let answer = peer.answer().await;
        assert_eq!(
            (answer.status, answer.header("connection")),
            (status, Some("close")),
            "{path}"
        );
        peer.assert_closed().await;
    }
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn other_expectations_are_ignored_and_none_is_passed_on() {
    let gate = Gate::scripted(super::gate::LIMITS, |seen| {
        Box::pin(async move {
            assert!(!seen.headers.contains_key("expect"));
            super::told_whole(None, 200, Default::default(), &seen.body)
        })
    });
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "Expect: 200-ok\r\n", "ping").await;
    assert_eq!(peer.answer().await.body, "ping");
    peer.send("POST /orders/1 HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\nping")
        .await;
    assert_eq!(peer.answer().await.body, "ping");
}

#[tokio::test]
async fn an_upgrade_is_not_taken_and_the_request_is_a_plain_one() {
    let gate = Gate::echo();
    let mut peer = gate.peer().await;
    let upgrade = "GET /look/1 HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n\
                   Upgrade: websocket\r\nX-Call-Id: first\r\n\r\n";
    peer.send(format!(
        "{upgrade}GET /look/2 HTTP/1.1\r\nHost: t\r\nX-Call-Id: second\r\n\r\n"
    ))
    .await;
    for id in ["first", "second"] {
        let answer = peer.answer().await;
        assert_eq!((answer.status, answer.header("x-call-id")), (200, Some(id)));
    }
    peer.post(
        "/orders/1",
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "0123456789",
    )
    .await;
    assert_eq!(peer.answer().await.body, "0123456789");
}

#[tokio::test]
async fn a_tunnel_is_refused() {
    let mut gate = Gate::echo();
    let mut peer = gate.peer().await;
    peer.send("CONNECT tool:443 HTTP/1.1\r\nHost: tool:443\r\n\r\n")
        .await;
    let answer = peer.answer().await;
    assert_eq!((answer.status, &*answer.code()), (501, "upgrade-refused"));
    gate.assert_nothing_arrived();
}

#[tokio::test]
async fn a_preface_in_pieces_is_no_http_1() {
    let gate = Gate::echo();
    let mut peer = gate.peer().await;
    for piece in ["P", "R", "I * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        peer.send(piece).await;
        tokio::time::sleep(Duration::from_millis(15)).await;
    }
    // An empty SETTINGS frame of the client, and the server's comes first.
    peer.send([0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let mut frame = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut peer.stream, &mut frame)
        .await
        .unwrap();
    assert_eq!(frame[3], 4, "SETTINGS");
    // A method that begins like the preface is none.
    let mut peer: Peer = gate.peer().await;
    peer.send("P").await;
    tokio::time::sleep(Duration::from_millis(15)).await;
    peer.send("UT /look/1 HTTP/1.1\r\nHost: t\r\n\r\n").await;
    assert_eq!(peer.answer().await.status, 200);
}
