//! A streamed answer on its way to the caller, while its end is awaited for the record.
//!
//! That it begins is on record before its head goes out. The caller may leave in the middle; the
//! call does not. What is left of the answer is then read here, so that the record says whether the
//! tool finished it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;

use super::allow::Held;
use super::drive::Drive;
use super::told::{BodyError, Stream};
use crate::call::outcome::{Outcome, Unclear};
use crate::call::step::Step;
use crate::ledger::{Entry, Intention};
use crate::upstream::{StreamAnswer, StreamBody, StreamEnd, StreamReport};

/// The caller's half. Left unfinished, it hands the rest over.
struct Passing {
    body: Option<StreamBody>,
    rest: Option<oneshot::Sender<StreamBody>>,
    ended: bool,
}

impl Drive {
    /// Has the row say that a part of the answer to attempt `n` may have reached the caller, before
    /// any has: what is not known to be told could be sent again.
    ///
    /// # Errors
    /// The machine's next step, when that was not written: the answer is let go of, and the call is
    /// unclear.
    pub(super) async fn begin_telling(&mut self, n: u8) -> Result<(), Step> {
        let written = self.intend(Intention::Tell).await;
        if written.is_err() {
            self.stream = None;
            self.held = Held::default();
            self.history.push(Entry::Ended {
                at: self.wall(),
                n: u32::from(n),
                outcome: Outcome::Unclear(Unclear::Disconnect),
                took: self.wall().since(self.call.first_sent),
                late: false,
                detail: Some(Arc::from(
                    "its answer was let go of: that it is passed on could not be recorded",
                )),
            });
        }
        written
    }
}

/// Splits a streamed answer into what the caller reads and the word about its end.
pub(super) fn split(stream: StreamAnswer) -> (Stream, impl Future<Output = StreamReport> + Send) {
    let StreamAnswer { body, end, .. } = stream;
    let (rest, left) = oneshot::channel();
    let passing = Passing {
        body: Some(body),
        rest: Some(rest),
        ended: false,
    };
    (passing.boxed_unsync(), finish(end, left))
}

async fn finish(mut end: StreamEnd, left: oneshot::Receiver<StreamBody>) -> StreamReport {
    tokio::select! {
        report = &mut end => report,
        Ok(mut body) = left => {
            // Errors end the loop; the report says what they were.
            while let Some(Ok(_)) = body.frame().await {}
            drop(body);
            end.await
        }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = std::task::ready!(Pin::new(body).poll_frame(cx));
        self.ended |= !matches!(frame, Some(Ok(_)));
        Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let (Some(body), Some(rest)) = (self.body.take(), self.rest.take()) else {
            return;
        };
        if !self.ended {
            // Nobody there to take it: the process is ending, and so does the connection.
            drop(rest.send(body));
        }
    }
}
