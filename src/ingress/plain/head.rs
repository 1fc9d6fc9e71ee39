//! A request as far as the plain server reads it: the head, and a body that is there with it.
//!
//! What is not plain is not judged here: [`Parsed::Odd`] says only that hyper has to.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, EXPECT, TRANSFER_ENCODING, UPGRADE};
use http::{Method, Request, Uri};

use crate::ingress::body::Raw;
use crate::upstream::lines::{self, FIELDS_MAX, Lines};

/// The longest request read here, body included.
const BYTES_MAX: usize = 64 * 1024;

/// Fields that are stamped on the way to the tool.
const OWN_FIELDS: usize = 6;

/// A request, and the bytes it was.
pub(super) struct Asked {
    pub(super) request: Request<Raw>,
    pub(super) bytes: Bytes,
}

/// What the bytes are so far.
pub(super) enum Parsed {
    /// Nothing, or the beginning of a head.
    Partial,
    /// A head, and the beginning of its body.
    Short,
    /// Nothing for this server; the buffer is as it was.
    Odd,
    /// A request; its bytes were taken out of the buffer.
    Whole(Asked),
}

/// Why there is no request yet.
enum Trouble {
    /// It is not plain.
    Strange,
    /// Its body is not all there.
    Short,
}

use Trouble::{Short, Strange};

/// A request in a buffer.
struct Found {
    head: usize,
    whole: usize,
    method: Method,
    /// Where the target lies.
    target: (usize, usize),
}

/// Takes a request off the front of `buffer`, of which the first `looked` bytes are no whole head.
pub(super) fn parse(buffer: &mut BytesMut, looked: usize) -> Parsed {
    if buffer.is_empty() {
        return Parsed::Partial;
    }
    // Kept here, because it is large and a result would be copied.
    let mut lines = Lines::default();
    let found = match find(buffer, looked, &mut lines) {
        Ok(Some(found)) => found,
        Ok(None) if buffer.len() < BYTES_MAX => return Parsed::Partial,
        Err(Short) => return Parsed::Short,
        Ok(None) | Err(Strange) => return Parsed::Odd,
    };
    let bytes = buffer.split_to(found.whole).freeze();
    match request(found, &lines, &bytes) {
        Some(request) => Parsed::Whole(Asked { request, bytes }),
        None => {
            // A target that is none.
            let mut whole = BytesMut::from(&bytes[..]);
            whole.extend_from_slice(buffer);
            *buffer = whole;
            Parsed::Odd
        }
    }
}

fn find(buffer: &[u8], looked: usize, lines: &mut Lines) -> Result<Option<Found>, Trouble> {
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
    if matches!(method, Method::HEAD | Method::CONNECT) {
        return Err(Strange);
    }
    lines.note(buffer, head.headers);
    let body = body(buffer, lines).ok_or(Strange)?;
    let whole = bytes + usize::try_from(body).map_err(|_| Strange)?;
    if whole > buffer.len() {
        return Err(if whole <= BYTES_MAX { Short } else { Strange });
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
        // The lengths of the names below.
        if !matches!(name.len(), 6 | 7 | 10 | 14 | 17) {
            continue;
        }
        let is = |other: &http::HeaderName| name.eq_ignore_ascii_case(other.as_str().as_bytes());
        if is(&CONTENT_LENGTH) {
            if length.is_some() {
                return None;
            }
            length = Some(lines::length(value)?);
        } else if is(&CONNECTION) {
            if !value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is(&TRANSFER_ENCODING) || is(&EXPECT) || is(&UPGRADE) {
            return None;
        }
    }
    Some(length.unwrap_or(0))
}

fn request(found: Found, lines: &Lines, bytes: &Bytes) -> Option<Request<Raw>> {
    let uri = Uri::from_maybe_shared(bytes.slice(found.target.0..found.target.1)).ok()?;
    let headers = lines.collect(bytes, OWN_FIELDS)?;
    let mut request = Request::new(Raw::Whole(bytes.slice(found.head..)));
    *request.method_mut() = found.method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some(request)
}
