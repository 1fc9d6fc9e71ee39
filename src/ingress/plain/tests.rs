//! The plain server beside hyper's: what it reads reads the same there, and what it writes is what
//! hyper would write.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use proptest::prelude::*;
use tokio::io::AsyncReadExt as _;

use super::*;
use crate::clock::Clock;
use crate::ingress::body::Raw;

/// A request as it was understood.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Understood {
    method: String,
    target: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

impl Understood {
    fn new(method: &http::Method, uri: &http::Uri, headers: &HeaderMap, body: Bytes) -> Self {
        let field = |(name, value): (&http::HeaderName, &HeaderValue)| {
            (name.to_string(), value.as_bytes().to_vec())
        };
        Self {
            method: method.to_string(),
            target: uri.to_string(),
            fields: headers.iter().map(field).collect(),
            body,
        }
    }
}

/// What the plain server takes of these bytes, and what it leaves.
fn plainly(bytes: &[u8]) -> Option<(Understood, usize)> {
    let mut buffer = BytesMut::from(bytes);
    let Parsed::Whole(Asked { request, bytes }) = head::parse(&mut buffer, 0) else {
        return None;
    };
    let (parts, body) = request.into_parts();
    let Raw::Whole(body) = body else {
        panic!("a body that is still arriving");
    };
    let understood = Understood::new(&parts.method, &parts.uri, &parts.headers, body);
    Some((understood, bytes.len()))
}

/// What hyper takes the first request for, and its answer to it; nothing follows these bytes.
async fn by_hyper(bytes: &[u8], answer: Response<ReplyBody>) -> (Option<Understood>, Vec<u8>) {
    let (mut ours, theirs) = tokio::io::duplex(256 * 1024);
    ours.write_all(bytes).await.unwrap();
    ours.shutdown().await.unwrap();
    let heard = Arc::new(Mutex::new(None));
    let answer = Mutex::new(Some(answer));
    let service = service_fn(|request: Request<Incoming>| {
        let (heard, answer) = (Arc::clone(&heard), answer.lock().take());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            if let (Ok(body), Some(_)) = (body, &answer) {
                let understood = Understood::new(&parts.method, &parts.uri, &parts.headers, body);
                *heard.lock() = Some(understood);
            }
            Ok::<_, Infallible>(answer.unwrap_or_else(|| Response::new(ReplyBody::empty())))
        }
    });
    let mut builder = http1::Builder::new();
    builder.half_close(true).writev(false).keep_alive(false);
    // How the connection ends is not asked here.
    drop(
        builder
            .serve_connection(TokioIo::new(theirs), service)
            .await,
    );
    let mut said = Vec::new();
    ours.read_to_end(&mut said).await.unwrap();
    let heard = heard.lock().take();
    (heard, said)
}

fn hyper_hears(bytes: &[u8]) -> Option<Understood> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let answer = Response::new(ReplyBody::empty());
    runtime.unwrap().block_on(by_hyper(bytes, answer)).0
}

const LINES: [&str; 12] = [
    "POST /tool?x=1 HTTP/1.1\r\n",
    "POST /tool HTTP/1.1\r\n",
    "GET /a%20b HTTP/1.1\r\n",
    "\r\nDELETE /x HTTP/1.1\r\n",
    "PATCH http://other/x HTTP/1.1\r\n",
    "OPTIONS * HTTP/1.1\r\n",
    "BREW /pot HTTP/1.1\r\n",
    "HEAD / HTTP/1.1\r\n",
    "CONNECT a:1 HTTP/1.1\r\n",
    "POST / HTTP/1.0\r\n",
    "GET /\u{fc} HTTP/1.1\r\n",
    "GET  / HTTP/1.1\r\n",
];

const FIELDS: [&str; 18] = [
    "Host: t\r\n",
    "host:t\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5,5\r\n",
    "Content-Length: -5\r\n",
    "Content-Length: 4\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "Connection: Keep-Alive\r\n",
    "Connection: keep-alive, x-a\r\n",
    "Expect: 100-continue\r\n",
    "Upgrade: h2c\r\n",
    "X-A: 1\r\n",
    "X-Empty: \r\n",
    " folded\r\n",
    "X-Bytes: \u{fc}\t\"\r\n",
];

