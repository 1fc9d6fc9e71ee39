//! Windows by the calendar, and calls that are repeated past the end of theirs, in virtual time.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::call::code::{Code, Word};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::clock::{Clock, WallStep};
use crate::config;
use crate::entropy::Entropy;
use crate::flow::told::Told;
use crate::flow::{ClientNames, Flow, LateRegistry, Prefer, Promises, Request, Retries, Routes};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{Ledger, Owner};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use crate::upstream::headers::{Caller, Node};
use crate::upstream::{Core, Pipe, StandIn};

/// The keys of `{text}{window}` first seen at these times, in Berlin.
fn keys(window: Piece, times: &[&str]) -> Vec<String> {
    let windowed = Windowed {
        pieces: Arc::from([Piece::Text("p-".into()), window]),
        zone: TimeZone::get("Europe/Berlin").unwrap(),
        hash: KeyHash::Plain,
    };
    let made = times.iter().map(|time| {
        let at: Timestamp = time.parse().unwrap();
        let key = windowed.at(Wall(at.as_millisecond())).unwrap();
        key.text.to_string()
    });
    made.collect()
}

#[test]
fn a_day_is_a_local_date_however_long() {
    let times = [
        // Midnight in Berlin is an hour or two earlier than in Greenwich.
        "2026-01-31T22:59:59.999Z",
        "2026-01-31T23:00:00Z",
        // The day with 23 hours,
        "2026-03-28T22:59:59Z",
        "2026-03-28T23:00:00Z",
        "2026-03-29T21:59:59Z",
        "2026-03-29T22:00:00Z",
        // and the one with 25.
        "2026-10-24T22:00:00Z",
        "2026-10-25T22:59:59Z",
        "2026-10-25T23:00:00Z",
    ];
    let days = [
        "2026-01-31",
        "2026-02-01",
        "2026-03-28",
        "2026-03-29",
        "2026-03-29",
        "2026-03-30",
        "2026-10-25",
        "2026-10-25",
        "2026-10-26",
    ];
    assert_eq!(keys(Piece::Day, &times), days.map(|day| format!("p-{day}")));
}

#[test]
fn a_minute_that_comes_twice_is_two_minutes() {
    let times = [
        "2026-10-25T00:30:00Z",
        "2026-10-25T00:30:59.999Z",
        "2026-10-25T01:30:00Z",
        "2026-10-25T01:31:00Z",
    ];
    let minutes = [
        "p-2026-10-25T02:30+0200",
        "p-2026-10-25T02:30+0200",
        "p-2026-10-25T02:30+0100",
        "p-2026-10-25T02:31+0100",
    ];
    assert_eq!(keys(Piece::Minute, &times), minutes);
}

#[test]
fn no_clock_is_beyond_a_window() {
    let windowed = Windowed {
        pieces: Arc::from([Piece::Day]),
        zone: TimeZone::UTC,
        hash: KeyHash::Plain,
    };
    for (at, day) in [
        (i64::MAX, "9999-12-30"),
        (-1, "1969-12-31"),
        (0, "1970-01-01"),
    ] {
        assert_eq!(&*windowed.at(Wall(at)).unwrap().text, day);
    }
}

/// 23:59:59 in Berlin.
const LATE: &str = "2026-11-30T22:59:59Z";

/// A gateway before a tool that answers 200, at the end of a day.
struct World {
    flow: Arc<Flow>,
    core: Core,
    wall: WallStep,
    /// The keys the tool was sent, and how long it keeps its callers waiting.
    tool: Arc<Tool>,
}

struct Tool {
    keys: Mutex<Vec<String>>,
    slow: Duration,
}

impl World {
    fn start(slow: Duration) -> Self {
        let text = "node: test\nledger: { url: 'memory:' }\nroutes:\n- name: r\n  \
                    upstream: { url: 'http://tool' }\n  receipt: {}\n  idempotency:\n    \
                    key: '{header:x-parcel}/{day}'\n    hash: none\n    \
                    time_zone: Europe/Berlin\n";
        let config = config::parse(text, "test", Path::new("/"), &|_| None).unwrap();
        let metrics = Arc::new(Metrics::new("0"));
        let routes = Routes::build(&config.routes, &metrics, &[], 1).unwrap();
        let keys = Mutex::default();
        let tool = Arc::new(Tool { keys, slow });
        let answering = Arc::clone(&tool);
        let route = routes.named("r").unwrap();
        route.tool.destination().dial_by(Box::new(move || {
            let (ours, theirs) = tokio::io::duplex(4096);
            drop(tokio::spawn(Arc::clone(&answering).serve(theirs)));
            Box::pin(async { Ok(Box::new(Pipe(ours)) as Box<dyn StandIn>) })
        }));
        let at: Timestamp = LATE.parse().unwrap();
        let now = Wall(at.as_millisecond());
        let (clock, wall) = Clock::simulated(now);
        let retention = Duration::from_secs(60);
        let flow = Flow {
            ledger: Arc::new(MemoryLedger::new(now, retention)) as Arc<dyn Ledger>,
            routes,
            clock: clock.clone(),
            entropy: Entropy::seeded(1),
            owner: Owner::new("test"),
            node: Node::new("test"),
            metrics,
            readiness: Arc::new(Readiness::new()),
            calls: Arc::default(),
            clients: ClientNames::default(),
            retries: Retries::default(),
            promises: Promises::new(8),
            late: Arc::new(LateRegistry::default()),
            draining: CancellationToken::new(),
            beside_others: false,
            in_line: TaskTracker::new(),
            tasks: TaskTracker::new(),
        };
        Self {
            flow: Arc::new(flow),
            core: Core::start(0, clock),
            wall,
            tool,
        }
    }

