//! Keeps a call alive when its caller's connection goes.
//!
//! hyper drops a handler whose caller has left, at whatever await it stands: a call would end
//! between its send and its record. A [`Tether`] is polled on the connection's own task, which
//! costs no wake-up and no hand-over, and when it is dropped unfinished it moves the call to a
//! task of its own and tells it that its caller is gone. Nothing is lost that a task from the
//! start would have kept. Deliberately absent: any way to stop a call.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// A call on its caller's line.
#[must_use = "a call does nothing unless polled"]
pub(super) struct Tether<F: Future + Send + 'static> {
    call: Option<Pin<Box<F>>>,
    gone: CancellationToken,
}

/// What a panicking call said last.
pub(super) type Panic = Box<dyn Any + Send>;

impl<F: Future + Send + 'static> Tether<F> {
    /// `call` handles its own panics (see [`caught`]); `gone` is cancelled when its caller leaves.
    pub(super) fn new(call: F, gone: CancellationToken) -> Self {
        Self {
            call: Some(Box::pin(call)),
            gone,
        }
    }

    /// Its caller need not stay: the call goes on by itself, and nobody counts as gone.
    pub(super) fn let_go(mut self) {
        self.move_on();
    }

    fn move_on(&mut self) {
        let Some(call) = self.call.take() else { return };
        // Without a runtime the process is ending, and the ledger has what was recorded.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                call.await;
            });
        }
    }
}

impl<F: Future + Send + 'static> Future for Tether<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let call = self
            .call
            .as_mut()
            .expect("a tether is not polled after its end");
        let output = std::task::ready!(call.as_mut().poll(cx));
        self.call = None;
        Poll::Ready(output)
    }
}

impl<F: Future + Send + 'static> Drop for Tether<F> {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.gone.cancel();
            self.move_on();
        }
    }
}

/// Work whose panic is a value; see [`caught`].
#[must_use = "work does nothing unless polled"]
pub(super) struct Caught<F>(Pin<Box<F>>);

/// `work`, or what it said when it panicked: one call ends, its connection and the others live.
///
/// The work moves to the heap, once: it is large, and every future around it would hold it twice.
pub(super) fn caught<F: Future>(work: F) -> Caught<F> {
    Caught(Box::pin(work))
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, Panic>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // What the call shares with others is behind locks without poison and atomic counters.
        match catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

/// The text of a panic, for the log.
pub(super) fn panic_text(panic: &Panic) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_dropped_call_runs_to_its_end_and_knows_that_its_caller_is_gone() {
        let gone = CancellationToken::new();
        let (go, may_go) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let seen = gone.clone();
        let call = async move {
            may_go.await.unwrap();
            tell.send(seen.is_cancelled()).unwrap();
        };
        let mut tether = Box::pin(Tether::new(call, gone));
        assert!(futures_poll(tether.as_mut()).is_pending());
        drop(tether);
        go.send(()).unwrap();
        assert!(told.await.unwrap());
    }

    #[tokio::test]
    async fn a_finished_call_leaves_its_caller_alone() {
        let gone = CancellationToken::new();
        assert_eq!(Tether::new(async { 7 }, gone.clone()).await, 7);
        assert!(!gone.is_cancelled());
    }

    #[tokio::test]
    async fn a_panic_is_a_value() {
        let panic = caught(async { panic!("number {}", 4) }).await.unwrap_err();
        assert_eq!(panic_text(&panic), "number 4");
    }

    fn futures_poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(std::task::Waker::noop()))
    }
}
