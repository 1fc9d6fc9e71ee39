//! The operators' verbs over HTTP. What decides is `compensate/verbs`; this finds the call, says
//! who asks, and words the answer.
//!
//! A second click on the same thing is told that it was done before, and does nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::bad;
use crate::admin::Admin;
use crate::admin::api::{Whose, one_call};
use crate::admin::operator::{Operator, reason};
use crate::admin::problem::Problem;
use crate::call::code::Code;
use crate::clock;
use crate::compensate::verbs::{Ongoing, words};
use crate::flow::operate::Ordered;
use crate::ledger::desk::{AuditId, By, Decided, Verb};
use crate::ledger::{CallView, Verdict};

/// How long an answer waits for an order: somewhat less than the listener gives itself. A longer
/// order goes on, and its end stands in the audit.
const ORDER_WITHIN: Duration = Duration::from_secs(9);

type Id = Result<Path<String>, PathRejection>;
type Of = Result<Query<Whose>, QueryRejection>;
type Said<T> = Result<Json<T>, JsonRejection>;
type Answer = Result<Response, Problem>;

/// Why an order is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Why {
    why: Option<String>,
}

/// How a call ended, as a human found out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolution {
    #[serde(rename = "as")]
    verdict: String,
    note: Option<String>,
}

/// Why something is given up.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reason {
    reason: Option<String>,
}

pub(super) async fn receipt(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Why>,
) -> Answer {
    order(&admin, Verb::Receipt, who, (id, of, said)).await
}

pub(super) async fn resend(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Why>,
) -> Answer {
    order(&admin, Verb::Resend, who, (id, of, said)).await
}

pub(super) async fn reverse(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Why>,
) -> Answer {
    order(&admin, Verb::Reverse, who, (id, of, said)).await
}

pub(super) async fn resolve(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Resolution>,
) -> Answer {
    let said = said?.0;
    let verdict = match said.verdict.as_str() {
        "success" => Verdict::Success,
        "failed" => Verdict::Failed,
        _ => return Err(bad("`as` is success or failed.".to_owned())),
    };
    let note = reason(said.note, "note", true)?;
    let call = one_call(&admin, &id?.0, of?.0.client.as_deref()).await?;
    decide(&admin, &call, Verb::Resolve(verdict), (who, note)).await
}

pub(super) async fn discard(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Reason>,
) -> Answer {
    give_up(&admin, Verb::Discard, who, (id, of, said)).await
}

pub(super) async fn release_key(
    State(admin): State<Arc<Admin>>,
    Extension(who): Extension<Operator>,
    id: Id,
    of: Of,
    said: Said<Reason>,
) -> Answer {
    give_up(&admin, Verb::ReleaseKey, who, (id, of, said)).await
}

/// A decision that nobody takes without saying why.
async fn give_up(
    admin: &Admin,
    verb: Verb,
    who: Operator,
    (id, of, said): (Id, Of, Said<Reason>),
) -> Answer {
    let why = reason(said?.0.reason, "reason", true)?;
    let call = one_call(admin, &id?.0, of?.0.client.as_deref()).await?;
    decide(admin, &call, verb, (who, why)).await
}

/// Performs a decision and says what was there before and what is there now.
async fn decide(
    admin: &Admin,
    call: &CallView,
    verb: Verb,
    (Operator(who), why): (Operator, Option<Arc<str>>),
) -> Answer {
    let verbs = admin.verbs()?;
    let by = By {
        who,
        why,
        now: verbs.now(),
        job: None,
    };
    let (before, after, already) = match verbs.decide(call, verb, by).await? {
        Decided::Applied { before, after } => (before, after, false),
        Decided::Already(state) => (state, state, true),
        Decided::Refused(refusal) => {
            let detail = format!("Nothing was changed: {}.", words::why_not_decided(refusal));
            return Err(Problem::new(Code::OrderRefused, detail).because(refusal.as_str()));
        }
        Decided::Gone => return Err(gone()),
    };
    let mut document = about(call, verb);
    document["result"] = if already { "already" } else { "done" }.into();
    document["before"] = before.as_str().into();
    document["after"] = after.as_str().into();
    Ok(Json(document).into_response())
}

/// Gives an order, waits for it as long as an answer may take, and says what it brought.
async fn order(
    admin: &Admin,
    verb: Verb,
    Operator(who): Operator,
    (id, of, said): (Id, Of, Said<Why>),
) -> Answer {
    let why = reason(said?.0.why, "why", false)?;
    let call = one_call(admin, &id?.0, of?.0.client.as_deref()).await?;
    let verbs = admin.verbs()?;
    let by = By {
        who,
        why,
        now: verbs.now(),
        job: None,
    };
    let ongoing = verbs.order((call.row, call.life), verb, by).await?;
    let Some(Ongoing { line, ordered }) = ongoing else {
        return Err(bad(format!("`{}` is no order.", verb.as_str())));
    };
    let mut document = about(&call, verb);
    document["audit"] = line.0.into();
    tokio::select! {
        ended = ordered => {
            let ordered = ended.unwrap_or(Ordered::Unrecorded);
            told(admin, &call, (document, line), &ordered).await
        }
        () = clock::sleep(ORDER_WITHIN) => {
            document["result"] = "under-way".into();
            document["told"] = "It goes on; its end will stand in the audit of the dead letter."
                .into();
            Ok((StatusCode::ACCEPTED, Json(document)).into_response())
        }
    }
}

async fn told(
    admin: &Admin,
    call: &CallView,
    (mut document, line): (Value, AuditId),
    ordered: &Ordered,
) -> Answer {
    match ordered {
        Ordered::Refused(refusal) => {
            let detail = format!("Nothing was sent: {}.", words::why_not(*refusal));
            return Err(Problem::new(Code::OrderRefused, detail).because(refusal.as_str()));
        }
        Ordered::Held { .. } => {
            let detail = "Nothing was sent: somebody else (a round, a caller, another operator) \
                          works on it at this moment. Look again in a few seconds.";
            return Err(Problem::new(Code::OrderRefused, detail).because("running"));
        }
        Ordered::Gone => return Err(gone()),
        _ => {}
    }
    document["result"] = words::result(ordered).into();
    document["known"] = words::is_known(ordered).into();
    document["told"] = words::sentence(ordered).into();
    let lines = admin.ledger.audit(call.row).await?;
    if let Some(line) = lines.iter().find(|found| found.id == line) {
        document["before"] = (&*line.before).into();
        document["after"] = line.after.as_deref().into();
    }
    Ok(Json(document).into_response())
}

fn about(call: &CallView, verb: Verb) -> Value {
    json!({
        "verb": verb.as_str(),
        "call_id": call.call_id.as_str(),
        "client": call.client.as_str(),
    })
}

fn gone() -> Problem {
    let detail = "The call is gone: it was forgotten, or its id is used by another call now.";
    Problem::new(Code::ReceiptNotFound, detail)
}
