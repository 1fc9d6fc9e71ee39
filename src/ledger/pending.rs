//! The answer to a ledger verb: there already, or to come from the writer.
//!
//! A named future instead of a boxed one: the trait stays object-safe, nothing is allocated for
//! it, and a ledger that answers at once (memory) needs no runtime, which lets simulated time run.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::error::LedgerError;

/// What a verb resolves to.
pub type Result<T> = std::result::Result<T, LedgerError>;

/// The answer to one verb. Dropping it does not take the verb back: what was handed to the ledger
/// is written.
#[must_use = "the record is durable only once this has resolved to Ok"]
pub struct Pending<T>(State<T>);

enum State<T> {
    Ready(Option<Result<T>>),
    Waiting(oneshot::Receiver<Result<T>>),
}

/// The writer's end of a [`Pending`]. Dropped unused, the waiter reads
/// [`LedgerError::WriterGone`].
pub type Reply<T> = oneshot::Sender<Result<T>>;

impl<T> Pending<T> {
    /// An answer that is there already.
    pub const fn ready(answer: Result<T>) -> Self {
        Self(State::Ready(Some(answer)))
    }

    /// An answer that comes through the returned end.
    pub fn later() -> (Reply<T>, Self) {
        let (reply, waiter) = oneshot::channel();
        (reply, Self(State::Waiting(waiter)))
    }

    /// Blocks this thread until the answer is there. For commands and tests; inside a runtime it
    /// panics rather than stall it.
    ///
    /// # Errors
    /// Those of the verb.
    pub fn wait(self) -> Result<T> {
        match self.0 {
            State::Ready(answer) => answer.unwrap_or(Err(LedgerError::WriterGone)),
            State::Waiting(waiter) => waiter
                .blocking_recv()
                .unwrap_or(Err(LedgerError::WriterGone)),
        }
    }
}

impl<T: Unpin> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Ready(answer) => Poll::Ready(
                answer
                    .take()
                    .expect("a future is not polled after its answer"),
            ),
            State::Waiting(waiter) => Pin::new(waiter)
                .poll(cx)
                .map(|answer| answer.unwrap_or(Err(LedgerError::WriterGone))),
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Pending(ready)",
            State::Waiting(_) => "Pending(waiting)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dropped_writer_is_an_error_and_not_a_hang() {
        let (reply, waiter) = Pending::<u8>::later();
        drop(reply);
        assert!(matches!(waiter.await, Err(LedgerError::WriterGone)));
        let (reply, waiter) = Pending::<u8>::later();
        drop(reply);
        let joined = tokio::task::spawn_blocking(move || waiter.wait()).await;
        assert!(matches!(joined, Ok(Err(LedgerError::WriterGone))));
    }

    #[tokio::test]
    async fn both_kinds_resolve_to_their_answer() {
        assert!(matches!(Pending::ready(Ok(7)).await, Ok(7)));
        let (reply, waiter) = Pending::later();
        assert!(reply.send(Ok(8)).is_ok());
        assert!(matches!(waiter.await, Ok(8)));
    }
}
