//! The answer of a receipt endpoint: what is not a sound answer for exactly this call is UNKNOWN.
//!
//! The input is a line `rule status`, header lines, an empty line and the body. Whatever is said
//! about the call must be found in the document again, read here without the code's help.

use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use callgate::call::id::CallId;
use callgate::call::receipt::State;
use callgate::config::ReceiptRule;
use callgate::upstream::Answer;
use callgate::upstream::receipt::{Asked, RawAnswer, Why, fuzzing};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

const ID: &str = "call-1";

/// Three ways to be asked: the gateway's own format, a tool with words of its own, and by key.
const ROUTES: &str = r#"
routes:
  - name: plain
    upstream: { url: "http://tool" }
    receipt: {}
  - name: mapped
    upstream: { url: "http://tool" }
    receipt:
      url: /q/{call_id}
      state: /data/0/st
      call_id: /data/0/id
      states: { SUCCESS: [OK, "0", "true"], FAILED: [KO, "1"], PROCESSING: ["2"], RECEIVED: ["3"] }
      not_found: [404, 410]
      result: { status: /r/s, headers: /r/h, body: /r/b, encoding: /r/e }
  - name: keyed
    upstream: { url: "http://tool" }
    receipt: { url: "/q/{idempotency_key}" }
"#;

static RULES: LazyLock<Vec<ReceiptRule>> = LazyLock::new(|| {
    let config = callgate::config::parse(ROUTES, "routes", Path::new(""), &|_| None);
    let config = config.unwrap_or_else(|report| panic!("{report}"));
    config
        .routes
        .iter()
        .filter_map(|route| route.receipt.clone())
        .collect()
});

/// One question's circumstances.
struct Case<'a> {
    rule: &'a ReceiptRule,
    callgate: bool,
    needs_call_id: bool,
    status: StatusCode,
    body: Bytes,
}

/// Reads `data` as an answer and checks that no more is said than it holds.
pub(super) fn check(data: &[u8]) {
    let Some((case, headers)) = case(data) else {
        return;
    };
    let id = CallId::parse(ID.as_bytes()).expect("a call id");
    let answer = Answer {
        status: case.status,
        headers: headers.into(),
        body: case.body.clone(),
        cut: false,
    };
    let asked = fuzzing::read(case.rule, case.callgate, &id, answer);
    let document = serde_json::from_slice(&case.body).ok();
    match asked.answer {
        RawAnswer::Unknown(why) => {
            // A tool's own UNKNOWN comes with its receipt.
            let says = why == Why::Said && asked.document.as_ref() == Some(&case.body);
            assert!(
                asked.result.is_none() && (says || asked.document.is_none()),
                "{why:?} carries something"
            );
        }
        RawAnswer::NotFound => not_found(&case, &asked, document.as_ref()),
        RawAnswer::State(state) => known(&case, &asked, state, document.as_ref()),
    }
    let cut = asked
        .foreign
        .as_ref()
        .is_none_or(|word| word.chars().count() <= 48);
    assert!(cut, "an unmapped word is not cut");
}

fn not_found(case: &Case<'_>, asked: &Asked, document: Option<&Value>) {
    assert!(
        case.rule.not_found.contains(&case.status),
        "NOT_FOUND from {}",
        case.status
    );
    assert!(asked.result.is_none() && asked.document.is_none());
    let begins = case.body.trim_ascii_start().to_ascii_lowercase();
    assert!(!begins.starts_with(b"<!doctype html") && !begins.starts_with(b"<html"));
    if let Some(named) = document.and_then(|d| d.pointer(case.rule.call_id.as_str())) {
        assert!(
            named.is_null() || word(named).as_deref() == Some(ID),
            "about {named}"
        );
    }
    assert!(asked.knows_since.is_none() || document.is_some());
    if case.callgate {
        let code = document.and_then(|d| d.get("code")).and_then(Value::as_str);
        assert_eq!(
            code,
            Some("receipt-not-found"),
            "a callgate's NOT_FOUND is its own word"
        );
    }
}

fn known(case: &Case<'_>, asked: &Asked, state: State, document: Option<&Value>) {
    assert_ne!(state, State::Unknown);
    assert!(case.status.is_success(), "a state from {}", case.status);
    let document = document.expect("a state comes from JSON");
    assert_eq!(asked.document.as_ref(), Some(&case.body));
    match document.pointer(case.rule.call_id.as_str()) {
        None | Some(Value::Null) => assert!(!case.needs_call_id, "nobody said which call"),
        Some(named) => assert_eq!(word(named).as_deref(), Some(ID)),
    }
    let said = document.pointer(case.rule.state.as_str()).and_then(word);
    let said = said.expect("the state stands where the rule points");
    assert_eq!(case.rule.states.state(&said), Some(state));
    if let Some(result) = &asked.result {
        let status = document
            .pointer(case.rule.result.status.as_str())
            .and_then(word);
        let status = status.and_then(|word| word.parse::<u16>().ok());
        assert_eq!(status, Some(result.status.as_u16()));
        for never in [
            "set-cookie",
            "date",
            "content-length",
            "connection",
            "transfer-encoding",
        ] {
            assert!(
                !result.headers.contains_key(never),
                "{never} would be replayed"
            );
        }
    }
}

fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn case(data: &[u8]) -> Option<(Case<'static>, HeaderMap)> {
    let end = data.windows(2).position(|two| two == b"\n\n")?;
    let (head, body) = (&data[..end], &data[end + 2..]);
    let mut lines = head.split(|b| *b == b'\n');
    let first = std::str::from_utf8(lines.next()?).ok()?;
    let (rule, status) = first.split_once(' ')?;
    let (rule, callgate) = match rule {
        "plain" => (0, false),
        "callgate" => (0, true),
        "mapped" => (1, false),
        "keyed" => (2, false),
        _ => return None,
    };
    // Below 200 no exchange ends.
    let status = status.parse::<u16>().ok().filter(|n| *n >= 200)?;
    let mut headers = HeaderMap::new();
    for line in lines.take(100) {
        let colon = line.iter().position(|b| *b == b':')?;
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii()).ok()?;
        headers.append(HeaderName::from_bytes(&line[..colon]).ok()?, value);
    }
    let case = Case {
        rule: &RULES[rule],
        callgate,
        needs_call_id: rule == 2,
        status: StatusCode::from_u16(status).ok()?,
        body: Bytes::copy_from_slice(body),
    };
    Some((case, headers))
}
