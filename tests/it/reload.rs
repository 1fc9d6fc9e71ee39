//! A configuration that changes while calls run (C56), a bad one (C60), and the switch for resends.

use crate::fixture::gateway::BINARY;
use crate::fixture::{Act, Call, Config, Gate, PATIENCE, Receipts, Script, World, ms};
use serde_json::{Value, json};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The configuration with this mark, which the tool sees on every send.
fn marked(config: &Config, mark: u32) -> Config {
    let headers = json!({ "X-Mark": mark.to_string() });
    config.clone().route("upstream/headers", headers)
}

/// The mark of the next call.
fn mark_of(world: &World, id: &str) -> Option<String> {
    assert_eq!(world.call(&Call::with_id(id)).status, 201);
    let sent = world.tool.sends(id);
    sent.last().and_then(|sent| sent.head.one("x-mark"))
}

fn reloads(world: &World, result: &str) -> f64 {
    let metrics = world.gateway.metrics();
    metrics.value("callgate_config_reloads_total", &[("result", result)])
}

fn wait_reloads(world: &World, result: &str, count: f64) {
    let labels = [("result", result)];
    world
        .gateway
        .wait_metric("callgate_config_reloads_total", &labels, count);
}

fn reload(world: &World) -> crate::fixture::Answer {
    let post = Call::new("POST", "/api/v1/reload").field("Content-Type", "application/json");
    crate::fixture::Client::connect(world.gateway.admin).call(&post)
}

fn last_reload(world: &World) -> Value {
    world.gateway.admin("/api/v1/config").json()["reload"]["last"].clone()
}

#[test]
fn c56_however_a_file_is_replaced_it_is_in_force_within_a_moment() {
    let world = World::prompt(Script::new());
    let file = world.gateway.config_file();
    let folder = world.gateway.folder().to_owned();
    let text = |mark| marked(&world.config, mark).yaml();
    assert_eq!(mark_of(&world, "m0"), None);
    fs::write(&file, text(1)).expect("written over");
    wait_reloads(&world, "success", 1.0);
    assert_eq!(mark_of(&world, "m1").as_deref(), Some("1"));
    // As editors save: beside it, then renamed over it.
    fs::write(folder.join("new"), text(2)).expect("written beside");
    fs::rename(folder.join("new"), &file).expect("renamed");
    wait_reloads(&world, "success", 2.0);
    assert_eq!(mark_of(&world, "m2").as_deref(), Some("2"));
    // As a ConfigMap is mounted: a link to a link to a folder, and that link is swapped.
    for version in [3, 4] {
        let at = folder.join(version.to_string());
        fs::create_dir(&at).expect("a folder");
        fs::write(at.join("callgate.yaml"), text(version)).expect("written");
    }
    let data = folder.join("..data");
    symlink("3", &data).expect("a link");
    symlink("..data/callgate.yaml", folder.join("link")).expect("a link");
    fs::rename(folder.join("link"), &file).expect("renamed");
    wait_reloads(&world, "success", 3.0);
    assert_eq!(mark_of(&world, "m3").as_deref(), Some("3"));
    symlink("4", folder.join("..data_tmp")).expect("a link");
    fs::rename(folder.join("..data_tmp"), &data).expect("swapped");
    wait_reloads(&world, "success", 4.0);
    assert_eq!(mark_of(&world, "m4").as_deref(), Some("4"));
    // And by those who ask for it, whatever the file looks like.
    world.gateway.signal_hup();
    wait_reloads(&world, "success", 5.0);
    assert_eq!(last_reload(&world)["cause"], "signal");
    assert_eq!(reload(&world).json()["result"], "success");
    assert_eq!(last_reload(&world)["cause"], "operator");
    assert_eq!(reloads(&world, "failure"), 0.0);
    assert_eq!(world.tool.k(), 1, "the connection to the tool was kept");
}

