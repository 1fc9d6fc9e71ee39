//! Every crash boundary, with real processes: C21, C34, and the rest of "nothing lost, nothing
//! twice".
//!
//! A story is a tool, a policy and what a caller does; its boundaries are the places at which the
//! process dies in it, one process each. Afterwards a new process takes the ledger, the caller
//! repeats the call as callers do, and then: whatever reached the tool is on record, the call had
//! at most one effect at a tool that counts and knows nothing of ids, what the caller was told is
//! true, and nothing is left open. The names are those of the product's own list, and tidy holds
//! that no boundary of that list is missing here.

mod http2;

use crate::fixture::check::{Limits, check};
use crate::fixture::{Act, Answer, Call, Client, Config, Gateway, PATIENCE, Receipts, Reply};
use crate::fixture::{Script, Tool, ms};
use std::ops::RangeInclusive;
use std::time::Instant;

/// A body that no single write takes whole.
const BODY_BYTES: usize = 48 * 1024;

/// What is played until the process dies.
struct Story {
    script: fn() -> Script,
    policy: fn(Config) -> Config,
    /// How often the caller makes the call, in the life that ends.
    calls: usize,
    /// Where an earlier life ended, if the boundaries are met while starting again.
    earlier: Option<&'static str>,
    /// Whether the tool does the work in the end. It must not when it refuses.
    works: bool,
}

const STORY: Story = Story {
    script: Script::new,
    policy: |config| config,
    calls: 1,
    earlier: None,
    works: true,
};

fn resends(config: Config) -> Config {
    config.set("defaults/compensation/resend", true)
}

/// The line ends soon, and nothing is sent again in it.
fn parks(config: Config) -> Config {
    resends(config)
        .set("defaults/retry/max_retries", 0)
        .set("defaults/timeouts/total", "600ms")
}

/// The answer is lost, and the receipt says PROCESSING for some time.
fn lost_and_found(after_ms: u64) -> Script {
    let receipts = Receipts::Truth {
        from_arrival: true,
        hidden: ms(after_ms),
    };
    let lost = Act::read_all().commit().reset();
    Script::new().request(1, lost).receipts(receipts)
}

#[test]
fn a_healthy_call_survives_a_crash_at_every_boundary() {
    walk(
        &STORY,
        &[
            ("arrived", 1..=1),
            ("claim-written", 1..=1),
            ("claimed", 1..=1),
            ("connected", 1..=1),
            ("mid-request", 1..=1),
            ("sent", 1..=1),
            ("answered", 1..=1),
            ("settling", 1..=1),
            ("settled", 1..=1),
            ("telling", 1..=1),
        ],
    );
}

#[test]
fn a_crash_at_any_commit_loses_nothing() {
    let story = Story {
        script: || Script::new().request(1, Act::read_all().commit().reset()),
        ..STORY
    };
    walk(&story, &[("committing", 1..=6), ("committed", 1..=6)]);
}

