//! What becomes of the tool's answer: 4xx, 5xx, half ones: C03, C05, C50, and what is replayed.

use crate::fixture::check::receipt_states;
use crate::fixture::{Act, Call, Receipts, Reply, Script, World, ms};
use serde_json::Value;
use std::time::Instant;

fn error_seven(n: usize) -> Reply {
    Reply::json(500, format!(r#"{{"code":"E{n}"}}"#)).field("X-Err", "7")
}

#[test]
fn c03_a_503_after_the_work_is_settled_by_the_receipt() {
    let act = Act::read_all().commit().answer(Reply::new(503, ""));
    let world = World::prompt(Script::new().request(1, act));
    let answer = world.call(&Call::with_id("c03"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!(answer.body, br#"{"done":true}"#);
    assert_eq!(answer.must("x-tool"), "yes");
    assert_eq!(answer.attempts(), 1);
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn c03_a_503_after_the_work_waits_while_the_receipt_says_processing() {
    let act = Act::read_all().commit().answer(Reply::new(503, ""));
    let receipts = Receipts::Truth {
        from_arrival: true,
        hidden: ms(300),
    };
    let world = World::prompt(Script::new().request(1, act).receipts(receipts));
    let answer = world.call(&Call::with_id("c03"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    assert!(world.tool.r() >= 2, "one question cannot have been enough");
    // The answer does not wait for the record of a success.
    let ends = |it: &Value| receipt_states(it).last().is_some_and(|it| it == "SUCCESS");
    let history = world.gateway.wait_history("c03", "a SUCCESS", ends);
    assert_eq!(receipt_states(&history)[0], "PROCESSING");
}

#[test]
fn c05_the_last_5xx_is_handed_through_when_retries_run_out() {
    let mut script = Script::new().receipts(Receipts::always(Act::not_found()));
    for n in 1..=4 {
        let reply = error_seven(n);
        let reply = if n == 4 {
            reply.field("Retry-After", "1")
        } else {
            reply
        };
        script = script.request(n, Act::says(reply));
    }
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("c05"));
    assert_eq!(answer.status, 500, "{}", answer.text());
    assert_eq!(answer.must("x-err"), "7");
    assert_eq!(answer.body, br#"{"code":"E4"}"#);
    assert_eq!(answer.outcome(), "unresolved");
    assert_eq!(answer.must("x-call-repeat"), "same-call-id-only");
    assert_eq!(
        answer.field("retry-after"),
        None,
        "it would invite a repeat without the id"
    );
    assert_eq!(world.tool.a(), 4);
    let times: Vec<Instant> = world.tool.sends("c05").iter().map(|send| send.at).collect();
    for (n, pair) in times.windows(2).enumerate() {
        assert!(
            pair[1] - pair[0] >= ms(40 << n),
            "resend {} came too early",
            n + 1
        );
    }
    let causes = world.tool.sends("c05");
    let causes = causes
        .iter()
        .map(|send| send.head.one("x-call-retry-cause"));
    let causes: Vec<_> = causes.collect();
    let status = Some("status".to_owned());
    assert_eq!(causes, [None, status.clone(), status.clone(), status]);
}

#[test]
fn c05_a_caller_without_an_id_is_told_a_problem_instead() {
    let script = Script::new()
        .otherwise(Act::says(error_seven(1)))
        .receipts(Receipts::always(Act::not_found()));
    let world = World::prompt(script);
    let answer = world.call(&Call::post());
    let problem = answer.problem(504, "unresolved");
    assert_eq!(answer.outcome(), "unresolved");
    assert_eq!(problem["callId"], answer.id().as_str());
    assert_eq!(problem["repeat"], "same-call-id-only");
    assert_eq!(problem["attempts"], 4);
    assert_eq!(answer.must("x-call-id-source"), "gateway");
}

#[test]
fn c05_a_5xx_that_the_receipt_confirms_as_failed_is_final() {
    let script = Script::new()
        .request(1, Act::says(error_seven(7)))
        .receipts(Receipts::always(Act::state("FAILED")));
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("c05"));
    assert_eq!((answer.status, answer.outcome().as_str()), (500, "receipt"));
    assert_eq!(answer.must("x-err"), "7");
    assert_eq!(answer.body, br#"{"code":"E7"}"#);
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_failed_receipt_that_carries_a_result_is_that_result() {
    let refusal = Reply::json(422, r#"{"why":"closed account"}"#).field("X-Why", "closed");
    let script = Script::new()
        .request(1, Act::says(error_seven(7)))
        .receipts(Receipts::always(Act::state_with("FAILED", &refusal)));
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("failed"));
    assert_eq!((answer.status, answer.outcome().as_str()), (422, "receipt"));
    assert_eq!(
        (&answer.body, answer.must("x-why").as_str()),
        (&refusal.body, "closed")
    );
}

#[test]
fn a_failed_receipt_without_any_answer_is_told_as_reported_by_the_tool() {
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .receipts(Receipts::always(Act::state("FAILED")));
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("failed"));
    answer.problem(502, "tool-reported-failure");
    assert_eq!(world.tool.a(), 1);
    assert_eq!(world.gateway.receipt("failed").json()["state"], "FAILED");
}

#[test]
fn a_success_receipt_without_a_result_is_answered_with_the_receipt() {
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .receipts(Receipts::always(Act::state("SUCCESS")));
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("bare"));
    assert_eq!((answer.status, answer.outcome().as_str()), (200, "receipt"));
    assert_eq!(answer.json()["state"], "SUCCESS");
    assert_eq!(answer.json()["callId"], "bare");
}

#[test]
fn a_4xx_is_passed_on_untouched_without_a_retry_or_a_question() {
    for status in [400, 404, 409, 410, 422] {
        let reply = Reply::json(status, format!(r#"{{"no":{status}}}"#)).field("X-Err", "7");
        let world = World::prompt(Script::new().request(1, Act::says(reply.clone())));
        let answer = world.call(&Call::with_id("refusal"));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (status, "answered")
        );
        assert_eq!(
            (answer.must("x-err").as_str(), &answer.body),
            ("7", &reply.body)
        );
        assert_eq!((world.tool.a(), world.tool.r()), (1, 0));
        let again = world.call(&Call::with_id("refusal"));
        assert_eq!((again.status, &again.body), (status, &reply.body));
        assert_eq!(again.must("idempotent-replayed"), "true");
        assert_eq!(world.tool.a(), 1, "a bound refusal is replayed");
    }
}

#[test]
fn answers_about_the_moment_are_passed_on_and_bind_nothing() {
    for status in [401, 403, 408, 425, 429] {
        let world = World::prompt(Script::new().request(1, Act::says(Reply::new(status, "no"))));
        let world = world.lives(2);
        let answer = world.call(&Call::with_id("moment"));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (status, "answered")
        );
        assert_eq!(world.tool.a(), 1);
        let again = world.call(&Call::with_id("moment"));
        assert_eq!((again.status, again.outcome().as_str()), (201, "answered"));
        assert_eq!(world.tool.a(), 2, "a repeat is sent");
    }
}

#[test]
fn a_4xx_after_an_unclear_attempt_speaks_only_for_itself() {
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .request(
            2,
            Act::read_all().commit().answer(Reply::new(409, "exists")),
        )
        .receipts_of(
            "late",
            vec![
                Act::not_found(),
                Act::not_found(),
                Act::state_with("SUCCESS", &Reply::json(201, "{}")),
            ],
        );
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("late"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!(world.tool.a(), 2);
}

#[test]
fn a_settled_call_is_replayed_byte_for_byte() {
    let reply = Reply::new(201, b"{\"x\":\"\xff\"}\n".as_slice())
        .field("Content-Type", "application/json")
        .field("Location", "/x/1")
        .field("ETag", "\"a\"")
        .field("Set-Cookie", "s=1")
        .field("Date", "Thu, 01 Jan 1970 00:00:00 GMT");
    let mut world = World::prompt(Script::new().request(1, Act::read_all().commit().answer(reply)));
    let first = world.call(&Call::with_id("replay"));
    assert_eq!(
        (first.status, first.must("set-cookie").as_str()),
        (201, "s=1")
    );
    for round in 0..3 {
        let again = world.call(&Call::with_id("replay"));
        assert_eq!((again.status, &again.body), (201, &first.body));
        for name in ["content-type", "location", "etag"] {
            assert_eq!(again.must(name), first.must(name));
        }
        assert_eq!(again.must("idempotent-replayed"), "true");
        assert_eq!(again.outcome(), "replayed");
        assert_eq!(again.field("set-cookie"), None);
        assert_ne!(
            again.field("date"),
            Some("Thu, 01 Jan 1970 00:00:00 GMT".to_owned())
        );
        if round == 1 {
            world.gateway.terminate();
            world.restart();
        }
    }
    assert_eq!(world.tool.a(), 1);
}

const SHORT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
const UNENDED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
const NONSENSE: &str = "HTTP/1.1 2OO OK\r\nContent-Length: 0\r\n\r\n";

#[test]
fn c50_half_an_answer_is_settled_by_the_receipt() {
    for half in [SHORT, UNENDED, NONSENSE] {
        let act = Act::read_all().commit().say(half).fin();
        let world = World::prompt(Script::new().request(1, act));
        let answer = world.call(&Call::with_id("c50"));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (201, "receipt"),
            "{half:?}"
        );
        assert_eq!(answer.body, br#"{"done":true}"#);
        assert_eq!(world.tool.a(), 1);
    }
}

#[test]
fn c50_half_an_answer_is_never_kept_as_success() {
    for half in [SHORT, UNENDED] {
        let script = Script::new()
            .request(1, Act::read_all().commit().say(half).fin())
            .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
        let world = World::with(script, |config| {
            config.set("defaults/timeouts/total", "600ms")
        });
        let answer = world.call(&Call::with_id("c50"));
        answer.problem(504, "unresolved");
        assert_eq!(world.gateway.receipt("c50").json()["state"], "UNKNOWN");
        assert_eq!(world.tool.a(), 1);
    }
}

#[test]
fn c50_bytes_behind_a_whole_answer_end_the_connection_and_nothing_else() {
    let long = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcdefg";
    let world = World::two_ports(
        Script::new().request(1, Act::read_all().commit().say(long)),
        |config| config,
    );
    let mut client = world.gateway.client();
    let answer = client.call(&Call::with_id("long"));
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (200, &b"abcde"[..])
    );
    assert_eq!(answer.outcome(), "answered");
    assert_eq!(client.call(&Call::with_id("next")).status, 201);
    assert_eq!(world.tool.k(), 2, "the connection was used again");
}

#[test]
fn c50_a_cut_stream_is_broken_visibly_and_the_call_goes_to_the_queue() {
    for half in [SHORT, UNENDED] {
        let script = Script::new()
            .request(1, Act::read_all().commit().say(half).fin())
            .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
        let world = World::with(script, |config| config.route("response", "stream"));
        let mut client = world.gateway.client();
        client.send(&Call::with_id("c50"));
        let answer = client.try_answer().expect("its head");
        assert_eq!((answer.status, answer.body.as_slice()), (200, &b"abc"[..]));
        assert!(
            answer.cut.is_some(),
            "the caller took it for a whole answer"
        );
        world.gateway.wait_dead_letter("c50", "MANUAL");
        assert_eq!(world.gateway.receipt("c50").json()["state"], "UNKNOWN");
        assert_eq!(world.tool.a(), 1);
    }
}

#[test]
fn an_answer_that_names_its_state_twice_says_nothing_and_the_receipt_is_asked() {
    let twice = Reply::json(200, r#"{"state":"rejected","state":"done"}"#);
    let script = Script::new().request(1, Act::read_all().commit().answer(twice));
    let world = World::prompt_with(script, |config| {
        let states = serde_json::json!({ "SUCCESS": ["done"], "FAILED": ["rejected"] });
        config
            .route("answer/state", "/state")
            .route("answer/states", states)
    });
    let answer = world.call(&Call::with_id("twice"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert!(world.tool.r() >= 1);
    let told = world.gateway.log().lines().join("\n");
    assert!(told.contains("names its state twice"), "{told}");
}
