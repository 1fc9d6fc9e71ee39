//! Where a send goes: chosen before it is recorded, so that the record names it.
//!
//! What a call may reach is the word of `call/tally` and the configuration; which of those
//! addresses is used is that of `upstream/addresses`. Where there is one address and nothing to
//! weigh, nobody is asked.

use std::sync::Arc;

use super::Flow;
use super::allow::Held;
use super::call::Place;
use super::drive::Drive;
use super::sites::Choice;
use super::visit::Visit;
use crate::call::outcome::{Cause, Outcome};
use crate::call::step::{Event, Reason, Step};
use crate::call::time::Mono;
use crate::crash::{self, Point};
use crate::ledger::{Entry, Intention};
use crate::telemetry::labels::Bound;
use crate::upstream::addresses::Reach;
use crate::upstream::{Core, Destination, Exchange};

impl Flow {
    /// The address of the first send, before that is recorded. A call that undoes another one goes
    /// where that one went: no other address has to know it.
    pub(super) async fn find_address(&self, core: &Core, visit: &mut Visit) {
        let request = &visit.request;
        let (route, client) = (&request.route, &request.client);
        let mut reach = Reach::Any { avoid: None };
        if let Some(undone) = &visit.reverses
            && !route.conf.upstream.shared_state
        {
            let calls = self.ledger.view(Some(client.clone()), undone.clone()).await;
            // What cannot be read now cannot be recorded either.
            let of = calls.unwrap_or_default().into_iter().next();
            if let Some(site) = of.and_then(|call| route.site_of(&call.upstream)) {
                reach = Reach::Only(site);
            }
        }
        let choice = route.choose(reach, core.clock.mono());
        visit.site = match (&choice, reach) {
            (Choice::To(chosen), _) => chosen.site,
            (Choice::Plain | Choice::Out, Reach::Only(site)) => site,
            (Choice::Plain | Choice::Out, Reach::Any { .. }) => 0,
        };
        visit.choice = Some(choice);
    }
}

impl Drive {
    /// Where send `n` goes, once it may go there and is on record: `None` is the one address there
    /// is. The machine's next step where it may not, and where every address is ejected: then
    /// nothing was recorded, and what the send held is free.
    pub(super) async fn aim(
        &mut self,
        n: u8,
        cause: Option<Cause>,
    ) -> Result<Option<Arc<Destination>>, Step> {
        let (choice, on_record) = match self.call.first.take() {
            Some(first) => (first, true),
            None => {
                self.held = self.allowed(cause.is_some()).await?;
                (self.choose(), false)
            }
        };
        let chosen = match choice {
            Choice::Plain => None,
            Choice::To(chosen) => Some(chosen),
            Choice::Out => return Err(self.held_back()),
        };
        if !on_record {
            let site = chosen.as_ref().map(|chosen| chosen.site);
            self.record(n, cause, site).await?;
            crash::at(Point::ResendNoted);
            self.held.recorded();
        }
        Ok(chosen.map(|chosen| self.held.sits(chosen)))
    }

    fn choose(&self) -> Choice {
        let (route, reach) = (&self.call.route, self.call.reach(self.decider.tally()));
        if let Place::Round(_) = self.call.place {
            return route.choose_in_round(reach, self.now());
        }
        match route.choose(reach, self.now()) {
            // What has just answered a question about the call lives.
            Choice::Out => match self.receipt.lives.filter(|at| reach.allows(*at)) {
                Some(at) => route.vouched(at),
                None => Choice::Out,
            },
            choice @ (Choice::Plain | Choice::To(_)) => choice,
        }
    }

    /// Records send `n`; the call belongs to another address from then on where it moves.
    async fn record(
        &mut self,
        n: u8,
        cause: Option<Cause>,
        site: Option<usize>,
    ) -> Result<(), Step> {
        let call = &self.call;
        let to = site.unwrap_or(call.site);
        let moves = (call.moves || to != call.site) && self.decider.tally().may_move();
        let address = || Arc::clone(call.route.sites[to].tool.address());
        let sent = Intention::Send {
            n: u32::from(n),
            cause,
            moved: moves.then(address),
            lease_until: self.flow.lease_until(&call.route, self.wall()),
        };
        self.intend(sent).await?;
        self.call.via = to;
        if moves {
            (self.call.site, self.call.moves) = (to, false);
        }
        Ok(())
    }

    fn held_back(&mut self) -> Step {
        self.held = Held::default();
        self.flow.metrics.bounds.inc(Bound::Ejected);
        let step = self.on(Event::HeldBack);
        if let Step::Wait(wait) = step {
            self.history.push(Entry::Waited {
                at: self.wall(),
                why: Reason::Ejected.as_str().into(),
                wait,
            });
        }
        step
    }

    /// The exchange of attempt `n`.
    pub(super) fn exchange(
        &mut self,
        n: u8,
        cause: Option<Cause>,
        to: Option<&Arc<Destination>>,
    ) -> Exchange {
        let outgoing = self.call.outgoing(n, cause);
        let to = to.unwrap_or_else(|| self.call.route.tool.destination());
        Exchange::new(&self.core, to, outgoing, self.call.terms())
    }

    /// A request that left was not answered in time: the next attempt takes no connection that has
    /// not shown since that it lives.
    pub(super) fn distrust(&self, to: Option<&Arc<Destination>>, exchange: &Exchange, began: Mono) {
        if !exchange.is_unsent() {
            let to = to.unwrap_or_else(|| self.call.route.tool.destination());
            to.distrust(began);
        }
    }

    /// What the send held, told how it ended.
    pub(super) fn release(&mut self, outcome: Outcome) -> Held {
        let held = std::mem::take(&mut self.held);
        held.ended(outcome, &self.call.route, &self.core)
    }
}
