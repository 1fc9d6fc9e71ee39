//! Who is calling: client keys, and what is each client's own (C23, C68).

use crate::fixture::gateway::folder;
use crate::fixture::{Act, Answer, Call, Config, Gateway, Receipts, Reply, Script, Tool, World};
use std::fs;
use std::path::Path;

const BILLING: &str = "billing-key-0123456789";
const BILLING_NEXT: &str = "billing-next-0123456789";
const SHIPPING: &str = "shipping-key-0123456789";

/// Two clients, of which the first may use two keys.
fn with_clients(config: Config, keys: &Path) -> Config {
    let file = |name: &str, content: &str| {
        let path = keys.join(name);
        fs::write(&path, content).expect("a key file can be written");
        path.display().to_string()
    };
    config.set(
        "clients",
        serde_json::json!([
            { "name": "billing", "key_file": file("b", &format!("{BILLING}\n{BILLING_NEXT}\n")) },
            { "name": "shipping", "key_file": file("s", SHIPPING) },
        ]),
    )
}

fn world(script: Script, bend: impl FnOnce(Config) -> Config) -> World {
    let keys = folder();
    World::with(script, |config| bend(with_clients(config, keys.path())))
}

fn by(key: &str, call: Call) -> Call {
    call.field("X-Api-Key", key)
}

fn receipt(world: &World, key: &str, id: &str) -> Answer {
    world.call(&by(key, Call::get(&format!("/_callgate/receipts/{id}"))))
}

/// The receipt of a call, once it tells of its success.
fn settled(world: &World, key: &str, id: &str) -> serde_json::Value {
    world.gateway.wait_until("the success is recorded", || {
        Some(receipt(world, key, id).json()).filter(|receipt| receipt["state"] == "SUCCESS")
    })
}

#[test]
fn a_caller_is_known_by_its_key_and_the_key_goes_no_further() {
    let world = world(Script::new(), |config| config).without_history();
    let strangers = [
        Call::with_id("stranger"),
        by("billing-key-012345678", Call::with_id("stranger")),
        Call::with_id("stranger").field("Authorization", format!("Basic {BILLING}")),
        by(SHIPPING, Call::with_id("stranger")).field("Authorization", format!("Bearer {BILLING}")),
        Call::get("/tool"),
    ];
    for stranger in &strangers {
        let answer = world.call(stranger);
        let problem = answer.problem(401, "unauthorized");
        assert_eq!(answer.must("www-authenticate"), "Bearer realm=\"callgate\"");
        assert_eq!(problem["sent"], "unknown");
        assert_eq!(problem["repeat"], "same-call-id-only");
    }
    assert_eq!(world.tool.a(), 0);
    let callers = [
        by(BILLING, Call::with_id("one")),
        by(BILLING_NEXT, Call::with_id("two")),
        Call::with_id("three").field("authorization", format!("bearer {BILLING}")),
        by(SHIPPING, Call::with_id("four")).field("Authorization", "Bearer of-the-tool"),
        // What leaves no record is let in by the same rule.
        by(BILLING, Call::get("/tool")),
    ];
    for caller in &callers {
        assert_eq!(world.call(caller).status, 201);
    }
    for seen in world.tool.pages().requests.iter() {
        let text = seen.head.text();
        for key in [BILLING, BILLING_NEXT, SHIPPING] {
            assert!(!text.contains(key), "the tool was shown a key: {text}");
        }
    }
    let sent = world.tool.sends("four");
    let theirs = sent[0].head.one("authorization");
    assert_eq!(theirs.as_deref(), Some("Bearer of-the-tool"));
    assert_no_key_is_kept(&world.gateway);
}

/// Neither the ledger nor the log has any of the keys.
fn assert_no_key_is_kept(gateway: &Gateway) {
    let mut kept = gateway.log_tail().into_bytes();
    for entry in fs::read_dir(gateway.folder()).expect("the folder is there") {
        let path = entry.expect("an entry").path();
        if path.file_name().is_some_and(|name| name != "callgate.yaml") {
            kept.extend(fs::read(&path).expect("a file of the ledger can be read"));
        }
    }
    for key in [BILLING, BILLING_NEXT, SHIPPING] {
        let found = kept
            .windows(key.len())
            .any(|window| window == key.as_bytes());
        assert!(!found, "{key} was kept");
    }
}

#[test]
fn a_receipt_is_its_clients_own() {
    let world = world(Script::new(), |config| config);
    assert_eq!(world.call(&by(BILLING, Call::with_id("mine"))).status, 201);
    // The end of a success is recorded with the next group.
    settled(&world, BILLING, "mine");
    assert_eq!(
        receipt(&world, BILLING_NEXT, "mine").json()["state"],
        "SUCCESS"
    );
    let theirs = receipt(&world, SHIPPING, "mine").problem(404, "receipt-not-found");
    let unknown = receipt(&world, SHIPPING, "nobodys").problem(404, "receipt-not-found");
    assert_eq!(
        theirs["detail"], unknown["detail"],
        "they cannot be told apart"
    );
    assert!(theirs["knowsSince"].is_string());
    world.gateway.receipt("mine").problem(401, "unauthorized");
}

