//! Bulk jobs over HTTP: preview, make, look, cancel.
//!
//! An empty filter needs `all: true`, so that a forgotten option never means everything. Two
//! operators who ask for the same get the same job, and the second is told so.

use std::sync::Arc;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Admin;
use super::dead::{Criteria, bad, page_size};
use super::document::rfc3339;
use super::operator::{Operator, reason};
use super::problem::Problem;
use crate::call::code::Code;
use crate::ledger::desk::job::{Cancelled, Job, JobId, JobItem, JobMade, NewJob, RUNNING_MAX};
use crate::ledger::desk::{By, Verb};
use crate::ledger::{DeadState, Filter};

/// Items of one page, and jobs of one list, unless asked otherwise.
const PAGE_DEFAULT: usize = 100;

/// Rows begun in a minute unless asked otherwise: ten a second.
const PER_MINUTE: u32 = 600;

/// The most that may be asked for: a thousand a second.
const PER_MINUTE_MAX: u32 = 60_000;

/// What a verb that may send or end something is for; a question may go to any row.
const WORKABLE: &[DeadState] = &[DeadState::Queued, DeadState::Running, DeadState::Manual];

/// The addresses of jobs.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/jobs", get(list).post(make))
        .route("/api/v1/jobs/preview", post(preview))
        .route("/api/v1/jobs/{id}", get(show).delete(cancel))
        .route("/api/v1/jobs/{id}/items", get(items))
}

/// A bulk verb, as it is asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    verb: String,
    #[serde(default)]
    filter: Criteria,
    /// Every row is meant when the filter is empty.
    #[serde(default)]
    all: bool,
    per_minute: Option<u32>,
    why: Option<String>,
}

/// The page of a list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Paging {
    limit: Option<usize>,
    cursor: Option<u32>,
}

/// One row of a job.
#[derive(Debug, Serialize)]
struct Item {
    item: u32,
    call_id: String,
    client: String,
    state: &'static str,
    result: Option<String>,
    detail: Option<String>,
    ended_at: Option<String>,
}

impl Wanted {
    /// The verb and the rows it is for.
    fn meant(self, admin: &Admin) -> Result<(Verb, Criteria, Filter), Problem> {
        let verb = verb(&self.verb)?;
        if self.filter.is_empty() && !self.all {
            let detail = "An empty filter means every dead letter; say so with `all: true` \
                          (--all), or say which are meant."
                .to_owned();
            return Err(bad(detail));
        }
        let criteria = self.filter.canonical();
        let mut filter = criteria.filter((admin.now)())?;
        if verb != Verb::Receipt {
            filter.within = WORKABLE;
            if let Some(state) = filter.state.filter(|state| !WORKABLE.contains(state)) {
                let (verb, state) = (verb.as_str(), state.as_str());
                let detail = format!("A row that is {state} takes no {verb}: it is over.");
                return Err(bad(detail));
            }
        }
        Ok((verb, criteria, filter))
    }
}

async fn preview(
    State(admin): State<Arc<Admin>>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let (verb, _, filter) = wanted?.0.meant(&admin)?;
    let found = admin.verbs()?.preview(filter).await?;
    Ok(Json(json!({
        "verb": verb.as_str(),
        "matching": found.matching,
        "asked": found.asked,
        "complete": found.is_complete(),
        "done": found.done,
        "failed": found.failed,
        "processing": found.processing,
        "safe_to_resend": found.safe_to_resend,
        "not_resendable": found.not_resendable,
        "unknown": found.unknown,
        "not_askable": found.not_askable,
    })))
}

async fn make(
    State(admin): State<Arc<Admin>>,
    Extension(Operator(who)): Extension<Operator>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let wanted = wanted?.0;
    let per_minute = wanted.per_minute.unwrap_or(PER_MINUTE);
    if !(1..=PER_MINUTE_MAX).contains(&per_minute) {
        return Err(bad(format!("`per_minute` is 1 to {PER_MINUTE_MAX}.")));
    }
    let discards = wanted.verb == Verb::Discard.as_str();
    let why = reason(wanted.why.clone(), "why", discards)?;
    let (verb, criteria, filter) = wanted.meant(&admin)?;
    let text = serde_json::to_string(&criteria)
        .map_err(|error| Problem::new(Code::Internal, format!("{error}. Report this.")))?;
    let verbs = admin.verbs()?;
    let by = By {
        who,
        why,
        now: verbs.now(),
        job: None,
    };
    let new = NewJob {
        verb,
        filter,
        text: text.into(),
        per_minute,
        by,
    };
    let (job, joined) = match verbs.make_job(new).await? {
        JobMade::Made(job) => (job, false),
        JobMade::Joined(job) => (job, true),
        JobMade::Nothing => {
            let detail = "No dead letter matches, so there is nothing to do and no job.";
            return Err(Problem::new(Code::ReceiptNotFound, detail));
        }
        JobMade::TooMany => {
            let detail = format!(
                "{RUNNING_MAX} bulk jobs run already; wait for one or cancel one (DELETE \
                 /api/v1/jobs/N, `dead job cancel N`)."
            );
            return Err(Problem::new(Code::OrderRefused, detail).because("too-many-jobs"));
        }
    };
    let mut document = about(&job);
    document["joined"] = joined.into();
    Ok(Json(document))
}

