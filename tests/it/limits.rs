//! What is let in, what is sent at once, and what is sent again: C24 (a rate), C59, C61e.

use crate::fixture::book::What;
use crate::fixture::gateway::folder;
use crate::fixture::{
    Act, Answer, Call, Client, Gate, Receipts, Script, World, assert_between, ms,
};
use serde_json::json;
use std::collections::HashMap;
use std::time::{Duration, Instant};

fn bound(world: &World, bound: &str) -> f64 {
    let metrics = world.gateway.metrics();
    metrics.value("callgate_bounds_reached_total", &[("bound", bound)])
}

/// Callers of the noisy client.
const NOISY: usize = 40;

/// Nothing a limit counts is left behind.
fn nothing_is_held(world: &World) {
    for what in ["sends", "waiting", "resends"] {
        let labels = [("route", "tool"), ("what", what)];
        world
            .gateway
            .wait_metric("callgate_limited_now", &labels, 0.0);
    }
}

#[test]
fn a_rate_sheds_before_anything_is_known_and_binds_nothing() {
    let world = World::prompt_with(Script::new(), |config| config.route("limits/rate", "5/s"));
    let mut client = world.gateway.client();
    let answers: Vec<Answer> = (0..40)
        .map(|n| client.call(&Call::with_id(&format!("rate-{n}"))))
        .collect();
    let refused: Vec<_> = answers.iter().filter(|it| it.status == 429).collect();
    let passed = answers.iter().filter(|it| it.status == 201).count();
    assert_eq!(passed + refused.len(), 40);
    // One or two edges of an interval lie in so short a time.
    assert!((5..=20).contains(&passed), "{passed} of 40 at 5/s");
    for answer in &refused {
        let problem = answer.problem(429, "rate-limited");
        assert_eq!(problem["sent"], "unknown");
        assert_eq!(problem["repeat"], "same-call-id-only");
        assert_eq!(answer.outcome(), "refused");
        assert_eq!(answer.must("retry-after"), "1");
        assert_eq!(answer.must("ratelimit-policy"), r#""route";q=5;w=1"#);
        assert_eq!(answer.must("ratelimit"), r#""route";r=0;t=1"#);
        let id = answer.id();
        assert!(world.tool.sends(&id).is_empty(), "{id} was sent");
    }
    // The id is as free as before.
    let id = refused[0].id();
    let later = world.gateway.wait_until("the rate allows it", || {
        Some(world.call(&Call::with_id(&id))).filter(|it| it.status != 429)
    });
    assert_eq!((later.status, later.outcome().as_str()), (201, "answered"));
    let counted = [("code", "rate-limited")];
    let metrics = world.gateway.metrics();
    assert!(metrics.value("callgate_refused_total", &counted) >= 20.0);
    assert!(bound(&world, "rate") >= 20.0);
}

const BILLING: &str = "billing-key-0123456789";
const SHIPPING: &str = "shipping-key-0123456789";

fn with_clients(
    script: Script,
    bend: impl FnOnce(crate::fixture::Config) -> crate::fixture::Config,
) -> World {
    let keys = folder();
    let file = |name: &str, key: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, key).expect("a key file can be written");
        path.display().to_string()
    };
    let clients = json!([
        { "name": "billing", "key_file": file("b", BILLING) },
        { "name": "shipping", "key_file": file("s", SHIPPING) },
    ]);
    World::with(script, |config| {
        bend(config.slow(2)).set("clients", clients)
    })
}

fn by(key: &str, id: &str) -> Call {
    Call::with_id(id).field("X-Api-Key", key)
}

