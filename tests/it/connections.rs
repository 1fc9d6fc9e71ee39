//! What a dead, refused or slow connection proves, and what it does not: C01, C02, C61g, C62.

use crate::fixture::book::{Port, What};
use crate::fixture::http::Cut;
use crate::fixture::{
    Act, Arrival, Call, Config, Gate, Gateway, Receipts, Script, Unanswered, World, assert_between,
    ms,
};
use std::time::Instant;

/// The second call goes out on the connection of the first, is done, and is never answered.
fn a_call_done_on_a_reused_connection_that_dies(act: Act) {
    let world = World::two_ports(Script::new().request(2, act), |config| config);
    let mut client = world.gateway.client();
    assert_eq!(client.call(&Call::with_id("first")).status, 201);
    let answer = client.call(&Call::with_id("second"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.outcome(), "receipt");
    assert_eq!(answer.attempts(), 1);
    assert_eq!(answer.body, br#"{"done":true}"#);
    let sends = world.tool.sends("second");
    assert_eq!(sends.len(), 1, "it was sent again");
    assert_eq!(
        sends[0].connection, 1,
        "the case needs the reused connection"
    );
    assert!(!world.tool.queries("second").is_empty());
}

#[test]
fn c01a_a_fin_after_the_work_on_a_reused_connection_is_asked_about_not_sent_again() {
    a_call_done_on_a_reused_connection_that_dies(Act::read_all().commit().fin());
}

#[test]
fn c01b_a_reset_after_the_work_on_a_reused_connection_is_asked_about_not_sent_again() {
    a_call_done_on_a_reused_connection_that_dies(Act::read_all().commit().reset());
}

#[test]
fn c01c_a_connection_that_died_before_the_bytes_came_costs_no_call() {
    let world = World::two_ports(Script::new(), |config| config);
    for round in 0..20_u32 {
        let mut client = world.gateway.client();
        let first = client.call(&Call::with_id(&format!("first-{round}")));
        assert_eq!(first.status, 201, "{}", first.text());
        world.tool.hang_up();
        // The close races with the next call; each round gives it a little more of a lead.
        let lead = Instant::now();
        while lead.elapsed().as_micros() < u128::from(round * 60) {}
        let id = format!("second-{round}");
        let second = client.call(&Call::with_id(&id));
        assert_eq!(second.status, 201, "{}", second.text());
        assert_eq!(
            world.tool.sends(&id).len(),
            1,
            "the tool saw it more than once"
        );
    }
    assert_eq!(world.tool.e(), 40);
}

#[test]
fn c02_a_tool_that_closes_every_connection_sees_four_of_them_with_backoff_between() {
    let script = Script::new()
        .every_connection(Arrival::Close)
        .receipts(Receipts::always(Act::not_found()));
    let world = World::two_ports(script, |config| config);
    let answer = world.call(&Call::with_id("c02"));
    let problem = match answer.status {
        504 => answer.problem(504, "unresolved"),
        _ => answer.problem(502, "tool-unreachable"),
    };
    let sent = problem["sent"].as_str().expect("a word");
    assert_eq!(sent == "no", answer.status == 502, "{problem}");
    assert_eq!(
        world.tool.k(),
        answer.attempts(),
        "connections nobody counted"
    );
    assert!(world.tool.k() <= 4);
    let pages = world.tool.pages();
    let connected = pages
        .events
        .iter()
        .filter(|event| event.port == Port::Tool && event.what == What::Connected);
    let times: Vec<Instant> = connected.map(|event| event.at).collect();
    for (n, pair) in times.windows(2).enumerate() {
        let least = 40 << n;
        assert!(
            pair[1] - pair[0] >= ms(least),
            "resend {} came too early",
            n + 1
        );
    }
}

#[test]
fn c02_connections_that_close_under_a_burst_cause_no_uncounted_send() {
    let gate = Gate::default();
    let mut script = Script::new();
    for n in 1..=8 {
        script = script.request(n, Act::read_all().commit().pass(&gate).answer_result());
    }
    let world = World::two_ports(script, |config| {
        config.set("defaults/timeouts/attempt", "2s")
    });
    let call_all = |prefix: &str, between: &(dyn Fn() + Sync)| {
        std::thread::scope(|scope| {
            let call = |n: usize| {
                let call = Call::with_id(&format!("{prefix}-{n}"));
                scope.spawn(|| world.call(&{ call }))
            };
            let calls: Vec<_> = (0..8).map(call).collect();
            between();
            calls
                .into_iter()
                .map(|call| call.join().expect("a caller"))
                .collect::<Vec<_>>()
        })
    };
    call_all("prime", &|| {
        world.tool.wait_request(8);
        gate.open();
    });
    let primed = world.tool.k();
    assert_eq!(primed, 8, "eight idle connections are needed");
    let answers = call_all("burst", &|| world.tool.hang_up());
    let mut attempts = 0;
    for answer in &answers {
        assert_eq!(answer.status, 201, "{}", answer.text());
        let history = world.gateway.history(&answer.id());
        let logged = history["attempts"].as_array().expect("a list").len();
        assert_eq!(logged, answer.attempts(), "{history}");
        attempts += logged;
    }
    let fresh = world.tool.k() - primed;
    assert!(
        fresh <= attempts,
        "{fresh} connections for {attempts} attempts"
    );
}

#[test]
fn a_tool_that_refuses_connections_was_never_reached_and_the_caller_may_repeat() {
    let world = World::two_ports(Script::new(), |config| config);
    world.tool.refuse();
    let began = Instant::now();
    let answer = world.call(&Call::with_id("refused"));
    let problem = answer.problem(502, "tool-unreachable");
    assert_eq!(problem["sent"], "no");
    assert_eq!(problem["repeat"], "safe");
    assert_eq!(answer.outcome(), "refused");
    assert_eq!(answer.attempts(), 4);
    assert_between(began.elapsed(), 280, 3_000, "four attempts");
    assert_eq!(world.tool.r(), 0, "there is nothing to ask about");
    let rows = world.gateway.dead_letters();
    let row = rows
        .iter()
        .find(|row| row["call_id"] == "refused")
        .expect("a visible row");
    assert_eq!(row["state"], "FAILED");
    assert_eq!(row["reason"], "never-sent");
}

#[test]
fn a_tool_that_never_accepts_was_never_reached() {
    let unanswered = Unanswered::start();
    let config = Config::for_address(unanswered.address).set("defaults/retry/max_retries", 1);
    let gateway = Gateway::start(&config);
    let began = Instant::now();
    let answer = gateway.call(&Call::with_id("unanswered"));
    answer.problem(502, "tool-unreachable");
    assert_eq!(answer.attempts(), 2);
    assert_between(began.elapsed(), 400, 2_500, "two connect timeouts");
}

#[test]
fn c61g_an_idle_connection_is_closed_by_the_gateway_before_the_tool_does() {
    let world = World::two_ports(Script::new(), |config| {
        config.route("upstream/pool/idle", "300ms")
    });
    let mut client = world.gateway.client();
    assert_eq!(client.call(&Call::with_id("one")).status, 201);
    let answered = Instant::now();
    assert!(matches!(world.tool.wait_gone(1), Cut::Fin | Cut::Reset));
    assert_between(answered.elapsed(), 250, 2_000, "the idle time");
    let answer = client.call(&Call::with_id("two"));
    assert_eq!((answer.status, answer.attempts()), (201, 1));
    assert_eq!(world.tool.k(), 2);
    assert_eq!(world.tool.r(), 0, "nothing was unclear");
}

#[test]
fn c62_closing_an_exchange_kills_its_unsent_bytes() {
    let script = Script::new()
        .receive_buffer(4096)
        .connection(1, Arrival::HoldUntilAsked(2));
    let world = World::two_ports(script, |config| {
        config.set("defaults/timeouts/attempt", "400ms")
    });
    let answer = world.call(&Call::with_id("c62").body(vec![b'b'; 200_000]));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(world.tool.e(), 1);
    world
        .tool
        .book()
        .wait("the end of the first connection", |pages| {
            let first = |event: &&crate::fixture::book::Event| {
                event.port == Port::Tool && event.connection == 1
            };
            let over = |what: &What| matches!(what, What::Gone(_) | What::BodyCut(..));
            let mut events = pages.events.iter().filter(first);
            assert!(
                !events
                    .clone()
                    .any(|event| matches!(event.what, What::Body(_))),
                "it all came"
            );
            events.any(|event| over(&event.what)).then_some(())
        });
}
