//! Filling a call's id and key into a path or a body, so that no id can break out of its place.

use http::HeaderValue;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::call::id::CallId;
use crate::config::template::{Part, Template};

/// Everything but RFC 3986's unreserved characters: an id stays one segment, or one value.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What a filled-in value has to be safe in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Form {
    /// A path, a query, or a form body.
    Url,
    /// The inside of a JSON string.
    Json,
}

impl Form {
    /// JSON when the template begins like JSON, else a web form.
    pub(in crate::upstream) fn of(body: &Template) -> Self {
        Self::of_text(match body.parts().first() {
            Some(Part::Literal(text)) => Some(&**text),
            Some(Part::CallId | Part::IdempotencyKey) | None => None,
        })
    }

    /// The same by the text a template begins with.
    pub(in crate::upstream) fn of_text(begins: Option<&str>) -> Self {
        match begins {
            Some(text) if text.trim_start().starts_with(['{', '[', '"']) => Self::Json,
            Some(_) | None => Self::Url,
        }
    }

    pub(in crate::upstream) const fn media_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Url => "application/x-www-form-urlencoded",
            Self::Json => "application/json",
        })
    }
}

/// The template with its places filled; `None` when it names a key the call has not.
pub(in crate::upstream) fn fill(
    template: &Template,
    id: &CallId,
    key: Option<&str>,
    form: Form,
) -> Option<String> {
    let mut text = String::with_capacity(64);
    for part in template.parts() {
        match part {
            Part::Literal(literal) => text.push_str(literal),
            Part::CallId => push(&mut text, id.as_str(), form),
            Part::IdempotencyKey => push(&mut text, key?, form),
        }
    }
    Some(text)
}

/// Fills in one text, safe where it stands.
pub(in crate::upstream) fn push(text: &mut String, value: &str, form: Form) {
    match form {
        Form::Url => text.extend(utf8_percent_encode(value, RESERVED)),
        Form::Json => {
            let quoted = serde_json::Value::from(value).to_string();
            // Without the quotes: the template has its own.
            text.push_str(&quoted[1..quoted.len() - 1]);
        }
    }
}
