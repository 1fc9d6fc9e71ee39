//! Promises about alerts: every row is taken once, whoever changed it and whenever, and a note
//! lives until it is told.

use super::*;
use crate::call::alert::Event;
use crate::ledger::alert::{EXAMPLES_MAX, Note, Told, Untold, Watch};

const REPEAT: Duration = Duration::from_secs(3_600);

fn watch(route: &str, events: &[Event]) -> Arc<[Watch]> {
    Arc::from([Watch {
        route: route.into(),
        events: events.to_vec(),
        repeat: REPEAT,
    }])
}

fn orders() -> Arc<[Watch]> {
    watch("orders", &[Event::Manual, Event::Difference])
}

impl World {
    fn untold(&self, watches: &Arc<[Watch]>) -> Untold {
        self.ledger.untold(Arc::clone(watches)).wait().unwrap()
    }

    fn fold(&self, watches: &Arc<[Watch]>, now: Wall) {
        let watches = Arc::clone(watches);
        assert!(!self.ledger.fold_alerts(watches, now, 100).wait().unwrap());
    }

    fn alert_told(&self, event: Event, told: Told, now: Wall) {
        let verb = self.ledger.alert_told("orders".into(), event, told, now);
        verb.wait().unwrap();
    }

    fn note_of(&self, event: Event) -> Note {
        let notes = self.untold(&orders()).notes;
        let mut found = notes.into_iter().filter(|note| note.event == event);
        found.next().expect("the event has a note")
    }

    fn to_a_human(&self, new: NewCall) {
        let claim = self.claim(new);
        self.applied(claim, NOW, Intention::Park(park(Place::Manual)));
    }
}

pub(crate) fn a_row_is_taken_into_an_alert_once(make: Factory) {
    let world = make();
    world.to_a_human(call("a"));
    world.dead("queued");
    let elsewhere = NewCall {
        route: "returns".into(),
        ..call("elsewhere")
    };
    world.to_a_human(elsewhere);
    assert!(world.untold(&orders()).fresh);
    assert_eq!(world.untold(&orders()).notes, []);
    world.fold(&orders(), secs(1));
    world.fold(&orders(), secs(2));
    let seen = world.untold(&orders());
    assert!(!seen.fresh);
    let note = world.note_of(Event::Manual);
    assert_eq!(
        (note.standing.waiting, note.held, note.since),
        (1, 0, secs(1))
    );
    assert_eq!(note.examples.len(), 1);
    assert_eq!(note.examples[0].call_id, id("a"));
    assert_eq!(&*note.examples[0].reason, "timeout");
    // The other route's row is there for whoever wants it.
    assert!(world.untold(&watch("returns", &[Event::Manual])).fresh);
}

pub(crate) fn a_round_that_ends_in_front_of_a_human_is_taken_too(make: Factory) {
    let world = make();
    world.dead("a");
    let due = world.round("one", NOW);
    world.fold(&orders(), NOW);
    assert_eq!(world.untold(&orders()).notes, []);
    let manual = Intention::Manual {
        reason: "rounds-exhausted".into(),
        round: 3,
        reached: true,
        last_error: "receipt: UNKNOWN".into(),
    };
    world.applied(due.claim, secs(1), manual);
    world.fold(&orders(), secs(2));
    assert_eq!(
        &*world.note_of(Event::Manual).examples[0].reason,
        "rounds-exhausted"
    );
}

pub(crate) fn a_difference_is_taken_once_per_kind(make: Factory) {
    let world = make();
    let claim = world.claim(call("a"));
    world.settled(claim, NOW, answer(200));
    for _ in 0..2 {
        let written = world.fact(claim, secs(1), receipt(Verdict::Failed));
        assert!(matches!(written, FactWritten::Difference { .. }));
        world.fold(&orders(), secs(2));
    }
    let note = world.note_of(Event::Difference);
    assert_eq!(note.standing.waiting, 1);
    assert_eq!(&*note.examples[0].reason, "receipt");
    // Nobody wanted to be told of this one, and nobody will be.
    let other = world.claim(call("b"));
    world.settled(other, NOW, answer(200));
    let written = world.fact(other, secs(1), receipt(Verdict::Failed));
    assert!(matches!(written, FactWritten::Difference { .. }));
    world.fold(&watch("returns", &[Event::Difference]), secs(3));
    assert!(!world.untold(&orders()).fresh);
    assert_eq!(world.note_of(Event::Difference).standing.waiting, 1);
}

