//! Promises about names: one call per idempotency key, nobody's twin where the route refuses them,
//! no living owner's call taken, and no second send of what has no effects once it was answered.

use callgate::call::time::Wall;
use callgate::ledger::{CallView, Owner};

use crate::net::Request;
use crate::world::State;

impl State {
    /// A request leaves with a key: its own, and no other open call has it.
    pub(crate) fn names_are_right(&mut self, request: &Request) {
        let (id, key) = (&request.id, &request.key);
        let script = self
            .plan
            .callers
            .iter()
            .find(|script| script.wants == request.body);
        let row = self.rows().find(|row| row.wants == request.body);
        let own = script
            .map(|script| script.key.clone())
            .or_else(|| row.map(|row| row.key.clone()))
            .flatten()
            .unwrap_or_default();
        if own != *key {
            self.breaks(
                "a call goes with its key",
                &format!("{id} goes with {key:?}"),
            );
        }
        if self.plan.rules.none {
            return;
        }
        if !key.is_empty() {
            let ids = self.truth.keys.entry(key.clone()).or_default();
            ids.insert(id.clone());
            let others: Vec<String> = ids.iter().filter(|other| *other != id).cloned().collect();
            if !others.is_empty() {
                self.truth.reached.at("key used again");
            }
            for other in others {
                if self.row(&other).is_some_and(|row| row.settled.is_none()) {
                    let what = format!("{id} is sent while {other} is open");
                    self.breaks("one call per key", &what);
                }
            }
        } else if request.attempt == 1 && self.refuses_twins(id) {
            self.has_no_twin(request);
        }
    }

    /// Whether an id was made by the gateway on a route that refuses the same request under it.
    /// Not where a park may fail to be written, or another process has the first one.
    fn refuses_twins(&self, id: &str) -> bool {
        let plan = &self.plan;
        let given = plan
            .callers
            .iter()
            .any(|script| script.id.as_deref() == Some(id))
            || self.rows().any(|row| row.id.as_deref() == Some(id));
        plan.rules.block && !given && plan.disk.fails == 0 && plan.twin.is_none()
    }

    fn has_no_twin(&mut self, request: &Request) {
        let asks_the_same = |body: &String| *body == request.body;
        let twins: Vec<String> = self
            .truth
            .calls
            .iter()
            .filter(|(id, facts)| **id != request.id && facts.bodies.values().any(asks_the_same))
            .map(|(id, _)| id.clone())
            .collect();
        for twin in twins {
            if self.row(&twin).is_some_and(|row| row.settled.is_none()) {
                let what = format!("{} is sent while {twin} is open", request.id);
                self.breaks("no second one of a call that is open", &what);
            }
        }
    }

    /// Of all calls with one key one has had an effect, unless another's failure may have had one.
    pub(crate) fn key_has_one_effect(&mut self, key: &str) {
        let ids: Vec<String> = self
            .truth
            .keys
            .get(key)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let done = ids.iter().filter(|id| !self.facts(id).effects.is_empty());
        let done: Vec<String> = done.cloned().collect();
        if done.len() > 1 && !ids.iter().any(|id| self.may_fail_with_effect(id)) {
            self.breaks("at most one effect per key", &format!("{key}: {done:?}"));
        }
    }

    /// A request without effects leaves.
    pub(crate) fn passes_on(&mut self, request: &Request) {
        let (id, attempt) = (&request.id, request.attempt);
        self.truth.reached.at(if attempt > 1 {
            "passed on again"
        } else {
            "passed on"
        });
        if u64::from(attempt) > 1 + self.plan.rules.retries {
            self.breaks("sends are bounded", &format!("{id} #{attempt}"));
        }
        if self.facts(id).answered_at.is_some() {
            self.breaks(
                "what was answered is not sent again",
                &format!("{id} #{attempt}"),
            );
        }
    }

    /// The head of an answer has arrived.
    pub(crate) fn head_arrived(&mut self, id: &str, status: &str) {
        if self.plan.rules.none && !matches!(status, "502" | "503" | "504") {
            let now = self.now();
            self.facts(id).answered_at = Some(now);
        }
    }

    /// The calls in line of owners that are alive, with the time until which they are.
    pub(crate) fn in_line(&self, now: Wall) -> Vec<CallView> {
        let rows = self.truth.calls.keys().filter_map(|id| self.row(id));
        rows.filter(|row| {
            row.settled.is_none() && row.dead_letter.is_none() && row.lease_until > now
        })
        .collect()
    }

    /// Whether this gateway still has a call in line.
    pub(crate) fn holds(&self, owner: &Owner) -> bool {
        let mut rows = self.truth.calls.keys().filter_map(|id| self.row(id));
        rows.any(|row| row.settled.is_none() && row.dead_letter.is_none() && row.owner == *owner)
    }

    /// A second gateway has swept: what was in line before is not a crash now.
    pub(crate) fn the_living_keep_theirs(&mut self, before: &[CallView]) {
        for row in before {
            let now = self.row(row.call_id.as_str());
            let letter = now.and_then(|now| now.dead_letter);
            if letter.is_some_and(|letter| &*letter.reason == "crash") {
                let what = format!("{} of {}", row.call_id, row.owner);
                self.breaks("a living owner keeps its calls", &what);
            }
            self.truth.reached.at("alive beside another");
        }
    }
}
