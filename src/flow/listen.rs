//! Hearing exchanges past their attempt timeout: what they say is a fact, also after the caller was
//! told that nobody knows.

use super::call::Said;
use super::drive::Drive;
use super::late::{Bounds, LateEnd};
use super::reading;
use crate::call::outcome::{Outcome, Reading};
use crate::call::step::{Ending, Event, Step};
use crate::crash::{self, Point};
use crate::ledger::Entry;
use crate::telemetry::labels::Bound;
use crate::upstream::Exchange;

impl Drive {
    /// Takes over an exchange whose attempt is over but that may still speak.
    pub(super) fn push_late(&mut self, n: u8, exchange: Exchange) {
        let route = &self.call.route;
        let bounds = Bounds {
            late: route.conf.policy.timeouts.late,
            allowance: &route.late,
            metrics: &self.flow.metrics,
        };
        self.late.push(&self.core, n, exchange, &bounds);
    }

    /// What is told of the connection of an exchange that has ended.
    pub(super) fn note_connection(&mut self, n: u8, exchange: &Exchange) {
        if exchange.reconnected() {
            let (at, n) = (self.wall(), u32::from(n));
            self.history.push(Entry::Reconnected { at, n });
        }
        if exchange.was_crowded_out() {
            self.flow.metrics.bounds.inc(Bound::UpstreamConnections);
        }
    }

    /// What a late exchange's end says to the machine.
    pub(super) fn spoke(&mut self, end: LateEnd) -> Event {
        let n = end.n;
        let conf = &self.call.route.conf;
        let said = end.said.map(|said| {
            let outcome = match &said {
                Said::Answer(answer) => reading::read(conf, answer),
                Said::Kept(reply) => reading::read_kept(conf, reply),
            };
            (outcome, said)
        });
        // A gateway further in that refused this late says nothing about the call.
        let Some((Outcome::Answered(reading), said)) = said else {
            return Event::LateEnded { n };
        };
        self.promises(Outcome::Answered(reading));
        self.history.push(Entry::Ended {
            at: self.wall(),
            n: u32::from(n),
            outcome: Outcome::Answered(reading),
            took: self.wall().since(self.call.first_sent),
            late: true,
            detail: None,
        });
        crash::at(Point::LateAnswer);
        self.replies.put(n, said);
        Event::LateAnswer { n, reading }
    }

    /// Hears late exchanges after the call was told or parked: their answers are still facts.
    pub(super) async fn listen(mut self: Box<Self>) {
        while !self.late.is_empty() {
            let end = self.late.next().await;
            let event = self.spoke(end);
            self.hear(event).await;
        }
    }

    /// Attempt `n` was answered after its call was parked; the answer is among the replies.
    pub(super) async fn told_late(&mut self, n: u8, reading: Reading) {
        self.hear(Event::LateAnswer { n, reading }).await;
    }

    async fn hear(&mut self, event: Event) {
        let step = self.on(event);
        self.heard_late(event, step).await;
        self.note();
    }

    /// What a late answer means for a call whose caller was already told.
    async fn heard_late(&mut self, event: Event, step: Step) {
        let ending = match (step, event) {
            (Step::Answer(ending), _) => ending,
            // The call has ended; a success that contradicts it is a difference, and the ledger
            // finds out. A refusal of one attempt says nothing about another's success.
            (
                _,
                Event::LateAnswer {
                    n,
                    reading: Reading::Success(_),
                },
            ) => Ending::Success(n),
            (
                _,
                Event::LateAnswer {
                    n,
                    reading: Reading::Failure(_),
                },
            ) if self.decider.tally().sends() == 1 => Ending::Failure(n),
            (_, _) => return,
        };
        let fact = self.fact(ending);
        self.flow.pursue(fact, &self.call);
    }
}
