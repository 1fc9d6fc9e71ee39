//! The contract suite on SQLite, and what only a file can do wrong.

mod crash;
mod figures;
mod group;
mod growth;
mod inspection;
mod opening;
mod repeats;
mod stopped;
mod trouble;
mod waiting;

use std::sync::Arc;
use std::sync::mpsc;

use super::*;
use crate::ledger::contract::{self, NOW, RETENTION, World, suite};

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    // Without waiting for the disk: these tests are about what is written, not how safely.
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    World {
        ledger: Arc::new(ledger),
        _folder: Some(folder),
    }
}

suite!(world);

fn file_in(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("callgate.db")
}

fn open_in(folder: &tempfile::TempDir, sync: Sync) -> Result<SqliteLedger, LedgerError> {
    open_with(Options {
        sync,
        ..Options::new(&file_in(folder), NOW)
    })
}

fn open_with(options: Options) -> Result<SqliteLedger, LedgerError> {
    let options = Options {
        retention: RETENTION,
        ..options
    };
    SqliteLedger::open(&options, Arc::new(()))
}

/// Stops the writer inside a group until this is dropped.
struct Held {
    _release: mpsc::Sender<()>,
}

impl SqliteLedger {
    /// Holds the writer, so that what is handed over now gathers behind it.
    fn hold(&self) -> Held {
        let (entered, inside) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let verb = move |_: &mut Db| {
            let _ = entered.send(());
            let _ = released.recv();
            Ok(())
        };
        drop(self.write(Lane::Reserved, verb));
        inside.recv().unwrap();
        Held { _release: release }
    }

    /// Asks the writing connection for one number.
    fn ask(&self, sql: &'static str) -> i64 {
        self.write(Lane::Reserved, move |db| {
            db.conn.query_row(sql, [], |row| row.get(0))
        })
        .wait()
        .unwrap()
    }
}
