//! Whether a send may take place now: a place among the tool's sends, and for a resend a share of
//! its budget.
//!
//! A first send that finds no place is refused before anything is recorded. A resend that is not
//! allowed is told to the machine, which parks the call: its receipt was asked, the queue goes on,
//! and its caller hears of no error. What is not limited asks nobody here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::call;
use super::drive::Drive;
use super::limits::Slot;
use super::limits::budget::{Paid, Payer, Unpaid};
use super::limits::gate::{Entry, Permit};
use super::routes::Route;
use super::told::{BodyError, Problem};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::ClientName;
use crate::call::outcome::Outcome;
use crate::call::step::{Event, Step};
use crate::call::time::Mono;
use crate::clock::Clock;
use crate::telemetry::labels::{Bound, Denied, Ejected, Limited};
use crate::telemetry::metrics::{InFlight, Metrics};
use crate::upstream::addresses::{Change, Chosen, Seated, Why};
use crate::upstream::{Core, Destination};

/// What a refused caller is told to wait.
const SOON: Duration = Duration::from_secs(1);

/// How long a round waits for a place and for its share of the budget, at least.
const ROUND_PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks at a budget that is spent.
const ROUND_LOOK: Duration = Duration::from_millis(100);

/// What a send holds while it is under way.
#[derive(Debug, Default)]
pub(super) struct Held {
    place: Option<Place>,
    paid: Option<(Paid, InFlight)>,
    /// Where it goes, when that was chosen among several addresses or is weighed.
    seated: Option<Seated>,
}

/// A place among the sends, and its count.
#[derive(Debug)]
pub(super) struct Place {
    permit: Permit,
    _counted: InFlight,
}

/// A body that holds something until it has passed.
pub(super) struct Holding<B> {
    body: B,
    _held: (Option<Slot>, Held),
}

impl Held {
    /// A place, and for a resend what was paid for it.
    pub(super) fn new(place: Option<Place>, paid: Option<(Paid, InFlight)>) -> Self {
        let mut held = Self {
            place,
            paid,
            seated: None,
        };
        held.recorded();
        held
    }

    /// A place for a first send.
    pub(super) const fn first(place: Option<Place>) -> Self {
        Self {
            place,
            paid: None,
            seated: None,
        }
    }

    /// Sits down at an address until the send is over; where its connections are.
    pub(super) fn sits(&mut self, chosen: Chosen) -> Arc<Destination> {
        self.seated = Some(chosen.seated);
        chosen.to
    }

    /// The end of the send says nothing about its address.
    pub(super) fn stands_up(&mut self) {
        self.seated = None;
    }

    /// Whether there was nothing to hold.
    pub(super) const fn is_nothing(&self) -> bool {
        self.place.is_none() && self.paid.is_none() && self.seated.is_none()
    }

    /// The resend is on record, so that it counts.
    pub(super) const fn recorded(&mut self) {
        if let Some((paid, _)) = &mut self.paid {
            paid.used();
        }
    }

    /// The send has ended like this; what it held is free when this is dropped.
    pub(super) fn ended(mut self, outcome: Outcome, route: &Route, core: &Core) -> Self {
        if let Some(place) = &mut self.place {
            place.permit.ended(is_fine(outcome));
        }
        if let Some(seated) = &mut self.seated {
            route.weighed(seated.ended(outcome, core));
        }
        self
    }
}

/// Whether the tool is well, as far as one outcome tells.
pub(super) fn is_fine(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Answered(reading) => {
            let status = reading.status().as_u16();
            status < 500 && status != 429
        }
        Outcome::NotSent(_) | Outcome::Unclear(_) => false,
    }
}

