//! Any sequence of events, possible or not: the machines never panic, send within their bounds,
//! never change their mind about an end, and end as soon as the world behaves again.
//!
//! The input is a policy (four bytes) and events (two bytes each).

use std::sync::Arc;
use std::time::Duration;

use callgate::call::machine::Machine;
use callgate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use callgate::call::policy::{
    BelieveNotFound, Compensation, OnClientGone, OnFailed, Policy, Receipts, Records, ResendOn,
    Retry, RetryNumbers, Reversal, Timeouts, UnresolvedAnswer,
};
use callgate::call::receipt::{Answer, State};
use callgate::call::recovery::{Known, Order, Recovery, Sending};
use callgate::call::step::{Ending, Event, Step, Undo};
use callgate::call::time::{Chance, Mono};
use http::StatusCode;

/// A living call asks, waits and sends no more often than this before it ends; a wait is at least
/// 100 ms of a `total` of at most 64 s.
const STEPS_MAX: usize = 4_000;

/// A machine of either kind.
enum Either {
    Line(Machine),
    Round(Recovery),
}

/// A machine under events, and what was seen of it.
struct Run {
    machine: Either,
    policy: Arc<Policy>,
    now: Mono,
    /// What the driver is doing.
    doing: Step,
    sends: u32,
    reversals: u32,
    ended: Option<Step>,
}

/// Plays `data` and then lets the world behave.
pub(super) fn check(data: &[u8]) {
    let Some((head, events)) = data.split_at_checked(4) else {
        return;
    };
    let policy = Arc::new(policy(head));
    let machine = if head[3] & 1 == 0 {
        Either::Line(Machine::new(Arc::clone(&policy), Mono(0)))
    } else {
        let sending = [
            Sending::Allowed,
            Sending::NoCredential,
            Sending::RouteChanged,
            Sending::Cancelled,
        ][usize::from(head[3] >> 1) % 4];
        let known = Known::of(head[3] >> 4, head[3] & 8 != 0);
        let round = u32::from(head[2] >> 5);
        let policy = Arc::clone(&policy);
        Either::Round(match head[1] >> 5 {
            7 => Recovery::undo(
                policy,
                Mono(0),
                Known {
                    reversals: 1 + round,
                    ..known
                },
                sending,
            ),
            6 => Recovery::order(policy, Mono(0), Order::Reverse, known, sending),
            5 => Recovery::order(policy, Mono(0), Order::Resend, known, sending),
            4 => Recovery::order(policy, Mono(0), Order::Ask, known, sending),
            _ => Recovery::new(policy, Mono(0), round, known, sending),
        })
    };
    let mut run = Run {
        machine,
        policy,
        now: Mono(0),
        doing: Step::Keep,
        sends: 0,
        reversals: 0,
        ended: None,
    };
    for two in events.chunks_exact(2).take(400) {
        run.now = run.now.after(Duration::from_millis(u64::from(two[1]) * 40));
        run.on(event(two[0], two[1]));
    }
    run.finish();
}

impl Run {
    fn on(&mut self, event: Event) {
        let chance = Chance::new(0.5);
        let step = match &mut self.machine {
            Either::Line(machine) => machine.on(event, self.now, chance),
            Either::Round(machine) => machine.on(event, self.now, chance),
        };
        if let Some(ended) = self.ended {
            return self.afterwards(ended, event, step);
        }
        // What was held back was not sent.
        let held = event == Event::HeldBack && matches!(self.doing, Step::Send { .. });
        self.sends -= u32::from(held);
        match step {
            Step::Send { .. } => self.sent(),
            Step::Reverse { .. } => self.reversed(),
            Step::Answer(Ending::Success(n) | Ending::Failure(n) | Ending::Unbinding(n)) => {
                assert!(self.sends > 0 || n > 0, "an answer of no attempt");
                self.ended = Some(step);
            }
            Step::Answer(_) | Step::Park(_) => self.ended = Some(step),
            Step::Wait(_) | Step::Ask | Step::CloseEarlier | Step::Keep | Step::PassHead(_) => {}
        }
        if step != Step::Keep {
            self.doing = step;
        }
    }

    fn reversed(&mut self) {
        assert!(matches!(self.machine, Either::Round(_)), "reversed in line");
        assert!(self.reversals == 0, "a pass sends its reversal once");
        self.reversals += 1;
    }

    fn sent(&mut self) {
        assert!(self.reversals == 0, "sent after its reversal");
        self.sends += 1;
        let allowed = match self.machine {
            Either::Line(_) => 1 + u32::from(self.policy.retry.max_retries()),
            Either::Round(_) => 1,
        };
        assert!(self.sends <= allowed, "send {} of {allowed}", self.sends);
    }

    /// What has ended does no more work: facts may still settle a parked call, and a record that
    /// failed may park a settled one.
    fn afterwards(&mut self, ended: Step, event: Event, step: Step) {
        match step {
            Step::Keep | Step::Answer(_) => {}
            Step::Park(_) => assert!(
                matches!(
                    event,
                    Event::LedgerFailed | Event::Denied | Event::HeldBack | Event::Draining
                ),
                "{ended:?}, then {event:?} brought {step:?}"
            ),
            Step::Send { .. }
            | Step::Reverse { .. }
            | Step::Ask
            | Step::Wait(_)
            | Step::CloseEarlier
            | Step::PassHead(_) => panic!("{ended:?}, then {event:?} brought {step:?}"),
        }
    }

