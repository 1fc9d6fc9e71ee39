//! The writing connection with the little it remembers besides the file.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension};

use crate::ledger::RowId;

/// Snapshots remembered with their row; past this the memory starts over. Reloads make new ones,
/// calls do not.
const POLICIES_MAX: usize = 1_024;

/// The writer's side of the file. Lives in the writer's thread alone.
pub(super) struct Db {
    pub(super) conn: Connection,
    /// How long ended dead letters stay.
    pub(super) retention: Duration,
    last_row: i64,
    policies: HashMap<Arc<str>, i64>,
    /// The snapshot of the last call: most calls share one, and comparing addresses is cheaper
    /// than hashing the text.
    last_policy: Option<(Arc<str>, i64)>,
}

impl Db {
    pub(super) fn new(conn: Connection, retention: Duration) -> rusqlite::Result<Self> {
        let last: i64 = conn.query_row("SELECT coalesce(max(id), 0) FROM calls", [], |row| {
            row.get(0)
        })?;
        Ok(Self {
            conn,
            retention,
            last_row: last,
            policies: HashMap::new(),
            last_policy: None,
        })
    }

    /// A row number that no call of this process had before. Given out here and not by SQLite,
    /// which would use the number of a purged row again, and a forgotten claim with it.
    pub(super) const fn fresh_row(&self) -> RowId {
        RowId(self.last_row + 1)
    }

    /// That number has a row now.
    pub(super) const fn use_row(&mut self, row: RowId) {
        self.last_row = row.0;
    }

    /// The row of a policy snapshot, written when it is new.
    pub(super) fn policy(&mut self, text: &Arc<str>) -> rusqlite::Result<i64> {
        if let Some((last, id)) = &self.last_policy
            && Arc::ptr_eq(last, text)
        {
            return Ok(*id);
        }
        let id = match self.policies.get(text) {
            Some(id) => *id,
            None => self.store_policy(text)?,
        };
        self.last_policy = Some((Arc::clone(text), id));
        Ok(id)
    }

    fn store_policy(&mut self, text: &Arc<str>) -> rusqlite::Result<i64> {
        let found = self
            .conn
            .prepare_cached("SELECT id FROM policies WHERE text = ?1")?
            .query_row([&**text], |row| row.get(0))
            .optional()?;
        let id = match found {
            Some(id) => id,
            None => self
                .conn
                .prepare_cached("INSERT INTO policies (text) VALUES (?1)")?
                .insert([&**text])?,
        };
        if self.policies.len() >= POLICIES_MAX {
            self.policies.clear();
        }
        self.policies.insert(Arc::clone(text), id);
        Ok(id)
    }

    /// Undoes what is open, and forgets what may have been undone with it.
    pub(super) fn roll_back(&mut self) {
        self.policies.clear();
        self.last_policy = None;
        if !self.conn.is_autocommit() {
            // When even this fails, SQLite has rolled back by itself, or the next BEGIN tells.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
    }
}