impl Route {
    /// Counts a request against the rates of its route.
    ///
    /// # Errors
    /// The rate that is used up.
    pub fn admit(&self, client: &ClientName, metrics: &Metrics) -> Result<(), Box<Problem>> {
        self.door.admit(client).map_err(|exceeded| {
            metrics.bounds.inc(Bound::Rate);
            let detail = format!(
                "The rate of this {} ({}) is used up. Repeat under the same call id later.",
                exceeded.whose, exceeded.rate
            );
            let mut problem = unseen(Code::RateLimited, detail);
            problem.retry_after = Some(exceeded.retry_after());
            problem.exceeded = Some(exceeded);
            Box::new(problem)
        })
    }

    /// A slot among the client's requests at once.
    pub(super) fn slot(
        &self,
        client: &ClientName,
        metrics: &Metrics,
    ) -> Result<Option<Slot>, Problem> {
        self.door.slot(client).map_err(|most| {
            metrics.bounds.inc(Bound::ClientConcurrent);
            let detail = format!(
                "{most} requests of this client are under way, as many as the route allows at \
                 once. Repeat under the same call id when one of them has ended."
            );
            unseen(Code::RateLimited, detail)
        })
    }

    /// Whether sends to its tool are bounded.
    pub(super) fn is_bounded(&self) -> bool {
        self.spare.gate.is_some()
    }

    /// Whether a first send would have to wait for a place.
    pub(super) fn is_busy(&self) -> bool {
        self.spare.gate.as_ref().is_some_and(|gate| gate.is_busy())
    }

    /// Whether a first send would be refused at once.
    pub(super) fn is_full(&self, client: &ClientName) -> bool {
        let gate = self.spare.gate.as_ref();
        gate.is_some_and(|gate| gate.is_full(client))
    }

    /// A place among the tool's sends, waited for until `until`; `Err` when none came.
    pub(super) async fn place(
        &self,
        client: &ClientName,
        clock: &Clock,
        until: Mono,
    ) -> Result<Option<Place>, ()> {
        let Some(gate) = &self.spare.gate else {
            return Ok(None);
        };
        let permit = match gate.enter(client) {
            Entry::Granted(permit) => permit,
            Entry::Full => return Err(()),
            Entry::Queued(waiting) => {
                let _counted = self.metrics.limited(Limited::Waiting);
                tokio::select! {
                    biased;
                    permit = waiting.turn() => permit.ok_or(())?,
                    () = clock.sleep_until(until) => return Err(()),
                }
            }
        };
        Ok(Some(Place {
            permit,
            _counted: self.metrics.limited(Limited::Sends),
        }))
    }

    /// Pays for a resend out of the tool's budget.
    pub(super) fn pay(
        &self,
        payer: Payer<'_>,
        now: Mono,
    ) -> Result<Option<(Paid, InFlight)>, Denied> {
        let Some(budget) = &self.spare.budget else {
            return Ok(None);
        };
        let paid = budget.pay(payer, now);
        let denied = |unpaid| match unpaid {
            Unpaid::Budget => Denied::Budget,
            Unpaid::Client => Denied::ClientRetries,
        };
        let counted = |paid| Some((paid, self.metrics.limited(Limited::Resends)));
        paid.map(counted).map_err(denied)
    }

    /// Counts a change of one of the tool's addresses.
    pub(super) fn weighed(&self, change: Option<Change>) {
        if let Some(Change::Ejected { why, .. }) = change {
            self.metrics.ejections.inc(match why {
                Why::Row => Ejected::Row,
                Why::Share => Ejected::Share,
                Why::Probe => Ejected::Probe,
            });
        }
    }

    /// The tool has answered a first send.
    pub(super) fn answered(&self, now: Mono) {
        if let Some(budget) = &self.spare.budget {
            budget.answered(now);
        }
    }

    /// Both for a resend, the budget first: it is not waited for.
    pub(super) async fn resend(
        &self,
        payer: Payer<'_>,
        client: &ClientName,
        clock: &Clock,
        until: Mono,
    ) -> Result<Held, Denied> {
        let paid = self.pay(payer, clock.mono())?;
        let place = self.place(client, clock, until).await;
        let place = place.map_err(|()| Denied::Concurrency)?;
        Ok(Held {
            place,
            paid,
            seated: None,
        })
    }
}

