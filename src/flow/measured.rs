//! A door for `benches/micro`: what a recorded call pays before it is recorded. No part of the
//! interface; nothing else calls it.

use bytes::Bytes;
use http::Method;

use super::told::Problem;
use super::{Request, key, record};
use crate::call::id::Fingerprint;

/// What makes two requests the same.
#[must_use]
pub fn fingerprint(method: &Method, target: &str, body: &[u8]) -> Fingerprint {
    record::fingerprint(method, target, body)
}

/// The length of the request's key, if it has one.
///
/// # Errors
/// The refusal to tell.
pub fn key(request: &Request<Bytes>) -> Result<Option<usize>, Problem> {
    Ok(key::of(request)?.map(|key| key.text.len()))
}
