//! A repeat of a call that is no longer in line: the stored answer, or one question about it.
//!
//! Whoever repeats an unresolved call gets the tool's word instead of a guess. A dead letter in the
//! queue is leased for the question, so that no round and no other process asks or sends beside it;
//! its rounds and their times do not move. A resend needs what it needs in line, and comes out of
//! the same allowance. One that a human holds is asked about and never sent. All who repeat the
//! call meanwhile share the question (`join`), and no call is asked about more than once per
//! `retry.base`, however often it is repeated.

use std::sync::Arc;
use std::time::Duration;

use http::uri::PathAndQuery;

use super::call::{Call, Decider, Hold, Place, Sendable};
use super::drive::Drive;
use super::former::Home;
use super::round::recovered;
use super::running::{Attendance, Lead};
use super::told::{Problem, Shown, Told, Word};
use super::visit::Visit;
use super::{Flow, Route, dedup, record};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::recovery::{Patience, Recovery, Sending};
use crate::call::step::{Event, Step};
use crate::call::time::Wall;
use crate::config::route::UpstreamKind;
use crate::crash::{self, Point};
use crate::ledger::{CallView, Claim, DeadState, Due, Entry, Known, LedgerError, Taker};
use crate::telemetry::labels::AvoidedBy;
use crate::telemetry::log::AttemptLine;
use crate::upstream::Core;

/// Between two looks at a round that is being made, perhaps by another process: doubled up to the
/// longest.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// When a refusal for want of room is worth a repeat.
const SOON: Duration = Duration::from_secs(1);

/// What a repeat came to, as far as it was driven.
type Brought = (Option<Told>, Vec<AttemptLine>);

impl Flow {
    /// What a request is told whose id, or key, the same request took before. Who came by the key
    /// brings the `lead` of the call itself: whoever joins there is told the same.
    pub(super) async fn repeat(
        self: &Arc<Self>,
        core: &Core,
        visit: &Visit,
        known: Known,
        lead: Option<Lead>,
    ) -> Told {
        crash::at(Point::Repeated);
        let first = known.call.call_id.clone();
        let kind = visit.request.route.conf.upstream.kind;
        let open = known.call.settled.is_none();
        let letter = known.call.dead_letter.as_ref().filter(|_| open);
        let (told, sends) = match letter.map(|letter| letter.state) {
            Some(DeadState::Queued | DeadState::Manual | DeadState::Discarded) => {
                self.ask_again(core, visit, &known.call).await
            }
            Some(DeadState::Running) => {
                self.round_ends(core, visit, &known.call).await;
                (None, Vec::new())
            }
            Some(
                DeadState::Reversing | DeadState::Reversed | DeadState::Settled | DeadState::Failed,
            )
            | None => (Some(dedup::told(&known, kind)), Vec::new()),
        };
        let told = match told {
            Some(told) => told,
            None => self.look_again(known, kind).await,
        };
        let told = counted(core, told);
        if let Some(lead) = lead {
            lead.tell(&told);
        }
        if told.word == Word::Replayed {
            let how = if first == visit.request.call_id {
                AvoidedBy::Replay
            } else {
                AvoidedBy::Key
            };
            visit.request.route.metrics.avoided.inc(how);
        }
        let told = visit.about_first(told, &first);
        visit.line(&told, &sends, core);
        told
    }

