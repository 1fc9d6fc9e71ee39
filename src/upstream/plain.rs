//! The plain client: HTTP/1.1 over a socket of our own, for the common exchange and no other.
//!
//! A short request that is there in full, answered by a head with one sound `Content-Length`:
//! written and read right where the exchange is polled, without a task, a channel or a wake-up in
//! between, which is half of what a call costs. Whatever else arrives ([`Said::Odd`]) is left to
//! hyper, together with the bytes it came in, so that there is one judge of everything strange:
//! interim answers, chunks, bodies that end with the connection, bad heads, too long ones.
//!
//! The proof that a request was not sent is the count of the bytes that the kernel took: none.
//! Deliberately absent: TLS, HTTP/1.0, bodies that are still arriving.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::Method;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use tokio::io::ReadBuf;

use super::exchange::Outgoing;
use super::fields::{self, FIELD_BYTES, Final};
use super::headers;
use super::wire::Line;

mod head;

pub(super) use head::{HEAD_BYTES_MAX, Head};
use head::{Parsed, Wish};

/// The longest request written here, body included; one write takes it.
const BODY_BYTES_MAX: usize = 64 * 1024;

/// What is read at once of a head: more than most answers have, body included.
const HEAD_PIECE: usize = 16 * 1024;

thread_local! {
    /// What a core reads heads into.
    static PIECES: RefCell<Box<[u8]>> = RefCell::new(vec![0; HEAD_PIECE].into());
}

/// The most that is read at once of a body.
const BODY_PIECE: u64 = 64 * 1024;

/// What a tool said.
pub(super) enum Said {
    /// An answer that is read here.
    Head(Head, Body),
    /// Anything else: what was read of it, and what of the request was not written yet.
    Odd {
        /// All that was read.
        read: Bytes,
        /// Mostly nothing.
        unsent: Bytes,
    },
}

