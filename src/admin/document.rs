//! What the API says about a call and a dead letter, as JSON documents.
//!
//! A call speaks the language of receipts (`callId`, `receivedAt`); a dead letter is the row of
//! its table and keeps the columns' names, so that an operator finds the same words in SQL.
//! Deliberately absent: bodies.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;

use crate::call::code::Word;
use crate::call::outcome::{Cause, Outcome};
use crate::call::receipt::{Answer, Doubt};
use crate::call::time::Wall;
use crate::entropy;
use crate::ledger::{CallView, DeadLetter, Entry, Kept, Reply, SettledBy};

/// Everything known about a call.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    call_id: String,
    client: String,
    route: String,
    source: &'static str,
    state: &'static str,
    /// How the call stands, in the words of `X-Call-Outcome`; null while it is in line.
    outcome: Option<&'static str>,
    settled_by: Option<&'static str>,
    upstream: String,
    idempotency_key: Option<String>,
    received_at: String,
    updated_at: String,
    attempts: Vec<Attempt>,
    receipts: Vec<Receipt>,
    /// Null unless the gateway has sent an undo request, or was about to.
    reversal: Option<Reversal>,
    result: Option<Answered>,
    differences: Vec<Difference>,
    dead_letter: Option<Row>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Attempt {
    n: u32,
    cause: Option<&'static str>,
    started_at: String,
    duration_ms: Option<f64>,
    /// Null while the attempt runs, or when the process died meanwhile.
    result: Option<&'static str>,
    status: Option<u16>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    late: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// The undo request, which is a request of its own with an id of its own.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reversal {
    call_id: String,
    attempts: Vec<UndoAttempt>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct UndoAttempt {
    n: u32,
    started_at: String,
    duration_ms: Option<f64>,
    /// Null while the attempt runs, or when the process died meanwhile.
    result: Option<&'static str>,
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Receipt {
    at: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// What is kept of the answer, without its body.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Answered {
    status: u16,
    body_bytes: u64,
    body_kept: bool,
}

#[derive(Debug, Serialize)]
struct Difference {
    at: String,
    kind: &'static str,
    told: String,
}

/// A row of the compensation queue, under the names of its columns.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    call_id: String,
    route: String,
    client: String,
    business_key: Option<String>,
    request_id: Option<String>,
    reason: String,
    last_error: String,
    fail_count: u32,
    next_retry_time: Option<String>,
    create_time: String,
    state: &'static str,
    round: u32,
    owner: Option<String>,
    fence: i64,
    lease_until: Option<String>,
    ended_at: Option<String>,
    last_receipt: Option<&'static str>,
}

impl From<&CallView> for Call {
    fn from(call: &CallView) -> Self {
        let settled = call.settled.as_ref();
        let kept = settled.map_or(call.kept.as_ref(), |end| end.reply.as_ref());
        let differences = call.differences.iter().map(|seen| Difference {
            at: rfc3339(seen.at),
            kind: seen.kind.as_str(),
            told: seen.told.to_string(),
        });
        Self {
            call_id: call.call_id.as_str().to_owned(),
            client: call.client.as_str().to_owned(),
            route: call.route.to_string(),
            source: call.source.as_str(),
            state: call.state.as_str(),
            outcome: outcome(call).map(Word::as_str),
            settled_by: settled.map(|end| settled_by(end.by)),
            upstream: call.upstream.to_string(),
            idempotency_key: call.idempotency_key.as_deref().map(str::to_owned),
            received_at: rfc3339(call.received_at),
            updated_at: rfc3339(call.updated_at),
            attempts: attempts(&call.history),
            receipts: call.history.iter().filter_map(receipt).collect(),
            reversal: reversal(call),
            result: kept.map(Answered::from),
            differences: differences.collect(),
            dead_letter: call.dead_letter.as_ref().map(Row::from),
        }
    }
}

impl From<&Reply> for Answered {
    fn from(reply: &Reply) -> Self {
        let (body_bytes, body_kept) = match &reply.body {
            Kept::Whole(body) => (body.len() as u64, true),
            Kept::Digest { bytes, .. } => (*bytes, false),
        };
        Self {
            status: reply.status.as_u16(),
            body_bytes,
            body_kept,
        }
    }
}

impl From<&DeadLetter> for Row {
    fn from(row: &DeadLetter) -> Self {
        Self {
            call_id: row.call_id.as_str().to_owned(),
            route: row.route.to_string(),
            client: row.client.as_str().to_owned(),
            business_key: row.business_key.as_deref().map(str::to_owned),
            request_id: row.idempotency_key.as_deref().map(str::to_owned),
            reason: row.reason.to_string(),
            last_error: row.last_error.to_string(),
            fail_count: row.fail_count,
            next_retry_time: row.next_retry_time.map(rfc3339),
            create_time: rfc3339(row.create_time),
            state: row.state.as_str(),
            round: row.round,
            owner: row.owner.as_ref().map(ToString::to_string),
            fence: row.fence,
            lease_until: row.lease_until.map(rfc3339),
            ended_at: row.ended_at.map(rfc3339),
            last_receipt: row.last_receipt.map(Answer::as_str),
        }
    }
}

fn outcome(call: &CallView) -> Option<Word> {
    match &call.settled {
        Some(end) => Some(match end.by {
            SettledBy::Answer(_) => Word::Answered,
            SettledBy::Receipt => Word::Receipt,
            SettledBy::NeverSent => Word::Refused,
            SettledBy::Operator | SettledBy::Reversal => Word::Replayed,
        }),
        None => call.dead_letter.is_some().then_some(Word::Unresolved),
    }
}

pub(super) const fn settled_by(by: SettledBy) -> &'static str {
    match by {
        SettledBy::Answer(_) => "answer",
        SettledBy::Receipt => "receipt",
        SettledBy::NeverSent => "never-sent",
        SettledBy::Reversal => "reversal",
        SettledBy::Operator => "operator",
    }
}

