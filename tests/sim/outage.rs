//! C59: many calls a second through an outage of thirty seconds and beyond it, in virtual time,
//! with one noisy client and one quiet one.
//!
//! The tool loses, breaks and cuts everything while it is down, and every seventh call it does
//! without saying so. Deliberately absent: anything but the budget's own promises; the worlds
//! beside this one have the rest.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use callgate::call::id::{CallId, ClientName, IdSource};
use callgate::call::time::{Mono, Wall};
use callgate::clock::Clock;
use callgate::compensate::Worker;
use callgate::config;
use callgate::entropy::Entropy;
use callgate::flow::told::Word;
use callgate::flow::{ClientNames, Flow, LateRegistry, Prefer, Promises, Request, Retries, Routes};
use callgate::ledger::memory::MemoryLedger;
use callgate::ledger::{Ledger, Owner};
use callgate::telemetry::labels::Denied;
use callgate::telemetry::metrics::Metrics;
use callgate::telemetry::readiness::Readiness;
use callgate::upstream::headers::{Caller, Node};
use callgate::upstream::{Core, Dialling, StandIn, StandInDialer};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Version};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const DOWN_S: u64 = 30;
const WELL_S: u64 = 20;
/// Every so many calls are the quiet client's.
const QUIET_EACH: u64 = 100;
const FLOOR: u64 = 10;
const ROUNDS: u64 = 5;

