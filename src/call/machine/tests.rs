//! The rows of the contract's decision table; exchanges that speak late, or only in part, are in
//! `late`, random schedules in `random`.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::call::outcome::{Cause, NotSent, Unclear};
use crate::call::policy::*;
use crate::call::step::{Ending, Parked};

const SETTLE: Duration = Duration::from_millis(500);
const ATTEMPT: Duration = Duration::from_secs(8);

pub(crate) fn policy() -> Policy {
    let numbers = RetryNumbers {
        max_retries: 3,
        base: Duration::from_secs(1),
        factor: 2.0,
        cap: Duration::from_secs(16),
        jitter: 0.0,
        on: Cause::ALL.to_vec(),
        resend_on: ResendOn::NotFound,
    };
    Policy {
        timeouts: Timeouts {
            connect: Duration::from_secs(1),
            attempt: ATTEMPT,
            idle: Duration::from_secs(60),
            receipt: Duration::from_secs(1),
            total: Duration::from_secs(60),
            late: Duration::from_secs(60),
        },
        retry: Retry::new(numbers).unwrap(),
        receipt: Some(Receipts {
            settle: SETTLE,
            retention: Duration::from_secs(86_400),
            records: Records::Arrival,
            believe_not_found: BelieveNotFound::Proven,
        }),
        compensation: Compensation {
            rounds: vec![Duration::from_secs(60), Duration::from_secs(300)],
            resend: false,
            lease: Duration::from_secs(30),
            on_failed: OnFailed::Drop,
            reversal: None,
        },
        unresolved_status: StatusCode::GATEWAY_TIMEOUT,
        unresolved_answer: UnresolvedAnswer::ByIdSource,
        on_client_gone: OnClientGone::Finish,
    }
}

fn with_retry(change: impl FnOnce(&mut RetryNumbers)) -> Policy {
    let mut policy = policy();
    let mut numbers = policy.retry.numbers();
    change(&mut numbers);
    policy.retry = Retry::new(numbers).unwrap();
    policy
}

const fn without_receipt(mut policy: Policy) -> Policy {
    policy.receipt = None;
    policy
}

fn parked(step: Step) -> (Reason, Parked) {
    match step {
        Step::Park(parking) => (parking.reason, parking.state),
        other => panic!("not parked: {other:?}"),
    }
}

/// A machine with its own clock, driven by hand.
struct Driven {
    machine: Machine,
    now: Mono,
}

impl Driven {
    fn begun(policy: Policy) -> Self {
        let mut driven = Self {
            machine: Machine::new(Arc::new(policy), Mono(0)),
            now: Mono(0),
        };
        assert_eq!(driven.on(Event::Begun), Step::Send { n: 1, cause: None });
        driven
    }

    fn on(&mut self, event: Event) -> Step {
        self.machine.on(event, self.now, Chance::new(0.5))
    }

    fn pass(&mut self, d: Duration) {
        self.now = self.now.after(d);
    }

    fn ended(&mut self, outcome: Outcome) -> Step {
        self.on(Event::Attempted {
            outcome,
            retry_after: None,
            open: false,
        })
    }

    fn timed_out(&mut self) -> Step {
        self.pass(ATTEMPT);
        let outcome = Outcome::Unclear(Unclear::Timeout);
        self.on(Event::Attempted {
            outcome,
            retry_after: None,
            open: true,
        })
    }

    /// From an asked state through backoff, close and settle to the confirming question.
    fn confirm(&mut self, first: Step) {
        let Step::Wait(backoff) = first else {
            panic!("no backoff: {first:?}")
        };
        self.pass(backoff);
        let mut step = self.on(Event::Waited);
        if step == Step::CloseEarlier {
            step = self.on(Event::Closed);
        }
        let Step::Wait(settle) = step else {
            panic!("no settle: {step:?}")
        };
        self.pass(settle);
        assert_eq!(self.on(Event::Waited), Step::Ask);
    }
}

fn answered(n: u16) -> Outcome {
    Outcome::Answered(Reading::by_status(StatusCode::from_u16(n).unwrap()))
}

