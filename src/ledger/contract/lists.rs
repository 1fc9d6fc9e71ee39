//! Promises about what operators look through: dead letters in every order, differences, samples.

use super::*;
use crate::call::receipt::{Answer, State};
use crate::ledger::desk::{DifferenceCursor, DifferencePage, WhichDifferences};
use crate::ledger::{Contradiction, Cursor, Entry, SettledBy, Sort};

pub(crate) fn the_last_receipt_stands_in_the_row(make: Factory) {
    let world = make();
    let asked = |at, state| Entry::Receipt {
        at: secs(at),
        answer: state,
        doubt: None,
        status: None,
        took: Duration::ZERO,
        detail: None,
    };
    let (unknown, absent) = (Answer::State(State::Unknown), Answer::NotFound);
    let before = world.claim(call("before"));
    world
        .ledger
        .note(before.row, 1, vec![asked(1, unknown), asked(2, absent)]);
    world.applied(before, NOW, queued(NOW));
    let after = world.dead("after");
    world.ledger.note(after.row, 1, vec![asked(3, absent)]);
    world.ledger.note(after.row, 1, vec![asked(4, unknown)]);
    world.dead("never");
    let check = |receipt, expected: &[&str]| {
        let filter = Filter {
            receipt: Some(receipt),
            ..Filter::default()
        };
        assert_eq!(world.listed(filter), expected, "{receipt:?}");
    };
    check(absent, &["before"]);
    check(unknown, &["after"]);
    check(Answer::State(State::Success), &[]);
    assert_eq!(world.letter("never").last_receipt, None);
}

/// Three dead letters whose orders differ: due b, c, a; failed c, a, b.
fn three(world: &World) {
    for (name, due, rounds) in [("a", None, 1), ("b", Some(50), 0), ("c", Some(60), 2)] {
        let claim = world.claim(call(name));
        world.applied(claim, NOW, queued(NOW));
        for round in 1..=rounds {
            let held = world.round("one", secs(99));
            let next = Intention::NextRound {
                round,
                due: NOW,
                reached: true,
                last_error: "Round Of Nothing".into(),
            };
            world.applied(held.claim, NOW, next);
        }
        let held = world.round("one", secs(99));
        let last = match due {
            Some(at) => Intention::NextRound {
                round: rounds,
                due: secs(at + 1_000),
                reached: true,
                last_error: "quiet".into(),
            },
            None => Intention::Manual {
                reason: "used up".into(),
                round: rounds,
                reached: true,
                last_error: "loud TIMEOUT".into(),
            },
        };
        world.applied(held.claim, NOW, last);
    }
}

pub(crate) fn dead_letters_stand_in_every_order_and_pages_meet(make: Factory) {
    let world = make();
    three(&world);
    let orders = [
        (Sort::Oldest, ["a", "b", "c"]),
        (Sort::Newest, ["c", "b", "a"]),
        (Sort::Due, ["b", "c", "a"]),
        (Sort::Fails, ["c", "a", "b"]),
    ];
    assert_eq!(orders.map(|order| order.0), Sort::ALL);
    for (sort, expected) in orders {
        let filter = Filter {
            sort,
            ..Filter::default()
        };
        assert_eq!(world.listed(filter.clone()), expected, "{sort:?}");
        let mut seen = Vec::new();
        let mut from: Option<Cursor> = None;
        for _ in 0..3 {
            let page = world
                .ledger
                .dead_letters(filter.clone(), from, 1)
                .wait()
                .unwrap();
            seen.extend(page.items.iter().map(|item| item.call_id.to_string()));
            from = page.next;
        }
        assert_eq!(seen, expected, "{sort:?}, one a page");
        assert_eq!(from, None);
    }
}

pub(crate) fn dead_letters_are_found_by_text_and_by_a_set_of_states(make: Factory) {
    let world = make();
    three(&world);
    let keyed = world.manual(NewCall {
        business_key: Some("LX-777".into()),
        ..keyed("d", "Kk")
    });
    world.settled(keyed, secs(1), answer(200));
    let check = |set: fn(&mut Filter), expected: &[&str]| {
        let mut filter = Filter::default();
        set(&mut filter);
        assert_eq!(world.listed(filter.clone()), expected, "{filter:?}");
    };
    check(|filter| filter.text = Some("WITHIN 8s".into()), &["d"]);
    check(|filter| filter.text = Some("LOUD".into()), &["a"]);
    check(|filter| filter.text = Some("lx-7".into()), &["d"]);
    check(|filter| filter.text = Some("kK".into()), &["d"]);
    check(|filter| filter.text = Some("%".into()), &[]);
    check(|filter| filter.text = Some("l_-".into()), &[]);
    check(|filter| filter.text = Some("\\".into()), &[]);
    check(
        |filter| filter.within = &[DeadState::Manual, DeadState::Settled],
        &["a", "d"],
    );
}

