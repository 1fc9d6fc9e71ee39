//! Promises about claims: who may use a call id, and who a key.

use std::sync::{Arc, Barrier};

use super::*;
use crate::call::receipt::State;
use crate::ledger::{Entry, SettledBy, Settlement};

pub(crate) fn an_id_is_claimed_once_by_64_racing_callers(make: Factory) {
    let world = make();
    let start = Arc::new(Barrier::new(64));
    let racers: Vec<_> = (0..64)
        .map(|n| {
            let (ledger, start) = (Arc::clone(&world.ledger), Arc::clone(&start));
            std::thread::spawn(move || {
                // Half of them bring the same key under an id of their own.
                let new = if n % 2 == 0 {
                    keyed("c", "k")
                } else {
                    keyed(&format!("d{n}"), "k")
                };
                start.wait();
                ledger.begin(new).wait().unwrap()
            })
        })
        .collect();
    let mut claimed = 0;
    for racer in racers {
        match racer.join().unwrap() {
            Begun::Claimed(_) => claimed += 1,
            Begun::Known(known) | Begun::KeyTaken(known) => assert!(known.same_request),
            Begun::Foreign | Begun::Undone { .. } | Begun::Alike(_) => {
                panic!("nobody else is here")
            }
        }
    }
    assert_eq!(claimed, 1);
}

/// C26: whoever comes in the last millisecond meets the call; of those who come together after the
/// window, one has the id, and its life is a new one.
pub(crate) fn c26_racers_after_the_window_make_one_claim(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world.settled(first, NOW, answer(201));
    let at = |now: Wall| NewCall {
        now,
        ..keyed("c", "k")
    };
    let over = NOW.after(WINDOW);
    let start = Arc::new(Barrier::new(8));
    let racers: Vec<_> = (0..8)
        .map(|_| {
            let (ledger, start, new) = (Arc::clone(&world.ledger), Arc::clone(&start), at(over));
            std::thread::spawn(move || {
                start.wait();
                ledger.begin(new).wait().unwrap()
            })
        })
        .collect();
    let begun: Vec<_> = racers.into_iter().map(|it| it.join().unwrap()).collect();
    let lives: Vec<u32> = begun
        .iter()
        .filter_map(|begun| match begun {
            Begun::Claimed(claim) => Some(claim.life),
            _ => None,
        })
        .collect();
    assert_eq!(lives, [2]);
    // A millisecond earlier all would have met it, and their replay would have renewed the window.
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world.settled(first, NOW, answer(201));
    assert!(world.known(at(Wall(over.0 - 1))).same_request);
    assert!(world.known(at(over)).same_request);
}

pub(crate) fn a_repeat_is_told_the_call_and_whether_it_is_the_same(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    let same = world.known(keyed("c", "k"));
    assert!(same.same_request);
    assert_eq!((same.call.row, same.call.life), (claim.row, 1));
    assert_eq!(same.call.state, State::Processing);
    let others = [
        NewCall {
            fingerprint: Fingerprint([8; 32]),
            ..keyed("c", "k")
        },
        keyed("c", "k2"),
    ];
    for other in others {
        assert!(!world.known(other).same_request);
    }
    world.settled(claim, secs(1), answer(201));
    let known = world.known(keyed("c", "k"));
    let settled = known.call.settled.clone().expect("it is settled");
    assert_eq!(
        (settled.reply, settled.by),
        (Some(reply(201)), SettledBy::Answer(1))
    );
    assert!(
        world.known(call("c")).same_request,
        "no key is no other one"
    );
}

pub(crate) fn a_settled_call_is_replayed_until_its_window_is_over(make: Factory) {
    for news in [
        answer(200),
        answer(422),
        receipt(Verdict::Success),
        receipt(Verdict::Failed),
    ] {
        let world = make();
        let claim = world.claim(call("c"));
        world.settled(claim, secs(10), news);
        // A mismatch is no replay and moves no window.
        let other = NewCall {
            fingerprint: Fingerprint([8; 32]),
            ..call("c")
        };
        let end = secs(10).after(WINDOW);
        assert!(
            !world
                .known(NewCall {
                    now: Wall(end.0 - 1),
                    ..other
                })
                .same_request
        );
        let again = world.claim(NewCall {
            now: end,
            ..call("c")
        });
        assert_eq!((again.row, again.life), (claim.row, 2));
        assert!(again.fence > claim.fence);
    }
}

