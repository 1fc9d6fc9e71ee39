//! How a call is undone: `compensation.reversal`, and what its rules are.

use std::time::Duration;

use http::Method;
use http::uri::PathAndQuery;

use super::receipt::place_of;
use super::scope::Scope;
use super::{Builder, rules};
use crate::call::policy::{Policy, Reversal};
use crate::config::file::read::Value;
use crate::config::file::units::show_duration;
use crate::config::reversal::{ReversalRule, UndoPart, UndoTemplate};
use crate::config::route::{Endpoint, Route};

/// The places of a reversal, as an operator reads them.
const PLACES: &str = "{call_id}, {reversal_id}, {idempotency_key}, {body:/pointer} or \
                      {receipt:/pointer}";

impl Builder<'_> {
    /// Builds `compensation.reversal` of the route `own`: how to undo, and the numbers a decision
    /// needs. A route whose own `reversible` is false has none, whatever `defaults` say.
    pub(super) fn reversal(
        &mut self,
        own: &Scope<'_>,
        compensation: &Scope<'_>,
    ) -> Option<(ReversalRule, Reversal)> {
        if !matches!(compensation.get("reversal"), Some((Value::Map(_), _))) {
            return None;
        }
        let here = own.section("compensation");
        if !compensation.flag("reversible", true) {
            if here.get("reversal").is_some() {
                let message = "`reversible: false` says that this tool cannot undo; remove one of \
                               the two";
                self.refuse(&here.blame(&["reversal", "reversible"]), message);
            }
            return None;
        }
        let scope = compensation.section("reversal");
        let (elsewhere, path) = self.parsed(&scope, "url", undo_url)?;
        let default = Reversal::default();
        let rule = ReversalRule {
            elsewhere,
            path,
            method: self
                .parsed(&scope, "method", |text| {
                    Method::from_bytes(text.as_bytes()).map_err(|_| String::new())
                })
                .unwrap_or(Method::POST),
            headers: self.own_headers(&scope),
            body: self.parsed(&scope, "body", template),
        };
        let plain = |text: &str| Ok(text.to_owned());
        let when = self.each(&scope, "when", plain);
        let has = |word: &str| {
            when.as_ref()
                .map(|words| words.iter().any(|given| given == word))
        };
        let numbers = Reversal {
            unknown: has("UNKNOWN").unwrap_or(default.unknown),
            not_found: has("NOT_FOUND").unwrap_or(default.not_found),
            min_age: scope.duration("min_age", default.min_age),
            max_age: scope.duration("max_age", default.max_age),
        };
        if !names_the_call(&rule) {
            self.warn(
                &scope.blame(&["url"]),
                "neither url nor body names {call_id}; the tool has only the X-Call-Reverses \
                 field to tell what is undone",
            );
        }
        Some((rule, numbers))
    }

    /// What cannot mean what it says.
    pub(super) fn judge_reversal(&mut self, scope: &Scope<'_>, route: &Route) {
        let Some(reversal) = route.policy.compensation.reversal else {
            return;
        };
        let own = scope.section("compensation").section("reversal");
        let Some(receipt) = route.policy.receipt else {
            if !scope.any_bad(&["receipt"]) {
                let message = "a call is undone only after its receipt was asked; this route has \
                               no `receipt`";
                self.refuse(&own.blame(&["url"]), message);
            }
            return;
        };
        if reversal.min_age < receipt.settle && !own.any_bad(&["min_age"]) {
            let message = format!(
                "`min_age` ({}) must be at least `receipt.settle` ({})",
                show_duration(reversal.min_age),
                show_duration(receipt.settle)
            );
            self.refuse(&own.blame(&["min_age", "url"]), message);
        }
        let rounds = rules::rounds_over(&route.policy).saturating_add(reversal.min_age);
        if reversal.max_age < rounds && !own.any_bad(&["max_age", "min_age"]) {
            let message = format!(
                "`max_age` ({}) is over before the last round and `min_age` may be ({}: total, \
                 late, all rounds with their jitter and min_age), so nothing would ever be undone",
                show_duration(reversal.max_age),
                show_duration(rounds)
            );
            self.refuse(&own.blame(&["max_age", "url"]), message);
        }
    }
}

/// How long a reversal may take from the last round on: its waits, and each of its sends.
pub(super) fn longest_reversal(policy: &Policy) -> Duration {
    let Some(reversal) = policy.compensation.reversal else {
        return Duration::ZERO;
    };
    let numbers = policy.retry.numbers();
    let sends = u32::from(numbers.max_retries) + 1;
    let longest_wait = numbers.cap.mul_f64(1.0 + numbers.jitter);
    let each = policy.timeouts.attempt.saturating_add(longest_wait);
    reversal.min_age.saturating_add(each.saturating_mul(sends))
}

fn names_the_call(rule: &ReversalRule) -> bool {
    let mut parts = rule
        .path
        .parts()
        .iter()
        .chain(rule.body.iter().flat_map(|body| body.parts()));
    parts.any(|part| !matches!(part, UndoPart::Text(_) | UndoPart::ReversalId))
}

fn template(text: &str) -> Result<UndoTemplate, String> {
    UndoTemplate::parse(text).map_err(|place| format!("{PLACES} instead of {{{place}}}"))
}

/// A path below the upstream's, or a URL whose path may have places.
fn undo_url(text: &str) -> Result<(Option<Endpoint>, UndoTemplate), String> {
    let (endpoint, path) = place_of(text)?;
    let template = template(path)?;
    let mut sample = String::new();
    for part in template.parts() {
        match part {
            UndoPart::Text(text) => sample.push_str(text),
            UndoPart::CallId
            | UndoPart::ReversalId
            | UndoPart::IdempotencyKey
            | UndoPart::Body(_)
            | UndoPart::Receipt(_) => sample.push('x'),
        }
    }
    let sound = !sample.contains(['{', '}', '#'])
        && path.starts_with('/')
        && PathAndQuery::try_from(sample.as_str()).is_ok();
    if sound {
        Ok((endpoint, template))
    } else {
        let form = "a path such as /orders/{call_id}/cancel, or an http:// or https:// URL \
                    with one, without fragment";
        Err(form.to_owned())
    }
}
