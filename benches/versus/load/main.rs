//! The load generator of the comparison: closed loop (each connection sends the next call when it
//! has its answer) or, with `--rate`, open loop.
//!
//! In the open loop a call has a time at which it is due, and its wait counts from that time, also
//! when it could not be sent then because every connection was busy: a gateway that stalls is told
//! the whole stall, not the one call that happened to be under way (no coordinated omission).
//!
//! Prints `READY` when it is warm, begins at a line on its standard input, and prints its figures
//! as one line of JSON. Deliberately absent: TLS, HTTP/2, threads. One core is what there is.
#![expect(
    clippy::disallowed_methods,
    reason = "it measures time, and is no part of the product"
)]

mod connection;
mod histogram;
mod pace;
mod request;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use connection::{Connection, Failed};
use histogram::Histogram;
use pace::Pace;
use request::{Plan, Verdict};

/// After the end, calls under way have this long.
const GRACE: Duration = Duration::from_secs(15);
/// Connections that are opened at once.
const OPENING_MAX: usize = 128;
/// A send this long after its time is told as late.
const LATE: Duration = Duration::from_millis(1);
const EXAMPLES_MAX: usize = 5;

#[derive(Parser)]
struct Options {
    /// ip:port.
    address: SocketAddr,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Unmeasured seconds before, in a closed loop.
    #[arg(long, default_value_t = 1.0)]
    warm: f64,
    /// Calls a second: makes it an open loop.
    #[arg(long)]
    rate: Option<f64>,
    /// Ends after so many calls; without a warm-up.
    #[arg(long)]
    count: Option<u64>,
    #[command(flatten)]
    plan: Plan,
}

/// One run's figures.
struct Tally {
    right: Histogram,
    refused: Histogram,
    late: u64,
    errors: BTreeMap<&'static str, u64>,
    examples: Vec<String>,
}

impl Tally {
    fn new() -> Self {
        Self {
            right: Histogram::new(),
            refused: Histogram::new(),
            late: 0,
            errors: BTreeMap::new(),
            examples: Vec::new(),
        }
    }

    fn error(&mut self, kind: &'static str, example: String) {
        *self.errors.entry(kind).or_default() += 1;
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

/// What all connections of one run look at.
struct Run {
    options: Rc<Options>,
    pace: Pace,
    /// Requests begun, over all runs: no two are the same.
    next: Rc<Cell<u64>>,
    tally: RefCell<Tally>,
}

fn main() -> Result<()> {
    let options = Rc::new(Options::parse());
    // Room for every connection; what the system allows at most, if that is less.
    rlimit::increase_nofile_limit(options.connections as u64 + 256).context("open files")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime")?;
    LocalSet::new().block_on(&runtime, measure(options))
}

async fn measure(options: Rc<Options>) -> Result<()> {
    let next = Rc::new(Cell::new(0));
    let mut connections = open(&options).await?;
    if options.count.is_none() {
        let pace = Pace::closed(Duration::from_secs_f64(options.warm), None);
        let warm = run(&options, &next, pace, &mut connections).await?;
        if let Some(example) = warm.tally.into_inner().examples.first() {
            bail!("already while it was warming up: {example}");
        }
    }
    println!("READY");
    std::io::stdin()
        .read_line(&mut String::new())
        .context("no standard input")?;
    let length = Duration::from_secs_f64(options.seconds);
    let pace = match options.rate {
        Some(rate) => Pace::open(rate, length),
        None => Pace::closed(length, options.count),
    };
    let began = Instant::now();
    let done = run(&options, &next, pace, &mut connections).await?;
    let micros = began.elapsed().as_secs_f64() * 1e6;
    let unsent = done.pace.unsent();
    let tally = done.tally.into_inner();
    let figures = json!({
        "requests": tally.right.count(),
        "micros": micros,
        "right": tally.right.told(),
        "refused": tally.refused.told(),
        "late": tally.late,
        "unsent": unsent,
        "renewed": connections.iter().map(|c| c.renewed).sum::<u64>(),
        "errors": tally.errors,
        "examples": tally.examples,
    });
    println!("{figures}");
    Ok(())
}

/// All connections, a few at a time, so that no backlog overflows.
async fn open(options: &Rc<Options>) -> Result<Vec<Connection>> {
    let gate = Rc::new(Semaphore::new(OPENING_MAX));
    let opening: Vec<_> = (0..options.connections)
        .map(|_| {
            let (gate, to) = (Rc::clone(&gate), options.address);
            tokio::task::spawn_local(async move {
                let _turn = gate.acquire().await;
                let mut connection = Connection::new(to);
                connection.open().await.map(|()| connection)
            })
        })
        .collect();
    let mut connections = Vec::with_capacity(opening.len());
    for opened in opening {
        match opened.await.context("a task panicked")? {
            Ok(connection) => connections.push(connection),
            Err(Failed::Connect(e) | Failed::Broken(e)) => bail!("no connection: {e}"),
        }
    }
    Ok(connections)
}

/// Lets every connection work until the pace says it is over, and gives them back.
async fn run(
    options: &Rc<Options>,
    next: &Rc<Cell<u64>>,
    pace: Pace,
    connections: &mut Vec<Connection>,
) -> Result<Run> {
    let run = Rc::new(Run {
        options: Rc::clone(options),
        pace,
        next: Rc::clone(next),
        tally: RefCell::new(Tally::new()),
    });
    let limit = run.pace.length() + GRACE;
    let workers: Vec<_> = connections
        .drain(..)
        .map(|connection| tokio::task::spawn_local(work(Rc::clone(&run), connection)))
        .collect();
    let deadline = tokio::time::Instant::now() + limit;
    for mut worker in workers {
        match tokio::time::timeout_at(deadline, &mut worker).await {
            Ok(connection) => connections.push(connection.context("a task panicked")?),
            Err(_) => {
                worker.abort();
                // It holds the run; what it wrote there is kept, and it is gone after this.
                let _cancelled = worker.await;
                let example = format!("no answer within {GRACE:?} of the end");
                run.tally.borrow_mut().error("timeout", example);
                connections.push(Connection::new(options.address));
            }
        }
    }
    Rc::into_inner(run).context("a connection still runs")
}

async fn work(run: Rc<Run>, mut connection: Connection) -> Connection {
    while let Some(due) = run.pace.turn().await {
        let n = run.next.get();
        run.next.set(n + 1);
        let sent = Instant::now();
        let answered = connection.call(&run.options.plan, n).await;
        let nanos = due.elapsed().as_nanos() as u64;
        let mut tally = run.tally.borrow_mut();
        if sent.duration_since(due) > LATE {
            tally.late += 1;
        }
        match answered {
            Ok(Verdict::Right) => tally.right.add(nanos),
            Ok(Verdict::Refused) => tally.refused.add(nanos),
            Ok(Verdict::Wrong(what)) => tally.error("wrong", what),
            Err(Failed::Connect(what)) => tally.error("connect", what),
            Err(Failed::Broken(what)) => tally.error("broken", what),
        }
    }
    connection
}
