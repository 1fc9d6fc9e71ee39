//! Tables and properties of the retry arithmetic (case C57: overflow, zero, index, cap, jitter).

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn numbers() -> RetryNumbers {
    RetryNumbers {
        max_retries: 3,
        base: Duration::from_secs(1),
        factor: 2.0,
        cap: Duration::from_secs(16),
        jitter: 0.2,
        on: Cause::ALL.to_vec(),
        resend_on: ResendOn::NotFound,
    }
}

fn refused(n: RetryNumbers) -> &'static str {
    Retry::new(n).unwrap_err().key
}

#[test]
fn numbers_that_break_the_arithmetic_are_refused_under_their_key() {
    assert_eq!(
        refused(RetryNumbers {
            max_retries: 6,
            ..numbers()
        }),
        "max_retries"
    );
    assert_eq!(
        refused(RetryNumbers {
            base: Duration::ZERO,
            ..numbers()
        }),
        "base"
    );
    assert_eq!(
        refused(RetryNumbers {
            cap: Duration::from_millis(500),
            ..numbers()
        }),
        "cap"
    );
    for factor in [0.0, 0.5, -2.0, f64::NAN, f64::INFINITY, 10.1] {
        assert_eq!(
            refused(RetryNumbers {
                factor,
                ..numbers()
            }),
            "factor",
            "{factor}"
        );
    }
    for jitter in [-0.1, 1.5, 20.0, f64::NAN] {
        assert_eq!(
            refused(RetryNumbers {
                jitter,
                ..numbers()
            }),
            "jitter",
            "{jitter}"
        );
    }
}

#[test]
fn the_waits_double_from_base_to_cap() {
    let retry = Retry::new(RetryNumbers {
        jitter: 0.0,
        ..numbers()
    })
    .unwrap();
    let table = [
        (0, 1),
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 8),
        (5, 16),
        (6, 16),
        (31, 16),
        (64, 16),
    ];
    for (n, seconds) in table {
        assert_eq!(
            retry.backoff(n, Chance::new(0.5)),
            Duration::from_secs(seconds),
            "resend {n}"
        );
    }
    assert_eq!(
        retry.backoff(u32::MAX, Chance::new(0.0)),
        Duration::from_secs(16)
    );
}

#[test]
fn the_mean_over_many_draws_is_the_wait_itself_within_one_percent() {
    let retry = Retry::new(numbers()).unwrap();
    let draws = 100_000_u32;
    // A fixed low-discrepancy sequence: the same draws on every run.
    let sum: f64 = (0..draws)
        .map(|i| Chance::new((f64::from(i) * 0.618_033_988_749_895).fract()))
        .map(|u| retry.backoff(1, u).as_secs_f64())
        .sum();
    let mean = sum / f64::from(draws);
    assert!((0.99..=1.01).contains(&mean), "{mean}");
    let low = retry.backoff(1, Chance::new(0.0)).as_secs_f64();
    let high = retry.backoff(1, Chance::new(1.0)).as_secs_f64();
    assert!(
        (low - 0.8).abs() < 1e-6 && (high - 1.2).abs() < 1e-6,
        "{low} {high}"
    );
}

proptest! {
    #[test]
    fn any_accepted_policy_waits_inside_its_jitter_for_any_n(
        n in prop_oneof![0..100u32, Just(1000), Just(u32::MAX)],
        base_ns in 1..=u64::MAX,
        more_ns in any::<u64>(),
        factor in 1.0..=10.0f64,
        jitter in 0.0..=1.0f64,
        u in 0.0..1.0f64,
    ) {
        let base = Duration::from_nanos(base_ns);
        let cap = base.saturating_add(Duration::from_nanos(more_ns));
        let given = RetryNumbers { base, cap, factor, jitter, ..numbers() };
        let retry = Retry::new(given).unwrap();
        let steps = i32::try_from(n.max(1) - 1).unwrap_or(i32::MAX);
        let plain = base.as_secs_f64() * factor.powi(steps);
        let d = plain.min(cap.as_secs_f64());
        let wait = retry.backoff(n, Chance::new(u)).as_secs_f64();
        let slack = 1e-9 + d * 1e-9;
        prop_assert!(wait >= d * (1.0 - jitter) - slack, "{wait} below {d}");
        prop_assert!(wait <= d * (1.0 + jitter) + slack, "{wait} above {d}");
    }
}
