//! Tools with several addresses: which one a call goes to, which ones are left alone, and where a
//! call that may have arrived is asked about.

use serde_json::{Value, json};

use crate::fixture::{Act, Call, Config, Gateway, Receipts, Reply, Script, Tool, World};

/// A tool at these addresses, with `upstream` on top. Nobody waits long.
fn config(tools: &[&Tool], upstream: Value) -> Config {
    let urls: Vec<_> = tools
        .iter()
        .map(|tool| format!("http://{}", tool.address))
        .collect();
    let mut at = json!({ "urls": urls });
    for (key, value) in upstream.as_object().expect("a map") {
        at[key] = value.clone();
    }
    Config::standard(tools[0]).route("upstream", at)
}

/// Ejects after `row` failures in a row, for so long.
fn ejects(row: u64, base: &str) -> Value {
    json!({ "ejection": { "consecutive": row, "share": 0, "base": base, "cap": base } })
}

fn get(gateway: &Gateway) -> u16 {
    gateway.call(&Call::get("/x")).status
}

/// The state of every address, as operators see it.
fn states(gateway: &Gateway) -> Vec<String> {
    let told = gateway.admin("/api/v1/upstreams").json();
    let addresses = told["items"][0]["addresses"].as_array().expect("a list");
    let state = |one: &Value| one["state"].as_str().expect("a word").to_owned();
    addresses.iter().map(state).collect()
}

/// How many addresses stand like this, by the metrics.
fn stand(gateway: &Gateway, state: &str) -> f64 {
    let labels = [("state", state), ("route", "tool")];
    gateway
        .metrics()
        .value("callgate_upstream_addresses", &labels)
}

fn failing(times: usize) -> Script {
    let broken = || Act::says(Reply::new(500, "broken"));
    (1..=times).fold(Script::new(), |script, n| script.request(n, broken()))
}

#[test]
fn an_address_that_fails_is_ejected_and_one_send_brings_it_back() {
    let (one, other) = (Tool::start(failing(3)), Tool::start(Script::new()));
    let gateway = Gateway::start(&config(&[&one, &other], ejects(3, "50ms")));
    gateway.wait_until("the failing one to answer again", || {
        get(&gateway);
        (one.a() > 4).then_some(())
    });
    assert_eq!(states(&gateway), ["in", "in"]);
    let metrics = gateway.metrics();
    let rows = [("reason", "row"), ("route", "tool")];
    assert_eq!(metrics.value("callgate_ejections_total", &rows), 1.0);
    assert_eq!(stand(&gateway, "in"), 2.0);
    let told = gateway.log().lines().join("\n");
    for change in ["is ejected", "is tried with one send", "is used again"] {
        assert_eq!(told.matches(change).count(), 1, "{change}");
    }
}

#[test]
fn an_ejected_address_gets_nothing_new_and_a_reload_does_not_bring_it_back() {
    let broken = Script::new().otherwise(Act::says(Reply::new(500, "broken")));
    let (one, other) = (Tool::start(broken), Tool::start(Script::new()));
    let config = config(&[&one, &other], ejects(2, "5m"));
    let gateway = Gateway::start(&config);
    let fails = (0..4).filter(|_| get(&gateway) == 500).count();
    assert_eq!((fails, one.a()), (2, 2));
    assert_eq!(states(&gateway), ["out", "in"]);
    assert!((0..10).all(|_| get(&gateway) != 500));
    assert_eq!(one.a(), 2);
    let changed = config.set("defaults/timeouts/idle", "3s");
    std::fs::write(gateway.config_file(), changed.yaml()).expect("the folder is ours");
    gateway.signal_hup();
    gateway.wait_until("the reload", || {
        let shown = gateway.admin("/api/v1/config").json();
        (shown["reload"]["last"]["result"] == "success").then_some(())
    });
    assert!((0..10).all(|_| get(&gateway) != 500));
    assert_eq!(
        (one.a(), states(&gateway)),
        (2, vec!["out".into(), "in".into()])
    );
}

#[test]
fn when_all_are_out_all_are_used() {
    let broken = || Script::new().otherwise(Act::says(Reply::new(500, "broken")));
    let tools = [Tool::start(broken()), Tool::start(broken())];
    let gateway = Gateway::start(&config(&[&tools[0], &tools[1]], ejects(2, "5m")));
    for _ in 0..12 {
        assert_eq!(get(&gateway), 500, "the tool's own answer");
    }
    assert_eq!(stand(&gateway, "out"), 2.0);
    assert!(tools.iter().all(|tool| tool.a() >= 5), "{}", tools[0].a());
}

