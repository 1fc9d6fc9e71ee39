//! One wake-up per runtime thread and group, instead of one per waiter.
//!
//! Waking a task from a foreign thread costs a system call on one side and often another on the
//! other; a group commit would make some hundreds of them at once. So each runtime thread that
//! waits for the ledger has a small task, its relay: the writer leaves it the wakers of a whole
//! group and wakes it alone, and the relay wakes the others from inside, where that is a push to a
//! local queue. Should the relay be gone (its runtime has ended), the waiters are woken directly;
//! nobody depends on it to be told.

use std::cell::RefCell;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::runtime::Handle;

/// How to call one waiter.
pub(super) struct Call {
    waker: Waker,
    relay: Option<Arc<Relay>>,
}

/// The calls of a group, by the relay they go through.
#[derive(Default)]
pub(super) struct Wakes {
    direct: Vec<Waker>,
    relayed: Vec<(Arc<Relay>, Vec<Waker>)>,
}

/// The meeting place of the writer and one runtime thread.
pub(super) struct Relay(Mutex<Line>);

enum Line {
    /// The relay's task lives.
    Open {
        /// Whom it is to wake.
        waiters: Vec<Waker>,
        /// How to wake the task itself.
        task: Option<Waker>,
    },
    /// It has ended with its runtime.
    Closed,
}

thread_local! {
    static OF_THIS_THREAD: RefCell<Option<Arc<Relay>>> = const { RefCell::new(None) };
}

impl Call {
    /// A call without a relay.
    pub(super) const fn directly(waker: Waker) -> Self {
        Self { waker, relay: None }
    }

    /// A call through a relay, where there is one.
    pub(super) const fn through(relay: Option<Arc<Relay>>, waker: Waker) -> Self {
        Self { waker, relay }
    }

    /// Makes the call at once.
    pub(super) fn now(self) {
        self.waker.wake();
    }
}

impl Wakes {
    /// Adds a call to be made.
    pub(super) fn add(&mut self, Call { waker, relay }: Call) {
        let Some(relay) = relay else {
            return self.direct.push(waker);
        };
        // There are as many relays as cores: looking through them beats hashing.
        match self
            .relayed
            .iter_mut()
            .find(|(known, _)| Arc::ptr_eq(known, &relay))
        {
            Some((_, waiters)) => waiters.push(waker),
            None => self.relayed.push((relay, vec![waker])),
        }
    }

    /// Makes the calls.
    pub(super) fn call(self) {
        self.direct.into_iter().for_each(Waker::wake);
        for (relay, waiters) in self.relayed {
            relay.pass_on(waiters);
        }
    }
}

impl Relay {
    /// The relay of this thread; its task is started when there is none. `None` outside a runtime.
    pub(super) fn of_this_thread() -> Option<Arc<Self>> {
        OF_THIS_THREAD.with_borrow_mut(|mine| {
            if let Some(relay) = mine
                && relay.is_open()
            {
                return Some(Arc::clone(relay));
            }
            let runtime = Handle::try_current().ok()?;
            let line = Line::Open {
                waiters: Vec::new(),
                task: None,
            };
            let relay = Arc::new(Self(Mutex::new(line)));
            runtime.spawn(Running(Arc::clone(&relay)));
            *mine = Some(Arc::clone(&relay));
            Some(relay)
        })
    }

    fn is_open(&self) -> bool {
        matches!(&*self.0.lock(), Line::Open { .. })
    }

    /// Has the waiters woken: by the task, or right here when it is gone.
    fn pass_on(&self, mut woken: Vec<Waker>) {
        let task = match &mut *self.0.lock() {
            Line::Open { waiters, task } => {
                waiters.append(&mut woken);
                task.take()
            }
            Line::Closed => None,
        };
        woken.into_iter().for_each(Waker::wake);
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// The task of a relay: wakes whom it is left, for as long as its runtime lives.
struct Running(Arc<Relay>);

impl Future for Running {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let woken = match &mut *self.0.0.lock() {
            Line::Open { waiters, task } => {
                *task = Some(cx.waker().clone());
                mem::take(waiters)
            }
            Line::Closed => return Poll::Ready(()),
        };
        woken.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Under the lock, so that nobody leaves a waiter with a relay that is gone.
        let line = mem::replace(&mut *self.0.0.lock(), Line::Closed);
        if let Line::Open { waiters, .. } = line {
            waiters.into_iter().for_each(Waker::wake);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::super::pending::{Pending, Reply};
    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn tell_from_another_thread(replies: Vec<Reply<usize>>) {
        let told = std::thread::spawn(move || {
            let mut wakes = Wakes::default();
            for (n, reply) in replies.into_iter().enumerate() {
                reply.send_with(Ok(n), &mut wakes);
            }
            assert!(wakes.relayed.len() <= 1, "one thread has one relay");
            wakes.call();
        });
        told.join().unwrap();
    }

    #[test]
    fn a_group_is_told_through_one_relay() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        for _ in 0..2 {
            runtime.block_on(async {
                let (replies, waiting): (Vec<_>, Vec<_>) =
                    (0..50).map(|_| Pending::later()).unzip();
                let tasks: Vec<_> = waiting.into_iter().map(tokio::spawn).collect();
                tokio::task::yield_now().await;
                tell_from_another_thread(replies);
                for (n, task) in tasks.into_iter().enumerate() {
                    assert!(matches!(task.await.unwrap(), Ok(told) if told == n));
                }
            });
        }
    }

    #[test]
    fn a_new_runtime_on_the_same_thread_is_told_too() {
        for _ in 0..3 {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let (reply, waiter) = Pending::later();
            runtime.block_on(async move {
                let task = tokio::spawn(waiter);
                tokio::task::yield_now().await;
                tell_from_another_thread(vec![reply]);
                assert!(matches!(task.await.unwrap(), Ok(0)));
            });
        }
    }

    #[test]
    fn a_waiter_whose_relay_is_gone_is_woken_directly() {
        let counted = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&counted));
        let (reply, mut waiter) = Pending::<usize>::later();
        {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .build()
                .unwrap();
            let _inside = runtime.enter();
            let polled = Pin::new(&mut waiter).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        assert_eq!(counted.0.load(Ordering::SeqCst), 0);
        tell_from_another_thread(vec![reply]);
        assert_eq!(counted.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn outside_a_runtime_there_is_no_relay() {
        std::thread::spawn(|| assert!(Relay::of_this_thread().is_none()))
            .join()
            .unwrap();
    }
}
