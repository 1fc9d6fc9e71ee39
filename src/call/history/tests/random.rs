//! Any story has a verdict, also one that no gateway writes.

use proptest::prelude::*;

use super::*;

fn outcome() -> impl Strategy<Value = Outcome> {
    (0..8_usize, 200..600_u16).prop_map(|(kind, status)| match kind {
        0 => REFUSED,
        1 => TIMEOUT,
        2 => Outcome::Unclear(Unclear::Disconnect),
        _ => Outcome::Answered(Reading::by_status(StatusCode::from_u16(status).unwrap())),
    })
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (any::<i64>(), any::<u32>(), any::<bool>()).prop_map(|(at, n, by_hand)| Event::Sent {
            at: Wall(at),
            n: n % 5,
            by_hand
        }),
        (any::<i64>(), 0..5_u32, outcome(), any::<bool>()).prop_map(|(at, n, outcome, late)| {
            Event::Ended {
                at: Wall(at),
                n,
                outcome,
                took: Duration::MAX,
                late,
            }
        }),
        (0..6_usize).prop_map(|n| receipt(match n {
            5 => Answer::NotFound,
            n => Answer::State(State::ALL[n]),
        })),
    ]
}

fn end() -> impl Strategy<Value = End> {
    (0..6_usize, any::<bool>(), any::<u32>()).prop_map(|(kind, success, n)| match kind {
        0 => End::Open,
        1 => End::Answer { n, success },
        2 => End::Receipt { success },
        3 => End::NeverSent,
        4 => End::Reversed,
        _ => End::Operator,
    })
}

fn any_kin() -> impl Strategy<Value = Kin> {
    (any::<u8>(), any::<i64>(), any::<i64>()).prop_map(|(bits, received, until)| Kin {
        made_here: bits & 1 != 0,
        same_key: bits & 2 != 0,
        same_request: bits & 4 != 0,
        keyed: bits & 8 != 0,
        may_have_acted: bits & 16 != 0,
        settled: bits & 32 != 0,
        received: Wall(received),
        remembered_until: Wall(until),
        ..kin()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of entries, also one no gateway writes, has a verdict with a reason.
    #[test]
    fn every_story_has_a_verdict(
        events in prop::collection::vec(event(), 0..12),
        end in end(),
        kin in prop::collection::vec(any_kin(), 0..4),
        key in prop::option::of(Just("k".to_owned())),
        received in any::<i64>(),
        aliases in prop::collection::vec(Just("a".to_owned()), 0..2),
        log in (0..3_usize, prop::option::of(0..3_usize)),
    ) {
        let facts = Facts {
            kin, key, aliases, received: Wall(received), ..facts(end, events)
        };
        let judged = judge(&facts);
        prop_assert!(judged.because.ends_with('.') || judged.because.ends_with("--log."));
        prop_assert_ne!(judged.verdict, Verdict::ToolIgnoredId, "only a log can say that");
        prop_assert!(answer(&facts).iter().all(|reply| !reply.evidence.is_empty()));
        // Once is said only of what was settled by the tool, or never sent.
        if matches!(judged.verdict, Verdict::Once | Verdict::OnceByReceipt) {
            let told = !matches!(end, End::Open | End::Reversed | End::Operator);
            prop_assert!(told);
        }
        let log = ToolLog { lines: log.0, executions: log.1, ..ToolLog::default() };
        let amended = with_log(judged.clone(), &log);
        if log.executions.is_none() {
            prop_assert_eq!(amended, judged);
        }
    }
}
