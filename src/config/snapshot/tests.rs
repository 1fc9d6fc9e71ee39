//! Whatever policy the configuration can make comes back from a ledger row unchanged.

use proptest::prelude::*;

use super::*;
use crate::call::outcome::Cause;
use crate::call::policy::{BelieveNotFound, OnClientGone, OnFailed, Records};

fn length(least: u64) -> impl Strategy<Value = Duration> {
    (least..=366 * 86_400_000).prop_map(Duration::from_millis)
}

fn any_timeouts() -> impl Strategy<Value = Timeouts> {
    (
        length(1),
        length(1),
        length(1),
        length(1),
        length(1),
        length(0),
    )
        .prop_map(|(connect, attempt, idle, receipt, total, late)| Timeouts {
            connect,
            attempt,
            idle,
            receipt,
            total,
            late,
        })
}

fn any_retry() -> impl Strategy<Value = Retry> {
    let resend_on = prop_oneof![
        Just(ResendOn::Nothing),
        Just(ResendOn::NotFound),
        Just(ResendOn::NotFoundOrUnknown),
    ];
    let on = proptest::sample::subsequence(Cause::ALL.to_vec(), 0..=4);
    (
        0..=5u8,
        length(1),
        1.0..=10.0f64,
        length(0),
        0.0..=1.0f64,
        on,
        resend_on,
    )
        .prop_map(|(max_retries, base, factor, more, jitter, on, resend_on)| {
            let cap = base + more;
            let numbers = RetryNumbers {
                max_retries,
                base,
                factor,
                cap,
                jitter,
                on,
                resend_on,
            };
            Retry::new(numbers).unwrap()
        })
}

fn any_receipts() -> impl Strategy<Value = Option<Receipts>> {
    let records = prop_oneof![Just(Records::Arrival), Just(Records::Commit)];
    let believe = prop_oneof![Just(BelieveNotFound::Proven), Just(BelieveNotFound::Always)];
    let receipts = (length(0), length(1), records, believe).prop_map(
        |(settle, retention, records, believe_not_found)| Receipts {
            settle,
            retention,
            records,
            believe_not_found,
        },
    );
    proptest::option::of(receipts)
}

fn any_compensation() -> impl Strategy<Value = Compensation> {
    let on_failed = prop_oneof![Just(OnFailed::Drop), Just(OnFailed::Keep)];
    let rounds = proptest::collection::vec(length(1), 1..=5);
    let reversal = (any::<bool>(), any::<bool>(), length(0), length(0)).prop_map(
        |(unknown, not_found, min_age, max_age)| Reversal {
            unknown,
            not_found,
            min_age,
            max_age,
        },
    );
    let reversal = proptest::option::of(reversal);
    (rounds, any::<bool>(), length(1), on_failed, reversal).prop_map(
        |(rounds, resend, lease, on_failed, reversal)| Compensation {
            rounds,
            resend,
            lease,
            on_failed,
            reversal,
        },
    )
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let answer = prop_oneof![
        Just(UnresolvedAnswer::ByIdSource),
        Just(UnresolvedAnswer::Problem),
        Just(UnresolvedAnswer::Upstream),
    ];
    let gone = prop_oneof![Just(OnClientGone::Finish), Just(OnClientGone::Cancel)];
    let status = proptest::sample::select(vec![504u16, 503, 502, 409, 202]);
    (
        any_timeouts(),
        any_retry(),
        any_receipts(),
        any_compensation(),
        status,
        answer,
        gone,
    )
        .prop_map(
            |(timeouts, retry, receipt, compensation, status, answer, gone)| Policy {
                timeouts,
                retry,
                receipt,
                compensation,
                unresolved_status: StatusCode::from_u16(status).unwrap(),
                unresolved_answer: answer,
                on_client_gone: gone,
            },
        )
}

proptest! {
    #[test]
    fn a_policy_survives_its_row(policy in any_policy()) {
        let text = encode(&policy);
        prop_assert!(!text.contains('\n'));
        prop_assert_eq!(decode(&text).unwrap(), policy);
    }
}

#[test]
fn the_last_digit_of_a_number_survives() {
    let numbers = RetryNumbers {
        jitter: 0.989_249_742_430_904_8,
        ..RetryNumbers::default()
    };
    let policy = Policy {
        retry: Retry::new(numbers).unwrap(),
        ..Policy::default()
    };
    assert_eq!(decode(&encode(&policy)).unwrap(), policy);
}

#[test]
fn the_form_of_the_default_is_stable() {
    let expected = concat!(
        r#"{"v":1,"timeouts":{"connect":1000,"attempt":8000,"idle":60000,"receipt":1000,"#,
        r#""total":60000,"late":60000},"retry":{"max":3,"base":1000,"factor":"2","cap":16000,"#,
        r#""jitter":"0.2","on":["connect","timeout","disconnect","5xx"],"#,
        r#""resend_on":["NOT_FOUND"]},"compensation":{"rounds":[60000,300000,1800000,7200000,"#,
        r#"21600000],"resend":false,"lease":30000,"on_failed":"drop"},"#,
        r#""unresolved_status":504,"on_client_gone":"finish"}"#,
    );
    assert_eq!(encode(&Policy::default()), expected);
}

#[test]
fn what_is_no_policy_is_refused() {
    let good = encode(&Policy::default());
    let table = [
        ("\"v\":1", "\"v\":2", "has form 2"),
        ("\"jitter\":\"0.2\"", "\"jitter\":\"1.5\"", "out of range"),
        ("\"factor\":\"2\"", "\"factor\":\"NaN\"", "out of range"),
        (
            "\"factor\":\"2\"",
            "\"factor\":\"two\"",
            "\"two\" for factor",
        ),
        ("\"max\":3", "\"max\":9", "out of range"),
        ("\"finish\"", "\"wander\"", "\"wander\" for on_client_gone"),
        ("\"5xx\"", "\"4xx\"", "\"4xx\" for on"),
        ("[\"NOT_FOUND\"]", "[\"MAYBE\"]", "\"MAYBE\" for resend_on"),
        (":504", ":5", "\"5\" for unresolved_status"),
        ("{\"v\"", "\"v\"", "not readable"),
    ];
    for (from, to, word) in table {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let error = decode(&bad).unwrap_err().to_string();
        assert!(error.contains(word), "{to}: {error}");
    }
}
