//! Time and chance as plain values; the readers live in `clock` and `entropy`.

use std::time::Duration;

/// A reading of the process's monotonic clock: nanoseconds since the process began.
///
/// Waits inside a living process use it, so a step of the wall clock neither stalls nor expires
/// anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The reading `d` later, saturating at the end of time.
    #[must_use]
    pub fn after(self, d: Duration) -> Self {
        Self(
            self.0
                .saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// A reading of the wall clock: milliseconds since 1970-01-01 UTC. What the ledger keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Wall(pub i64);

impl Wall {
    /// The instant `d` later, saturating.
    #[must_use]
    pub fn after(self, d: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)),
        )
    }

    /// How long ago `earlier` was; zero when it lies ahead (a clock stepped back).
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let ms = self.0.saturating_sub(earlier.0);
        Duration::from_millis(u64::try_from(ms).unwrap_or(0))
    }
}

/// One draw of chance: a number in `[0, 1)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chance(f64);

impl Chance {
    /// Takes `u` when it lies in `[0, 1)`; the nearest such number otherwise (0 for a NaN), so
    /// that no caller can push a delay out of its range.
    #[must_use]
    pub fn new(u: f64) -> Self {
        if u.is_nan() {
            Self(0.0)
        } else {
            Self(u.clamp(0.0, 1.0_f64.next_down()))
        }
    }

    /// The draw, in `[0, 1)`.
    #[must_use]
    pub const fn get(self) -> f64 {
        self.0
    }
}
