//! The document of `why`: the timeline in words, the verdict, the others.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use super::super::tests::fixture::{self, NOON, at, call};
use super::*;
use crate::call::outcome::{Outcome, Unclear};
use crate::call::receipt::{Answer, State as Is};
use crate::call::time::Wall;
use crate::ledger::story::{Alias, Life, PastEnd};
use crate::ledger::view::Difference;
use crate::ledger::{CallView, Contradiction, Entry, SettledBy, Settlement, Verdict};

fn story(call: CallView) -> Story {
    fixture::story(&call)
}

/// C06: the answer comes after the attempt timeout; receipts tell meanwhile.
fn slow() -> CallView {
    let receipt = |ms, state| Entry::Receipt {
        at: at(ms),
        answer: Answer::State(state),
        doubt: None,
        status: None,
        took: Duration::from_millis(2),
        detail: None,
    };
    CallView {
        state: Is::Success,
        sends: 1,
        first_sent: Some(NOON),
        idempotency_key: Some("k1".into()),
        history: vec![
            Entry::Sent {
                at: NOON,
                n: 1,
                cause: None,
            },
            Entry::Ended {
                at: at(200),
                n: 1,
                outcome: Outcome::Unclear(Unclear::Timeout),
                took: Duration::from_millis(200),
                late: false,
                detail: None,
            },
            receipt(202, Is::Processing),
            receipt(360, Is::Success),
        ],
        settled: Some(Settlement {
            verdict: Verdict::Success,
            by: SettledBy::Receipt,
            at: at(361),
            reply: None,
            document: None,
        }),
        ..call("c1", "anonymous")
    }
}

fn document(stories: &[Story], asked: &str) -> Value {
    match tell(stories, asked) {
        Telling::One(why) => serde_json::to_value(why).expect("it is JSON"),
        Telling::Nothing | Telling::Several(_) => panic!("one call is meant"),
    }
}

fn texts(why: &Value) -> Vec<String> {
    let lines = why["timeline"].as_array().expect("lines").iter();
    lines
        .map(|line| {
            let text = line["text"].as_str().expect("text");
            format!("{} {text}", line["offsetMs"])
        })
        .collect()
}

#[test]
fn c06_one_send_its_timeout_and_the_receipts_in_order() {
    let why = document(&[story(slow())], "c1");
    assert_eq!(
        texts(&why),
        [
            "0 Received from anonymous for route orders, under the caller's own id, key k1.",
            "0 Sent to http://127.0.0.1:9000 (send 1).",
            "200 No answer to send 1 within 200 ms: unclear, the tool may be at work.",
            "202 Receipt: PROCESSING: the tool is at work (2 ms).",
            "360 Receipt: SUCCESS: the tool has done it (2 ms), after waiting 156 ms.",
            "361 Settled: SUCCESS, by the tool's receipt.",
        ]
    );
    assert_eq!(why["verdict"], "once-by-receipt");
    assert_eq!(
        (&why["found"], &why["callId"]),
        (&json!("call-id"), &json!("c1"))
    );
    let answers: Vec<&Value> = why["questions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|q| &q["answer"])
        .collect();
    assert_eq!(answers, ["yes", "yes", "yes", "no"]);
    assert_eq!(why["timeline"][0]["at"], "2026-11-01T12:00:00.000Z");
}

#[test]
fn c08_the_second_id_names_the_first() {
    let mut told = story(slow());
    told.found = Found::Alias;
    told.aliases = vec![Alias {
        call_id: crate::call::id::CallId::parse(b"c2").unwrap(),
        life: 1,
        at: at(100),
    }];
    let why = document(&[told], "c2");
    assert_eq!(
        (&why["asked"], &why["callId"]),
        (&json!("c2"), &json!("c1"))
    );
    assert_eq!(why["found"], "alias");
    assert_eq!(why["others"][0]["callId"], "c2");
    assert_eq!(why["others"][0]["how"], "joined");
    assert!(
        texts(&why)[2].contains("c2 came with the same key"),
        "{why:#}"
    );
    assert_eq!(why["questions"][0]["answer"], "no");
    assert_eq!(why["questions"][1]["answer"], "yes");
}

#[test]
fn an_earlier_life_and_a_contradiction_are_told() {
    let mut told = story(CallView {
        life: 2,
        differences: vec![Difference {
            kind: Contradiction::Receipt,
            at: at(900),
            told: "the receipt said FAILED\u{1b}[2J".into(),
        }],
        ..slow()
    });
    told.past = vec![Life {
        life: 1,
        end: Some(PastEnd {
            received_at: Wall(NOON.0 - 5_000),
            state: Is::Failed,
            idempotency_key: None,
            settled: Some((SettledBy::Answer(1), Wall(NOON.0 - 4_000))),
            status: Some(StatusCode::TOO_MANY_REQUESTS),
        }),
        dead_letter: None,
        differences: Vec::new(),
        history: Vec::new(),
    }];
    let why = document(&[told], "c1");
    let lines = texts(&why);
    assert_eq!(lines[0], "0 An earlier use of this id began.");
    assert!(
        lines[1].contains("ended by the answer to send 1 (429)"),
        "{lines:?}"
    );
    assert_eq!(why["timeline"][0]["life"], 1);
    let last = lines.last().unwrap();
    assert!(last.contains("Contradiction (receipt)"), "{last}");
    assert!(!last.contains('\u{1b}'), "{last}");
    assert_eq!(why["verdict"], "receipt-and-answer-disagree");
}

#[test]
fn a_name_of_several_clients_needs_the_client() {
    let both = [story(call("c1", "billing")), story(call("c1", "shop"))];
    assert!(matches!(tell(&both, "c1"), Telling::Several(names) if names == ["billing", "shop"]));
    assert!(matches!(tell(&[], "c1"), Telling::Nothing));
}
