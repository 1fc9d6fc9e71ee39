//! The socket under one HTTP/2 connection, and what passed over it for each stream.
//!
//! Shared by the task that drives the connection and the exchanges on it, as HTTP/1's is
//! (`wire`), and for the same reasons: to know whether a request has begun to leave, whether it has
//! left completely, and to close with a reset. Deliberately absent: any HTTP beyond frame heads.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use super::frames::{Frames, Passed};
use crate::crash::{self, Point};
use crate::upstream::transport::Transport;

/// The exchanges' side of the socket.
pub(super) struct Line {
    state: Mutex<State>,
    /// Something happened that the connection's driver has to look at.
    pub(super) changed: Notify,
}

/// The side that the HTTP client reads and writes.
pub(super) struct Wire(Arc<Line>);

struct State {
    /// `None` once closed.
    transport: Option<Transport>,
    written: Frames,
    read: Frames,
    /// Of the exchanges that are not over.
    streams: HashMap<u32, Told>,
    /// The newest stream that has begun; they begin in the order of their numbers.
    newest: u32,
    /// Written, and perhaps not yet with the kernel (TLS).
    unflushed: Vec<Passed>,
    /// The last stream a GOAWAY has left in.
    left_in: u32,
    /// How often something was read.
    heard: u64,
}

/// What passed for one stream.
#[derive(Clone, Copy, Default)]
struct Told {
    begun: bool,
    whole: bool,
    reset: bool,
    /// The tool has said its last frame.
    answered: bool,
    /// The tool has reset it.
    ended: bool,
}

impl Line {
    pub(super) fn new(transport: Transport) -> Arc<Self> {
        let state = Mutex::new(State {
            transport: Some(transport),
            written: Frames::of_client(),
            read: Frames::of_server(),
            streams: HashMap::new(),
            newest: 0,
            unflushed: Vec::new(),
            left_in: u32::MAX,
            heard: 0,
        });
        Arc::new(Self {
            state,
            changed: Notify::new(),
        })
    }

    pub(super) fn wire(self: &Arc<Self>) -> Wire {
        Wire(Arc::clone(self))
    }

    /// From here on what passes for this stream is noted, until it is forgotten.
    pub(super) fn watch(&self, stream: u32) {
        let mut state = self.state.lock();
        let told = Told {
            begun: stream <= state.newest,
            ..Told::default()
        };
        state.streams.insert(stream, told);
    }

    /// Whether a byte of this stream may have been sent.
    pub(super) fn begun(&self, stream: u32) -> bool {
        self.told(stream).begun
    }

    /// Whether the whole request was handed to the kernel.
    pub(super) fn whole(&self, stream: u32) -> bool {
        self.told(stream).whole
    }

    /// Whether its RST_STREAM was.
    pub(super) fn reset_sent(&self, stream: u32) -> bool {
        self.told(stream).reset
    }

    /// Whether the tool has said that it did not look at this stream (RFC 9113, 6.8).
    pub(super) fn is_left_out(&self, stream: u32) -> bool {
        stream > self.state.lock().left_in
    }

    /// Whether the tool takes no new streams.
    pub(super) fn is_going_away(&self) -> bool {
        self.state.lock().left_in != u32::MAX
    }

    /// Nobody asks about this stream any more.
    pub(super) fn forget(&self, stream: u32) {
        self.state.lock().streams.remove(&stream);
    }

    /// Whether nothing of it can be on its way any more: the tool has ended it, or both have.
    pub(super) fn is_over(&self, stream: u32) -> bool {
        let told = self.told(stream);
        told.ended || (told.answered && told.whole)
    }

    /// How often something was read.
    pub(super) fn heard(&self) -> u64 {
        self.state.lock().heard
    }

    /// Whether it is closed.
    pub(super) fn is_gone(&self) -> bool {
        self.state.lock().transport.is_none()
    }

    /// Closes with a reset: linger 0, so that unsent bytes die. The socket is gone on return.
    pub(super) fn kill(&self) {
        let transport = self.state.lock().transport.take();
        if let Some(mut transport) = transport {
            transport.reset();
        }
    }

