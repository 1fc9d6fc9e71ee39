//! One request on one connection, and how it ended.
//!
//! An exchange has no attempt timeout of its own: the driver stops waiting and may keep polling the
//! same exchange as a *late* one. Its proof that nothing was sent is never the kind of an error but
//! the request itself, handed back by whichever client had it: hyper, or the plain one, which does
//! so when the kernel took no byte. Deliberately absent: how either of them speaks HTTP.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use http::uri::PathAndQuery;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::answer::{self, Answer};
use super::dial::{self, DialError};
use super::fields::Final;
use super::http2::{self, Reached, Slot};
use super::pool::{Conn, Lease, Trust};
use super::reading::Source;
use super::sending::{self, Sent};
use super::wire::Line;
use super::{Core, Destination, Payload, StreamAnswer, Upload};
use crate::call::outcome::{NotSent, Unclear};
use crate::config::route::ResponseMode;
use crate::crash::{self, Point};

/// A request as it goes to the tool: path mapped, header fields final.
#[derive(Debug)]
pub struct Outgoing {
    /// The method, as the caller sent it.
    pub method: Method,
    /// The tool's path and query ([`super::Tool::target`]).
    pub target: PathAndQuery,
    /// The final fields ([`super::headers::stamp`]); shared with whoever may send them again.
    pub headers: Final,
    /// The body: bytes, or an [`super::Upload`] lent out.
    pub body: Payload,
}

/// What bounds an exchange, and how its answer is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// TCP connect and TLS handshake together.
    pub connect: Duration,
    /// The longest gap between two reads of an answer whose head has arrived.
    pub idle: Duration,
    /// The longest answer collected, in bytes; also what is kept of a streamed one for the record.
    pub max_kept: usize,
    /// Whether the answer is collected first.
    pub mode: Mode,
}

/// How an answer is passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Collected, unless it is long (by its `Content-Length`) or an event stream.
    Auto,
    /// Streamed from the head.
    Stream,
    /// Collected whatever its type, up to `max_kept`.
    Collect,
    /// `effects: none`: streamed whatever it is, a 5xx too; nothing is kept or hashed.
    Pass,
}

/// How an exchange ended.
#[derive(Debug)]
pub enum Ended {
    /// A complete answer. (A 5xx longer than `max_kept` counts, and says that it was cut.)
    Collected(Answer),
    /// The head of an answer whose body is still arriving.
    Streaming(Box<StreamAnswer>),
    /// Proof that no byte of the request was sent.
    NotSent(NotSent),
    /// Nobody knows what the tool did.
    Unclear(Unclear),
}

/// A request under way. Does nothing until polled, and must be polled on its core's runtime.
///
/// Dropping it closes its connection with a reset, as [`Exchange::reset`] does.
#[must_use = "an exchange sends nothing until polled"]
pub struct Exchange {
    run: Option<Pin<Box<dyn Future<Output = Ended> + Send>>>,
    grip: Arc<Grip>,
}

/// Where an exchange goes, and by which rules.
pub(super) struct Course {
    pub(super) core: Core,
    pub(super) to: Arc<Destination>,
    pub(super) terms: Terms,
    /// A connection to begin with, whatever became of it since; `None`: the pool's.
    pub(super) first: Option<Conn>,
}

/// The hold an exchange has on its connection while its future owns everything else.
#[derive(Default)]
pub(super) struct Grip {
    held: Mutex<Held>,
    reconnected: AtomicBool,
    crowded: AtomicBool,
    written: AtomicBool,
    trouble: Mutex<Option<Box<str>>>,
}

/// What an exchange holds.
#[derive(Default)]
enum Held {
    #[default]
    Nothing,
    /// A connection of its own, and the task that drives hyper on it.
    Line(Arc<Line>, Option<AbortHandle>),
    /// A share of an HTTP/2 connection.
    Stream(Arc<http2::Stream>),
}

impl From<ResponseMode> for Mode {
    fn from(mode: ResponseMode) -> Self {
        match mode {
            ResponseMode::Auto => Self::Auto,
            ResponseMode::Stream => Self::Stream,
            ResponseMode::Collect => Self::Collect,
        }
    }
}

impl Exchange {
    /// Prepares an exchange with `to`; the connection belongs to `core`.
    pub fn new(core: &Core, to: &Arc<Destination>, request: Outgoing, terms: Terms) -> Self {
        let (core, to) = (core.clone(), Arc::clone(to));
        Self::run(
            Course {
                core,
                to,
                terms,
                first: None,
            },
            request,
        )
    }

    pub(super) fn run(course: Course, request: Outgoing) -> Self {
        let grip = Arc::new(Grip::default());
        let run = course.run(request, Arc::clone(&grip));
        Self {
            run: Some(Box::pin(run)),
            grip,
        }
    }

