//! The socket under one HTTP connection, shared by whoever speaks HTTP on it (the plain client, or
//! the task that drives hyper's connection) and the exchange that waits for an answer.
//!
//! The exchange needs what hyper does not offer: to know whether the request has left the process
//! completely, to look at an idle socket before it is used again, and to close with a reset, so
//! that bytes still in the kernel's send buffer die with the connection instead of reaching a slow
//! tool after its receipt said "never heard of it". Hence the lock: uncontended on one core, a
//! few nanoseconds a poll. Deliberately absent: any HTTP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::transport::Transport;
use crate::crash::{self, Point};

/// The exchange's side of the socket.
pub(super) struct Line(Mutex<State>);

/// The side of the socket that hyper reads and writes.
pub(super) struct Wire(Arc<Line>);

struct State {
    /// `None` once closed; the task then sees an aborted connection.
    transport: Option<Transport>,
    /// An exchange is under way: whatever closes the socket now closes it with a reset.
    busy: bool,
    /// Bytes of this exchange were offered to the socket.
    begun: bool,
    /// The HTTP client has taken the last byte of the request's body.
    body_taken: bool,
    /// The whole request was handed to the kernel.
    written: bool,
    /// Nothing can follow this exchange on this connection.
    last: bool,
    /// An answer that hyper reads to a request that it did not write.
    handover: Option<Handover>,
}

/// What the plain client leaves behind when hyper goes on for it. hyper writes a request of its
/// own, of which nothing reaches the socket, and then reads the answer to the real one.
struct Handover {
    /// What was read of the answer: the first that hyper reads.
    read: Bytes,
    /// What was not written of the request: written in the place of hyper's own.
    unsent: Bytes,
    /// hyper has begun to write its own, so it takes what it reads for an answer.
    asked: bool,
}

impl Line {
    /// Takes a fresh socket.
    pub(super) fn new(transport: Transport) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            transport: Some(transport),
            busy: false,
            begun: false,
            body_taken: false,
            written: false,
            last: false,
            handover: None,
        })))
    }

    /// The side for hyper.
    pub(super) fn wire(self: &Arc<Self>) -> Wire {
        Wire(Arc::clone(self))
    }

    /// An exchange begins.
    pub(super) fn begin(&self) {
        let mut state = self.0.lock();
        state.busy = true;
        state.begun = false;
        state.body_taken = false;
        state.written = false;
        state.handover = None;
    }

    /// Writes for the plain client, which calls [`sent`](Self::sent) at the request's end.
    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let bytes = crash::part(bytes);
        let wrote = match &mut self.0.lock().transport {
            None => Poll::Ready(Err(gone())),
            Some(transport) => Pin::new(transport).poll_write(cx, bytes),
        };
        if wrote.is_ready() {
            crash::at(Point::MidRequest);
        }
        wrote
    }

    /// Reads for the plain client, as much as `buffer` has room for.
    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut BytesMut,
    ) -> Poll<io::Result<usize>> {
        match &mut self.0.lock().transport {
            None => Poll::Ready(Err(gone())),
            Some(transport) => poll_read_buf(Pin::new(transport), cx, buffer),
        }
    }

    /// The same into memory that is there already.
    pub(super) fn poll_read_into(
        &self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0.lock().transport {
            None => Poll::Ready(Err(gone())),
            Some(transport) => Pin::new(transport).poll_read(cx, buf),
        }
    }

    /// The plain client has handed the whole request to the kernel.
    pub(super) fn sent(&self) {
        crash::at(Point::Sent);
        self.0.lock().written = true;
    }

    /// Nothing can follow this exchange on this connection.
    pub(super) fn end_here(&self) {
        self.0.lock().last = true;
    }

    /// Whether nothing can follow.
    pub(super) fn ends_here(&self) -> bool {
        self.0.lock().last
    }

    /// hyper goes on with this exchange: it reads what was `read` of the answer, and what was
    /// `unsent` of the request goes out first.
    pub(super) fn hand_over(&self, read: Bytes, unsent: Bytes) {
        let mut state = self.0.lock();
        state.begun = true;
        state.body_taken = true;
        state.handover = Some(Handover {
            read,
            unsent,
            asked: false,
        });
    }

    /// The exchange is over and left nothing behind: closing is an ordinary close again.
    pub(super) fn rest(&self) {
        self.0.lock().busy = false;
    }

    /// The HTTP client has taken the request's last byte.
    pub(super) fn body_taken(&self) {
        self.0.lock().body_taken = true;
    }

    /// Whether the whole request of this exchange was handed to the kernel.
    pub(super) fn written(&self) -> bool {
        self.0.lock().written
    }

    /// Whether an idle socket is open and silent. Anything to read (an end, an error, bytes nobody
    /// asked for) makes it unusable.
    pub(super) fn is_quiet(&self) -> bool {
        let state = self.0.lock();
        let nothing_left = state.handover.as_ref().is_none_or(|h| h.read.is_empty());
        nothing_left && state.transport.as_ref().is_some_and(Transport::is_quiet)
    }

    /// Whether nothing was heard of an idle socket when the kernel was last asked about it; no
    /// system call.
    pub(super) fn is_silent(&self) -> bool {
        let state = self.0.lock();
        state.transport.as_ref().is_some_and(Transport::is_silent)
    }

    /// Closes with a reset: linger 0, so that unsent bytes die. The socket is gone on return.
    pub(super) fn reset(&self) {
        let mut state = self.0.lock();
        if let Some(mut transport) = state.transport.take() {
            transport.reset();
        }
    }

    /// Closes in the ordinary way; what the kernel holds is still delivered.
    pub(super) fn close(&self) {
        self.0.lock().transport = None;
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if self.busy
            && let Some(transport) = &mut self.transport
        {
            transport.reset();
        }
    }
}

