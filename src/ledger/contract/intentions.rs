//! Promises about intentions: nothing without the current claim, nothing in two steps.

use super::*;
use crate::call::outcome::{Cause, NotSent, Outcome, Unclear};
use crate::call::receipt::{Answer, Doubt, State};
use crate::ledger::{Entry, SettledBy};

fn send(n: u32) -> Intention {
    Intention::Send {
        n,
        cause: Some(Cause::Timeout),
        moved: None,
        lease_until: secs(60),
    }
}

fn first_send() -> Intention {
    Intention::Send {
        n: 1,
        cause: None,
        moved: None,
        lease_until: secs(60),
    }
}

pub(crate) fn a_send_is_counted_only_in_order(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    for wrong in [0, 1, 3] {
        assert_eq!(
            world.append(claim, secs(1), send(wrong)),
            Written::Stale,
            "{wrong}"
        );
    }
    world.applied(claim, secs(1), send(2));
    assert_eq!(world.append(claim, secs(1), send(2)), Written::Stale);
    world.applied(claim, secs(2), send(3));
    let view = world.view("c");
    assert_eq!((view.sends, view.first_sent), (3, Some(NOW)));
    assert_eq!(view.lease_until, secs(60));
    let seen: Vec<_> = view
        .attempts()
        .iter()
        .map(|a| (a.n, a.at, a.cause))
        .collect();
    let cause = Some(Cause::Timeout);
    assert_eq!(
        seen,
        [(1, NOW, None), (2, secs(1), cause), (3, secs(2), cause)]
    );
    // A call that was accepted and not yet sent begins with its first.
    let claim = world.claim(NewCall {
        first_send: false,
        ..call("later")
    });
    let view = world.view("later");
    assert_eq!(
        (view.state, view.sends, view.first_sent),
        (State::Received, 0, None)
    );
    assert_eq!(world.append(claim, secs(1), send(2)), Written::Stale);
    let waited = Entry::Waited {
        at: NOW,
        why: "ejected".into(),
        wait: Duration::from_secs(1),
    };
    world.ledger.note(claim.row, claim.life, vec![waited]);
    world.applied(claim, secs(1), first_send());
    let order = world.view("later").history;
    assert!(
        matches!(order[..], [Entry::Waited { .. }, Entry::Sent { n: 1, .. }]),
        "{order:?}"
    );
    let view = world.view("later");
    assert_eq!(
        (view.state, view.sends, view.first_sent),
        (State::Processing, 1, Some(secs(1)))
    );
}

fn every_intention() -> [Intention; 6] {
    let (round, due, last_error) = (1, secs(9), "x".into());
    [
        send(2),
        queued(NOW),
        Intention::Park(park(Place::NeverSent)),
        Intention::NextRound {
            round,
            due,
            reached: true,
            last_error,
        },
        Intention::Manual {
            reason: "x".into(),
            round,
            reached: true,
            last_error: "x".into(),
        },
        Intention::ReleaseLease { reached: true },
    ]
}

pub(crate) fn a_stale_claim_writes_nothing(make: Factory) {
    let world = make();
    let line = world.claim(call("line"));
    world.dead("round");
    let round = world.round("two", secs(1)).claim;
    for (name, claim) in [("line", line), ("round", round)] {
        let before = world.view(name);
        let wrong = [
            Claim {
                fence: claim.fence - 1,
                ..claim
            },
            Claim {
                fence: claim.fence + 1,
                ..claim
            },
            Claim {
                life: claim.life + 1,
                ..claim
            },
            Claim {
                row: crate::ledger::RowId(99),
                ..claim
            },
        ];
        for stale in wrong {
            for intention in every_intention() {
                assert_eq!(world.append(stale, secs(2), intention), Written::Stale);
            }
            let extended = world.ledger.extend(stale, secs(99)).wait().unwrap();
            assert_eq!(extended, Written::Stale);
        }
        assert_eq!(world.view(name), before);
    }
}

pub(crate) fn a_settled_call_takes_no_intention(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    world.settled(claim, secs(1), answer(200));
    let before = world.view("c");
    for intention in every_intention() {
        assert_eq!(world.append(claim, secs(2), intention), Written::Stale);
    }
    assert_eq!(
        world.ledger.extend(claim, secs(99)).wait().unwrap(),
        Written::Stale
    );
    assert_eq!(world.view("c"), before);
}

pub(crate) fn parking_is_one_step(make: Factory) {
    let world = make();
    let new = NewCall {
        business_key: Some("parcel 7".into()),
        ..keyed("c", "k")
    };
    let claim = world.claim(new);
    world.applied(claim, secs(3), queued(secs(63)));
    let view = world.view("c");
    assert_eq!((view.state, view.settled.is_none()), (State::Unknown, true));
    let expected = DeadLetter {
        row: claim.row,
        life: 1,
        call_id: id("c"),
        route: "orders".into(),
        client: ClientName::anonymous(),
        business_key: Some("parcel 7".into()),
        idempotency_key: Some("k".into()),
        reason: "timeout".into(),
        last_error: "no answer within 8s".into(),
        fail_count: 0,
        next_retry_time: Some(secs(63)),
        create_time: secs(3),
        state: DeadState::Queued,
        round: 0,
        owner: None,
        fence: claim.fence,
        lease_until: None,
        ended_at: None,
        by_hand: false,
        reversals: 0,
        last_receipt: None,
        begun_by: Some(owner("one")),
    };
    assert_eq!(view.dead_letter, Some(expected));
    assert_eq!(
        world.append(claim, secs(4), queued(NOW)),
        Written::Stale,
        "once is enough"
    );
    // Nothing reached the tool yet: the call waits, but nobody need wonder about it.
    let waiting = world.claim(call("d"));
    let how = Park {
        reached: false,
        ..park(Place::Queued { due: NOW })
    };
    world.applied(waiting, secs(3), Intention::Park(how));
    assert_eq!(world.view("d").state, State::Received);
}

