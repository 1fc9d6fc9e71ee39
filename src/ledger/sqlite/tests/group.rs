//! The group commit: many records, one commit, and everybody's own fate.

use std::time::Duration;

use super::*;
use crate::call::time::Mono;
use crate::clock::Clock;
use crate::ledger::contract::{answer, call, id, keyed};
use crate::ledger::{Fact, FactWritten};

#[test]
fn what_waits_shares_one_commit() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Full).unwrap();
    let held = ledger.hold();
    let before = ledger.commits();
    let pending: Vec<_> = (0..700)
        .map(|n| ledger.begin(call(&format!("c{n}"))))
        .collect();
    drop(held);
    for answer in pending {
        assert!(matches!(answer.wait().unwrap(), Begun::Claimed(_)));
    }
    // The one that was held, 512, and the rest.
    assert_eq!(ledger.commits() - before, 3);
}

#[test]
fn one_failing_verb_does_not_fail_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let held = ledger.hold();
    let first = ledger.begin(call("first"));
    let failing = ledger.write(Lane::Reserved, |db| {
        db.conn
            .execute("INSERT INTO meta (name, value) VALUES ('half', 1)", [])?;
        db.conn.execute("INSERT INTO nowhere VALUES (1)", [])
    });
    let middle = ledger.begin(NewCall {
        policy: "a policy nobody had".into(),
        ..call("middle")
    });
    let panicking = ledger.write(Lane::Reserved, |db| -> rusqlite::Result<()> {
        db.conn
            .execute("INSERT INTO meta (name, value) VALUES ('torn', 1)", [])?;
        panic!("a fault of the gateway (this test's own)")
    });
    let last = ledger.begin(call("last"));
    drop(held);
    for answer in [first, middle, last] {
        assert!(matches!(answer.wait().unwrap(), Begun::Claimed(_)));
    }
    let failed = failing.wait();
    assert!(
        matches!(failed, Err(LedgerError::Write { .. })),
        "{failed:?}"
    );
    let failed = panicking.wait();
    assert!(matches!(failed, Err(LedgerError::WriterGone)), "{failed:?}");
    assert_eq!(
        ledger.ask("SELECT count(*) FROM meta WHERE name IN ('half', 'torn')"),
        0
    );
    assert_eq!(
        ledger.ask("SELECT count(*) FROM calls JOIN policies ON policies.id = policy"),
        3
    );
    assert_eq!(ledger.health().failing, None, "the last record was written");
}

#[test]
fn a_failed_commit_fails_everybody_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let doubt = "CREATE TEMP TABLE parent (id INTEGER PRIMARY KEY); CREATE TEMP TABLE child \
                 (id REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)";
    ledger
        .write(Lane::Reserved, move |db| db.conn.execute_batch(doubt))
        .wait()
        .unwrap();
    let held = ledger.hold();
    let begun = ledger.begin(call("c"));
    // Violated now, noticed by the commit.
    let orphan = ledger.write(Lane::Reserved, |db| {
        db.conn.execute("INSERT INTO child VALUES (7)", [])
    });
    let other = ledger.begin(call("d"));
    drop(held);
    for failed in [begun.wait().err(), orphan.wait().err(), other.wait().err()] {
        assert!(
            matches!(failed, Some(LedgerError::Write { .. })),
            "{failed:?}"
        );
    }
    assert!(ledger.health().failing.is_some());
    for gone in ["c", "d"] {
        assert!(ledger.view(None, id(gone)).wait().unwrap().is_empty());
    }
    assert!(matches!(
        ledger.begin(call("c")).wait().unwrap(),
        Begun::Claimed(_)
    ));
    assert_eq!(ledger.health().failing, None);
}

#[test]
fn a_full_queue_refuses_new_calls_before_the_ends_of_running_ones() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_with(Options {
        queue: 2,
        ..Options::new(&file_in(&folder), NOW)
    })
    .unwrap();
    let Begun::Claimed(claim) = ledger.begin(call("running")).wait().unwrap() else {
        panic!("a new id is claimed")
    };
    let held = ledger.hold();
    let waiting: Vec<_> = ["a", "b"].map(|name| ledger.begin(call(name))).into();
    let refused = ledger.begin(call("c")).wait();
    assert!(
        matches!(refused, Err(LedgerError::Overloaded { waiting: 2 })),
        "{refused:?}"
    );
    assert_eq!((ledger.health().waiting, ledger.health().capacity), (2, 2));
    let Claim { row, life, .. } = claim;
    let news = answer(404);
    let told = ledger.fact(Fact {
        row,
        life,
        now: NOW,
        entries: Vec::new(),
        news,
    });
    drop(held);
    assert_eq!(told.wait().unwrap(), FactWritten::Applied);
    for answer in waiting {
        assert!(matches!(answer.wait().unwrap(), Begun::Claimed(_)));
    }
    assert!(ledger.view(None, id("c")).wait().unwrap().is_empty());
}

/// Twenty calls each; with `CALLGATE_WRITERS_S`, as many as that many seconds hold.
#[test]
fn c61f_fifty_writers_never_lock_each_other_out() {
    let length = std::env::var("CALLGATE_WRITERS_S").ok();
    let length = length.map(|text| Duration::from_secs(text.parse().expect("seconds")));
    let clock = Clock::start();
    let goes_on = move |n: u64| match length {
        None => n < 20,
        Some(length) => clock.mono().since(Mono(0)) < length,
    };
    let folder = tempfile::tempdir().unwrap();
    let ledger = Arc::new(open_in(&folder, Sync::Full).unwrap());
    let writers: Vec<_> = (0..50)
        .map(|writer| {
            let (ledger, goes_on) = (Arc::clone(&ledger), goes_on.clone());
            std::thread::spawn(move || {
                let mut written = 0;
                for n in (0..).take_while(|n| goes_on(*n)) {
                    let name = format!("w{writer}-{n}");
                    let Begun::Claimed(claim) = ledger.begin(keyed(&name, &name)).wait().unwrap()
                    else {
                        panic!("{name} is new")
                    };
                    let Claim { row, life, .. } = claim;
                    let (entries, news) = (Vec::new(), answer(200));
                    let told = ledger
                        .fact(Fact {
                            row,
                            life,
                            now: NOW,
                            entries,
                            news,
                        })
                        .wait();
                    assert_eq!(told.unwrap(), FactWritten::Applied);
                    assert_eq!(ledger.view(None, id(&name)).wait().unwrap().len(), 1);
                    written += 1;
                }
                written
            })
        })
        .collect();
    let written: i64 = writers.into_iter().map(|it| it.join().unwrap()).sum();
    eprintln!("{written} calls by fifty writers");
    assert!(written >= 1_000, "{written}");
    assert_eq!(
        ledger.ask("SELECT count(*) FROM calls WHERE state = 'SUCCESS'"),
        written
    );
}
