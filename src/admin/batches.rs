//! The API of batches: submit, watch, turn, export.
//!
//! A submission streams in and an export streams out, so that neither holds a million items; both
//! stand outside the listener's bounds on time and size, and have their own. Deliberately absent:
//! reading rows (`batch/rows`) and running them (`batch/worker`).

mod document;
mod query;
mod stream;

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Admin;
use super::problem::Problem;
use crate::batch::Intake;
use crate::batch::intake::{Refusal, Submitted};
use crate::batch::rows::Trouble;
use crate::call::code::Code;
use crate::call::id::CallId;
use crate::ledger::batch::{BatchState, BatchView, ItemState, Turn, Turned, WhichBatches};
use crate::telemetry::log::escaped;
use document::Document;
use stream::{Flowing, Upload};

/// The most batches one list holds; older ones are found by name.
const LIST_MAX: usize = 1_000;
const LIST_DEFAULT: usize = 100;

/// Where batches come in, once callers are served.
pub struct BatchDoor {
    intake: OnceLock<Arc<Intake>>,
    /// Ends what is being watched.
    stop: CancellationToken,
}

impl BatchDoor {
    /// A door that is still shut; `stop` ends what is being watched through it.
    #[must_use]
    pub const fn new(stop: CancellationToken) -> Self {
        Self {
            intake: OnceLock::new(),
            stop,
        }
    }

    /// Lets batches in, from now on.
    pub fn open(&self, intake: Arc<Intake>) {
        // A second time cannot happen, and would change nothing.
        let _ = self.intake.set(intake);
    }

    /// A batch as it is told.
    fn document(&self, view: &BatchView) -> Document {
        let running = self
            .intake
            .get()
            .map_or(0, |intake| intake.running(view.id));
        Document::new(view, running)
    }
}

/// What answers at once.
pub(super) fn short() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/batches", get(list))
        .route("/api/v1/batches/{name}", get(show))
        .route("/api/v1/batches/{name}/pause", post(pause))
        .route("/api/v1/batches/{name}/resume", post(resume))
        .route("/api/v1/batches/{name}/cancel", post(cancel))
}

/// What streams.
pub(super) fn streaming() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/batches", post(submit))
        .route("/api/v1/batches/{name}/events", get(events))
        .route("/api/v1/batches/{name}/export", get(export))
}

/// Which batches are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Which {
    open: Option<bool>,
    limit: Option<usize>,
    /// The batch of an unresolved call.
    call_id: Option<String>,
}

/// How items are exported.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    state: Option<String>,
    format: Option<String>,
}

type Named = Result<Path<String>, PathRejection>;

async fn list(
    State(admin): State<Arc<Admin>>,
    which: Result<Query<Which>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let Which {
        open,
        limit,
        call_id,
    } = which?.0;
    let limit = limit.unwrap_or(LIST_DEFAULT);
    if !(1..=LIST_MAX).contains(&limit) {
        return Err(bad(format!("`limit` is 1 to {LIST_MAX}.")));
    }
    if let Some(text) = call_id {
        return of_call(&admin, &text).await;
    }
    let which = if open == Some(true) {
        WhichBatches::Open
    } else {
        WhichBatches::All
    };
    let found = admin.ledger.batches(which, limit).await?;
    let items: Vec<Document> = found
        .iter()
        .map(|view| admin.batches.document(view))
        .collect();
    Ok(Json(json!({ "items": items, "next": null })))
}

/// The batch an unresolved call belongs to.
async fn of_call(admin: &Admin, text: &str) -> Result<Json<Value>, Problem> {
    let call_id = CallId::parse(text.as_bytes()).map_err(|why| {
        let shown = escaped(text.as_bytes());
        Problem::new(
            Code::InvalidCallId,
            format!("`{shown}` is not a call id: {why}."),
        )
    })?;
    let mut items = Vec::new();
    if let Some((name, line)) = admin.ledger.item_of(call_id).await?
        && let Some(view) = admin.ledger.batch(name).await?
    {
        let mut item = json!(admin.batches.document(&view));
        item["line"] = line.into();
        items.push(item);
    }
    Ok(Json(json!({ "items": items, "next": null })))
}

async fn show(State(admin): State<Arc<Admin>>, name: Named) -> Result<Json<Document>, Problem> {
    let view = one(&admin, &name?.0).await?;
    Ok(Json(admin.batches.document(&view)))
}

async fn pause(admin: State<Arc<Admin>>, name: Named) -> Result<Json<Document>, Problem> {
    turn(admin, name, Turn::Pause).await
}

async fn resume(admin: State<Arc<Admin>>, name: Named) -> Result<Json<Document>, Problem> {
    turn(admin, name, Turn::Resume).await
}

async fn cancel(admin: State<Arc<Admin>>, name: Named) -> Result<Json<Document>, Problem> {
    turn(admin, name, Turn::Cancel).await
}

async fn turn(
    State(admin): State<Arc<Admin>>,
    name: Named,
    turn: Turn,
) -> Result<Json<Document>, Problem> {
    let name = name?.0;
    let turned = admin
        .ledger
        .turn_batch(Arc::from(name.as_str()), turn, (admin.now)())
        .await?;
    match turned {
        None => Err(unknown(&name)),
        Some(Turned::Not(view)) => Err(not_turned(turn, view.state)),
        Some(Turned::Done(view)) => {
            let (batch, state) = (&*view.name, view.state.as_str());
            tracing::info!(batch, state, "a batch was turned by hand");
            if let Some(intake) = admin.batches.intake.get() {
                intake.turned(&view);
            }
            Ok(Json(admin.batches.document(&view)))
        }
    }
}

