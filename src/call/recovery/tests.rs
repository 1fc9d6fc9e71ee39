//! Every way through a round, as a table, and random walks over all rounds of a dead letter.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::call::machine::tests::policy;
use crate::call::outcome::{NotSent, Outcome, Reading, Unclear};
use crate::call::policy::{OnFailed, ResendOn, Retry};
use crate::call::step::Parked;

mod reversal;
mod told;
mod unsent;

const NOT_FOUND: Event = Event::Receipt(Answer::NotFound);

fn state(state: State) -> Event {
    Event::Receipt(Answer::State(state))
}

fn resending() -> Policy {
    let mut made = policy();
    made.compensation.resend = true;
    made
}

fn round_of(policy: Policy, round: u32, known: (u8, bool), sending: Sending) -> Recovery {
    let known = Known::of(known.0, known.1);
    Recovery::new(Arc::new(policy), Mono(0), round, known, sending)
}

/// Feeds `events` to a round over a call sent once and unclear; the last step.
fn after(policy: Policy, round: u32, events: &[Event]) -> Step {
    let mut recovery = round_of(policy, round, (1, true), Sending::Allowed);
    let mut step = recovery.on(Event::Begun, Mono(0), Chance::new(0.5));
    for event in events {
        step = recovery.on(*event, Mono(u64::MAX / 2), Chance::new(0.5));
    }
    step
}

fn attempted(outcome: Outcome) -> Event {
    Event::Attempted {
        outcome,
        retry_after: None,
        open: false,
    }
}

fn answered(n: u16) -> Event {
    attempted(Outcome::Answered(Reading::by_status(
        StatusCode::from_u16(n).unwrap(),
    )))
}

fn reason(step: Step) -> (Reason, Parked) {
    let Step::Park(parking) = step else {
        panic!("not parked: {step:?}")
    };
    (parking.reason, parking.state)
}

const NEXT: Parked = Parked::Queued(Duration::from_secs(300));
const SENT: [Event; 5] = [
    NOT_FOUND,
    Event::Closed,
    Event::Waited,
    NOT_FOUND,
    Event::DeadlinePassed,
];

#[test]
fn a_round_asks_settles_or_plans_the_next_and_the_last_one_ends_with_a_human() {
    assert_eq!(after(policy(), 1, &[]), Step::Ask);
    let settled = Step::Answer(Ending::ReceiptSuccess);
    assert_eq!(after(policy(), 1, &[state(State::Success)]), settled);
    let failed = Step::Answer(Ending::ReceiptFailed { kept: None });
    assert_eq!(after(policy(), 1, &[state(State::Failed)]), failed);
    for word in [State::Received, State::Processing, State::Unknown] {
        let next = after(policy(), 1, &[state(word)]);
        assert_eq!(reason(next), (Reason::RoundsExhausted, NEXT));
        let last = after(policy(), 2, &[state(word)]);
        assert_eq!(
            reason(last),
            (Reason::RoundsExhausted, Parked::Manual),
            "{word:?}"
        );
    }
    let not_found = after(policy(), 1, &[NOT_FOUND]);
    assert_eq!(
        reason(not_found).1,
        NEXT,
        "without `resend` it is never sent"
    );
}

#[test]
fn an_exchange_of_another_process_is_outlasted_before_not_found_is_believed() {
    let (settle, chance) = (policy().receipt.unwrap().settle, Chance::new(0.5));
    for (took, left) in [(0, 20), (15, 5), (30, 0)] {
        let mut recovery = round_of(resending(), 1, (1, true), Sending::Allowed);
        recovery.known.elsewhere = Duration::from_secs(20);
        let now = Mono(took * 1_000_000_000);
        assert_eq!(recovery.on(Event::Begun, Mono(0), chance), Step::Ask);
        assert_eq!(recovery.on(NOT_FOUND, now, chance), Step::CloseEarlier);
        let wait = settle + Duration::from_secs(left);
        assert_eq!(recovery.on(Event::Closed, now, chance), Step::Wait(wait));
    }
}

