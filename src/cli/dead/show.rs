//! `callgate dead show`: one dead letter with its whole story.

use serde_json::{Value, json};

use super::{LETTERS, ages};
use crate::call::receipt::{Answer, State};
use crate::call::time::Wall;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{self, Column, Printer};
use crate::cli::receipt;
use crate::clock::Clock;
use crate::ledger::DeadState;

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
    printer.one(&row, &table(&row, Clock::start().wall()))?;
    Ok(Exit::Ok)
}

/// The row, then what was tried, then what became of it.
fn table(row: &Value, now: Wall) -> String {
    let ago = ages::age(&row["create_time"], now).map(|age| format!(" ({age} ago)"));
    let ahead = ages::until(&row["next_retry_time"], now).map(|left| format!(" ({left})"));
    let with = |member: &str, more: Option<String>| match row[member].as_str() {
        Some(time) => json!(format!("{time}{}", more.unwrap_or_default())),
        None => Value::Null,
    };
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
    ];
    let more = [
        ("undone as", row["call"]["reversal"]["callId"].clone()),
        ("parked", with("create_time", ago)),
        ("rounds done", row["round"].clone()),
        ("next round", with("next_retry_time", ahead)),
        ("ended", row["ended_at"].clone()),
        ("what now", what_now(row).into()),
    ];
    let head = members.map(|(name, member)| (name, row[member].clone()));
    let head = output::pairs(head.into_iter().chain(more));
    let mut text = head + &receipt::story(&row["call"]);
    for (member, columns) in [("rounds", ROUNDS), ("audit", AUDIT)] {
        if let Some(lines) = row[member].as_array().filter(|lines| !lines.is_empty()) {
            text = text + "\n" + &output::rows(lines, columns);
        }
    }
    text
}

/// The next action, for whoever is woken by it. `None` where there is none.
fn what_now(row: &Value) -> Option<String> {
    let id = row["call_id"].as_str()?;
    let state = DeadState::from_word(row["state"].as_str()?)?;
    let receipt = row["last_receipt"].as_str().and_then(Answer::from_word);
    Some(match (state, receipt) {
        (DeadState::Queued | DeadState::Running, _) => {
            "nothing: the queue is at it; `dead receipt` asks the tool at once".to_owned()
        }
        (DeadState::Reversing, _) => {
            "nothing: it is being undone, and the original is never sent again".to_owned()
        }
        (DeadState::Manual, _) if !row["call"]["reversal"].is_null() => {
            format!(
                "its undo request came to no end, and it is never sent again: callgate dead \
                 reverse {id} tries once more; or look it up in the tool's own books, then \
                 callgate dead resolve {id} --as success|failed --note WHAT"
            )
        }
        (DeadState::Manual, Some(Answer::NotFound)) => {
            format!("the tool never heard of it: once it is up, callgate dead resend {id}")
        }
        (DeadState::Manual, Some(Answer::State(State::Received | State::Processing))) => {
            format!("the tool is at work: wait, then callgate dead receipt {id}")
        }
        (DeadState::Manual, Some(Answer::State(State::Failed))) => {
            format!("the tool refused it: callgate dead resolve {id} --as failed --note WHY")
        }
        (DeadState::Manual, Some(Answer::State(State::Success | State::Unknown)) | None) => {
            format!(
                "look it up in the tool's own books, then callgate dead resolve {id} --as \
                 success|failed --note WHAT"
            )
        }
        (
            DeadState::Settled | DeadState::Failed | DeadState::Reversed | DeadState::Discarded,
            _,
        ) => return None,
    })
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
parked        2026-11-01T12:01:00.000Z (3h10m ago)
rounds done   1
what now      look it up in the tool's own books, then callgate dead resolve ord-1 \
              --as success|failed --note WHAT

SEND  AT                        BECAUSE OF  RESULT   STATUS  MS      DETAIL
1     2026-11-01T12:00:00.000Z  -           timeout  -       8000.0  -

RECEIPT ASKED             SAID     DOUBT     STATUS  MS   DETAIL
2026-11-01T12:00:08.000Z  UNKNOWN  unproven  404     3.1  -

QUEUE                     STATE   ROUNDS DONE  BECAUSE
2026-11-01T12:01:00.000Z  QUEUED  0            deadline

OPERATOR  AT                        DID      WHY  BEFORE  AFTER   CAME TO                JOB
ann@ops   2026-11-01T13:00:00.000Z  receipt  -    MANUAL  MANUAL  the tool does not say  -
";
        let now = "2026-11-01T15:11:00Z".parse::<jiff::Timestamp>().unwrap();
        assert_eq!(table(&row, Wall(now.as_millisecond())), expected);
    }
}
