//! The boundaries that another protocol to the tool moves, walked over HTTP/2: what has left is
//! known there by frames, and what is closed is one stream among others.

use super::{PATIENCE, call, last_word, ms, quiet, resends, until_dead};
use crate::fixture::{Came, Client, Config, Deed, Gateway, Tool2};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// What the tool does with the `n`-th send of the call, from 0.
type Script = fn(usize) -> Deed;

fn works(_: usize) -> Deed {
    Deed::work(Deed::Answer(201, r#"{"done":true}"#))
}

/// Done, and nobody is told.
fn loses_its_answer(n: usize) -> Deed {
    match n {
        0 => Deed::work(Deed::Reset(h2::Reason::INTERNAL_ERROR)),
        _ => works(n),
    }
}

/// Nothing of the first send is ever done.
fn hangs(n: usize) -> Deed {
    match n {
        0 => Deed::Hang,
        _ => works(n),
    }
}

/// Done in time, and told late.
fn is_late(n: usize) -> Deed {
    match n {
        0 => Deed::work(Deed::After(ms(700), Box::new(Deed::Answer(201, "{}")))),
        _ => works(n),
    }
}

fn walk(
    script: Script,
    policy: fn(Config) -> Config,
    boundaries: &[(&str, RangeInclusive<usize>)],
) {
    for (name, times) in boundaries {
        for n in times.clone() {
            let at = format!("{name}:{n}");
            if let Err(why) = die(script, policy, &at) {
                panic!("dying at {at}: {why}");
            }
        }
    }
}

/// One process that dies there, one that goes on, and what must be true then.
fn die(script: Script, policy: fn(Config) -> Config, at: &str) -> Result<(), String> {
    let tool = Tool2::start(
        move |came, before| match came.path.starts_with("/receipts/") {
            true => Deed::Truth,
            false => script(before),
        },
    );
    let config = Config::for_address(tool.address).route("upstream/protocol", "http2");
    let config = policy(config);
    let mut gateway = Gateway::start_dying(&config, at);
    let mut client = Client::connect(gateway.listen);
    client.set_patience(PATIENCE);
    client.send(&call());
    let told = client
        .try_answer()
        .ok()
        .filter(|answer| answer.cut.is_none());
    until_dead(&mut gateway)?;
    gateway.restart(&config);
    let end = last_word(&gateway);
    quiet(&gateway);
    let effects = tool.effects().len();
    if effects != 1 {
        return Err(format!("{effects} effects"));
    }
    for answer in told.iter().chain([&end]) {
        if (400..500).contains(&answer.status) {
            return Err(format!("done, and told {}", answer.text()));
        }
    }
    on_record(&gateway, &tool.of("/tool"))
}

/// Every send that the tool saw stands in the history, under a number of its own.
fn on_record(gateway: &Gateway, sends: &[Came]) -> Result<(), String> {
    let history = gateway.history("crash");
    let attempts = history["attempts"].as_array().expect("a list");
    let noted: BTreeSet<_> = attempts
        .iter()
        .filter_map(|one| one["n"].as_u64())
        .collect();
    let seen: BTreeSet<u64> = sends
        .iter()
        .map(|came| {
            assert_eq!(came.headers["x-call-id"], "crash");
            let number = came.headers["x-call-attempt"].to_str().expect("text");
            number.parse().expect("a number")
        })
        .collect();
    match seen.len() == sends.len() && seen.is_subset(&noted) {
        true => Ok(()),
        false => Err(format!("sent {seen:?} of {}, noted {history}", sends.len())),
    }
}

#[test]
fn a_healthy_call_over_http2_survives_a_crash_at_every_boundary() {
    walk(
        works,
        |config| config,
        &[
            ("claimed", 1..=1),
            ("connected", 1..=1),
            ("mid-request", 1..=4),
            ("sent", 1..=1),
            ("answered", 1..=1),
            ("settling", 1..=1),
            ("telling", 1..=1),
        ],
    );
}

#[test]
fn a_call_over_http2_whose_stream_broke_survives_a_crash_at_every_boundary() {
    walk(
        loses_its_answer,
        resends,
        &[("heard", 1..=1), ("settling", 1..=1)],
    );
}

#[test]
fn a_resend_over_http2_survives_a_crash_at_every_boundary() {
    walk(
        hangs,
        resends,
        &[
            ("timed-out", 1..=1),
            ("heard", 1..=2),
            ("closed", 1..=1),
            ("resend-noted", 1..=1),
            ("sent", 2..=2),
            ("answered", 1..=1),
        ],
    );
}

#[test]
fn a_late_answer_over_http2_survives_a_crash_before_it_is_recorded() {
    walk(is_late, |config| config, &[("late-answer", 1..=1)]);
}
