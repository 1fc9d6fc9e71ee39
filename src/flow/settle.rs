//! The end of a call in line: its record, and what the caller is told.
//!
//! A failure is told only after it is durable, else a crash could let a round send what the caller
//! believes dead. A success may be told while its record is on its way, as long as the tool can be
//! asked about it; the record is then pursued in the background until it is written.

use std::pin::pin;
use std::sync::Arc;

use http_body_util::BodyExt;

use super::allow::Held;
use super::call::{Place, Said};
use super::dedup;
use super::drive::Drive;
use super::parting::{self, Unresolved};
use super::pursue::differs;
use super::told::{Problem, Shown, Told, Whole, Word};
use super::{reading, record};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::State;
use crate::call::step::{Ending, Entry as Durable, Event, Parked, Parking, Reason, Step};
use crate::crash::{self, Point};
use crate::ledger::{Fact, FactWritten, News, SettledBy, Verdict, Written};
use crate::telemetry::labels::{AvoidedBy, Bound, Round};
use crate::telemetry::log::CallLine;
use crate::upstream::Answer;

impl Drive {
    /// Records the call's end and puts it into words.
    ///
    /// # Errors
    /// The machine's next step, when the record that has to come first was not written.
    pub(super) async fn settle(&mut self, ending: Ending) -> Result<Told, Step> {
        if let Ending::Refused(code) = ending {
            return Ok(self.refused(code));
        }
        let fact = self.fact(ending);
        // Where a call that nobody knows is undone, a success is durable before it is told: else a
        // crash and a silent receipt could undo what its caller relies on.
        let is_undone = self.call.route.conf.policy.compensation.reversal.is_some();
        let asks = self.call.route.has_receipts() && !is_undone;
        crash::at(Point::Settling);
        match Step::Answer(ending).entry(asks) {
            Durable::Nothing => self.flow.pursue(fact, &self.call),
            Durable::Intention | Durable::Fact => self.write(fact).await?,
        }
        crash::at(Point::Settled);
        if matches!(ending, Ending::Success(_)) && self.call.place == Place::Line {
            self.probe();
        }
        Ok(self.tell(ending))
    }

    async fn write(&mut self, fact: Fact) -> Result<(), Step> {
        match self.flow.ledger.fact(fact.clone()).await {
            Ok(written) => {
                differs(&self.call.call_id, &self.call.route.metrics, written);
                match written {
                    FactWritten::Applied | FactWritten::Repeated => Ok(()),
                    // What is not the call's end on record is not told as its end.
                    FactWritten::Difference { .. } | FactWritten::Alone | FactWritten::Gone => {
                        Err(self.on(Event::LedgerFailed))
                    }
                }
            }
            Err(e) => {
                tracing::error!(
                    call_id = %self.call.call_id,
                    error = %e,
                    "the end of the call was not recorded, so it is not told"
                );
                // A success stays true whatever is told now; a refusal only until the next send.
                if fact.news.verdict() == Verdict::Success {
                    self.flow.pursue(fact, &self.call);
                }
                Err(self.on(Event::LedgerFailed))
            }
        }
    }

    /// The end of the call as the ledger takes it.
    pub(super) fn fact(&mut self, ending: Ending) -> Fact {
        let news = match ending {
            Ending::Success(n) => self.answer_news(n, true),
            Ending::Failure(n) => self.answer_news(n, false),
            Ending::Unbinding(n) => {
                let reply = self.reply_of(n);
                News::Unbinding {
                    n: u32::from(n),
                    reply,
                }
            }
            Ending::ReceiptSuccess => self.receipt_news(Verdict::Success, None),
            Ending::ReceiptFailed { kept } => self.receipt_news(Verdict::Failed, kept),
            // Refusals bind nothing and never come here; the row is released.
            Ending::Refused(_) => self.receipt_news(Verdict::Failed, None),
        };
        Fact {
            row: self.call.claim.row,
            life: self.call.claim.life,
            now: self.wall(),
            entries: std::mem::take(&mut self.history),
            news,
        }
    }

    fn answer_news(&self, n: u8, success: bool) -> News {
        News::Answer {
            n: u32::from(n),
            reply: self.reply_of(n),
            success,
        }
    }

