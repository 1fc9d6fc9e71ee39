//! The budget, in virtual time: C59.

use super::*;

fn at(ms: u64) -> Mono {
    Mono(ms * 1_000_000)
}

fn conf() -> RetryBudget {
    RetryBudget {
        ratio: 0.2,
        floor: 10,
        per_client: 1_000,
        rounds: 5,
        receipts: 3,
    }
}

fn paid(budget: &Arc<Budget>, client: &ClientName, now: Mono) -> bool {
    budget
        .pay(Payer::Caller(client), now)
        .is_ok_and(|mut paid| {
            paid.used();
            true
        })
}

#[test]
fn c59_an_outage_of_thirty_seconds_stays_within_a_fifth_and_the_floor() {
    let budget = Budget::new(conf());
    let client = ClientName::new("a");
    let (mut calls, mut resends, mut denied) = (0u64, 0u64, 0u64);
    // Ten healthy seconds, thirty without an answer, ten healthy ones; a call a millisecond.
    for ms in 0..50_000 {
        calls += 1;
        if (10_000..40_000).contains(&ms) {
            for _ in 0..3 {
                match paid(&budget, &client, at(ms)) {
                    true => resends += 1,
                    false => denied += 1,
                }
            }
        } else {
            budget.answered(at(ms));
        }
    }
    assert!(resends * 5 <= calls + 30 * 10 * 5, "{resends} of {calls}");
    assert_eq!(denied + resends, 90_000);
    // What the last healthy seconds brought is spent at first, then there is the floor.
    assert!((2_000..=2_320).contains(&resends), "{resends}");
    assert_eq!(budget.in_flight(), 0);
    // Retries work again at once, a second after the first answers.
    let again = (0..250)
        .filter(|_| paid(&budget, &client, at(50_000)))
        .count();
    assert_eq!(again, 250);
}

#[test]
fn a_share_lapses_after_its_window_and_the_floor_does_not_grow_beyond_a_second() {
    let budget = Budget::new(conf());
    let client = ClientName::new("a");
    for _ in 0..50 {
        budget.answered(at(500));
    }
    let count = |now| (0..100).filter(|_| paid(&budget, &client, now)).count();
    // Ten of the floor, ten of the share.
    assert_eq!(count(at(900)), 20);
    for _ in 0..50 {
        budget.answered(at(1_000));
    }
    assert_eq!(count(at(60_000)), 10);
    assert_eq!(count(at(60_050)), 0);
    assert_eq!(count(at(60_100)), 1);
}

#[test]
fn what_was_paid_for_nothing_is_given_back_and_nothing_is_given_back_twice() {
    let budget = Budget::new(RetryBudget { floor: 1, ..conf() });
    let client = ClientName::new("a");
    for _ in 0..3 {
        let unused = budget.pay(Payer::Caller(&client), at(1)).unwrap();
        assert_eq!(budget.in_flight(), 1);
        drop(unused);
        assert_eq!(budget.in_flight(), 0);
    }
    assert!(paid(&budget, &client, at(1)));
    assert!(!paid(&budget, &client, at(1)));
    let unpaid = budget.pay(Payer::Caller(&client), at(1));
    assert_eq!(unpaid.unwrap_err(), Unpaid::Budget);
}

#[test]
fn a_client_has_so_many_under_way_and_others_have_theirs() {
    let budget = Budget::new(RetryBudget {
        per_client: 2,
        ..conf()
    });
    let (noisy, quiet) = (ClientName::new("noisy"), ClientName::new("quiet"));
    let pay = |client| budget.pay(Payer::Caller(client), at(1));
    let mut held = vec![pay(&noisy).unwrap(), pay(&noisy).unwrap()];
    held.iter_mut().for_each(Paid::used);
    assert_eq!(pay(&noisy).unwrap_err(), Unpaid::Client);
    drop(pay(&quiet).unwrap());
    held.pop();
    drop(pay(&noisy).unwrap());
    drop(held);
    assert_eq!(budget.in_flight(), 0);
}

#[test]
fn c59_a_quiet_client_gets_its_resend_beside_a_noisy_one() {
    let budget = Budget::new(conf());
    let (noisy, quiet) = (ClientName::new("noisy"), ClientName::new("quiet"));
    let mut got = (0, 0);
    // A hundred wishes of the one, and then one of the other, every tenth of a second.
    for tenth in 0..300 {
        for _ in 0..100 {
            got.0 += u32::from(paid(&budget, &noisy, at(tenth * 100)));
        }
        got.1 += u32::from(paid(&budget, &quiet, at(tenth * 100)));
    }
    // Whoever comes once a second and finds nothing put by has the next second.
    assert!(got.1 >= 29, "{got:?}");
    assert!((290..=320).contains(&(got.0 + got.1)), "{got:?}");
    // Nothing is put by for one who wishes for nothing any more.
    let later = at(60_000);
    assert_eq!((0..20).filter(|_| paid(&budget, &noisy, later)).count(), 10);
}

#[test]
fn rounds_have_a_floor_that_callers_cannot_spend() {
    let budget = Budget::new(conf());
    let client = ClientName::new("a");
    while paid(&budget, &client, at(1)) {}
    let rounds = (0..20).filter(|_| {
        budget.pay(Payer::Round, at(1)).is_ok_and(|mut paid| {
            paid.used();
            true
        })
    });
    assert_eq!(rounds.count(), 5);
}

#[test]
fn questions_come_out_of_their_own_second() {
    let budget = Budget::new(conf());
    assert_eq!((0..10).filter(|_| budget.may_ask(at(1))).count(), 3);
    assert!(!budget.may_ask(at(100)));
    assert!(budget.may_ask(at(400)));
}

#[test]
fn other_numbers_keep_the_level() {
    let budget = Budget::new(conf());
    let client = ClientName::new("a");
    while paid(&budget, &client, at(1)) {}
    budget.change(RetryBudget {
        floor: 20,
        ..conf()
    });
    assert!(!paid(&budget, &client, at(1)), "a reload is no refill");
    assert_eq!(
        (0..50)
            .filter(|_| paid(&budget, &client, at(1_001)))
            .count(),
        20
    );
}
