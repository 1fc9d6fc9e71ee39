//! Promises about what is kept, for how long, and how it is found.

use super::*;
use crate::ledger::{Cursor, LedgerError, Proof, Tally};

impl World {
    /// Purges until nothing is ripe any more.
    fn purge(&self, now: Wall) -> u64 {
        let mut calls = 0;
        for _ in 0..1_000 {
            let purged = self.ledger.purge(now, 2).wait().unwrap();
            calls += purged.calls;
            if !purged.more {
                return calls;
            }
        }
        panic!("the clean-up does not end");
    }
}

pub(crate) fn what_is_over_goes_and_what_is_unresolved_stays(make: Factory) {
    let world = make();
    for name in ["a", "b", "c", "d", "e"] {
        let claim = world.claim(call(name));
        world.settled(claim, NOW, answer(200));
    }
    let released = world.claim(call("released"));
    world.settled(released, NOW, unbinding(401));
    world.claim(call("running"));
    world.dead("queued");
    let manual = world.claim(call("manual"));
    world.applied(manual, NOW, Intention::Park(park(Place::Manual)));
    world.dead("round");
    assert_eq!(world.due("one", secs(1), 9).len(), 2);
    assert_eq!(world.purge(Wall(NOW.after(WINDOW).0 - 1)), 0);
    assert_eq!(world.purge(NOW.after(WINDOW)), 6);
    assert!(world.is_gone("a") && world.is_gone("e") && world.is_gone("released"));
    assert_eq!(world.purge(NOW.after(RETENTION * 100)), 0);
    for name in ["running", "queued", "manual", "round"] {
        assert!(!world.is_gone(name), "{name}");
    }
    // A purged row's number is not given to another call.
    let fresh = world.claim(call("fresh"));
    assert!(fresh.row > manual.row);
    assert_eq!(
        world.fact(released, secs(1), answer(200)),
        FactWritten::Gone
    );
}

pub(crate) fn a_replayed_call_is_purged_later(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    world.settled(claim, NOW, answer(200));
    world.known(NewCall {
        now: secs(100),
        ..call("c")
    });
    assert_eq!(world.purge(NOW.after(WINDOW)), 0);
    assert_eq!(world.purge(secs(99).after(WINDOW)), 0);
    assert!(!world.is_gone("c"));
    assert_eq!(world.purge(secs(100).after(WINDOW)), 1);
    assert!(world.is_gone("c"));
}

pub(crate) fn an_ended_dead_letter_stays_for_its_retention(make: Factory) {
    let world = make();
    let settled = world.dead("settled");
    world.settled(settled, secs(10), receipt(Verdict::Success));
    let unsent = world.claim(call("unsent"));
    world.applied(unsent, secs(10), Intention::Park(park(Place::NeverSent)));
    // The id of the second lives again and is settled cleanly; its first end is still shown.
    let again = world.claim(NewCall {
        now: secs(11),
        ..call("unsent")
    });
    world.settled(again, secs(12), answer(200));
    assert_eq!(
        world.purge(secs(10).after(RETENTION - Duration::from_secs(1))),
        0
    );
    assert_eq!(world.listed(Filter::default()), ["settled", "unsent"]);
    assert_eq!(world.purge(secs(10).after(RETENTION)), 2);
    assert!(world.listed(Filter::default()).is_empty());
    assert!(world.is_gone("settled") && world.is_gone("unsent"));
}

/// Four dead letters that differ in everything one can filter by; the last has ended.
fn four_dead_letters(world: &World) {
    let parked = |new: NewCall, at: u64, error: &str| {
        let claim = world.claim(new);
        let place = Place::Queued { due: NOW };
        let how = Park {
            last_error: error.into(),
            ..park(place)
        };
        world.applied(claim, secs(at), Intention::Park(how));
        claim
    };
    parked(keyed("a", "k1"), 1, "no answer within 8s");
    let other = NewCall {
        client: ClientName::new("billing"),
        ..call("b")
    };
    parked(other, 2, "connection reset by peer");
    let business = Some("parcel 7".into());
    let routed = NewCall {
        route: "returns".into(),
        business_key: business,
        ..call("c")
    };
    parked(routed, 3, "100% _odd_");
    let done = parked(call("d"), 4, "x");
    world.settled(done, secs(5), receipt(Verdict::Failed));
}

