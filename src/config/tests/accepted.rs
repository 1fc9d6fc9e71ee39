//! What is accepted, and what it comes to mean.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};

use super::*;
use crate::call::outcome::Cause;
use crate::call::policy::{BelieveNotFound, OnClientGone, OnFailed, Records, ResendOn};
use crate::call::policy::{Policy, UnresolvedAnswer};
use crate::call::receipt::State;
use crate::config::resolved::{LogFormat, LogLevel, Sync};
use crate::config::route::{
    Accepted, Credentials, DetectNewIds, Effects, HostMode, Protocol, ResponseMode, UpstreamKind,
};
use crate::config::template::JsonPointer;

const EVERYTHING: &str = include_str!("everything.yaml");
const COMMENTED: &str = include_str!("../../../config/callgate.yaml");
const START: &str = include_str!("../../../config/start.yaml");

#[track_caller]
fn good(text: &str) -> Config {
    read(text).unwrap_or_else(|report| panic!("{report}"))
}

fn route(keys: &str) -> Arc<Route> {
    good(&with_route(keys)).routes[0].clone()
}

#[test]
fn the_commented_file_says_nothing_but_the_defaults() {
    let written = parse(COMMENTED, "callgate.yaml", Path::new(""), &|_| None).unwrap();
    let receipt = Some("/receipts/{call_id}".to_owned());
    let options = ToolOptions {
        receipt,
        ..ToolOptions::default()
    };
    let default = for_tool("http://127.0.0.1:9000", &options).unwrap();
    assert_eq!(written, default);
    assert_eq!(written.warnings, []);
    // And the other way round: what is not written at all is the default too.
    let bare = parse(&with_route("receipt: {}"), "", Path::new(""), &|_| None).unwrap();
    assert_eq!(bare.limits, Limits::default());
    assert_eq!(bare.log, Log::default());
    assert_eq!(bare.drain, Drain::default());
    assert_eq!(bare.admin, Admin::default());
    assert_eq!(bare.ledger, LedgerConfig::default());
    let policy = Policy {
        receipt: written.routes[0].policy.receipt,
        ..Policy::default()
    };
    assert_eq!(*bare.routes[0].policy, policy);
    assert_eq!(*written.routes[0].policy, policy);
}

#[test]
fn the_commented_file_names_every_key() {
    // Keys that stand there as comments count: they have no default to show.
    let text = COMMENTED.replace("# ", "").replace("#", "");
    let mut sections = vec![file::keys::ROOT];
    while let Some(section) = sections.pop() {
        for key in section {
            use file::keys::Kind;
            match key.kind {
                Kind::Section(below) | Kind::Presence(below) => sections.push(below),
                Kind::List {
                    of: Kind::Section(below),
                    ..
                } => sections.push(below),
                _ => {}
            }
            assert!(
                text.contains(&format!("{}:", key.name)),
                "{} is not explained",
                key.name
            );
        }
    }
}

#[test]
fn the_file_to_start_from_is_valid_without_a_warning() {
    let config = good(START);
    assert_eq!(config.warnings, []);
    assert_eq!(*config.routes[0].policy.retry.numbers().on, Cause::ALL);
}

#[test]
fn every_key_means_what_it_says_at_the_top() {
    let config = good(EVERYTHING);
    assert_eq!(&*config.node, "node07");
    assert_eq!(
        config.log,
        Log {
            level: LogLevel::Debug,
            format: LogFormat::Json
        }
    );
    assert_eq!(config.workers, 4);
    assert_eq!(config.listen, "0.0.0.0:8081".parse().unwrap());
    let secs = Duration::from_secs;
    let limits = Limits {
        connections: 5,
        calls: 4,
        bodies: 8 << 20,
        async_calls: 7,
        connections_per_address: 3,
        headers: 6,
        header_bytes: 8 << 10,
        header_timeout: secs(1),
        body_timeout: secs(2),
        keepalive: secs(3),
    };
    assert_eq!(config.limits, limits);
    assert_eq!(
        config.admin.token.as_ref().map(Secret::reveal),
        Some("s3cret")
    );
    let ledger = LedgerConfig {
        url: LedgerUrl::Sqlite("/etc/callgate/a$b.db".into()),
        sync: Sync::Normal,
        queue: 7,
        retention: secs(86_400),
    };
    assert_eq!(config.ledger, ledger);
    assert_eq!(
        config.drain,
        Drain {
            delay: secs(1),
            grace: secs(2)
        }
    );
}