    /// The world behaves: what runs ends, and nobody knows anything.
    fn finish(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.ended.is_some() {
                return;
            }
            let event = match self.doing {
                Step::Keep => Event::Begun,
                Step::Send { .. } | Step::PassHead(_) => Event::Attempted {
                    outcome: Outcome::Unclear(Unclear::Timeout),
                    retry_after: None,
                    open: true,
                },
                Step::Ask => Event::Receipt(Answer::State(State::Unknown)),
                Step::Wait(d) => {
                    self.now = self.now.after(d);
                    Event::Waited
                }
                Step::CloseEarlier => Event::Closed,
                Step::Reverse { .. } => Event::Reversed(Undo::Unclear),
                Step::Answer(_) | Step::Park(_) => return,
            };
            self.on(event);
        }
        panic!("the call does not end: {:?} at {:?}", self.doing, self.now);
    }
}

fn event(kind: u8, more: u8) -> Event {
    let status = [200, 202, 304, 404, 409, 422, 429, 500, 503][usize::from(more) % 9];
    let status = StatusCode::from_u16(status).expect("a status");
    let reading = match kind >> 6 {
        0 => Reading::Pending(status),
        1 => Reading::Kept(status),
        _ => Reading::by_status(status),
    };
    let attempted = |outcome, open| Event::Attempted {
        outcome,
        retry_after: (more & 32 != 0).then(|| Duration::from_secs(u64::from(more))),
        open,
    };
    let n = more % 8;
    match kind % 20 {
        0 => Event::Begun,
        1 | 2 => attempted(Outcome::Answered(reading), false),
        3 => attempted(Outcome::NotSent(NotSent::Connect), false),
        4 => attempted(Outcome::Unclear(Unclear::Disconnect), false),
        5 | 6 => attempted(Outcome::Unclear(Unclear::Timeout), kind & 64 != 0),
        7 => Event::Head(reading),
        8 => Event::LateAnswer { n, reading },
        9 => Event::LateEnded { n },
        10 | 11 => Event::Receipt(Answer::NotFound),
        12 => Event::Receipt(Answer::State(State::ALL[usize::from(more) % 5])),
        13 | 14 => Event::Waited,
        15 => Event::Closed,
        16 => Event::ClientGone,
        17 => Event::DeadlinePassed,
        18 => [Event::Draining, Event::Denied, Event::HeldBack][usize::from(more) % 3],
        _ if more & 1 == 0 => Event::LedgerFailed,
        _ => {
            Event::Reversed([Undo::Done, Undo::Refused, Undo::Unclear][usize::from(more >> 1) % 3])
        }
    }
}

fn policy(head: &[u8]) -> Policy {
    let (a, b, c) = (head[0], head[1], head[2]);
    let numbers = RetryNumbers {
        max_retries: a % 6,
        base: Duration::from_millis(100 + u64::from(b) * 10),
        factor: 1.0 + f64::from(b % 10),
        cap: Duration::from_millis(5_000 + u64::from(c) * 10),
        jitter: f64::from(a >> 5) / 8.0,
        on: Cause::ALL
            .into_iter()
            .filter(|cause| *cause != Cause::Status || a & 16 == 0)
            .collect(),
        resend_on: [
            ResendOn::NotFound,
            ResendOn::NotFoundOrUnknown,
            ResendOn::Nothing,
        ][usize::from(b >> 4) % 3],
    };
    let receipt = Receipts {
        settle: Duration::from_millis(u64::from(c) * 4),
        retention: Duration::from_secs(86_400),
        records: if c & 4 == 0 {
            Records::Arrival
        } else {
            Records::Commit
        },
        believe_not_found: BelieveNotFound::Proven,
    };
    Policy {
        timeouts: Timeouts {
            connect: Duration::from_secs(1),
            attempt: Duration::from_millis(500 + u64::from(b) * 40),
            idle: Duration::from_secs(60),
            receipt: Duration::from_millis(200 + u64::from(c) * 4),
            total: Duration::from_millis(1_000 + u64::from(c) * 247),
            late: Duration::from_secs(60),
        },
        retry: Retry::new(numbers).expect("numbers within their bounds"),
        receipt: (c & 3 != 0).then_some(receipt),
        compensation: Compensation {
            rounds: [1, 5, 30].map(Duration::from_secs)[..1 + usize::from(a) % 3].to_vec(),
            resend: b & 1 == 0,
            lease: Duration::from_secs(30),
            on_failed: if b & 2 == 0 {
                OnFailed::Drop
            } else {
                OnFailed::Keep
            },
            reversal: (c & 8 == 0).then_some(Reversal {
                unknown: true,
                not_found: a & 8 == 0,
                min_age: Duration::from_millis(u64::from(c) * 40),
                max_age: Duration::from_secs(86_400),
            }),
        },
        unresolved_status: StatusCode::GATEWAY_TIMEOUT,
        unresolved_answer: UnresolvedAnswer::ByIdSource,
        on_client_gone: if b & 4 == 0 {
            OnClientGone::Finish
        } else {
            OnClientGone::Cancel
        },
    }
}