fn state(state: State) -> Event {
    Event::Receipt(Answer::State(state))
}

const NOT_FOUND: Event = Event::Receipt(Answer::NotFound);
const CUT: Outcome = Outcome::Unclear(Unclear::Disconnect);
const REFUSED: Outcome = Outcome::NotSent(NotSent::Connect);

#[test]
fn a_first_answer_is_final_unless_it_is_a_5xx() {
    let table = [
        (200, Step::Answer(Ending::Success(1))),
        (302, Step::Answer(Ending::Success(1))),
        (400, Step::Answer(Ending::Failure(1))),
        (404, Step::Answer(Ending::Failure(1))),
        (422, Step::Answer(Ending::Failure(1))),
        (401, Step::Answer(Ending::Unbinding(1))),
        (429, Step::Answer(Ending::Unbinding(1))),
        (307, Step::Answer(Ending::Unbinding(1))),
        (500, Step::Ask),
        (503, Step::Ask),
    ];
    for (status, expected) in table {
        assert_eq!(
            Driven::begun(policy()).ended(answered(status)),
            expected,
            "{status}"
        );
    }
}

#[test]
fn every_receipt_answer_leads_where_the_table_says() {
    let mut success = Driven::begun(policy());
    assert_eq!(success.ended(CUT), Step::Ask);
    assert_eq!(
        success.on(state(State::Success)),
        Step::Answer(Ending::ReceiptSuccess)
    );

    let mut failed = Driven::begun(policy());
    failed.ended(answered(500));
    let told = Ending::ReceiptFailed { kept: Some(1) };
    assert_eq!(failed.on(state(State::Failed)), Step::Answer(told));

    for word in [State::Received, State::Processing, State::Unknown] {
        let mut waits = Driven::begun(policy());
        waits.ended(CUT);
        for k in [1, 2, 4, 8] {
            assert_eq!(
                waits.on(state(word)),
                Step::Wait(Duration::from_secs(k)),
                "{word:?}"
            );
            waits.pass(Duration::from_secs(k));
            assert_eq!(waits.on(Event::Waited), Step::Ask);
        }
        assert_eq!(waits.machine.tally().sends(), 1, "{word:?} never resends");
    }
}

#[test]
fn not_found_is_followed_by_backoff_close_settle_ask_and_only_then_a_send() {
    let mut call = Driven::begun(policy());
    assert_eq!(call.timed_out(), Step::Ask);
    call.pass(Duration::from_millis(100));
    assert_eq!(call.on(NOT_FOUND), Step::Wait(Duration::from_millis(900)));
    call.pass(Duration::from_millis(900));
    assert_eq!(call.on(Event::Waited), Step::CloseEarlier);
    assert_eq!(call.on(Event::Closed), Step::Wait(SETTLE));
    call.pass(SETTLE);
    assert_eq!(call.on(Event::Waited), Step::Ask);
    let resend = Step::Send {
        n: 2,
        cause: Some(Cause::Timeout),
    };
    assert_eq!(call.on(NOT_FOUND), resend);
}

#[test]
fn another_answer_on_the_way_goes_back_to_its_own_row() {
    for (word, expected) in [
        (State::Success, Step::Answer(Ending::ReceiptSuccess)),
        (State::Processing, Step::Wait(Duration::from_secs(1))),
        (State::Unknown, Step::Wait(Duration::from_secs(1))),
    ] {
        let mut call = Driven::begun(policy());
        call.ended(CUT);
        let wait = call.on(NOT_FOUND);
        call.confirm(wait);
        assert_eq!(call.on(state(word)), expected, "{word:?}");
    }
}

#[test]
fn retries_run_out_only_when_a_resend_would_be_the_next_step() {
    let mut call = Driven::begun(policy());
    for n in 2..=4 {
        assert_eq!(call.ended(answered(500)), Step::Ask);
        let wait = call.on(NOT_FOUND);
        call.confirm(wait);
        let resend = Step::Send {
            n,
            cause: Some(Cause::Status),
        };
        assert_eq!(call.on(NOT_FOUND), resend);
    }
    assert_eq!(call.ended(answered(500)), Step::Ask);
    let wait = call.on(NOT_FOUND);
    call.confirm(wait);
    let Step::Park(parking) = call.on(NOT_FOUND) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::RetriesExhausted);
    assert_eq!(parking.kept, Some(4));
    assert!(matches!(parking.state, Parked::Queued(_)));
}

