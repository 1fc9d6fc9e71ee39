//! Closing an exchange kills what it has not sent (C62), and knows whether that matters.

use super::*;

#[tokio::test]
async fn resetting_an_exchange_kills_its_unsent_bytes() {
    let peer = Peer::bind_narrow();
    let tool = Tool::new(&peer::upstream(&peer.endpoint()), 1).unwrap();
    let core = Core::start(0, Clock::start());
    let body = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
    let whole = body.len();
    let request = request(Method::POST, body);
    let mut exchange = Exchange::new(&core, tool.destination(), request, TERMS);
    // The tool accepts, has bytes to read, and reads nothing.
    let mut sock = tokio::select! {
        ended = &mut exchange => panic!("ended early: {ended:?}"),
        sock = async {
            let sock = peer.accept().await;
            sock.readable().await;
            sock
        } => sock,
    };
    assert!(sock.recv_buffer() < whole);
    assert!(!exchange.written());
    exchange.reset().await;
    let (arrived, reset) = sock.drain().await;
    assert!(reset, "closed with a FIN after {} bytes", arrived.len());
    assert!(
        arrived.len() < whole,
        "{} of {whole} bytes arrived",
        arrived.len()
    );
}

#[tokio::test]
async fn dropping_an_exchange_is_a_reset_too() {
    let rig = Rig::new().await;
    let mut exchange = rig.send(post(b"hello"), TERMS);
    let mut sock = tokio::select! {
        ended = &mut exchange => panic!("ended early: {ended:?}"),
        sock = async {
            let mut sock = rig.peer.accept().await;
            sock.request().await;
            sock
        } => sock,
    };
    assert!(exchange.written());
    drop(exchange);
    assert!(sock.ended_by_reset().await);
}

#[tokio::test]
async fn a_late_exchange_is_simply_polled_on() {
    let rig = Rig::new().await;
    let mut exchange = rig.send(post(b"hello"), TERMS);
    let mut sock = tokio::select! {
        ended = &mut exchange => panic!("ended early: {ended:?}"),
        sock = async {
            let mut sock = rig.peer.accept().await;
            sock.request().await;
            sock
        } => sock,
    };
    // The attempt timeout passes here; the driver keeps the exchange.
    let late = tokio::spawn(exchange);
    sock.write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
        .await;
    assert_eq!(&collected(late.await.unwrap()).body[..], b"late");
    assert_eq!(rig.tool.destination().idle_connections(), 1);
}

#[tokio::test]
async fn an_exchange_can_be_reset_before_and_while_it_connects() {
    let rig = Rig::new().await;
    rig.send(post(b"x"), TERMS).reset().await;
    let mut exchange = rig.send(post(b"x"), TERMS);
    let once = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut exchange).poll(cx).is_pending())
    });
    assert!(once.await);
    exchange.reset().await;
    // Whatever of it arrived carries no request.
    if let Ok(mut sock) = tokio::time::timeout(Duration::from_millis(50), rig.peer.accept()).await {
        assert_eq!(sock.try_request().await, None);
    }
}

#[tokio::test]
async fn an_ended_exchange_leaves_its_connection_alone() {
    let rig = Rig::new().await;
    let mut exchange = rig.send(post(b"x"), TERMS);
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            .await;
        sock
    };
    let (ended, _sock) = tokio::join!(&mut exchange, script);
    collected(ended);
    // Polled again it waits for ever; reset, it resets nothing.
    let again = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(std::pin::Pin::new(&mut exchange).poll(cx).is_pending())
    });
    assert!(again.await);
    exchange.reset().await;
    assert_eq!(rig.tool.destination().idle_connections(), 1);
}

/// An answer that comes before the request has left: an end, but the connection dies with it.
#[tokio::test]
async fn an_early_answer_ends_the_exchange_and_the_rest_of_the_request_dies() {
    let peer = Peer::bind_narrow();
    let tool = Tool::new(&peer::upstream(&peer.endpoint()), 1).unwrap();
    let core = Core::start(0, Clock::start());
    let body = Bytes::from(vec![b'x'; 8 * 1024 * 1024]);
    let whole = body.len();
    let exchange = Exchange::new(
        &core,
        tool.destination(),
        request(Method::POST, body),
        TERMS,
    );
    let script = async {
        let mut sock = peer.accept().await;
        sock.readable().await;
        sock.write("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            .await;
        sock
    };
    let (ended, mut sock) = tokio::join!(exchange, script);
    assert_eq!(collected(ended).status, 413);
    assert_eq!(tool.destination().idle_connections(), 0);
    let (arrived, reset) = sock.drain().await;
    assert!(reset);
    assert!(arrived.len() < whole);
}
