//! One accepted connection below HTTP: its socket, what it is doing, and since when.
//!
//! hyper owns the socket through [`Socket`] and knows nothing of the rest: where a connection
//! stands ([`Phase`]) is read off its reads, its writes and its requests, so that one sweep per
//! core (`floor`) can do the work of a timer per request. Times are ticks of that sweep; moving
//! from one phase to the next costs two relaxed stores. Deliberately absent: HTTP.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::line::Line;
use super::streams::{Excess, Streams};
use super::tunnel::Switch;
use crate::upstream::headers::Caller;
use crate::upstream::{Frames, Passed};

/// Bytes of an unread upload that are thrown away so that the answer is not lost to a reset.
const LINGER_BYTES: usize = 1024 * 1024;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Accepted; no byte has come.
    Fresh,
    /// A request's head is arriving.
    Head,
    /// At least one request is being worked on.
    Busy,
    /// The answer's head is made; its body may still be on its way.
    Answered,
    /// Answered while its upload was left unread: the connection will end.
    Unread,
    /// Between two requests.
    Idle,
    /// Shut from our side; the caller is given a moment to read.
    Closing,
}

/// One accepted connection.
pub(super) struct Wire {
    stream: TcpStream,
    peer: SocketAddr,
    caller: Arc<Caller>,
    /// Cancelled by a reset or a failed write.
    gone: CancellationToken,
    /// HTTP/2: reads say nothing about requests.
    multiplexed: AtomicBool,
    /// Requests being worked on; more than one on HTTP/2 only.
    requests: AtomicU32,
    /// Answers' bodies on their way; counted on HTTP/2 only.
    bodies: AtomicU32,
    /// What an HTTP/2 caller does beside asking.
    streams: Streams,
    phase: AtomicU8,
    /// The tick the phase began.
    since: AtomicU32,
    /// The tick since which the caller takes no bytes; 0 while it does.
    stalled: AtomicU32,
    /// A request's body is still being read.
    uploading: AtomicBool,
    /// A request's body was given up before its end.
    unread: AtomicBool,
    now: Arc<AtomicU32>,
    /// What the connection goes on as, once its last answer (101) is out.
    switch: Mutex<Option<Switch>>,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Fresh,
        Self::Head,
        Self::Busy,
        Self::Answered,
        Self::Unread,
        Self::Idle,
        Self::Closing,
    ];

    /// Whether nothing of a request has come and nothing of an answer is owed.
    pub(super) const fn is_silent(self) -> bool {
        matches!(self, Self::Fresh | Self::Idle)
    }
}

impl Wire {
    /// `now` is the tick of the core's sweep; it never is 0.
    pub(super) fn new(stream: TcpStream, peer: SocketAddr, now: Arc<AtomicU32>) -> Arc<Self> {
        Arc::new(Self {
            stream,
            peer,
            caller: Arc::new(Caller::at(peer.ip())),
            gone: CancellationToken::new(),
            multiplexed: AtomicBool::new(false),
            requests: AtomicU32::new(0),
            bodies: AtomicU32::new(0),
            streams: Streams::default(),
            phase: AtomicU8::new(Phase::Fresh as u8),
            since: AtomicU32::new(now.load(Relaxed)),
            stalled: AtomicU32::new(0),
            uploading: AtomicBool::new(false),
            unread: AtomicBool::new(false),
            now,
            switch: Mutex::new(None),
        })
    }

    /// Notes what the connection goes on as after the answer that is on its way.
    pub(super) fn arm(&self, switch: Switch) {
        *self.switch.lock() = Some(switch);
    }

    /// What the connection goes on as, now that HTTP has ended on it.
    pub(super) fn take_switch(&self) -> Option<Switch> {
        self.switch.lock().take()
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The caller as the tools hear of it.
    pub(super) const fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    pub(super) const fn gone(&self) -> &CancellationToken {
        &self.gone
    }

    /// The connection as a call sees it.
    pub(super) fn line(self: &Arc<Self>) -> Line {
        Line::new(Arc::downgrade(self))
    }

    /// What tells one request that its caller is gone: on HTTP/2 a stream can go alone.
    pub(super) fn gone_of_request(&self) -> CancellationToken {
        if self.is_multiplexed() {
            self.gone.child_token()
        } else {
            self.gone.clone()
        }
    }

    pub(super) fn phase(&self) -> Phase {
        Phase::ALL[usize::from(self.phase.load(Relaxed))]
    }

    /// Ticks in this phase.
    pub(super) fn phase_ticks(&self) -> u32 {
        self.now
            .load(Relaxed)
            .wrapping_sub(self.since.load(Relaxed))
    }

    /// Ticks for which the caller has taken no byte of what is written.
    pub(super) fn stalled_ticks(&self) -> Option<u32> {
        let since = self.stalled.load(Relaxed);
        (since != 0).then(|| self.now.load(Relaxed).wrapping_sub(since))
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Relaxed)
    }

