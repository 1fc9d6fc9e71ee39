//! HTTP/2 to a tool: shared connections, and what proves that a request was not taken up.

use tokio::net::TcpStream;

use super::frames::{DATA, END_HEADERS, END_STREAM, Framed, GOAWAY, HEADERS, OK, RST_STREAM};
use super::*;
use crate::config::route::Protocol;
use crate::upstream::http2::Bounds;

mod closing;
mod passing;

const MAX_CONCURRENT: u16 = 3;
const REFUSED_STREAM: [u8; 4] = [0, 0, 0, 7];

type Sock2 = Framed<TcpStream>;

async fn rig() -> Rig {
    rig_with(Bounds::default()).await
}

async fn rig_with(bounds: Bounds) -> Rig {
    let rig = Rig::with(|upstream| upstream.pool.protocol = Protocol::Http2).await;
    let pool = rig.tool.destination().http2.as_ref();
    pool.expect("HTTP/2 is spoken").bound(bounds);
    rig
}

impl Rig {
    async fn accept_http2(&self) -> Sock2 {
        Framed::greeted(self.peer.accept_tcp().await, &[]).await
    }
}

fn go_away(last: u32) -> Vec<u8> {
    let mut payload = last.to_be_bytes().to_vec();
    payload.extend_from_slice(&[0, 0, 0, 0]);
    payload
}

#[tokio::test]
async fn exchanges_share_a_connection_that_is_dialled_once() {
    let rig = rig().await;
    let calls = async {
        let exchanges = (0..20).map(|_| rig.send(post(b"hello"), TERMS));
        let mut running = tokio::task::JoinSet::new();
        for mut exchange in exchanges {
            running.spawn(async move {
                let answer = collected((&mut exchange).await);
                assert!(exchange.written());
                answer.body
            });
        }
        running.join_all().await
    };
    let script = async {
        let mut sock = rig.accept_http2().await;
        // All are there before one is answered.
        let mut streams = Vec::new();
        for _ in 0..20 {
            let (stream, body) = sock.request().await;
            assert_eq!(body, b"hello");
            streams.push(stream);
        }
        for stream in streams.into_iter().rev() {
            sock.answer(stream, b"fine").await;
        }
        sock
    };
    let (bodies, _sock) = tokio::join!(calls, script);
    assert_eq!(bodies, vec![&b"fine"[..]; 20]);
    assert_eq!(rig.tool.destination().shared_connections(), 1);
}

#[tokio::test]
async fn a_tool_that_allows_one_exchange_gets_a_connection_for_each() {
    let rig = rig().await;
    let script = async {
        let mut socks = Vec::new();
        for _ in 0..2 {
            let tcp = rig.peer.accept_tcp().await;
            let mut sock = Framed::greeted(tcp, &[(MAX_CONCURRENT, 1)]).await;
            let (stream, _) = sock.request().await;
            socks.push((sock, stream));
        }
        for (sock, stream) in &mut socks {
            sock.answer(*stream, b"ok").await;
        }
        socks
    };
    let calls = async {
        let first = rig.send(post(b"1"), TERMS);
        let second = rig.send(post(b"2"), TERMS);
        tokio::join!(first, second)
    };
    let ((first, second), _socks) = tokio::join!(calls, script);
    assert_eq!(&collected(first).body[..], b"ok");
    assert_eq!(&collected(second).body[..], b"ok");
}

