//! A tool's receipt in the gateway's words.
//!
//! The order matters: what says that the question itself failed comes first, then whose receipt it
//! is, and only then what it says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, DATE, HeaderName, HeaderValue, SET_COOKIE};
use http::{HeaderMap, StatusCode};
use serde_json::Value;

use super::{Asked, RawAnswer, Why, status_trouble};
use crate::call::code::Code;
use crate::call::id::CallId;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::config::route::{ReceiptRule, ResultPointers, Words};
use crate::config::template::{JsonPointer, Part};
use crate::upstream::json::Json;
use crate::upstream::{Answer, headers};

/// How one route's receipts are read.
pub(super) struct Mapping {
    state: JsonPointer,
    call_id: JsonPointer,
    /// The address names the call by its key, so only the answer can say which call it means.
    needs_call_id: bool,
    states: Words,
    not_found: Vec<StatusCode>,
    result: ResultPointers,
    callgate: bool,
}

impl Mapping {
    pub(super) fn new(rule: &ReceiptRule, callgate: bool) -> Self {
        let by_key = rule.path.names(&Part::IdempotencyKey)
            || rule
                .body
                .as_ref()
                .is_some_and(|body| body.names(&Part::IdempotencyKey));
        Self {
            state: rule.state.clone(),
            call_id: rule.call_id.clone(),
            needs_call_id: by_key,
            states: rule.states.clone(),
            not_found: rule.not_found.clone(),
            result: rule.result.clone(),
            callgate,
        }
    }

    /// Reads a complete answer to a question about `id`.
    pub(super) fn read(&self, id: &CallId, answer: Answer) -> Asked {
        if self.not_found.contains(&answer.status) {
            return self.not_found(id, &answer);
        }
        if let Some(why) = status_trouble(answer.status) {
            return Asked::unknown(why);
        }
        match self.word_of(id, &answer) {
            Err(why) => Asked::unknown(why),
            Ok((word, document)) => match self.states.state(&word) {
                None => Asked::unmapped(&word),
                Some(State::Unknown) => Asked {
                    worked_on: self.is_worked_on(&document),
                    document: Some(answer.body),
                    ..Asked::unknown(Why::Said)
                },
                Some(state) => Asked {
                    worked_on: self.callgate && !state.is_terminal(),
                    answer: RawAnswer::State(state),
                    // What readers would disagree about is not shown as the call's.
                    result: self.result(&document).filter(|_| {
                        let result = &self.result;
                        let parts = [
                            &result.status,
                            &result.headers,
                            &result.body,
                            &result.encoding,
                        ];
                        !is_doubled(&answer.body, &parts)
                    }),
                    document: Some(answer.body),
                    knows_since: None,
                    foreign: None,
                },
            },
        }
    }

    /// The tool's word for the state of this call, and the document it stands in.
    fn word_of(&self, id: &CallId, answer: &Answer) -> Result<(String, Value), Why> {
        if answer.body.trim_ascii().is_empty() {
            return Err(Why::Empty);
        }
        if is_html(answer) {
            return Err(Why::Html);
        }
        let document: Value = serde_json::from_slice(&answer.body).map_err(|_| Why::NotJson)?;
        if is_doubled(&answer.body, &[&self.state, &self.call_id]) {
            return Err(Why::Doubled);
        }
        self.same_call(id, &document)?;
        let word = text_at(&document, &self.state).ok_or(Why::NoState)?;
        Ok((word, document))
    }

    /// Whether another gateway still works on a call of which it does not know the end. (A callgate
    /// writes no name twice.)
    fn is_worked_on(&self, document: &Value) -> bool {
        let state = document
            .pointer("/deadLetter/state")
            .and_then(Value::as_str);
        self.callgate && matches!(state, Some("QUEUED" | "RUNNING"))
    }

    fn same_call(&self, id: &CallId, document: &Value) -> Result<(), Why> {
        match document.pointer(self.call_id.as_str()) {
            None | Some(Value::Null) if self.needs_call_id => Err(Why::NoCallId),
            None | Some(Value::Null) => Ok(()),
            Some(_) => match text_at(document, &self.call_id) {
                Some(theirs) if theirs == id.as_str() => Ok(()),
                Some(_) | None => Err(Why::OtherCall),
            },
        }
    }

