//! What survives: an orderly end, and a process that is killed in the middle of its work.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use super::*;
use crate::ledger::contract::{answer, call, id, keyed, owner};
use crate::ledger::{Fact, FactWritten};

/// Tells the child process which ledger to work on until it is killed.
const VICTIM: &str = "CALLGATE_TEST_VICTIM";

fn settle(ledger: &SqliteLedger, claim: Claim) -> FactWritten {
    let Claim { row, life, .. } = claim;
    let entries = Vec::new();
    let news = answer(201);
    ledger
        .fact(Fact {
            row,
            life,
            now: NOW,
            entries,
            news,
        })
        .wait()
        .unwrap()
}

fn claim(ledger: &SqliteLedger, new: NewCall) -> Claim {
    match ledger.begin(new).wait().unwrap() {
        Begun::Claimed(claim) => claim,
        other => panic!("expected a claim, got {other:?}"),
    }
}

#[test]
fn everything_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let before = {
        let ledger = open_in(&folder, Sync::Full).unwrap();
        let done = claim(&ledger, keyed("done", "k"));
        assert_eq!(settle(&ledger, done), FactWritten::Applied);
        claim(&ledger, call("open"));
        ledger
            .remember_proof("http://a".into(), Proof::Proven, NOW)
            .wait()
            .unwrap();
        ledger.view(None, id("done")).wait().unwrap()
    };
    let later = NOW.after(Duration::from_secs(9));
    let ledger = open_with(Options::new(&file_in(&folder), later)).unwrap();
    assert_eq!(ledger.view(None, id("done")).wait().unwrap(), before);
    assert_eq!(
        ledger.knows_since(),
        NOW,
        "it knows since it was made, not since it was opened"
    );
    assert_eq!(ledger.proofs().wait().unwrap().len(), 1);
    let begun = ledger.begin(keyed("done", "k")).wait().unwrap();
    assert!(matches!(begun, Begun::Known(known) if known.same_request));
    let swept = ledger
        .recover(owner("two"), later, OwnerTest::AllOthers)
        .wait()
        .unwrap();
    assert_eq!(swept.parked, 1);
    let fresh = claim(&ledger, call("fresh"));
    assert!(fresh.row > before[0].row);
    assert_eq!(ledger.ask("SELECT count(*) FROM policies"), 1);
}

#[test]
fn an_orderly_end_leaves_an_empty_wal() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    claim(&ledger, call("c"));
    ledger.close().wait().unwrap();
    let wal = folder.path().join("callgate.db-wal");
    let left = std::fs::metadata(wal).map_or(0, |meta| meta.len());
    assert_eq!(left, 0);
}

/// Not a test of its own: the body of the process that [`what_was_told_survives_a_kill`] kills.
#[test]
fn victim() {
    let Some(path) = std::env::var_os(VICTIM) else {
        return;
    };
    let ledger = open_with(Options::new(Path::new(&path), NOW)).unwrap();
    let mut out = std::io::stdout();
    for n in 0_u64.. {
        let claimed = claim(&ledger, keyed(&format!("c{n}"), &format!("k{n}")));
        if n % 2 == 0 {
            assert_eq!(settle(&ledger, claimed), FactWritten::Applied);
        }
        writeln!(out, "told {n}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn what_was_told_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "ledger::sqlite::tests::crash::victim",
            "--nocapture",
        ])
        .env(VICTIM, file_in(&folder))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let told = lines
        .map(Result::unwrap)
        .filter(|line| line.starts_with("told "))
        .take(60);
    assert_eq!(told.count(), 60);
    // It is somewhere in its next record now.
    victim.kill().unwrap();
    victim.wait().unwrap();
    let ledger = open_in(&folder, Sync::Full).unwrap();
    let swept = ledger
        .recover(owner("two"), NOW, OwnerTest::AllOthers)
        .wait()
        .unwrap();
    // It may have come further than it was read.
    assert!(swept.parked >= 30, "{swept:?}");
    for n in 0..60 {
        let found = ledger.view(None, id(&format!("c{n}"))).wait().unwrap();
        assert_eq!(found.len(), 1, "c{n} was told and is lost");
        assert_eq!(found[0].settled.is_some(), n % 2 == 0, "c{n}");
        assert_eq!(found[0].dead_letter.is_some(), n % 2 == 1, "c{n}");
    }
    let sound = ledger.write(Lane::Reserved, |db| {
        db.conn
            .query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
    });
    assert_eq!(sound.wait().unwrap(), "ok");
}
