//! Restart after restart under load: no request fails, and nobody waits long.
//!
//! Callers keep a pace, whatever becomes of their requests: half of them on connections they keep,
//! half on new ones; half with effects, half without. A kept connection that was closed or asked to
//! be is not used again, as pools do it; nothing is ever repeated. `CALLGATE_TAKEOVERS` and
//! `CALLGATE_TAKEOVER_RATE` say how many restarts and how many requests a second (`tests/run soak`:
//! 10 and 500).

use super::Living;
use crate::fixture::{Act, Call, Client, Script, Tool};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CALLERS: usize = 20;

/// Between two restarts: callers settle down on their kept connections again.
const BETWEEN: Duration = Duration::from_millis(1_000);

/// What the callers saw.
#[derive(Default)]
struct Seen {
    over: AtomicBool,
    calls: AtomicUsize,
    failed: Mutex<Vec<String>>,
    /// When each request began and how long it took.
    took: Mutex<Vec<(Instant, Duration)>>,
}

struct Caller<'a> {
    seen: &'a Seen,
    address: SocketAddr,
    n: usize,
    kept: Option<(TcpStream, Client)>,
}

impl Caller<'_> {
    fn live(&mut self, every: Duration) {
        let began = Instant::now();
        for turn in 0.. {
            let due = began + every * turn;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if self.seen.over.load(Ordering::SeqCst) {
                return;
            }
            self.ask(turn);
        }
    }

    fn ask(&mut self, turn: u32) {
        let keeps = self.n.is_multiple_of(2);
        let call = if turn.is_multiple_of(2) {
            Call::with_id(&format!("c-{}-{turn}", self.n))
        } else {
            Call::get("/tool")
        };
        let began = Instant::now();
        let (stream, mut client) = match self.kept.take().filter(|(stream, _)| is_open(stream)) {
            Some(kept) => kept,
            None => {
                let stream = TcpStream::connect(self.address).expect("somebody listens, always");
                let spare = stream.try_clone().expect("a socket can be cloned");
                (spare, Client::over(stream))
            }
        };
        let sent_after = began.elapsed();
        client.send(&call);
        match client.try_answer() {
            Ok(answer) if answer.status == 201 && answer.cut.is_none() => {
                let asked_to_leave = answer.field("connection").is_some();
                if keeps && !asked_to_leave {
                    self.kept = Some((stream, client));
                }
            }
            other => {
                let what = match other {
                    Ok(answer) => answer.text(),
                    Err(cut) => format!("{cut:?}"),
                };
                let what = format!(
                    "caller {} turn {turn}, {sent_after:?} + {:?}: {what}",
                    self.n,
                    began.elapsed()
                );
                self.seen.failed.lock().expect("not poisoned").push(what);
            }
        }
        self.seen.calls.fetch_add(1, Ordering::SeqCst);
        let mut took = self.seen.took.lock().expect("not poisoned");
        took.push((began, began.elapsed()));
    }
}

/// Whether the other side has not closed it.
fn is_open(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a socket");
    let mut one = [0; 1];
    let peeked = stream.peek(&mut one).map_err(|error| error.kind());
    let open = peeked == Err(ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("a socket");
    open
}

fn number(name: &str, default: u32) -> u32 {
    let told = std::env::var(name).ok();
    told.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn restart_after_restart_under_load_fails_no_request() {
    let restarts = number("CALLGATE_TAKEOVERS", 3);
    let rate = number("CALLGATE_TAKEOVER_RATE", 100);
    let tool = Tool::start(Script::new().otherwise(Act::works()));
    let mut living = Living::start(&super::patient(&tool));
    let seen = Seen::default();
    let began = Instant::now();
    let switches = under_load(&mut living, &seen, restarts, rate);
    seen.judge(began.elapsed(), (&switches, rate), &living);
    done_once(&tool);
    for n in 1..=switches.len() {
        super::in_time(&living.said("the ledger was let go", n));
    }
    assert!(living.first_ends().success());
    living.end();
}

/// From when to when each switch took.
type Switches = Vec<(Instant, Instant)>;

fn under_load(living: &mut Living, seen: &Seen, restarts: u32, rate: u32) -> Switches {
    let every = Duration::from_secs(1) * u32::try_from(CALLERS).expect("few") / rate;
    let address = living.listen;
    std::thread::scope(|scope| {
        for n in 0..CALLERS {
            scope.spawn(move || {
                // They do not ask in step.
                std::thread::sleep(every * u32::try_from(n).expect("few") / 20);
                let kept = None;
                let mut caller = Caller {
                    seen,
                    address,
                    n,
                    kept,
                };
                caller.live(every);
            });
        }
        let _home = Home(seen);
        let mut switches = Vec::new();
        for _ in 0..restarts {
            std::thread::sleep(BETWEEN);
            let from = Instant::now();
            living.hand_over();
            switches.push((from, Instant::now()));
        }
        std::thread::sleep(BETWEEN);
        switches
    })
}

impl Seen {
    /// Nobody failed, and nobody waited long.
    fn judge(&self, lasted: Duration, (switches, rate): (&Switches, u32), living: &Living) {
        let calls = self.calls.load(Ordering::SeqCst);
        let came = f64::from(u32::try_from(calls).expect("few")) / lasted.as_secs_f64();
        let failed = self.failed.lock().expect("not poisoned");
        let took = self.took.lock().expect("not poisoned");
        let during = |at: &Instant| switches.iter().any(|(from, to)| (from..=to).contains(&at));
        let in_switch = took.iter().filter(|(at, _)| during(at));
        let mut in_switch: Vec<Duration> = in_switch.map(|(_, took)| *took).collect();
        in_switch.sort_unstable();
        let p99 = in_switch[(in_switch.len() - 1) * 99 / 100];
        let longest = took.iter().map(|(_, took)| *took).max();
        println!(
            "{} restarts, {calls} requests ({came:.0}/s of {rate}/s), {} of them during the \
             switches: {} failed, p99 of the switch {p99:?}, longest of all {:?}",
            switches.len(),
            in_switch.len(),
            failed.len(),
            longest.unwrap_or_default(),
        );
        let log = living.log.tail();
        assert!(failed.is_empty(), "{}\n{log}", failed.join("\n"));
        let slack = if cfg!(debug_assertions) { 2 } else { 1 };
        let most = slack * Duration::from_secs(2);
        assert!(p99 < most, "p99 of the switch: {p99:?}");
    }
}

/// Each call with effects was sent once.
fn done_once(tool: &Tool) {
    let mut sends: HashMap<Vec<u8>, usize> = HashMap::new();
    for request in &tool.pages().requests {
        if request.head.method() == "POST" {
            *sends.entry(request.id()).or_default() += 1;
        }
    }
    assert!(!sends.is_empty() && sends.values().all(|times| *times == 1));
}

/// Sends the callers home when the test ends before its end.
struct Home<'a>(&'a Seen);

impl Drop for Home<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::SeqCst);
    }
}