#[test]
fn a_4xx_after_an_unclear_attempt_speaks_only_for_itself() {
    let second_says_422 = || {
        let mut call = Driven::begun(policy());
        call.ended(CUT);
        let wait = call.on(NOT_FOUND);
        call.confirm(wait);
        call.on(NOT_FOUND);
        assert_eq!(call.ended(answered(422)), Step::Ask);
        call
    };
    let mut success = second_says_422();
    assert_eq!(
        success.on(state(State::Success)),
        Step::Answer(Ending::ReceiptSuccess)
    );
    let mut failed = second_says_422();
    let told = Step::Answer(Ending::ReceiptFailed { kept: Some(2) });
    assert_eq!(failed.on(state(State::Failed)), told);
    let mut gone = second_says_422();
    let Step::Wait(settle) = gone.on(NOT_FOUND) else {
        panic!()
    };
    gone.pass(settle);
    assert_eq!(gone.on(Event::Waited), Step::Ask);
    assert_eq!(gone.on(NOT_FOUND), Step::Answer(Ending::Failure(2)));
    let mut unknown = second_says_422();
    assert!(matches!(unknown.on(state(State::Unknown)), Step::Wait(_)));
}

#[test]
fn what_was_promised_is_queued_when_it_was_never_sent_and_heeds_no_leaving() {
    let mut cancels = with_retry(|n| n.max_retries = 1);
    cancels.on_client_gone = OnClientGone::Cancel;
    let mut call = Driven {
        machine: Machine::promised(Arc::new(cancels), Mono(0)),
        now: Mono(0),
    };
    assert_eq!(call.on(Event::Begun), Step::Send { n: 1, cause: None });
    assert_eq!(call.on(Event::ClientGone), Step::Keep);
    assert_eq!(call.ended(REFUSED), Step::Wait(Duration::from_secs(1)));
    call.pass(Duration::from_secs(1));
    assert!(matches!(call.on(Event::Waited), Step::Send { n: 2, .. }));
    let Step::Park(parking) = call.ended(REFUSED) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::NeverSent);
    assert!(matches!(parking.state, Parked::Unsent(_)), "{parking:?}");
}

#[test]
fn what_was_never_sent_is_sent_again_without_a_receipt_and_ends_as_never_sent() {
    let mut call = Driven::begun(policy());
    for (n, wait) in [(2, 1), (3, 2), (4, 4)] {
        assert_eq!(call.ended(REFUSED), Step::Wait(Duration::from_secs(wait)));
        call.pass(Duration::from_secs(wait));
        let resend = Step::Send {
            n,
            cause: Some(Cause::Connect),
        };
        assert_eq!(call.on(Event::Waited), resend);
    }
    let Step::Park(parking) = call.ended(REFUSED) else {
        panic!()
    };
    assert_eq!(
        (parking.reason, parking.state),
        (Reason::NeverSent, Parked::NeverSent)
    );

    let mut kept = policy();
    kept.compensation.resend = true;
    let mut call = Driven::begun(Policy {
        retry: with_retry(|n| n.max_retries = 0).retry,
        ..kept
    });
    let Step::Park(parking) = call.ended(REFUSED) else {
        panic!()
    };
    assert_eq!(parking.state, Parked::Unsent(Duration::from_secs(60)));
}

#[test]
fn a_connect_failure_after_an_unclear_attempt_asks_first() {
    let mut call = Driven::begun(policy());
    call.ended(CUT);
    let wait = call.on(NOT_FOUND);
    call.confirm(wait);
    call.on(NOT_FOUND);
    assert_eq!(call.ended(REFUSED), Step::Ask);
}