    /// Whether the whole request was handed to the kernel. Until then an exchange that has timed
    /// out is to be torn down: the rest of the request must not arrive later.
    #[must_use]
    pub fn written(&self) -> bool {
        match &*self.grip.held.lock() {
            Held::Line(line, _) => line.written(),
            Held::Stream(stream) => stream.written(),
            Held::Nothing => self.grip.written.load(Ordering::Acquire),
        }
    }

    /// Whether it is still looking for a connection: proof that nothing was sent.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.run.is_some() && matches!(*self.grip.held.lock(), Held::Nothing)
    }

    /// The attempt's time is over: nothing new goes onto this connection, since it may be dead
    /// without knowing.
    pub fn overdue(&self) {
        if let Held::Stream(stream) = &*self.grip.held.lock() {
            stream.retire();
        }
    }

    /// Whether there was no connection because all there may be were taken.
    #[must_use]
    pub fn was_crowded_out(&self) -> bool {
        self.grip.crowded.load(Ordering::Acquire)
    }

    /// Whether a reused connection handed the request back and a fresh one took its place.
    #[must_use]
    pub fn reconnected(&self) -> bool {
        self.grip.reconnected.load(Ordering::Acquire)
    }

    /// What went wrong, in words for logs and history; `None` after an answer.
    #[must_use]
    pub fn trouble(&self) -> Option<Box<str>> {
        self.grip.trouble.lock().clone()
    }

    /// Closes the connection with a reset (linger 0), so that unsent bytes die, or the stream with
    /// an RST_STREAM. When this returns the socket is gone, or the tool has proved that it has read
    /// the RST_STREAM. Nothing happens to an exchange that has ended.
    pub async fn reset(self) {
        let proof = self.grip.reset();
        drop(self);
        if let Some(proof) = proof {
            // It ends with the proof and carries nothing.
            drop(proof.await);
        }
    }
}

impl Future for Exchange {
    type Output = Ended;

    /// Stays pending when polled again after its end.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let Some(run) = &mut self.run else {
            return Poll::Pending;
        };
        let ended = std::task::ready!(run.as_mut().poll(cx));
        self.run = None;
        Poll::Ready(ended)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        // The socket first: the future, dropped next, wakes the connection's task, which would
        // otherwise try to send what it still has.
        drop(self.grip.reset());
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Exchange(written: {}, ended: {})",
            self.written(),
            self.run.is_none()
        )
    }
}

impl Grip {
    fn hold(&self, conn: &Conn) {
        let task = conn.http.as_ref().map(|http| http.task.clone());
        *self.held.lock() = Held::Line(Arc::clone(&conn.line), task);
    }

    fn hold_stream(&self, stream: &Arc<http2::Stream>) {
        *self.held.lock() = Held::Stream(Arc::clone(stream));
    }

    /// hyper speaks on the connection now, in this task.
    pub(super) fn hold_task(&self, task: AbortHandle) {
        if let Held::Line(_, held) = &mut *self.held.lock() {
            *held = Some(task);
        }
    }

    fn take(&self) -> Held {
        let held = std::mem::take(&mut *self.held.lock());
        let written = match &held {
            Held::Nothing => return held,
            Held::Line(line, _) => line.written(),
            Held::Stream(stream) => stream.written(),
        };
        self.written.store(written, Ordering::Release);
        held
    }

    fn release(&self) {
        drop(self.take());
    }

    /// Ends what is held; on HTTP/2 the receiver ends when that is proved.
    fn reset(&self) -> Option<oneshot::Receiver<()>> {
        match self.take() {
            Held::Nothing => None,
            Held::Line(line, task) => {
                line.reset();
                if let Some(task) = task {
                    task.abort();
                }
                None
            }
            Held::Stream(stream) => stream.reset(),
        }
    }

    fn note(&self, error: &(dyn std::error::Error + 'static)) {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(deeper) = source {
            text.push_str(": ");
            text.push_str(&deeper.to_string());
            source = deeper.source();
        }
        *self.trouble.lock() = Some(text.into_boxed_str());
    }
}

impl Course {
    async fn run(mut self, mut request: Outgoing, grip: Arc<Grip>) -> Ended {
        if self.first.is_none() && self.to.http2.is_some() {
            match Box::pin(self.run_http2(&mut request, &grip)).await {
                Turn::Ended(ended) => return ended,
                Turn::Http1(conn) => self.first = conn,
            }
        }
        self.run_http1(request, grip).await
    }

