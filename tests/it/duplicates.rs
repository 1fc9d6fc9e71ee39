//! The same call again, at once, later, after its end, after a crash: C19, C21, C22, C25, C61d.

use crate::fixture::{Act, Call, Gate, Receipts, Reply, Script, World, assert_between, ms};
use serde_json::json;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

/// Sends each call on a connection of its own, all at the same moment; their answers in order.
pub(crate) fn race(world: &World, calls: Vec<Call>) -> Vec<crate::fixture::Answer> {
    let barrier = Arc::new(Barrier::new(calls.len()));
    thread::scope(|scope| {
        let racers: Vec<_> = calls
            .into_iter()
            .map(|call| {
                let (mut client, barrier) = (world.gateway.client(), Arc::clone(&barrier));
                scope.spawn(move || {
                    barrier.wait();
                    client.call(&call)
                })
            })
            .collect();
        racers
            .into_iter()
            .map(|racer| racer.join().expect("a racer is answered"))
            .collect()
    })
}

/// Waits until so many callers are in the gateway.
pub(crate) fn wait_in_flight(world: &World, callers: f64) {
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[], callers);
}

pub(crate) fn avoided(world: &World, how: &str) -> f64 {
    let metrics = world.gateway.metrics();
    metrics.value("callgate_duplicates_avoided_total", &[("how", how)])
}

#[test]
fn c19_sixty_four_racers_on_one_id_make_one_send_and_get_one_answer() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let answers = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&world, vec![Call::with_id("c19"); 64]));
        wait_in_flight(&world, 64.0);
        gate.open();
        racing.join().expect("the race ends")
    });
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    for answer in &answers {
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.outcome(), "answered");
        assert_eq!(answer.field("idempotent-replayed"), None);
        assert_eq!(answer.id(), "c19");
        assert_eq!(answer.must("x-tool"), answers[0].must("x-tool"));
        assert_eq!(answer.body, answers[0].body);
        assert_eq!(answer.attempts(), 1);
    }
    assert_between(ms(avoided(&world, "join") as u64), 63, 63, "joining");
    wait_in_flight(&world, 0.0);
}

