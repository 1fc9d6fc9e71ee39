//! `compensation.alert`: what it means, what is inherited, what is refused.

use std::fs;
use std::time::Duration;

use super::*;
use crate::call::alert::Event;

const EVERYTHING: &str = include_str!("everything.yaml");

fn with_alert(keys: &str) -> String {
    with_route(&format!("compensation: {{ alert: {{ {keys} }} }}"))
}

#[test]
fn an_alert_means_what_it_says_and_is_inherited_key_by_key() {
    let config = read(EVERYTHING).unwrap_or_else(|report| panic!("{report}"));
    let orders = config.routes[0].alert.as_ref().unwrap();
    assert_eq!(orders.origin(), "https://hooks:8443");
    assert_eq!(orders.target.reveal(), "/T0/x?k=v");
    assert_eq!(orders.on, [Event::Manual]);
    assert_eq!(
        (orders.oldest_over, orders.repeat),
        (None, Duration::from_secs(600))
    );
    assert!(orders.headers["x-team"].is_sensitive());
    let inner = config.routes[1].alert.as_ref().unwrap();
    assert_eq!(inner.target, orders.target);
    assert_eq!(inner.on, [Event::Difference, Event::Reversed]);
    assert_eq!(inner.oldest_over, Some(Duration::from_secs(1_800)));
    let shown = format!("{orders:?} {}", config.print());
    assert!(!shown.contains("T0") && !shown.contains("k=v"), "{shown}");
}

#[test]
fn a_webhook_alone_tells_the_usual_things_hourly() {
    let config = read(&with_alert("webhook: \"http://h/\"")).unwrap();
    let rule = config.routes[0].alert.as_ref().unwrap();
    assert_eq!(rule.on, [Event::Manual, Event::Reversed, Event::Difference]);
    assert_eq!(
        (rule.oldest_over, rule.repeat),
        (None, Duration::from_secs(3_600))
    );
    assert_eq!((rule.target.reveal(), &rule.secret), ("/", &None));
    // Nobody is told of nothing.
    for silent in ["webhook: \"http://h\", on: []", ""] {
        assert_eq!(read(&with_alert(silent)).unwrap().routes[0].alert, None);
    }
}

#[test]
fn the_secret_is_one_line_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = with_alert("webhook: \"http://h\", secret_file: key");
    let read = || parse(&text, "callgate.yaml", folder.path(), &environment);
    let refused = read().unwrap_err().to_string();
    assert!(refused.contains("cannot read"), "{refused}");
    for bad in ["", "\n", "one\ntwo"] {
        fs::write(folder.path().join("key"), bad).unwrap();
        let refused = read().unwrap_err().to_string();
        assert!(refused.contains("secret_file"), "{refused}");
        assert!(refused.contains("openssl rand"), "{refused}");
        assert!(!refused.contains("two"), "{refused}");
    }
    fs::write(folder.path().join("key"), "0123456789abcdef\r\n").unwrap();
    let config = read().unwrap();
    let rule = config.routes[0].alert.as_ref().unwrap();
    assert_eq!(rule.secret.as_ref().unwrap().reveal(), b"0123456789abcdef");
    assert!(!format!("{rule:?}").contains("0123"));
    fs::write(folder.path().join("key"), "short").unwrap();
    let warned = read().unwrap().warnings;
    assert!(
        warned
            .iter()
            .any(|notice| notice.text.contains("can be guessed")),
        "{warned:?}"
    );
}

#[test]
fn an_alert_that_cannot_be_told_is_refused() {
    let table = [
        ("on: [manual]", "alert.on", "expected `webhook`"),
        (
            "webhook: \"ftp://s3/hook\"",
            "alert.webhook",
            "an http:// or https://",
        ),
        (
            "webhook: \"http://h\", on: [oldest]",
            "alert.on[0]",
            "one of manual, reversed",
        ),
        (
            "webhook: \"http://h\", repeat: 60",
            "alert.repeat",
            "no unit",
        ),
        (
            "webhook: \"http://h\", ca_file: a",
            "alert.ca_file",
            "only an https://",
        ),
        (
            "webhook: \"http://h\", headers: { Host: a }",
            "alert.headers.Host",
            "other than Host",
        ),
        (
            "webhook: \"http://h\", hook: a",
            "alert.hook",
            "unknown key",
        ),
    ];
    for (keys, path, word) in table {
        let refused = read(&with_alert(keys)).unwrap_err().to_string();
        assert!(
            refused.contains(path) && refused.contains(word),
            "{keys}: {refused}"
        );
        assert!(!refused.contains("s3"), "{refused}");
    }
}
