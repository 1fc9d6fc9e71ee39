//! The life of one address: tables for what each rule says, random histories for what always holds.

use proptest::prelude::*;

use super::*;

fn rule() -> Ejection {
    Ejection {
        consecutive: 3,
        share: 0.5,
        window: Duration::from_secs(10),
        samples: 10,
        base: Duration::from_secs(1),
        cap: Duration::from_secs(10),
        ..Ejection::default()
    }
}

fn at(ms: u64) -> Mono {
    Mono(ms * 1_000_000)
}

fn end(level: &mut Level, ms: u64, sample: Sample) -> Option<Change> {
    let epoch = level.epoch();
    level.ended(&rule(), at(ms), epoch, sample)
}

fn ejected(why: Why, secs: u64) -> Option<Change> {
    let out_for = Duration::from_secs(secs);
    Some(Change::Ejected { why, out_for })
}

/// Ejects it by a row of failures at `ms`.
fn tire(level: &mut Level, ms: u64) -> Option<Change> {
    for _ in 0..2 {
        assert_eq!(end(level, ms, Sample::Bad), None);
    }
    end(level, ms, Sample::Bad)
}

#[test]
fn a_row_of_failures_ejects_and_an_answer_breaks_the_row() {
    let mut level = Level::new(at(0));
    for _ in 0..20 {
        assert_eq!(end(&mut level, 0, Sample::Good), None);
    }
    for sample in [Sample::Bad, Sample::Bad, Sample::Good] {
        assert_eq!(end(&mut level, 0, sample), None);
    }
    assert_eq!(tire(&mut level, 0), ejected(Why::Row, 1));
    assert_eq!(level.state(), State::Out { until: at(1_000) });
}

#[test]
fn a_share_of_failures_ejects_when_there_are_enough_sends() {
    let mut level = Level::new(at(0));
    for n in 0..4 {
        assert_eq!(end(&mut level, n, Sample::Good), None);
        assert_eq!(end(&mut level, n, Sample::Bad), None);
    }
    assert_eq!(end(&mut level, 5, Sample::Good), None);
    assert_eq!(
        end(&mut level, 5, Sample::Bad),
        ejected(Why::Share, 1),
        "the tenth"
    );
}

#[test]
fn what_has_left_the_window_is_forgotten() {
    let mut level = Level::new(at(0));
    for _ in 0..4 {
        assert_eq!(end(&mut level, 0, Sample::Good), None);
        assert_eq!(end(&mut level, 0, Sample::Bad), None);
    }
    assert_eq!(end(&mut level, 10_500, Sample::Good), None);
    assert_eq!(
        end(&mut level, 10_500, Sample::Bad),
        None,
        "the second of its window"
    );
}

#[test]
fn one_probe_at_a_time_decides_whether_it_returns() {
    let mut level = Level::new(at(0));
    assert!(!level.take_probe(at(0)), "it is in");
    tire(&mut level, 0);
    assert!(!level.take_probe(at(999)));
    assert!(level.take_probe(at(1_000)));
    assert!(!level.take_probe(at(5_000)), "one is under way");
    level.give_back();
    assert!(level.take_probe(at(5_000)), "the other did not take place");
    assert_eq!(
        level.probed(&rule(), at(6_000), Sample::Good),
        Some(Change::Returned)
    );
    assert_eq!(level.state(), State::In);
    assert_eq!(
        level.probed(&rule(), at(6_000), Sample::Bad),
        None,
        "nobody probes"
    );
}

#[test]
fn what_is_vouched_for_is_tried_before_its_time_and_loses_nothing_by_a_failure() {
    let mut level = Level::new(at(0));
    assert!(!level.take_vouched(), "it is in");
    tire(&mut level, 0);
    let out = level.state();
    assert!(level.take_vouched());
    assert!(!level.take_vouched(), "one is under way");
    assert!(!level.take_probe(at(5_000)), "whatever it is for");
    assert_eq!(level.probed(&rule(), at(10), Sample::Bad), None);
    assert_eq!(level.state(), out, "neither longer nor shorter");
    assert!(level.take_vouched());
    level.give_back();
    assert_eq!(level.state(), out);
    assert!(level.take_vouched());
    let returned = level.probed(&rule(), at(20), Sample::Good);
    assert_eq!(returned, Some(Change::Returned));
    // One that ends after the time was over is a probe like any other.
    tire(&mut level, 30);
    assert!(level.take_vouched());
    let late = level.probed(&rule(), at(30_000), Sample::Bad);
    assert!(matches!(
        late,
        Some(Change::Ejected {
            why: Why::Probe,
            ..
        })
    ));
}

