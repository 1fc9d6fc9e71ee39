//! What a request's head proves: its host and its call id.
//!
//! Past this file no raw string names a call. An id is taken byte for byte or refused; one that is
//! there and unreadable is never replaced by a new one. Deliberately absent: clients' keys, which
//! the door knows, and the fields that go to the tool, which `upstream` writes.

use http::header::{HOST, HeaderName};
use http::uri::Authority;
use http::{Uri, Version};

use crate::call::id::{CallId, CallIdError, IdSource};
use crate::call::time::Wall;
use crate::config::template::JsonPointer;
use crate::entropy::Minter;
use crate::telemetry::log::escaped;
use crate::upstream::fields::Fields;
use crate::upstream::headers::X_CALL_ID_SOURCE;
use crate::upstream::json::{Json, Trouble};

/// Why a request names its call badly. The caller's fault each time; nothing was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum IdProblem {
    /// More than one line.
    Twice,
    /// The value in the header breaks the rules.
    Header(CallIdError, String),
    /// The value in the body breaks the rules.
    Body(CallIdError, String),
    /// Readers of the body would disagree about which id it carries.
    TwiceInBody,
    /// The body carries something there that is no string.
    NoString,
    /// Header and body name two calls.
    Disagree,
}

/// The host a request is for: the target's, or the `Host` field.
pub(super) fn host<'a>(uri: &'a Uri, headers: &'a Fields) -> Option<&'a str> {
    if let Some(authority) = uri.authority() {
        return Some(authority.as_str());
    }
    match headers.text() {
        Some(text) => std::str::from_utf8(text.host())
            .ok()
            .filter(|host| host.is_ascii()),
        None => headers.get(HOST)?.to_str().ok(),
    }
}

/// Whether the `Host` field is there as often as HTTP/1 demands, and names a host (RFC 9112,
/// section 3.2).
pub(super) fn host_is_sound(version: Version, headers: &Fields) -> bool {
    if let Some(text) = headers.text() {
        return is_host(text.host());
    }
    let mut lines = headers.get_all(HOST).iter();
    match (lines.next(), lines.next()) {
        (Some(host), None) => is_host(host.as_bytes()),
        (None, _) => version != Version::HTTP_11,
        (Some(_), Some(_)) => false,
    }
}

/// Whether a field names a host, perhaps with a port; it may be empty. The plain names of nearly
/// all requests are told by their letters, others by the library that reads targets.
fn is_host(field: &[u8]) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if field.iter().copied().all(is_plain) {
        return true;
    }
    let Ok(text) = std::str::from_utf8(field) else {
        return false;
    };
    let (name, port) = match text.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (text, None),
    };
    if name.bytes().all(is_plain) {
        let fits = |port: &str| port.is_empty() || port.parse::<u16>().is_ok();
        return port.is_none_or(|port| !name.is_empty() && !port.starts_with('+') && fits(port));
    }
    // A port that is no number of 16 bits is none to the library, and stays unread in the text.
    Authority::try_from(text).is_ok_and(|read| {
        let port = read.port_u16().is_some() || text.ends_with(read.host());
        port && !text.contains('@')
    })
}

/// The call id in the head, and who made it.
pub(super) fn from_headers(
    headers: &Fields,
    name: &HeaderName,
) -> Result<Option<(CallId, IdSource)>, IdProblem> {
    let parsed =
        |value: &[u8]| CallId::parse(value).map_err(|why| IdProblem::Header(why, escaped(value)));
    if let Some(text) = headers.text() {
        let mut lines = text.all(name);
        return match (lines.next(), lines.next()) {
            (None, _) => Ok(None),
            // An ordinary head says nothing of who made it.
            (Some(value), None) => Ok(Some((parsed(value)?, IdSource::Client))),
            (Some(_), Some(_)) => Err(IdProblem::Twice),
        };
    }
    let mut lines = headers.get_all(name).iter();
    let Some(value) = lines.next() else {
        return Ok(None);
    };
    if lines.next().is_some() {
        return Err(IdProblem::Twice);
    }
    let id = parsed(value.as_bytes())?;
    let by_gateway = headers
        .get(&X_CALL_ID_SOURCE)
        .is_some_and(|source| source == "gateway");
    let source = if by_gateway {
        IdSource::Gateway
    } else {
        IdSource::Client
    };
    Ok(Some((id, source)))
}

/// The call id in a JSON body, if it carries one. A body that is no JSON carries none.
pub(super) fn from_body(body: &[u8], pointer: &JsonPointer) -> Result<Option<CallId>, IdProblem> {
    let text = match Json::read(body).and_then(|json| json.text(pointer)) {
        Ok(text) => text,
        Err(Trouble::NoJson | Trouble::Missing) => None,
        Err(Trouble::NoText) => return Err(IdProblem::NoString),
        Err(Trouble::Twice) => return Err(IdProblem::TwiceInBody),
    };
    let Some(id) = text else {
        return Ok(None);
    };
    let id = id.as_bytes();
    CallId::parse(id)
        .map(Some)
        .map_err(|why| IdProblem::Body(why, escaped(id)))
}

/// The one id that header and body agree on.
pub(super) fn agree(
    header: Option<(CallId, IdSource)>,
    body: Option<CallId>,
) -> Result<Option<(CallId, IdSource)>, IdProblem> {
    match (header, body) {
        (Some((header, _)), Some(body)) if header != body => Err(IdProblem::Disagree),
        (None, body) => Ok(body.map(|id| (id, IdSource::Client))),
        (header, _) => Ok(header),
    }
}

/// An id for a call that came without one.
pub(super) fn make(minter: &Minter, prefix: &str, at: Wall) -> (CallId, IdSource) {
    (minter.mint(prefix, at), IdSource::Gateway)
}

impl IdProblem {
    /// The sentence a caller reads.
    pub(super) fn detail(&self, name: &HeaderName) -> String {
        match self {
            Self::Twice => format!("The field {name} stands more than once. Send exactly one."),
            Self::Header(why, value) => format!(
                "The field {name} cannot be used: {why} (it was `{value}`). Send 1 to 256 bytes \
                 of visible ASCII without a comma, or leave it out."
            ),
            Self::Body(why, value) => format!(
                "The call id in the body cannot be used: {why} (it was `{value}`). Send 1 to 256 \
                 bytes of visible ASCII without a comma, or leave it out."
            ),
            Self::TwiceInBody => "A name on the way to the call id stands twice in the body, so \
                                  it may carry two. Send each name once."
                .to_owned(),
            Self::NoString => "The body carries a call id that is no string. Send a string, or \
                               leave it out."
                .to_owned(),
            Self::Disagree => format!(
                "The field {name} and the body name two different calls. Send the same id in \
                 both, or in one of them."
            ),
        }
    }
}

#[cfg(test)]
mod tests;
