//! The header fields a tool sees, and those of its answer that concern nobody else.
//!
//! Two steps: [`prepare`] once per call (what must not travel goes, this hop's traces come), and
//! [`stamp`] once per send, on its result. Deliberately absent: which fields are secret and which
//! are stored, which is the flow's and the ledger's knowledge.

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::{HeaderMap, Method, Version};

use super::Tool;
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::outcome::Cause;
use crate::config::route::HostMode;

mod node;
mod pause;
mod trailers;
mod written;

pub use node::{Caller, Node};
pub use pause::retry_after;
pub use trailers::Trailers;
pub use written::written;

/// Identity of the call, unless the route names another field.
pub const X_CALL_ID: HeaderName = HeaderName::from_static("x-call-id");
/// Who made the call's id.
pub const X_CALL_ID_SOURCE: HeaderName = HeaderName::from_static("x-call-id-source");
/// Which send this is, from 1.
pub const X_CALL_ATTEMPT: HeaderName = HeaderName::from_static("x-call-attempt");
/// Why it is sent again.
pub const X_CALL_RETRY_CAUSE: HeaderName = HeaderName::from_static("x-call-retry-cause");
/// The call this one undoes.
pub const X_CALL_REVERSES: HeaderName = HeaderName::from_static("x-call-reverses");
/// How a call ended, in a gateway's answer ([`Word`](crate::call::code::Word)).
pub const X_CALL_OUTCOME: HeaderName = HeaderName::from_static("x-call-outcome");
/// Sends so far, in a gateway's answer.
pub const X_CALL_ATTEMPTS: HeaderName = HeaderName::from_static("x-call-attempts");
/// The id under which an operation was first asked for, in a gateway's answer.
pub const X_ORIGINAL_CALL_ID: HeaderName = HeaderName::from_static("x-original-call-id");
/// A gateway answers with what it has stored.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// Which of a caller's wishes a gateway has met (RFC 7240).
pub const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// Which gateway made an error, and why (RFC 9209). Not for the next hop only, whatever its name.
pub const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");
/// The client's name of the business operation, unless the route names another field.
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// W3C trace context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// A caller's wishes for waiting; addressed to the gateway.
pub const PREFER: HeaderName = HeaderName::from_static("prefer");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Where the request came from, as `Via` and `Forwarded` say it.
#[derive(Clone, Debug)]
pub struct Hop<'a> {
    /// This gateway.
    pub node: &'a Node,
    /// The version of the caller's request.
    pub version: Version,
    /// One `Forwarded` element ([`Caller::forwarded`]).
    pub forwarded: HeaderValue,
}

/// What one send says about its call.
#[derive(Clone, Copy, Debug)]
pub struct Mark<'a> {
    /// The route's field for the call id.
    pub field: &'a HeaderName,
    /// The call id, byte for byte.
    pub call_id: &'a CallId,
    /// Whose call it is; told only to a tool that asks for it (`upstream.tenant_header`).
    pub client: &'a ClientName,
    /// Who made it.
    pub source: IdSource,
    /// Which send this is, from 1.
    pub attempt: u32,
    /// Why it is sent again; `None` for a first send.
    pub cause: Option<Cause>,
    /// The idempotency key and its field, when the call has one.
    pub key: Option<(&'a HeaderName, &'a HeaderValue)>,
    /// The trace context, when the gateway made one; `None` leaves the caller's.
    pub traceparent: Option<&'a HeaderValue>,
}

/// How long the body of a send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Collected: exactly this many bytes.
    Known(u64),
    /// A caller's body passed through: its own announcement counts.
    AsAnnounced,
}

/// Once per call: removes what ends at this hop, also what an earlier gateway said about its own
/// sends, and appends this hop's traces.
///
/// `id_field` is the route's field for the call id; a `Connection` field that nominates it, or
/// another field the call needs, does not strip it.
pub fn prepare(headers: &mut HeaderMap, id_field: &HeaderName, hop: Hop<'_>) {
    let is_stale = |name: &HeaderName| is_of_a_send(name) || *name == PROXY_STATUS;
    strip(headers, |name| is_protected(name, id_field), is_stale);
    headers.append(VIA, hop.node.via(hop.version));
    headers.append(FORWARDED, hop.forwarded);
}