    /// From here on reads say nothing about requests (HTTP/2).
    pub(super) fn multiplex(&self) {
        self.multiplexed.store(true, Relaxed);
        self.enter(Phase::Idle);
    }

    pub(super) const fn streams(&self) -> &Streams {
        &self.streams
    }

    /// The present tick.
    pub(super) fn now(&self) -> u32 {
        self.now.load(Relaxed)
    }

    /// The body of an answer is on its way (HTTP/2).
    pub(super) fn carry(&self) {
        self.bodies.fetch_add(1, Relaxed);
        self.enter(Phase::Busy);
    }

    /// It has left, or never will.
    pub(super) fn carried(&self) {
        if self.bodies.fetch_sub(1, Relaxed) == 1 && self.requests.load(Relaxed) == 0 {
            self.enter(Phase::Idle);
        }
    }

    /// A request of HTTP/2 was answered, or reset by its caller.
    pub(super) fn stream_ended(&self, answered: bool) {
        if answered {
            self.streams.answered();
        } else if let Some(excess) = self.streams.left() {
            self.cut_off(excess);
        }
    }

    /// Ends a connection of HTTP/2 that costs more than is borne.
    pub(super) fn cut_off(&self, excess: Excess) {
        self.streams.note(excess);
        self.abort();
        self.close();
    }

    /// A request's head is complete. With a body, that is read until
    /// [`uploaded`](Self::uploaded).
    pub(super) fn begin(&self, has_body: bool) {
        self.requests.fetch_add(1, Relaxed);
        self.uploading.store(has_body, Relaxed);
        self.unread.store(false, Relaxed);
        self.enter(Phase::Busy);
    }

    /// A request's answer is made, or its caller has left.
    pub(super) fn answered(&self) {
        if self.requests.fetch_sub(1, Relaxed) > 1 {
            return;
        }
        self.enter(match (self.is_multiplexed(), self.unread.load(Relaxed)) {
            (true, _) if self.bodies.load(Relaxed) > 0 => Phase::Busy,
            (true, _) => Phase::Idle,
            (false, true) => Phase::Unread,
            (false, false) => Phase::Answered,
        });
    }

    /// A body was read to its end, or given up.
    pub(super) fn uploaded(&self, to_its_end: bool) {
        self.uploading.store(false, Relaxed);
        if !to_its_end {
            self.unread.store(true, Relaxed);
        }
    }

    /// Whether the last request's body was given up before its end.
    pub(super) fn was_left_unread(&self) -> bool {
        self.unread.load(Relaxed)
    }

    /// Ends the connection from below: hyper sees its end at the next read or write.
    pub(super) fn close(&self) {
        // It fails when the caller was faster, and then there is nothing left to do.
        drop(SockRef::from(&self.stream).shutdown(Shutdown::Both));
    }

    /// Makes the coming close a reset, so that nobody takes what was sent for the whole.
    pub(super) fn abort(&self) {
        drop(SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)));
    }

    /// Writes past hyper, where it is known to write nothing itself; all of it or not at all.
    pub(super) fn last_words(&self, bytes: &[u8]) {
        drop(self.stream.try_write(bytes));
    }

    /// Whether bytes lie unread in the kernel.
    pub(super) fn has_unread(&self) -> bool {
        matches!(self.peek(), Ok(1..))
    }

    /// Whether the caller has shut its writing side and everything before that was read.
    pub(super) fn was_half_closed(&self) -> bool {
        !self.is_multiplexed() && !matches!(self.peek(), Ok(1..) | Err(io::ErrorKind::WouldBlock))
    }

    fn peek(&self) -> Result<usize, io::ErrorKind> {
        let mut one = [std::mem::MaybeUninit::uninit(); 1];
        SockRef::from(&self.stream)
            .peek(&mut one)
            .map_err(|error| error.kind())
    }

    fn enter(&self, phase: Phase) {
        self.since.store(self.now.load(Relaxed), Relaxed);
        self.phase.store(phase as u8, Relaxed);
    }

    fn before_read(&self) {
        // With `half_close` hyper reads in three places only: a request's body, the rest of a body
        // nobody wanted, and the next head. The first two are told apart here.
        if self.phase() == Phase::Answered
            && !self.uploading.load(Relaxed)
            && !self.unread.load(Relaxed)
            && !self.is_multiplexed()
        {
            self.enter(Phase::Idle);
        }
    }

    /// Bytes have come; the first of them begin a head.
    pub(super) fn after_read(&self) {
        if self.phase().is_silent() && !self.is_multiplexed() {
            self.enter(Phase::Head);
        }
    }

    fn stall(&self) {
        if self.stalled.load(Relaxed) == 0 {
            self.stalled.store(self.now.load(Relaxed), Relaxed);
        }
    }

    fn flows(&self) {
        if self.stalled.load(Relaxed) != 0 {
            self.stalled.store(0, Relaxed);
        }
    }
}

