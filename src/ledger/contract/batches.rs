//! Batches: written once, claimed in order and once, ended once, counted in the same step.

use std::collections::BTreeSet;

use super::*;
use crate::ledger::batch::{
    Added, BatchState, BatchView, Counts, FollowLook, ItemCall, ItemDue, ItemEnd, ItemState,
    NewBatch, NewItem, Opened, Turn, Turned, WhichBatches,
};
use crate::ledger::{OwnerTest, SettledBy};

fn new_batch(name: &str) -> NewBatch {
    NewBatch {
        name: name.into(),
        client: ClientName::anonymous(),
        route: "orders".into(),
        workers: 20,
        now: NOW,
    }
}

fn item(line: u32) -> NewItem {
    NewItem {
        line,
        hash: [u8::try_from(line % 200).unwrap(); 16],
        call: Ok(ItemCall {
            call_id: id(&format!("item-{line}")),
            source: IdSource::Gateway,
            key: Some(format!("key-{line}").into()),
            request: call("x").request,
        }),
    }
}

fn bad(line: u32) -> NewItem {
    NewItem {
        call: Err("no such column".into()),
        ..item(line)
    }
}

fn ended(line: u32, state: ItemState, outcome: &str, attempts: u32) -> ItemEnd {
    ItemEnd {
        line,
        state,
        attempts,
        status: Some(201),
        outcome: outcome.into(),
        error: (state != ItemState::Done).then(|| "why".into()),
        original: None,
    }
}

fn done(line: u32) -> ItemEnd {
    ended(line, ItemState::Done, "answered", 1)
}

fn lines(due: &[ItemDue]) -> Vec<u32> {
    due.iter().map(|item| item.line).collect()
}

impl World {
    fn opened(&self, name: &str) -> BatchView {
        match self.ledger.open_batch(new_batch(name)).wait().unwrap() {
            Opened::New(view) | Opened::Known(view) => view,
            Opened::Other(view) => panic!("another's: {view:?}"),
        }
    }

    fn added(&self, batch: &BatchView, items: Vec<NewItem>) -> Added {
        self.ledger.add_items(batch.id, NOW, items).wait().unwrap()
    }

    /// A running batch with these items.
    fn batch_of(&self, name: &str, items: Vec<NewItem>) -> BatchView {
        let batch = self.opened(name);
        assert!(matches!(self.added(&batch, items), Added::Applied { .. }));
        let loaded = self.ledger.batch_loaded(batch.id, NOW).wait().unwrap();
        loaded.expect("it is there")
    }

    fn batch(&self, name: &str) -> BatchView {
        let found = self.ledger.batch(name.into()).wait().unwrap();
        found.expect("it is there")
    }

    fn claimed(&self, batch: &BatchView, who: &str, limit: usize) -> Vec<ItemDue> {
        let until = NOW.after(LEASE);
        self.ledger
            .claim_items(batch.id, owner(who), until, limit)
            .wait()
            .unwrap()
    }

    fn end_items(&self, batch: &BatchView, who: &str, ends: Vec<ItemEnd>) -> u64 {
        self.ledger
            .end_items(batch.id, owner(who), secs(1), ends)
            .wait()
            .unwrap()
    }

    fn turned(&self, name: &str, turn: Turn) -> Turned {
        let turned = self.ledger.turn_batch(name.into(), turn, secs(2));
        turned.wait().unwrap().expect("it is there")
    }

    fn item_states(&self, batch: &BatchView) -> Vec<(u32, ItemState)> {
        let items = self.ledger.items(batch.id, None, 0, 100).wait().unwrap();
        items.iter().map(|item| (item.line, item.state)).collect()
    }
}

pub(crate) fn nothing_of_a_batch_runs_before_its_last_item_came(new: Factory) {
    let world = new();
    let batch = world.opened("night");
    assert_eq!(batch.state, BatchState::Loading);
    let added = world.added(&batch, vec![item(2), bad(3), item(4)]);
    assert_eq!(added, Added::Applied { new: 3, known: 0 });
    assert!(world.claimed(&batch, "one", 9).is_empty());
    let open = |which| world.ledger.batches(which, 9).wait().unwrap().len();
    assert_eq!((open(WhichBatches::Open), open(WhichBatches::All)), (0, 1));
    world.ledger.batch_loaded(batch.id, NOW).wait().unwrap();
    let view = world.batch("night");
    assert_eq!((view.state, view.last_line), (BatchState::Running, 4));
    let counts = Counts {
        waiting: 2,
        bad: 1,
        ..Counts::default()
    };
    assert_eq!((view.counts, view.counts.total()), (counts, 3));
    let due = world.claimed(&batch, "one", 9);
    assert_eq!(lines(&due), [2, 4]);
    let expected = item(4).call.unwrap();
    assert_eq!(due[1].call, expected, "what was written comes back");
    assert_eq!(due[1].seen_at, NOW);
}

