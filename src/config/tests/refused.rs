//! What is refused: each wrong file with the place, the key and a word of the way out.

use super::*;

mod rules;
mod tags;
mod targets;

/// `line:column path: message` of the only mistake.
#[track_caller]
fn only(text: &str) -> String {
    let report = read(text).expect_err(text);
    assert_eq!(report.findings.len(), 1, "{text}\n{report}");
    line(&report.findings[0])
}

fn line(finding: &Finding) -> String {
    let at = finding
        .position
        .map_or_else(String::new, |at| format!("{}:{}", at.line, at.column));
    format!("{} {}: {}", at, finding.path, finding.message)
}

/// Checks one wrong file: `place` begins with `line:column path`, `word` part of the message.
#[track_caller]
fn check(text: &str, place: &str, word: &str) {
    let found = only(text);
    assert!(
        found.starts_with(place),
        "{text}\nfound {found}\nnot at {place}"
    );
    assert!(
        found.contains(word),
        "{text}\nfound {found}\nwithout {word:?}"
    );
}

/// A value of the wrong kind or out of its range.
const WRONG_VALUES: &[(&str, &str, &str)] = &[
    (
        "body: { max_request: 1024 }",
        "4:26 routes[0].body.max_request",
        "no unit",
    ),
    (
        "body: { max_request: 1MB }",
        "4:26 routes[0].body.max_request",
        "a size with its unit",
    ),
    (
        "body: { max_request: 2GiB }",
        "4:26 routes[0].body.max_request",
        "to 1GiB",
    ),
    (
        "retry: { max_retries: 6 }",
        "4:27 routes[0].retry.max_retries",
        "from 0 to 5, found 6",
    ),
    (
        "retry: { max_retries: -1 }",
        "4:27 routes[0].retry.max_retries",
        "from 0 to 5",
    ),
    (
        "retry: { max_retries: 1.5 }",
        "4:27 routes[0].retry.max_retries",
        "a whole number",
    ),
    (
        "retry: { max_retries: \"3\" }",
        "4:27 routes[0].retry.max_retries",
        "a whole number",
    ),
    (
        "retry: { jitter: 20 }",
        "4:22 routes[0].retry.jitter",
        "from 0 to 1, found 20",
    ),
    (
        "retry: { jitter: -0.1 }",
        "4:22 routes[0].retry.jitter",
        "from 0 to 1",
    ),
    (
        "compensation: { resend: no }",
        "4:29 routes[0].compensation.resend",
        "true or false",
    ),
    (
        "compensation: { resend: NO }",
        "4:29 routes[0].compensation.resend",
        "true or false",
    ),
    (
        "match: { host: 1.10 }",
        "4:20 routes[0].match.host",
        "put it into quotes",
    ),
    (
        "unresolved_status: 500",
        "4:24 routes[0].unresolved_status",
        "504, 503, 502, 409, 202",
    ),
    (
        "effects: twice",
        "4:14 routes[0].effects",
        "one of once, none",
    ),
    (
        "retry: { on: [connect, 4xx] }",
        "4:28 routes[0].retry.on[1]",
        "connect, timeout",
    ),
    (
        "receipt:",
        "4:13 routes[0].receipt",
        "write {} for all defaults",
    ),
    ("receipt: true", "4:14 routes[0].receipt", "a map"),
    (
        "timeouts: 8s",
        "4:15 routes[0].timeouts",
        "expected a map, found \"8s\"",
    ),
];

#[test]
fn c60_wrong_units_and_numbers_are_refused_at_their_place() {
    let timeouts = |value: &str| with_route(&format!("timeouts:\n  attempt: {value}"));
    for bare in ["30", "0", "1e3", "-1", "0.5"] {
        check(
            &timeouts(bare),
            "5:16 routes[0].timeouts.attempt",
            "no unit",
        );
    }
    for wrong in [
        "-1s", ".5s", "\"30\"", "thirty", "1us", "\"\"", "~", "[1s]", "{ s: 1 }", "true",
    ] {
        check(
            &timeouts(wrong),
            "5:16 routes[0].timeouts.attempt",
            "a duration with its unit",
        );
    }
    for zero in ["0s", "0ms"] {
        check(
            &timeouts(zero),
            "5:16 routes[0].timeouts.attempt",
            "longer than zero",
        );
    }
    // 30m where 30ms was meant is caught by what it would mean.
    check(
        &timeouts("30m"),
        "5:16 routes[0].timeouts.attempt",
        "longer than `total` (1m)",
    );
    for (keys, place, word) in WRONG_VALUES {
        check(&with_route(keys), place, word);
    }
}