const FILE: &str = "
ledger: { url: 'memory:' }
routes:
  - name: tool
    match: { path: /** }
    upstream:
      url: http://tool
      retry_budget: { ratio: 0.2, floor: 10, rounds: 5, per_client: 32, receipts: 10000 }
    receipt: { settle: 20ms, believe_not_found: always }
    compensation: { rounds: [1m, 2m, 3m], resend: true, workers: 64 }
";

/// Calls a second: what the promise is made for, or what `CALLGATE_OUTAGE_PER_S` says.
fn per_second() -> u64 {
    crate::number("CALLGATE_OUTAGE_PER_S").unwrap_or(1_000)
}

/// What the tool has seen and done.
#[derive(Default)]
struct Books {
    /// Sends of callers and of rounds, by the second they came in.
    sends: HashMap<u64, u64>,
    /// Sends by call.
    calls: HashMap<String, u64>,
    effects: HashMap<String, u64>,
}

#[derive(Clone)]
struct Tool {
    books: Arc<Mutex<Books>>,
    clock: Clock,
}

/// What the tool does with a request.
enum Does {
    Answers(u16),
    Closes,
}

impl Tool {
    fn second(&self) -> u64 {
        self.clock.mono().0 / 1_000_000_000
    }

    fn takes(&self, id: &str) -> Does {
        let second = self.second();
        let mut books = self.books.lock();
        *books.sends.entry(second).or_default() += 1;
        let sends = books.calls.entry(id.to_owned()).or_default();
        *sends += 1;
        let first = *sends == 1;
        let n = number_of(id);
        let down = second < DOWN_S;
        match n % 7 {
            // Done, and nobody is told.
            0 if down => {
                *books.effects.entry(id.to_owned()).or_default() += 1;
                Does::Closes
            }
            1 | 2 if down => Does::Closes,
            _ if down => Does::Answers(503),
            1 if first => Does::Closes,
            2 => Does::Answers(422),
            _ => {
                *books.effects.entry(id.to_owned()).or_default() += 1;
                Does::Answers(201)
            }
        }
    }

    fn knows(&self, id: &str) -> bool {
        self.books.lock().effects.contains_key(id)
    }

    async fn serve(self, mut line: DuplexStream) {
        let mut read = Vec::new();
        loop {
            let mut piece = [0; 2048];
            match line.read(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(n) => read.extend_from_slice(&piece[..n]),
            }
            let text = String::from_utf8_lossy(&read).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let field = |name: &str| {
                let mut lines = head.lines().filter_map(|line| line.split_once(": "));
                lines
                    .find(|(key, _)| key.eq_ignore_ascii_case(name))
                    .map(|(_, value)| value)
            };
            let length = field("content-length")
                .and_then(|it| it.parse().ok())
                .unwrap_or(0);
            if body.len() < length {
                continue;
            }
            let id = field("x-call-id")
                .expect("every request has one")
                .to_owned();
            read.clear();
            let answer = if head.starts_with("GET") {
                let state = r#"{"state":"SUCCESS"}"#;
                match self.knows(&id) {
                    true => format!(
                        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{state}",
                        state.len()
                    ),
                    false => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
                }
            } else {
                match self.takes(&id) {
                    Does::Answers(status) => {
                        format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n")
                    }
                    Does::Closes => return,
                }
            };
            if line.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn dialer(&self) -> StandInDialer {
        let tool = self.clone();
        Box::new(move || -> Dialling {
            let (near, far) = tokio::io::duplex(64 * 1024);
            drop(tokio::spawn(tool.clone().serve(far)));
            Box::pin(async move { Ok(Box::new(Near(near)) as Box<dyn StandIn>) })
        })
    }
}

/// The gateway's end.
struct Near(DuplexStream);

impl StandIn for Near {
    /// Nothing is kept alive that could have ended: this tool closes in the middle of a request.
    fn is_quiet(&self) -> bool {
        true
    }

    fn reset(&mut self) {}
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Near {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

async fn gateway(tool: &Tool, clock: &Clock) -> (Arc<Flow>, Core) {
    let core = Core::start(0, clock.clone());
    let config = config::parse(FILE, "sim", Path::new(""), &|_| None).expect("a good file");
    let metrics = Arc::new(Metrics::new("sim"));
    let routes = Routes::build(&config.routes, &metrics, &[], 1).expect("a good route");
    for route in routes.all().iter() {
        route.tool.destination().dial_by(tool.dialer());
        let receipts = route.sites[0].receipts.as_ref().expect("it has them");
        receipts.endpoint.destination().dial_by(tool.dialer());
    }
    let entropy = Entropy::seeded(59);
    let ledger: Arc<dyn Ledger> =
        Arc::new(MemoryLedger::new(clock.wall(), Duration::from_secs(86_400)));
    let flow = Flow {
        ledger,
        routes,
        clock: clock.clone(),
        owner: Owner::new(&entropy.instance("sim")),
        node: Node::new("sim"),
        metrics,
        readiness: Arc::new(Readiness::new()),
        calls: Arc::default(),
        clients: ClientNames::default(),
        beside_others: false,
        in_line: TaskTracker::new(),
        retries: Retries::default(),
        promises: Promises::new(8),
        late: Arc::new(LateRegistry::default()),
        draining: CancellationToken::new(),
        tasks: TaskTracker::new(),
        entropy,
    };
    (Arc::new(flow), core)
}

fn request(flow: &Flow, n: u64) -> Request {
    let client = if n.is_multiple_of(QUIET_EACH) {
        "quiet"
    } else {
        "noisy"
    };
    let id = format!("{client}-{n}");
    Request {
        route: flow.routes.named("tool").expect("there is one"),
        client: ClientName::new(client),
        call_id: CallId::parse(id.as_bytes()).expect("a plain word is an id"),
        source: IdSource::Client,
        minted: false,
        method: Method::POST,
        target: PathAndQuery::from_static("/work"),
        authority: None,
        headers: HeaderMap::new().into(),
        body: Bytes::from_static(b"{}"),
        caller: Arc::new(Caller::at(Ipv4Addr::LOCALHOST.into())),
        version: Version::HTTP_11,
        gone: CancellationToken::new(),
        received: flow.clock.mono(),
        prefer: Prefer::default(),
        promised: false,
        promise: None,
        first_seen: None,
    }
}

/// The number at the end of a call id.
fn number_of(id: &str) -> u64 {
    let number = id.rsplit('-').next().and_then(|n| n.parse().ok());
    number.expect("a number")
}

/// How one call ended: when it began, its word, its attempts.
type Ended = (u64, String, Word, u32);

async fn calls(flow: &Arc<Flow>, core: &Core) -> Vec<Ended> {
    let ended: Arc<Mutex<Vec<Ended>>> = Arc::default();
    let under_way = TaskTracker::new();
    for n in 0..(DOWN_S + WELL_S) * per_second() {
        flow.clock
            .sleep_until(Mono(n * 1_000_000_000 / per_second()))
            .await;
        let (flow, core, ended) = (Arc::clone(flow), core.clone(), Arc::clone(&ended));
        drop(under_way.spawn(async move {
            let request = request(&flow, n);
            let id = request.call_id.to_string();
            let told = flow.call(&core, request).await;
            ended
                .lock()
                .push((n / per_second(), id, told.word, told.attempts));
        }));
    }
    under_way.close();
    under_way.wait().await;
    std::mem::take(&mut *ended.lock())
}

fn holds_nothing(flow: &Flow) {
    let text = flow.metrics.render();
    let held = text.lines().filter(|line| {
        line.starts_with("callgate_limited_now") || line.starts_with("callgate_calls_in_flight")
    });
    for line in held {
        assert!(line.ends_with(" 0"), "{line}");
    }
}

#[test]
fn c59_an_outage_of_thirty_seconds_is_met_by_few_resends() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    let runtime = builder.build().expect("a runtime without sockets");
    runtime.block_on(async {
        let (clock, _step) = Clock::simulated(Wall(1_790_000_000_000));
        let tool = Tool {
            books: Arc::default(),
            clock: clock.clone(),
        };
        let (flow, core) = gateway(&tool, &clock).await;
        let stop = CancellationToken::new();
        let worker = Worker::new(Arc::clone(&flow), core.clone(), stop.clone());
        drop(tokio::spawn(worker.run()));
        let ended = calls(&flow, &core).await;
        let over = tool.second();
        holds_nothing(&flow);
        during(&tool, &ended);
        after(&flow, &tool, &ended);
        // Then only the worker sends.
        flow.clock
            .sleep_until(Mono((over + 120) * 1_000_000_000))
            .await;
        by_rounds(&tool, over);
        stop.cancel();
        let twice = tool
            .books
            .lock()
            .effects
            .values()
            .filter(|n| **n != 1)
            .count();
        assert_eq!(twice, 0, "calls were done twice");
    });
}

/// While the tool is down: few resends, and nobody is told an end that nobody knows.
fn during(tool: &Tool, ended: &[Ended]) {
    let books = tool.books.lock();
    let sends: u64 = (0..DOWN_S)
        .filter_map(|second| books.sends.get(&second))
        .sum();
    let (calls, floor) = (DOWN_S * per_second(), FLOOR * (DOWN_S + 1));
    println!("outage: {sends} sends of {calls} calls, floor {floor}");
    assert!(sends <= calls * 12 / 10 + floor, "{sends} sends");
    let of_outage = || ended.iter().filter(|(second, ..)| *second < DOWN_S);
    let quiet = of_outage().filter(|(_, id, ..)| id.starts_with("quiet"));
    let quiet: u64 = quiet.map(|(.., attempts)| u64::from(attempts - 1)).sum();
    println!("resends of the quiet client: {quiet}");
    assert!(quiet >= DOWN_S / 2, "{quiet} resends of the quiet client");
    for (_, id, word, _) in of_outage() {
        match word {
            Word::Unresolved => {}
            // Its receipt knew, or it was sent again once the tool was back.
            Word::Receipt | Word::Answered => assert!(
                books.effects.contains_key(id) || *word == Word::Answered,
                "{id} was told {word:?}"
            ),
            Word::Replayed | Word::Refused => panic!("{id} was told {word:?}"),
        }
    }
}

/// After it: retries work again within a second, and what was denied was counted.
fn after(flow: &Flow, tool: &Tool, ended: &[Ended]) {
    let route = flow.routes.named("tool").expect("there is one");
    let denied = route.metrics.denied.get(Denied::Budget);
    println!("resends denied: {denied}");
    assert!(denied > DOWN_S * per_second() / 2, "{denied}");
    // What the outage left behind wants its resends too, for as long as a share lasts.
    let mut worked: HashMap<u64, (u64, u64)> = HashMap::new();
    for (second, id, word, attempts) in ended.iter().filter(|(second, ..)| *second > DOWN_S) {
        let of_second = worked.entry(*second).or_default();
        if number_of(id) % 7 != 1 {
            assert_eq!(
                (*word, *attempts),
                (Word::Answered, 1),
                "{id} of second {second}"
            );
            continue;
        }
        of_second.1 += 1;
        match (word, attempts) {
            (Word::Answered, 2) => of_second.0 += 1,
            (Word::Unresolved, 1) if *second < DOWN_S + 10 => {}
            other => panic!("{id} of second {second}: {other:?}"),
        }
    }
    for second in DOWN_S + 1..DOWN_S + WELL_S {
        let (again, wanted) = worked[&second];
        assert!(
            again * 3 > wanted,
            "second {second}: {again} of {wanted} were sent again"
        );
    }
    let resent = tool
        .books
        .lock()
        .calls
        .values()
        .filter(|sends| **sends > 4)
        .count();
    assert_eq!(resent, 0, "more sends than a call may have");
}

/// Without callers: the worker is not starved, and has no more than its floor and theirs.
fn by_rounds(tool: &Tool, from: u64) {
    let books = tool.books.lock();
    let seconds = from + 20..from + 110;
    let sends: u64 = seconds
        .clone()
        .filter_map(|second| books.sends.get(&second))
        .sum();
    let length = seconds.end - seconds.start;
    println!("by rounds alone: {sends} sends in {length} s");
    assert!(sends >= ROUNDS * length / 2, "{sends} sends in {length} s");
    assert!(
        sends <= (ROUNDS + FLOOR) * (length + 1),
        "{sends} sends in {length} s"
    );
}
