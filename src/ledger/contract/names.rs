//! Promises about what a key belongs to, about former names, and about the same request under a
//! new id.

use super::*;

fn client(name: &str, formerly: &[&str]) -> ClientName {
    let former: Vec<Arc<str>> = formerly.iter().map(|name| (*name).into()).collect();
    ClientName::new(name).with_former(&former)
}

/// The same call by a client that was called `anonymous`, on a route that was called `orders`.
fn renamed(new: NewCall) -> NewCall {
    NewCall {
        client: client("billing", &["anonymous"]),
        route: "purchases".into(),
        scope: scope("purchases", &["orders"]),
        ..new
    }
}

fn wary(text: &str) -> NewCall {
    NewCall {
        wary: true,
        source: IdSource::Gateway,
        ..call(text)
    }
}

fn first_of(begun: Begun) -> (CallId, bool) {
    match begun {
        Begun::KeyTaken(known) => (known.call.call_id.clone(), known.same_request),
        other => panic!("expected a taken key, got {other:?}"),
    }
}

pub(crate) fn routes_with_one_scope_share_their_keys(make: Factory) {
    let world = make();
    let on = |route: &str, new| NewCall {
        route: route.into(),
        scope: scope("money", &[]),
        ..new
    };
    world.claim(on("orders", keyed("a", "k")));
    let taken = first_of(world.begin(on("refunds", keyed("b", "k"))));
    assert_eq!(taken, (id("a"), true));
    // A scope is no route of that name, and another client has scopes of its own.
    world.claim(keyed("c", "k"));
    world.claim(NewCall {
        client: client("other", &[]),
        ..on("refunds", keyed("d", "k"))
    });
}

pub(crate) fn a_key_survives_the_renaming_of_its_route_and_client(make: Factory) {
    let world = make();
    let first = world.claim(keyed("a", "k"));
    world.settled(first, secs(1), answer(201));
    assert_eq!(
        first_of(world.begin(renamed(keyed("b", "k")))),
        (id("a"), true)
    );
    let other = NewCall {
        fingerprint: Fingerprint([8; 32]),
        ..renamed(keyed("c", "k"))
    };
    assert_eq!(first_of(world.begin(other)), (id("a"), false));
    // When its window is over, the key is claimed under the new names, and they hold it alone.
    let later = secs(2).after(WINDOW);
    let again = world.claim(NewCall {
        now: later,
        ..renamed(keyed("d", "k"))
    });
    assert_ne!(again.row, first.row);
    let taken = world.begin(NewCall {
        now: later,
        ..renamed(keyed("e", "k"))
    });
    assert_eq!(first_of(taken), (id("d"), true));
}

pub(crate) fn a_key_that_two_former_names_hold_is_the_first_ones(make: Factory) {
    let world = make();
    let one = world.claim(keyed("a", "k"));
    world.claim(NewCall {
        scope: scope("returns", &[]),
        ..keyed("b", "k")
    });
    let both = || NewCall {
        scope: scope("all", &["returns", "orders"]),
        ..keyed("c", "k")
    };
    assert_eq!(first_of(world.begin(both())), (id("a"), true));
    world.settled(one, secs(1), answer(422));
    let next = NewCall {
        call_id: id("d"),
        ..both()
    };
    assert_eq!(first_of(world.begin(next)), (id("b"), true));
}

pub(crate) fn a_call_id_survives_the_renaming_of_its_client(make: Factory) {
    let world = make();
    let first = world.claim(call("a"));
    let known = world.known(renamed(call("a")));
    assert_eq!((known.call.row, known.same_request), (first.row, true));
    assert_eq!(known.call.client, ClientName::anonymous());
    // Released, it is claimed under the new name: a row of its own, beside the old one.
    world.settled(first, secs(1), unbinding(429));
    let again = world.claim(renamed(call("a")));
    assert_ne!(again.row, first.row);
    let known = world.known(renamed(call("a")));
    assert_eq!(known.call.row, again.row);
}

pub(crate) fn a_joining_id_survives_the_renaming_of_its_client(make: Factory) {
    let world = make();
    world.claim(keyed("a", "k"));
    first_of(world.begin(keyed("b", "k")));
    let known = world.known(renamed(keyed("b", "k")));
    assert_eq!(
        (known.call.call_id.clone(), known.same_request),
        (id("a"), true)
    );
    // One that joins under the new name is found under it.
    first_of(world.begin(renamed(keyed("c", "k"))));
    let named = Some(client("billing", &[]));
    let found = world.ledger.view(named, id("c")).wait().unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].call_id, id("a"));
}

