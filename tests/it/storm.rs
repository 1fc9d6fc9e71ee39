//! Under storm: overload by one client, two hundred callers who drip, and a quiet client beside
//! them. What must hold: nothing is done twice or lost, and memory stays under the formula. What
//! `tests/run soak` also measures, on a machine that has nothing else to do: the quiet client's
//! latency, and how soon the usual throughput is back. (`CALLGATE_STORM_S`: how long; 60 there.)

use crate::fixture::gateway::folder;
use crate::fixture::{Act, BINARY, Call, Client, Script, World, ms};
use serde_json::json;
use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NOISY: &str = "noisy-key-0123456789";
const QUIET: &str = "quiet-key-0123456789";

/// The tool takes so many at once and so long: two hundred calls a second.
const PLACES: usize = 8;
const WORK: Duration = ms(40);

/// Five times as much: so many callers, each so often.
const NOISY_CALLERS: usize = 50;
const NOISY_EVERY: Duration = ms(50);

const QUIET_CALLERS: usize = 2;
const QUIET_EVERY: Duration = ms(100);

const DRIPPERS: usize = 200;
const DRIP_EVERY: Duration = ms(100);

/// What the callers were told, by status; and which calls were told done.
#[derive(Default)]
struct Told {
    by_status: Mutex<HashMap<u16, usize>>,
    done: Mutex<Vec<String>>,
}

impl Told {
    fn note(&self, status: u16, id: &str) {
        let mut by_status = self.by_status.lock().expect("no caller panicked");
        *by_status.entry(status).or_default() += 1;
        if status == 201 {
            self.done
                .lock()
                .expect("no caller panicked")
                .push(id.to_owned());
        }
    }
}

#[test]
fn a_storm_doubles_nothing_loses_nothing_and_leaves_the_quiet_alone() {
    let measured = std::env::var("CALLGATE_STORM_S").ok();
    let length = measured
        .as_deref()
        .map_or(6, |text| text.parse().expect("seconds"));
    let length = Duration::from_secs(length);
    drop(rlimit::increase_nofile_limit(4096));
    let (world, _keys) = stormy();
    let told = Told::default();
    let alone = quiet(&world, &told, "alone", length / 2);
    let before = throughput(&world, &told, "before", ms(1500));
    let (during, dripped) = storm(&world, &told, length);
    let back = Instant::now();
    let mut after = Vec::new();
    while back.elapsed() < ms(2000) {
        after.push(throughput(
            &world,
            &told,
            &format!("after-{}", after.len()),
            ms(500),
        ));
    }
    let (most, bound) = (world.gateway.memory("VmHWM:"), bound_of(&world));
    let by_status = told.by_status.lock().expect("no caller panicked").clone();
    eprintln!(
        "storm of {length:?}: told {by_status:?}; {dripped} drippers cut off\n\
         quiet p50/p99: alone {:?}/{:?}, in the storm {:?}/{:?}\n\
         throughput: before {before:.0}/s, after {after:.0?}/s\n\
         memory: at most {} MiB, by the formula {} MiB",
        at(&alone, 50),
        at(&alone, 99),
        at(&during, 50),
        at(&during, 99),
        most >> 20,
        bound >> 20,
    );
    assert!(most < bound, "{most} bytes, {bound} by the formula");
    assert!(
        by_status.keys().all(|it| matches!(it, 201 | 503 | 504)),
        "{by_status:?}"
    );
    assert!(
        by_status.get(&503) > by_status.get(&201),
        "no storm: {by_status:?}"
    );
    nothing_lost(&world, &told);
    if measured.is_some() {
        assert!(
            at(&during, 99) < at(&alone, 99) * 2,
            "the quiet client suffers"
        );
        let usual = after.iter().any(|now| *now > before * 0.8);
        assert!(usual, "before {before}, after {after:?}");
    }
}

/// A tool that takes its time and counts twice what comes twice, and a gateway that spares it.
fn stormy() -> (World, TempDir) {
    let work = u64::try_from(WORK.as_millis()).expect("milliseconds");
    let script = Script::new().otherwise(Act::read_all().wait(work).commit().answer_result());
    let keys = folder();
    let file = |name: &str, key: &str| {
        let path = keys.path().join(name);
        std::fs::write(&path, key).expect("a key file can be written");
        path.display().to_string()
    };
    let clients = json!([
        { "name": "noisy", "key_file": file("n", NOISY) },
        { "name": "quiet", "key_file": file("q", QUIET) },
    ]);
    let world = World::with(script.ignores_ids(), |config| {
        config
            .slow(10)
            .set("workers", 0)
            .set("clients", clients)
            .set("limits/connections", 400)
            .set("limits/header_timeout", "2s")
            .set("limits/bodies", "16MiB")
            .set("ledger/queue", 256)
            .route(
                "upstream/concurrency",
                json!({ "max": PLACES, "queue": 2 * PLACES }),
            )
    })
    .without_history();
    (world, keys)
}

fn call(key: &str, id: &str) -> Call {
    Call::with_id(id).field("X-Api-Key", key)
}