#[test]
fn a_clients_rate_and_its_requests_at_once_are_its_own() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let script = Script::new().request(1, held.clone()).request(2, held);
    let world = with_clients(script, |config| {
        config
            .route("limits/client_concurrent", 2)
            .route("limits/client_rate", "600/m")
    });
    let mut first = world.gateway.client();
    let mut second = world.gateway.client();
    first.send(&by(BILLING, "once-1"));
    second.send(&by(BILLING, "once-2"));
    world.tool.wait_request(2);
    let third = world.call(&by(BILLING, "once-3"));
    let problem = third.problem(429, "rate-limited");
    assert_eq!(problem["repeat"], "same-call-id-only");
    assert_eq!(world.call(&by(SHIPPING, "other")).status, 201);
    gate.open();
    assert_eq!((first.answer().status, second.answer().status), (201, 201));
    let again = world.gateway.wait_until("a slot is free", || {
        Some(world.call(&by(BILLING, "once-3"))).filter(|it| it.status != 429)
    });
    assert_eq!(again.outcome(), "answered");
    assert!(bound(&world, "client-concurrent") >= 1.0);
}

/// The most requests that were at the tool at once.
pub(crate) fn most_at_once(world: &World) -> usize {
    let pages = world.tool.pages();
    let (mut open, mut most) = (0usize, 0usize);
    for event in &pages.events {
        match event.what {
            What::Request(_) => open += 1,
            What::Said(_) => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

fn together(world: &World, calls: Vec<Call>) -> Vec<(Answer, Duration)> {
    std::thread::scope(|threads| {
        let all: Vec<_> = calls
            .into_iter()
            .map(|call| {
                threads.spawn(move || {
                    let mut client = world.gateway.client();
                    let began = Instant::now();
                    (client.call(&call), began.elapsed())
                })
            })
            .collect();
        let joined = all.into_iter().map(|thread| thread.join());
        joined.map(|it| it.expect("a caller")).collect()
    })
}

#[test]
fn no_more_than_so_many_calls_are_at_the_tool_at_once_and_the_others_wait() {
    let script = Script::new().otherwise(Act::read_all().wait(40).commit().answer_result());
    let world = World::prompt_with(script, |config| {
        config.route("upstream/concurrency", json!({ "max": 2, "queue": 20 }))
    });
    let calls = (0..12)
        .map(|n| Call::with_id(&format!("place-{n}")))
        .collect();
    let answers = together(&world, calls);
    assert!(answers.iter().all(|(answer, _)| answer.status == 201));
    assert_eq!(most_at_once(&world), 2);
    nothing_is_held(&world);
}

#[test]
fn who_finds_no_place_in_time_was_never_recorded_and_a_known_call_needs_none() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let script = Script::new().request(2, held);
    let world = World::with(script, |config| {
        config
            .slow(5)
            .route("timeouts", json!({ "attempt": "4s", "total": "5s" }))
            .route("upstream/concurrency", json!({ "max": 1, "queue": 1 }))
    });
    assert_eq!(world.call(&Call::with_id("known")).status, 201);
    let mut first = world.gateway.client();
    first.send(&Call::with_id("holds"));
    world.tool.wait_request(2);
    let mut second = world.gateway.client();
    second.send(&Call::with_id("waits"));
    let waiting = [("route", "tool"), ("what", "waiting")];
    world
        .gateway
        .wait_metric("callgate_limited_now", &waiting, 1.0);
    // The queue is full: told at once.
    let began = Instant::now();
    let full = world.call(&Call::with_id("full"));
    let problem = full.problem(503, "overloaded");
    assert_eq!(problem["repeat"], "same-call-id-only");
    assert_eq!(full.must("retry-after"), "1");
    assert_between(began.elapsed(), 0, 2_000, "a refusal at once");
    assert_eq!(world.gateway.receipt("full").status, 404);
    // What is known needs no place.
    assert_eq!(world.call(&Call::with_id("known")).outcome(), "replayed");
    gate.open();
    assert_eq!((first.answer().status, second.answer().status), (201, 201));
    assert_eq!(world.call(&Call::with_id("full")).outcome(), "answered");
    assert!(bound(&world, "concurrency") >= 1.0);
    nothing_is_held(&world);
}

#[test]
fn waiting_for_a_place_ends_with_the_deadline() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let script = Script::new().request(1, held);
    let world = World::with(script, |config| {
        config
            .route(
                "timeouts",
                json!({ "attempt": "400ms", "total": "700ms", "late": "5s" }),
            )
            .route("upstream/concurrency", json!({ "max": 1 }))
            .route("match", json!({ "path": "/**" }))
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("holds"));
    world.tool.wait_request(1);
    // A timed-out send gives its place back: the tool may go on, but others may try.
    let second = world.call(&Call::with_id("waits"));
    assert_eq!(second.status, 201, "{}", second.text());
    gate.open();
    assert_eq!(first.answer().status, 201);
    nothing_is_held(&world);
}

#[test]
fn a_noisy_client_does_not_starve_a_quiet_one() {
    let script = Script::new().otherwise(Act::read_all().wait(40).commit().answer_result());
    let world = with_clients(script, |config| {
        config
            .slow(10)
            .route("upstream/concurrency", json!({ "max": 4, "queue": 64 }))
    })
    .without_history();
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        for caller in 0..NOISY {
            let (world, over) = (&world, &over);
            threads.spawn(move || {
                let mut client = world.gateway.client();
                let mut n = 0;
                while !over.load(std::sync::atomic::Ordering::Relaxed) {
                    n += 1;
                    client.call(&by(BILLING, &format!("noise-{caller}-{n}")));
                }
            });
        }
        let waiting = [("route", "tool"), ("what", "waiting")];
        world.gateway.wait_until("the noise fills the queue", || {
            let now = world
                .gateway
                .metrics()
                .value("callgate_limited_now", &waiting);
            (now > 20.0).then_some(())
        });
        let mut client = world.gateway.client();
        for n in 0..30 {
            let answer = client.call(&by(SHIPPING, &format!("quiet-{n}")));
            assert_eq!(answer.status, 201, "{}", answer.text());
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let overtaken = noise_between(&world);
    let middle = overtaken[overtaken.len() / 2];
    // One queue for all would put the whole noise before each of them.
    assert!(middle < NOISY / 2, "{overtaken:?}");
    nothing_is_held(&world);
}

/// How many calls of the noise reached the tool between two of the quiet client, sorted: an order
/// and not a time, so that a machine that is slow says the same.
fn noise_between(world: &World) -> Vec<usize> {
    let pages = world.tool.pages();
    let order = pages
        .requests
        .iter()
        .map(|seen| seen.id().starts_with(b"quiet-"));
    let mut between = Vec::new();
    let mut noise = None;
    for is_quiet in order {
        match (is_quiet, &mut noise) {
            (true, before) => between.extend(before.replace(0)),
            (false, Some(n)) => *n += 1,
            (false, None) => {}
        }
    }
    assert_eq!(between.len(), 29);
    between.sort_unstable();
    between
}

#[test]
fn c59_an_outage_is_met_by_few_resends_and_ends_in_the_queue() {
    let outage = Act::read_all().reset();
    let mut script = Script::new().otherwise(Act::works());
    for n in 1..=150 {
        script = script.request(n, outage.clone());
    }
    let script = script.receipts(Receipts::at_commit());
    let world = World::with(script, |config| {
        let budget = json!({ "ratio": 0.2, "floor": 5, "rounds": 50 });
        config
            .route("upstream/retry_budget", budget)
            .set("defaults/compensation/resend", true)
            .set(
                "defaults/compensation/rounds",
                json!(["1s", "2s", "3s", "4s", "5s"]),
            )
    });
    // One, three in line, and one by each round but the last: which of them meet the outage is
    // the machine's to say, and a round may be denied its send too.
    let world = world.sends(8);
    let began = Instant::now();
    let calls = 80;
    let answers: Vec<_> = (0..calls / 8)
        .flat_map(|round| {
            let ids = (0..8).map(|n| Call::with_id(&format!("outage-{round}-{n}")));
            together(&world, ids.collect())
        })
        .collect();
    let in_line = world.tool.a();
    let floor = 5 * (usize::try_from(began.elapsed().as_secs()).expect("seconds") + 2);
    // Rounds that began meanwhile are not the callers' resends.
    let by_rounds: usize = world.gateway.dead_letters().len();
    let most = calls * 12 / 10 + floor + by_rounds;
    assert!(
        in_line <= most,
        "{in_line} sends of {calls} calls, floor {floor}"
    );
    for (answer, _) in &answers {
        assert!(matches!(answer.status, 201 | 504), "{}", answer.text());
    }
    let denied = [("route", "tool"), ("reason", "budget")];
    let denied = world
        .gateway
        .metrics()
        .value("callgate_retries_denied_total", &denied);
    assert!(denied >= 40.0, "{denied}");
    // The tool is back: the queue sees to every call.
    world.gateway.wait_until("every call has its effect", || {
        let open = world.gateway.dead_letters();
        let over = open.iter().all(|row| row["state"] == "SETTLED");
        (over && world.tool.e() == calls).then_some(())
    });
    let effects = world.tool.pages().effects.clone();
    let mut each: HashMap<String, usize> = HashMap::new();
    effects
        .into_iter()
        .for_each(|id| *each.entry(id).or_default() += 1);
    assert!(each.values().all(|n| *n == 1));
    assert_eq!(each.len(), calls);
    nothing_is_held(&world);
}

#[test]
fn a_read_waits_for_its_place_too_and_gives_it_back_with_the_last_byte() {
    let slow = Act::read_all()
        .say("HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n")
        .drip(b"0123456789", 4, ms(60));
    let world = World::prompt_with(Script::new().otherwise(slow), |config| {
        config
            .route("effects", "none")
            .route("upstream/concurrency", json!({ "max": 1, "queue": 4 }))
    })
    .without_history();
    let calls = (0..3).map(|_| Call::get("/tool")).collect();
    let answers = together(&world, calls);
    assert!(answers.iter().all(|(answer, _)| answer.status == 200));
    let slowest = answers.iter().map(|(_, took)| *took).max().expect("three");
    assert_between(
        slowest,
        3 * 240,
        20_000,
        "three answers one after the other",
    );
    nothing_is_held(&world);
}

#[test]
fn a_caller_who_leaves_while_waiting_leaves_no_place_taken() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().request(1, held), |config| {
        config
            .slow(5)
            .route("upstream/concurrency", json!({ "max": 1, "queue": 9 }))
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("holds"));
    world.tool.wait_request(1);
    let leaving: Vec<Client> = (0..5)
        .map(|n| {
            let mut client = world.gateway.client();
            client.send(&Call::with_id(&format!("leaves-{n}")));
            client
        })
        .collect();
    let waiting = [("route", "tool"), ("what", "waiting")];
    world
        .gateway
        .wait_metric("callgate_limited_now", &waiting, 5.0);
    leaving.into_iter().for_each(Client::reset);
    gate.open();
    assert_eq!(first.answer().status, 201);
    // Calls outlive their callers, also those that had to wait.
    world.tool.wait_effect(6);
    nothing_is_held(&world);
}

#[test]
fn a_call_that_waits_for_its_place_is_refused_when_the_process_must_end() {
    let gate = Gate::default();
    let held = Act::read_all().commit().pass(&gate).answer_result();
    let mut world = World::with(Script::new().request(1, held), |config| {
        config
            .slow(5)
            .set("drain/grace", "500ms")
            .route("upstream/concurrency", json!({ "max": 1, "queue": 9 }))
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("holds"));
    world.tool.wait_request(1);
    let mut second = world.gateway.client();
    second.send(&Call::with_id("waits"));
    let waiting = [("route", "tool"), ("what", "waiting")];
    world
        .gateway
        .wait_metric("callgate_limited_now", &waiting, 1.0);
    let began = Instant::now();
    world.gateway.signal_term();
    let refused = second.answer();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(world.tool.sends("waits").is_empty());
    gate.open();
    assert!(world.gateway.wait_exit().success());
    assert_between(began.elapsed(), 0, 3_000, "the end");
    world.restart();
    assert_eq!(world.call(&Call::with_id("waits")).outcome(), "answered");
}
