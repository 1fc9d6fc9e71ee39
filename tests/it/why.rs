//! Why a call ran as it did, and who is told when it needs a human: C06, C08, C31.

use crate::fixture::gateway::BINARY;
use crate::fixture::{Act, Call, Checked, Receipts, Reply, Script, Tool, World, ms};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

fn why(world: &World, name: &str) -> Value {
    let answer = world.gateway.admin(&format!("/api/v1/calls/{name}/why"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn from_file(folder: &Path, more: &[&str]) -> Checked {
    let mut command = Command::new(BINARY);
    command
        .args(["why", "-o", "json", "--ledger"])
        .arg(folder.join("callgate.db"))
        .args(more);
    Checked::run(&mut command)
}

fn texts(why: &Value) -> String {
    let lines = why["timeline"].as_array().expect("a timeline");
    let texts = lines
        .iter()
        .map(|line| line["text"].as_str().expect("text"));
    texts.collect::<Vec<_>>().join("\n")
}

/// That these stand in the text, one after the other.
#[track_caller]
fn assert_in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at = rest
            .find(part)
            .unwrap_or_else(|| panic!("no {part:?} where expected in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn c06_why_prints_one_send_its_timeout_and_the_receipts_in_order() {
    for honours in [true, false] {
        let script = Script::new()
            .otherwise(Act::read_all().wait(50).commit().hang())
            .receipts(Receipts::InOrder(vec![
                Act::state("PROCESSING"),
                Act::state("SUCCESS"),
            ]));
        let script = if honours {
            script
        } else {
            script.ignores_ids()
        };
        let mut world = World::new(script);
        let answer = world.call(&Call::with_id("c1"));
        assert_eq!(answer.outcome(), "receipt", "{}", answer.text());
        assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
        let parts = [
            "Received",
            "(send 1)",
            "No answer to send 1",
            "PROCESSING",
            "SUCCESS",
            "Settled: SUCCESS",
        ];
        // A success is told before its record is on the disk.
        let settled = |history: &Value| history["state"] == "SUCCESS";
        world
            .gateway
            .wait_history("c1", "the record of the end", settled);
        let told = why(&world, "c1");
        assert_in_order(&texts(&told), &parts);
        assert_eq!(told["verdict"], "once-by-receipt");
        // Killed: the ledger file alone tells the same, and is not touched.
        world.gateway.kill9();
        let file = world.gateway.folder().join("callgate.db");
        let before = fs::read(&file).expect("a ledger");
        let printed = from_file(world.gateway.folder(), &["c1"]);
        assert_eq!(printed.code, 0, "{printed:?}");
        let again: Value = serde_json::from_str(&printed.out).expect("JSON");
        assert_eq!(again["timeline"], told["timeline"]);
        let log = world.gateway.folder().join("tool.log");
        let line = r#"{"event":"executed","callId":"c1"}"#;
        fs::write(&log, format!("{line}\n{line}\n")).expect("a log");
        let log = log.display().to_string();
        let compared = from_file(world.gateway.folder(), &["c1", "--log", &log]);
        let compared: Value = serde_json::from_str(&compared.out).expect("JSON");
        assert_eq!(compared["verdict"], "tool-ignored-id");
        assert_eq!(from_file(world.gateway.folder(), &["nobody"]).code, 4);
        assert_eq!(fs::read(&file).expect("a ledger"), before);
        world.restart();
    }
}

#[test]
fn c08_the_diagnosis_of_the_second_id_names_the_first() {
    let world = World::prompt(Script::new());
    let call = |id: &str| Call::with_id(id).field("Idempotency-Key", "k1");
    assert_eq!(world.call(&call("c1")).status, 201);
    assert_eq!(world.call(&call("c2")).must("x-original-call-id"), "c1");
    for name in ["c2", "k1"] {
        let told = why(&world, name);
        assert_eq!(told["callId"], "c1", "{told:#}");
        assert_eq!(told["others"][0]["callId"], "c2");
        assert_eq!(told["verdict"], "once");
    }
    assert_eq!(world.tool.a(), 1);
    let unknown = world.gateway.admin("/api/v1/calls/nobody/why");
    assert_eq!(unknown.status, 404, "{}", unknown.text());
}

#[test]
fn c31_a_call_for_a_human_is_one_alert_over_restarts_and_a_receiver_that_fails() {
    let refuses = || Act::says(Reply::new(500, ""));
    let receiver = Tool::start(
        Script::new()
            .request(1, refuses())
            .request(2, refuses())
            .otherwise(Act::read_all().commit().answer(Reply::new(204, ""))),
    );
    let hook = format!("http://{}/alerts", receiver.address);
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(refuses()));
    let mut world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "600ms")
            .set("defaults/timeouts/late", "300ms")
            .route("compensation", json!({ "alert": { "webhook": hook } }))
    });
    world.call(&Call::with_id("c1"));
    world.gateway.wait_dead_letter("c1", "MANUAL");
    receiver.wait_request(1);
    world.crash();
    receiver.wait_effect(1);
    let (first, last) = (receiver.wait_request(1), receiver.wait_request(3));
    let document = |body: &[u8]| -> Value { serde_json::from_slice(body).expect("JSON") };
    assert_eq!(document(first.body())["id"], document(last.body())["id"]);
    let alert = document(last.body());
    assert_eq!(
        (&alert["event"], &alert["count"]),
        (&json!("manual"), &json!(1))
    );
    assert_eq!(alert["calls"][0]["callId"], "c1");
    world.gateway.wait_metric(
        "callgate_alerts_total",
        &[("route", "tool"), ("result", "delivered")],
        1.0,
    );
    world.crash();
    std::thread::sleep(ms(2_500));
    assert_eq!(receiver.a(), 3, "one alert, told until it was taken");
    assert_eq!(why(&world, "c1")["verdict"], "unknown");
}
