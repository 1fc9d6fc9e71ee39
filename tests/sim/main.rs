//! The real `flow` and `call` in seeded worlds: a lossy network, tools of many kinds, callers that
//! repeat and leave, files that are pushed, a disk that fails, a gateway that is killed anywhere.
//!
//! Everything above the sockets and below the callers' door is the product's own code, over virtual
//! time. A world that breaks a promise prints its seed and is told again, line by line. Seeds worth
//! keeping are always replayed. Deliberately absent: real sockets, threads and disks (`tests/it`).

mod batches;
mod callers;
mod check;
mod dice;
mod disk;
mod files;
mod gateway;
mod jobs;
mod names;
mod net;
mod outage;
mod pipe;
mod plan;
mod promise;
mod route;
mod several;
mod tool;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use check::Reached;
use gateway::{Ended, live};
use plan::Plan;
use world::World;

/// Schedules of an ordinary run; `CALLGATE_SIM_SCHEDULES` names another number.
const SCHEDULES: u64 = 2_000;
/// The most broken worlds that are told.
const TOLD_MAX: usize = 3;

/// Worlds that once broke a promise, and how.
const KEPT: [(u64, &str); 13] = [
    (
        6_855,
        "a success that could not be recorded was parked as never sent",
    ),
    (22_134, "the same, told to a caller"),
    (907, "never-sent was told though it could not be recorded"),
    (
        73,
        "a call whose park could not be recorded stayed in line for ever",
    ),
    (
        10_164,
        "a late refusal of one attempt ended a call that was sent again since",
    ),
    (
        1_780,
        "a row that was done was REFUSED, because its late answer was too large to keep",
    ),
    (
        21_245,
        "a call that had waited for another of its key was recorded at one address and sent to \
         another",
    ),
    (
        25_481,
        "a round believed NOT_FOUND beside an exchange that another gateway had still open",
    ),
    (
        29_859,
        "operators wanted a job of a gateway that was letting go: nobody was left to do it",
    ),
    (78_845, "the same, and the job was half done"),
    (
        11_977,
        "every round of a call that was promised found all addresses ejected, and none tried one",
    ),
    (
        968,
        "NOT_FOUND was believed of a call that the tool had recognised before",
    ),
    (
        1_067,
        "a round sent a call again whose streamed answer had begun to reach its caller",
    ),
];

/// Lets one world run to its end; what was broken, and the story when it is wanted.
fn run(seed: u64, told: bool) -> (Vec<String>, Vec<String>, Reached) {
    let plan = Plan::of(seed);
    let mut ends = plan.ends.clone().into_iter();
    let world = World::new(plan, told);
    while live(&world, ends.next()) == Ended::Killed {}
    let mut state = world.lock();
    state.all_holds();
    state.jobs_are_whole();
    let truth = std::mem::take(&mut state.truth);
    let mut story = std::mem::take(&mut state.story.lines);
    if told {
        story.insert(0, format!("{:#?}", state.plan));
        for id in truth.calls.keys() {
            story.push(format!("{id}: {:#?}", state.row(id)));
        }
    }
    (truth.broken, story, truth.reached)
}

/// Tells the story of a broken world.
fn tell(seed: u64, broken: &[String]) -> String {
    let (again, story, _) = run(seed, true);
    let same = if again.len() == broken.len() {
        ""
    } else {
        "\n(told again it went otherwise: build with --cfg tokio_unstable)"
    };
    format!(
        "seed {seed}\n{}\n{}{same}\n",
        story.join("\n"),
        broken.join("\n")
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn kept_worlds_hold() {
    for (seed, why) in KEPT {
        let (broken, ..) = run(seed, false);
        assert!(broken.is_empty(), "{why}\n{}", tell(seed, &broken));
    }
}

#[test]
fn every_promise_holds_in_every_world() {
    let first = number("CALLGATE_SIM_SEED").unwrap_or(1);
    if std::env::var("CALLGATE_SIM_TOLD").is_ok_and(|told| !told.is_empty()) {
        println!("{}", tell(first, &run(first, false).0));
    }
    let schedules = number("CALLGATE_SIM_SCHEDULES").unwrap_or(SCHEDULES);
    let next = AtomicU64::new(first);
    let broken: Mutex<Vec<(u64, Vec<String>)>> = Mutex::default();
    let reached: Mutex<Reached> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut here = Reached::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + schedules {
                        break;
                    }
                    let (found, _, places) = run(seed, false);
                    here.add(&places);
                    if !found.is_empty() {
                        broken.lock().expect("no panic").push((seed, found));
                    }
                }
                reached.lock().expect("no panic").add(&here);
            });
        }
    });
    let reached = reached.into_inner().expect("no panic");
    println!(
        "{schedules} schedules from seed {first} on: {:?}",
        reached.0
    );
    let mut broken = broken.into_inner().expect("no panic");
    broken.sort();
    let stories: Vec<String> = broken
        .iter()
        .take(TOLD_MAX)
        .map(|(seed, found)| tell(*seed, found))
        .collect();
    let list: Vec<String> = broken
        .iter()
        .map(|(seed, found)| format!("{seed}: {}", found[0]))
        .collect();
    assert!(
        broken.is_empty(),
        "{}\n{} of {schedules} worlds broke a promise:\n{}",
        stories.join("\n"),
        broken.len(),
        list.join("\n")
    );
}
