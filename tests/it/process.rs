//! The life of the process: its start, its end, the ports it needs, the memory it takes.

use crate::fixture::{
    Act, Call, Client, Config, Cut, Gate, Gateway, PATIENCE, Receipts, Script, Tool, Unanswered,
    World, assert_between, ms,
};
use std::net::TcpStream;
use std::time::Instant;

/// Debug builds carry unoptimised code and larger futures; the figures of the product are for
/// release builds, and these bounds only catch what grows with the number of things.
const SLACK: u64 = if cfg!(debug_assertions) { 2 } else { 1 };

const MIB: u64 = 1 << 20;

#[test]
fn sigterm_finishes_what_runs_and_exits_with_success() {
    let gate = Gate::default();
    let script = Script::new().request(1, Act::read_all().commit().pass(&gate).answer_result());
    let mut world = World::with(script, |config| config.slow(4));
    let mut idle = world.gateway.client();
    let mut running = world.gateway.client();
    running.send(&Call::with_id("running"));
    world.tool.wait_request(1);
    world.gateway.signal_term();
    let closed = idle.wait_closed();
    assert!(
        matches!(closed, Cut::Fin | Cut::Reset),
        "a silent connection is closed: {closed:?}"
    );
    gate.open();
    let answer = running.answer();
    assert_eq!(
        (answer.status, answer.must("connection").as_str()),
        (201, "close")
    );
    let began = Instant::now();
    let status = world.gateway.wait_exit();
    assert!(status.success(), "{status}");
    assert_between(began.elapsed(), 0, 2_000, "the end");
    world.restart();
    assert_eq!(world.call(&Call::with_id("running")).outcome(), "replayed");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn sigterm_parks_what_does_not_end_within_the_grace() {
    let script = Script::new()
        .request(1, Act::read_all().commit().hang())
        .receipts_of("hangs", vec![Act::state("PROCESSING")]);
    let mut world = World::with(script, |config| {
        config
            .set("drain/grace", "500ms")
            .set("defaults/timeouts/attempt", "10s")
            .set("defaults/timeouts/total", "20s")
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("hangs"));
    world.tool.wait_effect(1);
    let began = Instant::now();
    world.gateway.signal_term();
    client.answer().problem(504, "unresolved");
    let status = world.gateway.wait_exit();
    assert!(status.success(), "{status}");
    assert_between(began.elapsed(), 0, 2_000, "the grace of 500 ms");
    world.restart();
    let history = world.gateway.history("hangs");
    assert!(history["deadLetter"].is_object(), "it was lost: {history}");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_sigterm_while_it_starts_ends_it_in_order() {
    // A tool that never accepts holds the start up for a second.
    let unanswered = Unanswered::start();
    let config = Config::for_address(unanswered.address);
    let mut gateway = Gateway::begin(&config);
    let ledger = gateway.folder().join("callgate.db");
    gateway.wait_until("the ledger is made", || ledger.exists().then_some(()));
    gateway.signal_term();
    let status = gateway.wait_exit();
    assert!(status.success(), "{status}\n{}", gateway.log_tail());
    let stopped = |record: &serde_json::Value| record["msg"] == "stopped";
    assert!(gateway.log().records().iter().any(stopped), "it drained");
}

#[test]
fn a_draining_gateway_is_not_ready_and_takes_no_new_calls() {
    let gate = Gate::default();
    let script = Script::new().request(1, Act::read_all().commit().pass(&gate).answer_result());
    let mut world = World::with(script, |config| config.slow(4));
    let mut running = world.gateway.client();
    running.send(&Call::with_id("running"));
    world.tool.wait_request(1);
    world.gateway.signal_term();
    world.gateway.wait_until("readiness is off", || {
        (world.gateway.admin("/readyz").status == 503).then_some(())
    });
    // Readiness goes first, so that balancers look away; who comes meanwhile is still served.
    let mut served = 0;
    world.gateway.wait_until("new calls are refused", || {
        let Ok(stream) = TcpStream::connect(world.gateway.listen) else {
            return Some(());
        };
        let mut late = Client::over(stream);
        late.send(&Call::post());
        match late.try_answer() {
            Ok(answer) if answer.status == 201 => {
                served += 1;
                return None;
            }
            Ok(answer) => drop(answer.problem(503, "draining")),
            Err(cut) => assert_ne!(cut, Cut::Silent),
        }
        Some(())
    });
    gate.open();
    assert_eq!(running.answer().status, 201);
    assert!(world.gateway.wait_exit().success());
    assert_eq!(world.tool.a(), 1 + served);
}

#[test]
fn a_port_in_use_is_told_with_its_address() {
    let tool = Tool::start(Script::new());
    let folder = tempfile::tempdir().expect("a folder");
    let taken = tool.address.to_string();
    for key in ["listen", "admin/listen"] {
        let config = Config::standard(&tool).set(key, taken.as_str());
        let refused = Gateway::refused_in(folder.path(), &config);
        assert!(!refused.status.success());
        assert!(refused.log.contains(&taken), "{}", refused.log);
    }
}

#[test]
fn a_tool_that_cannot_be_reached_is_warned_about_at_start() {
    let tool = Tool::start(Script::new());
    tool.refuse();
    let gateway = Gateway::start(&Config::standard(&tool));
    let address = tool.address.to_string();
    let warned = gateway.log().wait(PATIENCE, |record| {
        let level = record["level"].as_str().unwrap_or_default().to_lowercase();
        level.starts_with("warn") && record.to_string().contains(&address)
    });
    assert!(
        warned.is_some(),
        "nothing was said:\n{}",
        gateway.log_tail()
    );
}

#[test]
fn a_hundred_megabytes_stream_through_without_being_held() {
    let bytes = 100 << 20;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
    let act = Act::read_all().say(head).flood(bytes);
    let script = Script::new().request(2, act.clone()).request(3, act);
    let world = World::with(script, |config| config.slow(5));
    let world = world.without_history();
    let mut client = world.gateway.client();
    client.call(&Call::get("/warm"));
    for call in [Call::get("/large"), Call::with_id("large")] {
        world.gateway.forget_peak_memory();
        let before = world.gateway.memory("VmHWM:");
        client.send(&call);
        let head = client.head().expect("a head");
        assert_eq!(
            client.count_body(&head).expect("a whole body"),
            bytes as u64
        );
        let grown = world.gateway.memory("VmHWM:").saturating_sub(before);
        assert!(grown < SLACK * 8 * MIB, "memory grew by {grown} bytes");
    }
    let stored = world.gateway.wait_until("the end of the call", || {
        let receipt = world.gateway.receipt("large").json();
        (receipt["state"] == "SUCCESS").then_some(receipt)
    });
    assert_eq!(stored["result"]["bodyBytes"], bytes as u64, "{stored}");
    assert!(stored["result"]["body"].is_null() && stored["result"]["bodySha256"].is_string());
    let repeat = world.call(&Call::with_id("large"));
    repeat.problem(409, "result-not-kept");
}

#[test]
fn an_idle_gateway_is_small_and_a_thousand_idle_connections_cost_little() {
    // Twenty more for the test's own descriptors.
    drop(rlimit::increase_nofile_limit(4096));
    let world = World::with(Script::new(), |config| config.set("workers", 0));
    let world = world.without_history();
    world.call(&Call::with_id("warm"));
    let idle = world.gateway.memory("VmRSS:");
    assert!(idle < SLACK * 30 * MIB, "{idle} bytes when idle");
    let mut clients: Vec<Client> = (0..1000).map(|_| world.gateway.client()).collect();
    for client in &mut clients {
        assert_eq!(client.call(&Call::get("/tool")).status, 201);
    }
    let many = world.gateway.memory("VmRSS:");
    assert!(
        many < SLACK * 64 * MIB,
        "{many} bytes with a thousand connections"
    );
}

#[test]
fn more_connections_than_allowed_wait_or_are_refused_and_the_rest_is_served() {
    let world = World::with(Script::new(), |config| config.set("limits/connections", 4));
    let mut held: Vec<Client> = (0..4).map(|_| world.gateway.client()).collect();
    for client in &mut held {
        assert_eq!(client.call(&Call::post()).status, 201);
    }
    let mut fifth = world.gateway.client();
    fifth.set_patience(ms(200));
    fifth.send(&Call::with_id("fifth"));
    match fifth.try_answer() {
        Ok(answer) => {
            answer.problem(503, "overloaded");
        }
        Err(cut) => assert!(matches!(cut, Cut::Fin | Cut::Reset | Cut::Silent)),
    }
    assert!(
        world.tool.sends("fifth").is_empty(),
        "a fifth connection was served"
    );
    held.clear();
    world.gateway.wait_until("a place is free", || {
        let mut client = world.gateway.client();
        client.send(&Call::with_id("sixth"));
        client
            .try_answer()
            .is_ok_and(|answer| answer.status == 201)
            .then_some(())
    });
}

#[test]
fn a_call_nobody_answers_for_ends_without_a_caller_or_a_tool() {
    let script = Script::new()
        .otherwise(Act::read_all().reset())
        .receipts(Receipts::always(Act::read_all().reset()));
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/total", "400ms")
    });
    let calls: Vec<String> = (0..20).map(|n| format!("end-{n}")).collect();
    std::thread::scope(|scope| {
        for id in &calls {
            let world = &world;
            scope.spawn(move || world.call(&Call::with_id(id)).problem(504, "unresolved"));
        }
    });
    for id in &calls {
        world.gateway.wait_dead_letter(id, "MANUAL");
    }
    assert_eq!(world.tool.a(), 20);
}
