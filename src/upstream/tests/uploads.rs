//! Request bodies that are streamed through, and what is known of them afterwards.

use std::convert::Infallible;

use futures_stream::channel_body;
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http_body::Frame;
use http_body_util::BodyExt as _;

use super::*;
use crate::upstream::Upload;

/// A body fed through a channel, as a caller's is.
pub(super) mod futures_stream {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use bytes::Bytes;
    use http_body::{Body, Frame};
    use tokio::sync::mpsc;

    pub(in crate::upstream::tests) struct Fed<E>(mpsc::UnboundedReceiver<Result<Frame<Bytes>, E>>);
    pub(in crate::upstream::tests) type Feeder<E> = mpsc::UnboundedSender<Result<Frame<Bytes>, E>>;

    pub(in crate::upstream::tests) fn channel_body<E>() -> (Feeder<E>, Fed<E>) {
        let (tx, rx) = mpsc::unbounded_channel();
        (tx, Fed(rx))
    }

    impl<E> Body for Fed<E> {
        type Data = Bytes;
        type Error = E;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, E>>> {
            self.0.poll_recv(cx)
        }
    }
}

fn lent(method: Method, upload: &Upload) -> Outgoing {
    let mut outgoing = request(method.clone(), Bytes::new());
    outgoing.body = upload.lend();
    if method == Method::GET {
        outgoing
            .headers
            .make_mut()
            .insert(TRANSFER_ENCODING, "chunked".parse().unwrap());
    }
    outgoing
}

fn data(text: &'static str) -> Frame<Bytes> {
    Frame::data(Bytes::from_static(text.as_bytes()))
}

#[tokio::test]
async fn a_lent_body_is_passed_on_as_it_arrives_whatever_the_method() {
    for method in [Method::POST, Method::GET] {
        let rig = Rig::new().await;
        let (feed, body) = channel_body::<Infallible>();
        let upload = Upload::new(body);
        let mut exchange = rig.send(lent(method, &upload), TERMS);
        let script = async {
            let mut sock = rig.peer.accept().await;
            let (head, _) = sock.request().await;
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            feed.send(Ok(data("one"))).unwrap();
            feed.send(Ok(data("two"))).unwrap();
            drop(feed);
            let body = sock.chunked().await;
            sock.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                .await;
            (body, sock)
        };
        let (ended, (body, _sock)) = tokio::join!(&mut exchange, script);
        assert_eq!(body, b"onetwo");
        collected(ended);
        assert!(upload.is_whole() && !upload.failed());
        assert!(exchange.written());
        assert_eq!(rig.tool.destination().idle_connections(), 1);
    }
}

#[tokio::test]
async fn a_body_no_connection_asked_for_is_lent_whole() {
    let core = Core::start(0, Clock::start());
    let nobody = peer::endpoint(peer::nobody().await);
    let tool = Tool::new(&peer::upstream(&nobody), 1).unwrap();
    let (feed, body) = channel_body::<Infallible>();
    let upload = Upload::new(body);
    feed.send(Ok(data("precious"))).unwrap();
    drop(feed);
    let exchange = Exchange::new(
        &core,
        tool.destination(),
        lent(Method::POST, &upload),
        TERMS,
    );
    assert_eq!(not_sent(&exchange.await), NotSent::Connect);
    assert!(upload.is_whole());

    // So it can be lent once more, whole.
    let rig = Rig::new().await;
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        let body = sock.chunked().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        body
    };
    let (ended, body) = tokio::join!(rig.send(lent(Method::POST, &upload), TERMS), script);
    assert_eq!(body, b"precious");
    collected(ended);
}

#[tokio::test]
async fn a_short_body_is_told_again_from_its_beginning_and_a_long_one_is_not() {
    const HALF: usize = 33 * 1024;
    let rig = Rig::new().await;
    let (feed, body) = channel_body::<Infallible>();
    let upload = Upload::new(body);
    let part = |byte: u8| Ok(Frame::data(Bytes::from(vec![byte; HALF])));
    feed.send(part(b'a')).unwrap();
    let mut early = upload.lend();
    let first = early.frame().await.unwrap().unwrap();
    assert_eq!(first.into_data().unwrap().len(), HALF);
    assert!(upload.is_whole());
    // The second exchange gets the first half once more, and then what comes.
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        feed.send(part(b'b')).unwrap();
        drop(feed);
        let body = sock.chunked().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        body
    };
    let (ended, body) = tokio::join!(rig.send(lent(Method::POST, &upload), TERMS), script);
    assert_eq!(body, [vec![b'a'; HALF], vec![b'b'; HALF]].concat());
    collected(ended);
    assert!(!upload.is_whole(), "too long to be remembered");
    let stale = early.frame().await;
    assert!(stale.unwrap().is_err(), "an earlier exchange got a piece");
}

#[tokio::test]
async fn a_body_that_fails_is_the_callers_fault_and_the_tool_never_sees_its_end() {
    let rig = Rig::new().await;
    let (feed, body) = channel_body::<std::io::Error>();
    let upload = Upload::new(body);
    let mut exchange = rig.send(lent(Method::POST, &upload), TERMS);
    let script = async {
        let mut sock = rig.peer.accept().await;
        sock.request().await;
        feed.send(Ok(data("half"))).unwrap();
        feed.send(Err(std::io::ErrorKind::ConnectionReset.into()))
            .unwrap();
        sock.drain().await
    };
    let (ended, (arrived, reset)) = tokio::join!(&mut exchange, script);
    assert_eq!(unclear(&ended), Unclear::Disconnect);
    assert!(!upload.is_whole() && upload.failed());
    assert!(!exchange.written());
    assert!(reset);
    assert!(!arrived.windows(5).any(|w| w == b"0\r\n\r\n"));
}

#[tokio::test]
async fn a_body_of_known_length_goes_out_with_that_length() {
    let rig = Rig::new().await;
    let upload = Upload::new(http_body_util::Full::new(Bytes::from_static(b"exactly")));
    let mut outgoing = lent(Method::PUT, &upload);
    let headers = outgoing.headers.make_mut();
    headers.insert(CONTENT_LENGTH, "7".parse().unwrap());
    headers.insert(HOST, "tool".parse().unwrap());
    let script = async {
        let mut sock = rig.peer.accept().await;
        let request = sock.request().await;
        sock.write("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            .await;
        request
    };
    let (ended, (head, body)) = tokio::join!(rig.send(outgoing, TERMS), script);
    collected(ended);
    assert!(head.contains("content-length: 7\r\n") && !head.contains("transfer-encoding"));
    assert_eq!(body, b"exactly");
}

/// C41: the same bytes on every attempt, whatever the size, as often as they are sent.
#[tokio::test]
async fn a_whole_body_is_sent_byte_for_byte_again_and_again() {
    let pattern = |n: usize| (0..n).map(|i| (i * 31 % 251) as u8).collect::<Vec<u8>>();
    let sizes = [0, 1, 19, 65_535, 65_536, 65_537, 131_072, 1_048_576];
    for size in sizes {
        let body = Bytes::from(pattern(size));
        let rig = Rig::new().await;
        for _attempt in 0..2 {
            let script = async {
                let mut sock = rig.peer.accept().await;
                let request = sock.request().await;
                sock.fin().await;
                request
            };
            let exchange = rig.send(request(Method::POST, body.clone()), TERMS);
            let (ended, (_, arrived)) = tokio::join!(exchange, script);
            assert_eq!(unclear(&ended), Unclear::Disconnect);
            assert!(arrived == body, "{size} bytes differ");
        }
    }
}
