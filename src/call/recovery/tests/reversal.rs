//! Undoing: when it begins, what has to come before it, and how it ends. And orders.

use super::*;
use crate::call::policy::Reversal;
use crate::call::step::Undo;

const MINUTE: Duration = Duration::from_secs(60);

/// Two rounds, settle 1 s; undone on UNKNOWN after 10 s, within a day.
fn undoing() -> Policy {
    let mut made = policy();
    made.compensation.reversal = Some(Reversal {
        unknown: true,
        not_found: false,
        min_age: Duration::from_secs(10),
        max_age: 24 * 60 * MINUTE,
    });
    made
}

fn known(closed_for: Duration) -> Known {
    Known {
        closed_for,
        sent_for: closed_for,
        ..Known::of(1, true)
    }
}

fn half() -> Chance {
    Chance::new(0.5)
}

fn last_round(policy: Policy, known: Known, events: &[Event]) -> Step {
    let mut machine = Recovery::new(Arc::new(policy), Mono(0), 2, known, Sending::Allowed);
    through(&mut machine, events)
}

fn ordered(policy: Policy, order: Order, known: Known, events: &[Event]) -> Step {
    let mut machine = Recovery::order(Arc::new(policy), Mono(0), order, known, Sending::Allowed);
    through(&mut machine, events)
}

fn undo(policy: Policy, reversals: u32, events: &[Event]) -> Step {
    let known = Known {
        reversals,
        ..known(MINUTE)
    };
    let mut machine = Recovery::undo(Arc::new(policy), Mono(0), known, Sending::Allowed);
    through(&mut machine, events)
}

const UNKNOWN: Event = Event::Receipt(Answer::State(State::Unknown));
const ROUNDS: Parked = Parked::Manual;

#[test]
fn the_last_round_undoes_what_stays_unknown_right_after_the_question() {
    let first = Step::Reverse { n: 1 };
    assert_eq!(last_round(undoing(), known(MINUTE), &[UNKNOWN]), first);
    // Not before the last round, not without a reversal, and only on the answers it names.
    let mut early = round_of(undoing(), 1, (1, true), Sending::Allowed);
    assert_eq!(reason(through(&mut early, &[UNKNOWN])).1, NEXT);
    assert_eq!(
        reason(last_round(policy(), known(MINUTE), &[UNKNOWN])).1,
        ROUNDS
    );
    for (event, expected) in [
        (state(State::Processing), Reason::RoundsExhausted),
        (state(State::Received), Reason::RoundsExhausted),
        (NOT_FOUND, Reason::RoundsExhausted),
    ] {
        let step = last_round(undoing(), known(MINUTE), &[event]);
        assert_eq!(reason(step), (expected, Parked::Manual), "{event:?}");
    }
    let settled = last_round(undoing(), known(MINUTE), &[state(State::Success)]);
    assert_eq!(settled, Step::Answer(Ending::ReceiptSuccess));
    let failed = last_round(undoing(), known(MINUTE), &[state(State::Failed)]);
    assert_eq!(failed, Step::Answer(Ending::ReceiptFailed { kept: None }));
}

#[test]
fn min_age_counts_from_the_close_and_the_question_comes_after_it() {
    // Closed for 4 of 10 seconds: closed again, the rest waited, asked again.
    let young = known(Duration::from_secs(4));
    assert_eq!(last_round(undoing(), young, &[UNKNOWN]), Step::CloseEarlier);
    let rest = last_round(undoing(), young, &[UNKNOWN, Event::Closed]);
    assert_eq!(rest, Step::Wait(Duration::from_secs(6)));
    let wait = [UNKNOWN, Event::Closed, Event::Waited];
    assert_eq!(last_round(undoing(), young, &wait), Step::Ask);
    let then = |answer: Event| last_round(undoing(), young, &[&wait[..], &[answer]].concat());
    assert_eq!(then(UNKNOWN), Step::Reverse { n: 1 });
    assert_eq!(
        then(state(State::Success)),
        Step::Answer(Ending::ReceiptSuccess)
    );
    assert_eq!(reason(then(state(State::Processing))).1, Parked::Manual);
    assert_eq!(
        reason(then(NOT_FOUND)).1,
        Parked::Manual,
        "`when` has no NOT_FOUND"
    );
    // One that may still speak: all of it.
    let open = Known {
        open: true,
        ..known(MINUTE)
    };
    let all = last_round(undoing(), open, &[UNKNOWN, Event::Closed]);
    assert_eq!(all, Step::Wait(Duration::from_secs(10)));
}

