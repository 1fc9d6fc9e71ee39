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

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::answer::{self, Answer};
use super::pool::{Conn, Lease};
use super::sending::{self, Sent};
use super::wire::Line;
use super::{Core, Destination, Payload, StreamAnswer, dial};
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
    pub headers: Arc<HeaderMap>,
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
    held: Mutex<Option<(Arc<Line>, Option<AbortHandle>)>>,
    reconnected: AtomicBool,
    written: AtomicBool,
    trouble: Mutex<Option<Box<str>>>,
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
            Some((line, _)) => line.written(),
            None => self.grip.written.load(Ordering::Acquire),
        }
    }

    /// Whether it is still looking for a connection: proof that nothing was sent.
    #[must_use]
    pub fn is_unsent(&self) -> bool {
        self.run.is_some() && self.grip.held.lock().is_none()
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

    /// Closes the connection with a reset (linger 0), so that unsent bytes die. The socket is gone
    /// when this returns. Nothing happens to an exchange that has ended.
    pub async fn reset(self) {
        drop(self);
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
        self.grip.reset();
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
        *self.held.lock() = Some((Arc::clone(&conn.line), task));
    }

    /// hyper speaks on the connection now, in this task.
    pub(super) fn hold_task(&self, task: AbortHandle) {
        if let Some((_, held)) = &mut *self.held.lock() {
            *held = Some(task);
        }
    }

    fn release(&self) {
        if let Some((line, _)) = self.held.lock().take() {
            self.written.store(line.written(), Ordering::Release);
        }
    }

    fn reset(&self) {
        if let Some((line, task)) = self.held.lock().take() {
            self.written.store(line.written(), Ordering::Release);
            line.reset();
            if let Some(task) = task {
                task.abort();
            }
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
    async fn run(self, mut request: Outgoing, grip: Arc<Grip>) -> Ended {
        let Self {
            core,
            to,
            terms,
            first,
        } = self;
        let head_only = request.method == Method::HEAD;
        let mut pooled = first.or_else(|| to.pool.take(&core));
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
                    let lease = Lease { core, to, conn };
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