pub(crate) fn a_replay_makes_the_window_run_anew(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    world.settled(claim, NOW, answer(200));
    let almost = Wall(NOW.after(WINDOW).0 - 1);
    world.known(NewCall {
        now: almost,
        ..keyed("c", "k")
    });
    let later = Wall(almost.after(WINDOW).0 - 1);
    let joined = world.begin(NewCall {
        now: later,
        ..keyed("d", "k")
    });
    assert!(matches!(joined, Begun::KeyTaken(known) if known.same_request));
    let latest = later.after(WINDOW);
    assert!(
        world
            .known(NewCall {
                now: Wall(latest.0 - 1),
                ..keyed("c", "k")
            })
            .same_request
    );
    // A clock that steps back neither shortens the window nor frees the id twice.
    assert!(
        world
            .known(NewCall {
                now: NOW,
                ..keyed("c", "k")
            })
            .same_request
    );
    // The time of a replay is kept to the second, rounded up.
    let end = Wall(latest.0 - 1)
        .after(WINDOW)
        .after(Duration::from_secs(1));
    world.claim(NewCall {
        now: end,
        ..keyed("c", "k")
    });
    assert_eq!(
        world
            .known(NewCall {
                now: NOW,
                ..keyed("c", "k")
            })
            .call
            .life,
        2
    );
}

pub(crate) fn an_unresolved_call_never_expires(make: Factory) {
    let world = make();
    let ages = NOW.after(WINDOW * 1_000);
    world.claim(call("running"));
    world.dead("queued");
    let manual = world.claim(call("manual"));
    world.applied(manual, NOW, Intention::Park(park(Place::Manual)));
    for name in ["running", "queued", "manual"] {
        assert!(
            world
                .known(NewCall {
                    now: ages,
                    ..call(name)
                })
                .same_request,
            "{name}"
        );
    }
}

pub(crate) fn a_released_id_lives_again(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world.settled(first, secs(1), unbinding(401));
    let second = world.claim(NewCall {
        now: secs(2),
        ..keyed("c", "k")
    });
    assert_eq!((second.row, second.life), (first.row, 2));
    let view = world.view("c");
    assert_eq!(
        (view.life, view.state, view.settled),
        (2, State::Processing, None)
    );
    let sent = Entry::Sent {
        at: secs(2),
        n: 1,
        cause: None,
    };
    assert_eq!((view.received_at, view.history), (secs(2), vec![sent]));
    // Another request may use it as well, and the old claim is worth nothing.
    world.settled(second, secs(3), unbinding(429));
    let other = NewCall {
        fingerprint: Fingerprint([8; 32]),
        ..call("c")
    };
    assert_eq!(world.claim(other).life, 3);
    assert_eq!(world.append(first, secs(4), queued(NOW)), Written::Stale);
}

pub(crate) fn a_key_belongs_to_one_call(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    for (name, different) in [("d", false), ("f", true)] {
        let print = if different { [8; 32] } else { [7; 32] };
        let begun = world.begin(NewCall {
            fingerprint: Fingerprint(print),
            ..keyed(name, "k")
        });
        let Begun::KeyTaken(known) = begun else {
            panic!("the key is taken, got {begun:?}")
        };
        assert_eq!(
            (known.same_request, known.call.call_id.clone()),
            (!different, id("c"))
        );
    }
    assert!(
        world.is_gone("f"),
        "an id that lost to a key is not recorded"
    );
    // The id is looked up before the key.
    world.claim(keyed("e", "other"));
    assert!(!world.known(keyed("e", "k")).same_request);
    world.applied(first, secs(1), queued(secs(2)));
    let begun = world.begin(NewCall {
        now: secs(9_999_999),
        ..keyed("g", "k")
    });
    assert!(
        matches!(begun, Begun::KeyTaken(_)),
        "an unresolved call keeps its key"
    );
}

