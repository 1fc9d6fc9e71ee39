//! Promises about the operators' verbs: one step with their line, once, and refused with a reason.

use super::*;
use crate::call::receipt::State;
use crate::ledger::SettledBy;
use crate::ledger::desk::{AuditLine, By, Decided, Decision, OrderLine, Refusal, Verb};

pub(super) fn by(at: u64) -> By {
    By {
        who: "ann@ops".into(),
        why: Some("asked the carrier".into()),
        now: secs(at),
        job: None,
    }
}

const DONE: Verb = Verb::Resolve(Verdict::Success);
const UNDONE: Verb = Verb::Resolve(Verdict::Failed);

impl World {
    fn decide(&self, claim: Claim, verb: Verb, at: u64) -> Decided {
        let decision = Decision {
            row: claim.row,
            life: claim.life,
            verb,
            by: by(at),
            document: Some(Bytes::from_static(b"{\"state\":\"SUCCESS\"}")),
        };
        self.ledger.decide(decision).wait().unwrap()
    }

    fn decided(&self, claim: Claim, verb: Verb, (before, after): (DeadState, DeadState)) {
        let expected = Decided::Applied { before, after };
        assert_eq!(self.decide(claim, verb, 5), expected, "{verb:?}");
    }

    fn audit(&self, claim: Claim) -> Vec<AuditLine> {
        self.ledger.audit(claim.row).wait().unwrap()
    }

    pub(super) fn manual(&self, new: NewCall) -> Claim {
        let claim = self.claim(new);
        let how = Park {
            kept: Some(reply(503)),
            ..park(Place::Manual)
        };
        self.applied(claim, NOW, Intention::Park(how));
        claim
    }
}

pub(crate) fn a_resolved_call_is_settled_by_an_operator_with_a_line(make: Factory) {
    let world = make();
    let claim = world.manual(call("c"));
    world.decided(claim, DONE, (DeadState::Manual, DeadState::Settled));
    let view = world.view("c");
    let end = view.settled.clone().unwrap();
    assert_eq!(
        (end.verdict, end.by),
        (Verdict::Success, SettledBy::Operator)
    );
    assert_eq!(end.at, secs(5));
    assert_eq!(end.reply, None, "the kept 5xx is nobody's answer now");
    assert_eq!(
        end.document.as_deref(),
        Some(&b"{\"state\":\"SUCCESS\"}"[..])
    );
    assert_eq!((view.state, view.binds), (State::Success, true));
    let letter = view.dead_letter.unwrap();
    assert_eq!(
        (letter.state, letter.ended_at),
        (DeadState::Settled, Some(secs(5)))
    );
    let lines = world.audit(claim);
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert_eq!((&*line.who, line.verb, line.at), ("ann@ops", DONE, secs(5)));
    assert_eq!(line.why.as_deref(), Some("asked the carrier"));
    assert_eq!(
        (&*line.before, line.after.as_deref()),
        ("MANUAL", Some("SETTLED"))
    );
    assert_eq!(
        (line.ended_at, line.life, line.job),
        (Some(secs(5)), 1, None)
    );
    // A repeat meets the settled call, and nobody may send it again.
    let known = world.known(NewCall {
        now: secs(6),
        ..call("c")
    });
    assert!(known.same_request && known.call.settled.is_some());
    assert!(world.due("one", secs(999_999), 9).is_empty());
}

pub(crate) fn success_by_hand_keeps_the_key_and_failure_frees_it(make: Factory) {
    let world = make();
    let done = world.manual(keyed("a", "k1"));
    let undone = world.manual(keyed("b", "k2"));
    world.decided(done, DONE, (DeadState::Manual, DeadState::Settled));
    world.decided(undone, UNDONE, (DeadState::Manual, DeadState::Failed));
    let again = |text: &str, key: &str| {
        world.begin(NewCall {
            now: secs(9),
            ..keyed(text, key)
        })
    };
    assert!(matches!(again("a2", "k1"), Begun::KeyTaken(_)));
    assert!(matches!(again("b2", "k2"), Begun::Claimed(_)));
    assert_eq!(world.view("b").settled.unwrap().by, SettledBy::Operator);
}

