//! The JSON API: one call, the dead letters, the configuration in use.
//!
//! Answers come from the ledger only; no tool is asked. A parameter nobody knows is refused, since
//! a filter with a typing error would otherwise list everything.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Admin;
use super::document::{Call, Row};
use super::problem::Problem;
use crate::call::code::Code;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::{CallView, Cursor, DeadState, Filter, PAGE_MAX, RowId};
use crate::telemetry::log::escaped;

/// How many dead letters a page holds unless asked otherwise.
const PAGE_DEFAULT: usize = 100;

/// Which of several clients' calls is meant.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Whose {
    pub(super) client: Option<String>,
}

/// Which dead letters are meant; every one that is given must match.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    state: Option<String>,
    route: Option<String>,
    client: Option<String>,
    older_than: Option<String>,
    error: Option<String>,
    key: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    items: Vec<Row>,
    next: Option<String>,
}

/// A dead letter with the call it belongs to.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    row: Row,
    call: Call,
}

pub(super) async fn call(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<Call>, Problem> {
    let call = one_call(&admin, &id?.0, whose?.0.client.as_deref()).await?;
    Ok(Json(Call::from(&call)))
}

pub(super) async fn dead_letter(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<Shown>, Problem> {
    let call = one_call(&admin, &id?.0, whose?.0.client.as_deref()).await?;
    let Some(row) = &call.dead_letter else {
        let detail = format!(
            "The call is {} and was never parked; its story is at /api/v1/calls/{{id}}.",
            call.state.as_str()
        );
        return Err(Problem::new(Code::ReceiptNotFound, detail));
    };
    Ok(Json(Shown {
        row: Row::from(row),
        call: Call::from(&call),
    }))
}

pub(super) async fn dead_letters(
    State(admin): State<Arc<Admin>>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let which = which?.0;
    let limit = which.limit.unwrap_or(PAGE_DEFAULT);
    if !(1..=PAGE_MAX).contains(&limit) {
        return Err(bad(format!("`limit` is 1 to {PAGE_MAX}.")));
    }
    let from = which.cursor.as_deref().map(cursor).transpose()?;
    let filter = filter(which, (admin.now)())?;
    let page = admin.ledger.dead_letters(filter, from, limit).await?;
    let next = page.next.map(|at| format!("{}.{}", at.row.0, at.life));
    Ok(Json(Page {
        items: page.items.iter().map(Row::from).collect(),
        next,
    }))
}

pub(super) async fn config(State(admin): State<Arc<Admin>>) -> Json<Value> {
    Json(admin.config.clone())
}

/// The one call with this id, of `client` if several share it.
async fn one_call(admin: &Admin, id: &str, client: Option<&str>) -> Result<CallView, Problem> {
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

fn filter(which: Which, now: Wall) -> Result<Filter, Problem> {
    let state = which.state.as_deref().map(state).transpose()?;
    let parked_before = which
        .older_than
        .as_deref()
        .map(|age| older_than(age, now))
        .transpose()?;
    Ok(Filter {
        state,
        route: which.route.map(Arc::from),
        client: which.client.as_deref().map(ClientName::new),
        parked_before,
        error: which.error.map(Arc::from),
        key: which.key.map(Arc::from),
        call_id: None,
    })
}

fn state(word: &str) -> Result<DeadState, Problem> {
    DeadState::from_word(&word.to_ascii_uppercase()).ok_or_else(|| {
        let words = DeadState::ALL.map(DeadState::as_str).join(", ");
        bad(format!(
            "`{}` is no state; use one of {words}.",
            escaped(word.as_bytes())
        ))
    })
}

fn older_than(age: &str, now: Wall) -> Result<Wall, Problem> {
    let wrong = || {
        let shown = escaped(age.as_bytes());
        bad(format!(
            "`older_than` is an age such as 90s, 15m or 2h, not `{shown}`."
        ))
    };
    let age = humantime::parse_duration(age).map_err(|_| wrong())?;
    let ms = i64::try_from(age.as_millis()).map_err(|_| wrong())?;
    Ok(Wall(now.0.saturating_sub(ms)))
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    let parsed = text.split_once('.').and_then(|(row, life)| {
        Some(Cursor {
            row: RowId(row.parse().ok()?),
            life: life.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| {
        let shown = escaped(text.as_bytes());
        bad(format!(
            "`{shown}` is no cursor; take `next` of the page before as it is."
        ))
    })
}

pub(super) fn bad(detail: String) -> Problem {
    Problem::new(Code::BadRequest, detail)
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
