//! Idle connections, per core: a connection goes back to the core that dialled it.
//!
//! The most recently used one is taken first, so that the others can grow old and expire. They
//! expire by a timer of their own, not when somebody next looks, because a tool that closes idle
//! connections earlier than we do would otherwise meet our next request half-way. Before reuse a
//! socket is looked at: one that is closed or readable is never used. Deliberately absent: a bound
//! on connections in use (the calls that use them are bounded) and any resending.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::wire::Line;
use super::{Core, Destination, Payload, http2};
use crate::call::time::Mono;
use crate::config::route::PoolConfig;

/// How long a connection whose answer is complete may take to become ready for the next request.
/// It is a matter of one poll on its own core; a wait this long means that it never will.
const READY_WITHIN: Duration = Duration::from_secs(1);

/// How often idle connections are looked at, so that one the tool has closed is closed here.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// One connection, idle or with one exchange on it.
pub(super) struct Conn {
    pub(super) line: Arc<Line>,
    /// hyper's end of it; `None` while only the plain client has spoken on it.
    pub(super) http: Option<Http>,
    /// It has carried an exchange before.
    pub(super) reused: bool,
}

/// A connection that hyper speaks on.
pub(super) struct Http {
    pub(super) sender: SendRequest<Payload>,
    pub(super) task: AbortHandle,
}

/// What an answer is read from, and where that belongs.
pub(super) enum Lease {
    /// A connection of its own.
    Conn(ConnLease),
    /// A share of an HTTP/2 connection.
    Stream(Core, Arc<http2::Stream>),
}

/// A connection in use, and where it belongs.
pub(super) struct ConnLease {
    core: Core,
    to: Arc<Destination>,
    conn: Conn,
}

/// The idle connections to one destination.
pub(super) struct Pool {
    idle: Duration,
    max_idle: usize,
    shards: Box<[Mutex<Shard>]>,
    /// What rests since before this (nanoseconds of the process's clock) is not used any more.
    distrusted: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Longest idle first.
    resting: VecDeque<Resting>,
    /// A task is waiting to close what expires here.
    swept: bool,
}

struct Resting {
    conn: Conn,
    until: Mono,
    /// How often the core had asked the kernel by then.
    turns: u64,
}

/// How sure one has to be that a resting connection is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// A request that dies on it costs a question or more: the socket is looked at, each time.
    Nothing,
    /// A repeat does no harm: nothing was heard of it when the kernel was last asked, and that was
    /// after it came to rest. A turn under load is a millisecond, as long as many a way to a tool,
    /// and the look is a system call of five.
    LastTurn,
}

/// What an answer has left of its connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It can take a request.
    Ready,
    /// It will be able to.
    NotYet,
    /// It cannot.
    Closed,
}

impl Conn {
    pub(super) const fn new(line: Arc<Line>) -> Self {
        Self {
            line,
            http: None,
            reused: false,
        }
    }

    /// Closes with a reset, whatever is going on.
    pub(super) fn reset(self) {
        self.line.reset();
        if let Some(http) = self.http {
            http.task.abort();
        }
    }

    /// Whether an idle connection can take a request. A guess all the same: what the tool sends
    /// from now on is not seen.
    pub(super) fn is_usable(&self) -> bool {
        let ready = self.http.as_ref().is_none_or(|http| http.sender.is_ready());
        ready && self.line.is_quiet()
    }

    /// Whether nothing was heard of an idle connection when the kernel was last asked; only of a
    /// plain one that is known without asking.
    fn is_silent(&self) -> bool {
        self.http.is_none() && self.line.is_silent()
    }

    /// Whether an idle connection has died. hyper looks by itself; a plain one is looked at here.
    fn is_dead(&self) -> bool {
        match &self.http {
            Some(http) => http.sender.is_closed(),
            None => !self.line.is_quiet(),
        }
    }

    /// How far the connection is, after a complete answer.
    fn state(&self) -> State {
        match &self.http {
            None if self.line.ends_here() => State::Closed,
            None => State::Ready,
            Some(http) if http.sender.is_closed() => State::Closed,
            Some(http) if http.sender.is_ready() => State::Ready,
            Some(_) => State::NotYet,
        }
    }
}

impl Pool {
    pub(super) fn new(config: PoolConfig, cores: usize) -> Self {
        let shards = (0..cores.max(1)).map(|_| Mutex::default()).collect();
        Self {
            idle: config.idle,
            max_idle: config.max_idle,
            shards,
            distrusted: AtomicU64::new(0),
        }
    }

    /// A request that left at `left` was not answered in time. Perhaps the way to the tool is dead
    /// and nobody was told (a firewall that forgot, an address that moved): what has rested since
    /// before that is closed instead of used. What has carried an answer since has shown that it
    /// lives.
    pub(super) fn distrust(&self, left: Mono) {
        self.distrusted.fetch_max(left.0, Ordering::Relaxed);
    }