/// Two differences of one settled call and one of another.
fn three_differences(world: &World) {
    let done = world.claim(keyed("a", "k1"));
    world.settled(done, secs(1), answer(200));
    let against = |claim, at, news| {
        let written = world.fact(claim, secs(at), news);
        assert!(matches!(
            written,
            FactWritten::Difference { first: true, .. }
        ));
    };
    against(done, 10, receipt(Verdict::Failed));
    against(done, 12, answer(404));
    let other = world.claim(NewCall {
        route: "returns".into(),
        ..call("b")
    });
    world.settled(other, secs(2), receipt(Verdict::Failed));
    against(other, 11, receipt(Verdict::Success));
}

impl World {
    fn differing(
        &self,
        which: WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> DifferencePage {
        self.ledger.differences(which, from, limit).wait().unwrap()
    }
}

pub(crate) fn differences_are_listed_newest_first_with_what_was_recorded(make: Factory) {
    let world = make();
    three_differences(&world);
    let all = world.differing(WhichDifferences::default(), None, 9);
    let told: Vec<_> = all
        .items
        .iter()
        .map(|d| (d.call_id.as_str(), &*d.told))
        .collect();
    let expected = [
        ("a", "attempt 1 answered 404"),
        ("b", "the receipt said SUCCESS"),
        ("a", "the receipt said FAILED"),
    ];
    assert_eq!((told.as_slice(), all.next), (&expected[..], None));
    let first = &all.items[0];
    assert_eq!(first.place.kind, Contradiction::Answer);
    assert_eq!(first.recorded, Some(State::Success));
    assert_eq!(first.by, Some(SettledBy::Answer(1)));
    assert_eq!((first.settled_at, first.dead), (Some(secs(1)), None));
    assert_eq!(first.idempotency_key.as_deref(), Some("k1"));
}

pub(crate) fn differences_are_filtered_and_their_pages_meet(make: Factory) {
    let world = make();
    three_differences(&world);
    let all = world.differing(WhichDifferences::default(), None, 9);
    // Pages meet, and filters hold.
    let page = world.differing(WhichDifferences::default(), None, 2);
    let rest = world.differing(WhichDifferences::default(), page.next, 2);
    let seen: Vec<_> = page.items.iter().chain(&rest.items).cloned().collect();
    assert_eq!((&seen, rest.next), (&all.items, None));
    let only = |which| world.differing(which, None, 9).items.len();
    let kind = Some(Contradiction::Receipt);
    assert_eq!(
        only(WhichDifferences {
            kind,
            ..WhichDifferences::default()
        }),
        2
    );
    let route = Some("returns".into());
    assert_eq!(
        only(WhichDifferences {
            route,
            ..WhichDifferences::default()
        }),
        1
    );
    let since = Some(secs(11));
    assert_eq!(
        only(WhichDifferences {
            since,
            ..WhichDifferences::default()
        }),
        2
    );
    let client = Some(ClientName::new("nobody"));
    assert_eq!(
        only(WhichDifferences {
            client,
            ..WhichDifferences::default()
        }),
        0
    );
}

pub(crate) fn a_sample_is_spread_over_all_that_match(make: Factory) {
    let world = make();
    let names: Vec<String> = (0..10).map(|n| format!("c{n}")).collect();
    for name in &names {
        world.dead(name);
    }
    let sample = |limit| {
        let sample = world
            .ledger
            .sample(Filter::default(), limit)
            .wait()
            .unwrap();
        let names = sample.items.iter().map(|item| item.call_id.to_string());
        (sample.matching, names.collect::<Vec<_>>())
    };
    assert_eq!(sample(10), (10, names.clone()));
    assert_eq!(sample(3), (10, vec!["c0".into(), "c4".into(), "c8".into()]));
    let none = Filter {
        route: Some("x".into()),
        ..Filter::default()
    };
    assert_eq!(world.ledger.sample(none, 3).wait().unwrap().matching, 0);
}
