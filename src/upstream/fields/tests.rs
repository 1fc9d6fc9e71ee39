//! Lines beside maps: what goes out of lines is what `headers` makes of the map they would be.

use std::mem::MaybeUninit;

use http::header::CONTENT_LENGTH;
use http::uri::PathAndQuery;
use http::{Method, Version};
use proptest::prelude::*;

use super::*;
use crate::call::id::{CallId, ClientName, IdSource};
use crate::config::route::{HostMode, Upstream};
use crate::upstream::Tool;
use crate::upstream::headers::{self, Hop, Length, Mark, Node, X_CALL_ID};
use crate::upstream::tests::peer;

/// Lines that a request may have; the second half makes it no ordinary one.
const OF_REQUESTS: [&str; 30] = [
    "Host: h:1\r\n",
    "host:h\r\n",
    "X-Call-Id: c-1\r\n",
    "x-call-id: c-2  \r\n",
    "Content-Length: 5\r\n",
    "content-length: 0\r\n",
    "Connection: Keep-Alive\r\n",
    "Authorization: Bearer a\r\n",
    "X-Tenant: someone\r\n",
    "X-Set: theirs\r\n",
    "X-A: 1\r\n",
    "x-a:\t2\t\r\n",
    "X-Empty: \r\n",
    "X-Bytes: \u{fc}\t\"\r\n",
    "Forwarded: for=1.2.3.4\r\n",
    "Cookie: a=b\r\n",
    "Content-Length: 05\r\n",
    "Connection: x-a\r\n",
    "Connection: close\r\n",
    "TE: trailers\r\n",
    "Trailer: x\r\n",
    "Via: 1.1 other\r\n",
    "Upgrade: h2c\r\n",
    "Expect: 100-continue\r\n",
    "Keep-Alive: timeout=1\r\n",
    "Prefer: wait=1\r\n",
    "HTTP2-Settings: x\r\n",
    "Proxy-Line: x\r\n",
    "X-Call-Attempt: 7\r\n",
    "X-Lone: 1\n",
];

/// The same for answers.
const OF_ANSWERS: [&str; 22] = [
    "Content-Length: 5\r\n",
    "Content-Type: text/plain\r\n",
    "Connection: keep-alive\r\n",
    "connection: close\r\n",
    "Keep-Alive: timeout=5\r\n",
    "Date: then\r\n",
    "X-A: 1\r\n",
    "x-a: 2\r\n",
    "X-Empty:\r\n",
    "Set-Cookie: a\r\n",
    "Retry-After: 1\r\n",
    "Connection: x-a\r\n",
    "TE: x\r\n",
    "Trailer: x\r\n",
    "Upgrade: x\r\n",
    "Proxy-Status: callgate\r\n",
    "X-Call-Attempts: 3\r\n",
    "X-Original-Call-Id: c\r\n",
    "Idempotent-Replayed: true\r\n",
    "Preference-Applied: x\r\n",
    "X-Call-Idle: 1\r\n",
    "X-Lone: 1\n",
];

fn head(first: &str, chosen: &[&str], end: &str) -> Bytes {
    Bytes::from(format!("{first}\r\n{}{end}", chosen.concat()))
}

fn lines_of(head: &Bytes) -> Lines {
    let mut lines = Lines::default();
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let parser = httparse::ParserConfig::default();
    if head.starts_with(b"HTTP") {
        let mut parsed = httparse::Response::new(&mut []);
        let read = parser.parse_response_with_uninit_headers(&mut parsed, head, &mut fields);
        assert!(read.unwrap().is_complete());
        lines.note(head, parsed.headers);
    } else {
        let mut parsed = httparse::Request::new(&mut []);
        let read = parser.parse_request_with_uninit_headers(&mut parsed, head, &mut fields);
        assert!(read.unwrap().is_complete());
        lines.note(head, parsed.headers);
    }
    lines
}

/// The fields of an ordinary request, as its lines.
pub(crate) fn request_of(lines: &[(&str, &str)]) -> Fields {
    let lines = lines
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = Bytes::from(format!(
        "GET / HTTP/1.1\r\n{}\r\n",
        lines.collect::<String>()
    ));
    let text = Text::of_request(&head, &lines_of(&head));
    text.expect("an ordinary request").into()
}

/// Fields as lines out in the open: by name, those of one name in their order.
fn told(map: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let line =
        |(name, value): (&HeaderName, &HeaderValue)| (name.to_string(), value.as_bytes().to_vec());
    let mut lines: Vec<_> = map.iter().map(line).collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0));
    lines
}