/// Once per send, on prepared fields or those of the last send: names the call and the send, sets
/// the body's framing and the `Host`, and last `upstream.headers`.
pub fn stamp(
    headers: &mut HeaderMap,
    mark: &Mark<'_>,
    tool: &Tool,
    method: &Method,
    length: Length,
) {
    // Mostly the caller named the call, and in these very bytes.
    if only_line(headers, mark.field) != Some(mark.call_id.as_str().as_bytes()) {
        headers.insert(mark.field, id_value(mark.call_id));
    }
    if mark.source == IdSource::Gateway {
        let source = HeaderValue::from_static(mark.source.as_str());
        headers.insert(X_CALL_ID_SOURCE, source);
    }
    headers.insert(X_CALL_ATTEMPT, number(u64::from(mark.attempt)));
    if let Some(cause) = mark.cause {
        headers.insert(X_CALL_RETRY_CAUSE, HeaderValue::from_static(cause.as_str()));
    }
    if let Some((field, value)) = mark.key {
        headers.insert(field, value.clone());
    }
    if let Some(trace) = mark.traceparent {
        headers.insert(TRACEPARENT, trace.clone());
    }
    frame(headers, method, length);
    match tool.host_mode() {
        HostMode::Keep if headers.contains_key(HOST) => {}
        HostMode::Tool | HostMode::Keep => {
            headers.insert(HOST, tool.host().clone());
        }
    }
    set_all(headers, tool.headers());
    if let Some(field) = tool.tenant_header() {
        headers.insert(field, client_value(mark.client));
    }
}

/// Adds to a stamped request the wish to switch to the protocol `upgrade` (RFC 9110, 7.8).
pub fn ask_to_switch(headers: &mut HeaderMap, upgrade: &HeaderValue) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, upgrade.clone());
}

/// The protocol a request wishes to switch to, when `Connection` says so too and the name is
/// WebSocket, the only one that is tunnelled.
#[must_use]
pub fn websocket(headers: &HeaderMap) -> Option<&HeaderValue> {
    let mut wishes = headers.get_all(UPGRADE).iter();
    let wish = wishes.next().filter(|_| wishes.next().is_none())?;
    let named = headers.get_all(CONNECTION).iter().flat_map(nominated);
    let asked = named.into_iter().any(|name| name == UPGRADE);
    (asked && wish.as_bytes().eq_ignore_ascii_case(b"websocket")).then_some(wish)
}

/// Whether a message's framing is the one that is undone here (`chunked`, once). A second coding
/// would stay in the bytes while the field that names it ends at this hop (RFC 9112, section 7).
#[must_use]
pub fn coding_is_known(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter();
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(coding), None) => coding.as_bytes().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => false,
    }
}

/// Whether a message is gRPC's.
#[must_use]
pub fn is_grpc(headers: &HeaderMap) -> bool {
    const GRPC: &[u8] = b"application/grpc";
    let media = media_type(headers);
    media
        .get(..GRPC.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(GRPC))
        && matches!(media.get(GRPC.len()), None | Some(b'+'))
}

/// The media type of a message, without its parameters; empty when there is none.
pub(super) fn media_type(headers: &HeaderMap) -> &[u8] {
    let value = headers.get(CONTENT_TYPE).map_or(&b""[..], |v| v.as_bytes());
    let end = value.iter().position(|b| *b == b';').unwrap_or(value.len());
    value[..end].trim_ascii()
}

/// Removes from an answer what concerns only the connection it came on.
pub fn strip_answer(headers: &mut HeaderMap) {
    strip(headers, |_| false, |_| false);
}

/// Whether the gateway answers for this field, so that `upstream.headers` may not set it.
#[must_use]
pub fn is_own(name: &HeaderName) -> bool {
    is_hop_by_hop(name)
        || *name == PROXY_STATUS
        || *name == CONTENT_LENGTH
        || *name == VIA
        || *name == X_CALL_ID
        || *name == X_CALL_ID_SOURCE
        || *name == X_CALL_ATTEMPT
        || *name == X_CALL_RETRY_CAUSE
}

/// Whether a field of an answer is this gateway's own to say to its caller: what it says about the
/// call, about itself, and about wishes of which the tool never hears. One that a tool sends, or a
/// gateway further in, is replaced or dropped, never passed on.
#[must_use]
pub fn is_call_field(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-call-")
        || *name == X_ORIGINAL_CALL_ID
        || *name == IDEMPOTENT_REPLAYED
        || *name == PREFERENCE_APPLIED
        || *name == PROXY_STATUS
}

/// A call id as a field's value.
pub(super) fn id_value(id: &CallId) -> HeaderValue {
    HeaderValue::from_str(id.as_str()).expect("a call id is visible ASCII")
}

