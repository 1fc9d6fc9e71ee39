//! Header fields as they stood on the wire, for messages that are passed on as they are.
//!
//! Most of what a short request costs in a gateway is the map that its head becomes, and the head
//! that the map becomes again. Of an ordinary message nothing is asked but a few fields by name, so
//! its lines stay the bytes they are: a [`Text`]. Whoever wants a map of [`Fields`] gets one, made
//! on the spot. What is ordinary is decided once, when the head is read: a field that this hop has
//! to think about makes the message one that becomes a map at once.
//!
//! Deliberately absent: the way to change a line. A map is changed; lines are left out.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::lines::{self, FIELDS_MAX, Lines};

/// The most fields that are added to a request's own; more make it a map.
pub(super) const OWN_FIELDS_MAX: usize = 24;

/// Room for the line of a field whose name and value are of usual length.
pub const FIELD_BYTES: usize = 48;

/// The fields of a request as it is sent.
#[derive(Clone, Debug)]
pub enum Final {
    /// A map.
    Map(Arc<HeaderMap>),
    /// Written out with all the rest of the request.
    Written(Written),
}

/// A request that is written out to its last byte.
#[derive(Clone)]
pub struct Written {
    /// All of it.
    pub(super) request: Bytes,
    /// Where its fields stand.
    pub(super) fields: Range<usize>,
}

/// The fields of a message.
#[derive(Clone, Default)]
pub struct Fields {
    /// As they stood, while nobody has changed them.
    text: Option<Box<Text>>,
    /// As a map, once somebody has asked. On the heap: they are handed from one future to the next.
    map: OnceLock<Box<HeaderMap>>,
}

/// The lines of an ordinary head. Every one of them ends as HTTP demands, and none speaks of the
/// connection it came on, of trailers, of switching, or of what gateways say about calls.
#[derive(Clone)]
pub struct Text {
    head: Bytes,
    lines: Lines,
    /// The lines that are not passed on, a bit each.
    gone: u64,
    /// Those that everybody asks for, as far as they are there.
    known: Known,
}

/// Lines by their numbers.
#[derive(Clone, Copy, Default)]
struct Known {
    host: Option<u8>,
    length: Option<u8>,
    date: Option<u8>,
}

/// What a line means for the message it stands in.
enum Line {
    /// Nothing to this hop.
    Ordinary,
    /// It ends at this hop, and that is all.
    Ends,
    /// This hop has to think about it.
    Telling,
    /// Nothing, but it is asked for, and stands once at most.
    Asked(Which),
}

/// A line that is asked for.
enum Which {
    Host,
    Length,
    Date,
}

use Line::{Asked, Ends, Ordinary, Telling};

impl Fields {
    /// The lines, if they are still as they stood.
    #[must_use]
    pub fn text(&self) -> Option<&Text> {
        self.text.as_deref()
    }

    /// The same, to leave lines out.
    pub fn text_mut(&mut self) -> Option<&mut Text> {
        let text = self.text.as_deref_mut()?;
        self.map.take();
        Some(text)
    }

    /// How many lines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.text
            .as_ref()
            .map_or_else(|| self.len(), |text| text.lines.len())
    }

    /// Whether one of the fields that tell of calls and gateways may be among them.
    #[must_use]
    pub const fn may_tell_of_calls(&self) -> bool {
        self.text.is_none()
    }

    /// The map they are.
    #[must_use]
    pub fn into_map(mut self) -> HeaderMap {
        let made = self.map.take();
        *made.unwrap_or_else(|| self.made())
    }

    fn made(&self) -> Box<HeaderMap> {
        let map = self.text.as_ref().map(|text| text.map());
        Box::new(map.unwrap_or_default())
    }
}

impl Deref for Fields {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        self.map.get_or_init(|| self.made())
    }
}

impl DerefMut for Fields {
    fn deref_mut(&mut self) -> &mut HeaderMap {
        self.map.get_or_init(|| self.made());
        // From here on the lines may be others.
        self.text = None;
        self.map.get_mut().expect("it was made just now")
    }
}

impl From<HeaderMap> for Fields {
    fn from(map: HeaderMap) -> Self {
        Self {
            text: None,
            map: OnceLock::from(Box::new(map)),
        }
    }
}