fn read(lines: &[u8]) -> HeaderMap {
    let mut found = [httparse::EMPTY_HEADER; 64];
    let read = httparse::parse_headers(lines, &mut found).unwrap();
    let httparse::Status::Complete((bytes, fields)) = read else {
        panic!("not a whole head");
    };
    assert_eq!(bytes, lines.len(), "something follows the head");
    let field = |field: &httparse::Header<'_>| {
        let name = HeaderName::from_bytes(field.name.as_bytes()).unwrap();
        (name, HeaderValue::from_bytes(field.value).unwrap())
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        map.append(name, value);
    }
    map
}

fn tool(host: HostMode, sets: bool, tenant: bool) -> Arc<Tool> {
    let mut upstream: Upstream = peer::upstream(&peer::endpoint("127.0.0.1:9000".parse().unwrap()));
    upstream.host = host;
    if sets {
        let value = HeaderValue::from_static("ours");
        upstream.headers.insert("x-set", value.clone());
        upstream.headers.insert("authorization", value);
    }
    upstream.tenant_header = tenant.then(|| HeaderName::from_static("x-tenant"));
    Tool::new(&upstream, 1).unwrap()
}

/// A request's way out.
#[derive(Clone, Debug)]
struct Out {
    lines: Vec<&'static str>,
    end: &'static str,
    method: Method,
    host: HostMode,
    sets: bool,
    tenant: bool,
    /// The caller's id counts; else one is made.
    named: bool,
}

