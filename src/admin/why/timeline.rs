//! The timeline in words a tired person understands: what happened, and what it means.

use std::time::Duration;

use super::made_by;
use crate::call::id::CallId;
use crate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, Doubt, State};
use crate::call::time::Wall;
use crate::entropy;
use crate::ledger::desk::AuditLine;
use crate::ledger::story::{Life, PastEnd, Story};
use crate::ledger::{CallView, DeadState, Entry, SettledBy, Settlement};
use crate::telemetry::log::visible;

/// A wait shorter than this is the machine's, not the policy's.
const WAIT_WORTH_TELLING: Duration = Duration::from_millis(20);

/// One line.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) at: Wall,
    pub(super) life: Option<u32>,
    pub(super) text: String,
}

/// Everything that happened, in the order of time.
pub(super) fn of(story: &Story) -> Vec<Line> {
    let call = &story.call;
    let mut lines: Vec<Line> = story.past.iter().flat_map(past).collect();
    lines.extend(present(call));
    let line = |at, text| Line {
        at,
        life: None,
        text,
    };
    lines.extend(story.aliases.iter().map(|alias| {
        line(
            alias.at,
            format!(
                "{} came with the same key: it is this call, and got its answer.",
                alias.call_id
            ),
        )
    }));
    lines.extend(story.acts.iter().map(|act| Line {
        at: act.at,
        life: Some(act.life),
        text: acted(act),
    }));
    lines.extend(story.kin.iter().map(|kin| {
        let what = match (kin.same_key, kin.same_request) {
            (true, true) => "The same request with the same key",
            (true, false) => "Another request with the same key",
            (false, _) => "The same request",
        };
        line(
            kin.received_at,
            format!(
                "{what} came as {}: a call of its own, {} send(s), now {}.",
                kin.call_id,
                kin.sends,
                kin.state.as_str()
            ),
        )
    }));
    lines.sort_by_key(|line| line.at);
    lines
}

/// What an operator did.
fn acted(act: &AuditLine) -> String {
    let who = visible(&act.who);
    let why = act.why.as_deref();
    let why = why.map_or_else(String::new, |why| format!(" ({})", visible(why)));
    let after = match &act.after {
        Some(after) => format!("{} -> {after}", act.before),
        None => format!("{} -> not finished", act.before),
    };
    let told = act.told.as_deref();
    let told = told.map_or_else(String::new, |told| format!("; {}", visible(told)));
    let verb = act.verb.as_str();
    format!("Operator {who}: {verb}{why}, {after}{told}.")
}

fn present(call: &CallView) -> Vec<Line> {
    let moved = call.history.iter().find_map(|entry| match entry {
        Entry::Moved { from, .. } => Some(from),
        _ => None,
    });
    let mut teller = Teller::new(call.life, moved.unwrap_or(&call.upstream));
    teller.undo_id = Some(entropy::reversal_id(&call.client, &call.call_id));
    let key = call.idempotency_key.as_deref();
    let key = key.map_or_else(String::new, |key| format!(", key {}", visible(key)));
    teller.say(
        call.received_at,
        format!(
            "Received from {} for route {}, {}{key}.",
            visible(call.client.as_str()),
            call.route,
            made_by(call.source)
        ),
    );
    teller.history(&call.history);
    for difference in &call.differences {
        let told = visible(&difference.told);
        let kind = difference.kind.as_str();
        teller.say(
            difference.at,
            format!("Contradiction ({kind}): {told}. Recorded, counted, not applied."),
        );
    }
    if let Some(settled) = &call.settled {
        teller.say(settled.at, settlement(settled));
    }
    teller.lines
}

fn settlement(settled: &Settlement) -> String {
    let word = settled.verdict.state().as_str();
    let status = settled.reply.as_ref().map(|reply| reply.status.as_u16());
    let status = status.map_or_else(String::new, |status| format!(" ({status})"));
    match settled.by {
        SettledBy::Answer(n) => format!("Settled: {word}, by the answer to send {n}{status}."),
        SettledBy::Receipt => format!("Settled: {word}, by the tool's receipt{status}."),
        SettledBy::NeverSent => {
            "Ended as never sent: id and key are free again, nothing left the gateway.".to_owned()
        }
        SettledBy::Reversal => "Undone: the tool took the reversal.".to_owned(),
        SettledBy::Operator => format!("Settled: {word}, by an operator."),
    }
}

/// A use of the id that is over.
fn past(life: &Life) -> Vec<Line> {
    let mut teller = Teller::new(life.life, "the tool");
    if let Some(end) = &life.end {
        teller.say(end.received_at, received_before(end));
    }
    teller.history(&life.history);
    if let Some((PastEnd { status, .. }, (by, at))) =
        life.end.as_ref().and_then(|end| Some((end, end.settled?)))
    {
        let status = status.map_or_else(String::new, |status| format!(" ({})", status.as_u16()));
        let how = match by {
            SettledBy::Answer(n) => format!("by the answer to send {n}{status}"),
            SettledBy::Receipt => format!("by the tool's receipt{status}"),
            SettledBy::NeverSent => "as never sent".to_owned(),
            SettledBy::Reversal => "undone".to_owned(),
            SettledBy::Operator => "by an operator".to_owned(),
        };
        teller.say(
            at,
            format!("That use of the id ended {how}; the id was free later."),
        );
    }
    for difference in &life.differences {
        let told = visible(&difference.told);
        teller.say(difference.at, format!("Contradiction: {told}."));
    }
    teller.lines
}