/// A client's name as a field's value.
pub(super) fn client_value(client: &ClientName) -> HeaderValue {
    HeaderValue::from_str(client.as_str())
        .expect("a client's name is letters, digits, `.`, `_`, `-`")
}

/// Sets every line of `from`, replacing what was there of the same name.
pub(super) fn set_all(headers: &mut HeaderMap, from: &HeaderMap) {
    for name in from.keys() {
        headers.remove(name);
        for value in from.get_all(name) {
            headers.append(name.clone(), value.clone());
        }
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    *name == CONNECTION
        || *name == TRANSFER_ENCODING
        || *name == TE
        || *name == TRAILER
        || *name == UPGRADE
        || *name == EXPECT
        || *name == PROXY_AUTHENTICATE
        || *name == PROXY_AUTHORIZATION
        || *name == KEEP_ALIVE
        || *name == PREFER
        || *name == HTTP2_SETTINGS
        || (name.as_str().starts_with("proxy-") && *name != PROXY_STATUS)
}

fn is_protected(name: &HeaderName, id_field: &HeaderName) -> bool {
    name == id_field
        || *name == X_CALL_ID
        || *name == IDEMPOTENCY_KEY
        || *name == http::header::AUTHORIZATION
        || *name == TRACEPARENT
        // Framing and the host are not a caller's to strip either.
        || *name == HOST
        || *name == CONTENT_LENGTH
}

/// What [`stamp`] says about one send.
fn is_of_a_send(name: &HeaderName) -> bool {
    *name == X_CALL_ID_SOURCE || *name == X_CALL_ATTEMPT || *name == X_CALL_RETRY_CAUSE
}

/// RFC 9110, section 7.6.1: hop-by-hop fields and those that `Connection` nominates; with them
/// what else `is_stale`.
fn strip(
    headers: &mut HeaderMap,
    is_protected: impl Fn(&HeaderName) -> bool,
    is_stale: impl Fn(&HeaderName) -> bool,
) {
    // Most requests carry none or one of them: look first, then remove.
    let mut gone: Vec<HeaderName> = Vec::new();
    for name in headers.keys() {
        if *name == CONNECTION {
            let lines = headers.get_all(name).iter();
            gone.extend(lines.flat_map(nominated).filter(|name| !is_protected(name)));
        }
        if is_hop_by_hop(name) || is_stale(name) {
            gone.push(name.clone());
        }
    }
    for name in gone {
        headers.remove(name);
    }
}

fn nominated(connection: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let tokens = connection.as_bytes().split(|b| *b == b',');
    // What is no field name nominates nothing; `close` and `keep-alive` name no field either.
    tokens
        .filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
        .filter(|name| name.as_str() != "close" && name.as_str() != "keep-alive")
}

fn frame(headers: &mut HeaderMap, method: &Method, length: Length) {
    let announces = announces(method);
    match length {
        Length::Known(0) if !announces => {
            headers.remove(CONTENT_LENGTH);
        }
        // Mostly it is as long as its caller announced.
        Length::Known(bytes) if announces_exactly(headers, bytes) => {}
        Length::Known(bytes) => {
            headers.insert(CONTENT_LENGTH, number(bytes));
        }
        Length::AsAnnounced if !announces && !headers.contains_key(CONTENT_LENGTH) => {
            // Without this the client would take such a request to have no body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        Length::AsAnnounced => {}
    }
}

/// Whether a request says how long its body is also when there is none.
const fn announces(method: &Method) -> bool {
    !matches!(
        *method,
        Method::GET | Method::HEAD | Method::DELETE | Method::OPTIONS | Method::TRACE
    )
}

/// The bytes of a field that stands exactly once.
fn only_line<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?;
    lines.next().is_none().then(|| line.as_bytes())
}

/// Whether the one `Content-Length` is this number, written as [`number`] would.
pub(super) fn announces_exactly(headers: &HeaderMap, mut n: u64) -> bool {
    let line = only_line(headers, &CONTENT_LENGTH);
    let Some((first, rest)) = line.and_then(<[u8]>::split_first) else {
        return false;
    };
    for digit in rest.iter().rev() {
        if u64::from(digit.wrapping_sub(b'0')) != n % 10 {
            return false;
        }
        n /= 10;
    }
    n < 10 && u64::from(first.wrapping_sub(b'0')) == n && (n > 0 || rest.is_empty())
}

fn number(n: u64) -> HeaderValue {
    match n {
        // The common attempt numbers cost no formatting.
        1 => HeaderValue::from_static("1"),
        2 => HeaderValue::from_static("2"),
        _ => HeaderValue::from(n),
    }
}

#[cfg(test)]
mod tests;
