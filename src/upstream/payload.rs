//! Request bodies: whole ones that can be sent again, and a caller's own, lent out piece by piece.
//!
//! Both tell the socket when the HTTP client has taken their last byte. A lent body is not lost
//! with the exchange that carried it, and knows whether any of it was read: that is what decides
//! whether a call of `effects: none` may be sent again.

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

/// The body of one request on its way out.
pub struct Payload {
    kind: Kind,
    line: Option<Arc<Line>>,
}

enum Kind {
    Whole(Bytes),
    Lent(Arc<Loan>),
}

/// A caller's body that is streamed through. Lends itself to one exchange after the other.
#[derive(Clone)]
pub struct Upload(Arc<Loan>);

struct Loan {
    body: Mutex<Pin<Box<dyn Body<Data = Bytes, Error = BoxError> + Send>>>,
    touched: AtomicBool,
    failed: AtomicBool,
}

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
        Self(Arc::new(Loan {
            body: Mutex::new(body),
            touched: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }))
    }

    /// The body for one exchange. Lent to two at once, they would share its bytes.
    #[must_use]
    pub fn lend(&self) -> Payload {
        Payload {
            kind: Kind::Lent(Arc::clone(&self.0)),
            line: None,
        }
    }

    /// Whether any of it was read: a second exchange would send only the rest.
    #[must_use]
    pub fn touched(&self) -> bool {
        self.0.touched.load(Ordering::Acquire)
    }

    /// Whether reading it failed: the caller's fault, not the tool's.
    #[must_use]
    pub fn failed(&self) -> bool {
        self.0.failed.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upload(touched: {})", self.touched())
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

impl Loan {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<Read> {
        let mut body = self.body.lock();
        let frame = std::task::ready!(body.as_mut().poll_frame(cx));
        match &frame {
            Some(Ok(_)) => self.touched.store(true, Ordering::Release),
            Some(Err(_)) => self.failed.store(true, Ordering::Release),
            None => {}
        }
        let ended = frame.is_none() || body.is_end_stream();
        Poll::Ready((frame, ended))
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
            Kind::Lent(loan) => std::task::ready!(loan.poll(cx)),
        };
        if ended {
            self.taken();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Whole(rest) => rest.is_empty(),
            Kind::Lent(loan) => loan.body.lock().is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Whole(rest) => SizeHint::with_exact(rest.len() as u64),
            Kind::Lent(loan) => loan.body.lock().size_hint(),
        }
    }
}
