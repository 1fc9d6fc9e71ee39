//! A bound that follows what a tool can take: it falls by a tenth when a send fails and rises by
//! one for every bound's worth of answers, never beyond the configured one.
//!
//! A burst of failures of sends that were under way together is one piece of news: after a fall,
//! as many ends as there were sends in flight pass before the next one.

/// How much is left of the bound after a failure.
const FALL: f64 = 0.9;

/// The moving bound.
#[derive(Debug)]
pub(super) struct Aimd {
    bound: f64,
    /// Ends to let pass before the next fall.
    spared: usize,
}

impl Aimd {
    pub(super) fn new(most: usize) -> Self {
        Self {
            bound: most as f64,
            spared: 0,
        }
    }

    /// At least one, at most `most`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and a configured number of sends"
    )]
    pub(super) fn bound(&self, most: usize) -> usize {
        (self.bound as usize).clamp(1, most)
    }

    /// A send ended, with an answer or without.
    pub(super) fn ended(&mut self, went_well: bool, in_flight: usize, most: usize) {
        let spared = self.spared > 0;
        self.spared = self.spared.saturating_sub(1);
        if !went_well && !spared {
            self.bound = (self.bound * FALL).max(1.0);
            self.spared = in_flight;
        } else if went_well && in_flight * 2 >= self.bound(most) {
            // A bound that nobody reaches would rise without reason.
            self.bound = (self.bound + 1.0 / self.bound).min(most as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_once_per_burst_and_rises_by_one_per_boundful() {
        let mut aimd = Aimd::new(100);
        for _ in 0..100 {
            aimd.ended(false, 100, 100);
        }
        assert_eq!(aimd.bound(100), 90);
        for _ in 0..10_000 {
            aimd.ended(false, 10, 100);
        }
        assert_eq!(aimd.bound(100), 1);
        for _ in 0..30 {
            aimd.ended(true, 20, 100);
        }
        assert!((7..=9).contains(&aimd.bound(100)), "{}", aimd.bound(100));
        let risen = aimd.bound(100);
        for _ in 0..1_000 {
            aimd.ended(true, 1, 100);
        }
        assert_eq!(aimd.bound(100), risen, "nobody came near it");
        for _ in 0..10_000 {
            aimd.ended(true, 100, 100);
        }
        assert_eq!(aimd.bound(100), 100);
    }
}
