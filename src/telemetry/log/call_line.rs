//! The one line per call, at its end: what was asked, what was done about it, what was told.

use std::fmt::Write as _;
use std::time::Duration;

use http::StatusCode;
use serde::Serialize;

use crate::call::code::{Code, Word};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::outcome::{Cause, Outcome};
use crate::call::receipt::Answer;
use crate::telemetry::labels::AttemptResult;

/// One call at its end. Logged at `info`; a clean call without effects at `debug`.
#[derive(Clone, Debug)]
pub struct CallLine<'a> {
    /// The call's id; `None` when the request was refused before it had one.
    pub call_id: Option<&'a CallId>,
    /// Who made the id.
    pub source: Option<IdSource>,
    /// The route's name, `none` without one.
    pub route: &'a str,
    /// Who called.
    pub client: Option<&'a ClientName>,
    /// What the caller was told, as a word.
    pub outcome: Word,
    /// What the caller was told, as a status.
    pub status: StatusCode,
    /// The problem the caller was told, if it was one.
    pub code: Option<Code>,
    /// Every send, in order.
    pub attempts: &'a [AttemptLine],
    /// From the head of the request to the answer.
    pub total: Duration,
    /// From the head of the request to the durable record; `None` without a ledger.
    pub recorded: Option<Duration>,
    /// The trace the call belongs to, see [`trace_id`](super::trace_id).
    pub trace_id: Option<&'a str>,
    /// Nothing went wrong and nothing was at stake (`effects: none`, first attempt, no problem).
    pub clean: bool,
}

/// One send, as the line of its call lists it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttemptLine {
    /// 1 for the first send.
    pub n: u32,
    /// Why it was sent again; `None` for the first.
    pub cause: Option<Cause>,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub duration: Duration,
    /// The last receipt after it, as far as it is believed.
    pub receipt: Option<Answer>,
    /// How long the call waited before this send.
    pub wait: Duration,
}

#[derive(Serialize)]
struct AttemptFields {
    n: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    duration_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'static str>,
    #[serde(skip_serializing_if = "is_zero")]
    wait_ms: f64,
}

impl CallLine<'_> {
    /// Whether the line of a call that is `clean` or not is written at all, for callers to whom
    /// its fields cost something.
    #[must_use]
    pub fn is_wanted(clean: bool) -> bool {
        if clean {
            tracing::enabled!(tracing::Level::DEBUG)
        } else {
            tracing::enabled!(tracing::Level::INFO)
        }
    }

    /// Writes the line.
    pub fn emit(&self) {
        match (Self::is_wanted(self.clean), self.clean) {
            (true, true) => self.write_clean(),
            (true, false) => self.write(),
            (false, _) => {}
        }
    }

    fn write(&self) {
        tracing::info!(
            call_id = self.call_id.map(CallId::as_str),
            route = self.route,
            client = self.client.map(ClientName::as_str),
            outcome = self.outcome.as_str(),
            status = self.status.as_u16(),
            code = self.code.map(Code::as_str),
            id_source = self.source.map(IdSource::as_str),
            raw.attempts = self.attempts_json(),
            total_ms = millis(self.total),
            recorded_ms = self.recorded.map(millis),
            trace_id = self.trace_id,
            "call"
        );
    }

    fn write_clean(&self) {
        tracing::debug!(
            call_id = self.call_id.map(CallId::as_str),
            route = self.route,
            client = self.client.map(ClientName::as_str),
            outcome = self.outcome.as_str(),
            status = self.status.as_u16(),
            total_ms = millis(self.total),
            trace_id = self.trace_id,
            "call"
        );
    }

    fn attempts_json(&self) -> String {
        let mut list = String::from("[");
        for (at, attempt) in self.attempts.iter().enumerate() {
            let fields = serde_json::to_string(&AttemptFields::from(*attempt))
                .expect("numbers and words are valid JSON");
            let comma = if at == 0 { "" } else { "," };
            write!(list, "{comma}{fields}").expect("a String takes every write");
        }
        list.push(']');
        list
    }
}

impl From<AttemptLine> for AttemptFields {
    fn from(attempt: AttemptLine) -> Self {
        let status = match attempt.outcome {
            Outcome::Answered(reading) => Some(reading.status().as_u16()),
            Outcome::NotSent(_) | Outcome::Unclear(_) => None,
        };
        Self {
            n: attempt.n,
            cause: attempt.cause.map(Cause::as_str),
            result: AttemptResult::from(attempt.outcome).as_str(),
            status,
            duration_ms: millis(attempt.duration),
            receipt: attempt.receipt.map(Answer::as_str),
            wait_ms: millis(attempt.wait),
        }
    }
}

/// Milliseconds with two decimals: enough to see a cache hit, short enough to read.
fn millis(d: Duration) -> f64 {
    (d.as_secs_f64() * 100_000.0).round() / 100.0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(ms: &f64) -> bool {
    *ms == 0.0
}
