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
        // Nearly none has a bad byte: one look at all of them without a branch, then for where.
        if bytes.iter().fold(false, |bad, b| bad | is_bad(*b)) {
            let at = bytes.iter().position(|b| is_bad(*b));
            return Err(CallIdError::BadByte(at.expect("one was seen")));
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

/// What cannot stand in a call id.
const fn is_bad(b: u8) -> bool {
    // `!` to `~`.
    (b.wrapping_sub(0x21) > 0x7e - 0x21) | (b == b',')
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
///
/// It brings along the names this client had before, for look-ups; they make it no other client,
/// so two are equal by their name alone.
#[derive(Clone)]
pub struct ClientName {
    name: Arc<str>,
    formerly: Option<Arc<[Self]>>,
}

impl ClientName {
    /// The name from the configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            formerly: None,
        }
    }

    /// The same client with the names it had before.
    #[must_use]
    pub fn with_former(self, formerly: &[Arc<str>]) -> Self {
        let names = formerly.iter().map(|name| Self::new(name));
        Self {
            formerly: (!formerly.is_empty()).then(|| names.collect()),
            ..self
        }
    }

    /// The client every caller is when none is configured.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new("anonymous")
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// The names this client had before; nearly always none.
    #[must_use]
    pub fn formerly(&self) -> &[Self] {
        self.formerly.as_deref().unwrap_or_default()
    }

    /// Whether `other` is this client, under the name it has or one it had.
    #[must_use]
    pub fn is_or_was(&self, other: &str) -> bool {
        *self.name == *other || self.formerly().iter().any(|old| *old.name == *other)
    }
}

impl PartialEq for ClientName {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ClientName {}

impl std::hash::Hash for ClientName {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for ClientName {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ClientName {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.name.cmp(&other.name)
    }
}

impl fmt::Debug for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientName({})", &self.name)
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