    /// Asks about an unresolved call, and sends it where a repeat may.
    async fn ask_again(self: &Arc<Self>, core: &Core, visit: &Visit, call: &CallView) -> Brought {
        let nothing = (None, Vec::new());
        let Some(route) = self.routes.named(&call.route) else {
            return nothing;
        };
        let Some(home) = self.routes.home(&route, call) else {
            return nothing;
        };
        let now = core.clock.wall();
        if was_asked_since(call, now, route.conf.policy.retry.base()) {
            return nothing;
        }
        let queued =
            call.dead_letter.as_ref().map(|letter| letter.state) == Some(DeadState::Queued);
        let (call, machine) = if queued {
            match self.leased(core, visit, &route, call).await {
                Ok(Some(leased)) => leased,
                // A round was quicker: its receipt is worth waiting for.
                Ok(None) => {
                    self.round_ends(core, visit, call).await;
                    return nothing;
                }
                Err(e) => {
                    let call_id = &call.call_id;
                    tracing::warn!(%call_id, error = %e, "a repeat cannot be asked about");
                    return nothing;
                }
            }
        } else {
            self.with_human(core, visit, home, call)
        };
        let decider = Decider::Round(machine);
        let row = call.claim.row;
        let drive = Drive::new(self, core, call, decider, Attendance::nobody());
        if !queued {
            return drive.repeat().await;
        }
        let driving = self.calls.driven.take(row).await;
        tokio::select! {
            brought = drive.repeat() => brought,
            () = driving.displaced() => nothing,
        }
    }

    /// Leases the dead letter; `None` when somebody else has it by now.
    async fn leased(
        &self,
        core: &Core,
        visit: &Visit,
        route: &Arc<Route>,
        call: &CallView,
    ) -> Result<Option<(Call, Recovery)>, LedgerError> {
        let now = core.clock.wall();
        let until = self.lease_until(route, now);
        let owner = self.owner.clone();
        let claimed =
            self.ledger
                .claim_letter(call.row, call.life, (Taker::Caller, owner), now, until);
        let Some(due) = claimed.await? else {
            return Ok(None);
        };
        crash::at(Point::Leased);
        let policy = self.policy_of(route, &due);
        let patience = Patience {
            deadline: visit.until,
            last_sent: last_sent(&due.call, now),
        };
        let known = self.known(&due.call, &policy, now);
        let home = self.routes.home(route, &due.call);
        let Some(call) = home.and_then(|home| repeated(home, visit, due)) else {
            return Ok(None);
        };
        let sending = call.sending();
        let machine = Recovery::repeat(policy, core.clock.mono(), patience, known, sending);
        Ok(Some((call, machine)))
    }

    /// A call in front of a human: it is asked about, under no lease, and never sent.
    fn with_human(
        &self,
        core: &Core,
        visit: &Visit,
        home: Home,
        view: &CallView,
    ) -> (Call, Recovery) {
        let request = &visit.request;
        let route = home.route;
        let call = Call {
            first_sent: view.first_sent.unwrap_or(view.received_at),
            same_address: home.same_address,
            site: home.site,
            via: home.site,
            moves: home.moves,
            recognised: view.recognised,
            was_told: view.told,
            first: None,
            place: Place::Repeat(Hold::Nothing),
            is_read: false,
            client: view.client.clone(),
            call_id: view.call_id.clone(),
            source: view.source,
            claim: Claim::none(view.row, view.life),
            request: Sendable {
                method: request.method.clone(),
                target: visit.target.clone(),
                headers: visit.fields.clone(),
                idempotency_key: visit.key_value(),
                body: request.body.clone(),
                credential: record::credentials(&visit.fields, &route.conf.secret_headers)
                    .next()
                    .is_some(),
            },
            undo: None,
            route: Arc::clone(&route),
        };
        let patience = Patience {
            deadline: visit.until,
            last_sent: Duration::ZERO,
        };
        let policy = Arc::clone(&call.route.conf.policy);
        let known = self.known(view, &policy, core.clock.wall());
        let now = core.clock.mono();
        let machine = Recovery::repeat(policy, now, patience, known, Sending::WithHuman);
        (call, machine)
    }

    /// Waits for the receipt of a round that is being made. Its lease was granted by the writer
    /// and may not be durable yet: until then a reader still sees the letter in the queue.
    async fn round_ends(&self, core: &Core, visit: &Visit, call: &CallView) {
        let mut gap = LOOK_FIRST;
        while core.clock.mono() < visit.until && !visit.request.gone.is_cancelled() {
            let left = visit.until.since(core.clock.mono());
            crate::clock::sleep(gap.min(left)).await;
            gap = (gap * 2).min(LOOK_MAX);
            let runs = self.fresh(call).await.is_some_and(|now| {
                let state = now.dead_letter.as_ref().map(|letter| letter.state);
                let unheard = last_asked(&now) == last_asked(call);
                unheard && matches!(state, Some(DeadState::Queued | DeadState::Running))
            });
            if !runs {
                return;
            }
        }
    }

