//! The body of an answer, read with a bound on every gap.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::{Core, http2, plain};
use crate::call::outcome::Unclear;
use crate::clock::wheel::Sleep;

/// Where an answer's body comes from.
pub(super) enum Source {
    Hyper(Incoming),
    Plain(plain::Body),
    Http2(http2::Body),
}

/// What a connection said in the middle of an answer.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An answer's body. The gap timer exists only while a read waits.
pub(super) struct Reading {
    /// Read before and put back, the last first: comes before the rest.
    ahead: Vec<Bytes>,
    /// The same for trailers: they come last.
    trailers: Option<HeaderMap>,
    body: Source,
    idle: Duration,
    gap: Option<Sleep>,
}

/// Why a body is not complete.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("the answer broke off")]
    Cut(#[source] BoxError),
    #[error("the answer was silent for {0:?}")]
    Idle(Duration),
}

impl Trouble {
    pub(super) const fn unclear(&self) -> Unclear {
        match self {
            Self::Cut(_) => Unclear::Disconnect,
            Self::Idle(_) => Unclear::Timeout,
        }
    }
}

impl Source {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self {
            Self::Hyper(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(BoxError::from))),
            Self::Plain(body) => body
                .poll_data(cx)
                .map(|data| data.map(|data| data.map(Frame::data).map_err(BoxError::from))),
            Self::Http2(body) => body.poll_frame(cx),
        }
    }

    /// The whole body, if it has arrived and is at most `limit` bytes long. Only the plain client
    /// says.
    pub(super) fn take_if_here(&mut self, limit: usize) -> Option<Bytes> {
        match self {
            Self::Hyper(_) | Self::Http2(_) => None,
            Self::Plain(body) => body.take_if_here(limit),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Hyper(body) => body.is_end_stream(),
            Self::Plain(body) => body.left() == 0,
            Self::Http2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Hyper(body) => body.size_hint(),
            Self::Plain(body) => SizeHint::with_exact(body.left()),
            Self::Http2(body) => body.size_hint(),
        }
    }
}

impl Reading {
    pub(super) const fn new(body: Source, idle: Duration) -> Self {
        Self {
            ahead: Vec::new(),
            trailers: None,
            body,
            idle,
            gap: None,
        }
    }

    /// Puts back all that was read, once, in its order.
    pub(super) fn put_back(&mut self, mut pieces: Vec<Bytes>) {
        pieces.retain(|piece| !piece.is_empty());
        pieces.reverse();
        self.ahead = pieces;
    }

    /// Puts trailers back that were all there was.
    pub(super) fn put_back_trailers(&mut self, trailers: HeaderMap) {
        self.trailers = Some(trailers);
    }

    /// Whether the last byte was read. Not every kind of body knows before it is read once more.
    pub(super) fn is_done(&self) -> bool {
        self.ahead.is_empty() && self.trailers.is_none() && self.body.is_end_stream()
    }

    /// What is still to come, as far as it was announced.
    pub(super) fn remaining(&self) -> SizeHint {
        let rest = self.body.size_hint();
        let ahead = self.ahead.iter().map(Bytes::len).sum::<usize>() as u64;
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(ahead));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(ahead));
        }
        hint
    }

    /// Room for what was read and what was announced.
    pub(super) fn hint(&self, read: usize) -> usize {
        let rest = self
            .body
            .size_hint()
            .exact()
            .and_then(|n| usize::try_from(n).ok());
        read.saturating_add(rest.unwrap_or(read))
    }

    pub(super) fn poll_frame(
        &mut self,
        core: &Core,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Trouble>>> {
        if let Some(piece) = self.ahead.pop() {
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        if let Some(trailers) = self.trailers.take() {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Poll::Ready(frame) = self.body.poll_frame(cx) {
            self.gap = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(Trouble::Cut)));
        }
        let idle = self.idle;
        let gap = self.gap.get_or_insert_with(|| core.wheel.sleep(idle));
        ready!(Pin::new(gap).poll(cx));
        Poll::Ready(Some(Err(Trouble::Idle(idle))))
    }

    /// The next bytes; trailers are read and dropped.
    pub(super) async fn data(&mut self, core: &Core) -> Result<Option<Bytes>, Trouble> {
        loop {
            match std::future::poll_fn(|cx| self.poll_frame(core, cx)).await {
                None => return Ok(None),
                Some(Err(trouble)) => return Err(trouble),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    /// What can be read without waiting: mostly all of a short body, which came with its head.
    pub(super) async fn now(&mut self) -> Now {
        std::future::poll_fn(|cx| {
            let now = match self.body.poll_frame(cx) {
                Poll::Pending => Now::Nothing,
                Poll::Ready(None) => Now::End,
                Poll::Ready(Some(Err(source))) => Now::Trouble(Trouble::Cut(source)),
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Now::Data(data),
                    // Trailers at once: there was no body.
                    Err(frame) => frame.into_trailers().map_or(Now::End, Now::Trailers),
                },
            };
            Poll::Ready(now)
        })
        .await
    }
}

/// What a body had ready.
pub(super) enum Now {
    Nothing,
    Data(Bytes),
    Trailers(HeaderMap),
    End,
    Trouble(Trouble),
}
