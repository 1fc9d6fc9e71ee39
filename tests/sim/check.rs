//! The promises, held against what the tool has really done.
//!
//! Some are held at every step (nothing is sent that is not on record, no failure is told that is
//! not durable), the rest at the end of a world. Where the contract makes a promise depend on the
//! network or on the tool's receipts, so does the check.

use std::collections::{BTreeMap, BTreeSet};

use callgate::call::id::CallId;
use callgate::call::outcome::Outcome;
use callgate::ledger::{CallView, DeadState, Entry, Ledger, RowId, SettledBy, Verdict};

use crate::net::{Request, Sent};
use crate::plan::{ROUNDS, Receipts};
use crate::world::State;

/// What is known for certain, by call id, and the promises that were broken.
#[derive(Default)]
pub(crate) struct Truth {
    pub(crate) calls: BTreeMap<String, Facts>,
    /// The calls that were sent with each idempotency key.
    pub(crate) keys: BTreeMap<String, BTreeSet<String>>,
    pub(crate) broken: Vec<String>,
    pub(crate) reached: Reached,
}

/// What really became of a call.
#[derive(Default)]
pub(crate) struct Facts {
    /// The use of the id that each effect belongs to.
    pub(crate) effects: Vec<u32>,
    /// Every send that left the gateway: use of the id, attempt.
    pub(crate) left: Vec<(u32, u32)>,
    /// When the tool last said NOT_FOUND.
    denied_at: Option<u64>,
    /// A request arrived that was sent before a NOT_FOUND was said.
    late: bool,
    told_success: bool,
    /// Effects that were undone, once the call was.
    undone: Option<usize>,
    /// The latest use of the id whose failure was told.
    told_failure: Option<u32>,
    /// The uses of the id that a caller was promised.
    pub(crate) promised: BTreeSet<u32>,
    /// The address it was sent to, by use of the id.
    pub(crate) went: BTreeMap<u32, usize>,
    /// What was sent first under this id, by use.
    pub(crate) bodies: BTreeMap<u32, String>,
    /// An answer that is final for a route without effects has arrived, at this time.
    pub(crate) answered_at: Option<u64>,
}

/// How often the worlds came to the places worth coming to.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reached(pub(crate) BTreeMap<&'static str, u64>);

/// What a caller takes from an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Success,
    Failure,
    /// Nobody knows, or it was not said.
    Unknown,
}

impl Reached {
    pub(crate) fn at(&mut self, place: &'static str) {
        *self.0.entry(place).or_default() += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (place, times) in &other.0 {
            *self.0.entry(place).or_default() += times;
        }
    }
}

impl State {
    /// A call's row as it is durable now.
    pub(crate) fn row(&self, id: &str) -> Option<CallView> {
        let id = CallId::parse(id.as_bytes()).ok()?;
        let found = self.ledger.view(None, id.clone()).wait();
        // Not the call whose key this id came with.
        let is_own = |call: &CallView| call.call_id == id;
        found
            .expect("memory is always readable")
            .into_iter()
            .find(is_own)
    }

    pub(crate) fn facts(&mut self, id: &str) -> &mut Facts {
        self.truth.calls.entry(id.to_owned()).or_default()
    }

    /// A call is handed to the ledger.
    pub(crate) fn begun(&mut self, id: &str) {
        self.facts(id);
    }

    /// A request has left the gateway: it must be on record. Says which use of the id it is.
    pub(crate) fn sends(&mut self, request: &Request) -> u32 {
        let (id, attempt) = (request.id.as_str(), request.attempt);
        self.say(|| format!("gate  sends {id} #{attempt}"));
        self.names_are_right(request);
        if self.plan.rules.none {
            self.passes_on(request);
            return 1;
        }
        let Some(row) = self.row(id) else {
            self.breaks(
                "persist, then perform",
                &format!("{id} is sent and not in the ledger"),
            );
            return 0;
        };
        let noted = |entry: &&Entry| matches!(entry, Entry::Sent { n, .. } if *n == attempt);
        let times = row.history.iter().filter(noted).count();
        if row.sends < attempt || times != 1 {
            let what = format!(
                "{id} #{attempt} is sent; noted {} and {times} times",
                row.sends
            );
            self.breaks("persist, then perform", &what);
        }
        self.not_once_undone(&row, attempt);
        self.not_once_told(&row, attempt);
        let facts = self.facts(id);
        facts.left.push((row.life, attempt));
        let first = facts
            .bodies
            .entry(row.life)
            .or_insert_with(|| request.body.clone());
        if *first != request.body {
            self.breaks("another request is never sent", &format!("{id} #{attempt}"));
        }
        let noted_at = row.history.iter().find(noted).map(Entry::at);
        // One that was noted before the end may leave after it.
        let over = row
            .settled
            .as_ref()
            .zip(noted_at)
            .is_some_and(|(end, at)| end.at < at);
        if over {
            self.breaks("what is settled is not sent", &format!("{id} #{attempt}"));
        }
        if self
            .facts(id)
            .told_failure
            .is_some_and(|life| life >= row.life)
        {
            self.breaks(
                "nothing is sent after a failure was told",
                &format!("{id} #{attempt}"),
            );
        }
        if attempt > 1 {
            self.truth.reached.at("resend");
        }
        self.notes_who_resends(&row);
        row.life
    }

