//! What is durable and when, and ledgers that cannot be opened: C63, crashes, broken files.

use crate::fixture::gateway::{BINARY, folder, serve_command, write_config};
use crate::fixture::{Act, Call, Config, Gate, Gateway, Receipts, Reply, Script, Tool, World};
use rusqlite::Connection;
use serde_json::json;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn c63_a_failure_is_durable_before_it_is_told() {
    let script = Script::new()
        .request(1, Act::says(Reply::json(422, r#"{"no":1}"#)))
        .receipts(Receipts::always(Act::not_found()));
    let mut world = World::with(script, |config| {
        config
            .set(
                "defaults/compensation/rounds",
                json!(["50ms", "100ms", "150ms"]),
            )
            .route("compensation/resend", true)
    });
    let told = world.call(&Call::with_id("c63"));
    world.gateway.kill9();
    assert_eq!(told.status, 422);
    world.restart();
    let again = world.call(&Call::with_id("c63"));
    assert_eq!((again.status, again.outcome().as_str()), (422, "replayed"));
    assert_eq!(again.body, told.body);
    assert_eq!(world.gateway.receipt("c63").json()["state"], "FAILED");
    let more = world
        .tool
        .book()
        .wait_for(crate::fixture::ms(600), |pages| {
            (pages.requests.len() > 1 || !pages.asked.is_empty()).then_some(())
        });
    assert_eq!(more, None, "a call that failed for good is still worked on");
}

#[test]
fn a_call_in_flight_at_kill_9_is_asked_about_and_settled() {
    let script = Script::new().request(1, Act::read_all().commit().hang());
    let mut world = World::with(script, |config| {
        config
            .set("defaults/timeouts/attempt", "10s")
            .set("defaults/timeouts/total", "20s")
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("flight"));
    world.tool.wait_effect(1);
    world.crash();
    world.gateway.wait_dead_letter("flight", "SETTLED");
    let receipt = world.gateway.receipt("flight").json();
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!(receipt["result"]["status"], 201);
    let again = world.call(&Call::with_id("flight"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn a_call_in_flight_at_kill_9_that_nobody_knows_is_never_sent_again_on_its_own() {
    let script = Script::new()
        .request(1, Act::read_all().hang())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    let mut world = World::with(script, |config| {
        config
            .set("defaults/timeouts/attempt", "10s")
            .set("defaults/timeouts/total", "20s")
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("flight"));
    world.tool.wait_request(1);
    world.crash();
    let repeat = world.call(&Call::with_id("flight"));
    repeat.problem(504, "unresolved");
    world.gateway.wait_dead_letter("flight", "MANUAL");
    assert_eq!(world.gateway.receipt("flight").json()["state"], "UNKNOWN");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_success_that_was_told_is_still_known_after_kill_9() {
    let mut world = World::new(Script::new());
    for n in 0..5 {
        let id = format!("told-{n}");
        let answer = world.call(&Call::with_id(&id));
        assert_eq!(answer.status, 201);
        world.crash();
        // The success itself may be learned again from the receipt; a second send never is.
        let state = |it: &serde_json::Value| it["state"] == "SUCCESS";
        world.gateway.wait_history(&id, "its success", state);
        let again = world.call(&Call::with_id(&id));
        assert_eq!((again.status, &again.body), (201, &answer.body));
        assert_eq!(again.outcome(), "replayed");
    }
    assert_eq!((world.tool.a(), world.tool.e()), (5, 5));
}

#[test]
fn a_second_process_on_the_same_ledger_is_refused_in_words() {
    let gate = Gate::default();
    let script = Script::new().request(1, Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/attempt", "10s")
            .set("defaults/timeouts/total", "20s")
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("alive"));
    world.tool.wait_request(1);
    let refused = Gateway::refused_in(world.gateway.folder(), &world.config);
    assert!(!refused.status.success());
    assert!(
        refused.log.contains("callgate.db"),
        "which ledger? {}",
        refused.log
    );
    // The living call was not taken for an orphan (C64).
    assert_eq!(world.tool.r(), 0);
    gate.open();
    assert_eq!(client.answer().status, 201);
    assert_eq!(world.call(&Call::with_id("next")).status, 201);
}

fn any_tool() -> (Tool, Config) {
    let tool = Tool::start(Script::new());
    let config = Config::standard(&tool);
    (tool, config)
}

/// A ledger as the gateway itself makes it.
fn an_existing_ledger(config: &Config) -> tempfile::TempDir {
    let mut gateway = Gateway::start(config);
    gateway.terminate();
    let made = folder();
    std::fs::copy(
        gateway.folder().join("callgate.db"),
        made.path().join("callgate.db"),
    )
    .expect("the ledger is a file");
    made
}

#[test]
fn a_ledger_that_another_program_holds_is_refused_in_words() {
    let (_tool, config) = any_tool();
    let folder = an_existing_ledger(&config);
    let file = folder.path().join("callgate.db");
    let other = Connection::open(&file).expect("the ledger is SQLite");
    other
        .execute_batch("BEGIN EXCLUSIVE")
        .expect("nobody holds it yet");
    let refused = Gateway::refused_in(folder.path(), &config);
    assert!(!refused.status.success());
    assert!(refused.log.contains("callgate.db"), "{}", refused.log);
    assert!(
        refused.log.contains("locked") || refused.log.contains("use"),
        "{}",
        refused.log
    );
}

#[test]
fn a_ledger_of_a_newer_version_is_refused_in_words() {
    let (_tool, config) = any_tool();
    let folder = an_existing_ledger(&config);
    let file = folder.path().join("callgate.db");
    let ledger = Connection::open(&file).expect("the ledger is SQLite");
    ledger
        .pragma_update(None, "user_version", 9_999)
        .expect("a number to tell");
    drop(ledger);
    let before = std::fs::read(&file).expect("the ledger");
    let refused = Gateway::refused_in(folder.path(), &config);
    assert!(!refused.status.success());
    assert!(
        refused.log.contains("9999") && refused.log.contains("newer"),
        "{}",
        refused.log
    );
    assert_eq!(
        std::fs::read(&file).expect("the ledger"),
        before,
        "it was touched"
    );
}

#[test]
fn a_ledger_that_is_no_ledger_is_refused_in_words() {
    let (_tool, config) = any_tool();
    let folder = folder();
    let file = folder.path().join("callgate.db");
    std::fs::write(&file, "a shopping list, not a database\n".repeat(400)).expect("a file");
    let refused = Gateway::refused_in(folder.path(), &config);
    assert!(!refused.status.success());
    assert!(refused.log.contains("callgate.db"), "{}", refused.log);
}

#[test]
fn a_ledger_that_cannot_be_written_is_refused_in_words() {
    let (_tool, config) = any_tool();
    let made = an_existing_ledger(&config);
    let path = made.path();
    let file = path.join("callgate.db");
    let mode = |path: &std::path::Path, mode| {
        let set = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        set.expect("one's own files take permissions");
    };
    let mut command = serve_command(path, &config);
    if std::fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
    {
        // Root writes what nobody may write: give the process away, with a binary it can reach.
        let binary = path.join("callgate");
        std::fs::copy(BINARY, &binary).expect("the binary can be copied");
        mode(&binary, 0o555);
        command = Command::new(binary);
        command
            .arg("serve")
            .arg("--config")
            .arg(write_config(path, &config));
        command.uid(65_534).gid(65_534);
    }
    mode(&file, 0o444);
    mode(path, 0o555);
    let refused = Gateway::refused_by(command);
    mode(path, 0o755);
    assert!(!refused.status.success());
    assert!(refused.log.contains("callgate.db"), "{}", refused.log);
    let says = ["read-only", "readonly", "ermission", "cannot be written"];
    assert!(
        says.iter().any(|word| refused.log.contains(word)),
        "{}",
        refused.log
    );
}

#[test]
fn the_ledger_syncs_fully_and_keeps_its_columns() {
    let mut world = World::new(Script::new());
    world.call(&Call::with_id("row"));
    world.gateway.terminate();
    let ledger = Connection::open(world.gateway.folder().join("callgate.db")).expect("SQLite");
    let columns = |table: &str| -> Vec<String> {
        let query = format!("SELECT name FROM pragma_table_info('{table}')");
        let mut statement = ledger.prepare(&query).expect("a table");
        let names = statement
            .query_map([], |row| row.get(0))
            .expect("its columns");
        names.map(|name| name.expect("a name")).collect()
    };
    let dead = columns("dead_letter");
    for name in [
        "call_id",
        "route",
        "client",
        "business_key",
        "request_id",
        "reason",
        "last_error",
        "fail_count",
        "next_retry_time",
        "create_time",
        "state",
        "round",
        "owner",
        "fence",
        "lease_until",
    ] {
        assert!(
            dead.iter().any(|column| column == name),
            "dead_letter has no {name}: {dead:?}"
        );
    }
    for name in [
        "client",
        "call_id",
        "owner",
        "fence",
        "upstream",
        "idempotency_key",
    ] {
        assert!(
            columns("calls").iter().any(|column| column == name),
            "calls has no {name}"
        );
    }
}
