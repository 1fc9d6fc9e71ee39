//! The gate: never more than its bound, never unfair, never stuck.

use std::time::Duration;

use super::*;

fn gate(max: usize, queue: usize) -> Arc<Gate> {
    Gate::new(Concurrency {
        max,
        queue,
        adaptive: Adaptive::Off,
    })
}

fn granted(entry: Entry) -> Permit {
    match entry {
        Entry::Granted(permit) => permit,
        Entry::Queued(_) | Entry::Full => panic!("there was a place"),
    }
}

fn queued(entry: Entry) -> Waiting {
    match entry {
        Entry::Queued(waiting) => waiting,
        Entry::Granted(_) | Entry::Full => panic!("it had to wait"),
    }
}

#[tokio::test]
async fn places_are_exact_and_the_queue_is_bounded() {
    let gate = gate(2, 1);
    let a = ClientName::new("a");
    let first = granted(gate.enter(&a));
    let second = granted(gate.enter(&a));
    assert!(gate.is_busy());
    let waiting = queued(gate.enter(&a));
    assert!(matches!(gate.enter(&a), Entry::Full));
    assert_eq!(gate.load(), (2, 1));
    drop(first);
    let third = waiting.turn().await.unwrap();
    assert_eq!(gate.load(), (2, 0));
    drop((second, third));
    assert_eq!(gate.load(), (0, 0));
    assert!(!gate.is_busy());
}

#[tokio::test]
async fn a_full_gate_says_so_to_whom_it_would_refuse_and_to_nobody_else() {
    let (noisy, quiet) = (ClientName::new("noisy"), ClientName::new("quiet"));
    for (max, queue) in [(1, 0), (1, 2), (2, 3)] {
        let gate = gate(max, queue);
        let mut inside = Vec::new();
        for _ in 0..max + queue {
            assert!(!gate.is_full(&noisy) && !gate.is_full(&quiet));
            inside.push(gate.enter(&noisy));
        }
        assert!(gate.is_full(&noisy));
        assert!(matches!(gate.enter(&noisy), Entry::Full));
        // Whoever has fewer calls waiting is made room for, and not told that there is none.
        let makes_room = queue > 1;
        assert_eq!(gate.is_full(&quiet), !makes_room);
        assert_eq!(matches!(gate.enter(&quiet), Entry::Full), !makes_room);
        drop(inside.remove(0));
        assert_eq!(gate.is_full(&noisy), makes_room && gate.load().1 == queue);
    }
}

#[tokio::test]
async fn clients_are_served_in_turn_however_many_calls_one_of_them_has() {
    let gate = gate(1, 100);
    let (noisy, quiet) = (ClientName::new("noisy"), ClientName::new("quiet"));
    let held = granted(gate.enter(&noisy));
    let noise: Vec<_> = (0..10).map(|_| queued(gate.enter(&noisy))).collect();
    let one = queued(gate.enter(&quiet));
    drop(held);
    let mut noise = noise.into_iter();
    // The noisy one was first in turn; the quiet one is next, before nine others.
    drop(noise.next().unwrap().turn().await.unwrap());
    drop(one.turn().await.unwrap());
    for waiting in noise {
        drop(waiting.turn().await.unwrap());
    }
    assert_eq!(gate.load(), (0, 0));
}

#[tokio::test]
async fn a_place_goes_to_the_client_that_has_the_fewest() {
    let gate = gate(4, 100);
    let [noisy, quiet, other] = ["noisy", "quiet", "other"].map(ClientName::new);
    let mut held: Vec<_> = (0..4).map(|_| granted(gate.enter(&noisy))).collect();
    let mut noise: Vec<_> = (0..10).map(|_| queued(gate.enter(&noisy))).collect();
    // The last to come, and the next to be served, whoever is first in turn.
    let mut one = queued(gate.enter(&quiet));
    drop(held.pop());
    assert_eq!(one.called(), Some(true));
    assert!(noise.iter_mut().all(|waiting| waiting.called().is_none()));
    let served = one.turn().await.unwrap();
    // One place each for who has none, then the shares even out.
    let mut many: Vec<_> = (0..3).map(|_| queued(gate.enter(&quiet))).collect();
    let mut new = queued(gate.enter(&other));
    drop(held.pop());
    assert_eq!(
        new.called(),
        Some(true),
        "it has none, the quiet one has one"
    );
    drop(held.pop());
    let called = |line: &mut Vec<Waiting>| line.iter_mut().filter_map(Waiting::called).count();
    assert_eq!(
        (called(&mut many), called(&mut noise)),
        (0, 1),
        "equals in turn"
    );
    drop((served, new, many, noise, held));
    assert_eq!(gate.load(), (0, 0));
    assert!(gate.0.lock().held.is_empty(), "a client stays behind");
}

#[tokio::test]
async fn a_full_queue_makes_room_for_a_client_that_fills_less_of_it() {
    let gate = gate(1, 4);
    let (noisy, quiet) = (ClientName::new("noisy"), ClientName::new("quiet"));
    let held = granted(gate.enter(&noisy));
    let mut noise: Vec<_> = (0..4).map(|_| queued(gate.enter(&noisy))).collect();
    assert!(matches!(gate.enter(&noisy), Entry::Full));
    let first = queued(gate.enter(&quiet));
    let second = queued(gate.enter(&quiet));
    // Two and two: nobody is noisy any more.
    assert!(matches!(gate.enter(&quiet), Entry::Full));
    assert_eq!(gate.load(), (1, 4));
    assert!(noise.pop().unwrap().turn().await.is_none());
    assert!(noise.pop().unwrap().turn().await.is_none());
    drop((noise, first, second, held));
    assert_eq!(gate.load(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn who_stops_waiting_leaves_no_place_behind_even_when_just_called() {
    let gate = gate(1, 10);
    let (a, b) = (ClientName::new("a"), ClientName::new("b"));
    let held = granted(gate.enter(&a));
    let impatient = queued(gate.enter(&a));
    let called = queued(gate.enter(&b));
    let last = queued(gate.enter(&a));
    let gave_up = tokio::time::timeout(Duration::from_millis(5), impatient.turn()).await;
    assert!(gave_up.is_err());
    assert_eq!(gate.load(), (1, 2));
    drop(held);
    // Its turn has come, and it leaves without having looked.
    drop(called);
    drop(last.turn().await.unwrap());
    assert_eq!(gate.load(), (0, 0));
}

#[tokio::test]
async fn other_numbers_keep_who_is_there_and_call_who_may_come() {
    let gate = gate(1, 4);
    let a = ClientName::new("a");
    let held = granted(gate.enter(&a));
    let waiting = queued(gate.enter(&a));
    let conf = Concurrency {
        max: 2,
        queue: 4,
        adaptive: Adaptive::Off,
    };
    gate.change(conf);
    let second = waiting.turn().await.unwrap();
    gate.change(Concurrency { max: 1, ..conf });
    assert_eq!(gate.load(), (2, 0));
    drop(held);
    assert!(gate.is_busy(), "the second one fills the smaller bound");
    drop(second);
    assert_eq!(gate.load(), (0, 0));
}

#[test]
fn a_bound_that_follows_the_tool_falls_with_failures_and_never_below_one() {
    let gate = Gate::new(Concurrency {
        max: 4,
        queue: 0,
        adaptive: Adaptive::Aimd,
    });
    let a = ClientName::new("a");
    for _ in 0..100 {
        let mut permit = granted(gate.enter(&a));
        permit.ended(false);
    }
    let only = granted(gate.enter(&a));
    assert!(matches!(gate.enter(&a), Entry::Full));
    drop(only);
}
