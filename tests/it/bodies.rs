//! Request bodies and request limits: C40, C41, and floods of headers.

use crate::fixture::{Act, Call, Client, Cut, Receipts, Reply, Script, World, ms};

const LIMIT: usize = 64 * 1024;

/// A body whose every part differs, so that a lost or doubled piece shows.
fn body(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| u8::try_from((at * 31 + at / 251) % 251).expect("below 251"))
        .collect()
}

fn limited(script: Script) -> World {
    World::with(script, |config| {
        config
            .set("defaults/body/max_request", "64KiB")
            .set("defaults/timeouts/attempt", "2s")
            .set("defaults/timeouts/total", "10s")
    })
}

#[test]
fn c40_a_body_that_came_byte_by_byte_is_resent_whole() {
    let world = World::new(Script::new().request(1, Act::read_all().fin()));
    let text = br#"{"on":true,"bri":9}"#;
    assert_eq!(text.len(), 19);
    let call = Call::with_id("c40")
        .set("Content-Type", "application/x-lamp+json; v=1")
        .field("Content-Encoding", "identity")
        .body(text)
        .chunked(1);
    let mut client = world.gateway.client();
    let bytes = call.bytes();
    for byte in &bytes {
        client.send_raw(std::slice::from_ref(byte));
    }
    assert_eq!(client.answer().status, 201);
    let sends = world.tool.sends("c40");
    assert_eq!(sends.len(), 2);
    for send in &sends {
        assert_eq!(send.body(), text);
        let kind = send.head.one("content-type");
        assert_eq!(kind.as_deref(), Some("application/x-lamp+json; v=1"));
        assert_eq!(
            send.head.one("content-encoding").as_deref(),
            Some("identity")
        );
    }
}

#[test]
fn c41_a_body_up_to_the_limit_is_the_same_on_every_attempt() {
    let script = Script::new().receipts(Receipts::always(Act::not_found()));
    let sizes = [0, 1, LIMIT - 1, LIMIT];
    let mut script = script;
    for n in 0..sizes.len() * 2 {
        script = script.request(2 * n + 1, Act::says(Reply::new(500, "")));
    }
    let world = limited(script);
    for (size, chunk) in sizes
        .into_iter()
        .flat_map(|size| [(size, None), (size, Some(1000))])
    {
        let id = format!("c41-{size}-{chunk:?}");
        let mut call = Call::with_id(&id).body(body(size));
        if let Some(chunk) = chunk {
            call = call.chunked(chunk);
        }
        let answer = world.call(&call);
        assert_eq!(
            (answer.status, answer.attempts()),
            (201, 2),
            "{id}: {}",
            answer.text()
        );
        let sends = world.tool.sends(&id);
        assert_eq!(sends.len(), 2);
        assert!(
            sends.iter().all(|send| send.body() == body(size)),
            "{id}: a body changed"
        );
    }
}

#[test]
fn c41_a_body_over_the_limit_is_refused_before_any_send() {
    let world = limited(Script::new());
    let mut refused = 0;
    for size in [LIMIT + 1, 2 * LIMIT, 10 << 20] {
        // With a length the head alone is enough to refuse.
        let mut client = world.gateway.client();
        client.send_raw(&Call::with_id("long").body(body(size)).head_bytes());
        let problem = client.answer().problem(413, "body-too-large");
        assert_eq!(
            (&problem["sent"], &problem["repeat"]),
            (&"unknown".into(), &"same-call-id-only".into())
        );
        // Without one, it is refused as soon as it is too long; the rest need not come.
        let mut client = world.gateway.client();
        let call = Call::with_id("chunks").body(body(LIMIT + 1)).chunked(4096);
        let whole = call.bytes();
        client.send_raw(&whole[..whole.len() - 5]);
        client.answer().problem(413, "body-too-large");
        refused += 2;
    }
    assert_eq!(world.tool.a(), 0);
    let metrics = world.gateway.metrics();
    let counted = metrics.value("callgate_refused_total", &[("code", "body-too-large")]);
    assert_eq!(counted, f64::from(refused));
    // A refusal binds nothing: the same id with a body that fits is a first call.
    assert_eq!(world.call(&Call::with_id("long")).status, 201);
}

#[test]
fn c41_nothing_is_sent_while_the_body_is_still_arriving() {
    let world = limited(Script::new());
    let call = Call::with_id("slow").body(body(3000)).chunked(1000);
    let whole = call.bytes();
    let mut client = world.gateway.client();
    client.send_raw(&whole[..whole.len() / 2]);
    let early = world
        .tool
        .book()
        .wait_for(ms(150), |pages| pages.requests.first().cloned());
    assert!(early.is_none(), "a send began with half a body");
    client.send_raw(&whole[whole.len() / 2..]);
    assert_eq!(client.answer().status, 201);
    assert_eq!(world.tool.sends("slow")[0].body(), body(3000));
}

