//! Values that are fine by themselves but not beside the others, and single texts of a route.

use super::{check, read, with_route, with_top};

/// Keys of a route that cannot be meant together, or texts that name nothing.
const CONTRADICTIONS: &[(&str, &str, &str)] = &[
    (
        "timeouts: { attempt: 61s }",
        "4:26 routes[0].timeouts.attempt",
        "longer than `total`",
    ),
    (
        "timeouts: { total: 5s }",
        "4:24 routes[0].timeouts.total",
        "longer than `total`",
    ),
    (
        "idempotency: { window: 23h }",
        "4:28 routes[0].idempotency.window",
        "24h to 7d",
    ),
    (
        "idempotency: { window: 8d }",
        "4:28 routes[0].idempotency.window",
        "24h to 7d",
    ),
    (
        "compensation: { rounds: [1h, 20h] }",
        "2:5 routes[0]",
        "the window (1d) is shorter than a call may stay unsettled (1d 1h",
    ),
    (
        "compensation: { rounds: [] }",
        "4:29 routes[0].compensation.rounds",
        "1 to 5 elements",
    ),
    (
        "compensation: { rounds: [5m, 1m] }",
        "4:29 routes[0].compensation.rounds",
        "growing",
    ),
    (
        "compensation: { rounds: [1m, 1m] }",
        "4:29 routes[0].compensation.rounds",
        "growing",
    ),
    (
        "retry: { resend_on: [UNKNOWN] }",
        "4:25 routes[0].retry.resend_on",
        "[NOT_FOUND, UNKNOWN]",
    ),
    (
        "receipt: { records: commit }",
        "4:25 routes[0].receipt.records",
        "timeouts.late (1m)",
    ),
    (
        "receipt: { records: commit, settle: 59s }",
        "4:41 routes[0].receipt.settle",
        "at least timeouts.late",
    ),
    (
        "accepted: pending",
        "4:15 routes[0].accepted",
        "needs a `receipt`",
    ),
    (
        "receipt: { body: \"{call_id}\" }",
        "4:22 routes[0].receipt.body",
        "add `method: POST`",
    ),
    (
        "receipt: { url: \"/r/{id}\" }",
        "4:21 routes[0].receipt.url",
        "instead of {id}",
    ),
    (
        "receipt: { url: \"r/{call_id}\" }",
        "4:21 routes[0].receipt.url",
        "a path such as",
    ),
    (
        "receipt: { not_found: [401] }",
        "4:28 routes[0].receipt.not_found[0]",
        "never heard of it",
    ),
    (
        "receipt: { states: { SUCCESS: [FAILED] } }",
        "4:35 routes[0].receipt.states.SUCCESS",
        "stands for SUCCESS and for FAILED",
    ),
    ("answer: {}", "4:13 routes[0].answer", "`state` is missing"),
    (
        "answer: { state: code }",
        "4:22 routes[0].answer.state",
        "a JSON pointer",
    ),
    (
        "match: { path: orders }",
        "4:20 routes[0].match.path",
        "begins with `/`",
    ),
    (
        "match: { methods: [post] }",
        "4:24 routes[0].match.methods[0]",
        "upper case",
    ),
    (
        "match: { methods: [PUT, PUT] }",
        "4:29 routes[0].match.methods[1]",
        "twice",
    ),
    (
        "call_id: { header: Host }",
        "4:24 routes[0].call_id.header",
        "steer the connection",
    ),
    (
        "call_id: { header: Idempotency-Key }",
        "4:24 routes[0].call_id.header",
        "cannot travel in the same header field",
    ),
    (
        "secret_headers: [\"a b\"]",
        "4:22 routes[0].secret_headers[0]",
        "name of a header field",
    ),
];

/// Keys that could not be sent, read or made again.
const KEYS: &[(&str, &str, &str)] = &[
    (
        "idempotency: { send: { header: X-Call-Id } }",
        "4:36 routes[0].idempotency.send.header",
        "call id travels",
    ),
    (
        "idempotency: { send: { body: \"\" } }",
        "4:34 routes[0].idempotency.send.body",
        "such as /requestId",
    ),
    (
        "idempotency: { key: \"{uuid}\" }",
        "4:25 routes[0].idempotency.key",
        "the same on every repeat",
    ),
    (
        "idempotency: { key: \"sync-{day}\" }",
        "4:25 routes[0].idempotency.key",
        "at least one of them",
    ),
    (
        "idempotency: { time_zone: Berlin }",
        "4:31 routes[0].idempotency.time_zone",
        "such as Europe/Berlin",
    ),
    (
        "idempotency: { key: \"{path:id}\" }",
        "4:25 routes[0].idempotency.key",
        "captures no {id}",
    ),
    (
        "call_id: { header: X-Own }\nidempotency: { key: \"{header:X-Own}\" }",
        "5:25 routes[0].idempotency.key",
        "another one for each call",
    ),
    (
        "idempotency: { hash: crc }",
        "4:26 routes[0].idempotency.hash",
        "sha256",
    ),
];

