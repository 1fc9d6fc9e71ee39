//! Callers that need not wait: `Prefer: respond-async` and `wait=N`, and the wait at a receipt.

use crate::fixture::{
    Act, Answer, Call, Config, Gate, Receipts, Reply, Script, Unanswered, World, assert_between, ms,
};
use serde_json::{Value, json};
use std::net::TcpListener;
use std::time::Instant;

/// A tool that works once the gate is open.
fn gated(gate: &Gate) -> Script {
    Script::new().otherwise(Act::read_all().pass(gate).commit().answer_result())
}

/// Attempts that outlast every gate of these tests.
fn unhurried(config: Config) -> Config {
    config.slow(5)
}

fn accepted(id: &str) -> Call {
    Call::with_id(id).field("Prefer", "respond-async")
}

/// The receipt of a call, once it has ended or so many seconds have passed.
fn receipt_within(world: &World, id: &str, seconds: u64) -> Answer {
    let target = format!("/_callgate/receipts/{id}?wait={seconds}");
    let mut client = world.gateway.client();
    client.set_patience(ms(70_000));
    client.call(&Call::get(&target))
}

fn assert_accepted(answer: &Answer, id: &str, applied: &str) {
    assert_eq!(answer.status, 202, "{}", answer.text());
    let link = format!("/_callgate/receipts/{id}");
    assert_eq!(answer.must("location"), link);
    assert_eq!(answer.must("x-call-receipt"), link);
    assert_eq!(answer.must("preference-applied"), applied);
    assert_eq!(answer.must("x-call-id"), id);
    assert_eq!(answer.outcome(), "unresolved");
    let document = answer.json();
    assert_eq!(document["callId"], id, "{document}");
    assert_eq!(document["state"], "PROCESSING", "{document}");
    assert_eq!(document["receipt"], link, "{document}");
}

