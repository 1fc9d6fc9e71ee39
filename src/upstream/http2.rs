//! HTTP/2 to tools: many exchanges on one connection, each with the proofs HTTP/1.1 gives.
//!
//! The `h2` crate is used directly, since hyper's client over it says neither whether a request has
//! begun to leave nor why it was refused. What is proved here, and how: *not sent* by a GOAWAY that
//! leaves the stream out, by REFUSED_STREAM, and by the bytes that passed (`frames`); *closed* by
//! an answered PING behind the RST_STREAM, or by the reset of the whole connection (`connection`).
//! A fresh connection is asked with a PING before its first request, so that one that does not
//! speak HTTP/2 is found out while that still proves that nothing was sent.
//!
//! Connections are shared by the exchanges of one core. One is dialled at a time; more than one
//! only when those there are full, up to [`CONNECTIONS_MAX`]. What a connection may make us hold is
//! bounded by its windows. Deliberately absent: server push, priorities, h2c by upgrade, CONNECT.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::dial::{self, Alpn, DialError};
use super::plain::HEAD_BYTES_MAX;
use super::pool::Conn;
use super::transport::Transport;
use super::{Core, Destination};
use crate::config::route::{PoolConfig, Protocol};

mod connection;
mod frames;
mod line;
mod stream;

use connection::{Connection, Place};
pub use frames::{Frames, Passed};
use line::Line;
pub(super) use stream::{Body, Fate, Refusal, Stream, send};

/// Exchanges at once on one connection, also where the tool allows more.
const STREAMS_MAX: usize = 100;

/// Connections of one core to one destination, those that take no more exchanges included: what the
/// late exchanges of a slow tool need, each of which may keep one.
const CONNECTIONS_MAX: usize = 64;

/// What a tool may send of one answer before it is read: enough for 64 KiB per millisecond of
/// distance.
const STREAM_WINDOW: u32 = 64 * 1024;

/// The same for a connection: every answer's window, so that one that nobody reads holds up no
/// other.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;

/// What bounds the connections of a destination; a test brings its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Connections of one core.
    pub(super) connections: usize,
    /// How often a connection is looked at.
    pub(super) tick: Duration,
    /// Silence, with exchanges open, after which the tool is asked whether it is there.
    pub(super) quiet: Duration,
    /// How long it may take to say so.
    pub(super) patience: Duration,
    /// How long it may take to prove that it has read a reset.
    pub(super) close: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: CONNECTIONS_MAX,
            tick: Duration::from_millis(250),
            quiet: Duration::from_secs(20),
            patience: Duration::from_secs(10),
            close: Duration::from_secs(1),
        }
    }
}

/// The HTTP/2 connections to one destination.
pub(super) struct Pool {
    protocol: Protocol,
    idle: Duration,
    /// What TLS agreed on last, under [`Protocol::Auto`].
    known: AtomicU8,
    shards: Box<[Arc<Shard>]>,
    #[cfg(test)]
    bounds: Arc<OnceLock<Bounds>>,
}

/// Those of one core.
pub(super) struct Shard {
    live: Mutex<Vec<Arc<Connection>>>,
    /// Connections whose task has not ended.
    running: AtomicUsize,
    /// One dials, the others wait for what comes of it.
    dialling: tokio::sync::Mutex<()>,
    /// A place on a connection, or for one, may be free.
    freed: Notify,
    /// Set by a test only.
    bounds: Arc<OnceLock<Bounds>>,
}

/// A place for one exchange on a connection.
pub(super) struct Slot {
    place: Place,
    /// Dialled for an earlier exchange.
    pub(super) reused: bool,
}

/// Where a request can go.
pub(super) enum Reached {
    /// Onto an HTTP/2 connection.
    Slot(Slot),
    /// TLS agreed on HTTP/1.1 and this is the connection.
    Plain(Conn),
    /// The tool speaks HTTP/1.1.
    Unspoken,
}

/// What is known of the tool.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Known {
    Nothing,
    Speaks,
    Not,
}

impl Pool {
    /// `None` when HTTP/2 is never spoken there: not configured, or left to a TLS that is not.
    pub(super) fn new(config: PoolConfig, tls: bool, cores: usize) -> Option<Self> {
        let protocol = config.protocol;
        if protocol == Protocol::Http1 || (protocol == Protocol::Auto && !tls) {
            return None;
        }
        let bounds = Arc::<OnceLock<_>>::default();
        let shard = || {
            Arc::new(Shard {
                live: Mutex::default(),
                running: AtomicUsize::new(0),
                dialling: tokio::sync::Mutex::default(),
                freed: Notify::new(),
                bounds: Arc::clone(&bounds),
            })
        };
        Some(Self {
            protocol,
            idle: config.idle,
            known: AtomicU8::new(Known::Nothing as u8),
            shards: (0..cores.max(1)).map(|_| shard()).collect(),
            #[cfg(test)]
            bounds,
        })
    }

    /// Whether nothing but HTTP/2 is spoken.
    pub(super) fn is_only(&self) -> bool {
        self.protocol == Protocol::Http2
    }

