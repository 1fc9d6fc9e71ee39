//! From requests and answers to what the ledger keeps of them, and back.
//!
//! Credentials end here: what is stored has none. Deliberately absent: any decision; what is kept
//! and what is stripped is the contract's list.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, COOKIE, DATE, PROXY_AUTHORIZATION, SET_COOKIE};
use http::{HeaderMap, HeaderName, Method, StatusCode};
use sha2::{Digest, Sha256};

use super::told::Whole;
use crate::call::id::Fingerprint;
use crate::ledger::{Kept, Reply};
use crate::upstream::StreamReport;

/// Fields that carry a credential on every route; a route adds its `secret_headers`.
static CREDENTIALS: [HeaderName; 4] = [
    AUTHORIZATION,
    PROXY_AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("x-api-key"),
];

/// What makes two requests the same: SHA-256 over method, path with query, and body. Lengths go
/// in as well, so that no byte can move from one part to the next.
#[must_use]
pub(super) fn fingerprint(method: &Method, path_and_query: &str, body: &[u8]) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in [method.as_str().as_bytes(), path_and_query.as_bytes(), body] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Fingerprint(hash.finalize().into())
}

/// The fields of `headers` that carry a credential.
pub(super) fn credentials<'a>(
    headers: &'a HeaderMap,
    secret: &'a [HeaderName],
) -> impl Iterator<Item = &'a HeaderName> {
    CREDENTIALS
        .iter()
        .chain(secret)
        .filter(|name| headers.contains_key(*name))
}

/// `headers` without what carries a credential, and whether there was any.
#[must_use]
pub(super) fn without_credentials(headers: &HeaderMap, secret: &[HeaderName]) -> (HeaderMap, bool) {
    let mut kept = headers.clone();
    let mut any = false;
    for name in CREDENTIALS.iter().chain(secret) {
        any |= kept.remove(name).is_some();
    }
    (kept, any)
}

/// An answer as it is kept: end-to-end fields without `Date` and `Set-Cookie`, the body up to
/// `max_kept` bytes, else its length and SHA-256.
#[must_use]
pub(super) fn reply(
    status: StatusCode,
    headers: &HeaderMap,
    body: &Bytes,
    max_kept: usize,
) -> Reply {
    let body = if body.len() <= max_kept {
        Kept::Whole(body.clone())
    } else {
        Kept::Digest {
            bytes: body.len() as u64,
            sha256: Some(Sha256::digest(body).into()),
        }
    };
    Reply {
        status,
        headers: kept_headers(headers),
        body,
    }
}

/// An answer whose body was streamed, as its record: the bytes when they were few enough.
#[must_use]
pub(super) fn passed(status: StatusCode, headers: &HeaderMap, report: &StreamReport) -> Reply {
    let body = match (&report.kept, report.sha256) {
        (Some(kept), _) => Kept::Whole(kept.clone()),
        (None, sha256) => Kept::Digest {
            bytes: report.bytes,
            sha256,
        },
    };
    Reply {
        status,
        headers: kept_headers(headers),
        body,
    }
}

/// An answer that has to be recorded before its body was read (a long refusal): its announced
/// length, and no digest yet.
#[must_use]
pub(super) fn unread(status: StatusCode, headers: &HeaderMap) -> Reply {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok());
    let bytes = length.and_then(|length| length.parse().ok()).unwrap_or(0);
    let body = Kept::Digest {
        bytes,
        sha256: None,
    };
    Reply {
        status,
        headers: kept_headers(headers),
        body,
    }
}

/// The fields of an answer that are stored and replayed.
#[must_use]
pub(super) fn kept_headers(headers: &HeaderMap) -> HeaderMap {
    let mut kept = headers.clone();
    kept.remove(DATE);
    kept.remove(SET_COOKIE);
    kept
}

/// A stored answer as it is replayed; `None` when its body was not kept.
#[must_use]
pub(super) fn whole(reply: &Reply) -> Option<Whole> {
    match &reply.body {
        Kept::Whole(body) => Some(Whole {
            status: reply.status,
            headers: reply.headers.clone().into(),
            body: body.clone(),
        }),
        Kept::Digest { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_fingerprint_tells_every_part_apart() {
        let of = |method, path, body: &[u8]| fingerprint(&method, path, body);
        let all = [
            of(Method::POST, "/a", b"bc"),
            of(Method::POST, "/ab", b"c"),
            of(Method::PUT, "/a", b"bc"),
            of(Method::POST, "/a?b", b"c"),
            of(Method::POST, "/a", b"bd"),
        ];
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                assert_ne!(a, b);
            }
        }
        assert_eq!(all[0], of(Method::POST, "/a", b"bc"));
    }

    #[test]
    fn nothing_that_carries_a_credential_is_kept() {
        let secret = [HeaderName::from_static("x-tool-key")];
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "cookie",
            "x-api-key",
            "x-tool-key",
            "x-other",
        ] {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        assert_eq!(credentials(&headers, &secret).count(), 4);
        let (kept, any) = without_credentials(&headers, &secret);
        assert!(any);
        assert_eq!(
            kept.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["x-other"]
        );
        let (_, none) = without_credentials(&kept, &secret);
        assert!(!none);
    }

    #[test]
    fn an_answer_is_kept_without_date_and_cookies_and_long_bodies_by_their_digest() {
        let mut headers = HeaderMap::new();
        for name in ["date", "set-cookie", "etag"] {
            headers.insert(name, HeaderValue::from_static("v"));
        }
        let short = reply(StatusCode::OK, &headers, &Bytes::from_static(b"12345"), 5);
        assert_eq!(whole(&short).unwrap().body, "12345");
        assert_eq!(
            short
                .headers
                .keys()
                .map(HeaderName::as_str)
                .collect::<Vec<_>>(),
            ["etag"]
        );
        let long = reply(StatusCode::OK, &headers, &Bytes::from_static(b"123456"), 5);
        assert!(matches!(long.body, Kept::Digest { bytes: 6, .. }));
        assert!(whole(&long).is_none());
    }
}