impl From<Box<Text>> for Fields {
    fn from(text: Box<Text>) -> Self {
        Self {
            text: Some(text),
            map: OnceLock::new(),
        }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Fields {}

impl fmt::Debug for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They may hold secrets; their number says enough.
        write!(f, "Fields({})", self.count())
    }
}

impl Final {
    /// The map they are; made now, if the request is written out already.
    #[must_use]
    pub fn into_map(self) -> HeaderMap {
        match self {
            Self::Map(map) => Arc::unwrap_or_clone(map),
            Self::Written(written) => written.map(),
        }
    }

    /// The same, to change it.
    pub fn make_mut(&mut self) -> &mut HeaderMap {
        if let Self::Written(written) = self {
            *self = Self::Map(Arc::new(written.map()));
        }
        match self {
            Self::Map(map) => Arc::make_mut(map),
            Self::Written(_) => unreachable!("it was made a map just now"),
        }
    }
}

impl From<HeaderMap> for Final {
    fn from(map: HeaderMap) -> Self {
        Self::Map(Arc::new(map))
    }
}

impl Written {
    /// Its fields, read once more: for a connection that another client speaks on.
    fn map(&self) -> HeaderMap {
        let mut found = [httparse::EMPTY_HEADER; FIELDS_MAX + OWN_FIELDS_MAX];
        let lines = self.request.slice(self.fields.clone());
        let parsed = httparse::parse_headers(&lines, &mut found);
        let Ok(httparse::Status::Complete((_, fields))) = parsed else {
            unreachable!("it was written from fields that the same parser had read");
        };
        let mut map = HeaderMap::with_capacity(fields.len());
        for field in fields {
            let name = HeaderName::from_bytes(field.name.as_bytes());
            let value = HeaderValue::from_bytes(field.value);
            map.append(
                name.expect("the parser took it for a name"),
                value.expect("the parser took it for a value"),
            );
        }
        map
    }
}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Written({} bytes)", self.request.len())
    }
}

impl Text {
    /// The lines of a request's head; `None` when it is not ordinary.
    #[must_use]
    pub(crate) fn of_request(head: &Bytes, lines: &Lines) -> Option<Box<Self>> {
        let text = Self::with(head, lines, in_request)?;
        text.known.host.is_some().then_some(text)
    }

    /// The lines of an answer's head; `None` when it is not ordinary.
    #[must_use]
    pub(crate) fn of_answer(head: &Bytes, lines: &Lines) -> Option<Box<Self>> {
        Self::with(head, lines, in_answer)
    }

    fn with(head: &Bytes, lines: &Lines, kind: impl Fn(&[u8], &[u8]) -> Line) -> Option<Box<Self>> {
        let (mut gone, mut known) = (0, Known::default());
        for (at, (name, value)) in (0u8..).zip(lines.iter(head)) {
            match kind(name, value) {
                Ordinary => {}
                Ends => gone |= 1 << at,
                Telling => return None,
                Asked(which) => {
                    let place = match which {
                        Which::Host => &mut known.host,
                        Which::Length => &mut known.length,
                        Which::Date => &mut known.date,
                    };
                    // Twice, and nobody knows which of them counts.
                    if place.replace(at).is_some() {
                        return None;
                    }
                }
            }
        }
        lines.end_soundly(head).then(|| {
            Box::new(Self {
                head: head.clone(),
                lines: lines.clone(),
                gone,
                known,
            })
        })
    }

    /// The host that a request asks for; empty in an answer.
    #[must_use]
    pub fn host(&self) -> &[u8] {
        let host = self.known.host;
        host.map_or(b"", |at| self.lines.value(&self.head, at.into()))
    }

    /// Whether it says how long its body is.
    #[must_use]
    pub const fn is_measured(&self) -> bool {
        self.known.length.is_some()
    }

    /// Whether it says when it was made.
    #[must_use]
    pub const fn is_dated(&self) -> bool {
        self.known.date.is_some()
    }

