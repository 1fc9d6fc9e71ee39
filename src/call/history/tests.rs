//! A table with every word of the verdict, and random stories that must have one.

use http::StatusCode;
use proptest::prelude::*;

use super::*;
use crate::call::outcome::{NotSent, Reading, Unclear};
use crate::call::receipt::State;

const T: Wall = Wall(1_700_000_000_000);
const DAY: Duration = Duration::from_secs(86_400);

fn at(ms: i64) -> Wall {
    Wall(T.0 + ms)
}

fn sent(n: u32) -> Event {
    Event::Sent {
        at: at(i64::from(n) * 1_000),
        n,
        by_hand: false,
    }
}

fn ended(n: u32, outcome: Outcome) -> Event {
    Event::Ended {
        at: at(i64::from(n) * 1_000 + 200),
        n,
        outcome,
        took: Duration::from_millis(200),
        late: false,
    }
}

fn late(n: u32, outcome: Outcome) -> Event {
    Event::Ended {
        at: at(9_000),
        n,
        outcome,
        took: Duration::from_millis(350),
        late: true,
    }
}

fn receipt(answer: Answer) -> Event {
    Event::Receipt { at: at(0), answer }
}

fn said(state: State) -> Event {
    receipt(Answer::State(state))
}

fn ok() -> Outcome {
    Outcome::Answered(Reading::Success(StatusCode::OK))
}

const TIMEOUT: Outcome = Outcome::Unclear(Unclear::Timeout);
const REFUSED: Outcome = Outcome::NotSent(NotSent::Connect);
const DONE: End = End::Answer {
    n: 1,
    success: true,
};

fn facts(end: End, events: Vec<Event>) -> Facts {
    Facts {
        id: "c1".to_owned(),
        events,
        end,
        received: T,
        key: None,
        remembered_until: T.after(DAY),
        aliases: Vec::new(),
        kin: Vec::new(),
        key_released: false,
        differences: Vec::new(),
        attempt: Some(Duration::from_millis(200)),
        has_receipts: true,
    }
}

fn keyed(facts: Facts, kin: Kin) -> Facts {
    Facts {
        key: Some("k1".to_owned()),
        kin: vec![kin],
        ..facts
    }
}

fn kin() -> Kin {
    Kin {
        id: "c2".to_owned(),
        made_here: false,
        same_key: false,
        same_request: true,
        keyed: false,
        received: at(60_000),
        may_have_acted: true,
        settled: true,
        remembered_until: at(60_000).after(DAY),
    }
}

fn once() -> Facts {
    facts(DONE, vec![sent(1), ended(1, ok())])
}

#[track_caller]
fn check(facts: &Facts, verdict: Verdict, word: &str) {
    let judged = judge(facts);
    assert_eq!(judged.verdict, verdict, "{judged:?}\n{facts:?}");
    assert!(judged.because.contains(word), "{}", judged.because);
}

#[test]
fn one_answered_send_ran_once() {
    check(&once(), Verdict::Once, "sent once");
    let refused = facts(
        End::Answer {
            n: 1,
            success: false,
        },
        vec![sent(1)],
    );
    check(&refused, Verdict::Once, "refused it");
    check(
        &facts(End::NeverSent, vec![]),
        Verdict::Once,
        "Not even once",
    );
    let events = vec![sent(1), ended(1, REFUSED), sent(2), ended(2, ok())];
    let second = End::Answer {
        n: 2,
        success: true,
    };
    check(&facts(second, events), Verdict::Once, "never left");
    // Joined ids are one call.
    let joined = Facts {
        aliases: vec!["c2".to_owned()],
        ..once()
    };
    check(&joined, Verdict::Once, "sent once");
}

#[test]
fn a_receipt_settles_or_rules_out() {
    let slow = vec![
        sent(1),
        ended(1, TIMEOUT),
        said(State::Processing),
        said(State::Success),
    ];
    let end = End::Receipt { success: true };
    check(&facts(end, slow), Verdict::OnceByReceipt, "is done");
    let end = End::Receipt { success: false };
    check(
        &facts(end, vec![sent(1), ended(1, TIMEOUT), said(State::Failed)]),
        Verdict::OnceByReceipt,
        "is failed",
    );
    let again = vec![
        sent(1),
        ended(1, TIMEOUT),
        receipt(Answer::NotFound),
        sent(2),
        ended(2, ok()),
    ];
    let end = End::Answer {
        n: 2,
        success: true,
    };
    check(&facts(end, again), Verdict::OnceByReceipt, "never got it");
}

