//! The driver: performs the machine's steps, one operation at a time, with the late exchanges
//! beside it.
//!
//! It has no `if` about the call: what happens next is the machine's word. What a step needs to be
//! durable is written before it is performed; a step whose record fails is told to the machine and
//! not performed. The same driver serves a caller in line and a round of the queue.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Flow;
use super::allow::{self, Held};
use super::call::{Call, Decider, Replies, Said};
use super::late::LateSet;
use super::reading;
use super::running::Attendance;
use super::told::Told;
use crate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use crate::call::receipt::Answer as Word;
use crate::call::step::{Event, Step};
use crate::call::time::{Mono, Wall};
use crate::crash::{self, Point};
use crate::ledger::{Entry, Intention, Written};
use crate::telemetry::labels::AttemptResult;
use crate::telemetry::log::AttemptLine;
use crate::upstream::{Answer, Core, Ended, Exchange, StreamAnswer, headers};

/// A call under way.
pub(super) struct Drive {
    pub(super) flow: Arc<Flow>,
    pub(super) core: Core,
    pub(super) call: Call,
    pub(super) decider: Decider,
    pub(super) replies: Replies,
    pub(super) late: LateSet,
    /// History not yet handed to the ledger.
    pub(super) history: Vec<Entry>,
    /// The sends, for the line of the log.
    pub(super) lines: Vec<AttemptLine>,
    /// What the last receipt carried.
    pub(super) receipt: Carried,
    /// How the last send of the reversal ended.
    pub(super) undone: Option<Outcome>,
    /// The head of an answer that is being streamed, until somebody passes it on.
    pub(super) stream: Option<Box<StreamAnswer>>,
    /// Who waits for the call.
    pub(super) waiters: Attendance,
    /// When the head of the caller's request was complete, and when its record was durable.
    pub(super) times: Option<(Mono, Mono)>,
    /// What the send under way holds of the tool's limits.
    pub(super) held: Held,
    /// Its record is this process's to write; given back where that ends.
    pub(super) in_line: Option<TaskTrackerToken>,
    /// Waited since the last send.
    waited: Duration,
    draining_told: bool,
}

/// One send that has ended.
#[derive(Clone, Copy)]
struct Attempt {
    n: u8,
    cause: Option<Cause>,
    took: Duration,
}

/// What the last receipt carried besides its state.
#[derive(Debug, Default)]
pub(super) struct Carried {
    /// Its word, as far as it is believed.
    pub(super) said: Option<Word>,
    /// The call's result, if the receipt had one.
    pub(super) result: Option<Answer>,
    /// The receipt as it came.
    pub(super) document: Option<bytes::Bytes>,
    /// The address of the tool that has answered so: it lives.
    pub(super) lives: Option<usize>,
}

impl Drive {
    pub(super) fn new(
        flow: &Arc<Flow>,
        core: &Core,
        call: Call,
        decider: Decider,
        waiters: Attendance,
    ) -> Box<Self> {
        Box::new(Self {
            late: LateSet::new(&flow.late, call.claim.row),
            in_line: None,
            flow: Arc::clone(flow),
            core: core.clone(),
            call,
            decider,
            replies: Replies::default(),
            history: Vec::new(),
            lines: Vec::new(),
            receipt: Carried::default(),
            undone: None,
            stream: None,
            waiters,
            times: None,
            held: Held::default(),
            waited: Duration::ZERO,
            draining_told: false,
        })
    }

    /// Notes when the caller's request came and when its record was durable, for the log.
    pub(super) const fn received(&mut self, received: Mono, recorded: Mono) {
        self.times = Some((received, recorded));
    }

    /// Drives the call from its record to its end, or to the head of a streamed answer.
    pub(super) async fn run(mut self: Box<Self>) -> Told {
        let first = self.on(Event::Begun);
        self.run_from(first).await
    }

