//! How an exchange ends, byte by byte: complete answers, and everything that is none.

use super::*;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Tool: 7\r\n\r\nok";

#[tokio::test]
async fn a_complete_answer_is_collected_and_its_request_arrived_byte_for_byte() {
    let rig = Rig::new().await;
    let mut exchange = rig.send(post(b"{\"on\":true,\"bri\":9}"), TERMS);
    assert!(!exchange.written());
    let script = async {
        let mut sock = rig.peer.accept().await;
        let request = sock.request().await;
        sock.write(OK).await;
        request
    };
    let (ended, (head, body)) = tokio::join!(&mut exchange, script);
    assert!(head.starts_with("POST /work?x=1 HTTP/1.1\r\n"), "{head}");
    assert_eq!(body, b"{\"on\":true,\"bri\":9}");
    let answer = collected(ended);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["x-tool"], "7");
    assert_eq!((&answer.body[..], answer.cut), (&b"ok"[..], false));
    assert!(exchange.written());
    assert!(!exchange.reconnected());
    assert_eq!(exchange.trouble(), None);
}

/// What the peer says before its FIN, and the status and body that are read.
const COMPLETE: [(&str, u16, &str); 14] = [
    (OK, 200, "ok"),
    ("HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", 201, ""),
    ("HTTP/1.1 204 No Content\r\n\r\n", 204, ""),
    (
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n",
        304,
        "",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        200,
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
         1;x=y\r\no\r\n1\r\nk\r\n0\r\nA: b\r\n\r\n",
        200,
        "ok",
    ),
    (
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        200,
        "",
    ),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloXX",
        200,
        "hello",
    ),
    (
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        200,
        "ok",
    ),
    (
        "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        200,
        "ok",
    ),
    ("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end"),
    ("HTTP/1.1 200 OK\r\n\r\nto the end", 200, "to the end"),
    ("HTTP/1.1 799 Odd\r\nContent-Length: 1\r\n\r\nx", 799, "x"),
    (
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        200,
        "ok",
    ),
];

/// What the peer says before its FIN, and no answer comes of it.
const USELESS: [&str; 20] = [
    "",
    "HTTP/1.1 200 O",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nZ\r\nhello\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\ncoded",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\ncoded\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 500 Oops\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\ncoded\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
    "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    "HTTP/1.1 500 Oops\r\nContent-Length: 5\r\n\r\nhel",
    "HTTP/3.0 200 OK\r\n\r\n",
    "SSH-2.0-OpenSSH_9.2\r\n",
];

#[tokio::test]
async fn every_form_of_a_complete_answer_is_read() {
    for (bytes, status, body) in COMPLETE {
        let answer = collected(said_then_fin(bytes).await);
        let read = (answer.status.as_u16(), &answer.body[..]);
        assert_eq!(read, (status, body.as_bytes()), "{bytes}");
    }
}

#[tokio::test]
async fn what_is_cut_short_or_no_answer_is_unclear() {
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Field: 1\r\n".repeat(101));
    let wide = format!(
        "HTTP/1.1 200 OK\r\nX-Wide: {}\r\n\r\n",
        "a".repeat(80 * 1024)
    );
    for bytes in USELESS.into_iter().chain([&*many, &*wide]) {
        let ended = said_then_fin(bytes).await;
        let shown = &bytes[..bytes.len().min(90)];
        assert_eq!(unclear(&ended), Unclear::Disconnect, "{shown}");
    }
}

async fn said_then_fin(bytes: &str) -> Ended {
    let rig = Rig::new().await;
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.write_while_open(bytes.as_bytes()).await;
        sock
    };
    let mut exchange = rig.send(post(b"hello"), TERMS);
    let script = async {
        let mut sock = script.await;
        sock.fin().await;
        sock
    };
    let (ended, _sock) = tokio::join!(&mut exchange, script);
    assert_eq!(
        exchange.trouble().is_none(),
        matches!(ended, Ended::Collected(_))
    );
    ended
}

#[tokio::test]
async fn an_answer_to_head_has_no_body_and_keeps_its_length() {
    let rig = Rig::new().await;
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n")
            .await;
        sock
    };
    let head = request(Method::HEAD, Bytes::new());
    let (ended, _sock) = tokio::join!(rig.send(head, TERMS), script);
    let answer = collected(ended);
    assert!(answer.body.is_empty());
    assert_eq!(answer.headers["content-length"], "99999999");
    assert_eq!(rig.tool.destination().idle_connections(), 1);
}