pub(crate) fn a_never_sent_call_ends_and_frees_its_names(make: Factory) {
    let world = make();
    let claim = world.claim(keyed("c", "k"));
    let how = Park {
        reason: "never-sent".into(),
        ..park(Place::NeverSent)
    };
    world.applied(claim, secs(1), Intention::Park(how));
    let view = world.view("c");
    assert_eq!((view.state, view.binds), (State::Failed, false));
    let settled = view.settled.unwrap();
    assert_eq!(
        (settled.verdict, settled.by),
        (Verdict::Failed, SettledBy::NeverSent)
    );
    let letter = view.dead_letter.unwrap();
    assert_eq!(
        (letter.state, &*letter.reason),
        (DeadState::Failed, "never-sent")
    );
    assert_eq!(
        (letter.next_retry_time, letter.ended_at),
        (None, Some(secs(1)))
    );
    world.claim(keyed("d", "k"));
    let again = world.claim(call("c"));
    assert_eq!(again.life, 2);
    // The dead letter of the first life is still there to be seen.
    assert_eq!(world.listed(Filter::default()), ["c"]);
    assert_eq!(world.view("c").dead_letter, None);
}

pub(crate) fn a_parked_call_takes_no_send_from_the_line(make: Factory) {
    let world = make();
    let claim = world.dead("c");
    let before = world.view("c");
    for intention in every_intention() {
        assert_eq!(world.append(claim, secs(1), intention), Written::Stale);
    }
    assert_eq!(
        world.ledger.extend(claim, secs(99)).wait().unwrap(),
        Written::Stale
    );
    assert_eq!(world.view("c"), before);
}

pub(crate) fn a_heartbeat_extends_only_the_current_lease(make: Factory) {
    let world = make();
    let line = world.claim(call("line"));
    assert_eq!(
        world.ledger.extend(line, secs(77)).wait().unwrap(),
        Written::Applied
    );
    assert_eq!(world.view("line").lease_until, secs(77));
    world.dead("round");
    let first = world.round("two", secs(1)).claim;
    assert_eq!(
        world.ledger.extend(first, secs(100)).wait().unwrap(),
        Written::Applied
    );
    assert_eq!(world.letter("round").lease_until, Some(secs(100)));
    assert!(world.due("three", secs(99), 9).is_empty());
    let second = world.round("three", secs(100)).claim;
    assert_eq!(
        world.ledger.extend(first, secs(200)).wait().unwrap(),
        Written::Stale
    );
    assert_eq!(
        world.ledger.extend(second, secs(200)).wait().unwrap(),
        Written::Applied
    );
}

pub(crate) fn history_is_kept_in_order(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    let ms = Duration::from_millis;
    let ended = |at, n, outcome| Entry::Ended {
        at: secs(at),
        n,
        outcome,
        took: ms(250),
        late: false,
        detail: None,
    };
    let first = vec![
        Entry::Reconnected { at: NOW, n: 1 },
        ended(1, 1, Outcome::Unclear(Unclear::Timeout)),
        Entry::Receipt {
            at: secs(2),
            answer: Answer::State(State::Unknown),
            doubt: Some(Doubt::Unproven),
            status: Some(StatusCode::NOT_FOUND),
            took: ms(3),
            detail: None,
        },
        Entry::Waited {
            at: secs(3),
            why: "backoff".into(),
            wait: ms(1_000),
        },
        Entry::Receipt {
            at: secs(4),
            answer: Answer::NotFound,
            doubt: None,
            status: None,
            took: ms(4),
            detail: Some("not JSON".into()),
        },
    ];
    world.ledger.note(claim.row, claim.life, first.clone());
    world.applied(claim, secs(5), send(2));
    let last = ended(6, 2, Outcome::NotSent(NotSent::HandedBack));
    world.ledger.note(claim.row, claim.life, vec![last.clone()]);
    world.applied(claim, secs(7), queued(secs(8)));
    let mut expected = vec![Entry::Sent {
        at: NOW,
        n: 1,
        cause: None,
    }];
    expected.extend(first);
    expected.push(Entry::Sent {
        at: secs(5),
        n: 2,
        cause: Some(Cause::Timeout),
    });
    expected.push(last);
    let (state, reason) = (DeadState::Queued, "timeout".into());
    expected.push(Entry::Parked {
        at: secs(7),
        state,
        reason,
        round: 0,
    });
    let view = world.view("c");
    assert_eq!(view.history, expected);
    assert_eq!(view.last_receipt(), Some(Answer::NotFound));
    let unclear: Vec<_> = view.attempts().iter().map(|a| a.is_unclear()).collect();
    assert_eq!(unclear, [true, false]);
}
