//! Every bound at once, and what each of them says: memory stays under the formula of `callgate
//! check`, and whoever is turned away reads why.

use crate::fixture::{Act, Call, Client, Gate, PATIENCE, Receipts, Script, World};
use crate::storm::{bound_of, leaves};
use serde_json::json;
use std::time::Instant;

fn reached(world: &World, bound: &str) -> f64 {
    let metrics = world.gateway.metrics();
    metrics.value("callgate_bounds_reached_total", &[("bound", bound)])
}

/// Waits until bodies take so much.
fn wait_held(world: &World, bytes: usize) {
    world.gateway.wait_until("the bodies have arrived", || {
        let held = world
            .gateway
            .metrics()
            .value("callgate_bodies_held_bytes", &[]);
        (held >= bytes as f64).then_some(())
    });
}

#[test]
fn no_more_calls_are_worked_on_than_may_also_when_their_callers_leave() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().otherwise(held), |config| {
        config.slow(10).set("limits/calls", 3)
    });
    for n in 1..=3 {
        leaves(&world, &Call::with_id(&format!("left-{n}")));
        world.tool.wait_request(n);
    }
    let fourth = world.call(&Call::with_id("fourth"));
    let problem = fourth.problem(503, "overloaded");
    assert_eq!(problem["repeat"], "same-call-id-only");
    assert_eq!(
        (problem["sent"].as_str(), fourth.must("retry-after")),
        (Some("unknown"), "1".into())
    );
    assert!(world.tool.sends("fourth").is_empty());
    assert_eq!(reached(&world, "calls"), 1.0);
    gate.open();
    let again = world.gateway.wait_until("a turn is free", || {
        Some(world.call(&Call::with_id("fourth"))).filter(|it| it.status != 503)
    });
    assert_eq!((again.status, world.tool.a()), (201, 4));
}

#[test]
fn a_long_body_that_finds_no_room_is_refused_and_short_calls_go_on() {
    let world = World::prompt_with(Script::new(), |config| {
        config
            .set("limits/bodies", "1MiB")
            .set("limits/body_timeout", "20s")
            .set("defaults/body/max_request", "1MiB")
    });
    let long = |id: &str| Call::with_id(id).body(vec![b'x'; 700 << 10]);
    // All but its last byte: it holds what has arrived.
    let mut slow = world.gateway.client();
    let bytes = long("slow").bytes();
    slow.send_raw(&bytes[..bytes.len() - 1]);
    wait_held(&world, 700 << 10);
    let refused = world.call(&long("refused"));
    assert_eq!(
        refused.problem(503, "overloaded")["repeat"],
        "same-call-id-only"
    );
    assert!(reached(&world, "bodies") >= 1.0);
    assert_eq!(world.call(&Call::with_id("short")).status, 201);
    slow.send_raw(&bytes[bytes.len() - 1..]);
    assert_eq!(slow.answer().status, 201);
    let again = world.gateway.wait_until("room again", || {
        Some(world.call(&long("refused"))).filter(|it| it.status != 503)
    });
    assert_eq!(again.outcome(), "answered");
    world
        .gateway
        .wait_metric("callgate_bodies_held_bytes", &[], 0.0);
}

#[test]
fn an_answer_that_finds_no_room_is_passed_on_whole_and_not_kept() {
    let answer = |bytes: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
        Act::read_all().commit().say(head).flood(bytes)
    };
    let world = World::prompt_with(Script::new().otherwise(answer(900 << 10)), |config| {
        config
            .set("limits/bodies", "1MiB")
            .set("limits/body_timeout", "20s")
            .set(
                "defaults/body",
                json!({
                    "max_request": "1MiB", "max_kept_response": "1MiB",
                }),
            )
    });
    let mut slow = world.gateway.client();
    let bytes = Call::with_id("slow").body(vec![b'x'; 700 << 10]).bytes();
    slow.send_raw(&bytes[..bytes.len() - 1]);
    wait_held(&world, 700 << 10);
    let answered = world.call(&Call::with_id("long"));
    assert_eq!((answered.status, answered.body.len()), (200, 900 << 10));
    assert_eq!(answered.cut, None);
    assert!(reached(&world, "bodies") >= 1.0);
    let stored = world.gateway.wait_until("the end of the call", || {
        let receipt = world.gateway.receipt("long").json();
        (receipt["state"] == "SUCCESS").then_some(receipt)
    });
    assert_eq!(stored["result"]["bodyBytes"], 900 << 10, "{stored}");
    world
        .call(&Call::with_id("long"))
        .problem(409, "result-not-kept");
    slow.send_raw(&bytes[bytes.len() - 1..]);
    assert_eq!(slow.answer().status, 200);
}

