//! What keys belong to, what makes a request the same, former names, and ids in bodies: C22, C23.

use crate::fixture::gateway::folder;
use crate::fixture::{Act, Call, Config, Gate, Script, Tool, World};
use serde_json::{Value, json};
use std::fs;

fn keyed(id: &str) -> Call {
    Call::with_id(id).field("Idempotency-Key", "k1")
}

/// Two routes to one tool, told apart by the host.
fn two_routes(config: Config, tool: &Tool, bend: impl Fn(&str) -> Value) -> Config {
    let route = |name: &str| {
        json!({
            "name": name,
            "match": { "host": format!("{name}.test") },
            "upstream": { "url": format!("http://{}", tool.address) },
            "receipt": { "settle": "20ms", "believe_not_found": "always" },
            "idempotency": bend(name),
        })
    };
    config.set("routes", json!([route("orders"), route("returns")]))
}

fn at(host: &str, call: Call) -> Call {
    call.set("Host", format!("{host}.test"))
}

#[test]
fn routes_share_their_keys_in_one_scope_and_only_there() {
    for (scope, sends) in [(json!({ "scope": "money" }), 1), (json!({}), 2)] {
        let world = World::build(Script::new(), |tool| {
            two_routes(Config::standard(tool).slow(2), tool, |_| scope.clone())
        });
        assert_eq!(world.call(&at("orders", keyed("a"))).status, 201);
        let second = world.call(&at("returns", keyed("b")));
        assert_eq!((second.status, world.tool.a()), (201, sends));
        let original = second.field("x-original-call-id");
        assert_eq!(original.as_deref(), (sends == 1).then_some("a"));
    }
}

