//! Batches: `callgate push` and what the gateway makes of it, over crashes of either.

use crate::fixture::{Act, Checked, Config, Gate, Gateway, Receipts, Reply, Script, World};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_callgate");

/// A route that derives its keys from the rows, before a tool that takes its time.
pub(crate) fn keyed(config: Config) -> Config {
    config
        .slow(2)
        .route("idempotency", serde_json::json!({ "key": "{body:/no}" }))
}

pub(crate) fn rows(from: u32, to: u32) -> String {
    let mut text = "no,what\n".to_owned();
    for n in from..=to {
        writeln!(text, "RX{n:04},pickup").expect("a string takes text");
    }
    text
}

pub(crate) fn file(gateway: &Gateway, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = gateway.folder().join(name);
    std::fs::write(&path, text).expect("a file can be written");
    path
}

pub(crate) fn command(gateway: &Gateway, args: &[&str]) -> Command {
    command_at(&format!("http://{}", gateway.admin), args)
}

pub(crate) fn command_at(admin: &str, args: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["--admin", admin])
        .args(args)
        .env_remove("CALLGATE_ADMIN")
        .env_remove("CALLGATE_ADMIN_TOKEN");
    command
}

pub(crate) fn push(gateway: &Gateway, path: &Path, more: &[&str]) -> Checked {
    let path = path.to_str().expect("a plain path");
    let args = [&["push", path, "--route", "tool", "-o", "ndjson"], more].concat();
    Checked::run(&mut command(gateway, &args))
}

