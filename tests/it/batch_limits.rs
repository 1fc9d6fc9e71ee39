//! An item of a batch is a caller's request: what bounds and counts callers bounds and counts it,
//! and whoever is its client goes by the name it has or had.

use crate::batches::{assert_once_each, document, file, keyed, push, rows};
use crate::fixture::gateway::folder;
use crate::fixture::{Act, Config, Script, World};
use crate::limits::most_at_once;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

fn counted(world: &World, name: &str, label: (&str, &str)) -> f64 {
    world.gateway.metrics().value(name, &[label])
}

#[test]
fn an_item_is_counted_like_a_callers_request() {
    let world = World::with(Script::new(), keyed);
    let path = file(&world.gateway, "night.csv", rows(1, 12));
    assert_eq!(push(&world.gateway, &path, &[]).code, 0);
    let again = push(&world.gateway, &path, &["--batch", "again"]);
    assert_eq!(document(&again)["replayed"], 12, "{again:?}");
    for (outcome, count) in [("answered", 12.0), ("replayed", 12.0), ("refused", 0.0)] {
        let found = counted(&world, "callgate_calls_total", ("outcome", outcome));
        assert_eq!(found, count, "{outcome}");
    }
    let of_route = ("route", "tool");
    let took = "callgate_call_duration_seconds_count";
    assert_eq!(counted(&world, took, of_route), 24.0);
    let made = "callgate_backfilled_call_ids_total";
    assert_eq!(counted(&world, made, of_route), 24.0);
    assert_eq!(counted(&world, "callgate_calls_in_flight", of_route), 0.0);
    assert_once_each(&world, 12);
}

#[test]
fn a_batch_goes_as_fast_as_the_rate_of_its_route_and_no_row_fails_of_it() {
    let world = World::with(Script::new(), |config| {
        keyed(config).route("limits/rate", "10/s")
    });
    let path = file(&world.gateway, "night.csv", rows(1, 30));
    let pushed = push(&world.gateway, &path, &[]);
    assert_eq!(pushed.code, 0, "{pushed:?}");
    let told = document(&pushed);
    assert_eq!((&told["done"], &told["refused"]), (&30.into(), &0.into()));
    // Three intervals, of which the second one passes whole.
    assert!(pushed.took >= Duration::from_secs(1), "{:?}", pushed.took);
    let held = counted(&world, "callgate_bounds_reached_total", ("bound", "rate"));
    assert!(held >= 1.0, "{held}");
    // Who was held was told nothing, and so refused nothing.
    let refused = counted(&world, "callgate_refused_total", ("code", "rate-limited"));
    assert_eq!(refused, 0.0);
    assert_once_each(&world, 30);
}

#[test]
fn a_batch_keeps_the_bounds_on_sends_and_on_its_clients_requests_at_once() {
    let act = Act::read_all().wait(20).commit().answer_result();
    let world = World::with(Script::new().otherwise(act), |config| {
        keyed(config)
            .route("upstream/concurrency", json!({ "max": 2, "queue": 1 }))
            .route("limits/client_concurrent", 4)
    });
    let path = file(&world.gateway, "night.csv", rows(1, 40));
    let pushed = push(&world.gateway, &path, &["--workers", "20"]);
    assert_eq!(pushed.code, 0, "{pushed:?}");
    assert_eq!(document(&pushed)["done"], 40);
    assert_eq!(most_at_once(&world), 2);
    for bound in ["concurrency", "client-concurrent"] {
        let reached = counted(&world, "callgate_bounds_reached_total", ("bound", bound));
        assert!(reached >= 1.0, "{bound}");
    }
    assert_once_each(&world, 40);
}

/// One client of this name, with the names it had.
fn with_client(config: Config, keys: &Path, name: &str, formerly: &[&str]) -> Config {
    let key = keys.join("key");
    std::fs::write(&key, "billing-key-0123456789").expect("a key file can be written");
    let client =
        json!({ "name": name, "key_file": key.display().to_string(), "formerly": formerly });
    config.set("clients", json!([client]))
}

#[test]
fn a_batch_is_of_a_known_client_and_stays_its_own_when_the_client_is_renamed() {
    let keys = folder();
    let mut world = World::with(Script::new().ignores_ids(), |config| {
        with_client(keyed(config), keys.path(), "billing", &[])
    });
    let path = file(&world.gateway, "night.csv", rows(1, 10));
    for (more, word) in [
        (&[][..], "say whose calls these are"),
        (&["--client", "biling"], "no client is called `biling`"),
    ] {
        let refused = push(&world.gateway, &path, more);
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.err.contains(word), "{refused:?}");
        assert!(refused.err.contains("there are billing"), "{refused:?}");
    }
    let first = ["--client", "billing", "--batch", "night"];
    assert_eq!(push(&world.gateway, &path, &first).code, 0);
    world.config = with_client(world.config.clone(), keys.path(), "invoices", &["billing"]);
    world.crash();
    // The batch is there, and so are the keys of its rows.
    for (name, more) in [
        ("night", "invoices"),
        ("night", "billing"),
        ("other", "invoices"),
    ] {
        let pushed = push(&world.gateway, &path, &["--client", more, "--batch", name]);
        assert_eq!(pushed.code, 0, "{name} {more}: {pushed:?}");
        let replayed = if name == "other" { 10 } else { 0 };
        assert_eq!(document(&pushed)["replayed"], replayed, "{name} {more}");
    }
    assert_once_each(&world, 10);
}
