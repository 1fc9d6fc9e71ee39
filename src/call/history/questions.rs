//! The four questions of the field, each answered yes, no or not known, with the evidence.

use super::sends::{Send, Sends};
use super::{End, Facts, Kin, ToolLog};
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::{Answer, State};

/// Resends beyond this are the load that keeps a tool down.
const SENDS_WISE: usize = 4;

/// What to ask about every double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the id was the same over all attempts.
    SameId,
    /// Whether the key held, and is stable.
    KeyHeld,
    /// Whether receipts and answers agree.
    Agree,
    /// Whether the retry policy is to blame.
    PolicyToBlame,
}

/// How sure an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certain {
    /// Yes.
    Yes,
    /// No.
    No,
    /// The facts do not say.
    NotKnown,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The question.
    pub question: Question,
    /// The answer.
    pub answer: Certain,
    /// What it rests on.
    pub evidence: String,
}

impl Question {
    /// Every question, in the order in which they are walked.
    pub const ALL: [Self; 4] = [
        Self::SameId,
        Self::KeyHeld,
        Self::Agree,
        Self::PolicyToBlame,
    ];

    /// The question in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SameId => "Was the id the same over all attempts?",
            Self::KeyHeld => "Did the key hold, and is it stable?",
            Self::Agree => "Do receipts and answers agree?",
            Self::PolicyToBlame => "Was the retry policy to blame?",
        }
    }
}

impl Certain {
    /// The word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::NotKnown => "not known",
        }
    }
}

/// Answers all four.
#[must_use]
pub fn answer(facts: &Facts) -> [Reply; 4] {
    let sends = Sends::of(&facts.events);
    Question::ALL.map(|question| {
        let (answer, evidence) = match question {
            Question::SameId => same_id(facts, &sends),
            Question::KeyHeld => key_held(facts),
            Question::Agree => agree(facts, &sends),
            Question::PolicyToBlame => policy(facts, &sends),
        };
        Reply {
            question,
            answer,
            evidence,
        }
    })
}

/// What the tool's log says about the first question; `None` when it adds nothing.
#[must_use]
pub fn same_id_by_log(log: &ToolLog) -> Option<(Certain, String)> {
    if !log.altered.is_empty() {
        let altered = log.altered.join(", ");
        return Some((
            Certain::No,
            format!("the tool's log has it changed: {altered}; look at what stands between"),
        ));
    }
    if !log.strangers.is_empty() {
        let strangers = log.strangers.join(", ");
        return Some((
            Certain::No,
            format!("the tool's log has the same business key under {strangers} too"),
        ));
    }
    (log.lines > 0).then(|| {
        let lines = log.lines;
        (
            Certain::Yes,
            format!("the tool's log has it unchanged on {lines} line(s)"),
        )
    })
}

fn same_id(facts: &Facts, sends: &Sends) -> (Certain, String) {
    let count = sends.0.len();
    let twins = facts.kin.iter().filter(|kin| facts.is_twin(kin));
    let others: Vec<&str> = facts
        .aliases
        .iter()
        .map(String::as_str)
        .chain(twins.map(|kin| kin.id.as_str()))
        .collect();
    if !others.is_empty() {
        let (id, others) = (&facts.id, others.join(", "));
        return (
            Certain::No,
            format!("the caller came as {id} and as {others}; each send of one call kept its id"),
        );
    }
    match count {
        0 => (Certain::Yes, "it was never sent".to_owned()),
        _ => (
            Certain::Yes,
            format!("{count} send(s), all as {}", facts.id),
        ),
    }
}

