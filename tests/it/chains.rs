//! A gateway in front of a gateway (C10, contract "Chains"): only the hop next to the tool resends,
//! and what the inner one does not know, the outer one does not guess.

use crate::fixture::{Act, Answer, Call, Config, Gateway, Receipts, Reply, Script, World};

/// Two gateways before one tool; the checks of every test hold for the inner one.
struct Chain {
    outer: Gateway,
    inner: World,
}

impl Chain {
    fn start(
        script: Script,
        inner: impl FnOnce(Config) -> Config,
        outer: impl FnOnce(Config) -> Config,
    ) -> Self {
        let inner = World::with(script, |config| inner(config.set("node", "inner")));
        let config = Config::for_address(inner.gateway.listen)
            .set("node", "outer")
            .route("upstream/kind", "callgate")
            // Their own format, at the place where a gateway has it.
            .route(
                "receipt",
                serde_json::json!({ "settle": "20ms", "believe_not_found": "always" }),
            );
        let outer = Gateway::start(&outer(config));
        Self { outer, inner }
    }

    fn call(&self, call: &Call) -> Answer {
        self.outer.call(call)
    }
}

/// Attempts that outlast everything the inner gateway does in line.
fn patient(config: Config) -> Config {
    config
        .set("defaults/timeouts/attempt", "4s")
        .set("defaults/timeouts/total", "5s")
}

/// What is said of the call, once each whatever stood in the inner gateway's answer.
fn assert_named_once(answer: &Answer) {
    for name in [
        "x-call-id",
        "x-call-id-source",
        "x-call-attempts",
        "x-call-outcome",
        "x-call-receipt",
    ] {
        assert_eq!(
            answer.head.all(name).len(),
            1,
            "{name} in {}",
            answer.text()
        );
    }
}

