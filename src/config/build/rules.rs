//! Rules between keys: what is refused because it cannot mean what it says, and what is warned
//! about because it rarely does.
//!
//! A rule looks at effective values and blames the key that was written. Keys the reader refused
//! are not judged again.

use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use super::reversal::longest_reversal;
use super::scope::Scope;
use crate::call::policy::{Policy, Records, ResendOn, Timeouts};
use crate::config::file::read::Value;
use crate::config::file::units::show_duration;
use crate::config::key_template::{KeyPart, KeyTemplate};
use crate::config::report::Path;
use crate::config::route::{Accepted, Effects, Route, UpstreamKind};

const WINDOW_MIN: Duration = Duration::from_secs(24 * 3_600);
const WINDOW_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Below this, slow tools are taken for dead ones.
const ATTEMPT_WISE: Duration = Duration::from_secs(5);
/// Above this, resends are the load that keeps a tool down.
const RETRIES_WISE: u8 = 3;

impl Builder<'_> {
    /// Judges one route by itself.
    pub(super) fn judge(&mut self, scope: &Scope<'_>, route: &Route) {
        self.judge_timeouts(&scope.section("timeouts"), &route.policy);
        self.judge_rounds(&scope.section("compensation"), &route.policy);
        self.judge_window(scope, route);
        self.judge_names(scope, route);
        if may_act(route) {
            self.judge_chain(scope, route);
            self.judge_receipt(scope, route);
            self.judge_reversal(scope, route);
            self.advise(scope, route);
        }
    }

    /// Judges a route by those before it.
    pub(super) fn judge_order(&mut self, own: &Scope<'_>, route: &Route, before: &[Arc<Route>]) {
        if before.iter().any(|earlier| earlier.name == route.name) {
            let message = format!("another route is called {:?} already", route.name);
            self.refuse(&own.blame(&["name"]), message);
        }
        let everything = before
            .iter()
            .find(|earlier| earlier.matcher.takes_everything());
        if let Some(earlier) = everything {
            self.warn(
                &own.blame(&["match"]),
                format!(
                    "never reached: the route {:?} above takes every request",
                    earlier.name
                ),
            );
        }
    }

    fn judge_timeouts(&mut self, scope: &Scope<'_>, policy: &Policy) {
        let Timeouts { attempt, total, .. } = policy.timeouts;
        if attempt > total && !scope.any_bad(&["attempt", "total"]) {
            let message = format!(
                "`attempt` ({}) is longer than `total` ({}); shorten it or raise `total`",
                show_duration(attempt),
                show_duration(total)
            );
            self.refuse(&scope.blame(&["attempt", "total"]), message);
        }
    }

    fn judge_rounds(&mut self, scope: &Scope<'_>, policy: &Policy) {
        let grows = policy
            .compensation
            .rounds
            .windows(2)
            .all(|pair| pair[0] < pair[1]);
        let refused = match scope.list("rounds") {
            Some((elements, _)) => elements.contains(&Value::Bad),
            None => true,
        };
        if !grows && !refused {
            let message = "expected growing gaps, such as [1m, 5m, 30m]";
            self.refuse(&scope.blame(&["rounds"]), message);
        }
    }

    /// An id that is forgotten while its call is still being settled could run twice.
    fn judge_window(&mut self, scope: &Scope<'_>, route: &Route) {
        let keys = scope.section("idempotency");
        if keys.any_bad(&["window"]) {
            return;
        }
        let window = route.idempotency.window;
        let path = keys.blame(&["window"]);
        if !(WINDOW_MIN..=WINDOW_MAX).contains(&window) {
            let message = format!("expected 24h to 7d, found {}", show_duration(window));
            self.refuse(&path, message);
            return;
        }
        let longest = longest_life(&route.policy);
        if window < longest {
            let message = format!(
                "the window ({}) is shorter than a call may stay unsettled ({}: total, late, \
                 all rounds with their jitter and the reversal's tries); raise it, or shorten the \
                 rounds",
                show_duration(window),
                show_duration(longest)
            );
            self.refuse(&path, message);
        }
    }

    fn judge_names(&mut self, scope: &Scope<'_>, route: &Route) {
        if route.call_id.header == route.idempotency.header {
            let message = "call id and idempotency key cannot travel in the same header field";
            self.refuse(&scope.section("call_id").blame(&["header"]), message);
        }
        let keys = &route.idempotency;
        if let Some(tenant) = &route.upstream.tenant_header
            && [&route.call_id.header, &keys.header, keys.sent_in()].contains(&tenant)
        {
            let message = "this field carries the call id or the idempotency key; the client's \
                           name needs one of its own";
            let path = scope.section("upstream").blame(&["tenant_header"]);
            self.refuse(&path, message);
        }
        let keys = scope.section("idempotency");
        if route.idempotency.send_header.as_ref() == Some(&route.call_id.header) {
            let message = "the call id travels in this header field";
            self.refuse(&keys.section("send").blame(&["header"]), message);
        }
        if let Some(template) = &route.idempotency.key {
            self.judge_key(&keys.blame(&["key"]), route, template);
        }
    }

    fn judge_key(&mut self, path: &Path, route: &Route, template: &KeyTemplate) {
        let pattern = route.matcher.path.as_str();
        for part in template.parts() {
            match part {
                KeyPart::Path(name) if !pattern.contains(&format!("{{{name}}}")) => {
                    let message = format!("the route's path ({pattern}) captures no {{{name}}}");
                    self.refuse(path, message);
                }
                KeyPart::Header(name) if *name == route.call_id.header => {
                    let message = "a call id is another one for each call; the key must come out \
                                   the same for the same operation";
                    self.refuse(path, message);
                }
                KeyPart::Text(_)
                | KeyPart::Body(_)
                | KeyPart::Header(_)
                | KeyPart::Path(_)
                | KeyPart::Query(_) => {}
            }
        }
        if template.can_collide() {
            let text = "two places meet without text between them: `12` and `3` make the same key \
                        as `1` and `23`; put a separator there unless one of them has a fixed \
                        length";
            self.warn(path, text);
        }
    }

    /// Only the hop next to the tool resends what nobody knows.
    fn judge_chain(&mut self, scope: &Scope<'_>, route: &Route) {
        let chained = route.upstream.kind == UpstreamKind::Callgate;
        let retry = scope.section("retry");
        let resends = route.policy.retry.resend_on() == ResendOn::NotFoundOrUnknown;
        if chained && resends && !retry.any_bad(&["resend_on"]) {
            let message = "what another gateway does not know is waited for, since only the one \
                           next to the tool resends; write [NOT_FOUND] here, and UNKNOWN there";
            self.refuse(&retry.blame(&["resend_on"]), message);
        }
    }

    fn judge_receipt(&mut self, scope: &Scope<'_>, route: &Route) {
        let own = scope.section("receipt");
        let late = route.policy.timeouts.late;
        let clash = route
            .policy
            .receipt
            .filter(|receipt| receipt.records == Records::Commit && receipt.settle < late);
        if let Some(receipt) = clash
            && !own.any_bad(&["settle", "records"])
            && !scope.section("timeouts").any_bad(&["late"])
        {
            let message = format!(
                "with `records: commit`, `settle` ({}) must be at least the tool's longest run, \
                 and so at least timeouts.late ({})",
                show_duration(receipt.settle),
                show_duration(late)
            );
            self.refuse(&own.blame(&["settle", "records"]), message);
        }
        let asked = route.policy.receipt.is_some() || scope.any_bad(&["receipt"]);
        if route.accepted == Accepted::Pending && !asked {
            let message = "`pending` needs a `receipt` that tells when the work is done";
            self.refuse(&scope.blame(&["accepted"]), message);
        }
    }

    fn advise(&mut self, scope: &Scope<'_>, route: &Route) {
        let policy = &*route.policy;
        let (timeouts, retry) = (scope.section("timeouts"), scope.section("retry"));
        if policy.timeouts.attempt < ATTEMPT_WISE && !timeouts.any_bad(&["attempt"]) {
            let path = timeouts.blame(&["attempt"]);
            self.warn(
                &path,
                "below 5s a slow tool is easily mistaken for a dead one",
            );
        }
        let retries = policy.retry.max_retries();
        if retries > RETRIES_WISE {
            let path = retry.blame(&["max_retries"]);
            self.warn(&path, "more than 3 resends keep a struggling tool down");
        }
        if retries > 0 && policy.retry.numbers().jitter == 0.0 {
            let path = retry.blame(&["jitter"]);
            self.warn(&path, "without jitter all waiting calls wake up together");
        }
        self.advise_on_resends(scope, policy);
        let dedupes = policy.retry.resend_on() == ResendOn::NotFoundOrUnknown;
        let mute = policy.receipt.is_none() && !dedupes && !scope.any_bad(&["receipt"]);
        if mute && route.upstream.kind == UpstreamKind::Callgate {
            self.warn(
                &scope.blame(&["name"]),
                format!(
                    "the route {:?} has no `receipt`, so every unclear call goes to a human; \
                     write `receipt: {{}}`, which the other gateway answers",
                    route.name
                ),
            );
        } else if mute {
            self.warn(
                &scope.blame(&["name"]),
                format!(
                    "the route {:?} has no `receipt`: nothing is ever resent after a timeout, and \
                     every unclear call goes to a human. Ways out: a receipt endpoint, \
                     `retry.resend_on: [NOT_FOUND, UNKNOWN]` when the tool dedupes by call id, or \
                     callgate beside the tool",
                    route.name
                ),
            );
        }
    }

    fn advise_on_resends(&mut self, scope: &Scope<'_>, policy: &Policy) {
        let numbers = policy.retry.numbers();
        let settle = policy
            .receipt
            .map_or(Duration::ZERO, |receipt| receipt.settle);
        let first = numbers.base.mul_f64(1.0 + numbers.jitter);
        let needed = policy
            .timeouts
            .attempt
            .saturating_add(first)
            .saturating_add(settle);
        if numbers.max_retries > 0 && needed >= policy.timeouts.total {
            let path = scope.section("timeouts").blame(&["total", "attempt"]);
            self.warn(
                &path,
                format!(
                    "`total` ({}) leaves no room for a single resend after a timeout: attempt, \
                     first wait and settle take {}",
                    show_duration(policy.timeouts.total),
                    show_duration(needed)
                ),
            );
        }
        let path = scope.section("compensation").blame(&["resend"]);
        let asks = policy.receipt.is_some() && numbers.resend_on != ResendOn::Nothing;
        let may = asks || numbers.resend_on == ResendOn::NotFoundOrUnknown;
        if policy.compensation.resend && !may {
            let text = "no round can ever resend: without a receipt, or with `resend_on: []`, \
                        nothing allows it";
            self.warn(&path, text);
        }
        let rounds: Duration = policy.compensation.rounds.iter().sum();
        let memory = policy
            .receipt
            .map_or(Duration::MAX, |receipt| receipt.retention);
        if policy.compensation.resend && memory < rounds {
            let path = scope.section("receipt").blame(&["retention"]);
            self.warn(
                &path,
                "the tool forgets before the last round, which then cannot resend",
            );
        }
    }
}

/// Whether any request of this route may have an effect.
fn may_act(route: &Route) -> bool {
    match (route.effects, &route.matcher.methods) {
        (Effects::None, _) => false,
        (Effects::Once, _) | (Effects::ByMethod, None) => true,
        (Effects::ByMethod, Some(methods)) => methods
            .iter()
            .any(|method| Effects::ByMethod.is_once(method)),
    }
}

/// The longest a call may stay unsettled: in line, late, all rounds at their latest, and the
/// reversal with its repeats.
fn longest_life(policy: &Policy) -> Duration {
    rounds_over(policy).saturating_add(longest_reversal(policy))
}

/// When at the latest the last round is over.
pub(super) fn rounds_over(policy: &Policy) -> Duration {
    let rounds: Duration = policy.compensation.rounds.iter().sum();
    let latest = rounds.mul_f64(1.0 + policy.retry.numbers().jitter);
    policy.timeouts.total + policy.timeouts.late + latest
}