impl Drive {
    /// What send `n` needs; the machine's word when it does not get it.
    pub(super) async fn allowed(&mut self, resend: bool) -> Result<Held, Step> {
        let route = &self.call.route;
        if resend && !self.flow.retries.allows(&route.conf.name) {
            route.metrics.denied.inc(Denied::SwitchedOff);
            return Err(self.on(Event::Denied));
        }
        let spare = &self.call.route.spare;
        if spare.gate.is_none() && spare.budget.is_none() {
            return Ok(Held::default());
        }
        let now = self.now();
        let policy = &self.call.route.conf.policy;
        let until = match self.decider.deadline() {
            Some(deadline) => {
                let left = deadline.since(now);
                now.after(left.saturating_sub(policy.timeouts.useful()))
            }
            None => now.after(ROUND_PATIENCE.max(policy.timeouts.attempt)),
        };
        let (route, client) = (Arc::clone(&self.call.route), self.call.client.clone());
        let clock = self.core.clock.clone();
        let is_round = matches!(self.call.place, call::Place::Round(_));
        let wish = async move {
            let payer = match is_round {
                true => Payer::Round,
                false => Payer::Caller(&client),
            };
            if !resend {
                let place = route.place(&client, &clock, until).await;
                return place.map(Held::first).map_err(|()| Denied::Concurrency);
            }
            loop {
                match route.resend(payer, &client, &clock, until).await {
                    // A round that gave up would be used up: it waits for its share.
                    Err(Denied::Budget) if is_round && clock.mono() < until => {
                        crate::clock::sleep(ROUND_LOOK).await;
                    }
                    decided => return decided,
                }
            }
        };
        match self.beside(wish, false).await? {
            Ok(held) => Ok(held),
            Err(denied) => {
                self.call.route.metrics.denied.inc(denied);
                tracing::info!(
                    call_id = %self.call.call_id,
                    reason = denied.as_str(),
                    "a send is not allowed now; the call waits in the queue"
                );
                Err(self.on(Event::Denied))
            }
        }
    }

    /// Whether the next question may be asked: the first of a call always is.
    pub(super) fn may_ask(&self) -> bool {
        let Some(budget) = &self.call.route.spare.budget else {
            return true;
        };
        let first = !self.decider.tally().was_asked();
        let free = first || matches!(self.call.place, call::Place::Round(_));
        let may = free || budget.may_ask(self.now());
        if !may {
            self.flow.metrics.bounds.inc(Bound::ReceiptQueries);
        }
        may
    }
}

impl<B> Holding<B> {
    pub(super) const fn new(body: B, slot: Option<Slot>, held: Held) -> Self {
        Self {
            body,
            _held: (slot, held),
        }
    }
}

impl<B> Body for Holding<B>
where
    B: Body<Data = Bytes, Error = BodyError> + Unpin,
{
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        std::pin::Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// No place among the tool's sends came free: nothing was recorded and nothing was sent.
pub(super) fn overloaded(metrics: &Metrics, repeat: Repeat, sent: Sent) -> Problem {
    metrics.bounds.inc(Bound::Concurrency);
    let detail = "The tool has as many calls at once as upstream.concurrency allows, and no place \
                  came free in time. Repeat under the same call id a little later.";
    let mut problem = Problem::new(Code::Overloaded, detail, sent, repeat);
    problem.retry_after = Some(SOON);
    problem
}

/// The process ends while a call waits for its place.
pub(super) fn draining() -> Problem {
    let detail = "This gateway is shutting down; nothing was recorded and nothing was sent. Repeat \
                  with the same call id in a moment.";
    unseen(Code::Draining, detail.to_owned())
}

fn unseen(code: Code, detail: String) -> Problem {
    let mut problem = Problem::new(code, detail, Sent::Unknown, Repeat::SameCallIdOnly);
    problem.retry_after = Some(SOON);
    problem
}