#[test]
fn c60_a_bad_file_changes_nothing_and_is_told_with_its_place() {
    let world = World::prompt(Script::new());
    let file = world.gateway.config_file();
    let bad = "node: it\nworkers: 2\nroutes:\n- name: tool\n  upstream: { url: 'http://h' }\n  \
               timeouts: { attempt: 30 }\n";
    fs::write(&file, bad).expect("written");
    wait_reloads(&world, "failure", 1.0);
    let successful = "callgate_config_last_reload_successful";
    assert_eq!(world.gateway.metrics().value(successful, &[]), 0.0);
    let last = last_reload(&world);
    assert_eq!(last["result"], "failure", "{last}");
    let at = last["findings"][0]["at"].as_str().expect("a place");
    assert!(at.ends_with("callgate.yaml:6:24"), "{last}");
    assert_eq!(last["findings"][0]["key"], "routes[0].timeouts.attempt");
    let told = |record: &Value| {
        let text = record["msg"].as_str().unwrap_or_default();
        text.contains("not reloaded") && text.contains("callgate.yaml:6:24")
    };
    assert!(world.gateway.log().records().iter().any(told));
    let ready = world.gateway.admin("/readyz?verbose");
    assert_eq!(ready.status, 200, "an old configuration is in force");
    assert!(ready.text().contains("configuration"), "{}", ready.text());
    let problem = reload(&world);
    let problem = problem.problem(422, "order-refused");
    assert_eq!(problem["reason"], "bad-configuration");
    assert_eq!(mark_of(&world, "old"), None);
    // What needs a restart is refused as a whole, too.
    let workers = marked(&world.config, 1).set("workers", 2).yaml();
    fs::write(&file, workers).expect("written");
    world.gateway.wait_until("the refusal", || {
        (last_reload(&world)["findings"][0]["key"] == "workers").then_some(())
    });
    assert_eq!(mark_of(&world, "still"), None);
    fs::write(&file, marked(&world.config, 2).yaml()).expect("written");
    world.gateway.wait_metric(successful, &[], 1.0);
    assert_eq!(mark_of(&world, "new").as_deref(), Some("2"));
}

#[test]
fn c56_an_empty_file_seen_during_a_save_is_not_applied() {
    let world = World::prompt(Script::new());
    let file = world.gateway.config_file();
    fs::write(&file, "").expect("truncated");
    // Several looks; there is no event for something that does not happen.
    std::thread::sleep(ms(1_200));
    assert_eq!(mark_of(&world, "meanwhile"), None);
    fs::write(&file, marked(&world.config, 1).yaml()).expect("written");
    wait_reloads(&world, "success", 1.0);
    assert_eq!(reloads(&world, "failure"), 0.0);
    assert_eq!(mark_of(&world, "after").as_deref(), Some("1"));
}

#[test]
fn c56_a_call_that_runs_keeps_its_route_and_what_is_left_of_a_removed_one_is_gone() {
    let gate = Gate::default();
    let script = Script::new()
        .request(1, Act::read_all().commit().reset())
        .otherwise(Act::read_all().commit().pass(&gate).answer_result())
        .receipts_of("left", vec![Act::state("UNKNOWN")]);
    let world = World::with(script, |config| {
        config
            .slow(2)
            .set("defaults/timeouts/total", "3s")
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/rounds", json!(["1500ms", "1h"]))
    });
    world
        .call(&Call::with_id("left"))
        .problem(504, "unresolved");
    let mut runs = world.gateway.client();
    runs.send(&Call::with_id("runs"));
    world.tool.wait_request(2);
    let other = world
        .config
        .clone()
        .route("name", "other")
        .route("match/path", "/other/**");
    fs::write(world.gateway.config_file(), other.yaml()).expect("written");
    wait_reloads(&world, "success", 1.0);
    gate.open();
    assert_eq!(runs.answer().status, 201);
    world.call(&Call::with_id("none")).problem(404, "no-route");
    let row = world.gateway.wait_dead_letter("left", "MANUAL");
    assert_eq!(row["reason"], "route-changed", "{row}");
    let gone = [("route", "gone"), ("state", "MANUAL")];
    world
        .gateway
        .wait_metric("callgate_dead_letters", &gone, 1.0);
}

#[test]
fn a_clients_new_key_is_valid_and_its_old_one_is_not() {
    let world = World::build(Script::new(), |tool| {
        let keys = std::env::temp_dir().join(format!("callgate-key-{}", std::process::id()));
        fs::write(&keys, "first-key-0123456789\n").expect("written");
        let client = json!([{ "name": "billing", "key_file": keys }]);
        Config::standard(tool).slow(2).set("clients", client)
    });
    let call = |id: &str, key: &str| {
        world
            .call(&Call::with_id(id).field("X-Api-Key", key))
            .status
    };
    assert_eq!(call("k1", "first-key-0123456789"), 201);
    let keys = std::env::temp_dir().join(format!("callgate-key-{}", std::process::id()));
    fs::write(&keys, "second-key-0123456789\n").expect("written");
    wait_reloads(&world, "success", 1.0);
    assert_eq!(call("k2", "second-key-0123456789"), 201);
    assert_eq!(call("k3", "first-key-0123456789"), 401);
    fs::remove_file(keys).expect("removed");
}