    /// Goes on from `step` until the caller can be told something.
    pub(super) async fn run_from(mut self: Box<Self>, mut step: Step) -> Told {
        loop {
            step = match step {
                Step::PassHead(n) => match Box::pin(self.begin_telling(n)).await {
                    Ok(()) => return self.pass_head(n),
                    Err(step) => step,
                },
                Step::Answer(ending) => match self.settle(ending).await {
                    Ok(told) => return self.leave(told),
                    Err(step) => step,
                },
                Step::Park(parking) => {
                    let told = Box::pin(self.park(parking)).await;
                    return self.leave(told);
                }
                Step::Send { .. }
                | Step::Ask
                | Step::Wait(_)
                | Step::CloseEarlier
                | Step::Reverse { .. }
                | Step::Keep => self.perform(step).await,
            };
        }
    }

    /// Performs a step after which the call goes on; the machine's next one.
    pub(super) async fn perform(&mut self, step: Step) -> Step {
        match step {
            Step::Send { n, cause } => self.send(n, cause).await,
            // Rare beside a send, and larger: they take room only when they happen.
            Step::Ask => Box::pin(self.ask()).await,
            Step::Wait(d) => Box::pin(self.wait(d)).await,
            Step::CloseEarlier => Box::pin(self.close()).await,
            Step::Reverse { n } => Box::pin(self.reverse(n)).await,
            // Nothing runs here that could be kept running, and what ends a call ends elsewhere:
            // to the machine this is an event that cannot happen.
            Step::Keep | Step::PassHead(_) | Step::Answer(_) | Step::Park(_) => {
                self.on(Event::Closed)
            }
        }
    }

    pub(super) fn now(&self) -> Mono {
        self.core.clock.mono()
    }

    pub(super) fn wall(&self) -> Wall {
        self.core.clock.wall()
    }

    pub(super) fn on(&mut self, event: Event) -> Step {
        self.decider
            .on(event, self.core.clock.mono(), self.flow.entropy.chance())
    }

    /// Writes an intention and waits for it; the machine's word when it could not be written.
    pub(super) async fn intend(&mut self, intention: Intention) -> Result<(), Step> {
        self.note();
        let now = self.wall();
        match self
            .flow
            .ledger
            .append(self.call.claim, now, intention)
            .await
        {
            Ok(Written::Applied) => Ok(()),
            Ok(Written::Stale) => {
                tracing::info!(
                    call_id = %self.call.call_id,
                    "the call was taken over or settled by somebody else; nothing more is done here"
                );
                Err(self.on(Event::LedgerFailed))
            }
            Err(e) => {
                tracing::error!(call_id = %self.call.call_id, error = %e, "not recorded");
                Err(self.on(Event::LedgerFailed))
            }
        }
    }

    /// Hands the history so far to the ledger; nothing waits for it.
    pub(super) fn note(&mut self) {
        if !self.history.is_empty() {
            let entries = std::mem::take(&mut self.history);
            self.flow
                .ledger
                .note(self.call.claim.row, self.call.claim.life, entries);
        }
    }

    async fn send(&mut self, n: u8, cause: Option<Cause>) -> Step {
        let to = match self.aim(n, cause).await {
            Ok(to) => to,
            Err(step) => return step,
        };
        self.waiters.sent(n);
        let began = self.now();
        if !self.decider.has_room(began) {
            return self.too_late(n, cause);
        }
        if let Some(cause) = cause {
            self.call.route.metrics.retries.inc(cause);
        }
        let bound = self.decider.attempt_bound(began);
        let mut exchange = self.exchange(n, cause, to.as_ref());
        let patience = self.core.wheel.sleep(bound);
        let ended = {
            let first = async {
                tokio::select! {
                    biased;
                    ended = &mut exchange => Some(ended),
                    () = patience => None,
                }
            };
            self.beside(first, false).await
        };
        let attempt = Attempt {
            n,
            cause,
            took: self.now().since(began),
        };
        match ended {
            Ok(Some(ended)) => {
                self.note_connection(n, &exchange);
                let trouble = exchange.trouble();
                drop(exchange);
                self.ended(attempt, ended, trouble).await
            }
            Ok(None) => {
                self.distrust(to.as_ref(), &exchange, began);
                Box::pin(self.timed_out(attempt, exchange)).await
            }
            // A late success settled the call; this exchange may still speak.
            Err(step) => {
                self.held.stands_up();
                self.attempted(attempt, Outcome::Unclear(Unclear::Timeout), None);
                self.leave_open(n, exchange).await;
                step
            }
        }
    }