#[test]
fn a_route_inherits_key_by_key() {
    let config = good(EVERYTHING);
    let (orders, inner) = (&*config.routes[0], &*config.routes[1]);
    let secs = Duration::from_secs;
    let (own, inherited) = (orders.policy.timeouts, inner.policy.timeouts);
    assert_eq!((own.total, own.attempt), (secs(55), secs(9)));
    assert_eq!((inherited.total, inherited.attempt), (secs(50), secs(9)));
    let (own, inherited) = (orders.policy.retry.numbers(), inner.policy.retry.numbers());
    assert_eq!((own.max_retries, own.factor, own.jitter), (1, 3.0, 0.5));
    assert_eq!(
        (own.resend_on, inherited.resend_on),
        (ResendOn::NotFoundOrUnknown, ResendOn::Nothing)
    );
    assert_eq!(
        (inherited.max_retries, &*inherited.on),
        (2, &[Cause::Timeout][..])
    );
    assert_eq!(orders.policy.compensation.rounds, [secs(30), secs(120)]);
    assert_eq!(inner.policy.compensation.rounds, [secs(60)]);
    for route in [orders, inner] {
        assert!(route.policy.compensation.resend);
        assert_eq!(route.policy.compensation.on_failed, OnFailed::Keep);
        assert_eq!(route.compensation_workers, 3);
        assert_eq!(route.idempotency.header, "x-key");
        assert_eq!(route.body.max_kept_response, 1_024);
        assert_eq!(route.response, ResponseMode::Collect);
        assert_eq!(route.policy.on_client_gone, OnClientGone::Cancel);
        assert_eq!(route.policy.unresolved_answer, UnresolvedAnswer::Upstream);
    }
    assert_eq!(orders.policy.unresolved_status, StatusCode::CONFLICT);
    assert_eq!(inner.policy.unresolved_status, StatusCode::ACCEPTED);
    assert_eq!(
        (orders.idempotency.window, inner.idempotency.window),
        (secs(172_800), secs(604_800))
    );
}

#[test]
fn a_route_and_its_upstream_mean_what_they_say() {
    let config = good(EVERYTHING);
    let route = &*config.routes[0];
    assert!(
        route
            .matcher
            .matches(Some("tools.internal:80"), "/orders/7/x", &Method::PUT)
    );
    assert!(
        !route
            .matcher
            .matches(Some("tools.internal"), "/orders/7/x", &Method::GET)
    );
    let upstream = &route.upstream;
    assert_eq!(&*upstream.address, "https://tool:8443/base");
    assert_eq!(
        (&*upstream.endpoint.host, upstream.endpoint.port),
        ("tool", 8443)
    );
    assert_eq!(upstream.strip_prefix.as_deref(), Some("/orders"));
    assert_eq!(upstream.host, HostMode::Keep);
    assert_eq!(upstream.headers["authorization"], "Bearer s3cret");
    assert!(upstream.headers["authorization"].is_sensitive());
    assert_eq!(upstream.headers["x-dollar"], "a$b");
    assert_eq!((upstream.pool.max_idle, upstream.late_max), (2, 1));
    assert_eq!(upstream.pool.protocol, Protocol::Auto);
    assert_eq!(upstream.formerly, [Arc::from("http://old")]);
    assert_eq!(route.effects, Effects::Once);
    assert_eq!(route.secret_headers, ["x-tool-key"]);
    assert_eq!(
        (route.call_id.header.as_str(), &*route.call_id.prefix),
        ("x-my-id", "ord")
    );
    let place = |text| JsonPointer::parse(text).unwrap();
    assert_eq!(route.call_id.body, Some(place("/task/id")));
    assert_eq!(route.idempotency.scope.as_deref(), Some("money"));
    assert_eq!(route.idempotency.exclude, [place("/nonce"), place("/at/0")]);
    assert_eq!(route.detect_new_ids, DetectNewIds::Block);
    assert_eq!(
        route.formerly,
        [Arc::from("orders-v1"), Arc::from("orders")]
    );
    assert_eq!(route.accepted, Accepted::Pending);
    let answer = route.answer.as_ref().unwrap();
    assert_eq!(answer.states.state("2"), Some(State::Failed));
    assert_eq!(answer.states.state("FAILED"), None);
    assert_eq!(answer.states.state("PROCESSING"), Some(State::Processing));
}