#[test]
fn one_tool_has_one_name_space_of_call_ids() {
    let world = world(Script::new(), |config| config);
    assert_eq!(world.call(&by(BILLING, Call::with_id("0123"))).status, 201);
    let taken = [
        by(SHIPPING, Call::with_id("0123")),
        by(SHIPPING, Call::with_id("0123").body("another")),
    ];
    let told = taken.map(|call| world.call(&call));
    for answer in &told {
        let problem = answer.problem(422, "call-id-reused");
        for detail in ["state", "receipt"] {
            assert!(
                problem[detail].is_null(),
                "{detail} tells too much: {problem}"
            );
        }
        assert_eq!(answer.outcome(), "refused");
        assert_eq!(answer.head.one("x-call-receipt"), None);
        assert!(!answer.text().contains("done"), "{}", answer.text());
    }
    // Not even whether it is the same request.
    assert_eq!(told[0].json()["detail"], told[1].json()["detail"]);
    assert_eq!(world.tool.a(), 1);
    assert_eq!(
        world.call(&by(BILLING, Call::with_id("0123"))).outcome(),
        "replayed"
    );
    assert_eq!(world.call(&by(SHIPPING, Call::with_id("0124"))).status, 201);
}

#[test]
fn a_tool_that_is_told_who_calls_keeps_their_ids_apart() {
    let script = Script::new()
        .ignores_ids()
        .request(1, Act::says(Reply::json(201, r#"{"for":"billing"}"#)))
        .request(2, Act::read_all().reset())
        .receipts(Receipts::always(Act::state_with(
            "SUCCESS",
            &Reply::json(201, r#"{"for":"shipping"}"#),
        )));
    let world = world(script, |config| {
        config.route("upstream/tenant_header", "X-Tenant")
    })
    .without_history();
    let first = world.call(&by(
        BILLING,
        Call::with_id("0123").field("X-Tenant", "shipping"),
    ));
    let second = world.call(&by(SHIPPING, Call::with_id("0123")));
    assert_eq!(first.json()["for"], "billing");
    assert_eq!(
        (second.outcome(), second.json()["for"].clone()),
        ("receipt".into(), "shipping".into())
    );
    let told: Vec<_> = world.tool.sends("0123").iter().map(tenant).collect();
    assert_eq!(told, ["billing", "shipping"]);
    let asked: Vec<_> = world.tool.queries("0123").iter().map(tenant).collect();
    assert_eq!(
        asked,
        ["shipping"],
        "a question tells whose receipt it wants"
    );
    for (key, whose) in [(BILLING, "billing"), (SHIPPING, "shipping")] {
        let again = world.call(&by(key, Call::with_id("0123")));
        assert_eq!(
            (again.outcome().as_str(), again.json()["for"].clone()),
            ("replayed", whose.into())
        );
        let body = settled(&world, key, "0123")["result"]["body"].to_string();
        assert!(body.contains(whose), "{body}");
    }
}

fn tenant(seen: &crate::fixture::book::Seen) -> String {
    seen.head
        .one("x-tenant")
        .expect("the tool is told who calls")
}

#[test]
fn the_gateways_own_key_is_no_credential_of_the_call() {
    // Nothing but a resend settles it, and a round resends no call that came with a credential.
    let script = Script::new()
        .request(1, Act::read_all().reset())
        .receipts(Receipts::at_commit());
    let world = world(script, |config| {
        config
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/resend", true)
    });
    let answer = world.call(&by(BILLING, Call::with_id("resent")));
    assert_eq!(answer.outcome(), "unresolved");
    world.gateway.wait_dead_letter("resent", "SETTLED");
    assert_eq!((world.tool.a(), world.tool.e()), (2, 1));
}

#[test]
fn a_gateway_without_a_usable_key_file_does_not_start() {
    let tool = Tool::start(Script::new());
    let folder = folder();
    fs::write(folder.path().join("empty"), "\n").expect("a file can be written");
    for (file, word) in [("empty", "holds no key"), ("missing", "No such file")] {
        let clients = serde_json::json!([{ "name": "billing", "key_file": file }]);
        let config = Config::standard(&tool).set("clients", clients);
        let refused = Gateway::refused_in(folder.path(), &config);
        assert_eq!(refused.status.code(), Some(2));
        assert!(
            refused.log.contains("clients[0].key_file"),
            "{}",
            refused.log
        );
        assert!(refused.log.contains(word), "{}", refused.log);
    }
}