#[test]
fn a_believed_not_found_is_closed_settled_and_asked_again_before_the_one_resend() {
    assert_eq!(after(resending(), 1, &SENT[..1]), Step::CloseEarlier);
    assert!(matches!(after(resending(), 1, &SENT[..2]), Step::Wait(_)));
    assert_eq!(after(resending(), 1, &SENT[..3]), Step::Ask);
    assert!(matches!(
        after(resending(), 1, &SENT[..4]),
        Step::Send { n: 2, .. }
    ));
    assert_eq!(
        reason(after(resending(), 2, &SENT[..1])).1,
        Parked::Manual,
        "the last only asks"
    );
    let other = [
        NOT_FOUND,
        Event::Closed,
        Event::Waited,
        state(State::Processing),
    ];
    assert_eq!(reason(after(resending(), 1, &other)).1, NEXT);
}

#[test]
fn the_answer_of_a_resend_counts_as_in_line() {
    let then = |events: &[Event]| after(resending(), 1, &[&SENT[..4], events].concat());
    assert_eq!(then(&[answered(201)]), Step::Answer(Ending::Success(2)));
    assert_eq!(
        then(&[answered(422)]),
        Step::Ask,
        "it speaks only for itself"
    );
    assert_eq!(then(&[answered(422), NOT_FOUND]), Step::CloseEarlier);
    let confirmed = [
        answered(422),
        NOT_FOUND,
        Event::Closed,
        Event::Waited,
        NOT_FOUND,
    ];
    assert_eq!(then(&confirmed), Step::Answer(Ending::Failure(2)));
    assert_eq!(then(&[answered(429)]), Step::Ask);
    assert_eq!(
        reason(then(&[answered(429), NOT_FOUND])).1,
        NEXT,
        "429 here is unclear"
    );
    assert_eq!(then(&[answered(500)]), Step::Ask);
    assert_eq!(
        reason(then(&[answered(500), NOT_FOUND])).1,
        NEXT,
        "one resend a round"
    );
    let refused = attempted(Outcome::NotSent(NotSent::Connect));
    assert_eq!(
        then(&[refused, state(State::Success)]),
        Step::Answer(Ending::ReceiptSuccess)
    );
}

#[test]
fn what_must_not_be_sent_is_only_asked_about_and_says_why() {
    let table = [
        (Sending::NoCredential, Reason::CredentialNotKept),
        (Sending::RouteChanged, Reason::RouteChanged),
        (Sending::Cancelled, Reason::RoundsExhausted),
        (Sending::Told, Reason::StreamCut),
        (Sending::WithHuman, Reason::RoundsExhausted),
    ];
    for (sending, expected) in table {
        let mut recovery = round_of(resending(), 1, (1, true), sending);
        recovery.on(Event::Begun, Mono(0), Chance::new(0.5));
        let step = recovery.on(NOT_FOUND, Mono(0), Chance::new(0.5));
        assert_eq!(reason(step), (expected, NEXT));
    }
}

#[test]
fn what_never_reached_the_tool_is_sent_without_a_question() {
    let mut unsent = round_of(resending(), 1, (1, false), Sending::Allowed);
    let step = unsent.on(Event::Begun, Mono(0), Chance::new(0.5));
    assert!(matches!(step, Step::Send { n: 2, .. }));
    let refused = attempted(Outcome::NotSent(NotSent::Connect));
    assert_eq!(
        reason(unsent.on(refused, Mono(0), Chance::new(0.5))).1,
        NEXT
    );
}

