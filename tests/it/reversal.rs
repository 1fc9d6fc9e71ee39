//! Undoing a call, leases, and rounds that end: C30, C31, C39, C69.

use crate::fixture::book::Seen;
use crate::fixture::gateway::BINARY;
use crate::fixture::{Act, Call, Config, Gate, Receipts, Reply, Script, World, ms};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::process::Command;

/// Rounds that are soon over, and a reversal after the last.
pub(crate) fn undoing(config: Config) -> Config {
    config
        .set("defaults/timeouts/total", "600ms")
        .set("defaults/timeouts/late", "300ms")
        .set("defaults/retry/base", "20ms")
        .set(
            "defaults/compensation/rounds",
            json!(["50ms", "100ms", "150ms"]),
        )
        .route(
            "compensation/reversal",
            json!({
                "url": "/undo/{call_id}",
                "body": "{\"of\":\"{call_id}\",\"id\":\"{reversal_id}\",\"n\":{body:/n}}",
                "min_age": "30ms",
            }),
        )
}

pub(crate) fn order(id: &str) -> Call {
    Call::with_id(id).body(r#"{"n":7}"#)
}

/// A tool that holds the first request, and whose receipts say nothing.
fn silent() -> Script {
    Script::new()
        .request(1, Act::read_all().hang())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))))
}

/// The sends of the reversal of `id`.
fn reversals(world: &World, id: &str) -> Vec<Seen> {
    let pages = world.tool.pages();
    let of = |seen: &&Seen| seen.head.one("x-call-reverses").as_deref() == Some(id);
    pages.requests.iter().filter(of).cloned().collect()
}

/// Nothing more comes to the tool for ten times the longest gap.
fn is_over(world: &World) {
    let (sends, asked) = (world.tool.a(), world.tool.r());
    let more = world.tool.book().wait_for(ms(1500), |pages| {
        (pages.requests.len() > sends || pages.asked.len() > asked).then_some(())
    });
    assert_eq!(more, None, "something is still going on");
}

