//! Asking the receipt about a call, and weighing what was heard.
//!
//! A "not found" is believed only under the conditions of rule 5; what is not believed goes to the
//! machine as UNKNOWN, with its reason in the history. Here too: finding out whether an endpoint
//! can be believed at all, by asking about calls that were answered.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use super::Flow;
use super::call::{Call, Place};
use super::drive::{Carried, Drive};
use super::proof::{self, Standing};
use super::record;
use super::routes::Route;
use super::sites::{Known, Receipts};
use crate::call::id::{CallId, ClientName};
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::{Answer, Belief, Doubt, State};
use crate::call::step::{Event, Step};
use crate::call::time::{Mono, Wall};
use crate::config::route::Credentials;
use crate::crash::{self, Point};
use crate::ledger::{Entry, Proof};
use crate::telemetry::log::visible;
use crate::telemetry::readiness::Trouble;
use crate::upstream::receipt::{Asked, Question, RawAnswer, Why};
use crate::upstream::{Core, headers};

/// One question with everything it needs, so that it can outlive what it was made from.
struct Inquiry {
    core: Core,
    route: Arc<Route>,
    asks: Asks,
    call_id: CallId,
    client: ClientName,
    key: Option<HeaderValue>,
    traceparent: Option<HeaderValue>,
    credentials: Option<HeaderMap>,
}

/// Which address is asked about a call of which.
#[derive(Clone, Copy)]
struct Asks {
    /// The address that is asked.
    at: usize,
    /// The one the call was sent to.
    about: usize,
}

/// What was heard, and how long it took.
pub(super) struct Heard {
    asked: Asked,
    asks: Asks,
    took: Duration,
}

impl Asks {
    /// The endpoint that is asked.
    fn receipts(self, route: &Route) -> Option<&Receipts> {
        route.sites[self.at].receipts.as_ref()
    }

    /// Whether it is the tool that is asked, and not a place apart.
    fn is_at_tool(self, route: &Route) -> bool {
        let rule = route.conf.receipt.as_ref();
        rule.is_some_and(|rule| rule.elsewhere.is_none())
    }

    /// What is known about its word.
    fn known(self, route: &Route) -> Option<&Known> {
        let receipts = self.receipts(route)?;
        Some(receipts.known(self.at == self.about))
    }
}

impl Inquiry {
    fn about(core: &Core, call: &Call) -> Self {
        let asks = Asks {
            at: call.route.asked(call.site),
            about: call.site,
        };
        Self::at(core, call, asks)
    }

    fn at(core: &Core, call: &Call, asks: Asks) -> Self {
        Self {
            core: core.clone(),
            route: Arc::clone(&call.route),
            asks,
            call_id: call.call_id.clone(),
            client: call.client.clone(),
            key: call.request.idempotency_key.clone(),
            traceparent: call.request.headers.get(headers::TRACEPARENT).cloned(),
            credentials: forwarded_credentials(call),
        }
    }

    async fn put(&self) -> Heard {
        let began = self.core.clock.mono();
        let asked = match self.asks.receipts(&self.route) {
            None => Asked::unknown(Why::NoQuestion),
            Some(receipts) => self.ask(receipts).await,
        };
        Heard {
            asked,
            asks: self.asks,
            took: self.core.clock.mono().since(began),
        }
    }

    async fn ask(&self, receipts: &Receipts) -> Asked {
        let timeouts = &self.route.conf.policy.timeouts;
        let question = Question {
            field: &self.route.conf.call_id.header,
            call_id: &self.call_id,
            client: &self.client,
            key: self.key.as_ref().and_then(|key| key.to_str().ok()),
            traceparent: self.traceparent.as_ref(),
            credentials: self.credentials.as_ref(),
            connect: timeouts.connect,
            timeout: timeouts.receipt,
        };
        // What is asked anyway may show that an ejected address is back.
        let there = self.asks.is_at_tool(&self.route);
        let weighed = self.route.addresses.as_ref().filter(|_| there);
        let now = self.core.clock.mono();
        let probe = weighed.and_then(|addresses| addresses.question(self.asks.at, now));
        let asked = receipts.endpoint.ask(&self.core, &question).await;
        if let Some(mut probe) = probe {
            let change = probe.answered(asked.is_answered(), self.core.clock.mono());
            self.route.weighed(change);
        }
        asked
    }
}

/// Why an answer was no information, for the history.
fn detail(asked: &Asked) -> Option<Arc<str>> {
    match (asked.answer, &asked.foreign) {
        (RawAnswer::Unknown(why), Some(word)) => {
            Some(Arc::from(format!("{}: {word}", why.as_str())))
        }
        (RawAnswer::Unknown(why), None) => Some(Arc::from(why.as_str())),
        (RawAnswer::State(_) | RawAnswer::NotFound, _) => None,
    }
}

