//! The call id of a request: taken byte for byte or refused, never repaired, never replaced.
//!
//! The input is a head (`name: value` lines), an empty line and a body. The rules are spelled out
//! a second time here, from the contract and not from the code.

use callgate::call::id::IdSource;
use callgate::config::template::JsonPointer;
use callgate::ingress::fuzzing::identified;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

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
    if is_doubtful(body) {
        // Readers differ about such a body; whatever is taken from it must be an id.
        if let Ok(Some((found, _))) = said {
            assert!(is_call_id(found.as_str().as_bytes()));
        }
        return;
    }
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
    if serde_json::from_slice::<Names>(body).is_ok_and(|Names(found)| found > 1) {
        return Err(());
    }
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

/// JSON in form, with a text or number in it that some readers refuse.
fn is_doubtful(body: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(body).is_ok()
        && serde_json::from_slice::<serde_json::Value>(body).is_err()
}

/// How often an object has the name `callId`.
struct Names(usize);

impl<'de> Deserialize<'de> for Names {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Names;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Names, A::Error> {
                let mut found = 0;
                while let Some((name, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    found += usize::from(name == "callId");
                }
                Ok(Names(found))
            }
        }
        deserializer.deserialize_map(Counting)
    }
}

fn is_call_id(bytes: &[u8]) -> bool {
    let visible = |b: &u8| b.is_ascii_graphic() && *b != b',';
    (1..=256).contains(&bytes.len())
        && bytes.iter().all(visible)
        && bytes.iter().any(|b| *b != b'.')
}