#[test]
fn a_repeat_waits_as_long_as_it_says_and_is_then_told_that_the_call_runs() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("runs"));
    world.tool.wait_request(1);
    let began = Instant::now();
    let told = world.call(&Call::with_id("runs").field("Prefer", "wait=1"));
    assert_between(began.elapsed(), 1000, 1900, "the wait");
    let problem = told.problem(409, "in-progress");
    assert_eq!(problem["state"], "PROCESSING", "{problem}");
    assert_eq!(problem["sent"], "maybe", "{problem}");
    assert_eq!(problem["repeat"], "same-call-id-only", "{problem}");
    assert_eq!(told.attempts(), 1);
    assert_eq!(told.must("retry-after"), "1");
    let at_once = world.call(&Call::with_id("runs").field("Prefer", "wait=0"));
    at_once.problem(409, "in-progress");
    gate.open();
    assert_eq!(first.answer().status, 201);
    let after = world.call(&Call::with_id("runs"));
    assert_eq!((after.status, after.outcome().as_str()), (201, "replayed"));
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c22_another_request_is_refused_before_anything_is_said_about_the_running_one() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let call = |body: &str| Call::with_id("c22").body(body);
    let mut first = world.gateway.client();
    first.send(&call(r#"{"amt":200}"#));
    world.tool.wait_request(1);
    let others = [
        call(r#"{"amt":500}"#),
        call(r#"{ "amt" : 200 }"#),
        call(r#"{"amt":200.0}"#),
        Call::post_to("/other")
            .field("X-Call-Id", "c22")
            .body(r#"{"amt":200}"#),
        Call::new("PUT", "/tool")
            .field("X-Call-Id", "c22")
            .body(r#"{"amt":200}"#),
    ];
    for other in &others {
        world.call(other).problem(422, "call-id-reused");
    }
    gate.open();
    assert_eq!(first.answer().status, 201);
    for other in &others {
        world.call(other).problem(422, "call-id-reused");
    }
    let other_type = call(r#"{"amt":200}"#).set("Content-Type", "text/plain");
    let same = world.call(&other_type);
    assert_eq!((same.status, same.outcome().as_str()), (201, "replayed"));
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c61d_many_callers_of_few_calls_finish_on_one_core_and_on_two() {
    for workers in [1, 2] {
        let script = Script::new().otherwise(Act::read_all().wait(30).commit().answer_result());
        let world = World::with(script, |config| config.set("workers", workers));
        let calls = |round: usize| {
            (0..96)
                .map(|n| Call::with_id(&format!("c61d-{round}-{}", n % 3)))
                .collect::<Vec<_>>()
        };
        for round in 0..4 {
            for answer in race(&world, calls(round)) {
                assert_eq!(answer.status, 201, "{}", answer.text());
            }
        }
        assert_eq!((world.tool.a(), world.tool.e()), (12, 12), "{workers}");
        wait_in_flight(&world, 0.0);
    }
}

#[test]
fn callers_who_join_a_streamed_answer_are_told_that_it_runs() {
    let gate = Gate::default();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 8\r\n\r\n";
    let stream = Act::read_all()
        .commit()
        .pass(&gate)
        .say(head)
        .say("data")
        .wait(300)
        .say(": 1\n");
    let world = World::with(Script::new().otherwise(stream), |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let (mut first, mut second) = (world.gateway.client(), world.gateway.client());
    first.send(&Call::with_id("stream"));
    world.tool.wait_request(1);
    second.send(&Call::with_id("stream"));
    wait_in_flight(&world, 2.0);
    gate.open();
    second.answer().problem(409, "in-progress");
    let streamed = first.answer();
    assert_eq!(
        (streamed.status, streamed.body.as_slice()),
        (200, &b"data: 1\n"[..])
    );
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn the_first_callers_leaving_is_no_cancel_while_another_one_waits() {
    let gate = Gate::default();
    let script = Script::new()
        .request(1, Act::read_all().pass(&gate).reset())
        .receipts(Receipts::at_commit());
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/attempt", "2s")
            .route("on_client_gone", "cancel")
    });
    let (mut first, mut second) = (world.gateway.client(), world.gateway.client());
    first.send(&Call::with_id("stays"));
    world.tool.wait_request(1);
    second.send(&Call::with_id("stays"));
    wait_in_flight(&world, 2.0);
    first.reset();
    gate.open();
    let answer = second.answer();
    assert_eq!(
        (answer.status, answer.attempts()),
        (201, 2),
        "{}",
        answer.text()
    );
    assert_eq!((world.tool.a(), world.tool.e()), (2, 1));
}

/// Lost on the way: the tool did the work, and neither its answer nor its receipt comes back until
/// the gate opens.
fn unresolved(id: &str, known: Act) -> Script {
    let unknown = Act::says(Reply::json(500, "{}"));
    Script::new()
        .otherwise(Act::read_all().commit().reset())
        .receipts_of(id, vec![unknown.clone(), unknown, known])
}

/// A gateway whose calls give up after one unclear answer and wait an hour for their first round.
fn patient(script: Script) -> World {
    World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/timeouts/total", "400ms")
            .set("defaults/timeouts/attempt", "200ms")
            .set("defaults/retry/base", "1s")
            .set("defaults/retry/cap", "1s")
            .set("defaults/compensation/rounds", json!(["1h"]))
    })
}

#[test]
fn a_repeat_of_an_unresolved_call_is_one_shared_question_and_no_send() {
    let gate = Gate::default();
    let result = Script::new().result;
    let late = Act::read_all()
        .pass(&gate)
        .then(crate::fixture::act::Step::Answer(Reply::json(
            200,
            result.in_receipt("SUCCESS"),
        )));
    let world = patient(unresolved("asked", late));
    let first = world.call(&Call::with_id("asked"));
    first.problem(504, "unresolved");
    let before = world.gateway.wait_dead_letter("asked", "QUEUED");
    let asked = world.tool.queries("asked").len();
    let at_once = world.call(&Call::with_id("asked"));
    let problem = at_once.problem(504, "unresolved");
    assert_eq!(problem["deadLetter"]["state"], "QUEUED", "{problem}");
    assert_eq!(
        world.tool.queries("asked").len(),
        asked,
        "it was asked a moment ago"
    );
    thread::sleep(ms(1020));
    let answers = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&world, vec![Call::with_id("asked"); 16]));
        wait_in_flight(&world, 16.0);
        gate.open();
        racing.join().expect("the race ends")
    });
    for answer in &answers {
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.body, result.body);
    }
    assert_eq!(world.tool.queries("asked").len(), asked + 1);
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    let after = world.gateway.wait_dead_letter("asked", "SETTLED");
    assert_eq!(after["round"], before["round"]);
    let again = world.call(&Call::with_id("asked"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
}

#[test]
fn a_repeat_that_learns_nothing_moves_no_round() {
    let unknown = Act::says(Reply::json(500, "{}"));
    let world = patient(unresolved("still", unknown));
    world
        .call(&Call::with_id("still"))
        .problem(504, "unresolved");
    let before = world.gateway.wait_dead_letter("still", "QUEUED");
    let asked = world.tool.queries("still").len();
    thread::sleep(ms(1020));
    world
        .call(&Call::with_id("still"))
        .problem(504, "unresolved");
    assert_eq!(world.tool.queries("still").len(), asked + 1);
    let after = world.gateway.wait_dead_letter("still", "QUEUED");
    for field in ["round", "next_retry_time", "fail_count"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_repeat_resends_what_the_tool_never_heard_of_within_the_allowance_and_no_further() {
    // Every send dies unread and the tool knows nothing: two resends are allowed over the life of
    // the call, in line and by repeats together.
    let script = Script::new()
        .otherwise(Act::read_all().reset())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 2)
            .set("defaults/timeouts/total", "400ms")
            .set("defaults/retry/base", "300ms")
            .set("defaults/retry/cap", "300ms")
            .set("defaults/retry/jitter", 0)
            .set("defaults/compensation/rounds", json!(["1h"]))
    });
    world
        .call(&Call::with_id("rare"))
        .problem(504, "unresolved");
    world.gateway.wait_dead_letter("rare", "QUEUED");
    let in_line = world.tool.a();
    assert!((1..=2).contains(&in_line), "{in_line} sends in line");
    for _ in 0..3 {
        thread::sleep(ms(320));
        world
            .call(&Call::with_id("rare"))
            .problem(504, "unresolved");
    }
    assert_eq!(world.tool.a(), 3, "one send and two resends");
    let sends = world.tool.sends("rare");
    let numbers: Vec<_> = sends
        .iter()
        .filter_map(|seen| seen.head.one("x-call-attempt"))
        .collect();
    assert_eq!(numbers, ["1", "2", "3"]);
    world.gateway.wait_dead_letter("rare", "QUEUED");
}

#[test]
fn a_call_in_front_of_a_human_is_asked_about_and_never_sent() {
    let result = Script::new().result;
    let answers = vec![
        Act::not_found(),
        Act::not_found(),
        Act::not_found(),
        Act::state_with("SUCCESS", &result),
    ];
    let script = Script::new()
        .otherwise(Act::read_all().commit().reset())
        .receipts_of("human", answers);
    let world = World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/retry/base", "300ms")
            .set("defaults/timeouts/total", "400ms")
            .set("defaults/compensation/rounds", json!(["50ms"]))
    });
    world
        .call(&Call::with_id("human"))
        .problem(504, "unresolved");
    world.gateway.wait_dead_letter("human", "MANUAL");
    let mut told = Vec::new();
    let answer = loop {
        thread::sleep(ms(310));
        let answer = world.call(&Call::with_id("human"));
        if answer.status == 201 {
            break answer;
        }
        let problem = answer.problem(504, "unresolved");
        assert_eq!(problem["deadLetter"]["state"], "MANUAL", "{problem}");
        told.push(problem);
        assert!(told.len() < 4, "the receipt is never asked");
    };
    assert_eq!(answer.outcome(), "receipt");
    assert_eq!(world.tool.a(), 1);
    world.gateway.wait_dead_letter("human", "SETTLED");
}