/// The caller's credential fields, in line and where the route forwards them.
fn forwarded_credentials(call: &Call) -> Option<HeaderMap> {
    let rule = call.route.conf.receipt.as_ref()?;
    let has_caller = matches!(call.place, Place::Line | Place::Repeat(_));
    let forwards =
        has_caller && call.request.credential && rule.credentials == Credentials::Forward;
    let fields = forwards.then(|| {
        let from = &call.request.headers;
        let mut fields = HeaderMap::new();
        for name in record::credentials(from, &call.route.conf.secret_headers) {
            for value in from.get_all(name) {
                fields.append(name.clone(), value.clone());
            }
        }
        fields
    });
    fields.filter(|fields| !fields.is_empty())
}

impl Drive {
    /// Asks, unless the budget of questions is used up: then nothing is known yet.
    pub(super) async fn ask(&mut self) -> Step {
        if !self.may_ask() {
            return self.on(Event::Receipt(Answer::State(State::Unknown)));
        }
        let question = self.question();
        match self.beside(question, true).await {
            Ok(asked) => {
                let answer = self.heard(asked);
                self.on(Event::Receipt(answer))
            }
            Err(step) => step,
        }
    }

    /// The question about this call, ready to be put.
    pub(super) fn question(&self) -> impl Future<Output = Heard> + Send + use<> {
        let inquiry = Inquiry::about(&self.core, &self.call);
        async move { inquiry.put().await }
    }

    /// Weighs what was heard, keeps what it carried, records it.
    pub(super) fn heard(&mut self, heard: Heard) -> Answer {
        crash::at(Point::Heard);
        let Heard { asked, asks, took } = heard;
        let (answer, doubt) = self.weigh(&asked, asks);
        if let RawAnswer::State(_) = asked.answer {
            self.recognised();
        }
        self.decider.worked_on(asked.worked_on);
        let route = &self.call.route;
        route.metrics.receipts.inc(answer);
        if matches!(asked.answer, RawAnswer::State(_)) {
            self.flow.recognised(route, asks, self.wall());
        }
        let detail = detail(&asked);
        if doubt == Some(Doubt::Recognised) {
            tracing::warn!(
                call_id = %self.call.call_id,
                route = %route.conf.name,
                "the receipt has never heard of a call that the tool had recognised: it is not \
                 believed, and nothing is sent; does it answer from a copy that lags behind, or \
                 has the tool lost its memory?"
            );
        }
        if let RawAnswer::Unknown(why @ (Why::UnmappedState | Why::OtherCall | Why::Doubled)) =
            asked.answer
        {
            let foreign = asked.foreign.as_deref();
            tracing::warn!(
                call_id = %self.call.call_id,
                route = %route.conf.name,
                why = why.as_str(),
                word = foreign.map(visible),
                "the receipt cannot be used; check it, and the route's `receipt` mapping"
            );
        }
        self.history.push(Entry::Receipt {
            at: self.wall(),
            answer,
            doubt,
            status: asked.result.as_ref().map(|result| result.status),
            took,
            detail,
        });
        self.line_receipt(answer);
        let there = asks.is_at_tool(&self.call.route);
        self.receipt = Carried {
            lives: (there && asked.is_receipt()).then_some(asks.at),
            said: Some(answer),
            result: asked.result,
            document: asked.document,
        };
        answer
    }

    /// The tool has shown that it knows the call; the row remembers it for whoever asks later.
    fn recognised(&mut self) {
        if !self.call.recognised {
            self.call.recognised = true;
            self.flow.pursue_recognition(&self.call);
        }
    }

    /// An answer that promises the work names the call as a receipt does.
    pub(super) fn promises(&mut self, outcome: Outcome) {
        if let Outcome::Answered(Reading::Pending(_)) = outcome {
            self.recognised();
        }
    }

    fn weigh(&self, asked: &Asked, asks: Asks) -> (Answer, Option<Doubt>) {
        let said = asked.answer.said();
        if said != Answer::NotFound {
            return (said, None);
        }
        match self.belief(asked, asks).judge() {
            Ok(()) => (said, None),
            Err(doubt) => (Answer::State(State::Unknown), Some(doubt)),
        }
    }

    fn belief(&self, asked: &Asked, asks: Asks) -> Belief {
        let call = &self.call;
        let first_sent = call.first_sent;
        let policy = call.route.conf.policy.receipt;
        Belief {
            recognised: call.recognised,
            proven: asks
                .known(&call.route)
                .is_some_and(|known| known.trust.is_proven()),
            same_address: call.same_address,
            age: self.wall().since(first_sent),
            retention: policy.map_or(Duration::ZERO, |receipts| receipts.retention),
            forgotten: asked.knows_since.is_some_and(|since| since > first_sent),
            same_credential: !call.request.credential
                || forwarded_credentials(call).is_some()
                || call.supplies_credential(),
        }
    }

    /// After an answered call: asks about it where an endpoint still has to show that it can be
    /// believed. Runs in the background.
    pub(super) fn probe(&self) {
        let route = &self.call.route;
        let about = self.call.via;
        for at in 0..route.sites.len() {
            let asks = Asks { at, about };
            let receipts = asks.receipts(route);
            let asked = receipts.filter(|receipts| at == about || receipts.others.is_some());
            if asked.is_some_and(|receipts| receipts.known(at == about).trust.is_curious()) {
                self.probe_at(asks);
            }
        }
    }