#[test]
fn a_promised_first_send_is_owed_in_every_round_whatever_resend_says() {
    let last = u32::try_from(policy().compensation.rounds.len()).unwrap();
    let refused = attempted(Outcome::NotSent(NotSent::Connect));
    let begun = |known, round, sending| {
        let mut made = round_of(policy(), round, known, sending);
        let step = made.on(Event::Begun, Mono(0), Chance::new(0.5));
        (made, step)
    };
    for round in 1..=last {
        let (mut owed, step) = begun((3, false), round, Sending::Owed);
        assert!(matches!(step, Step::Send { n: 4, .. }), "{step:?}");
        let (_, place) = reason(owed.on(refused, Mono(0), Chance::new(0.5)));
        assert!(matches!(place, Parked::Queued(_)), "{place:?}");
        let (_, step) = begun((3, false), round, Sending::Allowed);
        assert!(matches!(step, Step::Park(_)), "{step:?}");
    }
    // Once something may have reached the tool, it is as any other call; but what was sent in the
    // last round is asked about once more.
    let (mut reached, step) = begun((1, true), 1, Sending::Owed);
    assert_eq!(step, Step::Ask);
    let step = reached.on(NOT_FOUND, Mono(u64::MAX / 2), Chance::new(0.5));
    assert!(matches!(step, Step::Park(_)), "{step:?}");
    let (mut owed, _) = begun((3, false), last, Sending::Owed);
    let cut = attempted(Outcome::Unclear(Unclear::Disconnect));
    assert_eq!(owed.on(cut, Mono(0), Chance::new(0.5)), Step::Ask);
    let step = owed.on(state(State::Unknown), Mono(0), Chance::new(0.5));
    assert!(matches!(reason(step).1, Parked::Queued(_)));
    let (mut asked, _) = begun((4, true), last, Sending::Owed);
    let step = asked.on(state(State::Unknown), Mono(0), Chance::new(0.5));
    assert_eq!(reason(step).1, Parked::Manual);
}

#[test]
fn a_route_without_receipt_goes_to_a_human_unless_the_tool_dedupes() {
    let mut silent = resending();
    silent.receipt = None;
    assert_eq!(
        reason(after(silent.clone(), 1, &[])),
        (Reason::NoReceipt, Parked::Manual)
    );
    let mut numbers = silent.retry.numbers();
    numbers.resend_on = ResendOn::NotFoundOrUnknown;
    silent.retry = Retry::new(numbers).unwrap();
    assert!(matches!(after(silent, 1, &[]), Step::Send { n: 2, .. }));
}

#[test]
fn a_failure_that_shall_be_seen_stays_in_front_of_a_human() {
    let mut seen = policy();
    seen.compensation.on_failed = OnFailed::Keep;
    let step = after(seen, 1, &[state(State::Failed)]);
    assert_eq!(reason(step), (Reason::ReportedFailure, Parked::Manual));
}

#[test]
fn a_late_answer_settles_during_and_after_a_round() {
    let late = Event::LateAnswer {
        n: 2,
        reading: Reading::Success(StatusCode::OK),
    };
    let silent = Outcome::Unclear(Unclear::Timeout);
    let open = Event::Attempted {
        outcome: silent,
        retry_after: None,
        open: true,
    };
    let during = [&SENT[..4], &[open, late]].concat();
    assert_eq!(
        after(resending(), 1, &during),
        Step::Answer(Ending::Success(2))
    );
    let past = [&SENT[..4], &[open, state(State::Unknown), late]].concat();
    assert_eq!(
        after(resending(), 1, &past),
        Step::Answer(Ending::Success(2))
    );
}

#[test]
fn past_the_last_round_only_a_gateway_that_still_works_on_the_call_is_asked_again() {
    let rounds = policy().compensation.rounds;
    let last = rounds.len() as u32;
    let answers = [
        (
            state(State::Unknown),
            true,
            Parked::Queued(*rounds.last().unwrap()),
        ),
        (
            state(State::Processing),
            true,
            Parked::Queued(*rounds.last().unwrap()),
        ),
        (state(State::Unknown), false, Parked::Manual),
        (NOT_FOUND, false, Parked::Manual),
    ];
    for (answer, worked_on, expected) in answers {
        // It stays the last round, which sends nothing.
        let mut recovery = round_of(resending(), last, (1, true), Sending::Allowed);
        assert_eq!(
            recovery.on(Event::Begun, Mono(0), Chance::new(0.5)),
            Step::Ask
        );
        recovery.worked_on(worked_on);
        let step = recovery.on(answer, Mono(0), Chance::new(0.5));
        assert_eq!(
            reason(step),
            (Reason::RoundsExhausted, expected),
            "{answer:?}"
        );
    }
}