#[test]
fn a_receipt_means_what_it_says() {
    let config = good(EVERYTHING);
    let rule = config.routes[0].receipt.as_ref().unwrap();
    let elsewhere = rule.elsewhere.as_ref().unwrap();
    assert_eq!(elsewhere.address(), "https://receipts.internal");
    assert_eq!(
        rule.path.to_string(),
        "/find?id={call_id}&key={idempotency_key}"
    );
    assert_eq!(rule.method, Method::POST);
    assert_eq!(
        rule.body.as_ref().unwrap().to_string(),
        r#"{"id": "{call_id}", "all": {}}"#
    );
    assert_eq!(rule.credentials, Credentials::None);
    assert_eq!(rule.state.as_str(), "/s");
    assert_eq!(rule.states.state("TRADE_SUCCESS"), Some(State::Success));
    assert_eq!(rule.states.state("PROCESSING"), None);
    assert_eq!(rule.states.state("UNKNOWN"), None);
    assert_eq!(rule.not_found, [404, 410, 204]);
    assert_eq!(rule.result.encoding.as_str(), "/d");
    assert_eq!(rule.max_body, 2 << 20);
    let numbers = config.routes[0].policy.receipt.unwrap();
    assert_eq!(numbers.records, Records::Commit);
    assert_eq!(numbers.settle, Duration::from_secs(4));
    assert_eq!(numbers.believe_not_found, BelieveNotFound::Always);
    // Another callgate answers at its root, whatever path its url has.
    let inner = &config.routes[1];
    assert_eq!(inner.upstream.kind, UpstreamKind::Callgate);
    let rule = inner.receipt.as_ref().unwrap();
    assert!(rule.at_root && rule.elsewhere.is_none());
    assert_eq!(rule.path.to_string(), "/_callgate/receipts/{call_id}");
}

#[test]
fn what_is_printed_is_valid_means_the_same_and_shows_no_secret() {
    for text in [EVERYTHING, COMMENTED, START, &with_route("effects: none")] {
        let config = good(text);
        let printed = config.print();
        assert!(!printed.contains("s3cret"), "{printed}");
        let again = good(&printed);
        assert_eq!(again.print(), printed);
        assert_eq!(again.warnings.len(), config.warnings.len());
        for (one, other) in config.routes.iter().zip(&again.routes) {
            let mut other = Route::clone(other);
            // Masked values are the one difference that is meant.
            other.upstream.headers.clone_from(&one.upstream.headers);
            other.alert.clone_from(&one.alert);
            assert_eq!(other, **one);
        }
    }
}

#[test]
fn c60_odd_but_valid_yaml_is_taken_as_it_is_printed() {
    let table = [
        ("node: 0123", "node: '0123'"),
        ("node: NO", "node: NO"),
        ("node: \"1.10\"", "node: '1.10'"),
        ("drain: { grace: 30 s }", "grace: 30s"),
        ("drain: { grace: 30m }", "grace: 30m"),
        ("drain: { grace: 1h 90m }", "grace: 2h 30m"),
        ("drain: { grace: &x 3s, delay: *x }", "delay: 3s"),
        ("workers: 0x10", "workers: 16"),
        ("log:", "level: info"),
        ("admin: { token: \"${NONE:-}\" }", "listen: 127.0.0.1:9090"),
    ];
    for (top, expected) in table {
        let printed = good(&with_top(top)).print();
        assert!(printed.contains(expected), "{top}\n{printed}");
    }
}

#[test]
fn places_from_the_environment_take_the_kind_of_their_key() {
    let config = good(&with_top("workers: ${WORKERS}\nnode: n-${WORKERS}"));
    assert_eq!((config.workers, &*config.node), (4, "n-4"));
    let route = route("timeouts: { attempt: \"${WAIT}\" }\ncompensation: { resend: \"${YES}\" }");
    assert_eq!(route.policy.timeouts.attempt, Duration::from_secs(7));
    assert!(route.policy.compensation.resend);
}

/// Keys of a route, and how the only warning begins; none for an empty text.
const RARELY_MEANT: &[(&str, &str)] = &[
    ("effects: none", ""),
    ("match: { methods: [GET] }", ""),
    ("receipt: {}", ""),
    ("retry: { resend_on: [NOT_FOUND, UNKNOWN] }", ""),
    (
        "effects: once",
        "routes[0].name: the route \"r\" has no `receipt`",
    ),
    (
        "receipt: {}\ntimeouts: { attempt: 4s }",
        "routes[0].timeouts.attempt: below 5s",
    ),
    (
        "receipt: {}\nretry: { max_retries: 4 }",
        "routes[0].retry.max_retries: more than 3",
    ),
    (
        "receipt: {}\nretry: { jitter: 0 }",
        "routes[0].retry.jitter: without jitter",
    ),
    (
        "receipt: {}\ntimeouts: { total: 9s }",
        "routes[0].timeouts.total: `total` (9s) leaves",
    ),
    (
        "receipt: {}\ntimeouts: { total: 9s }\nretry: { max_retries: 0 }",
        "",
    ),
    (
        "receipt: { url: /r }",
        "routes[0].receipt.url: neither url nor body names {call_id}",
    ),
    (
        "receipt: {}\nretry: { resend_on: [] }\ncompensation: { resend: true }",
        "routes[0].compensation.resend: no round can ever resend",
    ),
    (
        "receipt: { retention: 1h }\ncompensation: { resend: true }",
        "routes[0].receipt.retention: the tool forgets",
    ),
];