/// The socket as hyper holds it.
pub(super) struct Socket {
    wire: Arc<Wire>,
    /// Bytes thrown away while closing; `None` while open.
    lingering: Option<usize>,
    /// Read before, by the plain server: comes first.
    ahead: Bytes,
    /// What is read, frame by frame (HTTP/2).
    frames: Option<Frames>,
}

impl Socket {
    pub(super) fn new(wire: Arc<Wire>) -> Self {
        let frames = wire.is_multiplexed().then(Frames::of_client);
        Self {
            wire,
            lingering: None,
            ahead: Bytes::new(),
            frames,
        }
    }

    /// Puts back what was read and not answered. Where the connection stands was noted when it
    /// came.
    pub(super) fn put_back(&mut self, read: Bytes) {
        self.ahead = read;
    }

    /// Counts what only wants an acknowledgement.
    fn count(&mut self, read: &[u8]) {
        let Some(frames) = &mut self.frames else {
            return;
        };
        let mut control = 0;
        frames.follow(read, |passed| {
            control += u32::from(passed == Passed::Control)
        });
        if control > 0
            && let Some(excess) = self.wire.streams.control(control)
        {
            self.wire.cut_off(excess);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let now = self.ahead.len().min(buf.remaining());
            buf.put_slice(&self.ahead.split_to(now));
            return Poll::Ready(Ok(()));
        }
        let wire = &self.wire;
        wire.before_read();
        let before = buf.filled().len();
        let room = buf.remaining();
        let read = loop {
            ready!(wire.stream.poll_read_ready(cx))?;
            match wire.stream.try_read_buf(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => break other,
            }
        };
        match read {
            Ok(0) => {}
            Ok(n) => {
                if n < room {
                    forget_readiness(&wire.stream);
                }
                wire.after_read();
                self.count(&buf.filled()[before..]);
            }
            Err(error) => {
                wire.gone.cancel();
                return Poll::Ready(Err(error));
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// A read that did not fill its buffer has emptied the socket; saying so saves the read that would
/// only find that out. Nothing is lost: the driver runs on this very thread, so no event can have
/// come between the read and this.
fn forget_readiness(stream: &TcpStream) {
    let would_block = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
    drop(stream.try_io(Interest::READABLE, would_block));
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wire = &self.wire;
        loop {
            let Poll::Ready(ready) = wire.stream.poll_write_ready(cx) else {
                wire.stall();
                return Poll::Pending;
            };
            match ready.and_then(|()| wire.stream.try_write(buf)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => {
                    wire.gone.cancel();
                    return Poll::Ready(Err(error));
                }
                Ok(n) => {
                    wire.flows();
                    return Poll::Ready(Ok(n));
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Shuts the writing side, then reads on and throws away until the caller has closed too: a
    /// close over unread bytes would be a reset, and a reset can overtake the answer. Bounded by
    /// [`LINGER_BYTES`] and, in time, by the sweep.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let unread = self.wire.phase() == Phase::Unread || self.wire.has_unread();
            drop(SockRef::from(&self.wire.stream).shutdown(Shutdown::Write));
            if !unread || self.wire.is_multiplexed() {
                return Poll::Ready(Ok(()));
            }
            self.wire.enter(Phase::Closing);
            self.lingering = Some(0);
        }
        let mut waste = [0; 4096];
        loop {
            ready!(self.wire.stream.poll_read_ready(cx))?;
            match self.wire.stream.try_read(&mut waste) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return Poll::Ready(Ok(())),
                Ok(n) => {
                    let thrown = self.lingering.unwrap_or(0) + n;
                    self.lingering = Some(thrown);
                    if thrown > LINGER_BYTES {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
    }
}