    async fn run_http1(self, mut request: Outgoing, grip: Arc<Grip>) -> Ended {
        let Self {
            core,
            to,
            terms,
            first,
        } = self;
        let head_only = request.method == Method::HEAD;
        let trust = match terms.mode {
            Mode::Pass => Trust::LastTurn,
            Mode::Auto | Mode::Stream | Mode::Collect => Trust::Nothing,
        };
        let mut pooled = first.or_else(|| to.pool.take(&core, trust));
        loop {
            let mut conn = match pooled.take() {
                Some(conn) => conn,
                // Rare beside reuse, and large with its handshake: on the heap of its own.
                None => match Box::pin(dial::dial(&core, &to, terms.connect)).await {
                    Ok(conn) => conn,
                    Err(e) => {
                        grip.note(&e);
                        return Ended::NotSent(e.outcome());
                    }
                },
            };
            conn.line.begin();
            grip.hold(&conn);
            crash::at(Point::Connected);
            let sent = sending::send(&core, &mut conn, request, &grip).await;
            let (message, error) = match sent {
                Sent::Answered(head, body) => {
                    let lease = Lease::new(core, to, conn);
                    let ended = match answer::at_once(lease, head, body, terms, head_only) {
                        Ok(ended) => Ok(ended),
                        Err(rest) => {
                            let (lease, head, body) = *rest;
                            // Large, and mostly not needed: on the heap of its own.
                            Box::pin(answer::receive(lease, head, body, terms, head_only)).await
                        }
                    };
                    grip.release();
                    return ended.unwrap_or_else(|trouble| {
                        grip.note(&trouble);
                        Ended::Unclear(trouble.unclear())
                    });
                }
                Sent::HandedBack(message, error) => (Some(message), error),
                Sent::Lost(error) => (None, error),
            };
            let reused = conn.reused;
            grip.release();
            conn.reset();
            match message {
                // Only the first connection is a reused one, so this happens at most once.
                Some(message) if reused => {
                    grip.reconnected.store(true, Ordering::Release);
                    request = message;
                }
                Some(_) => {
                    grip.note(&*error);
                    return Ended::NotSent(NotSent::HandedBack);
                }
                None => {
                    grip.note(&*error);
                    return Ended::Unclear(Unclear::Disconnect);
                }
            }
        }
    }
}

/// What comes of the attempt to speak HTTP/2.
enum Turn {
    Ended(Ended),
    /// The tool speaks HTTP/1.1; a connection that was found so.
    Http1(Option<Conn>),
}

impl Course {
    async fn run_http2(&self, request: &mut Outgoing, grip: &Grip) -> Turn {
        let Some(pool) = &self.to.http2 else {
            return Turn::Http1(None);
        };
        let mut fresh = false;
        loop {
            let reached = pool.reach(&self.core, &self.to, self.terms.connect, fresh);
            let slot = match reached.await {
                Ok(Reached::Slot(slot)) => slot,
                Ok(Reached::Plain(conn)) => return Turn::Http1(Some(conn)),
                Ok(Reached::Unspoken) => return Turn::Http1(None),
                Err(e) => {
                    let crowded = matches!(e, DialError::Crowded(_));
                    grip.crowded.store(crowded, Ordering::Release);
                    grip.note(&e);
                    return Turn::Ended(Ended::NotSent(e.outcome()));
                }
            };
            let reused = slot.reused;
            let upload = request.body.upload();
            let refusal = match self.send_http2(slot, request, grip).await {
                Ok(ended) => return Turn::Ended(ended),
                Err(refusal) => refusal,
            };
            // A connection that was going away is replaced at once. A tool that refuses (it may
            // have too much to do) is not asked again before the backoff.
            let again = reused && !fresh && refusal.elsewhere;
            if again && upload.as_ref().is_none_or(Upload::is_whole) {
                grip.reconnected.store(true, Ordering::Release);
                if let Some(upload) = upload {
                    request.body = upload.lend();
                }
                fresh = true;
                continue;
            }
            grip.note(&*refusal.error);
            return Turn::Ended(Ended::NotSent(refusal.why));
        }
    }

    /// One send on a shared connection.
    ///
    /// # Errors
    /// Proof that the tool did not take it up.
    async fn send_http2(
        &self,
        slot: Slot,
        request: &mut Outgoing,
        grip: &Grip,
    ) -> Result<Ended, http2::Refusal> {
        let head_only = request.method == Method::HEAD;
        let careful = self.terms.mode != Mode::Pass && !request.method.is_safe();
        let (stream, answer) = http2::send(slot, &self.to, request, careful)?;
        grip.hold_stream(&stream);
        crash::at(Point::Connected);
        let ended = match answer.await {
            http2::Fate::Answered(head, body) => {
                let lease = Lease::Stream(self.core.clone(), stream);
                let body = Source::Http2(body);
                answer::receive(lease, head, body, self.terms, head_only)
                    .await
                    .unwrap_or_else(|trouble| {
                        grip.note(&trouble);
                        Ended::Unclear(trouble.unclear())
                    })
            }
            http2::Fate::NotSent(refusal) => {
                drop(grip.reset());
                return Err(refusal);
            }
            http2::Fate::Lost(error) => {
                drop(grip.reset());
                grip.note(&*error);
                return Ok(Ended::Unclear(Unclear::Disconnect));
            }
        };
        grip.release();
        Ok(ended)
    }
}