fn outs() -> impl Strategy<Value = Out> {
    let line = prop_oneof![
        9 => prop::sample::select(&OF_REQUESTS[..16]),
        1 => prop::sample::select(&OF_REQUESTS[16..]),
    ];
    (
        prop::collection::vec(line, 0..7),
        prop::sample::select(&["\r\n", "\n"][..]),
        prop::sample::select(vec![Method::GET, Method::POST, Method::DELETE, Method::PUT]),
        prop::sample::select(&[HostMode::Keep, HostMode::Tool][..]),
        any::<[bool; 3]>(),
    )
        .prop_map(|(lines, end, method, host, [sets, tenant, named])| Out {
            lines,
            end,
            method,
            host,
            sets,
            tenant,
            named,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn a_request_out_of_lines_is_the_one_out_of_a_map(out in outs()) {
        let head = head("POST / HTTP/1.1", &out.lines, out.end);
        let lines = lines_of(&head);
        if let Some(text) = Text::of_request(&head, &lines) {
            let node = Node::new("n1");
            let hop = || Hop {
                node: &node,
                version: Version::HTTP_11,
                forwarded: HeaderValue::from_static("for=192.0.2.9"),
            };
            let field = X_CALL_ID;
            let given = text.all(&field).next().filter(|_| out.named);
            let id = CallId::parse(given.unwrap_or(b"made-1")).unwrap();
            let client = ClientName::anonymous();
            let mark = Mark {
                field: &X_CALL_ID,
                call_id: &id,
                client: &client,
                source: if given.is_some() { IdSource::Client } else { IdSource::Gateway },
                attempt: 1,
                cause: None,
                key: None,
                traceparent: None,
            };
            let tool = tool(out.host, out.sets, out.tenant);
            let body = match text.all(&CONTENT_LENGTH).next() {
                Some(b"5") => Bytes::from_static(b"hello"),
                _ => Bytes::new(),
            };
            let target = PathAndQuery::from_static("/work?x=1");
            let way = (&out.method, &target);
            let mut map = lines.collect(&head, 8, 8).unwrap();
            headers::prepare(&mut map, &X_CALL_ID, hop());
            let length = Length::Known(body.len() as u64);
            headers::stamp(&mut map, &mark, &tool, &out.method, length);
            if let Some(written) = headers::written(&text, way, &hop(), &mark, &tool, &body) {
                let Final::Written(out) = &written else { panic!("a map") };
                prop_assert!(out.request.ends_with(&body));
                prop_assert_eq!(out.fields.end, out.request.len() - body.len());
                prop_assert_eq!(told(&read(&out.request[out.fields.clone()])), told(&map));
                prop_assert_eq!(told(&written.into_map()), told(&map));
            }
        }
    }

    #[test]
    fn an_answer_out_of_lines_is_the_one_out_of_a_map(
        chosen in prop::collection::vec(prop::sample::select(&OF_ANSWERS[..]), 0..6),
        end in prop::sample::select(&["\r\n", "\n"][..]),
    ) {
        let head = head("HTTP/1.1 200 OK", &chosen, end);
        let lines = lines_of(&head);
        if let Some(text) = Text::of_answer(&head, &lines) {
            let mut map = lines.collect(&head, 8, 8).unwrap();
            headers::strip_answer(&mut map);
            prop_assert!(!map.keys().any(headers::is_call_field));
            prop_assert_eq!(told(&Fields::from(text.clone())), told(&map));
            let mut out = Vec::new();
            text.write_answer(&mut out, None);
            out.extend_from_slice(b"\r\n");
            map.remove(CONTENT_LENGTH);
            prop_assert_eq!(told(&read(&out)), told(&map));
        }
    }
}

#[test]
fn the_ordinary_is_what_nobody_has_to_think_about() {
    for (at, line) in OF_REQUESTS.iter().enumerate().skip(2) {
        let head = head("POST / HTTP/1.1", &["Host: h\r\n", line], "\r\n");
        let text = Text::of_request(&head, &lines_of(&head));
        assert_eq!(text.is_some(), at < 16, "{line}");
    }
    for (at, line) in OF_ANSWERS.iter().enumerate() {
        let head = head("HTTP/1.1 200 OK", &[line], "\r\n");
        let text = Text::of_answer(&head, &lines_of(&head));
        assert_eq!(text.is_some(), at < 11, "{line}");
    }
    // No host, or two; an end that is none.
    for (lines, end) in [
        (&OF_REQUESTS[2..3], "\r\n"),
        (&OF_REQUESTS[..2], "\r\n"),
        (&OF_REQUESTS[..1], "\n"),
    ] {
        let head = head("POST / HTTP/1.1", lines, end);
        assert!(
            Text::of_request(&head, &lines_of(&head)).is_none(),
            "{lines:?}"
        );
    }
}

#[test]
fn the_request_most_callers_send_goes_out_of_lines() {
    let head = head(
        "POST / HTTP/1.1",
        &OF_REQUESTS[2..3],
        "Host: h\r\nX-A: 1\r\n\r\n",
    );
    let text = Text::of_request(&head, &lines_of(&head)).unwrap();
    let (node, client) = (Node::new("n1"), ClientName::anonymous());
    let id = CallId::parse(b"c-1").unwrap();
    let hop = Hop {
        node: &node,
        version: Version::HTTP_11,
        forwarded: HeaderValue::from_static("for=192.0.2.9"),
    };
    let mark = Mark {
        field: &X_CALL_ID,
        call_id: &id,
        client: &client,
        source: IdSource::Client,
        attempt: 1,
        cause: None,
        key: None,
        traceparent: None,
    };
    let tool = tool(HostMode::Tool, true, true);
    let target = PathAndQuery::from_static("/work?x=1");
    let way = (&Method::POST, &target);
    let written = headers::written(&text, way, &hop, &mark, &tool, &Bytes::new()).unwrap();
    let Final::Written(out) = written else {
        panic!("a map");
    };
    let request = std::str::from_utf8(&out.request).unwrap();
    assert_eq!(
        request,
        "POST /work?x=1 HTTP/1.1\r\nhost: 127.0.0.1:9000\r\nX-Call-Id: c-1\r\nX-A: 1\r\n\
         via: 1.1 callgate-n1\r\nforwarded: for=192.0.2.9\r\nx-call-attempt: 1\r\n\
         content-length: 0\r\nx-set: ours\r\nauthorization: ours\r\nx-tenant: anonymous\r\n\r\n"
    );
}

#[test]
fn what_is_changed_is_a_map_from_then_on() {
    let head = head("POST / HTTP/1.1", &["Host: h\r\n", "X-A: 1\r\n"], "\r\n");
    let text = Text::of_request(&head, &lines_of(&head)).unwrap();
    let mut fields = Fields::from(text);
    assert_eq!((fields.len(), fields.text().is_some()), (2, true));
    fields.remove("x-a");
    assert!(fields.text().is_none());
    assert_eq!(told(&fields), told(&fields.clone().into_map()));
    assert_eq!(fields.count(), 1);
    assert!(fields.may_tell_of_calls());
}

#[test]
fn a_line_left_out_is_gone_from_the_map_too() {
    let head = head(
        "POST / HTTP/1.1",
        &["Host: h\r\n", "X-Api-Key: k\r\n"],
        "\r\n",
    );
    let mut fields = Fields::from(Text::of_request(&head, &lines_of(&head)).unwrap());
    let name = HeaderName::from_static("x-api-key");
    assert!(fields.contains_key(&name));
    fields.text_mut().unwrap().leave_out(&name);
    assert!(!fields.text().unwrap().has(&name));
    assert!(!fields.contains_key(&name));
}
