//! What passes through: fields, bodies that are still arriving, trailers; and TLS's agreement.

use std::convert::Infallible;

use http::HeaderValue;
use http::header::{CONNECTION, TE, TRANSFER_ENCODING};
use http_body::Frame as Piece;
use http_body_util::BodyExt;
use tokio::net::TcpListener;

use super::super::tls::{self, Authority, https};
use super::super::uploads::futures_stream::channel_body;
use super::*;
use crate::upstream::Upload;

const PASS: Terms = Terms {
    mode: Mode::Pass,
    ..TERMS
};

/// A tool that is a whole HTTP/2 server.
struct Served {
    core: Core,
    tool: Arc<Tool>,
    listener: TcpListener,
}

impl Served {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = peer::endpoint(listener.local_addr().unwrap());
        let mut upstream = peer::upstream(&endpoint);
        upstream.pool.protocol = Protocol::Http2;
        Self {
            core: Core::start(0, Clock::start()),
            tool: Tool::new(&upstream, 1).unwrap(),
            listener,
        }
    }

    fn send(&self, request: Outgoing, terms: Terms) -> Exchange {
        Exchange::new(&self.core, self.tool.destination(), request, terms)
    }

    async fn accept(&self) -> h2::server::Connection<TcpStream, Bytes> {
        let (tcp, _) = self.listener.accept().await.unwrap();
        h2::server::handshake(tcp).await.unwrap()
    }
}

#[tokio::test]
async fn the_request_is_the_same_and_nothing_of_http1_is_left_in_it() {
    let served = Served::new().await;
    let mut asked = post(b"hello");
    let fields = asked.headers.make_mut();
    fields.insert(CONNECTION, HeaderValue::from_static("x-a"));
    fields.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    fields.insert(TE, HeaderValue::from_static("trailers"));
    fields.insert("x-call-id", HeaderValue::from_static("c-1"));
    let script = async {
        let mut connection = served.accept().await;
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let answer = http::Response::builder().status(201).header("x-b", "1");
        let mut send = respond
            .send_response(answer.body(()).unwrap(), false)
            .unwrap();
        send.send_data(Bytes::from_static(b"made"), true).unwrap();
        let (head, mut body) = request.into_parts();
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let mut read = Vec::new();
        while let Some(data) = body.data().await {
            read.extend_from_slice(&data.unwrap());
        }
        (head, read)
    };
    let (ended, (head, read)) = tokio::join!(served.send(asked, TERMS), script);
    let answer = collected(ended);
    assert_eq!(
        (answer.status.as_u16(), &answer.body[..]),
        (201, &b"made"[..])
    );
    assert_eq!(answer.headers["x-b"], "1");
    assert_eq!((head.method, &read[..]), (Method::POST, &b"hello"[..]));
    assert_eq!(head.uri.to_string(), "http://tool/work?x=1");
    let mut names: Vec<_> = head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["content-length", "te", "x-call-id"]);
}

#[tokio::test]
async fn both_bodies_stream_and_both_have_trailers() {
    let served = Served::new().await;
    let (feed, body) = channel_body::<Infallible>();
    let mut asked = request(Method::POST, Bytes::new());
    asked.body = Upload::new(body).lend();
    let script = async {
        let mut connection = served.accept().await;
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let mut answer = respond
            .send_response(http::Response::new(()), false)
            .unwrap();
        let mut body = request.into_body();
        // Each piece is echoed before the next one is sent.
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            answer.send_data(data, false).unwrap();
        }
        let trailers = body.trailers().await.unwrap().unwrap();
        assert_eq!(trailers["x-sum"], "2");
        answer.send_trailers(trailers).unwrap();
    };
    let exchange = async {
        let mut answer = streaming(served.send(asked, PASS).await);
        for text in ["one", "two"] {
            feed.send(Ok(Piece::data(Bytes::from(text)))).unwrap();
            let piece = answer.body.frame().await.unwrap().unwrap();
            assert_eq!(piece.into_data().unwrap(), text);
        }
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from(2))]);
        feed.send(Ok(Piece::trailers(trailers))).unwrap();
        drop(feed);
        let last = answer.body.frame().await.unwrap().unwrap();
        assert_eq!(last.into_trailers().unwrap()["x-sum"], "2");
        assert!(answer.body.frame().await.is_none());
        answer.end.await
    };
    let (report, ()) = tokio::join!(exchange, script);
    assert_eq!((report.broken, report.bytes), (None, 6));
}

