//! Where a send goes: chosen before it is recorded, so that the record names it.
//!
//! What a call may reach is the word of `call/tally` and the configuration; which of those
//! addresses is used is that of `upstream/addresses`. Where there is one address and nothing to
//! weigh, nobody is asked.

use std::sync::Arc;

use super::Flow;
use super::allow::Held;
use super::drive::Drive;
use super::sites::Choice;
use super::visit::Visit;
use crate::call::outcome::{Cause, Outcome};
use crate::call::step::Step;
use crate::call::time::Mono;
use crate::ledger::Intention;
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
    /// Where the first send goes: the record names its address, and it goes nowhere else.
    pub(super) fn first_choice(&mut self) -> Choice {
        let first = self.call.first.take();
        first.unwrap_or_else(|| {
            let only = Reach::Only(self.call.site);
            self.call.route.choose(only, self.now())
        })
    }

    /// Aims send `n` and records it; the call belongs to another address from then on where it
    /// moves.
    pub(super) async fn aim(&mut self, n: u8, cause: Option<Cause>) -> Result<Choice, Step> {
        let (call, tally) = (&self.call, self.decider.tally());
        let choice = call.route.choose(call.reach(tally), self.now());
        let to = choice.site_or(call.site);
        let moves = to != call.site && tally.may_move();
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
            self.call.site = to;
        }
        Ok(choice)
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
