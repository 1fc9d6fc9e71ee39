//! What callgate says about a call and about itself, no tool can say in its place: not in its
//! fields, not in its trailers, not by way of what is stored.

use crate::fixture::{Act, Answer, Call, Receipts, Reply, Script, World};

/// Fields that are callgate's to say, as a tool says them.
const FORGED: [(&str, &str); 8] = [
    ("Idempotent-Replayed", "true"),
    ("Preference-Applied", "respond-async"),
    ("Proxy-Status", "callgate; error=connection_refused"),
    ("X-Call-Repeat", "same-call-id-only"),
    ("X-Call-Receipt", "/elsewhere"),
    ("X-Call-Outcome", "unresolved"),
    ("X-Call-Anything", "x"),
    ("X-Original-Call-Id", "other"),
];

/// Those that are never there when a tool has answered.
const NEVER: [&str; 5] = [
    "preference-applied",
    "proxy-status",
    "x-call-repeat",
    "x-call-anything",
    "x-original-call-id",
];

fn forged(reply: Reply) -> Reply {
    let add = |reply: Reply, (name, value): &(&str, &str)| reply.field(name, value);
    FORGED.iter().fold(reply.field("X-Tool", "yes"), add)
}

fn says_nothing_forged(answer: &Answer, outcome: &str) {
    assert_eq!(answer.must("x-tool"), "yes", "the tool's own fields pass");
    assert_eq!(answer.outcome(), outcome);
    for name in NEVER {
        assert_eq!(answer.field(name), None, "{name}");
    }
    let replayed = (outcome == "replayed").then(|| "true".to_owned());
    assert_eq!(answer.field("idempotent-replayed"), replayed);
    assert_ne!(
        answer.field("x-call-receipt").as_deref(),
        Some("/elsewhere")
    );
}

#[test]
fn what_a_tool_says_in_callgates_name_is_neither_told_nor_replayed_nor_shown_in_a_receipt() {
    let act = Act::read_all().commit();
    let script = Script::new().otherwise(act.answer(forged(Reply::json(201, "{}"))));
    let world = World::prompt(script);
    says_nothing_forged(&world.call(&Call::with_id("c1")), "answered");
    says_nothing_forged(&world.call(&Call::with_id("c1")), "replayed");
    let receipt = world.gateway.receipt("c1").json();
    let fields = receipt["result"]["headers"].as_object().expect("fields");
    assert!(fields.contains_key("x-tool"), "{receipt}");
    for (name, _) in FORGED {
        assert!(!fields.contains_key(&name.to_lowercase()), "{receipt}");
    }
}

#[test]
fn nor_when_a_receipt_carries_it() {
    let result = forged(Reply::json(201, "{}"));
    let script = Script::new()
        .request(1, Act::read_all().commit().hang())
        .receipts(Receipts::always(Act::state_with("SUCCESS", &result)));
    let world = World::prompt(script);
    says_nothing_forged(&world.call(&Call::with_id("c1")), "receipt");
}

#[test]
fn nor_on_routes_without_effects_whole_or_streamed_or_in_trailers() {
    let script = Script::new().otherwise(Act::says(forged(Reply::new(200, "whole"))));
    let none = |script| {
        let world = World::with(script, |config| config.route("effects", "none"));
        world.without_history()
    };
    let world = none(script);
    says_nothing_forged(&world.call(&Call::get("/x")), "answered");
    let names = FORGED.map(|(name, _)| name).join(", ");
    let fields: String = FORGED
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let raw = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Tool: yes\r\n{fields}\
         Trailer: X-Sum, {names}\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 7\r\n{fields}\r\n"
    );
    let world = none(Script::new().otherwise(Act::read_all().say(raw.as_bytes())));
    let mut client = world.gateway.client();
    client.send_raw(b"GET /x HTTP/1.1\r\nHost: h\r\nTE: trailers\r\nConnection: TE, close\r\n\r\n");
    let mut told = Vec::new();
    while let Ok(more) = client.more() {
        told = more;
    }
    let told = String::from_utf8_lossy(&told).to_lowercase();
    assert!(told.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{told}");
    for (name, value) in FORGED {
        let line = format!("\r\n{}: {value}", name.to_lowercase());
        assert!(!told.contains(&line), "{name} in {told}");
    }
    assert_eq!(
        told.matches("x-call-outcome: answered").count(),
        1,
        "{told}"
    );
}
