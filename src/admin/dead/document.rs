//! A dead letter with its story: the call, its rounds, and what operators did.

use serde::Serialize;

use crate::admin::document::{Call, Row, rfc3339};
use crate::call::time::Wall;
use crate::ledger::desk::AuditLine;
use crate::ledger::{CallView, DeadLetter, Entry, SettledBy, Verdict};

/// A dead letter with the call it belongs to.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    #[serde(flatten)]
    row: Row,
    rounds: Vec<Round>,
    audit: Vec<Audited>,
    call: Call,
}

/// A step of the dead letter: it was parked, taken up, put back, turned by an operator, ended.
#[derive(Debug, Serialize)]
struct Round {
    at: String,
    /// The state it went to; `RUNNING` when somebody took it up.
    state: String,
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
            rounds: story(row, call, audit),
            audit: audit.iter().map(Audited::from).collect(),
            call: Call::from(call),
        }
    }
}

/// Every step in order. The last one of a row that has ended says what ended it.
fn story(row: &DeadLetter, call: &CallView, audit: &[AuditLine]) -> Vec<Round> {
    let mut steps: Vec<(Wall, Round)> = call.history.iter().filter_map(step).collect();
    let acts = audit.iter().filter(|act| act.life == row.life);
    steps.extend(acts.clone().map(acted));
    let ended_by_hand = |act: &AuditLine| {
        let state = row.state.as_str();
        act.after.as_deref() == Some(state) && &*act.before != state
    };
    if let Some(at) = row.ended_at.filter(|_| !acts.clone().any(ended_by_hand)) {
        steps.push(line(at, row.state.as_str(), None, ended_by(call)));
    }
    // Stable: what happened at the same time stays as it was entered, the end last.
    steps.sort_by_key(|(at, _)| *at);
    steps.into_iter().map(|(_, round)| round).collect()
}

fn step(entry: &Entry) -> Option<(Wall, Round)> {
    match entry {
        Entry::Parked {
            at,
            state,
            reason,
            round,
        } => Some(line(*at, state.as_str(), Some(*round), reason.to_string())),
        Entry::Claimed { at, owner, .. } => {
            Some(line(*at, "RUNNING", None, format!("taken up by {owner}")))
        }
        _ => None,
    }
}

/// What an operator did, and why.
fn acted(act: &AuditLine) -> (Wall, Round) {
    let why = act.why.as_deref().map(|why| format!(" ({why})"));
    let came_to = match act.told.as_deref() {
        Some("done") => String::new(),
        Some(told) => format!(": {told}"),
        None => ": not over".to_owned(),
    };
    let (who, verb) = (&act.who, act.verb.as_str());
    let told = format!("{who}: {verb}{}{came_to}", why.unwrap_or_default());
    let state = act.after.as_deref().unwrap_or(&act.before);
    line(act.ended_at.unwrap_or(act.at), state, None, told)
}

/// What ended a call, where no operator did.
fn ended_by(call: &CallView) -> String {
    let Some(settled) = &call.settled else {
        return "ended".to_owned();
    };
    let word = match settled.verdict {
        Verdict::Success => "SUCCESS",
        Verdict::Failed => "FAILED",
    };
    match settled.by {
        SettledBy::Answer(n) => format!("{word}, by the answer to send {n}"),
        SettledBy::Receipt => format!("{word}, by the receipt"),
        SettledBy::NeverSent => format!("{word}: nothing was ever sent"),
        SettledBy::Operator => format!("{word}, by an operator"),
        SettledBy::Reversal => format!("{word}: the reversal was answered"),
    }
}

fn line(at: Wall, state: &str, round: Option<u32>, told: String) -> (Wall, Round) {
    let round = Round {
        at: rfc3339(at),
        state: state.to_owned(),
        round,
        told,
    };
    (at, round)
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
