//! `callgate check`: what is refused, where and why, and what is accepted as which value: C57, C60.

use crate::fixture::gateway::{BINARY, folder};
use crate::fixture::{Checked, Config, Script, Tool, ms};
use std::fmt::Write;
use std::process::Command;

/// A file whose `defaults` begin on line 4 with these lines (two spaces in).
fn with_defaults(lines: &str) -> String {
    let mut text = "listen: 127.0.0.1:0\nledger: { url: 'sqlite:x.db' }\n".to_owned();
    if !lines.is_empty() {
        text.push_str("defaults:\n");
    }
    for line in lines.lines() {
        writeln!(text, "  {line}").expect("a string takes text");
    }
    text.push_str("routes:\n  - name: tool\n    match: { path: /** }\n");
    text.push_str("    upstream: { url: 'http://127.0.0.1:9' }\n    receipt: {}\n");
    text
}

/// The line of a file that holds this text.
fn line_of(text: &str, part: &str) -> usize {
    let found = text.lines().position(|line| line.contains(part));
    found.unwrap_or_else(|| panic!("no {part} in {text}")) + 1
}

fn refused(lines: &str, offending: &str, key: &str) {
    let text = with_defaults(lines);
    Checked::text(text.as_bytes()).assert_refused(line_of(&text, offending), key);
}

fn accepted(lines: &str, printed: &str) {
    let text = with_defaults(lines);
    let checked = Checked::printed(text.as_bytes());
    checked.assert_accepted();
    assert!(
        checked.out.contains(printed),
        "no {printed:?} in {}",
        checked.out
    );
}

#[test]
fn the_standard_policy_of_these_tests_is_accepted() {
    let tool = Tool::start(Script::new());
    Checked::config(&Config::standard(&tool)).assert_accepted();
    accepted("timeouts: { attempt: 8s }", "8s");
}

#[test]
fn c57_a_backoff_that_cannot_work_is_refused_with_its_key() {
    for (key, value) in [
        ("factor", "0"),
        ("factor", "0.5"),
        ("factor", "-2"),
        ("factor", ".nan"),
        ("factor", ".inf"),
        ("factor", "11"),
        ("jitter", "1.5"),
        ("jitter", "-0.1"),
        ("jitter", ".nan"),
        ("jitter", "20"),
        ("base", "0s"),
        ("base", "-1s"),
        ("base", "20s"),
        ("cap", "0s"),
        ("cap", "500ms"),
        ("max_retries", "6"),
        ("max_retries", "-1"),
        ("max_retries", "1.5"),
    ] {
        // A base above the cap and a cap below the base are one mistake: either key may be named.
        let text = with_defaults(&format!("retry:\n  {key}: {value}"));
        let checked = Checked::text(text.as_bytes());
        assert_eq!(checked.code, 2, "{key}: {value} was accepted: {checked:?}");
        let named = checked.err.contains(&format!("defaults.retry.{key}"));
        let pair = matches!((key, value), ("base", "20s") | ("cap", "500ms"))
            && checked.err.contains("defaults.retry.");
        assert!(named || pair, "{key}: {value}: {}", checked.err);
        assert!(
            checked.err.contains("callgate.yaml:5:") || pair,
            "{key}: {}",
            checked.err
        );
    }
}

#[test]
fn c57_the_edges_of_a_backoff_are_accepted() {
    for (key, value, printed) in [
        ("factor", "1", "factor: 1"),
        ("factor", "10", "factor: 10"),
        ("jitter", "0", "jitter: 0"),
        ("jitter", "1", "jitter: 1"),
        ("base", "1ms", "1ms"),
        ("max_retries", "0", "max_retries: 0"),
        ("max_retries", "5", "max_retries: 5"),
    ] {
        accepted(&format!("retry:\n  {key}: {value}"), printed);
    }
}