#[test]
fn a_repeat_during_a_round_waits_for_its_receipt() {
    let gate = Gate::default();
    let result = Script::new().result;
    let unknown = Act::says(Reply::json(500, "{}"));
    let late = Act::read_all()
        .pass(&gate)
        .answer(Reply::json(200, result.in_receipt("SUCCESS")));
    let script = Script::new()
        .otherwise(Act::read_all().commit().reset())
        .receipts_of("round", vec![unknown.clone(), unknown, late]);
    let world = World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/retry/base", "200ms")
            .set("defaults/timeouts/total", "2s")
            .set("defaults/timeouts/receipt", "1500ms")
            .set("defaults/compensation/rounds", json!(["1s"]))
    });
    world
        .call(&Call::with_id("round"))
        .problem(504, "unresolved");
    let asked = world.tool.queries("round").len() + 1;
    world.gateway.wait_dead_letter("round", "RUNNING");
    world
        .tool
        .book()
        .wait("the question of the round", |pages| {
            (pages.asked_of("round") >= asked).then_some(())
        });
    let mut second = world.gateway.client();
    second.send(&Call::with_id("round"));
    wait_in_flight(&world, 1.0);
    gate.open();
    let answer = second.answer();
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.body, result.body);
    assert_eq!(world.tool.queries("round").len(), asked);
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c21_after_a_crash_the_repeat_asks_the_receipt_and_sends_nothing() {
    let gate = Gate::default();
    let script = Script::new().request(1, Act::read_all().commit().pass(&gate).hang());
    let mut world = World::with(script, |config| {
        config.set("defaults/compensation/rounds", json!(["1h"]))
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("c21"));
    world.tool.wait_effect(1);
    world.crash();
    gate.open();
    let answer = world.call(&Call::with_id("c21"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert!(
        ["receipt", "replayed"].contains(&answer.outcome().as_str()),
        "{}",
        answer.text()
    );
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn c25_c27_the_replay_is_the_same_answer_byte_for_byte_also_after_a_kill() {
    // A gzip member of nothing much: what matters is that nobody unpacks it.
    let gzip = [
        0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0x03, 0x03, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let plain = Reply::new(201, b"caf\xff\n".to_vec())
        .field("Location", "/x/1")
        .field("ETag", "\"a\"")
        .field("Content-Type", "application/json")
        .field("Set-Cookie", "session=secret");
    let packed = Reply::new(200, gzip.to_vec())
        .field("Content-Encoding", "gzip")
        .field("Content-Type", "application/json");
    for reply in [plain, packed] {
        let script = Script::new().otherwise(Act::read_all().commit().answer(reply));
        let mut world = World::new(script);
        let first = world.call(&Call::with_id("c25"));
        assert_eq!(first.field("idempotent-replayed"), None);
        for round in 0..3 {
            if round == 2 {
                world.crash();
            }
            let again = world.call(&Call::with_id("c25"));
            assert_eq!(again.status, first.status);
            assert_eq!(again.body, first.body, "{}", again.text());
            for field in ["location", "etag", "content-type", "content-encoding"] {
                assert_eq!(again.field(field), first.field(field), "{field}");
            }
            assert_eq!(again.must("idempotent-replayed"), "true");
            assert_eq!(again.outcome(), "replayed");
            assert_eq!(again.field("set-cookie"), None);
        }
        assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    }
}

#[test]
fn a_result_that_was_too_large_to_keep_is_described_and_not_made_again() {
    let reply = Reply::new(200, vec![b'x'; 4096]).field("ETag", "\"big\"");
    let script = Script::new().otherwise(Act::read_all().commit().answer(reply));
    let world = World::with(script, |config| {
        config.set("defaults/body/max_kept_response", "1KiB")
    });
    let first = world.call(&Call::with_id("big"));
    assert_eq!((first.status, first.body.len()), (200, 4096));
    let told = world.call(&Call::with_id("big"));
    let problem = told.problem(409, "result-not-kept");
    assert_eq!(problem["state"], "SUCCESS", "{problem}");
    assert_eq!(problem["repeat"], "never", "{problem}");
    assert_eq!(problem["result"]["status"], 200, "{problem}");
    assert_eq!(problem["result"]["headers"]["etag"], "\"big\"", "{problem}");
    assert_eq!(problem["result"]["bodyBytes"], 4096, "{problem}");
    assert_eq!(
        problem["result"]["bodySha256"],
        // printf 'x%.0s' {1..4096} | sha256sum
        "a2e659dacb4691e887ac0139f8893d04764ee197d70fb73d3190d56113d18e3e",
        "{problem}"
    );
    assert_eq!(world.tool.a(), 1);
}