pub(crate) fn dead_letters_are_listed_by_every_filter(make: Factory) {
    let world = make();
    four_dead_letters(&world);
    let check = |expected: &[&str], set: fn(&mut Filter)| {
        let mut filter = Filter::default();
        set(&mut filter);
        assert_eq!(world.listed(filter.clone()), expected, "{filter:?}");
    };
    check(&["a", "b", "c", "d"], |_| {});
    check(&["a", "b", "c"], |filter| {
        filter.state = Some(DeadState::Queued)
    });
    check(&["d"], |filter| filter.state = Some(DeadState::Failed));
    check(&["c"], |filter| filter.route = Some("returns".into()));
    check(&["b"], |filter| {
        filter.client = Some(ClientName::new("billing"))
    });
    check(&["a", "b"], |filter| filter.parked_before = Some(secs(3)));
    check(&["b"], |filter| filter.error = Some("reset".into()));
    check(&["c"], |filter| filter.error = Some("% _".into()));
    check(&["a", "b", "c", "d"], |filter| {
        filter.error = Some("timeout".into())
    });
    check(&["a"], |filter| filter.key = Some("k1".into()));
    check(&["c"], |filter| filter.key = Some("parcel 7".into()));
    check(&["d"], |filter| filter.call_id = Some(id("d")));
    check(&[], |filter| {
        filter.call_id = Some(id("d"));
        filter.route = Some("returns".into());
    });
}

pub(crate) fn pages_meet_without_gap_or_overlap(make: Factory) {
    let world = make();
    let names: Vec<String> = (0..7).map(|n| format!("c{n}")).collect();
    for name in &names {
        world.dead(name);
    }
    for limit in [1, 2, 3, 7, 8] {
        let mut seen = Vec::new();
        let mut from: Option<Cursor> = None;
        for _ in 0..9 {
            let page = world
                .ledger
                .dead_letters(Filter::default(), from, limit)
                .wait()
                .unwrap();
            assert!(page.items.len() <= limit);
            seen.extend(page.items.iter().map(|item| item.call_id.to_string()));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!((seen, from), (names.clone(), None), "{limit}");
    }
}

pub(crate) fn open_dead_letters_are_tallied(make: Factory) {
    let world = make();
    assert!(world.ledger.tally().wait().unwrap().is_empty());
    for (name, route, at) in [("a", "orders", 5), ("b", "orders", 3), ("c", "returns", 4)] {
        let claim = world.claim(NewCall {
            route: route.into(),
            ..call(name)
        });
        world.applied(claim, secs(at), queued(secs(900)));
    }
    let done = world.dead("d");
    world.settled(done, secs(1), answer(200));
    let manual = world.claim(call("e"));
    world.applied(manual, secs(9), Intention::Park(park(Place::Manual)));
    let mut tallies = world.ledger.tally().wait().unwrap();
    tallies.sort_by(|a, b| (&a.route, a.state).cmp(&(&b.route, b.state)));
    let expect = |route: &str, state, count, oldest| Tally {
        route: route.into(),
        state,
        count,
        oldest: secs(oldest),
    };
    let expected = [
        expect("orders", DeadState::Queued, 2, 3),
        expect("orders", DeadState::Manual, 1, 9),
        expect("returns", DeadState::Queued, 1, 4),
    ];
    assert_eq!(tallies, expected);
}

pub(crate) fn proofs_are_remembered(make: Factory) {
    let world = make();
    let remember = |endpoint: &str, proof, at| {
        world
            .ledger
            .remember_proof(endpoint.into(), proof, secs(at))
            .wait()
            .unwrap();
    };
    remember("http://b/receipts", Proof::Proven, 1);
    remember("http://a/receipts", Proof::Proven, 2);
    remember("http://b/receipts", Proof::Broken, 3);
    let notes = world.ledger.proofs().wait().unwrap();
    let found: Vec<_> = notes
        .iter()
        .map(|n| (&*n.endpoint, n.proof, n.at))
        .collect();
    let expected = [
        ("http://a/receipts", Proof::Proven, secs(2)),
        ("http://b/receipts", Proof::Broken, secs(3)),
    ];
    assert_eq!(found, expected);
}

pub(crate) fn a_closed_ledger_says_so(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    assert_eq!(world.ledger.health().failing, None);
    world.ledger.close().wait().unwrap();
    let begun = world.ledger.begin(call("d")).wait();
    assert!(matches!(begun, Err(LedgerError::Closed)), "{begun:?}");
    let written = world.ledger.append(claim, secs(1), queued(NOW)).wait();
    assert!(matches!(written, Err(LedgerError::Closed)), "{written:?}");
    let viewed = world.ledger.view(None, id("c")).wait();
    assert!(matches!(viewed, Err(LedgerError::Closed)), "{viewed:?}");
    assert!(world.ledger.health().failing.is_some());
    world.ledger.close().wait().unwrap();
}

pub(crate) fn the_ledger_knows_since_when(make: Factory) {
    assert_eq!(make().ledger.knows_since(), NOW);
}