    /// What is told about the call as it is now: nothing was learnt here, but perhaps elsewhere.
    async fn look_again(&self, mut known: Known, kind: UpstreamKind) -> Told {
        if let Some(call) = self.fresh(&known.call).await {
            known.call = Arc::new(call);
        }
        dedup::told(&known, kind)
    }

    /// The call as the ledger has it now, if it can be read.
    async fn fresh(&self, call: &CallView) -> Option<CallView> {
        let read = self
            .ledger
            .view(Some(call.client.clone()), call.call_id.clone());
        let mut found = read.await.ok()?.into_iter();
        found.find(|now| now.row == call.row && now.life == call.life)
    }
}

/// A stored answer was read for this caller alone: it counts among the bodies that are held.
fn counted(core: &Core, mut told: Told) -> Told {
    let Shown::Whole(whole) = &mut told.shown else {
        return told;
    };
    if let Ok(body) = core.bodies.keep(std::mem::take(&mut whole.body)) {
        whole.body = body;
        return told;
    }
    let detail = "The call is settled, but the bodies under way take as much memory as \
                  limits.bodies allows. Repeat it with the same call id a little later.";
    let mut problem = Problem::new(Code::Overloaded, detail, Sent::Yes, Repeat::SameCallIdOnly);
    problem.retry_after = Some(SOON);
    told.word = Word::Refused;
    told.shown = Shown::Problem(problem);
    told
}

impl Drive {
    /// Drives a pass on behalf of a repeat: what its caller is told, if anything ended the call,
    /// and the sends.
    async fn repeat(mut self: Box<Self>) -> (Option<Told>, Vec<AttemptLine>) {
        let mut step = self.on(Event::Begun);
        let told = loop {
            step = match step {
                Step::Answer(ending) => match self.settle(ending).await {
                    Ok(told) => break Some(told),
                    Err(step) => step,
                },
                Step::Park(parking) => {
                    drop(self.park(parking).await);
                    break None;
                }
                other => self.perform(other).await,
            };
        };
        let sends = std::mem::take(&mut self.lines);
        self.part();
        (told, sends)
    }
}

/// The dead letter as a call of this visit: as it was stored, with the credential of the repeat
/// where the first one came with one.
fn repeated(home: Home, visit: &Visit, due: Due) -> Option<Call> {
    let target = PathAndQuery::try_from(&*due.request.target).ok()?;
    let rounds = due
        .call
        .dead_letter
        .as_ref()
        .map_or(0, |letter| letter.round);
    let place = Place::Repeat(Hold::Leased(rounds));
    let route = Arc::clone(&home.route);
    let mut call = recovered(home, due, target, place);
    if call.request.credential {
        let secret = &route.conf.secret_headers;
        for name in record::credentials(&visit.fields, secret) {
            for value in visit.fields.get_all(name) {
                call.request.headers.append(name.clone(), value.clone());
            }
        }
    }
    Some(call)
}

fn last_asked(call: &CallView) -> Option<Wall> {
    call.history.iter().rev().find_map(|entry| match entry {
        Entry::Receipt { at, .. } => Some(*at),
        _ => None,
    })
}

/// Whether the receipt was asked within `base`. A clock that was set back does not keep a call
/// from being asked about.
fn was_asked_since(call: &CallView, now: Wall, base: Duration) -> bool {
    last_asked(call).is_some_and(|at| at <= now && now.since(at) < base)
}

fn last_sent(call: &CallView, now: Wall) -> Duration {
    let sent = call.attempts().last().map(|attempt| attempt.at);
    sent.map_or(Duration::ZERO, |at| now.since(at))
}
