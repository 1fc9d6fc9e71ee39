//! The contract suite on SQLite, and what only a file can do wrong.

use std::sync::Arc;

use super::*;
use crate::ledger::contract::{NOW, RETENTION, World, suite};

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("callgate.db");
    // Without waiting for the disk: these tests are about what is written, not how safely.
    let options = Options { retention: RETENTION, sync: Sync::Normal, ..Options::new(&path, NOW) };
    let ledger = SqliteLedger::open(&options, Arc::new(())).unwrap();
    World { ledger: Arc::new(ledger), _folder: Some(folder) }
}

suite!(world);
