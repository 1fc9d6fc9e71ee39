//! The ledger of a gateway that is not running: read to its last commit, and not touched.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::*;
use crate::ledger::contract::{answer, call, id, keyed};
use crate::ledger::sqlite::stopped::stories;

/// Every file of a folder, byte for byte.
fn bytes_of(folder: &Path) -> BTreeMap<String, (Vec<u8>, std::time::SystemTime)> {
    let entries = fs::read_dir(folder).unwrap();
    let one = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let changed = entry.metadata().unwrap().modified().unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, (fs::read(entry.path()).unwrap(), changed))
    };
    entries.map(one).collect()
}

fn settle(ledger: &SqliteLedger, new: NewCall) {
    let Begun::Claimed(claim) = ledger.begin(new).wait().unwrap() else {
        panic!("the id is free");
    };
    let fact = Fact {
        row: claim.row,
        life: claim.life,
        now: NOW,
        entries: Vec::new(),
        news: answer(200),
    };
    assert_eq!(ledger.fact(fact).wait().unwrap(), FactWritten::Applied);
}

/// What a crash leaves behind: the files as they are while the gateway runs.
fn crashed(from: &Path) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    for name in ["callgate.db", "callgate.db-wal", "callgate.db-shm"] {
        fs::copy(from.join(name), left.path().join(name)).unwrap();
    }
    left
}

fn assert_told_untouched(folder: &Path) {
    let before = bytes_of(folder);
    let file = folder.join("callgate.db");
    let told = stories(&file, None, "c1").unwrap();
    assert_eq!(told.len(), 1);
    assert!(told[0].call.settled.is_some());
    assert_eq!(stories(&file, None, "k").unwrap().len(), 1);
    assert_eq!(stories(&file, None, "nobody").unwrap(), []);
    let after = bytes_of(folder);
    assert!(before.keys().eq(after.keys()), "{:?}", after.keys());
    assert!(before == after, "a byte or a time was changed");
}

#[test]
fn a_stopped_gateways_ledger_is_read_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    settle(&ledger, keyed("c1", "k"));
    ledger.close().wait().unwrap();
    drop(ledger);
    assert!(!folder.path().join("callgate.db-wal").exists());
    assert_told_untouched(folder.path());
}

#[test]
fn a_killed_gateways_ledger_is_read_to_the_last_commit_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    settle(&ledger, keyed("c1", "k"));
    let left = crashed(folder.path());
    let wal = fs::metadata(left.path().join("callgate.db-wal")).unwrap();
    assert!(wal.len() > 0, "the call stands in the WAL alone");
    assert_told_untouched(left.path());
    // Also without the index, as after a copy of the two files that count.
    fs::remove_file(left.path().join("callgate.db-shm")).unwrap();
    assert_told_untouched(left.path());
    // And the gateway goes on from there.
    let again = open_in(&left, Sync::Normal).unwrap();
    assert_eq!(again.view(None, id("c1")).wait().unwrap().len(), 1);
}

#[test]
fn a_running_gateways_ledger_is_read_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    settle(&ledger, keyed("c1", "k"));
    let file = file_in(&folder);
    for n in 0..50 {
        settle(&ledger, call(&format!("more-{n}")));
        assert_eq!(stories(&file, None, "c1").unwrap().len(), 1);
    }
    assert_eq!(stories(&file, None, "more-49").unwrap().len(), 1);
}

#[test]
fn an_older_schema_is_read_from_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let file = file_in(&folder);
    let conn = Connection::open(&file).unwrap();
    conn.execute_batch("PRAGMA journal_mode = wal").unwrap();
    conn.execute_batch(include_str!("../schema_1.sql")).unwrap();
    conn.execute_batch(include_str!("../schema_2.sql")).unwrap();
    conn.execute_batch("PRAGMA application_id = 1668048756; PRAGMA user_version = 2")
        .unwrap();
    drop(conn);
    let before = bytes_of(folder.path());
    assert_eq!(stories(&file, None, "c1").unwrap(), []);
    assert!(before == bytes_of(folder.path()));
}

#[test]
fn what_is_no_ledger_is_said_to_be_none() {
    let folder = tempfile::tempdir().unwrap();
    let missing = stories(&file_in(&folder), None, "c1").unwrap_err();
    assert!(matches!(missing, LedgerError::NoFile { .. }), "{missing:?}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    fs::write(
        file_in(&folder),
        "not a database, but long enough to be taken for one",
    )
    .unwrap();
    let strange = stories(&file_in(&folder), None, "c1").unwrap_err();
    assert!(
        matches!(strange, LedgerError::NotALedger { .. }),
        "{strange:?}"
    );
    let odd = folder.path().join("a?b #%c.db");
    fs::write(&odd, "no database either").unwrap();
    assert!(matches!(
        stories(&odd, None, "c1"),
        Err(LedgerError::NotALedger { .. })
    ));
}
