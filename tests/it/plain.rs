//! `effects: none`: a streaming proxy without a ledger, and its few safe resends.

use crate::fixture::{Act, Call, Cut, Reply, Script, World, assert_between, ms};
use std::time::Instant;

/// GET is `effects: none` by default; nothing of it is recorded.
fn plain(script: Script) -> World {
    World::two_ports(script, |config| config).without_history()
}

#[test]
fn a_read_is_passed_through_without_a_record() {
    let reply = Reply::json(200, r#"{"a":1}"#).field("Set-Cookie", "s=1");
    let world = plain(Script::new().otherwise(Act::says(reply)));
    let answer = world.call(&Call::get("/thing?x=%20y").field("X-Call-Id", "read-1"));
    assert_eq!(
        (answer.status, answer.outcome().as_str()),
        (200, "answered")
    );
    assert_eq!((answer.id().as_str(), answer.attempts()), ("read-1", 1));
    assert_eq!(answer.must("set-cookie"), "s=1");
    let seen = &world.tool.sends("read-1")[0];
    assert_eq!(
        (seen.head.method(), seen.head.target()),
        ("GET", "/thing?x=%20y")
    );
    assert_eq!(world.gateway.receipt("read-1").status, 404);
    let again = world.call(&Call::get("/thing?x=%20y").field("X-Call-Id", "read-1"));
    assert_eq!(again.field("idempotent-replayed"), None);
    assert_eq!((world.tool.a(), world.tool.r()), (2, 0));
}

#[test]
fn a_read_is_resent_on_disconnect_timeout_and_busy_answers_only() {
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .request(2, Act::says(Reply::new(503, "")))
        .request(3, Act::read_all().hang());
    let world = plain(script);
    let answer = world.call(&Call::get("/thing").field("X-Call-Id", "read"));
    assert_eq!((answer.status, answer.attempts()), (201, 4));
    let sends = world.tool.sends("read");
    let causes: Vec<_> = sends
        .iter()
        .map(|send| send.head.one("x-call-retry-cause"))
        .collect();
    let cause = |word: &str| Some(word.to_owned());
    assert_eq!(
        causes,
        [None, cause("disconnect"), cause("status"), cause("timeout")]
    );
    for (n, pair) in sends.windows(2).enumerate() {
        assert!(
            pair[1].at - pair[0].at >= ms(40 << n),
            "resend {} came too early",
            n + 1
        );
    }
    for status in [400, 404, 500, 501] {
        let world = plain(Script::new().otherwise(Act::says(Reply::new(status, "no"))));
        let answer = world.call(&Call::get("/thing"));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (status, &b"no"[..])
        );
        assert_eq!(world.tool.a(), 1, "{status} was retried");
    }
}

#[test]
fn the_errors_of_a_read_are_its_own() {
    let world = plain(Script::new().otherwise(Act::read_all().hang()));
    world
        .call(&Call::get("/thing"))
        .problem(504, "tool-timeout");
    assert_eq!(world.tool.a(), 4);
    let world = plain(Script::new().otherwise(Act::read_all().reset()));
    world
        .call(&Call::get("/thing"))
        .problem(502, "tool-disconnected");
    let world = plain(Script::new());
    world.tool.refuse();
    world
        .call(&Call::get("/thing"))
        .problem(502, "tool-unreachable");
    assert!(
        world.gateway.dead_letters().is_empty(),
        "a read leaves no dead letter"
    );
}

#[test]
fn after_the_first_byte_a_read_is_never_resent_and_a_cut_is_visible() {
    let half = "HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n";
    let act = Act::read_all().say(half).flood(300_000).reset();
    let world = plain(Script::new().otherwise(act));
    let mut client = world.gateway.client();
    client.send(&Call::get("/thing"));
    match client.try_answer() {
        Ok(answer) => assert!(answer.cut.is_some(), "taken for whole: {}", answer.text()),
        Err(cut) => assert_ne!(cut, Cut::Silent),
    }
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn events_reach_the_caller_as_they_come() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let event = b"e\r\ndata: {\"n\":1}\n\r\n";
    let act = Act::read_all()
        .say(head)
        .drip(event, 5, ms(100))
        .say("0\r\n\r\n");
    for call in [Call::get("/events"), Call::with_id("events")] {
        let world = plain(Script::new().otherwise(act.clone()));
        let mut client = world.gateway.client();
        let began = Instant::now();
        client.send(&call);
        let head = client.head().expect("a head");
        assert!(began.elapsed() < ms(400), "the head was held back");
        let first = client.more().expect("an event");
        let said = world.tool.pages().events.len();
        assert!(first.windows(5).any(|bytes| bytes == b"data:"));
        let whole = client.count_body(&head).expect("a whole stream");
        assert!(
            world.tool.pages().events.len() > said,
            "the first event came with the last"
        );
        assert_eq!(whole, 5 * 14);
        assert_between(began.elapsed(), 500, 3_000, "five events");
        assert_eq!(world.tool.a(), 1, "longer than an attempt, and sent once");
    }
}

