//! Who is turned away because the tool has as many calls as it may: what is told, counted and
//! written, and who is not turned away.

use crate::fixture::{Act, Answer, Call, Client, Gate, PATIENCE, Script, World};
use serde_json::{Value, json};

/// A tool with one place, no queue, and a call that has the place until `gate` opens.
fn full(effects: &str, gate: &Gate) -> (World, Client) {
    let held = Act::read_all().commit().pass(gate).answer_result();
    let world = World::with(Script::new().request(2, held), |config| {
        config
            .slow(20)
            .route("effects", effects)
            .route("upstream/concurrency", json!({ "max": 1, "queue": 0 }))
    });
    let known = Call::with_id("known").field("Idempotency-Key", "known-key");
    assert_eq!(world.call(&known).status, 201);
    let mut holds = world.gateway.client();
    holds.send(&Call::with_id("holds").field("Idempotency-Key", "held-key"));
    world.tool.wait_request(2);
    (world, holds)
}

fn counted(world: &World, name: &str, labels: &[(&str, &str)]) -> f64 {
    world.gateway.metrics().value(name, labels)
}

fn is_turned_away(answer: &Answer) -> Value {
    assert_eq!(answer.outcome(), "refused");
    assert_eq!(answer.must("retry-after"), "1");
    assert_eq!(answer.attempts(), 0);
    let problem = answer.problem(503, "overloaded");
    assert_eq!(problem["callId"], answer.id());
    problem
}

/// A refusal is one call, one problem, one bound that was reached, one line.
fn is_told_once(world: &World, answer: &Answer) {
    let (id, route) = (answer.id(), ("route", "tool"));
    let calls = [route, ("outcome", "refused")];
    assert_eq!(counted(world, "callgate_calls_total", &calls), 1.0);
    let refused = [route, ("code", "overloaded")];
    assert_eq!(counted(world, "callgate_refused_total", &refused), 1.0);
    let bound = [("bound", "concurrency")];
    assert_eq!(counted(world, "callgate_bounds_reached_total", &bound), 1.0);
    let line = world
        .gateway
        .log()
        .wait(PATIENCE, |line| line["call_id"] == *id);
    let line = line.expect("a line about the refused call");
    assert_eq!(line["msg"], "call");
    for (name, value) in [
        ("outcome", "refused"),
        ("code", "overloaded"),
        ("trace_id", "0af7651916cd43dd8448eb211c80319c"),
    ] {
        assert_eq!(line[name], value, "{line}");
    }
    let receipt = world.gateway.receipt(&id);
    assert_eq!(receipt.problem(404, "receipt-not-found")["callId"], id);
}

fn traced(call: Call) -> Call {
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    call.field("traceparent", parent)
}

#[test]
fn a_call_under_a_new_id_is_turned_away_at_once_and_binds_nothing() {
    let gate = Gate::default();
    let (world, mut holds) = full("once", &gate);
    let answer = world.call(&traced(Call::post()));
    let problem = is_turned_away(&answer);
    assert_eq!(answer.must("x-call-id-source"), "gateway");
    assert_eq!(
        (&problem["sent"], &problem["repeat"]),
        (&json!("unknown"), &json!("same-call-id-only"))
    );
    is_told_once(&world, &answer);
    gate.open();
    assert_eq!(holds.answer().status, 201);
    let again = Call::with_id(&answer.id()).field("X-Call-Id-Source", "gateway");
    assert_eq!(world.call(&again).outcome(), "answered");
}

#[test]
fn a_request_without_effects_is_turned_away_as_safe_to_repeat() {
    let gate = Gate::default();
    let (world, mut holds) = full("none", &gate);
    let world = world.without_history();
    let answer = world.call(&traced(Call::post()));
    let problem = is_turned_away(&answer);
    assert_eq!(
        (&problem["sent"], &problem["repeat"]),
        (&json!("no"), &json!("safe"))
    );
    is_told_once(&world, &answer);
    gate.open();
    assert_eq!(holds.answer().status, 201);
}

#[test]
fn what_a_key_or_an_id_names_is_answered_where_new_calls_are_turned_away() {
    let gate = Gate::default();
    let (world, mut holds) = full("once", &gate);
    let keyed = |call: Call, key: &str| call.field("Idempotency-Key", key);
    for call in [Call::post(), Call::with_id("other")] {
        let replayed = world.call(&keyed(call, "known-key"));
        assert_eq!(replayed.outcome(), "replayed", "{}", replayed.text());
        assert_eq!(replayed.must("x-original-call-id"), "known");
        let mismatch = Call::post().body(b"another");
        world
            .call(&keyed(mismatch, "known-key"))
            .problem(422, "idempotency-key-reused");
    }
    is_turned_away(&world.call(&keyed(Call::post(), "new-key")));
    is_turned_away(&world.call(&Call::with_id("new")));
    // A repeat of the running call waits for its end.
    let mut joins = world.gateway.client();
    joins.send(&keyed(Call::post(), "held-key"));
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[("route", "tool")], 2.0);
    gate.open();
    assert_eq!(holds.answer().status, 201);
    let joined = joins.answer();
    assert_eq!(
        (joined.status, joined.must("x-original-call-id")),
        (201, "holds".into())
    );
    assert_eq!((world.tool.sends("known").len(), world.tool.a()), (1, 2));
}

#[test]
fn a_repeat_under_a_new_id_hears_of_the_open_call_also_where_no_place_is_free() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().request(1, held), |config| {
        config
            .slow(20)
            .route("detect_new_ids", "block")
            .route("upstream/concurrency", json!({ "max": 1, "queue": 0 }))
    });
    let mut holds = world.gateway.client();
    holds.send(&Call::post());
    world.tool.wait_request(1);
    world
        .call(&Call::post())
        .problem(409, "new-id-for-running-call");
    is_turned_away(&world.call(&Call::post().body(b"another")));
    gate.open();
    assert_eq!(holds.answer().status, 201);
}
