//! How a call is undone: what is accepted, and what cannot mean what it says.

use http::Method;

use super::*;
use crate::call::policy::Reversal;

const SOUND: &str = "receipt: {}\ncompensation: { reversal: { url: \"/undo/{call_id}\" } }";

fn undoing(reversal: &str) -> String {
    with_route(&format!("receipt: {{}}\n{reversal}"))
}

#[test]
fn a_reversal_is_read_with_its_defaults() {
    let config = read(&with_route(SOUND)).unwrap();
    assert_eq!(config.warnings, []);
    let route = &config.routes[0];
    let rule = route.reversal.as_ref().unwrap();
    assert_eq!(
        (&rule.method, rule.path.to_string().as_str()),
        (&Method::POST, "/undo/{call_id}")
    );
    assert!(rule.elsewhere.is_none() && rule.body.is_none() && rule.headers.is_empty());
    assert_eq!(
        route.policy.compensation.reversal,
        Some(Reversal::default())
    );
    assert!(route.reversible);
}

#[test]
fn a_reversal_is_read_with_everything_it_can_say() {
    let text = undoing(
        "compensation:\n  reversal:\n    url: \"https://undo.internal:8443/x/{reversal_id}\"\n    \
         method: DELETE\n    headers: { X-Why: timeout }\n    \
         body: '{\"o\": \"{body:/order/id}\", \"k\": \"{idempotency_key}\", \
         \"s\": \"{receipt:/state}\", \"c\": \"{call_id}\"}'\n    \
         when: [NOT_FOUND]\n    min_age: 20s\n    max_age: 12h",
    );
    let config = read(&text).unwrap();
    let route = &config.routes[0];
    let rule = route.reversal.as_ref().unwrap();
    assert_eq!(
        rule.elsewhere.as_ref().unwrap().address(),
        "https://undo.internal:8443"
    );
    assert_eq!(rule.method, Method::DELETE);
    assert_eq!(rule.headers["x-why"], "timeout");
    let numbers = route.policy.compensation.reversal.unwrap();
    assert_eq!((numbers.unknown, numbers.not_found), (false, true));
    let again = read(&config.print()).unwrap();
    let printed = again.routes[0].reversal.as_ref().unwrap();
    assert_eq!((&printed.path, &printed.body), (&rule.path, &rule.body));
    assert_eq!(again.routes[0].policy, route.policy);
}

#[test]
fn what_a_reversal_cannot_mean_is_refused() {
    let table = [
        (
            with_route("compensation: { reversal: { url: /undo } }"),
            "has no `receipt`",
        ),
        (undoing("compensation: { reversal: {} }"), "url"),
        (
            undoing("compensation: { reversal: { url: undo } }"),
            "a path such as",
        ),
        (
            undoing("compensation: { reversal: { url: \"/undo/{order}\" } }"),
            "instead of {order}",
        ),
        (
            undoing("compensation: { reversal: { url: \"/{call_id}\", when: [SUCCESS] } }"),
            "UNKNOWN",
        ),
        (
            undoing("compensation: { reversal: { url: \"/{call_id}\", when: [] } }"),
            "1 to 2 elements",
        ),
        (
            undoing("compensation: { reversal: { url: \"/{call_id}\", min_age: 100ms } }"),
            "at least `receipt.settle` (500ms)",
        ),
        (
            undoing("compensation: { reversal: { url: \"/{call_id}\", max_age: 8h } }"),
            "over before the last round",
        ),
        (
            undoing("compensation: { reversible: false, reversal: { url: \"/{call_id}\" } }"),
            "remove one of the two",
        ),
        (
            undoing(
                "compensation: { reversal: { url: \"/{call_id}\", headers: { X-Call-Id: x } } }",
            ),
            "expected",
        ),
        // Two rounds of 19h and 24h for the reversal's own age are more than a day of memory.
        (
            undoing(
                "compensation: { rounds: [1h, 18h], reversal: { url: \"/{call_id}\", \
                 min_age: 2h } }",
            ),
            "the reversal's tries",
        ),
    ];
    for (text, word) in table {
        let report = read(&text).expect_err(&text);
        let found = report.to_string();
        assert!(found.contains(word), "{text}\n{found}\nwithout {word:?}");
    }
}

#[test]
fn a_route_that_cannot_be_undone_inherits_no_reversal() {
    let text = "defaults:\n  compensation: { reversal: { url: \"/undo/{call_id}\" } }\nroutes:\n  \
                - name: a\n    upstream: { url: \"http://t\" }\n    receipt: {}\n  - name: b\n    \
                match: { path: /b }\n    upstream: { url: \"http://t\" }\n    receipt: {}\n    \
                compensation: { reversible: false }\n";
    let config = read(text).unwrap();
    let [first, second] = [0, 1].map(|n: usize| &config.routes[n]);
    assert!(first.reversal.is_some() && first.reversible);
    assert!(second.reversal.is_none() && !second.reversible);
    assert_eq!(second.policy.compensation.reversal, None);
}

#[test]
fn a_reversal_that_names_nothing_of_the_call_is_warned_about() {
    let keys = "receipt: {}\ncompensation: { reversal: { url: \"/undo/{reversal_id}\" } }";
    let warnings = read(&with_route(keys)).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].text.contains("X-Call-Reverses"));
}