/// Why a batch in this state does not take that turn.
fn not_turned(turn: Turn, state: BatchState) -> Problem {
    let turn = match turn {
        Turn::Pause => "paused",
        Turn::Resume => "resumed",
        Turn::Cancel => "cancelled",
    };
    let (why, reason) = match state {
        BatchState::Loading => (
            "its file has not come in whole. Push the file again under the same name, or cancel \
             the batch",
            "batch-loading",
        ),
        BatchState::Cancelled => (
            "it is cancelled. Push its file under another name to run the rows that are left",
            "batch-cancelled",
        ),
        BatchState::Finished => ("it is finished: every row has its end", "batch-finished"),
        BatchState::Running | BatchState::Paused => ("it changed meanwhile. Ask again", "running"),
    };
    let detail = format!("The batch cannot be {turn}: {why}.");
    Problem::new(Code::OrderRefused, detail).because(reason)
}

async fn submit(State(admin): State<Arc<Admin>>, request: Request) -> Result<Response, Problem> {
    let Some(intake) = admin.batches.intake.get().cloned() else {
        let detail = "The gateway is starting. Submit the batch again in a moment.";
        return Err(Problem::new(Code::Overloaded, detail));
    };
    let kind = request.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    let order = query::order(request.uri().query().unwrap_or_default(), kind).map_err(bad)?;
    let place = intake.place(&order.name).await?;
    let (upload, reader) = Upload::new();
    // The thread ends with the upload: when this is dropped, the reader sees it cut.
    let reading = tokio::task::spawn_blocking(move || intake.take(&order, &place, reader));
    upload.feed(request.into_body()).await;
    let taken = reading.await.map_err(|_panic| {
        let detail = "The gateway failed at this file; its log has the reason. Calls go on.";
        Problem::new(Code::Internal, detail)
    })?;
    let Submitted {
        batch,
        new,
        known,
        bad,
        bad_rows,
    } = taken?;
    let bad_rows: Vec<Value> = bad_rows
        .iter()
        .map(|row| json!({ "line": row.line, "why": row.why }))
        .collect();
    let document = json!({
        "batch": admin.batches.document(&batch),
        "new": new,
        "known": known,
        "bad": bad,
        "badRows": bad_rows,
    });
    let status = if new > 0 {
        StatusCode::CREATED
    } else {
        StatusCode::OK
    };
    Ok((status, Json(document)).into_response())
}

async fn events(State(admin): State<Arc<Admin>>, name: Named) -> Result<Response, Problem> {
    let view = one(&admin, &name?.0).await?;
    let body = Flowing::events(Arc::clone(&admin), view);
    let fields = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    Ok((fields, Body::new(body)).into_response())
}

async fn export(
    State(admin): State<Arc<Admin>>,
    name: Named,
    wanted: Result<Query<Wanted>, QueryRejection>,
) -> Result<Response, Problem> {
    let view = one(&admin, &name?.0).await?;
    let Wanted { state, format } = wanted?.0;
    let state = state.as_deref().map(item_state).transpose()?;
    let (csv, kind) = match format.as_deref() {
        None | Some("ndjson") => (false, "application/x-ndjson"),
        Some("csv") => (true, "text/csv; charset=utf-8"),
        Some(other) => {
            let shown = escaped(other.as_bytes());
            return Err(bad(format!("`{shown}` is no format; it is ndjson or csv.")));
        }
    };
    let body = Flowing::items(Arc::clone(&admin.ledger), view.id, state, csv);
    Ok(([(header::CONTENT_TYPE, kind)], Body::new(body)).into_response())
}

async fn one(admin: &Admin, name: &str) -> Result<BatchView, Problem> {
    let found = admin.ledger.batch(Arc::from(name)).await?;
    found.ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Problem {
    let shown = escaped(name.as_bytes());
    let detail = format!(
        "No batch is called `{shown}`; /api/v1/batches lists them. Ended batches are forgotten \
         after ledger.retention."
    );
    Problem::new(Code::ReceiptNotFound, detail)
}

fn item_state(word: &str) -> Result<ItemState, Problem> {
    ItemState::from_word(&word.to_ascii_uppercase()).ok_or_else(|| {
        let words = ItemState::ALL.map(ItemState::as_str).join(", ");
        let shown = escaped(word.as_bytes());
        bad(format!("`{shown}` is no state; use one of {words}."))
    })
}

fn bad(detail: String) -> Problem {
    Problem::new(Code::BadRequest, detail)
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = format!("{refusal}.");
        match refusal {
            Refusal::Taken(_) => Self::new(Code::OrderRefused, detail).because("name-taken"),
            Refusal::Busy => Self::new(Code::Overloaded, detail),
            Refusal::Ledger { source } if source.is_overload() => {
                Self::new(Code::Overloaded, detail)
            }
            Refusal::Ledger { .. } => Self::new(Code::LedgerUnavailable, detail),
            Refusal::File {
                trouble: Trouble::Read(_),
                ..
            } => Self::new(Code::RequestTimeout, detail),
            Refusal::Order(_)
            | Refusal::NoRoute { .. }
            | Refusal::File { .. }
            | Refusal::Strict { .. } => Self::new(Code::BadRequest, detail),
        }
    }
}
