//! A table with every word of the verdict; random stories stand in `random`.

mod random;

use http::StatusCode;

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