#[test]
fn c60_a_duration_needs_a_unit_and_a_size() {
    for value in [
        "30", "0", "0s", "-1s", "1e3", "true", "''", "[1s]", "30x", "~x",
    ] {
        refused(
            &format!("timeouts:\n  attempt: {value}"),
            "attempt:",
            "defaults.timeouts.attempt",
        );
    }
    for value in ["64", "-1KiB", "1.5.2MiB", "big"] {
        refused(
            &format!("body:\n  max_request: {value}"),
            "max_request:",
            "defaults.body.max_request",
        );
    }
    accepted("timeouts:\n  attempt: 250ms", "250ms");
    // Longer than the total: a minute was meant, or milliseconds were.
    let text = with_defaults("timeouts:\n  attempt: 30m");
    let checked = Checked::text(text.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.err.contains("attempt") && checked.err.contains("total"),
        "{}",
        checked.err
    );
}

#[test]
fn c60_unusual_spellings_are_read_right_or_refused_with_their_place() {
    for (value, right) in [
        ("30 s", "30s"),
        (".5s", "500ms"),
        ("1h", "1h"),
        ("1m30s", "1m 30s"),
    ] {
        let lines = format!("timeouts:\n  attempt: {value}\n  total: 2h");
        let text = with_defaults(&lines);
        let checked = Checked::printed(text.as_bytes());
        if checked.code == 0 {
            let tight = right.replace(' ', "");
            let found = checked.out.contains(right) || checked.out.contains(&tight);
            assert!(found, "{value} became something else: {}", checked.out);
        } else {
            checked.assert_refused(5, "defaults.timeouts.attempt");
        }
    }
}

#[test]
fn c60_unknown_keys_and_doubled_keys_are_refused() {
    refused(
        "retry:\n  max_retry: 3",
        "max_retry:",
        "defaults.retry.max_retry",
    );
    refused("enabled: no", "enabled:", "defaults.enabled");
    let doubled = with_defaults("retry: { max_retries: 1 }\nretry: { max_retries: 2 }");
    let checked = Checked::text(doubled.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.err.contains("callgate.yaml:5:"), "{}", checked.err);
    assert!(checked.err.contains("retry"), "{}", checked.err);
    let inner = with_defaults("retry:\n  max_retries: 1\n  max_retries: 2");
    let checked = Checked::text(inner.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.err.contains("max_retries"), "{}", checked.err);
    let states = with_defaults("").replace(
        "receipt: {}",
        "receipt: { states: { SUCCESS: [OK], SUCCESS: [DONE] } }",
    );
    assert_eq!(
        Checked::text(states.as_bytes()).code,
        2,
        "a doubled key in a map"
    );
    let twins = with_defaults("")
        + "  - name: tool\n    match: { path: /b }\n    upstream: { url: 'http://127.0.0.1:9' }\n";
    let checked = Checked::text(twins.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.err.contains("tool") && checked.err.contains("name"),
        "{}",
        checked.err
    );
}

#[test]
fn c60_all_mistakes_are_told_at_once() {
    let text = with_defaults("timeouts:\n  attempt: 30\nretry:\n  max_retries: 6\n  jitter: 20");
    let checked = Checked::text(text.as_bytes());
    checked.assert_refused(5, "defaults.timeouts.attempt");
    checked.assert_refused(7, "defaults.retry.max_retries");
    checked.assert_refused(8, "defaults.retry.jitter");
}

#[test]
fn c60_words_and_numbers_that_yaml_likes_to_change_stay_what_they_are() {
    for node in ["NO", "no", "0123", "1.10", "0x1f", "1e3", "on"] {
        let text = format!("node: {node}\n{}", with_defaults(""));
        let checked = Checked::printed(text.as_bytes());
        if checked.code == 0 {
            let plain = checked.out.contains(&format!("node: {node}\n"));
            let quoted = ["'", "\""]
                .iter()
                .any(|q| checked.out.contains(&format!("node: {q}{node}{q}")));
            assert!(
                plain || quoted,
                "{node} became something else: {}",
                checked.out
            );
        } else {
            checked.assert_refused(1, "node");
        }
    }
}

#[test]
fn c60_a_window_outside_its_bounds_is_refused() {
    for value in ["23h", "8d", "0s"] {
        refused(
            &format!("idempotency:\n  window: {value}"),
            "window:",
            "idempotency.window",
        );
    }
    accepted("idempotency:\n  window: 7d", "7d");
    // A window shorter than a call may take in the queue forgets calls that are still open.
    let text = with_defaults(
        "idempotency: { window: 24h }\ncompensation: { rounds: [6h, 12h, 18h, 24h, 30h] }",
    );
    let checked = Checked::text(text.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.err.contains("window"), "{}", checked.err);
}