fn key_held(facts: &Facts) -> (Certain, String) {
    let twin = |which: &dyn Fn(&Kin) -> bool| {
        facts
            .kin
            .iter()
            .find(|kin| facts.is_twin(kin) && which(kin))
            .map(|kin| &kin.id)
    };
    let Some(key) = &facts.key else {
        let evidence = match twin(&|_| true) {
            Some(id) => format!("it has no key; {id} is the same request"),
            None => "it has no key".to_owned(),
        };
        return (Certain::NotKnown, evidence);
    };
    if let Some(id) = twin(&|kin| kin.same_key) {
        return (
            Certain::No,
            format!("{key} was let go, and {id} ran with it again"),
        );
    }
    if let Some(id) = twin(&|kin| kin.keyed) {
        return (
            Certain::No,
            format!("the same request came as {id} with another key"),
        );
    }
    match facts.aliases.len() {
        0 => (Certain::Yes, format!("{key}; no other id came with it")),
        _ => {
            let met = facts.aliases.join(", ");
            (
                Certain::Yes,
                format!("{key}; {met} came with it and met this call"),
            )
        }
    }
}

fn agree(facts: &Facts, sends: &Sends) -> (Certain, String) {
    if let Some(told) = facts.differences.first() {
        return (Certain::No, told.clone());
    }
    if let Some(n) = sends.denied_and_done() {
        return (
            Certain::No,
            format!("NOT_FOUND about send {n}, which was answered with success"),
        );
    }
    let said: Vec<&Answer> = sends.0.iter().flat_map(|send| &send.receipts).collect();
    let told = said
        .iter()
        .filter(|answer| !matches!(answer, Answer::State(State::Unknown)));
    let told: Vec<&str> = told.map(|answer| answer.as_str()).collect();
    match (said.len(), told.len()) {
        (0, _) if !facts.has_receipts => (
            Certain::NotKnown,
            "the route has no receipts to ask".to_owned(),
        ),
        (0, _) => (
            Certain::NotKnown,
            "the receipt was not asked: nothing was unclear".to_owned(),
        ),
        (asked, 0) => (
            Certain::NotKnown,
            format!("asked {asked} time(s), and it never said anything that counts"),
        ),
        _ if facts.end == End::Open => (
            Certain::NotKnown,
            format!(
                "receipts: {}; there is no final answer yet",
                told.join(", ")
            ),
        ),
        _ => (Certain::Yes, format!("receipts: {}", told.join(", "))),
    }
}

fn policy(facts: &Facts, sends: &Sends) -> (Certain, String) {
    let pairs = sends.0.iter().zip(sends.0.iter().skip(1));
    for (before, after) in pairs {
        let n = after.n;
        if before.receipts.contains(&Answer::NotFound) && before.succeeded() {
            return (
                Certain::Yes,
                format!(
                    "too early: send {n} left while send {} was still at work",
                    before.n
                ),
            );
        }
        if before.may_have_arrived() && !before.is_ruled_out() {
            let how = if after.by_hand {
                "an operator had it"
            } else {
                "it was"
            };
            return (
                Certain::Yes,
                format!(
                    "no receipt before it: {how} sent again (send {n}) without a NOT_FOUND about \
                     send {}",
                    before.n
                ),
            );
        }
    }
    match sends.0.len() {
        0 | 1 => (Certain::No, nothing_again(facts, sends.0.first())),
        count if count > SENDS_WISE => (
            Certain::Yes,
            format!("too often: {count} sends, though each earlier one was ruled out"),
        ),
        count => (
            Certain::No,
            format!("{count} sends, and each earlier one was known not to have arrived"),
        ),
    }
}

/// A single send: the policy sent nothing twice, but its timeout may have been too short.
fn nothing_again(facts: &Facts, only: Option<&Send>) -> String {
    let slow = only.and_then(|send| send.ended.as_ref()).filter(|ended| {
        ended.late && matches!(ended.outcome, Outcome::Answered(Reading::Success(_)))
    });
    match (slow, facts.attempt) {
        (Some(ended), Some(attempt)) => format!(
            "nothing was sent again; but a healthy answer took {} ms, longer than timeouts.attempt \
             ({} ms)",
            ended.took.as_millis(),
            attempt.as_millis()
        ),
        _ => "nothing was sent again".to_owned(),
    }
}
