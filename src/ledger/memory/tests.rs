//! The contract suite on the ledger in memory, and its way to fail.

use std::sync::Arc;

use super::*;
use crate::ledger::contract::{NOW, RETENTION, World, suite};

fn world() -> World {
    World {
        ledger: Arc::new(MemoryLedger::new(NOW, RETENTION)),
        _folder: None,
    }
}

suite!(world);

#[test]
fn a_write_can_be_made_to_fail() {
    let ledger = MemoryLedger::new(NOW, RETENTION);
    ledger.fail_writes(2);
    assert!(ledger.health().failing.is_some());
    for _ in 0..2 {
        let refused = ledger.remember_proof("a".into(), Proof::Proven, NOW).wait();
        assert!(matches!(refused, Err(LedgerError::Full { .. })));
    }
    ledger
        .remember_proof("b".into(), Proof::Proven, NOW)
        .wait()
        .unwrap();
    let proofs = ledger.proofs().wait().unwrap();
    assert_eq!(proofs.len(), 1, "what failed was not written");
    assert_eq!(ledger.health().failing, None);
}