#[test]
fn c22_what_is_excluded_and_how_json_is_written_make_no_other_request() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        let exclude = json!(["/sentAt", "/meta/nonce"]);
        config.slow(5).route("idempotency/exclude", exclude)
    });
    let call = |id: &str, body: &str| keyed(id).body(body);
    let mut first = world.gateway.client();
    first.send(&call("a", r#"{"amt":200,"sentAt":1,"meta":{"nonce":"x"}}"#));
    world.tool.wait_request(1);
    let other = world.call(&call("b", r#"{"amt":500,"sentAt":1,"meta":{}}"#));
    other.problem(422, "idempotency-key-reused");
    gate.open();
    assert_eq!(first.answer().status, 201);
    let same = [
        r#"{"meta":{},"amt":200}"#,
        r#"{ "amt" : 200.0, "sentAt": 2, "meta": { "nonce": "y" } }"#,
        r#"{"\u0061mt":2e2,"meta":{}}"#,
    ];
    for (n, body) in same.iter().enumerate() {
        let answer =
            world.call(&call(&format!("same-{n}"), body).set("Content-Type", "text/plain"));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (201, "replayed"),
            "{body}"
        );
    }
    let others = [
        call("c", r#"{"amt":"200","meta":{}}"#),
        call("d", r#"{"amt":200,"meta":{},"amt":200}"#),
        call("e", "amt=200"),
        Call::new("PUT", "/tool")
            .field("X-Call-Id", "f")
            .field("Idempotency-Key", "k1")
            .body(same[0]),
        Call::post_to("/tool?nonce=1")
            .field("X-Call-Id", "g")
            .field("Idempotency-Key", "k1")
            .body(same[0]),
    ];
    for other in &others {
        world.call(other).problem(422, "idempotency-key-reused");
    }
    // The tool is sent what the first caller wrote, to the byte.
    let sent = world.tool.wait_request(1);
    assert_eq!(
        sent.body(),
        br#"{"amt":200,"sentAt":1,"meta":{"nonce":"x"}}"#
    );
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn without_exclusions_bodies_are_compared_byte_for_byte() {
    let world = World::prompt(Script::new());
    assert_eq!(world.call(&keyed("a").body(r#"{"amt":200}"#)).status, 201);
    for body in [r#"{ "amt":200}"#, r#"{"amt":200.0}"#] {
        let other = world.call(&keyed("b").body(body));
        other.problem(422, "idempotency-key-reused");
    }
}

#[test]
fn a_renamed_route_keeps_its_keys_and_its_dead_letters() {
    let gate = Gate::default();
    let script = Script::new()
        .request(2, Act::read_all().pass(&gate).fin())
        .otherwise(Act::read_all().commit().answer_result());
    let mut world = World::with(script, |config| {
        let rounds = json!(["500ms", "1h"]);
        config.slow(5).set("defaults/compensation/rounds", rounds)
    });
    assert_eq!(world.call(&keyed("a")).status, 201);
    let mut second = world.gateway.client();
    second.send(&Call::with_id("open").body("open"));
    world.tool.wait_request(2);
    world.gateway.kill9();
    world.config = world
        .config
        .clone()
        .route("name", "parcels")
        .route("formerly", json!(["tool"]));
    world.restart();
    let joined = world.call(&keyed("b"));
    assert_eq!(
        (joined.status, joined.must("x-original-call-id").as_str()),
        (201, "a")
    );
    // The queue finds the route, and asks its tool.
    world.gateway.wait_dead_letter("open", "QUEUED");
    world.gateway.wait_until("a round has asked", || {
        (!world.tool.queries("open").is_empty()).then_some(())
    });
    let open = [("route", "parcels"), ("state", "QUEUED")];
    world
        .gateway
        .wait_metric("callgate_dead_letters", &open, 1.0);
    assert_eq!(
        world.gateway.metrics().value(
            "callgate_dead_letters",
            &[("route", "gone"), ("state", "QUEUED")]
        ),
        0.0
    );
    assert_eq!(world.tool.a(), 2);
    gate.open();
}

#[test]
fn c23_a_renamed_client_keeps_its_ids_its_keys_and_its_receipts() {
    let keys = folder();
    let file = keys.path().join("key");
    fs::write(&file, "billing-key-0123456789").expect("a key file can be written");
    let other = keys.path().join("other");
    fs::write(&other, "shipping-key-0123456789").expect("a key file can be written");
    let client = |name: &str, formerly: Value| {
        json!([
            { "name": name, "key_file": file.display().to_string(), "formerly": formerly },
            { "name": "shipping", "key_file": other.display().to_string() },
        ])
    };
    // Calls from before there were clients are handed on as well.
    let mut world = World::with(Script::new(), |config| config.slow(2)).without_history();
    assert_eq!(world.call(&keyed("a")).status, 201);
    world.gateway.wait_until("the success is recorded", || {
        (world.gateway.receipt("a").json()["state"] == "SUCCESS").then_some(())
    });
    let by = |key: &str, call: Call| call.field("X-Api-Key", key);
    for (name, formerly) in [
        ("billing", json!(["anonymous"])),
        ("invoices", json!(["billing", "anonymous"])),
    ] {
        world.gateway.kill9();
        world.config = world.config.clone().set("clients", client(name, formerly));
        world.restart();
        let mine = |call| world.call(&by("billing-key-0123456789", call));
        assert_eq!(mine(keyed("a")).outcome(), "replayed");
        let joined = mine(keyed(&format!("b-{name}")));
        assert_eq!(
            (joined.status, joined.must("x-original-call-id").as_str()),
            (201, "a")
        );
        for id in ["a", &format!("b-{name}")] {
            let receipt = mine(Call::get(&format!("/_callgate/receipts/{id}"))).json();
            assert_eq!(
                (&receipt["state"], &receipt["callId"]),
                (&"SUCCESS".into(), &id.into())
            );
        }
        let theirs = by(
            "shipping-key-0123456789",
            Call::get("/_callgate/receipts/a"),
        );
        world.call(&theirs).problem(404, "receipt-not-found");
    }
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_call_id_in_the_body_names_the_call_and_goes_on_in_the_header() {
    let world = World::with(Script::new(), |config| {
        config.slow(2).route("call_id/body", "/task/id")
    });
    let call = |id: &str| Call::post().body(format!(r#"{{"task":{{"id":"{id}"}}}}"#));
    let first = world.call(&call("in-body"));
    assert_eq!((first.status, first.id().as_str()), (201, "in-body"));
    assert_eq!(first.must("x-call-id-source"), "client");
    let sent = world.tool.wait_request(1);
    assert_eq!(sent.id(), b"in-body");
    assert_eq!(
        sent.body(),
        br#"{"task":{"id":"in-body"}}"#,
        "the body stays as it was"
    );
    assert_eq!(world.call(&call("in-body")).outcome(), "replayed");
    assert_eq!(
        world
            .call(&call("in-body").field("X-Call-Id", "in-body"))
            .outcome(),
        "replayed"
    );
    // What carries none, or is no JSON, goes by the header, or by an id made here.
    for body in ["{}", "no json", r#"{"task":{"id":null}}"#] {
        let answer = world.call(&Call::post().body(body));
        assert_eq!(
            (answer.status, answer.must("x-call-id-source").as_str()),
            (201, "gateway"),
            "{body}"
        );
    }
    let sends = world.tool.a();
    let wrong = [
        call("one").field("X-Call-Id", "another"),
        call(""),
        call("two, three"),
        Call::post().body(r#"{"task":{"id":7}}"#),
        Call::post().body(r#"{"task":{"id":{}}}"#),
        Call::post().body(r#"{"task":{"id":"x","id":"x"}}"#),
        Call::post().body(r#"{"task":{"id":"x"},"task":{}}"#),
        Call::post().body(r#"{"task":{"id":"\ud800"}}"#),
    ];
    for call in &wrong {
        let problem = world.call(call).problem(400, "invalid-call-id");
        assert_eq!(
            (&problem["sent"], &problem["repeat"]),
            (&"no".into(), &"never".into())
        );
    }
    assert_eq!(world.tool.a(), sends);
}

#[test]
fn a_key_that_the_head_lacks_is_demanded_before_the_body_is_sent() {
    let world = World::with(Script::new(), |config| {
        config.route("idempotency", json!({ "required": true }))
    })
    .without_history();
    let waits = |call: Call| call.field("Expect", "100-continue");
    for (call, code) in [
        (Call::with_id("none"), "idempotency-key-required"),
        (
            Call::with_id("empty").field("Idempotency-Key", ""),
            "bad-request",
        ),
    ] {
        let mut client = world.gateway.client();
        client.send_raw(&waits(call).head_bytes());
        let answer = client.answer();
        let problem = answer.problem(400, code);
        assert_eq!(
            (&problem["sent"], &problem["repeat"]),
            (&"unknown".into(), &"same-call-id-only".into())
        );
    }
    assert_eq!(world.call(&keyed("good")).status, 201);
    // What has no effect needs no key.
    assert_eq!(world.call(&Call::get("/tool")).status, 201);
    assert_eq!(world.tool.a(), 2);
}
