//! A request's head straight from its caller's lines to the tool's, for the first send of an
//! ordinary request without effects.
//!
//! What [`prepare`](super::prepare) and [`stamp`](super::stamp) make of a map, but for the order of
//! the lines and the case of their names; a test compares the two over generated heads. Whatever
//! asks for more than adding lines is left to them.

use bytes::Bytes;
use http::Method;
use http::header::{CONTENT_LENGTH, FORWARDED, HOST, VIA};
use http::uri::PathAndQuery;

use super::{Hop, Mark, announces, client_value};
use crate::call::id::IdSource;
use crate::config::route::HostMode;
use crate::upstream::Tool;
use crate::upstream::fields::{Final, OWN_FIELDS_MAX, Text, Written, put_all, put_line};

/// Room for the lines that are added to every request.
const OWN_BYTES: usize = 320;

/// Lines added whatever the tool: `Host`, the two of the id, the attempt, `Via`, `Forwarded`, the
/// tenant, the length.
const OWN_LINES: usize = 8;

/// The whole request of a first send; `None` when it takes a map to make it.
#[must_use]
pub fn written(
    text: &Text,
    (method, target): (&Method, &PathAndQuery),
    hop: &Hop<'_>,
    mark: &Mark<'_>,
    tool: &Tool,
    body: &Bytes,
) -> Option<Final> {
    let first = mark.attempt == 1 && mark.cause.is_none();
    let plain = first && mark.key.is_none() && mark.traceparent.is_none();
    let own = tool.headers().len() + OWN_LINES <= OWN_FIELDS_MAX;
    let set = tool.headers().keys().chain(tool.tenant_header());
    if !plain || !own || set.into_iter().any(|name| text.has(name)) {
        return None;
    }
    let mut names = text.all(mark.field);
    let named = match (names.next(), names.next()) {
        (Some(named), None) if named == mark.call_id.as_str().as_bytes() => true,
        (None, _) => false,
        (Some(_), _) => return None,
    };
    let announced = text.is_measured();
    if announced && body.is_empty() && !announces(method) {
        return None;
    }
    let (asked, path) = (method.as_str(), target.as_str());
    let room = asked.len() + path.len() + text.room() + OWN_BYTES + body.len();
    let mut out = Vec::with_capacity(room);
    for part in [asked, " ", path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    let from = out.len();
    match tool.host_mode() {
        HostMode::Keep => text.write_request(&mut out, true),
        HostMode::Tool => {
            put_line(&mut out, &HOST, tool.host().as_bytes());
            text.write_request(&mut out, false);
        }
    }
    put_line(&mut out, &VIA, hop.node.via(hop.version).as_bytes());
    put_line(&mut out, &FORWARDED, hop.forwarded.as_bytes());
    if !named {
        put_line(&mut out, mark.field, mark.call_id.as_str().as_bytes());
    }
    if mark.source == IdSource::Gateway {
        out.extend_from_slice(b"x-call-id-source: gateway\r\n");
    }
    out.extend_from_slice(b"x-call-attempt: 1\r\n");
    if !announced && announces(method) {
        put_line(
            &mut out,
            &CONTENT_LENGTH,
            super::number(body.len() as u64).as_bytes(),
        );
    }
    put_all(&mut out, tool.headers());
    if let Some(field) = tool.tenant_header() {
        put_line(&mut out, field, client_value(mark.client).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    let fields = from..out.len();
    out.extend_from_slice(body);
    Some(Final::Written(Written {
        request: out.into(),
        fields,
    }))
}
