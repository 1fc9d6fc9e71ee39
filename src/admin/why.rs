//! `why`: the story of one call or key as a document, with a verdict.
//!
//! One implementation for the API and for the command that reads a stopped gateway's ledger, so
//! that both tell the same. The verdict is made by `call::history`; here a ledger's story becomes
//! its facts, and its entries become sentences. Deliberately absent: bodies.

mod facts;
mod timeline;

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use serde::Serialize;

use super::Admin;
use super::api::Whose;
use super::dead::bad;
use super::document::rfc3339;
use super::problem::Problem;
use crate::call::code::Code;
use crate::call::history::{self, Judgement, Reply};
use crate::call::id::{ClientName, IdSource};
use crate::ledger::Story;
use crate::ledger::story::{Found, Kin};
use crate::telemetry::log::escaped;
use timeline::Line;

/// Why a call ran as it did.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Why {
    asked: String,
    /// What the name asked about is: `call-id`, `alias`, `key`.
    found: &'static str,
    call_id: String,
    client: String,
    route: String,
    state: &'static str,
    idempotency_key: Option<String>,
    business_key: Option<String>,
    verdict: &'static str,
    because: String,
    questions: Vec<Asked>,
    timeline: Vec<Told>,
    others: Vec<Other>,
    /// Whether every call of the ledger was looked at for `others`.
    searched_all: bool,
}

#[derive(Debug, Serialize)]
struct Asked {
    question: &'static str,
    answer: &'static str,
    evidence: String,
}

/// One line of the timeline.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    at: String,
    /// Since the first line.
    offset_ms: i64,
    /// Which life of the call id; null for what is about no life.
    life: Option<u32>,
    text: String,
}

/// Another id of the same operation, or what may be it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Other {
    call_id: String,
    /// `joined`: it came with the key and stands for this call. `same-key`, `same-request`:
    /// another call.
    how: &'static str,
    at: String,
    state: Option<&'static str>,
    sends: Option<u32>,
    idempotency_key: Option<String>,
}

/// `GET /api/v1/calls/{id}/why`; the id may also be a key.
pub(super) async fn why(
    State(admin): State<Arc<Admin>>,
    id: Result<Path<String>, PathRejection>,
    whose: Result<Query<Whose>, QueryRejection>,
) -> Result<Json<Why>, Problem> {
    let (name, whose) = (id?.0, whose?.0);
    let client = whose.client.as_deref().map(ClientName::new);
    let stories = admin.ledger.stories(client, Arc::from(&*name)).await?;
    match tell(&stories, &name) {
        Telling::One(why) => Ok(Json(*why)),
        Telling::Nothing => {
            let shown = escaped(name.as_bytes());
            let since = rfc3339(admin.ledger.knows_since());
            let detail = format!(
                "This ledger, which began at {since}, knows neither a call id nor a key `{shown}`. \
                 Ended calls are forgotten after their window (idempotency.window)."
            );
            Err(Problem::new(Code::ReceiptNotFound, detail))
        }
        Telling::Several(clients) => Err(bad(format!(
            "Several clients use this name ({}): add ?client=NAME.",
            clients.join(", ")
        ))),
    }
}

/// What the stories of a name come to.
pub enum Telling {
    /// One call.
    One(Box<Why>),
    /// Nothing is known under this name.
    Nothing,
    /// These clients use the name, each for itself.
    Several(Vec<String>),
}

/// Tells the story of what `asked` means.
#[must_use]
pub fn tell(stories: &[Story], asked: &str) -> Telling {
    let Some(first) = stories.first() else {
        return Telling::Nothing;
    };
    let mut clients: Vec<String> = stories
        .iter()
        .map(|story| story.call.client.as_str().to_owned())
        .collect();
    clients.dedup();
    if clients.len() > 1 {
        return Telling::Several(clients);
    }
    // An alias comes first: it stands only where an own call of that id is over.
    Telling::One(Box::new(Why::of(first, asked)))
}

impl Why {
    fn of(story: &Story, asked: &str) -> Self {
        let call = &story.call;
        let facts = facts::of(story);
        let Judgement { verdict, because } = history::judge(&facts);
        let replies = history::answer(&facts);
        let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
        Self {
            asked: asked.to_owned(),
            found: match story.found {
                Found::CallId => "call-id",
                Found::Alias => "alias",
                Found::Key => "key",
            },
            call_id: call.call_id.to_string(),
            client: call.client.as_str().to_owned(),
            route: call.route.to_string(),
            state: call.state.as_str(),
            idempotency_key: text(&call.idempotency_key),
            business_key: text(&call.business_key),
            verdict: verdict.as_str(),
            because,
            questions: replies.into_iter().map(Asked::from).collect(),
            timeline: told(timeline::of(story)),
            others: others(story),
            searched_all: story.searched_all,
        }
    }
}

impl From<Reply> for Asked {
    fn from(reply: Reply) -> Self {
        Self {
            question: reply.question.as_str(),
            answer: reply.answer.as_str(),
            evidence: reply.evidence,
        }
    }
}

fn told(lines: Vec<Line>) -> Vec<Told> {
    let first = lines.first().map_or(0, |line| line.at.0);
    let one = |line: Line| Told {
        at: rfc3339(line.at),
        offset_ms: line.at.0.saturating_sub(first),
        life: line.life,
        text: line.text,
    };
    lines.into_iter().map(one).collect()
}

fn others(story: &Story) -> Vec<Other> {
    let joined = story.aliases.iter().map(|alias| Other {
        call_id: alias.call_id.to_string(),
        how: "joined",
        at: rfc3339(alias.at),
        state: None,
        sends: None,
        idempotency_key: None,
    });
    joined.chain(story.kin.iter().map(Other::from)).collect()
}

impl From<&Kin> for Other {
    fn from(kin: &Kin) -> Self {
        Self {
            call_id: kin.call_id.to_string(),
            how: if kin.same_key {
                "same-key"
            } else {
                "same-request"
            },
            at: rfc3339(kin.received_at),
            state: Some(kin.state.as_str()),
            sends: Some(kin.sends),
            idempotency_key: kin.idempotency_key.as_deref().map(str::to_owned),
        }
    }
}

/// Who made an id, in words.
const fn made_by(source: IdSource) -> &'static str {
    match source {
        IdSource::Client => "under the caller's own id",
        IdSource::Gateway => "without an id: the gateway made one",
    }
}

#[cfg(test)]
mod tests;
