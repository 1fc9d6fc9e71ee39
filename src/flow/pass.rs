//! Requests without effects (`effects: none`): streamed both ways, with nothing recorded.
//!
//! The same retry policy, but without questions: a repeat can do no harm. Sent again only while no
//! byte of the answer has gone out and the request can be told again: its body was not yet read,
//! or was short enough to be remembered. Deliberately absent: the ledger, receipts, dead letters.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http::uri::PathAndQuery;
use http_body_util::BodyExt;

use super::allow::{self, Held, Holding};
use super::limits::Slot;
use super::limits::budget::{Paid, Payer};
use super::routes::Route;
use super::sites::Choice;
use super::told::{Problem, Shown, Told, Whole, Word};
use super::{Flow, Request, reading};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use crate::call::policy::Policy;
use crate::call::time::Mono;
use crate::telemetry::labels::{AttemptResult, Bound, Denied};
use crate::telemetry::log::{AttemptLine, CallLine};
use crate::telemetry::metrics::InFlight;
use crate::upstream::addresses::Reach;
use crate::upstream::headers;
use crate::upstream::{
    Answer, Core, Destination, Ended, Exchange, Mode, StreamAnswer, Terms, Upload,
};

mod gather;
mod outward;
mod tunnel;

use outward::Outward;

/// The body of a request without effects.
#[derive(Debug)]
pub enum PassBody {
    /// Complete and short enough to be sent again.
    Whole(Bytes),
    /// Still arriving.
    Arriving(Upload),
}

/// A request on its way through.
struct Pass<'a> {
    flow: &'a Flow,
    core: &'a Core,
    request: &'a Request<PassBody>,
    target: PathAndQuery,
    outward: Outward,
    deadline: Mono,
    /// When the clock was last read.
    now: Mono,
    lines: Vec<AttemptLine>,
    /// The address of the last send.
    site: usize,
    /// What the send under way holds of the tool's limits.
    held: Held,
    /// The head of an answer came, and no more of it: nothing is sent again after that.
    broke_off: bool,
}

impl Flow {
    /// Passes the request on. Dropped when its caller leaves.
    pub async fn pass(&self, core: &Core, mut request: Box<Request<PassBody>>) -> Told {
        let Ok(target) = request.route.tool.target(&request.target) else {
            let detail = "The path cannot be appended to the tool's address. Correct the path.";
            let call = Some((request.call_id, request.source));
            return Told::refused_unseen(call, Code::BadRequest, detail);
        };
        let wish = tunnel::wish(&request);
        let slot = match request.route.slot(&request.client, &self.metrics) {
            Ok(slot) => slot,
            Err(problem) => {
                return Told::refused(Some((request.call_id, request.source)), problem);
            }
        };
        // Before anything is made ready: a storm is met by refusals, and they have to cost less
        // than what they keep away. A tunnel takes no place.
        let refused = wish.is_none() && request.route.is_full(&request.client);
        if refused && !self.draining.is_cancelled() {
            let problem = allow::overloaded(&self.metrics, Repeat::Safe, Sent::No);
            return request.turned_away(problem, core);
        }
        let outward = Outward::of(self, &mut request);
        let total = request.route.conf.policy.timeouts.total;
        let now = core.clock.mono();
        let mut pass = Pass {
            flow: self,
            core,
            target,
            outward,
            deadline: now.after(total),
            now,
            lines: Vec::with_capacity(1),
            site: 0,
            held: Held::default(),
            broke_off: false,
            request: &request,
        };
        let told = match wish {
            None => pass.run().await,
            Some(wish) => Box::pin(pass.tunnel(wish)).await,
        };
        pass.line(&told);
        let held = std::mem::take(&mut pass.held);
        holding(told, slot, held)
    }
}

