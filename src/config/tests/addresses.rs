//! A tool with several addresses, and when one of them is left alone.

use std::time::Duration;

use super::*;
use crate::call::outcome::Cause;
use crate::config::ejection::Ejection;
use crate::config::route::Upstream;

fn upstream(keys: &str) -> String {
    format!("routes:\n  - name: r\n    receipt: {{}}\n    upstream: {{ {keys} }}\n")
}

fn good(keys: &str) -> Upstream {
    read(&upstream(keys)).unwrap().routes[0].upstream.clone()
}

fn check(text: &str, path: &str, word: &str) {
    let report = read(text).unwrap_err();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!(report.findings[0].path, path, "{report}");
    assert!(report.findings[0].message.contains(word), "{report}");
}

#[test]
fn several_urls_are_one_tool_whose_failing_addresses_are_ejected() {
    let tool = good("urls: [\"http://a:1/x\", \"HTTP://B:2/x/\"], resolve: 5s");
    let urls: Vec<&str> = tool.addresses().map(|url| &**url).collect();
    assert_eq!(urls, ["http://a:1/x", "http://b:2/x"]);
    assert_eq!(tool.resolve, Duration::from_secs(5));
    assert!(!tool.shared_state);
    assert_eq!(tool.ejection, Some(Ejection::default()));
    let each: Vec<Upstream> = tool.each().collect();
    assert_eq!(each.len(), 2);
    assert!(each.iter().all(|one| one.others.is_empty()));
    assert_eq!(&*each[1].address, "http://b:2/x");
    assert_eq!(&*each[1].endpoint.authority, "b:2");
    let off = "urls: [\"http://a\", \"http://b\"], ejection: { enabled: false }";
    assert_eq!(good(off).ejection, None);
}

#[test]
fn one_url_has_no_breaker_unless_it_is_written() {
    assert_eq!(good("url: \"http://a\"").ejection, None);
    let written = "url: \"http://a\", ejection: { consecutive: 3, share: 0.9, window: 1m, \
                   samples: 7, base: 1s, cap: 1m, max_ejected: 0.5, on: [timeout] }";
    let expected = Ejection {
        consecutive: 3,
        share: 0.9,
        window: Duration::from_secs(60),
        samples: 7,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(60),
        max_ejected: 0.5,
        on: vec![Cause::Timeout],
    };
    assert_eq!(good(written).ejection, Some(expected));
    let usual = good("url: \"http://a\", ejection: {}").ejection;
    assert_eq!(usual, Some(Ejection::default()));
}

#[test]
fn addresses_are_printed_as_they_are_read() {
    for keys in [
        "urls: [\"http://a\", \"http://b\"], shared_state: true, formerly: [\"http://c\"]",
        "urls: [\"http://a\", \"http://b\"], ejection: { enabled: false }",
        "url: \"http://a\", ejection: { share: 0, on: [connect, 5xx] }",
        "urls: [\"http://a/x\", \"http://b/x\"], kind: callgate",
    ] {
        let config = read(&upstream(keys)).unwrap();
        let printed = config.print();
        let again = read(&printed).unwrap();
        assert_eq!(again.routes, config.routes, "{printed}");
        assert_eq!(again.print(), printed);
    }
}

#[test]
fn addresses_that_cannot_be_one_tool_are_refused() {
    let table = [
        (
            "url: \"http://a\", urls: [\"http://b\"]",
            "urls",
            "exclude each other",
        ),
        (
            "urls: [\"http://a\", \"https://b\"]",
            "urls",
            "https://b differs from http://a in more than host and port",
        ),
        (
            "urls: [\"http://a/x\", \"http://b/y\"]",
            "urls",
            "one scheme and one path",
        ),
        ("urls: [\"http://a:80/\", \"http://A\"]", "urls[1]", "twice"),
        (
            "urls: [\"http://a\", \"http://b\"], formerly: [\"http://c\"]",
            "formerly",
            "nobody says which of them knows",
        ),
        (
            "url: \"http://a\", ejection: { base: 2m, cap: 1m }",
            "ejection.cap",
            "shorter than `base`",
        ),
        (
            "url: \"http://a\", ejection: { consecutive: 0, share: 0 }",
            "ejection.consecutive",
            "write `enabled: false`",
        ),
    ];
    for (keys, key, word) in table {
        check(&upstream(keys), &format!("routes[0].upstream.{key}"), word);
    }
}

#[test]
fn routes_to_one_address_agree_about_its_tool() {
    let two = |other: &str| {
        format!(
            "routes:\n  - {{ name: a, receipt: {{}}, match: {{ path: /a }}, \
             upstream: {{ urls: [\"http://a\", \"http://b\"] }} }}\n  - {{ name: b, \
             receipt: {{}}, upstream: {{ {other} }} }}\n"
        )
    };
    let alike = "urls: [\"http://a\", \"http://b\"], ejection: { consecutive: 5 }";
    assert!(read(&two(alike)).is_ok());
    for other in [
        "url: \"http://b\"",
        "urls: [\"http://b\", \"http://a\"]",
        "urls: [\"http://a\", \"http://b\"], shared_state: true",
        "urls: [\"http://a\", \"http://b\"], ejection: { enabled: false }",
    ] {
        let report = read(&two(other)).unwrap_err();
        let found = &report.findings[0].message;
        assert!(found.contains("one list of `urls`"), "{other}: {report}");
    }
}
