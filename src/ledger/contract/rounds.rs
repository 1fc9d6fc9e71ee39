//! Promises about the compensation queue: leases, fencing numbers, rounds, and the sweep.

use super::*;
use crate::call::outcome::Cause;
use crate::call::receipt::State;
use crate::ledger::{Entry, OwnerTest, Recovered, SettledBy, Taker};

pub(crate) fn due_calls_are_claimed_in_order_and_once(make: Factory) {
    let world = make();
    for (name, due) in [("late", 30), ("first", 10), ("second", 20), ("future", 99)] {
        let claim = world.claim(call(name));
        world.applied(claim, NOW, queued(secs(due)));
    }
    assert!(world.due("one", secs(9), 9).is_empty());
    let names = |due: Vec<Due>| -> Vec<String> {
        due.iter().map(|due| due.call.call_id.to_string()).collect()
    };
    assert_eq!(names(world.due("one", secs(31), 2)), ["first", "second"]);
    assert_eq!(names(world.due("two", secs(31), 9)), ["late"]);
    assert!(world.due("three", secs(31), 9).is_empty());
    assert_eq!(
        names(world.due("three", secs(99), 9)),
        ["first", "second", "late", "future"]
    );
}

pub(crate) fn what_the_tool_has_recognised_is_remembered(make: Factory) {
    let world = make();
    let recognise = |claim: Claim, life| world.ledger.recognise(claim.row, life).wait().unwrap();
    let claim = world.dead("c");
    let other = world.claim(call("other"));
    // It is no part of the claim, and of no other life.
    recognise(other, 2);
    let round = world.round("two", NOW);
    assert!(!round.call.recognised);
    recognise(claim, 1);
    assert!(world.view("c").recognised && !world.view("other").recognised);
    let back = Intention::ReleaseLease { reached: true };
    world.applied(round.claim, NOW, back);
    assert!(world.round("three", NOW).call.recognised);
    // A new life of the id knows nothing of it; an end is not changed by it.
    world.settled(claim, secs(1), unbinding(401));
    let again = world.claim(call("c"));
    assert!(!world.view("c").recognised);
    world.settled(again, secs(2), answer(200));
    let end = world.view("c");
    recognise(again, 2);
    assert_eq!(world.view("c"), end);
}

pub(crate) fn what_was_told_in_part_is_never_sent_again(make: Factory) {
    let world = make();
    let send = |n| Intention::Send {
        n,
        cause: Some(Cause::Disconnect),
        moved: None,
        lease_until: secs(60),
    };
    let stale = world.claim(call("parked"));
    world.applied(stale, NOW, queued(secs(9)));
    assert_eq!(world.append(stale, NOW, Intention::Tell), Written::Stale);
    assert!(!world.view("parked").told);
    // It is told once it is on record: by nobody who takes the call up afterwards is it sent.
    let claim = world.claim(call("c"));
    let before = world.view("c");
    world.applied(claim, secs(1), Intention::Tell);
    let told = CallView {
        told: true,
        ..before
    };
    assert_eq!(world.view("c"), told);
    assert_eq!(world.append(claim, secs(1), send(2)), Written::Stale);
    let swept = world
        .ledger
        .recover(owner("two"), secs(2), OwnerTest::AllOthers);
    assert_eq!(swept.wait().unwrap().parked, 1);
    let round = world.round("two", secs(2));
    assert!(round.call.told);
    assert_eq!(world.append(round.claim, secs(3), send(2)), Written::Stale);
    // What it is asked about may still settle it, and its next life is another call.
    world.settled(claim, secs(4), unbinding(401));
    let again = world.claim(call("c"));
    assert!(!world.view("c").told);
    world.applied(again, secs(5), send(2));
}

