//! What an operator does about a dead letter, and what callers are told afterwards.

use crate::fixture::{Act, BINARY, Call, Checked, Config, Gateway, Receipts, Script, World};
use serde_json::{Value, json};
use std::process::Command;

impl Gateway {
    /// A verb about one call: status and document.
    pub(crate) fn verb(&self, id: &str, verb: &str, said: &Value) -> (u16, Value) {
        let call = Call::new("POST", &format!("/api/v1/dead-letters/{id}/{verb}"));
        self.told(call, said)
    }

    /// Something said to the operator's listener.
    pub(crate) fn told(&self, call: Call, said: &Value) -> (u16, Value) {
        let call = call
            .field("Content-Type", "application/json")
            .field("X-Callgate-Operator", "ann@ops")
            .body(said.to_string());
        let answer = crate::fixture::Client::connect(self.admin).call(&call);
        (answer.status, answer.json())
    }

    /// The dead letter of a call with its story.
    fn shown(&self, id: &str) -> Value {
        self.admin(&format!("/api/v1/dead-letters/{id}")).json()
    }

    /// The last step of a dead letter's story, in words.
    pub(crate) fn last_step(&self, id: &str) -> String {
        let shown = self.shown(id);
        let step = shown["rounds"].as_array().and_then(|steps| steps.last());
        let step = step.unwrap_or_else(|| panic!("no story in {shown}"));
        let word = |member: &str| step[member].as_str().expect("text").to_owned();
        format!("{} {}", word("state"), word("told"))
    }

    /// `callgate dead ..` about this gateway.
    pub(crate) fn dead(&self, line: &str) -> Checked {
        let mut command = Command::new(BINARY);
        command
            .args(["--admin", &self.admin.to_string(), "dead"])
            .args(line.split_whitespace());
        Checked::run(&mut command)
    }
}

/// A tool that never answers and says nothing useful when asked.
fn mute() -> Script {
    Script::new()
        .otherwise(Act::read_all().fin())
        .receipts(Receipts::always(Act::state("WHO_KNOWS")))
}

/// Rounds that do not come within a test.
fn quiet(config: Config) -> Config {
    config
        .set("defaults/retry/max_retries", 0)
        .set("defaults/timeouts/total", "600ms")
        .set("defaults/compensation/rounds", json!(["10m"]))
}

/// A call that nobody knows the end of.
fn parked(world: &World, call: &Call, id: &str) {
    world.call(call).problem(504, "unresolved");
    world.gateway.wait_dead_letter(id, "QUEUED");
}

#[test]
fn a_human_resolves_a_call_and_repeats_are_told_so() {
    let world = World::with(mute(), quiet);
    parked(&world, &Call::with_id("done"), "done");
    parked(&world, &Call::with_id("undone"), "undone");
    let said = json!({ "as": "success", "note": "carrier confirmed" });
    let (status, told) = world.gateway.verb("done", "resolve", &said);
    assert_eq!((status, &told["result"]), (200, &json!("done")), "{told}");
    assert_eq!(told["before"], "QUEUED");
    assert_eq!(told["after"], "SETTLED");
    // A double click does one thing and says so.
    let (status, told) = world.gateway.verb("done", "resolve", &said);
    assert_eq!(
        (status, &told["result"]),
        (200, &json!("already")),
        "{told}"
    );
    let other = json!({ "as": "failed", "note": "no" });
    let (status, told) = world.gateway.verb("done", "resolve", &other);
    assert_eq!((status, &told["code"]), (409, &json!("order-refused")));
    assert_eq!(told["reason"], "settled");
    world.gateway.verb("undone", "resolve", &other);

    let replay = world.call(&Call::with_id("done"));
    assert_eq!(
        (replay.status, replay.outcome().as_str()),
        (200, "replayed")
    );
    assert_eq!(replay.json()["settledBy"], "operator");
    assert_eq!(replay.json()["state"], "SUCCESS");
    let replay = world.call(&Call::with_id("undone"));
    replay.problem(502, "resolved-as-failed");
    for (id, state) in [("done", "SUCCESS"), ("undone", "FAILED")] {
        let receipt = world.gateway.receipt(id).json();
        assert_eq!(receipt["state"], state);
        assert_eq!(receipt["settledBy"], "operator");
    }
    let said = "SETTLED ann@ops: resolve-success (carrier confirmed)";
    assert_eq!(world.gateway.last_step("done"), said);
    assert!(
        world
            .gateway
            .dead("show done")
            .out
            .contains("ann@ops: resolve-success (carrier")
    );
    let shown = world.gateway.shown("done");
    let line = &shown["audit"][0];
    assert_eq!(shown["audit"].as_array().map(Vec::len), Some(1), "{shown}");
    assert_eq!(line["who"], "ann@ops");
    assert_eq!(line["verb"], "resolve-success");
    assert_eq!(line["why"], "carrier confirmed");
    assert_eq!(
        (&line["before"], &line["after"]),
        (&json!("QUEUED"), &json!("SETTLED"))
    );
    assert_eq!(world.tool.a(), 2, "nobody sent anything");
}

