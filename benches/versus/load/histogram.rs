//! Waits, counted in buckets whose width is 1/64 of what they hold, so that a percentile is right
//! to 1.6 % at any size and recording one costs an addition.

use serde_json::{Value, json};

/// Buckets per power of two.
const STEPS: u64 = 64;
/// Enough for every wait that fits into 64 bits of nanoseconds.
const BUCKETS: usize = 64 * 60;

pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    /// The largest one, exactly.
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS],
            count: 0,
            max: 0,
        }
    }

    pub(crate) fn add(&mut self, nanos: u64) {
        self.buckets[bucket(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Microseconds that `share` of all waits did not exceed.
    fn percentile(&self, share: f64) -> f64 {
        let wanted = (self.count as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return top(index).min(self.max) as f64 / 1e3;
            }
        }
        0.0
    }

    pub(crate) fn told(&self) -> Value {
        json!({
            "count": self.count,
            "p50": self.percentile(0.5),
            "p90": self.percentile(0.9),
            "p99": self.percentile(0.99),
            "p999": self.percentile(0.999),
            "max": self.max as f64 / 1e3,
        })
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < STEPS {
        return nanos as usize;
    }
    let power = u64::from(nanos.ilog2() - STEPS.ilog2());
    (power * STEPS + (nanos >> power)) as usize
}

/// The largest value of a bucket.
fn top(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let power = index / STEPS - 1;
    ((index - power * STEPS + 1) << power) - 1
}

#[test]
fn every_wait_falls_into_a_bucket_that_is_narrow() {
    for nanos in (0..63).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + (1 << bit) / 3])
    {
        let top = top(bucket(nanos));
        assert!(
            nanos <= top,
            "{nanos} lies above its bucket, which ends at {top}"
        );
        assert!(top - nanos <= nanos / STEPS, "{nanos} is told as {top}");
    }
}

#[test]
fn percentiles_are_those_of_the_sorted_waits() {
    let mut waits = Histogram::new();
    (1..=1000).for_each(|n| waits.add(n * 1_000_000));
    for (share, micros) in [(0.5, 500e3), (0.99, 990e3), (1.0, 1000e3)] {
        let told = waits.percentile(share);
        assert!(
            (told / micros - 1.0).abs() < 0.02,
            "{share}: {told}, not {micros}"
        );
    }
}