    /// A send that is on record and is not even tried: its record took too long.
    fn too_late(&mut self, n: u8, cause: Option<Cause>) -> Step {
        self.held = Held::default();
        let took = Duration::ZERO;
        let outcome = Outcome::NotSent(NotSent::Connect);
        let why = "when it was recorded no time was left for an answer";
        self.noted(Attempt { n, cause, took }, outcome, Some(Box::from(why)));
        self.not_sent(outcome)
    }

    /// The end of an attempt of which no byte was written.
    fn unsent(&mut self, attempt: Attempt, why: &str) -> Step {
        let outcome = Outcome::NotSent(NotSent::Connect);
        self.attempted(attempt, outcome, Some(Box::from(why)));
        self.not_sent(outcome)
    }

    fn not_sent(&mut self, outcome: Outcome) -> Step {
        self.on(Event::Attempted {
            outcome,
            retry_after: None,
            open: false,
        })
    }

    async fn ended(&mut self, attempt: Attempt, ended: Ended, trouble: Option<Box<str>>) -> Step {
        let (outcome, retry_after) = match ended {
            Ended::Collected(answer) => {
                crash::at(Point::Answered);
                let outcome = reading::read(&self.call.route.conf, &answer);
                let said = (outcome, headers::retry_after(&answer.headers, self.wall()));
                self.replies.put(attempt.n, Said::Answer(answer));
                said
            }
            Ended::Streaming(stream) => {
                return Box::pin(self.streaming(attempt, stream)).await;
            }
            Ended::NotSent(why) => (Outcome::NotSent(why), None),
            Ended::Unclear(why) => (Outcome::Unclear(why), None),
        };
        self.attempted(attempt, outcome, trouble);
        self.on(Event::Attempted {
            outcome,
            retry_after,
            open: false,
        })
    }

    /// Passes an answer on while it arrives, or reads one that settles nothing to its end.
    async fn streaming(&mut self, attempt: Attempt, stream: Box<StreamAnswer>) -> Step {
        let reading = Reading::by_status(stream.status);
        let settles = match reading {
            Reading::Success(_) => true,
            Reading::Failure(_) | Reading::Unbinding(_) => !self.decider.tally().is_unclear(),
            Reading::Pending(_) | Reading::Kept(_) => false,
        };
        let settles = settles && !reading::is_open(&self.call.route.conf, &stream);
        if settles && self.call.is_read {
            let held = self.release(Outcome::Answered(reading));
            self.attempted(attempt, Outcome::Answered(reading), None);
            // Until the body has passed, the tool is at work.
            self.held = held;
            self.stream = Some(stream);
            return self.on(Event::Head(reading));
        }
        let head = self.now();
        let (outcome, step) = self.read(attempt.n, attempt.took, *stream).await;
        let took = attempt.took.saturating_add(self.now().since(head));
        let is_late = outcome == Outcome::Unclear(Unclear::Timeout);
        let detail = is_late.then(|| Box::from("its answer began and did not end"));
        self.attempted(Attempt { took, ..attempt }, outcome, detail);
        step.unwrap_or_else(|| {
            self.on(Event::Attempted {
                outcome,
                retry_after: None,
                open: false,
            })
        })
    }

    async fn timed_out(&mut self, attempt: Attempt, exchange: Exchange) -> Step {
        crash::at(Point::TimedOut);
        exchange.overdue();
        if exchange.is_unsent() {
            return self.unsent(attempt, "no connection in time");
        }
        let outcome = Outcome::Unclear(Unclear::Timeout);
        self.attempted(attempt, outcome, exchange.trouble());
        let open = self.leave_open(attempt.n, exchange).await;
        self.on(Event::Attempted {
            outcome,
            retry_after: None,
            open,
        })
    }

    /// Keeps an exchange whose attempt is over as a late one; says whether it was worth keeping.
    /// What was not written completely, or not even begun, must not arrive later.
    async fn leave_open(&mut self, n: u8, exchange: Exchange) -> bool {
        let open = exchange.written();
        if open {
            self.push_late(n, exchange);
        } else {
            exchange.reset().await;
        }
        open
    }

