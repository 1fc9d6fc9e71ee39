//! Refusals of the operator's listener: RFC 9457 documents with the same codes callers get.
//!
//! Deliberately absent: `sent` and `repeat`; nothing asked here is a call.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::json;

use crate::call::code::Code;
use crate::ledger::LedgerError;

/// Where the codes are explained.
const ERRORS_PAGE: &str = "https://github.com/callgate/callgate/blob/main/docs/errors.md";

/// A refusal.
#[derive(Debug)]
pub(super) struct Problem {
    code: Code,
    status: StatusCode,
    detail: String,
    /// A word of a closed set that says why, for programs.
    reason: Option<&'static str>,
}

impl Problem {
    /// A refusal with the code's own status; `detail` ends with the next action.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            reason: None,
        }
    }

    /// The same with a reason.
    pub(super) const fn because(mut self, reason: &'static str) -> Self {
        self.reason = Some(reason);
        self
    }

    /// The same with another status.
    pub(super) fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }
}

impl From<LedgerError> for Problem {
    fn from(error: LedgerError) -> Self {
        let code = if error.is_overload() {
            Code::Overloaded
        } else {
            Code::LedgerUnavailable
        };
        Self::new(code, format!("{error}. Ask again, or see /readyz?verbose."))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let (code, status) = (self.code.as_str(), self.status.as_u16());
        let mut document = json!({
            "type": format!("{ERRORS_PAGE}#{code}-{}", self.code.status().as_u16()),
            "title": self.status.canonical_reason().unwrap_or(code),
            "status": status,
            "detail": self.detail,
            "code": code,
        });
        if let Some(reason) = self.reason {
            document["reason"] = reason.into();
        }
        let mut response = (self.status, Json(document)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
