//! The gateway's own receipts: `GET /_callgate/receipts/{call_id}`.
//!
//! Answered from memory or the ledger only, in the format a route's `receipt` section expects by
//! default, so that gateways chain without mapping. Deliberately absent: asking a tool.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::GetAll;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::reply::RECEIPTS;
use crate::call::id::{CallId, CallIdError};
use crate::call::time::Wall;
use crate::ledger::record::{Kept, Reply};
use crate::ledger::view::{CallView, SettledBy};
use crate::upstream::headers::is_call_field;

/// The longest wait for the end of a call at its receipt. Proxies on the way give up on a silent
/// answer at about that age.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Everything the gateway answers itself on the callers' listener.
pub(super) const OWN: &str = "/_callgate/";

/// The call id a receipt's address names; `None` when it is no such address.
pub(super) fn call_id_in(path: &str) -> Option<Result<CallId, CallIdError>> {
    let rest = path.strip_prefix(RECEIPTS)?;
    Some(CallId::parse(&percent_decode_str(rest).collect::<Vec<_>>()))
}

/// How long the query asks to wait for the call's end, as far as that is allowed.
///
/// # Errors
/// When it asks for something else than whole seconds.
pub(super) fn wait_in(query: Option<&str>) -> Result<Option<Duration>, ()> {
    let pairs = query.unwrap_or_default().split('&');
    let mut waits = pairs.filter_map(|pair| pair.strip_prefix("wait="));
    let Some(wait) = waits.next() else {
        return Ok(None);
    };
    let digits = !wait.is_empty() && wait.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = wait.parse().map_or(WAIT_MAX, Duration::from_secs);
    digits.then_some(Some(seconds.min(WAIT_MAX))).ok_or(())
}

/// The receipt of `asked`, as JSON: of that call, or of the one whose key this id came with. The
/// end is the first call's then, the name the one that was asked for, since whoever asks compares
/// it. The policy gives a dead letter so many `rounds`. Written without a tree in between, which
/// was half of what a receipt cost.
pub(super) fn document_for(asked: &CallId, call: &CallView, rounds: usize) -> String {
    let settled = call.settled.as_ref();
    let by_operator = settled.is_some_and(|end| end.by == SettledBy::Operator);
    let document = Document {
        call_id: asked.as_str(),
        state: call.state.as_str(),
        route: &call.route,
        attempts: call.sends,
        received_at: At(call.received_at),
        updated_at: At(call.updated_at),
        result: settled.and_then(|end| end.reply.as_ref()).map(Told::of),
        dead_letter: call.dead_letter.as_ref().map(|dead| Letter {
            state: dead.state.as_str(),
            round: dead.round,
            rounds,
            next_retry_time: dead.next_retry_time.map(At),
            reason: &dead.reason,
        }),
        settled_by: by_operator.then_some("operator"),
        original_call_id: (*asked != call.call_id).then(|| call.call_id.as_str()),
    };
    serde_json::to_string(&document).expect("it has text for keys and no own errors")
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    call_id: &'a str,
    state: &'static str,
    route: &'a str,
    attempts: u32,
    received_at: At,
    updated_at: At,
    result: Option<Told<'a>>,
    dead_letter: Option<Letter<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    settled_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    original_call_id: Option<&'a str>,
}

/// The stored answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    status: u16,
    headers: Fields<'a>,
    body: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_encoding: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_sha256: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Letter<'a> {
    state: &'static str,
    round: u32,
    rounds: usize,
    next_retry_time: Option<At>,
    reason: &'a str,
}

/// Header fields; one with several lines is a list, so that a replay keeps them apart.
struct Fields<'a>(&'a HeaderMap);

/// The lines of one field.
struct Lines<'a>(GetAll<'a, HeaderValue>);

/// A time as receipts write it.
struct At(Wall);

impl<'a> Told<'a> {
    fn of(reply: &'a Reply) -> Self {
        let told = Self {
            status: reply.status.as_u16(),
            headers: Fields(&reply.headers),
            body: None,
            body_encoding: None,
            body_bytes: None,
            body_sha256: None,
        };
        match &reply.body {
            Kept::Whole(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self {
                    body: Some(Cow::Borrowed(text)),
                    body_encoding: Some("utf8"),
                    ..told
                },
                Err(_) => Self {
                    body: Some(Cow::Owned(STANDARD.encode(bytes))),
                    body_encoding: Some("base64"),
                    ..told
                },
            },
            Kept::Digest { bytes, sha256 } => Self {
                body_bytes: Some(*bytes),
                body_sha256: sha256.map(|sum| sum.iter().map(|b| format!("{b:02x}")).collect()),
                ..told
            },
        }
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // What a gateway further in says of the call is not the tool's answer.
        let names = self.0.keys().filter(|name| !is_call_field(name));
        serializer.collect_map(names.map(|name| (name.as_str(), Lines(self.0.get_all(name)))))
    }
}

impl Serialize for Lines<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |value: &'_ HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let mut lines = self.0.iter();
        match (lines.next(), lines.next()) {
            (Some(only), None) => {
                serializer.serialize_str(&String::from_utf8_lossy(only.as_bytes()))
            }
            _ => serializer.collect_seq(self.0.iter().map(text)),
        }
    }
}

impl Serialize for At {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match Timestamp::from_millisecond(self.0.0) {
            Ok(at) => serializer.collect_str(&at),
            Err(_) => serializer.serialize_none(),
        }
    }
}

/// A time as receipts write it; a wall clock beyond the calendar has none.
pub(super) fn rfc3339(at: Wall) -> Value {
    Timestamp::from_millisecond(at.0).map_or(Value::Null, |at| Value::String(at.to_string()))
}

#[cfg(test)]
pub(super) mod tests;
