//! The wheel under tokio's paused clock: never early, at most a tick late, asleep when empty.

use super::*;
use crate::clock::Clock;

const MS: Duration = Duration::from_millis(1);

#[tokio::test(start_paused = true)]
async fn a_sleep_is_never_early_and_at_most_a_tick_late() {
    let clock = Clock::start();
    let wheel = Wheel::start();
    for ms in [
        0u32, 1, 9, 10, 11, 250, 1_000, 20_470, 20_480, 20_490, 61_003, 3_600_000,
    ] {
        let began = clock.mono();
        wheel.sleep(MS * ms).await;
        let slept = clock.mono().since(began);
        assert!(slept >= MS * ms, "{ms}: {slept:?}");
        assert!(slept <= MS * ms + TICK + MS, "{ms}: {slept:?}");
    }
    assert!(wheel.is_empty());
}

#[tokio::test(start_paused = true)]
async fn sleeps_end_in_their_order_whatever_the_order_they_began_in() {
    let wheel = Wheel::start();
    let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
    for ms in [700u32, 30, 45_000, 31, 500, 20_500, 20] {
        let sleep = wheel.sleep(MS * ms);
        let tx = tx.clone();
        tokio::spawn(async move {
            sleep.await;
            tx.send(ms).unwrap();
        });
    }
    drop(tx);
    let mut ended = Vec::new();
    while let Some(ms) = rx.recv().await {
        ended.push(ms);
    }
    assert_eq!(ended, [20, 30, 31, 500, 700, 20_500, 45_000]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_or_reset_sleep_leaves_nothing_behind() {
    let clock = Clock::start();
    let wheel = Wheel::start();
    let mut kept = wheel.sleep(MS * 50);
    for _ in 0..10_000 {
        drop(wheel.sleep(MS * 40));
    }
    assert_eq!(wheel.len(), 1);
    tokio::time::sleep(MS * 30).await;
    kept.reset(MS * 200);
    let began = clock.mono();
    (&mut kept).await;
    assert!(clock.mono().since(began) >= MS * 200);
    // Its end is its end, however often it is asked.
    kept.await;
    assert!(wheel.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_empty_wheel_sets_no_timer() {
    let clock = Clock::start();
    let wheel = Wheel::start();
    wheel.sleep(MS * 20).await;
    // With auto-advance, a turning wheel would show as timers on the way to this one.
    let began = clock.mono();
    let hour = Duration::from_secs(3_600);
    tokio::time::sleep(hour).await;
    assert_eq!(clock.mono().since(began), hour);
    assert!(wheel.shared.slots.lock().next_look().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_sleep_longer_than_all_time_just_never_ends() {
    let wheel = Wheel::start();
    let forever = tokio::time::timeout(Duration::from_secs(60), wheel.sleep(Duration::MAX));
    assert!(forever.await.is_err());
    assert!(wheel.is_empty());
}

#[test]
fn ticks_round_up_for_sleeps_and_down_for_the_time_gone_by() {
    let table = [
        (0u64, 0, 0),
        (1, 1, 0),
        (10_000_000, 1, 1),
        (10_000_001, 2, 1),
    ];
    for (ns, up, down) in table {
        let d = Duration::from_nanos(ns);
        assert_eq!((ticks_up(d), ticks_down(d)), (up, down), "{ns}");
    }
}

#[tokio::test]
async fn sleeps_of_many_tasks_on_real_time_all_end() {
    let wheel = Wheel::start();
    let tasks: Vec<_> = (0..200u32)
        .map(|n| {
            let wheel = wheel.clone();
            tokio::spawn(async move { wheel.sleep(MS * (n % 40)).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(wheel.is_empty());
}
