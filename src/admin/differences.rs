//! Contradictions between what is on record and what the tool said besides, for reconciliation.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};

use super::Admin;
use super::dead::{bad, page_size};
use super::document::{rfc3339, settled_by};
use super::problem::Problem;
use crate::call::id::ClientName;
use crate::call::receipt::State as Word;
use crate::call::time::Wall;
use crate::ledger::desk::{DifferenceCursor, Differing, WhichDifferences};
use crate::ledger::{Contradiction, DeadState, RowId};
use crate::telemetry::log::escaped;

/// How many a page holds unless asked otherwise.
const PAGE_DEFAULT: usize = 100;

/// The address of differences.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new().route("/api/v1/differences", get(list))
}

/// Which differences are meant, and which page of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    kind: Option<String>,
    route: Option<String>,
    client: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

/// A page of differences, newest first.
#[derive(Debug, Serialize)]
struct Page {
    items: Vec<Line>,
    next: Option<String>,
}

/// One difference, in the words of the tables.
#[derive(Debug, Serialize)]
struct Line {
    seen: String,
    call_id: String,
    kind: &'static str,
    told: String,
    recorded: Option<&'static str>,
    settled_by: Option<&'static str>,
    settled_at: Option<String>,
    dead_letter: Option<&'static str>,
    route: String,
    client: String,
    business_key: Option<String>,
    request_id: Option<String>,
}

async fn list(
    State(admin): State<Arc<Admin>>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Page>, Problem> {
    let which = which?.0;
    let limit = page_size(which.limit, PAGE_DEFAULT)?;
    let from = which.cursor.as_deref().map(cursor).transpose()?;
    let wanted = WhichDifferences {
        kind: which.kind.as_deref().map(kind).transpose()?,
        route: which.route.map(Arc::from),
        client: which.client.as_deref().map(ClientName::new),
        since: None,
    };
    let page = admin.ledger.differences(wanted, from, limit).await?;
    let next = page.next.map(|at| {
        let (row, kind) = (at.row.0, at.kind.as_str());
        format!("{}.{row}.{}.{kind}", at.at.0, at.life)
    });
    Ok(Json(Page {
        items: page.items.iter().map(Line::from).collect(),
        next,
    }))
}

impl From<&Differing> for Line {
    fn from(seen: &Differing) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        Self {
            seen: rfc3339(seen.place.at),
            call_id: seen.call_id.as_str().to_owned(),
            kind: seen.place.kind.as_str(),
            told: seen.told.to_string(),
            recorded: seen.recorded.map(Word::as_str),
            settled_by: seen.by.map(settled_by),
            settled_at: seen.settled_at.map(rfc3339),
            dead_letter: seen.dead.map(DeadState::as_str),
            route: seen.route.to_string(),
            client: seen.client.as_str().to_owned(),
            business_key: text(&seen.business_key),
            request_id: text(&seen.idempotency_key),
        }
    }
}

fn kind(word: &str) -> Result<Contradiction, Problem> {
    let mut kinds = Contradiction::ALL.into_iter();
    kinds.find(|kind| kind.as_str() == word).ok_or_else(|| {
        let words = Contradiction::ALL.map(Contradiction::as_str).join(", ");
        let shown = escaped(word.as_bytes());
        bad(format!(
            "`{shown}` is no kind of difference; use one of {words}."
        ))
    })
}

fn cursor(text: &str) -> Result<DifferenceCursor, Problem> {
    let parts: Vec<&str> = text.split('.').collect();
    let parsed = match parts.as_slice() {
        [at, row, life, word] => at.parse().ok().and_then(|at| {
            Some(DifferenceCursor {
                at: Wall(at),
                row: RowId(row.parse().ok()?),
                life: life.parse().ok()?,
                kind: kind(word).ok()?,
            })
        }),
        _ => None,
    };
    parsed.ok_or_else(|| {
        let shown = escaped(text.as_bytes());
        bad(format!(
            "`{shown}` is no cursor; take `next` of the page before as it is."
        ))
    })
}