#[test]
fn c56_a_hundred_reloads_under_load_drop_no_connection_and_no_call() {
    let world = World::prompt(Script::new());
    let done = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    let file = world.gateway.config_file();
    let calls = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|n| {
                let (world, done, answered) = (&world, &done, &answered);
                scope.spawn(move || {
                    // One connection each, for all of its calls.
                    let mut client = world.gateway.client();
                    let mut calls = 0;
                    while !done.load(Ordering::SeqCst) {
                        let answer = client.call(&Call::with_id(&format!("load-{n}-{calls}")));
                        assert_eq!(answer.status, 201, "{}", answer.text());
                        calls += 1;
                        answered.fetch_add(1, Ordering::SeqCst);
                    }
                    calls
                })
            })
            .collect();
        for mark in 0..100 {
            // However slow the machine, there are calls between two reloads.
            while answered.load(Ordering::SeqCst) <= mark as usize {
                std::thread::yield_now();
            }
            // Half of them change nothing.
            fs::write(&file, marked(&world.config, mark / 2).yaml()).expect("written");
            assert_eq!(reload(&world).status, 200);
        }
        done.store(true, Ordering::SeqCst);
        let calls = callers
            .into_iter()
            .map(|caller| caller.join().expect("no panic"));
        calls.sum::<usize>()
    });
    assert!(calls >= 100, "{calls} calls");
    assert!(reloads(&world, "success") >= 100.0);
    assert_eq!(world.tool.a(), calls);
    assert!(
        world.tool.k() <= 8,
        "{} connections to the tool",
        world.tool.k()
    );
}

#[test]
fn c56_an_unchanged_limit_keeps_its_level_and_a_changed_one_is_in_force_at_once() {
    let world = World::prompt_with(Script::new(), |config| config.route("limits/rate", "600/m"));
    let mut client = world.gateway.client();
    let mut n = 0;
    let mut status = || {
        n += 1;
        client.call(&Call::with_id(&format!("level-{n}"))).status
    };
    let used_up = (0..2_000).any(|_| status() == 429);
    assert!(used_up, "the rate lets everything in");
    // The edge of a minute may fall into the test, and fills it up once.
    let full_again = (0..20).filter(|_| {
        assert_eq!(reload(&world).status, 200);
        status() != 429
    });
    assert!(
        full_again.count() <= 20 / 2,
        "a reload that changes nothing fills it up"
    );
    let changed = world.config.clone().route("limits/rate", "7/m");
    fs::write(world.gateway.config_file(), changed.yaml()).expect("written");
    assert_eq!(reload(&world).status, 200);
    let passed = (0..40).filter(|_| status() != 429).count();
    assert!((7..=14).contains(&passed), "{passed} at 7/m");
}

#[test]
fn a_reload_that_adds_a_tool_which_is_not_there_warns_as_the_start_does() {
    let world = World::new(Script::new());
    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let nowhere = nowhere.expect("a port").to_string();
    let mut route = json!({ "name": "other", "match": { "path": "/other/**" }, "receipt": {} });
    route["upstream"] = json!({ "url": format!("http://{nowhere}") });
    let more = world.config.clone().set("routes/1", route);
    let verbose = || world.gateway.admin("/readyz?verbose").text();
    assert!(!verbose().contains(&nowhere));
    fs::write(world.gateway.config_file(), more.yaml()).expect("written");
    assert_eq!(reload(&world).status, 200);
    let warned = world.gateway.log().wait(PATIENCE, |record| {
        record["level"] == "warn" && record.to_string().contains(&nowhere)
    });
    let said = world.gateway.log_tail();
    assert!(warned.is_some(), "nothing was said: {said}");
    assert!(verbose().contains(&nowhere), "{}", verbose());
    // It goes as it came.
    fs::write(world.gateway.config_file(), world.config.yaml()).expect("written");
    assert_eq!(reload(&world).status, 200);
    world.gateway.wait_until("nobody misses it", || {
        (!verbose().contains(&nowhere)).then_some(())
    });
}

#[test]
fn a_pipe_in_the_place_of_the_file_stops_nothing() {
    let world = World::prompt(Script::new());
    // Without waiting: it stands there when the gateway looks for the first time after its start.
    let file = world.gateway.config_file();
    fs::remove_file(&file).expect("removed");
    let made = Command::new("mkfifo").arg(&file).status();
    assert!(made.expect("mkfifo runs").success());
    let refused = reload(&world);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(
        refused.text().contains("no regular file"),
        "{}",
        refused.text()
    );
    world.gateway.signal_hup();
    wait_reloads(&world, "failure", 2.0);
    fs::remove_file(&file).expect("removed");
    fs::write(&file, marked(&world.config, 1).yaml()).expect("written");
    wait_reloads(&world, "success", 1.0);
    assert_eq!(mark_of(&world, "m1").as_deref(), Some("1"));
}

