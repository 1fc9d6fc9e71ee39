//! The doors of batches: two who push at once, what is told while a batch runs, names, exports.

use crate::batches::{
    assert_once_each, batch, command, document, file, keyed, push, rows, wait_state,
};
use crate::fixture::{Act, Call, Checked, Client, Gate, Gateway, Script, World};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

/// `callgate batch export NAME ..`
fn export(gateway: &Gateway, name: &str, more: &[&str]) -> Checked {
    let args = [&["batch", "export", name], more].concat();
    let exported = Checked::run(&mut command(gateway, &args));
    assert_eq!(exported.code, 0, "{exported:?}");
    exported
}

fn states(gateway: &Gateway, name: &str) -> Vec<String> {
    let csv = export(gateway, name, &["-o", "csv"]).out;
    let lines = csv.lines().skip(1);
    lines
        .map(|line| line.split(',').nth(1).expect("a state").to_owned())
        .collect()
}

#[test]
fn whoever_pushes_what_is_being_pushed_joins_and_another_file_is_refused() {
    let world = World::with(Script::new().ignores_ids(), keyed);
    let text = rows(1, 600);
    let path = file(&world.gateway, "night.csv", &text);
    let other = file(
        &world.gateway,
        "other.csv",
        text.replace("RX0599", "RX9999"),
    );
    // The first one has the name, and is in the middle of its file.
    let mut first = TcpStream::connect(world.gateway.admin).expect("it listens");
    let head = format!(
        "POST /api/v1/batches?name=night&route=tool HTTP/1.1\r\nHost: x\r\n\
         Content-Type: text/csv\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        text.len()
    );
    let (begun, rest) = text.as_bytes().split_at(text.len() / 2);
    first.write_all(head.as_bytes()).expect("it reads");
    first.write_all(begun).expect("it reads");
    world.gateway.wait_until("a chunk is in the ledger", || {
        (batch(&world.gateway, "night")["items"].as_i64() > Some(0)).then_some(())
    });
    let named = ["--batch", "night"];
    thread::scope(|scope| {
        let gateway = &world.gateway;
        let same = [(); 3].map(|()| scope.spawn(|| push(gateway, &path, &named)));
        let differs = scope.spawn(|| push(gateway, &other, &named));
        first.write_all(rest).expect("it reads");
        let mut answer = String::new();
        first.read_to_string(&mut answer).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 201 "), "{answer}");
        for pushed in same {
            let pushed = pushed.join().expect("no panic");
            assert_eq!(pushed.code, 0, "{pushed:?}");
            assert!(
                pushed.err.contains("all 600 rows were submitted"),
                "{pushed:?}"
            );
            assert_eq!(document(&pushed)["done"], 600);
        }
        let refused = differs.join().expect("no panic");
        assert_eq!(refused.code, 1, "{refused:?}");
        assert!(refused.err.contains("line 600 differs"), "{refused:?}");
    });
    assert_once_each(&world, 600);
    let taken = Call::new("POST", "/api/v1/batches?name=night&route=tool")
        .field("Content-Type", "text/csv")
        .body("no,what\nRX1,a\n");
    let problem = Client::connect(world.gateway.admin).call(&taken);
    assert_eq!(
        problem.problem(409, "order-refused")["reason"],
        "name-taken"
    );
    let pause = Call::new("POST", "/api/v1/batches/night/pause");
    let problem = Client::connect(world.gateway.admin).call(&pause);
    assert_eq!(
        problem.problem(409, "order-refused")["reason"],
        "batch-finished"
    );
}

#[test]
fn two_who_push_at_the_same_moment_push_one_batch() {
    let world = World::with(Script::new().ignores_ids(), keyed);
    for round in 0..5 {
        let (from, to) = (round * 40 + 1, round * 40 + 40);
        let path = file(&world.gateway, "night.csv", rows(from, to));
        thread::scope(|scope| {
            let gateway = &world.gateway;
            let pushing = [(); 4].map(|()| scope.spawn(|| push(gateway, &path, &[])));
            for pushed in pushing {
                let pushed = pushed.join().expect("no panic");
                assert_eq!(pushed.code, 0, "{pushed:?}");
                assert_eq!(document(&pushed)["done"], 40, "{pushed:?}");
            }
        });
    }
    assert_once_each(&world, 200);
}

#[test]
fn what_runs_is_told_apart_from_what_is_only_claimed() {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().otherwise(act), |config| {
        keyed(config).slow(15)
    });
    let path = file(&world.gateway, "night.csv", rows(1, 80));
    let args = ["--batch", "night", "--workers", "3", "--detach", "-q"];
    assert_eq!(push(&world.gateway, &path, &args).code, 0);
    world.tool.wait_request(3);
    let told = world.gateway.wait_until("three run", || {
        Some(batch(&world.gateway, "night")).filter(|batch| batch["running"] == 3)
    });
    let count = |member: &str| told[member].as_i64().expect("a number");
    assert!(count("leased") >= 3, "{told}");
    assert_eq!(count("waiting") + count("leased"), 80, "{told}");
    let list = Checked::run(&mut command(
        &world.gateway,
        &["batch", "list", "-o", "csv"],
    ));
    assert!(list.out.contains("waiting,leased,running,done"), "{list:?}");
    // An export of a batch that runs has every row, wherever it stands.
    let found = states(&world.gateway, "night");
    let of = |state: &str| found.iter().filter(|found| *found == state).count();
    assert_eq!(of("WAITING") + of("LEASED"), 80, "{found:?}");
    let cancel = ["batch", "cancel", "night"];
    assert_eq!(Checked::run(&mut command(&world.gateway, &cancel)).code, 0);
    gate.open();
    let ended = world.gateway.wait_until("what ran has ended", || {
        Some(batch(&world.gateway, "night")).filter(|batch| !batch["endedAt"].is_null())
    });
    assert_eq!(
        (&ended["leased"], &ended["running"]),
        (&json!(0), &json!(0))
    );
    let found = states(&world.gateway, "night");
    let of = |state: &str| found.iter().filter(|found| *found == state).count();
    assert_eq!((of("DONE"), of("CANCELLED")), (3, 77), "{found:?}");
    assert_once_each(&world, 3);
}