    fn reply_of(&self, n: u8) -> crate::ledger::Reply {
        match (self.replies.get(n), &self.stream) {
            (Some(said), _) => self.call.reply(said),
            (None, Some(stream)) => record::unread(stream.status, &stream.headers),
            // The machine names only attempts whose answer was kept.
            (None, None) => record::unread(http::StatusCode::BAD_GATEWAY, &http::HeaderMap::new()),
        }
    }

    fn receipt_news(&self, verdict: Verdict, kept: Option<u8>) -> News {
        let carried = self
            .receipt
            .result
            .as_ref()
            .filter(|result| fits(verdict, result));
        let reply = match (carried, verdict) {
            (Some(result), _) => Some(self.call.reply_of(result)),
            (None, Verdict::Failed) => kept
                .and_then(|n| self.replies.get(n))
                .map(|said| self.call.reply(said)),
            (None, Verdict::Success) => None,
        };
        News::Receipt {
            verdict,
            reply,
            document: self.receipt.document.clone(),
        }
    }

    /// The status that answered attempt `n`.
    pub(super) fn status_of(&self, n: u8) -> Option<http::StatusCode> {
        self.replies.get(n).map(Said::status)
    }

    fn tell(&mut self, ending: Ending) -> Told {
        let sends = self.decider.tally().sends();
        match ending {
            Ending::Success(n) | Ending::Failure(n) | Ending::Unbinding(n) => {
                let shown = self.shown_of(n, state_of(ending));
                let word = reading::word(&self.call.route.conf, &shown);
                self.call.told(word, sends, shown)
            }
            Ending::ReceiptSuccess => {
                self.call.route.metrics.avoided.inc(AvoidedBy::Receipt);
                self.by_receipt(Verdict::Success, None)
            }
            Ending::ReceiptFailed { kept } => self.by_receipt(Verdict::Failed, kept),
            Ending::Refused(code) => self.refused(code),
        }
    }

    fn shown_of(&mut self, n: u8, state: Option<State>) -> Shown {
        match (self.replies.take(n), self.stream.take()) {
            (Some(Said::Answer(answer)), _) => Shown::Whole(whole(answer)),
            (Some(Said::Kept(reply)), _) => dedup::kept(&reply, state),
            (None, Some(stream)) => Shown::Stream {
                status: stream.status,
                headers: stream.headers,
                body: stream.body.map_err(Into::into).boxed_unsync(),
            },
            (None, None) => Shown::Problem(parting::internal()),
        }
    }

    fn by_receipt(&mut self, verdict: Verdict, kept: Option<u8>) -> Told {
        let sends = self.decider.tally().sends();
        let carried = self.receipt.result.take();
        if let Some(result) = &carried
            && !fits(verdict, result)
        {
            self.flow.disagrees(&self.call, verdict, result);
        }
        let shown = match carried.filter(|result| fits(verdict, result)) {
            Some(result) => Shown::Whole(whole(result)),
            None => match (verdict, kept.and_then(|n| self.replies.take(n))) {
                (Verdict::Failed, Some(Said::Answer(answer))) => Shown::Whole(whole(answer)),
                (Verdict::Failed, Some(Said::Kept(reply))) => {
                    dedup::kept(&reply, Some(State::Failed))
                }
                (Verdict::Failed, None) => Shown::Problem(dedup::failed(SettledBy::Receipt)),
                (Verdict::Success, _) => {
                    let document = self.receipt.document.take().unwrap_or_default();
                    Shown::Whole(dedup::document(document))
                }
            },
        };
        self.call.told(Word::Receipt, sends, shown)
    }

    fn refused(&self, code: Code) -> Told {
        let detail = "Nothing was sent. Repeat the call under the same id.";
        let problem = Problem::new(code, detail, Sent::Unknown, Repeat::SameCallIdOnly);
        let mut told = self.call.problem(Word::Refused, 0, problem);
        told.recorded = false;
        told
    }

    /// Puts the call into the queue, or in front of a human; one durable step.
    pub(super) async fn park(&mut self, parking: Parking) -> Told {
        self.parked(parking).await.told(&self.call)
    }

