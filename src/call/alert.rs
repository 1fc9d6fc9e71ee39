//! Alerts: what people are told of, and when. The judgement only; `compensate/alert` carries it
//! out.
//!
//! One incident is many events: a tool that is down for a day brings up a call every few seconds.
//! So events of one route and kind are told together, at most once in a window (`repeat`); what
//! comes up meanwhile is counted and goes along with the next. An alert that cannot be delivered is
//! tried again in growing gaps, for ever but slowly: what is bounded is how often, not how long.

use std::time::Duration;

use super::time::Wall;

/// What people are told of (`compensation.alert.on`, and `oldest_over`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// A dead letter is in front of a human.
    Manual,
    /// A call was undone.
    Reversed,
    /// A fact contradicts a recorded end.
    Difference,
    /// The oldest unresolved call is older than it may be.
    OldestOver,
}

/// How the alert of one route and event stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Events nobody was told of yet.
    pub waiting: u64,
    /// When people were told last.
    pub told_at: Option<Wall>,
    /// Deliveries tried since, in vain.
    pub tries: u32,
    /// Not before then is it tried again.
    pub next_try: Option<Wall>,
}

/// The wait after the first delivery that failed; doubled with every further one.
const AGAIN_FIRST: Duration = Duration::from_secs(1);

/// The longest such wait: a receiver that is down for a day is asked about a hundred times.
pub const AGAIN_MAX: Duration = Duration::from_secs(15 * 60);

impl Event {
    /// Every event, in the order of the documentation.
    pub const ALL: [Self; 4] = [
        Self::Manual,
        Self::Reversed,
        Self::Difference,
        Self::OldestOver,
    ];

    /// The word in the configuration, in the ledger and in the alert.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Manual => "manual",
            Self::Reversed => "reversed",
            Self::Difference => "difference",
            Self::OldestOver => "oldest_over",
        }
    }

    /// The event a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|event| event.as_str() == word)
    }
}

impl Standing {
    /// Whether an event of `now` falls into the window of the last alert. A last alert that lies
    /// ahead (the clock was stepped back) opens no window: it could last for ever.
    #[must_use]
    pub fn holds(&self, repeat: Duration, now: Wall) -> bool {
        self.told_at
            .is_some_and(|told| told <= now && now < told.after(repeat))
    }

    /// Whether the alert is to be delivered now.
    #[must_use]
    pub fn is_due(&self, repeat: Duration, now: Wall) -> bool {
        // A next try further away than any wait was set before the clock was stepped back.
        let waits = |at: Wall| now < at && at <= now.after(AGAIN_MAX);
        self.waiting > 0 && !self.holds(repeat, now) && !self.next_try.is_some_and(waits)
    }
}

/// How long to wait after the `tries`-th delivery in vain.
#[must_use]
pub fn again_after(tries: u32) -> Duration {
    let doubled = 1_u32
        .checked_shl(tries.saturating_sub(1))
        .unwrap_or(u32::MAX);
    AGAIN_FIRST.saturating_mul(doubled).min(AGAIN_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const T: Wall = Wall(1_700_000_000_000);

    #[test]
    fn an_alert_is_due_once_in_a_window_and_when_its_next_try_is() {
        let first = Standing {
            waiting: 1,
            ..Standing::default()
        };
        let told = Standing {
            told_at: Some(T),
            ..first
        };
        let failed = Standing {
            tries: 3,
            next_try: Some(T.after(Duration::from_secs(4))),
            ..first
        };
        let table = [
            (Standing::default(), T, false),
            (first, T, true),
            (told, T, false),
            (told, Wall(T.after(HOUR).0 - 1), false),
            (told, T.after(HOUR), true),
            // The clock was stepped back before the last alert.
            (told, Wall(T.0 - 1), true),
            (failed, T, false),
            (failed, T.after(Duration::from_secs(4)), true),
            (failed, Wall(T.0 - 86_400_000), true),
        ];
        for (standing, now, expected) in table {
            assert_eq!(standing.is_due(HOUR, now), expected, "{standing:?} {now:?}");
        }
    }

    #[test]
    fn the_gaps_grow_to_their_bound() {
        let gaps: Vec<u64> = (1..=12).map(|n| again_after(n).as_secs()).collect();
        assert_eq!(gaps, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        for tries in [0, 31, 32, 33, 64, u32::MAX] {
            assert!(again_after(tries) <= AGAIN_MAX, "{tries}");
        }
    }

    #[test]
    fn every_event_comes_back_from_its_word() {
        for event in Event::ALL {
            assert_eq!(Event::from_word(event.as_str()), Some(event));
        }
        assert_eq!(Event::from_word("MANUAL"), None);
    }
}