#[test]
fn a_call_through_two_gateways_is_one_call() {
    let chain = Chain::start(Script::new(), |inner| inner, patient);
    let answer = chain.call(&Call::post());
    let id = answer.must("x-call-id");
    assert_eq!(
        (answer.status, answer.outcome().as_str()),
        (201, "answered")
    );
    assert_eq!(answer.must("x-call-id-source"), "gateway");
    assert_named_once(&answer);
    let sent = &chain.inner.tool.sends(&id)[0];
    assert_eq!(
        sent.head.one("x-call-id-source").as_deref(),
        Some("gateway")
    );
    let via: Vec<_> = sent
        .head
        .all("via")
        .iter()
        .map(|line| line.to_vec())
        .collect();
    let via = String::from_utf8(via.join(&b", "[..])).expect("a Via is text");
    assert!(
        via.contains("callgate-outer") && via.contains("callgate-inner"),
        "{via}"
    );
    // Stored at both, and neither tells the other's fields as the tool's.
    let again = chain.call(&Call::with_id(&id).field("X-Call-Id-Source", "gateway"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_named_once(&again);
    let receipt = chain.outer.wait_until("the success is recorded", || {
        Some(chain.outer.receipt(&id).json()).filter(|receipt| receipt["state"] == "SUCCESS")
    });
    let fields = receipt["result"]["headers"].as_object().expect("fields");
    assert!(fields.contains_key("x-tool"));
    assert!(
        !fields.keys().any(|name| name.starts_with("x-call-")),
        "{receipt}"
    );
    assert_eq!(chain.inner.tool.a(), 1);
}

#[test]
fn nested_gateways_do_not_multiply_their_retries() {
    for id in [Some("c10"), None] {
        let script = Script::new()
            .otherwise(Act::says(Reply::json(503, r#"{"busy":true}"#)))
            .receipts(Receipts::always(Act::not_found()));
        let rounds = |config: Config, gaps: [&str; 2]| {
            config.set("defaults/compensation/rounds", gaps.to_vec())
        };
        let chain = Chain::start(
            script,
            |inner| rounds(inner, ["200ms", "400ms"]),
            |outer| {
                rounds(outer, ["100ms", "200ms"])
                    .set("defaults/timeouts/attempt", "2s")
                    .set("defaults/timeouts/total", "2500ms")
                    .set("defaults/compensation/resend", true)
            },
        );
        let answer = chain.call(&id.map_or_else(Call::post, Call::with_id));
        assert_eq!(answer.outcome(), "unresolved");
        assert_eq!(
            answer.attempts(),
            1,
            "only the hop next to the tool resends"
        );
        assert_named_once(&answer);
        match id {
            // The tool's own words came all the way, and say under which id to repeat.
            Some(_) => {
                assert_eq!((answer.status, &answer.json()["busy"]), (503, &true.into()));
                assert_eq!(answer.must("x-call-repeat"), "same-call-id-only");
            }
            None => {
                answer.problem(504, "unresolved");
            }
        }
        let id = answer.must("x-call-id");
        assert_eq!(chain.inner.tool.a(), 4);
        chain.inner.gateway.wait_dead_letter(&id, "MANUAL");
        chain.outer.wait_dead_letter(&id, "MANUAL");
        assert_eq!(chain.inner.tool.a(), 4, "not 16, and no round adds any");
    }
}

#[test]
fn the_outer_gateway_asks_as_long_as_the_inner_one_works_on_the_call() {
    let script = Script::new()
        .otherwise(Act::read_all().commit().reset())
        .receipts_of("slow", vec![Act::state("PROCESSING")]);
    let gaps = |config: Config, gaps: [&str; 2], total: &str| {
        config
            .set("defaults/compensation/rounds", gaps.to_vec())
            .set("defaults/timeouts/total", total)
    };
    let mut chain = Chain::start(
        script,
        |inner| gaps(inner, ["600ms", "1200ms"], "300ms"),
        |outer| gaps(outer, ["50ms", "100ms"], "400ms"),
    );
    assert_eq!(chain.call(&Call::with_id("slow")).outcome(), "unresolved");
    chain.inner.gateway.wait_dead_letter("slow", "MANUAL");
    let letter = chain.outer.wait_dead_letter("slow", "MANUAL");
    // Two rounds were planned; the inner gateway took far longer than both.
    assert_eq!(letter["round"], 2, "{letter}");
    let asked = chain.outer.history("slow")["receipts"]
        .as_array()
        .map_or(0, Vec::len);
    assert!(asked > 4, "asked {asked} times only");
    assert_eq!(chain.inner.tool.a(), 1);
    chain.outer.terminate();
}

#[test]
fn a_request_without_effects_is_resent_by_the_hop_next_to_the_tool_only() {
    let script = Script::new().otherwise(Act::says(Reply::new(503, "busy")));
    let chain = Chain::start(script, |inner| inner, patient);
    let answer = chain.call(&Call::get("/tool").field("X-Call-Id", "look"));
    assert_eq!((answer.status, answer.attempts()), (503, 1));
    assert_eq!(chain.inner.tool.a(), 4);
    drop(chain.outer);
    drop(chain.inner.without_history());
}

/// An inner gateway as a script: a problem it makes, with its outcome word.
fn says(status: u16, outcome: &str, code: &str) -> Act {
    says_sent(status, outcome, code, "unknown")
}

fn says_sent(status: u16, outcome: &str, code: &str, sent: &str) -> Act {
    let problem = serde_json::json!({
        "type": "t", "title": "t", "status": status, "detail": "d", "code": code, "sent": sent,
    })
    .to_string();
    let reply = Reply::new(status, problem)
        .field("Content-Type", "application/problem+json")
        .field("Proxy-Status", "callgate; error=proxy_internal_response")
        .field("X-Call-Outcome", outcome)
        .field("X-Call-Attempts", "0");
    Act::says(reply)
}

/// The outer gateway alone, before a script that plays the inner one.
fn before(script: Script) -> World {
    World::with(script, |config| config.route("upstream/kind", "callgate"))
}

#[test]
fn an_inner_gateway_that_takes_nothing_was_sent_nothing() {
    for (status, code) in [
        (503, "draining"),
        (503, "ledger-unavailable"),
        (429, "rate-limited"),
    ] {
        let world = before(Script::new().request(1, says(status, "refused", code)));
        let answer = world.call(&Call::with_id("again"));
        assert_eq!((answer.status, answer.attempts()), (201, 2), "{code}");
        assert_eq!(world.tool.r(), 0, "there was nothing to ask about");
    }
}

#[test]
fn what_no_gateway_took_is_told_as_not_sent_only_if_the_inner_one_says_so() {
    for (sent, repeat) in [("unknown", "same-call-id-only"), ("no", "safe")] {
        let refuses = says_sent(503, "refused", "draining", sent);
        let world = before(Script::new().otherwise(refuses));
        let answer = world.call(&Call::with_id("refused"));
        let problem = answer.problem(502, "tool-unreachable");
        assert_eq!(
            (&problem["sent"], &problem["repeat"]),
            (&sent.into(), &repeat.into())
        );
        assert_eq!((answer.outcome().as_str(), world.tool.r()), ("refused", 0));
    }
}

#[test]
fn what_no_gateway_took_yet_is_not_told_as_never_sent() {
    let script = Script::new().otherwise(says(503, "refused", "draining"));
    let world = World::with(script, |config| {
        config
            .route("upstream/kind", "callgate")
            .set("defaults/compensation/resend", true)
            .set("defaults/compensation/rounds", serde_json::json!(["1h"]))
    });
    // In line, and by a repeat that finds it in the queue.
    for _ in 0..2 {
        let answer = world.call(&Call::with_id("queued"));
        let problem = answer.problem(504, "unresolved");
        assert_eq!(
            (&problem["sent"], &problem["state"]),
            (&"unknown".into(), &"RECEIVED".into())
        );
        world.gateway.wait_dead_letter("queued", "QUEUED");
    }
}

#[test]
fn a_call_the_inner_gateway_knows_is_waited_for() {
    let open = [
        (409, "refused", "in-progress"),
        (409, "refused", "result-not-kept"),
        (504, "unresolved", "unresolved"),
        (202, "unresolved", "unresolved"),
        // A route without effects, further in.
        (504, "unresolved", "tool-timeout"),
        (502, "unresolved", "tool-disconnected"),
    ];
    for (status, outcome, code) in open {
        let result = Reply::json(201, r#"{"done":true}"#);
        let receipts = vec![
            Act::state("UNKNOWN"),
            Act::state("PROCESSING"),
            Act::state_with("SUCCESS", &result),
        ];
        let script = Script::new()
            .request(1, says(status, outcome, code))
            .receipts(Receipts::InOrder(receipts));
        let world = before(script);
        let answer = world.call(&Call::with_id("known"));
        let told = (answer.status, answer.outcome(), answer.attempts());
        assert_eq!(told, (201, "receipt".to_owned(), 1), "{status} {code}");
        assert_eq!((world.tool.a(), world.tool.r()), (1, 3), "{status} {code}");
    }
}

#[test]
fn what_the_inner_gateway_wrote_itself_is_not_handed_through_as_the_tools_answer() {
    let script = Script::new()
        .request(1, says(504, "unresolved", "unresolved"))
        .receipts(Receipts::always(Act::state("UNKNOWN")));
    let world = before(script);
    let problem = world
        .call(&Call::with_id("known"))
        .problem(504, "unresolved");
    assert_eq!(problem["callId"], "known");
    assert_ne!(problem["detail"], "d", "the inner gateway's words");
}

#[test]
fn what_the_inner_gateway_refuses_for_good_is_passed_on_and_binds_nothing() {
    for (status, code) in [
        (422, "call-id-reused"),
        (401, "unauthorized"),
        (502, "tool-unreachable"),
    ] {
        let world = before(Script::new().request(1, says(status, "refused", code))).lives(2);
        let refused = world.call(&Call::with_id("later"));
        refused.problem(status, code);
        assert_eq!(refused.outcome(), "refused");
        assert_eq!(refused.head.all("x-call-outcome").len(), 1);
        assert_eq!(world.tool.r(), 0);
        let again = world.call(&Call::with_id("later"));
        assert_eq!(
            (again.status, again.outcome().as_str()),
            (201, "answered"),
            "{code}"
        );
        assert_eq!(world.tool.a(), 2);
    }
}
