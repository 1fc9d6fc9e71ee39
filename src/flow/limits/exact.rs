//! Whatever comes in whatever order: no bound is ever passed, and in the end nothing is held.

use proptest::prelude::*;

use super::budget::{Budget, Paid, Payer};
use super::gate::{Entry, Gate, Permit, Waiting};
use super::rate::{Slot, Slots};
use super::*;
use crate::call::time::Mono;
use crate::config::limits::{Adaptive, Concurrency, RetryBudget};

const CLIENTS: [&str; 3] = ["a", "b", "c"];

/// What happens; the numbers say to whom.
#[derive(Clone, Copy, Debug)]
enum Does {
    Comes(usize),
    /// One of those who have a place leaves, after a send that went well or not.
    Leaves(usize, bool),
    /// One of those who wait gives up.
    GivesUp(usize),
    /// Those who wait look whether it is their turn.
    Looks,
    Changes(usize, usize),
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        4 => (0..CLIENTS.len()).prop_map(Does::Comes),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(n, well)| Does::Leaves(n, well)),
        1 => any::<usize>().prop_map(Does::GivesUp),
        2 => Just(Does::Looks),
        1 => (1..6_usize, 0..6_usize).prop_map(|(max, queue)| Does::Changes(max, queue)),
    ]
}

/// Those whose turn it is, and those who go on waiting; who was sent away is gone.
async fn look(waiting: Vec<Waiting>, inside: &mut Vec<Permit>) -> Vec<Waiting> {
    let mut still = Vec::new();
    for mut one in waiting {
        match one.called() {
            None => still.push(one),
            Some(true) => inside.extend(one.turn().await),
            Some(false) => drop(one),
        }
    }
    still
}

async fn gate_holds(steps: Vec<Does>, adaptive: Adaptive) {
    let conf = |max, queue| Concurrency {
        max,
        queue,
        adaptive,
    };
    let gate = Gate::new(conf(3, 3));
    let (mut max, mut queue) = (3, 3);
    let (mut inside, mut waiting) = (Vec::new(), Vec::new());
    for step in steps {
        let before = gate.load();
        match step {
            Does::Comes(client) => match gate.enter(&ClientName::new(CLIENTS[client])) {
                Entry::Granted(permit) => inside.push(permit),
                Entry::Queued(one) => waiting.push(one),
                Entry::Full => assert!(before.1 >= queue, "{before:?}"),
            },
            Does::Leaves(n, well) if !inside.is_empty() => {
                let mut permit = inside.swap_remove(n % inside.len());
                permit.ended(well);
            }
            Does::GivesUp(n) if !waiting.is_empty() => {
                drop(waiting.swap_remove(n % waiting.len()));
            }
            Does::Leaves(..) | Does::GivesUp(_) => {}
            Does::Looks => waiting = look(waiting, &mut inside).await,
            Does::Changes(to, waits) => {
                gate.change(conf(to, waits));
                (max, queue) = (to, waits);
            }
        }
        let (sends, waits) = gate.load();
        // A lower bound sends nobody away; it lets nobody more in.
        assert!(sends <= max.max(before.0), "{sends} at once of {max}");
        assert!(waits <= queue.max(before.1), "{waits} wait of {queue}");
        assert!(waits == 0 || sends > 0, "{waits} wait for nobody");
    }
    waiting = look(waiting, &mut inside).await;
    drop(inside);
    while !waiting.is_empty() {
        let mut inside = Vec::new();
        waiting = look(waiting, &mut inside).await;
        assert!(
            !inside.is_empty() || waiting.is_empty(),
            "somebody waits for ever"
        );
    }
    assert_eq!(gate.load(), (0, 0));
}

fn slots_hold(steps: &[(usize, bool)], most: usize) {
    let slots = Arc::new(Slots::default());
    let mut held: [Vec<Slot>; CLIENTS.len()] = Default::default();
    for (client, comes) in steps {
        let of = &mut held[*client];
        if !comes {
            drop(of.pop());
            continue;
        }
        let taken = slots.take(&ClientName::new(CLIENTS[*client]), most);
        assert_eq!(taken.is_some(), of.len() < most);
        of.extend(taken);
    }
    drop(held);
    assert!(slots.is_empty(), "{slots:?}");
}

/// `steps`: who, how many ms later, whether it is given back unused, whether the oldest ends first.
fn budget_holds(steps: &[(usize, u64, bool, bool)]) {
    let conf = RetryBudget {
        ratio: 0.0,
        floor: 4,
        per_client: 2,
        rounds: 3,
        receipts: 1,
    };
    let budget = Budget::new(conf);
    let (mut now, mut used, mut by_rounds) = (Mono(0), 0_u64, 0_u64);
    let mut held: Vec<(usize, Paid)> = Vec::new();
    for (client, ms, unused, ends) in steps {
        now = now.after(Duration::from_millis(*ms));
        if *ends && !held.is_empty() {
            drop(held.remove(0));
        }
        let Some(name) = CLIENTS.get(*client) else {
            if let Ok(mut paid) = budget.pay(Payer::Round, now) {
                paid.used();
                by_rounds += 1;
            }
            continue;
        };
        let name = ClientName::new(name);
        let under_way = held.iter().filter(|(of, _)| of == client).count();
        if let Ok(mut paid) = budget.pay(Payer::Caller(&name), now) {
            assert!(under_way < 2, "one too many under way");
            if !unused {
                paid.used();
                used += 1;
                held.push((*client, paid));
            }
        }
        assert_eq!(budget.in_flight(), held.len());
    }
    // A full second's worth at the start, and what has come in since.
    let all = (now.0 / 1_000_000 + 1_000) * 7 / 1_000;
    assert!(used + by_rounds <= all, "{used} and {by_rounds} of {all}");
    drop(held);
    assert_eq!(budget.in_flight(), 0);
}

proptest! {
    #[test]
    fn exact_limits_are_exact(steps in prop::collection::vec(does(), 1..120), follows: bool) {
        let adaptive = if follows { Adaptive::Aimd } else { Adaptive::Off };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(gate_holds(steps, adaptive));
    }

    #[test]
    fn a_clients_slots_are_exact(
        steps in prop::collection::vec((0..CLIENTS.len(), any::<bool>()), 1..200),
        most in 1..4_usize,
    ) {
        slots_hold(&steps, most);
    }

    #[test]
    fn a_budget_never_pays_more_than_it_has(
        steps in prop::collection::vec(
            (0..=CLIENTS.len(), 0..400_u64, any::<bool>(), any::<bool>()), 1..200,
        ),
    ) {
        budget_holds(&steps);
    }
}
