//! `kill -9` at random moments under load: zero lost, zero doubled.
//!
//! Several callers make calls as fast as they are answered, through a gateway that is killed and
//! started again all the time, at a tool that does the work again whenever it is told to, loses
//! answers, hangs and drops calls. A caller whose connection broke repeats its call under the same
//! id, as callers do. In the end the tool's books, the callers' and the ledger must agree.
//!
//! `CALLGATE_KILLS` says how often (`tests/run soak`: 200), `CALLGATE_KILLS_SEED` which moments
//! and which tool; both are printed. Real time makes no two runs the same.

use crate::fixture::{Act, Call, Client, Config, Gateway, Reply, Script, Tool, ms};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rusqlite::Connection;
use serde_json::json;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

const CALLERS: usize = 12;

/// Requests that have an act of their own; later ones are healthy.
const SCRIPTED: usize = 20_000;

/// What the callers know.
#[derive(Default)]
struct Callers {
    /// The address of the present life.
    address: Mutex<Option<SocketAddr>>,
    /// What each call was told last: its status and outcome.
    told: Mutex<HashMap<String, (u16, String)>>,
    over: AtomicBool,
    /// The test has failed: nobody will answer any more.
    failed: AtomicBool,
}

/// Sends the callers home when the test ends before its end.
struct Home<'a>(&'a Callers);

impl Drop for Home<'_> {
    fn drop(&mut self) {
        self.0
            .failed
            .store(std::thread::panicking(), Ordering::SeqCst);
        self.0.over.store(true, Ordering::SeqCst);
    }
}

/// A call as the ledger has it in the end.
struct Row {
    state: String,
    sends: u32,
    letter: Option<String>,
}

#[test]
fn forty_kills_at_random_moments_lose_nothing_and_double_nothing() {
    let kills = number("CALLGATE_KILLS").unwrap_or(40);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = number("CALLGATE_KILLS_SEED").unwrap_or(now.map_or(1, |it| it.as_secs()));
    eprintln!("CALLGATE_KILLS={kills} CALLGATE_KILLS_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let tool = Tool::start(script(&mut dice));
    let config = policy(&tool);
    let mut gateway = Gateway::start(&config);
    let callers = Callers::default();
    std::thread::scope(|threads| {
        for caller in 0..CALLERS {
            let callers = &callers;
            threads.spawn(move || callers.call_on(caller));
        }
        let home = Home(&callers);
        for _ in 0..kills {
            callers.found_at(Some(gateway.listen));
            std::thread::sleep(ms(dice.random_range(1..200)));
            callers.found_at(None);
            gateway.kill9();
            gateway.restart(&config);
        }
        callers.found_at(Some(gateway.listen));
        drop(home);
    });
    settle(&gateway);
    gateway.terminate();
    let rows = rows(&gateway);
    let told = callers.told.into_inner().expect("no caller panicked");
    let summary = audit(&tool, &rows, &told);
    eprintln!("{} calls, {} effects: {summary}", told.len(), tool.e());
    assert!(told.len() > usize::try_from(kills).expect("a number of kills"));
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number")),
    )
}

