//! This gateway's name on the wire: `Via`, `Forwarded`, and whether a request has been here before.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};

use bytes::{BufMut, Bytes, BytesMut};
use http::header::{HeaderValue, VIA};
use http::{HeaderMap, Version};
use parking_lot::Mutex;

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
            .map(|c| match u8::try_from(c) {
                Ok(b) if is_token(b) => c,
                Ok(_) | Err(_) => '-',
            })
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

/// Where a caller's connection comes from, as `Forwarded` says it. Nearly all requests of one
/// connection name one host, so the last element is kept.
#[derive(Debug)]
pub struct Caller {
    address: IpAddr,
    last: Mutex<Option<(Option<Bytes>, HeaderValue)>>,
}

impl Caller {
    /// A caller at this address.
    #[must_use]
    pub const fn at(address: IpAddr) -> Self {
        Self {
            address,
            last: Mutex::new(None),
        }
    }

    /// One `Forwarded` element (RFC 7239): who called, under which host, over `http`.
    #[must_use]
    pub fn forwarded(&self, host: Option<&[u8]>) -> HeaderValue {
        let mut last = self.last.lock();
        if let Some((of, element)) = &*last
            && of.as_deref() == host
        {
            return element.clone();
        }
        let element = forwarded(self.address, host, "http");
        *last = Some((host.map(Bytes::copy_from_slice), element.clone()));
        element
    }
}

/// A host that cannot be quoted is left out. Written byte by byte, because formatting an address
/// costs more than all the rest of the field.
pub(super) fn forwarded(peer: IpAddr, host: Option<&[u8]>, proto: &str) -> HeaderValue {
    let room = FIXED + host.map_or(0, <[u8]>::len) + proto.len();
    let mut text = BytesMut::with_capacity(room);
    match peer.to_canonical() {
        IpAddr::V4(v4) => put_v4(&mut text, v4),
        IpAddr::V6(v6) => {
            // Writing to memory cannot fail.
            let _written = write!(text, "for=\"[{v6}]\"");
        }
    }
    if let Some(host) = host.filter(|host| host.iter().all(|b| is_quotable(*b))) {
        let is_word = !host.is_empty() && host.iter().all(|b| is_token(*b));
        let quote: &[u8] = if is_word { b"" } else { b"\"" };
        for part in [b";host=", quote, host, quote] {
            text.put_slice(part);
        }
    }
    if !proto.is_empty() && proto.bytes().all(is_token) {
        text.put_slice(b";proto=");
        text.put_slice(proto.as_bytes());
    }
    HeaderValue::from_maybe_shared(text.freeze()).expect("every part was checked to be visible")
}

/// More than all of a `Forwarded` element but its host and protocol: the longest address, the
/// names, the quotes.
const FIXED: usize = 80;

fn put_v4(text: &mut BytesMut, address: Ipv4Addr) {
    text.put_slice(b"for=");
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            text.put_u8(b'.');
        }
        if octet >= 100 {
            text.put_u8(b'0' + octet / 100);
        }
        if octet >= 10 {
            text.put_u8(b'0' + octet / 10 % 10);
        }
        text.put_u8(b'0' + octet % 10);
    }
}

/// What can stand between quotes as it is.
const fn is_quotable(b: u8) -> bool {
    matches!(b, 0x21..=0x7e) && b != b'"' && b != b'\\'
}

/// RFC 9110, section 5.6.2.
const fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric()
        || matches!(
            b,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}