pub(crate) fn a_round_carries_everything_it_needs(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    let next = Intention::Send {
        n: 2,
        cause: Some(Cause::Connect),
        moved: None,
        lease_until: secs(60),
    };
    world.applied(claim, secs(1), next);
    world.applied(claim, secs(2), queued(secs(3)));
    let due = world.round("two", secs(3));
    assert_eq!((due.claim.row, due.claim.life), (claim.row, 1));
    assert!(due.claim.fence > claim.fence);
    assert_eq!(due.request, keyed("c", "k").request);
    assert_eq!(
        (&*due.policy, &*due.call.upstream),
        ("policy one", "http://tool:9000")
    );
    assert_eq!((due.call.sends, due.call.first_sent), (2, Some(NOW)));
    assert_eq!(due.call.attempts().len(), 2);
    let letter = due.call.dead_letter.clone().unwrap();
    assert_eq!((letter.state, letter.round), (DeadState::Running, 0));
    assert_eq!(
        (letter.owner, letter.fence),
        (Some(owner("two")), due.claim.fence)
    );
    assert_eq!(letter.lease_until, Some(secs(3).after(LEASE)));
    assert_eq!(
        letter.next_retry_time,
        Some(secs(3)),
        "it does not move by being claimed"
    );
    assert_eq!(world.view("c"), due.call);
    let claimed = Entry::Claimed {
        at: secs(3),
        owner: "two".into(),
        fence: due.claim.fence,
    };
    assert_eq!(due.call.history.last(), Some(&claimed));
    // Who had it in line stays known, whoever claims it.
    world.applied(
        due.claim,
        secs(4),
        Intention::ReleaseLease { reached: true },
    );
    let due = world.round("three", secs(5));
    let letter = due.call.dead_letter.unwrap();
    assert_eq!(
        (letter.begun_by, due.call.owner),
        (Some(owner("one")), owner("three"))
    );
}

pub(crate) fn a_repeat_leases_what_waits_in_the_queue_and_moves_nothing(make: Factory) {
    let world = make();
    let lease = |claim: Claim, now: Wall| {
        let (row, life) = (claim.row, claim.life);
        let who = owner("door");
        let due = world
            .ledger
            .claim_letter(row, life, (Taker::Caller, who), now, now.after(LEASE));
        due.wait().unwrap()
    };
    let claim = world.claim(call("c"));
    assert!(lease(claim, NOW).is_none(), "it is in line");
    world.applied(claim, NOW, queued(secs(99)));
    let before = world.letter("c");
    let due = lease(claim, secs(1)).expect("it waits, though not for now");
    assert!(due.claim.fence > claim.fence);
    assert_eq!(due.request, call("c").request);
    let letter = world.letter("c");
    assert_eq!(letter.state, DeadState::Running);
    assert_eq!(
        (letter.round, letter.next_retry_time, letter.fail_count),
        (before.round, before.next_retry_time, before.fail_count)
    );
    assert!(lease(claim, secs(2)).is_none(), "somebody else has it");
    assert!(world.due("worker", secs(2), 9).is_empty());
    let later = Claim { life: 2, ..claim };
    world.applied(
        due.claim,
        secs(3),
        Intention::ReleaseLease { reached: true },
    );
    assert!(lease(later, secs(3)).is_none(), "that is another life");
    let letter = world.letter("c");
    assert_eq!(
        (letter.state, letter.round, letter.next_retry_time),
        (DeadState::Queued, before.round, before.next_retry_time)
    );
    assert_eq!(world.round("worker", secs(99)).call.call_id, id("c"));
}

pub(crate) fn an_abandoned_round_is_claimed_by_another(make: Factory) {
    let world = make();
    world.dead("c");
    let first = world.round("one", secs(1)).claim;
    assert!(world.due("two", secs(30), 9).is_empty());
    let second = world.round("two", secs(31)).claim;
    assert!(second.fence > first.fence);
    let next = || Intention::NextRound {
        round: 1,
        due: secs(90),
        reached: true,
        last_error: "still unknown".into(),
    };
    assert_eq!(world.append(first, secs(32), next()), Written::Stale);
    world.applied(second, secs(32), next());
}