    fn probe_at(&self, asks: Asks) {
        let route = &self.call.route;
        let (flow, core, route) = (Arc::clone(&self.flow), self.core.clone(), Arc::clone(route));
        let inquiry = Inquiry::at(&self.core, &self.call, asks);
        let draining = self.flow.draining.clone();
        let probe = async move { flow.probe(&route, &inquiry).await };
        // A process that ends does not wait for what it would only have learnt.
        let task = async move {
            draining
                .run_until_cancelled(probe)
                .await
                .unwrap_or_default()
        };
        drop(core.spawn(self.flow.tasks.track_future(task)));
    }
}

impl Flow {
    /// Asks up to three times, with growing gaps, about a call that was answered.
    async fn probe(&self, route: &Arc<Route>, inquiry: &Inquiry) {
        let asks = inquiry.asks;
        let (Some(known), Some(policy)) = (asks.known(route), route.conf.policy.receipt) else {
            return;
        };
        let Some(_probe) = known.trust.probe(self.clock.mono()) else {
            return;
        };
        let mut last = RawAnswer::Unknown(Why::NoQuestion);
        for wait in proof::waits(policy.settle) {
            crate::clock::sleep(wait).await;
            if known.trust.is_proven() {
                return;
            }
            let heard = inquiry.put().await;
            last = heard.asked.answer;
            route.metrics.receipts.inc(last.said());
            if matches!(last, RawAnswer::State(_)) {
                self.recognised(route, asks, self.clock.wall());
                return;
            }
        }
        // What was said too early, or could not be asked, is no denial.
        let about = (&inquiry.call_id, self.clock.mono());
        match last {
            RawAnswer::NotFound => self.missed(route, asks, about),
            RawAnswer::Unknown(why) => self.unheard(route, asks, about, why),
            RawAnswer::State(_) => {}
        }
    }

    /// The endpoint of `route` recognised an id that was sent.
    fn recognised(&self, route: &Route, asks: Asks, now: Wall) {
        let Some(known) = asks.known(route) else {
            return;
        };
        if !known.trust.recognised() {
            return;
        }
        let is_broken = |known: &Known| known.trust.standing() == Standing::Broken;
        if !route.receipts_known().any(is_broken) {
            route.metrics.receipt_broken(false);
            self.readiness
                .clear(Trouble::ReceiptsBroken, &route.conf.name);
        }
        self.no_longer_silent(route);
        tracing::info!(
            route = %route.conf.name,
            endpoint = &*known.address,
            "the receipt endpoint recognised a call: its NOT_FOUND can be believed from now on"
        );
        self.remember(known, Proof::Proven, now);
    }

    /// The endpoint of `route` could not be asked about an answered call: nothing is known of it.
    fn unheard(&self, route: &Route, asks: Asks, (call_id, now): (&CallId, Mono), why: Why) {
        let Some(known) = asks.known(route) else {
            return;
        };
        if !known.trust.unheard(now) {
            return;
        }
        let detail = "the receipt endpoint could not be asked about a call that was answered";
        self.readiness
            .raise(Trouble::ReceiptsUnproven, &route.conf.name, detail);
        tracing::warn!(
            call_id = %call_id,
            route = %route.conf.name,
            endpoint = &*known.address,
            why = why.as_str(),
            "the receipt endpoint could not be asked about a call that was answered: it is \
             unproven, and nothing is resent on its word until it recognises one"
        );
    }

    /// Forgets that an endpoint of `route` could not be asked, unless another one cannot.
    fn no_longer_silent(&self, route: &Route) {
        if !route.receipts_known().any(|known| known.trust.is_silent()) {
            self.readiness
                .clear(Trouble::ReceiptsUnproven, &route.conf.name);
        }
    }

    /// The endpoint of `route` denied an answered call, however often it was asked.
    fn missed(&self, route: &Route, asks: Asks, (call_id, now): (&CallId, Mono)) {
        let Some(known) = asks.known(route) else {
            return;
        };
        if !known.trust.missed(now) {
            return;
        }
        self.no_longer_silent(route);
        route.metrics.receipt_broken(true);
        let detail = "the receipt endpoint does not know a call that was answered";
        self.readiness
            .raise(Trouble::ReceiptsBroken, &route.conf.name, detail);
        tracing::error!(
            call_id = %call_id,
            route = %route.conf.name,
            endpoint = &*known.address,
            "the receipt endpoint is broken: it does not know a call that was answered. Nothing \
             is resent on its word until it does; check `receipt.url` of this route"
        );
        self.remember(known, Proof::Broken, self.clock.wall());
    }

    /// Remembering a proof is a convenience of the next start; losing it costs three questions.
    fn remember(&self, known: &Known, proof: Proof, now: Wall) {
        let written = self
            .ledger
            .remember_proof(Arc::clone(&known.address), proof, now);
        self.background(async move {
            if let Err(e) = written.await {
                tracing::warn!(error = %e, "the proof of a receipt endpoint was not remembered");
            }
        });
    }
}