    /// A send is on record before the reversal began, or not at all.
    fn not_once_undone(&mut self, row: &CallView, attempt: u32) {
        let begun = row
            .history
            .iter()
            .position(|entry| matches!(entry, Entry::Reversing { .. }));
        let sent = row
            .history
            .iter()
            .position(|entry| matches!(entry, Entry::Sent { n, .. } if *n == attempt));
        if begun.zip(sent).is_some_and(|(begun, sent)| begun < sent) {
            let what = format!("{} #{attempt}", row.call_id);
            self.breaks("nothing is sent once its reversal began", &what);
        }
    }

    /// A request to undo a call has left the gateway: that it begins is on record, and its id is
    /// the one for ever.
    pub(crate) fn undoes(&mut self, request: &Request) {
        let (of, n) = (request.reverses.as_str(), request.attempt);
        self.say(|| format!("gate  undoes {of} #{n}"));
        self.truth.reached.at("reversal");
        let Some(row) = self.row(of) else {
            return self.breaks(
                "persist, then perform",
                &format!("{of} is undone and unknown"),
            );
        };
        if request.path != format!("/undo/{of}") || request.id != *reversal_id(&row) {
            self.breaks("a reversal has one id and names its call", &request.id);
        }
        let noted =
            |entry: &&Entry| matches!(entry, Entry::Reversing { n: noted, .. } if *noted == n);
        if row.history.iter().filter(noted).count() != 1 {
            self.breaks(
                "persist, then perform",
                &format!("the reversal of {of} #{n}"),
            );
        }
        if self.facts(of).told_success {
            self.breaks("what was told as success is not undone", of);
        }
    }

    /// The tool has undone a call.
    pub(crate) fn undone(&mut self, id: &str) {
        let facts = self.facts(id);
        facts.undone = Some(facts.effects.len());
    }

    /// A question has left the gateway.
    pub(crate) fn asked_about(&mut self, request: &Request) {
        self.truth.reached.at("question");
        self.say(|| format!("gate  asks about {}", request.id));
        if request.path != format!("/receipts/{}", request.id) {
            self.breaks(
                "one id per call",
                &format!("{} asks {}", request.id, request.path),
            );
        }
        if self.plan.rules.none {
            self.breaks("without effects nothing is asked", &request.id);
        }
        if self.row(&request.id).is_none() {
            self.breaks(
                "one id per call",
                &format!("{} is asked and unknown", request.id),
            );
        }
    }

    /// A request has reached the tool.
    pub(crate) fn saw(&mut self, sent: &Sent) {
        let id = sent.id.clone();
        let facts = self.facts(&id);
        if facts.denied_at.is_some_and(|at| at >= sent.at) {
            facts.late = true;
        }
        let wanted = self.plan.callers.iter().any(|script| {
            script.wants == sent.body && script.id.as_ref().is_none_or(|own| *own == id)
        });
        if !wanted && !self.is_rows(&sent.body, &id) {
            self.breaks("one id per call", &format!("{} arrives as {id}", sent.body));
        }
    }

    /// The tool said NOT_FOUND.
    pub(crate) fn denied(&mut self, id: &str) {
        let now = self.now();
        self.facts(id).denied_at = Some(now);
    }

    /// The tool has done the work.
    pub(crate) fn effect(&mut self, sent: &Sent) {
        self.facts(&sent.id).effects.push(sent.of_life);
        if !self.plan.rules.none {
            self.effects_are_few(&sent.id.clone());
            self.key_has_one_effect(&sent.key.clone());
        }
    }

