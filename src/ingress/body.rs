//! A request's body: collected up to the route's limit, or passed on while it arrives.
//!
//! A caller may not sit on an unfinished body: a streamed one may pause for `limits.body_timeout`,
//! and of a collected one, which holds memory, every `SLICE` has to arrive within it. Memory is
//! what has arrived, never what was announced. Deliberately absent: decompression; bodies are
//! opaque.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use super::hush;
use super::wire::Wire;
use crate::clock::wheel;
use crate::flow::told::{BodyError, Stream};
use crate::upstream::{self, Full};

/// How much of a collected body restarts the wait: about 2 KiB/s at the default timeout, slower
/// than any network that can carry a call at all.
const SLICE: usize = 64 * 1024;

/// A request's body as its connection has it.
pub(super) enum Raw {
    /// It came with its head.
    Whole(Bytes),
    /// hyper reads it.
    Arriving(Incoming),
}

/// The body of a request that is passed on.
pub enum Payload {
    /// It is small, or its call id had to be looked for in it.
    Whole(Bytes),
    /// It is still arriving.
    Arriving(Arriving),
}

/// A body that is still arriving.
pub struct Arriving {
    body: Raw,
    /// Bytes that may still come.
    left: usize,
    pace: Pace,
    ended: bool,
    fate: Fate,
    wire: Arc<Wire>,
}

/// Why a body is not there. The caller's doing, but for a want of room.
#[derive(Debug, thiserror::Error)]
pub enum BodyProblem {
    /// It is longer than `body.max_request`.
    #[error("the request body is longer than the route allows")]
    TooLarge,
    /// There is no room for it among the bodies held (`limits.bodies`).
    #[error(transparent)]
    NoRoom(#[from] Full),
    /// It paused for longer than `limits.body_timeout`.
    #[error("the request body did not arrive in time")]
    TooSlow,
    /// It was cut short, or broke its framing.
    #[error("the request body ended early or broke its framing")]
    Broken(#[source] hyper::Error),
}

/// Which [`BodyProblem`] it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    TooLarge,
    NoRoom,
    TooSlow,
    Broken,
}

/// What became of a streamed body, for whoever answers its caller; of a collected one nobody asks.
#[derive(Clone, Default)]
pub(super) struct Fate(Option<Arc<OnceLock<Fault>>>);

/// The wait for the next piece. No timer exists until a piece is really missing.
struct Pace {
    core: upstream::Core,
    patience: Duration,
    /// Bytes that restart the wait.
    enough: usize,
    came: usize,
    wait: Option<wheel::Sleep>,
}

/// How a body is read.
#[derive(Clone)]
pub(super) struct Reading {
    /// Where its waits are, and where room for it is taken when it is collected.
    pub(super) core: upstream::Core,
    /// `limits.body_timeout`.
    pub(super) patience: Duration,
    /// The longest body taken: `body.max_request` for one that is collected.
    pub(super) limit: usize,
    /// Where it comes from.
    pub(super) wire: Arc<Wire>,
}

impl Raw {
    /// Whether nothing more of it has to be read off the connection.
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Arriving(body) => body.is_end_stream(),
        }
    }
}

impl Body for Raw {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            Self::Whole(rest) if rest.is_empty() => Poll::Ready(None),
            Self::Whole(rest) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(rest))))),
            Self::Arriving(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(rest) => rest.is_empty(),
            Self::Arriving(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Self::Arriving(body) => body.size_hint(),
        }
    }
}

impl Arriving {
    pub(super) fn new(body: Raw, reading: Reading, fate: Fate) -> Self {
        Self::paced(body, reading, fate, 1)
    }

    fn paced(body: Raw, reading: Reading, fate: Fate, enough: usize) -> Self {
        let Reading {
            core,
            patience,
            limit,
            wire,
        } = reading;
        let pace = Pace {
            core,
            patience,
            enough,
            came: 0,
            wait: None,
        };
        let ended = body.is_end_stream();
        Self {
            body,
            left: limit,
            pace,
            ended,
            fate,
            wire,
        }
    }

