//! The head of an answer, as far as the plain client reads it.
//!
//! What is not plain is not judged here: [`Parsed::Odd`] says only that hyper has to.

use std::mem::MaybeUninit;

use bytes::BytesMut;
use http::StatusCode;

use crate::upstream::fields::{Fields, Text};
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
    /// Every field, as it came; of lines, those that go further.
    pub(in crate::upstream) headers: Fields,
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

/// What was asked for.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// A head alone: the answer is to a HEAD.
    pub(super) head_only: bool,
    /// The lines of its head, where they are ordinary, instead of a map.
    pub(super) text: bool,
}

/// A head in a buffer.
struct Found {
    bytes: usize,
    status: StatusCode,
}

/// Reads a head off the front of `buffer`, of which the first `looked` bytes are no whole head.
pub(super) fn parse(buffer: &mut BytesMut, looked: usize, wish: Wish) -> Parsed {
    // Kept here, because it is large and a result would be copied.
    let mut lines = Lines::default();
    let found = match find(buffer, looked, &mut lines) {
        Ok(Some(found)) => found,
        Ok(None) if buffer.len() < HEAD_BYTES_MAX => return Parsed::Partial,
        Ok(None) | Err(Strange) => return Parsed::Odd,
    };
    let bodiless = wish.head_only || matches!(found.status.as_u16(), 204 | 304);
    let Some((length, last)) = framing(buffer, &lines, bodiless) else {
        return Parsed::Odd;
    };
    let head = buffer.split_to(found.bytes).freeze();
    let text = match wish.text && !bodiless {
        true => Text::of_answer(&head, &lines).map(Fields::from),
        false => None,
    };
    let collect = || lines.collect(&head, OWN_FIELDS, ROOM).map(Fields::from);
    match text.or_else(collect) {
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
            if head.version == Some(1)
                && !status.is_informational()
                && bytes <= lines::HEAD_BYTES_MAX =>
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
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        match name.len() {
            14 if is("content-length") => {
                if length.is_some() {
                    return None;
                }
                length = Some(lines::length(value)?);
            }
            10 if is("connection") => {
                if !value.is_ascii() {
                    return None;
                }
                last |= has_close(value);
            }
            17 if is("transfer-encoding") => return None,
            _ => {}
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