#[test]
fn c39_what_stays_unknown_is_undone_once_and_never_sent_again() {
    let world = World::with(silent().request(2, Act::says(Reply::new(204, ""))), undoing);
    world.call(&order("c39")).problem(504, "unresolved");
    let row = world.gateway.wait_dead_letter("c39", "REVERSED");
    assert_eq!(row["round"], 2, "{row}");
    let undone = reversals(&world, "c39");
    assert_eq!(undone.len(), 1);
    let rev = String::from_utf8(undone[0].id()).unwrap();
    assert!(rev.starts_with("rev-") && rev.len() == 68, "{rev}");
    assert_eq!(undone[0].head.target(), "/undo/c39");
    let body = format!(r#"{{"of":"c39","id":"{rev}","n":7}}"#);
    assert_eq!(undone[0].body(), body.as_bytes());
    // The question immediately before it came after every earlier one, and nothing after it.
    let last_asked = world.tool.pages().asked.last().map(|seen| seen.at);
    assert!(last_asked.is_some_and(|at| at <= undone[0].at));
    for _ in 0..3 {
        let told = world.call(&order("c39")).problem(409, "reversed");
        assert_eq!(told["repeat"], "never", "{told}");
    }
    world
        .call(&order("c39").body("other"))
        .problem(422, "call-id-reused");
    is_over(&world);
    assert_eq!(world.tool.sends("c39").len(), 1);
    let receipt = world.gateway.receipt("c39").json();
    assert_eq!(receipt["state"], "FAILED", "{receipt}");
    assert_eq!(receipt["deadLetter"]["state"], "REVERSED", "{receipt}");
    let done = [("route", "tool"), ("result", "reversed")];
    world
        .gateway
        .wait_metric("callgate_reversals_total", &done, 1.0);
}

#[test]
fn c39_a_failing_reversal_is_repeated_under_its_own_id_and_ends_with_a_human() {
    let script = silent().otherwise(Act::says(Reply::new(500, "")));
    let world = World::with(script, undoing);
    world.call(&order("c39")).problem(504, "unresolved");
    let row = world.gateway.wait_dead_letter("c39", "MANUAL");
    assert_eq!(row["reason"], "reversal-unclear", "{row}");
    assert_eq!(row["last_error"], "reversal HTTP 500", "{row}");
    let undone = reversals(&world, "c39");
    assert_eq!(undone.len(), 4, "once, and max_retries more");
    let numbers: Vec<_> = undone
        .iter()
        .map(|seen| seen.head.one("x-call-attempt").unwrap_or_default())
        .collect();
    assert_eq!(numbers, ["1", "2", "3", "4"]);
    // Each of them stands in the document of the call, and in its story.
    let told = &world.gateway.history("c39")["reversal"];
    let rev = String::from_utf8(undone[0].id()).expect("an id is ASCII");
    assert_eq!(told["callId"], json!(rev), "{told}");
    let attempts = told["attempts"].as_array().expect("a list");
    let seen: Vec<_> = attempts
        .iter()
        .map(|sent| (sent["n"].as_u64(), sent["status"].as_u64()))
        .collect();
    let expected: Vec<_> = (1..=4).map(|n| (Some(n), Some(500))).collect();
    assert_eq!(seen, expected, "{told}");
    assert!(attempts.iter().all(|sent| sent["durationMs"].is_number()));
    let why = world.gateway.admin("/api/v1/calls/c39/why").json();
    let why = why.to_string();
    assert!(
        why.contains(&format!("send 4 of it, under the id {rev}")),
        "{why}"
    );
    let same = |seen: &Seen| seen.id() == undone[0].id() && seen.body() == undone[0].body();
    assert!(undone.iter().all(same), "every send is the same request");
    is_over(&world);
    // In front of a human it is asked about, and sent by no door.
    let told = world.call(&order("c39")).problem(504, "unresolved");
    assert_eq!(told["deadLetter"]["state"], "MANUAL", "{told}");
    assert_eq!(world.tool.sends("c39").len(), 1);
    let unclear = [("route", "tool"), ("result", "unclear")];
    world
        .gateway
        .wait_metric("callgate_reversals_total", &unclear, 4.0);
}

#[test]
fn c39_a_tool_that_refuses_to_undo_is_not_asked_to_again() {
    let script = silent().request(2, Act::says(Reply::json(409, r#"{"no":1}"#)));
    let world = World::with(script, undoing);
    world.call(&order("c39")).problem(504, "unresolved");
    let row = world.gateway.wait_dead_letter("c39", "MANUAL");
    assert_eq!(row["reason"], "reversal-refused", "{row}");
    is_over(&world);
    assert_eq!(reversals(&world, "c39").len(), 1);
}

#[test]
fn a_reversal_survives_kill_9_under_the_same_id() {
    let gate = Gate::default();
    let script = silent()
        .request(2, Act::read_all().commit().pass(&gate).hang())
        .otherwise(Act::works());
    let mut world = World::with(script, |config| {
        undoing(config)
            .set("defaults/timeouts/attempt", "3s")
            .set("defaults/timeouts/total", "4s")
            .route("compensation/reversal/min_age", "30ms")
    });
    // The line ends early: its tool hangs up, and receipts say nothing.
    let mut client = world.gateway.client();
    client.send(&order("killed"));
    world.tool.wait_request(1);
    world.crash();
    world.tool.wait_request(2);
    assert_eq!(reversals(&world, "killed").len(), 1);
    world.gateway.wait_dead_letter("killed", "REVERSING");
    world.call(&order("killed")).problem(409, "reversed");
    world.crash();
    world.gateway.wait_dead_letter("killed", "REVERSED");
    gate.open();
    let undone = reversals(&world, "killed");
    assert_eq!(undone.len(), 2);
    assert_eq!(undone[0].id(), undone[1].id());
    assert_eq!(undone[0].body(), undone[1].body());
    assert_eq!(world.tool.sends("killed").len(), 1, "the original");
    assert_eq!(world.tool.e(), 1, "one compensation effect, by its own id");
}

#[test]
fn c69_a_tool_that_dedupes_by_id_undoes_because_the_reversal_has_one_of_its_own() {
    let script = Script::new()
        .request(1, Act::read_all().commit().hang())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    let world = World::with(script, undoing);
    world.call(&order("c69")).problem(504, "unresolved");
    world.gateway.wait_dead_letter("c69", "REVERSED");
    let effects = world.tool.pages().effects.clone();
    assert_eq!(effects.len(), 2, "{effects:?}");
    assert_eq!(effects[0], "c69");
    assert!(
        effects[1].starts_with("rev-"),
        "the undo was done: {effects:?}"
    );
}

#[test]
fn a_call_whose_receipt_speaks_in_the_last_moment_is_not_undone() {
    for (word, state) in [
        ("SUCCESS", "SETTLED"),
        ("FAILED", "FAILED"),
        ("PROCESSING", "MANUAL"),
    ] {
        let mut acts = vec![Act::says(Reply::new(500, "")); 4];
        acts.push(Act::state(word));
        let script = Script::new()
            .request(1, Act::read_all().reset())
            .receipts_of("last", acts);
        // Two questions in line, and one in each round.
        let world = World::with(script, |config| {
            undoing(config)
                .set("defaults/retry/base", "2s")
                .set("defaults/retry/cap", "2s")
        });
        world.call(&order("last")).problem(504, "unresolved");
        world.gateway.wait_dead_letter("last", state);
        is_over(&world);
        assert_eq!(reversals(&world, "last").len(), 0, "{word}");
        assert_eq!(world.tool.sends("last").len(), 1, "{word}");
    }
}

#[test]
fn c39_an_original_released_after_its_reversal_is_a_difference_and_changes_nothing() {
    let gate = Gate::default();
    let script = Script::new()
        .request(1, Act::read_all().pass(&gate).commit().hang())
        .request(2, Act::says(Reply::new(204, "")));
    let world = World::with(script, |config| {
        undoing(config)
            .set("defaults/retry/max_retries", 0)
            .route("compensation/reversal/when", json!(["NOT_FOUND"]))
    });
    world.call(&order("c39")).problem(504, "unresolved");
    world.gateway.wait_dead_letter("c39", "REVERSED");
    gate.open();
    world.tool.wait_effect(1);
    let ask = || {
        let asked = Command::new(BINARY)
            .args(["dead", "receipt", "c39", "-o", "json", "--admin"])
            .arg(format!("http://{}", world.gateway.admin))
            .output()
            .expect("the command runs");
        String::from_utf8_lossy(&asked.stdout).into_owned()
    };
    for _ in 0..2 {
        let told = ask();
        assert!(told.contains("differs"), "{told}");
    }
    let kind = [("route", "tool"), ("kind", "reversal")];
    world
        .gateway
        .wait_metric("callgate_differences_total", &kind, 1.0);
    world.gateway.wait_dead_letter("c39", "REVERSED");
    assert_eq!(world.gateway.receipt("c39").json()["state"], "FAILED");
    world.call(&order("c39")).problem(409, "reversed");
    assert_eq!(world.tool.sends("c39").len(), 1);
    assert_eq!(reversals(&world, "c39").len(), 1, "one compensation");
}

#[test]
fn c39_an_original_that_arrives_after_its_reversal_is_refused() {
    let mut world = World::with(Script::new(), |config| config.slow(2));
    let undo = Call::with_id("undo-1").field("X-Call-Reverses", "late");
    let undone = world.call(&undo);
    assert_eq!(
        (undone.status, undone.outcome().as_str()),
        (201, "answered")
    );
    let seen = world.tool.sends("undo-1");
    assert_eq!(seen[0].head.one("x-call-reverses").as_deref(), Some("late"));
    let told = world.call(&Call::with_id("late")).problem(409, "reversed");
    assert_eq!(
        (&told["sent"], &told["repeat"]),
        (&json!("no"), &json!("never"))
    );
    world.crash();
    world.call(&Call::with_id("late")).problem(409, "reversed");
    assert_eq!(world.tool.sends("late").len(), 0);
    // A repeat of the reversal is a repeat like any other.
    assert_eq!(world.call(&undo).outcome(), "replayed");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    // Another call is another call; a name that is none is refused before anything is sent.
    assert_eq!(world.call(&Call::with_id("other")).status, 201);
    for bad in ["", "undo-2", "a,b"] {
        let call = Call::with_id("undo-2").field("X-Call-Reverses", bad);
        world.call(&call).problem(400, "bad-request");
    }
    assert_eq!(world.tool.sends("undo-2").len(), 0);
}

#[test]
fn an_original_in_line_is_not_sent_again_once_its_reversal_came() {
    let gate = Gate::default();
    let script = Script::new()
        .request(1, Act::read_all().pass(&gate).reset())
        .receipts_of("runs", vec![Act::not_found()]);
    let world = World::with(script, |config| {
        config.slow(5).set(
            "defaults/compensation/rounds",
            json!(["50ms", "100ms", "150ms"]),
        )
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("runs"));
    world.tool.wait_request(1);
    let undo = Call::with_id("undo").field("X-Call-Reverses", "runs");
    assert_eq!(world.call(&undo).status, 201);
    gate.open();
    client.answer().problem(504, "unresolved");
    world.gateway.wait_dead_letter("runs", "MANUAL");
    assert_eq!(world.tool.sends("runs").len(), 1);
    world.call(&Call::with_id("runs")).problem(409, "reversed");
}

/// The rounds of a call, as its ledger has them: state and number of every step.
fn rounds_of(world: &World, id: &str) -> Vec<(String, i64, i64)> {
    let file = world.gateway.folder().join("callgate.db");
    let ledger = Connection::open(file).expect("the ledger is SQLite");
    let mut steps = ledger
        .prepare(
            "SELECT h.word, h.n, h.at FROM history h JOIN calls c ON c.id = h.call \
             WHERE c.call_id = ?1 AND h.kind = 'parked' ORDER BY h.at, h.seq",
        )
        .expect("a history");
    let read = steps.query_map([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    read.expect("its steps")
        .map(|step| step.expect("a step"))
        .collect()
}

#[test]
fn c31_rounds_are_exact_over_twenty_restarts_and_end_with_a_human() {
    let gaps = ["900ms", "1100ms", "1300ms", "1500ms", "1700ms"];
    let mut world = World::with(silent(), |config| {
        config
            .set("defaults/timeouts/total", "300ms")
            .set("defaults/timeouts/attempt", "150ms")
            .set("defaults/timeouts/late", "200ms")
            .set("defaults/retry/jitter", 0)
            .set("defaults/compensation/rounds", json!(gaps))
    });
    world.call(&Call::with_id("c31")).problem(504, "unresolved");
    let asked_in_line = world.tool.queries("c31").len();
    let mut restarts = 0;
    let row = loop {
        // Some kills cut a round down right after its question, some come between two rounds.
        let asked = world.tool.r();
        let mid_round = world
            .tool
            .book()
            .wait_for(ms(250), |pages| (pages.asked.len() > asked).then_some(()));
        if mid_round.is_some() && restarts % 2 == 0 {
            let steps = rounds_of(&world, "c31").len();
            let done = || (rounds_of(&world, "c31").len() > steps).then_some(());
            world.gateway.wait_until("the round ends", done);
        }
        world.crash();
        restarts += 1;
        let rows = world.gateway.dead_letters();
        let row = rows.into_iter().find(|row| row["call_id"] == "c31");
        if let Some(row) = row.filter(|row| row["state"] == "MANUAL" && restarts >= 20) {
            break row;
        }
        assert!(restarts < 200, "it never ends");
    };
    assert_eq!(
        (&row["round"], &row["reason"]),
        (&json!(5), &json!("rounds-exhausted"))
    );
    let steps = rounds_of(&world, "c31");
    let numbers: Vec<_> = steps
        .iter()
        .map(|(state, n, _)| (state.as_str(), *n))
        .collect();
    assert_eq!(
        numbers,
        [
            ("QUEUED", 0),
            ("QUEUED", 1),
            ("QUEUED", 2),
            ("QUEUED", 3),
            ("QUEUED", 4),
            ("MANUAL", 5)
        ]
    );
    for (pair, least) in steps.windows(2).zip([900, 1100, 1300, 1500, 1700]) {
        let gap = pair[1].2 - pair[0].2;
        assert!(
            gap >= least,
            "{gap} ms, less than {least} ms: a restart moved a round"
        );
    }
    // One question a round; a round that was cut down by a kill asks again, and counts once.
    let asked = world.tool.queries("c31").len() - asked_in_line;
    assert!((5..=5 + restarts).contains(&asked), "{asked} questions");
    is_over(&world);
    assert_eq!(world.tool.sends("c31").len(), 1);
}

#[test]
fn c31_a_dead_letter_that_is_done_already_settles_by_one_question() {
    let script = Script::new()
        .request(1, Act::read_all().commit().reset())
        .receipts_of(
            "done",
            vec![
                Act::says(Reply::new(500, "")),
                Act::says(Reply::new(500, "")),
                Act::state_with("SUCCESS", &Reply::json(201, "{}")),
            ],
        );
    let world = World::with(script, |config| {
        config
            .set("defaults/retry/base", "2s")
            .set("defaults/retry/cap", "2s")
            .set("defaults/timeouts/total", "400ms")
    });
    world
        .call(&Call::with_id("done"))
        .problem(504, "unresolved");
    world.gateway.wait_dead_letter("done", "SETTLED");
    is_over(&world);
    assert_eq!(
        world.tool.queries("done").len(),
        3,
        "two in line, one in the round"
    );
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

/// A lease of 300 ms, and a resend that takes 900 ms.
fn a_long_round() -> (Script, impl FnOnce(Config) -> Config) {
    let mut acts = vec![Act::not_found(); 40];
    acts.push(Act::state("PROCESSING"));
    let script = Script::new()
        .request(1, Act::read_all().reset())
        .request(2, Act::read_all().wait(900).commit().answer_result())
        .receipts_of("c30", acts);
    let bend = |config: Config| {
        config
            .set("defaults/timeouts/attempt", "4s")
            .set("defaults/timeouts/total", "5s")
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/lease", "300ms")
            .route("compensation/resend", true)
    };
    (script, bend)
}

#[test]
fn c30_a_heartbeat_keeps_the_lease_of_a_round_that_takes_its_time() {
    let (script, bend) = a_long_round();
    let world = World::with(script, bend);
    world.call(&Call::with_id("c30")).problem(504, "unresolved");
    world.gateway.wait_dead_letter("c30", "SETTLED");
    assert_eq!((world.tool.sends("c30").len(), world.tool.e()), (2, 1));
    let lost = [("route", "tool"), ("result", "lease_lost")];
    let rounds = world.gateway.metrics();
    assert!(rounds.value("callgate_compensation_rounds_total", &lost) < 0.5);
}

#[test]
fn c30_a_stopped_process_that_wakes_up_sends_nothing_twice() {
    let (script, bend) = a_long_round();
    let world = World::with(script, bend);
    world.call(&Call::with_id("c30")).problem(504, "unresolved");
    world.tool.wait_request(2);
    let signal = |name: &str| {
        let line = format!("kill -{name} {}", world.gateway.pid());
        let sent = Command::new("sh").args(["-c", &line]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name}");
    };
    // Past its lease, and past the tool's answer: who wakes up holds a lease that ran out.
    signal("STOP");
    world.tool.wait_effect(1);
    std::thread::sleep(ms(600));
    signal("CONT");
    let settled = world.gateway.wait_dead_letter("c30", "SETTLED");
    assert_eq!(settled["round"], 0, "{settled}");
    assert_eq!((world.tool.sends("c30").len(), world.tool.e()), (2, 1));
    let history: Value = world.gateway.history("c30");
    assert_eq!(history["state"], "SUCCESS", "{history}");
}
