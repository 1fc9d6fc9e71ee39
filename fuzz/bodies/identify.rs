//! The call id of a request: taken byte for byte or refused, never repaired, never replaced.
//!
//! The input is a head (`name: value` lines), an empty line and a body. The rules are spelled out
//! a second time here, from the contract and not from the code.

use callgate::call::id::IdSource;
use callgate::config::template::JsonPointer;
use callgate::ingress::fuzzing::identified;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

const FIELD: HeaderName = HeaderName::from_static("x-call-id");
const SOURCE: HeaderName = HeaderName::from_static("x-call-id-source");

/// Reads `data` as a request and compares the verdict with the contract's.
pub(super) fn check(data: &[u8]) {
    let (head, body) = split(data);
    let headers = fields(head);
    let pointer = JsonPointer::parse("/callId").expect("a sound pointer");
    let said = identified(&headers, &FIELD, body, &pointer);
    let in_head: Vec<&[u8]> = headers
        .get_all(FIELD)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    match (expected(&in_head, body), said) {
        (Err(()), Err(sentence)) => {
            // It goes into an answer and a log line.
            assert!(!sentence.is_empty() && sentence.len() < 4096, "{sentence}");
            assert!(!sentence.contains(char::is_control), "{sentence:?}");
        }
        (Ok(None), Ok(None)) => {}
        (Ok(Some(id)), Ok(Some((found, source)))) => {
            assert_eq!(found.as_str().as_bytes(), id, "not byte for byte");
            let tagged = headers.get(SOURCE).is_some_and(|v| v == "gateway");
            let by_gateway = tagged && !in_head.is_empty();
            assert_eq!(source == IdSource::Gateway, by_gateway);
        }
        (expected, said) => panic!("expected {expected:?}, got {said:?}"),
    }
}

fn split(data: &[u8]) -> (&[u8], &[u8]) {
    match data.windows(2).position(|two| two == b"\n\n") {
        Some(at) => (&data[..at], &data[at + 2..]),
        None => (data, b""),
    }
}

/// What the HTTP library would let through.
fn fields(head: &[u8]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for line in head.split(|b| *b == b'\n').take(100) {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        let value = line[colon + 1..].trim_ascii();
        let (name, value) = (
            HeaderName::from_bytes(&line[..colon]),
            HeaderValue::from_bytes(value),
        );
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    headers
}

fn expected(in_head: &[&[u8]], body: &[u8]) -> Result<Option<Vec<u8>>, ()> {
    let in_head = match in_head {
        [] => None,
        [one] if is_call_id(one) => Some(one.to_vec()),
        [_] | [_, _, ..] => return Err(()),
    };
    let document: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let in_body = match document.as_ref().and_then(|d| d.get("callId")) {
        None | Some(serde_json::Value::Null) => None,
        Some(serde_json::Value::String(id)) if is_call_id(id.as_bytes()) => {
            Some(id.as_bytes().to_vec())
        }
        Some(_) => return Err(()),
    };
    match (in_head, in_body) {
        (Some(head), Some(body)) if head != body => Err(()),
        (head, body) => Ok(head.or(body)),
    }
}

fn is_call_id(bytes: &[u8]) -> bool {
    let visible = |b: &u8| b.is_ascii_graphic() && *b != b',';
    (1..=256).contains(&bytes.len())
        && bytes.iter().all(visible)
        && bytes.iter().any(|b| *b != b'.')
}