    /// Closes in the ordinary way.
    pub(super) fn close(&self) {
        self.state.lock().transport = None;
    }

    fn told(&self, stream: u32) -> Told {
        self.state
            .lock()
            .streams
            .get(&stream)
            .copied()
            .unwrap_or_default()
    }
}

impl State {
    fn wrote(&mut self, bytes: &[u8]) {
        let (streams, newest) = (&mut self.streams, &mut self.newest);
        let unflushed = &mut self.unflushed;
        self.written.follow(bytes, |passed| match passed {
            // At once: what TLS has taken may be on its way.
            Passed::Begun(stream) => {
                *newest = stream;
                if let Some(told) = streams.get_mut(&stream) {
                    told.begun = true;
                }
            }
            Passed::Whole(_) | Passed::Reset(_) => unflushed.push(passed),
            Passed::GoAway(_) | Passed::Control => {}
        });
    }

    /// What was written is with the kernel; true when a watched stream's RST_STREAM was among it.
    fn flushed(&mut self) -> bool {
        let mut resets = false;
        for passed in self.unflushed.drain(..) {
            match passed {
                Passed::Whole(stream) => {
                    if let Some(told) = self.streams.get_mut(&stream) {
                        crash::at(Point::Sent);
                        told.whole = true;
                    }
                }
                Passed::Reset(stream) => {
                    if let Some(told) = self.streams.get_mut(&stream) {
                        told.reset = true;
                        resets = true;
                    }
                }
                Passed::Begun(_) | Passed::GoAway(_) | Passed::Control => {}
            }
        }
        resets
    }

    fn was_read(&mut self, bytes: &[u8]) {
        self.heard += 1;
        let (streams, left_in) = (&mut self.streams, &mut self.left_in);
        self.read.follow(bytes, |passed| match passed {
            Passed::GoAway(last) => *left_in = last.min(*left_in),
            Passed::Whole(stream) => {
                if let Some(told) = streams.get_mut(&stream) {
                    told.answered = true;
                }
            }
            Passed::Reset(stream) => {
                if let Some(told) = streams.get_mut(&stream) {
                    told.ended = true;
                }
            }
            Passed::Begun(_) | Passed::Control => {}
        });
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
        let state = &mut *self.0.state.lock();
        let Some(transport) = &mut state.transport else {
            return Poll::Ready(Err(gone()));
        };
        let before = buf.filled().len();
        let read = Pin::new(transport).poll_read(cx, buf);
        if matches!(read, Poll::Ready(Ok(()))) {
            state.was_read(&buf.filled()[before..]);
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.state.lock();
        let Some(transport) = &mut state.transport else {
            return Poll::Ready(Err(gone()));
        };
        let wrote = Pin::new(transport).poll_write(cx, crash::part(buf));
        if let Poll::Ready(Ok(n)) = &wrote {
            state.wrote(&buf[..*n]);
            crash::at(Point::MidRequest);
        }
        wrote
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let state = &mut *self.0.state.lock();
        let Some(transport) = &mut state.transport else {
            return Poll::Ready(Err(gone()));
        };
        let wrote = Pin::new(transport).poll_write_vectored(cx, bufs);
        if let Poll::Ready(Ok(n)) = &wrote {
            let mut left = *n;
            for buf in bufs {
                let now = left.min(buf.len());
                state.wrote(&buf[..now]);
                left -= now;
            }
            crash::at(Point::MidRequest);
        }
        wrote
    }

    fn is_write_vectored(&self) -> bool {
        let state = self.0.state.lock();
        state
            .transport
            .as_ref()
            .is_some_and(Transport::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let state = &mut *self.0.state.lock();
        let Some(transport) = &mut state.transport else {
            return Poll::Ready(Err(gone()));
        };
        let flushed = Pin::new(transport).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) && state.flushed() {
            self.0.changed.notify_one();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0.state.lock().transport {
            None => Poll::Ready(Ok(())),
            Some(transport) => Pin::new(transport).poll_shutdown(cx),
        }
    }
}