/// The sends in order, each with its end.
fn attempts(history: &[Entry]) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for entry in history {
        match entry {
            Entry::Sent { at, n, cause } => attempts.push(Attempt {
                n: *n,
                cause: cause.map(Cause::as_str),
                started_at: rfc3339(*at),
                duration_ms: None,
                result: None,
                status: None,
                late: false,
                detail: None,
            }),
            Entry::Ended {
                n,
                outcome,
                took,
                late,
                detail,
                ..
            } => {
                let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.n == *n) else {
                    continue;
                };
                attempt.duration_ms = Some(millis(*took));
                attempt.result = Some(outcome.as_str());
                attempt.status = status(*outcome);
                attempt.late = *late;
                attempt.detail = detail.as_deref().map(str::to_owned);
            }
            Entry::Receipt { .. }
            | Entry::Waited { .. }
            | Entry::Reconnected { .. }
            | Entry::Moved { .. }
            | Entry::Claimed { .. }
            | Entry::Parked { .. }
            | Entry::Reversing { .. }
            | Entry::Undone { .. }
            | Entry::Differs { .. } => {}
        }
    }
    attempts
}

/// The sends of the undo request, each with its end.
fn reversal(call: &CallView) -> Option<Reversal> {
    let mut attempts: Vec<UndoAttempt> = Vec::new();
    for entry in &call.history {
        match entry {
            Entry::Reversing { at, n } => attempts.push(UndoAttempt {
                n: *n,
                started_at: rfc3339(*at),
                duration_ms: None,
                result: None,
                status: None,
                detail: None,
            }),
            Entry::Undone {
                n,
                outcome,
                took,
                detail,
                ..
            } => {
                let Some(attempt) = attempts.iter_mut().find(|attempt| attempt.n == *n) else {
                    continue;
                };
                attempt.duration_ms = Some(millis(*took));
                attempt.result = Some(outcome.as_str());
                attempt.status = status(*outcome);
                attempt.detail = detail.as_deref().map(str::to_owned);
            }
            Entry::Sent { .. }
            | Entry::Moved { .. }
            | Entry::Ended { .. }
            | Entry::Receipt { .. }
            | Entry::Waited { .. }
            | Entry::Reconnected { .. }
            | Entry::Claimed { .. }
            | Entry::Parked { .. }
            | Entry::Differs { .. } => {}
        }
    }
    (!attempts.is_empty()).then(|| Reversal {
        call_id: entropy::reversal_id(&call.client, &call.call_id).to_string(),
        attempts,
    })
}

fn receipt(entry: &Entry) -> Option<Receipt> {
    match entry {
        Entry::Receipt {
            at,
            answer,
            doubt,
            status,
            took,
            detail,
        } => Some(Receipt {
            at: rfc3339(*at),
            state: Answer::as_str(*answer),
            doubt: doubt.map(Doubt::as_str),
            status: status.as_ref().map(StatusCode::as_u16),
            duration_ms: millis(*took),
            detail: detail.as_deref().map(str::to_owned),
        }),
        _ => None,
    }
}

const fn status(outcome: Outcome) -> Option<u16> {
    match outcome {
        Outcome::Answered(reading) => Some(reading.status().as_u16()),
        Outcome::NotSent(_) | Outcome::Unclear(_) => None,
    }
}

/// RFC 3339 in UTC; a reading outside the calendar is shown as its milliseconds.
pub(super) fn rfc3339(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |t| format!("{t:.3}"))
}

fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 100_000.0).round() / 100.0
}