impl Pass<'_> {
    async fn run(&mut self) -> Told {
        let route: &Route = &self.request.route;
        let policy = &route.conf.policy;
        let (mut sends, mut cause, mut paid) = (0, None, None);
        for tries in 1u8.. {
            match self.place(route).await {
                Some(Ok(place)) => self.held = Held::new(place, paid.take()),
                None => return self.turned_away(sends, allow::draining()),
                Some(Err(())) => {
                    let full = allow::overloaded(&self.flow.metrics, Repeat::Safe, Sent::No);
                    return self.turned_away(sends, full);
                }
            }
            let (outcome, answer) = match self.finds_address(sends > 0) {
                Choice::Out => (self.held_back(), None),
                to @ (Choice::Plain | Choice::To(_)) => {
                    sends += 1;
                    let (outcome, answer) = self.send((sends, cause), to, policy).await;
                    if sends == 1 && allow::is_fine(outcome) {
                        route.answered(self.now);
                    }
                    self.held = std::mem::take(&mut self.held).ended(outcome, route, self.core);
                    cause = Some(outcome.cause());
                    (outcome, answer)
                }
            };
            let through = answer.as_ref().is_some_and(reading::came_through_a_gateway);
            let wait = self.repeat_after(tries, (outcome, answer.as_ref()), policy);
            let wait = wait.filter(|_| !through && (sends == 0 || self.pays(route, &mut paid)));
            match (wait, answer) {
                (Some(wait), answer) => {
                    drop(answer);
                    // A wait needs no place among the sends.
                    self.held = Held::default();
                    crate::clock::sleep(wait).await;
                    self.now = self.core.clock.mono();
                }
                (None, Some(shown)) => {
                    return self.told(reading::word(&route.conf, &shown), sends, shown);
                }
                (None, None) => return self.failed(sends, outcome),
            }
        }
        unreachable!("`retry.max_retries` is at most 5")
    }

    /// A place among the tool's sends; nothing when the gateway is shutting down.
    async fn place(&mut self, route: &Route) -> Option<Result<Option<allow::Place>, ()>> {
        let draining = &self.flow.draining;
        if !route.is_bounded() {
            return (!draining.is_cancelled()).then_some(Ok(None));
        }
        let place = route.place(&self.request.client, &self.core.clock, self.deadline);
        // Rare, and large: on the heap of its own.
        let place = Box::pin(draining.run_until_cancelled(place)).await;
        self.now = self.core.clock.mono();
        place
    }

    /// Whether a resend is paid for; it takes place whatever comes, unless it finds no place.
    fn pays(&self, route: &Route, paid: &mut Option<(Paid, InFlight)>) -> bool {
        match route.pay(Payer::Caller(&self.request.client), self.core.clock.mono()) {
            Ok(own) => *paid = own,
            Err(denied) => {
                route.metrics.denied.inc(denied);
                return false;
            }
        }
        true
    }

    /// Refused before its first send, or given up between two.
    fn turned_away(&self, sends: u8, mut problem: Problem) -> Told {
        let mut word = Word::Refused;
        if sends > 0 {
            problem.repeat = Repeat::Safe;
            problem.sent = Sent::No;
        }
        if self.may_have_arrived() {
            word = Word::Unresolved;
            problem.sent = Sent::Maybe;
            problem.detail = "An earlier send may have reached the tool, and it is not sent again \
                              now. The request has no effects; repeat it a little later."
                .to_owned();
        }
        self.told(word, sends, Shown::Problem(problem))
    }

    /// Whether a send that has ended may have reached the tool.
    fn may_have_arrived(&self) -> bool {
        let left = |line: &AttemptLine| !matches!(line.outcome, Outcome::NotSent(_));
        self.lines.iter().any(left)
    }

    async fn send(
        &mut self,
        (n, cause): (u8, Option<Cause>),
        to: Choice,
        policy: &Policy,
    ) -> (Outcome, Option<Shown>) {
        let began = self.now;
        let bound = policy.timeouts.attempt.min(self.deadline.since(began));
        let terms = Terms {
            connect: policy.timeouts.connect,
            idle: policy.timeouts.idle,
            max_kept: 0,
            mode: Mode::Pass,
        };
        let route: &Route = &self.request.route;
        if let Some(cause) = cause {
            route.metrics.retries.inc(cause);
        }
        let chosen = self.sits_at(to);
        let to = chosen.as_ref().unwrap_or_else(|| route.tool.destination());
        let mut exchange = Exchange::new(self.core, to, self.outgoing(n, cause), terms);
        let ended = tokio::select! {
            // An answer that is there counts, also on the tick of its timeout.
            biased;
            ended = &mut exchange => ended,
            () = self.core.wheel.sleep(bound) => {
                exchange.overdue();
                match exchange.is_unsent() {
                    true => Ended::NotSent(NotSent::Connect),
                    false => {
                        to.distrust(began);
                        Ended::Unclear(Unclear::Timeout)
                    }
                }
            }
        };
        if exchange.was_crowded_out() {
            self.flow.metrics.bounds.inc(Bound::UpstreamConnections);
        }
        let (outcome, answer) = match ended {
            Ended::Streaming(answer) => {
                let status = answer.status;
                let left = bound.saturating_sub(self.core.clock.mono().since(began));
                let patience = self.core.wheel.sleep(left);
                match Box::pin(gather::gathered(*answer, patience)).await {
                    Ok(shown) => (answered(status), Some(shown)),
                    Err(why) => {
                        self.broke_off = true;
                        (Outcome::Unclear(why), None)
                    }
                }
            }
            Ended::Collected(answer) => (answered(answer.status), Some(whole(answer))),
            Ended::NotSent(why) => (Outcome::NotSent(why), None),
            Ended::Unclear(why) => (Outcome::Unclear(why), None),
        };
        self.sent(n, cause, began, outcome);
        (outcome, answer)
    }

    /// Where a send goes: anywhere, since it has no effects.
    fn finds_address(&self, again: bool) -> Choice {
        let avoid = again.then_some(self.site);
        let reach = Reach::Any { avoid };
        self.request.route.choose(reach, self.now)
    }

    /// Sits down there; `None`: there is one address.
    fn sits_at(&mut self, choice: Choice) -> Option<Arc<Destination>> {
        match choice {
            Choice::Plain | Choice::Out => None,
            Choice::To(chosen) => {
                self.site = chosen.site;
                Some(self.held.sits(chosen))
            }
        }
    }

    /// All addresses are ejected: nothing is sent, and nothing counts as sent.
    fn held_back(&self) -> Outcome {
        self.flow.metrics.bounds.inc(Bound::Ejected);
        Outcome::NotSent(NotSent::Connect)
    }

    /// Counts and notes one send that has ended.
    fn sent(&mut self, n: u8, cause: Option<Cause>, began: Mono, outcome: Outcome) {
        self.now = self.core.clock.mono();
        let took = self.now.since(began);
        let metrics = &self.request.route.metrics;
        metrics.attempts.inc(AttemptResult::from(outcome));
        metrics.attempt_took(took);
        self.lines.push(AttemptLine {
            n: u32::from(n),
            cause,
            outcome,
            duration: took,
            receipt: None,
            wait: Duration::ZERO,
        });
    }

    /// How long to wait before the request is sent again; `None` when it is not.
    /// The tool's wish raises the wait; one that does not fit into what is left ends it.
    fn repeat_after(
        &self,
        n: u8,
        (outcome, answer): (Outcome, Option<&Shown>),
        policy: &Policy,
    ) -> Option<Duration> {
        let worth_it = match outcome {
            Outcome::NotSent(_) | Outcome::Unclear(_) => true,
            Outcome::Answered(reading) => matches!(reading.status().as_u16(), 502..=504),
        };
        let tellable = match &self.request.body {
            PassBody::Whole(_) => true,
            PassBody::Arriving(upload) => upload.is_whole(),
        };
        let allowed = worth_it
            && !self.broke_off
            && tellable
            && n <= policy.retry.max_retries()
            && policy.retry.resends_after(outcome.cause());
        if !allowed {
            return None;
        }
        let route = &self.request.route;
        let is_resend = !self.lines.is_empty();
        if is_resend && !self.flow.retries.allows(&route.conf.name) {
            route.metrics.denied.inc(Denied::SwitchedOff);
            return None;
        }
        let backoff = policy
            .retry
            .backoff(u32::from(n), self.flow.entropy.chance());
        let wished = answer.and_then(Shown::headers);
        let wished =
            wished.and_then(|headers| headers::retry_after(headers, self.core.clock.wall()));
        let wait = wished.map_or(backoff, |wished| wished.max(backoff));
        let room = self.now.after(wait) < self.deadline;
        room.then_some(wait)
    }

    fn failed(&self, n: u8, outcome: Outcome) -> Told {
        let earlier = self.may_have_arrived();
        let (code, detail, sent) = match outcome {
            Outcome::NotSent(
                NotSent::Connect | NotSent::Tls | NotSent::HandedBack | NotSent::Refused,
            ) => (
                Code::ToolUnreachable,
                "Nothing could be sent to the tool.",
                if earlier { Sent::Maybe } else { Sent::No },
            ),
            Outcome::Unclear(Unclear::Timeout) => (
                Code::ToolTimeout,
                "The tool did not answer in time.",
                Sent::Maybe,
            ),
            Outcome::Unclear(Unclear::Disconnect) | Outcome::Answered(_) => (
                Code::ToolDisconnected,
                "The tool closed the connection before its answer was complete.",
                Sent::Maybe,
            ),
        };
        let detail = format!("{detail} The request has no effects; repeat it at any time.");
        let problem = Problem::new(code, detail, sent, Repeat::Safe);
        // Nothing was refused that may have arrived: nobody knows.
        let word = match sent {
            Sent::No => Word::Refused,
            Sent::Maybe | Sent::Yes | Sent::Unknown => Word::Unresolved,
        };
        self.told(word, n, Shown::Problem(problem))
    }

    fn told(&self, word: Word, n: u8, shown: Shown) -> Told {
        Told {
            call: Some((self.request.call_id.clone(), self.request.source)),
            word,
            attempts: u32::from(n),
            shown,
            original: None,
            same_id_only: false,
            recorded: false,
        }
    }

    fn line(&self, told: &Told) {
        let clean = told.word == Word::Answered && self.lines.len() == 1;
        if !CallLine::is_wanted(clean) {
            return;
        }
        CallLine {
            trace_id: self.trace_id(),
            clean,
            ..self.request.line(told, &self.lines, self.now)
        }
        .emit();
    }
}

/// A streamed answer keeps what it holds until its body has passed.
fn holding(mut told: Told, slot: Option<Slot>, held: Held) -> Told {
    if let Shown::Stream { body, .. } = &mut told.shown
        && !(slot.is_none() && held.is_nothing())
    {
        let inner = std::mem::take(body);
        *body = Holding::new(inner, slot, held).boxed_unsync();
    }
    told
}

fn answered(status: StatusCode) -> Outcome {
    Outcome::Answered(Reading::by_status(status))
}

fn stream(answer: StreamAnswer) -> Shown {
    let StreamAnswer {
        status,
        headers,
        body,
        ..
    } = answer;
    Shown::Stream {
        status,
        headers,
        body: body.map_err(Into::into).boxed_unsync(),
    }
}

/// A short answer that was there in full with its head.
fn whole(answer: Answer) -> Shown {
    let Answer {
        status,
        headers,
        body,
        ..
    } = answer;
    Shown::Whole(Whole {
        status,
        headers,
        body,
    })
}
