//! The plain server: HTTP/1.1 on a caller's connection, for the common request and no other.
//!
//! A request that is there in full when its head is, answered by an answer that is there in full:
//! read and written right here, without the machinery that everything else needs. Whatever is not
//! plain is left to hyper together with the bytes it came in ([`Left::Odd`]), and hyper keeps the
//! connection from then on, so there is one judge of everything strange. An answer that is not
//! plain (a stream) goes with its request: hyper reads that once more and finds the answer made.
//!
//! Deliberately absent: HTTP/1.0, HEAD, uploads that are still arriving, chunks, `Expect`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use tokio::io::AsyncWriteExt as _;
use tokio_util::io::poll_read_buf;

use super::Door;
use super::answer::{Room, answer};
use super::reply::ReplyBody;
use super::wire::{Socket, Wire};

mod date;
mod head;

pub(super) use date::Dates;
use head::{Asked, Parsed};

/// What is read at once: more than most requests have, body included.
const PIECE: usize = 4 * 1024;

/// What is read at once of a body that did not come with its head.
const BODY_PIECE: usize = 16 * 1024;

/// Up to here an answer's body is copied behind its head, so that one write takes both.
const ONE_WRITE: usize = 16 * 1024;

/// Room for the line of a field whose name and value are of usual length.
const FIELD_BYTES: usize = 48;

/// What is left of a connection.
pub(super) enum Left {
    /// Nothing.
    Ended,
    /// Something that is not plain.
    Odd {
        /// What was read and is not answered.
        read: Bytes,
        /// The answer to the first request in it, if it is made already.
        answer: Option<Response<ReplyBody>>,
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
    buffer: BytesMut,
    /// So many bytes of the buffer are no whole head.
    looked: usize,
}

/// An answer as it goes over the wire.
struct Written {
    /// The head, and the body if it is short.
    head: Vec<u8>,
    /// A longer body.
    body: Bytes,
    /// The connection ends after it.
    last: bool,
}

/// Answers requests until one, or its answer, is not plain.
pub(super) async fn serve<D: Door>(
    room: &Arc<Room<D>>,
    wire: &Arc<Wire>,
    socket: &mut Socket,
) -> Left {
    let mut reader = Reader::default();
    loop {
        let asked = match reader.next(socket).await {
            Next::Request(asked) => asked,
            Next::Odd => {
                let read = reader.buffer.freeze();
                return Left::Odd { read, answer: None };
            }
            Next::End => return end(socket).await,
            Next::Broken => return Left::Ended,
        };
        let Asked { request, bytes } = asked;
        let Ok(response) = answer(Arc::clone(room), Arc::clone(wire), request).await;
        let Some(written) = Written::of(&response, &room.floor.dates) else {
            let mut read = BytesMut::from(&bytes[..]);
            read.extend_from_slice(&reader.buffer);
            return Left::Odd {
                read: read.freeze(),
                answer: Some(response),
            };
        };
        let last = written.last;
        // A failed write has told the call that its caller is gone.
        if written.send(socket).await.is_err() {
            return Left::Ended;
        }
        if last {
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
    async fn next(&mut self, socket: &mut Socket) -> Next {
        self.looked = 0;
        loop {
            match head::parse(&mut self.buffer, self.looked) {
                Parsed::Whole(asked) => return Next::Request(asked),
                Parsed::Odd => return Next::Odd,
                // A body that is still on its way takes a timer, which hyper's side has.
                Parsed::Short if self.has_more(socket).await => continue,
                Parsed::Short => return Next::Odd,
                Parsed::Partial => self.looked = self.buffer.len(),
            }
            self.buffer.reserve(PIECE);
            let read = std::future::poll_fn(|cx| {
                poll_read_buf(Pin::new(&mut *socket), cx, &mut self.buffer)
            });
            match read.await {
                Ok(0) if self.buffer.is_empty() => return Next::End,
                Ok(0) => return Next::Odd,
                Ok(_) => {}
                Err(_) => return Next::Broken,
            }
        }
    }
}

impl Reader {
    /// Reads what has come already, without waiting; whether there was anything.
    async fn has_more(&mut self, socket: &mut Socket) -> bool {
        self.looked = 0;
        self.buffer.reserve(BODY_PIECE);
        std::future::poll_fn(|cx| {
            let read = poll_read_buf(Pin::new(&mut *socket), cx, &mut self.buffer);
            // An end or an error is there again for whoever reads next.
            Poll::Ready(matches!(read, Poll::Ready(Ok(1..))))
        })
        .await
    }
}

impl Written {
    /// The answer, unless it is not plain.
    fn of(response: &Response<ReplyBody>, dates: &Dates) -> Option<Self> {
        let ReplyBody::Whole(body) = response.body() else {
            return None;
        };
        let (status, headers) = (response.status(), response.headers());
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let framed =
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if bodiless || status.is_informational() || framed {
            return None;
        }
        let reason = status.canonical_reason()?;
        let short = body.len() <= ONE_WRITE;
        let room = (headers.len() + 3) * FIELD_BYTES + if short { body.len() } else { 0 };
        let mut text = Vec::with_capacity(room);
        put(
            &mut text,
            ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"],
        );
        for (name, value) in headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        put(&mut text, ["content-length: "]);
        put_number(&mut text, body.len());
        if !headers.contains_key(DATE) {
            put(&mut text, ["\r\ndate: "]);
            dates.put(&mut text);
        }
        put(&mut text, ["\r\n\r\n"]);
        if short {
            text.extend_from_slice(body);
        }
        Some(Self {
            head: text,
            body: if short { Bytes::new() } else { body.clone() },
            last: headers.contains_key(CONNECTION),
        })
    }

    async fn send(&self, socket: &mut Socket) -> std::io::Result<()> {
        socket.write_all(&self.head).await?;
        if self.body.is_empty() {
            return Ok(());
        }
        socket.write_all(&self.body).await
    }
}

fn put<const N: usize>(text: &mut Vec<u8>, parts: [&str; N]) {
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
}

fn put_number(text: &mut Vec<u8>, n: usize) {
    let mut digits = [0; 20];
    let mut from = digits.len();
    let mut rest = n;
    loop {
        from -= 1;
        digits[from] = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
        if rest == 0 {
            return text.extend_from_slice(&digits[from..]);
        }
    }
}

#[cfg(test)]
mod tests;
