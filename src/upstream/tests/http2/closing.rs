//! The end of an exchange on a shared connection: what was not delivered dies with it.

use super::super::frames::{PING, WINDOW_UPDATE};
use super::*;

const SOON: Bounds = Bounds {
    connections: 8,
    tick: Duration::from_millis(10),
    quiet: Duration::from_secs(20),
    patience: Duration::from_secs(10),
    close: Duration::from_millis(200),
};

/// An exchange whose request is with the tool, and the tool's end of it.
async fn sent(rig: &Rig) -> (Exchange, Sock2, u32) {
    let mut exchange = rig.send(post(b"hello"), TERMS);
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        (sock, stream)
    };
    let (sock, stream) = tokio::select! {
        ended = &mut exchange => panic!("nothing was answered: {ended:?}"),
        taken = script => taken,
    };
    (exchange, sock, stream)
}

#[tokio::test]
async fn closing_is_over_when_the_tool_has_read_the_reset() {
    let rig = rig_with(SOON).await;
    let (exchange, mut sock, stream) = sent(&rig).await;
    assert!(exchange.written());
    sock.pongs = false;
    let mut closing = Box::pin(exchange.reset());
    let script = async {
        let reset = sock.next(RST_STREAM).await;
        assert_eq!((reset.stream, reset.payload), (stream, vec![0, 0, 0, 8]));
        sock.next(PING).await
    };
    let ping = tokio::select! {
        () = &mut closing => panic!("nothing was proved yet"),
        ping = script => ping,
    };
    sock.write(PING, 1, 0, &ping.payload).await;
    closing.await;
    // The connection is as good as before.
    sock.pongs = true;
    let script = async {
        let (stream, _) = sock.request().await;
        sock.answer(stream, b"ok").await;
    };
    let (ended, ()) = tokio::join!(rig.send(post(b"2"), TERMS), script);
    assert_eq!(&collected(ended).body[..], b"ok");
}

#[tokio::test]
async fn a_tool_that_does_not_prove_it_loses_the_whole_connection() {
    let rig = rig_with(SOON).await;
    let (exchange, mut sock, _) = sent(&rig).await;
    sock.pongs = false;
    let other = rig.send(post(b"2"), TERMS);
    let script = async {
        sock.request().await;
        exchange.reset().await;
        sock.ended_by_reset().await
    };
    let (other, by_reset) = tokio::join!(other, script);
    assert!(by_reset);
    assert_eq!(unclear(&other), Unclear::Disconnect);
}

#[tokio::test]
async fn a_dropped_exchange_is_closed_as_surely() {
    let rig = rig_with(SOON).await;
    let (exchange, mut sock, stream) = sent(&rig).await;
    sock.pongs = false;
    drop(exchange);
    assert_eq!(sock.next(RST_STREAM).await.stream, stream);
    sock.next(PING).await;
    assert!(sock.ended_by_reset().await);
}

#[tokio::test]
async fn a_request_without_effects_needs_no_proof() {
    let rig = rig_with(SOON).await;
    let terms = Terms {
        mode: Mode::Pass,
        ..TERMS
    };
    let mut passed = rig.send(post(b"hello"), terms);
    let script = async {
        let mut sock = rig.accept_http2().await;
        sock.request().await;
        sock
    };
    let mut sock = tokio::select! {
        ended = &mut passed => panic!("nothing was answered: {ended:?}"),
        sock = script => sock,
    };
    drop(passed);
    sock.next(RST_STREAM).await;
    let script = async {
        // No PING: gRPC servers take many for an attack.
        let next = sock.read().await.unwrap();
        assert_eq!(next.kind, HEADERS);
        sock.answer(next.stream, b"ok").await;
    };
    let (ended, ()) = tokio::join!(rig.send(request(Method::GET, Bytes::new()), TERMS), script);
    assert_eq!(&collected(ended).body[..], b"ok");
}