#[test]
fn another_call_with_the_same_wish_is_named() {
    let twin = Facts {
        kin: vec![kin()],
        ..once()
    };
    check(&twin, Verdict::NewIdFromCaller, "c2");
    let made_here = Kin {
        made_here: true,
        ..kin()
    };
    let bare = Facts {
        kin: vec![made_here],
        ..once()
    };
    check(&bare, Verdict::NewIdFromCaller, "without an id");
    let other_key = Kin {
        keyed: true,
        ..kin()
    };
    check(&keyed(once(), other_key), Verdict::KeyNotStable, "c2");
    let later = Kin {
        keyed: true,
        same_key: true,
        received: T.after(DAY * 2),
        ..kin()
    };
    check(
        &keyed(once(), later.clone()),
        Verdict::KeyWindowExpired,
        "idempotency.window",
    );
    let earlier = Kin {
        received: Wall(T.0 - 2 * 86_400_000),
        remembered_until: Wall(T.0 - 86_400_000),
        ..later
    };
    check(&keyed(once(), earlier), Verdict::KeyWindowExpired, "c2");
}

#[test]
fn a_call_that_cannot_have_acted_is_no_twin() {
    let refused = Kin {
        may_have_acted: false,
        ..kin()
    };
    let next_week = Kin {
        received: T.after(DAY * 7),
        ..kin()
    };
    for other in [refused, next_week] {
        let alone = Facts {
            kin: vec![other],
            ..once()
        };
        check(&alone, Verdict::Once, "sent once");
    }
    let never_sent = Facts {
        kin: vec![kin()],
        ..facts(End::NeverSent, vec![])
    };
    check(&never_sent, Verdict::Once, "Not even once");
}

#[test]
fn a_human_who_had_it_sent_again_is_the_cause() {
    let by_hand = Event::Sent {
        at: at(5_000),
        n: 2,
        by_hand: true,
    };
    let events = vec![sent(1), ended(1, TIMEOUT), by_hand, ended(2, ok())];
    let end = End::Answer {
        n: 2,
        success: true,
    };
    check(&facts(end, events), Verdict::ManualResend, "send 2");
}

#[test]
fn contradictions_are_not_smoothed_over() {
    let differs = Facts {
        differences: vec!["the receipt said FAILED".to_owned()],
        ..once()
    };
    check(&differs, Verdict::ReceiptAndAnswerDisagree, "said FAILED");
    let denied = vec![
        sent(1),
        ended(1, TIMEOUT),
        receipt(Answer::NotFound),
        sent(2),
        late(1, ok()),
        ended(2, ok()),
    ];
    check(
        &facts(DONE, denied),
        Verdict::ReceiptAndAnswerDisagree,
        "receipt.settle",
    );
}

#[test]
fn what_is_not_known_is_said_to_be_unknown() {
    let open = facts(End::Open, vec![sent(1), ended(1, TIMEOUT)]);
    check(&open, Verdict::Unknown, "not settled");
    check(
        &facts(End::Reversed, vec![sent(1)]),
        Verdict::Unknown,
        "undone",
    );
    check(
        &facts(End::Operator, vec![sent(1)]),
        Verdict::Unknown,
        "human",
    );
    let declared = vec![
        sent(1),
        ended(1, TIMEOUT),
        said(State::Unknown),
        sent(2),
        ended(2, ok()),
    ];
    check(&facts(DONE, declared), Verdict::Unknown, "2 sends");
    // The same key, bound all the time, and two calls: nothing on record explains that.
    let odd = Kin {
        keyed: true,
        same_key: true,
        ..kin()
    };
    check(
        &keyed(once(), odd),
        Verdict::Unknown,
        "not free by any rule",
    );
}

#[test]
fn the_tools_own_log_outranks_what_the_gateway_guesses() {
    let log = |executions| ToolLog {
        lines: 2,
        executions,
        ..ToolLog::default()
    };
    let base = |verdict| Judgement {
        verdict,
        because: String::new(),
    };
    let strangers = ToolLog {
        strangers: vec!["x9".to_owned()],
        ..log(Some(1))
    };
    let table = [
        (Verdict::Once, log(Some(2)), Verdict::ToolIgnoredId),
        (Verdict::ManualResend, log(Some(3)), Verdict::ToolIgnoredId),
        (Verdict::Unknown, log(Some(1)), Verdict::Once),
        (Verdict::Unknown, log(None), Verdict::Unknown),
        (Verdict::Unknown, log(Some(0)), Verdict::Unknown),
        (Verdict::Once, strangers.clone(), Verdict::NewIdFromCaller),
        (Verdict::KeyNotStable, strangers, Verdict::KeyNotStable),
    ];
    for (verdict, log, expected) in table {
        assert_eq!(
            with_log(base(verdict), &log).verdict,
            expected,
            "{verdict:?} {log:?}"
        );
    }
}

