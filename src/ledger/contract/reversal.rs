//! Promises about undoing: an operator's loan, a reversal that began, and ids their clients undid.

use super::*;
use crate::call::receipt::State;
use crate::ledger::{Contradiction, Entry, OwnerTest, RowId, SettledBy, StoredUndo, Taker};

fn undo() -> StoredUndo {
    StoredUndo {
        method: Method::POST,
        target: "/orders/c/cancel".into(),
        body: Bytes::from_static(b"{\"of\":\"c\"}"),
    }
}

fn reverse(n: u32, now: Wall) -> Intention {
    Intention::Reverse {
        n,
        request: undo(),
        lease_until: now.after(LEASE),
    }
}

fn send(n: u32) -> Intention {
    Intention::Send {
        n,
        cause: None,
        moved: None,
        lease_until: secs(99),
    }
}

fn again(due: Wall) -> Intention {
    Intention::ReverseAgain {
        due,
        last_error: "reversal timeout".into(),
    }
}

fn manual(world: &World, claim: Claim, now: Wall) {
    let manual = Intention::Manual {
        reason: "rounds-exhausted".into(),
        round: 3,
        reached: true,
        last_error: "receipt UNKNOWN".into(),
    };
    world.applied(claim, now, manual);
}

fn lend(world: &World, taker: Taker, claim: Claim, now: Wall) -> Option<Due> {
    let (row, life) = (claim.row, claim.life);
    let who = (taker, owner("door"));
    let due = world
        .ledger
        .claim_letter(row, life, who, now, now.after(LEASE));
    due.wait().unwrap()
}

/// A call whose reversal was sent once at second 1.
fn reversing(world: &World, text: &str) -> Claim {
    world.dead(text);
    let claim = world.round("one", NOW).claim;
    world.applied(claim, secs(1), reverse(1, secs(1)));
    claim
}

pub(crate) fn what_was_undone_keeps_its_names_as_long_as_its_row(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world.applied(first, NOW, queued(NOW));
    let claim = world.round("one", NOW).claim;
    world.applied(claim, secs(1), reverse(1, secs(1)));
    world.applied(claim, secs(2), Intention::Reversed);
    let late = secs(3).after(WINDOW * 2);
    let again = |text| NewCall {
        now: late,
        ..keyed(text, "k")
    };
    let known = world.known(again("c"));
    assert!(known.same_request, "its id is not free");
    assert_eq!(known.call.settled.as_ref().unwrap().by, SettledBy::Reversal);
    let taken = world.begin(again("other"));
    assert!(matches!(taken, Begun::KeyTaken(known) if known.call.call_id == id("c")));
}

pub(crate) fn a_reversal_ends_every_send_of_the_original(make: Factory) {
    let world = make();
    world.dead("c");
    let old = world.round("one", NOW).claim;
    let claim = world.round("two", secs(31)).claim;
    assert_eq!(
        world.append(old, secs(32), reverse(1, secs(32))),
        Written::Stale
    );
    assert_eq!(
        world.append(claim, secs(32), reverse(2, secs(32))),
        Written::Stale
    );
    assert_eq!(
        world.append(claim, secs(32), again(secs(40))),
        Written::Stale
    );
    assert_eq!(
        world.append(claim, secs(32), Intention::Reversed),
        Written::Stale
    );
    world.applied(claim, secs(32), reverse(1, secs(32)));
    let view = world.view("c");
    let letter = world.letter("c");
    assert_eq!(
        (view.state, letter.state),
        (State::Unknown, DeadState::Reversing)
    );
    assert_eq!((letter.reversals, letter.lease_until), (1, Some(secs(62))));
    let last = Entry::Reversing { at: secs(32), n: 1 };
    assert_eq!(view.history.last(), Some(&last));
    let next = Intention::NextRound {
        round: 1,
        due: secs(90),
        reached: true,
        last_error: "x".into(),
    };
    for refused in [send(2), next, reverse(1, secs(33)), reverse(3, secs(33))] {
        assert_eq!(world.append(claim, secs(33), refused), Written::Stale);
    }
    let held = world.ledger.extend(claim, secs(80)).wait().unwrap();
    assert_eq!(held, Written::Applied, "its lease is kept by a heartbeat");
    // Also in front of a human, and under an operator's claim, it stays over.
    manual(&world, claim, secs(34));
    let due = lend(&world, Taker::Operator, claim, secs(35)).unwrap();
    assert_eq!(world.append(due.claim, secs(36), send(2)), Written::Stale);
    world.applied(due.claim, secs(36), reverse(2, secs(36)));
    assert_eq!(world.letter("c").reversals, 2);
}