#[test]
fn it_is_out_twice_as_long_each_time_up_to_the_cap_and_lives_that_down() {
    let mut level = Level::new(at(0));
    let mut now = 0;
    assert_eq!(tire(&mut level, now), ejected(Why::Row, 1));
    for secs in [2, 4, 8, 10, 10] {
        now += 20_000;
        assert!(level.take_probe(at(now)));
        assert_eq!(
            level.probed(&rule(), at(now), Sample::Bad),
            ejected(Why::Probe, secs)
        );
    }
    now += 20_000;
    assert!(level.take_probe(at(now)));
    assert_eq!(
        level.probed(&rule(), at(now), Sample::Good),
        Some(Change::Returned)
    );
    assert_eq!(
        tire(&mut level, now + 20_000),
        ejected(Why::Row, 10),
        "two of six lived down"
    );
    now += 40_000;
    assert!(level.take_probe(at(now)));
    assert_eq!(
        level.probed(&rule(), at(now), Sample::Good),
        Some(Change::Returned)
    );
    assert_eq!(tire(&mut level, now + 600_000), ejected(Why::Row, 1));
}

#[test]
fn a_send_from_before_a_change_says_nothing_about_what_came_after() {
    let mut level = Level::new(at(0));
    let old = level.epoch();
    tire(&mut level, 0);
    assert!(level.take_probe(at(1_000)));
    assert_eq!(level.ended(&rule(), at(1_000), old, Sample::Good), None);
    assert_eq!(
        level.state(),
        State::Probing,
        "only the probe brings it back"
    );
    level.probed(&rule(), at(1_000), Sample::Good);
    for _ in 0..10 {
        assert_eq!(level.ended(&rule(), at(1_000), old, Sample::Bad), None);
    }
    assert_eq!(level.state(), State::In);
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Ends(bool),
    OldEnds(bool),
    Probes,
    Vouched,
    Probed(bool),
    GivesBack,
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        4 => any::<bool>().prop_map(Act::Ends),
        1 => any::<bool>().prop_map(Act::OldEnds),
        3 => Just(Act::Probes),
        1 => Just(Act::Vouched),
        2 => any::<bool>().prop_map(Act::Probed),
        1 => Just(Act::GivesBack),
    ];
    prop::collection::vec((0_u64..4_000, act), 0..200)
}

const fn sample(good: bool) -> Sample {
    if good { Sample::Good } else { Sample::Bad }
}

proptest! {
    #[test]
    fn in_every_history_it_is_out_for_a_bounded_time_and_back_only_by_one_send(acts in acts()) {
        let rule = rule();
        let mut level = Level::new(at(0));
        let (mut ms, mut probing, mut early) = (0, false, false);
        for (wait, act) in acts {
            ms += wait;
            let before = level.state();
            let change = match act {
                Act::Ends(good) => end(&mut level, ms, sample(good)),
                Act::OldEnds(good) => {
                    let old = level.epoch().wrapping_sub(1);
                    level.ended(&rule, at(ms), old, sample(good))
                }
                Act::Probes => {
                    let due = matches!(before, State::Out { until } if until <= at(ms));
                    let taken = level.take_probe(at(ms));
                    prop_assert_eq!(taken, due, "a probe when its time has come, and only then");
                    prop_assert!(!(taken && probing), "one at a time");
                    probing |= taken;
                    None
                }
                Act::Vouched => {
                    let taken = level.take_vouched();
                    prop_assert_eq!(taken, matches!(before, State::Out { .. }));
                    early |= taken;
                    probing |= taken;
                    None
                }
                Act::Probed(good) => {
                    let change = level.probed(&rule, at(ms), sample(good));
                    prop_assert!(change.is_some() == probing || early && !good);
                    (probing, early) = (false, false);
                    change
                }
                Act::GivesBack => {
                    level.give_back();
                    (probing, early) = (false, false);
                    None
                }
            };
            let now = level.state();
            prop_assert_eq!(now == State::Probing, probing);
            match change {
                Some(Change::Ejected { out_for, .. }) => {
                    prop_assert!(rule.base <= out_for && out_for <= rule.cap);
                    prop_assert_eq!(now, State::Out { until: at(ms).after(out_for) });
                }
                Some(Change::Returned) => {
                    prop_assert_eq!((before, now), (State::Probing, State::In));
                }
                None => {
                    let left = before == State::In && now != State::In;
                    let back = before != State::In && now == State::In;
                    prop_assert!(!left && !back, "every change is told");
                }
            }
        }
    }
}
