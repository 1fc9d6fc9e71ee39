//! `callgate receipt`: what the gateway knows about a call. It asks the gateway's ledger, not the
//! tool.

use serde_json::Value;

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::{self, Column, Printer};
use crate::call::receipt::State;

const ATTEMPTS: &[Column] = &[
    ("SEND", "n"),
    ("AT", "startedAt"),
    ("BECAUSE OF", "cause"),
    ("RESULT", "result"),
    ("STATUS", "status"),
    ("MS", "durationMs"),
    ("DETAIL", "detail"),
];

const RECEIPTS: &[Column] = &[
    ("RECEIPT ASKED", "at"),
    ("SAID", "state"),
    ("DOUBT", "doubt"),
    ("STATUS", "status"),
    ("MS", "durationMs"),
    ("DETAIL", "detail"),
];

const UNDO: &[Column] = &[
    ("UNDO REQUEST", "n"),
    ("AT", "startedAt"),
    ("RESULT", "result"),
    ("STATUS", "status"),
    ("MS", "durationMs"),
    ("DETAIL", "detail"),
];

const DIFFERENCES: &[Column] = &[
    ("DIFFERENCE SEEN", "at"),
    ("BETWEEN", "kind"),
    ("TOLD", "told"),
];

/// `callgate receipt`
#[derive(Clone, Debug, clap::Args)]
pub struct ReceiptArgs {
    /// The call id
    call_id: String,
    /// Whose call, when several clients use this id
    #[arg(long)]
    client: Option<String>,
}

/// Runs `callgate receipt`: 0 when the call's end is known, 3 when nobody knows it yet, 4 when the
/// ledger knows no such call.
///
/// # Errors
/// When the gateway cannot be asked, refuses, or knows no such call.
pub fn run(
    args: &ReceiptArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let target = Target::new("/api/v1/calls")
        .segment(&args.call_id)
        .with("client", args.client.as_deref());
    let call = gateway.document(&target)?;
    printer.one(&call, &table(&call))?;
    Ok(exit(&call))
}

fn exit(call: &Value) -> Exit {
    let state = call["state"].as_str().and_then(State::from_word);
    if state.is_some_and(State::is_terminal) {
        Exit::Ok
    } else {
        Exit::Unresolved
    }
}

fn table(call: &Value) -> String {
    let dead = &call["deadLetter"];
    let head = output::pairs([
        ("call id", call["callId"].clone()),
        ("state", call["state"].clone()),
        ("outcome", call["outcome"].clone()),
        ("settled by", call["settledBy"].clone()),
        ("status", call["result"]["status"].clone()),
        ("route", call["route"].clone()),
        ("client", call["client"].clone()),
        ("id made by", call["source"].clone()),
        ("upstream", call["upstream"].clone()),
        ("idempotency key", call["idempotencyKey"].clone()),
        ("undone as", call["reversal"]["callId"].clone()),
        ("received", call["receivedAt"].clone()),
        ("updated", call["updatedAt"].clone()),
        ("dead letter", dead["state"].clone()),
        ("reason", dead["reason"].clone()),
        ("next round", dead["next_retry_time"].clone()),
    ]);
    head + &story(call)
}

/// What was tried, asked and contradicted, as far as anything was.
pub(super) fn story(call: &Value) -> String {
    let parts = [
        (&call["attempts"], ATTEMPTS),
        (&call["receipts"], RECEIPTS),
        (&call["reversal"]["attempts"], UNDO),
        (&call["differences"], DIFFERENCES),
    ];
    let tables = parts.into_iter().filter_map(|(items, columns)| {
        let items = items.as_array().filter(|items| !items.is_empty())?;
        Some(format!("\n{}", output::rows(items, columns)))
    });
    tables.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_shown_in_one_look() {
        let call = json!({
            "callId": "ord-1", "client": "billing", "route": "orders", "source": "client",
            "state": "SUCCESS", "outcome": "receipt", "settledBy": "receipt",
            "upstream": "http://127.0.0.1:9000", "idempotencyKey": null,
            "receivedAt": "2026-11-01T12:00:00.000Z", "updatedAt": "2026-11-01T12:00:09.000Z",
            "attempts": [
                {"n": 1, "cause": null, "startedAt": "2026-11-01T12:00:00.001Z",
                 "durationMs": 8000.0, "result": "timeout", "status": null},
                {"n": 2, "cause": "timeout", "startedAt": "2026-11-01T12:00:08.900Z",
                 "durationMs": 12.3, "result": "answered", "status": 502,
                 "detail": "bad\ngateway"},
            ],
            "receipts": [], "result": {"status": 201, "bodyBytes": 17, "bodyKept": true},
            "differences": [], "deadLetter": null,
        });
        let expected = "\
call id     ord-1
state       SUCCESS
outcome     receipt
settled by  receipt
status      201
route       orders
client      billing
id made by  client
upstream    http://127.0.0.1:9000
received    2026-11-01T12:00:00.000Z
updated     2026-11-01T12:00:09.000Z

SEND  AT                        BECAUSE OF  RESULT    STATUS  MS      DETAIL
1     2026-11-01T12:00:00.001Z  -           timeout   -       8000.0  -
2     2026-11-01T12:00:08.900Z  timeout     answered  502     12.3    bad\\ngateway
";
        assert_eq!(table(&call), expected);
    }

    #[test]
    fn an_open_end_has_an_exit_code_of_its_own() {
        let table = [
            ("SUCCESS", Exit::Ok),
            ("FAILED", Exit::Ok),
            ("UNKNOWN", Exit::Unresolved),
            ("PROCESSING", Exit::Unresolved),
            ("RECEIVED", Exit::Unresolved),
            ("a word of tomorrow", Exit::Unresolved),
        ];
        for (state, expected) in table {
            assert_eq!(exit(&json!({ "state": state })), expected, "{state}");
        }
    }
}
