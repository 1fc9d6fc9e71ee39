//! Dead letters over HTTP: the list, one row with its story, and the operators' verbs.
//!
//! A parameter nobody knows is refused, since a filter with a typing error would otherwise mean
//! everything. Every verb is a POST with a JSON body: a browser sends no such thing to another
//! site without asking it first, so that a page that was opened by chance changes nothing here.

mod criteria;
mod document;
mod verbs;

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::api::{Whose, one_call};
use super::document::Row;
use super::problem::Problem;
use crate::call::code::Code;
use crate::ledger::{Cursor, PAGE_MAX, RowId, Sort};
use crate::telemetry::log::escaped;
pub(super) use criteria::Criteria;
use document::Shown;

/// How many dead letters a page holds unless asked otherwise.
const PAGE_DEFAULT: usize = 100;

/// The addresses of dead letters.
pub(super) fn routes() -> Router<Arc<Admin>> {
    let one = "/api/v1/dead-letters/{id}";
    let verb = |name: &str| format!("{one}/{name}");
    Router::new()
        .route("/api/v1/dead-letters", get(list))
        .route(one, get(show))
        .route(&verb("receipt"), post(verbs::receipt))
        .route(&verb("resend"), post(verbs::resend))
        .route(&verb("reverse"), post(verbs::reverse))
        .route(&verb("resolve"), post(verbs::resolve))
        .route(&verb("discard"), post(verbs::discard))
        .route(&verb("release-key"), post(verbs::release_key))
}

/// Which dead letters are meant, in which order, and which page of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Which {
    state: Option<String>,
    route: Option<String>,
    client: Option<String>,
    older_than: Option<String>,
    error: Option<String>,
    receipt: Option<String>,
    key: Option<String>,
    text: Option<String>,
    sort: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

impl Which {
    fn criteria(&self) -> Criteria {
        Criteria {
            state: self.state.clone(),
            route: self.route.clone(),
            client: self.client.clone(),
            older_than: self.older_than.clone(),
            error: self.error.clone(),
            receipt: self.receipt.clone(),
            key: self.key.clone(),
            text: self.text.clone(),
        }
    }
}

/// A page of dead letters.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    items: Vec<Row>,
    next: Option<String>,
}

async fn list(
    State(admin): State<Arc<Admin>>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let which = which?.0;
    let limit = page_size(which.limit, PAGE_DEFAULT)?;
    let from = which.cursor.as_deref().map(cursor).transpose()?;
    let mut filter = which.criteria().filter((admin.now)())?;
    if let Some(word) = &which.sort {
        filter.sort = sort(word)?;
    }
    let page = admin.ledger.dead_letters(filter, from, limit).await?;
    let next = page
        .next
        .map(|at| format!("{}.{}.{}", at.at, at.row.0, at.life));
    Ok(Json(Page {
        items: page.items.iter().map(Row::from).collect(),
        next,
    }))
}

async fn show(
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
    let audit = admin.ledger.audit(call.row).await?;
    Ok(Json(Shown::new(row, &call, &audit)))
}

/// The size of a page that was asked for.
pub(super) fn page_size(asked: Option<usize>, usual: usize) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(usual);
    if (1..=PAGE_MAX).contains(&limit) {
        return Ok(limit);
    }
    Err(bad(format!("`limit` is 1 to {PAGE_MAX}.")))
}

fn sort(word: &str) -> Result<Sort, Problem> {
    Sort::from_word(word).ok_or_else(|| {
        let words = Sort::ALL.map(Sort::as_str).join(", ");
        let shown = escaped(word.as_bytes());
        bad(format!("`{shown}` is no order; use one of {words}."))
    })
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    let parsed = text.split_once('.').and_then(|(at, rest)| {
        let (row, life) = rest.split_once('.')?;
        Some(Cursor {
            at: at.parse().ok()?,
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

/// A refusal of a request that cannot be used as it is.
pub(super) fn bad(detail: String) -> Problem {
    Problem::new(Code::BadRequest, detail)
}
