//! A dead letter with its story: the call, its rounds, and what operators did.

use serde::Serialize;

use crate::admin::document::{Call, Row, rfc3339};
use crate::ledger::desk::AuditLine;
use crate::ledger::{CallView, DeadLetter, Entry};

/// A dead letter with the call it belongs to.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    row: Row,
    rounds: Vec<Round>,
    audit: Vec<Audited>,
    call: Call,
}

/// A step of the dead letter: it was parked, taken up, put back.
#[derive(Debug, Serialize)]
struct Round {
    at: String,
    /// The state it went to; `RUNNING` when somebody took it up.
    state: &'static str,
    /// Rounds done by then.
    round: Option<u32>,
    /// Why, or who.
    told: String,
}

/// What an operator did.
#[derive(Debug, Serialize)]
pub(super) struct Audited {
    id: i64,
    at: String,
    who: String,
    verb: &'static str,
    why: Option<String>,
    before: String,
    /// Null while it is under way, or when the gateway ended meanwhile.
    after: Option<String>,
    told: Option<String>,
    job: Option<i64>,
}

impl Shown {
    pub(super) fn new(row: &DeadLetter, call: &CallView, audit: &[AuditLine]) -> Self {
        Self {
            row: Row::from(row),
            rounds: call.history.iter().filter_map(round).collect(),
            audit: audit.iter().map(Audited::from).collect(),
            call: Call::from(call),
        }
    }
}

fn round(entry: &Entry) -> Option<Round> {
    match entry {
        Entry::Parked {
            at,
            state,
            reason,
            round,
        } => Some(Round {
            at: rfc3339(*at),
            state: state.as_str(),
            round: Some(*round),
            told: reason.to_string(),
        }),
        Entry::Claimed { at, owner, .. } => Some(Round {
            at: rfc3339(*at),
            state: "RUNNING",
            round: None,
            told: format!("taken up by {owner}"),
        }),
        _ => None,
    }
}

impl From<&AuditLine> for Audited {
    fn from(line: &AuditLine) -> Self {
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(str::to_owned);
        Self {
            id: line.id.0,
            at: rfc3339(line.at),
            who: line.who.to_string(),
            verb: line.verb.as_str(),
            why: text(&line.why),
            before: line.before.to_string(),
            after: text(&line.after),
            told: text(&line.told),
            job: line.job.map(|job| job.0),
        }
    }
}