pub(crate) fn a_name_is_one_batch_of_one_client_and_route(new: Factory) {
    let world = new();
    let first = world.opened("night");
    assert_eq!(world.opened("night").id, first.id);
    for other in [
        NewBatch {
            route: "parcels".into(),
            ..new_batch("night")
        },
        NewBatch {
            client: ClientName::new("billing"),
            ..new_batch("night")
        },
    ] {
        let opened = world.ledger.open_batch(other).wait().unwrap();
        assert_eq!(opened, Opened::Other(first.clone()));
    }
}

pub(crate) fn the_same_lines_are_not_added_twice_and_others_are_refused(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", vec![item(2), bad(3)]);
    let again = world.added(&batch, vec![item(2), bad(3)]);
    assert_eq!(again, Added::Applied { new: 0, known: 2 });
    assert_eq!(world.batch("night").state, BatchState::Running);
    let changed = NewItem {
        hash: [99; 16],
        ..item(3)
    };
    assert_eq!(
        world.added(&batch, vec![item(2), changed, item(4)]),
        Added::Differs(3)
    );
    assert_eq!(world.batch("night").counts.total(), 2, "all or none");
    let between = world.batch_of("gaps", vec![item(2), item(9)]);
    assert_eq!(world.added(&between, vec![item(5)]), Added::Differs(5));
    let more = world.added(&batch, vec![bad(3), item(4)]);
    assert_eq!(more, Added::Applied { new: 1, known: 1 });
    let view = world.batch("night");
    assert_eq!(
        view.state,
        BatchState::Loading,
        "what is new is not sent yet"
    );
    assert!(world.claimed(&batch, "one", 9).is_empty());
    world.ledger.batch_loaded(batch.id, NOW).wait().unwrap();
    assert_eq!(lines(&world.claimed(&batch, "one", 9)), [2, 4]);
}

pub(crate) fn items_are_claimed_in_order_and_once(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=60).map(item).collect());
    let other = world.batch_of("other", vec![item(1)]);
    let first = world.claimed(&batch, "one", 50);
    assert_eq!(lines(&first), (1..=50).collect::<Vec<_>>());
    let second = world.claimed(&batch, "two", 50);
    assert_eq!(lines(&second), (51..=60).collect::<Vec<_>>());
    assert!(world.claimed(&batch, "one", 50).is_empty());
    let ids: BTreeSet<_> = first
        .iter()
        .chain(&second)
        .map(|i| &i.call.call_id)
        .collect();
    assert_eq!(ids.len(), 60);
    let counts = world.batch("night").counts;
    assert_eq!((counts.waiting, counts.leased), (0, 60));
    assert_eq!(lines(&world.claimed(&other, "one", 50)), [1]);
}

pub(crate) fn an_item_ends_once_and_the_last_one_ends_the_batch(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=4).map(item).collect());
    world.claimed(&batch, "one", 4);
    assert_eq!(world.end_items(&batch, "two", vec![done(1)]), 0, "not his");
    let ends = vec![
        done(1),
        ended(2, ItemState::Done, "receipt", 2),
        // Another call's sends are not this item's.
        ItemEnd {
            original: Some(id("first")),
            ..ended(3, ItemState::Refused, "answered", 4)
        },
    ];
    assert_eq!(world.end_items(&batch, "one", ends), 3);
    assert_eq!(
        world.end_items(&batch, "one", vec![done(3)]),
        0,
        "it has ended"
    );
    assert_eq!(world.batch("night").state, BatchState::Running);
    let last = ended(4, ItemState::Done, "replayed", 0);
    let last = ItemEnd {
        original: Some(id("first")),
        ..last
    };
    assert_eq!(world.end_items(&batch, "one", vec![last]), 1);
    let view = world.batch("night");
    assert_eq!(
        (view.state, view.ended_at),
        (BatchState::Finished, Some(secs(1)))
    );
    let counts = Counts {
        done: 3,
        refused: 1,
        retried: 1,
        by_receipt: 1,
        replayed: 1,
        ..Counts::default()
    };
    assert_eq!(view.counts, counts);
    let items = world.ledger.items(batch.id, None, 2, 9).wait().unwrap();
    assert_eq!(items.len(), 2);
    assert_eq!(items[0].error.as_deref(), Some("why"));
    assert_eq!(items[0].key.as_deref(), Some("key-3"));
    assert_eq!(items[1].original, Some(id("first")));
    let refused = Some(ItemState::Refused);
    let refused = world.ledger.items(batch.id, refused, 0, 9).wait().unwrap();
    assert_eq!(refused.len(), 1);
}

