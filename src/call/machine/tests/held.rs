//! Sends that are held back because every address is left alone: they use up nothing.

use super::*;

/// A call that was lost once and may be sent again now.
fn about_to_resend(policy: Policy) -> Driven {
    let mut call = Driven::begun(policy);
    call.ended(CUT);
    let wait = call.on(NOT_FOUND);
    call.confirm(wait);
    assert!(matches!(call.on(NOT_FOUND), Step::Send { n: 2, .. }));
    call
}

#[test]
fn a_call_that_may_have_arrived_waits_for_its_address_and_asks_again_before_it_is_sent() {
    let mut call = about_to_resend(with_retry(|n| n.max_retries = 1));
    // More often than it may be sent: nothing of it was used up.
    for secs in [2, 4, 8] {
        let wait = Duration::from_secs(secs);
        assert_eq!(call.on(Event::HeldBack), Step::Wait(wait));
        call.pass(wait);
        assert_eq!(call.on(Event::Waited), Step::Ask);
        let again = Step::Send {
            n: 2,
            cause: Some(Cause::Disconnect),
        };
        assert_eq!(call.on(NOT_FOUND), again);
    }
    assert_eq!(
        call.ended(answered(200)),
        Step::Answer(Ending::Success(2)),
        "the second send"
    );
}

#[test]
fn it_is_queued_when_its_time_is_over_and_not_before() {
    let mut call = about_to_resend(policy());
    let mut held = 0;
    let ended = loop {
        match call.on(Event::HeldBack) {
            Step::Wait(wait) => {
                call.pass(wait);
                assert_eq!(call.on(Event::Waited), Step::Ask);
                assert!(matches!(call.on(NOT_FOUND), Step::Send { n: 2, .. }));
                held += 1;
            }
            ended => break ended,
        }
    };
    let (reason, place) = parked(ended);
    assert_eq!(reason, Reason::Ejected);
    assert!(matches!(place, Parked::Queued(_)), "{place:?}");
    assert_eq!(call.machine.tally().sends(), 1);
    let left = call.machine.deadline().since(call.now);
    let needed = policy().timeouts.useful() + policy().timeouts.receipt;
    assert!(left <= needed, "{left:?} were left after {held} waits");
}

#[test]
fn what_the_receipt_says_meanwhile_counts() {
    let mut call = about_to_resend(policy());
    let Step::Wait(wait) = call.on(Event::HeldBack) else {
        panic!("it waits")
    };
    call.pass(wait);
    assert_eq!(call.on(Event::Waited), Step::Ask);
    let done = call.on(state(State::Success));
    assert_eq!(done, Step::Answer(Ending::ReceiptSuccess));
}

#[test]
fn a_call_of_which_nothing_arrived_is_tried_as_often_as_it_would_be_sent_and_was_never_sent() {
    let mut call = Driven::begun(policy());
    for secs in [1, 2, 4] {
        let wait = Duration::from_secs(secs);
        assert_eq!(call.on(Event::HeldBack), Step::Wait(wait));
        call.pass(wait);
        assert_eq!(call.on(Event::Waited), Step::Send { n: 1, cause: None });
    }
    let ended = parked(call.on(Event::HeldBack));
    assert_eq!(ended, (Reason::NeverSent, Parked::NeverSent));
    assert_eq!(call.machine.tally().sends(), 0);
    for fails_at_once in [
        with_retry(|n| n.max_retries = 0),
        with_retry(|n| n.on = vec![Cause::Timeout]),
    ] {
        let mut call = Driven::begun(fails_at_once);
        let ended = parked(call.on(Event::HeldBack));
        assert_eq!(ended, (Reason::NeverSent, Parked::NeverSent));
    }
}

#[test]
fn a_send_that_is_denied_after_it_was_held_back_was_not_sent_either() {
    let mut call = Driven::begun(policy());
    let Step::Wait(wait) = call.on(Event::HeldBack) else {
        panic!("it waits")
    };
    call.pass(wait);
    call.on(Event::Waited);
    let ended = parked(call.on(Event::Denied));
    assert_eq!(ended, (Reason::NeverSent, Parked::NeverSent));
    assert_eq!(call.machine.tally().sends(), 0);
}

#[test]
fn one_that_may_be_sent_on_unknown_is_sent_when_its_address_is_back() {
    let on_unknown = |n: &mut RetryNumbers| n.resend_on = ResendOn::NotFoundOrUnknown;
    let mut call = Driven::begun(without_receipt(with_retry(on_unknown)));
    let Step::Wait(wait) = call.ended(CUT) else {
        panic!("it waits")
    };
    call.pass(wait);
    assert!(matches!(call.on(Event::Waited), Step::Send { n: 2, .. }));
    let Step::Wait(wait) = call.on(Event::HeldBack) else {
        panic!("it waits")
    };
    call.pass(wait);
    assert!(matches!(call.on(Event::Waited), Step::Send { n: 2, .. }));
}
