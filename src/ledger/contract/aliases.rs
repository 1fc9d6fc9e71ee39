//! Promises about ids that came with another call's key: they stand for that call, as long as it
//! is remembered.

use super::*;

/// A first call with a key, and a second id that came with it.
fn joined(world: &World) -> Claim {
    let first = world.claim(keyed("first", "k"));
    let taken = world.begin(keyed("second", "k"));
    assert!(matches!(taken, Begun::KeyTaken(known) if known.same_request));
    first
}

pub(crate) fn a_joining_id_stands_for_the_first_call(make: Factory) {
    let world = make();
    let first = joined(&world);
    let known = world.known(keyed("second", "k"));
    assert!(known.same_request);
    assert_eq!(known.call.call_id, id("first"));
    world.settled(first, secs(1), answer(201));
    let known = world.known(keyed("second", "k"));
    assert_eq!(
        known.call.settled.clone().map(|settled| settled.reply),
        Some(Some(reply(201)))
    );
    assert_eq!(world.view("second"), world.view("first"));
}

pub(crate) fn a_joining_id_with_another_request_or_key_is_another_request(make: Factory) {
    let world = make();
    joined(&world);
    let other = NewCall {
        fingerprint: Fingerprint([8; 32]),
        ..keyed("second", "k")
    };
    for new in [other, keyed("second", "other")] {
        assert!(!world.known(new).same_request);
    }
}

pub(crate) fn a_mismatch_under_a_taken_key_leaves_no_alias(make: Factory) {
    let world = make();
    world.claim(keyed("first", "k"));
    let other = NewCall {
        fingerprint: Fingerprint([8; 32]),
        ..keyed("second", "k")
    };
    let taken = world.begin(other);
    assert!(matches!(taken, Begun::KeyTaken(known) if !known.same_request));
    assert!(world.is_gone("second"));
    world.claim(call("second"));
}

pub(crate) fn who_joined_a_refused_call_is_told_its_end_and_the_next_one_runs(make: Factory) {
    let world = make();
    let first = joined(&world);
    world.settled(first, secs(1), answer(422));
    let known = world.known(keyed("second", "k"));
    assert_eq!(known.call.call_id, id("first"));
    let third = world.claim(keyed("third", "k"));
    assert_ne!(third.row, first.row);
    let again = world.begin(keyed("fourth", "k"));
    assert!(matches!(again, Begun::KeyTaken(known) if known.call.call_id == id("third")));
}

pub(crate) fn a_repeat_without_a_key_is_the_same_request(make: Factory) {
    let world = make();
    let first = joined(&world);
    let is_same = |new| world.known(new).same_request;
    for settled in [false, true] {
        if settled {
            world.settled(first, secs(1), answer(201));
        }
        // Twice: the second time may be answered from memory.
        for _ in 0..2 {
            assert!(is_same(call("first")) && is_same(call("second")));
            assert!(is_same(keyed("first", "k")) && !is_same(keyed("first", "l")));
        }
    }
    world.claim(call("bare"));
    assert!(
        !is_same(keyed("bare", "k2")),
        "this key is another than none"
    );
}

pub(crate) fn a_joining_id_is_free_when_the_first_call_is_forgotten(make: Factory) {
    let world = make();
    let first = joined(&world);
    world.settled(first, secs(1), answer(201));
    let later = NewCall {
        now: secs(2).after(WINDOW),
        ..keyed("second", "k")
    };
    let claim = world.claim(later);
    assert_ne!(claim.row, first.row);
    assert_eq!(world.view("second").call_id, id("second"));
}

pub(crate) fn a_joining_id_of_an_earlier_life_is_free(make: Factory) {
    let world = make();
    let first = joined(&world);
    world.settled(first, secs(1), unbinding(429));
    let again = world.claim(keyed("first", "k"));
    assert_eq!((again.row, again.life), (first.row, 2));
    assert!(world.is_gone("second"));
    let taken = world.begin(keyed("second", "k"));
    assert!(matches!(taken, Begun::KeyTaken(_)));
    assert_eq!(world.view("second"), world.view("first"));
}

pub(crate) fn a_joining_id_goes_with_its_call_and_belongs_to_its_client(make: Factory) {
    let world = make();
    let first = joined(&world);
    let foreign = NewCall {
        client: ClientName::new("other"),
        ..call("second")
    };
    let claim = world.claim(foreign);
    assert_ne!(claim.row, first.row);
    world.settled(first, secs(1), answer(201));
    let purged = world.ledger.purge(secs(2).after(WINDOW), 9).wait().unwrap();
    assert_eq!(purged.calls, 1);
    let client = Some(ClientName::anonymous());
    assert_eq!(
        world.ledger.view(client, id("second")).wait().unwrap(),
        Vec::new()
    );
}