#[test]
fn what_is_rarely_meant_is_warned_about() {
    let receipt = "receipt: {}\n";
    for (keys, expected) in RARELY_MEANT {
        let shown: Vec<_> = good(&with_route(keys))
            .warnings
            .iter()
            .map(Notice::to_string)
            .collect();
        assert_eq!(
            shown.len(),
            usize::from(!expected.is_empty()),
            "{keys}\n{shown:?}"
        );
        assert!(
            shown.iter().all(|text| text.starts_with(expected)),
            "{keys}\n{shown:?}"
        );
    }
    let memory = format!("ledger: {{ url: \"memory:\" }}\n{}", with_route(receipt));
    assert!(
        good(&memory).warnings[0]
            .to_string()
            .starts_with("ledger.url: `memory:` under")
    );
    let hidden =
        with_route(receipt) + "  - { name: s, upstream: { url: \"http://t\" }, receipt: {} }";
    let shown = good(&hidden).warnings[0].to_string();
    assert!(
        shown.starts_with("routes[1]: never reached: the route \"r\""),
        "{shown}"
    );
}

#[test]
fn what_several_routes_inherit_is_told_once() {
    let routes = "routes:\n  \
                  - { name: a, upstream: { url: \"http://t\" }, match: { path: /a } }\n  \
                  - { name: b, upstream: { url: \"http://t\" } }\n";
    let inherit = |keys: &str| format!("defaults: {{ {keys} }}\n{routes}");
    let receipts =
        inherit("timeouts: { attempt: 1s }").replace("http://t\" }", "http://t\" }, receipt: {}");
    assert_eq!(good(&receipts).warnings.len(), 1);
    let report = read(&inherit("timeouts: { attempt: 2m }")).unwrap_err();
    assert_eq!(report.findings.len(), 1, "{report}");
    assert_eq!(report.findings[0].path, "defaults.timeouts.attempt");
}

#[test]
fn a_certificate_is_read_with_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(vec!["tool".to_owned()]).unwrap();
    std::fs::write(folder.path().join("tool.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("empty.pem"), "no certificate").unwrap();
    let text = |file: &str| {
        format!("routes: [{{ name: r, upstream: {{ url: \"https://t\", ca_file: {file} }} }}]")
    };
    let read = |file: &str| parse(&text(file), "f", folder.path(), &environment);
    let ca = read("tool.pem").unwrap().routes[0]
        .upstream
        .ca
        .clone()
        .unwrap();
    assert_eq!(ca.path, folder.path().join("tool.pem"));
    assert_eq!(&*ca.pem, made.cert.pem().as_bytes());
    let shown = read("empty.pem").unwrap_err().to_string();
    assert!(shown.contains("expected PEM certificates"), "{shown}");
}

#[test]
fn a_tool_without_a_file_gets_every_default() {
    let options = ToolOptions {
        receipt: None,
        listen: Some("127.0.0.1:0".parse().unwrap()),
        admin_listen: Some("127.0.0.1:0".parse().unwrap()),
        ledger: Some("memory:".to_owned()),
    };
    let config = for_tool("http://tool/a$b/", &options).unwrap();
    assert_eq!(&*config.routes[0].upstream.address, "http://tool/a$b");
    assert_eq!((config.listen.port(), config.admin.listen.port()), (0, 0));
    assert_eq!(config.ledger.url, LedgerUrl::Memory);
    assert!(config.routes[0].receipt.is_none() && config.routes[0].policy.receipt.is_none());
    assert!(config.routes[0].matcher.takes_everything());
    let shown = for_tool("tool:80", &options).unwrap_err().to_string();
    assert!(
        shown.starts_with("--tool: routes[0].upstream.url: expected an http:// or https:// URL"),
        "{shown}"
    );
}

#[test]
fn load_reads_the_file_and_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("callgate.yaml");
    std::fs::write(&file, with_route("receipt: {}")).unwrap();
    let config = load(&file).unwrap();
    let ledger = folder.path().join("callgate.db");
    assert_eq!(config.ledger.url, LedgerUrl::Sqlite(ledger));
}

#[test]
fn the_file_of_the_demonstration_is_valid() {
    let text = include_str!("../../../config/demo.yaml");
    let lookup = |name: &str| (name == "DEMO_TOOL").then(|| "http://127.0.0.1:1".to_owned());
    let config = parse(text, "demo.yaml", Path::new("/tmp"), &lookup).unwrap();
    assert_eq!(
        config.ledger.url,
        LedgerUrl::Sqlite("/tmp/callgate.db".into())
    );
    assert_eq!(
        config.routes[0].policy.receipt.unwrap().settle,
        Duration::from_millis(100)
    );
}
