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

/// A process's view of time. Cheap to clone; all clones agree.
///
/// Two clocks started apart have different zeros: one per process (or per simulated world).
#[derive(Clone, Debug)]
pub struct Clock {
    began: Instant,
    wall: WallSource,
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

    /// The wall clock, in milliseconds since 1970. May be stepped in either direction.
    #[must_use]
    pub fn wall(&self) -> Wall {
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
    async fn a_simulated_wall_clock_follows_and_can_be_stepped_both_ways() {
        let (clock, step) = Clock::simulated(Wall(1_000_000));
        sleep(Duration::from_millis(1_500)).await;
        assert_eq!(clock.wall(), Wall(1_001_500));
        step.by(-3_600_000);
        assert_eq!(clock.wall(), Wall(1_001_500 - 3_600_000));
        step.by(2 * 3_600_000);
        assert_eq!(clock.wall(), Wall(1_001_500 + 3_600_000));
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
