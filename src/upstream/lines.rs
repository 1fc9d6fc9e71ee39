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
pub const FIELDS_MAX: usize = 40;

/// Fields that are put beside those of a message.
const MORE: usize = 12;

/// Digits of a length that surely fits.
const LENGTH_DIGITS_MAX: usize = 18;

/// Where the fields of a head lie in it.
#[derive(Clone)]
pub struct Lines {
    places: [Place; FIELDS_MAX],
    len: usize,
}

#[derive(Clone, Copy)]
struct Place {
    name: (Offset, Offset),
    value: (Offset, Offset),
}

/// Into a head, which is at most [`HEAD_BYTES_MAX`] long.
type Offset = u16;

/// The longest head whose lines are noted.
pub const HEAD_BYTES_MAX: usize = Offset::MAX as usize;

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
    pub fn note(&mut self, head: &[u8], fields: &[httparse::Header<'_>]) {
        for (place, field) in self.places.iter_mut().zip(fields) {
            place.name = within(head, field.name.as_bytes());
            place.value = within(head, field.value);
        }
        self.len = fields.len().min(FIELDS_MAX);
    }

    /// The lines of this name, by number.
    pub fn named<'a>(&'a self, head: &'a [u8], name: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let places = self.places[..self.len].iter().enumerate();
        places.filter_map(move |(at, place)| {
            let fits = usize::from(place.name.1 - place.name.0) == name.len();
            (fits && part(head, place.name).eq_ignore_ascii_case(name)).then_some(at)
        })
    }

    /// The value of a line.
    #[must_use]
    pub fn value<'a>(&self, head: &'a [u8], at: usize) -> &'a [u8] {
        part(head, self.places[at].value)
    }

    /// Names and values, as they stand in `head`.
    pub fn iter<'a>(&self, head: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        self.places[..self.len]
            .iter()
            .map(move |place| (part(head, place.name), part(head, place.value)))
    }

    /// The fields as they came, with room for `more` and for `least` in all; the values share
    /// `head`. `None` cannot be: the parser took every name and value.
    #[must_use]
    pub fn collect(&self, head: &Bytes, more: usize, least: usize) -> Option<HeaderMap> {
        let mut headers = HeaderMap::with_capacity((self.len + more).max(least));
        for place in &self.places[..self.len] {
            let name = HeaderName::from_bytes(part(head, place.name)).ok()?;
            let value = head.slice(usize::from(place.value.0)..usize::from(place.value.1));
            headers.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        Some(headers)
    }
}

impl Lines {
    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether every line ends as it has to (RFC 9112, section 2.2: CR LF) and has its colon right
    /// behind its name, so that it can be passed on byte for byte. The parser takes more.
    #[must_use]
    pub fn end_soundly(&self, head: &[u8]) -> bool {
        (0..self.len).all(|at| {
            let (from, to) = self.line(head, at);
            let name_ends = usize::from(self.places[at].name.1);
            head[from..to].ends_with(b"\r\n") && head.get(name_ends) == Some(&b':')
        })
    }

    /// Where a line begins and where the next one does.
    fn line(&self, head: &[u8], at: usize) -> (usize, usize) {
        let from = usize::from(self.places[at].name.0);
        let next = self.places[..self.len].get(at + 1);
        // Behind the last one stands the empty line.
        let to = next.map_or_else(
            || head.len().saturating_sub(2),
            |next| usize::from(next.name.0),
        );
        (from, to.max(from))
    }

    /// Writes the lines that are not `gone` as they stand in `head`, their neighbours with them.
    pub(super) fn write(&self, head: &[u8], gone: u64, out: &mut Vec<u8>) {
        let mut at = 0;
        while at < self.len {
            if gone & (1 << at) != 0 {
                at += 1;
                continue;
            }
            let (from, mut to) = self.line(head, at);
            at += 1;
            while at < self.len && gone & (1 << at) == 0 {
                to = self.line(head, at).1;
                at += 1;
            }
            out.extend_from_slice(&head[from..to]);
        }
    }

    /// The lines that are not `gone`; the values share `head`.
    #[must_use]
    pub(super) fn map(&self, head: &Bytes, gone: u64) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.len + MORE);
        let kept = self.places[..self.len].iter().enumerate();
        for (_, place) in kept.filter(|(at, _)| gone & (1 << at) == 0) {
            let value = head.slice(usize::from(place.value.0)..usize::from(place.value.1));
            let name = HeaderName::from_bytes(part(head, place.name));
            let value = HeaderValue::from_maybe_shared(value);
            headers.append(
                name.expect("the parser took it for a name"),
                value.expect("the parser took it for a value"),
            );
        }
        headers
    }
}

/// Whether a length is written as a number is: in digits, without zeros in front.
#[must_use]
pub fn is_canonical(value: &[u8]) -> bool {
    length(value).is_some() && (value.len() == 1 || value[0] != b'0')
}

/// A length written in digits alone.
#[must_use]
pub fn length(value: &[u8]) -> Option<u64> {
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
pub fn may_be_whole(head: &[u8], looked: usize) -> bool {
    let new = &head[looked.saturating_sub(3).min(head.len())..];
    looked == 0
        || new.windows(2).any(|two| two == b"\n\n")
        || new.windows(3).any(|three| three == b"\n\r\n")
}

fn part(head: &[u8], (from, to): (Offset, Offset)) -> &[u8] {
    &head[usize::from(from)..usize::from(to)]
}

/// Where `inner` lies in `outer`, of which it is a part.
fn within(outer: &[u8], inner: &[u8]) -> (Offset, Offset) {
    // An empty value may point anywhere.
    let from = if inner.is_empty() {
        0
    } else {
        (inner.as_ptr() as usize).wrapping_sub(outer.as_ptr() as usize)
    };
    let place = |at: usize| Offset::try_from(at).expect("a longer head is not noted");
    (place(from), place(from + inner.len()))
}
