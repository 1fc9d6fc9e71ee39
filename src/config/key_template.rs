//! How an idempotency key is made out of a request: fixed text and places to take from.
//!
//! A key has to come out the same when the same operation is asked for again, so there is no place
//! for chance, or what is new in every request. Of time only windows: the day or the minute in
//! which a call was first seen, which stays with its call id. Filling it in is `flow`'s part.

use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::template::JsonPointer;

/// What an operator reads who writes something else.
const FORM: &str = "text with {body:/pointer}, {header:NAME}, {path:NAME} or {query:NAME}, at \
                    least one of them; a key must come out the same on every repeat, so nothing \
                    random, no time but {day} and {minute}, and no field that is new in each \
                    request";

/// Fields that differ from one repeat to the next.
const FLEETING: [&str; 5] = [
    "date",
    "traceparent",
    "tracestate",
    "x-call-id",
    "x-request-id",
];

/// Fixed text and places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyTemplate(Arc<[KeyPart]>);

/// One piece of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyPart {
    /// Text as it stands.
    Text(Arc<str>),
    /// A text, number or flag in the JSON body.
    Body(JsonPointer),
    /// A header field that stands exactly once.
    Header(HeaderName),
    /// A segment the route's path captures.
    Path(Arc<str>),
    /// A query parameter that stands exactly once.
    Query(Arc<str>),
    /// The day on which the call was first seen.
    Day,
    /// The minute in which the call was first seen.
    Minute,
}

impl KeyTemplate {
    /// Reads a template.
    ///
    /// # Errors
    /// What is expected, when there is no place in it, or one that cannot be reproduced.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            if open > 0 {
                parts.push(KeyPart::Text(Arc::from(&rest[..open])));
            }
            let close = rest[open..].find('}').ok_or(FORM)? + open;
            parts.push(KeyPart::parse(&rest[open + 1..close]).ok_or(FORM)?);
            rest = &rest[close + 1..];
        }
        // A window alone would be the key of everything that happens in it.
        if !parts.iter().any(KeyPart::is_place) || rest.contains('}') {
            return Err(FORM.to_owned());
        }
        if !rest.is_empty() {
            parts.push(KeyPart::Text(Arc::from(rest)));
        }
        Ok(Self(Arc::from(parts)))
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> &[KeyPart] {
        &self.0
    }

    /// Whether two places meet without text between them: `1` and `23` then make the key of `12`
    /// and `3`.
    #[must_use]
    pub fn can_collide(&self) -> bool {
        self.0
            .windows(2)
            .any(|pair| pair[0].is_place() && pair[1].is_place())
    }
}

impl KeyPart {
    /// Whether it is taken from the request. Text is as it stands, and windows have a fixed length.
    const fn is_place(&self) -> bool {
        match self {
            Self::Body(_) | Self::Header(_) | Self::Path(_) | Self::Query(_) => true,
            Self::Text(_) | Self::Day | Self::Minute => false,
        }
    }

    fn parse(place: &str) -> Option<Self> {
        match place {
            "day" => return Some(Self::Day),
            "minute" => return Some(Self::Minute),
            _ => {}
        }
        let (kind, name) = place.split_once(':')?;
        match kind {
            "body" => JsonPointer::parse(name).map(Self::Body),
            "header" => HeaderName::from_bytes(name.as_bytes())
                .ok()
                .filter(|name| !FLEETING.contains(&name.as_str()))
                .map(Self::Header),
            "path" if !name.is_empty() => Some(Self::Path(Arc::from(name))),
            "query" if !name.is_empty() => Some(Self::Query(Arc::from(name))),
            _ => None,
        }
    }
}

impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Body(pointer) => write!(f, "{{body:{}}}", pointer.as_str()),
            Self::Header(name) => write!(f, "{{header:{name}}}"),
            Self::Path(name) => write!(f, "{{path:{name}}}"),
            Self::Query(name) => write!(f, "{{query:{name}}}"),
            Self::Day => f.write_str("{day}"),
            Self::Minute => f.write_str("{minute}"),
        }
    }
}

impl fmt::Display for KeyTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().iter().try_for_each(|part| part.fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_read_in_pieces_and_written_as_it_was() {
        let text = "{body:/trackingNo}{body:/a~1b}-{header:x-batch}/{path:id}?{query:n}track_sync\
                    {day}{minute}";
        let template = KeyTemplate::parse(text).unwrap();
        assert_eq!(template.to_string(), text);
        assert_eq!(template.parts().len(), 11);
        assert!(template.can_collide());
        let window = KeyTemplate::parse("{body:/a}{day}").unwrap();
        assert!(!window.can_collide());
        let apart = KeyTemplate::parse("{body:/a}|{body:/b}track").unwrap();
        assert!(!apart.can_collide());
    }

    #[test]
    fn what_cannot_be_reproduced_is_refused() {
        for text in [
            "",
            "constant",
            "{uuid}",
            "{now}",
            "{random:8}",
            "{body:/a}{timestamp}",
            "{body:/a}{hour}",
            "{body:/a}{day:1}",
            "{body:/a}{Day}",
            "sync-{day}",
            "{minute}",
            "{header:Date}",
            "{header:traceparent}",
            "{header:X-Call-Id}",
            "{header:a b}",
            "{body:a}",
            "{path:}",
            "{query:}",
            "{body:/a",
            "{body:/a}}",
        ] {
            assert_eq!(KeyTemplate::parse(text), Err(FORM.to_owned()), "{text}");
        }
    }
}