#[test]
fn a_file_that_could_not_be_read_is_read_when_it_can_be() {
    let world = World::prompt(Script::new());
    let file = world.gateway.config_file();
    let aside = world.gateway.folder().join("aside");
    // The same file is away for a moment and comes back as it was.
    fs::rename(&file, &aside).expect("renamed");
    assert_eq!(reload(&world).status, 422);
    wait_reloads(&world, "failure", 1.0);
    fs::rename(&aside, &file).expect("renamed back");
    world
        .gateway
        .wait_metric("callgate_config_last_reload_successful", &[], 1.0);
}

/// Turns the switch by the command line; what it prints.
fn switched(world: &World, args: &[&str]) -> Value {
    let admin = format!("http://{}", world.gateway.admin);
    let output = Command::new(BINARY)
        .args(["retries", "-o", "json", "--admin", &admin])
        .args(args)
        .output()
        .expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn resends_are_switched_off_and_on_for_a_route_and_for_all() {
    let script = Script::new()
        .otherwise(Act::read_all().commit().answer_result())
        .request(1, Act::read_all().reset())
        .request(2, Act::read_all().reset())
        .request(3, Act::read_all().reset())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        config
            .slow(2)
            .set("defaults/compensation/rounds", json!(["1h"]))
    });
    let enabled = |route: &str| {
        let metrics = world.gateway.metrics();
        metrics.value("callgate_retries_enabled", &[("route", route)])
    };
    assert_eq!(enabled("tool"), 1.0);
    let state = switched(&world, &["off", "--route", "tool"]);
    assert_eq!(state["routes"]["tool"], false, "{state}");
    assert_eq!(enabled("tool"), 0.0);
    let answer = world.call(&Call::with_id("off"));
    answer.problem(504, "unresolved");
    assert_eq!((answer.attempts(), world.tool.a()), (1, 1));
    world.gateway.wait_dead_letter("off", "QUEUED");
    // A reload leaves it as it is.
    assert_eq!(reload(&world).status, 200);
    assert_eq!(switched(&world, &[])["off"], json!(["tool"]));
    switched(&world, &["on", "--route", "tool"]);
    switched(&world, &["off"]);
    world
        .call(&Call::with_id("all-off"))
        .problem(504, "unresolved");
    assert_eq!(world.tool.a(), 2);
    let state = switched(&world, &["on"]);
    assert_eq!(
        (state["enabled"].clone(), enabled("tool")),
        (json!(true), 1.0)
    );
    let answer = world.call(&Call::with_id("on"));
    assert_eq!((answer.status, answer.attempts()), (201, 2));
    let denied = [("route", "tool"), ("reason", "switched-off")];
    let denied = world
        .gateway
        .metrics()
        .value("callgate_retries_denied_total", &denied);
    assert_eq!(denied, 2.0);
    let admin = format!("http://{}", world.gateway.admin);
    let unknown = Command::new(BINARY)
        .args(["retries", "off", "--route", "other", "--admin", &admin])
        .output()
        .expect("the command runs");
    assert_eq!(unknown.status.code(), Some(4));
}

#[test]
fn a_round_that_may_not_send_says_so() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::at_commit());
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "600ms")
            .set("defaults/timeouts/late", "300ms")
            .set("defaults/compensation/resend", true)
            .set(
                "defaults/compensation/rounds",
                json!(["50ms", "100ms", "60s"]),
            )
    });
    let off = ["retries", "off", "--admin"];
    let admin = format!("http://{}", world.gateway.admin);
    let switched = Command::new(BINARY).args(off).arg(admin).status();
    assert!(switched.expect("the command runs").success());
    world.call(&Call::with_id("c1")).problem(504, "unresolved");
    let shown = world.gateway.wait_until("two rounds", || {
        let shown = world.gateway.admin("/api/v1/dead-letters/c1").json();
        (shown["round"].as_u64() >= Some(2)).then_some(shown)
    });
    assert_eq!(shown["last_error"], "receipt NOT_FOUND; denied", "{shown}");
    let why = world
        .gateway
        .admin("/api/v1/calls/c1/why")
        .json()
        .to_string();
    assert!(why.contains("(receipt NOT_FOUND; denied)"), "{why}");
    assert_eq!(world.tool.a(), 1);
}
