//! Idempotency keys: the same business operation under several call ids: C08, C19, C22, C24.

use crate::duplicates::{avoided, race, wait_in_flight};
use crate::fixture::act::Step;
use crate::fixture::{Act, Call, Gate, Receipts, Reply, Script, World, assert_between, ms};
use serde_json::json;
use std::thread;

/// A gateway whose calls carry a key derived from the tracking number.
fn keyed(script: Script) -> World {
    World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s").route(
            "idempotency",
            json!({
                "key": "{body:/trackingNo}{body:/batchDate}track_sync",
                "hash": "md5",
                "send": { "header": "X-Request-Key", "body": "/requestId" },
            }),
        )
    })
}

fn parcel(id: &str) -> Call {
    Call::with_id(id).body(r#"{ "trackingNo": "SF1234567890", "batchDate": "2026-10-12" }"#)
}

#[test]
fn c19_sixty_four_racers_on_one_key_make_one_send_and_get_one_answer() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = keyed(script);
    let calls: Vec<_> = (0..64).map(|n| parcel(&format!("racer-{n}"))).collect();
    let answers = thread::scope(|scope| {
        let racing = scope.spawn(|| race(&world, calls));
        wait_in_flight(&world, 64.0);
        gate.open();
        racing.join().expect("the race ends")
    });
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    let sent = world.tool.wait_request(1);
    let first = String::from_utf8(sent.id()).expect("an id is ASCII");
    assert_eq!(
        sent.head.one("x-request-key").as_deref(),
        Some("3cd21ff31b464f02319136e8ce6d3de2")
    );
    assert_eq!(
        String::from_utf8_lossy(sent.body()),
        concat!(
            r#"{"requestId":"3cd21ff31b464f02319136e8ce6d3de2","#,
            r#" "trackingNo": "SF1234567890", "batchDate": "2026-10-12" }"#
        )
    );
    for (n, answer) in answers.iter().enumerate() {
        let own = format!("racer-{n}");
        assert_eq!(answer.status, 201, "{}", answer.text());
        assert_eq!(answer.id(), own);
        assert_eq!(answer.body, answers[0].body);
        let original = answer.field("x-original-call-id");
        if own == first {
            assert_eq!(original, None);
        } else {
            assert_eq!(
                original.as_deref(),
                Some(first.as_str()),
                "{}",
                answer.text()
            );
        }
    }
    assert_between(ms(avoided(&world, "key") as u64), 63, 63, "joining by key");
    wait_in_flight(&world, 0.0);
}

#[test]
fn c08_the_same_operation_under_a_new_id_gets_the_first_calls_answer() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let mut world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let call = |id: &str, key: &str| Call::with_id(id).field("Idempotency-Key", key);
    let mut first = world.gateway.client();
    first.send(&call("c1", "k1"));
    world.tool.wait_request(1);
    first.reset();
    let mut second = world.gateway.client();
    second.send(&call("c2", "\"k1\""));
    wait_in_flight(&world, 2.0);
    gate.open();
    let answer = second.answer();
    assert_eq!((answer.status, answer.id().as_str()), (201, "c2"));
    assert_eq!(answer.must("x-original-call-id"), "c1");
    for round in 0..2 {
        let again = world.call(&call("c2", "k1"));
        assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
        assert_eq!(again.must("x-original-call-id"), "c1");
        assert_eq!(again.must("idempotent-replayed"), "true");
        let third = world.call(&call(&format!("c3-{round}"), "k1"));
        assert_eq!((third.status, third.outcome().as_str()), (201, "replayed"));
        assert_eq!(third.must("x-original-call-id"), "c1");
        world.crash();
    }
    let receipt = world.gateway.receipt("c2").json();
    assert_eq!(receipt["callId"], "c2", "{receipt}");
    assert_eq!(receipt["originalCallId"], "c1", "{receipt}");
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn who_comes_by_the_key_of_a_queued_call_is_told_what_the_repeat_that_sends_it_is_told() {
    // The repeat that takes the call up comes by its id, and by another id with its key.
    for first in ["queued", "again"] {
        let gate = Gate::default();
        let unheard = Act::read_all().pass(&gate).then(Step::Answer(Reply::json(
            404,
            r#"{"error":"no such call"}"#,
        )));
        let script = Script::new()
            .request(1, Act::read_all().reset())
            .receipts(Receipts::always(unheard));
        let world = World::with(script, |config| {
            config
                .set("defaults/timeouts/total", "1500ms")
                .set("defaults/timeouts/receipt", "1s")
                .set("defaults/retry/base", "300ms")
                .set("defaults/compensation/rounds", json!(["1h"]))
        });
        let call = |id: &str| Call::with_id(id).field("Idempotency-Key", "k1");
        world.call(&call("queued")).problem(504, "unresolved");
        world.gateway.wait_dead_letter("queued", "QUEUED");
        thread::sleep(ms(320));
        let asked = world.tool.queries("queued").len();
        let mut repeat = world.gateway.client();
        repeat.send(&call(first));
        world
            .tool
            .book()
            .wait("the question of the repeat", |pages| {
                (pages.asked_of("queued") > asked).then_some(())
            });
        let joining = ["key-1", "key-2", "key-3", "queued"].map(call);
        let answers = thread::scope(|scope| {
            let racing = scope.spawn(|| race(&world, joining.to_vec()));
            wait_in_flight(&world, 5.0);
            gate.open();
            racing.join().expect("the race ends")
        });
        let told = repeat.answer();
        assert_eq!((told.status, told.outcome().as_str()), (201, "answered"));
        for answer in &answers {
            assert_eq!(answer.status, 201, "{first}: {}", answer.text());
            assert_eq!((&answer.body, answer.attempts()), (&told.body, 2));
            let original = (answer.id() != "queued").then(|| "queued".to_owned());
            assert_eq!(answer.field("x-original-call-id"), original);
        }
        assert_eq!((world.tool.a(), world.tool.e()), (2, 1));
    }
}

