//! A door for `fuzz/` and the replay of its corpus: what a request's head and body prove about the
//! call's id, without a connection. No part of the interface; nothing else calls it.

use http::HeaderMap;
use http::header::HeaderName;

use super::identify;
use crate::call::id::{CallId, IdSource};
use crate::config::template::JsonPointer;

/// The id that head and body agree on, or the sentence the caller would read.
///
/// # Errors
/// As the door refuses it.
pub fn identified(
    headers: &HeaderMap,
    name: &HeaderName,
    body: &[u8],
    pointer: &JsonPointer,
) -> Result<Option<(CallId, IdSource)>, String> {
    let in_head = identify::from_headers(headers, name);
    let found = in_head.and_then(|in_head| {
        identify::from_body(body, pointer).and_then(|in_body| identify::agree(in_head, in_body))
    });
    found.map_err(|problem| problem.detail(name))
}
