//! Time: late answers, deadlines, callers who leave, rounds: C06, C09, C11, C13, C38, C70.

use crate::fixture::check::receipt_states;
use crate::fixture::{Act, Call, Config, Receipts, Reply, Script, World, assert_between, ms};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

/// Done at 50 ms, answered at 350 ms, beyond the attempt's 200; the receipt knows at 360 ms.
fn a_slow_healthy_tool() -> Script {
    let act = Act::read_all().wait(50).commit().wait(300).answer_result();
    let receipts = Receipts::Truth {
        from_arrival: true,
        hidden: ms(310),
    };
    Script::new().otherwise(act).receipts(receipts)
}

#[test]
fn c06_a_timeout_shorter_than_the_slowest_healthy_answer_charges_once() {
    let world = World::new(a_slow_healthy_tool());
    let answer = world.call(&Call::with_id("c06"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.attempts(), 1);
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    assert!(
        world.tool.r() >= 1,
        "after the timeout the receipt is asked at once"
    );
}

#[test]
fn c06_a_tool_that_ignores_ids_is_not_charged_twice_and_the_history_says_why() {
    let script = a_slow_healthy_tool().otherwise(Act::read_all().wait(50).commit().hang());
    // So late that even a question that is slow to be put comes before it.
    let script = script.receipts(Receipts::Truth {
        from_arrival: true,
        hidden: ms(1000),
    });
    let world = World::with(script.ignores_ids(), |config| {
        config
            .set("defaults/timeouts/receipt", "2s")
            .set("defaults/timeouts/total", "10s")
    });
    let answer = world.call(&Call::with_id("c06"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
    let settled = |history: &Value| history["state"] == "SUCCESS";
    let history = world.gateway.wait_history("c06", "its success", settled);
    assert_eq!(
        history["attempts"].as_array().map(Vec::len),
        Some(1),
        "{history}"
    );
    assert_eq!(history["attempts"][0]["result"], "timeout", "{history}");
    let states = receipt_states(&history);
    let (last, waited) = states.split_last().expect("it was asked");
    assert_eq!(last, "SUCCESS");
    assert!(
        !waited.is_empty() && waited.iter().all(|state| state == "PROCESSING"),
        "{states:?}"
    );
}

/// Short enough for a test to watch a call to its very end.
fn soon_over(config: Config) -> Config {
    config
        .set("defaults/timeouts/total", "700ms")
        .set("defaults/timeouts/late", "400ms")
        .set(
            "defaults/compensation/rounds",
            json!(["50ms", "100ms", "150ms"]),
        )
}

/// A caller resets at 130 ms; the call is watched until it is in front of a human, and ten times
/// the last gap longer.
fn a_caller_leaves(script: Script, on_client_gone: &str) -> World {
    let world = World::with(script, |config| {
        soon_over(config).route("on_client_gone", on_client_gone)
    });
    let mut client = world.gateway.client();
    client.send(&Call::with_id("c09"));
    let sent = world.tool.wait_request(1).at;
    std::thread::sleep(ms(130).saturating_sub(sent.elapsed()));
    client.reset();
    world.gateway.wait_dead_letter("c09", "MANUAL");
    assert_eq!(world.gateway.receipt("c09").json()["state"], "UNKNOWN");
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[], 0.0);
    let (sends, asked) = (world.tool.a(), world.tool.r());
    let more = world.tool.book().wait_for(ms(1500), |pages| {
        (pages.requests.len() > sends || pages.asked.len() > asked).then_some(())
    });
    assert_eq!(more, None, "something is still going on");
    world
}

#[test]
fn c09_a_caller_who_left_leaves_a_call_that_ends() {
    let silent = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::read_all().hang()));
    for on_client_gone in ["finish", "cancel"] {
        let world = a_caller_leaves(silent.clone(), on_client_gone);
        assert_eq!(world.tool.a(), 1, "{on_client_gone}");
    }
}