fn gone() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

impl Handover {
    /// Takes hyper's request for written once the real one is.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        own: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.asked = true;
        while !self.unsent.is_empty() {
            let written = ready!(Pin::new(&mut *transport).poll_write(cx, &self.unsent))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.unsent.advance(written);
        }
        Poll::Ready(Ok(own.len()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.0.0.lock();
        if let Some(handover) = &mut state.handover {
            if !handover.asked {
                // Read before it has asked, an answer would be one that nobody asked for. It
                // writes in this very poll; then it reads again.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if !handover.read.is_empty() {
                let now = handover.read.len().min(buf.remaining());
                buf.put_slice(&handover.read.split_to(now));
                return Poll::Ready(Ok(()));
            }
        }
        match &mut state.transport {
            None => Poll::Ready(Err(gone())),
            Some(transport) => Pin::new(transport).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.0.lock();
        state.begun = state.busy;
        let buf = crash::part(buf);
        let wrote = match (&mut state.transport, &mut state.handover) {
            (None, _) => Poll::Ready(Err(gone())),
            (Some(transport), Some(handover)) => handover.poll_write(cx, transport, buf),
            (Some(transport), None) => Pin::new(transport).poll_write(cx, buf),
        };
        if wrote.is_ready() {
            crash::at(Point::MidRequest);
        }
        wrote
    }

    /// The HTTP client flushes only after all it had buffered was accepted, so a flush that ends
    /// after the body's last byte was taken means that the kernel has the whole request.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.0.lock();
        let flushed = match &mut state.transport {
            None => Poll::Ready(Err(gone())),
            Some(transport) => Pin::new(transport).poll_flush(cx),
        };
        let unasked = state.handover.as_ref().is_some_and(|h| !h.asked);
        let whole = state.begun && state.body_taken && !unasked;
        if matches!(flushed, Poll::Ready(Ok(()))) && whole {
            if !state.written {
                crash::at(Point::Sent);
            }
            state.written = true;
        }
        flushed
    }

    /// An idle connection ends with a FIN. One with an exchange on it is left to the exchange,
    /// which knows whether a reset is due.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.0.lock();
        if state.busy {
            return Poll::Ready(Ok(()));
        }
        match &mut state.transport {
            None => Poll::Ready(Ok(())),
            Some(transport) => Pin::new(transport).poll_shutdown(cx),
        }
    }
}
