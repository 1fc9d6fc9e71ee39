//! The names of a call: its id on the wire, its business key, its client, its fingerprint.
//!
//! Parsed once at the edge; past that point no raw string names a thing, and none of these types
//! can be changed after it was made. Minting lives in `entropy`, because it needs chance.

use std::fmt;
use std::sync::Arc;

/// The longest call id a client may send, in bytes.
pub const CALL_ID_BYTES_MAX: usize = 256;

/// Identity of a call on the wire (`X-Call-Id`), byte for byte as it arrived or was minted.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(Arc<str>);

/// Why bytes are not a call id. The caller's fault each time; nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallIdError {
    /// The value is empty.
    Empty,
    /// The value is longer than [`CALL_ID_BYTES_MAX`].
    TooLong,
    /// A byte outside 0x21..=0x7e, or a comma, at this position.
    BadByte(usize),
    /// Nothing but dots, which path handling would swallow in a receipt's address.
    OnlyDots,
}

impl CallId {
    /// Proves `bytes` to be a call id: 1..=256 bytes of visible ASCII (0x21..=0x7e), no comma, not
    /// only dots.
    ///
    /// # Errors
    /// Says which of these rules the bytes break.
    pub fn parse(bytes: &[u8]) -> Result<Self, CallIdError> {
        if bytes.is_empty() {
            return Err(CallIdError::Empty);
        }
        if bytes.len() > CALL_ID_BYTES_MAX {
            return Err(CallIdError::TooLong);
        }
        if let Some(at) = bytes
            .iter()
            .position(|b| !(0x21..=0x7e).contains(b) || *b == b',')
        {
            return Err(CallIdError::BadByte(at));
        }
        if bytes.iter().all(|b| *b == b'.') {
            return Err(CallIdError::OnlyDots);
        }
        let text = std::str::from_utf8(bytes).expect("visible ASCII is UTF-8");
        Ok(Self(Arc::from(text)))
    }

    /// The id as it goes on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallId({})", &self.0)
    }
}

impl fmt::Display for CallIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the call id is empty"),
            Self::TooLong => write!(f, "the call id is longer than {CALL_ID_BYTES_MAX} bytes"),
            Self::BadByte(at) => write!(
                f,
                "byte {at} of the call id is not visible ASCII (0x21..=0x7e without the comma)"
            ),
            Self::OnlyDots => f.write_str("the call id is nothing but dots"),
        }
    }
}

impl std::error::Error for CallIdError {}

/// Who made a call's id; told as `X-Call-Id-Source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdSource {
    /// The client sent it.
    Client,
    /// A gateway made it, this one or one in front.
    Gateway,
}

impl IdSource {
    /// The word on the wire and in the ledger.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }
}

/// The authenticated caller a call belongs to. Without configured clients: `anonymous`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientName(Arc<str>);

impl ClientName {
    /// The name from the configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(Arc::from(name))
    }

    /// The client every caller is when none is configured.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new("anonymous")
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// SHA-256 over method, path, query and body: what makes two requests "the same request".
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_id_is_taken_byte_for_byte_or_refused_with_its_reason() {
        let long = "a".repeat(CALL_ID_BYTES_MAX);
        let tildes = "~".repeat(128);
        for good in [
            "a",
            "0123",
            "x:y/z",
            "%0d%0aERROR",
            "${jndi}",
            "a\"b",
            "..a",
            &tildes,
            &long,
        ] {
            assert_eq!(CallId::parse(good.as_bytes()).unwrap().as_str(), good);
        }
        let too_long = "a".repeat(CALL_ID_BYTES_MAX + 1);
        let table: [(&[u8], CallIdError); 9] = [
            (b"", CallIdError::Empty),
            (too_long.as_bytes(), CallIdError::TooLong),
            (b"a\tb", CallIdError::BadByte(1)),
            (b"a\x80b", CallIdError::BadByte(1)),
            (b"a\x1b[31m", CallIdError::BadByte(1)),
            (b"a, b", CallIdError::BadByte(1)),
            (b"%0d%0aERROR forged", CallIdError::BadByte(11)),
            (b".", CallIdError::OnlyDots),
            (b"...", CallIdError::OnlyDots),
        ];
        for (bytes, why) in table {
            assert_eq!(CallId::parse(bytes).unwrap_err(), why, "{bytes:?}");
        }
    }
}