#[tokio::test]
async fn past_the_bound_of_connections_an_exchange_waits_and_is_not_sent() {
    let bounds = Bounds {
        connections: 1,
        ..Bounds::default()
    };
    let rig = rig_with(bounds).await;
    let terms = Terms {
        connect: Duration::from_millis(200),
        ..TERMS
    };
    let script = async {
        let tcp = rig.peer.accept_tcp().await;
        let mut sock = Framed::greeted(tcp, &[(MAX_CONCURRENT, 1)]).await;
        let (stream, _) = sock.request().await;
        (sock, stream)
    };
    let mut first = rig.send(post(b"1"), terms);
    let (mut sock, stream) = tokio::select! {
        ended = &mut first => panic!("nothing was answered: {ended:?}"),
        taken = script => taken,
    };
    let mut crowded = rig.send(post(b"2"), terms);
    assert_eq!(not_sent(&(&mut crowded).await), NotSent::Connect);
    assert!(crowded.was_crowded_out());
    // One that waits gets the place as soon as it is free.
    let mut waiting = rig.send(post(b"3"), TERMS);
    tokio::select! {
        biased;
        ended = &mut waiting => panic!("there is no place: {ended:?}"),
        () = std::future::ready(()) => {}
    }
    let rest = async {
        sock.answer(stream, b"one").await;
        let (stream, body) = sock.request().await;
        assert_eq!(body, b"3");
        sock.answer(stream, b"three").await;
    };
    let (first, waiting, ()) = tokio::join!(first, waiting, rest);
    assert_eq!(&collected(first).body[..], b"one");
    assert_eq!(&collected(waiting).body[..], b"three");
}

#[tokio::test]
async fn a_refused_stream_was_not_sent_and_costs_no_other() {
    let rig = rig().await;
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        sock.write(RST_STREAM, 0, stream, &REFUSED_STREAM).await;
        let (stream, _) = sock.request().await;
        sock.answer(stream, b"ok").await;
        sock
    };
    let calls = async {
        let mut refused = rig.send(post(b"1"), TERMS);
        assert_eq!(not_sent(&(&mut refused).await), NotSent::Refused);
        assert!(!refused.reconnected());
        collected(rig.send(post(b"2"), TERMS).await)
    };
    let (answer, _sock) = tokio::join!(calls, script);
    assert_eq!(&answer.body[..], b"ok");
}

#[tokio::test]
async fn any_other_reset_is_unclear_and_costs_no_other() {
    for reason in [0, 2, 8, 11] {
        let rig = rig().await;
        let script = async {
            let mut sock = rig.accept_http2().await;
            let (stream, _) = sock.request().await;
            let (other, _) = sock.request().await;
            sock.write(RST_STREAM, 0, stream, &[0, 0, 0, reason]).await;
            sock.answer(other, b"ok").await;
            sock
        };
        let calls =
            async { tokio::join!(rig.send(post(b"1"), TERMS), rig.send(post(b"2"), TERMS)) };
        let ((first, second), _sock) = tokio::join!(calls, script);
        assert_eq!(unclear(&first), Unclear::Disconnect);
        assert_eq!(&collected(second).body[..], b"ok");
        assert_eq!(rig.tool.destination().shared_connections(), 1);
    }
}

#[tokio::test]
async fn a_stream_above_a_goaways_last_is_sent_at_once_over_a_fresh_connection() {
    let rig = rig().await;
    let script = async {
        let mut old = rig.accept_http2().await;
        let (first, _) = old.request().await;
        old.answer(first, b"one").await;
        let (kept, _) = old.request().await;
        let (left_out, body) = old.request().await;
        assert_eq!(body, b"3");
        old.write(GOAWAY, 0, 0, &go_away(kept)).await;
        let mut fresh = rig.accept_http2().await;
        let (again, body) = fresh.request().await;
        assert_eq!((again, &body[..]), (1, &b"3"[..]));
        assert!(left_out > kept);
        fresh.answer(again, b"three").await;
        // What was left in is still answered.
        old.answer(kept, b"two").await;
        (old, fresh)
    };
    let calls = async {
        collected(rig.send(post(b"1"), TERMS).await);
        let second = rig.send(post(b"2"), TERMS);
        let mut third = rig.send(post(b"3"), TERMS);
        let (second, ended) = tokio::join!(second, &mut third);
        assert!(third.reconnected());
        (collected(second), collected(ended))
    };
    let ((second, third), _socks) = tokio::join!(calls, script);
    assert_eq!(
        (&second.body[..], &third.body[..]),
        (&b"two"[..], &b"three"[..])
    );
}

