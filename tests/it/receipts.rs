//! What an answer about a call proves, and what it does not: C36, C37, C65, C67.

use crate::fixture::check::receipt_states;
use crate::fixture::{Act, Call, Config, Gate, PATIENCE, Receipts, Reply, Script, Tool, World, ms};
use serde_json::json;

/// Answers to a receipt query that say nothing about the call.
fn answers_that_prove_nothing(elsewhere: &Tool) -> Vec<(&'static str, Act)> {
    let says = |status, body: &str| Act::says(Reply::json(status, body));
    let success = r#"{"callId":"{id}","state":"SUCCESS"}"#;
    let html = Reply::new(404, "<!doctype html><html>Not Found</html>");
    let html = html.field("Content-Type", "text/html");
    let location = format!("http://{}/receipts/moved", elsewhere.receipts);
    let huge = format!("{}{success}", " ".repeat(10 << 20));
    let half = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 90\r\n\r\n{";
    let drip = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n";
    vec![
        ("hang", Act::read_all().hang()),
        ("reset", Act::read_all().reset()),
        ("fin", Act::read_all().fin()),
        ("500", says(500, success)),
        ("503", says(503, success)),
        ("401", says(401, "{}")),
        ("403", says(403, success)),
        ("empty", says(200, "")),
        ("html", Act::says(html.clone())),
        (
            "html-200",
            Act::says(Reply {
                status: 200,
                ..html
            }),
        ),
        ("weird", says(200, r#"{"callId":"{id}","state":"WEIRD"}"#)),
        (
            "other-id",
            says(200, r#"{"callId":"other","state":"SUCCESS"}"#),
        ),
        (
            "moved",
            Act::says(Reply::new(301, "").field("Location", &location)),
        ),
        ("cut-json", says(200, r#"{"callId":"{id}","state":"SUCC"#)),
        ("half-body", Act::read_all().say(half).fin()),
        ("no-state", says(200, r#"{"callId":"{id}"}"#)),
        ("a-list", says(200, "[]")),
        ("10-megabytes", says(200, &huge)),
        (
            "drips",
            Act::read_all().say(drip).drip(b" ", 40, ms(30)).fin(),
        ),
        (
            "204",
            Act::read_all().say("HTTP/1.1 204 No Content\r\n\r\n"),
        ),
    ]
}

#[test]
fn c36_only_a_well_formed_answer_for_the_same_id_changes_anything() {
    let elsewhere = Tool::start(Script::new().receipts(Receipts::always(Act::state("SUCCESS"))));
    let kinds = answers_that_prove_nothing(&elsewhere);
    let mut script = Script::new().otherwise(Act::read_all().hang());
    for (id, act) in &kinds {
        script = script.receipts_of(id, vec![act.clone()]);
    }
    let world = World::two_ports(script, |config| {
        config
            .set("defaults/timeouts/total", "1200ms")
            .set("defaults/timeouts/late", "300ms")
            .set("defaults/compensation/rounds", json!(["20s"]))
    });
    std::thread::scope(|scope| {
        for (id, _) in &kinds {
            let world = &world;
            scope.spawn(move || {
                let answer = world.call(&Call::with_id(id));
                let problem = answer.problem(504, "unresolved");
                assert_eq!(problem["state"], "UNKNOWN", "{id}: {problem}");
                assert_eq!(
                    world.tool.sends(id).len(),
                    1,
                    "{id} was taken for 'not found'"
                );
                assert!(!world.tool.queries(id).is_empty(), "{id}");
                let history = world.gateway.history(id);
                let states = receipt_states(&history);
                assert!(
                    states.iter().all(|state| state == "UNKNOWN"),
                    "{id}: {states:?}"
                );
                assert_eq!(history["state"], "UNKNOWN", "{id}");
                assert_eq!(history["deadLetter"]["state"], "QUEUED", "{id}: {history}");
            });
        }
    });
    assert_eq!(elsewhere.r(), 0, "a redirect was followed");
    let told = |record: &serde_json::Value| record.to_string().contains("WEIRD");
    assert!(
        world.gateway.log().wait(PATIENCE, told).is_some(),
        "a new word is logged"
    );
}

#[test]
fn c36_the_configured_not_found_is_the_only_answer_that_allows_a_resend() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/late", "300ms")
    });
    let answer = world.call(&Call::with_id("404"));
    answer.problem(504, "unresolved");
    assert_eq!(world.tool.a(), 4);
    assert!(receipt_states(&world.gateway.history("404")).contains(&"NOT_FOUND".to_owned()));
}

#[test]
fn c36_without_the_right_to_resend_not_found_only_waits() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "800ms")
            .set("defaults/timeouts/late", "300ms")
            .route("retry/resend_on", json!([]))
    });
    world.call(&Call::with_id("404")).problem(504, "unresolved");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn an_operator_may_declare_that_the_tool_dedupes_by_call_id() {
    let script = Script::new()
        .request(1, Act::read_all().commit().hang())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    let world = World::with(script, |config| {
        config.route("retry/resend_on", json!(["NOT_FOUND", "UNKNOWN"]))
    });
    let answer = world.call(&Call::with_id("dedupes"));
    assert_eq!(
        (answer.status, answer.outcome().as_str()),
        (201, "answered")
    );
    assert_eq!((world.tool.a(), world.tool.e()), (2, 1));
}

#[test]
fn foreign_words_statuses_and_pointers_are_mapped() {
    let foreign = |word: &str| {
        Reply::json(
            200,
            json!({
                "trade": { "status": word, "no": "{id}" },
                "answer": { "code": 202, "text": "aGVsbG8=", "enc": "base64" },
            })
            .to_string(),
        )
    };
    let script = Script::new()
        .otherwise(Act::read_all().commit().fin())
        .receipts(Receipts::InOrder(vec![
            Act::says(foreign("WAIT_BUYER_PAY")),
            Act::says(foreign("TRADE_SUCCESS")),
        ]));
    let world = World::with(script, |config| {
        config
            .route("receipt/state", "/trade/status")
            .route("receipt/call_id", "/trade/no")
            .route(
                "receipt/states",
                json!({
                    "SUCCESS": ["TRADE_SUCCESS"],
                    "FAILED": ["TRADE_CLOSED"],
                    "PROCESSING": ["WAIT_BUYER_PAY"],
                }),
            )
            .route(
                "receipt/result",
                json!({
                    "status": "/answer/code", "body": "/answer/text", "encoding": "/answer/enc",
                }),
            )
    });
    let answer = world.call(&Call::with_id("mapped"));
    assert_eq!(
        (answer.status, answer.body.as_slice()),
        (202, &b"hello"[..])
    );
    assert_eq!(answer.outcome(), "receipt");
    let both = |history: &serde_json::Value| receipt_states(history) == ["PROCESSING", "SUCCESS"];
    world.gateway.wait_history("mapped", "both words", both);
}

#[test]
fn c37_a_late_refusal_does_not_overwrite_a_confirmed_success() {
    let gate = Gate::default();
    let act = Act::read_all()
        .commit()
        .pass(&gate)
        .answer(Reply::new(422, "too late"));
    let world = World::new(Script::new().request(1, act));
    let answer = world.call(&Call::with_id("c37"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    gate.open();
    world
        .gateway
        .wait_metric("callgate_differences_total", &[("route", "tool")], 1.0);
    assert_eq!(world.gateway.receipt("c37").json()["state"], "SUCCESS");
    let again = world.call(&Call::with_id("c37"));
    assert_eq!((again.status, &again.body), (201, &answer.body));
    assert_eq!((world.tool.a(), world.tool.r()), (1, 1));
}

#[test]
fn c37_a_late_success_does_not_overwrite_a_confirmed_failure() {
    let gate = Gate::default();
    let script = Script::new()
        .request(
            1,
            Act::read_all().pass(&gate).answer(Reply::json(200, "{}")),
        )
        .receipts(Receipts::always(Act::state("FAILED")));
    let world = World::new(script);
    let answer = world.call(&Call::with_id("c37"));
    answer.problem(502, "tool-reported-failure");
    gate.open();
    world
        .gateway
        .wait_metric("callgate_differences_total", &[("route", "tool")], 1.0);
    assert_eq!(world.gateway.receipt("c37").json()["state"], "FAILED");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c37_the_first_terminal_state_is_kept_and_nobody_asks_again() {
    let order = ["SUCCESS", "PROCESSING", "FAILED"].map(Act::state);
    let order = order.into_iter().chain([Act::not_found()]).collect();
    let script = Script::new()
        .request(1, Act::read_all().commit().fin())
        .receipts(Receipts::InOrder(order));
    let world = World::new(script);
    assert_eq!(world.call(&Call::with_id("c37")).outcome(), "receipt");
    for _ in 0..3 {
        assert_eq!(world.call(&Call::with_id("c37")).outcome(), "replayed");
        assert_eq!(world.gateway.receipt("c37").json()["state"], "SUCCESS");
    }
    assert_eq!((world.tool.a(), world.tool.r()), (1, 1));
}

#[test]
fn c65_not_found_at_another_address_proves_nothing() {
    let script = Script::new()
        .otherwise(Act::read_all().commit().fin())
        .receipts(Receipts::always(Act::says(Reply::new(500, ""))));
    let short = |config: Config| {
        config
            .set("defaults/timeouts/total", "400ms")
            .set(
                "defaults/compensation/rounds",
                json!(["100ms", "200ms", "300ms"]),
            )
            .route("compensation/resend", true)
    };
    let mut world = World::with(script, short);
    let answer = world.call(&Call::with_id("c65"));
    answer.problem(504, "unresolved");
    world.gateway.kill9();
    let other = Tool::start(Script::new().receipts(Receipts::always(Act::not_found())));
    world.gateway.restart(&short(Config::standard(&other)));
    let row = world.gateway.wait_dead_letter("c65", "MANUAL");
    assert_eq!(row["reason"], "route-changed", "{row}");
    let again = world.call(&Call::with_id("c65"));
    again.problem(504, "unresolved");
    assert_eq!(again.outcome(), "unresolved");
    assert_eq!((world.tool.a(), other.a()), (1, 0));
}

#[test]
fn c65_not_found_from_a_tool_that_may_have_forgotten_proves_nothing() {
    let receipts = Act::read_all().wait(150).answer(Reply::json(404, "{}"));
    let script = Script::new()
        .otherwise(Act::read_all().commit().hang())
        .receipts(Receipts::always(receipts));
    // The first question is answered when the tool's memory is already over.
    let world = World::with(script, |config| {
        config
            .set("defaults/timeouts/total", "1500ms")
            .set("defaults/timeouts/late", "300ms")
            .route("receipt/retention", "250ms")
    });
    let answer = world.call(&Call::with_id("c65"));
    answer.problem(504, "unresolved");
    assert_eq!(world.tool.a(), 1);
}

fn proven(config: Config) -> Config {
    config
        .route("receipt/believe_not_found", "proven")
        .set("defaults/timeouts/late", "300ms")
        .set("defaults/timeouts/total", "1500ms")
}

#[test]
fn c67_an_endpoint_that_knows_nothing_is_found_broken_and_never_believed() {
    let script = Script::new()
        .request(2, Act::read_all().commit().fin())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, proven);
    assert_eq!(world.call(&Call::with_id("first")).status, 201);
    world
        .gateway
        .wait_until("readyz?verbose says that the endpoint is broken", || {
            let ready = world.gateway.admin("/readyz?verbose");
            let text = String::from_utf8_lossy(&ready.body).into_owned();
            (text.contains("tool") && text.contains("broken")).then_some(())
        });
    let loud = world.gateway.log().wait(PATIENCE, |record| {
        let level = record["level"].as_str().unwrap_or_default().to_lowercase();
        (level.starts_with("warn") || level == "error") && record.to_string().contains("receipt")
    });
    assert!(loud.is_some(), "a broken endpoint is loud");
    let second = world.call(&Call::with_id("second"));
    second.problem(504, "unresolved");
    assert_eq!(world.tool.sends("second").len(), 1);
    assert_eq!(world.gateway.receipt("second").json()["state"], "UNKNOWN");
}

#[test]
fn c67_an_endpoint_that_cannot_be_asked_is_unproven_and_not_broken() {
    let sick = || Act::says(Reply::new(500, "sick"));
    let receipts = vec![sick(), sick(), sick(), Act::state("SUCCESS")];
    let script = Script::new()
        .request(2, Act::read_all().commit().fin())
        .receipts(Receipts::InOrder(receipts));
    let world = World::with(script, proven);
    let verbose = || {
        let ready = world.gateway.admin("/readyz?verbose");
        String::from_utf8_lossy(&ready.body).into_owned()
    };
    assert_eq!(world.call(&Call::with_id("first")).status, 201);
    let text = world.gateway.wait_until("it is told as unproven", || {
        Some(verbose()).filter(|text| text.contains("receipt-endpoint-unproven tool"))
    });
    assert!(!text.contains("broken"), "it has denied nothing: {text}");
    let broken = "callgate_receipt_endpoint_broken";
    assert_eq!(world.gateway.metrics().value(broken, &[]), 0.0);
    let said = world.gateway.log().lines().join("\n");
    assert!(said.contains("could not be asked") && !said.contains("is broken"));
    let second = world.call(&Call::with_id("second"));
    assert_eq!((second.status, second.outcome().as_str()), (200, "receipt"));
    assert!(!verbose().contains("receipt-endpoint"), "{}", verbose());
}

#[test]
fn c67_an_endpoint_nobody_has_seen_work_is_not_believed() {
    let script = Script::new().request(1, Act::read_all().commit().fin());
    let world = World::with(script.receipts(Receipts::always(Act::not_found())), proven);
    world
        .call(&Call::with_id("very-first"))
        .problem(504, "unresolved");
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn c67_an_endpoint_that_recognised_a_call_is_believed() {
    let script = Script::new().request(2, Act::read_all().fin());
    let mut world = World::with(script, proven);
    assert_eq!(world.call(&Call::with_id("first")).status, 201);
    world.gateway.wait_metric(
        "callgate_receipt_queries_total",
        &[("state", "SUCCESS")],
        1.0,
    );
    // The proof is remembered: it must survive what a process does not.
    world.gateway.terminate();
    world.restart();
    let second = world.call(&Call::with_id("second"));
    assert_eq!(
        (second.status, second.attempts()),
        (201, 2),
        "{}",
        second.text()
    );
    assert_eq!(world.tool.sends("second").len(), 2);
}

#[test]
fn a_route_without_a_receipt_resends_nothing_that_is_unclear() {
    let script = Script::new().otherwise(Act::read_all().commit().fin());
    let world = World::with(script, Config::without_receipt);
    let answer = world.call(&Call::with_id("blind"));
    let problem = answer.problem(504, "unresolved");
    assert_eq!(problem["repeat"], "same-call-id-only");
    assert_eq!((world.tool.a(), world.tool.r()), (1, 0));
    world.gateway.wait_dead_letter("blind", "MANUAL");
}

#[test]
fn the_gateways_own_receipt_tells_state_attempts_and_result() {
    let world = World::new(Script::new());
    let answer = world.call(&Call::with_id("own-receipt"));
    let link = answer.must("x-call-receipt");
    assert_eq!(link, "/_callgate/receipts/own-receipt");
    world
        .gateway
        .wait_history("own-receipt", "its end", |it| it["state"] == "SUCCESS");
    let receipt = world.call(&Call::get(&link)).json();
    assert_eq!(receipt["callId"], "own-receipt");
    assert_eq!(
        (&receipt["state"], &receipt["route"]),
        (&json!("SUCCESS"), &json!("tool"))
    );
    assert_eq!(
        (&receipt["attempts"], &receipt["deadLetter"]),
        (&json!(1), &json!(null))
    );
    assert_eq!(receipt["result"]["status"], 201);
    assert_eq!(receipt["result"]["body"], r#"{"done":true}"#);
    assert_eq!(receipt["result"]["bodyEncoding"], "utf8");
    assert_eq!(
        receipt["result"]["headers"]["content-type"],
        "application/json"
    );
    for at in ["receivedAt", "updatedAt"] {
        let text = receipt[at]
            .as_str()
            .unwrap_or_else(|| panic!("no {at} in {receipt}"));
        text.parse::<jiff::Timestamp>()
            .unwrap_or_else(|error| panic!("{at} {text}: {error}"));
    }
}

#[test]
fn a_receipt_that_names_its_state_twice_is_not_believed_and_told_of() {
    let twice = |body: &str| Act::says(Reply::json(200, body));
    let receipts = vec![
        twice(r#"{"state":"FAILED","state":"SUCCESS"}"#),
        twice(r#"{"state":"SUCCESS","state":"NOT_FOUND"}"#),
        Act::state("SUCCESS"),
    ];
    let script = Script::new()
        .request(1, Act::read_all().commit().reset())
        .receipts(Receipts::InOrder(receipts));
    let world = World::prompt(script);
    let answer = world.call(&Call::with_id("twice"));
    assert_eq!(answer.outcome(), "receipt");
    assert_eq!((world.tool.a(), world.tool.r()), (1, 3));
    let states = receipt_states(&world.gateway.history("twice"));
    assert_eq!(states[..2], ["UNKNOWN", "UNKNOWN"]);
    let told = world.gateway.log().lines().join("\n");
    assert_eq!(told.matches("doubled-name").count(), 2, "{told}");
}