pub(crate) fn rounds_are_counted_in_the_row(make: Factory) {
    let world = make();
    world.dead("c");
    for round in 1..=3_u32 {
        let at = secs(u64::from(round) * 100);
        let due = world.round("one", at);
        let letter = due.call.dead_letter.unwrap();
        assert_eq!((letter.round, letter.fail_count), (round - 1, round - 1));
        let next = at.after(Duration::from_secs(100));
        let last_error = format!("round {round}").into();
        world.applied(
            due.claim,
            at,
            Intention::NextRound {
                round,
                due: next,
                reached: true,
                last_error,
            },
        );
        let letter = world.letter("c");
        assert_eq!((letter.round, letter.fail_count), (round, round));
        assert_eq!(
            (letter.state, letter.next_retry_time),
            (DeadState::Queued, Some(next))
        );
        assert_eq!(*letter.last_error, *format!("round {round}"));
        assert_eq!((letter.owner, letter.lease_until), (None, None));
        assert_eq!(&*letter.reason, "timeout", "why it was parked stays");
        assert_eq!(world.append(due.claim, at, queued(NOW)), Written::Stale);
    }
    assert_eq!(world.view("c").state, State::Unknown);
}

pub(crate) fn the_last_round_ends_in_front_of_a_human(make: Factory) {
    let world = make();
    world.dead("c");
    let due = world.round("one", secs(1));
    let (reason, last_error) = ("rounds-used-up".into(), "PROCESSING to the end".into());
    world.applied(
        due.claim,
        secs(2),
        Intention::Manual {
            reason,
            round: 1,
            reached: true,
            last_error,
        },
    );
    let letter = world.letter("c");
    assert_eq!(
        (letter.state, &*letter.reason),
        (DeadState::Manual, "rounds-used-up")
    );
    assert_eq!((letter.next_retry_time, letter.round), (None, 1));
    assert_eq!(letter.ended_at, None);
    assert!(world.due("two", secs(9_999_999), 9).is_empty());
    assert_eq!(world.view("c").state, State::Unknown);
    world.settled(due.claim, secs(3), receipt(Verdict::Success));
    assert_eq!(world.letter("c").state, DeadState::Settled);
}

pub(crate) fn a_released_round_is_due_as_before(make: Factory) {
    let world = make();
    world.dead("c");
    let due = world.round("one", secs(5));
    world.applied(
        due.claim,
        secs(6),
        Intention::ReleaseLease { reached: true },
    );
    let letter = world.letter("c");
    assert_eq!(
        (letter.state, letter.next_retry_time),
        (DeadState::Queued, Some(NOW))
    );
    assert_eq!((letter.round, letter.fail_count), (0, 0));
    assert_eq!(
        world.append(
            due.claim,
            secs(6),
            Intention::ReleaseLease { reached: true }
        ),
        Written::Stale
    );
    assert!(world.round("two", secs(6)).claim.fence > due.claim.fence);
}

pub(crate) fn a_round_may_send_under_its_claim(make: Factory) {
    let world = make();
    world.unsent("c");
    let due = world.round("one", secs(1));
    let send = || Intention::Send {
        n: 2,
        cause: Some(Cause::Connect),
        moved: None,
        lease_until: secs(500),
    };
    world.applied(due.claim, secs(2), send());
    let view = world.view("c");
    assert_eq!(
        (view.state, view.sends),
        (State::Unknown, 2),
        "now it may have arrived"
    );
    assert_eq!(view.dead_letter.unwrap().lease_until, Some(secs(500)));
    assert_eq!(world.append(due.claim, secs(2), send()), Written::Stale);
}