const BODIES: [&str; 6] = [
    "hello",
    "hello",
    "",
    "hell",
    "helloGET / HTTP/1.1\r\nHost: t\r\n\r\n",
    "5\r\nhello\r\n0\r\n\r\n",
];

fn requests() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::collection::vec(prop::sample::select(&FIELDS[..]), 0..5);
    let sound = (
        prop::sample::select(&LINES[..]),
        fields,
        prop::sample::select(&BODIES[..]),
    );
    let sound =
        sound.prop_map(|(line, fields, body)| format!("{line}{}\r\n{body}", fields.concat()));
    let sound = sound.prop_map(String::into_bytes);
    let mutilated = (sound.clone(), any::<prop::sample::Index>(), any::<u8>());
    let mutilated = mutilated.prop_map(|(mut bytes, at, byte)| {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes
    });
    prop_oneof![3 => sound, 1 => mutilated]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_is_read_plainly_is_what_hyper_reads(bytes in requests()) {
        if let Some((understood, taken)) = plainly(&bytes) {
            prop_assert_eq!(hyper_hears(&bytes), Some(understood.clone()));
            // And not a byte of what follows has to do with it.
            prop_assert_eq!(plainly(&bytes[..taken]), Some((understood, taken)));
            prop_assert!(plainly(&bytes[..taken - 1]).is_none());
        }
    }
}

/// A body that is not all there is short of the rest, however much of it is missing.
#[test]
fn a_body_that_is_not_all_there_is_waited_for_only_while_it_may_be_read_here() {
    for (length, short) in [(6, true), (60_000, true), (70_000, false)] {
        let text = format!("POST / HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\nhello");
        let mut buffer = BytesMut::from(text.as_bytes());
        let parsed = head::parse(&mut buffer, 0);
        assert_eq!(matches!(parsed, Parsed::Short), short, "{length}");
        assert_eq!(buffer.len(), text.len());
    }
}

#[test]
fn the_common_request_is_read_plainly() {
    let bytes = "POST /tool HTTP/1.1\r\nHost: t\r\nConnection: keep-alive\r\n\
                 Content-Length: 5\r\n\r\nhello";
    let (understood, taken) = plainly(bytes.as_bytes()).unwrap();
    assert_eq!((&understood.body[..], taken), (&b"hello"[..], bytes.len()));
    assert_eq!(understood.fields.len(), 3);
}

#[tokio::test]
async fn an_answer_is_written_as_hyper_writes_it() {
    let dates = Dates::new(Clock::start());
    for (status, body, with_date) in [(200, "hello", false), (404, "", true), (503, "x", false)] {
        let make = || {
            let mut answer = Response::new(ReplyBody::Whole(Bytes::from(body)));
            *answer.status_mut() = StatusCode::from_u16(status).unwrap();
            let headers = answer.headers_mut();
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            headers.append("x-a", HeaderValue::from_static("1"));
            headers.append("x-a", HeaderValue::from_bytes(b"\xfc").unwrap());
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
            if with_date {
                headers.insert(DATE, HeaderValue::from_static("then"));
            }
            answer
        };
        let written = Written::of(&make(), &dates).unwrap();
        assert!(written.last && written.body.is_empty());
        let (_, said) = by_hyper(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n", make()).await;
        assert_eq!(lines(&written.head), lines(&said));
    }
}

/// The lines in order of their names, the present date left out.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
    for line in &mut lines {
        if line.starts_with("date: ") && line.ends_with(" GMT") {
            line.truncate("date: ".len());
        }
    }
    lines[1..].sort();
    lines
}

#[test]
fn what_is_not_plain_is_left_to_hyper() {
    let dates = Dates::new(Clock::start());
    for status in [204, 304, 299] {
        let mut answer = Response::new(ReplyBody::empty());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        assert!(Written::of(&answer, &dates).is_none(), "{status}");
    }
    let mut answer = Response::new(ReplyBody::empty());
    answer
        .headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
    assert!(Written::of(&answer, &dates).is_none());
}

#[test]
fn a_long_body_goes_out_behind_its_head() {
    let dates = Dates::new(Clock::start());
    let body = Bytes::from(vec![b'x'; ONE_WRITE + 1]);
    let answer = Response::new(ReplyBody::Whole(body.clone()));
    let written = Written::of(&answer, &dates).unwrap();
    assert_eq!(written.body, body);
    assert!(written.head.ends_with(b"\r\n\r\n") && !written.last);
}