pub(crate) fn an_unclear_reversal_is_due_again_as_the_same_request(make: Factory) {
    let world = make();
    let first = reversing(&world, "c");
    world.applied(first, secs(2), again(secs(10)));
    let letter = world.letter("c");
    assert_eq!(
        (letter.state, letter.owner, letter.lease_until),
        (DeadState::Reversing, None, None)
    );
    assert_eq!((letter.next_retry_time, letter.round), (Some(secs(10)), 0));
    assert_eq!(&*letter.last_error, "reversal timeout");
    assert!(world.due("two", secs(9), 9).is_empty());
    assert!(lend(&world, Taker::Caller, first, secs(9)).is_none());
    assert!(lend(&world, Taker::Operator, first, secs(9)).is_none());
    let due = world.round("two", secs(10));
    assert_eq!(due.undo, Some(undo()), "kept with the first send");
    let letter = due.call.dead_letter.unwrap();
    assert_eq!((letter.state, letter.reversals), (DeadState::Reversing, 1));
    let other = Intention::Reverse {
        n: 2,
        request: StoredUndo {
            target: "/elsewhere".into(),
            ..undo()
        },
        lease_until: secs(60),
    };
    world.applied(due.claim, secs(11), other);
    world.applied(
        due.claim,
        secs(12),
        Intention::ReleaseLease { reached: true },
    );
    let due = world.round("two", secs(12));
    assert_eq!(due.undo, Some(undo()), "every send is the same request");
    assert_eq!(due.call.dead_letter.unwrap().reversals, 2);
}

pub(crate) fn a_done_reversal_ends_the_call_and_keeps_its_names(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    let kept = Intention::Park(Park {
        kept: Some(reply(503)),
        ..park(Place::Queued { due: NOW })
    });
    world.applied(claim, NOW, kept);
    let claim = world.round("one", NOW).claim;
    world.applied(claim, secs(1), reverse(1, secs(1)));
    world.applied(claim, secs(2), Intention::Reversed);
    assert_eq!(
        world.append(claim, secs(3), Intention::Reversed),
        Written::Stale
    );
    let view = world.view("c");
    let settled = view.settled.clone().unwrap();
    assert_eq!((view.state, view.binds), (State::Failed, true));
    assert_eq!(
        (settled.verdict, settled.by),
        (Verdict::Failed, SettledBy::Reversal)
    );
    assert_eq!(
        (settled.reply, settled.document, view.kept),
        (None, None, None)
    );
    let letter = world.letter("c");
    assert_eq!(
        (letter.state, letter.ended_at),
        (DeadState::Reversed, Some(secs(2)))
    );
    assert_eq!((letter.next_retry_time, letter.owner), (None, None));
    assert!(world.known(keyed("c", "k")).same_request);
    let taken = world.begin(keyed("d", "k"));
    assert!(matches!(taken, Begun::KeyTaken(_)), "{taken:?}");
    assert!(world.due("two", secs(99), 9).is_empty());
}

pub(crate) fn a_fact_after_a_reversal_began_is_a_difference(make: Factory) {
    let world = make();
    let claim = reversing(&world, "c");
    let differs = |first| FactWritten::Difference {
        kind: Contradiction::Reversal,
        first,
    };
    assert_eq!(world.fact(claim, secs(2), answer(200)), differs(true));
    assert_eq!(
        world.fact(claim, secs(2), receipt(Verdict::Failed)),
        differs(false)
    );
    manual(&world, claim, secs(3));
    assert_eq!(
        world.fact(claim, secs(4), receipt(Verdict::Success)),
        differs(false)
    );
    let claim = lend(&world, Taker::Operator, claim, secs(5)).unwrap().claim;
    world.applied(claim, secs(5), reverse(2, secs(5)));
    world.applied(claim, secs(6), Intention::Reversed);
    assert_eq!(
        world.fact(claim, secs(7), receipt(Verdict::Success)),
        differs(false)
    );
    let agrees = world.fact(claim, secs(7), receipt(Verdict::Failed));
    assert_eq!(agrees, FactWritten::Repeated, "what is undone did fail");
    let view = world.view("c");
    assert_eq!((view.state, view.differences.len()), (State::Failed, 1));
}

pub(crate) fn a_reversal_goes_on_after_a_crash(make: Factory) {
    let world = make();
    let first = reversing(&world, "c");
    // Its lease runs out: another worker goes on.
    assert!(world.due("two", secs(30), 9).is_empty());
    let second = world.round("two", secs(31));
    assert!(second.claim.fence > first.fence);
    assert_eq!(second.call.dead_letter.unwrap().state, DeadState::Reversing);
    assert_eq!(
        world.append(first, secs(32), Intention::Reversed),
        Written::Stale
    );
    // Its owner is dead: it is due at once.
    let recovered = world
        .ledger
        .recover(owner("three"), secs(33), OwnerTest::AllOthers)
        .wait()
        .unwrap();
    assert_eq!((recovered.parked, recovered.requeued), (0, 1));
    let third = world.round("three", secs(33));
    assert_eq!(third.undo, Some(undo()));
    world.applied(third.claim, secs(34), reverse(2, secs(34)));
    world.applied(third.claim, secs(35), Intention::Reversed);
}

