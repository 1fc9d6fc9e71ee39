//! One HTTP/2 connection at work: the task that drives it, and when it ends.
//!
//! It ends by itself when it has been idle for long enough, when it is retired and its last
//! exchange is over, or when a PING stays unanswered: a connection that has gone silent in the
//! middle is not waited for. The task also proves what closing an exchange has to prove: that the
//! tool has read everything up to the RST_STREAM, because a PING sent behind it was answered.
//! Without that proof within [`Bounds::close`] the whole connection is reset, so that nothing of
//! the request can still arrive. Deliberately absent: frequent PINGs. Servers take more than a few
//! without an answer in between for an attack and end the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Ping, PingPong};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::line::{Line, Wire};
use super::{Bounds, Shard};
use crate::call::time::Mono;
use crate::upstream::Core;

/// The client's connection, which has to be polled.
pub(super) type Driven = h2::client::Connection<Wire, Bytes>;

/// PINGs into one silence before they become rare.
const OFTEN: u32 = 2;

/// The pause between PINGs after those; gRPC servers tolerate no shorter one for long.
const RARELY: Duration = Duration::from_secs(300);

/// An HTTP/2 connection, as the exchanges on it see it.
pub(super) struct Connection {
    pub(super) line: Arc<Line>,
    pub(super) core: Core,
    sender: Mutex<SendRequest<Bytes>>,
    /// Exchanges on it.
    open: AtomicUsize,
    /// It takes no new ones.
    retired: AtomicBool,
    closings: Mutex<Vec<Closing>>,
    shard: Arc<Shard>,
}

/// One exchange's place on a connection; given back on drop.
pub(super) struct Place(Arc<Connection>);

/// An exchange that is being closed, and who waits for the proof.
struct Closing {
    stream: u32,
    by: Mono,
    /// The PING behind its RST_STREAM is out.
    asked: bool,
    _closed: oneshot::Sender<()>,
}

/// What the driver remembers of PINGs and silences.
struct Pulse {
    ping: PingPong,
    /// Since when a PING is unanswered.
    asked: Option<Mono>,
    /// What was read when this silence began.
    heard: u64,
    since: Mono,
    /// PINGs into this silence.
    pings: u32,
}

impl Connection {
    pub(super) fn new(
        core: &Core,
        line: Arc<Line>,
        sender: SendRequest<Bytes>,
        shard: &Arc<Shard>,
    ) -> Arc<Self> {
        Arc::new(Self {
            line,
            core: core.clone(),
            sender: Mutex::new(sender),
            open: AtomicUsize::new(0),
            retired: AtomicBool::new(false),
            closings: Mutex::default(),
            shard: Arc::clone(shard),
        })
    }

    /// A handle to send one request by.
    pub(super) fn sender(&self) -> SendRequest<Bytes> {
        self.sender.lock().clone()
    }

    /// Whether it can take one more exchange; called with the shard locked.
    pub(super) fn has_room(&self, most: usize) -> bool {
        if self.retired.load(Ordering::Acquire) || self.line.is_gone() {
            return false;
        }
        let mut sender = self.sender.lock();
        let fit = matches!(
            sender.poll_ready(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Ok(()))
        );
        let most = most.min(sender.current_max_send_streams());
        fit && !self.line.is_going_away() && self.open.load(Ordering::Acquire) < most
    }

    /// A place for one more exchange; called with the shard locked.
    pub(super) fn enter(self: &Arc<Self>) -> Place {
        self.open.fetch_add(1, Ordering::AcqRel);
        Place(Arc::clone(self))
    }

    /// It takes no new exchange, and ends with the last one it has.
    pub(super) fn retire(&self) {
        if !self.retired.swap(true, Ordering::AcqRel) {
            self.shard.remove(self);
            self.line.changed.notify_one();
        }
    }

    /// Waits for the proof that nothing of a stream, whose RST_STREAM is queued, is still on its
    /// way; the receiver ends with it.
    pub(super) fn closing(&self, stream: u32) -> oneshot::Receiver<()> {
        let (closed, proof) = oneshot::channel();
        let within = self.shard.bounds().close;
        self.closings.lock().push(Closing {
            stream,
            by: self.core.clock.mono().after(within),
            asked: false,
            _closed: closed,
        });
        self.line.changed.notify_one();
        proof
    }

    fn is_over(&self) -> bool {
        self.retired.load(Ordering::Acquire)
            && self.open.load(Ordering::Acquire) == 0
            && self.closings.lock().is_empty()
    }

    /// Idle for good: from here on nobody finds it.
    fn retire_idle(&self) {
        let idle = || self.open.load(Ordering::Acquire) == 0;
        if self.shard.remove_if(self, idle) {
            self.retired.store(true, Ordering::Release);
        }
    }

    /// Whether a closing exchange has waited long enough for its proof.
    fn is_closing_overdue(&self, now: Mono) -> bool {
        self.closings.lock().iter().any(|closing| now >= closing.by)
    }