/// The quiet client at its steady pace; how long its calls took, sorted.
fn quiet(world: &World, told: &Told, name: &str, length: Duration) -> Vec<Duration> {
    let until = Instant::now() + length;
    let took = Mutex::new(Vec::new());
    std::thread::scope(|threads| {
        for caller in 0..QUIET_CALLERS {
            let took = &took;
            threads.spawn(move || {
                let mut client = world.gateway.client();
                for n in 0.. {
                    let began = Instant::now();
                    if began >= until {
                        return;
                    }
                    let id = format!("quiet-{name}-{caller}-{n}");
                    let status = client.call(&call(QUIET, &id)).status;
                    told.note(status, &id);
                    assert_eq!(status, 201, "the quiet client's {id}");
                    took.lock()
                        .expect("no caller panicked")
                        .push(began.elapsed());
                    std::thread::sleep(QUIET_EVERY.saturating_sub(began.elapsed()));
                }
            });
        }
    });
    let mut took = took.into_inner().expect("no caller panicked");
    took.sort();
    took
}

/// As many callers as the tool has places for, as fast as they are answered: calls done a second.
fn throughput(world: &World, told: &Told, name: &str, length: Duration) -> f64 {
    let (done, began) = (AtomicUsize::new(0), Instant::now());
    std::thread::scope(|threads| {
        for caller in 0..PLACES {
            let done = &done;
            threads.spawn(move || {
                let mut client = world.gateway.client();
                for n in 0.. {
                    if began.elapsed() >= length {
                        return;
                    }
                    let id = format!("usual-{name}-{caller}-{n}");
                    let status = client.call(&call(NOISY, &id)).status;
                    told.note(status, &id);
                    done.fetch_add(usize::from(status == 201), SeqCst);
                }
            });
        }
    });
    done.into_inner() as f64 / began.elapsed().as_secs_f64()
}

/// The storm; what the quiet client saw of it, and how many drippers were cut off.
fn storm(world: &World, told: &Told, length: Duration) -> (Vec<Duration>, usize) {
    let over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let over = &over;
        for caller in 0..NOISY_CALLERS {
            threads.spawn(move || noise(world, told, caller, over));
        }
        let dripping = threads.spawn(move || drip(world.gateway.listen, over));
        let during = quiet(world, told, "storm", length);
        over.store(true, SeqCst);
        (during, dripping.join().expect("no dripper panicked"))
    })
}

/// Calls at a pace that does not heed how they end.
fn noise(world: &World, told: &Told, caller: usize, over: &AtomicBool) {
    let mut client = world.gateway.client();
    let mut next = Instant::now();
    for n in 0.. {
        if over.load(SeqCst) {
            return;
        }
        let id = format!("noise-{caller}-{n}");
        told.note(client.call(&call(NOISY, &id)).status, &id);
        next += NOISY_EVERY;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Callers who never finish: a head or a body, a byte at a time, and again when they are cut off.
fn drip(address: SocketAddr, over: &AtomicBool) -> usize {
    let heads = [
        &b"POST /tool HTTP/1.1\r\nHost: tools.test\r\nX-Slow: "[..],
        b"POST /tool HTTP/1.1\r\nHost: tools.test\r\nX-Api-Key: noisy-key-0123456789\r\n\
          Content-Length: 100000\r\n\r\n",
    ];
    let open = |n: usize| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.write_all(heads[n % heads.len()]).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    let mut lines: Vec<Option<TcpStream>> = (0..DRIPPERS).map(open).collect();
    let mut cut_off = 0;
    while !over.load(SeqCst) {
        let round = Instant::now();
        for (n, line) in lines.iter_mut().enumerate() {
            let alive = line.as_mut().is_some_and(|stream| {
                let wrote = stream.write(b"x").is_ok();
                let silent = match stream.read(&mut [0; 512]) {
                    Err(error) => error.kind() == ErrorKind::WouldBlock,
                    // A refusal is an answer too.
                    Ok(_) => false,
                };
                wrote && silent
            });
            if !alive {
                cut_off += 1;
                *line = open(n);
            }
        }
        std::thread::sleep(DRIP_EVERY.saturating_sub(round.elapsed()));
    }
    cut_off
}

/// Each call that was told done was done, none was done twice, and what was refused was not done.
fn nothing_lost(world: &World, told: &Told) {
    world
        .gateway
        .wait_metric("callgate_calls_in_flight", &[], 0.0);
    let mut effects: HashMap<String, usize> = HashMap::new();
    for id in &world.tool.pages().effects {
        *effects.entry(id.clone()).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, n)| **n != 1).collect();
    assert!(twice.is_empty(), "done more than once: {twice:?}");
    let done = told.done.lock().expect("no caller panicked");
    let lost: Vec<_> = done
        .iter()
        .filter(|id| !effects.contains_key(*id))
        .collect();
    assert!(lost.is_empty(), "told done and not done: {lost:?}");
    // What was told as unresolved is with the gateway; everything else that was done was told.
    let parked = world.gateway.dead_letters().len();
    let untold = effects.len() - done.len();
    assert!(
        untold <= parked,
        "{untold} done and not told, {parked} in the queue"
    );
}

fn at(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted
        .len()
        .checked_sub(1)
        .expect("the quiet client made calls");
    sorted[(sorted.len() * percent / 100).min(last)]
}

/// The most that the process may take, as `callgate check` has it.
pub(crate) fn bound_of(world: &World) -> u64 {
    let checked = Command::new(BINARY)
        .args(["check", "--print", "--config"])
        .arg(world.gateway.config_file())
        .output()
        .expect("the command runs");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    let mib = text
        .split("at most about ")
        .nth(1)
        .and_then(|it| it.split(' ').next());
    let mib: u64 = mib
        .and_then(|it| it.parse().ok())
        .unwrap_or_else(|| panic!("{text}"));
    mib << 20
}

/// A caller that sends and leaves.
pub(crate) fn leaves(world: &World, call: &Call) {
    let mut client: Client = world.gateway.client();
    client.send(call);
}