#[test]
fn what_was_given_up_is_never_sent_and_its_key_is_free_once_released() {
    let world = World::with(mute(), quiet);
    let key = |id: &str| Call::with_id(id).field("Idempotency-Key", "parcel-7");
    parked(&world, &key("a"), "a");
    let why = json!({ "reason": "test data" });
    let (_, told) = world.gateway.verb("a", "release-key", &why);
    assert_eq!(told["reason"], "still-open", "{told}");
    world.gateway.verb("a", "discard", &why);
    let said = "DISCARDED ann@ops: discard (test data)";
    assert_eq!(world.gateway.last_step("a"), said);
    assert_eq!(
        world.gateway.receipt("a").json()["deadLetter"]["state"],
        "DISCARDED"
    );
    // Neither a repeat nor an operator sends it, and its key still stands for it.
    world.call(&key("a")).problem(504, "unresolved");
    let (_, told) = world.gateway.verb("a", "resend", &json!({}));
    assert_eq!(told["reason"], "discarded", "{told}");
    world.call(&key("b")).problem(504, "unresolved");
    assert_eq!(world.tool.a(), 1);
    let (_, told) = world.gateway.verb("a", "release-key", &why);
    assert_eq!(
        (&told["result"], &told["after"]),
        (&json!("done"), &json!("DISCARDED"))
    );
    let (_, told) = world.gateway.verb("a", "release-key", &why);
    assert_eq!(told["result"], "already");
    // The same parcel runs again under an id of its own.
    world.call(&key("c")).problem(504, "unresolved");
    let ids: Vec<_> = world
        .tool
        .pages()
        .requests
        .iter()
        .map(|seen| seen.id())
        .collect();
    assert_eq!(ids, [b"a".to_vec(), b"c".to_vec()]);
}

#[test]
fn an_operators_resend_asks_first_keeps_the_id_and_comes_back_to_the_human() {
    // The tool loses the first two sends, says that it never heard of the call, and then works.
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .request(2, Act::read_all().fin())
        .ignores_ids();
    let mut world = World::with(script, |config| {
        quiet(config).set("defaults/compensation/rounds", json!(["50ms"]))
    });
    let first = world.call(&Call::post());
    let id = first.id();
    first.problem(504, "unresolved");
    world.gateway.wait_dead_letter(&id, "MANUAL");
    let (_, told) = world
        .gateway
        .verb(&id, "resend", &json!({ "why": "tool is back" }));
    assert_eq!(
        (&told["result"], &told["known"]),
        (&json!("unclear"), &json!(false)),
        "{told}"
    );
    assert_eq!(told["after"], "MANUAL", "never back to the queue");
    let step = world.gateway.last_step(&id);
    assert!(
        step.starts_with("MANUAL ann@ops: resend (tool is back): "),
        "{step}"
    );
    world.crash();
    assert_eq!(world.gateway.shown(&id)["state"], "MANUAL");
    let asked = world.tool.r();
    let (_, told) = world.gateway.verb(&id, "resend", &json!({}));
    assert_eq!(
        (&told["result"], &told["after"]),
        (&json!("settled"), &json!("SETTLED")),
        "{told}"
    );
    let step = world.gateway.last_step(&id);
    assert!(
        step.starts_with("SETTLED ann@ops: resend: sent again"),
        "{step}"
    );
    assert!(
        world.tool.r() > asked,
        "the receipt is asked before anything is sent"
    );
    // C13: one id over the line, the rounds, a restart and the operator; and it is the caller's.
    let sends = world.tool.sends(&id);
    assert_eq!((sends.len(), world.tool.a(), world.tool.e()), (3, 3, 1));
    let (status, told) = world.gateway.verb(&id, "resend", &json!({}));
    assert_eq!((status, &told["reason"]), (409, &json!("settled")));
    assert_eq!(world.tool.a(), 3);
}

