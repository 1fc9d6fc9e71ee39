//! What an alert says, and how it is signed.
//!
//! The signature is HMAC-SHA256 over the time, a dot, and the body's bytes as they are sent:
//! `X-Callgate-Signature: t=<seconds since 1970>,v1=<hex>`. The time is part of what is signed, so
//! that an old alert cannot be played again.

use std::fmt::Write as _;

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use serde_json::json;
use sha2::Sha256;

use crate::call::alert::Event;
use crate::call::time::Wall;
use crate::config::alert::SigningKey;
use crate::ledger::alert::Note;

const NAME: HeaderName = HeaderName::from_static("x-callgate-alert");
const SIGNATURE: HeaderName = HeaderName::from_static("x-callgate-signature");

/// An alert as it is sent.
pub(super) struct Letter {
    name: String,
    pub(super) body: Bytes,
}

/// The alert of a note, told at `at` by the gateway `node`.
pub(super) fn write(node: &str, note: &Note, at: Wall) -> Letter {
    let (route, event) = (&*note.route, note.event.as_str());
    // The same for every try of one alert, and for no other alert of this ledger.
    let name = format!("{route}-{event}-{}-{}", note.told + 1, note.since.0);
    let calls = note
        .examples
        .iter()
        .map(|example| json!({ "callId": example.call_id.as_str(), "reason": &*example.reason }));
    let document = json!({
        "id": &name,
        "event": event,
        "route": route,
        "node": node,
        "at": rfc3339(at),
        "since": rfc3339(note.since),
        "count": note.standing.waiting,
        "suppressed": note.held,
        "calls": calls.collect::<Vec<_>>(),
        "text": text(note),
    });
    Letter {
        name,
        body: Bytes::from(document.to_string()),
    }
}

/// One sentence for people, with the next action.
fn text(note: &Note) -> String {
    let (route, count) = (&*note.route, note.standing.waiting);
    let one = count == 1;
    let calls = if one { "call" } else { "calls" };
    let (wait, were) = if one {
        ("waits", "was")
    } else {
        ("wait", "were")
    };
    match note.event {
        Event::Manual => format!(
            "{count} {calls} of route {route} could not be settled and {wait} for a human: \
             callgate dead list --state MANUAL --route {route}"
        ),
        Event::Reversed => format!(
            "{count} {calls} of route {route} stayed unclear and {were} undone: callgate dead list \
             --state REVERSED --route {route}"
        ),
        Event::Difference => format!(
            "the tool of route {route} contradicted what was recorded, {count} time(s); nothing \
             was changed: callgate why CALL_ID"
        ),
        Event::OldestOver => format!(
            "the oldest unresolved call of route {route} is older than it may be: callgate dead \
             list --route {route}"
        ),
    }
}

impl Letter {
    /// The fields it goes out with; signed when there is a key.
    pub(super) fn fields(&self, key: Option<&SigningKey>, at: Wall) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(2);
        let mut put = |name: HeaderName, value: &str| {
            // Route names and hexadecimal digits are visible ASCII.
            if let Ok(value) = HeaderValue::from_str(value) {
                fields.insert(name, value);
            }
        };
        put(NAME, &self.name);
        if let Some(key) = key {
            put(SIGNATURE, &sign(key.reveal(), at, &self.body));
        }
        fields
    }
}

fn sign(key: &[u8], at: Wall, body: &[u8]) -> String {
    let seconds = at.0.div_euclid(1_000);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(format!("{seconds}.").as_bytes());
    mac.update(body);
    let mut signature = format!("t={seconds},v1=");
    for byte in mac.finalize().into_bytes() {
        write!(signature, "{byte:02x}").expect("a String takes every write");
    }
    signature
}

/// RFC 3339 in UTC; a reading outside the calendar is shown as its milliseconds.
fn rfc3339(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |t| format!("{t:.3}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of docs/operations.md: `printf '1764500000.{"id":"x"}' | openssl dgst -sha256
    /// -hmac callgate-test-secret`.
    #[test]
    fn the_signature_is_the_documented_one() {
        let at = Wall(1_764_500_000_999);
        let signed = sign(b"callgate-test-secret", at, b"{\"id\":\"x\"}");
        let expected = "4b6ee6cb206eb810aed96ba58837969e2b7f0acad6195e1838ff09c2d071d62b";
        assert_eq!(signed, format!("t=1764500000,v1={expected}"));
    }
}
