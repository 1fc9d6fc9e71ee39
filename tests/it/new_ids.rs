//! The same request under a new id (`detect_new_ids`): a caller that leaves its ids to the gateway
//! and repeats.

use crate::duplicates::{race, wait_in_flight};
use crate::fixture::{Act, Answer, Call, Gate, Script, World};

fn world(gate: &Gate, mode: &str) -> World {
    let script = Script::new().otherwise(Act::read_all().commit().pass(gate).answer_result());
    World::with(script, |config| {
        config.slow(5).set("defaults/detect_new_ids", mode)
    })
}

fn suspected(world: &World) -> f64 {
    let metrics = world.gateway.metrics();
    metrics.value("callgate_suspected_repeats_total", &[("route", "tool")])
}

/// The call id under which the n-th request reached the tool.
fn sent_as(world: &World, n: usize) -> String {
    String::from_utf8(world.tool.wait_request(n).id()).expect("an id is ASCII")
}

fn refused(answer: &Answer, first: &str) {
    let problem = answer.problem(409, "new-id-for-running-call");
    assert_eq!(problem["firstCallId"], first, "{problem}");
    assert_eq!(
        (&problem["sent"], &problem["repeat"]),
        (&"no".into(), &"never".into())
    );
    assert_eq!(answer.must("x-original-call-id"), first);
    assert_eq!(answer.outcome(), "refused");
    assert_ne!(answer.id(), first);
}

#[test]
fn the_same_request_under_a_new_id_is_told_of_and_sent() {
    let gate = Gate::default();
    let world = world(&gate, "warn");
    let mut first = world.gateway.client();
    first.send(&Call::post());
    let name = sent_as(&world, 1);
    let mut second = world.gateway.client();
    second.send(&Call::post());
    let other = sent_as(&world, 2);
    gate.open();
    assert_eq!((first.answer().status, second.answer().status), (201, 201));
    assert_eq!(suspected(&world), 1.0);
    let told = world.gateway.log().records();
    let told: Vec<_> = told
        .iter()
        .filter(|line| line["first_call_id"] != serde_json::Value::Null)
        .collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        (&told[0]["first_call_id"], &told[0]["call_id"]),
        (&name.into(), &other.into())
    );
    // It is over: the next one is another order.
    wait_in_flight(&world, 0.0);
    assert_eq!(world.call(&Call::post()).status, 201);
    assert_eq!((suspected(&world), world.tool.a()), (1.0, 3));
}

#[test]
fn the_same_request_under_a_new_id_is_refused_where_the_route_says_block() {
    let gate = Gate::default();
    let mut world = world(&gate, "block");
    let mut first = world.gateway.client();
    first.send(&Call::post());
    let name = sent_as(&world, 1);
    refused(&world.call(&Call::post()), &name);
    assert_eq!((suspected(&world), world.tool.a()), (1.0, 1));
    // What is named, or asks for something else, is no such repeat.
    let others = [
        Call::with_id("own"),
        Call::post().field("Idempotency-Key", "own"),
        Call::post().body(r#"{"n":2}"#),
    ];
    let mut clients: Vec<_> = others
        .iter()
        .map(|call| {
            let mut client = world.gateway.client();
            client.send(call);
            client
        })
        .collect();
    world.tool.wait_request(4);
    // The advice of the refusal leads to the first call's answer.
    let mut advised = world.gateway.client();
    advised.send(&Call::with_id(&name));
    wait_in_flight(&world, 5.0);
    gate.open();
    assert_eq!((first.answer().status, advised.answer().status), (201, 201));
    for client in &mut clients {
        assert_eq!(client.answer().status, 201);
    }
    wait_in_flight(&world, 0.0);
    assert_eq!((suspected(&world), world.tool.a()), (1.0, 4));
    world.crash();
    assert_eq!(
        world.call(&Call::post()).status,
        201,
        "all of them are over"
    );
}

#[test]
fn a_call_in_the_queue_still_stands_in_the_way_of_its_repeat_also_after_a_crash() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().pass(&gate).fin());
    let mut world = World::with(script, |config| {
        config
            .slow(5)
            .route("detect_new_ids", "block")
            .set("defaults/compensation/rounds", serde_json::json!(["1h"]))
    });
    let mut first = world.gateway.client();
    first.send(&Call::post());
    let name = sent_as(&world, 1);
    world.crash();
    refused(&world.call(&Call::post()), &name);
    // The round after the crash was the last one: it is in front of a human, and still open.
    world.gateway.wait_dead_letter(&name, "MANUAL");
    refused(&world.call(&Call::post()), &name);
    assert_eq!((suspected(&world), world.tool.a()), (2.0, 1));
    gate.open();
}

#[test]
fn of_64_racers_without_an_id_one_is_sent() {
    let gate = Gate::default();
    let world = world(&gate, "block");
    let answers = std::thread::scope(|scope| {
        let racing = scope.spawn(|| race(&world, (0..64).map(|_| Call::post()).collect()));
        world.tool.wait_request(1);
        world.gateway.wait_until("everybody else is refused", || {
            (suspected(&world) >= 63.0).then_some(())
        });
        gate.open();
        racing.join().expect("the race ends")
    });
    let name = sent_as(&world, 1);
    let (sent, others): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 201);
    assert_eq!((sent.len(), others.len(), world.tool.a()), (1, 63, 1));
    for other in others {
        refused(other, &name);
    }
}
