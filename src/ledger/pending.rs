//! The answer to a ledger verb: there already, or to come from the writer.
//!
//! A named future instead of a boxed one: the trait stays object-safe, and a ledger that answers at
//! once (memory) needs no runtime, which lets simulated time run. It is a slot of our own and not a
//! channel, because the writer first fills the slots of a whole group and then wakes each runtime
//! once (`relay`).

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

use super::error::LedgerError;
use super::relay::{Call, Relay, Wakes};

/// What a verb resolves to.
pub type Result<T> = std::result::Result<T, LedgerError>;

/// The answer to one verb. Dropping it does not take the verb back: what was handed to the ledger
/// is written.
#[must_use = "the record is durable only once this has resolved to Ok"]
pub struct Pending<T>(State<T>);

enum State<T> {
    Ready(Result<T>),
    Waiting(Arc<Slot<T>>),
    Taken,
}

/// Where writer and waiter meet.
struct Slot<T>(Mutex<Answer<T>>);

enum Answer<T> {
    /// Nothing yet, and nobody has asked.
    Open,
    /// Nothing yet, and this is how to call who asked.
    Asked(Call),
    /// There, for whoever asks.
    Told(Result<T>),
}

/// The writer's end of a [`Pending`]. Dropped unused, the waiter reads
/// [`LedgerError::WriterGone`].
pub struct Reply<T>(Option<Arc<Slot<T>>>);

impl<T> Pending<T> {
    /// An answer that is there already.
    pub const fn ready(answer: Result<T>) -> Self {
        Self(State::Ready(answer))
    }

    /// An answer that comes through the returned end.
    pub fn later() -> (Reply<T>, Self) {
        let slot = Arc::new(Slot(Mutex::new(Answer::Open)));
        (Reply(Some(Arc::clone(&slot))), Self(State::Waiting(slot)))
    }

    /// Blocks this thread until the answer is there. For commands and tests, not for a runtime's
    /// threads.
    ///
    /// # Errors
    /// Those of the verb.
    pub fn wait(mut self) -> Result<T> {
        let here = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match self.look(|| Call::directly(here.clone())) {
                Poll::Ready(answer) => return answer,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    fn look(&mut self, call: impl FnOnce() -> Call) -> Poll<Result<T>> {
        let answer = match mem::replace(&mut self.0, State::Taken) {
            State::Ready(answer) => answer,
            State::Waiting(slot) => match slot.look(call) {
                Poll::Ready(answer) => answer,
                Poll::Pending => {
                    self.0 = State::Waiting(slot);
                    return Poll::Pending;
                }
            },
            State::Taken => panic!("a future is not polled after its answer"),
        };
        Poll::Ready(answer)
    }
}

impl<T> Slot<T> {
    /// Takes the answer, or leaves word how to call.
    fn look(&self, call: impl FnOnce() -> Call) -> Poll<Result<T>> {
        let mut answer = self.0.lock();
        if let Answer::Told(_) = &*answer {
            let Answer::Told(told) = mem::replace(&mut *answer, Answer::Open) else {
                unreachable!("looked at under the same lock")
            };
            return Poll::Ready(told);
        }
        *answer = Answer::Asked(call());
        Poll::Pending
    }

    /// Leaves the answer; the call to make, if somebody has asked.
    fn tell(&self, told: Result<T>) -> Option<Call> {
        match mem::replace(&mut *self.0.lock(), Answer::Told(told)) {
            Answer::Asked(call) => Some(call),
            Answer::Open | Answer::Told(_) => None,
        }
    }
}

impl<T> Reply<T> {
    /// Gives the answer and calls the waiter.
    pub fn send(self, told: Result<T>) {
        let mut wakes = Wakes::default();
        self.send_with(told, &mut wakes);
        wakes.call();
    }

    /// Gives the answer; the waiter is called with the others.
    pub(super) fn send_with(mut self, told: Result<T>, wakes: &mut Wakes) {
        if let Some(call) = self.0.take().and_then(|slot| slot.tell(told)) {
            wakes.add(call);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(call) = self
            .0
            .take()
            .and_then(|slot| slot.tell(Err(LedgerError::WriterGone)))
        {
            call.now();
        }
    }
}

// The answer is moved out as a whole and never pinned.
impl<T> Unpin for Pending<T> {}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.look(|| Call::through(Relay::of_this_thread(), cx.waker().clone()))
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Ready(_) => "Pending(ready)",
            State::Waiting(_) => "Pending(waiting)",
            State::Taken => "Pending(taken)",
        })
    }
}

/// Wakes a thread that waits in [`Pending::wait`].
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
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
        let waiting = tokio::spawn(waiter);
        tokio::task::yield_now().await;
        drop(reply);
        assert!(matches!(waiting.await, Ok(Err(LedgerError::WriterGone))));
    }

    #[tokio::test]
    async fn both_kinds_resolve_to_their_answer() {
        assert!(matches!(Pending::ready(Ok(7)).await, Ok(7)));
        let (reply, waiter) = Pending::later();
        reply.send(Ok(8));
        assert!(matches!(waiter.await, Ok(8)));
    }

    #[test]
    fn a_thread_waits_for_an_answer_from_another() {
        let (reply, waiter) = Pending::later();
        let waiting = std::thread::spawn(move || waiter.wait());
        reply.send(Ok(9));
        assert!(matches!(waiting.join().unwrap(), Ok(9)));
    }
}