#[test]
fn a_refused_call_survives_a_crash_at_every_boundary() {
    let story = Story {
        script: || Script::new().otherwise(Act::says(Reply::json(422, r#"{"no":1}"#))),
        works: false,
        ..STORY
    };
    walk(
        &story,
        &[
            ("answered", 1..=1),
            ("settling", 1..=1),
            ("settled", 1..=1),
            ("telling", 1..=1),
        ],
    );
}

#[test]
fn a_call_whose_answer_was_lost_survives_a_crash_at_every_boundary() {
    let story = Story {
        script: || Script::new().request(1, Act::read_all().commit().reset()),
        ..STORY
    };
    walk(
        &story,
        &[
            ("heard", 1..=1),
            ("settling", 1..=1),
            ("settled", 1..=1),
            ("telling", 1..=1),
        ],
    );
}

#[test]
fn a_resend_survives_a_crash_at_every_boundary() {
    let story = Story {
        script: || Script::new().request(1, Act::read_all().hang()),
        policy: resends,
        ..STORY
    };
    walk(
        &story,
        &[
            ("heard", 1..=2),
            // The backoff, and the rest after the close.
            ("waiting", 1..=2),
            ("closed", 1..=1),
            ("resend-noted", 1..=1),
            // The call, two questions, the resend.
            ("connected", 2..=4),
            ("sent", 2..=4),
            ("answered", 1..=1),
            ("settling", 1..=1),
        ],
    );
}

#[test]
fn a_parked_call_and_its_round_survive_a_crash_at_every_boundary() {
    let story = Story {
        script: || Script::new().request(1, Act::read_all().hang()),
        policy: parks,
        ..STORY
    };
    walk(
        &story,
        &[
            ("timed-out", 1..=1),
            ("parking", 1..=1),
            ("parked", 1..=1),
            ("leased", 1..=1),
            ("closed", 1..=1),
            ("resend-noted", 1..=1),
            ("answered", 1..=1),
            ("settling", 1..=1),
            ("settled", 1..=1),
            ("telling", 1..=2),
        ],
    );
}

#[test]
fn a_round_that_learns_nothing_survives_a_crash_at_every_boundary() {
    let story = Story {
        script: || lost_and_found(1_600),
        policy: parks,
        ..STORY
    };
    walk(
        &story,
        &[("leased", 1..=2), ("parking", 1..=2), ("parked", 1..=2)],
    );
}

#[test]
fn a_late_answer_survives_a_crash_before_it_is_recorded() {
    let story = Story {
        script: || {
            let receipts = Receipts::Truth {
                from_arrival: true,
                hidden: ms(1_500),
            };
            let late = Act::read_all().commit().wait(700).answer_result();
            Script::new().request(1, late).receipts(receipts)
        },
        policy: |config| parks(config).set("defaults/timeouts/total", "400ms"),
        ..STORY
    };
    walk(&story, &[("late-answer", 1..=1)]);
}

#[test]
fn a_streamed_answer_survives_a_crash_before_its_end_is_recorded() {
    let story = Story {
        script: || {
            let mut script = Script::new();
            script.result = Reply::json(200, format!(r#"{{"pad":"{}"}}"#, "x".repeat(20_000)));
            script
        },
        policy: |config| config.set("defaults/body/max_kept_response", "4KiB"),
        ..STORY
    };
    walk(&story, &[("settling", 1..=1), ("streaming", 1..=1)]);
}

#[test]
fn a_repeat_survives_a_crash_at_every_boundary() {
    let replayed = Story { calls: 2, ..STORY };
    walk(&replayed, &[("repeated", 1..=1), ("arrived", 2..=2)]);
    let asked = Story {
        script: || lost_and_found(1_200),
        policy: |config| {
            let far = serde_json::json!(["60s", "120s", "180s"]);
            parks(config).set("defaults/compensation/rounds", far)
        },
        calls: 2,
        ..STORY
    };
    walk(
        &asked,
        &[
            ("repeated", 1..=1),
            ("leased", 1..=1),
            ("parking", 2..=2),
            ("parked", 2..=2),
        ],
    );
}

#[test]
fn a_start_survives_a_crash_at_every_boundary_of_its_sweep() {
    let story = Story {
        script: || Script::new().request(1, Act::read_all().hang()),
        policy: resends,
        earlier: Some("sent"),
        ..STORY
    };
    walk(
        &story,
        &[
            ("sweeping", 1..=1),
            ("swept", 1..=1),
            ("leased", 1..=1),
            ("resend-noted", 1..=1),
        ],
    );
}

/// Dies at every one of these boundaries of a story, for the n-th time each is met.
fn walk(story: &Story, boundaries: &[(&str, RangeInclusive<usize>)]) {
    for (name, times) in boundaries {
        for n in times.clone() {
            let at = format!("{name}:{n}");
            if let Err(why) = die(story, &at) {
                panic!("dying at {at}: {why}");
            }
        }
    }
}

fn call() -> Call {
    Call::with_id("crash").body(format!(r#"{{"pad":"{}"}}"#, "y".repeat(BODY_BYTES)))
}

/// One process that dies there, one that goes on, and what must be true then.
fn die(story: &Story, at: &str) -> Result<(), String> {
    let tool = Tool::start((story.script)().ignores_ids());
    let config = (story.policy)(Config::standard(&tool));
    let mut gateway = Gateway::start_dying(&config, story.earlier.unwrap_or(at));
    let told = live(&mut gateway, story.calls)?;
    if story.earlier.is_some() && gateway.restart_dying(&config, at) {
        until_dead(&mut gateway)?;
    }
    gateway.restart(&config);
    let end = last_word(&gateway);
    quiet(&gateway);
    let effects = tool.e();
    let limits = Limits {
        effects: Some(1),
        ..Limits::default()
    };
    let checked = check(&tool, &mut gateway, limits);
    let mut found = checked.err();
    if (effects == 1) != story.works {
        found = Some(format!("{effects} effects"));
    }
    for answer in told.iter().chain([&end]) {
        let success = (200..300).contains(&answer.status);
        let failure = (400..500).contains(&answer.status) && answer.status != 409;
        if (success && effects == 0) || (failure && effects > 0) {
            found = Some(format!("{effects} effects, told {}", answer.text()));
        }
    }
    match found {
        None => Ok(()),
        Some(found) => Err(format!("{found}\n{}", tool.pages().text())),
    }
}

/// The life that ends: what its caller was told before.
fn live(gateway: &mut Gateway, calls: usize) -> Result<Vec<Answer>, String> {
    let mut told = Vec::new();
    for _ in 0..calls {
        if gateway.has_died() {
            return Ok(told);
        }
        let mut client = Client::connect(gateway.listen);
        client.send(&call());
        match client.try_answer() {
            Ok(answer) => told.extend(Some(answer).filter(|answer| answer.cut.is_none())),
            Err(_) => break,
        }
    }
    until_dead(gateway)?;
    Ok(told)
}

fn until_dead(gateway: &mut Gateway) -> Result<(), String> {
    let deadline = Instant::now() + PATIENCE;
    while !gateway.has_died() {
        if Instant::now() > deadline {
            return Err(format!("never came there\n{}", gateway.log_tail()));
        }
        std::thread::sleep(ms(5));
    }
    Ok(())
}

/// The caller repeats the call until something is known.
fn last_word(gateway: &Gateway) -> Answer {
    gateway.wait_until("the end of the call", || {
        let answer = gateway.call(&call());
        let outcome = answer.outcome();
        let open =
            outcome == "unresolved" || answer.body.windows(11).any(|it| it == b"in-progress");
        let over = gateway.dead_letters().iter().all(is_over);
        (!open || over && answer.status == 504).then_some(answer)
    })
}

fn is_over(row: &serde_json::Value) -> bool {
    let state = row["state"].as_str();
    ["SETTLED", "FAILED", "MANUAL", "DISCARDED", "REVERSED"]
        .iter()
        .any(|over| state == Some(*over))
}

/// Nothing is in flight and nothing waits.
fn quiet(gateway: &Gateway) {
    gateway.wait_until("nothing is open", || {
        let flying = gateway.metrics().value("callgate_calls_in_flight", &[]);
        let open = gateway.dead_letters().iter().any(|row| !is_over(row));
        (flying == 0.0 && !open).then_some(())
    });
}

#[test]
fn a_release_build_has_no_boundary_to_die_at() {
    let binary = std::fs::read(crate::fixture::gateway::BINARY).expect("the binary");
    let names = |text: &[u8]| binary.windows(text.len()).any(|window| window == text);
    assert_eq!(names(b"CALLGATE_CRASH"), cfg!(debug_assertions));
}
