//! Levels outlive a load of the configuration.

use std::path::Path;

use super::*;
use crate::config;

fn route(limits: &str, upstream: &str) -> Arc<Route> {
    let text = format!(
        "routes:\n  - name: a\n    upstream: {{ url: http://tool, {upstream} }}\n    \
         limits: {{ {limits} }}\n    receipt: {{}}\n"
    );
    let config = config::parse(&text, "test", Path::new("/"), &|_| None).unwrap();
    Arc::clone(&config.routes[0])
}

#[test]
fn an_unchanged_rate_keeps_its_level_and_a_changed_one_begins_anew() {
    let limits = Limits::default();
    let client = ClientName::anonymous();
    let written = route("rate: 600/m", "");
    let door = limits.door(&written);
    while door.admit(&client).is_ok() {}
    for _ in 0..20 {
        let exceeded = limits.door(&written).admit(&client).unwrap_err();
        assert_eq!(
            (exceeded.whose, exceeded.retry_after().as_secs()),
            ("route", 60)
        );
    }
    let changed = limits.door(&route("rate: 2/s", ""));
    assert!(changed.admit(&client).is_ok());
    assert!(limits.door(&route("", "")).admit(&client).is_ok());
}

#[test]
fn what_is_taken_stays_taken_over_a_reload() {
    let limits = Limits::default();
    let client = ClientName::anonymous();
    let concurrency = "concurrency: { max: 1, queue: 0 }, retry_budget: {}";
    let written = route("client_concurrent: 1", concurrency);
    let (door, tool) = (limits.door(&written), limits.tool(&written.upstream));
    let slot = door.slot(&client).unwrap().unwrap();
    let gate = tool.gate.clone().unwrap();
    let gate::Entry::Granted(permit) = gate.enter(&client) else {
        panic!("nobody was there");
    };
    let (door, tool) = (limits.door(&written), limits.tool(&written.upstream));
    assert_eq!(door.slot(&client).unwrap_err(), 1);
    assert!(tool.gate.clone().unwrap().is_busy());
    drop((slot, permit));
    assert!(door.slot(&client).is_ok());
    assert!(!tool.gate.clone().unwrap().is_busy());
    assert!(tool.budget.is_some());
    let none = limits.tool(&route("", "").upstream);
    assert!(none.gate.is_none() && none.budget.is_none());
}
