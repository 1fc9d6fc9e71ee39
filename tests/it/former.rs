//! Calls whose tool has another address today: they belong to the one that was sent them, whatever
//! the tool at the new one says about their ids.

use serde_json::{Value, json};

use crate::fixture::{Act, Call, Config, Gateway, Receipts, Script, Tool, ms};

/// Attempts outlast every death of the gateway in these tests.
fn before(tool: &Tool) -> Config {
    Config::standard(tool)
        .slow(5)
        .set("defaults/compensation/resend", true)
}

/// The same route, its tool elsewhere.
fn moved(from: &Tool, to: &Tool, listed: bool) -> Config {
    let former = listed.then(|| format!("http://{}", from.address));
    before(to).route("upstream/formerly", json!(former.as_slice()))
}

/// A tool that knows better about every id, though it was sent none.
fn stranger() -> Tool {
    Tool::start(Script::new().receipts(Receipts::always(Act::state("FAILED"))))
}

fn knows_nothing_of_it(stranger: &Tool) {
    assert_eq!(
        (stranger.a(), stranger.r()),
        (0, 0),
        "{}",
        stranger.pages().text()
    );
}

/// A call that was sent and whose gateway died before the answer.
fn cut_off(gateway: &mut Gateway, tool: &Tool, commits: bool) {
    let mut client = gateway.client();
    client.send(&Call::with_id("m"));
    if commits {
        tool.wait_effect(1);
    } else {
        tool.wait_request(1);
    }
    gateway.kill9();
}

fn ended(gateway: &Gateway) -> Value {
    let mut client = gateway.client();
    client.set_patience(ms(70_000));
    client
        .call(&Call::get("/_callgate/receipts/m?wait=30"))
        .json()
}

#[test]
fn a_call_is_asked_about_where_it_was_sent_though_its_route_leads_elsewhere() {
    for listed in [false, true] {
        let old = Tool::start(Script::new().request(1, Act::read_all().commit().hang()));
        let new = stranger();
        let mut gateway = Gateway::start(&before(&old));
        cut_off(&mut gateway, &old, true);
        gateway.restart(&moved(&old, &new, listed));
        let receipt = ended(&gateway);
        assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
        assert_eq!((old.a(), old.e()), (1, 1));
        knows_nothing_of_it(&new);
    }
}

#[test]
fn a_call_of_an_address_that_nobody_lists_is_only_asked_about_and_one_of_a_listed_one_sent_there() {
    let script = Script::new()
        .request(1, Act::read_all().hang())
        .receipts(Receipts::at_commit());
    let old = Tool::start(script);
    let new = stranger();
    let mut gateway = Gateway::start(&before(&old));
    cut_off(&mut gateway, &old, false);
    gateway.restart(&moved(&old, &new, false));
    let letter = gateway.wait_dead_letter("m", "MANUAL");
    assert_eq!(letter["reason"], "route-changed", "{letter}");
    assert_eq!((old.a(), old.e()), (1, 0));
    let asked = old.r();
    assert!(asked >= 3, "in every round, not {asked} times");
    let (status, told) = gateway.verb("m", "resend", &json!({}));
    assert_eq!(told["reason"], "route-changed", "{status} {told}");
    // Not before `retry.base` has passed since the last question.
    gateway.wait_until("a repeat asks there, too", || {
        let told = gateway.call(&Call::with_id("m"));
        assert_eq!(told.status, 504, "{}", told.text());
        (old.r() > asked).then_some(())
    });
    knows_nothing_of_it(&new);
    gateway.kill9();
    gateway.restart(&moved(&old, &new, true));
    let (status, told) = gateway.verb("m", "resend", &json!({}));
    assert_eq!(status, 200, "{told}");
    let receipt = ended(&gateway);
    assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
    assert_eq!((old.a(), old.e()), (2, 1));
    knows_nothing_of_it(&new);
}
