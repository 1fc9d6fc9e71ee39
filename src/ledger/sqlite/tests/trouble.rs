//! A disk that is full and gets space again, and a WAL that must not grow for ever.

use bytes::Bytes;

use super::*;
use crate::ledger::StoredRequest;
use crate::ledger::contract::{call, id};

fn large(name: &str, bytes: usize) -> NewCall {
    let new = call(name);
    let request = StoredRequest {
        body: Bytes::from(vec![b'x'; bytes]),
        ..new.request
    };
    NewCall { request, ..new }
}

#[test]
fn a_full_disk_writes_nothing_by_halves_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Full).unwrap();
    ledger.begin(call("before")).wait().unwrap();
    ledger.ask("PRAGMA max_page_count = 60");
    let mut refused = None;
    for n in 0..60 {
        if let Err(error) = ledger.begin(large(&format!("c{n}"), 20_000)).wait() {
            refused = Some((n, error));
            break;
        }
    }
    let (n, error) = refused.expect("60 pages do not hold 60 large calls");
    assert!(matches!(error, LedgerError::Full { .. }), "{error:?}");
    assert!(error.to_string().contains("free some space"), "{error}");
    let unwritten = id(&format!("c{n}"));
    assert!(
        ledger
            .view(None, unwritten.clone())
            .wait()
            .unwrap()
            .is_empty()
    );
    let failing = ledger.health().failing.expect("the last write failed");
    assert!(failing.contains("full"), "{failing}");
    ledger.ask("PRAGMA max_page_count = 100000");
    ledger
        .begin(large(unwritten.as_str(), 20_000))
        .wait()
        .unwrap();
    assert_eq!(ledger.health().failing, None);
    assert_eq!(ledger.view(None, id("before")).wait().unwrap().len(), 1);
}

#[test]
fn a_failing_ledger_tries_again_when_asked_for_its_health() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let failed = ledger.write(Lane::Reserved, |db| {
        db.conn.execute("INSERT INTO nowhere VALUES (1)", [])
    });
    assert!(failed.wait().is_err());
    assert!(ledger.health().failing.is_some());
    // Nothing but probes is written from here on, so the healing is theirs.
    while ledger.health().failing.is_some() {
        std::thread::yield_now();
    }
    assert_eq!(
        ledger.ask("SELECT count(*) FROM meta WHERE name = 'probes'"),
        1
    );
}

#[test]
fn the_wal_stays_bounded_under_constant_writing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let wal = folder.path().join("callgate.db-wal");
    let (mut written, mut largest) = (0, 0);
    // Far more than the bound, with never a pause in which the WAL could be emptied.
    for n in 0..1_200 {
        let pending: Vec<_> = (0..4)
            .map(|m| ledger.begin(large(&format!("c{n}-{m}"), 30_000)))
            .collect();
        for answer in pending {
            answer.wait().unwrap();
            written += 30_000;
        }
        largest = largest.max(std::fs::metadata(&wal).map_or(0, |meta| meta.len()));
    }
    assert!(written > 140_000_000);
    // The bound of 64 MiB, and the groups that were written before it was seen.
    assert!(largest < 100_000_000, "the WAL grew to {largest} bytes");
}
