//! Whether a connection of an operator is silent, so that idle ones make room.
//!
//! A byte in either direction is a sign of life, and so is a request whose answer, or the next
//! piece of it, is still being made, which has bounds of its own. The library's timeouts begin with
//! a request's head: a connection that never sends one, or an HTTP/2 one that is done, would stay
//! for ever.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::sleep;

/// A connection that is silent for so long is closed, at the latest when it was for twice as long.
const SILENT_MAX: Duration = Duration::from_secs(30);

/// The same while others wait for its place.
const SILENT_MAX_CROWDED: Duration = Duration::from_secs(1);

/// The signs of life of one connection.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    beats: AtomicU64,
    /// Requests in work.
    working: AtomicU64,
}

/// A request in work.
pub(super) struct Turn(Arc<Pulse>);

/// A body that is in work while its next piece is waited for; not while nobody takes what is there.
pub(super) struct Answering<B> {
    body: B,
    pulse: Arc<Pulse>,
    turn: Option<Turn>,
}

/// A socket whose bytes are signs of life.
pub(super) struct Watched<S> {
    pub(super) socket: S,
    pub(super) pulse: Arc<Pulse>,
}

impl Pulse {
    /// A request is in work from now on, until what comes back is dropped.
    pub(super) fn turn(self: &Arc<Self>) -> Turn {
        self.working.fetch_add(1, Relaxed);
        Turn(Arc::clone(self))
    }

    /// Resolves when the connection has been silent for too long: less time than usual once it was
    /// told that it is `crowded`.
    pub(super) async fn stops(&self, crowded: &Notify) {
        loop {
            let seen = self.beats.load(Relaxed);
            tokio::select! {
                () = sleep(SILENT_MAX) => {}
                () = crowded.notified() => sleep(SILENT_MAX_CROWDED).await,
            }
            if self.beats.load(Relaxed) == seen && self.working.load(Relaxed) == 0 {
                return;
            }
        }
    }

    fn beat(&self) {
        self.beats.fetch_add(1, Relaxed);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.beat();
        self.0.working.fetch_sub(1, Relaxed);
    }
}

impl<B> Answering<B> {
    pub(super) const fn new(body: B, pulse: Arc<Pulse>) -> Self {
        Self {
            body,
            pulse,
            turn: None,
        }
    }
}

impl<B: Body + Unpin> Body for Answering<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.turn = frame.is_pending().then(|| self.pulse.turn());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if read.is_ready() {
            self.pulse.beat();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(cx, buf);
        if written.is_ready() {
            self.pulse.beat();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        if written.is_ready() {
            self.pulse.beat();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::time::timeout;

    use super::*;

    /// Whether it is taken for silent within `secs`.
    async fn stops_within(pulse: &Pulse, crowded: &Notify, secs: u64) -> bool {
        let within = Duration::from_secs(secs);
        timeout(within, pulse.stops(crowded)).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_says_nothing_stops_and_one_that_works_does_not() {
        let (pulse, crowded) = (Arc::new(Pulse::default()), Notify::new());
        let turn = pulse.turn();
        assert!(!stops_within(&pulse, &crowded, 3_600).await);
        drop(turn);
        assert!(!stops_within(&pulse, &crowded, 29).await);
        assert!(stops_within(&pulse, &crowded, 61).await);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_signs_of_life_and_a_crowd_shortens_the_patience() {
        let (pulse, crowded) = (Arc::new(Pulse::default()), Notify::new());
        let (mut peer, socket) = tokio::io::duplex(64);
        let mut socket = Watched {
            socket,
            pulse: Arc::clone(&pulse),
        };
        let talk = async {
            for _ in 0..10 {
                sleep(Duration::from_secs(20)).await;
                peer.write_all(b"?").await.unwrap();
                socket.read_exact(&mut [0]).await.unwrap();
            }
        };
        tokio::select! {
            biased;
            () = pulse.stops(&crowded) => panic!("it was alive"),
            () = talk => {}
        }
        let crowd = async {
            sleep(Duration::from_millis(500)).await;
            crowded.notify_waiters();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            stopped = stops_within(&pulse, &crowded, 2) => assert!(stopped),
            () = crowd => {}
        }
    }
}