fn received_before(end: &PastEnd) -> String {
    let key = end.idempotency_key.as_deref();
    let key = key.map_or_else(String::new, |key| format!(" with key {}", visible(key)));
    format!("An earlier use of this id began{key}.")
}

/// Turns entries into lines and remembers what the next one needs.
struct Teller<'a> {
    life: u32,
    upstream: &'a str,
    lines: Vec<Line>,
    /// The end of the step before, while a wait would be one of the line.
    before: Option<Wall>,
    /// The id of its undo request, where it is known.
    undo_id: Option<CallId>,
    /// Who worked on it before.
    owner: Option<String>,
}

impl<'a> Teller<'a> {
    const fn new(life: u32, upstream: &'a str) -> Self {
        Self {
            life,
            upstream,
            lines: Vec::new(),
            before: None,
            undo_id: None,
            owner: None,
        }
    }

    fn say(&mut self, at: Wall, text: String) {
        self.lines.push(Line {
            at,
            life: Some(self.life),
            text,
        });
    }

    fn history(&mut self, history: &[Entry]) {
        for entry in history {
            let text = self.text(entry);
            self.before = match entry {
                Entry::Sent { .. }
                | Entry::Moved { .. }
                | Entry::Claimed { .. }
                | Entry::Parked { .. }
                | Entry::Reversing { .. }
                | Entry::Differs { .. } => None,
                Entry::Ended { .. }
                | Entry::Undone { .. }
                | Entry::Receipt { .. }
                | Entry::Waited { .. }
                | Entry::Reconnected { .. } => Some(entry.at()),
            };
            self.say(entry.at(), text);
        }
    }

    fn text(&mut self, entry: &Entry) -> String {
        match entry {
            Entry::Sent { at, n, cause } => self.sent(*at, *n, *cause),
            Entry::Moved { to, .. } => format!(
                "Nothing of it had reached the tool; it goes to another address from now on: {to}."
            ),
            Entry::Ended {
                n,
                outcome,
                took,
                late,
                detail,
                ..
            } => ended(*n, *outcome, *took, *late) + &in_words(detail.as_deref()),
            Entry::Receipt {
                at,
                answer,
                doubt,
                took,
                detail,
                ..
            } => {
                let began = Wall(at.0.saturating_sub(millis(*took)));
                let waited = self.waited(began);
                receipt(*answer, *doubt, *took) + &waited + "." + &in_words(detail.as_deref())
            }
            Entry::Waited { why, wait, .. } => {
                format!("Waiting {} ({}).", span(*wait), visible(why))
            }
            Entry::Reconnected { n, .. } => format!(
                "A connection that was used before took nothing of send {n}; a fresh one took its \
                 place."
            ),
            Entry::Claimed { owner, .. } => self.claimed(owner),
            Entry::Parked {
                state,
                reason,
                round,
                ..
            } => parked(*state, reason, *round),
            Entry::Reversing { n, .. } => {
                let id = self
                    .undo_id
                    .as_ref()
                    .map(|id| format!(", under the id {id}"));
                let id = id.unwrap_or_default();
                format!(
                    "The undo request was sent (send {n} of it{id}); from here on nothing is sent \
                     for the call itself."
                )
            }
            Entry::Undone {
                n,
                outcome,
                took,
                detail,
                ..
            } => undone(*n, *outcome, *took) + &in_words(detail.as_deref()),
            Entry::Differs { told, .. } => format!("Contradiction: {}.", visible(told)),
        }
    }

    fn sent(&self, at: Wall, n: u32, cause: Option<Cause>) -> String {
        let waited = self.waited(at);
        match (n, cause) {
            (1, _) => format!("Sent to {} (send 1).", self.upstream),
            (_, None) => format!("Sent again under the same id (send {n}){waited}."),
            (_, Some(cause)) => {
                let because = match cause {
                    Cause::Connect => "nothing could be sent before",
                    Cause::Timeout => "there was no answer in time",
                    Cause::Disconnect => "the connection had broken",
                    Cause::Status => "the answer had settled nothing",
                };
                format!("Sent again under the same id (send {n}), because {because}{waited}.")
            }
        }
    }

    /// The wait before a step, when there was one.
    fn waited(&self, began: Wall) -> String {
        let wait = self.before.map(|before| began.since(before));
        match wait.filter(|wait| *wait >= WAIT_WORTH_TELLING) {
            Some(wait) => format!(", after waiting {}", span(wait)),
            None => String::new(),
        }
    }