#[test]
fn c09_cancel_starts_no_new_send_after_the_caller_has_gone() {
    let never_heard = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::not_found()));
    let world = a_caller_leaves(never_heard.clone(), "cancel");
    assert_eq!(world.tool.a(), 1);
    assert!(world.tool.r() >= 1, "it is still settled by receipt");
    let world = a_caller_leaves(never_heard, "finish");
    assert!(
        (2..=4).contains(&world.tool.a()),
        "finish goes on, {} sends",
        world.tool.a()
    );
}

#[test]
fn a_caller_who_only_shut_his_sending_side_is_answered() {
    let world =
        World::new(Script::new().request(1, Act::read_all().wait(80).commit().answer_result()));
    let mut client = world.gateway.client();
    client.send(&Call::with_id("half"));
    client.fin();
    assert_eq!(client.answer().status, 201);
}

#[test]
fn a_caller_who_left_finds_the_result_when_he_comes_back() {
    let world =
        World::new(Script::new().request(1, Act::read_all().wait(100).commit().answer_result()));
    let mut client = world.gateway.client();
    client.send(&Call::with_id("back"));
    world.tool.wait_request(1);
    client.reset();
    world
        .gateway
        .wait_history("back", "its success", |history| {
            history["state"] == "SUCCESS"
        });
    let again = world.call(&Call::with_id("back"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!(world.tool.a(), 1);
}

fn one_second(config: Config) -> Config {
    config
        .set("defaults/timeouts/total", "1s")
        .set("defaults/timeouts/attempt", "400ms")
}

#[test]
fn c11_the_total_bounds_attempts_questions_and_waits_together() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::read_all().hang()));
    let world = World::with(script, one_second);
    let began = Instant::now();
    let answer = world.call(&Call::with_id("c11"));
    answer.problem(504, "unresolved");
    assert_between(began.elapsed(), 950, 2_000, "the total");
    assert_eq!(world.tool.a(), 1, "nothing ever said that a resend is safe");
}

#[test]
fn c11_no_send_starts_with_too_little_left_to_be_answered() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, one_second);
    let answer = world.call(&Call::with_id("c11"));
    answer.problem(504, "unresolved");
    // 400, 50, 400: a third would start at 0.95 s of 1 s; where records take long, even the second
    // would come too late.
    let sends = world.tool.sends("c11");
    assert!((1..=2).contains(&sends.len()), "{} sends", sends.len());
    for pair in sends.windows(2) {
        assert!(pair[1].at - pair[0].at <= ms(900));
    }
}

#[test]
fn c13_one_id_lives_through_resends_rounds_and_restarts() {
    let script = Script::new()
        .otherwise(Act::read_all().hang())
        .receipts(Receipts::always(Act::not_found()));
    let mut world = World::with(script, |config| {
        config.set("defaults/timeouts/late", "500ms")
    });
    let answer = world.call(&Call::post());
    answer.problem(504, "unresolved");
    let id = answer.id();
    assert_eq!(answer.must("x-call-id-source"), "gateway");
    assert_eq!(world.tool.a(), 4);
    for round in 1..=2 {
        world.gateway.wait_until(&format!("round {round}"), || {
            let rows = world.gateway.dead_letters();
            rows.into_iter()
                .find(|row| row["round"].as_u64() >= Some(round))
        });
        world.crash();
    }
    let row = world.gateway.wait_dead_letter(&id, "MANUAL");
    assert_eq!(row["round"], 3, "restarts do not reset the rounds: {row}");
    let pages = world.tool.pages();
    let ids: BTreeSet<_> = pages
        .requests
        .iter()
        .chain(&pages.asked)
        .map(|seen| seen.id())
        .collect();
    assert_eq!(ids, BTreeSet::from([id.clone().into_bytes()]));
    for send in &pages.requests {
        assert_eq!(
            send.head.one("x-call-id-source").as_deref(),
            Some("gateway")
        );
    }
    drop(pages);
    assert_eq!(
        world.tool.a(),
        4,
        "rounds only ask unless they are told to resend"
    );
    assert_eq!(world.gateway.dead_letters().len(), 1);
}