/// A tool that has bad days.
fn script(dice: &mut StdRng) -> Script {
    let mut script = Script::new().ignores_ids();
    for n in 1..=SCRIPTED {
        let act = match dice.random_range(0..100) {
            0..4 => Act::read_all().commit().reset(),
            4..7 => Act::read_all().reset(),
            7..10 => Act::read_all()
                .commit()
                .answer(Reply::json(503, r#"{"busy":1}"#)),
            10..12 => Act::read_all().commit().hang(),
            12..13 => Act::read_all().hang(),
            13..30 => Act::read_all()
                .wait(dice.random_range(1..20))
                .commit()
                .answer_result(),
            30..40 => Act::read_all()
                .commit()
                .wait(dice.random_range(1..20))
                .answer_result(),
            _ => continue,
        };
        script = script.request(n, act);
    }
    script
}

/// What was sent is in the tool's hands at once; that it is seen there may take as long as a busy
/// machine lets its thread wait. `settle` covers that, as it must in the field.
fn policy(tool: &Tool) -> Config {
    Config::standard(tool)
        .set("defaults/compensation/resend", true)
        .set(
            "defaults/compensation/rounds",
            json!(["300ms", "1s", "2s", "3s", "4s"]),
        )
        .route("receipt/settle", "500ms")
}

impl Callers {
    fn found_at(&self, address: Option<SocketAddr>) {
        *self.address.lock().expect("no caller panicked") = address;
    }

    fn call_on(&self, caller: usize) {
        let mut n = 0;
        while !self.over.load(Ordering::SeqCst) {
            n += 1;
            let id = format!("kill-{caller}-{n}");
            let told = self.call(&id);
            self.told
                .lock()
                .expect("no caller panicked")
                .insert(id, told);
        }
    }

    /// One call, repeated until something answers.
    fn call(&self, id: &str) -> (u16, String) {
        while !self.failed.load(Ordering::SeqCst) {
            let address = *self.address.lock().expect("no caller panicked");
            let stream = address.and_then(|address| std::net::TcpStream::connect(address).ok());
            if let Some(stream) = stream {
                let mut client = Client::over(stream);
                client.send(&Call::with_id(id));
                match client.try_answer() {
                    Ok(answer) if answer.cut.is_none() => {
                        let outcome = answer.field("x-call-outcome").unwrap_or_default();
                        // The gateway's own refusals say nothing about the call.
                        if outcome != "refused" || answer.status == 502 {
                            return (answer.status, outcome);
                        }
                    }
                    Ok(_) | Err(_) => {}
                }
            }
            std::thread::sleep(ms(2));
        }
        (0, "the test failed".to_owned())
    }
}

/// Waits until nothing is in flight and no dead letter is still being worked on.
fn settle(gateway: &Gateway) {
    gateway.wait_until("the queue is empty", || {
        let metrics = gateway.metrics();
        let flying = metrics.value("callgate_calls_in_flight", &[]);
        let open = ["QUEUED", "RUNNING"].map(|state| {
            let labels = [("route", "tool"), ("state", state)];
            metrics.value("callgate_dead_letters", &labels)
        });
        let listed = gateway.dead_letters();
        let waits = listed
            .iter()
            .any(|row| row["state"] == "QUEUED" || row["state"] == "RUNNING");
        (flying == 0.0 && open == [0.0, 0.0] && !waits).then_some(())
    });
}

/// The ledger's own rows, read as an operator with a shell would.
fn rows(gateway: &Gateway) -> HashMap<String, Row> {
    let ledger = Connection::open(gateway.folder().join("callgate.db")).expect("SQLite");
    let query = "SELECT c.call_id, c.state, c.sends, d.state FROM calls c \
                 LEFT JOIN dead_letter d ON d.call = c.id AND d.life = c.life";
    let mut statement = ledger.prepare(query).expect("the columns of the ledger");
    let rows = statement.query_map([], |row| {
        let row_of = Row {
            state: row.get(1)?,
            sends: row.get(2)?,
            letter: row.get(3)?,
        };
        Ok((row.get(0)?, row_of))
    });
    let rows = rows.expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// Compares the three books; a summary of how calls ended.
fn audit(
    tool: &Tool,
    rows: &HashMap<String, Row>,
    told: &HashMap<String, (u16, String)>,
) -> String {
    let pages = tool.pages();
    let mut sends: HashMap<String, u32> = HashMap::new();
    for seen in &pages.requests {
        let id = String::from_utf8(seen.id()).expect("an id of ours");
        *sends.entry(id).or_default() += 1;
    }
    let mut effects: HashMap<&str, usize> = HashMap::new();
    for effect in &pages.effects {
        *effects.entry(effect).or_default() += 1;
    }
    let mut faults = Vec::new();
    for (id, n) in &sends {
        match rows.get(id) {
            None => faults.push(format!("{id} reached the tool and is on no record")),
            Some(row) if row.sends < *n => {
                faults.push(format!(
                    "{id}: {n} sends at the tool, {} on record",
                    row.sends
                ));
            }
            Some(_) => {}
        }
    }
    let mut ends: HashMap<String, usize> = HashMap::new();
    for (id, (status, outcome)) in told {
        let effects = effects.get(id.as_str()).copied().unwrap_or(0);
        let Some(row) = rows.get(id) else {
            faults.push(format!("{id} was told {status} and is on no record"));
            continue;
        };
        let letter = row.letter.as_deref().unwrap_or("none");
        *ends.entry(format!("{}/{letter}", row.state)).or_default() += 1;
        let truth = match (row.state.as_str(), letter) {
            ("SUCCESS", _) => effects == 1,
            ("FAILED", _) => effects == 0,
            ("UNKNOWN", "MANUAL") => effects <= 1,
            _ => false,
        };
        let success = (200..300).contains(status);
        if !truth || success && effects != 1 {
            faults.push(format!(
                "{id}: {effects} effects, told {status} {outcome}, on record as {}, letter {letter}",
                row.state
            ));
        }
    }
    assert!(faults.is_empty(), "{}\n{}", faults.len(), faults.join("\n"));
    format!("{ends:?}")
}
