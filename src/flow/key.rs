//! The idempotency key of a request: the client's own, or derived as its route says.
//!
//! The key names the business operation, so two requests that mean the same must come out with the
//! same key, and what cannot be read for certain is refused instead of guessed. Whose it is and
//! which route it belongs to are columns beside it in the ledger, never part of its text, so that
//! no separator can forge another one's. Deliberately absent: what a taken key means (the ledger).

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_ENCODING;
use http::{HeaderMap, HeaderValue};
use md5::Md5;
use percent_encoding::percent_decode_str;
use sha2::{Digest, Sha256};

use super::dedup::hex;
use super::told::Problem;
use super::window::{Piece, Windowed};
use super::{Request, Route};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::time::Wall;
use crate::config::key_template::{KeyPart, KeyTemplate};
use crate::config::route::KeyHash;
use crate::upstream::json::{Json, Trouble};

/// The longest key, in bytes.
const KEY_BYTES_MAX: usize = 255;

/// A request's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// As it goes to the tool and into the ledger.
    pub(super) text: Arc<str>,
    /// Before it was hashed, for people.
    pub(super) business: Option<Arc<str>>,
    /// Before its windows were filled in, when it has any.
    pub(super) windowed: Option<Windowed>,
}

impl Key {
    /// What is compared between requests with one call id.
    pub(super) fn compared(&self) -> Arc<str> {
        match &self.windowed {
            Some(windowed) => windowed.open(),
            None => Arc::clone(&self.text),
        }
    }
}

/// The key of `request`, if it has one; `now` is when it was first seen, as far as is known yet.
///
/// # Errors
/// The refusal to tell: a key that breaks the rules, a part that is missing, or no key where the
/// route demands one.
pub(super) fn of(request: &Request<Bytes>, now: Wall) -> Result<Option<Key>, Problem> {
    let rule = &request.route.conf.idempotency;
    if let Some(text) = clients(&request.headers, &request.route)? {
        return Ok(Some(Key {
            text: Arc::from(&*text),
            business: None,
            windowed: None,
        }));
    }
    match &rule.key {
        Some(template) => derived(template, request, now).map(Some),
        None if rule.required => Err(required(&request.route)),
        None => Ok(None),
    }
}

/// What is wrong with the key of a request whose body has not come yet, as far as its head tells.
///
/// # Errors
/// The refusal to tell.
pub fn refusal_by_head(headers: &HeaderMap, route: &Route) -> Result<(), Problem> {
    let rule = &route.conf.idempotency;
    let given = clients(headers, route)?;
    if given.is_none() && rule.key.is_none() && rule.required {
        return Err(required(route));
    }
    Ok(())
}

fn required(route: &Route) -> Problem {
    let detail = format!(
        "This route demands an idempotency key. Send one in the field `{}`; use the same one \
         whenever you mean the same operation.",
        route.conf.idempotency.header
    );
    Problem::new(
        Code::IdempotencyKeyRequired,
        detail,
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    )
}

/// The body as the tool gets it: with the key in the field the route names.
///
/// # Errors
/// The refusal to tell: the body cannot take the field.
pub(super) fn in_body(request: &Request<Bytes>, key: &Key) -> Result<Option<Bytes>, Problem> {
    let Some(place) = &request.route.conf.idempotency.send_body else {
        return Ok(None);
    };
    let refuse = |why: &str| {
        refused(format!(
            "The idempotency key cannot be put at `{}` of the body: {why}.",
            place.as_str()
        ))
    };
    if request.headers.contains_key(CONTENT_ENCODING) {
        return Err(refuse("the body is encoded (`Content-Encoding`)"));
    }
    let set = Json::read(&request.body).and_then(|json| json.with(place, &key.text));
    match set {
        Ok(body) => Ok(Some(Bytes::from(body))),
        Err(Trouble::NoJson) => Err(refuse("it is no JSON")),
        Err(Trouble::Missing | Trouble::NoText) => Err(refuse("it has no object there")),
        Err(Trouble::Twice) => Err(refuse("a field on the way stands twice")),
    }
}

fn refused(detail: String) -> Problem {
    Problem::new(
        Code::BadRequest,
        detail,
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    )
}

/// The client's own key: a bare token or an RFC 8941 string.
fn clients<'a>(headers: &'a HeaderMap, route: &Route) -> Result<Option<Cow<'a, str>>, Problem> {
    let field = &route.conf.idempotency.header;
    let mut lines = headers.get_all(field).iter();
    let Some(line) = lines.next() else {
        return Ok(None);
    };
    let key = lines.next().is_none().then(|| unquoted(line)).flatten();
    let key = key.filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    match key {
        Some(key) => Ok(Some(key)),
        None => Err(refused(format!(
            "The field `{field}` is no key. Send one line with 1 to {KEY_BYTES_MAX} bytes of \
             visible ASCII, bare (`k-1`) or as a quoted string (`\"k-1\"`)."
        ))),
    }
}