#[test]
fn an_accepted_call_is_told_at_once_and_ends_without_its_caller() {
    let gate = Gate::default();
    let world = World::with(gated(&gate), unhurried);
    let mut client = world.gateway.client();
    let answer = client.call(&accepted("a1"));
    assert_accepted(&answer, "a1", "respond-async");
    assert_eq!(world.gateway.receipt("a1").json()["state"], "PROCESSING");
    // Its connection serves the next request, and closing it changes nothing.
    assert_accepted(&client.call(&accepted("a2")), "a2", "respond-async");
    client.reset();
    gate.open();
    for id in ["a1", "a2"] {
        let receipt = receipt_within(&world, id, 30).json();
        assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
        assert_eq!(receipt["result"]["status"], 201, "{receipt}");
    }
    let again = world.call(&accepted("a1"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!((world.tool.a(), world.tool.e()), (2, 2));
    // One request, one outcome: the accepted ones count as what became of them.
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[], 0.0);
    let calls = |outcome| {
        let labels = [("route", "tool"), ("outcome", outcome)];
        world
            .gateway
            .metrics()
            .value("callgate_calls_total", &labels)
    };
    assert_eq!((calls("answered"), calls("unresolved")), (2.0, 0.0));
}

#[test]
fn a_wait_is_answered_in_time_or_with_a_promise() {
    let gate = Gate::default();
    let world = World::with(gated(&gate), unhurried);
    let began = Instant::now();
    let late = world.call(&Call::with_id("late").field("Prefer", "wait=1"));
    assert_between(began.elapsed(), 1000, 3000, "the wait");
    assert_accepted(&late, "late", "wait=1");
    let at_once = Call::with_id("now").field("Prefer", "respond-async, wait=0");
    assert_accepted(&world.call(&at_once), "now", "wait=0, respond-async");
    gate.open();
    let in_time = Call::with_id("in-time").field("Prefer", "wait=10, respond-async");
    let in_time = world.call(&in_time);
    assert_eq!(
        (in_time.status, in_time.outcome().as_str()),
        (201, "answered")
    );
    assert_eq!(in_time.field("preference-applied"), None);
    for id in ["late", "now"] {
        assert_eq!(receipt_within(&world, id, 30).json()["state"], "SUCCESS");
    }
    assert_eq!((world.tool.a(), world.tool.e()), (3, 3));
}

#[test]
fn a_wish_that_cannot_be_read_and_a_route_without_effects_change_nothing() {
    let world = World::prompt(Script::new());
    let call = Call::with_id("wish").field("Prefer", "wait=soon, respond-async=no");
    assert_eq!(world.call(&call).status, 201);
    drop(world);
    let world = World::prompt(Script::new()).without_history();
    let looks = Call::get("/tool").field("Prefer", "respond-async");
    let answer = world.call(&looks);
    assert_eq!((answer.status, answer.field("location")), (201, None));
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn repeats_of_an_accepted_call_are_told_as_the_first_one() {
    let gate = Gate::default();
    let world = World::with(gated(&gate), unhurried);
    assert_accepted(&world.call(&accepted("r")), "r", "respond-async");
    world.tool.wait_request(1);
    assert_accepted(&world.call(&accepted("r")), "r", "respond-async");
    let mut waits = world.gateway.client();
    waits.send(&Call::with_id("r"));
    let shortly = Call::with_id("r").field("Prefer", "wait=0");
    world.call(&shortly).problem(409, "in-progress");
    let other = accepted("r").body(r#"{"n":2}"#);
    world.call(&other).problem(422, "call-id-reused");
    gate.open();
    assert_eq!(waits.answer().status, 201);
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn one_that_was_not_promised_is_promised_to_nobody() {
    let gate = Gate::default();
    let world = World::with(gated(&gate), unhurried);
    let mut first = world.gateway.client();
    first.send(&Call::with_id("p"));
    world.tool.wait_request(1);
    let now = Call::with_id("p").field("Prefer", "respond-async, wait=0");
    world.call(&now).problem(409, "in-progress");
    gate.open();
    assert_eq!(first.answer().status, 201);
}

#[test]
fn more_accepted_calls_than_allowed_are_refused_and_counted() {
    let gate = Gate::default();
    let world = World::with(gated(&gate), |config| {
        unhurried(config).set("limits/async_calls", 1)
    });
    assert_accepted(&world.call(&accepted("b1")), "b1", "respond-async");
    let refused = world.call(&accepted("b2"));
    let problem = refused.problem(503, "overloaded");
    assert_eq!(problem["repeat"], "same-call-id-only", "{problem}");
    refused.must("retry-after");
    let bound = [("bound", "async-calls")];
    world
        .gateway
        .wait_metric("callgate_bounds_reached_total", &bound, 1.0);
    gate.open();
    // The one that waits for its end needs no place; with the first one over, there is one again.
    assert_eq!(world.call(&Call::with_id("b2")).status, 201);
    receipt_within(&world, "b1", 30);
    let free = || Some(world.call(&accepted("b3"))).filter(|answer| answer.status != 503);
    world.gateway.wait_until("a free place", free);
    receipt_within(&world, "b3", 30);
    assert_eq!(world.tool.e(), 3);
}

/// An address that refuses connections, until somebody takes it.
fn nobody_there() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener
        .local_addr()
        .expect("a bound socket has an address")
}

#[test]
fn an_accepted_call_that_was_never_sent_survives_the_process_and_is_sent_by_the_queue() {
    let nobody = nobody_there();
    let short = move |config: Config| {
        config
            .set("defaults/retry/max_retries", 1)
            .set("defaults/compensation/rounds", json!(["1s", "2s"]))
            .set("defaults/compensation/resend", false)
    };
    let mut world = World::with(Script::new(), |config| {
        short(config).route("upstream/url", format!("http://{nobody}"))
    });
    assert_accepted(&world.call(&accepted("n")), "n", "respond-async");
    let letter = world.gateway.wait_dead_letter("n", "QUEUED");
    assert_eq!(letter["reason"], "never-sent", "{letter}");
    assert_eq!(world.gateway.receipt("n").json()["state"], "RECEIVED");
    // One that nobody was promised has ended by then.
    let told = world.call(&Call::with_id("sync"));
    let problem = told.problem(502, "tool-unreachable");
    assert_eq!(problem["repeat"], "safe", "{problem}");
    world.gateway.kill9();
    world.config = short(Config::standard(&world.tool))
        .route("upstream/formerly", json!([format!("http://{nobody}")]));
    world.restart();
    let receipt = receipt_within(&world, "n", 30).json();
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    let letter = world.gateway.wait_dead_letter("n", "SETTLED");
    assert_eq!(letter["call_id"], "n");
}

#[test]
fn an_accepted_call_waits_for_its_tool_past_all_rounds_and_is_sent_when_that_is_back() {
    let nobody = nobody_there();
    let short = move |config: Config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/rounds", json!(["50ms", "100ms"]))
    };
    let mut world = World::with(Script::new(), |config| {
        short(config.without_receipt()).route("upstream/url", format!("http://{nobody}"))
    });
    assert_accepted(&world.call(&accepted("n")), "n", "respond-async");
    let row = world.gateway.wait_until("more rounds than planned", || {
        let rows = world.gateway.dead_letters();
        let row = rows.into_iter().find(|row| row["call_id"] == "n")?;
        (row["fail_count"].as_u64() >= Some(5)).then_some(row)
    });
    assert_ne!(row["state"], "MANUAL", "{row}");
    world.gateway.wait_until("a round to be over", || {
        let receipt = world.gateway.receipt("n").json();
        (receipt["state"] == "RECEIVED").then_some(())
    });
    world.gateway.kill9();
    world.config = short(Config::standard(&world.tool).without_receipt())
        .route("upstream/formerly", json!([format!("http://{nobody}")]));
    world.restart();
    let receipt = receipt_within(&world, "n", 30).json();
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn a_repeat_that_is_not_sent_either_leaves_the_call_as_never_sent() {
    let nobody = nobody_there();
    let world = World::with(Script::new(), |config| {
        config
            .route("upstream/url", format!("http://{nobody}"))
            .set("defaults/retry/max_retries", 5)
            .set("defaults/retry/base", "300ms")
            .set("defaults/timeouts/total", "800ms")
            .set("defaults/compensation/rounds", json!(["1h"]))
            .set("defaults/compensation/resend", true)
    });
    let mut sends = 0;
    for _ in 0..3 {
        let told = world.call(&Call::with_id("q"));
        let problem = told.problem(504, "unresolved");
        assert_eq!(problem["sent"], "no", "{problem}");
        let receipt = world.gateway.receipt("q").json();
        assert_eq!(receipt["state"], "RECEIVED", "{receipt}");
        let before = std::mem::replace(&mut sends, receipt["attempts"].as_u64().unwrap_or(0));
        assert!(sends > before, "it was tried once more: {receipt}");
    }
}

#[test]
fn an_accepted_call_cut_off_by_a_crash_is_settled_by_its_receipt() {
    let gate = Gate::default();
    let script = Script::new().request(1, Act::read_all().commit().pass(&gate).hang());
    let mut world = World::with(script, unhurried);
    assert_accepted(&world.call(&accepted("c")), "c", "respond-async");
    world.tool.wait_effect(1);
    world.crash();
    let receipt = receipt_within(&world, "c", 30).json();
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    gate.open();
}

#[test]
fn an_accepted_call_is_given_the_grace_of_a_drain() {
    let gate = Gate::default();
    let mut world = World::with(gated(&gate), unhurried);
    assert_accepted(&world.call(&accepted("d")), "d", "respond-async");
    world.tool.wait_request(1);
    world.gateway.signal_term();
    let stopping = |record: &Value| record["msg"] == "stopping";
    world
        .gateway
        .log()
        .wait(ms(10_000), stopping)
        .expect("it was told to stop");
    gate.open();
    assert!(world.gateway.wait_exit().success());
    world.restart();
    assert_eq!(world.gateway.receipt("d").json()["state"], "SUCCESS");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn whoever_leaves_an_accepted_call_cancels_nothing() {
    let nowhere = Unanswered::start();
    let world = World::with(Script::new(), |config| {
        unhurried(config)
            .route("on_client_gone", "cancel")
            .route("upstream/url", format!("http://{}", nowhere.address))
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/rounds", json!(["1h"]))
    });
    let mut client = world.gateway.client();
    assert_accepted(&client.call(&accepted("l")), "l", "respond-async");
    client.reset();
    let letter = world.gateway.wait_dead_letter("l", "QUEUED");
    assert_eq!(letter["reason"], "never-sent", "{letter}");
}

#[test]
fn a_reader_of_a_receipt_waits_no_longer_than_asked_and_for_no_human() {
    let silent = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::says(Reply::json(500, "{}"))));
    let world = World::with(silent, |config| {
        config
            .set("defaults/timeouts/total", "500ms")
            .set("defaults/timeouts/late", "300ms")
            .set("defaults/compensation/rounds", json!(["1500ms"]))
    });
    assert_accepted(&world.call(&accepted("w")), "w", "respond-async");
    let began = Instant::now();
    let early = receipt_within(&world, "w", 1).json();
    assert_between(began.elapsed(), 1000, 1400, "the wait");
    assert_eq!(early["deadLetter"]["state"], "QUEUED", "{early}");
    let began = Instant::now();
    let human = receipt_within(&world, "w", 60).json();
    assert_eq!(human["deadLetter"]["state"], "MANUAL", "{human}");
    assert_between(began.elapsed(), 0, 10_000, "the round");
    for bad in ["wait=", "wait=soon", "wait=-1"] {
        let target = format!("/_callgate/receipts/w?{bad}");
        world.call(&Call::get(&target)).problem(400, "bad-request");
    }
    let unknown = Call::get("/_callgate/receipts/other?wait=60");
    world.call(&unknown).problem(404, "receipt-not-found");
}

#[test]
fn a_drain_ends_the_wait_at_a_receipt_with_the_state_as_it_is() {
    let gate = Gate::default();
    let mut world = World::with(gated(&gate), unhurried);
    assert_accepted(&world.call(&accepted("e")), "e", "respond-async");
    let mut reader = world.gateway.client();
    reader.send(&Call::get("/_callgate/receipts/e?wait=60"));
    // The same core takes both, in order: once this is answered, the reader waits.
    world.gateway.receipt("e");
    world.gateway.signal_term();
    let told = reader.answer();
    assert_eq!(told.status, 200);
    assert_eq!(told.json()["state"], "PROCESSING");
    gate.open();
    assert!(world.gateway.wait_exit().success());
}