pub(crate) fn a_dead_owners_items_are_claimed_again_under_the_same_ids(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=3).map(item).collect());
    let before = world.claimed(&batch, "one", 2);
    world.claimed(&batch, "two", 1);
    let ledger = &world.ledger;
    let recover = |now, dead| {
        ledger
            .recover_items(owner("two"), now, dead)
            .wait()
            .unwrap()
    };
    assert_eq!(recover(secs(1), OwnerTest::LeaseRanOut), 0);
    assert_eq!(recover(secs(31), OwnerTest::LeaseRanOut), 2);
    let after = world.claimed(&batch, "two", 9);
    let calls = |due: &[ItemDue]| due.iter().map(|i| i.call.clone()).collect::<Vec<_>>();
    assert_eq!(calls(&after), calls(&before));
    assert_eq!(
        world.end_items(&batch, "one", vec![done(1)]),
        0,
        "a stale owner writes nothing"
    );
    let extend = |who, at| ledger.extend_items(batch.id, owner(who), at).wait();
    assert_eq!(extend("two", secs(90)).unwrap(), 3);
    assert_eq!(extend("one", secs(90)).unwrap(), 0);
    let recover_three = |now, dead| {
        let recovered = ledger.recover_items(owner("three"), now, dead);
        recovered.wait().unwrap()
    };
    assert_eq!(recover_three(secs(60), OwnerTest::LeaseRanOut), 0);
    assert_eq!(recover_three(secs(60), OwnerTest::AllOthers), 3);
    assert_eq!(world.batch("night").counts.waiting, 3);
}

pub(crate) fn a_paused_batch_begins_nothing_new(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=3).map(item).collect());
    world.claimed(&batch, "one", 2);
    let Turned::Done(paused) = world.turned("night", Turn::Pause) else {
        panic!("a running batch can be paused");
    };
    assert_eq!(paused.state, BatchState::Paused);
    assert!(world.claimed(&batch, "one", 9).is_empty());
    let back = world
        .ledger
        .return_items(batch.id, owner("one"), NOW, vec![2, 3]);
    assert_eq!(back.wait().unwrap(), 1, "only what he holds");
    assert_eq!(
        world.end_items(&batch, "one", vec![done(1)]),
        1,
        "what runs ends"
    );
    assert!(matches!(
        world.turned("night", Turn::Resume),
        Turned::Done(_)
    ));
    assert_eq!(lines(&world.claimed(&batch, "one", 9)), [2, 3]);
    assert_eq!(world.end_items(&batch, "one", vec![done(2), done(3)]), 2);
    for turn in [Turn::Pause, Turn::Resume, Turn::Cancel] {
        assert!(matches!(world.turned("night", turn), Turned::Not(_)));
    }
    let nobody = world.ledger.turn_batch("nobody".into(), Turn::Pause, NOW);
    assert_eq!(nobody.wait().unwrap(), None);
}

pub(crate) fn a_cancelled_batch_ends_what_was_not_begun(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=5).map(item).collect());
    world.claimed(&batch, "one", 1);
    assert!(matches!(
        world.turned("night", Turn::Cancel),
        Turned::Done(_)
    ));
    let cancel = || world.ledger.cancel_items(batch.id, NOW, 3).wait().unwrap();
    assert_eq!((cancel(), cancel(), cancel()), (3, 1, 0));
    assert_eq!(world.batch("night").ended_at, None, "one still runs");
    assert_eq!(world.end_items(&batch, "one", vec![done(1)]), 1);
    let view = world.batch("night");
    assert_eq!(
        (view.state, view.ended_at),
        (BatchState::Cancelled, Some(secs(1)))
    );
    let cancelled = |line| (line, ItemState::Cancelled);
    let mut expected = vec![(1, ItemState::Done)];
    expected.extend((2..=5).map(cancelled));
    assert_eq!(world.item_states(&batch), expected);
    assert_eq!(world.added(&batch, vec![item(1)]), Added::Closed);
}

