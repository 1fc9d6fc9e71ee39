//! A request as far as the plain server reads it: the head, and a body that is there with it.
//!
//! What is not plain is not judged here: [`Parsed::Odd`] says only that hyper has to.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::{Method, Uri, Version};

use crate::ingress::answer::Head;
use crate::upstream::fields::{Fields, Text};
use crate::upstream::lines::{self, FIELDS_MAX, Lines};

/// The longest request read here, body included.
pub(super) const BYTES_MAX: usize = 64 * 1024;

/// Fields that are stamped on the way to the tool.
const OWN_FIELDS: usize = 12;

/// The least room of a map of fields.
const ROOM: usize = 24;

/// A request, and the bytes it was.
pub(super) struct Asked {
    pub(super) head: Box<Head>,
    pub(super) body: Bytes,
    pub(super) bytes: Bytes,
}

/// What the bytes are so far.
pub(super) enum Parsed {
    /// Nothing, or the beginning of a head.
    Partial,
    /// A head, and the beginning of its body: whole, the request has so many bytes.
    Short(usize),
    /// Nothing for this server.
    Odd,
    /// A request of so many bytes.
    Whole(Found),
}

/// Why there is no request yet.
enum Trouble {
    /// It is not plain.
    Strange,
    /// Its body is not all there.
    Short(usize),
}

use Trouble::{Short, Strange};

/// A request in a buffer.
pub(super) struct Found {
    /// Where its body begins.
    head: usize,
    /// Where the next request does.
    pub(super) whole: usize,
    method: Method,
    /// Where the target lies.
    target: (usize, usize),
}

/// Looks for a request at the front of `buffer`, of which the first `looked` bytes are no whole
/// head.
pub(super) fn find(buffer: &[u8], looked: usize, lines: &mut Lines) -> Parsed {
    if buffer.is_empty() {
        return Parsed::Partial;
    }
    match found(buffer, looked, lines) {
        Ok(Some(found)) => Parsed::Whole(found),
        Ok(None) if buffer.len() < BYTES_MAX => Parsed::Partial,
        Err(Short(whole)) => Parsed::Short(whole),
        Ok(None) | Err(Strange) => Parsed::Odd,
    }
}

fn found(buffer: &[u8], looked: usize, lines: &mut Lines) -> Result<Option<Found>, Trouble> {
    if !lines::may_be_whole(buffer, looked) {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut []);
    let parsed = head.parse_with_uninit_headers(buffer, &mut fields);
    let bytes = match parsed.map_err(|_| Strange)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(bytes) => bytes,
    };
    let (Some(method), Some(target), Some(1)) = (head.method, head.path, head.version) else {
        return Err(Strange);
    };
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| Strange)?;
    let long = bytes > lines::HEAD_BYTES_MAX;
    if long || matches!(method, Method::HEAD | Method::CONNECT) {
        return Err(Strange);
    }
    lines.note(buffer, head.headers);
    let body = body(buffer, lines).ok_or(Strange)?;
    let whole = bytes + usize::try_from(body).map_err(|_| Strange)?;
    if whole > buffer.len() {
        return Err(if whole <= BYTES_MAX {
            Short(whole)
        } else {
            Strange
        });
    }
    let at = target.as_ptr() as usize - buffer.as_ptr() as usize;
    Ok(Some(Found {
        head: bytes,
        whole,
        method,
        target: (at, at + target.len()),
    }))
}

/// How long the body is; `None` when that is not plain, or something else is not.
fn body(head: &[u8], lines: &Lines) -> Option<u64> {
    let mut length = None;
    for (name, value) in lines.iter(head) {
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match name.len() {
            14 if is("content-length") => {
                if length.is_some() {
                    return None;
                }
                length = Some(lines::length(value)?);
            }
            10 if is("connection") && !value.eq_ignore_ascii_case(b"keep-alive") => return None,
            6 if is("expect") => return None,
            7 if is("upgrade") => return None,
            17 if is("transfer-encoding") => return None,
            _ => {}
        }
    }
    Some(length.unwrap_or(0))
}

impl Found {
    /// The request; `bytes` are those it was found in, and no more. `None`: its target is none.
    pub(super) fn take(self, lines: &Lines, bytes: Bytes) -> Option<Asked> {
        let uri = Uri::from_maybe_shared(bytes.slice(self.target.0..self.target.1)).ok()?;
        let head = bytes.slice(..self.head);
        let text = match uri.authority() {
            None => Text::of_request(&head, lines).map(Fields::from),
            // The host of the target counts then, and takes the field's place.
            Some(_) => None,
        };
        let headers = match text {
            Some(text) => text,
            None => lines.collect(&head, OWN_FIELDS, ROOM)?.into(),
        };
        let head = Box::new(Head {
            method: self.method,
            uri,
            version: Version::HTTP_11,
            headers,
        });
        let body = bytes.slice(self.head..);
        Some(Asked { head, body, bytes })
    }
}

/// A request off the front of `buffer`, which is as it was if there is none.
pub(super) fn take(buffer: &mut BytesMut, found: Found, lines: &Lines) -> Option<Asked> {
    let whole = found.whole;
    let asked = found.take(lines, Bytes::copy_from_slice(&buffer[..whole]))?;
    bytes::Buf::advance(buffer, whole);
    Some(asked)
}
