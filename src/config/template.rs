//! Small texts with meaning: templates with places to fill, and JSON pointers.
//!
//! Filling a template in (percent-encoding for a path, JSON-escaping for a body) is the user's
//! part, because it depends on where the text goes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// Text with places for a call's id and key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Arc<[Part]>);

/// One piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text as it stands.
    Literal(Arc<str>),
    /// `{call_id}`.
    CallId,
    /// `{idempotency_key}`.
    IdempotencyKey,
}

/// An RFC 6901 pointer into a JSON document; `""` is the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPointer(Arc<str>);

impl Template {
    /// Reads `{call_id}` and `{idempotency_key}` out of `text`. Other braces are text, so that a
    /// JSON body needs no escaping, but a place whose name is not known is refused.
    ///
    /// # Errors
    /// The unknown name.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = pieces(text, place, Part::Literal, |name| match name {
            "call_id" => Some(Part::CallId),
            "idempotency_key" => Some(Part::IdempotencyKey),
            _ => None,
        });
        parsed.map(Self)
    }

    /// The pieces in order.
    #[must_use]
    pub fn parts(&self) -> &[Part] {
        &self.0
    }

    /// Whether the call's id or key is named at all.
    #[must_use]
    pub fn names(&self, part: &Part) -> bool {
        self.0.contains(part)
    }
}

/// Cuts `text` at its places. `place` says what stands in a brace that was opened, if it looks like
/// a place; else the brace is text.
///
/// # Errors
/// A place that `named` does not know.
pub(super) fn pieces<P>(
    text: &str,
    place: impl Fn(&str) -> Option<&str>,
    literally: impl Fn(Arc<str>) -> P,
    named: impl Fn(&str) -> Option<P>,
) -> Result<Arc<[P]>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        literal.push_str(&rest[..open]);
        let inner = &rest[open + 1..];
        let Some(place) = place(inner) else {
            literal.push('{');
            rest = inner;
            continue;
        };
        let part = named(place).ok_or_else(|| place.to_owned())?;
        if !literal.is_empty() {
            parts.push(literally(Arc::from(std::mem::take(&mut literal))));
        }
        parts.push(part);
        rest = &inner[place.len() + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(literally(Arc::from(literal)));
    }
    Ok(Arc::from(parts))
}

/// The word an opened brace begins with; empty when it begins with none.
pub(super) fn word(inner: &str) -> &str {
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_';
    &inner[..inner.find(|c| !is_name(c)).unwrap_or(inner.len())]
}

fn place(inner: &str) -> Option<&str> {
    let name = word(inner);
    (!name.is_empty() && inner[name.len()..].starts_with('}')).then_some(name)
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.parts() {
            f.write_str(match part {
                Part::Literal(text) => text,
                Part::CallId => "{call_id}",
                Part::IdempotencyKey => "{idempotency_key}",
            })?;
        }
        Ok(())
    }
}

impl JsonPointer {
    /// Proves `text` to be a pointer: empty or beginning with `/`, `~` only as `~0` or `~1`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let shape = text.is_empty() || text.starts_with('/');
        let escapes = text
            .split('~')
            .skip(1)
            .all(|after| after.starts_with(['0', '1']));
        (shape && escapes).then(|| Self(Arc::from(text)))
    }

    /// The value it points at.
    #[must_use]
    pub fn find<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        document.pointer(&self.0)
    }

    /// The word it points at: text as it stands, a number or a flag as it is written in JSON, so
    /// that `{"code": 0}` is matched by the word `"0"`.
    #[must_use]
    pub fn word<'v>(&self, document: &'v Value) -> Option<Cow<'v, str>> {
        match self.find(document)? {
            Value::String(text) => Some(Cow::Borrowed(text)),
            Value::Number(number) => Some(Cow::Owned(number.to_string())),
            Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The pointer's text, as `serde_json::Value::pointer` takes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_knows_its_places_and_refuses_unknown_names() {
        let parts = |text| Template::parse(text).unwrap().parts().to_vec();
        let lit = |text| Part::Literal(Arc::from(text));
        assert_eq!(parts("/r/{call_id}"), [lit("/r/"), Part::CallId]);
        assert_eq!(
            parts("/{call_id}/{idempotency_key}?x"),
            [
                lit("/"),
                Part::CallId,
                lit("/"),
                Part::IdempotencyKey,
                lit("?x")
            ]
        );
        assert_eq!(
            parts(r#"{"id": "{call_id}", "a": {}}"#),
            [lit(r#"{"id": ""#), Part::CallId, lit(r#"", "a": {}}"#)]
        );
        assert_eq!(parts(""), []);
        assert_eq!(Template::parse("/{callid}").unwrap_err(), "callid");
        for text in [
            "/r/{call_id}",
            r#"{"id": "{call_id}", "a": {}}"#,
            "{",
            "a{b",
        ] {
            assert_eq!(Template::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_pointer_begins_with_a_slash_and_escapes_properly() {
        for good in ["", "/", "/a/b", "/a~0b/~1", "/0"] {
            assert_eq!(JsonPointer::parse(good).unwrap().as_str(), good);
        }
        for bad in ["a", "a/b", "/a~", "/a~2", "~0"] {
            assert_eq!(JsonPointer::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_word_is_text_a_number_or_a_flag() {
        let document = serde_json::json!({ "a": "x", "b": [0, 1.5, true, null], "c": {} });
        let word = |at: &str| {
            JsonPointer::parse(at)
                .unwrap()
                .word(&document)
                .map(Cow::into_owned)
        };
        let table = [
            ("/a", Some("x")),
            ("/b/0", Some("0")),
            ("/b/1", Some("1.5")),
            ("/b/2", Some("true")),
            ("/b/3", None),
            ("/c", None),
            ("/d", None),
        ];
        for (at, expected) in table {
            assert_eq!(word(at).as_deref(), expected, "{at}");
        }
    }
}
