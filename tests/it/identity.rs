//! Who a call is: call ids, repeats, headers that travel and headers that must not: C08, C14-C18.

use crate::fixture::{Act, Answer, Call, Gate, PATIENCE, Reply, Script, World};

#[test]
fn c08_a_fresh_id_without_a_key_is_a_new_call() {
    let world = World::with(
        Script::new().otherwise(Act::read_all().wait(150).commit().answer_result()),
        |config| config.set("defaults/timeouts/attempt", "2s"),
    );
    let mut impatient = world.gateway.client();
    impatient.send(&Call::with_id("c1"));
    world.tool.wait_request(1);
    drop(impatient);
    let second = world.call(&Call::with_id("c2"));
    assert_eq!(
        (second.status, second.outcome().as_str()),
        (201, "answered")
    );
    world.tool.wait_effect(2);
    assert_eq!((world.tool.a(), world.tool.e()), (2, 2));
}

#[test]
fn c08_the_same_id_is_never_executed_twice() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("c1"));
    world.tool.wait_request(1);
    let early = world.call(&Call::with_id("c1").field("Prefer", "wait=0"));
    let problem = early.problem(409, "in-progress");
    assert_eq!(problem["callId"], "c1");
    assert!(early.must("retry-after").parse::<u64>().expect("seconds") >= 1);
    gate.open();
    assert_eq!(first.answer().status, 201);
    let late = world.call(&Call::with_id("c1"));
    assert_eq!((late.status, late.outcome().as_str()), (201, "replayed"));
    assert_eq!(late.must("idempotent-replayed"), "true");
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn c14_a_clients_id_is_byte_equal_everywhere() {
    let script = Script::new().otherwise(Act::read_all().commit().answer(Reply::new(503, "")));
    let world = World::prompt(script);
    let tildes = "~".repeat(128);
    let longest = "x".repeat(256);
    let ids = [
        "f47ac10b-58cc-4372-a567-0e02b2c3d479",
        "F47AC10B-58CC-4372-A567-0E02B2C3D479",
        "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "a",
        &tildes,
        &longest,
        "x:y/z",
        "0123",
        "%0d%0aERROR",
        "${jndi}",
        "a\"b",
        "..a",
    ];
    for (n, id) in ids.into_iter().enumerate() {
        let answer = world.call(&Call::with_id(id));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (201, "receipt"),
            "{id}"
        );
        assert_eq!(answer.id(), id);
        assert_eq!(answer.must("x-call-id-source"), "client");
        let link = answer.must("x-call-receipt");
        let receipt = world.call(&Call::get(&link));
        assert_eq!(
            (receipt.status, &receipt.json()["callId"]),
            (200, &id.into()),
            "{link}"
        );
        assert_eq!(world.gateway.receipt(id).json()["callId"], id);
        assert_eq!(world.gateway.history(id)["callId"], id);
        assert_eq!(world.tool.sends(id).len(), 1, "{id} at the tool");
        assert!(!world.tool.queries(id).is_empty(), "{id} at the receipts");
        let end = world
            .gateway
            .log()
            .wait(PATIENCE, |record| record["call_id"] == id);
        assert!(end.is_some(), "{id} is not in the log");
        assert_eq!((world.tool.a(), world.tool.e()), (n + 1, n + 1));
    }
    assert_eq!(
        world
            .gateway
            .metrics()
            .value("callgate_backfilled_call_ids_total", &[]),
        0.0
    );
}

