//! One round of the compensation queue over one dead letter.
//!
//! The same driver as in line, with the recovery machine; a heartbeat keeps the lease while it
//! runs. A row is asked about and resent by its own snapshot of the policy, at the tool it was
//! first sent to; where that tool is no longer configured it can only go to a human.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::uri::PathAndQuery;

use super::Flow;
use super::call::{Call, Decider, Place, Sendable};
use super::drive::Drive;
use super::former::Home;
use super::record;
use super::routes::Route;
use super::running::Attendance;
use crate::call::outcome::{Outcome, Unclear};
use crate::call::policy::Policy;
use crate::call::receipt::State;
use crate::call::recovery::{Known, Recovery, Sending};
use crate::call::step::Reason;
use crate::call::time::Wall;
use crate::config::snapshot;
use crate::crash::{self, Point};
use crate::ledger::view::Attempt;
use crate::ledger::{CallView, Claim, DeadState, Due, Entry, Intention, Owner, Written};
use crate::telemetry::labels::Round;
use crate::upstream::Core;

/// A heartbeat goes out this many times per lease, so that one lost beat costs nothing.
const BEATS_PER_LEASE: u32 = 3;

impl Flow {
    /// Makes one round over a claimed dead letter and says what it brought.
    pub async fn round(self: &Arc<Self>, core: &Core, due: Due) -> Round {
        let Some(route) = self.routes.named(&due.call.route) else {
            return self.without_route(due).await;
        };
        let metrics = Arc::clone(&route.metrics);
        let brought = match self.recovery(core, route, due) {
            Ok((call, machine, lease)) => {
                crash::at(Point::Leased);
                let claim = call.claim;
                let driving = self.calls.driven.take(claim.row).await;
                let drive = Drive::new(self, core, call, machine, Attendance::nobody());
                tokio::select! {
                    brought = drive.round() => brought,
                    () = self.beat(claim, lease) => Round::LeaseLost,
                    () = driving.displaced() => Round::LeaseLost,
                }
            }
            Err(due) => self.without_route(*due).await,
        };
        metrics.rounds.inc(brought);
        brought
    }

    /// Extends the lease until it is lost.
    pub(super) async fn beat(&self, claim: Claim, lease: Duration) {
        loop {
            crate::clock::sleep(lease / BEATS_PER_LEASE).await;
            let until = self.clock.wall().after(lease);
            match self.ledger.extend(claim, until).await {
                Ok(Written::Applied) => {}
                Ok(Written::Stale) => return,
                // The next beat comes before the lease runs out.
                Err(e) => tracing::warn!(error = %e, "a lease was not extended"),
            }
        }
    }

    fn recovery(
        &self,
        core: &Core,
        route: Arc<Route>,
        due: Due,
    ) -> Result<(Call, Decider, Duration), Box<Due>> {
        let target = PathAndQuery::try_from(&*due.request.target);
        let (Ok(target), Some(home)) = (target, self.routes.home(&route, &due.call)) else {
            return Err(Box::new(due));
        };
        let policy = self.policy_of(&route, &due);
        let done = due.call.dead_letter.as_ref().map_or(0, |l| l.round);
        // Rounds past the last go on asking what a gateway further in knows; they are the last.
        let last = u32::try_from(policy.compensation.rounds.len()).unwrap_or(u32::MAX);
        let round = (done + 1).min(last);
        let known = self.known(&due.call, &policy, self.clock.wall());
        let lease = policy.compensation.lease;
        let letter = due.call.dead_letter.as_ref();
        let cancelled = letter.is_some_and(|l| *l.reason == *Reason::Cancelled.as_str());
        let reversing = letter.is_some_and(|l| l.state == DeadState::Reversing);
        let place = if reversing {
            Place::Undo(done)
        } else {
            Place::Round(round)
        };
        let promised = due.call.promised;
        let call = recovered(home, due, target, place);
        let sending = match call.sending() {
            _ if cancelled => Sending::Cancelled,
            Sending::Allowed if promised => Sending::Owed,
            sending => sending,
        };
        let now = core.clock.mono();
        let machine = if reversing {
            Recovery::undo(policy, now, known, sending)
        } else {
            Recovery::new(policy, now, round, known, sending)
        };
        Ok((call, Decider::Round(machine), lease))
    }

    /// The policy the row lives by; the route's present one when the snapshot cannot be read.
    pub(super) fn policy_of(&self, route: &Route, due: &Due) -> Arc<Policy> {
        match snapshot::decode(&due.policy) {
            Ok(policy) => Arc::new(policy),
            Err(e) => {
                tracing::warn!(
                    call_id = %due.call.call_id,
                    error = %e,
                    "the row's policy cannot be read; the route's present one is used"
                );
                Arc::clone(&route.conf.policy)
            }
        }
    }