    /// As the house's stream of bytes.
    #[must_use]
    pub fn into_stream(self) -> Stream {
        self.map_err(|problem| BodyError::from(Box::new(problem)))
            .boxed_unsync()
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = BodyProblem;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyProblem>>> {
        let this = self.get_mut();
        let next = ready!(this.poll_next(cx));
        match &next {
            Some(Ok(_)) => this.ended = this.body.is_end_stream(),
            Some(Err(problem)) => this.fate.note(problem.fault()),
            None => this.ended = true,
        }
        Poll::Ready(next)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Arriving {
    fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyProblem>>> {
        let polled = hush::taken(
            &mut self.body,
            cx,
            |body, cx| Pin::new(body).poll_frame(cx),
            |body| !body.is_end_stream(),
        );
        let Poll::Ready(next) = polled else {
            ready!(self.pace.poll_too_slow(cx));
            return Poll::Ready(Some(Err(BodyProblem::TooSlow)));
        };
        Poll::Ready(next.map(|frame| {
            let frame = frame.map_err(BodyProblem::Broken)?;
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.left = self.left.checked_sub(bytes).ok_or(BodyProblem::TooLarge)?;
            self.pace.came(bytes);
            Ok(frame)
        }))
    }
}

impl BodyProblem {
    pub(super) const fn fault(&self) -> Fault {
        match self {
            Self::TooLarge => Fault::TooLarge,
            Self::NoRoom(_) => Fault::NoRoom,
            Self::TooSlow => Fault::TooSlow,
            Self::Broken(_) => Fault::Broken,
        }
    }
}

impl Fate {
    /// One that is asked.
    pub(super) fn watched() -> Self {
        Self(Some(Arc::default()))
    }

    /// What was wrong with the body, if it broke off.
    pub(super) fn fault(&self) -> Option<Fault> {
        self.0.as_ref()?.get().copied()
    }

    fn note(&self, fault: Fault) {
        if let Some(fate) = &self.0 {
            // The first fault ended the body; there is no second.
            let _first_counts = fate.set(fault);
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        self.wire.uploaded(self.ended);
    }
}

impl Pace {
    fn poll_too_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let wait = self
            .wait
            .get_or_insert_with(|| self.core.wheel.sleep(self.patience));
        Pin::new(wait).poll(cx)
    }

    fn came(&mut self, bytes: usize) {
        self.came += bytes;
        if self.came >= self.enough {
            self.came = 0;
            self.wait = None;
        }
    }
}

/// Collects a body.
///
/// # Errors
/// What is wrong with it.
pub(super) async fn collect(body: Raw, reading: Reading) -> Result<Bytes, BodyProblem> {
    if let Raw::Whole(whole) = body {
        return match whole.len() <= reading.limit {
            true => Ok(reading.core.bodies.keep(whole)?),
            false => Err(BodyProblem::TooLarge),
        };
    }
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let mut body = Arriving::paced(body, reading, Fate::default(), SLICE);
    let Some(first) = next_data(&mut body).await? else {
        return Ok(Bytes::new());
    };
    // The common case: the body came with its head, in one piece, and is not copied.
    if body.is_end_stream() {
        return Ok(body.pace.core.bodies.keep(first)?);
    }
    let mut whole = body.pace.core.bodies.gather();
    let mut next = Some(first);
    while let Some(piece) = next {
        let rest = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        whole.push(
            &piece,
            whole.len().saturating_add(piece.len()).saturating_add(rest),
        )?;
        next = next_data(&mut body).await?;
    }
    Ok(whole.done())
}

/// The next piece; trailers are dropped, as they are when a call is sent again.
async fn next_data(body: &mut Arriving) -> Result<Option<Bytes>, BodyProblem> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}