#[test]
fn c57_what_would_break_the_backoff_is_refused_with_its_path() {
    for factor in ["0", "0.5", "-2", ".nan", ".inf", "11"] {
        let keys = format!("retry: {{ factor: {factor} }}");
        check(
            &with_route(&keys),
            "4:22 routes[0].retry.factor",
            "a number from 1 to 10",
        );
    }
    for jitter in ["1.5", ".nan", "-.inf"] {
        let keys = format!("retry: {{ jitter: {jitter} }}");
        check(
            &with_route(&keys),
            "4:22 routes[0].retry.jitter",
            "a number from 0 to 1",
        );
    }
    check(
        &with_route("retry: { base: 0s }"),
        "4:20 routes[0].retry.base",
        "longer than zero",
    );
    let cap = "retry: { base: 800ms, cap: 400ms }";
    check(&with_route(cap), "4:32 routes[0].retry.cap", "`cap` is");
    let inherited = "defaults:\n  retry: { base: 20s }";
    check(&with_top(inherited), "2:18 defaults.retry.base", "`cap` is");
}

#[test]
fn c60_a_misspelt_key_is_named_with_the_key_that_was_meant() {
    let table = [
        (
            "retry: { max_retry: 3 }",
            "4:14 routes[0].retry.max_retry",
            "did you mean `max_retries`?",
        ),
        (
            "timeout: { attempt: 3s }",
            "4:5 routes[0].timeout",
            "did you mean `timeouts`?",
        ),
        (
            "retry: { attempts: 3 }",
            "4:14 routes[0].retry.attempts",
            "known here: max_retries",
        ),
        (
            "<<: { effects: once }",
            "4:5 routes[0].<<",
            "merge keys are not supported",
        ),
    ];
    for (keys, place, word) in table {
        check(&with_route(keys), place, word);
    }
    check(&with_top("Node: a"), "1:1 Node", "did you mean `node`?");
}

#[test]
fn c60_what_is_no_configuration_at_all_stops_at_once() {
    let table = [
        (
            with_route("retry: { base: 1s }\nretry: { cap: 9s }"),
            "5:5 ",
            "\"retry\" stands in this map twice",
        ),
        (
            with_route("retry: { base: 1s, base: 2s }"),
            "4:24 ",
            "\"base\" stands in this map twice",
        ),
        ("node: a\nnode: b\n".to_owned(), "2:1 ", "twice"),
        ("node:\n\tx: 1\n".to_owned(), "2:1 ", "indent with spaces"),
        (
            "admin: { token: ${TOKEN} }\n".to_owned(),
            "1:",
            "\"${NAME}\" into quotes",
        ),
        (
            format!("{}---\nnode: b\n", with_top("")),
            "6:1 ",
            "a second document",
        ),
        ("a: *nobody\n".to_owned(), "1:4 ", "unknown anchor"),
        ("a: !secret x\n".to_owned(), "1:4 ", "remove the tag"),
        ("1: a\n".to_owned(), "1:1 ", "a key that is text"),
        ("[".repeat(40), "1:", "nested deeper than 16 levels"),
        (nested_anchors(9), "1:5 ", "more than 1000 values"),
    ];
    for (text, place, word) in table {
        check(&text, place, word);
    }
    let huge = format!("node: {}\n", "a".repeat(file::FILE_BYTES_MAX));
    check(&huge, "", "longer than 1048576 bytes");
}

/// Ten aliases of ten aliases of ..: small text, enormous tree.
fn nested_anchors(deep: usize) -> String {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..=deep {
        let ten = vec![format!("*a{}", level - 1); 10].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{ten}]\n"));
    }
    text
}

#[test]
fn an_empty_file_says_what_is_missing() {
    for text in ["", "# nothing\n", "---\n", "{}"] {
        let found = only(text);
        assert!(found.contains("`routes` is missing"), "{text:?} {found}");
    }
    check(
        "routes: []\n",
        "1:9 routes",
        "a list of 1 to 1000 elements, found 0",
    );
    check(
        "routes:\n  - name: a\n",
        "2:5 routes[0]",
        "`upstream` is missing",
    );
    check(
        "routes:\n  - { name: a, upstream: { kind: tool } }\n",
        "2:26 routes[0].upstream",
        "`url` is missing; expected an http://",
    );
}

#[test]
fn a_missing_name_of_the_environment_says_what_to_do() {
    let text = with_top("admin: { token: \"${NOBODY}\" }");
    check(
        &text,
        "1:17 admin.token",
        "the environment has no NOBODY; set it, or give a default",
    );
    check(&with_top("node: ${TOKEN"), "1:7 node", "`${` without `}`");
    check(&with_top("listen: ${BARE}"), "1:9 listen", "found \"30\"");
    let bare = with_route("timeouts:\n  attempt: ${BARE}");
    check(
        &bare,
        "5:16 routes[0].timeouts.attempt",
        "a duration with its unit",
    );
}

