//! Request bodies: whole ones that can be sent again, and a caller's own, lent out piece by piece.
//!
//! Both tell the socket when the HTTP client has taken their last byte. A lent body is not lost
//! with the exchange that carried it: while what was read of it is short it is remembered, and the
//! next exchange begins with that. Past [`REMEMBERED_BYTES_MAX`] it is forgotten, and the request
//! cannot be told again.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::wire::Line;

/// A body's failure; only whoever reads the caller knows more.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP client copies what it is given beside the head, so large bodies go in pieces: one copy
/// of this size, not of the whole body, exists at a time.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// What is remembered of a body that is streamed through.
const REMEMBERED_BYTES_MAX: usize = 64 * 1024;

/// The body of one request on its way out.
pub struct Payload {
    kind: Kind,
    line: Option<Arc<Line>>,
}

enum Kind {
    Whole(Bytes),
    Lent(Lent),
}

/// One exchange's hold on a caller's body.
struct Lent {
    loan: Arc<Loan>,
    /// Which exchange this is; an earlier one reads nothing more.
    turn: u32,
    /// Remembered frames already told.
    told: usize,
}

/// A caller's body that is streamed through. Lends itself to one exchange after the other.
#[derive(Clone)]
pub struct Upload(Arc<Loan>);

struct Loan {
    state: Mutex<Reading>,
    failed: AtomicBool,
}

/// How far the caller's body was read.
struct Reading {
    body: Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>,
    turn: u32,
    /// All that was read; `None` when it became too much.
    remembered: Option<Vec<Bytes>>,
    bytes: usize,
}

/// An earlier exchange still asked for the body after it was lent again.
#[derive(Debug, thiserror::Error)]
#[error("the request body was lent to a later attempt")]
struct LentAgain;

impl Payload {
    /// Ties the body to the socket it goes out on.
    pub(super) fn bind(&mut self, line: &Arc<Line>) {
        if self.is_end_stream() {
            line.body_taken();
            self.line = None;
        } else {
            self.line = Some(Arc::clone(line));
        }
    }

    /// The bytes, if they are all there.
    pub(super) const fn whole(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Whole(bytes) => Some(bytes),
            Kind::Lent(_) => None,
        }
    }

    /// A hold on the body that can be lent again, if it is a caller's.
    pub(super) fn upload(&self) -> Option<Upload> {
        match &self.kind {
            Kind::Whole(_) => None,
            Kind::Lent(lent) => Some(Upload(Arc::clone(&lent.loan))),
        }
    }

    fn taken(&mut self) {
        if let Some(line) = self.line.take() {
            line.body_taken();
        }
    }
}

impl From<Bytes> for Payload {
    fn from(whole: Bytes) -> Self {
        Self {
            kind: Kind::Whole(whole),
            line: None,
        }
    }
}

impl Upload {
    /// Takes over a caller's body.
    #[must_use]
    pub fn new<B>(body: B) -> Self
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        use http_body_util::BodyExt;
        let body = Box::pin(body.map_err(Into::into));
        let state = Mutex::new(Reading {
            body,
            turn: 0,
            remembered: Some(Vec::new()),
            bytes: 0,
        });
        let failed = AtomicBool::new(false);
        Self(Arc::new(Loan { state, failed }))
    }

    /// The body for one exchange, from its beginning. What was lent before reads nothing more.
    #[must_use]
    pub fn lend(&self) -> Payload {
        let mut state = self.0.state.lock();
        state.turn += 1;
        let lent = Lent {
            loan: Arc::clone(&self.0),
            turn: state.turn,
            told: 0,
        };
        Payload {
            kind: Kind::Lent(lent),
            line: None,
        }
    }

    /// Whether it can be lent once more, whole.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.failed() && self.0.state.lock().remembered.is_some()
    }

    /// Whether reading it failed: the caller's fault, not the tool's.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload(whole: {})", self.is_whole())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Whole(bytes) => write!(f, "Payload({} bytes)", bytes.len()),
            Kind::Lent(_) => f.write_str("Payload(lent)"),
        }
    }
}

/// A frame of a body, if there was one, and whether it was the last.
type Read = (Option<Result<Frame<Bytes>, BoxError>>, bool);

impl Lent {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Read> {
        let mut state = self.loan.state.lock();
        if state.turn != self.turn {
            return Poll::Ready((Some(Err(LentAgain.into())), true));
        }
        let again = state.remembered.as_ref().and_then(|all| all.get(self.told));
        if let Some(piece) = again.cloned() {
            self.told += 1;
            let ended = state.is_read_to(self.told);
            return Poll::Ready((Some(Ok(Frame::data(piece))), ended));
        }
        let frame = std::task::ready!(state.body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                state.remember(frame);
                self.told += 1;
            }
            Some(Err(_)) => self.loan.failed.store(true, Ordering::Release),
            None => {}
        }
        let ended = frame.is_none() || state.is_read_to(self.told);
        Poll::Ready((frame, ended))
    }

    fn is_end_stream(&self) -> bool {
        self.loan.state.lock().is_read_to(self.told)
    }

    fn size_hint(&self) -> SizeHint {
        let state = self.loan.state.lock();
        let remembered = state.remembered.iter().flatten();
        let before: usize = remembered.skip(self.told).map(Bytes::len).sum();
        let before = before as u64;
        let rest = state.body.size_hint();
        let mut all = SizeHint::new();
        all.set_lower(rest.lower().saturating_add(before));
        if let Some(upper) = rest.upper() {
            all.set_upper(upper.saturating_add(before));
        }
        all
    }
}

impl Reading {
    /// Trailers are not remembered, so a body that has some is not told again.
    fn remember(&mut self, frame: &Frame<Bytes>) {
        self.bytes += frame.data_ref().map_or(0, Bytes::len);
        match (&mut self.remembered, frame.data_ref()) {
            (Some(all), Some(data)) if self.bytes <= REMEMBERED_BYTES_MAX => all.push(data.clone()),
            _ => self.remembered = None,
        }
    }

    /// Whether nothing follows after so many remembered frames.
    fn is_read_to(&self, told: usize) -> bool {
        self.remembered.as_ref().is_none_or(|all| told >= all.len()) && self.body.is_end_stream()
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (frame, ended) = match &mut self.kind {
            Kind::Whole(rest) if rest.is_empty() => (None, true),
            Kind::Whole(rest) => {
                let piece = rest.split_to(rest.len().min(PIECE_BYTES_MAX));
                (Some(Ok(Frame::data(piece))), rest.is_empty())
            }
            Kind::Lent(lent) => std::task::ready!(lent.poll(cx)),
        };
        if ended {
            self.taken();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(rest) => rest.is_empty(),
            Kind::Lent(lent) => lent.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Kind::Lent(lent) => lent.size_hint(),
        }
    }
}
