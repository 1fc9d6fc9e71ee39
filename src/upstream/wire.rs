//! The socket under one HTTP connection, shared by the task that drives the connection and the
//! exchange that waits for an answer.
//!
//! The exchange needs what hyper does not offer: to know whether the request has left the process
//! completely, to look at an idle socket before it is used again, and to close with a reset, so
//! that bytes still in the kernel's send buffer die with the connection instead of reaching a slow
//! tool after its receipt said "never heard of it". Hence the lock: uncontended on one core, a
//! few nanoseconds a poll. Deliberately absent: any HTTP.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::stand_in::StandIn;
use crate::crash::{self, Point};

/// A connected socket, TLS on top or not.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// A simulation's.
    StandIn(Box<dyn StandIn>),
}

/// The exchange's side of the socket.
pub(super) struct Line(Mutex<State>);

/// The connection task's side of the socket.
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
}

impl Transport {
    /// Whether the socket is open and there is nothing to read.
    fn is_quiet(&self) -> bool {
        let tcp = match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::StandIn(stand_in) => return stand_in.is_quiet(),
        };
        let mut byte = [MaybeUninit::uninit(); 1];
        match SockRef::from(tcp).peek(&mut byte) {
            Ok(_) => false,
            Err(e) => e.kind() == io::ErrorKind::WouldBlock,
        }
    }

    /// Makes the coming close a reset. It fails only on a socket that is already dead.
    fn reset(&mut self) {
        let tcp = match self {
            Self::Plain(tcp) => &*tcp,
            Self::Tls(tls) => tls.get_ref().0,
            Self::StandIn(stand_in) => return stand_in.reset(),
        };
        if let Err(e) = tcp.set_zero_linger() {
            tracing::debug!(error = %e, "linger 0 refused by a dying socket");
        }
    }
}

impl Line {
    /// Splits a fresh socket into the two sides.
    pub(super) fn new(transport: Transport) -> (Arc<Self>, Wire) {
        let line = Arc::new(Self(Mutex::new(State {
            transport: Some(transport),
            busy: false,
            begun: false,
            body_taken: false,
            written: false,
        })));
        (Arc::clone(&line), Wire(line))
    }

    /// An exchange begins.
    pub(super) fn begin(&self) {
        let mut state = self.0.lock();
        state.busy = true;
        state.begun = false;
        state.body_taken = false;
        state.written = false;
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
        state.transport.as_ref().is_some_and(Transport::is_quiet)
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

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.0.0.lock().transport {
            None => Poll::Ready(Err(gone())),
            Some(Transport::Plain(tcp)) => Pin::new(tcp).poll_read(cx, buf),
            Some(Transport::Tls(tls)) => Pin::new(tls).poll_read(cx, buf),
            Some(Transport::StandIn(stand_in)) => Pin::new(stand_in).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.0.0.lock();
        state.begun = state.busy;
        let buf = crash::part(buf);
        let wrote = match &mut state.transport {
            None => Poll::Ready(Err(gone())),
            Some(Transport::Plain(tcp)) => Pin::new(tcp).poll_write(cx, buf),
            Some(Transport::Tls(tls)) => Pin::new(tls).poll_write(cx, buf),
            Some(Transport::StandIn(stand_in)) => Pin::new(stand_in).poll_write(cx, buf),
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
            Some(Transport::Plain(tcp)) => Pin::new(tcp).poll_flush(cx),
            Some(Transport::Tls(tls)) => Pin::new(tls).poll_flush(cx),
            Some(Transport::StandIn(stand_in)) => Pin::new(stand_in).poll_flush(cx),
        };
        if matches!(flushed, Poll::Ready(Ok(()))) && state.begun && state.body_taken {
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
            Some(Transport::Plain(tcp)) => Pin::new(tcp).poll_shutdown(cx),
            Some(Transport::Tls(tls)) => Pin::new(tls).poll_shutdown(cx),
            Some(Transport::StandIn(stand_in)) => Pin::new(stand_in).poll_shutdown(cx),
        }
    }
}
