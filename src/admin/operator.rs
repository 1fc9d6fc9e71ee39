//! Who asks and why, as far as the operator's listener can know.
//!
//! The token proves that somebody may; the name is what they say it is. The command line says
//! `user@host` in [`FIELD`]; a request without it is by `api`. Whoever needs names that are proved
//! puts a proxy that knows people in front and lets it write the field.

use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::HeaderName;
use http::request::Parts;

use super::problem::Problem;
use crate::call::code::Code;

/// The field that says who asks.
pub const FIELD: HeaderName = HeaderName::from_static("x-callgate-operator");

/// Who asks, when nobody says so.
const NOBODY: &str = "api";

/// The longest name, and the longest reason: they stand in every list.
const NAME_BYTES_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 1_000;

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) Arc<str>);

impl Operator {
    fn of(parts: &Parts) -> Result<Self, Problem> {
        let mut fields = parts.headers.get_all(FIELD).iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return match parts.headers.contains_key(FIELD) {
                false => Ok(Self(Arc::from(NOBODY))),
                true => Err(bad_name()),
            };
        };
        let name = field.to_str().map(str::trim).unwrap_or_default();
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return Err(bad_name());
        }
        Ok(Self(Arc::from(name)))
    }
}

/// Lays the operator beside the request, or refuses it when the field is none.
pub(super) async fn name(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match Operator::of(&parts) {
        Ok(operator) => {
            parts.extensions.insert(operator);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// A reason as it is kept; `None` when none was given and none is needed.
pub(super) fn reason(
    text: Option<String>,
    member: &str,
    needed: bool,
) -> Result<Option<Arc<str>>, Problem> {
    let text = text.unwrap_or_default();
    let text = text.trim();
    if text.chars().count() > REASON_CHARS_MAX {
        let detail = format!("`{member}` is {REASON_CHARS_MAX} characters at most.");
        return Err(Problem::new(Code::BadRequest, detail));
    }
    match (text.is_empty(), needed) {
        (true, true) => {
            let detail = format!("`{member}` is needed: say why, for whoever reads it later.");
            Err(Problem::new(Code::BadRequest, detail))
        }
        (true, false) => Ok(None),
        (false, _) => Ok(Some(Arc::from(text))),
    }
}

fn bad_name() -> Problem {
    let detail = format!(
        "{FIELD} is one line of visible ASCII, {NAME_BYTES_MAX} characters at most; leave it out \
         to be `{NOBODY}`."
    );
    Problem::new(Code::BadRequest, detail)
}
