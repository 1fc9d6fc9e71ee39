//! The head of an answer, as far as the plain client reads it.
//!
//! What is not plain is not judged here: [`Parsed::Odd`] says only that hyper has to.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, StatusCode};

use crate::upstream::lines::{self, FIELDS_MAX, Lines};

/// The longest answer head taken, in bytes; common servers send at most 8-16 KiB.
pub(in crate::upstream) const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Fields that the gateway adds to an answer.
const OWN_FIELDS: usize = 5;

/// The least room: hyper reads the caller's next request into the same map, and the fields that a
/// hop adds to an ordinary one find room there too.
const ROOM: usize = 24;

/// A head that was read completely.
pub(in crate::upstream) struct Head {
    /// 200..=999.
    pub(in crate::upstream) status: StatusCode,
    /// Every field, as it came.
    pub(in crate::upstream) headers: HeaderMap,
    /// How long the body is.
    pub(super) length: u64,
    /// The tool ends the connection after this answer.
    pub(super) last: bool,
}

/// What the bytes are so far.
pub(super) enum Parsed {
    /// The beginning of a head.
    Partial,
    /// Nothing for this client; the buffer is as it was.
    Odd,
    /// A head; its bytes were taken out of the buffer.
    Whole(Head),
}

/// A head in a buffer.
struct Found {
    bytes: usize,
    status: StatusCode,
}

/// Reads a head off the front of `buffer`, of which the first `looked` bytes are no whole head.
/// `head_only`: the answer is to a HEAD.
pub(super) fn parse(buffer: &mut BytesMut, looked: usize, head_only: bool) -> Parsed {
    // Kept here, because it is large and a result would be copied.
    let mut lines = Lines::default();
    let found = match find(buffer, looked, &mut lines) {
        Ok(Some(found)) => found,
        Ok(None) if buffer.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(None) | Err(Strange) => return Parsed::Odd,
    };
    let bodiless = head_only || matches!(found.status.as_u16(), 204 | 304);
    let Some((length, last)) = framing(buffer, &lines, bodiless) else {
        return Parsed::Odd;
    };
    let head = buffer.split_to(found.bytes).freeze();
    match lines.collect(&head, OWN_FIELDS, ROOM) {
        Some(headers) => Parsed::Whole(Head {
            status: found.status,
            headers,
            length,
            last,
        }),
        None => {
            let mut whole = BytesMut::from(head);
            whole.extend_from_slice(buffer);
            *buffer = whole;
            Parsed::Odd
        }
    }
}

/// Not plain.
struct Strange;

fn find(buffer: &[u8], looked: usize, lines: &mut Lines) -> Result<Option<Found>, Strange> {
    if !lines::may_be_whole(buffer, looked) {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut []);
    let parser = httparse::ParserConfig::default();
    let parsed = parser.parse_response_with_uninit_headers(&mut head, buffer, &mut fields);
    let bytes = match parsed.map_err(|_| Strange)? {
        httparse::Status::Partial => return Ok(None),
        httparse::Status::Complete(bytes) => bytes,
    };
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    match status {
        Some(status)
            if head.version == Some(1) && !status.is_informational() && bytes <= HEAD_BYTES_MAX =>
        {
            lines.note(buffer, head.headers);
            Ok(Some(Found { bytes, status }))
        }
        Some(_) | None => Err(Strange),
    }
}

/// The length of the body and whether the connection ends after it; `None` when that is not plain.
fn framing(head: &[u8], lines: &Lines, bodiless: bool) -> Option<(u64, bool)> {
    let mut length = None;
    let mut last = false;
    for (name, value) in lines.iter(head) {
        if name.eq_ignore_ascii_case(CONTENT_LENGTH.as_str().as_bytes()) {
            if length.is_some() {
                return None;
            }
            length = Some(lines::length(value)?);
        } else if name.eq_ignore_ascii_case(CONNECTION.as_str().as_bytes()) {
            if !value.is_ascii() {
                return None;
            }
            last |= has_close(value);
        } else if name.eq_ignore_ascii_case(TRANSFER_ENCODING.as_str().as_bytes()) {
            return None;
        }
    }
    if bodiless {
        return Some((0, last));
    }
    Some((length?, last))
}

fn has_close(connection: &[u8]) -> bool {
    let mut tokens = connection.split(|b| *b == b',');
    tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"))
}
