//! The coarse timer wheel: one per runtime, for timeouts that normally do not fire.
//!
//! A tokio timer costs a place in a shared, exact structure for every attempt; here an insert and
//! a cancel are a few instructions under an uncontended lock, and one task turns the wheel for
//! everybody. A sleep ends on a tick of 10 ms, rounded up, never early. The turning task sleeps
//! until the next occupied slot, and for good while the wheel is empty. Deliberately absent:
//! hierarchy (a sleep longer than one turn stays in its slot and is looked at once a turn).

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{FAR, instant};

mod slots;

use slots::{Key, Slots};

/// The wheel's resolution: chosen against the shortest timeout that makes sense (tens of
/// milliseconds) and a core that should be woken at most a hundred times a second.
pub const TICK: Duration = Duration::from_millis(10);

/// A coarse timer wheel; clones share it.
#[derive(Clone)]
pub struct Wheel {
    shared: Arc<Shared>,
}

/// A wait on the wheel. Cancelled by dropping it. `Send`, `Unpin`, pollable from any thread.
#[must_use = "a sleep does nothing unless polled"]
pub struct Sleep {
    shared: Arc<Shared>,
    key: Option<Key>,
}

struct Shared {
    epoch: Instant,
    slots: Mutex<Slots>,
    /// Woken when a sleep is due before the turning task would look, and when the wheel is gone.
    sooner: Arc<Notify>,
}

impl Wheel {
    /// Starts a wheel whose turning task runs on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start() -> Self {
        let sooner = Arc::new(Notify::new());
        let shared = Arc::new(Shared {
            epoch: instant(),
            slots: Mutex::new(Slots::new()),
            sooner: Arc::clone(&sooner),
        });
        tokio::spawn(turn(Arc::downgrade(&shared), sooner));
        Self { shared }
    }

    /// A wait of at least `d` from now, ending on the next tick after it.
    pub fn sleep(&self, d: Duration) -> Sleep {
        let key = self.shared.insert(d);
        Sleep {
            shared: Arc::clone(&self.shared),
            key: Some(key),
        }
    }

    /// Sleeps now on the wheel; for tests and gauges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.slots.lock().len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl std::fmt::Debug for Wheel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Wheel({} sleeps)", self.len())
    }
}

impl Sleep {
    /// Begins the wait again: it now ends `d` from now.
    pub fn reset(&mut self, d: Duration) {
        if let Some(key) = self.key.take() {
            self.shared.slots.lock().remove(key);
        }
        self.key = Some(self.shared.insert(d));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Polled again after its end, it stays at its end.
        let Some(key) = self.key else {
            return Poll::Ready(());
        };
        if self.shared.slots.lock().poll(key, cx.waker()) {
            self.key = None;
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            self.shared.slots.lock().remove(key);
        }
    }
}

impl Shared {
    fn insert(&self, d: Duration) -> Key {
        let due = instant().saturating_duration_since(self.epoch) + d.min(FAR);
        let (key, sooner) = self.slots.lock().insert(ticks_up(due));
        if sooner {
            self.sooner.notify_one();
        }
        key
    }

    /// Ends what is due and says at which tick to look again.
    fn expire(&self, due: &mut Vec<Waker>) -> Option<u64> {
        let elapsed = instant().saturating_duration_since(self.epoch);
        let next = self.slots.lock().advance(ticks_down(elapsed), due);
        // Outside the lock: a waker may poll, insert or cancel at once.
        for waker in due.drain(..) {
            waker.wake();
        }
        next
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

/// Turns the wheel until it is gone.
async fn turn(wheel: Weak<Shared>, sooner: Arc<Notify>) {
    let mut due = Vec::new();
    loop {
        let next = {
            let Some(wheel) = wheel.upgrade() else { return };
            let epoch = wheel.epoch;
            wheel.expire(&mut due).map(|tick| epoch + tick_at(tick))
        };
        match next {
            None => sooner.notified().await,
            Some(at) => {
                tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = sooner.notified() => {}
                }
            }
        }
    }
}

const TICK_NS: u128 = TICK.as_nanos();

fn ticks_up(d: Duration) -> u64 {
    u64::try_from(d.as_nanos().div_ceil(TICK_NS)).unwrap_or(u64::MAX)
}

fn ticks_down(d: Duration) -> u64 {
    u64::try_from(d.as_nanos() / TICK_NS).unwrap_or(u64::MAX)
}

fn tick_at(tick: u64) -> Duration {
    // `insert` bounds every tick by FAR beyond now, so the product fits.
    Duration::from_millis(tick.saturating_mul(10))
}

#[cfg(test)]
mod tests;
