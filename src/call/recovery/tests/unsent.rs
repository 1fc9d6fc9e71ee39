//! What was never sent stays so, and waits for its tool as long as it takes.

use super::*;

const REFUSED: Event = Event::Attempted {
    outcome: Outcome::NotSent(NotSent::Connect),
    retry_after: None,
    open: false,
};

fn owed(sends: u8) -> Recovery {
    let last = u32::try_from(resending().compensation.rounds.len()).unwrap();
    round_of(resending(), last, (sends, false), Sending::Owed)
}

fn on(machine: &mut Recovery, event: Event) -> Step {
    machine.on(event, Mono(0), Chance::new(0.5))
}

#[test]
fn a_send_that_never_left_leaves_the_call_as_never_sent_by_every_door() {
    let known = Known::of(2, false);
    let patience = Patience {
        deadline: Mono(u64::MAX / 2),
        last_sent: Duration::from_secs(3_600),
    };
    let policy = || Arc::new(resending());
    let (allowed, order) = (Sending::Allowed, Order::Resend);
    for mut pass in [
        Recovery::new(policy(), Mono(0), 1, known, allowed),
        Recovery::repeat(policy(), Mono(0), patience, known, allowed),
        Recovery::order(policy(), Mono(0), order, known, allowed),
    ] {
        assert!(matches!(
            on(&mut pass, Event::Begun),
            Step::Send { n: 3, .. }
        ));
        assert!(matches!(on(&mut pass, REFUSED), Step::Park(_)));
        assert!(!pass.tally().has_reached());
    }
}

#[test]
fn what_may_have_left_is_not_called_never_sent() {
    let silent = || {
        let mut silent = resending();
        silent.receipt = None;
        silent
    };
    let ends: [(&str, &[Event]); 4] = [
        ("its end is not heard", &[Event::Draining]),
        (
            "no answer",
            &[attempted(Outcome::Unclear(Unclear::Timeout))],
        ),
        ("a refusal that binds nothing", &[answered(403)]),
        (
            "an answer that is not on record",
            &[answered(200), Event::LedgerFailed],
        ),
    ];
    for (what, events) in ends {
        let mut round = round_of(silent(), 1, (1, false), Sending::Owed);
        assert!(matches!(
            on(&mut round, Event::Begun),
            Step::Send { n: 2, .. }
        ));
        for event in events {
            on(&mut round, *event);
        }
        assert!(round.tally().has_reached(), "{what}");
    }
    let mut round = round_of(silent(), 1, (1, false), Sending::Owed);
    on(&mut round, Event::Begun);
    on(&mut round, Event::LedgerFailed);
    assert!(
        !round.tally().has_reached(),
        "what is not on record is not sent"
    );
}

#[test]
fn an_owed_first_send_waits_for_its_tool_ever_more_rarely() {
    let mut sends = 0;
    let mut waited = Duration::ZERO;
    let year = Duration::from_secs(365 * 86_400);
    while waited < year {
        let mut round = owed(sends);
        assert!(matches!(on(&mut round, Event::Begun), Step::Send { .. }));
        let (_, Parked::Queued(gap)) = reason(on(&mut round, REFUSED)) else {
            panic!("after {sends} sends nobody waits for the tool");
        };
        let long = resending().compensation.rounds.last().copied().unwrap() * 8;
        assert!(gap <= long.max(waited / 7), "{gap:?} after {waited:?}");
        waited += gap;
        sends += 1;
    }
    assert!(sends < 200, "{sends} sends in a year");
}

#[test]
fn an_answer_of_a_late_send_does_not_speak_for_the_earlier_ones() {
    for sends in [1, 30, 31, 32, 63, 200] {
        let mut round = round_of(resending(), 1, (sends, true), Sending::Allowed);
        on(&mut round, Event::Begun);
        for event in &SENT[..4] {
            round.on(*event, Mono(u64::MAX / 2), Chance::new(0.5));
        }
        let step = round.on(answered(400), Mono(u64::MAX / 2), Chance::new(0.5));
        assert_eq!(step, Step::Ask, "after {sends} sends");
    }
}
