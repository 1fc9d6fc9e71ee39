//! What the API says about a batch and its items, as JSON and as CSV.

use serde::Serialize;
use serde_json::json;

use super::super::document::rfc3339;
use crate::call::id::CallId;
use crate::ledger::batch::{BatchView, ItemView};

/// A batch.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document {
    name: String,
    state: &'static str,
    route: String,
    client: String,
    workers: u32,
    items: i64,
    waiting: i64,
    /// Claimed by a worker: those that run, those that come next, and those whose end is on its way
    /// to the ledger.
    leased: i64,
    /// Calls that are under way at this moment.
    running: usize,
    done: i64,
    refused: i64,
    unresolved: i64,
    bad: i64,
    cancelled: i64,
    /// Of those that ended: sent more than once.
    retried: i64,
    settled_by_receipt: i64,
    /// Answered by a stored result: nothing was sent for them.
    replayed: i64,
    last_line: u32,
    created_at: String,
    updated_at: String,
    ended_at: Option<String>,
}

/// The columns of an export.
pub(super) const COLUMNS: &str =
    "line,state,call_id,key,attempts,status,outcome,error,original_call_id,updated_at\r\n";

impl Document {
    /// A batch of which so many calls are under way.
    pub(super) fn new(batch: &BatchView, running: usize) -> Self {
        let counts = &batch.counts;
        Self {
            name: batch.name.to_string(),
            state: batch.state.as_str(),
            route: batch.route.to_string(),
            client: batch.client.as_str().to_owned(),
            workers: batch.workers,
            items: counts.total(),
            waiting: counts.waiting,
            leased: counts.leased,
            running,
            done: counts.done,
            refused: counts.refused,
            unresolved: counts.unresolved,
            bad: counts.bad,
            cancelled: counts.cancelled,
            retried: counts.retried,
            settled_by_receipt: counts.by_receipt,
            replayed: counts.replayed,
            last_line: batch.last_line,
            created_at: rfc3339(batch.created_at),
            updated_at: rfc3339(batch.updated_at),
            ended_at: batch.ended_at.map(rfc3339),
        }
    }
}

/// An item as a line of JSON.
pub(super) fn json_line(item: &ItemView) -> String {
    let line = json!({
        "line": item.line,
        "state": item.state.as_str(),
        "callId": item.call_id.as_ref().map(CallId::as_str),
        "key": item.key,
        "attempts": item.attempts,
        "status": item.status,
        "outcome": item.outcome,
        "error": item.error,
        "originalCallId": item.original.as_ref().map(CallId::as_str),
        "updatedAt": rfc3339(item.updated_at),
    });
    format!("{line}\n")
}

/// An item as a record of CSV.
pub(super) fn csv_line(item: &ItemView) -> String {
    let (line, attempts) = (item.line.to_string(), item.attempts.to_string());
    let status = item.status.map(|status| status.to_string());
    let updated_at = rfc3339(item.updated_at);
    let fields = [
        Some(line.as_str()),
        Some(item.state.as_str()),
        item.call_id.as_ref().map(CallId::as_str),
        item.key.as_deref(),
        Some(attempts.as_str()),
        status.as_deref(),
        item.outcome.as_deref(),
        item.error.as_deref(),
        item.original.as_ref().map(CallId::as_str),
        Some(updated_at.as_str()),
    ];
    let fields = fields.map(|field| csv_field(field.unwrap_or_default()));
    fields.join(",") + "\r\n"
}

/// A field as RFC 4180 writes it; one that a spreadsheet would take for a formula gets a quote in
/// front of it, because keys and errors were written by strangers.
fn csv_field(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::time::Wall;
    use crate::ledger::batch::ItemState;

    #[test]
    fn an_item_is_a_line_of_json_or_of_csv() {
        let item = ItemView {
            line: 7,
            state: ItemState::Refused,
            call_id: CallId::parse(b"ord-1").ok(),
            key: Some("=1+1,\"x\"".into()),
            attempts: 2,
            status: Some(422),
            outcome: Some("answered".into()),
            error: Some("HTTP 422".into()),
            original: None,
            updated_at: Wall(1_793_534_400_000),
        };
        let csv = csv_line(&item);
        let at = rfc3339(item.updated_at);
        assert_eq!(
            csv,
            format!("7,REFUSED,ord-1,\"'=1+1,\"\"x\"\"\",2,422,answered,HTTP 422,,{at}\r\n")
        );
        assert_eq!(COLUMNS.split(',').count(), 10);
        let json: serde_json::Value = serde_json::from_str(&json_line(&item)).unwrap();
        assert_eq!(
            (&json["line"], &json["callId"]),
            (&json!(7), &json!("ord-1"))
        );
        assert!(json["originalCallId"].is_null());
    }
}
