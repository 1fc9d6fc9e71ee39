//! The only reader of time: monotonic and wall clock, exact sleeps, and the coarse timer wheel.
//!
//! Everything else takes [`Mono`] and [`Wall`] values, so that tests bring their own time. The
//! monotonic side goes through tokio's clock and therefore follows a paused test clock; the wall
//! side can be tied to it ([`Clock::simulated`]). Exact waits (backoff, settle, receipt, total)
//! use [`sleep`] and [`Clock::sleep_until`]; timeouts that normally do not fire (attempt, idle,
//! connect) use the [`Wheel`]. Deliberately absent: time zones and formats.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, Sleep as ExactSleep};

use crate::call::time::{Mono, Wall};

pub mod wheel;

pub use wheel::Wheel;

/// Further away than any wait a policy can hold; keeps `Instant` arithmetic from overflowing.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

/// A source that lies back by less has not been set back.
const STEP_LEAST_MS: i64 = 1_000;

/// A process's view of time. Cheap to clone; all clones agree.
///
/// Two clocks started apart have different zeros: one per process (or per simulated world).
#[derive(Clone, Debug)]
pub struct Clock {
    began: Instant,
    wall: WallSource,
    latest: Arc<Latest>,
}

/// What keeps the wall clock of one process from going back.
#[derive(Debug)]
struct Latest {
    /// The latest time read.
    ms: AtomicI64,
    /// How far this process is ahead of a source that was set back.
    ahead_ms: AtomicI64,
}

#[derive(Clone, Debug)]
enum WallSource {
    System,
    /// The wall clock stands at `at` when the clock begins and follows the monotonic one, plus
    /// whatever a test steps it by.
    Simulated {
        at: Wall,
        stepped_ms: Arc<AtomicI64>,
    },
}

/// Steps a simulated wall clock, as an administrator or NTP would.
#[derive(Clone, Debug)]
pub struct WallStep(Arc<AtomicI64>);

impl Clock {
    /// The clock of this process; its monotonic zero is now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            began: instant(),
            wall: WallSource::System,
            latest: Latest::new(),
        }
    }

    /// A clock whose wall time begins at `at` and follows the monotonic clock; the handle steps
    /// it. For tests and simulation.
    #[must_use]
    pub fn simulated(at: Wall) -> (Self, WallStep) {
        let stepped_ms = Arc::new(AtomicI64::new(0));
        let wall = WallSource::Simulated {
            at,
            stepped_ms: Arc::clone(&stepped_ms),
        };
        (
            Self {
                began: instant(),
                wall,
                latest: Latest::new(),
            },
            WallStep(stepped_ms),
        )
    }

    /// Nanoseconds since the clock began. Never goes back.
    #[must_use]
    pub fn mono(&self) -> Mono {
        let elapsed = instant().saturating_duration_since(self.began);
        Mono(u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The wall clock, in milliseconds since 1970. It may jump ahead; it never goes back while the
    /// process lives. A source that is set back is followed from where this process had come, so
    /// that no wait it has written down (a round, a lease) grows by the step.
    #[must_use]
    pub fn wall(&self) -> Wall {
        self.latest.follow(|| self.source())
    }

    fn source(&self) -> Wall {
        match &self.wall {
            WallSource::System => system_wall(),
            WallSource::Simulated { at, stepped_ms } => {
                let elapsed = Duration::from_nanos(self.mono().0);
                let Wall(ms) = at.after(elapsed);
                Wall(ms.saturating_add(stepped_ms.load(Ordering::Relaxed)))
            }
        }
    }

    /// Sleeps until `at`, exactly (to tokio's millisecond, never earlier). Needs a tokio runtime.
    pub fn sleep_until(&self, at: Mono) -> ExactSleep {
        let after = Duration::from_nanos(at.0).min(FAR);
        tokio::time::sleep_until(self.began + after)
    }
}

impl Latest {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            ms: AtomicI64::new(i64::MIN),
            ahead_ms: AtomicI64::new(0),
        })
    }

    /// Mostly two loads. What lies back by less than [`STEP_LEAST_MS`] is another reader who was
    /// quicker; what lies back by more is read again, in case this one was held up in between.
    fn follow(&self, source: impl Fn() -> Wall) -> Wall {
        let ahead = self.ahead_ms.load(Ordering::Relaxed);
        let read = || source().0.saturating_add(ahead);
        let latest = self.ms.load(Ordering::Relaxed);
        let now = read();
        if now > latest {
            self.ms.fetch_max(now, Ordering::Relaxed);
            return Wall(now);
        }
        if latest.saturating_sub(now) >= STEP_LEAST_MS {
            let back = latest.saturating_sub(read());
            if back >= STEP_LEAST_MS {
                // Whoever comes second finds the step already followed.
                let further = ahead.saturating_add(back);
                let order = Ordering::Relaxed;
                let followed = self.ahead_ms.compare_exchange(ahead, further, order, order);
                tracing::warn!(
                    back_ms = back,
                    first = followed.is_ok(),
                    "the wall clock was set back; this process goes on from where it had come"
                );
            }
        }
        Wall(latest)
    }
}

