//! Answers that never end, and nobody there who reads them: every call ends, and gives back what it
//! holds.

use crate::batches::{document, file, push};
use crate::fixture::{Act, Call, Config, Receipts, Script, World, assert_between, ms};
use serde_json::json;
use std::time::Instant;

const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Transfer-Encoding: chunked\r\n\r\n";
const DOCUMENT: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";

/// Longer than any test runs.
const FOR_EVER: usize = 100_000;

/// The work is done, and then there is a sign of life now and then.
fn beats() -> Act {
    let act = Act::read_all().commit().say(EVENTS);
    act.drip(b"8\r\n: beat.\n\r\n", FOR_EVER, ms(20))
}

/// Past every limit within a blink, and on from there.
fn flood(act: Act) -> Act {
    let piece = [b"4000\r\n", &[b'x'; 0x4000][..], b"\r\n"].concat();
    act.say(DOCUMENT).drip(&piece, FOR_EVER, ms(2))
}

/// Half a second for an attempt, two for all of it, and one place among the sends.
fn bounded(config: Config) -> Config {
    config
        .set("defaults/timeouts/attempt", "500ms")
        .set("defaults/timeouts/total", "2s")
        .set("defaults/timeouts/late", "500ms")
        .route("upstream/concurrency", json!({ "max": 1, "queue": 1 }))
}

fn wait_success(world: &World, id: &str) {
    world.gateway.wait_until(&format!("{id} is settled"), || {
        let receipt = world.gateway.receipt(id).json();
        (receipt["state"] == "SUCCESS").then_some(())
    });
}

fn unread(world: &World) -> f64 {
    let labels = [("bound", "unread-answers")];
    let bounds = "callgate_bounds_reached_total";
    world.gateway.metrics().value(bounds, &labels)
}

#[test]
fn an_endless_answer_whose_caller_has_left_ends_and_frees_its_place() {
    for gone in ["finish", "cancel"] {
        let script = Script::new().request(1, beats());
        let world = World::with(script, |config| {
            bounded(config).route("on_client_gone", gone)
        });
        let mut caller = world.gateway.client();
        caller.send(&Call::with_id("left"));
        caller.head().expect("its head");
        caller.reset();
        world.tool.wait_gone(1);
        wait_success(&world, "left");
        let next = world.call(&Call::with_id("next"));
        assert_eq!((next.status, next.outcome().as_str()), (201, "answered"));
        assert_eq!(unread(&world), 1.0);
        assert_eq!((world.tool.a(), world.tool.e()), (2, 2));
    }
}

#[test]
fn an_answer_without_an_end_is_read_as_long_as_its_caller_does() {
    let world = World::with(Script::new().request(1, beats()), bounded);
    let mut caller = world.gateway.client();
    caller.send(&Call::with_id("stays"));
    caller.head().expect("its head");
    let began = Instant::now();
    while began.elapsed() < ms(3_500) {
        caller.more().expect("a sign of life past all timeouts");
    }
    assert_eq!(unread(&world), 0.0);
    caller.reset();
    wait_success(&world, "stays");
}

#[test]
fn an_endless_answer_to_a_resend_ends_its_round() {
    let script = Script::new()
        .request(1, Act::read_all().reset())
        .request(2, Act::read_all().reset())
        .otherwise(flood(Act::read_all().commit()));
    let world = World::with(script, |config| {
        bounded(config)
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/resend", true)
            .set("defaults/compensation/workers", 1)
    });
    for id in ["one", "two"] {
        world.call(&Call::with_id(id)).problem(504, "unresolved");
    }
    wait_success(&world, "one");
    wait_success(&world, "two");
    assert_eq!(unread(&world), 2.0);
}

#[test]
fn endless_answers_nobody_waits_for_end_accepted_calls_and_batches() {
    let script = Script::new()
        .request(1, beats())
        .otherwise(flood(Act::read_all().commit()));
    let world = World::with(script, bounded);
    let accepted = Call::with_id("accepted").field("Prefer", "respond-async");
    assert_eq!(world.call(&accepted).status, 202);
    wait_success(&world, "accepted");
    let rows = file(&world.gateway, "rows.csv", "no\n1\n2\n");
    let pushed = push(&world.gateway, &rows, &["--workers", "1"]);
    assert_eq!(pushed.code, 0, "{pushed:?}");
    assert_eq!(document(&pushed)["done"], 2, "{pushed:?}");
    assert_eq!((world.tool.a(), world.tool.e()), (3, 3));
}

#[test]
fn a_late_answer_without_an_end_keeps_no_caller_waiting() {
    let act = flood(Act::read_all().commit().wait(600));
    let script = Script::new()
        .otherwise(act)
        .receipts(Receipts::always(Act::state("PROCESSING")));
    let world = World::with(script, bounded);
    let began = Instant::now();
    world
        .call(&Call::with_id("late"))
        .problem(504, "unresolved");
    assert_between(began.elapsed(), 1_500, 10_000, "all the time a call has");
}

#[test]
fn an_endless_answer_that_nobody_reads_does_not_hold_a_drain() {
    let mut world = World::with(Script::new().request(1, beats()), |config| {
        config.slow(10).set("drain/grace", "25s")
    });
    let mut caller = world.gateway.client();
    caller.send(&Call::with_id("left"));
    caller.head().expect("its head");
    caller.reset();
    world.gateway.signal_term();
    let began = Instant::now();
    let status = world.gateway.wait_exit();
    assert!(status.success(), "{status}");
    assert_between(began.elapsed(), 0, 10_000, "a grace of twenty-five seconds");
    world.restart();
    wait_success(&world, "left");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}
