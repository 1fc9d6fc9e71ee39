//! Answers that break off on routes without effects, in exact bytes: as long as their caller has
//! seen nothing of them, they are told as what they are.

use crate::fixture::{Act, Call, Script, World, ms};

/// A short answer that breaks off after so much of it.
fn cut_after(body: &str) -> Act {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nX-Tool: yes\r\n\r\n";
    Act::read_all()
        .say(format!("{head}{body}").as_bytes())
        .fin()
}

fn world(script: Script, retries: u64) -> World {
    let world = World::with(script, |config| {
        config
            .route("effects", "none")
            .set("defaults/retry/max_retries", retries)
    });
    world.without_history()
}

fn counted(world: &World, name: &str, label: (&str, &str)) -> f64 {
    world.gateway.metrics().value(name, &[label])
}

#[test]
fn a_short_answer_that_is_cut_is_a_problem_and_counts_as_one() {
    for body in ["", "abc", "abcdefghi"] {
        let world = world(Script::new().otherwise(cut_after(body)), 0);
        let answer = world.call(&Call::get("/x"));
        let problem = answer.problem(502, "tool-disconnected");
        assert_eq!(
            (&problem["sent"], &problem["attempts"]),
            (&"maybe".into(), &1.into())
        );
        assert_eq!(answer.field("x-tool"), None, "nothing of it was shown");
        let attempts = "callgate_attempts_total";
        assert_eq!(counted(&world, attempts, ("result", "disconnect")), 1.0);
        assert_eq!(counted(&world, attempts, ("result", "answered")), 0.0);
        let calls = "callgate_calls_total";
        assert_eq!(
            answer.outcome(),
            "unresolved",
            "it was sent, so nothing was refused"
        );
        assert_eq!(counted(&world, calls, ("outcome", "unresolved")), 1.0);
        assert_eq!(counted(&world, calls, ("outcome", "refused")), 0.0);
        assert_eq!(counted(&world, calls, ("outcome", "answered")), 0.0);
    }
}

#[test]
fn what_has_begun_to_be_answered_is_not_sent_again() {
    let world = world(Script::new().request(1, cut_after("abc")), 3);
    let answer = world.call(&Call::get("/x"));
    answer.problem(502, "tool-disconnected");
    assert_eq!((answer.attempts(), world.tool.a()), (1, 1));
}

#[test]
fn an_answer_of_open_length_that_is_cut_is_seen_as_far_as_it_came() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in ["5\r\nabcde\r\n", "5\r\nabcde\r\n5\r\nabc"] {
        let act = Act::read_all()
            .say(format!("{head}{body}").as_bytes())
            .fin();
        let world = world(Script::new().otherwise(act), 0);
        for call in [Call::get("/x"), Call::get("/x").field("X-Call-Id", "named")] {
            let mut client = world.gateway.client();
            client.send(&call);
            let answer = client.try_answer().expect("its head");
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(answer.body.starts_with(b"abcde"), "{:?}", answer.body);
            assert!(answer.cut.is_some(), "it was taken for a whole one");
        }
    }
}

#[test]
fn a_short_answer_that_is_slow_is_passed_on_as_it_arrives() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab";
    let act = Act::read_all().say(head.as_bytes()).wait(1_500).say(b"cd");
    let world = World::with(Script::new().otherwise(act), |config| {
        config
            .route("effects", "none")
            .set("defaults/timeouts/attempt", "300ms")
            .set("defaults/timeouts/idle", "10s")
    })
    .without_history();
    let mut client = world.gateway.client();
    client.set_patience(ms(10_000));
    client.send(&Call::get("/x"));
    let answer = client.answer();
    assert_eq!((answer.status, &answer.body[..]), (200, &b"abcd"[..]));
    assert_eq!((answer.attempts(), world.tool.a()), (1, 1));
}

#[test]
fn a_head_request_is_answered_by_the_fields_alone() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    let world = world(
        Script::new().otherwise(Act::read_all().say(head.as_bytes())),
        0,
    );
    let answer = world.call(&Call::new("HEAD", "/x"));
    assert_eq!(
        (answer.status, answer.must("content-length").as_str()),
        (200, "10")
    );
}
