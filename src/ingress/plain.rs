//! The plain server: HTTP/1.1 on a caller's connection, for the common request and no other.
//!
//! A request that is there in full when its head is, answered by an answer that is there in full:
//! read and written right here, without the machinery that everything else needs, and where both
//! are ordinary without a map of their fields. Whatever is not plain is left to hyper together with
//! the bytes it came in ([`Left::Odd`]), and hyper keeps the connection from then on, so there is
//! one judge of everything strange. An answer that is not plain (a stream) goes with its request:
//! hyper reads that once more and finds the answer made.
//!
//! A connection that rests holds no buffer: what is read goes through one that its core has.
//!
//! Deliberately absent: HTTP/1.0, HEAD, uploads that are still arriving, chunks, `Expect`.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Response;
use tokio::io::{AsyncRead as _, AsyncWriteExt as _, ReadBuf};

use super::Door;
use super::answer::{Head, Room, Turned, said};
use super::body::Raw;
use super::wire::{Socket, Wire};
use crate::clock::Wheel;
use crate::clock::wheel::Sleep;
use crate::upstream::lines::Lines;

mod date;
mod head;
mod written;

pub(super) use date::Dates;
use head::{Asked, Parsed};
use written::Written;

/// How long the rest of a body is waited for that did not come with its head: many callers send one
/// after the other. Then hyper waits, as long as `limits.body_timeout` allows.
const BODY_WAIT: Duration = Duration::from_millis(100);

/// What is read at once: more than most requests have, body included.
const PIECE: usize = 16 * 1024;

thread_local! {
    /// What a core reads requests into.
    static PIECES: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into());
}

/// What is left of a connection.
pub(super) enum Left {
    /// Nothing.
    Ended,
    /// Something that is not plain.
    Odd {
        /// What was read and is not answered.
        read: Bytes,
        /// The answer to the first request in it, if it is made already.
        answer: Option<Response<Turned>>,
    },
}

/// What came next on a connection.
enum Next {
    Request(Asked),
    /// Not plain; the bytes are still in the buffer.
    Odd,
    /// The caller has shut its side between two requests.
    End,
    /// The connection broke.
    Broken,
}

/// The reading side of a connection.
#[derive(Default)]
struct Reader {
    /// What was read and is no request yet; mostly nothing.
    buffer: BytesMut,
    /// So many bytes of the buffer are no whole head.
    looked: usize,
    /// So long is the request whose head is in the buffer.
    awaited: usize,
    /// The wait for a body whose head is there, and how long it is.
    wait: Option<Sleep>,
    patience: Duration,
}

/// Answers requests until one, or its answer, is not plain.
pub(super) async fn serve<D: Door>(
    room: &Arc<Room<D>>,
    wire: &Arc<Wire>,
    socket: &mut Socket,
) -> Left {
    let limits = &room.settings().limits;
    let mut reader = Reader {
        // Until hyper has it, the whole request counts as a head that arrives.
        patience: BODY_WAIT.min(limits.header_timeout / 4),
        ..Reader::default()
    };
    loop {
        let asked = match reader.next(socket, room.floor.core.wheel()).await {
            Next::Request(asked) => asked,
            Next::Odd => {
                let read = reader.buffer.freeze();
                return Left::Odd { read, answer: None };
            }
            Next::End => return end(socket).await,
            Next::Broken => return Left::Ended,
        };
        let Asked { head, body, bytes } = asked;
        let said = said(room, wire, head, Raw::Whole(body)).await;
        let written = match Written::of(said, &room.floor.dates) {
            Ok(written) => written,
            Err(response) => {
                let mut read = BytesMut::from(&bytes[..]);
                read.extend_from_slice(&reader.buffer);
                return Left::Odd {
                    read: read.freeze(),
                    answer: Some(*response),
                };
            }
        };
        drop(bytes);
        // A failed write has told the call that its caller is gone.
        if written.send(socket).await.is_err() {
            return Left::Ended;
        }
        if written.last {
            return end(socket).await;
        }
    }
}

