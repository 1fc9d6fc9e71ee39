//! An answer that is passed on while it arrives.
//!
//! The consumer pulls, so a slow caller slows the tool and memory stays bounded. For the record the
//! stream keeps a copy up to a limit (while there is room for it, see `bodies`), its length and its
//! SHA-256, and says at its end whether it was complete. Dropped before its end, it closes its
//! connection with a reset and says that too.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::Core;
use super::bodies::Gathering;
use super::pool::Lease;
use super::reading::{Reading, Trouble};
use crate::call::outcome::Unclear;

/// The head of an answer, its body, and a word at its end.
#[derive(Debug)]
pub struct StreamAnswer {
    /// The tool's status.
    pub status: StatusCode,
    /// All fields but hop-by-hop ones; a `Content-Length` is the body's.
    pub headers: HeaderMap,
    /// What was read so far, then the rest as it arrives.
    pub body: StreamBody,
    /// Resolves when the body has ended or was dropped.
    pub end: StreamEnd,
}

/// The body of a streamed answer.
pub struct StreamBody {
    core: Core,
    /// The connection; `None` once the stream has ended.
    lease: Option<Lease>,
    /// Whether the head alone is the call's end (no 5xx).
    sure: bool,
    reading: Reading,
    record: Option<Record>,
    bytes: u64,
    end: Option<oneshot::Sender<StreamReport>>,
}

/// The end of a streamed answer, told to whoever records it.
#[derive(Debug)]
pub struct StreamEnd(oneshot::Receiver<StreamReport>);

/// What became of a streamed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// `None`: complete, to the last byte. Else why it is not.
    pub broken: Option<Unclear>,
    /// Bytes that passed.
    pub bytes: u64,
    /// SHA-256 over them; `None` for [`super::Mode::Pass`].
    pub sha256: Option<[u8; 32]>,
    /// The bytes themselves, unless there were more than are kept.
    pub kept: Option<Bytes>,
}

/// Why a stream ends early. The consumer has to break its own stream off, visibly.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The tool's answer broke off.
    #[error("the tool's answer broke off")]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The tool was silent for longer than `timeouts.idle`.
    #[error("the tool's answer was silent for too long")]
    Idle,
}

struct Record {
    limit: usize,
    kept: Option<Gathering>,
    sha: Sha256,
}

impl Record {
    fn take(&mut self, data: &Bytes) {
        self.sha.update(data);
        let kept = self.kept.take();
        self.kept = kept.filter(|kept| kept.len() + data.len() <= self.limit);
        if let Some(kept) = &mut self.kept
            && kept.push(data, 0).is_err()
        {
            self.kept = None;
        }
    }
}

impl StreamBody {
    /// `keep`: how much is kept for the record; `None` for no record at all.
    pub(super) fn new(
        lease: Lease,
        reading: Reading,
        sure: bool,
        keep: Option<usize>,
    ) -> (Self, StreamEnd) {
        let (end, told) = oneshot::channel();
        let record = keep.map(|limit| Record {
            limit,
            kept: Some(lease.core().bodies.gather()),
            sha: Sha256::new(),
        });
        let core = lease.core().clone();
        let body = Self {
            core,
            lease: Some(lease),
            sure,
            reading,
            record,
            bytes: 0,
            end: Some(end),
        };
        (body, StreamEnd(told))
    }

    fn pass(&mut self, data: &Bytes) {
        self.bytes += data.len() as u64;
        if let Some(record) = &mut self.record {
            record.take(data);
        }
    }

    /// The last byte has passed.
    fn complete(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.finish(self.sure);
        }
        self.report(None);
    }

    /// No further byte will pass.
    fn break_off(&mut self, why: Unclear) {
        if let Some(lease) = self.lease.take() {
            lease.reset();
        }
        self.report(Some(why));
    }

    fn report(&mut self, broken: Option<Unclear>) {
        let Some(end) = self.end.take() else { return };
        let (sha256, kept) = match self.record.take() {
            None => (None, None),
            Some(record) => (Some(record.sha.finalize().into()), record.kept),
        };
        let kept = kept.map(Gathering::done);
        // Nobody listening is fine: not every stream is recorded.
        let _unheard = end.send(StreamReport {
            broken,
            bytes: self.bytes,
            sha256,
            kept,
        });
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        let this = self.get_mut();
        if this.lease.is_none() {
            return Poll::Ready(None);
        }
        match ready!(this.reading.poll_frame(&this.core, cx)) {
            None => {
                this.complete();
                Poll::Ready(None)
            }
            Some(Err(trouble)) => {
                this.break_off(trouble.unclear());
                Poll::Ready(Some(Err(trouble.into())))
            }
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.pass(data);
                }
                // A body of known length is not polled again after its last byte.
                if this.reading.is_done() {
                    this.complete();
                }
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.lease.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.reading.remaining()
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.break_off(Unclear::Disconnect);
    }
}

impl Future for StreamEnd {
    type Output = StreamReport;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<StreamReport> {
        // The body reports at the latest when it is dropped, so the channel cannot close unused.
        let lost = StreamReport {
            broken: Some(Unclear::Disconnect),
            bytes: 0,
            sha256: None,
            kept: None,
        };
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|told| told.unwrap_or(lost))
    }
}

impl From<Trouble> for StreamError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Cut(source) => Self::Broken(source),
            Trouble::Idle(_) => Self::Idle,
        }
    }
}

impl fmt::Debug for StreamBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "StreamBody({} bytes passed, ended: {})",
            self.bytes,
            self.lease.is_none()
        )
    }
}