    /// Connections that take exchanges, over all cores.
    pub(super) fn connections(&self) -> usize {
        self.shards.iter().map(|s| s.live.lock().len()).sum()
    }

    #[cfg(test)]
    pub(super) fn bound(&self, bounds: Bounds) {
        assert!(self.bounds.set(bounds).is_ok(), "bounded once");
    }

    /// A place for one exchange, within `limit`. `fresh`: on a new connection.
    pub(super) async fn reach(
        &self,
        core: &Core,
        to: &Destination,
        limit: Duration,
        fresh: bool,
    ) -> Result<Reached, DialError> {
        if self.knows(Known::Not) {
            return Ok(Reached::Unspoken);
        }
        let shard = &self.shards[core.index % self.shards.len()];
        if !fresh && let Some(slot) = shard.take() {
            return Ok(Reached::Slot(slot));
        }
        let mut expired = core.wheel.sleep(limit);
        let _dialling = tokio::select! {
            turn = shard.dialling.lock() => turn,
            () = &mut expired => return Err(DialError::Timeout(limit)),
        };
        loop {
            if self.knows(Known::Not) {
                return Ok(Reached::Unspoken);
            }
            if !fresh && let Some(slot) = shard.take() {
                return Ok(Reached::Slot(slot));
            }
            let most = shard.bounds().connections;
            if shard.running.load(Ordering::Acquire) < most {
                break;
            }
            tokio::select! {
                () = shard.freed.notified() => {}
                () = &mut expired => return Err(DialError::Crowded(most)),
            }
        }
        tokio::select! {
            reached = self.dial(core, to, shard, limit) => reached,
            () = &mut expired => Err(DialError::Timeout(limit)),
        }
    }

    async fn dial(
        &self,
        core: &Core,
        to: &Destination,
        shard: &Arc<Shard>,
        limit: Duration,
    ) -> Result<Reached, DialError> {
        let alpn = match self.protocol {
            Protocol::Http2 => Alpn::Http2,
            Protocol::Auto | Protocol::Http1 => Alpn::Both,
        };
        let transport = dial::open(core, to, limit, alpn).await?;
        if !transport.is_http2() {
            if self.is_only() && matches!(transport, Transport::Tls(_)) {
                return Err(DialError::NoHttp2);
            }
            if !self.is_only() {
                self.learn(Known::Not);
                let conn = dial::begin(core, transport).await?;
                return Ok(Reached::Plain(conn));
            }
        }
        let slot = greet(core, transport, shard, self.idle).await?;
        self.learn(Known::Speaks);
        Ok(Reached::Slot(slot))
    }

    fn knows(&self, what: Known) -> bool {
        self.known.load(Ordering::Relaxed) == what as u8
    }

    fn learn(&self, what: Known) {
        self.known.store(what as u8, Ordering::Relaxed);
    }
}

/// Begins HTTP/2 on a socket, and takes the first place on it once the tool has answered a PING.
async fn greet(
    core: &Core,
    transport: Transport,
    shard: &Arc<Shard>,
    idle: Duration,
) -> Result<Slot, DialError> {
    let line = Line::new(transport);
    let begun = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).expect("64 KiB"))
        .initial_max_send_streams(STREAMS_MAX)
        .handshake(line.wire())
        .await;
    let (sender, mut driven) = begun.map_err(DialError::Http2)?;
    let mut ping = driven.ping_pong().expect("nobody has taken it before");
    tokio::select! {
        pong = ping.ping(h2::Ping::opaque()) => {
            pong.map_err(DialError::Http2)?;
        }
        ended = &mut driven => return Err(match ended {
            Ok(()) => DialError::Hangup,
            Err(error) => DialError::Http2(error),
        }),
    }
    let conn = Connection::new(core, line, sender, shard);
    let place = conn.enter();
    shard.running.fetch_add(1, Ordering::AcqRel);
    shard.live.lock().push(Arc::clone(&conn));
    core.spawn(connection::drive(Arc::clone(&conn), driven, ping, idle));
    Ok(Slot {
        place,
        reused: false,
    })
}

impl Shard {
    /// A place on a connection that has one: the one used last first, so that others can grow old.
    fn take(&self) -> Option<Slot> {
        let live = self.live.lock();
        let conn = live.iter().find(|conn| conn.has_room(STREAMS_MAX))?;
        let place = conn.enter();
        Some(Slot {
            place,
            reused: true,
        })
    }

    fn remove(&self, conn: &Connection) {
        self.remove_if(conn, || true);
    }

    /// Takes `conn` out of sight if `fits`; true when it is out.
    fn remove_if(&self, conn: &Connection, fits: impl FnOnce() -> bool) -> bool {
        let mut live = self.live.lock();
        let fits = fits();
        if fits {
            live.retain(|one| !std::ptr::eq(&raw const **one, conn));
        }
        fits
    }

    fn bounds(&self) -> Bounds {
        self.bounds.get().copied().unwrap_or_default()
    }

    /// A connection's task has ended.
    fn ended(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.freed.notify_one();
    }
}