#[test]
fn retry_after_raises_the_wait_and_ends_the_line_when_it_does_not_fit() {
    let after = |seconds| {
        let mut call = Driven::begun(policy());
        let asked = call.on(Event::Attempted {
            outcome: answered(503),
            retry_after: Some(Duration::from_secs(seconds)),
            open: false,
        });
        assert_eq!(asked, Step::Ask, "it never delays a question");
        call.on(NOT_FOUND)
    };
    assert_eq!(after(7), Step::Wait(Duration::from_secs(7)));
    let Step::Park(parking) = after(3600) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::RetryAfter);
}

#[test]
fn a_call_whose_caller_cancelled_is_asked_about_but_not_sent() {
    let mut call = Driven::begun(Policy {
        on_client_gone: OnClientGone::Cancel,
        ..policy()
    });
    assert_eq!(call.on(Event::ClientGone), Step::Keep);
    assert_eq!(call.ended(CUT), Step::Ask);
    for _ in 0..4 {
        let Step::Wait(wait) = call.on(NOT_FOUND) else {
            panic!()
        };
        call.pass(wait);
        assert_eq!(call.on(Event::Waited), Step::Ask);
    }
    call.pass(Duration::from_secs(60));
    let Step::Park(parking) = call.on(Event::DeadlinePassed) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::Cancelled);
}

#[test]
fn a_repeat_lifts_the_cancel_of_a_caller_who_has_gone() {
    let mut call = Driven::begun(Policy {
        on_client_gone: OnClientGone::Cancel,
        ..policy()
    });
    assert_eq!(call.on(Event::ClientGone), Step::Keep);
    assert_eq!(call.ended(CUT), Step::Ask);
    assert_eq!(call.on(Event::ClientBack), Step::Keep);
    let wait = call.on(NOT_FOUND);
    call.confirm(wait);
    assert!(matches!(call.on(NOT_FOUND), Step::Send { n: 2, .. }));
}

#[test]
fn a_process_that_ends_parks_what_is_in_flight_as_unclear_and_due_at_once() {
    let now = Parked::Queued(Duration::ZERO);
    let mut in_flight = Driven::begun(policy());
    assert_eq!(parked(in_flight.on(Event::Draining)), (Reason::Drain, now));
    let mut streaming = Driven::begun(policy());
    let head = Event::Head(Reading::by_status(StatusCode::OK));
    assert_eq!(streaming.on(head), Step::PassHead(1));
    assert_eq!(parked(streaming.on(Event::Draining)), (Reason::Drain, now));
    let mut waiting = Driven::begun(policy());
    waiting.ended(CUT);
    waiting.on(state(State::Unknown));
    assert_eq!(parked(waiting.on(Event::Draining)), (Reason::Drain, now));
    let mut unsent = Driven::begun(policy());
    unsent.ended(REFUSED);
    assert_eq!(parked(unsent.on(Event::Draining)).1, Parked::NeverSent);
}

#[test]
fn what_is_not_durable_is_not_performed() {
    let mut first = Driven::begun(policy());
    let ended = parked(first.on(Event::LedgerFailed));
    assert_eq!(ended, (Reason::NeverSent, Parked::NeverSent));
    assert_eq!(first.machine.tally().sends(), 0);
    let mut later = Driven::begun(policy());
    later.ended(CUT);
    let wait = later.on(NOT_FOUND);
    later.confirm(wait);
    later.on(NOT_FOUND);
    let Step::Park(parking) = later.on(Event::LedgerFailed) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::LedgerFailed);
    // An answer that must not be passed on was one all the same.
    let mut streaming = Driven::begun(policy());
    streaming.on(Event::Head(Reading::by_status(StatusCode::OK)));
    let (reason, place) = parked(streaming.on(Event::LedgerFailed));
    assert_eq!(reason, Reason::LedgerFailed);
    assert!(matches!(place, Parked::Queued(_)), "{place:?}");
}

#[test]
fn an_impossible_event_parks_one_call() {
    let mut call = Driven::begun(policy());
    let Step::Park(parking) = call.on(Event::Closed) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::Impossible);
    assert_eq!(call.on(Event::Closed), Step::Keep, "and stays parked");
}

mod held;
mod late;
mod random;