#[test]
fn c41_an_upload_that_breaks_off_is_no_call() {
    let world = limited(Script::new());
    let whole = Call::with_id("broken").body(body(3000)).bytes();
    let mut client = world.gateway.client();
    client.send_raw(&whole[..whole.len() - 1]);
    client.reset();
    assert_eq!(world.call(&Call::with_id("broken")).outcome(), "answered");
    assert_eq!(world.tool.a(), 1);
    assert_eq!(world.tool.sends("broken")[0].body(), br#"{"n":1}"#);
}

#[test]
fn c41_two_hundred_uploads_over_the_limit_cost_bounded_memory() {
    let world = limited(Script::new());
    world.call(&Call::with_id("warm"));
    let before = world.gateway.memory("VmRSS:");
    let whole = Call::post().body(body(2 * LIMIT)).chunked(4096).bytes();
    let mut clients: Vec<Client> = (0..200).map(|_| world.gateway.client()).collect();
    for client in &mut clients {
        client.send_raw(&whole[..LIMIT / 2]);
    }
    let full = world.gateway.memory("VmRSS:");
    assert!(
        full - before.min(full) < 48 << 20,
        "{} bytes for 200 half uploads",
        full - before
    );
    for client in &mut clients {
        client.send_raw(&whole[LIMIT / 2..LIMIT + 8192]);
        client.answer().problem(413, "body-too-large");
    }
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_body_that_never_comes_is_told_a_timeout() {
    let world = World::with(Script::new(), |config| {
        config.set("limits/body_timeout", "200ms")
    });
    let mut client = world.gateway.client();
    client.send_raw(&Call::with_id("late").body(body(100)).head_bytes());
    client.answer().problem(408, "request-timeout");
    assert_eq!(world.tool.a(), 0);
}

#[test]
fn a_head_that_never_ends_is_cut_off() {
    let world = World::with(Script::new(), |config| {
        config.set("limits/header_timeout", "200ms")
    });
    let mut client = world.gateway.client();
    client.send_raw(b"POST /tool HTTP/1.1\r\nHost: slow\r\n");
    match client.try_answer() {
        Ok(answer) => assert_eq!(answer.status, 408, "{}", answer.text()),
        Err(cut) => assert_ne!(cut, Cut::Silent, "it was left open"),
    }
    assert_eq!(world.call(&Call::with_id("other")).status, 201);
}

#[test]
fn floods_of_headers_are_refused_and_the_rest_goes_on() {
    let world = World::new(Script::new());
    let mut many = Call::with_id("many");
    for n in 0..200 {
        many = many.field(&format!("X-Flood-{n}"), "x");
    }
    let large = Call::with_id("large").field("X-Flood", "x".repeat(40 * 1024));
    for call in [many, large] {
        let mut client = world.gateway.client();
        client.send(&call);
        let answer = client.try_answer().expect("a status, not just a cut");
        assert_eq!(answer.status, 431, "{}", answer.text());
    }
    assert_eq!(world.tool.a(), 0);
    let mut some = Call::with_id("some");
    for n in 0..80 {
        some = some.field(&format!("X-Some-{n}"), "x".repeat(100));
    }
    assert_eq!(world.call(&some).status, 201);
    assert_eq!(
        world.tool.sends("some")[0]
            .head
            .one("x-some-79")
            .map(|it| it.len()),
        Some(100)
    );
}

#[test]
fn odd_framing_never_makes_a_second_request() {
    let head = "POST /tool HTTP/1.1\r\nHost: h\r\nX-Call-Id: odd\r\n";
    let odd = [
        "Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
        "Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\nX",
        "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
        "Content-Length: +5\r\n\r\nhello",
    ];
    // With exactly one framing towards the tool, and the caller's connection closed behind it.
    let may_pass = [0, 1];
    for (n, rest) in odd.into_iter().enumerate() {
        let world = World::new(Script::new());
        let mut client = world.gateway.client();
        client.send_raw(format!("{head}{rest}").as_bytes());
        let answer = client.try_answer();
        let was_done = answer.as_ref().is_ok_and(|answer| answer.status == 201);
        let passed = was_done && may_pass.contains(&n);
        if passed {
            client.wait_closed();
            assert_eq!(world.tool.a(), 1);
        } else {
            let answer = answer.expect("an answer");
            assert!(
                matches!(answer.status, 400 | 501),
                "{rest:?}: {}",
                answer.text()
            );
            assert_eq!(world.tool.a(), 0, "{rest:?}");
        }
    }
}