/// Why nothing was said.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Proof that no byte of the request was sent.
    #[error("the connection took no byte of the request")]
    NotWritten(#[source] io::Error),
    /// The connection ended, or broke.
    #[error("the connection ended before an answer")]
    Broken(#[source] io::Error),
}

/// The body of an answer of known length.
pub(super) struct Body {
    request: Request,
    /// Read, and not yet taken.
    buffer: BytesMut,
    /// Bytes still to be taken.
    left: u64,
}

/// A request on its way out.
struct Request {
    line: Arc<Line>,
    bytes: Bytes,
    /// How many of them the kernel has taken.
    taken: usize,
}

/// A request whose answer's head is awaited.
struct Asking {
    request: Option<Request>,
    wish: Wish,
    buffer: BytesMut,
    /// So many bytes of the buffer are no whole head.
    looked: usize,
}

/// The request's body, if this client can write the request.
pub(super) fn body_of(outgoing: &Outgoing) -> Option<&Bytes> {
    let body = outgoing.body.whole()?;
    let headers = match &outgoing.headers {
        Final::Map(headers) => headers,
        // Nothing else is ever written out beforehand.
        Final::Written(_) => return Some(body),
    };
    let length = body.len() as u64;
    let announced = if headers.contains_key(CONTENT_LENGTH) {
        headers::announces_exactly(headers, length)
    } else {
        body.is_empty()
    };
    let plain = announced
        && body.len() <= BODY_BYTES_MAX
        && outgoing.method != Method::CONNECT
        && !headers.contains_key(TRANSFER_ENCODING);
    plain.then_some(body)
}

/// Writes a request and reads its answer's head. `fresh`: the connection was not looked at yet.
///
/// # Errors
/// Whatever leaves no connection to go on with.
pub(super) async fn ask(
    line: &Arc<Line>,
    outgoing: &Outgoing,
    body: &Bytes,
    fresh: bool,
) -> Result<Said, Failure> {
    // What is there before anything was asked is no answer.
    if fresh && !line.is_quiet() {
        return Err(Failure::NotWritten(io::ErrorKind::ConnectionReset.into()));
    }
    let mut asking = Asking {
        request: Some(Request {
            line: Arc::clone(line),
            bytes: written(outgoing, body),
            taken: 0,
        }),
        wish: Wish {
            head_only: outgoing.method == Method::HEAD,
            text: matches!(outgoing.headers, Final::Written(_)),
        },
        buffer: BytesMut::new(),
        looked: 0,
    };
    std::future::poll_fn(|cx| asking.poll(cx)).await
}

/// The request as it goes over the wire.
fn written(outgoing: &Outgoing, body: &Bytes) -> Bytes {
    let headers = match &outgoing.headers {
        Final::Map(headers) => headers,
        Final::Written(written) => return written.request.clone(),
    };
    let (method, target) = (outgoing.method.as_str(), outgoing.target.as_str());
    let room = method.len() + target.len() + headers.len() * FIELD_BYTES;
    let mut text = Vec::with_capacity(room + body.len() + 16);
    for part in [method, " ", target, " HTTP/1.1\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    fields::put_all(&mut text, headers);
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    Bytes::from(text)
}

impl Request {
    /// Whether the kernel has all of it.
    const fn is_sent(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Writes what the kernel takes; pending while it takes no more.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_sent() {
            let taken = ready!(self.line.poll_write(cx, &self.bytes[self.taken..]))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.taken += taken;
            if self.is_sent() {
                self.line.sent();
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The same through what its core reads heads into: what waits for one holds no buffer, and
    /// what was read takes no more room than it needs.
    fn poll_piece(&self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<()>> {
        PIECES.with_borrow_mut(|piece| {
            let mut read = ReadBuf::new(piece);
            ready!(self.line.poll_read_into(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            buffer.extend_from_slice(read.filled());
            Poll::Ready(Ok(()))
        })
    }

    /// Reads something; the end of the connection is an error.
    fn poll_read(&self, cx: &mut Context<'_>, buffer: &mut BytesMut) -> Poll<io::Result<()>> {
        match ready!(self.line.poll_read(cx, buffer))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Poll::Ready(Ok(())),
        }
    }
}

impl Asking {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Said, Failure>> {
        let Some(request) = &mut self.request else {
            // Not polled again after its end.
            return Poll::Pending;
        };
        loop {
            match request.poll_send(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if request.taken == 0 => {
                    return Poll::Ready(Err(Failure::NotWritten(error)));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Failure::Broken(error))),
                // Before the first byte is out nothing can be an answer.
                Poll::Pending if request.taken == 0 => return Poll::Pending,
                // An answer may come before the request is read to its end.
                Poll::Pending => {}
            }
            ready!(request.poll_piece(cx, &mut self.buffer)).map_err(Failure::Broken)?;
            match head::parse(&mut self.buffer, self.looked, self.wish) {
                Parsed::Partial => self.looked = self.buffer.len(),
                Parsed::Odd => break,
                Parsed::Whole(head) => return Poll::Ready(Ok(self.answered(head))),
            }
        }
        let unsent = request.bytes.slice(request.taken..);
        let read = std::mem::take(&mut self.buffer).freeze();
        Poll::Ready(Ok(Said::Odd { read, unsent }))
    }

    fn answered(&mut self, head: Head) -> Said {
        let request = self.request.take().expect("it was just read from");
        if head.last {
            request.line.end_here();
        }
        let body = Body {
            request,
            buffer: std::mem::take(&mut self.buffer),
            left: head.length,
        };
        body.note_surplus();
        Said::Head(head, body)
    }
}

impl Body {
    /// Bytes still to come.
    pub(super) const fn left(&self) -> u64 {
        self.left
    }

    /// All bytes to come, if they are here and at most `limit`.
    pub(super) fn take_if_here(&mut self, limit: usize) -> Option<Bytes> {
        let left = usize::try_from(self.left)
            .ok()
            .filter(|left| *left <= limit)?;
        if left > self.buffer.len() {
            return None;
        }
        self.left = 0;
        let all = self.buffer.split_to(left).freeze();
        self.note_surplus();
        Some(all)
    }

    /// The next bytes.
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        if self.buffer.is_empty()
            && let Err(error) = ready!(self.poll_more(cx))
        {
            return Poll::Ready(Some(Err(error)));
        }
        let now = usize::try_from(self.left).unwrap_or(usize::MAX);
        let now = self.buffer.split_to(now.min(self.buffer.len())).freeze();
        self.left -= now.len() as u64;
        self.note_surplus();
        Poll::Ready(Some(Ok(now)))
    }

    fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let room = usize::try_from(self.left.min(BODY_PIECE)).unwrap_or(HEAD_PIECE);
        self.buffer.reserve(room);
        if let Poll::Ready(read) = self.request.poll_read(cx, &mut self.buffer) {
            return Poll::Ready(read);
        }
        // The answer came before the request was read to its end.
        match self.request.poll_send(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// What follows an answer nobody asked for.
    fn note_surplus(&self) {
        if self.left == 0 && !self.buffer.is_empty() {
            self.request.line.end_here();
        }
    }
}