    /// The same, for those who want to know whether it is on record.
    pub(super) async fn parked(&mut self, parking: Parking) -> Unresolved {
        let now = self.wall();
        let mut unresolved = Unresolved {
            parking,
            recorded: true,
            reached: self.decider.tally().has_reached(),
            sends: self.decider.tally().sends(),
            before: self.before(),
            kept: parking
                .kept
                .and_then(|n| self.replies.take(n))
                .and_then(Said::answer),
            last_error: self.last_error(parking),
        };
        self.note();
        let Some(intention) = unresolved.intention(&self.call, now) else {
            return unresolved;
        };
        crash::at(Point::Parking);
        let written = self
            .flow
            .ledger
            .append(self.call.claim, now, intention.clone())
            .await;
        crash::at(Point::Parked);
        match written {
            Ok(Written::Applied) => unresolved.count(&self.call),
            Ok(Written::Stale) => unresolved.recorded = false,
            Err(e) => {
                unresolved.recorded = false;
                let call_id = &self.call.call_id;
                tracing::error!(%call_id, error = %e, "the call was not parked");
                // A round's lease runs out and another takes the row; the line has nobody else.
                if self.call.place == Place::Line {
                    self.flow.pursue_park(intention, &self.call);
                }
            }
        }
        unresolved
    }

    /// What went wrong last, for people: the last attempt of this run, the last receipt, and what
    /// cut a pass short that might have done more. A call that leaves the line keeps its reason
    /// in a column of its own.
    fn last_error(&self, parking: Parking) -> Arc<str> {
        let learnt = self.learnt(parking);
        let cut = match parking.reason {
            Reason::Denied | Reason::Ejected | Reason::LedgerFailed | Reason::Drain => {
                parking.reason.as_str()
            }
            Reason::RetriesExhausted
            | Reason::Deadline
            | Reason::RetryAfter
            | Reason::NoReceipt
            | Reason::NeverSent
            | Reason::Crash
            | Reason::Cancelled
            | Reason::StreamCut
            | Reason::RoundsExhausted
            | Reason::RouteChanged
            | Reason::ReportedFailure
            | Reason::CredentialNotKept
            | Reason::ReversalRefused
            | Reason::ReversalIncomplete
            | Reason::ReversalUnclear
            | Reason::Impossible => return learnt,
        };
        if self.call.place == Place::Line || *learnt == *cut {
            return learnt;
        }
        Arc::from(format!("{learnt}; {cut}"))
    }

    fn learnt(&self, parking: Parking) -> Arc<str> {
        if let Some(undone) = self.undone {
            return Arc::from(match undone {
                Outcome::Answered(reading) => {
                    format!("reversal HTTP {}", reading.status().as_u16())
                }
                Outcome::NotSent(_) | Outcome::Unclear(_) => {
                    format!("reversal {}", undone.as_str())
                }
            });
        }
        let attempt = self.lines.last().map(|line| match line.outcome {
            Outcome::Answered(reading) => format!("HTTP {}", reading.status().as_u16()),
            Outcome::NotSent(_) | Outcome::Unclear(_) => line.outcome.as_str().to_owned(),
        });
        let receipt = self
            .receipt
            .said
            .map(|said| format!("receipt {}", said.as_str()));
        match (attempt, receipt) {
            (Some(attempt), Some(receipt)) => Arc::from(format!("{attempt}; {receipt}")),
            (Some(what), None) | (None, Some(what)) => Arc::from(what),
            (None, None) => Arc::from(parking.reason.as_str()),
        }
    }

    /// The line of the log, once the caller is told.
    pub(super) fn line(&self, told: &Told) {
        let Some((received, recorded)) = self.times else {
            return;
        };
        CallLine {
            call_id: Some(&self.call.call_id),
            source: Some(self.call.source),
            route: &self.call.route.conf.name,
            client: Some(&self.call.client),
            outcome: told.word,
            status: told.shown.status(),
            code: told.shown.code(),
            attempts: &self.lines,
            total: self.now().since(received),
            recorded: Some(recorded.since(received)),
            trace_id: reading::trace_id(&self.call.request.headers),
            clean: false,
        }
        .emit();
    }

