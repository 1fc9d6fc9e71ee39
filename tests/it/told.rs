//! What a streamed answer has begun to tell is never sent again: by no door, and in no process. And
//! why a call is sent again is told by every door alike.

use crate::fixture::{Act, Call, Config, Gate, Receipts, Script, World};
use serde_json::json;

/// The head of an answer and a part of its body.
const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";

fn streams(config: Config) -> Config {
    config
        .route("response", "stream")
        .set("defaults/compensation/resend", true)
        .set(
            "defaults/compensation/rounds",
            json!(["200ms", "300ms", "400ms"]),
        )
}

/// What an operator is told, and that nothing was sent for anybody.
fn is_over(world: &World, id: &str) {
    let letter = world.gateway.wait_dead_letter(id, "MANUAL");
    assert_eq!(letter["reason"], "stream-cut", "{letter}");
    let (status, told) = world.gateway.verb(id, "resend", &json!({}));
    assert_eq!((status, &told["reason"]), (409, &json!("told")), "{told}");
    assert_eq!(world.tool.sends(id).len(), 1, "it was sent again");
}

#[test]
fn a_cut_stream_is_sent_again_by_no_door() {
    let script = Script::new()
        .otherwise(Act::read_all().commit().say(HALF).fin())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, streams);
    let mut client = world.gateway.client();
    client.send(&Call::with_id("c"));
    let answer = client.try_answer().expect("its head");
    assert!(
        answer.cut.is_some(),
        "the caller took it for a whole answer"
    );
    world.gateway.wait_until("the dead letter", || {
        (!world.gateway.dead_letters().is_empty()).then_some(())
    });
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    is_over(&world, "c");
}

#[test]
fn a_stream_that_a_crash_has_cut_is_not_sent_by_the_next_process() {
    let gate = Gate::default();
    let act = Act::read_all().commit().say(HALF).pass(&gate).fin();
    let script = Script::new()
        .otherwise(act)
        .receipts(Receipts::always(Act::not_found()));
    let mut world = World::with(script, streams);
    let mut client = world.gateway.client();
    client.send(&Call::with_id("c"));
    client.head().expect("its head");
    world.crash();
    gate.open();
    is_over(&world, "c");
}

#[test]
fn a_round_says_why_it_sends_again() {
    let unknown = Act::state("WHO_KNOWS");
    let script = Script::new()
        .request(1, Act::read_all().hang())
        .receipts(Receipts::InOrder(vec![unknown, Act::not_found()]));
    let world = World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/timeouts/total", "600ms")
            .set("defaults/timeouts/late", "100ms")
            .set("defaults/compensation/resend", true)
            .set(
                "defaults/compensation/rounds",
                json!(["200ms", "300ms", "10m"]),
            )
    });
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    world.gateway.wait_dead_letter("c", "SETTLED");
    let sends = world.tool.sends("c");
    let causes = sends.iter().map(|send| send.head.one("x-call-retry-cause"));
    let causes: Vec<_> = causes.collect();
    assert_eq!(causes, [None, Some("timeout".to_owned())]);
}
