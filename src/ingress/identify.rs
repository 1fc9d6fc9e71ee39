//! What a request's head proves.
use http::{HeaderMap, Uri, header};

pub(super) fn host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    uri.authority().map_or_else(
        || {
            headers
                .get(header::HOST)
                .and_then(|host| host.to_str().ok())
        },
        |authority| Some(authority.as_str()),
    )
}