#[test]
fn not_found_is_closed_and_settled_before_it_is_believed_for_a_reversal_too() {
    let mut made = undoing();
    made.compensation.reversal = made.compensation.reversal.map(|reversal| Reversal {
        unknown: false,
        not_found: true,
        ..reversal
    });
    let walk = |events: &[Event]| last_round(made.clone(), known(MINUTE), events);
    assert_eq!(walk(&[NOT_FOUND]), Step::CloseEarlier);
    let settle = made.receipt.unwrap().settle;
    assert_eq!(walk(&[NOT_FOUND, Event::Closed]), Step::Wait(settle));
    let mut machine = Recovery::new(
        Arc::new(made.clone()),
        Mono(0),
        2,
        known(MINUTE),
        Sending::Allowed,
    );
    let step = through(
        &mut machine,
        &[NOT_FOUND, Event::Closed, Event::Waited, NOT_FOUND],
    );
    assert_eq!(step, Step::Reverse { n: 1 });
    assert_eq!(reason(walk(&[UNKNOWN])).1, Parked::Manual);
}

#[test]
fn what_is_too_old_never_sent_or_elsewhere_is_not_undone() {
    let old = Known {
        sent_for: 25 * 60 * MINUTE,
        ..known(MINUTE)
    };
    assert_eq!(
        reason(last_round(undoing(), old, &[UNKNOWN])).1,
        Parked::Manual
    );
    let unsent = Known {
        unclear: false,
        ..known(MINUTE)
    };
    assert_eq!(reason(last_round(undoing(), unsent, &[])).1, Parked::Manual);
    for (sending, may) in [
        (Sending::NoCredential, true),
        (Sending::Cancelled, true),
        (Sending::RouteChanged, false),
        (Sending::WithHuman, false),
    ] {
        let made = Arc::new(undoing());
        let mut machine = Recovery::new(made, Mono(0), 2, known(MINUTE), sending);
        let step = through(&mut machine, &[UNKNOWN]);
        assert_eq!(step == Step::Reverse { n: 1 }, may, "{sending:?}");
    }
    let mut inner = round_of(undoing(), 2, (1, true), Sending::Allowed);
    inner.on(Event::Begun, Mono(0), half());
    inner.worked_on(true);
    let step = inner.on(UNKNOWN, Mono(0), half());
    assert_eq!(
        reason(step).1,
        NEXT,
        "a gateway further in still works on it"
    );
}

#[test]
fn a_reversal_ends_undone_refused_or_is_sent_again() {
    let ends = |undo: Undo| {
        let step = last_round(undoing(), known(MINUTE), &[UNKNOWN, Event::Reversed(undo)]);
        reason(step)
    };
    assert_eq!(ends(Undo::Done).1, Parked::Reversed);
    assert_eq!(
        ends(Undo::Refused),
        (Reason::ReversalRefused, Parked::Manual)
    );
    assert_eq!(
        ends(Undo::Unsendable),
        (Reason::ReversalIncomplete, Parked::Manual)
    );
    let again = undoing().retry.backoff(1, half());
    assert_eq!(
        ends(Undo::Unclear),
        (Reason::ReversalUnclear, Parked::Reversing(again))
    );
    // What could not be recorded did not begin: the row is as it was.
    let unrecorded = last_round(undoing(), known(MINUTE), &[UNKNOWN, Event::LedgerFailed]);
    assert_eq!(reason(unrecorded).1, Parked::AsBefore);
    // A drain does not tear it down; a late answer does not turn it.
    let draining = last_round(undoing(), known(MINUTE), &[UNKNOWN, Event::Draining]);
    assert_eq!(draining, Step::Keep);
    let late = Event::LateAnswer {
        n: 1,
        reading: Reading::Success(StatusCode::OK),
    };
    assert_eq!(
        last_round(undoing(), known(MINUTE), &[UNKNOWN, late]),
        Step::Keep
    );
}

#[test]
fn a_reversal_that_began_goes_on_without_a_question_and_ends() {
    let tries = u32::from(undoing().retry.max_retries());
    for sent in 1..=tries {
        assert_eq!(undo(undoing(), sent, &[]), Step::Reverse { n: sent + 1 });
        let step = undo(undoing(), sent, &[Event::Reversed(Undo::Unclear)]);
        let expected = if sent < tries {
            Parked::Reversing(undoing().retry.backoff(sent + 1, half()))
        } else {
            Parked::Manual
        };
        assert_eq!(
            reason(step),
            (Reason::ReversalUnclear, expected),
            "sent {sent}"
        );
    }
    // A crash after the last send was noted: nobody sends it once more.
    let step = undo(undoing(), tries + 1, &[]);
    assert_eq!(reason(step), (Reason::ReversalUnclear, Parked::Manual));
    // Whatever happens to it, it never becomes a round.
    for event in [Event::LedgerFailed, Event::Denied, Event::Closed] {
        let step = undo(undoing(), 1, &[event]);
        assert!(matches!(reason(step).1, Parked::Reversing(_)), "{event:?}");
    }
    let known = Known {
        reversals: 1,
        ..known(MINUTE)
    };
    let made = Arc::new(undoing());
    let mut elsewhere = Recovery::undo(made, Mono(0), known, Sending::RouteChanged);
    let step = through(&mut elsewhere, &[]);
    assert_eq!(reason(step), (Reason::RouteChanged, Parked::Manual));
}

