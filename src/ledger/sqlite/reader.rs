//! The readers' threads: questions in groups, each group from one snapshot.
//!
//! A question takes several statements, and every statement by itself would lock the snapshot and
//! unlock it again. In one transaction they are cheaper, and they agree: no commit comes between a
//! call and its history. The snapshot begins after the group was taken, so whoever asks after a
//! commit was told sees it. Deliberately absent: any write, which the connection would refuse.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::Connection;

use super::shared::Shared;
use crate::ledger::relay::Wakes;

/// The most questions of one snapshot: enough that its cost vanishes, few enough that the first
/// one does not wait for the last.
const GROUP_MAX: usize = 16;

/// A reader's thread: until the writer has ended and the questions are answered.
pub(super) fn run(conn: &Connection, shared: &Arc<Shared>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while shared.reads.take(&mut group, GROUP_MAX) {
        let snapshot = Snapshot::of(conn);
        let mut wakes = Wakes::default();
        for read in group.drain(..) {
            // A panic drops the question's reply, which its waiter reads as an error.
            let _ = catch_unwind(AssertUnwindSafe(|| read(conn, &mut wakes)));
        }
        drop(snapshot);
        wakes.call();
    }
}

/// One state of the file, as long as this lives. Where none can be had each statement takes its
/// own, and says itself what is wrong.
struct Snapshot<'a>(&'a Connection);

impl<'a> Snapshot<'a> {
    fn of(conn: &'a Connection) -> Self {
        execute(conn, "BEGIN");
        Self(conn)
    }
}

impl Drop for Snapshot<'_> {
    fn drop(&mut self) {
        execute(self.0, "COMMIT");
        if !self.0.is_autocommit() {
            // A snapshot that stayed would show an old file for ever.
            execute(self.0, "ROLLBACK");
        }
    }
}

fn execute(conn: &Connection, sql: &str) {
    // Its failure shows in the statements that follow.
    drop(
        conn.prepare_cached(sql)
            .and_then(|mut found| found.execute([])),
    );
}