#[test]
fn an_absent_id_is_made_once_and_tagged() {
    let world = World::prompt(Script::new());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let answer = world.call(&Call::post());
        assert_eq!(answer.must("x-call-id-source"), "gateway");
        let id = answer.id();
        let parts: Vec<&str> = id.split('-').collect();
        let [prefix, millis, hex, node] = parts[..] else {
            panic!("a strange id: {id}")
        };
        assert_eq!((prefix, node), ("tool", "it"), "{id}");
        assert!(
            millis.len() == 13 && millis.bytes().all(|byte| byte.is_ascii_digit()),
            "{id}"
        );
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(hex.len() == 12 && hex.bytes().all(is_hex), "{id}");
        let sends = world.tool.sends(&id);
        assert_eq!(
            sends[0].head.one("x-call-id-source").as_deref(),
            Some("gateway")
        );
        assert_eq!(sends[0].head.one("x-call-attempt").as_deref(), Some("1"));
        ids.push(id);
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 3);
    let made = world.gateway.metrics();
    assert_eq!(
        made.value("callgate_backfilled_call_ids_total", &[("route", "tool")]),
        3.0
    );
}

#[test]
fn an_id_from_a_gateway_in_front_passes_untouched() {
    let world = World::prompt(Script::new());
    let call = Call::with_id("front-1").field("X-Call-Id-Source", "gateway");
    let answer = world.call(&call);
    assert_eq!(
        (
            answer.id().as_str(),
            answer.must("x-call-id-source").as_str()
        ),
        ("front-1", "gateway",)
    );
    let send = &world.tool.sends("front-1")[0];
    assert_eq!(
        send.head.one("x-call-id-source").as_deref(),
        Some("gateway")
    );
}

