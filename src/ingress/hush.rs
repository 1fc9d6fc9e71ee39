//! Keeps a connection from being woken for nothing.
//!
//! hyper reads a short body together with its head and hands it over through a channel. Taking it
//! out wakes whoever fills the channel, to fetch more; on HTTP/1 that is the very task that has
//! just taken the last piece, so that every request with a body polled its connection, and all
//! futures below, once more to find nothing. Here a wake-up that comes out of taking a body's end
//! is dropped. Only those: another thread's, or one while there is more to fetch, goes where it
//! went.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

thread_local! {
    /// What this thread takes out of a body's channel, if it does so now.
    static TAKING: RefCell<Taking> = const { RefCell::new(Taking::Nothing) };
}

enum Taking {
    Nothing,
    Piece,
    /// This connection was woken for it: not always the one that takes.
    Woken(Arc<Ear>),
}

/// A future whose wake-ups can be held back with [`taken`].
pub(super) struct Hushed<F> {
    future: Pin<Box<F>>,
    ear: Arc<Ear>,
    waker: Waker,
}

/// Hears the wake-ups of one task.
struct Ear(Mutex<Waker>);

impl<F: Future> Hushed<F> {
    pub(super) fn new(future: F) -> Self {
        let ear = Arc::new(Ear(Mutex::new(Waker::noop().clone())));
        Self {
            future: Box::pin(future),
            waker: Waker::from(Arc::clone(&ear)),
            ear,
        }
    }
}

impl<F: Future> Future for Hushed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.ear.0.lock().clone_from(cx.waker());
        let Self { future, waker, .. } = &mut *self;
        future.as_mut().poll(&mut Context::from_waker(waker))
    }
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let held_back = TAKING.with_borrow_mut(|taking| {
            let is_taking = !matches!(taking, Taking::Nothing);
            if is_taking {
                *taking = Taking::Woken(Arc::clone(self));
            }
            is_taking
        });
        if !held_back {
            self.pass_on();
        }
    }
}

impl Ear {
    fn pass_on(&self) {
        self.0.lock().wake_by_ref();
    }
}

/// Takes something out of a body's channel with `take`; whoever fills the channel is woken if
/// there `is_more` to fetch after that.
pub(super) fn taken<B, T>(
    body: &mut B,
    cx: &mut Context<'_>,
    take: impl FnOnce(&mut B, &mut Context<'_>) -> T,
    is_more: impl FnOnce(&B) -> bool,
) -> T {
    /// Back to nothing, also out of a panic.
    struct Until;
    impl Drop for Until {
        fn drop(&mut self) {
            TAKING.replace(Taking::Nothing);
        }
    }
    let until = Until;
    TAKING.replace(Taking::Piece);
    let took = take(body, cx);
    let was = TAKING.replace(Taking::Nothing);
    drop(until);
    if let Taking::Woken(ear) = was
        && is_more(body)
    {
        ear.pass_on();
    }
    took
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often a task is woken in whose poll `act` happens.
    fn woken_by(act: impl Fn(&mut Context<'_>)) -> u32 {
        let count = Arc::<Count>::default();
        let task = Waker::from(Arc::clone(&count));
        let mut future = Hushed::new(std::future::poll_fn(|cx| {
            act(cx);
            Poll::<()>::Pending
        }));
        let polled = Pin::new(&mut future).poll(&mut Context::from_waker(&task));
        assert!(polled.is_pending());
        count.0.load(Ordering::Relaxed)
    }

    /// As hyper's channel does when something is taken out of it.
    fn take(more: bool, cx: &mut Context<'_>) {
        taken(&mut (), cx, |(), cx| cx.waker().wake_by_ref(), |()| more);
    }

    #[test]
    fn only_the_wake_up_for_more_than_there_is_is_dropped() {
        assert_eq!(woken_by(|cx| cx.waker().wake_by_ref()), 1);
        assert_eq!(woken_by(|cx| take(false, cx)), 0);
        assert_eq!(woken_by(|cx| take(true, cx)), 1);
        assert_eq!(
            woken_by(|cx| {
                take(false, cx);
                cx.waker().wake_by_ref();
            }),
            1
        );
        // A panic on the way leaves nothing behind.
        assert_eq!(
            woken_by(|cx| {
                let taking = std::panic::AssertUnwindSafe(|| {
                    taken(&mut (), cx, |(), _| panic!("on purpose"), |()| false)
                });
                assert!(std::panic::catch_unwind(taking).is_err());
                cx.waker().wake_by_ref();
            }),
            1
        );
    }

    #[test]
    fn who_fills_is_woken_for_more_whoever_takes() {
        let (filler, taker) = (Arc::<Count>::default(), Arc::<Count>::default());
        let kept = Mutex::new(None);
        let mut filling = Hushed::new(std::future::poll_fn(|cx| {
            *kept.lock() = Some(cx.waker().clone());
            Poll::<()>::Pending
        }));
        let task = Waker::from(Arc::clone(&filler));
        let polled = Pin::new(&mut filling).poll(&mut Context::from_waker(&task));
        assert!(polled.is_pending());
        let waker = kept.lock().take().unwrap();
        let other = Waker::from(Arc::clone(&taker));
        for (more, woken) in [(true, 1), (false, 1), (true, 2)] {
            let mut cx = Context::from_waker(&other);
            taken(&mut (), &mut cx, |(), _| waker.wake_by_ref(), |()| more);
            assert_eq!(filler.0.load(Ordering::Relaxed), woken);
        }
        assert_eq!(taker.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn another_threads_wake_up_goes_through_while_something_is_taken() {
        let woken = woken_by(|cx| {
            taken(
                &mut (),
                cx,
                |(), cx| {
                    let waker = cx.waker().clone();
                    std::thread::spawn(move || waker.wake()).join().unwrap();
                },
                |()| false,
            );
        });
        assert_eq!(woken, 1);
    }
}
