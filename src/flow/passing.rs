//! A streamed answer on its way to the caller, while its end is awaited for the record.
//!
//! That it begins is on record before its head goes out. The caller may leave in the middle; the
//! call does not. What is left of the answer is then read here, so that the record says whether the
//! tool finished it; and so is an answer that nobody reads while it arrives. A tool may stream for
//! ever, and without a reader nobody would ever stop it: such reading has an end, after which the
//! exchange is closed and the call is unclear.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::allow::Held;
use super::call::Said;
use super::drive::Drive;
use super::told::{BodyError, Stream};
use super::{reading, record};
use crate::call::id::CallId;
use crate::call::outcome::{Outcome, Unclear};
use crate::call::step::Step;
use crate::call::time::Mono;
use crate::ledger::{Entry, Intention, Reply};
use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;
use crate::upstream::{Core, StreamAnswer, StreamBody, StreamEnd, StreamReport};

/// The caller's half. Left unfinished, it hands the rest over.
struct Passing {
    body: Option<StreamBody>,
    rest: Option<oneshot::Sender<StreamBody>>,
    ended: bool,
}

/// How long an answer is read on whose reader has left.
pub(super) struct Patience {
    core: Core,
    call_id: CallId,
    metrics: Arc<Metrics>,
    /// As long as the call may take in line,
    deadline: Mono,
    /// or as long as any exchange that nobody waits for, whichever is later;
    late: Duration,
    /// and not when the process is about to end.
    draining: CancellationToken,
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
pub(super) fn split(
    stream: StreamAnswer,
    patience: Patience,
) -> (Stream, impl Future<Output = StreamReport> + Send) {
    let StreamAnswer { body, end, .. } = stream;
    let (rest, left) = oneshot::channel();
    let passing = Passing {
        body: Some(body),
        rest: Some(rest),
        ended: false,
    };
    (passing.boxed_unsync(), finish(end, left, patience))
}

async fn finish(
    mut end: StreamEnd,
    left: oneshot::Receiver<StreamBody>,
    patience: Patience,
) -> StreamReport {
    tokio::select! {
        report = &mut end => report,
        Ok(body) = left => read_on(body, end, patience.over()).await,
    }
}

/// Reads what is left of a body until it has ended or the time for it is `over`; then it is reset.
async fn read_on(
    mut body: StreamBody,
    end: StreamEnd,
    over: impl Future<Output = Unclear>,
) -> StreamReport {
    let rest = async {
        // Errors end the loop; the report says what they were.
        while let Some(Ok(_)) = body.frame().await {}
    };
    // The time first: a tool that floods always has something to read.
    let cut = tokio::select! {
        biased;
        why = over => Some(why),
        () = rest => None,
    };
    drop(body);
    let report = end.await;
    let broken = report.broken.map(|why| cut.unwrap_or(why));
    StreamReport { broken, ..report }
}

/// Reads an answer that nobody reads while it arrives, as its record.
///
/// # Errors
/// Why there is no complete answer; `over` says it when it cuts the reading.
pub(super) async fn read_out(
    stream: StreamAnswer,
    over: impl Future<Output = Unclear>,
) -> Result<Reply, Unclear> {
    let StreamAnswer {
        status,
        headers,
        body,
        end,
    } = stream;
    let report = read_on(body, end, over).await;
    match report.broken {
        Some(why) => Err(why),
        None => Ok(record::passed(status, &headers, &report)),
    }
}

impl Drive {
    /// How long the answer of this call is read on once its reader has left.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            core: self.core.clone(),
            call_id: self.call.call_id.clone(),
            metrics: Arc::clone(&self.flow.metrics),
            deadline: self.decider.deadline().unwrap_or_default(),
            late: self.call.route.conf.policy.timeouts.late,
            draining: self.flow.draining.clone(),
        }
    }

    /// Reads the answer of attempt `n`, which has taken `took` so far, as long as an answer may
    /// take that is collected. What it says, and the step that ended the reading early.
    pub(super) async fn read(
        &mut self,
        n: u8,
        took: Duration,
        stream: StreamAnswer,
    ) -> (Outcome, Option<Step>) {
        let left = self.decider.left_of_answer(self.now(), took);
        let (metrics, call_id) = (Arc::clone(&self.flow.metrics), self.call.call_id.clone());
        let time = self.core.wheel.sleep(left);
        let over = async move {
            time.await;
            reached(&metrics, &call_id)
        };
        match self.beside(read_out(stream, over), false).await {
            Ok(Ok(reply)) => {
                let outcome = reading::read_kept(&self.call.route.conf, &reply);
                self.replies.put(n, Said::Kept(reply));
                (outcome, None)
            }
            Ok(Err(why)) => (Outcome::Unclear(why), None),
            Err(step) => (Outcome::Unclear(Unclear::Disconnect), Some(step)),
        }
    }
}

impl Patience {
    /// Resolves when it is over; it begins when this is first polled.
    async fn over(self) -> Unclear {
        let left = self.deadline.since(self.core.clock.mono());
        let time = self.core.wheel.sleep(left.max(self.late));
        tokio::select! {
            () = time => reached(&self.metrics, &self.call_id),
            () = self.draining.cancelled() => Unclear::Disconnect,
        }
    }
}

/// Counts and tells that an answer without a reader did not end in time.
fn reached(metrics: &Metrics, call_id: &CallId) -> Unclear {
    metrics.bounds.inc(Bound::UnreadAnswers);
    tracing::info!(
        %call_id,
        "the tool's answer has not ended and nobody reads it: the exchange is closed, and the \
         call is unclear"
    );
    Unclear::Timeout
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