/// Low limits, and a tool that answers nobody and has everything in work for ever.
fn narrow() -> World {
    let held = Act::read_all().hang();
    let script = Script::new().otherwise(held).ignores_ids();
    let script = script.receipts(Receipts::always(Act::state("PROCESSING")));
    World::with(script, |config| {
        config
            .set("limits/connections", 300)
            .set("limits/calls", 150)
            .set("limits/bodies", "16MiB")
            .set("limits/async_calls", 8)
            .set("limits/header_timeout", "60s")
            .set("limits/body_timeout", "60s")
            .set("ledger/queue", 64)
            .set(
                "defaults/timeouts",
                json!({
                    "attempt": "1s", "total": "40s", "late": "40s", "receipt": "1s",
                }),
            )
            .set("defaults/retry", json!({ "max_retries": 0, "base": "5s" }))
            .set("drain/grace", "1s")
            .route("upstream/late_max", 8)
            .route("upstream/pool", json!({ "max_idle": 16 }))
    })
    .without_history()
}

/// Does something until a bound is reached, however slow the gateway is to follow.
fn until_reached(world: &World, bound: &str, mut step: impl FnMut(usize)) {
    let began = Instant::now();
    for n in 0.. {
        if reached(world, bound) >= 1.0 {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{bound} is never reached");
        step(n);
    }
}

/// Connections, calls, bodies, late exchanges and accepted calls, all at their bounds at the same
/// time, with long heads and bodies.
#[test]
fn memory_stays_under_the_formula_when_every_bound_is_reached_at_once() {
    drop(rlimit::increase_nofile_limit(4096));
    let world = narrow();
    let idle = world.gateway.memory("VmRSS:");
    until_reached(&world, "async-calls", |n| {
        let call = Call::with_id(&format!("async-{n}")).field("Prefer", "respond-async");
        let status = world.call(&call).status;
        assert!(matches!(status, 202 | 503), "{status}");
    });
    let mut held: Vec<Client> = Vec::new();
    // Long bodies that never end.
    let long = Call::post().body(vec![b'x'; 1 << 20]).bytes();
    until_reached(&world, "bodies", |_| {
        let mut client = world.gateway.client();
        client.send_raw(&long[..long.len() - 1]);
        held.push(client);
    });
    // Callers who send and leave.
    let filler = "f".repeat(16 << 10);
    until_reached(&world, "calls", |n| {
        let call = Call::with_id(&format!("left-{n}")).field("X-Filler", &filler);
        // In one piece, so that they need no room among the bodies.
        leaves(&world, &call.body(vec![b'y'; 1 << 10]));
    });
    // Heads that never end.
    let head = format!(
        "POST /tool HTTP/1.1\r\nHost: t\r\nX-Long: {}",
        "h".repeat(30 << 10)
    );
    until_reached(&world, "connections", |_| {
        let mut client = world.gateway.client();
        client.send_raw(head.as_bytes());
        held.push(client);
    });
    world
        .gateway
        .wait_until("late exchanges are at their bound", || {
            (reached(&world, "late-exchanges") >= 1.0).then_some(())
        });
    let (most, bound) = (world.gateway.memory("VmHWM:"), bound_of(&world));
    eprintln!(
        "every bound reached: at most {} MiB, by the formula {} MiB, idle {} MiB",
        most >> 20,
        bound >> 20,
        idle >> 20
    );
    assert!(most < bound, "{most} bytes, {bound} by the formula");
    // All of it comes back but for the calls that the tool has in work.
    drop(held);
    world
        .gateway
        .wait_metric("callgate_bodies_held_bytes", &[], 0.0);
    world.gateway.wait_until("there is room for a caller", || {
        let status = world.gateway.receipt("none").status;
        (status == 404).then_some(())
    });
}