#[tokio::test]
async fn hop_by_hop_fields_of_an_answer_stay_with_its_connection() {
    let rig = Rig::new().await;
    let answer = "HTTP/1.1 200 OK\r\nConnection: X-Private, keep-alive\r\nX-Private: 1\r\n\
                  Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nTrailer: A\r\n\
                  Transfer-Encoding: chunked\r\nX-Kept: 1\r\nSet-Cookie: a=1\r\n\
                  Set-Cookie: b=2\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    let answer = collected(rig.exchange(answer, TERMS).await);
    let mut names: Vec<_> = answer.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["set-cookie", "x-kept"]);
    assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
}

#[tokio::test]
async fn a_long_5xx_is_cut_at_the_limit_and_its_connection_is_not_used_again() {
    let rig = Rig::new().await;
    let body = "e".repeat(100_000);
    for head in [
        "Content-Length: 100000\r\n\r\n",
        "Connection: close\r\n\r\n",
    ] {
        let terms = Terms {
            max_kept: 1_000,
            ..TERMS
        };
        let script = async {
            let mut sock = rig.peer.accept().await;
            sock.request().await;
            let text =
                format!("HTTP/1.1 500 Oops\r\nContent-Type: text/event-stream\r\n{head}{body}");
            sock.write_while_open(text.as_bytes()).await;
            sock.ended_by_reset().await
        };
        let (ended, reset) = tokio::join!(rig.send(post(b"x"), terms), script);
        let answer = collected(ended);
        assert_eq!(
            (answer.status.as_u16(), answer.body.len(), answer.cut),
            (500, 1_000, true)
        );
        assert!(!answer.headers.contains_key("content-length"));
        assert!(reset);
        assert_eq!(rig.tool.destination().idle_connections(), 0);
    }
    // One that fits is whole.
    let answer = rig
        .exchange("HTTP/1.1 503 No\r\nContent-Length: 3\r\n\r\nno!", TERMS)
        .await;
    assert_eq!((&collected(answer).body[..]), b"no!");
}

#[tokio::test]
async fn a_dripping_answer_is_complete_and_a_silent_one_times_out() {
    let rig = Rig::new().await;
    let terms = Terms {
        idle: Duration::from_millis(150),
        ..TERMS
    };
    let drip = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
            .await;
        // Longer than `idle` in all, never longer between two bytes.
        for byte in b"dripp!" {
            crate::clock::sleep(Duration::from_millis(40)).await;
            sock.write([*byte]).await;
        }
        sock
    };
    let (ended, mut sock) = tokio::join!(rig.send(post(b"x"), terms), drip);
    assert_eq!(&collected(ended).body[..], b"dripp!");
    let silent = async {
        sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\ndri")
            .await;
        sock.ended_by_reset().await
    };
    let (ended, reset) = tokio::join!(rig.send(post(b"x"), terms), silent);
    assert_eq!(unclear(&ended), Unclear::Timeout);
    assert!(reset);
}

#[tokio::test]
async fn nothing_was_sent_when_nobody_listens_or_connecting_takes_too_long() {
    let core = Core::start(0, Clock::start());
    let nobody = peer::endpoint(peer::nobody().await);
    // Not routable from here, by RFC 5737: connecting hangs, or is refused at once.
    let nowhere = peer::endpoint("192.0.2.1:9".parse().unwrap());
    let mut unnamed = nobody.clone();
    unnamed.host = Arc::from("does-not-exist.invalid");
    for endpoint in [nobody, nowhere, unnamed] {
        let tool = Tool::new(&peer::upstream(&endpoint), 1).unwrap();
        let terms = Terms {
            connect: Duration::from_millis(100),
            ..TERMS
        };
        let mut exchange = Exchange::new(&core, tool.destination(), post(b"x"), terms);
        let ended = (&mut exchange).await;
        assert_eq!(not_sent(&ended), NotSent::Connect, "{endpoint:?}");
        assert!(exchange.trouble().is_some());
        assert!(!exchange.written());
    }
}

/// `localhost` may have an address nobody listens on: the next one is tried.
#[tokio::test]
async fn a_host_name_is_looked_up_and_each_of_its_addresses_tried() {
    let rig = Rig::with(|upstream| upstream.endpoint.host = Arc::from("localhost")).await;
    assert_eq!(collected(rig.exchange(OK, TERMS).await).status, 200);
}

#[tokio::test]
async fn no_limit_means_no_collecting() {
    let rig = Rig::new().await;
    let terms = Terms {
        max_kept: 0,
        ..TERMS
    };
    let answer = streaming(rig.exchange(OK, terms).await);
    assert_eq!(answer.status, 200);
    // And nothing to collect is collected.
    let empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    assert!(collected(rig.exchange(empty, terms).await).body.is_empty());
}