#[test]
fn c60_a_second_document_and_a_tab_are_refused() {
    let two = format!("{}---\nlisten: 127.0.0.1:1\n", with_defaults(""));
    let checked = Checked::text(two.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.err.contains("callgate.yaml:"), "{}", checked.err);
    let tab = with_defaults("").replace("    match:", "\tmatch:");
    let checked = Checked::text(tab.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    let place = format!("callgate.yaml:{}:", line_of(&tab, "\t"));
    assert!(
        checked.err.contains(&place),
        "no {place} in {}",
        checked.err
    );
}

#[test]
fn c60_strange_documents_end_with_a_sentence_and_soon() {
    let merge = with_defaults("timeouts: &t { attempt: 9s }").replace(
        "    receipt: {}\n",
        "    timeouts: { <<: *t, connect: 2s }\n    receipt: {}\n",
    );
    let mut anchors = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..=9 {
        let refs = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(anchors, "a{n}: &a{n} [{refs}]").expect("a string takes text");
    }
    let huge = format!(
        "{}{}",
        with_defaults(""),
        "# filler filler filler\n".repeat(450_000)
    );
    let binary = b"listen: \xff\xfe\n".to_vec();
    let documents = [
        ("empty", Vec::new()),
        ("a comment", b"# nothing\n".to_vec()),
        ("null", b"~\n".to_vec()),
        ("a list", b"- a\n".to_vec()),
        ("merge keys", merge.into_bytes()),
        ("anchors", anchors.into_bytes()),
        ("ten megabytes", huge.into_bytes()),
        ("no text", binary),
    ];
    for (what, document) in documents {
        let checked = Checked::printed(&document);
        assert!(checked.took < ms(15_000), "{what} took {:?}", checked.took);
        match checked.code {
            0 => assert!(
                !checked.out.is_empty(),
                "{what} was accepted without a word"
            ),
            2 => assert!(
                checked.err.contains("callgate.yaml"),
                "{what}: {}",
                checked.err
            ),
            code => panic!("{what} ended with {code}: {}", checked.err),
        }
        assert!(!checked.err.contains("panicked"), "{what}: {}", checked.err);
    }
}

#[test]
fn impossible_combinations_are_refused_in_words() {
    let commit = with_defaults("timeouts: { late: 60s }")
        .replace("receipt: {}", "receipt: { records: commit, settle: 1s }");
    let checked = Checked::text(commit.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(
        checked.err.contains("settle") && checked.err.contains("late"),
        "{}",
        checked.err
    );
    let open = "admin: { listen: 0.0.0.0:9090 }\n".to_owned() + &with_defaults("");
    let checked = Checked::text(open.as_bytes());
    assert_eq!(checked.code, 2, "{checked:?}");
    assert!(checked.err.contains("admin.token"), "{}", checked.err);
    let blind = with_defaults("").replace("    receipt: {}\n", "");
    let checked = Checked::text(blind.as_bytes());
    checked.assert_accepted();
    let said = format!("{}{}", checked.out, checked.err);
    assert!(
        said.contains("receipt"),
        "a route without receipts is said so: {said}"
    );
}

#[test]
fn an_environment_name_that_is_missing_is_named() {
    let text = format!("node: ${{CALLGATE_IT_NODE}}\n{}", with_defaults(""));
    Checked::text(text.as_bytes()).assert_refused(1, "CALLGATE_IT_NODE");
    let text = format!("node: ${{CALLGATE_IT_NODE:-spare}}\n{}", with_defaults(""));
    let checked = Checked::printed(text.as_bytes());
    checked.assert_accepted();
    assert!(checked.out.contains("node: spare"), "{}", checked.out);
}

#[test]
fn a_file_that_is_not_there_is_named_with_what_to_do() {
    let folder = folder();
    let file = folder.path().join("nowhere.yaml");
    for verb in ["check", "serve"] {
        let checked = Checked::run(Command::new(BINARY).arg(verb).arg("--config").arg(&file));
        assert_eq!(checked.code, 2, "{checked:?}");
        assert!(checked.err.contains("nowhere.yaml"), "{}", checked.err);
    }
}