    async fn call(&self, id: &str, parcel: &'static str) -> Told {
        let mut headers = HeaderMap::new();
        headers.insert("x-parcel", HeaderValue::from_static(parcel));
        let request = Request {
            route: self.flow.routes.named("r").unwrap(),
            client: ClientName::anonymous(),
            call_id: CallId::parse(id.as_bytes()).unwrap(),
            source: IdSource::Client,
            minted: false,
            method: Method::POST,
            target: PathAndQuery::from_static("/"),
            authority: None,
            headers: headers.into(),
            body: Bytes::new(),
            caller: Arc::new(Caller::at(Ipv4Addr::LOCALHOST.into())),
            version: Version::HTTP_11,
            gone: CancellationToken::new(),
            received: self.flow.clock.mono(),
            prefer: Prefer::default(),
            promised: false,
            promise: None,
            first_seen: None,
        };
        self.flow.call(&self.core, request).await
    }

    async fn stored_key(&self, id: &str) -> Arc<str> {
        let id = CallId::parse(id.as_bytes()).unwrap();
        let found = self.flow.ledger.view(None, id).await.unwrap();
        found[0].idempotency_key.clone().unwrap()
    }

    fn sent(&self) -> Vec<String> {
        self.tool.keys.lock().clone()
    }
}

impl Tool {
    async fn serve(self: Arc<Self>, mut line: DuplexStream) {
        let (mut head, mut part) = (String::new(), [0; 1024]);
        while let Ok(n @ 1..) = line.read(&mut part).await {
            head.push_str(std::str::from_utf8(&part[..n]).unwrap());
            if !head.ends_with("\r\n\r\n") {
                continue;
            }
            let keys = head.lines().filter_map(|line| line.split_once(": "));
            let key = keys.filter(|(name, _)| *name == "idempotency-key");
            self.keys
                .lock()
                .extend(key.map(|(_, value)| value.to_owned()));
            tokio::time::sleep(self.slow).await;
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            // A caller that left does not read it.
            drop(line.write_all(answer).await);
            head.clear();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_after_midnight_keeps_its_key_and_a_new_id_has_a_new_one() {
    let world = World::start(Duration::ZERO);
    assert_eq!(world.call("a", "p").await.word, Word::Answered);
    // Another id, the same day: the same operation.
    let joined = world.call("b", "p").await;
    assert_eq!(
        (joined.word, joined.original.is_some()),
        (Word::Replayed, true)
    );
    world.wall.by(2_000);
    for id in ["a", "b"] {
        assert_eq!(world.call(id, "p").await.word, Word::Replayed, "{id}");
    }
    // Another operation under a used id is another request, on whatever day.
    let other = world.call("a", "q").await;
    assert_eq!(other.shown.code(), Some(Code::CallIdReused));
    assert_eq!(world.sent(), ["p/2026-11-30"]);
    assert_eq!(world.call("c", "p").await.word, Word::Answered);
    assert_eq!(world.sent(), ["p/2026-11-30", "p/2026-12-01"]);
    assert_eq!(&*world.stored_key("a").await, "p/2026-11-30");
    assert_eq!(&*world.stored_key("c").await, "p/2026-12-01");
}

#[tokio::test(start_paused = true)]
async fn a_repeat_joins_a_call_that_runs_over_midnight() {
    let world = World::start(Duration::from_secs(4));
    let repeat = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        world.call("a", "p").await
    };
    let (first, second) = tokio::join!(world.call("a", "p"), repeat);
    assert_eq!((first.word, second.word), (Word::Answered, Word::Answered));
    assert_eq!(world.sent(), ["p/2026-11-30"]);
    assert_eq!(&*world.stored_key("a").await, "p/2026-11-30");
}

#[tokio::test(start_paused = true)]
async fn a_replay_after_midnight_makes_the_window_of_the_id_run_anew() {
    let world = World::start(Duration::ZERO);
    world.call("a", "p").await;
    let hours = |n: i64| n * 3_600_000;
    for _ in 0..3 {
        world.wall.by(hours(23));
        assert_eq!(world.call("a", "p").await.word, Word::Replayed);
    }
    world.wall.by(hours(24));
    // Forgotten, and so first seen anew.
    assert_eq!(world.call("a", "p").await.word, Word::Answered);
    assert_eq!(world.sent(), ["p/2026-11-30", "p/2026-12-04"]);
}