    fn effects_are_few(&mut self, id: &str) {
        let strict = self.plan.tool.honours || self.plan.is_strict() || !self.facts(id).late;
        let effects = self.facts(id).effects.len();
        if effects > 1 && strict {
            self.breaks("at most one effect", &format!("{id} has {effects}"));
        }
    }

    /// A caller was told how its call ended.
    pub(crate) fn told(&mut self, id: &str, heard: Heard) {
        self.truth.reached.at(match heard {
            Heard::Success => "told success",
            Heard::Failure => "told failure",
            Heard::Unknown => "told unknown",
        });
        match heard {
            Heard::Unknown => {}
            Heard::Success => {
                self.facts(id).told_success = true;
                if self.facts(id).effects.is_empty() {
                    self.breaks("no success is told without an effect", id);
                }
            }
            // What has no effects leaves no record.
            Heard::Failure if self.plan.rules.none => {}
            Heard::Failure => {
                let row = self.row(id);
                let failed = row.as_ref().and_then(|row| match &row.settled {
                    Some(settled) if settled.verdict == Verdict::Failed => Some(row.life),
                    // The id lives again: the failure was that of its life before.
                    _ => row.life.checked_sub(1).filter(|life| *life > 0),
                });
                match failed {
                    None => self.breaks("a failure is told only when it is durable", id),
                    Some(life) => {
                        let facts = self.facts(id);
                        facts.told_failure = facts.told_failure.max(Some(life));
                        self.failures_are_true(id);
                    }
                }
            }
        }
    }

    /// Whether a failure of this call may have an effect after all: a request arrived after its
    /// NOT_FOUND, at a tool that keeps no refusals, or the receipts lie.
    pub(crate) fn may_fail_with_effect(&mut self, id: &str) -> bool {
        let tool = &self.plan.tool;
        let keeps = tool.honours && tool.records_refusals && tool.limits == 0;
        let late = self.plan.net.slow && self.facts(id).late;
        self.plan.tool.receipts == Receipts::Lying || (late && !keeps)
    }

    fn failures_are_true(&mut self, id: &str) {
        if self.may_fail_with_effect(id) {
            return;
        }
        let facts = self.facts(id);
        let Some(told) = facts.told_failure else {
            return;
        };
        if facts.effects.iter().any(|life| *life <= told) {
            self.breaks("no failure is told with an effect", id);
        }
    }

    /// Everything that must hold when a world has come to its end.
    pub(crate) fn all_holds(&mut self) {
        self.files_hold();
        let ids: Vec<String> = self.truth.calls.keys().cloned().collect();
        for key in self.truth.keys.keys().cloned().collect::<Vec<_>>() {
            self.key_has_one_effect(&key);
        }
        // What has no effects leaves no record.
        let ids = if self.plan.rules.none {
            Vec::new()
        } else {
            ids
        };
        for id in ids {
            self.effects_are_few(&id);
            self.failures_are_true(&id);
            match self.row(&id) {
                None if self.facts(&id).left.is_empty() => {}
                None => self.breaks("nothing is lost", &format!("{id} reached the tool")),
                Some(row) => self.row_is_true(&id, &row),
            }
        }
    }

    fn row_is_true(&mut self, id: &str, row: &CallView) {
        self.history_is_whole(id, row);
        self.sends_were_tried(id, row);
        let may_fail = self.may_fail_with_effect(id);
        let facts = self.facts(id);
        let (success, any) = (facts.told_success, !facts.effects.is_empty());
        let here = facts.effects.contains(&row.life);
        match row
            .settled
            .as_ref()
            .map(|settled| (settled.verdict, settled.by))
        {
            Some((Verdict::Success, _)) if !any => {
                self.breaks("no success is recorded without an effect", id);
            }
            Some((Verdict::Failed, SettledBy::Reversal)) => self.reversal_is_true(id),
            Some((Verdict::Failed, _)) if here && !may_fail => {
                self.breaks("no failure is recorded with an effect", id);
            }
            Some((Verdict::Failed, _)) if success => {
                self.breaks("no failure is recorded of a told success", id);
            }
            Some((_, SettledBy::NeverSent)) if self.facts(id).promised.contains(&row.life) => {
                self.breaks("what is accepted is not given up", id);
            }
            Some(_) | None => {}
        }
        self.promise_is_kept(id, row);
        let place = match (
            &row.settled,
            row.dead_letter.as_ref().map(|letter| letter.state),
        ) {
            (None, Some(DeadState::Manual)) => "manual",
            (None, Some(DeadState::Discarded)) => "discarded",
            (None, _) => {
                self.breaks("everything ends", id);
                "unsettled"
            }
            (Some(_), Some(DeadState::Settled)) => "settled by a round",
            (Some(end), _) if end.by == SettledBy::NeverSent => "never sent",
            (Some(end), _) if end.by == SettledBy::Reversal => "reversed",
            (Some(end), _) if end.by == SettledBy::Receipt => "settled by a receipt",
            (Some(end), _) if end.verdict == Verdict::Success => "answered",
            (Some(_), _) => "refused",
        };
        self.truth.reached.at(place);
        if row.life > 1 {
            self.truth.reached.at("another life");
        }
        if !row.differences.is_empty() {
            self.truth.reached.at("difference");
        }
        let late = |entry: &Entry| matches!(entry, Entry::Ended { late: true, .. });
        if row.history.iter().any(late) {
            self.truth.reached.at("late answer");
        }
    }

