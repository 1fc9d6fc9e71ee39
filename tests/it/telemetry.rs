//! Metrics and logs under load and under ill will: C61b, C61c, C61d.

use crate::fixture::metrics::Metrics;
use crate::fixture::{Act, Call, Config, PATIENCE, Receipts, Reply, Script, World};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Series that carry what a stranger chose would grow by thousands here.
#[test]
fn c61b_ten_thousand_strange_requests_grow_no_series() {
    let world = World::with(Script::new(), |config| {
        config
            .set("ledger/url", "memory:")
            .route("match/path", "/known/**")
    });
    let world = world.without_history();
    for status in ["/known/a", "/lost"] {
        world.call(&Call::post_to(status));
    }
    let before = world.gateway.metrics().series();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let world = &world;
            scope.spawn(move || {
                let mut client = world.gateway.client();
                for n in 0..2500 {
                    let known = if n % 10 == 0 { "/known" } else { "" };
                    let call = Call::new(
                        &format!("AAA{worker}{n}"),
                        &format!("{known}/p{worker}/{n}"),
                    )
                    .set("Host", format!("h{worker}-{n}.test"))
                    .field("X-Call-Id", format!("id-{worker}-{n}"))
                    .field("X-Api-Key", format!("key-{worker}-{n}"))
                    .body("x");
                    let answer = client.call(&call);
                    let right = if n % 10 == 0 { 201 } else { 404 };
                    assert_eq!(answer.status, right, "{}", answer.text());
                }
            });
        }
    });
    let metrics = world.gateway.metrics();
    let grown = metrics.series() - before;
    assert!(grown <= 50, "{grown} new series");
    for sample in &metrics.samples {
        for (label, value) in &sample.labels {
            assert!(
                !value.contains("id-1") && !value.contains("AAA"),
                "{label}={value}"
            );
        }
    }
    let calls = metrics.value("callgate_calls_total", &[("route", "tool")]);
    assert_eq!(calls, 1001.0, "one per caller's request");
}

#[test]
fn c61c_the_exposition_is_strict_and_counts_what_happened() {
    let script = Script::new()
        .request(2, Act::read_all().commit().fin())
        .request(3, Act::read_all().fin())
        .request(5, Act::says(Reply::new(422, "no")));
    let world = World::new(script);
    assert!(
        world.gateway.metrics().series() > 0,
        "also before the first call"
    );
    for (id, status) in [("one", 201), ("two", 201), ("three", 201), ("four", 422)] {
        assert_eq!(world.call(&Call::with_id(id)).status, status, "{id}");
    }
    world.call(&Call::with_id("one"));
    world.call(&Call::with_id(""));
    assert_counts(&world.gateway.metrics());
}

/// One answered, one settled by receipt, one resent, one refused by the tool, one replayed, one
/// refused by the gateway.
fn assert_counts(metrics: &Metrics) {
    let route = ("route", "tool");
    for (name, labels, value) in [
        (
            "callgate_calls_total",
            vec![route, ("outcome", "answered")],
            3.0,
        ),
        (
            "callgate_calls_total",
            vec![route, ("outcome", "receipt")],
            1.0,
        ),
        (
            "callgate_calls_total",
            vec![route, ("outcome", "replayed")],
            1.0,
        ),
        ("callgate_attempts_total", vec![route], 5.0),
        (
            "callgate_retries_total",
            vec![route, ("cause", "disconnect")],
            1.0,
        ),
        (
            "callgate_duplicates_avoided_total",
            vec![route, ("how", "replay")],
            1.0,
        ),
        (
            "callgate_duplicates_avoided_total",
            vec![route, ("how", "receipt")],
            1.0,
        ),
        (
            "callgate_receipt_queries_total",
            vec![route, ("state", "SUCCESS")],
            1.0,
        ),
        (
            "callgate_receipt_queries_total",
            vec![route, ("state", "NOT_FOUND")],
            2.0,
        ),
        (
            "callgate_refused_total",
            vec![("code", "invalid-call-id")],
            1.0,
        ),
        ("callgate_calls_in_flight", vec![route], 0.0),
        ("callgate_attempt_duration_seconds_count", vec![route], 5.0),
        ("callgate_build_info", vec![], 1.0),
    ] {
        assert_eq!(metrics.value(name, &labels), value, "{name}{labels:?}");
    }
    assert!(metrics.value("callgate_call_duration_seconds_count", &[route]) >= 5.0);
    assert!(metrics.value("callgate_ledger_commit_duration_seconds_count", &[]) >= 4.0);
}