pub(crate) fn what_an_operator_borrows_goes_back_to_the_human(make: Factory) {
    let world = make();
    world.dead("c");
    let claim = world.round("one", NOW).claim;
    manual(&world, claim, secs(1));
    assert!(lend(&world, Taker::Caller, claim, secs(2)).is_none());
    let now = |n: u64| secs(10 * n);
    let due = lend(&world, Taker::Operator, claim, now(1)).expect("a human has it");
    let letter = world.letter("c");
    assert_eq!((letter.state, letter.by_hand), (DeadState::Running, true));
    assert_eq!((letter.round, letter.next_retry_time), (3, None));
    assert!(
        lend(&world, Taker::Operator, claim, now(1)).is_none(),
        "one at a time"
    );
    world.applied(due.claim, now(2), send(2));
    world.applied(due.claim, now(2), Intention::ReleaseLease { reached: true });
    let back = |why: &str| {
        let letter = world.letter("c");
        assert_eq!(
            (letter.state, letter.by_hand),
            (DeadState::Manual, false),
            "{why}"
        );
        assert_eq!((letter.owner, letter.round), (None, 3), "{why}");
    };
    back("given back");
    // The lease of an order runs out: no worker makes a round of it.
    let _lost = lend(&world, Taker::Operator, claim, now(3)).unwrap();
    assert!(world.due("two", now(10), 9).is_empty());
    back("its lease ran out");
    let _lost = lend(&world, Taker::Operator, claim, now(11)).unwrap();
    let all = OwnerTest::AllOthers;
    let recovered = world.ledger.recover(owner("three"), now(11), all).wait();
    assert_eq!(recovered.unwrap().requeued, 1);
    back("its owner died");
    // One from the queue goes back to the queue.
    let queued = world.dead("q");
    let due = lend(&world, Taker::Operator, queued, now(12)).unwrap();
    world.applied(
        due.claim,
        now(12),
        Intention::ReleaseLease { reached: true },
    );
    assert_eq!(world.letter("q").state, DeadState::Queued);
}

pub(crate) fn an_id_its_client_undid_is_never_sent(make: Factory) {
    let world = make();
    let undoes = |own: &str, of: &str| NewCall {
        reverses: Some(id(of)),
        ..call(own)
    };
    // The original arrives after its reversal.
    world.claim(undoes("rev-1", "late"));
    let told = world.begin(call("late"));
    assert!(matches!(told, Begun::Undone { sends: 0 }), "{told:?}");
    assert!(world.is_gone("late"), "nothing of it is recorded");
    // Another client's call of that id, and one at another upstream, are other calls.
    let elsewhere = NewCall {
        upstream: "http://other:9000".into(),
        client: ClientName::new("b"),
        ..call("late")
    };
    world.claim(elsewhere);
    // The original is in line: its next send is refused, in line and in a round.
    let running = world.claim(call("runs"));
    world.claim(undoes("rev-2", "runs"));
    assert_eq!(world.append(running, secs(1), send(2)), Written::Stale);
    let told = world.begin(call("runs"));
    assert!(matches!(told, Begun::Undone { sends: 1 }), "{told:?}");
    world.applied(running, secs(1), queued(secs(1)));
    let round = world.round("one", secs(1)).claim;
    assert_eq!(world.append(round, secs(2), send(2)), Written::Stale);
    let mismatch = NewCall {
        fingerprint: Fingerprint([9; 32]),
        ..call("runs")
    };
    assert!(
        !world.known(mismatch).same_request,
        "found before anything else"
    );
    // What the tool says of it is a fact all the same, and is replayed.
    world.settled(round, secs(3), receipt(Verdict::Success));
    assert!(world.known(call("runs")).same_request);
    // A refused reversal undoes nothing.
    let refused = NewCall {
        fingerprint: Fingerprint([9; 32]),
        ..undoes("rev-2", "other")
    };
    assert!(!world.known(refused).same_request);
    world.claim(call("other"));
}

pub(crate) fn an_undone_id_is_remembered_as_long_as_dead_letters(make: Factory) {
    let world = make();
    let undoes = NewCall {
        reverses: Some(id("c")),
        ..call("rev")
    };
    world.claim(undoes);
    let at = |now: Wall| NewCall { now, ..call("c") };
    let _early = world.ledger.purge(secs(1), 9).wait().unwrap();
    let told = world.begin(at(secs(2)));
    assert!(matches!(told, Begun::Undone { .. }), "{told:?}");
    let late = NOW.after(RETENTION);
    let _gone = world.ledger.purge(late, 9).wait().unwrap();
    world.claim(at(late));
}

pub(crate) fn a_dossier_is_read_without_a_claim(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    let dossier = || world.ledger.dossier(claim.row).wait().unwrap();
    let in_line = dossier().unwrap();
    assert_eq!(in_line.request, keyed("c", "k").request);
    assert_eq!((&*in_line.policy, in_line.undo), ("policy one", None));
    assert!(!in_line.claim.is_one());
    world.settled(claim, secs(1), answer(200));
    let ended = dossier().unwrap();
    assert_eq!(ended.call, world.view("c"));
    assert_eq!(world.append(ended.claim, secs(2), send(2)), Written::Stale);
    let nobody = world.ledger.dossier(RowId(99)).wait().unwrap();
    assert!(nobody.is_none());
}
