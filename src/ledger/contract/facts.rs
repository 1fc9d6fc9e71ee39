//! Promises about facts: they apply to what is open, and never to what is over.

use super::*;
use crate::call::outcome::{Outcome, Reading, Unclear};
use crate::call::receipt::State;
use crate::ledger::{Contradiction, Entry, SettledBy};

pub(crate) fn a_clean_call_needs_two_records(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    let outcome = Outcome::Answered(Reading::Success(StatusCode::CREATED));
    let took = Duration::from_millis(12);
    let end = Entry::Ended {
        at: secs(1),
        n: 1,
        outcome,
        took,
        late: false,
        detail: None,
    };
    let Claim { row, life, .. } = claim;
    let entries = vec![end.clone()];
    let fact = Fact {
        row,
        life,
        now: secs(1),
        entries,
        news: answer(201),
    };
    assert_eq!(
        world.ledger.fact(fact).wait().unwrap(),
        FactWritten::Applied
    );
    let view = world.view("c");
    assert_eq!(view.state, State::Success);
    assert_eq!(
        view.history,
        [
            Entry::Sent {
                at: NOW,
                n: 1,
                cause: None
            },
            end
        ]
    );
    let attempts = view.attempts();
    assert_eq!(attempts.len(), 1);
    assert_eq!(
        (attempts[0].outcome, attempts[0].took),
        (Some(outcome), Some(took))
    );
    assert!(!attempts[0].is_unclear());
}

pub(crate) fn an_unbinding_answer_frees_id_and_key(make: Factory) {
    for (status, state) in [
        (401, State::Failed),
        (429, State::Failed),
        (307, State::Success),
    ] {
        let world = make();
        let claim = world.claim(keyed("c", "k"));
        world.settled(claim, secs(1), unbinding(status));
        let view = world.view("c");
        assert_eq!((view.state, view.binds), (state, false), "{status}");
        assert_eq!(view.settled.unwrap().reply, Some(reply(status)));
        world.claim(keyed("d", "k"));
        world.claim(call("c"));
    }
}

pub(crate) fn a_receipt_settles_with_or_without_a_reply(make: Factory) {
    for told in [None, Some(reply(200))] {
        let world = make();
        let claim = world.claim(call("c"));
        let kept = Intention::Park(Park {
            kept: Some(reply(500)),
            ..park(Place::Queued { due: NOW })
        });
        world.applied(claim, NOW, kept);
        assert_eq!(world.view("c").kept, Some(reply(500)));
        let document = Some(Bytes::from_static(b"{\"state\":\"SUCCESS\"}"));
        let news = News::Receipt {
            verdict: Verdict::Success,
            reply: told.clone(),
            document: document.clone(),
        };
        world.settled(claim, secs(1), news);
        let view = world.view("c");
        assert_eq!(view.kept, None, "what settled nothing is not an answer");
        let settled = view.settled.unwrap();
        assert_eq!((settled.reply, settled.document), (told, document));
        assert_eq!(settled.by, SettledBy::Receipt);
    }
}

/// Every way to end a call, against every later word.
pub(crate) fn a_terminal_state_is_never_overwritten(make: Factory) {
    let words = || {
        [
            answer(200),
            answer(302),
            answer(422),
            unbinding(403),
            unbinding(308),
            receipt(Verdict::Success),
            receipt(Verdict::Failed),
        ]
    };
    let world = make();
    for (i, first) in words().into_iter().enumerate() {
        for (j, second) in words().into_iter().enumerate() {
            let name = format!("c{i}-{j}");
            let claim = world.claim(call(&name));
            world.settled(claim, secs(1), first.clone());
            let before = world.view(&name);
            let written = world.fact(claim, secs(2), second.clone());
            let mut after = world.view(&name);
            if first.verdict() == second.verdict() {
                assert_eq!(written, FactWritten::Repeated, "{name}");
            } else {
                let kind = match second {
                    News::Receipt { .. } => Contradiction::Receipt,
                    News::Answer { .. } | News::Unbinding { .. } => Contradiction::Answer,
                };
                assert_eq!(
                    written,
                    FactWritten::Difference { kind, first: true },
                    "{name}"
                );
                assert_eq!(after.differences.len(), 1, "{name}");
                after.differences.clear();
            }
            assert_eq!(before, after, "{name}");
        }
    }
}

pub(crate) fn a_difference_is_recorded_once_per_kind(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    world.settled(claim, secs(1), answer(200));
    let expect = |news, now, kind, first| {
        let written = world.fact(claim, secs(now), news);
        assert_eq!(written, FactWritten::Difference { kind, first });
    };
    expect(receipt(Verdict::Failed), 2, Contradiction::Receipt, true);
    expect(receipt(Verdict::Failed), 3, Contradiction::Receipt, false);
    expect(answer(404), 4, Contradiction::Answer, true);
    let seen = |at| Entry::Differs {
        at: secs(at),
        kind: Contradiction::Result,
        told: "SUCCESS with a 500".into(),
    };
    world.ledger.note(claim.row, claim.life, vec![seen(5)]);
    world.ledger.note(claim.row, claim.life, vec![seen(6)]);
    expect(answer(404), 7, Contradiction::Answer, false);
    let view = world.view("c");
    let found: Vec<_> = view.differences.iter().map(|d| (d.kind, d.at)).collect();
    let expected = [
        (Contradiction::Receipt, secs(2)),
        (Contradiction::Answer, secs(4)),
        (Contradiction::Result, secs(5)),
    ];
    assert_eq!(found, expected);
    assert_eq!(&*view.differences[0].told, "the receipt said FAILED");
    assert_eq!(&*view.differences[1].told, "attempt 1 answered 404");
}