#[test]
fn dead_letters_are_counted_by_state_and_reason() {
    let script = Script::new()
        .otherwise(Act::read_all().fin())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/total", "300ms")
    });
    world
        .call(&Call::with_id("dead"))
        .problem(504, "unresolved");
    let metrics = world.gateway.metrics();
    assert_eq!(
        metrics.value("callgate_dead_letters_total", &[("route", "tool")]),
        1.0
    );
    assert_eq!(
        metrics.value("callgate_dead_letters", &[("route", "tool")]),
        1.0
    );
    assert!(metrics.value("callgate_dead_letter_oldest_seconds", &[("route", "tool")]) >= 0.0);
    world.gateway.wait_dead_letter("dead", "MANUAL");
    world
        .gateway
        .wait_metric("callgate_dead_letters", &[("state", "MANUAL")], 1.0);
    let rounds = world.gateway.metrics();
    assert_eq!(
        rounds.value("callgate_compensation_rounds_total", &[("route", "tool")]),
        3.0
    );
}

fn a_thousand_calls_on_three_ids(workers: u64) {
    let script = Script::new().otherwise(Act::read_all().wait(5).commit().answer_result());
    let world = World::with(script, |config| config.set("workers", workers).slow(5));
    let done = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                world.gateway.metrics();
                world.gateway.dead_letters();
            }
        });
        let callers: Vec<_> = (0..100)
            .map(|caller| {
                let world = &world;
                scope.spawn(move || {
                    let mut client = world.gateway.client();
                    for n in 0..10 {
                        let call = Call::with_id(&format!("key-{}", (caller + n) % 3));
                        match client.call(&call) {
                            answer if answer.status == 409 => {
                                answer.problem(409, "in-progress");
                            }
                            answer => assert_eq!(answer.status, 201, "{}", answer.text()),
                        }
                    }
                })
            })
            .collect();
        let finished = callers.into_iter().all(|caller| caller.join().is_ok());
        done.store(true, Ordering::SeqCst);
        sweeper.join().expect("the sweeper");
        assert!(finished, "a caller was told something strange");
    });
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "it took {:?}",
        began.elapsed()
    );
    assert_eq!((world.tool.a(), world.tool.e()), (3, 3));
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[], 0.0);
}

#[test]
fn c61d_a_thousand_concurrent_calls_on_three_ids_end_on_one_core() {
    a_thousand_calls_on_three_ids(1);
}

#[test]
fn c61d_a_thousand_concurrent_calls_on_three_ids_end_on_two_cores() {
    a_thousand_calls_on_three_ids(2);
}

#[test]
fn one_line_tells_a_call_and_no_secret_or_body_is_in_it() {
    let script = Script::new().request(1, Act::read_all().fin());
    let world = World::with(script, |config| config.set("log/level", "debug"));
    let call = Call::with_id("told")
        .field("Authorization", "Bearer s3cr3t-token")
        .field(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .body(r#"{"pin":"s3cr3t-body"}"#);
    assert_eq!(world.call(&call).status, 201);
    let is_end =
        |record: &serde_json::Value| record["call_id"] == "told" && record["outcome"].is_string();
    let end = world
        .gateway
        .log()
        .wait(PATIENCE, is_end)
        .expect("a line for the call");
    assert_eq!(
        (end["route"].as_str(), end["outcome"].as_str()),
        (Some("tool"), Some("answered"))
    );
    assert_eq!(end["trace_id"], "0af7651916cd43dd8448eb211c80319c", "{end}");
    let text = world.gateway.log().lines().into_iter().find(|line| {
        serde_json::from_str(line).is_ok_and(|record: serde_json::Value| is_end(&record))
    });
    let text = text.expect("the same line");
    let record: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let keys: Vec<&String> = record.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys[2], "call_id",
        "the first field after time and level: {keys:?}"
    );
    let ends = world
        .gateway
        .log()
        .records()
        .iter()
        .filter(|it| is_end(it))
        .count();
    assert_eq!(ends, 1, "one line per call");
    let secrets = world.gateway.log().lines().join("\n");
    assert!(!secrets.contains("s3cr3t"), "a secret or a body was logged");
    let file = std::fs::read(world.gateway.folder().join("callgate.db")).expect("the ledger");
    let wal = std::fs::read(world.gateway.folder().join("callgate.db-wal")).unwrap_or_default();
    for stored in [file, wal] {
        let token = stored.windows(12).any(|bytes| bytes == b"s3cr3t-token");
        assert!(!token, "a credential was stored");
    }
}

#[test]
fn health_and_configuration_are_told_on_the_admin_listener() {
    let world = World::with(Script::new(), |config: Config| {
        config.route(
            "upstream/headers",
            serde_json::json!({ "Authorization": "Bearer hush" }),
        )
    });
    assert_eq!(world.gateway.admin("/livez").status, 200);
    assert_eq!(world.gateway.admin("/readyz").status, 200);
    let config = world.gateway.admin("/api/v1/config");
    assert_eq!(config.status, 200, "{}", config.text());
    let text = String::from_utf8(config.body).expect("text");
    assert!(text.contains("tool") && !text.contains("hush"), "{text}");
    assert_eq!(world.gateway.admin("/nowhere").status, 404);
    assert_eq!(world.gateway.admin("/api/v1/calls/nobody").status, 404);
    assert_eq!(world.tool.a(), 0);
}