#[test]
fn a_round_that_is_cut_short_says_by_what_and_a_drain_leaves_it_to_the_next_process() {
    for round in [1, 2] {
        for asked in [&[][..], &SENT[..1], &SENT[..3]] {
            let cut = after(resending(), round, &[asked, &[Event::Draining]].concat());
            if round == 1 || asked.is_empty() {
                assert_eq!(reason(cut), (Reason::Drain, Parked::AsBefore), "{asked:?}");
            }
        }
    }
    // It has sent: that was this round's.
    let sent = [&SENT[..4], &[Event::Draining]].concat();
    assert_eq!(reason(after(resending(), 1, &sent)), (Reason::Drain, NEXT));
    let denied = [&SENT[..4], &[Event::Denied]].concat();
    assert_eq!(
        reason(after(resending(), 1, &denied)),
        (Reason::Denied, NEXT)
    );
    let held = [&SENT[..4], &[Event::HeldBack]].concat();
    assert_eq!(
        reason(after(resending(), 1, &held)),
        (Reason::Ejected, NEXT)
    );
    let failed = after(policy(), 1, &[Event::LedgerFailed]);
    assert_eq!(reason(failed), (Reason::LedgerFailed, NEXT));
}

/// A pass for a caller who waits twenty seconds, over a call sent `sends` times, last a while ago.
fn repeat_of(policy: Policy, sends: u8, sending: Sending) -> Recovery {
    let patience = Patience {
        deadline: Mono(0).after(Duration::from_secs(20)),
        last_sent: Duration::from_secs(3600),
    };
    let known = Known::of(sends, true);
    Recovery::repeat(Arc::new(policy), Mono(0), patience, known, sending)
}

fn through(recovery: &mut Recovery, events: &[Event]) -> Step {
    let mut step = recovery.on(Event::Begun, Mono(0), Chance::new(0.5));
    for event in events {
        step = recovery.on(*event, Mono(0), Chance::new(0.5));
    }
    step
}

#[test]
fn a_repeat_asks_and_leaves_the_row_as_it_was_unless_it_learns_the_end() {
    let told = |event| through(&mut repeat_of(policy(), 4, Sending::Allowed), &[event]);
    let (success, failed) = (state(State::Success), state(State::Failed));
    assert_eq!(told(success), Step::Answer(Ending::ReceiptSuccess));
    let ended = Ending::ReceiptFailed { kept: None };
    assert_eq!(told(failed), Step::Answer(ended));
    for word in [State::Received, State::Processing, State::Unknown] {
        assert_eq!(reason(told(state(word))).1, Parked::AsBefore, "{word:?}");
    }
    assert_eq!(
        reason(told(NOT_FOUND)).1,
        Parked::AsBefore,
        "four sends are the allowance of the line and all repeats"
    );
    assert_eq!(reason(told(Event::DeadlinePassed)).1, Parked::AsBefore);
}

#[test]
fn a_repeat_resends_within_the_allowance_whatever_the_rounds_may() {
    let mut allowed = repeat_of(policy(), 3, Sending::Allowed);
    let step = through(&mut allowed, &SENT[..4]);
    assert!(matches!(step, Step::Send { n: 4, .. }), "{step:?}");
    for sending in [
        Sending::WithHuman,
        Sending::NoCredential,
        Sending::RouteChanged,
    ] {
        let step = through(&mut repeat_of(policy(), 1, sending), &[NOT_FOUND]);
        assert_eq!(reason(step).1, Parked::AsBefore, "{sending:?}");
    }
}