pub(crate) fn what_a_pass_could_not_send_is_still_never_sent(make: Factory) {
    let last_error: Arc<str> = "connection refused".into();
    let next = |reached| Intention::NextRound {
        round: 1,
        due: secs(5),
        reached,
        last_error: Arc::clone(&last_error),
    };
    let manual = |reached| Intention::Manual {
        reason: "rounds-exhausted".into(),
        round: 1,
        reached,
        last_error: Arc::clone(&last_error),
    };
    let release = |reached| Intention::ReleaseLease { reached };
    let ends: [&dyn Fn(bool) -> Intention; 3] = [&next, &manual, &release];
    for end in ends {
        for (reached, state) in [(false, State::Received), (true, State::Unknown)] {
            let world = make();
            world.unsent("c");
            let due = world.round("one", secs(1));
            let send = Intention::Send {
                n: 2,
                cause: Some(Cause::Connect),
                moved: None,
                lease_until: secs(500),
            };
            world.applied(due.claim, secs(2), send);
            assert_eq!(world.view("c").state, State::Unknown, "it may have left");
            world.applied(due.claim, secs(3), end(reached));
            let view = world.view("c");
            assert_eq!((view.state, view.sends), (state, 2));
        }
    }
}

pub(crate) fn a_crash_parks_what_was_sent_and_closes_what_was_not(make: Factory) {
    let world = make();
    let old = world.claim(call("sent"));
    world.claim(NewCall {
        first_send: false,
        ..keyed("unsent", "k")
    });
    world.claim(NewCall {
        first_send: false,
        promised: true,
        ..call("promised")
    });
    let done = world.claim(call("done"));
    world.settled(done, secs(1), answer(200));
    world.dead("round");
    let round = world.round("one", secs(1)).claim;
    world.claim(NewCall {
        owner: owner("new"),
        ..call("mine")
    });
    let sweep = || {
        world
            .ledger
            .recover(owner("new"), secs(2), OwnerTest::AllOthers)
            .wait()
    };
    let expected = Recovered {
        parked: 2,
        never_sent: 1,
        requeued: 1,
    };
    assert_eq!(sweep().unwrap(), expected);
    let view = world.view("sent");
    let letter = view.dead_letter.unwrap();
    assert_eq!(
        (view.state, letter.state),
        (State::Unknown, DeadState::Queued)
    );
    assert_eq!(
        (&*letter.reason, letter.next_retry_time),
        ("crash", Some(secs(2)))
    );
    let view = world.view("unsent");
    assert_eq!((view.state, view.binds), (State::Failed, false));
    assert_eq!(view.settled.unwrap().by, SettledBy::NeverSent);
    assert_eq!(&*view.dead_letter.unwrap().reason, "never-sent");
    world.claim(NewCall {
        owner: owner("new"),
        ..keyed("next", "k")
    });
    let view = world.view("promised");
    assert_eq!((view.state, view.sends), (State::Received, 0));
    assert!(view.promised && !world.view("sent").promised);
    assert_eq!(view.dead_letter.unwrap().state, DeadState::Queued);
    assert_eq!(world.letter("round").state, DeadState::Queued);
    assert_eq!(world.view("done").dead_letter, None);
    assert_eq!(world.view("mine").state, State::Processing);
    // What the dead owner still holds is worth nothing, and a second sweep finds nothing.
    for stale in [old, round] {
        assert_eq!(world.append(stale, secs(3), queued(NOW)), Written::Stale);
    }
    assert_eq!(sweep().unwrap(), Recovered::default());
    assert_eq!(world.due("new", secs(2), 9).len(), 3);
}

pub(crate) fn a_shared_ledger_recovers_only_what_ran_out(make: Factory) {
    let world = make();
    world.claim(NewCall {
        lease_until: secs(10),
        ..call("over")
    });
    world.claim(NewCall {
        lease_until: secs(50),
        ..call("alive")
    });
    let swept = world
        .ledger
        .recover(owner("new"), secs(20), OwnerTest::LeaseRanOut)
        .wait();
    assert_eq!(
        swept.unwrap(),
        Recovered {
            parked: 1,
            never_sent: 0,
            requeued: 0
        }
    );
    assert_eq!(world.view("over").state, State::Unknown);
    assert_eq!(world.view("alive").state, State::Processing);
}