#[tokio::test]
async fn an_overdue_exchange_retires_its_connection() {
    let rig = rig_with(SOON).await;
    let (mut overdue, mut old, stream) = sent(&rig).await;
    overdue.overdue();
    let script = async {
        let mut fresh = rig.accept_http2().await;
        let (stream, _) = fresh.request().await;
        fresh.answer(stream, b"fresh").await;
        fresh
    };
    let (ended, _fresh) = tokio::join!(rig.send(post(b"2"), TERMS), script);
    assert_eq!(&collected(ended).body[..], b"fresh");
    // Its late answer still counts, and then the connection ends properly.
    let script = async {
        old.answer(stream, b"late").await;
        old.next(GOAWAY).await;
        assert!(!old.ended_by_reset().await);
    };
    let (late, ()) = tokio::join!(&mut overdue, script);
    assert_eq!(&collected(late).body[..], b"late");
}

#[tokio::test]
async fn a_connection_that_falls_silent_is_asked_and_reset() {
    let bounds = Bounds {
        quiet: Duration::from_millis(100),
        patience: Duration::from_millis(200),
        ..SOON
    };
    let rig = rig_with(bounds).await;
    let (mut exchange, mut sock, stream) = sent(&rig).await;
    let script = async {
        // Answered twice, then no more often than gRPC servers bear.
        sock.next(PING).await;
        sock.next(PING).await;
        let quiet = tokio::time::timeout(Duration::from_millis(500), sock.next(PING)).await;
        assert!(quiet.is_err());
        sock.write(HEADERS, END_HEADERS, stream, OK).await;
        sock.pongs = false;
        sock.next(PING).await;
        sock.ended_by_reset().await
    };
    let (ended, by_reset) = tokio::join!(&mut exchange, script);
    assert!(by_reset);
    assert_eq!(unclear(&ended), Unclear::Disconnect);
}

#[tokio::test]
async fn an_idle_connection_says_goodbye() {
    let rig = Rig::with(|upstream| {
        upstream.pool.protocol = Protocol::Http2;
        upstream.pool.idle = Duration::from_millis(100);
    })
    .await;
    let pool = rig.tool.destination().http2.as_ref().unwrap();
    pool.bound(SOON);
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        sock.answer(stream, b"ok").await;
        sock.next(GOAWAY).await;
        assert!(!sock.ended_by_reset().await);
    };
    let (ended, ()) = tokio::join!(rig.send(post(b"1"), TERMS), script);
    collected(ended);
    assert_eq!(rig.tool.destination().shared_connections(), 0);
}

#[tokio::test]
async fn an_answer_nobody_reads_holds_no_more_than_its_window_and_nobody_up() {
    const WINDOW: usize = 64 * 1024;
    let rig = rig_with(SOON).await;
    let terms = Terms {
        mode: Mode::Stream,
        ..TERMS
    };
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        sock.write(HEADERS, END_HEADERS, stream, OK).await;
        for _ in 0..4 {
            sock.write(DATA, 0, stream, &[7; WINDOW / 4]).await;
        }
        (sock, stream)
    };
    let (ended, (mut sock, stream)) = tokio::join!(rig.send(post(b"1"), terms), script);
    let mut body = streaming(ended).body;
    // Another one is answered beside it, and the unread one was given no more window than for the
    // piece that was looked at.
    let script = async {
        let mut given = 0;
        let other = loop {
            let frame = sock.read().await.unwrap();
            if frame.kind == WINDOW_UPDATE && frame.stream == stream {
                let bytes = frame.payload.try_into().unwrap();
                given += u32::from_be_bytes(bytes) as usize;
            }
            if frame.kind == DATA {
                break frame.stream;
            }
        };
        assert!(given <= WINDOW / 4, "{given}");
        sock.answer(other, b"ok").await;
    };
    let (ended, ()) = tokio::join!(rig.send(post(b"2"), TERMS), script);
    assert_eq!(&collected(ended).body[..], b"ok");
    let read = async {
        use http_body_util::BodyExt;
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame.unwrap().data_ref().map_or(0, Bytes::len);
        }
        read
    };
    let script = async {
        while sock.next(WINDOW_UPDATE).await.stream != stream {}
        sock.write(DATA, END_STREAM, stream, b"!").await;
    };
    let (read, ()) = tokio::join!(read, script);
    assert_eq!(read, WINDOW + 1);
}