    /// What is reversed was undone, and what was done afterwards was under way all the time.
    fn reversal_is_true(&mut self, id: &str) {
        let explained = self.plan.net.slow || self.plan.tool.receipts == Receipts::Lying;
        let facts = self.facts(id);
        let (success, undone, effects) = (facts.told_success, facts.undone, facts.effects.len());
        if success {
            self.breaks("what was told as success is not undone", id);
        }
        match undone {
            None => self.breaks("what is reversed was undone", id),
            Some(undone) if effects > undone && !explained => {
                self.breaks("what is reversed has no effect", id);
            }
            Some(_) => {}
        }
    }

    /// Whether a claim was made for a caller's repeat, not for a round.
    pub(crate) fn is_repeat(&self, row: RowId, fence: i64) -> bool {
        self.disk.repeats.lock().contains(&(row, fence))
    }

    /// Every send stands in the history exactly once, and there are not too many: in line and by
    /// repeats no more than the route allows, and one in each round.
    fn history_is_whole(&mut self, id: &str, row: &CallView) {
        let allowed = u32::try_from(1 + self.plan.rules.retries).expect("a small number");
        let mut noted: BTreeMap<u32, u32> = BTreeMap::new();
        let (mut in_round, mut rounds) = (None, 0);
        let (mut too_many, mut in_last, mut ordered) = (false, false, false);
        // Sends that may have reached the tool; where ends get lost, those that are known to have.
        let (mut reached, sure) = (0_i32, self.plan.disk.fails == 0);
        for entry in &row.history {
            match entry {
                Entry::Sent { n, .. } => {
                    *noted.entry(*n).or_default() += 1;
                    match &mut in_round {
                        None => too_many |= *n > allowed,
                        Some(sends) => {
                            *sends += 1;
                            too_many |= *sends > 1;
                            // What was promised is owed its first send to the very end.
                            let owed = row.promised && reached <= 0;
                            in_last |= rounds + 1 >= ROUNDS && !owed && !ordered;
                        }
                    }
                    reached += i32::from(sure);
                }
                Entry::Ended { outcome, .. } => {
                    let left = !matches!(outcome, Outcome::NotSent(_));
                    reached += i32::from(left) - i32::from(sure);
                }
                Entry::Claimed { fence, .. } => {
                    in_round = (!self.is_repeat(row.row, *fence)).then_some(0);
                    ordered = self.disk.orders.lock().contains(&(row.row, *fence));
                }
                Entry::Parked { round, reason, .. } => {
                    rounds = *round;
                    // The end of its attempts may not be in the history; this says it too.
                    if *reason == *"never-sent" {
                        reached = 0;
                    }
                }
                _ => {}
            }
        }
        if too_many {
            self.breaks("sends are bounded", &format!("{id}: {noted:?}"));
        }
        if in_last {
            self.breaks("the last round only asks", id);
        }
        let left = self.facts(id).left.clone();
        for (life, attempt) in left {
            if life == row.life && noted.get(&attempt) != Some(&1) {
                let times = noted.get(&attempt).copied().unwrap_or(0);
                let what = format!("{id} #{attempt} stands there {times} times");
                self.breaks("every send has one entry in the history", &what);
            }
        }
    }
}

/// The id that the reversal of a call has for ever.
fn reversal_id(row: &CallView) -> Box<str> {
    let id = callgate::entropy::reversal_id(&row.client, &row.call_id);
    Box::from(id.as_str())
}