/// What a bare token or a quoted string says; both forms of a key are the same key.
fn unquoted(line: &HeaderValue) -> Option<Cow<'_, str>> {
    let text = line.to_str().ok()?.trim();
    let Some(quoted) = text.strip_prefix('"') else {
        let bare = |byte: u8| matches!(byte, 0x21..=0x7e) && byte != b',' && byte != b'"';
        return text.bytes().all(bare).then_some(Cow::Borrowed(text));
    };
    let mut said = String::with_capacity(quoted.len());
    let mut rest = quoted.chars();
    loop {
        match rest.next()? {
            '"' => break,
            '\\' => said.push(rest.next().filter(|c| matches!(c, '"' | '\\'))?),
            c @ ' '..='~' => said.push(c),
            _ => return None,
        }
    }
    // Parameters of the string would mean something that is not known here.
    let plain = rest.as_str().is_empty() && said.trim() == said;
    plain.then_some(Cow::Owned(said))
}

fn derived(template: &KeyTemplate, request: &Request, now: Wall) -> Result<Key, Problem> {
    let mut text = String::new();
    let mut pieces = Vec::new();
    // Read once, and only where a part asks for it.
    let mut body = None;
    for part in template.parts() {
        let taken = match part {
            KeyPart::Day | KeyPart::Minute => {
                pieces.push(Piece::Text(Box::from(std::mem::take(&mut text))));
                pieces.push(if *part == KeyPart::Day {
                    Piece::Day
                } else {
                    Piece::Minute
                });
                continue;
            }
            KeyPart::Text(text) => Some(Cow::Borrowed(&**text)),
            KeyPart::Body(place) => body
                .get_or_insert_with(|| Json::read(&request.body))
                .as_ref()
                .ok()
                .and_then(|json| json.word(place).ok()),
            KeyPart::Header(name) => header(&request.headers, name),
            KeyPart::Path(name) => segment(request, name),
            KeyPart::Query(name) => parameter(request.target.query(), name),
        };
        match taken.filter(|taken| !taken.is_empty()) {
            Some(taken) => text.push_str(&taken),
            None => {
                return Err(refused(format!(
                    "The idempotency key of this route is made from `{part}`, which this request \
                     does not have exactly once. Correct the request, or send a key of your own."
                )));
            }
        }
    }
    let rule = &request.route.conf.idempotency;
    if pieces.is_empty() {
        return made(text, rule.hash);
    }
    pieces.push(Piece::Text(Box::from(text)));
    let windowed = Windowed {
        pieces: Arc::from(pieces),
        zone: rule.time_zone.clone(),
        hash: rule.hash,
    };
    windowed.at(now)
}

/// The key that this text makes.
pub(super) fn made(text: String, hash: KeyHash) -> Result<Key, Problem> {
    let hashed = match hash {
        KeyHash::Sha256 => hex(&Sha256::digest(&text)),
        KeyHash::Md5 => hex(&Md5::digest(&text)),
        KeyHash::Plain => plain(&text)?,
    };
    Ok(Key {
        text: Arc::from(hashed),
        business: Some(Arc::from(text)),
        windowed: None,
    })
}

/// A key that is sent as it was derived has to fit into a header field.
fn plain(text: &str) -> Result<String, Problem> {
    let visible = text.bytes().all(|byte| matches!(byte, 0x20..=0x7e)) && text.trim() == text;
    if visible && text.len() <= KEY_BYTES_MAX {
        return Ok(text.to_owned());
    }
    Err(refused(format!(
        "The idempotency key derived from this request is longer than {KEY_BYTES_MAX} bytes or no \
         visible ASCII. Send a key of your own; the route's operator may hash it \
         (`idempotency.hash`)."
    )))
}

fn header<'a>(headers: &'a HeaderMap, name: &http::HeaderName) -> Option<Cow<'a, str>> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.to_str().ok()?;
    lines.next().is_none().then_some(Cow::Borrowed(line.trim()))
}

fn segment<'a>(request: &'a Request, name: &str) -> Option<Cow<'a, str>> {
    let captures = request
        .route
        .conf
        .matcher
        .path
        .captures(request.target.path())?;
    let (_, found) = captures.into_iter().find(|(known, _)| *known == name)?;
    // The captured text lives as long as the request; its name as long as the route.
    let decoded = percent_decode_str(found).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

fn parameter<'a>(query: Option<&'a str>, name: &str) -> Option<Cow<'a, str>> {
    let mut found = query?.split('&').filter_map(|pair| {
        let (known, value) = pair.split_once('=')?;
        (decoded(known)? == name).then_some(value)
    });
    let value = found.next()?;
    if found.next().is_some() {
        return None;
    }
    decoded(value)
}

/// A part of a query as forms write it.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(Cow::Owned(decoded.into_owned()))
}

#[cfg(test)]
mod tests;
