//! Another process takes over: nobody sees it, nothing is lost, and a new process that cannot is
//! not noticed at all.

mod batch;
mod inherited;
mod living;
mod load;

use crate::fixture::gateway::write_config;
use crate::fixture::{Act, BINARY, Call, Client, Config, Gate, Script, Tool, ms};
use living::{Living, install};
use serde_json::Value;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

const NOT_READY: &str = "the process that was to take over did not become ready, its own lines \
                         say why; nothing has changed here";

/// A tool that is never too slow for this machine, and time for what streams on.
fn patient(tool: &Tool) -> Config {
    let config = Config::standard(tool).slow(5);
    config.set("drain/grace", "30s")
}

/// Holds the old process to letting the ledger go within a second. A debug build on a machine that
/// does other things as well gets more.
fn in_time(let_go: &Value) {
    let slack = if cfg!(debug_assertions) { 2 } else { 1 };
    let took = let_go["took_ms"].as_u64().expect("a time");
    assert!(took < slack * 1_000, "{let_go}");
}

#[test]
fn what_waits_for_a_retry_is_parked_and_the_new_process_goes_on_with_it() {
    let script = Script::new()
        .request(1, Act::read_all().commit().reset())
        .receipts_of(
            "waits",
            vec![Act::state("PROCESSING"), Act::state("SUCCESS")],
        );
    let tool = Tool::start(script);
    let config = patient(&tool)
        .set("defaults/retry/base", "8s")
        .set("defaults/retry/cap", "8s");
    let mut living = Living::start(&config);
    let mut caller = living.client();
    caller.send(&Call::with_id("waits"));
    tool.book().wait("the first question", |pages| {
        (!pages.asked.is_empty()).then_some(())
    });
    living.hand_over();
    let told = caller.answer();
    told.problem(504, "unresolved");
    assert_eq!(told.must("connection"), "close");
    let row = living.dead_letter("waits", "SETTLED");
    assert_eq!(
        row["reason"], "drain",
        "parked by its owner, not found dead"
    );
    assert_eq!(living.call(&Call::with_id("waits")).outcome(), "replayed");
    assert_eq!(tool.a(), 1);
    assert!(living.first_ends().success());
    let let_go = living.said("the ledger was let go", 1);
    in_time(&let_go);
    assert_eq!(let_go["parked"], true);
    living.end();
}

#[test]
fn an_answer_that_comes_in_time_is_told_by_the_old_process() {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let tool = Tool::start(Script::new().request(1, act));
    let mut living = Living::start(&patient(&tool));
    let mut caller = living.client();
    caller.send(&Call::with_id("runs"));
    tool.wait_effect(1);
    living.signal("USR2");
    living.said("handing over", 1);
    gate.open();
    let told = caller.answer();
    assert_eq!((told.status, told.outcome().as_str()), (201, "answered"));
    assert_eq!(told.must("connection"), "close");
    living.wait_handed_over();
    assert_eq!(living.call(&Call::with_id("runs")).outcome(), "replayed");
    assert_eq!(tool.a(), 1);
    living.end();
}

#[test]
fn a_stream_without_effects_goes_on_in_the_old_process() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let gate = Gate::default();
    let act = Act::read_all().say(head).say("data: 1\n\n").pass(&gate);
    let act = act.say("data: 2\n\n").fin();
    let tool = Tool::start(Script::new().request(1, act));
    let mut living = Living::start(&patient(&tool));
    let mut reader = living.client();
    reader.send(&Call::get("/events"));
    reader.head().expect("its head");
    living.hand_over();
    // The new process serves, the old one still reads this tool's stream.
    assert_eq!(living.call(&Call::post()).status, 201);
    gate.open();
    let mut seen = Vec::new();
    while let Ok(more) = reader.more() {
        seen = more;
    }
    let seen = String::from_utf8_lossy(&seen);
    assert!(
        seen.contains("data: 1") && seen.contains("data: 2"),
        "{seen}"
    );
    assert!(living.first_ends().success());
    living.end();
}

#[test]
fn a_streamed_answer_with_effects_is_parked_and_goes_on() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
    let gate = Gate::default();
    let act = Act::read_all().commit().say(head).say("data: 1\n\n");
    let act = act.pass(&gate).say("data: 2\n\n").fin();
    let script = Script::new()
        .request(1, act)
        .receipts_of("streams", vec![Act::state("SUCCESS")]);
    let tool = Tool::start(script);
    let mut living = Living::start(&patient(&tool));
    let mut reader = living.client();
    reader.send(&Call::with_id("streams"));
    reader.head().expect("its head");
    living.hand_over();
    let row = living.dead_letter("streams", "SETTLED");
    assert_eq!(row["reason"], "drain");
    gate.open();
    let mut seen = Vec::new();
    while let Ok(more) = reader.more() {
        seen = more;
    }
    assert!(String::from_utf8_lossy(&seen).contains("data: 2"));
    assert_eq!(tool.a(), 1);
    living.end();
}

#[test]
fn a_broken_configuration_does_not_disturb_the_process_that_serves() {
    let tool = Tool::start(Script::new());
    let mut living = Living::start(&patient(&tool));
    let mut caller = living.client();
    assert_eq!(caller.call(&Call::post()).status, 201);
    write_config(
        living.folder(),
        &patient(&tool).set("listne", "127.0.0.1:0"),
    );
    living.signal("USR2");
    living.said(NOT_READY, 1);
    // Not even a connection was asked to leave.
    let answer = caller.call(&Call::post());
    assert_eq!((answer.status, answer.field("connection")), (201, None));
    write_config(living.folder(), &patient(&tool));
    living.hand_over();
    assert_eq!(living.call(&Call::post()).status, 201);
    living.end();
}