pub(crate) fn a_fact_needs_no_claim(make: Factory) {
    let world = make();
    let old = world.dead("c");
    let round = world.round("two", secs(1));
    assert!(round.claim.fence > old.fence);
    // The late answer comes to the one who parked the call long ago.
    world.settled(old, secs(2), answer(200));
    assert_eq!(
        world.append(round.claim, secs(3), queued(NOW)),
        Written::Stale
    );
    assert_eq!(world.view("c").state, State::Success);
}

pub(crate) fn a_fact_ends_a_dead_letter(make: Factory) {
    let ends = [
        (answer(200), DeadState::Settled),
        (receipt(Verdict::Success), DeadState::Settled),
        (answer(404), DeadState::Failed),
        (receipt(Verdict::Failed), DeadState::Failed),
    ];
    for (news, state) in ends {
        for manual in [false, true] {
            let world = make();
            let claim = world.claim(call("c"));
            let place = if manual {
                Place::Manual
            } else {
                Place::Queued { due: NOW }
            };
            world.applied(claim, NOW, Intention::Park(park(place)));
            world.settled(claim, secs(5), news.clone());
            let letter = world.letter("c");
            assert_eq!((letter.state, letter.ended_at), (state, Some(secs(5))));
            assert_eq!((letter.next_retry_time, letter.owner), (None, None));
            assert!(world.due("two", secs(9_999), 9).is_empty());
        }
    }
}

pub(crate) fn a_fact_about_an_earlier_life_changes_nothing(make: Factory) {
    let world = make();
    let first = world.claim(call("c"));
    world.settled(first, secs(1), unbinding(401));
    world.claim(call("c"));
    let before = world.view("c");
    assert_eq!(world.fact(first, secs(2), answer(200)), FactWritten::Gone);
    assert_eq!(world.view("c"), before);
    let nowhere = Claim {
        row: crate::ledger::RowId(99),
        ..first
    };
    assert_eq!(world.fact(nowhere, secs(2), answer(200)), FactWritten::Gone);
}

pub(crate) fn a_body_too_large_to_keep_leaves_its_digest(make: Factory) {
    let world = make();
    // Also one that nobody could make, since the body never came whole.
    for (id, sha256) in [("c", Some([9; 32])), ("d", None)] {
        let claim = world.claim(call(id));
        let body = Kept::Digest {
            bytes: 3_000_000_000,
            sha256,
        };
        let large = Reply { body, ..reply(200) };
        let answer = News::Answer {
            n: 1,
            reply: large.clone(),
            success: true,
        };
        world.settled(claim, secs(1), answer);
        let settled = world.known(call(id)).call.settled.clone();
        assert_eq!(settled.unwrap().reply, Some(large));
    }
}

pub(crate) fn headers_come_back_byte_for_byte(make: Factory) {
    let world = make();
    let mut headers = HeaderMap::new();
    headers.append("link", HeaderValue::from_static("<a>"));
    headers.append("link", HeaderValue::from_static("<b>; title=\"x: y\""));
    headers.append("x-empty", HeaderValue::from_static(""));
    headers.append("x-latin", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    let body = Kept::Whole(Bytes::from_static(b"\x00\xff binary"));
    let told = Reply {
        headers: headers.clone(),
        body,
        ..reply(500)
    };
    let new = NewCall {
        request: StoredRequest {
            headers: headers.clone(),
            body: Bytes::from_static(b"\xfe\x00"),
            credential: true,
            ..call("c").request
        },
        ..call("c")
    };
    let request = new.request.clone();
    let claim = world.claim(new);
    let how = Park {
        kept: Some(told.clone()),
        ..park(Place::Queued { due: NOW })
    };
    let outcome = Outcome::Unclear(Unclear::Disconnect);
    let took = Duration::from_millis(7);
    let detail = Some("connection reset by peer".into());
    let end = Entry::Ended {
        at: NOW,
        n: 1,
        outcome,
        took,
        late: true,
        detail,
    };
    world.ledger.note(claim.row, claim.life, vec![end.clone()]);
    world.applied(claim, NOW, Intention::Park(how));
    let due = world.round("two", secs(1));
    assert_eq!((due.request, due.call.kept.clone()), (request, Some(told)));
    assert!(due.call.history.contains(&end));
}

pub(crate) fn a_refusal_of_an_attempt_sent_again_settles_nothing(make: Factory) {
    for news in [answer(404), unbinding(429)] {
        let world = make();
        world.dead("c");
        let round = world.round("two", NOW);
        let send = Intention::Send {
            n: 2,
            cause: None,
            moved: None,
            lease_until: secs(60),
        };
        world.applied(round.claim, secs(1), send);
        assert_eq!(world.fact(round.claim, secs(2), news), FactWritten::Alone);
        assert_eq!(world.view("c").settled, None);
        world.settled(round.claim, secs(3), answer(201));
    }
}
