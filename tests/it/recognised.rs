//! A call that the tool has recognised is not sent again, whatever it says later: by no door, and
//! in no process.

use crate::fixture::check::receipt_states;
use crate::fixture::{Act, Call, Config, Receipts, Reply, Script, World};
use serde_json::{Value, json};

/// Receipts of a tool that knows the call once, and then never again.
fn forgets() -> Receipts {
    Receipts::InOrder(vec![Act::state("PROCESSING"), Act::not_found()])
}

fn silent() -> Script {
    Script::new().otherwise(Act::read_all().commit().reset())
}

fn resends(config: Config) -> Config {
    config
        .set("defaults/timeouts/total", "1200ms")
        .set("defaults/compensation/resend", true)
}

/// The doubts that the history tells.
fn doubts(history: &Value) -> Vec<&str> {
    let receipts = history["receipts"].as_array().expect("receipts");
    let doubts = receipts
        .iter()
        .filter_map(|receipt| receipt["doubt"].as_str());
    doubts.collect()
}

#[test]
fn a_call_that_was_recognised_is_sent_again_by_no_door() {
    let world = World::with(silent().receipts(forgets()), |config| {
        resends(config).set(
            "defaults/compensation/rounds",
            json!(["200ms", "300ms", "10m"]),
        )
    });
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    world.gateway.wait_until("two rounds", || {
        let letters = world.gateway.dead_letters();
        (letters[0]["round"] == 2).then_some(())
    });
    let (status, told) = world.gateway.verb("c", "resend", &json!({}));
    assert_eq!(
        (status, told["result"].as_str()),
        (200, Some("unknown")),
        "{told}"
    );
    assert_eq!(world.tool.sends("c").len(), 1, "it was sent again");
    let history = world.gateway.history("c");
    let doubts = doubts(&history);
    assert!(doubts.len() >= 4, "{history}");
    assert!(
        doubts.iter().all(|doubt| *doubt == "recognised-before"),
        "{history}"
    );
}

#[test]
fn a_promise_of_the_tool_is_remembered_as_its_receipt_is() {
    let script = Script::new()
        .otherwise(Act::read_all().commit().answer(Reply::json(202, "{}")))
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        resends(config).route("accepted", "pending")
    });
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    assert_eq!(world.tool.sends("c").len(), 1, "it was sent again");
}

#[test]
fn the_next_process_remembers_what_the_tool_has_recognised() {
    let mut world = World::with(silent().receipts(forgets()), |config| {
        resends(config)
            .set("defaults/timeouts/total", "20s")
            .set("defaults/retry/base", "5s")
            .set("defaults/retry/cap", "5s")
            .set("defaults/compensation/rounds", json!(["200ms", "10m"]))
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("c"));
    // The question is on record once the story has it: what was recognised went before it.
    world
        .gateway
        .wait_until("the question", || (world.tool.r() > 0).then_some(()));
    let heard = |history: &Value| receipt_states(history) == ["PROCESSING"];
    world.gateway.wait_history("c", "the first receipt", heard);
    world.crash();
    world.gateway.wait_until("a round", || {
        let letters = world.gateway.dead_letters();
        (letters.first()?["round"] == 1).then_some(())
    });
    assert_eq!(world.tool.sends("c").len(), 1, "it was sent again");
    assert_eq!(doubts(&world.gateway.history("c")), ["recognised-before"]);
}