#[test]
fn keys_that_could_not_be_made_again_are_refused() {
    for (keys, place, word) in KEYS {
        check(&with_route(keys), place, word);
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (keys, place, word) in CONTRADICTIONS {
        check(&with_route(keys), place, word);
    }
}

#[test]
fn wrong_values_at_the_top_are_refused() {
    let table = [
        ("node: a b", "1:7 node", "letters, digits"),
        (
            "listen: localhost:80",
            "1:9 listen",
            "an IP address and port",
        ),
        ("listen: 8080", "1:9 listen", "put it into quotes"),
        ("workers: -1", "1:10 workers", "from 0 to 1024"),
        (
            "limits: { header_bytes: 4KiB }",
            "1:25 limits.header_bytes",
            "from 8KiB to 1MiB",
        ),
        (
            "admin: { listen: \"0.0.0.0:9090\" }",
            "1:18 admin.listen",
            "token must be set",
        ),
        (
            "admin: { listen: \"127.0.0.1:8080\" }",
            "1:18 admin.listen",
            "choose another port",
        ),
        (
            "ledger: { url: callgate.db }",
            "1:16 ledger.url",
            "sqlite:PATH",
        ),
        (
            "ledger: { url: \"postgres://h/d\" }",
            "1:16 ledger.url",
            "not in this version yet",
        ),
        (
            "ledger: { sync: fast }",
            "1:17 ledger.sync",
            "one of full, normal",
        ),
        (
            "log: { level: loud }",
            "1:15 log.level",
            "error, warn, info, debug, trace",
        ),
        (
            "drain: { grace: 0s }",
            "1:17 drain.grace",
            "longer than zero",
        ),
    ];
    for (top, place, word) in table {
        check(&with_top(top), place, word);
    }
}

#[test]
fn a_wrong_upstream_is_refused() {
    let upstream = |keys: &str| format!("routes:\n  - name: r\n    upstream: {{ {keys} }}\n");
    let table = [
        (
            "url: t",
            "3:22 routes[0].upstream.url",
            "an http:// or https:// URL",
        ),
        (
            "url: \"grpc://t\"",
            "3:22 routes[0].upstream.url",
            "a gRPC tool is an http:// or https:// one",
        ),
        (
            "url: \"http://t\", protocol: http3",
            "3:44 routes[0].upstream.protocol",
            "one of http1, http2, auto",
        ),
        (
            "url: \"http://t\", protocol: auto",
            "3:44 routes[0].upstream.protocol",
            "without TLS nothing is agreed on",
        ),
        (
            "url: \"http://t\", host: mine",
            "3:40 routes[0].upstream.host",
            "one of tool, keep",
        ),
        (
            "url: \"http://t\", headers: { X-Call-Id: a }",
            "3:56 routes[0].upstream.headers.X-Call-Id",
            "tell calls apart",
        ),
        (
            "url: \"http://t\", headers: { Host: a }",
            "3:51 routes[0].upstream.headers.Host",
            "`upstream.host: keep`",
        ),
        (
            "url: \"http://t\", headers: { X-A: a, x-a: b }",
            "3:58 routes[0].upstream.headers.x-a",
            "set twice",
        ),
        (
            "url: \"http://t\", ca_file: a.pem",
            "3:43 routes[0].upstream.ca_file",
            "only an https://",
        ),
        (
            "url: \"https://t\", ca_file: no.pem",
            "3:44 routes[0].upstream.ca_file",
            "cannot read",
        ),
        (
            "url: \"http://t\", strip_prefix: x",
            "3:48 routes[0].upstream.strip_prefix",
            "a path",
        ),
    ];
    for (keys, place, word) in table {
        check(&upstream(keys), place, word);
    }
}

#[test]
fn names_of_routes_are_unique_and_not_taken() {
    let two = "routes:\n  - { name: a, upstream: { url: \"http://t\" }, match: { path: /a } }\n  \
               - { name: a, upstream: { url: \"http://t\" } }\n";
    check(
        two,
        "3:13 routes[1].name",
        "another route is called \"a\" already",
    );
    let none = "routes:\n  - { name: none, upstream: { url: \"http://t\" } }\n";
    check(none, "2:13 routes[0].name", "metrics use `none` and `gone`");
}

#[test]
fn a_former_name_leads_to_one_route() {
    let two = |first: &str, second: &str| {
        format!(
            "routes:\n  - {{ name: a, upstream: {{ url: \"http://t\" }}, match: {{ path: /a }}, \
             {first} }}\n  - {{ name: b, upstream: {{ url: \"http://t\" }}, {second} }}\n"
        )
    };
    let table = [
        (
            "formerly: [a]",
            "response: auto",
            "2:78 routes[0].formerly",
            "called \"a\" now",
        ),
        (
            "formerly: [b]",
            "response: auto",
            "2:78 routes[0].formerly",
            "called \"b\" now",
        ),
        (
            "formerly: [x]",
            "formerly: [y, x]",
            "3:57 routes[1].formerly",
            "\"x\" stands among the former names of the route \"a\" too",
        ),
        (
            "idempotency: { scope: s }",
            "formerly: [a]",
            "3:57 routes[1].formerly",
            "called \"a\" now",
        ),
    ];
    for (first, second, place, word) in table {
        check(&two(first, second), place, word);
    }
    // Its keys were kept under its own name, before it had a scope.
    let own = two(
        "idempotency: { scope: s }, formerly: [a, z]",
        "formerly: [y]",
    );
    assert!(read(&own).is_ok());
}