#[test]
fn an_export_comes_in_the_form_that_was_asked_for() {
    let world = World::with(Script::new(), keyed);
    let path = file(&world.gateway, "night.csv", "no,what\nRX1,a\nRX2\nRX3,c\n");
    push(&world.gateway, &path, &["--batch", "night"]);
    let of = |more: &[&str]| export(&world.gateway, "night", more).out;
    let csv = of(&[]);
    let heading = "line,state,call_id,key,attempts,status,outcome,error,";
    assert!(csv.starts_with(heading), "{csv}");
    assert_eq!(csv.lines().count(), 4);
    assert_eq!(of(&["-o", "csv"]), csv);
    assert_eq!(of(&["--as", "csv"]), csv, "as it was called before");
    let table = of(&["-o", "table"]);
    assert!(table.starts_with("LINE  STATE  CALL ID"), "{table}");
    assert_eq!(table.lines().count(), 4);
    let whole: Value = serde_json::from_str(&of(&["-o", "json"])).expect("one document");
    let items = whole["items"].as_array().expect("a list");
    let found: Vec<_> = items.iter().map(|item| &item["state"]).collect();
    assert_eq!(found, ["DONE", "BAD", "DONE"]);
    assert_eq!(whole["next"], Value::Null);
    let lines = of(&["-o", "ndjson"]);
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    let lines: Vec<Value> = lines.collect();
    assert_eq!(&lines, items);
    let none = ["--state", "REFUSED", "-o"];
    let empty = of(&[&none[..], &["json"]].concat());
    let empty: Value = serde_json::from_str(&empty).expect("one document");
    assert_eq!(empty, json!({ "items": [], "next": null }));
    let nothing = export(&world.gateway, "night", &[&none[..], &["table"]].concat());
    assert_eq!(
        (nothing.out.as_str(), nothing.err.trim()),
        ("", "No item matches.")
    );
}

#[test]
fn whatever_a_file_is_called_its_batch_can_be_named_afterwards() {
    let world = World::with(Script::new(), keyed);
    let long = "n".repeat(200) + ".csv";
    for (n, name) in [
        "---x.csv",
        "-.csv",
        "夜间.csv",
        "a\u{1b}[2J\nb.csv",
        &long,
        "..csv",
    ]
    .into_iter()
    .enumerate()
    {
        let path = file(&world.gateway, name, format!("no,what\nRX{n},a\n"));
        let pushed = push(&world.gateway, &path, &[]);
        assert_eq!(pushed.code, 0, "{name:?}: {pushed:?}");
        let told = document(&pushed);
        let batch = told["name"].as_str().expect("a name");
        let shown = Checked::run(&mut command(&world.gateway, &["batch", "show", batch]));
        assert_eq!(shown.code, 0, "{batch}: {shown:?}");
        assert!(shown.out.contains(batch), "{batch}: {shown:?}");
    }
    let path = file(&world.gateway, "night.csv", rows(1, 1));
    for name in ["--batch=-x", "--batch=.x", "--batch=a b", "--batch="] {
        let refused = push(&world.gateway, &path, &[name]);
        assert_eq!(refused.code, 2, "{name}: {refused:?}");
    }
    assert_eq!(world.tool.a(), 6);
}

#[test]
fn what_stays_unresolved_is_exported_with_the_columns_of_the_job() {
    let hangs = Act::read_all().commit().hang();
    let script = Script::new()
        .otherwise(hangs)
        .receipts(crate::fixture::Receipts::always(Act::state("PROCESSING")));
    let world = World::with(script, |config| {
        keyed(config)
            .set("defaults/timeouts/attempt", "100ms")
            .set("defaults/timeouts/total", "300ms")
            .set("defaults/compensation/rounds", json!(["10m"]))
    });
    let path = file(&world.gateway, "night.csv", rows(1, 2));
    let pushed = push(&world.gateway, &path, &["--batch", "night"]);
    assert_eq!(pushed.code, 3, "{pushed:?}");
    wait_state(&world.gateway, "night", "FINISHED");
    let csv = export(&world.gateway, "night", &["--state", "unresolved"]).out;
    let call_ids: Vec<_> = csv
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(2))
        .collect();
    assert_eq!(call_ids.len(), 2, "{csv}");
    let args = ["dead", "list", "-o", "csv"];
    let letters = Checked::run(&mut command(&world.gateway, &args)).out;
    let heading =
        "business_key,request_id,last_error,fail_count,next_retry_time,create_time,call_id";
    assert!(letters.starts_with(heading), "{letters}");
    for (n, call_id) in call_ids.into_iter().enumerate() {
        let line = letters
            .lines()
            .find(|line| line.contains(call_id.expect("an id")));
        let fields: Vec<_> = line.expect("a letter").split(',').collect();
        assert_eq!(fields[0], format!("RX{:04}", n + 1), "{letters}");
        assert_eq!(fields[1].len(), 64, "the request id is the key: {letters}");
        assert!(fields[2].contains("PROCESSING"), "{letters}");
        assert_eq!(fields[3], "0", "no round was done yet: {letters}");
        for time in [fields[4], fields[5]] {
            assert!(time.ends_with('Z') && time.len() == 24, "{time}: {letters}");
        }
    }
}