#[test]
fn c22_a_key_with_another_request_is_refused_while_it_runs_and_afterwards() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let call = |id: &str, body: &str| Call::with_id(id).field("Idempotency-Key", "k1").body(body);
    let mut first = world.gateway.client();
    first.send(&call("c1", r#"{"amt":200}"#));
    world.tool.wait_request(1);
    let refused = world.call(&call("c2", r#"{"amt":500}"#));
    refused.problem(422, "idempotency-key-reused");
    assert_eq!(refused.id(), "c2");
    let known_id = Call::with_id("c1")
        .field("Idempotency-Key", "k2")
        .body(r#"{"amt":200}"#);
    world.call(&known_id).problem(422, "call-id-reused");
    gate.open();
    assert_eq!(first.answer().status, 201);
    world
        .call(&call("c2", r#"{"amt":500}"#))
        .problem(422, "idempotency-key-reused");
    world.call(&known_id).problem(422, "call-id-reused");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c24_a_key_is_released_by_a_refusal_and_kept_by_what_is_unknown() {
    let refusal = Reply::json(422, r#"{"error":"no"}"#);
    let script = Script::new()
        .request(1, Act::says(refusal))
        .request(3, Act::read_all().commit().hang());
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "500ms")
            .set("defaults/compensation/rounds", json!(["1h"]))
            .without_receipt()
    });
    let call = |id: &str, key: &str| Call::with_id(id).field("Idempotency-Key", key);
    assert_eq!(world.call(&call("k3-a", "k3")).status, 422);
    let replayed = world.call(&call("k3-a", "k3"));
    assert_eq!(
        (replayed.status, replayed.outcome().as_str()),
        (422, "replayed")
    );
    let anew = world.call(&call("k3-b", "k3"));
    assert_eq!((anew.status, anew.outcome().as_str()), (201, "answered"));
    assert_eq!(anew.field("x-original-call-id"), None);
    assert_eq!(world.tool.a(), 2);
    world.call(&call("k4-a", "k4")).problem(504, "unresolved");
    let still = world.call(&call("k4-b", "k4"));
    still.problem(504, "unresolved");
    assert_eq!(
        (
            still.id().as_str(),
            still.must("x-original-call-id").as_str()
        ),
        ("k4-b", "k4-a")
    );
    assert_eq!(world.tool.a(), 3);
}

#[test]
fn keys_that_cannot_be_read_are_refused_and_nothing_is_sent() {
    let world = keyed(Script::new());
    let bad = |call: Call| {
        let told = world.call(&call);
        let problem = told.problem(400, "bad-request");
        assert_eq!(problem["sent"], "unknown", "{problem}");
        problem["detail"].as_str().unwrap_or_default().to_owned()
    };
    let own = |key: &str| parcel("bad").field("Idempotency-Key", key);
    bad(own("a").field("Idempotency-Key", "a"));
    bad(own(""));
    bad(own(&"k".repeat(256)));
    assert!(bad(parcel("bad").body(r#"{"trackingNo":"x"}"#)).contains("{body:/batchDate}"));
    bad(parcel("bad").body("no json"));
    assert_eq!(world.tool.a(), 0);
    assert_eq!(world.call(&own("fits")).status, 201);
    assert_eq!(
        world
            .tool
            .wait_request(1)
            .head
            .one("x-request-key")
            .as_deref(),
        Some("fits")
    );
}

#[test]
fn a_route_may_demand_a_key() {
    let world = World::with(Script::new(), |config| {
        config.route("idempotency", json!({ "required": true }))
    });
    world
        .call(&Call::with_id("none"))
        .problem(400, "idempotency-key-required");
    assert_eq!(world.tool.a(), 0);
    let with_key = Call::with_id("none").field("Idempotency-Key", "k");
    assert_eq!(world.call(&with_key).status, 201);
}