#[test]
fn an_order_asks_sends_once_or_undoes_and_gives_back_what_it_borrowed() {
    let order = |order: Order, events: &[Event]| ordered(undoing(), order, known(MINUTE), events);
    for one in [Order::Ask, Order::Resend, Order::Reverse] {
        assert_eq!(order(one, &[]), Step::Ask, "{one:?}");
        let settled = order(one, &[state(State::Success)]);
        assert_eq!(settled, Step::Answer(Ending::ReceiptSuccess), "{one:?}");
        for event in [
            state(State::Processing),
            Event::LedgerFailed,
            Event::Draining,
        ] {
            assert_eq!(reason(order(one, &[event])).1, Parked::AsBefore, "{one:?}");
        }
    }
    assert_eq!(reason(order(Order::Ask, &[NOT_FOUND])).1, Parked::AsBefore);
    assert_eq!(reason(order(Order::Resend, &[UNKNOWN])).1, Parked::AsBefore);
    assert_eq!(
        reason(order(Order::Reverse, &[NOT_FOUND])).1,
        Parked::AsBefore
    );
    assert_eq!(order(Order::Reverse, &[UNKNOWN]), Step::Reverse { n: 1 });
    let refused = [UNKNOWN, Event::Reversed(Undo::Refused)];
    let step = order(Order::Reverse, &refused);
    assert_eq!(reason(step), (Reason::ReversalRefused, Parked::Manual));
    // A resend needs no allowance, but everything else.
    let used_up = Known {
        sends: 9,
        ..known(MINUTE)
    };
    let mut machine = Recovery::order(
        Arc::new(undoing()),
        Mono(0),
        Order::Resend,
        used_up,
        Sending::Allowed,
    );
    let step = through(&mut machine, &SENT[..4]);
    assert!(matches!(step, Step::Send { n: 10, .. }), "{step:?}");
    let unclear = machine.on(
        attempted(Outcome::Unclear(Unclear::Timeout)),
        Mono(u64::MAX / 2),
        half(),
    );
    assert_eq!(unclear, Step::Ask);
    let step = machine.on(NOT_FOUND, Mono(u64::MAX / 2), half());
    assert_eq!(reason(step).1, Parked::AsBefore, "once");
}

#[test]
fn an_order_about_what_is_being_undone_asks_or_undoes_again_and_never_sends() {
    let begun = Known {
        reversals: 9,
        ..known(MINUTE)
    };
    let order = |order: Order| ordered(resending(), order, begun, &[]);
    assert_eq!(order(Order::Ask), Step::Ask);
    assert_eq!(order(Order::Reverse), Step::Reverse { n: 10 });
    assert_eq!(reason(order(Order::Resend)).1, Parked::AsBefore);
}

#[test]
fn a_tool_that_records_with_its_commit_is_closed_and_settled_before_a_round_believes_it() {
    let mut made = resending();
    made.receipt = made.receipt.map(|receipt| crate::call::policy::Receipts {
        records: crate::call::policy::Records::Commit,
        ..receipt
    });
    let of = |known: Known| {
        let made = Arc::new(made.clone());
        Recovery::new(made, Mono(0), 1, known, Sending::Allowed)
    };
    let mut closed = of(known(MINUTE));
    assert_eq!(through(&mut closed, &[NOT_FOUND]), Step::CloseEarlier);
    // The question after that decides, and it is weighed.
    let settle = made.receipt.unwrap().settle;
    assert_eq!(
        closed.on(Event::Closed, Mono(0), half()),
        Step::Wait(settle)
    );
    closed.on(Event::Waited, Mono(0).after(settle), half());
    let step = closed.on(NOT_FOUND, Mono(0).after(settle), half());
    assert!(matches!(step, Step::Send { n: 2, .. }), "{step:?}");
    // While its exchange may still speak, "not found" says that it works.
    let mut open = of(Known {
        open: true,
        ..known(MINUTE)
    });
    assert_eq!(reason(through(&mut open, &[NOT_FOUND])).1, NEXT);
}
