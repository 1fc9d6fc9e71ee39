//! This gateway's name on the wire: `Via`, `Forwarded`, and whether a request has been here before.

use std::fmt::Write;
use std::net::IpAddr;

use http::header::{HeaderValue, VIA};
use http::{HeaderMap, Version};

/// The gateway as `Via` names it: `callgate-` and the configured node.
#[derive(Clone, Debug)]
pub struct Node {
    pseudonym: Box<str>,
    http10: HeaderValue,
    http11: HeaderValue,
    http2: HeaderValue,
}

impl Node {
    /// The pseudonym of `node`. Bytes that cannot stand in a token become `-`, so that any name
    /// makes a field.
    #[must_use]
    pub fn new(node: &str) -> Self {
        let safe: String = node
            .chars()
            .map(|c| if is_token(c) { c } else { '-' })
            .collect();
        let pseudonym = format!("callgate-{safe}");
        let value = |version: &str| {
            HeaderValue::from_str(&format!("{version} {pseudonym}")).expect("a token is ASCII")
        };
        let (http10, http11, http2) = (value("1.0"), value("1.1"), value("2"));
        Self {
            pseudonym: pseudonym.into_boxed_str(),
            http10,
            http11,
            http2,
        }
    }

    /// Its name in `Via`.
    #[must_use]
    pub fn pseudonym(&self) -> &str {
        &self.pseudonym
    }

    /// The `Via` element for a request received in this version.
    #[must_use]
    pub fn via(&self, received: Version) -> HeaderValue {
        match received {
            Version::HTTP_2 | Version::HTTP_3 => self.http2.clone(),
            Version::HTTP_09 | Version::HTTP_10 => self.http10.clone(),
            // 1.1, and whatever `http` may learn to speak.
            _ => self.http11.clone(),
        }
    }

    /// Whether the request already passed this gateway: 508 `loop-detected`.
    #[must_use]
    pub fn is_named_in(&self, headers: &HeaderMap) -> bool {
        headers.get_all(VIA).iter().any(|line| {
            line.as_bytes().split(|b| *b == b',').any(|element| {
                // `[protocol/]version received-by [comment]`
                let mut words = element
                    .split(u8::is_ascii_whitespace)
                    .filter(|w| !w.is_empty());
                words
                    .nth(1)
                    .is_some_and(|by| by.eq_ignore_ascii_case(self.pseudonym.as_bytes()))
            })
        })
    }
}

/// One `Forwarded` element (RFC 7239): who called, under which host, over what.
///
/// A host that cannot be quoted is left out.
#[must_use]
pub fn forwarded(peer: IpAddr, host: Option<&HeaderValue>, proto: &str) -> HeaderValue {
    let mut text = match peer.to_canonical() {
        IpAddr::V4(v4) => format!("for={v4}"),
        IpAddr::V6(v6) => format!("for=\"[{v6}]\""),
    };
    let quotable = |host: &&str| {
        host.bytes()
            .all(|b| (0x21..=0x7e).contains(&b) && b != b'"' && b != b'\\')
    };
    if let Some(host) = host.and_then(|host| host.to_str().ok()).filter(quotable) {
        let quote = if host.chars().all(is_token) && !host.is_empty() {
            ""
        } else {
            "\""
        };
        // Writing to a String cannot fail.
        let _written = write!(text, ";host={quote}{host}{quote}");
    }
    if proto.chars().all(is_token) && !proto.is_empty() {
        let _written = write!(text, ";proto={proto}");
    }
    HeaderValue::from_str(&text).expect("every part was checked to be visible ASCII")
}

/// RFC 9110, section 5.6.2.
const fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(
            c,
            '!' | '#'
                | '$'
                | '%'
                | '&'
                | '\''
                | '*'
                | '+'
                | '-'
                | '.'
                | '^'
                | '_'
                | '`'
                | '|'
                | '~'
        )
}