#[test]
fn one_url_may_have_a_breaker_that_answers_at_once_and_says_that_nothing_was_sent() {
    let broken = Act::says(Reply::new(500, "broken"));
    let script = Script::new().otherwise(broken);
    let world = World::with(script, |config| {
        let rule = ejects(2, "5m")["ejection"].clone();
        config
            .route("upstream/ejection", rule)
            .set("defaults/retry/max_retries", 0)
    })
    .without_history();
    for _ in 0..2 {
        assert_eq!(get(&world.gateway), 500);
    }
    let refused = world
        .call(&Call::get("/x"))
        .problem(502, "tool-unreachable");
    assert_eq!(refused["sent"], "no");
    let refused = world
        .call(&Call::with_id("c1"))
        .problem(502, "tool-unreachable");
    assert_eq!(
        (&refused["sent"], &refused["repeat"], &refused["attempts"]),
        (&json!("no"), &json!("safe"), &json!(0))
    );
    assert_eq!(world.tool.a(), 2);
    let metrics = world.gateway.metrics();
    assert_eq!(metrics.value("callgate_attempts_total", &[]), 2.0);
}

#[test]
fn a_call_that_cannot_have_arrived_moves_to_another_address_and_belongs_there() {
    let lost = Act::read_all().commit().hang();
    let scripts = || Script::new().request(1, lost.clone());
    let (one, other) = (Tool::start(scripts()), Tool::start(scripts()));
    let gateway = Gateway::start(&config(&[&one, &other], ejects(5, "5m")));
    // The turn is the first one's, and it is not there any more.
    one.refuse();
    let answer = gateway.call(&Call::with_id("c1"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.outcome(), "receipt");
    assert_eq!((other.a(), other.e()), (1, 1));
    assert!(!other.queries("c1").is_empty());
    assert!(one.queries("c1").is_empty(), "it knows nothing of the call");
    let history = gateway.history("c1");
    assert_eq!(history["upstream"], format!("http://{}", other.address));
    let why = gateway.admin("/api/v1/calls/c1/why").json().to_string();
    assert!(why.contains("goes to another address from now on"), "{why}");
}

#[test]
fn a_call_that_may_have_arrived_is_asked_about_and_sent_again_where_it_went() {
    let (one, other) = (
        Tool::start(Script::new().request(1, Act::read_all().hang())),
        Tool::start(Script::new().receipts(Receipts::always(Act::state("SUCCESS")))),
    );
    let gateway = Gateway::start(&config(&[&one, &other], ejects(5, "5m")));
    let answer = gateway.call(&Call::with_id("c1"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.attempts(), 2);
    assert_eq!((one.a(), one.e()), (2, 1));
    assert_eq!((other.a(), other.r()), (0, 0), "another store");
}

#[test]
fn a_believed_not_found_shows_that_an_ejected_address_lives_and_the_call_is_sent_there_again() {
    let script = Script::new().request(1, Act::read_all().hang());
    let (one, other) = (Tool::start(script), Tool::start(Script::new()));
    let gateway = Gateway::start(&config(&[&one, &other], ejects(1, "5m")));
    let answer = gateway.call(&Call::with_id("c1"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(
        (answer.outcome().as_str(), answer.attempts()),
        ("answered", 2)
    );
    assert_eq!((one.a(), one.e(), other.a()), (2, 1, 0));
    assert_eq!(states(&gateway), ["in", "in"], "the send was its probe");
    let metrics = gateway.metrics();
    let not_sent = [("result", "not_sent"), ("route", "tool")];
    assert_eq!(metrics.value("callgate_attempts_total", &not_sent), 0.0);
    let again = [("cause", "timeout"), ("route", "tool")];
    assert_eq!(metrics.value("callgate_retries_total", &again), 1.0);
}

#[test]
fn a_call_that_may_have_arrived_waits_for_its_ejected_address_and_spends_no_send_on_it() {
    let silent = Receipts::always(Act::says(Reply::new(503, "busy")));
    let script = Script::new()
        .request(1, Act::read_all().hang())
        .receipts(silent);
    let (one, other) = (Tool::start(script), Tool::start(Script::new()));
    let config = config(&[&one, &other], ejects(1, "5m"))
        .set("defaults/retry/resend_on", json!(["NOT_FOUND", "UNKNOWN"]));
    let gateway = Gateway::start(&config);
    let answer = gateway.call(&Call::with_id("c1"));
    let problem = answer.problem(504, "unresolved");
    assert_eq!(
        (&problem["repeat"], answer.attempts()),
        (&json!("same-call-id-only"), 1)
    );
    assert_eq!(one.a(), 1, "it is ejected");
    assert!(one.r() > 1, "it is asked all the same");
    assert_eq!((other.a(), other.r()), (0, 0));
    let letter = gateway.wait_dead_letter("c1", "QUEUED");
    assert_eq!(letter["reason"], "ejected");
    let metrics = gateway.metrics();
    let sent = metrics.value("callgate_attempts_total", &[]);
    assert_eq!(sent, 1.0, "what was held back is no attempt");
    assert_eq!(metrics.value("callgate_retries_total", &[]), 0.0);
    let denied = [("reason", "ejected"), ("route", "tool")];
    assert_eq!(metrics.value("callgate_retries_denied_total", &denied), 1.0);
    let held = [("bound", "ejected")];
    assert!(metrics.value("callgate_bounds_reached_total", &held) > 1.0);
    let history = gateway.history("c1");
    let attempts = history["attempts"].as_array().expect("a list");
    assert_eq!(attempts.len(), 1, "{history}");
}

#[test]
fn addresses_that_share_their_state_stand_in_for_one_another() {
    let (one, other) = (
        Tool::start(Script::new().request(1, Act::read_all().hang())),
        Tool::start(Script::new()),
    );
    let mut upstream = ejects(1, "5m");
    upstream["shared_state"] = true.into();
    let gateway = Gateway::start(&config(&[&one, &other], upstream));
    let answer = gateway.call(&Call::with_id("c1"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!((one.a(), other.a(), other.e()), (1, 1, 1));
    assert!(
        !other.queries("c1").is_empty(),
        "the ejected one is not asked"
    );
    let history = gateway.history("c1");
    assert_eq!(history["upstream"], format!("http://{}", one.address));
}

#[test]
fn another_clients_call_id_is_refused_at_every_address_of_the_tool() {
    let tools = [Tool::start(Script::new()), Tool::start(Script::new())];
    let keys = crate::fixture::gateway::folder();
    let client = |name: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, format!("key-of-{name}-0123456789")).expect("the folder is ours");
        json!({ "name": name, "key_file": path.display().to_string() })
    };
    let config = config(&[&tools[0], &tools[1]], json!({}))
        .set("clients", json!([client("a"), client("b")]));
    let gateway = Gateway::start(&config);
    let by = |key: &str| {
        let call = Call::with_id("c1").field("X-Api-Key", key);
        gateway.call(&call)
    };
    assert_eq!(by("key-of-a-0123456789").status, 201);
    for _ in 0..3 {
        by("key-of-b-0123456789").problem(422, "call-id-reused");
    }
    assert_eq!(tools[0].a() + tools[1].a(), 1);
}

#[test]
fn after_a_silent_request_the_next_attempt_uses_a_fresh_connection() {
    let both = crate::fixture::Gate::default();
    let wait = || Act::read_all().commit().pass(&both).answer_result();
    let script = Script::new()
        .request(1, wait())
        .request(2, wait())
        .request(3, Act::read_all().hang());
    let world = World::two_ports(script, |config| {
        config.set("defaults/timeouts/attempt", "1s")
    });
    // Two connections rest, as dead as each other if the way to the tool has died.
    std::thread::scope(|scope| {
        for id in ["a", "b"] {
            let call = Call::with_id(id);
            scope.spawn(|| assert_eq!(world.gateway.call(&{ call }).status, 201));
        }
        world.tool.wait_request(2);
        both.open();
    });
    let answer = world.call(&Call::with_id("c"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    let sends = world.tool.sends("c");
    assert_eq!(sends.len(), 2);
    assert!(
        sends[0].connection <= 2,
        "the case needs a reused connection"
    );
    assert_eq!(sends[1].connection, 3);
}
