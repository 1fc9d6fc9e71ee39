//! Another configuration comes into force while alerts wait or are under way.

use super::inbox::Act;
use super::*;

/// What is told from now on, after another configuration came into force.
#[tokio::test(start_paused = true)]
async fn a_reload_reaches_what_is_told_how_often_and_from_what_age_on() {
    let mut world = World::start(", on: [reversed]", ALWAYS);
    world.manual();
    world.pass(HOUR).await;
    assert_eq!(world.inbox.asked(), 0);
    let events = |world: &World| -> Vec<String> {
        let taken = world.inbox.taken().into_iter();
        taken
            .map(|alert| alert["event"].as_str().unwrap().to_owned())
            .collect()
    };
    world.reload("");
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(
        events(&world),
        ["manual"],
        "at once, and not by the next look"
    );
    // Within the old window and after the new one.
    world.manual();
    world.pass(Duration::from_secs(70)).await;
    assert_eq!(world.inbox.taken().len(), 1);
    world.reload(", repeat: 1m");
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(events(&world), ["manual", "manual"]);
    world.reload(", on: [], oldest_over: 30m");
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(events(&world), ["manual", "manual", "oldest_over"]);
    // And nobody is told once no webhook is named.
    world.rule = "resend: false".into();
    let (alerter, ..) = world.running.as_ref().unwrap();
    world.replace(alerter);
    world.manual();
    world.pass(HOUR * 3).await;
    assert_eq!(world.inbox.asked(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_reload_takes_an_alert_away_from_a_receiver_that_hangs() {
    let mut world = World::start("", |_| Act::Hang);
    world.manual();
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.inbox.asked(), 1);
    // The same again changes nothing about what is under way.
    world.reload("");
    world.pass(Duration::from_secs(2)).await;
    assert_eq!(world.inbox.asked(), 1);
    world.inbox.plan(ALWAYS);
    world.reload(", repeat: 2h");
    world.pass(Duration::from_secs(1)).await;
    let arrived = world.inbox.arrived();
    assert_eq!((arrived.len(), world.inbox.taken().len()), (2, 1));
    assert_eq!(arrived[0].document()["id"], arrived[1].document()["id"]);
    assert_eq!(world.counted(), (1, 0));
}

/// A receiver that was down for a day may be the reason for the reload.
#[tokio::test(start_paused = true)]
async fn a_new_receiver_does_not_wait_for_what_the_old_one_missed() {
    let mut world = World::looking_every(SELDOM, "", NEVER);
    world.manual();
    world.pass(HOUR * 24).await;
    assert!(world.undelivered());
    let asked = world.inbox.asked();
    world.inbox.plan(ALWAYS);
    world.reload(", headers: { X-Token: new }");
    world.pass(Duration::from_millis(100)).await;
    assert_eq!(world.inbox.asked(), asked + 1);
    assert_eq!(world.inbox.arrived()[asked].field("x-token"), Some("new"));
    assert_eq!(world.inbox.taken().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_given_up_is_no_trouble_any_more() {
    let mut world = World::start("", NEVER);
    world.manual();
    world.pass(Duration::from_secs(5)).await;
    assert!(world.undelivered());
    let undelivered = |world: &World| {
        let text = world.metrics.render();
        text.contains("callgate_alerts_undelivered{route=\"r\"} 1")
    };
    assert!(undelivered(&world));
    world.reload(", on: [reversed]");
    assert!(!world.undelivered() && !undelivered(&world));
    world.pass(HOUR).await;
    assert!(!world.undelivered() && !undelivered(&world));
}

#[tokio::test(start_paused = true)]
async fn a_route_with_another_name_tells_of_what_it_parked_under_its_old_one() {
    let mut world = World::start("", NEVER);
    world.manual();
    world.pass(Duration::from_secs(2)).await;
    world.route = "s\n    formerly: [r]";
    world.inbox.plan(ALWAYS);
    world.reload("");
    world.manual();
    world.pass(Duration::from_secs(60)).await;
    let taken = world.inbox.taken();
    let [alert] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!((&alert["route"], &alert["count"]), (&"r".into(), &2.into()));
    assert!(!world.undelivered());
}
