//! The rate of a job: how many items may be begun by now.
//!
//! Counted from a beginning and not from one item to the next, so that no rounding and no late
//! timer adds up. What was missed because there was no room is not caught up in a burst: a tool
//! that was slow for a minute is not to be flooded in the next.

use std::time::Duration;

use crate::call::time::Mono;

/// Between two looks at a fast job: many items go in one record then.
const TICK: Duration = Duration::from_millis(50);

/// How far a job may fall behind its rate before what it missed is let go.
const SLACK: Duration = Duration::from_millis(500);

/// The pace of one job.
#[derive(Debug)]
pub(super) struct Pace {
    per_minute: u32,
    since: Mono,
    begun: u64,
}

impl Pace {
    /// Begins now with the first item at once.
    pub(super) const fn new(per_minute: u32, now: Mono) -> Self {
        Self {
            per_minute: if per_minute == 0 { 1 } else { per_minute },
            since: now,
            begun: 0,
        }
    }

    /// How many items may be begun, at least one; or how long until there is one.
    pub(super) fn due(&mut self, now: Mono) -> Result<usize, Duration> {
        let next = self.at(self.begun);
        let passed = now.since(self.since);
        if passed < next {
            return Err((next - passed).max(TICK.min(self.gap())));
        }
        if passed - next > SLACK {
            self.since = now;
            self.begun = 0;
            return Ok(1);
        }
        let allowed = passed.as_micros() * u128::from(self.per_minute) / MINUTE.as_micros() + 1;
        let due = u64::try_from(allowed)
            .unwrap_or(u64::MAX)
            .saturating_sub(self.begun);
        Ok(usize::try_from(due).unwrap_or(usize::MAX).max(1))
    }

    /// So many were begun.
    pub(super) fn begun(&mut self, items: usize, now: Mono) {
        self.begun += items as u64;
        // Long before any number grows large.
        if self.begun >= 1 << 40 {
            self.since = now;
            self.begun = 0;
        }
    }

    /// When item `n` may be begun, counted from the beginning.
    fn at(&self, n: u64) -> Duration {
        let micros = MINUTE.as_micros() * u128::from(n) / u128::from(self.per_minute);
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    fn gap(&self) -> Duration {
        MINUTE / self.per_minute
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    /// Items begun in so many seconds, when every look is answered at once.
    fn begun_in(per_minute: u32, secs: u64) -> u64 {
        let start = Mono(0);
        let mut pace = Pace::new(per_minute, start);
        let (mut at, mut all) = (Duration::ZERO, 0);
        while at < Duration::from_secs(secs) {
            match pace.due(start.after(at)) {
                Ok(due) => {
                    pace.begun(due.min(32), start.after(at));
                    all += due.min(32) as u64;
                }
                Err(wait) => at += wait,
            }
        }
        all
    }

    #[test]
    fn a_job_keeps_its_rate_within_five_in_a_hundred() {
        for per_minute in [60, 600, 3_000, 6_000, 60_000] {
            let secs = 20;
            let wanted = u64::from(per_minute) * secs / 60;
            let all = begun_in(per_minute, secs);
            let off = all.abs_diff(wanted);
            assert!(
                off * 20 <= wanted,
                "{per_minute}/min: {all} instead of {wanted}"
            );
        }
        assert_eq!(begun_in(1, 119), 2, "one a minute, the first at once");
    }

    #[test]
    fn what_was_missed_is_not_caught_up_in_a_burst() {
        let start = Mono(0);
        let mut pace = Pace::new(600, start);
        assert_eq!(pace.due(start), Ok(1));
        pace.begun(1, start);
        let late = start.after(Duration::from_secs(60));
        assert_eq!(pace.due(late), Ok(1));
        pace.begun(1, late);
        assert_eq!(pace.due(late), Err(Duration::from_millis(100)));
    }
}