pub(crate) fn a_decision_made_twice_is_made_once(make: Factory) {
    let world = make();
    let resolved = world.manual(call("a"));
    world.decided(resolved, DONE, (DeadState::Manual, DeadState::Settled));
    assert_eq!(
        world.decide(resolved, DONE, 6),
        Decided::Already(DeadState::Settled)
    );
    let other = Decided::Refused(Refusal::Settled);
    assert_eq!(world.decide(resolved, UNDONE, 7), other);
    assert_eq!(world.decide(resolved, Verb::Discard, 7), other);
    assert_eq!(
        world.audit(resolved).len(),
        1,
        "what changes nothing leaves no line"
    );
    assert_eq!(world.view("a").settled.unwrap().at, secs(5));
    let discarded = world.manual(call("b"));
    world.decided(
        discarded,
        Verb::Discard,
        (DeadState::Manual, DeadState::Discarded),
    );
    let again = world.decide(discarded, Verb::Discard, 8);
    assert_eq!(again, Decided::Already(DeadState::Discarded));
    // A human may find the truth later.
    world.decided(discarded, UNDONE, (DeadState::Discarded, DeadState::Failed));
    let words: Vec<_> = world
        .audit(discarded)
        .iter()
        .map(|line| line.verb)
        .collect();
    assert_eq!(words, [Verb::Discard, UNDONE]);
}

pub(crate) fn a_decision_needs_a_dead_letter_that_nobody_works_on(make: Factory) {
    let world = make();
    let in_line = world.claim(call("line"));
    let refused = Decided::Refused(Refusal::NotParked);
    assert_eq!(world.decide(in_line, DONE, 1), refused);
    let waiting = world.dead("round");
    let round = world.round("one", secs(1));
    let refused = Decided::Refused(Refusal::Running);
    for verb in [DONE, UNDONE, Verb::Discard] {
        assert_eq!(world.decide(waiting, verb, 2), refused);
    }
    world.applied(
        round.claim,
        secs(3),
        Intention::ReleaseLease { reached: true },
    );
    world.decided(waiting, DONE, (DeadState::Queued, DeadState::Settled));
    // A worker that lost its row to the decision writes nothing, also when it comes late.
    assert_eq!(
        world.append(
            round.claim,
            secs(6),
            Intention::ReleaseLease { reached: true }
        ),
        Written::Stale
    );
    let ended = world.dead("ended");
    world.settled(ended, secs(1), receipt(Verdict::Failed));
    assert_eq!(
        world.decide(ended, UNDONE, 2),
        Decided::Refused(Refusal::Failed)
    );
    let gone = Claim { life: 9, ..ended };
    assert_eq!(world.decide(gone, DONE, 2), Decided::Gone);
}

pub(crate) fn a_discarded_call_stays_unknown_and_is_never_sent(make: Factory) {
    let world = make();
    let claim = world.dead("c");
    world.decided(
        claim,
        Verb::Discard,
        (DeadState::Queued, DeadState::Discarded),
    );
    let view = world.view("c");
    assert_eq!((view.state, view.settled), (State::Unknown, None));
    let letter = view.dead_letter.unwrap();
    assert_eq!(
        (letter.next_retry_time, letter.ended_at),
        (None, Some(secs(5)))
    );
    assert!(world.due("one", secs(999_999), 9).is_empty());
    let known = world.known(NewCall {
        now: secs(9),
        ..call("c")
    });
    assert!(known.same_request, "the id is still the call's");
    let send = Intention::Send {
        n: 2,
        cause: None,
        moved: None,
        lease_until: secs(99),
    };
    assert_eq!(world.append(claim, secs(10), send), Written::Stale);
    // A tally counts what is open, and this is not.
    assert!(world.ledger.tally().wait().unwrap().is_empty());
    // A fact still applies: nobody knew the end.
    world.settled(claim, secs(11), receipt(Verdict::Success));
    assert_eq!(world.letter("c").state, DeadState::Settled);
}

