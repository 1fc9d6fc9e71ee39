//! What `callgate why` prints, and how a tool's log changes it.

use serde_json::json;

use super::*;
use crate::call::history::ToolLog;

fn why() -> Value {
    json!({
        "asked": "c2", "found": "alias", "callId": "c1", "client": "anonymous", "route": "orders",
        "state": "SUCCESS", "idempotencyKey": "k1", "businessKey": null,
        "verdict": "once", "because": "It was sent once and answered.",
        "questions": [
            {"question": "Was the id the same over all attempts?", "answer": "yes",
             "evidence": "1 send(s), all as c1"},
        ],
        "timeline": [
            {"at": "2026-11-01T12:00:00.000Z", "offsetMs": 0, "life": 1, "text": "Received."},
            {"at": "2026-11-01T12:03:10.000Z", "offsetMs": 190_000, "life": null,
             "text": "c2 came with the same key."},
        ],
        "others": [{"callId": "c2", "how": "joined", "at": "2026-11-01T12:03:10.000Z",
                    "state": null, "sends": null, "idempotencyKey": null}],
        "searchedAll": true,
    })
}

#[test]
fn the_story_is_told_in_one_page() {
    let expected = "\
call id      c1
asked about  c2: an id that came with the same key as c1
verdict      once
because      It was sent once and answered.
state        SUCCESS
client       anonymous
route        orders
key          k1

TIME                      SINCE        WHAT HAPPENED
2026-11-01T12:00:00.000Z  +0 ms        Received.
2026-11-01T12:03:10.000Z  +3 min 10 s  c2 came with the same key.

QUESTION                                ANSWER  EVIDENCE
Was the id the same over all attempts?  yes     1 send(s), all as c1

OTHER ID  HOW     CAME                      STATE  SENDS  KEY
c2        joined  2026-11-01T12:03:10.000Z  -      -      -
";
    assert_eq!(table(&why()), expected);
}

#[test]
fn a_log_that_shows_two_executions_changes_the_verdict() {
    let mut told = why();
    let read = log::Read {
        found: ToolLog {
            lines: 4,
            executions: Some(2),
            ..ToolLog::default()
        },
        how_counted: "lines with `done`".to_owned(),
        lines: 9,
        skipped: 1,
    };
    compare(&mut told, &read);
    assert_eq!(told["verdict"], "tool-ignored-id");
    assert!(told["because"].as_str().unwrap().contains("2 executions"));
    let first = &told["questions"][0];
    assert_eq!(first["answer"], "yes");
    assert!(
        first["evidence"]
            .as_str()
            .unwrap()
            .contains("unchanged on 4 line(s)")
    );
    let shown = table(&told);
    let line = "tool's log   4 line(s) with this id, 2 execution(s) (lines with `done`); 1 line(s) \
                were no JSON";
    assert!(shown.contains(line), "{shown}");
}

#[test]
fn a_changed_id_in_the_log_is_no_same_id() {
    let mut told = why();
    let found = ToolLog {
        altered: vec!["C1".to_owned()],
        ..ToolLog::default()
    };
    let read = log::Read {
        found,
        how_counted: String::new(),
        lines: 1,
        skipped: 0,
    };
    compare(&mut told, &read);
    assert_eq!(told["questions"][0]["answer"], "no");
    assert_eq!(told["verdict"], "once");
}

#[test]
fn offsets_are_read_at_a_glance() {
    let table = [
        (0, "+0 ms"),
        (-5, "+-5 ms"),
        (999, "+999 ms"),
        (8_250, "+8.2 s"),
        (190_000, "+3 min 10 s"),
        (7_500_000, "+2 h 5 min"),
        (97_200_000, "+1 d 3 h"),
    ];
    for (ms, expected) in table {
        assert_eq!(offset(ms), expected);
    }
}
