//! Limits: what a route lets in, and what its tool is spared.

use std::sync::Arc;

use super::Builder;
use super::scope::Scope;
use crate::config::Config;
use crate::config::file::read::Value;
use crate::config::limits::{Adaptive, Concurrency, Rate, RetryBudget, RouteLimits};
use crate::config::route::{Route, Upstream};

impl Builder<'_> {
    pub(super) fn route_limits(&mut self, scope: &Scope<'_>) -> RouteLimits {
        RouteLimits {
            rate: self.parsed(scope, "rate", Rate::parse),
            client_rate: self.parsed(scope, "client_rate", Rate::parse),
            client_concurrent: written(scope, "client_concurrent"),
        }
    }

    /// A request body that could never find room would be refused for ever.
    pub(super) fn judge_bodies(&mut self, limits: &Scope<'_>, config: &Config) {
        let room = config.limits.bodies;
        let longest = config.routes.iter().max_by_key(|it| it.body.max_request);
        if let Some(route) = longest.filter(|route| route.body.max_request > room) {
            let message = format!(
                "the route {:?} takes bodies of {} bytes (body.max_request), which would never \
                 find room; raise this one, or lower that",
                route.name, route.body.max_request
            );
            self.refuse(&limits.blame(&["bodies"]), message);
        }
    }

    /// Routes to one tool share its limits, so they must agree about them.
    pub(super) fn judge_shared(&mut self, own: &Scope<'_>, route: &Route, before: &[Arc<Route>]) {
        let upstream = &route.upstream;
        let differs = before.iter().find(|earlier| {
            let other = &earlier.upstream;
            let meets = |address| other.addresses().any(|its| its == address);
            upstream.addresses().any(meets) && !are_alike(upstream, other)
        });
        if let Some(earlier) = differs {
            let message = format!(
                "the route {:?} has the same upstream.url and other limits for it; a tool has one \
                 list of `urls`, one `concurrency`, `retry_budget`, `ejection`, `resolve` and \
                 `shared_state`: write them alike",
                earlier.name
            );
            let scope = own.section("upstream");
            let keys = ["concurrency", "retry_budget", "ejection", "urls", "url"];
            self.refuse(&scope.blame(&keys), message);
        }
    }
}

/// Whether both treat their tool the same way.
fn are_alike(one: &Upstream, other: &Upstream) -> bool {
    one.addresses().eq(other.addresses())
        && (one.concurrency, one.retry_budget) == (other.concurrency, other.retry_budget)
        && (&one.ejection, one.resolve, one.shared_state)
            == (&other.ejection, other.resolve, other.shared_state)
}

pub(super) fn concurrency(scope: &Scope<'_>) -> Option<Concurrency> {
    let scope = scope.section("concurrency");
    let max = written(&scope, "max")?;
    Some(Concurrency {
        max,
        queue: scope.whole("queue", max),
        adaptive: scope.word("adaptive", Adaptive::Off),
    })
}

pub(super) fn retry_budget(scope: &Scope<'_>) -> Option<RetryBudget> {
    let is_there = matches!(scope.get("retry_budget"), Some((Value::Map(_), _)));
    let scope = scope.section("retry_budget");
    let usual = RetryBudget::default();
    is_there.then(|| RetryBudget {
        ratio: scope.number("ratio", usual.ratio),
        floor: count(&scope, "floor", usual.floor),
        per_client: scope.whole("per_client", usual.per_client),
        rounds: count(&scope, "rounds", usual.rounds),
        receipts: count(&scope, "receipts", usual.receipts),
    })
}

fn written(scope: &Scope<'_>, key: &str) -> Option<usize> {
    match scope.get(key) {
        Some((Value::Whole(_), _)) => Some(scope.whole(key, 0)),
        _ => None,
    }
}

/// The table of keys bounds these far below.
fn count(scope: &Scope<'_>, key: &str, usual: u32) -> u32 {
    written(scope, key).map_or(usual, |n| u32::try_from(n).unwrap_or(u32::MAX))
}
