//! A caller's connection after a 101: bytes both ways until either side ends or both fall silent.
//!
//! It stays in its place on the floor, so that it counts as a connection, ends with a reset of its
//! caller and is cut off when a drain runs out of grace. Deliberately absent: frames; what is said
//! in a tunnel is opaque.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderValue};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use super::cores::Core;
use super::reply::remove_own;
use super::wire::Wire;
use crate::flow::told::{Shown, Switched, Told};
use crate::upstream::Tunnel;

/// What a connection goes on as once its 101 is out.
pub(super) struct Switch {
    caller: OnUpgrade,
    tool: Tunnel,
    idle: Duration,
}

/// One end of a tunnel; says whether anything passed.
struct Watched<T> {
    inner: T,
    moved: Arc<AtomicBool>,
}

/// The end-to-end fields of a 101, and those of this hop.
pub(super) fn headers(switched: &Switched) -> HeaderMap {
    let mut headers = switched.headers.clone();
    remove_own(&mut headers);
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, switched.protocol.clone());
    headers
}

/// Keeps the tool's end of a tunnel for the time after the answer.
pub(super) fn arm(told: &mut Told, wire: &Wire, caller: Option<OnUpgrade>) {
    let Shown::Tunnel(switched) = &mut told.shown else {
        return;
    };
    if let (Some(caller), Some(tool)) = (caller, switched.tunnel.take()) {
        let idle = switched.idle;
        wire.arm(Switch { caller, tool, idle });
    }
}

impl Switch {
    /// Carries bytes both ways until both sides have ended, one breaks, or nothing moved for
    /// `timeouts.idle`.
    pub(super) async fn relay(self, wire: &Arc<Wire>, core: &Core) {
        let Self { caller, tool, idle } = self;
        let caller = match caller.await {
            Ok(caller) => TokioIo::new(caller),
            Err(error) => {
                tracing::debug!(%error, "a caller left before its tunnel began");
                return;
            }
        };
        wire.begin(false);
        let moved = Arc::new(AtomicBool::new(true));
        let mut caller = Watched::new(caller, &moved);
        let mut tool = Watched::new(tool, &moved);
        let silent = async {
            while moved.swap(false, Relaxed) {
                core.wheel().sleep(idle).await;
            }
        };
        tokio::select! {
            ended = copy_bidirectional(&mut caller, &mut tool) => match ended {
                Ok((up, down)) => tracing::debug!(up, down, "a tunnel ended"),
                Err(error) => tracing::debug!(%error, "a tunnel broke"),
            },
            () = silent => tracing::debug!(?idle, "a tunnel was silent for too long"),
        }
        wire.answered();
    }
}

impl<T> Watched<T> {
    fn new(inner: T, moved: &Arc<AtomicBool>) -> Self {
        let moved = Arc::clone(moved);
        Self { inner, moved }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.moved.store(true, Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
