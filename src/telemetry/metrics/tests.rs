//! The exposition, read back by a parser that accepts nothing it does not know.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::call::code::Code;

/// A strict reader of the text format: every line is understood, every family is announced with
/// help and type before its samples and never again, no series and no label appears twice.
fn parse(text: &str) -> BTreeMap<String, f64> {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut families, mut series) = (BTreeSet::new(), BTreeMap::new());
    let (mut helped, mut current, mut kind) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split_once(' ').expect("a help text").0.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect("a type");
            assert_eq!(name, helped, "help stands before type");
            assert!(
                families.insert(name.to_owned()),
                "{name} is announced twice"
            );
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            (current, kind) = (name.to_owned(), of.to_owned());
        } else {
            let (key, value) = sample(line);
            let name = key.split('{').next().expect("a name");
            let suffix = name
                .strip_prefix(current.as_str())
                .expect("a sample of its family");
            let allowed: &[&str] = if kind == "histogram" {
                &["_bucket", "_sum", "_count"]
            } else {
                &[""]
            };
            assert!(allowed.contains(&suffix), "{line}");
            assert!(series.insert(key, value).is_none(), "{line} is there twice");
        }
    }
    series
}

fn sample(line: &str) -> (String, f64) {
    let (key, value) = line.rsplit_once(' ').expect("a value");
    let value: f64 = value.parse().expect("a number");
    if let Some((name, labels)) = key.split_once('{') {
        assert!(is_ident(name), "{line}");
        let mut rest = labels.strip_suffix('}').expect("a closing brace");
        let mut seen = BTreeSet::new();
        while !rest.is_empty() {
            let (label, after) = rest.split_once("=\"").expect("a quoted value");
            assert!(is_ident(label) && seen.insert(label), "{line}");
            rest = after_quote(after).trim_start_matches(',');
        }
    } else {
        assert!(is_ident(key), "{line}");
    }
    (key.to_owned(), value)
}

/// What follows the closing quote of a label value.
fn after_quote(text: &str) -> &str {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => {
                assert!(matches!(c, 'n' | '"' | '\\'), "{text}");
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return &text[at + 1..],
            _ => {}
        }
    }
    panic!("no closing quote: {text}")
}

fn is_ident(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[test]
fn two_gateways_and_twenty_loads_share_a_process_and_a_strict_parser_reads_them() {
    let (one, two) = (Metrics::new("0.1.0"), Metrics::new("0.1.0"));
    for _ in 0..20 {
        one.route("orders").calls.inc(Word::Answered);
        one.reloaded(Reload::Success);
        one.keep_routes(&["orders"]);
    }
    two.route("orders").calls.inc(Word::Refused);
    let (one, two) = (parse(&one.render()), parse(&two.render()));
    let answered = "callgate_calls_total{outcome=\"answered\",route=\"orders\"}";
    assert_eq!((one[answered], two[answered]), (20.0, 0.0));
    assert_eq!(
        one["callgate_config_reloads_total{result=\"success\"}"],
        20.0
    );
    assert_eq!(one["callgate_config_last_reload_successful"], 1.0);
    assert_eq!(one["callgate_build_info{version=\"0.1.0\"}"], 1.0);
}

#[test]
fn every_name_is_exported_from_the_first_scrape_on_and_no_other() {
    let metrics = Metrics::new("0.1.0");
    let _route = metrics.route("orders");
    metrics.set_dead_letters(&[]);
    let series = parse(&metrics.render());
    let base = |key: &String| {
        let name = key.split('{').next().expect("a name").to_owned();
        let cut = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|s| name.strip_suffix(s));
        cut.map_or_else(|| name.clone(), str::to_owned)
    };
    let exported: BTreeSet<String> = series
        .keys()
        .map(base)
        .filter(|n| n.starts_with("callgate_"))
        .collect();
    let named: BTreeSet<String> = names::ALL.iter().map(|n| n.name.to_owned()).collect();
    assert_eq!(exported, named);
    assert!(
        series.keys().any(|k| k.starts_with("process_")),
        "the process collector is there"
    );
}

#[test]
fn traffic_adds_no_series_and_similar_routes_do_not_merge() {
    let metrics = Metrics::new("0.1.0");
    // Written without a separator, these routes and words could meet.
    let routes = ["orders", "sorders", "d", "5xx", "answered", "\"quoted\"\\"];
    let handles = routes.map(|name| metrics.route(name));
    let before = parse(&metrics.render()).len();
    for (at, route) in handles.iter().enumerate() {
        for _ in 0..=at {
            route.calls.inc(Word::Refused);
            route.refused.inc(Code::NoRoute);
            route.refused.inc(Refusal::Malformed);
            route.told(Word::Answered, None, Duration::from_millis(3));
        }
        for label in Answer::all() {
            route.receipts.inc(label);
        }
    }
    let after = parse(&metrics.render());
    assert_eq!(after.len(), before);
    for (at, name) in routes.iter().enumerate() {
        let name = name.replace('\\', "\\\\").replace('"', "\\\"");
        let key = format!("callgate_calls_total{{outcome=\"refused\",route=\"{name}\"}}");
        assert_eq!(after[&key], (at + 1) as f64, "{key}");
        let key = format!("callgate_receipt_queries_total{{route=\"{name}\",state=\"NOT_FOUND\"}}");
        assert_eq!(after[&key], 1.0, "{key}");
    }
}

#[test]
fn a_call_is_in_flight_while_its_guard_lives() {
    let route = RouteMetrics::detached();
    let guards = [route.in_flight(), route.in_flight()];
    assert_eq!(route.in_flight_now(), 2);
    drop(guards);
    assert_eq!(route.in_flight_now(), 0);
}

#[test]
fn dead_letters_of_removed_routes_are_gone_and_empty_states_are_zero() {
    let metrics = Metrics::new("0.1.0");
    for name in ["orders", "old", "older"] {
        let _handles = metrics.route(name);
    }
    let open = |route: &str, state, count, oldest| OpenDeadLetters {
        route: route.to_owned(),
        state,
        count,
        oldest: Duration::from_secs(oldest),
    };
    metrics.set_dead_letters(&[open("old", OpenState::Manual, 4, 9)]);
    metrics.keep_routes(&["orders"]);
    metrics.set_dead_letters(&[
        open("orders", OpenState::Queued, 2, 60),
        open("old", OpenState::Manual, 4, 9),
        open("older", OpenState::Manual, 1, 7),
    ]);
    let series = parse(&metrics.render());
    let count = |route, state| {
        series
            .get(&format!(
                "callgate_dead_letters{{route=\"{route}\",state=\"{state}\"}}"
            ))
            .copied()
    };
    assert_eq!(count("orders", "QUEUED"), Some(2.0));
    assert_eq!(count("orders", "MANUAL"), Some(0.0));
    assert_eq!(count("gone", "MANUAL"), Some(5.0));
    assert_eq!(count("old", "MANUAL"), None);
    assert_eq!(
        series["callgate_dead_letter_oldest_seconds{route=\"orders\"}"],
        60.0
    );
    assert_eq!(
        series["callgate_dead_letter_oldest_seconds{route=\"gone\"}"],
        9.0
    );
}