    /// What the row, and this process, know about a call when a pass over it begins.
    pub(super) fn known(&self, call: &CallView, policy: &Policy, now: Wall) -> Known {
        let letter = call.dead_letter.as_ref();
        let closed = closed_at(call, policy);
        Known {
            open: self.late.is_open(call.row),
            closed_for: closed.map_or(Duration::ZERO, |at| now.since(at)),
            elsewhere: self.open_elsewhere(call, policy, now),
            sent_for: call
                .first_sent
                .map_or(Duration::ZERO, |first| now.since(first)),
            reversals: letter.map_or(0, |letter| letter.reversals),
            cause: call.last_cause(),
            // A process that ended before it could say so has left sends behind that never left.
            ..Known::of(
                u8::try_from(call.sends).unwrap_or(u8::MAX),
                call.may_have_left(),
            )
        }
    }

    /// For how long an exchange that another process has begun may still be open, as far as the row
    /// tells.
    fn open_elsewhere(&self, call: &CallView, policy: &Policy, now: Wall) -> Duration {
        if !self.beside_others {
            return Duration::ZERO;
        }
        let others = call.attempts().into_iter();
        let others = others.filter(|attempt| sender(call, attempt) != Some(self.owner.as_str()));
        let last = others.map(|attempt| ends(&attempt, policy)).max();
        last.map_or(Duration::ZERO, |at| at.since(now))
    }

    /// Nobody is configured who could be asked: a human decides.
    async fn without_route(&self, due: Due) -> Round {
        let manual = Intention::Manual {
            reason: Reason::RouteChanged.as_str().into(),
            round: due
                .call
                .dead_letter
                .as_ref()
                .map_or(0, |letter| letter.round),
            reached: due.call.state != State::Received,
            last_error: Arc::from(
                "the route of this call, or where it was sent, is no longer configured",
            ),
        };
        match self
            .ledger
            .append(due.claim, self.clock.wall(), manual)
            .await
        {
            Ok(Written::Applied) => Round::Manual,
            Ok(Written::Stale) => Round::LeaseLost,
            Err(e) => {
                let call_id = &due.call.call_id;
                tracing::error!(%call_id, error = %e, "a round was not recorded");
                Round::LeaseLost
            }
        }
    }
}

/// When at the latest every exchange of a parked call was closed, as far as the row tells: an
/// attempt without a seen end may have gone on until its last bound.
fn closed_at(call: &CallView, policy: &Policy) -> Option<Wall> {
    let attempts = call.attempts().into_iter();
    let attempts = attempts.map(|attempt| ends(&attempt, policy));
    let parked = call.dead_letter.as_ref().map(|letter| letter.create_time);
    attempts.chain(parked).max()
}

/// When the exchange of an attempt ended, or ends at the latest.
fn ends(attempt: &Attempt, policy: &Policy) -> Wall {
    let timeouts = &policy.timeouts;
    let open_for = match (attempt.outcome, attempt.took) {
        (Some(Outcome::Answered(_) | Outcome::NotSent(_)), Some(took))
        | (Some(Outcome::Unclear(Unclear::Disconnect)), Some(took)) => took,
        (_, _) => timeouts.attempt.saturating_add(timeouts.late),
    };
    attempt.at.after(open_for)
}

/// The process that has sent an attempt; `None` when the row does not tell.
fn sender<'a>(call: &'a CallView, attempt: &Attempt) -> Option<&'a str> {
    let sent = |entry: &Entry| matches!(entry, Entry::Sent { n, .. } if *n == attempt.n);
    let place = call.history.iter().position(sent)?;
    let claimed = call.history.iter().enumerate().rev();
    let mut claimed = claimed.filter_map(|(at, entry)| match entry {
        // The first send stands in front of all, also when a round has made it.
        Entry::Claimed {
            at: when, owner, ..
        } => {
            let before = at < place || (attempt.n == 1 && *when <= attempt.at);
            before.then_some(&**owner)
        }
        _ => None,
    });
    let letter = call.dead_letter.as_ref();
    let first = letter.and_then(|letter| letter.begun_by.as_ref());
    claimed.next().or_else(|| first.map(Owner::as_str))
}

/// A dead letter as a call that can be driven.
pub(super) fn recovered(home: Home, due: Due, target: PathAndQuery, place: Place) -> Call {
    let key = due.call.idempotency_key.as_ref();
    Call {
        first_sent: due.call.first_sent.unwrap_or(due.call.received_at),
        same_address: home.same_address,
        site: home.site,
        via: home.site,
        moves: home.moves,
        recognised: due.call.recognised,
        was_told: due.call.told,
        first: None,
        place,
        is_read: false,
        undo: due.undo,
        client: due.call.client,
        call_id: due.call.call_id,
        source: due.call.source,
        claim: due.claim,
        request: Sendable {
            method: due.request.method,
            target,
            headers: due.request.headers,
            idempotency_key: key.and_then(|key| HeaderValue::from_str(key).ok()),
            body: due.request.body,
            credential: due.request.credential,
        },
        route: home.route,
    }
}

impl Call {
    /// Whether this dead letter may be sent again at all. A repeat brings its credential along.
    pub(super) fn sending(&self) -> Sending {
        let secret = &self.route.conf.secret_headers;
        let brought = record::credentials(&self.request.headers, secret).next();
        if !self.same_address {
            Sending::RouteChanged
        } else if self.was_told {
            Sending::Told
        } else if self.request.credential && brought.is_none() && !self.supplies_credential() {
            Sending::NoCredential
        } else {
            Sending::Allowed
        }
    }
}