#[test]
fn the_tool_may_be_asked_about_what_has_ended_and_contradictions_are_listed() {
    // C37: SUCCESS, PROCESSING, FAILED, not found, in this order.
    let answers = ["SUCCESS", "PROCESSING", "FAILED"].map(Act::state);
    let answers: Vec<_> = answers.into_iter().chain([Act::not_found()]).collect();
    let script = mute().receipts_of("c", answers);
    let world = World::with(script, quiet);
    let call = Call::with_id("c");
    assert_eq!(
        world.call(&call).status,
        200,
        "settled by its receipt in line"
    );
    let ask = || world.gateway.verb("c", "receipt", &json!({})).1;
    assert_eq!(ask()["result"], "processing");
    assert_eq!(ask()["result"], "differs");
    // It was recognised, so "never heard of it" is no information.
    assert_eq!(ask()["result"], "unknown");
    assert_eq!(world.gateway.receipt("c").json()["state"], "SUCCESS");
    let list = world.gateway.admin("/api/v1/differences").json();
    let items = list["items"].as_array().expect("a list");
    assert_eq!(items.len(), 1, "{list}");
    assert_eq!(items[0]["call_id"], "c");
    assert_eq!(items[0]["kind"], "receipt");
    assert_eq!(items[0]["told"], "the receipt said FAILED");
    assert_eq!(items[0]["recorded"], "SUCCESS");
    let csv = world.gateway.dead("diff -o csv");
    assert_eq!(csv.code, 0, "{}", csv.err);
    let mut lines = csv.out.lines();
    let heading = lines.next().unwrap_or_default();
    assert!(
        heading.starts_with("seen,call_id,kind,told,recorded,"),
        "{heading}"
    );
    assert!(
        lines
            .next()
            .unwrap_or_default()
            .contains(",c,receipt,the receipt said FAILED,SUCCESS,")
    );
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn the_command_line_ends_with_the_codes_that_scripts_rely_on() {
    let world = World::with(mute(), quiet);
    parked(&world, &Call::with_id("c"), "c");
    let table = [
        ("list --state QUEUED -o ndjson", 0),
        ("list --state STUCK", 2),
        ("show c", 0),
        ("show nobody", 4),
        ("receipt c", 3),
        ("resend c", 3),
        ("reverse c", 1),
        ("release-key c --reason x", 1),
        ("discard c", 2),
        ("discard c --reason gone", 0),
        ("discard c --reason gone", 0),
        ("resend c", 1),
        ("bulk resend", 2),
        ("bulk resend --yes", 2),
        ("bulk resend --all --yes", 4),
        ("bulk resend --all --dry-run -o json", 0),
        ("job show 7", 4),
    ];
    for (line, code) in table {
        let ended = world.gateway.dead(line);
        assert_eq!(ended.code, code, "dead {line}: {ended:?}");
    }
    let csv = world.gateway.dead("list -o csv");
    let heading = "business_key,request_id,last_error,fail_count,next_retry_time,create_time,";
    assert!(csv.out.starts_with(heading), "{}", csv.out);
}

#[test]
fn two_clients_with_one_id_are_told_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = ["billing", "shop"].map(|name| {
        let file = folder.path().join(name);
        std::fs::write(&file, format!("key-of-{name}")).expect("a file can be written");
        json!({ "name": name, "key_file": file })
    });
    let world = World::with(mute(), |config| {
        quiet(config)
            .set("clients", json!(keys))
            .route("upstream/tenant_header", "X-Tenant")
    });
    for name in ["billing", "shop"] {
        let call = Call::with_id("c").field("Authorization", format!("Bearer key-of-{name}"));
        world.call(&call).problem(504, "unresolved");
    }
    let (status, told) = world
        .gateway
        .verb("c", "discard", &json!({ "reason": "x" }));
    assert_eq!(
        (status, &told["code"]),
        (400, &json!("bad-request")),
        "{told}"
    );
    let one = Call::new("POST", "/api/v1/dead-letters/c/discard?client=shop");
    let (_, told) = world.gateway.told(one, &json!({ "reason": "x" }));
    assert_eq!(
        (&told["client"], &told["result"]),
        (&json!("shop"), &json!("done"))
    );
    let states: Vec<_> = world.gateway.dead_letters();
    let state = |name: &str| {
        let row = states.iter().find(|row| row["client"] == name);
        row.expect("a row of each client")["state"].clone()
    };
    assert_eq!(
        (state("shop"), state("billing")),
        (json!("DISCARDED"), json!("QUEUED"))
    );
    drop(world.without_history());
}

#[test]
fn only_a_json_post_with_the_token_changes_something() {
    let world = World::with(mute(), |config| quiet(config).set("admin/token", "s3cret"));
    world.call(&Call::with_id("c")).problem(504, "unresolved");
    let to = "/api/v1/dead-letters/c/discard";
    let client = || crate::fixture::Client::connect(world.gateway.admin);
    let said = r#"{"reason":"x"}"#;
    let bare = Call::new("POST", to)
        .field("Content-Type", "application/json")
        .body(said);
    assert_eq!(client().call(&bare).status, 401);
    let bare = bare.field("Authorization", "Bearer s3cret");
    let get = Call::get(to).field("Authorization", "Bearer s3cret");
    client().call(&get).problem(405, "no-route");
    let form = bare.clone().set("Content-Type", "text/plain");
    assert_eq!(
        client().call(&form).status,
        415,
        "what a foreign page can send changes nothing"
    );
    let large = bare.clone().body(vec![b' '; 100_000]);
    assert_eq!(client().call(&large).status, 413);
    let strange = bare.clone().body(r#"{"reason":"x","force":true}"#);
    assert_eq!(client().call(&strange).status, 422);
    let two = bare
        .clone()
        .field("X-Callgate-Operator", "a")
        .field("X-Callgate-Operator", "b");
    assert_eq!(client().call(&two).status, 400);
    let done = client().call(&bare);
    assert_eq!((done.status, &done.json()["result"]), (200, &json!("done")));
    drop(world.without_history());
}