async fn list(
    State(admin): State<Arc<Admin>>,
    paging: Result<Query<Paging>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let limit = page_size(paging?.0.limit, PAGE_DEFAULT)?;
    let jobs = admin.ledger.jobs(limit).await?;
    let jobs: Vec<_> = jobs.iter().map(about).collect();
    Ok(Json(json!({ "items": jobs, "next": null })))
}

async fn show(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let id = id?.0;
    let job = admin.ledger.job(JobId(id)).await?;
    job.as_ref().map(about).map(Json).ok_or_else(|| unknown(id))
}

async fn items(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<i64>, PathRejection>,
    paging: Result<Query<Paging>, QueryRejection>,
) -> Result<Json<Value>, Problem> {
    let (id, paging) = (id?.0, paging?.0);
    let limit = page_size(paging.limit, PAGE_DEFAULT)?;
    if admin.ledger.job(JobId(id)).await?.is_none() {
        return Err(unknown(id));
    }
    let from = paging.cursor.unwrap_or(0);
    let found = admin.ledger.job_items(JobId(id), from, limit).await?;
    let next = (found.len() == limit).then(|| found.last().map(|item| item.seq.to_string()));
    let items: Vec<_> = found.iter().map(Item::from).collect();
    Ok(Json(json!({ "items": items, "next": next.flatten() })))
}

async fn cancel(
    State(admin): State<Arc<Admin>>,
    Extension(Operator(who)): Extension<Operator>,
    id: Result<Path<i64>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let id = id?.0;
    let (job, result) = match admin.verbs()?.cancel_job(JobId(id), who).await? {
        Cancelled::Applied(job) => (job, "done"),
        Cancelled::Already(job) => (job, "already"),
        Cancelled::Gone => return Err(unknown(id)),
    };
    let mut document = about(&job);
    document["result"] = result.into();
    Ok(Json(document))
}

fn verb(word: &str) -> Result<Verb, Problem> {
    match Verb::from_word(word) {
        Some(verb @ (Verb::Receipt | Verb::Resend | Verb::Reverse | Verb::Discard)) => Ok(verb),
        Some(Verb::Resolve(_) | Verb::ReleaseKey) | None => {
            let detail = "`verb` is receipt, resend, reverse or discard: a human who resolves a \
                          call has looked at that call.";
            Err(bad(detail.to_owned()))
        }
    }
}

fn unknown(id: i64) -> Problem {
    let detail = format!(
        "There is no job {id}; `dead job list` has them all, until ledger.retention after their \
         end."
    );
    Problem::new(Code::ReceiptNotFound, detail)
}

fn about(job: &Job) -> Value {
    let results: Map<_, _> = job
        .results
        .iter()
        .map(|(word, count)| (word.to_string(), Value::from(*count)))
        .collect();
    let filter = serde_json::from_str::<Value>(&job.text).unwrap_or(Value::Null);
    json!({
        "job": job.id.0,
        "verb": job.verb.as_str(),
        "state": job.state.as_str(),
        "total": job.total,
        "ended": job.total - job.unended.min(job.total),
        "left_out": job.beyond,
        "per_minute": job.per_minute,
        "filter": filter,
        "who": &*job.who,
        "why": job.why.as_deref(),
        "made_at": rfc3339(job.at),
        "ended_at": job.ended_at.map(rfc3339),
        "cancelled_by": job.ended_by.as_deref(),
        "results": results,
    })
}

impl From<&JobItem> for Item {
    fn from(item: &JobItem) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        Self {
            item: item.seq,
            call_id: item.call_id.as_str().to_owned(),
            client: item.client.as_str().to_owned(),
            state: item.state.as_str(),
            result: text(&item.result),
            detail: text(&item.detail),
            ended_at: item.ended_at.map(rfc3339),
        }
    }
}