pub(crate) fn begin_push(gateway: &Gateway, path: &Path) -> Child {
    let path = path.to_str().expect("a plain path");
    let args = ["push", path, "--route", "tool", "--quiet", "-o", "ndjson"];
    command(gateway, &args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started")
}

pub(crate) fn document(checked: &Checked) -> Value {
    serde_json::from_str(&checked.out).unwrap_or_else(|_| panic!("no document: {checked:?}"))
}

pub(crate) fn batch(gateway: &Gateway, name: &str) -> Value {
    gateway.admin(&format!("/api/v1/batches/{name}")).json()
}

pub(crate) fn wait_state(gateway: &Gateway, name: &str, state: &str) -> Value {
    gateway.wait_until(&format!("batch {name} {state}"), || {
        Some(batch(gateway, name)).filter(|batch| batch["state"] == state)
    })
}

/// Exactly these rows had an effect, each once, whatever ids they came under.
pub(crate) fn assert_once_each(world: &World, rows: usize) {
    let pages = world.tool.pages();
    let mut done = Vec::new();
    for seen in &pages.requests {
        let id = String::from_utf8_lossy(&seen.id()).into_owned();
        let effects = pages.effects.iter().filter(|effect| **effect == id).count();
        if effects > 0 && !done.iter().any(|(known, _)| *known == id) {
            done.push((id, seen.body().to_vec()));
        }
    }
    let distinct: BTreeSet<_> = done.iter().map(|(_, body)| body).collect();
    assert_eq!(pages.effects.len(), rows, "effects");
    assert_eq!(distinct.len(), rows, "distinct rows with an effect");
}

#[test]
fn pushing_a_file_again_or_rows_of_another_file_sends_nothing_twice() {
    let world = World::with(Script::new().ignores_ids(), keyed);
    let first = file(&world.gateway, "night.csv", rows(1, 30));
    let pushed = push(&world.gateway, &first, &[]);
    assert_eq!(pushed.code, 0, "{pushed:?}");
    assert_eq!(document(&pushed)["done"], 30);
    let again = push(&world.gateway, &first, &[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert!(again.err.contains("submitted before"), "{again:?}");
    let named = push(&world.gateway, &first, &["--batch", "other"]);
    assert_eq!(document(&named)["replayed"], 30, "{named:?}");
    let shared = file(&world.gateway, "shared.csv", rows(21, 40));
    let pushed = push(&world.gateway, &shared, &[]);
    let told = document(&pushed);
    assert_eq!((&told["done"], &told["replayed"]), (&20.into(), &10.into()));
    assert_once_each(&world, 40);
}

#[test]
fn killing_the_gateway_in_the_middle_of_a_batch_loses_and_doubles_nothing() {
    // A tool that would do it all again: only the ids keep a row from having two effects.
    let act = Act::read_all().commit().wait(20).answer_result();
    let script = Script::new().ignores_ids().otherwise(act);
    // No key either: what is run again must be the same call. A row that died between its record
    // and its first byte is one that no receipt can settle: only a round that resends ends it.
    let mut world = World::with(script, |config| {
        config.slow(2).set("defaults/compensation/resend", true)
    });
    let path = file(&world.gateway, "night.csv", rows(1, 150));
    let pushing = begin_push(&world.gateway, &path);
    // The command finds the next life where it knew the first.
    let admin = world.gateway.admin.to_string();
    world.config = world.config.clone().set("admin/listen", admin);
    for effects in [30, 60, 90] {
        world.tool.wait_effect(effects);
        world.crash();
    }
    let ended = pushing.wait_with_output().expect("it ends");
    let told: Value = serde_json::from_slice(&ended.stdout).expect("a document");
    // What a kill left unclear is settled by its receipt, at the latest by a round.
    assert!(matches!(ended.status.code(), Some(0 | 3)), "{told}");
    assert_eq!(told["items"], 150, "{told}");
    let name = told["name"].as_str().expect("a name");
    world.gateway.wait_until("every row is done", || {
        Some(batch(&world.gateway, name)).filter(|batch| batch["done"] == 150)
    });
    assert_once_each(&world, 150);
}

#[test]
fn killing_the_command_changes_nothing_for_its_batch() {
    let act = Act::read_all().commit().wait(20).answer_result();
    let world = World::with(Script::new().ignores_ids().otherwise(act), keyed);
    let path = file(&world.gateway, "night.csv", rows(1, 60));
    let mut pushing = begin_push(&world.gateway, &path);
    world.tool.wait_effect(10);
    pushing.kill().expect("it runs");
    drop(pushing.wait());
    let again = push(&world.gateway, &path, &[]);
    assert_eq!(again.code, 0, "{again:?}");
    assert_eq!(document(&again)["done"], 60);
    assert_once_each(&world, 60);
}

#[test]
fn a_submission_that_breaks_off_runs_nothing_and_goes_on_where_it_stopped() {
    let world = World::with(Script::new().ignores_ids(), keyed);
    let text = rows(1, 600);
    let mut half = TcpStream::connect(world.gateway.admin).expect("it listens");
    let head = format!(
        "POST /api/v1/batches?name=cut&route=tool HTTP/1.1\r\nHost: x\r\n\
         Content-Type: text/csv\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    half.write_all(head.as_bytes()).expect("it reads");
    half.write_all(&text.as_bytes()[..text.len() / 2])
        .expect("it reads");
    world.gateway.wait_until("a chunk is in the ledger", || {
        (batch(&world.gateway, "cut")["items"].as_i64() > Some(0)).then_some(())
    });
    drop(half);
    let cut = batch(&world.gateway, "cut");
    assert_eq!(
        (&cut["state"], &cut["done"]),
        (&"LOADING".into(), &0.into())
    );
    assert_eq!(world.tool.a(), 0);
    let path = file(&world.gateway, "night.csv", &text);
    // Whoever reads the broken one may not have let go of the name yet.
    let pushed = world.gateway.wait_until("it is taken", || {
        let pushed = push(&world.gateway, &path, &["--batch", "cut"]);
        (!pushed.err.contains("right now")).then_some(pushed)
    });
    assert_eq!(pushed.code, 0, "{pushed:?}");
    assert_eq!(document(&pushed)["done"], 600);
    assert_once_each(&world, 600);
}

#[test]
fn another_file_under_a_known_name_is_refused_with_its_first_differing_line() {
    let world = World::with(Script::new(), keyed);
    let path = file(&world.gateway, "night.csv", rows(1, 3));
    push(&world.gateway, &path, &["--batch", "night"]);
    let other = rows(1, 3).replace("RX0002", "RX9999");
    let other = file(&world.gateway, "other.csv", other);
    let refused = push(&world.gateway, &other, &["--batch", "night"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("line 3 differs"), "{refused:?}");
    assert_eq!(world.tool.a(), 3);
}

#[test]
fn bad_rows_are_told_by_line_and_stop_the_others_only_when_strict() {
    let world = World::with(Script::new(), keyed);
    let text = "no,what\nRX1,a\nRX2\nRX\"3,b\n,c\nRX5,d\nRX1,a\n";
    let path = file(&world.gateway, "bad.csv", text);
    let strict = push(&world.gateway, &path, &["--strict"]);
    assert_eq!((strict.code, world.tool.a()), (2, 0), "{strict:?}");
    let pushed = push(&world.gateway, &path, &[]);
    assert_eq!(pushed.code, 1, "{pushed:?}");
    for told in [
        "line 3: it has 1 fields",
        "line 4: field 1 has a quote",
        "line 5: The idempotency key",
        "line 7: the same as line 2",
    ] {
        assert!(pushed.err.contains(told), "{told}: {pushed:?}");
    }
    let told = document(&pushed);
    assert_eq!((&told["done"], &told["bad"]), (&2.into(), &4.into()));
    assert_once_each(&world, 2);
}

#[test]
fn a_file_that_cannot_be_trusted_is_refused_and_nothing_is_sent() {
    let world = World::with(Script::new(), keyed);
    for (name, bytes, told) in [
        ("empty.csv", &b""[..], "is empty"),
        ("head.csv", b"no,what\n", "no other"),
        ("zip.csv", b"PK\x03\x04\0\0\0", "binary"),
        (
            "gbk.csv",
            b"\xb5\xa5\xba\xc5,what\nRX1,a\n",
            "--encoding gbk",
        ),
        (
            "mixed.csv",
            b"no,what\nRX1,a\nRX2,\xb5\xa5\xba\xc5\n",
            "line 3 is no UTF-8",
        ),
        (
            "open.csv",
            b"no,what\nRX1,a\nRX2,\"b\n",
            "line 3 opens a quote",
        ),
        ("twice.csv", b"no,no\nRX1,a\n", "stands in it twice"),
        (
            "semi.csv",
            b"no;what\nRX1;a\n",
            "`no;what` is one column, and looks like several that are separated by semicolons",
        ),
        ("tabs.csv", b"no\twhat\nRX1\ta\n", "separated by tabs"),
        ("mac.csv", b"no,what\rRX1,a\r", "carriage return alone"),
        (
            "json.csv",
            b"{\"no\":\"RX1\"}\n",
            "are pushed with `--format jsonl`",
        ),
    ] {
        let path = file(&world.gateway, name, bytes);
        let refused = push(&world.gateway, &path, &[]);
        assert_eq!(refused.code, 2, "{name}: {refused:?}");
        assert!(refused.err.contains(told), "{name}: {refused:?}");
    }
    let path = file(&world.gateway, "night.csv", rows(1, 1));
    let missing = push(&world.gateway, &path, &["--path", "/t/{number}"]);
    assert!(
        missing.err.contains("no column is called `number`"),
        "{missing:?}"
    );
    assert_eq!(world.tool.a(), 0);
    let gbk = b"no,what\nRX1,\xb5\xa5\xba\xc5\n";
    let path = file(&world.gateway, "gbk2.csv", gbk);
    let pushed = push(&world.gateway, &path, &["--encoding", "gbk"]);
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let body = world.tool.wait_request(1).body().to_vec();
    assert_eq!(
        String::from_utf8(body).expect("UTF-8"),
        r#"{"no":"RX1","what":"单号"}"#
    );
}

#[test]
fn a_batch_is_paused_resumed_and_cancelled() {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().otherwise(act), |config| {
        keyed(config).slow(15)
    });
    let path = file(&world.gateway, "night.csv", rows(1, 10));
    let args = ["--batch", "night", "--workers", "2", "--detach", "-q"];
    assert_eq!(push(&world.gateway, &path, &args).code, 0);
    world.tool.wait_request(2);
    let turn = |verb| Checked::run(&mut command(&world.gateway, &["batch", verb, "night"]));
    assert_eq!(turn("pause").code, 0);
    // Rows that were claimed ahead are given back before anything else happens to them.
    world
        .gateway
        .wait_until("what was claimed is given back", || {
            Some(batch(&world.gateway, "night")).filter(|batch| batch["waiting"] == 8)
        });
    gate.open();
    world.gateway.wait_until("what ran has ended", || {
        let batch = batch(&world.gateway, "night");
        (batch["done"] == 2 && batch["running"] == 0).then_some(())
    });
    assert_eq!(world.tool.a(), 2, "nothing new was begun");
    assert_eq!(turn("resume").code, 0);
    wait_state(&world.gateway, "night", "FINISHED");
    assert_eq!(turn("cancel").code, 1, "it is over");
    assert_once_each(&world, 10);
}

#[test]
fn what_stays_unclear_is_a_dead_letter_of_its_batch_and_is_followed() {
    let gate = Gate::default();
    let unknown = Act::says(Reply::new(503, ""));
    let known = Act::read_all()
        .pass(&gate)
        .then(crate::fixture::act::Step::Answer(Reply::json(
            200,
            r#"{"callId":"{id}","state":"SUCCESS"}"#,
        )));
    let script = Script::new()
        .otherwise(Act::read_all().commit().reset())
        .receipts(Receipts::InOrder(vec![
            unknown.clone(),
            unknown.clone(),
            unknown,
            known,
        ]));
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "300ms")
            .set("defaults/timeouts/receipt", "10s")
    });
    let path = file(&world.gateway, "one.csv", rows(1, 1));
    let pushed = push(&world.gateway, &path, &["--batch", "one"]);
    assert_eq!(pushed.code, 3, "{pushed:?}");
    let export = ["batch", "export", "one", "--state", "UNRESOLVED"];
    let exported = Checked::run(&mut command(&world.gateway, &export));
    let line = exported.out.lines().nth(1).expect("one item");
    let call_id = line.split(',').nth(2).expect("its call id").to_owned();
    let linked = world
        .gateway
        .admin(&format!("/api/v1/batches?call_id={call_id}"))
        .json();
    assert_eq!(linked["items"][0]["name"], "one", "{linked}");
    assert_eq!(linked["items"][0]["line"], 2, "{linked}");
    gate.open();
    let followed = world.gateway.wait_until("the item follows its call", || {
        Some(batch(&world.gateway, "one")).filter(|batch| batch["done"] == 1)
    });
    assert_eq!(followed["unresolved"], 0, "{followed}");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn the_events_of_a_batch_tell_how_it_goes_on_and_end_with_it() {
    let world = World::with(Script::new(), keyed);
    let path = file(&world.gateway, "night.csv", rows(1, 5));
    push(&world.gateway, &path, &["--batch", "night"]);
    let events = world.gateway.admin("/api/v1/batches/night/events");
    let text = String::from_utf8(events.body).expect("events are text");
    assert!(text.starts_with("event: end\ndata: {"), "{text}");
    assert!(text.contains(r#""done":5"#), "{text}");
}