pub(crate) fn an_unresolved_item_follows_a_call_of_its_clients_former_name(new: Factory) {
    let world = new();
    // The shop was called store when the call was first made, and when another one took its key.
    let store = ClientName::new("store");
    let shop = ClientName::new("shop").with_former(&["store".into()]);
    let made = NewBatch {
        client: store.clone(),
        ..new_batch("night")
    };
    let Opened::New(batch) = world.ledger.open_batch(made.clone()).wait().unwrap() else {
        panic!("it is new");
    };
    assert!(matches!(
        world.added(&batch, vec![item(1), item(2)]),
        Added::Applied { new: 2, .. }
    ));
    world.ledger.batch_loaded(batch.id, NOW).wait().unwrap();
    world.claimed(&batch, "one", 2);
    let own = world.claim(NewCall {
        client: store.clone(),
        ..call("item-1")
    });
    let first = world.claim(NewCall {
        client: store,
        ..keyed("first", "key")
    });
    let joining = NewCall {
        client: shop.clone(),
        ..keyed("item-2", "key")
    };
    assert!(matches!(world.begin(joining), Begun::KeyTaken(_)));
    let open = |line| ended(line, ItemState::Unresolved, "unresolved", 1);
    world.end_items(&batch, "one", vec![open(1), open(2)]);
    for claim in [own, first] {
        world.settled(claim, secs(2), receipt(Verdict::Success));
    }
    let look = |client: &ClientName| {
        let look = FollowLook {
            batch: batch.id,
            client: client.clone(),
            after: 0,
            limit: 9,
        };
        world.ledger.follow_items(look, secs(3)).wait().unwrap()
    };
    assert_eq!(
        look(&ClientName::new("shop")).ended,
        1,
        "only the one that came as shop"
    );
    assert_eq!(look(&shop).ended, 1, "and the one that came as store");
    // The batch is the shop's too.
    let again = |client| {
        let again = NewBatch {
            client,
            ..made.clone()
        };
        world.ledger.open_batch(again).wait().unwrap()
    };
    assert!(matches!(again(shop), Opened::Known(_)));
    assert!(matches!(again(ClientName::new("shop")), Opened::Other(_)));
}

pub(crate) fn an_unresolved_item_follows_its_call(new: Factory) {
    let world = new();
    let batch = world.batch_of("night", (1..=4).map(item).collect());
    world.claimed(&batch, "one", 4);
    let claims: Vec<Claim> = ["item-1", "item-2", "item-3"]
        .iter()
        .map(|name| world.dead(name))
        .collect();
    // The fourth came with the key of another call, and has that one's end.
    let first = world.claim(keyed("first", "key"));
    world.applied(first, NOW, queued(NOW));
    assert!(matches!(
        world.begin(keyed("item-4", "key")),
        Begun::KeyTaken(_)
    ));
    let open = |line| ended(line, ItemState::Unresolved, "unresolved", 1);
    world.end_items(&batch, "one", (1..=4).map(open).collect());
    let view = world.batch("night");
    assert_eq!(
        (view.state, view.counts.unresolved),
        (BatchState::Finished, 4)
    );
    let found = world.ledger.item_of(id("item-2")).wait().unwrap();
    assert_eq!(found, Some(("night".into(), 2)));
    world.settled(claims[0], secs(2), receipt(Verdict::Success));
    world.settled(claims[1], secs(2), answer(422));
    world.settled(first, secs(2), receipt(Verdict::Success));
    let follow = |after, limit| {
        let look = FollowLook {
            batch: batch.id,
            client: ClientName::anonymous(),
            after,
            limit,
        };
        let looked = world.ledger.follow_items(look, secs(3)).wait().unwrap();
        (looked.ended, looked.next)
    };
    assert_eq!(follow(0, 3), (2, Some(3)));
    assert_eq!(follow(3, 3), (1, Some(4)));
    assert_eq!(follow(4, 3), (0, None));
    let items = world.ledger.items(batch.id, None, 0, 9).wait().unwrap();
    let seen: Vec<_> = items
        .iter()
        .map(|item| (item.state, item.outcome.as_deref().unwrap()))
        .collect();
    let expected = [
        (ItemState::Done, "receipt"),
        (ItemState::Refused, "answered"),
        (ItemState::Unresolved, "unresolved"),
        (ItemState::Done, "receipt"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(
        (items[0].error.as_deref(), items[1].status),
        (None, Some(422))
    );
    let counts = world.batch("night").counts;
    assert_eq!((counts.unresolved, counts.by_receipt), (1, 2));
    assert_eq!(world.ledger.item_of(id("item-2")).wait().unwrap(), None);
    let settled = world.view("item-1").settled.expect("it is settled");
    assert_eq!(settled.by, SettledBy::Receipt);
}

pub(crate) fn a_batch_stays_for_its_retention_and_while_it_is_open(new: Factory) {
    let world = new();
    let over = world.batch_of("over", (1..=3).map(item).collect());
    let open = world.batch_of("open", vec![item(1)]);
    world.claimed(&over, "one", 9);
    world.end_items(&over, "one", (1..=3).map(done).collect());
    world.claimed(&open, "one", 9);
    let unresolved = ended(1, ItemState::Unresolved, "unresolved", 1);
    world.end_items(&open, "one", vec![unresolved]);
    let purge = |now| world.ledger.purge_batches(now, 2).wait().unwrap();
    assert_eq!(purge(secs(1)).calls, 0);
    let late = secs(1).after(RETENTION);
    assert_eq!((purge(late).calls, purge(late).calls), (2, 1));
    let last = purge(late);
    assert_eq!((last.calls, last.more), (0, false));
    let left = world.ledger.batches(WhichBatches::All, 9).wait().unwrap();
    assert_eq!(left.len(), 1);
    assert_eq!(&*left[0].name, "open");
}
