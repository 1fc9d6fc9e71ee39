//! The plain server beside hyper's: what it reads reads the same there, and what it writes is what
//! hyper would write.

use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, DATE, HeaderName};
use http::{HeaderValue, StatusCode};
use proptest::prelude::*;

use super::*;
use crate::call::id::{CallId, IdSource};
use crate::clock::Clock;
use crate::flow::told::{Shown, Told, Whole, Word};
use crate::ingress::answer::Said;
use crate::ingress::fuzzing::{by_hyper, hyper_hears, plainly};
use crate::ingress::reply::{ReplyBody, Shape};
use crate::upstream::fields::Text;

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
        let parsed = head::find(text.as_bytes(), 0, &mut Lines::default());
        assert_eq!(matches!(parsed, Parsed::Short(_)), short, "{length}");
    }
}

#[test]
fn the_common_request_is_read_plainly() {
    let request = "POST /tool HTTP/1.1\r\nHost: t\r\nConnection: keep-alive\r\n\
                   Content-Length: 5\r\n\r\nhello";
    let (head, body, bytes) = taken(request.as_bytes()).unwrap();
    assert_eq!((&body[..], bytes), (&b"hello"[..], request.len()));
    assert_eq!(head.headers.text().unwrap().host(), b"t");
}

fn turned(answer: Response<ReplyBody>) -> Response<Turned> {
    Turned::response(answer, None, false)
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
        let (head, rest, last) = Written::rendered(&turned(make()), &dates).unwrap();
        assert!(last && rest.is_empty());
        let (_, said) = by_hyper(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n", make()).await;
        assert_eq!(lines(&head), lines(&said));
    }
}

/// The lines in order of their names, the present date left out.
fn lines(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let mut lines: Vec<_> = text.split("\r\n").map(str::to_owned).collect();
    for line in &mut lines {
        if let Some((name, _)) = line.split_once(':') {
            let name = name.to_ascii_lowercase();
            line.replace_range(..name.len(), &name);
        }
        if line.starts_with("date: ") && line.ends_with(" GMT") {
            line.truncate("date: ".len());
        }
    }
    lines[1..].sort();
    lines
}

/// An answer of the tool, as its lines came.
fn whole(lines: &str) -> Whole {
    let head = Bytes::from(format!("HTTP/1.1 201 Created\r\n{lines}\r\n"));
    let mut places = Lines::default();
    let mut fields = [httparse::EMPTY_HEADER; 16];
    let mut parsed = httparse::Response::new(&mut fields);
    assert!(parsed.parse(&head).unwrap().is_complete());
    places.note(&head, parsed.headers);
    Whole {
        status: StatusCode::CREATED,
        headers: Text::of_answer(&head, &places).unwrap().into(),
        body: Bytes::from_static(b"hello"),
    }
}

fn said(whole: Whole, call: Option<(CallId, IdSource)>, close: bool) -> Said {
    let told = Told {
        call,
        word: Word::Answered,
        attempts: 1,
        shown: Shown::Whole(whole),
        original: None,
        same_id_only: false,
        recorded: false,
    };
    let shape = Shape {
        id_field: HeaderName::from_static("x-order"),
        head: false,
        close,
        fragile: None,
    };
    Said {
        told: Ok(told),
        shape,
        turn: None,
    }
}

/// Whatever the tool said, the answer out of its lines is the one that `reply` makes of a map.
#[test]
fn an_answer_out_of_lines_is_the_rendered_one() {
    let dates = Dates::new(Clock::start());
    let id = || Some((CallId::parse(b"c-1").unwrap(), IdSource::Gateway));
    for of_tool in [
        "",
        "Content-Length: 5\r\nContent-Type: text/plain\r\n",
        "Connection: close\r\nDate: then\r\nX-A: 1\r\nx-a: 2\r\n",
        "Keep-Alive: x\r\nX-Order: the tool's\r\ncontent-length: 5\r\n",
    ] {
        for (call, close) in [(id(), false), (id(), true), (None, false)] {
            let plain = said(whole(of_tool), call.clone(), close);
            let written = Written::of(plain, &dates).ok().unwrap();
            let mut as_map = whole(of_tool);
            as_map.headers = as_map.headers.into_map().into();
            let rendered = said(as_map, call, close).response(false);
            let (head, _, last) = Written::rendered(&rendered, &dates).unwrap();
            assert_eq!(lines(&written.head), lines(&head), "{of_tool}");
            assert_eq!((written.last, last), (close, close));
        }
    }
}

#[test]
fn what_is_not_plain_is_left_to_hyper() {
    let dates = Dates::new(Clock::start());
    for status in [204, 304, 299] {
        let mut answer = Response::new(ReplyBody::empty());
        *answer.status_mut() = StatusCode::from_u16(status).unwrap();
        assert!(
            Written::rendered(&turned(answer), &dates).is_none(),
            "{status}"
        );
    }
    let mut answer = Response::new(ReplyBody::empty());
    answer
        .headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from_static("7"));
    assert!(Written::rendered(&turned(answer), &dates).is_none());
}

#[test]
fn a_long_body_goes_out_behind_its_head() {
    let dates = Dates::new(Clock::start());
    let body = Bytes::from(vec![b'x'; written::ONE_WRITE + 1]);
    let answer = Response::new(ReplyBody::Whole(body.clone()));
    let (head, rest, last) = Written::rendered(&turned(answer), &dates).unwrap();
    assert_eq!(rest, body);
    assert!(head.ends_with(b"\r\n\r\n") && !last);
}