pub(crate) fn a_renamed_client_is_nobody_else(make: Factory) {
    let world = make();
    let other = NewCall {
        client: client("other", &[]),
        ..keyed("a", "k")
    };
    world.claim(other);
    assert!(matches!(world.begin(renamed(call("a"))), Begun::Foreign));
    world.claim(renamed(keyed("b", "k")));
}

pub(crate) fn who_is_wary_is_told_of_the_same_request_in_the_queue(make: Factory) {
    let world = make();
    let first = world.claim(wary("a"));
    // In line it is found elsewhere.
    let second = world.claim(wary("b"));
    world.settled(second, secs(1), answer(200));
    world.applied(first, NOW, queued(NOW));
    for new in [wary("c"), renamed(wary("d"))] {
        match world.begin(new) {
            Begun::Alike(known) => assert_eq!(known.call.call_id, id("a")),
            other => panic!("expected the first call, got {other:?}"),
        }
    }
    assert!(world.is_gone("c"), "who was told has claimed nothing");
    // In a round, and in front of a human, it is still open.
    let due = world.round("one", secs(1));
    assert!(matches!(world.begin(wary("c")), Begun::Alike(_)));
    let manual = Intention::Manual {
        reason: "rounds used up".into(),
        round: 3,
        reached: true,
        last_error: "nobody knows".into(),
    };
    world.applied(due.claim, secs(2), manual);
    assert!(matches!(world.begin(wary("c")), Begun::Alike(_)));
    // Who is not wary is sent.
    world.claim(call("e"));
}

pub(crate) fn nobody_is_wary_of_what_is_over_or_of_others(make: Factory) {
    let world = make();
    let settled = world.dead("a");
    world.settled(settled, secs(1), receipt(Verdict::Success));
    let never = world.claim(call("b"));
    world.applied(never, NOW, Intention::Park(park(Place::NeverSent)));
    let others = [
        NewCall {
            client: client("other", &[]),
            ..call("c")
        },
        NewCall {
            route: "returns".into(),
            ..call("d")
        },
        NewCall {
            fingerprint: Fingerprint([8; 32]),
            ..call("e")
        },
    ];
    for other in others {
        let claim = world.claim(other);
        world.applied(claim, NOW, queued(NOW));
    }
    world.claim(wary("f"));
}

pub(crate) fn the_wary_come_after_id_and_key(make: Factory) {
    let world = make();
    let first = world.claim(keyed("a", "k"));
    world.applied(first, NOW, queued(NOW));
    let known = NewCall {
        idempotency_key: Some("k".into()),
        ..wary("a")
    };
    assert!(world.known(known.clone()).same_request);
    let joins = NewCall {
        call_id: id("b"),
        ..known
    };
    assert_eq!(first_of(world.begin(joins)), (id("a"), true));
    assert!(matches!(world.begin(wary("c")), Begun::Alike(_)));
}

pub(crate) fn a_call_is_known_by_its_id_an_alias_or_its_key(make: Factory) {
    let world = make();
    let knows = |client: ClientName, name: Option<&str>, key: Option<(&str, Arc<KeyScope>)>| {
        let key = key.map(|(key, scope)| (key.into(), scope));
        world
            .ledger
            .knows(client, name.map(id), key)
            .wait()
            .unwrap()
    };
    let anonymous = ClientName::anonymous;
    let first = world.claim(keyed("a", "k"));
    first_of(world.begin(keyed("b", "k")));
    let billing = || client("billing", &["anonymous"]);
    let renamed = || scope("purchases", &["orders"]);
    for stage in ["running", "settled"] {
        for name in ["a", "b"] {
            assert!(knows(anonymous(), Some(name), None), "{stage}");
            assert!(knows(billing(), Some(name), None), "{stage}");
        }
        for name in [None, Some("c")] {
            assert!(
                knows(anonymous(), name, Some(("k", scope("orders", &[])))),
                "{stage}"
            );
            assert!(knows(billing(), name, Some(("k", renamed()))), "{stage}");
            assert!(
                !knows(anonymous(), name, Some(("k", scope("returns", &[])))),
                "{stage}"
            );
            assert!(
                !knows(anonymous(), name, Some(("l", scope("orders", &[])))),
                "{stage}"
            );
            assert!(
                !knows(client("other", &[]), name, Some(("k", renamed()))),
                "{stage}"
            );
            assert!(!knows(anonymous(), name, None), "{stage}");
        }
        assert!(!knows(client("other", &[]), Some("a"), None), "{stage}");
        if stage == "running" {
            world.settled(first, secs(1), answer(201));
        }
    }
    // A key that was given up is nobody's.
    let refused = world.claim(keyed("d", "m"));
    world.settled(refused, secs(1), answer(422));
    assert!(knows(anonymous(), Some("d"), None));
    assert!(!knows(anonymous(), None, Some(("m", scope("orders", &[])))));
}