async fn end(socket: &mut Socket) -> Left {
    // It fails when the caller was faster.
    drop(socket.shutdown().await);
    Left::Ended
}

impl Reader {
    async fn next(&mut self, socket: &mut Socket, wheel: &Wheel) -> Next {
        (self.looked, self.awaited) = (0, 0);
        if !self.buffer.is_empty() {
            // What follows the last request may be all of the next.
            if let Some(next) = self.look(wheel) {
                return next;
            }
        } else if self.buffer.capacity() > 0 {
            self.buffer = BytesMut::new();
        }
        let next = std::future::poll_fn(|cx| self.poll_next(socket, wheel, cx)).await;
        self.wait = None;
        next
    }

    fn poll_next(
        &mut self,
        socket: &mut Socket,
        wheel: &Wheel,
        cx: &mut Context<'_>,
    ) -> Poll<Next> {
        loop {
            let Poll::Ready(read) = self.poll_piece(socket, cx) else {
                let wait = self.wait.as_mut();
                ready!(wait.map_or(Poll::Pending, |wait| Pin::new(wait).poll(cx)));
                return Poll::Ready(Next::Odd);
            };
            let next = match read {
                Ok(Some(next)) => Some(next),
                Ok(None) => self.look(wheel),
                Err(_) => Some(Next::Broken),
            };
            if let Some(next) = next {
                return Poll::Ready(next);
            }
        }
    }

    /// Reads once. What comes mostly is one whole request, which needs no buffer.
    fn poll_piece(
        &mut self,
        socket: &mut Socket,
        cx: &mut Context<'_>,
    ) -> Poll<std::io::Result<Option<Next>>> {
        PIECES.with_borrow_mut(|piece| {
            let mut read = ReadBuf::new(piece);
            ready!(Pin::new(socket).poll_read(cx, &mut read))?;
            let read = read.filled();
            if read.is_empty() {
                let next = if self.buffer.is_empty() {
                    Next::End
                } else {
                    Next::Odd
                };
                return Poll::Ready(Ok(Some(next)));
            }
            if self.buffer.is_empty() {
                let mut lines = Lines::default();
                if let Parsed::Whole(found) = head::find(read, 0, &mut lines) {
                    let whole = found.whole;
                    let bytes = Bytes::copy_from_slice(&read[..whole]);
                    if let Some(asked) = found.take(&lines, bytes) {
                        self.buffer.extend_from_slice(&read[whole..]);
                        return Poll::Ready(Ok(Some(Next::Request(asked))));
                    }
                }
            }
            self.buffer.extend_from_slice(read);
            Poll::Ready(Ok(None))
        })
    }

    /// What stands in the buffer; `None` while more is to be read.
    fn look(&mut self, wheel: &Wheel) -> Option<Next> {
        if self.buffer.len() < self.awaited {
            return None;
        }
        let looked = if self.awaited > 0 { 0 } else { self.looked };
        let mut lines = Lines::default();
        match head::find(&self.buffer, looked, &mut lines) {
            Parsed::Whole(found) => Some(match head::take(&mut self.buffer, found, &lines) {
                Some(asked) => Next::Request(asked),
                None => Next::Odd,
            }),
            Parsed::Odd => Some(Next::Odd),
            Parsed::Short(whole) => {
                self.awaited = whole;
                let patience = self.patience;
                self.wait.get_or_insert_with(|| wheel.sleep(patience));
                None
            }
            Parsed::Partial => {
                self.looked = self.buffer.len();
                None
            }
        }
    }
}

/// The request at the front of `bytes`, its body, and how long both are.
pub(super) fn taken(bytes: &[u8]) -> Option<(Box<Head>, Bytes, usize)> {
    let mut lines = Lines::default();
    let Parsed::Whole(found) = head::find(bytes, 0, &mut lines) else {
        return None;
    };
    let whole = Bytes::copy_from_slice(&bytes[..found.whole]);
    let Asked { head, body, bytes } = found.take(&lines, whole)?;
    Some((head, body, bytes.len()))
}

#[cfg(test)]
mod tests;
