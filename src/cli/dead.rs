//! `callgate dead`: the calls that could not be settled in line.
//!
//! Deliberately absent until their issue: the verbs that change something.

use serde_json::Value;

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::{self, Column, Printer};
use super::receipt;

const LIST: &str = "/api/v1/dead-letters";

const COLUMNS: &[Column] = &[
    ("CALL ID", "call_id"),
    ("STATE", "state"),
    ("ROUTE", "route"),
    ("CLIENT", "client"),
    ("ROUND", "round"),
    ("REASON", "reason"),
    ("PARKED", "create_time"),
    ("NEXT ROUND", "next_retry_time"),
    ("LAST ERROR", "last_error"),
];

/// `callgate dead ..`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// List dead letters, oldest first
    List(ListArgs),
    /// Show a dead letter and the story of its call
    Show(ShowArgs),
}

/// `callgate dead list`: every option that is given must match.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ListArgs {
    /// Only in this state, such as QUEUED or MANUAL
    #[arg(long)]
    state: Option<String>,
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only of this client
    #[arg(long)]
    client: Option<String>,
    /// Only parked longer ago than this, such as 15m or 2h
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Only whose last error or reason holds this text
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,
    /// Only with this idempotency key or business key
    #[arg(long)]
    key: Option<String>,
    /// How many at most, 1 to 1000
    #[arg(long, default_value_t = 100)]
    limit: u16,
    /// Go on after the page that ended here
    #[arg(long)]
    cursor: Option<String>,
}

/// `callgate dead show`
#[derive(Clone, Debug, clap::Args)]
pub struct ShowArgs {
    /// The call id
    call_id: String,
    /// Whose call, when several clients use this id
    #[arg(long)]
    client: Option<String>,
}

/// Runs `callgate dead ..`.
///
/// # Errors
/// When the gateway cannot be asked, refuses, or has no such row.
pub fn run(
    command: &Command,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list(args, gateway, printer),
        Command::Show(args) => show(args, gateway, printer),
    }
}

fn list(args: &ListArgs, gateway: &Gateway, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let target = Target::new(LIST)
        .with("state", args.state.as_deref())
        .with("route", args.route.as_deref())
        .with("client", args.client.as_deref())
        .with("older_than", args.older_than.as_deref())
        .with("error", args.error.as_deref())
        .with("key", args.key.as_deref())
        .with("limit", Some(&args.limit.to_string()))
        .with("cursor", args.cursor.as_deref());
    let page = gateway.document(&target)?;
    printer.list(&page, COLUMNS)?;
    if page["items"].as_array().is_none_or(Vec::is_empty) {
        eprintln!("No dead letter matches.");
    }
    if let Some(next) = page["next"].as_str() {
        eprintln!("There are more: add --cursor {next}");
    }
    Ok(Exit::Ok)
}

fn show(args: &ShowArgs, gateway: &Gateway, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let target = Target::new(LIST)
        .segment(&args.call_id)
        .with("client", args.client.as_deref());
    let row = gateway.document(&target)?;
    printer.one(&row, &table(&row))?;
    Ok(Exit::Ok)
}

/// The row, then what was tried.
fn table(row: &Value) -> String {
    let members = [
        ("call id", "call_id"),
        ("state", "state"),
        ("reason", "reason"),
        ("last error", "last_error"),
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
    head + &receipt::story(&row["call"])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dead_letter_is_shown_with_what_was_tried() {
        let row = json!({
            "call_id": "ord-1", "state": "QUEUED", "reason": "deadline",
            "last_error": "receipt: UNKNOWN", "route": "orders", "client": "anonymous",
            "request_id": null, "business_key": null,
            "create_time": "2026-11-01T12:01:00.000Z", "round": 1,
            "next_retry_time": "2026-11-01T12:06:00.000Z", "ended_at": null,
            "call": {
                "attempts": [{"n": 1, "cause": null, "startedAt": "2026-11-01T12:00:00.000Z",
                              "durationMs": 8000.0, "result": "timeout", "status": null}],
                "receipts": [{"at": "2026-11-01T12:00:08.000Z", "state": "UNKNOWN",
                              "doubt": "unproven", "status": 404, "durationMs": 3.1}],
            },
        });
        let expected = "\
call id      ord-1
state        QUEUED
reason       deadline
last error   receipt: UNKNOWN
route        orders
client       anonymous
parked       2026-11-01T12:01:00.000Z
rounds done  1
next round   2026-11-01T12:06:00.000Z

SEND  AT                        BECAUSE OF  RESULT   STATUS  MS      DETAIL
1     2026-11-01T12:00:00.000Z  -           timeout  -       8000.0  -

RECEIPT ASKED             SAID     DOUBT     STATUS  MS   DETAIL
2026-11-01T12:00:08.000Z  UNKNOWN  unproven  404     3.1  -
";
        assert_eq!(table(&row), expected);
    }
}