#[test]
fn a_large_upload_streams_and_is_not_resent() {
    let script = Script::new().request(1, Act::read_all().reset());
    let world = World::two_ports(script, |config| config.route("effects", "none"));
    let world = world.without_history();
    let body = vec![b'u'; 3 << 20];
    let call = Call::with_id("upload").body(&body);
    let answer = world.call(&call);
    answer.problem(502, "tool-disconnected");
    assert_eq!(
        world.tool.a(),
        1,
        "its body was read, and is too large to keep"
    );
    let world = World::two_ports(
        Script::new().request(1, Act::read_all().reset()),
        |config| config.route("effects", "none"),
    );
    let world = world.without_history();
    let answer = world.call(&Call::with_id("small").body(&body[..60_000]).chunked(5000));
    assert_eq!((answer.status, answer.attempts()), (201, 2));
    assert!(
        world
            .tool
            .sends("small")
            .iter()
            .all(|send| send.body() == &body[..60_000])
    );
}

#[test]
fn a_head_request_keeps_its_length_and_has_no_body() {
    let act = Act::read_all().say("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: b\r\n\r\n");
    let world = plain(Script::new().otherwise(act));
    let mut client = world.gateway.client();
    let answer = client.call(&Call::new("HEAD", "/thing"));
    assert_eq!(
        (answer.status, answer.must("content-length").as_str()),
        (200, "1234")
    );
    assert_eq!(answer.must("x-a"), "b");
    let again = client.call(&Call::new("HEAD", "/thing"));
    assert_eq!(again.status, 200, "the connection stays in step");
}

#[test]
fn the_upstream_path_and_host_are_built_as_configured() {
    let world = World::build(Script::new(), |tool| {
        let url = format!("http://{}/base", tool.address);
        crate::fixture::Config::standard(tool)
            .route("match/path", "/orders/**")
            .route("upstream/url", url)
            .route("upstream/strip_prefix", "/orders")
            .route(
                "upstream/headers",
                serde_json::json!({ "X-Tool-Token": "t0k" }),
            )
    });
    let call = Call::post_to("/orders/7/pay?now=1").field("X-Call-Id", "built");
    assert_eq!(world.call(&call).status, 201);
    let head = world.tool.sends("built")[0].head.clone();
    assert_eq!(head.target(), "/base/7/pay?now=1");
    assert_eq!(head.one("host"), Some(world.tool.address.to_string()));
    assert_eq!(head.one("x-tool-token").as_deref(), Some("t0k"));
}

#[test]
fn a_tool_that_names_a_wait_is_given_it_or_its_answer_is_handed_on() {
    let busy = |wish: &str| Act::says(Reply::new(503, "busy").field("Retry-After", wish));
    for (wish, sends) in [("1", 2), ("90000", 1), ("18446744073709551616", 1)] {
        let script = Script::new().request(1, busy(wish));
        let world = World::with(script, |config| {
            config
                .route("effects", "none")
                .set("defaults/timeouts/total", "20s")
        });
        let answer = world.call(&Call::with_id("wishes"));
        let told = (answer.status, answer.attempts());
        assert_eq!(told, (if sends == 2 { 201 } else { 503 }, sends), "{wish}");
        let times = world.tool.sends("wishes");
        assert_eq!(times.len(), sends, "{wish}");
        if let [first, second] = &times[..] {
            assert!(second.at - first.at >= ms(1_000), "sent again too early");
        }
        drop(world.without_history());
    }
}

#[test]
fn a_path_that_could_mean_another_one_at_the_tool_is_refused() {
    let world = World::with(Script::new(), |config| {
        config.route("match/path", "/orders/**")
    });
    for path in ["/orders/../secret", "/orders/%2e%2E/secret", "/orders/./1"] {
        for call in [Call::get(path), Call::post_to(path)] {
            let problem = world.call(&call).problem(400, "bad-request");
            assert_eq!(problem["sent"], "unknown", "{path}");
        }
    }
    assert_eq!(world.tool.a(), 0);
    let whole = Call::get("/orders/.well-known/a..b");
    assert_eq!(world.call(&whole).status, 201);
    drop(world.without_history());
}