    /// Counts, lists and records the end of an attempt.
    fn attempted(&mut self, attempt: Attempt, outcome: Outcome, detail: Option<Box<str>>) {
        let route = &self.call.route;
        route.metrics.attempts.inc(AttemptResult::from(outcome));
        route.metrics.attempt_took(attempt.took);
        if attempt.n == 1 && allow::is_fine(outcome) {
            route.answered(self.core.clock.mono());
        }
        drop(self.release(outcome));
        self.noted(attempt, outcome, detail);
    }

    fn noted(&mut self, attempt: Attempt, outcome: Outcome, detail: Option<Box<str>>) {
        let Attempt { n, cause, took } = attempt;
        self.promises(outcome);
        self.lines.push(AttemptLine {
            n: u32::from(n),
            cause,
            outcome,
            duration: took,
            receipt: None,
            wait: std::mem::take(&mut self.waited),
        });
        self.history.push(Entry::Ended {
            at: self.wall(),
            n: u32::from(n),
            outcome,
            took,
            late: false,
            detail: detail.map(Arc::from),
        });
    }

    /// Notes the last receipt beside the last send, for the line of the log.
    pub(super) fn line_receipt(&mut self, answer: Word) {
        if let Some(line) = self.lines.last_mut() {
            line.receipt = Some(answer);
        }
    }

    async fn wait(&mut self, d: Duration) -> Step {
        crash::at(Point::Waiting);
        let began = self.now();
        let slept = self.beside(crate::clock::sleep(d), true).await;
        self.waited += self.now().since(began);
        match slept {
            Ok(()) => self.on(Event::Waited),
            Err(step) => step,
        }
    }

    async fn close(&mut self) -> Step {
        self.late.close().await;
        crash::at(Point::Closed);
        self.on(Event::Closed)
    }

    /// Runs one operation while late exchanges, the deadline and the caller's leaving are heard.
    /// `Err` is a step that ends the operation early.
    pub(super) async fn beside<T>(
        &mut self,
        operation: impl Future<Output = T>,
        until_deadline: bool,
    ) -> Result<T, Step> {
        if until_deadline {
            // The history of an attempt that settled nothing is worth reading while the call waits.
            self.note();
        }
        let mut operation = pin!(operation);
        let deadline = self.decider.deadline().filter(|_| until_deadline);
        let mut deadline = pin!(self.until(deadline));
        let mut passed = false;
        let draining = self.flow.draining.clone();
        loop {
            let event = tokio::select! {
                biased;
                end = self.late.next(), if !self.late.is_empty() => {
                    self.spoke(end)
                }
                done = &mut operation => return Ok(done),
                () = &mut deadline, if !passed => {
                    passed = true;
                    Event::DeadlinePassed
                }
                () = draining.cancelled(), if !self.draining_told => {
                    self.draining_told = true;
                    Event::Draining
                }
                event = self.waiters.change() => event,
            };
            let step = self.on(event);
            if step != Step::Keep {
                return Err(step);
            }
        }
    }

    /// Sleeps until `deadline`, or for ever without one.
    fn until(&self, deadline: Option<Mono>) -> impl Future<Output = ()> + use<> {
        let sleep = deadline.map(|at| self.core.clock.sleep_until(at));
        async move {
            match sleep {
                Some(sleep) => sleep.await,
                None => std::future::pending().await,
            }
        }
    }

    /// The caller can be told; what may still speak is heard in the background.
    pub(super) fn leave(self: Box<Self>, told: Told) -> Told {
        self.line(&told);
        crash::at(Point::Telling);
        self.part();
        told
    }

    /// Nothing more is done here; what may still speak is heard in the background.
    pub(super) fn part(mut self: Box<Self>) {
        self.note();
        self.in_line = None;
        if !self.late.is_empty() {
            let core = self.core.clone();
            let tasks = self.flow.tasks.clone();
            drop(core.spawn(tasks.track_future(self.listen())));
        }
    }
}
