//! Rounds over restarts: counted in the row, none done twice and none left out.

use crate::fixture::{Act, Call, Receipts, Script, World};
use serde_json::{Value, json};

/// As many as the rounds have to stand.
const RESTARTS: usize = 20;
const ROUNDS: [&str; 5] = ["200ms", "300ms", "400ms", "500ms", "600ms"];
const CALLS: usize = 8;

/// The rounds that were counted, in order, as the story has them.
fn counted(world: &World, id: &str) -> Vec<u64> {
    let target = format!("/api/v1/dead-letters/{id}");
    let shown = world.gateway.admin(&target).json();
    let steps = shown["rounds"].as_array().expect("a story");
    steps
        .iter()
        .filter_map(|step| step["round"].as_u64())
        .collect()
}

/// The rounds done so far, of all calls.
fn done(world: &World) -> u64 {
    let letters = world.gateway.dead_letters();
    letters.iter().filter_map(|row| row["round"].as_u64()).sum()
}

#[test]
fn rounds_are_exact_over_twenty_restarts() {
    // The tool takes a while to say that it does not know, so that a kill can come in a round.
    let unknown = Act::read_all().wait(30).answer(crate::fixture::Reply::json(
        200,
        r#"{"callId":"{id}","state":"PROCESSING"}"#,
    ));
    let script = Script::new()
        .otherwise(Act::read_all().commit().fin())
        .receipts(Receipts::always(unknown));
    let mut world = World::with(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/timeouts/total", "300ms")
            .set("defaults/timeouts/late", "100ms")
            .set("defaults/compensation/rounds", json!(ROUNDS))
            .set("defaults/compensation/resend", true)
    });
    let ids: Vec<String> = (0..CALLS).map(|n| format!("c{n}")).collect();
    for id in &ids {
        world.call(&Call::with_id(id)).problem(504, "unresolved");
    }
    for restart in 0..RESTARTS {
        let (asked, rounds) = (world.tool.r(), done(&world));
        let all = (CALLS * ROUNDS.len()) as u64;
        // Every second one in the middle of a round, the others after one was counted.
        world.gateway.wait_until("a round", || {
            let now = done(&world);
            let is_there = if restart % 2 == 0 {
                world.tool.r() > asked
            } else {
                now > rounds
            };
            (is_there || now == all).then_some(())
        });
        world.crash();
    }
    for id in &ids {
        let letter: Value = world.gateway.wait_dead_letter(id, "MANUAL");
        assert_eq!(letter["round"], ROUNDS.len(), "{letter}");
        assert_eq!(letter["reason"], "rounds-exhausted", "{letter}");
        let mut counted = counted(&world, id);
        // A round that a kill cut short is put back uncounted and done once more.
        assert!(counted.is_sorted(), "{counted:?}");
        counted.dedup();
        assert_eq!(counted, [0, 1, 2, 3, 4, 5], "{id}");
    }
    assert_eq!(
        (world.tool.a(), world.tool.e()),
        (CALLS, CALLS),
        "none was sent again"
    );
}
