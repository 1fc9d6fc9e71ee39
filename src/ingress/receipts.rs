//! The gateway's own receipts: `GET /_callgate/receipts/{call_id}`.
//!
//! Answered from memory or the ledger only, in the format a route's `receipt` section expects by
//! default, so that gateways chain without mapping. Deliberately absent: asking a tool.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use jiff::Timestamp;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::reply::RECEIPTS;
use crate::call::id::{CallId, CallIdError};
use crate::call::time::Wall;
use crate::ledger::record::{Kept, Reply};
use crate::ledger::view::{CallView, DeadLetter, SettledBy};
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

/// The receipt of `call`, whose policy gives a dead letter so many `rounds`.
pub(super) fn document(call: &CallView, rounds: usize) -> Value {
    let settled = call.settled.as_ref();
    let mut document = json!({
        "callId": call.call_id.as_str(),
        "state": call.state.as_str(),
        "route": &*call.route,
        "attempts": call.sends,
        "receivedAt": rfc3339(call.received_at),
        "updatedAt": rfc3339(call.updated_at),
        "result": settled.and_then(|end| end.reply.as_ref()).map(result),
        "deadLetter": call.dead_letter.as_ref().map(|dead| dead_letter(dead, rounds)),
    });
    if settled.is_some_and(|end| end.by == SettledBy::Operator) {
        document["settledBy"] = Value::from("operator");
    }
    document
}

/// The receipt of `asked`, an id that came with the key of `call`: the end is the first call's, the
/// name the one that was asked for, since whoever asks compares it.
pub(super) fn document_for(asked: &CallId, call: &CallView, rounds: usize) -> Value {
    let mut document = document(call, rounds);
    if *asked != call.call_id {
        document["callId"] = Value::from(asked.as_str());
        document["originalCallId"] = Value::from(call.call_id.as_str());
    }
    document
}

/// A time as receipts write it; a wall clock beyond the calendar has none.
pub(super) fn rfc3339(at: Wall) -> Value {
    Timestamp::from_millisecond(at.0).map_or(Value::Null, |at| Value::String(at.to_string()))
}

fn result(reply: &Reply) -> Value {
    let mut result = json!({ "status": reply.status.as_u16(), "headers": headers(&reply.headers) });
    match &reply.body {
        Kept::Whole(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => {
                result["body"] = Value::from(text);
                result["bodyEncoding"] = Value::from("utf8");
            }
            Err(_) => {
                result["body"] = Value::String(STANDARD.encode(bytes));
                result["bodyEncoding"] = Value::from("base64");
            }
        },
        Kept::Digest { bytes, sha256 } => {
            let hex: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
            result["body"] = Value::Null;
            result["bodyBytes"] = Value::from(*bytes);
            result["bodySha256"] = Value::String(hex);
        }
    }
    result
}

/// A field with several lines is a list, so that a replay keeps them apart.
fn headers(headers: &HeaderMap) -> Value {
    let mut members = Map::new();
    // What a gateway further in says of the call is not the tool's answer.
    for name in headers.keys().filter(|name| !is_call_field(name)) {
        let text = |value: &http::HeaderValue| {
            Value::String(String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let mut lines: Vec<_> = headers.get_all(name).iter().map(text).collect();
        let value = if lines.len() == 1 {
            lines.remove(0)
        } else {
            Value::Array(lines)
        };
        members.insert(name.as_str().to_owned(), value);
    }
    Value::Object(members)
}

fn dead_letter(dead: &DeadLetter, rounds: usize) -> Value {
    json!({
        "state": dead.state.as_str(),
        "round": dead.round,
        "rounds": rounds,
        "nextRetryTime": dead.next_retry_time.map(rfc3339),
        "reason": &*dead.reason,
    })
}

#[cfg(test)]
pub(super) mod tests;