pub(crate) fn a_key_is_freed_by_a_definite_refusal_and_kept_by_success(make: Factory) {
    let frees = [
        (answer(200), false),
        (receipt(Verdict::Success), false),
        (answer(422), true),
        (receipt(Verdict::Failed), true),
        (unbinding(401), true),
        (unbinding(307), true),
    ];
    for (news, freed) in frees {
        let world = make();
        let claim = world.claim(keyed("c", "k"));
        let what = format!("{news:?}");
        world.settled(claim, secs(1), news);
        match world.begin(keyed("d", "k")) {
            Begun::Claimed(_) => assert!(freed, "{what}"),
            Begun::KeyTaken(_) => assert!(!freed, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}

pub(crate) fn an_expired_key_is_claimed_anew(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world.settled(first, NOW, answer(200));
    let end = NOW.after(WINDOW);
    world.claim(NewCall {
        now: end,
        ..keyed("d", "k")
    });
    // The old id is free as well; with the key of the new call it joins that one.
    let begun = world.begin(NewCall {
        now: end,
        ..keyed("c", "k")
    });
    assert!(matches!(begun, Begun::KeyTaken(known) if known.call.call_id == id("d")));
    let without_key = NewCall {
        now: end,
        ..call("c")
    };
    assert!(world.known(without_key).same_request);
}

pub(crate) fn keys_are_apart_by_client_and_route(make: Factory) {
    let world = make();
    world.claim(keyed("a", "k"));
    world.claim(NewCall {
        client: ClientName::new("other"),
        ..keyed("b", "k")
    });
    world.claim(NewCall {
        route: "returns".into(),
        scope: scope("returns", &[]),
        ..keyed("c", "k")
    });
    assert!(matches!(world.begin(keyed("d", "k")), Begun::KeyTaken(_)));
}

pub(crate) fn another_client_cannot_use_an_id_at_the_same_upstream(make: Factory) {
    let world = make();
    let other = || NewCall {
        client: ClientName::new("other"),
        ..call("c")
    };
    let first = world.claim(call("c"));
    assert!(matches!(world.begin(other()), Begun::Foreign));
    // A tool that is told who calls, and another tool, have name spaces of their own.
    let apart = world.claim(NewCall {
        upstream: "http://other".into(),
        ..other()
    });
    assert_ne!(apart.row, first.row);
    let third = NewCall {
        client: ClientName::new("third"),
        exclusive_id: false,
        ..call("c")
    };
    world.claim(third);
    assert_eq!(world.ledger.view(None, id("c")).wait().unwrap().len(), 3);
    let mine = world
        .ledger
        .view(Some(ClientName::anonymous()), id("c"))
        .wait()
        .unwrap();
    assert_eq!(
        mine.iter().map(|view| view.row).collect::<Vec<_>>(),
        [first.row]
    );
}

pub(crate) fn everything_that_was_stored_comes_back(make: Factory) {
    let world = make();
    let new = NewCall {
        source: IdSource::Gateway,
        business_key: Some("parcel 7".into()),
        trace: Some("00-aa-bb-01".into()),
        ..keyed("c", "k")
    };
    let claim = world.claim(new);
    let view = world.view("c");
    assert_eq!(
        (view.owner, view.lease_until),
        (owner("one"), NOW.after(LEASE))
    );
    world.settled(claim, secs(1), answer(201));
    let view = world.view("c");
    let expected = CallView {
        row: claim.row,
        life: 1,
        call_id: id("c"),
        source: IdSource::Gateway,
        client: ClientName::anonymous(),
        route: "orders".into(),
        upstream: "http://tool:9000".into(),
        idempotency_key: Some("k".into()),
        business_key: Some("parcel 7".into()),
        fingerprint: Fingerprint([7; 32]),
        trace: Some("00-aa-bb-01".into()),
        state: State::Success,
        binds: true,
        owner: Owner::nobody(),
        lease_until: Wall(0),
        received_at: NOW,
        updated_at: secs(1),
        first_sent: Some(NOW),
        sends: 1,
        promised: false,
        recognised: false,
        told: false,
        settled: Some(Settlement {
            verdict: Verdict::Success,
            by: SettledBy::Answer(1),
            at: secs(1),
            reply: Some(reply(201)),
            document: None,
        }),
        kept: None,
        dead_letter: None,
        differences: Vec::new(),
        history: vec![Entry::Sent {
            at: NOW,
            n: 1,
            cause: None,
        }],
    };
    assert_eq!(view, expected);
}
