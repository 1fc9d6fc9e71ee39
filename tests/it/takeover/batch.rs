//! Another process takes over in the middle of a batch: no row is lost, none runs twice, and the
//! new process finishes what the old one began.

use super::{Living, patient};
use crate::batches::{command_at, rows};
use crate::fixture::{Act, Call, Client, PATIENCE, Script, Tool, ms};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Stdio;
use std::time::Instant;

const ROWS: u32 = 300;

/// What is said about the batch.
fn told(living: &Living) -> Value {
    let path = "/api/v1/batches/night";
    Client::connect(living.admin).call(&Call::get(path)).json()
}

#[test]
fn a_batch_goes_on_in_the_new_process_and_no_row_runs_twice() {
    let works = |millis| Act::read_all().commit().wait(millis).answer_result();
    // Most rows end while the old process may still wait for them, some do not. A tool that would
    // do every row again: only that nothing is sent twice keeps it from that.
    let script = Script::new().ignores_ids().otherwise(works(100));
    let script = (1..=8).fold(script, |script, n| script.request(n * 25, works(2_000)));
    let tool = Tool::start(script);
    let mut living = Living::start(&patient(&tool).slow(2));
    let path = living.folder().join("night.csv");
    std::fs::write(&path, rows(1, ROWS)).expect("the folder is ours");
    let path = path.to_str().expect("a plain path");
    let args = [
        "push", path, "--route", "tool", "--batch", "night", "--quiet",
    ];
    let pushing = command_at(&format!("http://{}", living.admin), &args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    for effects in [60, 150] {
        tool.wait_effect(effects);
        living.hand_over();
        let unfinished = told(&living)["done"].as_u64().expect("a number") < u64::from(ROWS);
        assert!(
            unfinished,
            "it was over before the other process had taken over"
        );
    }
    let ended = pushing.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(matches!(ended.status.code(), Some(0 | 3)), "{said}");
    let until = Instant::now() + PATIENCE;
    let done = loop {
        let now = told(&living);
        if now["done"] == ROWS {
            break now;
        }
        assert!(Instant::now() < until, "{now}\n{}", living.log.tail());
        std::thread::sleep(ms(50));
    };
    assert_eq!(done["items"], ROWS, "{done}");
    assert_eq!(done["refused"], 0, "{done}");
    let mut sends: HashMap<Vec<u8>, usize> = HashMap::new();
    for request in &tool.pages().requests {
        *sends.entry(request.body().to_vec()).or_default() += 1;
    }
    assert_eq!(
        sends.len(),
        usize::try_from(ROWS).expect("few"),
        "rows that were sent"
    );
    assert!(sends.values().all(|times| *times == 1), "{sends:?}");
    assert_eq!(tool.e(), sends.len());
    assert!(living.first_ends().success());
    living.end();
}