    /// The values of a field, as far as it goes further.
    pub fn all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let named = self.lines.named(&self.head, name.as_str().as_bytes());
        let kept = named.filter(|at| self.gone & (1 << at) == 0);
        kept.map(|at| self.lines.value(&self.head, at))
    }

    /// Whether a field stands there.
    #[must_use]
    pub fn has(&self, name: &HeaderName) -> bool {
        self.all(name).next().is_some()
    }

    /// Leaves every line of a field out.
    pub fn leave_out(&mut self, name: &HeaderName) {
        let named = self.lines.named(&self.head, name.as_str().as_bytes());
        self.gone = named.fold(self.gone, |gone, at| gone | 1 << at);
    }

    /// The bytes of names and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let bytes = |(name, value): (&[u8], &[u8])| name.len() + value.len();
        self.lines.iter(&self.head).map(bytes).sum()
    }

    /// Room for all lines, as they go out.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.head.len()
    }

    /// Writes a request's lines out, with or without its host.
    pub fn write_request(&self, out: &mut Vec<u8>, with_host: bool) {
        let host = self.known.host.filter(|_| !with_host);
        let gone = host.map_or(self.gone, |at| self.gone | 1 << at);
        self.lines.write(&self.head, gone, out);
    }

    /// Writes an answer's lines out, without its length and those of the field `but`.
    pub fn write_answer(&self, out: &mut Vec<u8>, but: Option<&HeaderName>) {
        let length = self.known.length;
        let mut gone = length.map_or(self.gone, |at| self.gone | 1 << at);
        if let Some(name) = but {
            let named = self.lines.named(&self.head, name.as_str().as_bytes());
            gone = named.fold(gone, |gone, at| gone | 1 << at);
        }
        self.lines.write(&self.head, gone, out);
    }

    fn map(&self) -> HeaderMap {
        self.lines.map(&self.head, self.gone)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} lines)", self.lines.len())
    }
}

fn is(name: &[u8], other: &str) -> bool {
    name.eq_ignore_ascii_case(other.as_bytes())
}

fn begins(name: &[u8], prefix: &str) -> bool {
    name.get(..prefix.len())
        .is_some_and(|start| is(start, prefix))
}

/// Whether a name is a gateway's or a proxy's.
fn is_of_gateways(name: &[u8]) -> bool {
    begins(name, "proxy-") || begins(name, "x-call-")
}

/// What `headers::prepare` and the checks of a request's head look for.
fn in_request(name: &[u8], value: &[u8]) -> Line {
    let telling = match name.len() {
        10 if is(name, "connection") => {
            return if is(value, "keep-alive") {
                Ends
            } else {
                Telling
            };
        }
        4 if is(name, "host") => return Asked(Which::Host),
        14 if is(name, "content-length") => {
            return if lines::is_canonical(value) {
                Asked(Which::Length)
            } else {
                Telling
            };
        }
        2 => is(name, "te"),
        3 => is(name, "via"),
        6 => is(name, "expect") || is(name, "prefer"),
        7 => is(name, "trailer") || is(name, "upgrade"),
        9 if is(name, "x-call-id") => false,
        10 if is(name, "keep-alive") => true,
        14 if is(name, "http2-settings") => true,
        17 if is(name, "transfer-encoding") => true,
        _ => is_of_gateways(name),
    };
    if telling { Telling } else { Ordinary }
}

/// What `headers::strip_answer` and whoever reads an answer's head look for.
fn in_answer(name: &[u8], value: &[u8]) -> Line {
    let telling = match name.len() {
        10 if is(name, "connection") => {
            let plain = is(value, "keep-alive") || is(value, "close");
            return if plain { Ends } else { Telling };
        }
        4 if is(name, "date") => return Asked(Which::Date),
        10 if is(name, "keep-alive") => return Ends,
        14 if is(name, "content-length") => return Asked(Which::Length),
        2 => is(name, "te"),
        6 => is(name, "expect") || is(name, "prefer"),
        7 if is(name, "trailer") || is(name, "upgrade") => true,
        14 if is(name, "http2-settings") => true,
        17 if is(name, "transfer-encoding") => true,
        18 if is(name, "preference-applied") || is(name, "x-original-call-id") => true,
        19 if is(name, "idempotent-replayed") => true,
        _ => is_of_gateways(name),
    };
    if telling { Telling } else { Ordinary }
}

/// One line, as it goes out.
pub fn put_line(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Every line of a map.
pub fn put_all(out: &mut Vec<u8>, map: &HeaderMap) {
    for (name, value) in map {
        put_line(out, name, HeaderValue::as_bytes(value));
    }
}

#[cfg(test)]
pub(crate) mod tests;