pub(crate) fn what_comes_up_in_the_window_is_held_for_the_next_alert(make: Factory) {
    let world = make();
    world.to_a_human(call("a"));
    world.fold(&orders(), secs(1));
    world.alert_told(Event::Manual, Told::Delivered { count: 1 }, secs(2));
    let note = world.note_of(Event::Manual);
    assert_eq!((note.told, note.standing.waiting), (1, 0));
    assert_eq!(note.standing.told_at, Some(secs(2)));
    for n in 0..EXAMPLES_MAX + 2 {
        world.to_a_human(call(&format!("b{n}")));
    }
    world.fold(&orders(), secs(60));
    let note = world.note_of(Event::Manual);
    assert_eq!((note.standing.waiting, note.held), (7, 7));
    assert_eq!(note.since, secs(60));
    assert_eq!(note.examples.len(), EXAMPLES_MAX);
    // While that one is under way another call comes up.
    world.to_a_human(call("c"));
    world.fold(&orders(), secs(4_000));
    world.alert_told(Event::Manual, Told::Delivered { count: 7 }, secs(4_001));
    let note = world.note_of(Event::Manual);
    assert_eq!((note.told, note.standing.waiting), (2, 1));
}

pub(crate) fn a_failed_delivery_is_kept_with_its_tries(make: Factory) {
    let world = make();
    world.to_a_human(call("a"));
    world.fold(&orders(), secs(1));
    let before = world.note_of(Event::Manual);
    for n in 1..=3_u32 {
        let next_try = secs(u64::from(n) * 10);
        world.alert_told(Event::Manual, Told::Failed { next_try }, secs(2));
        let note = world.note_of(Event::Manual);
        assert_eq!(
            (note.standing.tries, note.standing.next_try),
            (n, Some(next_try))
        );
        assert_eq!(
            (note.told, note.since, &note.examples),
            (0, before.since, &before.examples)
        );
    }
    world.alert_told(Event::Manual, Told::Over, secs(50));
    let note = world.note_of(Event::Manual);
    assert_eq!((note.standing.waiting, note.standing.tries), (0, 0));
    // What has no note has nothing to note.
    world.alert_told(Event::Reversed, Told::Over, secs(50));
    assert_eq!(world.untold(&orders()).notes.len(), 1);
}

pub(crate) fn the_oldest_open_call_is_told_by_route(make: Factory) {
    let world = make();
    let of_route = watch("orders", &[Event::OldestOver]);
    assert_eq!(world.untold(&of_route).oldest, [None]);
    let late = world.claim(call("late"));
    world.applied(late, secs(9), queued(secs(9)));
    world.to_a_human(call("first"));
    let settled = world.dead("settled");
    world.settled(settled, secs(1), receipt(Verdict::Success));
    assert_eq!(world.untold(&of_route).oldest, [Some(NOW)]);
    assert_eq!(world.untold(&watch("returns", &[])).oldest, [None]);
    world.fold(&of_route, secs(10));
    let note = world.note_of(Event::OldestOver);
    assert_eq!(note.standing.waiting, 1);
    assert_eq!(note.examples[0].call_id, id("first"));
}

pub(crate) fn many_rows_are_taken_in_pieces(make: Factory) {
    let world = make();
    for n in 0..5 {
        world.to_a_human(call(&format!("a{n}")));
    }
    let fold = || {
        world
            .ledger
            .fold_alerts(orders(), secs(1), 2)
            .wait()
            .unwrap()
    };
    assert_eq!([fold(), fold(), fold()], [true, true, false]);
    assert_eq!(world.note_of(Event::Manual).standing.waiting, 5);
}
