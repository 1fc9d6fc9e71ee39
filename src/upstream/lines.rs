//! The head of a message and its field lines, as both plain ends read them: the client here and the
//! server in `ingress`.
//!
//! hyper's parser and hyper's field types, so that what is plain for us reads the same for hyper.
//! Deliberately absent: a verdict. What is not plain is left to hyper, bytes and all.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

/// The most fields read plainly: more than nearly any message has. One with more is hyper's, which
/// takes a hundred.
pub(super) const FIELDS_MAX: usize = 40;

/// Digits of a length that surely fits.
const LENGTH_DIGITS_MAX: usize = 18;

/// Where the fields of a head lie in it.
pub(super) struct Lines {
    places: [Place; FIELDS_MAX],
    len: usize,
}

#[derive(Clone, Copy)]
struct Place {
    name: (u32, u32),
    value: (u32, u32),
}

impl Default for Lines {
    fn default() -> Self {
        let nowhere = Place {
            name: (0, 0),
            value: (0, 0),
        };
        Self {
            places: [nowhere; FIELDS_MAX],
            len: 0,
        }
    }
}

impl Lines {
    /// Notes where `fields`, which were parsed from it, lie in `head`.
    pub(super) fn note(&mut self, head: &[u8], fields: &[httparse::Header<'_>]) {
        for (place, field) in self.places.iter_mut().zip(fields) {
            place.name = within(head, field.name.as_bytes());
            place.value = within(head, field.value);
        }
        self.len = fields.len().min(FIELDS_MAX);
    }

    /// Names and values, as they stand in `head`.
    pub(super) fn iter<'a>(&self, head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.places[..self.len]
            .iter()
            .map(move |place| (part(head, place.name), part(head, place.value)))
    }

    /// The fields as they came, with room for `more` and for `least` in all; the values share
    /// `head`. `None` cannot be: the parser took every name and value.
    #[must_use]
    pub(super) fn collect(&self, head: &Bytes, more: usize, least: usize) -> Option<HeaderMap> {
        let mut headers = HeaderMap::with_capacity((self.len + more).max(least));
        for place in &self.places[..self.len] {
            let name = HeaderName::from_bytes(part(head, place.name)).ok()?;
            let value = head.slice(place.value.0 as usize..place.value.1 as usize);
            headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        Some(headers)
    }
}

/// A length written in digits alone.
#[must_use]
pub(super) fn length(value: &[u8]) -> Option<u64> {
    let sound = (1..=LENGTH_DIGITS_MAX).contains(&value.len());
    if !sound || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |n, b| n * 10 + u64::from(b - b'0')))
}

/// Whether a head of which the first `looked` bytes are not whole may be whole now. As hyper does:
/// one that comes in pieces is parsed once more only then, or a drip would be parsed byte by byte.
/// And as far back: behind an empty line nonsense is seen at its first byte, and not never.
#[must_use]
pub(super) fn may_be_whole(head: &[u8], looked: usize) -> bool {
    let new = &head[looked.saturating_sub(3).min(head.len())..];
    looked == 0
        || new.windows(2).any(|two| two == b"\n\n")
        || new.windows(3).any(|three| three == b"\n\r\n")
}

fn part(head: &[u8], (from, to): (u32, u32)) -> &[u8] {
    &head[from as usize..to as usize]
}

/// Where `inner` lies in `outer`, of which it is a part.
fn within(outer: &[u8], inner: &[u8]) -> (u32, u32) {
    // An empty value may point anywhere.
    let from = if inner.is_empty() {
        0
    } else {
        (inner.as_ptr() as usize).wrapping_sub(outer.as_ptr() as usize)
    };
    let place = |at: usize| u32::try_from(at).expect("a head is far shorter");
    (place(from), place(from + inner.len()))
}
