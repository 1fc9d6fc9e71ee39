//! How a call is undone: the request, with places for what is known about the call.
//!
//! Filling it in is `upstream`'s part. Deliberately absent: when it is sent, which is a number of
//! the policy and the machine's decision.

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method};

use super::route::Endpoint;
use super::template::{JsonPointer, pieces, word};

/// The undo request of a route (`compensation.reversal`).
#[derive(Clone, Debug, PartialEq)]
pub struct ReversalRule {
    /// Another place than the upstream's; `None`: `path` is appended to the upstream's path.
    pub elsewhere: Option<Endpoint>,
    /// Path and query; values are percent-encoded when filled in.
    pub path: UndoTemplate,
    /// Its method.
    pub method: Method,
    /// Set on every send of it besides `upstream.headers`; the values are marked sensitive.
    pub headers: HeaderMap,
    /// Its body; values are JSON-escaped or percent-encoded when filled in.
    pub body: Option<UndoTemplate>,
}

/// Text with places for what is known about the call that is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoTemplate(Arc<[UndoPart]>);

/// One piece of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoPart {
    /// Text as it stands.
    Text(Arc<str>),
    /// `{call_id}`: the call that is undone.
    CallId,
    /// `{reversal_id}`: the reversal's own id.
    ReversalId,
    /// `{idempotency_key}`: the key of the call that is undone.
    IdempotencyKey,
    /// `{body:/pointer}`: a value of that call's JSON body.
    Body(JsonPointer),
    /// `{receipt:/pointer}`: a value of its receipt.
    Receipt(JsonPointer),
}

impl UndoTemplate {
    /// Reads the places out of `text`. Other braces are text, so that a JSON body needs no
    /// escaping, but a place that is not known is refused.
    ///
    /// # Errors
    /// The unknown place.
    pub fn parse(text: &str) -> Result<Self, String> {
        pieces(text, place, UndoPart::Text, UndoPart::parse).map(Self)
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> &[UndoPart] {
        &self.0
    }
}

/// What stands in a brace that was opened, if it looks like a place: a word, perhaps with a colon.
fn place(inner: &str) -> Option<&str> {
    let word = word(inner);
    let close = match inner[word.len()..].chars().next()? {
        '}' => word.len(),
        ':' => inner.find('}')?,
        _ => return None,
    };
    (!word.is_empty()).then(|| &inner[..close])
}

impl UndoPart {
    fn parse(place: &str) -> Option<Self> {
        match place.split_once(':') {
            None => match place {
                "call_id" => Some(Self::CallId),
                "reversal_id" => Some(Self::ReversalId),
                "idempotency_key" => Some(Self::IdempotencyKey),
                _ => None,
            },
            Some(("body", pointer)) => JsonPointer::parse(pointer).map(Self::Body),
            Some(("receipt", pointer)) => JsonPointer::parse(pointer).map(Self::Receipt),
            Some(_) => None,
        }
    }
}

impl fmt::Display for UndoTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().iter().try_for_each(|part| match part {
            UndoPart::Text(text) => f.write_str(text),
            UndoPart::CallId => f.write_str("{call_id}"),
            UndoPart::ReversalId => f.write_str("{reversal_id}"),
            UndoPart::IdempotencyKey => f.write_str("{idempotency_key}"),
            UndoPart::Body(pointer) => write!(f, "{{body:{}}}", pointer.as_str()),
            UndoPart::Receipt(pointer) => write!(f, "{{receipt:{}}}", pointer.as_str()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_other_braces_are_text() {
        let text = r#"{"order":"{body:/order/id}","of":"{call_id}","id":"{reversal_id}",
            "n":{"k":"{idempotency_key}{receipt:/a~1b}"}}"#;
        let template = UndoTemplate::parse(text).unwrap();
        assert_eq!(template.to_string(), text);
        let places = |part: &&UndoPart| !matches!(part, UndoPart::Text(_));
        assert_eq!(template.parts().iter().filter(places).count(), 5);
        assert_eq!(UndoTemplate::parse("{ }").unwrap().to_string(), "{ }");
        assert_eq!(UndoTemplate::parse("{body").unwrap().to_string(), "{body");
    }

    #[test]
    fn a_place_that_is_not_known_is_refused() {
        for unknown in [
            "{order}",
            "{header:x}",
            "{body:x}",
            "{receipt:a/b}",
            "{callid}",
        ] {
            let inside = unknown.trim_matches(['{', '}']).to_owned();
            assert_eq!(UndoTemplate::parse(unknown), Err(inside));
        }
    }
}