#[test]
fn c15_an_id_reused_for_another_call_is_refused_and_the_first_stays() {
    let world = World::prompt(Script::new());
    let first = world.call(&Call::with_id("t1"));
    assert_eq!(first.status, 201);
    let before = world.gateway.wait_until("its record", || {
        let receipt = world.gateway.receipt("t1");
        (receipt.json()["state"] == "SUCCESS").then_some(receipt.body)
    });
    let others = [
        Call::with_id("t1").body(br#"{"n":2}"#),
        Call::post_to("/other").field("X-Call-Id", "t1"),
        Call::post_to("/tool?x=1").field("X-Call-Id", "t1"),
        Call::new("PUT", "/tool")
            .field("X-Call-Id", "t1")
            .body(br#"{"n":1}"#),
    ];
    for other in &others {
        let answer = world.call(other);
        let problem = answer.problem(422, "call-id-reused");
        assert_eq!(answer.outcome(), "refused");
        assert_eq!(answer.id(), "t1", "the id is never rewritten");
        assert!(
            problem["detail"]
                .as_str()
                .is_some_and(|detail| !detail.is_empty())
        );
    }
    assert_eq!(world.tool.a(), 1);
    assert_eq!(
        world.gateway.receipt("t1").body,
        before,
        "the first record changed"
    );
    let again = world.call(&Call::with_id("t1"));
    assert_eq!((again.status, again.body), (first.status, first.body));
    let refused = world.gateway.metrics();
    assert_eq!(
        refused.value("callgate_refused_total", &[("code", "call-id-reused")]),
        4.0
    );
}

#[test]
fn c15_a_mismatch_is_told_also_while_the_first_call_runs() {
    let gate = Gate::default();
    let script = Script::new().otherwise(Act::read_all().commit().pass(&gate).answer_result());
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let mut first = world.gateway.client();
    first.send(&Call::with_id("t1"));
    world.tool.wait_request(1);
    let other = world.call(&Call::with_id("t1").body(br#"{"n":2}"#));
    other.problem(422, "call-id-reused");
    gate.open();
    assert_eq!(first.answer().status, 201);
    assert_eq!(world.tool.a(), 1);
}

fn refused_id(world: &World, call: &Call) -> Answer {
    let answer = world.call(call);
    assert_eq!(answer.status, 400, "{}", answer.text());
    // What the HTTP parser refuses by itself is a bare 400; everything else says why.
    if answer
        .field("content-type")
        .is_some_and(|kind| kind.contains("problem"))
    {
        answer.problem(400, "invalid-call-id");
        assert_eq!(answer.outcome(), "refused");
    }
    assert_eq!(
        answer.field("x-call-id"),
        None,
        "an id was made for a present one"
    );
    assert_eq!(world.tool.a(), 0);
    answer
}

#[test]
fn c16_two_lines_a_list_or_an_empty_id_are_refused() {
    let world = World::prompt(Script::new());
    let calls = [
        Call::with_id("a").field("x-call-id", "a"),
        Call::with_id("a").field("X-Call-Id", "b"),
        Call::with_id("a, b"),
        Call::with_id("a,b"),
        Call::with_id(""),
        Call::with_id("   "),
        Call::with_id("."),
        Call::with_id(".."),
        Call::with_id(&"x".repeat(257)),
    ];
    for call in &calls {
        refused_id(&world, call).problem(400, "invalid-call-id");
    }
    let metrics = world.gateway.metrics();
    let refused = metrics.value("callgate_refused_total", &[("code", "invalid-call-id")]);
    assert_eq!(refused, calls.len() as f64);
}

#[test]
fn c17_an_untrusted_id_is_refused_not_replaced_and_logged_only_escaped() {
    let world = World::prompt(Script::new());
    let before = world.gateway.log().lines().len();
    let eight = vec![b'a'; 8 * 1024];
    let ids: [&[u8]; 6] = [
        b"a\tb",
        b"a\x80b",
        b"a\x1b[31m",
        &eight,
        b"%0d%0aERROR forged",
        b"a b",
    ];
    for id in ids {
        refused_id(&world, &Call::post().field("X-Call-Id", id));
    }
    let metrics = world.gateway.metrics();
    assert_eq!(
        metrics.value("callgate_backfilled_call_ids_total", &[]),
        0.0
    );
    // A good call behind them: when its line is there, theirs are too.
    world.call(&Call::with_id("good"));
    world
        .gateway
        .log()
        .wait(PATIENCE, |record| record["call_id"] == "good")
        .expect("its line");
    let lines = world.gateway.log().lines();
    assert!(
        lines.len() - before <= ids.len() + 1,
        "a forged line: {lines:#?}"
    );
    for line in &lines {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok(), "not a JSON line: {line}");
        assert!(
            line.bytes().all(|byte| byte >= 0x20 && byte != 0x7f),
            "raw bytes: {line:?}"
        );
        assert!(!line.contains(&"a".repeat(300)), "the value was not cut");
    }
}

#[test]
fn c18_a_connection_field_cannot_strip_what_names_the_call() {
    let world = World::prompt(Script::new());
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let nominated = "close, X-Call-Id, Idempotency-Key, Authorization, traceparent";
    let call = Call::with_id("c18")
        .field("Connection", nominated)
        .field("Idempotency-Key", "k-18")
        .field("Authorization", "Bearer t")
        .field("traceparent", traceparent);
    assert_eq!(world.call(&call).status, 201);
    let head = world.tool.sends("c18")[0].head.clone();
    assert_eq!(head.one("idempotency-key").as_deref(), Some("k-18"));
    assert_eq!(head.one("authorization").as_deref(), Some("Bearer t"));
    let trace = head.one("traceparent").expect("a traceparent");
    assert_eq!(trace[..36], traceparent[..36], "the trace goes on");
    assert_eq!(
        head.one("connection")
            .filter(|value| value.contains("X-Call")),
        None
    );
}

#[test]
fn c18_hop_by_hop_fields_end_at_the_gateway_both_ways() {
    let reply = Reply::json(200, "{}")
        .field("Connection", "X-Hop")
        .field("X-Hop", "1")
        .field("Keep-Alive", "timeout=5")
        .field("Proxy-Connection", "keep-alive")
        .field("Trailer", "X")
        .field("Upgrade", "h2c")
        .field("X-Stays", "1");
    let world = World::prompt(Script::new().otherwise(Act::says(reply)));
    let call = Call::with_id("hops")
        .field("Connection", "keep-alive, TE, X-Mine")
        .field("X-Mine", "1")
        .field("Keep-Alive", "timeout=5")
        .field("Proxy-Connection", "keep-alive")
        .field("Proxy-Authorization", "x")
        .field("TE", "trailers")
        .field("Trailer", "X")
        .field("Prefer", "return=minimal")
        .field("X-Stays", "1");
    let answer = world.call(&call);
    assert_eq!((answer.status, answer.must("x-stays").as_str()), (200, "1"));
    let head = world.tool.sends("hops")[0].head.clone();
    assert_eq!(head.one("x-stays").as_deref(), Some("1"));
    let ended = ["keep-alive", "proxy-connection", "trailer", "upgrade", "te"];
    for name in ended
        .into_iter()
        .chain(["x-mine", "proxy-authorization", "prefer"])
    {
        assert_eq!(head.one(name), None, "{name} reached the tool");
    }
    for name in ended.into_iter().chain(["x-hop"]) {
        assert_eq!(answer.field(name), None, "{name} reached the caller");
    }
}

#[test]
fn c18_an_upgrade_to_h2c_is_no_way_past_the_gateway() {
    let world = World::prompt(Script::new());
    let call = Call::with_id("up")
        .field("Connection", "Upgrade")
        .field("Upgrade", "h2c");
    let answer = world.call(&call);
    if answer.status == 201 {
        assert_eq!(world.tool.sends("up")[0].head.one("upgrade"), None);
    } else {
        answer.problem(501, "upgrade-refused");
        assert_eq!(world.tool.a(), 0);
    }
}

#[test]
fn what_the_gateway_says_to_the_tool_overwrites_the_callers_own() {
    let world = World::prompt(Script::new().request(1, Act::read_all().fin()));
    let call = Call::with_id("own")
        .field("X-Call-Attempt", "9")
        .field("X-Call-Retry-Cause", "mine")
        .field("Via", "1.1 front");
    assert_eq!(world.call(&call).status, 201);
    let sends = world.tool.sends("own");
    assert_eq!(sends.len(), 2);
    for (n, send) in sends.iter().enumerate() {
        assert_eq!(send.head.one("x-call-attempt"), Some((n + 1).to_string()));
        let via = send.head.all("via").join(&b", "[..]);
        let via = String::from_utf8(via).expect("Via is text");
        assert!(
            via.starts_with("1.1 front") && via.contains("callgate"),
            "{via}"
        );
        assert!(!send.head.all("forwarded").is_empty());
    }
    assert_eq!(sends[0].head.one("x-call-retry-cause"), None);
    assert_eq!(
        sends[1].head.one("x-call-retry-cause").as_deref(),
        Some("disconnect")
    );
    assert_eq!(sends[0].body(), sends[1].body());
    // A request that has been here before goes round in a circle.
    let via = String::from_utf8(sends[0].head.all("via").join(&b", "[..])).expect("text");
    let looped = world.call(&Call::with_id("loop").field("Via", via));
    looped.problem(508, "loop-detected");
    assert!(world.tool.sends("loop").is_empty());
}

#[test]
fn a_path_no_route_matches_is_told_so() {
    let world = World::with(Script::new(), |config| {
        config.route("match/path", "/tool/**")
    });
    let answer = world.call(&Call::post_to("/elsewhere").field("X-Call-Id", "lost"));
    let problem = answer.problem(404, "no-route");
    assert_eq!(
        (problem["sent"].as_str(), answer.outcome().as_str()),
        (Some("unknown"), "refused")
    );
    assert_eq!(
        world
            .call(&Call::post_to("/tool").field("X-Call-Id", "a"))
            .status,
        201
    );
    assert_eq!(
        world
            .call(&Call::post_to("/tool/deep/er").field("X-Call-Id", "b"))
            .status,
        201
    );
    let metrics = world.gateway.metrics();
    let labels = [("route", "none"), ("code", "no-route")];
    assert_eq!(metrics.value("callgate_refused_total", &labels), 1.0);
    let unknown = world.gateway.receipt("never-seen");
    let problem = unknown.problem(404, "receipt-not-found");
    assert!(problem["knowsSince"].is_string(), "{problem}");
    assert_eq!(world.tool.a(), 2);
}