#[test]
fn a_repeat_waits_for_the_rest_of_the_backoff_and_sends_nothing_too_late() {
    let made = policy();
    let backoff = made.retry.backoff(1, Chance::new(0.5));
    let patience = |wait| Patience {
        deadline: Mono(0).after(wait),
        last_sent: Duration::ZERO,
    };
    let pass = |wait: Duration| {
        let made = Arc::new(made.clone());
        Recovery::repeat(
            made,
            Mono(0),
            patience(wait),
            Known::of(1, true),
            Sending::Allowed,
        )
    };
    let useful = made.timeouts.attempt / 2;
    let mut early = pass(backoff + useful);
    assert_eq!(through(&mut early, &[NOT_FOUND]), Step::Wait(backoff));
    let now = Mono(0).after(backoff);
    assert_eq!(
        early.on(Event::Waited, now, Chance::new(0.5)),
        Step::CloseEarlier
    );
    let mut late = pass(useful);
    assert_eq!(through(&mut late, &[NOT_FOUND]), Step::Wait(backoff));
    let step = late.on(Event::Waited, now, Chance::new(0.5));
    assert_eq!(reason(step).1, Parked::AsBefore);
}

#[test]
fn a_repeat_takes_a_failure_that_shall_be_seen_to_a_human() {
    let mut seen = policy();
    seen.compensation.on_failed = OnFailed::Keep;
    let mut pass = repeat_of(seen, 1, Sending::Allowed);
    let step = through(&mut pass, &[state(State::Failed)]);
    assert_eq!(reason(step), (Reason::ReportedFailure, Parked::Manual));
}

#[test]
fn a_repeat_with_nothing_to_ask_changes_nothing() {
    let mut silent = policy();
    silent.receipt = None;
    let mut pass = repeat_of(silent, 1, Sending::Allowed);
    assert_eq!(reason(through(&mut pass, &[])).1, Parked::AsBefore);
}

proptest! {
    #[test]
    fn all_rounds_end_with_at_most_one_send_each(
        rolls in proptest::collection::vec(any::<u8>(), 200),
        resend in any::<bool>(),
    ) {
        let mut made = policy();
        made.compensation.resend = resend;
        let (rounds, made) = (made.compensation.rounds.len() as u32, Arc::new(made));
        let mut rolls = rolls.into_iter().cycle();
        let (mut sends, mut round, mut ended) = (1u8, 1u32, false);
        while !ended {
            prop_assert!(round <= rounds);
            let known = (sends, true);
            let mut recovery = round_of(Policy::clone(&made), round, known, Sending::Allowed);
            let mut step = recovery.on(Event::Begun, Mono(0), Chance::new(0.5));
            let before = sends;
            for _ in 0..20 {
                let roll = rolls.next().unwrap();
                let event = match step {
                    Step::Ask => match roll % 8 {
                        0 => state(State::Success),
                        1 => state(State::Failed),
                        2 => state(State::Processing),
                        3 => state(State::Unknown),
                        _ => NOT_FOUND,
                    },
                    Step::CloseEarlier => Event::Closed,
                    Step::Wait(_) => Event::Waited,
                    Step::Send { .. } => {
                        sends += 1;
                        match roll % 4 {
                            0 => answered(200),
                            1 => answered(422),
                            2 => answered(500),
                            _ => attempted(Outcome::Unclear(Unclear::Disconnect)),
                        }
                    }
                    Step::Answer(_) | Step::Park(_) => break,
                    Step::Keep | Step::PassHead(_) | Step::Reverse { .. } => unreachable!(),
                };
                step = recovery.on(event, Mono(u64::MAX / 2), Chance::new(0.5));
            }
            prop_assert!(sends - before <= u8::from(resend && round < rounds));
            match step {
                Step::Answer(_) => ended = true,
                Step::Park(parking) => {
                    prop_assert_ne!(parking.reason, Reason::Impossible);
                    ended = parking.state == Parked::Manual;
                }
                _ => prop_assert!(false, "the round did not end: {:?}", step),
            }
            round += 1;
        }
    }
}