#[test]
fn the_four_questions_are_answered_with_their_evidence() {
    use Certain::{No, NotKnown, Yes};
    let slow = facts(
        DONE,
        vec![
            sent(1),
            ended(1, TIMEOUT),
            said(State::Processing),
            late(1, ok()),
        ],
    );
    let early = facts(
        DONE,
        vec![
            sent(1),
            ended(1, TIMEOUT),
            receipt(Answer::NotFound),
            sent(2),
            late(1, ok()),
        ],
    );
    let blind = facts(
        DONE,
        vec![
            sent(1),
            ended(1, TIMEOUT),
            said(State::Unknown),
            sent(2),
            ended(2, ok()),
        ],
    );
    let joined = Facts {
        aliases: vec!["c2".to_owned()],
        key: Some("k1".to_owned()),
        ..once()
    };
    let table = [
        (
            once(),
            [Yes, NotKnown, NotKnown, No],
            "nothing was sent again",
        ),
        (slow, [Yes, NotKnown, Yes, No], "took 350 ms"),
        (early, [Yes, NotKnown, No, Yes], "too early"),
        (
            blind,
            [Yes, NotKnown, NotKnown, Yes],
            "no receipt before it",
        ),
        (joined, [No, Yes, NotKnown, No], "nothing was sent again"),
        (
            keyed(
                once(),
                Kin {
                    keyed: true,
                    ..kin()
                },
            ),
            [No, No, NotKnown, No],
            "nothing was sent again",
        ),
    ];
    for (facts, expected, last) in table {
        let replies = answer(&facts);
        let certain = replies.each_ref().map(|reply| reply.answer);
        assert_eq!(certain, expected, "{replies:#?}");
        assert!(replies[3].evidence.contains(last), "{replies:#?}");
        assert!(replies.iter().all(|reply| !reply.evidence.is_empty()));
    }
}

#[test]
fn every_verdict_comes_back_from_its_word() {
    for verdict in Verdict::ALL {
        assert_eq!(Verdict::from_word(verdict.as_str()), Some(verdict));
    }
    assert_eq!(Verdict::from_word("twice"), None);
}

fn outcome() -> impl Strategy<Value = Outcome> {
    (0..8_usize, 200..600_u16).prop_map(|(kind, status)| match kind {
        0 => REFUSED,
        1 => TIMEOUT,
        2 => Outcome::Unclear(Unclear::Disconnect),
        _ => Outcome::Answered(Reading::by_status(StatusCode::from_u16(status).unwrap())),
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<i64>(), any::<u32>(), any::<bool>()).prop_map(|(at, n, by_hand)| Event::Sent {
            at: Wall(at),
            n: n % 5,
            by_hand
        }),
        (any::<i64>(), 0..5_u32, outcome(), any::<bool>()).prop_map(|(at, n, outcome, late)| {
            Event::Ended {
                at: Wall(at),
                n,
                outcome,
                took: Duration::MAX,
                late,
            }
        }),
        (0..6_usize).prop_map(|n| receipt(match n {
            5 => Answer::NotFound,
            n => Answer::State(State::ALL[n]),
        })),
    ]
}

fn end() -> impl Strategy<Value = End> {
    (0..6_usize, any::<bool>(), any::<u32>()).prop_map(|(kind, success, n)| match kind {
        0 => End::Open,
        1 => End::Answer { n, success },
        2 => End::Receipt { success },
        3 => End::NeverSent,
        4 => End::Reversed,
        _ => End::Operator,
    })
}

fn any_kin() -> impl Strategy<Value = Kin> {
    (any::<u8>(), any::<i64>(), any::<i64>()).prop_map(|(bits, received, until)| Kin {
        made_here: bits & 1 != 0,
        same_key: bits & 2 != 0,
        same_request: bits & 4 != 0,
        keyed: bits & 8 != 0,
        may_have_acted: bits & 16 != 0,
        settled: bits & 32 != 0,
        received: Wall(received),
        remembered_until: Wall(until),
        ..kin()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of entries, also one no gateway writes, has a verdict with a reason.
    #[test]
    fn every_story_has_a_verdict(
        events in prop::collection::vec(event(), 0..12),
        end in end(),
        kin in prop::collection::vec(any_kin(), 0..4),
        key in prop::option::of(Just("k".to_owned())),
        received in any::<i64>(),
        aliases in prop::collection::vec(Just("a".to_owned()), 0..2),
        log in (0..3_usize, prop::option::of(0..3_usize)),
    ) {
        let facts = Facts {
            kin, key, aliases, received: Wall(received), ..facts(end, events)
        };
        let judged = judge(&facts);
        prop_assert!(judged.because.ends_with('.') || judged.because.ends_with("--log."));
        prop_assert_ne!(judged.verdict, Verdict::ToolIgnoredId, "only a log can say that");
        prop_assert!(answer(&facts).iter().all(|reply| !reply.evidence.is_empty()));
        // Once is said only of what was settled by the tool, or never sent.
        if matches!(judged.verdict, Verdict::Once | Verdict::OnceByReceipt) {
            let told = !matches!(end, End::Open | End::Reversed | End::Operator);
            prop_assert!(told);
        }
        let log = ToolLog { lines: log.0, executions: log.1, ..ToolLog::default() };
        let amended = with_log(judged.clone(), &log);
        if log.executions.is_none() {
            prop_assert_eq!(amended, judged);
        }
    }
}