#[test]
fn a_call_found_by_a_round_is_settled_and_then_replayed() {
    let receipts = Receipts::Truth {
        from_arrival: true,
        hidden: ms(900),
    };
    let script = Script::new()
        .otherwise(Act::read_all().commit().fin())
        .receipts(receipts);
    let world = World::with(script, |config| {
        config.set("defaults/timeouts/total", "400ms")
    });
    world
        .call(&Call::with_id("later"))
        .problem(504, "unresolved");
    world.gateway.wait_dead_letter("later", "SETTLED");
    let receipt = world.gateway.receipt("later").json();
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    let again = world.call(&Call::with_id("later"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!(world.tool.a(), 1);
}

/// Commits at once, and its receipts show it 500 ms later.
fn an_asynchronous_receipt_store() -> Script {
    let receipts = Receipts::Truth {
        from_arrival: false,
        hidden: ms(500),
    };
    Script::new()
        .otherwise(Act::read_all().commit().hang())
        .receipts(receipts)
}

#[test]
fn c38_settle_waits_out_a_receipt_store_that_lags() {
    let world = World::with(an_asynchronous_receipt_store(), |config| {
        config.route("receipt/settle", "600ms")
    });
    let answer = world.call(&Call::with_id("c38"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn c38_without_settle_a_tool_that_honours_ids_still_works_once() {
    let world = World::with(an_asynchronous_receipt_store(), |config| {
        config.route("receipt/settle", "1ms")
    });
    let answer = world.call(&Call::with_id("c38"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(world.tool.e(), 1);
}

/// A job of 600 ms whose receipt begins to exist when it is done.
fn records_commit(config: Config) -> Config {
    config
        .set("defaults/timeouts/late", "800ms")
        .route("receipt/records", "commit")
        .route("receipt/settle", "900ms")
}

#[test]
fn c70_a_job_longer_than_its_attempt_is_waited_for_while_its_exchange_is_open() {
    let script = Script::new().otherwise(Act::read_all().wait(600).commit().answer_result());
    let world = World::with(script.ignores_ids(), records_commit);
    let answer = world.call(&Call::with_id("c70"));
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn c70_a_job_whose_exchange_broke_is_waited_for_as_long_as_it_may_run() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf";
    // The tool says something broken early, then works on: only the receipt can tell.
    let script = Script::new().otherwise(Act::read_all().say(head).wait(600).commit().reset());
    let world = World::with(script.ignores_ids(), records_commit);
    let answer = world.call(&Call::with_id("c70"));
    assert_eq!((answer.status, answer.outcome().as_str()), (201, "receipt"));
    assert_eq!((world.tool.a(), world.tool.e()), (1, 1));
}

#[test]
fn retry_after_raises_the_wait_and_never_beyond_the_total() {
    let busy = |seconds: &str| Reply::new(503, "").field("Retry-After", seconds);
    let script = Script::new()
        .request(1, Act::says(busy("1")))
        .receipts(Receipts::at_commit());
    let world = World::new(script);
    let answer = world.call(&Call::with_id("soon"));
    assert_eq!((answer.status, answer.attempts()), (201, 2));
    let sends = world.tool.sends("soon");
    assert!(
        sends[1].at - sends[0].at >= ms(1000),
        "it came before the tool was ready"
    );
    assert!(
        world.tool.queries("soon")[0].at - sends[0].at < ms(900),
        "questions do not wait"
    );

    for far in [
        "60",
        "18446744073709551616",
        "Fri, 31 Dec 9999 23:59:59 GMT",
    ] {
        let script = Script::new().otherwise(Act::says(busy(far)));
        let world = World::new(script);
        let began = Instant::now();
        let answer = world.call(&Call::with_id("never"));
        assert_eq!(
            (answer.status, answer.outcome().as_str()),
            (503, "unresolved"),
            "{far}"
        );
        assert_between(began.elapsed(), 0, 2_500, "a wait that cannot fit");
        assert_eq!(world.tool.a(), 1, "{far}");
    }
}