#[test]
fn all_mistakes_come_at_once_and_in_the_order_of_the_file() {
    let text = "\
nodes: a
listen: nowhere
admin: { listen: \"0.0.0.0:1\" }
routes:
  - name: a
    upstream: { url: \"http://t\", kind: \"${NOBODY}\" }
    timeouts: { attempt: 30, total: 1s }
    retry: { base: 30s, max_retry: 1 }
  - name: a
    upstream: {}
    compensation: { rounds: [2m, 1m], resend: maybe }
";
    let found: Vec<_> = read(text)
        .unwrap_err()
        .findings
        .iter()
        .map(|finding| {
            let at = finding.position.unwrap();
            format!("{}:{} {}", at.line, at.column, finding.path)
        })
        .collect();
    let expected = [
        "1:1 nodes",
        "2:9 listen",
        "3:18 admin.listen",
        "6:40 routes[0].upstream.kind",
        "7:26 routes[0].timeouts.attempt",
        "8:20 routes[0].retry.base",
        "8:25 routes[0].retry.max_retry",
        "9:11 routes[1].name",
        "10:15 routes[1].upstream",
        "11:29 routes[1].compensation.rounds",
        "11:47 routes[1].compensation.resend",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_report_shows_line_and_caret_but_never_a_secret() {
    let text = with_route("timeouts: { attempt: 30 }");
    let expected = "callgate.yaml:4:26: routes[0].timeouts.attempt: expected a duration with its \
                    unit, such as 500ms, 8s or 1h 30m, longer than zero, found 30; a bare number \
                    says no unit\n     4 |     timeouts: { attempt: 30 }\n       \
                    |                          ^";
    assert_eq!(read(&text).unwrap_err().to_string(), expected);
    let wrong = "routes:\n  - name: r\n    upstream:\n      url: http://t\n      \
                 headers: { A: \"pass${NO}\", B: \"pa\\nss\", C: 1234567 }\n";
    let shown = read(wrong).unwrap_err().to_string();
    assert_eq!(shown.lines().count(), 3, "{shown}");
    let beside = [
        "routes: [{ name: r, upstream: { url: t, headers: { A: \"Bearer pass\" } } }]",
        "admin: { token: pass }}",
        "Authorization: [pass",
    ];
    for text in beside {
        let shown = read(text).unwrap_err().to_string();
        assert!(!shown.contains("pass"), "{shown}");
    }
    assert!(
        !shown.contains("pass") && !shown.contains("1234567"),
        "{shown}"
    );
}

#[test]
fn a_file_with_too_many_mistakes_is_cut() {
    let many: String = (0..MISTAKES_MAX + 5)
        .map(|n| format!("key{n}: 1\n"))
        .collect();
    let report = read(&with_top(&many)).unwrap_err();
    assert_eq!((report.findings.len(), report.left_out), (MISTAKES_MAX, 5));
    assert!(
        report
            .to_string()
            .ends_with("callgate.yaml: and 5 more mistakes")
    );
}

#[test]
fn a_file_that_cannot_be_read_names_the_next_command() {
    let shown = load(Path::new("/nonexistent/callgate.yaml"))
        .unwrap_err()
        .to_string();
    assert!(shown.starts_with("/nonexistent/callgate.yaml: "), "{shown}");
    assert!(shown.contains("callgate init > callgate.yaml"), "{shown}");
}

#[test]
fn a_file_that_is_not_utf_8_is_told_with_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yaml");
    let table: [(&[u8], &str); 4] = [
        (b"\xffnode: a\n", "1:1"),
        (b"node: a\nlisten: \xff\n", "2:9"),
        (b"node: \"\xc3\xbc\xfc\"\n", "1:9"),
        // A byte order mark takes no column, as in any other file that has one.
        (b"\xef\xbb\xbfno\xe4e: a\n", "1:3"),
    ];
    for (bytes, place) in table {
        std::fs::write(&file, bytes).unwrap();
        let shown = load(&file).unwrap_err().to_string();
        let expected = format!(
            "{}:{place}: not UTF-8; save the file as UTF-8",
            file.display()
        );
        assert_eq!(shown, expected);
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marked.yaml");
    let text = with_top("node: marked");
    std::fs::write(&path, format!("\u{feff}{text}")).unwrap();
    assert_eq!(&*load(&path).unwrap().node, "marked");
}

#[test]
fn a_token_that_nobody_can_send_is_refused() {
    for token in [" ", "a b", "a\\nb", "\u{fc}"] {
        let text = with_top(&format!("admin: {{ token: \"{token}\" }}"));
        check(&text, "1:17 admin.token", "nobody can send this token");
    }
}