    /// Drives a round to its end and says what it brought.
    pub(super) async fn round(mut self: Box<Self>) -> Round {
        let mut step = self.on(Event::Begun);
        loop {
            step = match step {
                Step::Answer(ending) => {
                    let brought = match ending {
                        Ending::Success(_) | Ending::ReceiptSuccess => Round::Settled,
                        Ending::Failure(_)
                        | Ending::Unbinding(_)
                        | Ending::ReceiptFailed { .. }
                        | Ending::Refused(_) => Round::Failed,
                    };
                    match self.settle(ending).await {
                        Ok(told) => {
                            drop(self.leave(told));
                            return brought;
                        }
                        Err(step) => step,
                    }
                }
                Step::Park(parking) => {
                    let brought = match parking.state {
                        Parked::Queued(_)
                        | Parked::Unsent(_)
                        | Parked::AsBefore
                        | Parked::Reversing(_) => Round::Again,
                        Parked::Manual | Parked::NeverSent => Round::Manual,
                        Parked::Reversed => Round::Reversed,
                    };
                    let told = self.park(parking).await;
                    drop(self.leave(told));
                    return brought;
                }
                other => self.perform(other).await,
            };
        }
    }

    /// A streamed answer's head goes to the caller now; its end is recorded in the background.
    pub(super) fn pass_head(mut self: Box<Self>, n: u8) -> Told {
        let sends = self.decider.tally().sends();
        let Some(stream) = self.stream.take() else {
            return self.call.problem(Word::Refused, sends, parting::internal());
        };
        let (status, headers) = (stream.status, stream.headers.clone());
        let (body, passed) = super::passing::split(*stream, self.patience());
        let shown = Shown::Stream {
            status,
            headers: headers.clone(),
            body,
        };
        let told = self.call.told(Word::Answered, sends, shown);
        let (core, tasks) = (self.core.clone(), self.flow.tasks.clone());
        drop(core.spawn(tasks.track_future(async move {
            let mut passed = pin!(passed);
            let draining = self.flow.draining.clone();
            let (report, parked) = tokio::select! {
                biased;
                report = &mut passed => (report, false),
                () = draining.cancelled() => {
                    let parked = self.park_streaming().await;
                    (passed.await, parked)
                }
            };
            crash::at(Point::Streaming);
            self.held = Held::default();
            let reading = Reading::by_status(status);
            let outcome = match report.broken {
                None => Outcome::Answered(reading),
                Some(why) => Outcome::Unclear(why),
            };
            if report.broken.is_none() && report.kept.is_none() {
                self.flow.metrics.bounds.inc(Bound::KeptResponse);
            }
            let kept = record::passed(status, &headers, &report);
            self.replies.put(n, Said::Kept(kept));
            match outcome {
                Outcome::Answered(reading) if parked => self.told_late(n, reading).await,
                Outcome::Unclear(_) | Outcome::NotSent(_) if parked => {}
                Outcome::Answered(_) | Outcome::Unclear(_) | Outcome::NotSent(_) => {
                    let step = self.on(Event::Attempted {
                        outcome,
                        retry_after: None,
                        open: false,
                    });
                    drop(self.run_from(step).await);
                }
            }
        })));
        told
    }

    /// The process cannot wait for the end of an answer that is being passed on: the call is
    /// parked, and the answer goes on. Whether it was.
    async fn park_streaming(&mut self) -> bool {
        let Step::Park(parking) = self.on(Event::Draining) else {
            return false;
        };
        self.parked(parking).await;
        self.in_line = None;
        true
    }
}

impl Said {
    const fn status(&self) -> http::StatusCode {
        match self {
            Self::Answer(answer) => answer.status,
            Self::Kept(reply) => reply.status,
        }
    }

    /// The answer itself, when its body was not streamed away.
    fn answer(self) -> Option<Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Kept(_) => None,
        }
    }
}

/// The state of a call that ended so; none when that binds nothing.
const fn state_of(ending: Ending) -> Option<State> {
    match ending {
        Ending::Success(_) | Ending::ReceiptSuccess => Some(State::Success),
        Ending::Failure(_) | Ending::ReceiptFailed { .. } => Some(State::Failed),
        Ending::Unbinding(_) | Ending::Refused(_) => None,
    }
}

/// Whether a carried result agrees with the receipt's state.
fn fits(verdict: Verdict, result: &Answer) -> bool {
    let status = result.status.as_u16();
    match verdict {
        Verdict::Success => (200..=399).contains(&status),
        Verdict::Failed => (400..=599).contains(&status),
    }
}

fn whole(answer: Answer) -> Whole {
    Whole {
        status: answer.status,
        headers: answer.headers,
        body: answer.body,
    }
}