#[test]
fn a_ledger_from_the_future_does_not_disturb_the_process_that_serves() {
    let tool = Tool::start(Script::new());
    let mut living = Living::start(&patient(&tool));
    let other = living.folder().join("newer.db");
    let ledger = rusqlite::Connection::open(&other).expect("a file");
    ledger
        .execute_batch(
            "PRAGMA application_id = 0x636c6774; PRAGMA user_version = 4000; \
             CREATE TABLE calls (id INTEGER)",
        )
        .expect("a newer ledger");
    drop(ledger);
    let newer = patient(&tool).set("ledger/url", "sqlite:newer.db");
    write_config(living.folder(), &newer);
    living.signal("USR2");
    living.said(NOT_READY, 1);
    assert!(living.log.lines().iter().any(|line| line.contains("4000")));
    assert_eq!(living.call(&Call::post()).status, 201);
    write_config(living.folder(), &patient(&tool));
    living.end();
}

#[test]
fn a_program_that_is_missing_does_not_disturb_the_process_that_serves() {
    let tool = Tool::start(Script::new());
    let mut living = Living::start(&patient(&tool));
    std::fs::remove_file(living::program(living.folder())).expect("a file");
    living.signal("USR2");
    living.said("no process that takes over could be started", 1);
    assert_eq!(living.call(&Call::post()).status, 201);
    living.end();
}

/// A program that is callgate with these variables.
fn wrapped(living: &Living, variables: &str) {
    let script = living.folder().join("wrapped");
    let mut file = std::fs::File::create(&script).expect("a file");
    write!(file, "#!/bin/sh\n{variables} exec '{BINARY}' \"$@\"\n").expect("written");
    drop(file);
    let rights = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&script, rights).expect("rights");
    install(living.folder(), &script);
}

#[test]
fn a_new_process_that_dies_with_the_ledger_in_its_hands_is_replaced_by_the_old_one() {
    let tool = Tool::start(Script::new());
    let mut living = Living::start(&patient(&tool));
    assert_eq!(living.call(&Call::with_id("before")).status, 201);
    wrapped(&living, "CALLGATE_CRASH=sweeping");
    living.signal("USR2");
    living.said("handing over", 1);
    // Whoever comes in between has waited, and is served.
    let told = living.call(&Call::with_id("between"));
    assert_eq!((told.status, told.outcome().as_str()), (201, "answered"));
    living.said(
        "the process that was to take over does not serve; serving again here",
        1,
    );
    assert_eq!(living.call(&Call::with_id("before")).outcome(), "replayed");
    let ready = Client::connect(living.admin).call(&Call::get("/readyz"));
    assert_eq!(ready.status, 200, "{}", ready.text());
    // And it can still be taken over from.
    install(living.folder(), std::path::Path::new(BINARY));
    living.hand_over();
    assert_eq!(living.call(&Call::with_id("between")).outcome(), "replayed");
    assert!(living.first_ends().success());
    living.end();
}

#[test]
fn a_silent_connection_is_closed_and_no_request_is_reset() {
    let tool = Tool::start(Script::new().otherwise(Act::works()));
    let mut living = Living::start(&patient(&tool));
    let mut fresh = living.client();
    let mut idle = living.client();
    assert_eq!(idle.call(&Call::post()).status, 201);
    let mut half = living.client();
    half.send_raw(b"POST /tool HTTP/1.1\r\nHost: t\r\nX-Call-Id: half\r\n");
    living.signal("USR2");
    living.said("handing over", 1);
    // In time it is served, and told that this was the last one here; too late it is told so.
    half.send_raw(b"Content-Length: 0\r\n\r\n");
    let told = half.answer();
    assert!(matches!(told.status, 201 | 503), "{}", told.text());
    assert_eq!(told.must("connection"), "close");
    let closed = (idle.wait_closed(), fresh.wait_closed());
    let fin = crate::fixture::Cut::Fin;
    assert_eq!(closed, (fin.clone(), fin));
    living.wait_handed_over();
    assert!(living.first_ends().success());
    living.end();
}

#[test]
fn a_second_sigterm_ends_the_old_process_at_once() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let act = Act::read_all().say(head).say("data: 1\n\n").hang();
    let tool = Tool::start(Script::new().request(1, act));
    let mut living = Living::start(&patient(&tool).set("drain/grace", "60s"));
    let old = living.process;
    let mut reader = living.client();
    reader.send(&Call::get("/events"));
    reader.head().expect("its head");
    living.hand_over();
    let began = Instant::now();
    living::signal(old, "TERM");
    assert!(!living.first_ends().success());
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(living.call(&Call::post()).status, 201);
    living.end();
}

/// The grace ends what a caller never ends.
#[test]
fn a_stream_without_an_end_is_cut_off_when_the_grace_is_over() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let act = Act::read_all()
        .say(head)
        .drip(b"data: 1\n\n", 10_000, ms(20));
    let tool = Tool::start(Script::new().request(1, act));
    let mut living = Living::start(&patient(&tool).set("drain/grace", "2s"));
    let mut reader = living.client();
    reader.send(&Call::get("/events"));
    reader.head().expect("its head");
    living.hand_over();
    assert!(living.first_ends().success());
    assert_eq!(living.call(&Call::post()).status, 201);
    living.end();
}
