//! Promises about the whole story of a call: every life, every id, every call that may be the same.

use super::*;
use crate::ledger::story::{Found, Story};
use crate::ledger::{Entry, SettledBy};

impl World {
    fn stories(&self, name: &str) -> Vec<Story> {
        self.ledger.stories(None, name.into()).wait().unwrap()
    }

    fn story(&self, name: &str) -> Story {
        let mut found = self.stories(name);
        assert_eq!(found.len(), 1, "{name}");
        found.remove(0)
    }
}

pub(crate) fn a_call_is_found_by_its_id_an_alias_and_its_key(make: Factory) {
    let world = make();
    let new = NewCall {
        business_key: Some("order-7".into()),
        ..keyed("first", "k")
    };
    world.claim(new.clone());
    world.begin(NewCall {
        call_id: id("second"),
        now: secs(3),
        ..new
    });
    for (name, how) in [
        ("first", Found::CallId),
        ("second", Found::Alias),
        ("k", Found::Key),
        ("order-7", Found::Key),
    ] {
        let story = world.story(name);
        assert_eq!(
            (story.found, &story.call.call_id),
            (how, &id("first")),
            "{name}"
        );
        assert_eq!(story.call, world.view("first"));
        assert_eq!(&*story.policy, "policy one");
        let aliases: Vec<_> = story
            .aliases
            .iter()
            .map(|alias| (&alias.call_id, alias.at))
            .collect();
        assert_eq!(aliases, [(&id("second"), secs(3))]);
    }
    assert_eq!(world.stories("nobody"), []);
    assert_eq!(world.stories("no call id\u{e9}"), []);
}

pub(crate) fn earlier_lives_of_an_id_are_told(make: Factory) {
    let world = make();
    let first = world.claim(keyed("c", "k"));
    world
        .ledger
        .fact(Fact {
            row: first.row,
            life: 1,
            now: secs(1),
            entries: vec![Entry::Ended {
                at: secs(1),
                n: 1,
                outcome: crate::call::outcome::Outcome::Answered(
                    crate::call::outcome::Reading::by_status(StatusCode::TOO_MANY_REQUESTS),
                ),
                took: Duration::from_millis(7),
                late: false,
                detail: None,
            }],
            news: unbinding(429),
        })
        .wait()
        .map(|written| assert_eq!(written, FactWritten::Applied))
        .unwrap();
    let second = world.claim(NewCall {
        now: secs(5),
        ..call("c")
    });
    assert_eq!((second.row, second.life), (first.row, 2));
    let story = world.story("c");
    let [past] = &story.past[..] else {
        panic!("{:?}", story.past)
    };
    let end = past.end.as_ref().expect("the end of a life is kept");
    assert_eq!(end.settled, Some((SettledBy::Answer(1), secs(1))));
    assert_eq!(end.status, Some(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(
        (end.received_at, end.idempotency_key.as_deref()),
        (NOW, Some("k"))
    );
    let kinds: Vec<_> = past.history.iter().map(Entry::at).collect();
    assert_eq!(kinds, [NOW, secs(1)]);
    assert!(matches!(past.history[0], Entry::Sent { n: 1, .. }));
    assert_eq!(story.call.life, 2);
}

pub(crate) fn an_earlier_dead_letter_stays_in_the_story(make: Factory) {
    let world = make();
    let claim = world.claim(call("c"));
    world.applied(claim, secs(1), Intention::Park(park(Place::NeverSent)));
    world.claim(NewCall {
        now: secs(5),
        ..call("c")
    });
    let story = world.story("c");
    let letter = story.past[0].dead_letter.as_ref().expect("it was parked");
    assert_eq!(letter.state, DeadState::Failed);
    assert_eq!(story.call.dead_letter, None);
    world
        .ledger
        .purge(NOW.after(RETENTION * 2), 9)
        .wait()
        .unwrap();
    assert_eq!(world.story("c").past.len(), 1);
}

pub(crate) fn calls_that_may_be_the_same_are_named(make: Factory) {
    let world = make();
    let first = world.claim(keyed("first", "k"));
    world.settled(first, secs(1), answer(422));
    // The key was freed by the refusal, and is used again.
    world.claim(NewCall {
        now: secs(2),
        fingerprint: Fingerprint([8; 32]),
        ..keyed("same-key", "k")
    });
    world.claim(NewCall {
        now: secs(3),
        ..keyed("same-request", "other")
    });
    for stranger in [
        NewCall {
            client: ClientName::new("other"),
            exclusive_id: false,
            ..keyed("other-client", "k")
        },
        NewCall {
            route: "returns".into(),
            scope: scope("returns", &[]),
            ..keyed("other-route", "k")
        },
        NewCall {
            fingerprint: Fingerprint([9; 32]),
            ..call("other-request")
        },
    ] {
        world.claim(stranger);
    }
    let story = world.story("first");
    let kin: Vec<_> = story
        .kin
        .iter()
        .map(|kin| (kin.call_id.as_str(), kin.same_key, kin.same_request))
        .collect();
    assert_eq!(
        kin,
        [("same-key", true, false), ("same-request", false, true)]
    );
    assert_eq!(story.kin[0].received_at, secs(2));
    assert_eq!(story.kin[0].remembered_until, secs(2).after(WINDOW));
    assert!(story.searched_all);
    // The newest call with a key is the one the key means.
    assert_eq!(world.stories("k").len(), 2);
    let own = world
        .ledger
        .stories(Some(ClientName::anonymous()), "k".into());
    let own: Vec<_> = own
        .wait()
        .unwrap()
        .iter()
        .map(|s| s.call.call_id.clone())
        .collect();
    assert_eq!(own, [id("other-route")]);
}

pub(crate) fn an_id_of_several_clients_has_several_stories(make: Factory) {
    let world = make();
    for client in ["a", "b"] {
        world.claim(NewCall {
            client: ClientName::new(client),
            exclusive_id: false,
            ..call("c")
        });
    }
    assert_eq!(world.stories("c").len(), 2);
    let one = world
        .ledger
        .stories(Some(ClientName::new("b")), "c".into())
        .wait()
        .unwrap();
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].call.client.as_str(), "b");
}
