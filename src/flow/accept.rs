//! Accepted calls: the caller is told that the call is on record and will be finished, and leaves.
//!
//! Nothing about the call itself changes: it runs where it would have run, on its own task, under
//! the same policy. What changes is what it is worth: it was promised, so nobody's leaving ends it
//! early, and it is never given up as never sent (contract, rule 7). Deliberately absent: how a
//! caller asks for it (`prefer`) and how it is told (`ingress/reply`).

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::running::Running;
use super::told::{Problem, Shown, Told, Word};
use super::{Flow, Prefer, Request};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::telemetry::labels::Bound;

/// Callers who wait for the end of a call at its receipt. Each costs a connection, which is bounded
/// as well, and at worst one look into the ledger a second.
const WAITS_MAX: usize = 1024;

/// How many may be promised something at once.
#[derive(Debug)]
pub struct Promises {
    calls: Arc<Semaphore>,
    pub(super) waits: Semaphore,
    max: usize,
}

/// The right to hear that the call is on record.
#[derive(Debug)]
pub struct Promise(oneshot::Sender<Accepted>);

/// A call that is on record and will be finished, whatever its caller does.
#[derive(Debug)]
pub struct Accepted {
    named: (CallId, IdSource),
    running: Arc<Running>,
}

/// A promise, and where it is heard. Dropped without a word, it says that there is nothing to
/// promise: the call is refused, or known and told about.
#[must_use]
pub fn promise() -> (Promise, oneshot::Receiver<Accepted>) {
    let (tell, heard) = oneshot::channel();
    (Promise(tell), heard)
}

impl Promises {
    /// Room for so many accepted calls (`limits.async_calls`).
    #[must_use]
    pub fn new(max: usize) -> Self {
        Self {
            calls: Arc::new(Semaphore::new(max)),
            waits: Semaphore::new(WAITS_MAX),
            max,
        }
    }
}

impl Promise {
    pub(super) fn keep(self, named: (CallId, IdSource), running: Arc<Running>) {
        // Its caller left just now; the call runs on all the same.
        drop(self.0.send(Accepted { named, running }));
    }
}

impl Accepted {
    /// What its caller is told who asked for it with `prefer`.
    #[must_use]
    pub fn told(self, prefer: Prefer) -> Told {
        told(self.named, self.running.sends(), prefer)
    }
}

/// What is told about a promised call that still runs.
pub(super) fn told(named: (CallId, IdSource), sends: u32, prefer: Prefer) -> Told {
    Told {
        call: Some(named),
        word: Word::Unresolved,
        attempts: sends,
        shown: Shown::Accepted(prefer),
        original: None,
        same_id_only: false,
        recorded: true,
    }
}

impl Flow {
    /// A place among the accepted calls, for a request that asks for one.
    pub(super) fn place<B>(
        &self,
        request: &Request<B>,
    ) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        if request.promise.is_none() {
            return Ok(None);
        }
        let calls = Arc::clone(&self.promises.calls);
        calls.try_acquire_owned().map(Some).map_err(|_| {
            self.metrics.bounds.inc(Bound::AsyncCalls);
            tracing::debug!(
                call_id = %request.call_id,
                max = self.promises.max,
                "as many accepted calls run as limits.async_calls allows; one more was refused"
            );
            let detail = "As many accepted calls run as limits.async_calls allows; nothing was \
                          sent. Repeat the call under the same id a little later, or without \
                          `Prefer`.";
            let mut problem = Problem::new(
                Code::Overloaded,
                detail,
                Sent::Unknown,
                Repeat::SameCallIdOnly,
            );
            problem.retry_after = Some(std::time::Duration::from_secs(1));
            problem
        })
    }
}