    fn claimed(&mut self, owner: &str) -> String {
        let before = self.owner.replace(owner.to_owned());
        let restarted = before.is_some_and(|before| before != owner);
        let note = if restarted {
            "; the gateway was restarted in between"
        } else {
            ""
        };
        format!("Taken up again by {}{note}.", visible(owner))
    }
}

/// How a send of the undo request ended.
fn undone(n: u32, outcome: Outcome, took: Duration) -> String {
    let how = match outcome {
        Outcome::Answered(reading) => format!("was answered {}", reading.status().as_u16()),
        Outcome::NotSent(_) => "never left".to_owned(),
        Outcome::Unclear(_) => "is unclear itself".to_owned(),
    };
    let took = span(took);
    format!("The undo request (send {n} of it) {how} after {took}.")
}

fn ended(n: u32, outcome: Outcome, took: Duration, late: bool) -> String {
    let took = span(took);
    let tail = if late {
        ", after its attempt timeout: a late answer counts"
    } else {
        ""
    };
    match outcome {
        Outcome::NotSent(why) => {
            let why = match why {
                NotSent::Connect => "no connection",
                NotSent::Tls => "no TLS",
                NotSent::HandedBack => "the connection took nothing",
                NotSent::Refused => "the other side took nothing",
            };
            format!("Send {n} never left ({why}); the tool knows nothing of it.")
        }
        Outcome::Unclear(Unclear::Timeout) => {
            format!("No answer to send {n} within {took}: unclear, the tool may be at work.")
        }
        Outcome::Unclear(Unclear::Disconnect) => {
            format!("The connection of send {n} broke after {took}: unclear, the tool may have it.")
        }
        Outcome::Answered(reading) => {
            let status = reading.status().as_u16();
            let what = match reading {
                Reading::Success(_) => "final, done",
                Reading::Failure(_) => "final, refused",
                Reading::Unbinding(_) => "passed on; the id is free again",
                Reading::Pending(_) => "taken, not finished",
                Reading::Kept(_) => "says nothing about the effect: unclear",
            };
            format!("The tool answered send {n} with {status} after {took} ({what}){tail}.")
        }
    }
}

fn receipt(answer: Answer, doubt: Option<Doubt>, took: Duration) -> String {
    if let Some(doubt) = doubt {
        let why = match doubt {
            Doubt::Recognised => "the tool has recognised this call before, so it did arrive",
            Doubt::Unproven => "its endpoint has not recognised a call yet",
            Doubt::OtherAddress => "it came from another address than the call was sent to",
            Doubt::Forgotten => "the tool does not remember so long",
            Doubt::OtherCredential => "it was asked without the call's credential",
        };
        return format!(
            "Receipt: NOT_FOUND, which is not believed: {why} ({})",
            span(took)
        );
    }
    let meaning = match answer {
        Answer::NotFound => "NOT_FOUND, believed: the tool never got it",
        Answer::State(State::Received) => "RECEIVED: the tool has it and has not begun",
        Answer::State(State::Processing) => "PROCESSING: the tool is at work",
        Answer::State(State::Success) => "SUCCESS: the tool has done it",
        Answer::State(State::Failed) => "FAILED: the tool will not do it",
        Answer::State(State::Unknown) => "UNKNOWN: no information",
    };
    format!("Receipt: {meaning} ({})", span(took))
}

fn parked(state: DeadState, reason: &str, round: u32) -> String {
    let reason = visible(reason);
    match (state, round) {
        (DeadState::Queued, 0) if reason == "crash" => {
            "The gateway ended while the call was in line; found at the next start, and queued."
                .to_owned()
        }
        (DeadState::Queued, 0) => {
            format!("Could not be settled in line ({reason}); queued, the caller was told so.")
        }
        (DeadState::Queued, _) => format!("Round {round} brought no end ({reason})."),
        (DeadState::Manual, _) => format!("In front of a human ({reason})."),
        (DeadState::Failed, _) => format!("Ended, and kept visible ({reason})."),
        (DeadState::Running, _) => format!("A round began ({reason})."),
        (DeadState::Settled, _) => format!("Settled ({reason})."),
        (DeadState::Reversing, _) => format!("The reversal began ({reason})."),
        (DeadState::Reversed, _) => format!("Undone ({reason})."),
        (DeadState::Discarded, _) => format!("An operator gave it up ({reason})."),
    }
}

/// What exactly, in parentheses.
fn in_words(detail: Option<&str>) -> String {
    detail.map_or_else(String::new, |detail| format!(" [{}]", visible(detail)))
}

fn millis(took: Duration) -> i64 {
    i64::try_from(took.as_millis()).unwrap_or(i64::MAX)
}

/// A span of time, as long as it is worth reading.
fn span(took: Duration) -> String {
    match took.as_millis() {
        ms @ 0..1_000 => format!("{ms} ms"),
        ms @ 1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
    }
}
