//! Bodies that stream: a submission on its way to the thread that reads it, and answers that are
//! written as they are asked for.
//!
//! Both go through a short queue, so that a slow disk holds the sender and a slow reader holds the
//! ledger. An upload that ends without its last byte is an error to its reader, never an end.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf, Bytes};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use super::document::{COLUMNS, Document, csv_line, json_line};
use crate::admin::Admin;
use crate::clock;
use crate::ledger::Ledger;
use crate::ledger::batch::{BatchId, BatchState, BatchView, ItemState};

/// Pieces that may wait on either side.
const PIECES_MAX: usize = 8;

/// How long a submission may say nothing.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long the rest of a refused submission is read and thrown away.
const DRAIN_MAX: Duration = Duration::from_secs(5);

/// Items of one look at the ledger.
const PAGE: usize = 500;

/// How often a watched batch is looked at, and how often a silent stream says that it lives.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const ALIVE_EVERY: u32 = 30;

/// What a submission's reader is sent.
enum Piece {
    Bytes(Bytes),
    /// The body was complete.
    End,
}

/// The sending end of a submission.
pub(super) struct Upload(mpsc::Sender<Piece>);

/// The reading end; for a thread that may block.
pub(super) struct UploadReader {
    pieces: mpsc::Receiver<Piece>,
    rest: Bytes,
    over: bool,
}

/// A body whose bytes come from a task.
pub(super) struct Flowing(mpsc::Receiver<io::Result<Bytes>>);

impl Upload {
    pub(super) fn new() -> (Self, UploadReader) {
        let (send, pieces) = mpsc::channel(PIECES_MAX);
        let reader = UploadReader {
            pieces,
            rest: Bytes::new(),
            over: false,
        };
        (Self(send), reader)
    }

    /// Passes the body on, as far as it comes and as long as somebody reads it.
    pub(super) async fn feed(self, mut body: Body) {
        loop {
            let frame = tokio::time::timeout(SILENCE_MAX, body.frame()).await;
            let piece = match frame {
                Ok(None) => Piece::End,
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => Piece::Bytes(data),
                    Err(_trailers) => continue,
                },
                // Cut, or silent for too long: the reader sees the queue end without an end.
                Ok(Some(Err(_))) | Err(_) => return,
            };
            let is_end = matches!(piece, Piece::End);
            if self.0.send(piece).await.is_err() {
                // Refused already. Whoever is cut off while writing may never read why.
                drop(tokio::time::timeout(DRAIN_MAX, discard(body)).await);
                return;
            }
            if is_end {
                return;
            }
        }
    }
}

async fn discard(mut body: Body) {
    while let Some(Ok(_)) = body.frame().await {}
}

impl Read for UploadReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.over {
            match self.pieces.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.rest = bytes,
                Some(Piece::End) => self.over = true,
                None => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the submission broke off before its last byte",
                    ));
                }
            }
        }
        let n = self.rest.len().min(into.len());
        self.rest.copy_to_slice(&mut into[..n]);
        Ok(n)
    }
}

impl Flowing {
    /// The items of a batch, page by page.
    pub(super) fn items(
        ledger: Arc<dyn Ledger>,
        batch: BatchId,
        state: Option<ItemState>,
        csv: bool,
    ) -> Self {
        let (send, receive) = mpsc::channel(PIECES_MAX);
        drop(tokio::spawn(async move {
            if csv && send.send(Ok(COLUMNS.into())).await.is_err() {
                return;
            }
            let write = if csv { csv_line } else { json_line };
            let mut after = 0;
            loop {
                let page = match ledger.items(batch, state, after, PAGE).await {
                    Ok(page) => page,
                    Err(error) => {
                        // A short file must not look like a whole one.
                        let _gone = send.send(Err(io::Error::other(error))).await;
                        return;
                    }
                };
                let Some(last) = page.last() else { return };
                after = last.line;
                let text: String = page.iter().map(write).collect();
                if send.send(Ok(Bytes::from(text))).await.is_err() {
                    return;
                }
            }
        }));
        Self(receive)
    }

    /// A batch as server-sent events: its document whenever it has changed, until it has ended.
    pub(super) fn events(admin: Arc<Admin>, batch: BatchView) -> Self {
        let (send, receive) = mpsc::channel(PIECES_MAX);
        drop(tokio::spawn(async move {
            let watching = watch(&admin, batch, &send);
            tokio::select! {
                () = watching => {}
                () = admin.batches.stop.cancelled() => {}
            }
        }));
        Self(receive)
    }
}

async fn watch(admin: &Admin, mut batch: BatchView, to: &mpsc::Sender<io::Result<Bytes>>) {
    let mut told: Option<Document> = None;
    let mut silent = 0;
    loop {
        let document = admin.batches.document(&batch);
        let is_over = has_ended(&batch);
        silent += 1;
        let text = if is_over {
            Some(event("end", &document))
        } else if told.as_ref() != Some(&document) {
            Some(event("progress", &document))
        } else {
            (silent >= ALIVE_EVERY).then(|| ": still here\n\n".to_owned())
        };
        if let Some(text) = text {
            silent = 0;
            if to.send(Ok(Bytes::from(text))).await.is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
        told = Some(document);
        clock::sleep(LOOK_EVERY).await;
        match admin.ledger.batch(Arc::clone(&batch.name)).await {
            Ok(Some(view)) => batch = view,
            // Forgotten meanwhile, or the ledger cannot be read: whoever watches asks again.
            Ok(None) | Err(_) => return,
        }
    }
}

fn event(name: &str, document: &Document) -> String {
    let data = serde_json::to_string(document).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n")
}

fn has_ended(batch: &BatchView) -> bool {
    match batch.state {
        BatchState::Finished => true,
        BatchState::Cancelled => batch.ended_at.is_some(),
        BatchState::Loading | BatchState::Running | BatchState::Paused => false,
    }
}

impl http_body::Body for Flowing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.get_mut().0.poll_recv(context);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upload_that_breaks_off_is_an_error_and_no_end() {
        for whole in [true, false] {
            let (upload, mut reader) = Upload::new();
            let read = tokio::task::spawn_blocking(move || {
                let mut text = String::new();
                reader.read_to_string(&mut text).map(|_| text)
            });
            if whole {
                upload.feed(Body::from("a,b\n1,2\n")).await;
                assert_eq!(read.await.unwrap().unwrap(), "a,b\n1,2\n");
            } else {
                upload.0.send(Piece::Bytes("a,b\n".into())).await.unwrap();
                drop(upload);
                let error = read.await.unwrap().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
            }
        }
    }
}
