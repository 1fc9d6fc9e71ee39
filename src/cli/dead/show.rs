//! `callgate dead show`: one dead letter with its whole story.

use serde_json::Value;

use super::LETTERS;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{self, Column, Printer};
use crate::cli::receipt;

const ROUNDS: &[Column] = &[
    ("QUEUE", "at"),
    ("STATE", "state"),
    ("ROUNDS DONE", "round"),
    ("BECAUSE", "told"),
];

const AUDIT: &[Column] = &[
    ("OPERATOR", "who"),
    ("AT", "at"),
    ("DID", "verb"),
    ("WHY", "why"),
    ("BEFORE", "before"),
    ("AFTER", "after"),
    ("CAME TO", "told"),
    ("JOB", "job"),
];

/// `callgate dead show`
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub(super) one: One,
}

/// One call.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct One {
    /// The call id
    pub(super) call_id: String,
    /// Whose call, when several clients use this id
    #[arg(long)]
    pub(super) client: Option<String>,
}

impl One {
    /// The address of this dead letter, or of something under it.
    pub(super) fn target(&self, under: Option<&str>) -> Target {
        let target = Target::new(LETTERS).segment(&self.call_id);
        let target = under.into_iter().fold(target, Target::segment);
        target.with("client", self.client.as_deref())
    }
}

pub(super) fn run(
    args: &ShowArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let row = gateway.document(&args.one.target(None))?;
    printer.one(&row, &table(&row))?;
    Ok(Exit::Ok)
}

/// The row, then what was tried, then what became of it.
fn table(row: &Value) -> String {
    let members = [
        ("call id", "call_id"),
        ("state", "state"),
        ("reason", "reason"),
        ("last error", "last_error"),
        ("last receipt", "last_receipt"),
        ("route", "route"),
        ("client", "client"),
        ("idempotency key", "request_id"),
        ("business key", "business_key"),
        ("parked", "create_time"),
        ("rounds done", "round"),
        ("next round", "next_retry_time"),
        ("ended", "ended_at"),
    ];
    let head = output::pairs(members.map(|(name, member)| (name, row[member].clone())));
    let mut text = head + &receipt::story(&row["call"]);
    for (member, columns) in [("rounds", ROUNDS), ("audit", AUDIT)] {
        if let Some(lines) = row[member].as_array().filter(|lines| !lines.is_empty()) {
            text = text + "\n" + &output::rows(lines, columns);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dead_letter_is_shown_with_what_was_tried_and_what_people_did() {
        let row = json!({
            "call_id": "ord-1", "state": "MANUAL", "reason": "deadline",
            "last_error": "receipt: UNKNOWN", "last_receipt": "UNKNOWN", "route": "orders",
            "client": "anonymous", "request_id": null, "business_key": null,
            "create_time": "2026-11-01T12:01:00.000Z", "round": 1,
            "next_retry_time": null, "ended_at": null,
            "rounds": [{"at": "2026-11-01T12:01:00.000Z", "state": "QUEUED", "round": 0,
                        "told": "deadline"}],
            "audit": [{"who": "ann@ops", "at": "2026-11-01T13:00:00.000Z", "verb": "receipt",
                       "why": null, "before": "MANUAL", "after": "MANUAL",
                       "told": "the tool does not say", "job": null}],
            "call": {
                "attempts": [{"n": 1, "cause": null, "startedAt": "2026-11-01T12:00:00.000Z",
                              "durationMs": 8000.0, "result": "timeout", "status": null}],
                "receipts": [{"at": "2026-11-01T12:00:08.000Z", "state": "UNKNOWN",
                              "doubt": "unproven", "status": 404, "durationMs": 3.1}],
            },
        });
        let expected = "\
call id       ord-1
state         MANUAL
reason        deadline
last error    receipt: UNKNOWN
last receipt  UNKNOWN
route         orders
client        anonymous
parked        2026-11-01T12:01:00.000Z
rounds done   1

SEND  AT                        BECAUSE OF  RESULT   STATUS  MS      DETAIL
1     2026-11-01T12:00:00.000Z  -           timeout  -       8000.0  -

RECEIPT ASKED             SAID     DOUBT     STATUS  MS   DETAIL
2026-11-01T12:00:08.000Z  UNKNOWN  unproven  404     3.1  -

QUEUE                     STATE   ROUNDS DONE  BECAUSE
2026-11-01T12:01:00.000Z  QUEUED  0            deadline

OPERATOR  AT                        DID      WHY  BEFORE  AFTER   CAME TO                JOB
ann@ops   2026-11-01T13:00:00.000Z  receipt  -    MANUAL  MANUAL  the tool does not say  -
";
        assert_eq!(table(&row), expected);
    }
}