impl WallStep {
    /// Steps the wall clock by `ms` milliseconds, back when negative.
    pub fn by(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::Relaxed);
    }
}

/// Sleeps for `d`, exactly (to tokio's millisecond, never shorter). Needs a tokio runtime.
pub fn sleep(d: Duration) -> ExactSleep {
    tokio::time::sleep(d.min(FAR))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reader of monotonic time"
)]
fn instant() -> Instant {
    Instant::now()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one reader of the wall clock"
)]
fn system_wall() -> Wall {
    use std::time::{SystemTime, UNIX_EPOCH};
    let now = SystemTime::now();
    // A machine whose clock stands before 1970 is told apart, not refused.
    let ms = match now.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    Wall(ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn mono_follows_the_paused_clock_and_sleeps_end_exactly() {
        let clock = Clock::start();
        let before = clock.mono();
        sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.mono().since(before), Duration::from_millis(250));
        let at = before.after(Duration::from_secs(2));
        clock.sleep_until(at).await;
        assert_eq!(clock.mono(), at);
    }

    #[tokio::test(start_paused = true)]
    async fn c61a_a_wall_clock_jumps_ahead_and_never_goes_back() {
        let (clock, step) = Clock::simulated(Wall(1_000_000));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(clock.wall(), Wall(1_001_500));
        step.by(-3_600_000);
        assert_eq!(clock.wall(), Wall(1_001_500));
        // What was to happen in a second happens in a second.
        sleep(Duration::from_millis(1_000)).await;
        assert_eq!(clock.clone().wall(), Wall(1_002_500));
        step.by(3_600_000);
        assert_eq!(clock.wall(), Wall(1_002_500 + 3_600_000));
        // Steps back add up; what was read is never undone.
        step.by(-5_000);
        step.by(-5_000);
        assert_eq!(clock.wall(), Wall(1_002_500 + 3_600_000));
        sleep(Duration::from_millis(10)).await;
        assert_eq!(clock.wall(), Wall(1_002_510 + 3_600_000));
    }

    #[test]
    fn the_wall_clock_reads_outside_a_runtime_too() {
        let clock = Clock::start();
        assert!(clock.wall() > Wall(1_700_000_000_000));
        assert!(clock.mono() <= clock.mono());
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_beyond_the_end_of_time_does_not_panic() {
        let clock = Clock::start();
        let far = tokio::time::timeout(Duration::from_secs(1), clock.sleep_until(Mono(u64::MAX)));
        assert!(far.await.is_err());
        assert!(
            tokio::time::timeout(Duration::from_secs(1), sleep(Duration::MAX))
                .await
                .is_err()
        );
    }
}