    /// An idle connection of this core, found silent.
    pub(super) fn take(&self, core: &Core, trust: Trust) -> Option<Conn> {
        loop {
            let resting = self.shard(core).lock().resting.pop_back()?;
            let Resting {
                mut conn,
                until,
                turns,
            } = resting;
            let distrusted = Mono(self.distrusted.load(Ordering::Relaxed));
            let heard = trust == Trust::LastTurn && turns != core.turns.so_far();
            let alive = (heard && conn.is_silent()) || conn.is_usable();
            if alive && until > distrusted.after(self.idle) {
                conn.reused = true;
                return Some(conn);
            }
        }
    }

    pub(super) fn idle(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().resting.len())
            .sum()
    }

    fn shard(&self, core: &Core) -> &Mutex<Shard> {
        // More cores than shards would be a mistake of composition, not a reason to fail a call.
        &self.shards[core.index % self.shards.len()]
    }

    /// Keeps `conn` for the next request; says whether a sweep has to be started.
    fn rest(&self, core: &Core, conn: Conn) -> bool {
        if self.max_idle == 0 {
            return false;
        }
        let until = core.clock.mono().after(self.idle);
        let mut shard = self.shard(core).lock();
        let over = if shard.resting.len() >= self.max_idle {
            shard.resting.pop_front()
        } else {
            None
        };
        shard.resting.push_back(Resting {
            conn,
            until,
            turns: core.turns.so_far(),
        });
        let start = !std::mem::replace(&mut shard.swept, true);
        drop(shard);
        if over.is_some() {
            tracing::debug!(
                max_idle = self.max_idle,
                "the longest idle connection made room"
            );
        }
        start
    }

    /// Closes what has expired or died; says when to look again, `None` when nothing is left.
    fn sweep(&self, core: &Core) -> Option<Mono> {
        let now = core.clock.mono();
        let mut shard = self.shard(core).lock();
        let before = shard.resting.len();
        shard
            .resting
            .retain(|resting| now < resting.until && !resting.conn.is_dead());
        if shard.resting.len() < before {
            shard.resting.shrink_to_fit();
        }
        let next = shard.resting.front().map(|resting| resting.until);
        shard.swept = next.is_some();
        // Sooner than the first expires: one that the tool has closed holds a descriptor.
        next.map(|until| until.min(now.after(LOOK_EVERY)))
    }
}

impl Lease {
    pub(super) const fn new(core: Core, to: Arc<Destination>, conn: Conn) -> Self {
        Self::Conn(ConnLease { core, to, conn })
    }

    pub(super) const fn core(&self) -> &Core {
        match self {
            Self::Conn(lease) => &lease.core,
            Self::Stream(core, _) => core,
        }
    }

    /// The exchange has ended with a complete answer ([`ConnLease::finish`]).
    pub(super) fn finish(self, sure: bool) {
        match self {
            Self::Conn(lease) => lease.finish(sure),
            // An answer's end is told by its last frame, so it is sure.
            Self::Stream(_, stream) => stream.finish(),
        }
    }

    /// The exchange has ended in any other way.
    pub(super) fn reset(self) {
        match self {
            Self::Conn(lease) => lease.conn.reset(),
            // Its connection's task sees to the proof; nobody here waits for it.
            Self::Stream(_, stream) => drop(stream.reset()),
        }
    }
}

impl ConnLease {
    /// The exchange has ended with a complete answer: the connection rests, or closes.
    ///
    /// A reset closes it when the answer is not sure to be the call's end, or came before the
    /// whole request had left: unsent bytes must not be delivered after it.
    fn finish(self, sure: bool) {
        let Self { core, to, conn } = self;
        match conn.state() {
            _ if !conn.line.written() => conn.reset(),
            State::Closed if !sure => conn.reset(),
            State::Closed => conn.line.close(),
            State::Ready => give_back(&core, &to, conn),
            // Its task runs on another thread and has not come round yet.
            State::NotYet => {
                let lease = Self { core, to, conn };
                lease.core.clone().spawn(give_back_when_ready(lease));
            }
        }
    }
}

async fn give_back_when_ready(lease: ConnLease) {
    let ConnLease { core, to, mut conn } = lease;
    let ready = match &mut conn.http {
        None => true,
        Some(http) => tokio::select! {
            ready = http.sender.ready() => ready.is_ok(),
            () = core.wheel.sleep(READY_WITHIN) => false,
        },
    };
    if ready {
        give_back(&core, &to, conn);
    } else {
        conn.reset();
    }
}

fn give_back(core: &Core, to: &Arc<Destination>, conn: Conn) {
    conn.line.rest();
    if to.pool.rest(core, conn) {
        core.spawn(sweep(core.clone(), Arc::downgrade(to)));
    }
}

/// Closes idle connections as they expire, until none is left or the destination is gone.
async fn sweep(core: Core, to: Weak<Destination>) {
    loop {
        let next = match to.upgrade() {
            None => return,
            Some(to) => to.pool.sweep(&core),
        };
        let Some(next) = next else { return };
        core.wheel.sleep(next.since(core.clock.mono())).await;
    }
}
