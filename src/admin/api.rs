//! The JSON API: one call, and the configuration in use.
//!
//! Answers come from the ledger only; no tool is asked.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use http::StatusCode;
use serde::Deserialize;

use super::Admin;
use super::dead::bad;
use super::document::Call;
use super::problem::Problem;
use crate::call::code::Code;
use crate::call::id::{CallId, ClientName};
use crate::ledger::CallView;
use crate::telemetry::log::escaped;

/// Which of several clients' calls is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    pub(super) client: Option<String>,
}

pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<Call>, Problem> {
    let call = one_call(&admin, &id?.0, whose?.0.client.as_deref()).await?;
    Ok(Json(Call::from(&call)))
}

/// The one call with this id, of `client` if several share it.
pub(super) async fn one_call(
    admin: &Admin,
    id: &str,
    client: Option<&str>,
) -> Result<CallView, Problem> {
    let call_id = CallId::parse(id.as_bytes()).map_err(|why| {
        let shown = escaped(id.as_bytes());
        Problem::new(
            Code::InvalidCallId,
            format!("`{shown}` is not a call id: {why}."),
        )
    })?;
    let mut calls = admin
        .ledger
        .view(client.map(ClientName::new), call_id)
        .await?;
    match (calls.pop(), calls.is_empty()) {
        (Some(call), true) => Ok(call),
        (None, _) => {
            let since = super::document::rfc3339(admin.ledger.knows_since());
            let detail = format!(
                "This ledger, which began at {since}, knows no such call. Ended calls are \
                 forgotten after their window (idempotency.window)."
            );
            Err(Problem::new(Code::ReceiptNotFound, detail))
        }
        (Some(last), false) => {
            let names = calls.iter().chain([&last]).map(|call| call.client.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            Err(bad(format!(
                "Several clients use this call id ({names}): add ?client=NAME."
            )))
        }
    }
}

impl From<QueryRejection> for Problem {
    fn from(refused: QueryRejection) -> Self {
        bad(format!("{}.", refused.body_text()))
    }
}

impl From<PathRejection> for Problem {
    fn from(refused: PathRejection) -> Self {
        bad(format!("{}.", refused.body_text()))
    }
}

impl From<JsonRejection> for Problem {
    fn from(refused: JsonRejection) -> Self {
        let status = refused.status();
        let reason = match &refused {
            _ if status == StatusCode::PAYLOAD_TOO_LARGE => return super::too_large(),
            JsonRejection::MissingJsonContentType(_) => "not-json",
            JsonRejection::JsonDataError(_) => "wrong-members",
            _ => "unreadable",
        };
        let detail = format!(
            "{}; send a JSON object, {{}} at least.",
            refused.body_text()
        );
        bad(detail).because(reason).with_status(status)
    }
}
