//! WebSocket: a tunnel on routes without effects, refused elsewhere; what is no tunnel stays plain.

use crate::fixture::{Act, Call, Client, Cut, Reply, Script, World, assert_between, find, ms};
use std::time::Instant;

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

fn wish(id: &str) -> Call {
    Call::get("/live")
        .field("X-Call-Id", id)
        .field("Connection", "keep-alive, Upgrade")
        .field("Upgrade", "websocket")
        .field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
        .field("Sec-WebSocket-Version", "13")
}

fn plain(script: Script) -> World {
    World::two_ports(script, |config| config).without_history()
}

/// Reads until all of this has come behind the head of the answer.
fn until(client: &mut Client, wanted: &[u8]) -> String {
    loop {
        let seen = client.more().expect("the tunnel is open");
        let Some(head) = find(&seen, b"\r\n\r\n") else {
            continue;
        };
        if seen[head + 4..].ends_with(wanted) {
            return String::from_utf8_lossy(&seen[..head]).to_lowercase();
        }
    }
}

#[test]
fn c48_a_websocket_is_tunnelled_both_ways_and_outlives_the_attempt_timeout() {
    let early = [b'e'; 64];
    let act = Act::read_all().say(SWITCH).say(early).wait(400).echo();
    let world = plain(Script::new().otherwise(act));
    let mut client = world.gateway.client();
    client.send(&wish("ws-1"));
    let head = until(&mut client, &early);
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for field in [
        "connection: upgrade",
        "upgrade: websocket",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "x-call-id: ws-1",
        "x-call-outcome: answered",
    ] {
        assert!(head.contains(field), "{field} is missing in {head}");
    }
    let seen = &world.tool.sends("ws-1")[0];
    assert_eq!(seen.head.one("upgrade").as_deref(), Some("websocket"));
    assert_eq!(seen.head.one("connection").as_deref(), Some("upgrade"));
    assert_eq!(
        seen.head.one("sec-websocket-version").as_deref(),
        Some("13")
    );
    // The attempt may take 200 ms; the tool says nothing for 400.
    client.send_raw(b"ping");
    until(&mut client, b"ping");
    client.fin();
    assert_eq!(client.wait_closed(), Cut::Fin);
    assert_eq!((world.tool.a(), world.tool.k()), (1, 1));
    let metrics = world.gateway.metrics();
    let answered = [("route", "tool"), ("outcome", "answered")];
    assert_eq!(metrics.value("callgate_calls_total", &answered), 1.0);
}

#[test]
fn c48_a_tool_that_does_not_switch_answers_a_plain_request() {
    let world = plain(Script::new().otherwise(Act::says(Reply::new(200, "plain"))));
    let mut client = world.gateway.client();
    let mut both = wish("first").bytes();
    both.extend(Call::get("/live").field("X-Call-Id", "second").bytes());
    client.send_raw(&both);
    for id in ["first", "second"] {
        let answer = client.answer();
        assert_eq!((answer.status, answer.id().as_str()), (200, id));
        assert_eq!(answer.body, b"plain");
    }
    assert_eq!(world.tool.a(), 2);
}

#[test]
fn a_tool_that_switches_to_what_nobody_asked_for_gives_no_tunnel() {
    for switch in [
        "Connection: Upgrade\r\nUpgrade: h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket, h2c\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n",
        "Connection: Upgrade\r\n",
        "Upgrade: websocket\r\n",
    ] {
        let head = format!("HTTP/1.1 101 Switching Protocols\r\n{switch}\r\n");
        let act = Act::read_all().say(&head).say("hello").echo();
        let world = plain(Script::new().otherwise(act));
        let answer = world.call(&wish("other"));
        answer.problem(502, "tool-disconnected");
        assert_eq!(answer.field("upgrade"), None, "{switch}");
        assert_eq!(world.tool.wait_gone(1), Cut::Reset, "{switch}");
        assert_eq!(world.tool.a(), 1, "a wish for a tunnel is not repeated");
    }
}

#[test]
fn c48_a_tool_that_never_answers_a_wish_ends_it_at_the_attempt_timeout() {
    let world = plain(Script::new().otherwise(Act::read_all().hang()));
    let began = Instant::now();
    let answer = world.call(&wish("silent"));
    answer.problem(504, "tool-timeout");
    assert_between(began.elapsed(), 200, 1_200, "the wish");
    assert_eq!(world.tool.a(), 1, "a wish for a tunnel is not repeated");
}

#[test]
fn c48_an_upgrade_with_a_body_or_to_something_else_is_a_plain_request() {
    let world = plain(Script::new().otherwise(Act::says(Reply::new(200, "plain"))));
    let with_body = wish("body").body("0123456789");
    let other = Call::get("/live")
        .field("X-Call-Id", "other")
        .field("Connection", "Upgrade")
        .field("Upgrade", "h2c");
    let unnamed = Call::get("/live")
        .field("X-Call-Id", "unnamed")
        .field("Upgrade", "websocket");
    for (call, id) in [(with_body, "body"), (other, "other"), (unnamed, "unnamed")] {
        assert_eq!(world.call(&call).body, b"plain", "{id}");
        assert_eq!(world.tool.sends(id)[0].head.one("upgrade"), None, "{id}");
    }
}

#[test]
fn a_call_with_effects_is_no_tunnel() {
    let world = World::with(Script::new(), |config| config.route("effects", "once"));
    let answer = world.call(&wish("once"));
    answer.problem(501, "upgrade-refused");
    assert_eq!(world.tool.a(), 0);
}

#[test]
fn a_tunnel_ends_with_its_caller_its_tool_and_its_silence() {
    let echo = || Act::read_all().say(SWITCH).say("hello").echo();
    let script = Script::new()
        .request(1, echo())
        .request(2, Act::read_all().say(SWITCH).say("hello").reset())
        .otherwise(echo());
    let world = World::two_ports(script, |config| config.route("timeouts/idle", "300ms"));
    let world = world.without_history();
    let mut leaving = world.gateway.client();
    leaving.send(&wish("leaves"));
    until(&mut leaving, b"hello");
    leaving.reset();
    assert!(matches!(world.tool.wait_gone(1), Cut::Fin | Cut::Reset));
    let mut broken = world.gateway.client();
    broken.send(&wish("breaks"));
    broken.wait_closed();
    let mut silent = world.gateway.client();
    silent.set_patience(ms(5_000));
    silent.send(&wish("silent"));
    until(&mut silent, b"hello");
    let began = Instant::now();
    silent.wait_closed();
    assert_between(began.elapsed(), 250, 5_000, "the silence");
}

#[test]
fn one_address_gets_no_more_connections_than_its_share() {
    let world = World::with(Script::new(), |config| {
        config.set("limits/connections_per_address", 2)
    });
    let mut held: Vec<Client> = (0..2).map(|_| world.gateway.client()).collect();
    for client in &mut held {
        assert_eq!(client.call(&Call::post()).status, 201);
    }
    let mut third = world.gateway.client();
    let answer = third.answer();
    let problem = answer.problem(503, "overloaded");
    let detail = problem["detail"].as_str().unwrap_or_default();
    assert!(
        detail.contains("limits.connections_per_address"),
        "{detail}"
    );
    let bound = [("bound", "address-connections")];
    let reached = world.gateway.metrics();
    assert_eq!(reached.value("callgate_bounds_reached_total", &bound), 1.0);
    held.pop();
    world.gateway.wait_until("a place is free", || {
        let mut client = world.gateway.client();
        client.send(&Call::post());
        client
            .try_answer()
            .is_ok_and(|a| a.status == 201)
            .then_some(())
    });
}