    /// A status that means "never heard of it", unless the body shows that something else speaks.
    fn not_found(&self, id: &CallId, answer: &Answer) -> Asked {
        if is_html(answer) {
            return Asked::unknown(Why::Html);
        }
        let document: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let [code, since] =
            ["/code", "/knowsSince"].map(|at| JsonPointer::parse(at).expect("it is one"));
        if is_doubled(&answer.body, &[&self.call_id, &self.state, &code, &since]) {
            return Asked::unknown(Why::Doubled);
        }
        let named = document.as_ref().filter(|document| {
            document
                .pointer(self.call_id.as_str())
                .is_some_and(|said| !said.is_null())
        });
        if let Some(document) = named {
            if text_at(document, &self.call_id).as_deref() != Some(id.as_str()) {
                return Asked::unknown(Why::OtherCall);
            }
            // What knows the state of this very call has heard of it.
            let word = text_at(document, &self.state);
            if word.is_some_and(|word| self.states.state(&word).is_some()) {
                return Asked::unknown(Why::Contradiction);
            }
        }
        let code = document
            .as_ref()
            .and_then(|d| d.get("code"))
            .and_then(Value::as_str);
        let problem = is_problem(answer);
        let ours = problem && code == Some(Code::ReceiptNotFound.as_str());
        // A gateway on the way that has no such route knows nothing about the call; from a
        // callgate nothing but its own word counts.
        if !ours && (self.callgate || (problem && code == Some(Code::NoRoute.as_str()))) {
            return Asked::unknown(Why::OtherNotFound);
        }
        let since = document
            .as_ref()
            .filter(|_| ours)
            .and_then(|d| d.get("knowsSince"));
        let knows_since = match since {
            None => None,
            Some(since) => match since.as_str().and_then(instant) {
                Some(since) => Some(since),
                // A memory whose beginning cannot be read may begin after the call.
                None => return Asked::unknown(Why::OtherNotFound),
            },
        };
        Asked {
            answer: RawAnswer::NotFound,
            result: None,
            document: None,
            knows_since,
            foreign: None,
            worked_on: false,
        }
    }

    /// The result the receipt carries; `None` unless status and body are both there and readable.
    fn result(&self, document: &Value) -> Option<Answer> {
        let status = document.pointer(self.result.status.as_str())?;
        let number = match status {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }?;
        let status = StatusCode::from_u16(u16::try_from(number).ok()?).ok()?;
        let encoding = document
            .pointer(self.result.encoding.as_str())
            .and_then(Value::as_str);
        let body = document.pointer(self.result.body.as_str());
        let (body, is_json) = match body {
            // Kept without its body: an answer without it would be another answer.
            None | Some(Value::Null) if !is_bodiless(status) => return None,
            None | Some(Value::Null) => (Bytes::new(), false),
            Some(Value::String(text)) => match encoding {
                None | Some("utf8" | "utf-8") => (Bytes::from(text.clone()), false),
                Some("base64") => (Bytes::from(STANDARD.decode(text).ok()?), false),
                Some(_) => return None,
            },
            Some(embedded) => (Bytes::from(embedded.to_string()), true),
        };
        let mut headers = self.result_headers(document);
        if is_json && !headers.contains_key(CONTENT_TYPE) {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        Some(Answer {
            status,
            headers: headers.into(),
            body,
            cut: false,
        })
    }

    fn result_headers(&self, document: &Value) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let Some(Value::Object(members)) = document.pointer(self.result.headers.as_str()) else {
            return fields;
        };
        for (name, value) in members {
            let Ok(name) = HeaderName::try_from(name.as_str()) else {
                continue;
            };
            let lines = match value {
                Value::Array(lines) => lines.as_slice(),
                one => std::slice::from_ref(one),
            };
            for line in lines.iter().filter_map(Value::as_str) {
                if let Ok(line) = HeaderValue::try_from(line) {
                    fields.append(name.clone(), line);
                }
            }
        }
        headers::strip_answer(&mut fields);
        for never_replayed in [DATE, SET_COOKIE, http::header::CONTENT_LENGTH] {
            fields.remove(never_replayed);
        }
        fields
    }
}

/// Whether readers would disagree about what stands at one of these places.
fn is_doubled(body: &[u8], at: &[&JsonPointer]) -> bool {
    let json = Json::read(body).ok();
    json.is_some_and(|json| at.iter().any(|at| json.is_doubled(at)))
}

/// A string, number or truth value as text; tools count states in all three.
fn text_at(document: &Value, pointer: &JsonPointer) -> Option<String> {
    match document.pointer(pointer.as_str())? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

const fn is_bodiless(status: StatusCode) -> bool {
    matches!(status.as_u16(), 204 | 205 | 304)
}

fn media_type(answer: &Answer) -> &str {
    let value = answer
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    value.unwrap_or("").split(';').next().unwrap_or("").trim()
}

fn is_problem(answer: &Answer) -> bool {
    media_type(answer).eq_ignore_ascii_case("application/problem+json")
}

/// A web page, by its label or its look: proxies and portals answer with one for every address.
fn is_html(answer: &Answer) -> bool {
    let media = media_type(answer);
    let body = answer.body.trim_ascii_start();
    let begins = |with: &[u8]| {
        body.get(..with.len())
            .is_some_and(|b| b.eq_ignore_ascii_case(with))
    };
    media.eq_ignore_ascii_case("text/html")
        || media.eq_ignore_ascii_case("application/xhtml+xml")
        || begins(b"<!doctype html")
        || begins(b"<html")
        || begins(b"<head")
        || begins(b"<body")
}

fn instant(text: &str) -> Option<Wall> {
    let timestamp: jiff::Timestamp = text.parse().ok()?;
    Some(Wall(timestamp.as_millisecond()))
}