pub(crate) fn a_discarded_call_is_unknown_though_it_was_never_sent(make: Factory) {
    let world = make();
    let claim = world.unsent("c");
    world.decided(
        claim,
        Verb::Discard,
        (DeadState::Queued, DeadState::Discarded),
    );
    assert_eq!(world.view("c").state, State::Unknown);
}

pub(crate) fn what_was_given_up_is_forgotten_after_the_retention(make: Factory) {
    let world = make();
    let claim = world.dead("c");
    world.decided(
        claim,
        Verb::Discard,
        (DeadState::Queued, DeadState::Discarded),
    );
    let early = secs(4).after(RETENTION);
    assert_eq!(world.ledger.purge(early, 9).wait().unwrap().calls, 0);
    assert!(!world.is_gone("c"));
    let late = secs(5).after(RETENTION);
    assert_eq!(world.ledger.purge(late, 9).wait().unwrap().calls, 1);
    assert!(world.is_gone("c") && world.audit(claim).is_empty());
}

pub(crate) fn a_key_is_released_only_where_nothing_is_sent_again(make: Factory) {
    let world = make();
    let first = world.manual(keyed("a", "k1"));
    let refused = Decided::Refused(Refusal::StillOpen);
    assert_eq!(world.decide(first, Verb::ReleaseKey, 1), refused);
    world.decided(
        first,
        Verb::Discard,
        (DeadState::Manual, DeadState::Discarded),
    );
    let second = || NewCall {
        now: secs(9),
        ..keyed("b", "k1")
    };
    assert!(matches!(world.begin(second()), Begun::KeyTaken(_)));
    let stays = (DeadState::Discarded, DeadState::Discarded);
    world.decided(first, Verb::ReleaseKey, stays);
    let again = world.decide(first, Verb::ReleaseKey, 10);
    assert_eq!(again, Decided::Already(DeadState::Discarded));
    // The id that joined it is the first call's still; a new one runs for itself.
    let third = NewCall {
        now: secs(11),
        ..keyed("c", "k1")
    };
    assert!(matches!(world.begin(third), Begun::Claimed(_)));
    let done = world.manual(keyed("d", "k2"));
    world.decided(done, DONE, (DeadState::Manual, DeadState::Settled));
    let refused = Decided::Refused(Refusal::Settled);
    assert_eq!(world.decide(done, Verb::ReleaseKey, 12), refused);
    let keyless = world.manual(call("e"));
    world.decided(
        keyless,
        Verb::Discard,
        (DeadState::Manual, DeadState::Discarded),
    );
    let refused = Decided::Refused(Refusal::NoKey);
    assert_eq!(world.decide(keyless, Verb::ReleaseKey, 12), refused);
}

pub(crate) fn an_order_is_noted_before_and_completed_after(make: Factory) {
    let world = make();
    let claim = world.dead("c");
    let order = OrderLine {
        row: claim.row,
        life: claim.life,
        verb: Verb::Resend,
        by: by(1),
    };
    let line = world.ledger.order(order).wait().unwrap();
    let open = world.audit(claim).remove(0);
    assert_eq!(
        (open.id, open.verb, &*open.before),
        (line, Verb::Resend, "QUEUED")
    );
    assert_eq!((open.after, open.told, open.ended_at), (None, None, None));
    world.settled(claim, secs(2), receipt(Verdict::Success));
    let told = "the receipt said SUCCESS".into();
    world.ledger.performed(line, secs(3), told).wait().unwrap();
    let whole = world.audit(claim).remove(0);
    assert_eq!(whole.after.as_deref(), Some("SETTLED"));
    assert_eq!(whole.told.as_deref(), Some("the receipt said SUCCESS"));
    assert_eq!(whole.ended_at, Some(secs(3)));
}
