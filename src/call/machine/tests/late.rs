//! Exchanges that speak after their time, only in part, or not where one could ask.

use super::*;

#[test]
fn a_route_without_receipt_never_resends_and_waits_for_an_open_exchange() {
    let mut cut = Driven::begun(without_receipt(policy()));
    let Step::Park(parking) = cut.ended(CUT) else {
        panic!()
    };
    assert_eq!(
        (parking.reason, parking.state),
        (Reason::NoReceipt, Parked::Manual)
    );

    let mut late = Driven::begun(without_receipt(policy()));
    assert_eq!(late.timed_out(), Step::Wait(Duration::from_secs(52)));
    late.pass(Duration::from_secs(52));
    let Step::Park(parking) = late.on(Event::DeadlinePassed) else {
        panic!()
    };
    assert_eq!(
        parking.state,
        Parked::Queued(Duration::from_secs(60)),
        "still open"
    );

    let mut gone = Driven::begun(without_receipt(policy()));
    gone.timed_out();
    assert_eq!(
        gone.on(Event::LateEnded { n: 1 }),
        Step::Wait(Duration::ZERO)
    );
    let Step::Park(parking) = gone.on(Event::Waited) else {
        panic!()
    };
    assert_eq!(parking.state, Parked::Manual);

    let declared = with_retry(|n| n.resend_on = ResendOn::NotFoundOrUnknown);
    let mut dedupes = Driven::begun(without_receipt(declared));
    assert_eq!(dedupes.ended(CUT), Step::Wait(Duration::from_secs(1)));
    dedupes.pass(Duration::from_secs(1));
    assert!(matches!(dedupes.on(Event::Waited), Step::Send { n: 2, .. }));
}

#[test]
fn not_found_while_a_tool_that_records_at_commit_may_work_is_processing() {
    let mut at_commit = policy();
    at_commit.receipt = at_commit.receipt.map(|r| Receipts {
        records: Records::Commit,
        settle: Duration::from_secs(12),
        ..r
    });
    let mut call = Driven::begun(at_commit);
    call.timed_out();
    assert_eq!(call.on(NOT_FOUND), Step::Wait(Duration::from_secs(1)));
    call.pass(Duration::from_secs(1));
    call.on(Event::LateEnded { n: 1 });
    assert_eq!(call.on(Event::Waited), Step::Ask);
    assert!(matches!(call.on(NOT_FOUND), Step::Wait(_)));
    call.pass(Duration::from_secs(12));
    assert_eq!(call.on(Event::Waited), Step::Ask);
    let wait = call.on(NOT_FOUND);
    call.confirm(wait);
    assert!(matches!(call.on(NOT_FOUND), Step::Send { n: 2, .. }));
}

#[test]
fn a_late_answer_settles_the_call_whatever_it_waits_for() {
    let ok = Reading::by_status(StatusCode::OK);
    let no = Reading::by_status(StatusCode::UNPROCESSABLE_ENTITY);
    for (reading, expected) in [(ok, Ending::Success(1)), (no, Ending::Failure(1))] {
        let late = Event::LateAnswer { n: 1, reading };
        let mut asking = Driven::begun(policy());
        asking.timed_out();
        assert_eq!(asking.on(late), Step::Answer(expected));
        let mut waiting = Driven::begun(policy());
        waiting.timed_out();
        waiting.on(state(State::Unknown));
        assert_eq!(waiting.on(late), Step::Answer(expected));
        let mut parked = Driven::begun(policy());
        parked.timed_out();
        parked.on(state(State::Unknown));
        parked.pass(Duration::from_secs(60));
        assert!(matches!(parked.on(Event::DeadlinePassed), Step::Park(_)));
        assert_eq!(parked.on(late), Step::Answer(expected));
    }
    let broken = Reading::by_status(StatusCode::BAD_GATEWAY);
    let mut call = Driven::begun(policy());
    call.timed_out();
    assert_eq!(
        call.on(Event::LateAnswer {
            n: 1,
            reading: broken
        }),
        Step::Keep
    );
}

#[test]
fn a_late_refusal_settles_nothing_while_another_attempt_is_in_flight() {
    let mut call = Driven::begun(with_retry(|n| n.resend_on = ResendOn::NotFoundOrUnknown));
    call.timed_out();
    let Step::Wait(wait) = call.on(state(State::Unknown)) else {
        panic!()
    };
    call.pass(wait);
    assert_eq!(call.on(Event::Waited), Step::Ask);
    assert!(matches!(
        call.on(state(State::Unknown)),
        Step::Send { n: 2, .. }
    ));
    let no = Reading::by_status(StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(call.on(Event::LateAnswer { n: 1, reading: no }), Step::Keep);
    assert_eq!(call.ended(REFUSED), Step::Answer(Ending::Failure(1)));
}

#[test]
fn a_cut_stream_is_asked_about_and_never_resent() {
    let mut call = Driven::begun(policy());
    let ok = Reading::by_status(StatusCode::OK);
    assert_eq!(call.on(Event::Head(ok)), Step::PassHead(1));
    assert_eq!(
        call.on(Event::DeadlinePassed),
        Step::Keep,
        "total stops at the head"
    );
    assert_eq!(call.ended(CUT), Step::Ask);
    let Step::Park(parking) = call.on(NOT_FOUND) else {
        panic!()
    };
    assert_eq!(parking.reason, Reason::StreamCut);
}

#[test]
fn a_send_has_room_while_half_an_attempt_is_left_of_the_total() {
    let machine = Machine::new(Arc::new(policy()), Mono(0));
    let last = Mono(0).after(Duration::from_secs(56));
    assert!(machine.has_room(last));
    assert!(!machine.has_room(last.after(Duration::from_millis(1))));
}