#[tokio::test]
async fn a_stream_that_a_goaway_left_in_is_unclear_when_the_connection_ends() {
    let rig = rig().await;
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        // INTERNAL_ERROR, and the stream was looked at.
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend_from_slice(&[0, 0, 0, 2]);
        sock.write(GOAWAY, 0, 0, &payload).await;
    };
    let (ended, ()) = tokio::join!(rig.send(post(b"1"), TERMS), script);
    assert_eq!(unclear(&ended), Unclear::Disconnect);
}

#[tokio::test]
async fn a_fresh_connection_that_goes_away_at_once_was_sent_nothing() {
    let rig = rig().await;
    let script = async {
        let mut sock = rig.accept_http2().await;
        sock.request().await;
        sock.write(GOAWAY, 0, 0, &go_away(0)).await;
        sock
    };
    let mut exchange = rig.send(post(b"1"), TERMS);
    let (ended, _sock) = tokio::join!(&mut exchange, script);
    assert_eq!(not_sent(&ended), NotSent::Refused);
    assert!(!exchange.reconnected());
}

#[tokio::test]
async fn a_connection_that_ends_in_the_middle_leaves_its_exchanges_unclear() {
    for reset in [true, false] {
        let rig = rig().await;
        let script = async {
            let tcp = rig.peer.accept_tcp().await;
            if reset {
                tcp.set_zero_linger().unwrap();
            }
            let mut sock = Framed::greeted(tcp, &[]).await;
            sock.request().await;
            sock.request().await;
        };
        let calls =
            async { tokio::join!(rig.send(post(b"1"), TERMS), rig.send(post(b"2"), TERMS)) };
        let ((first, second), ()) = tokio::join!(calls, script);
        assert_eq!(unclear(&first), Unclear::Disconnect);
        assert_eq!(unclear(&second), Unclear::Disconnect);
    }
}

#[tokio::test]
async fn a_body_that_is_cut_short_is_no_answer() {
    // A reset behind half the body; and less than was announced, properly ended.
    let rig = rig().await;
    let script = async {
        let mut sock = rig.accept_http2().await;
        let (stream, _) = sock.request().await;
        sock.write(HEADERS, END_HEADERS, stream, OK).await;
        sock.write(DATA, 0, stream, b"hal").await;
        sock.write(RST_STREAM, 0, stream, &[0, 0, 0, 2]).await;
        let (stream, _) = sock.request().await;
        // content-length: 5, as a literal with an indexed name.
        let head = [OK, &[0x0f, 0x0d, 0x01, b'5']].concat();
        sock.write(HEADERS, END_HEADERS, stream, &head).await;
        sock.write(DATA, END_STREAM, stream, b"hal").await;
        sock
    };
    let calls = async {
        let first = rig.send(post(b"1"), TERMS).await;
        (first, rig.send(post(b"2"), TERMS).await)
    };
    let ((first, second), _sock) = tokio::join!(calls, script);
    assert_eq!(unclear(&first), Unclear::Disconnect);
    assert_eq!(unclear(&second), Unclear::Disconnect);
}

#[tokio::test]
async fn what_does_not_speak_http2_is_sent_nothing() {
    let terms = Terms {
        connect: Duration::from_millis(150),
        ..TERMS
    };
    for says in ["HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", ""] {
        let rig = rig().await;
        let script = async {
            let mut sock = rig.peer.accept().await;
            sock.write(says).await;
            sock
        };
        let mut exchange = rig.send(post(b"hello"), terms);
        let (ended, mut sock) = tokio::join!(&mut exchange, script);
        assert_eq!(not_sent(&ended), NotSent::Connect);
        assert!(!exchange.written());
        let (said, _) = sock.drain().await;
        // The preface, settings and a PING; no frame of a stream.
        assert!(!said.windows(5).any(|w| w == b"hello"), "{said:?}");
    }
}