    /// Whether an RST_STREAM is out of which nobody knows yet whether it was read.
    fn wants_proof(&self) -> bool {
        let closings = self.closings.lock();
        closings
            .iter()
            .any(|closing| !closing.asked && self.line.reset_sent(closing.stream))
    }

    fn proof_asked(&self) {
        for closing in &mut *self.closings.lock() {
            closing.asked |= self.line.reset_sent(closing.stream);
        }
    }

    fn proven(&self) {
        self.closings.lock().retain(|closing| {
            if closing.asked {
                self.line.forget(closing.stream);
            }
            !closing.asked
        });
    }
}

impl Place {
    pub(super) const fn connection(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let conn = &self.0;
        conn.open.fetch_sub(1, Ordering::AcqRel);
        conn.shard.freed.notify_one();
        if conn.retired.load(Ordering::Acquire) {
            conn.line.changed.notify_one();
        }
    }
}

/// Drives a connection to its end.
pub(super) async fn drive(
    conn: Arc<Connection>,
    mut driven: Driven,
    ping: PingPong,
    idle: Duration,
) {
    let bounds = conn.shard.bounds();
    let mut pulse = Pulse::new(ping, &conn);
    let mut unused_since = None;
    let mut tick = conn.core.wheel.sleep(bounds.tick);
    loop {
        tokio::select! {
            ended = &mut driven => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP/2 connection to a tool ended");
                }
                break;
            }
            pong = pulse.answered() => {
                if pong.is_err() {
                    break;
                }
                pulse.restart(&conn);
                conn.proven();
            }
            () = conn.line.changed.notified() => {}
            () = &mut tick => tick = conn.core.wheel.sleep(bounds.tick),
        }
        let now = conn.core.clock.mono();
        if conn.open.load(Ordering::Acquire) > 0 {
            unused_since = None;
        } else if now.since(*unused_since.get_or_insert(now)) >= idle {
            conn.retire_idle();
        }
        if conn.line.is_gone() || conn.is_over() {
            break;
        }
        if conn.is_closing_overdue(now) || pulse.is_dead(now, &bounds) {
            tracing::debug!("an HTTP/2 connection to a tool answers no PING and is reset");
            conn.line.kill();
            break;
        }
        let quiet = conn.open.load(Ordering::Acquire) > 0 && pulse.is_quiet(&conn, now, &bounds);
        if pulse.asked.is_none() && (quiet || conn.wants_proof()) {
            pulse.ask(&conn, now);
        }
    }
    conn.retire();
    end(conn, driven).await;
}

/// The connection carries nothing any more, or cannot.
async fn end(conn: Arc<Connection>, mut driven: Driven) {
    let broken = conn.line.is_gone() || conn.open.load(Ordering::Acquire) > 0;
    let (core, line, shard) = (
        conn.core.clone(),
        Arc::clone(&conn.line),
        Arc::clone(&conn.shard),
    );
    if broken {
        line.kill();
    } else {
        // Without anybody left who could send, the client says GOAWAY and ends.
        drop(conn);
        tokio::select! {
            _ended = &mut driven => {}
            () = core.wheel.sleep(shard.bounds().close) => {}
        }
        line.close();
    }
    drop(driven);
    shard.ended();
}

impl Pulse {
    fn new(ping: PingPong, conn: &Connection) -> Self {
        Self {
            ping,
            asked: None,
            heard: conn.line.heard(),
            since: conn.core.clock.mono(),
            pings: 0,
        }
    }

    fn ask(&mut self, conn: &Connection, now: Mono) {
        // It fails only on a connection that is ending; then the driver sees that.
        if self.ping.send_ping(Ping::opaque()).is_ok() {
            self.asked = Some(now);
            self.pings += 1;
            conn.proof_asked();
        }
    }

    /// The PING that is out is answered; never resolves while none is.
    async fn answered(&mut self) -> Result<(), h2::Error> {
        if self.asked.is_none() {
            return std::future::pending().await;
        }
        let pong = std::future::poll_fn(|cx| self.ping.poll_pong(cx)).await;
        self.asked = None;
        pong.map(drop)
    }

    fn is_dead(&self, now: Mono, bounds: &Bounds) -> bool {
        self.asked
            .is_some_and(|asked| now.since(asked) >= bounds.patience)
    }

    /// A silence begins, after a PING's answer: no reason to ask again soon.
    fn restart(&mut self, conn: &Connection) {
        self.heard = conn.line.heard();
        self.since = conn.core.clock.mono();
    }

    /// Whether nothing was read for so long that it is time to ask.
    fn is_quiet(&mut self, conn: &Connection, now: Mono, bounds: &Bounds) -> bool {
        if conn.line.heard() != self.heard {
            self.pings = 0;
            self.restart(conn);
        }
        let pause = match self.pings {
            0..OFTEN => bounds.quiet,
            _ => RARELY.max(bounds.quiet),
        };
        now.since(self.since) >= pause
    }
}