#[tokio::test]
async fn trailers_without_a_body_are_not_lost() {
    let served = Served::new().await;
    let script = async {
        let mut connection = served.accept().await;
        let (_request, mut respond) = connection.accept().await.unwrap().unwrap();
        let mut answer = respond
            .send_response(http::Response::new(()), false)
            .unwrap();
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), 14.into())]);
        answer.send_trailers(trailers).unwrap();
        while connection.accept().await.is_some() {}
    };
    let exchange = async {
        let mut answer = streaming(served.send(post(b"hello"), PASS).await);
        let only = answer.body.frame().await.unwrap().unwrap();
        assert_eq!(only.into_trailers().unwrap()["grpc-status"], "14");
    };
    tokio::select! {
        () = exchange => {}
        () = script => panic!("the connection outlives the exchange"),
    }
}

#[tokio::test]
async fn an_answer_that_comes_early_ends_the_upload() {
    let served = Served::new().await;
    let (feed, body) = channel_body::<Infallible>();
    let mut asked = request(Method::POST, Bytes::new());
    asked.body = Upload::new(body).lend();
    feed.send(Ok(Piece::data(Bytes::from("begun")))).unwrap();
    let script = async {
        let mut connection = served.accept().await;
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let early = http::Response::builder().status(413).body(()).unwrap();
        respond.send_response(early, true).unwrap();
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let mut body = request.into_body();
        loop {
            match body.data().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => break error.reason(),
                None => panic!("the upload was not ended by a reset"),
            }
        }
    };
    let (ended, reason) = tokio::join!(served.send(asked, TERMS), script);
    assert_eq!(collected(ended).status, 413);
    assert_eq!(reason, Some(h2::Reason::NO_ERROR));
    assert!(feed.is_closed() || feed.send(Ok(Piece::data(Bytes::new()))).is_err());
}

#[tokio::test]
async fn tls_agrees_on_what_the_route_and_the_tool_both_speak() {
    let authority = Authority::new();
    // What the tool offers, what the route asks for, and what comes of it.
    type Names = &'static [&'static [u8]];
    let table: [(Names, Protocol, Option<bool>); 6] = [
        (&[b"h2", b"http/1.1"], Protocol::Auto, Some(true)),
        (&[b"http/1.1"], Protocol::Auto, Some(false)),
        (&[], Protocol::Auto, Some(false)),
        (&[b"h2", b"http/1.1"], Protocol::Http1, Some(false)),
        (&[b"h2"], Protocol::Http2, Some(true)),
        (&[], Protocol::Http2, None),
    ];
    for (offered, protocol, http2) in table {
        let acceptor = authority.offering("127.0.0.1", offered);
        let peer = Peer::bind().await;
        let core = Core::start(0, Clock::start());
        let mut upstream = https(&peer, Some(&authority.pem));
        upstream.pool.protocol = protocol;
        let tool = Tool::new(&upstream, 1).unwrap();
        let send = || Exchange::new(&core, tool.destination(), post(b"hello"), TERMS);
        let script = async {
            let socket = acceptor.accept(peer.accept_tcp().await).await.unwrap();
            match http2 {
                Some(true) => {
                    let mut sock = Framed::greeted(socket, &[]).await;
                    for _ in 0..2 {
                        let (stream, _) = sock.request().await;
                        sock.answer(stream, b"ok").await;
                    }
                    return Some(sock);
                }
                Some(false) => assert_eq!(tls::answer(socket, 2).await, 2),
                None => {}
            }
            None
        };
        let calls = async {
            let first = send().await;
            (
                first,
                if http2.is_some() {
                    Some(send().await)
                } else {
                    None
                },
            )
        };
        let ((first, second), _open) = tokio::join!(calls, script);
        match second {
            None => assert_eq!(not_sent(&first), NotSent::Tls),
            Some(second) => {
                assert_eq!(&collected(first).body[..], b"ok");
                assert_eq!(&collected(second).body[..], b"ok");
            }
        }
        let shared = usize::from(http2 == Some(true));
        assert_eq!(tool.destination().shared_connections(), shared);
    }
}
