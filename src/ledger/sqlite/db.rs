//! The writing connection with the little it remembers besides the file.

use std::cell::{Cell, RefCell, RefMut};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, PrepFlags, Statement};

use super::recent::{Met, Recent};
use crate::call::id::CallId;
use crate::ledger::RowId;

/// Snapshots remembered with their row; past this the memory starts over. Reloads make new ones,
/// calls do not.
const POLICIES_MAX: usize = 1_024;

/// The writer's side of the file. Lives in the writer's thread alone.
pub(super) struct Db<'c> {
    pub(super) conn: &'c Connection,
    /// How long ended dead letters stay.
    pub(super) retention: Duration,
    /// Settled calls that were met by this group's repeats.
    met: RefCell<Vec<Met>>,
    recent: Arc<Recent>,
    /// Whether there may be call ids in `aliases` or `never_send`. Most ledgers have none, and no
    /// call of theirs looks there.
    pub(super) has_names_beside: Cell<bool>,
    hot: [RefCell<Option<Statement<'c>>>; Hot::COUNT],
    last_row: i64,
    policies: HashMap<Arc<str>, i64>,
    /// The snapshot of the last call: most calls share one, and comparing addresses is cheaper
    /// than hashing the text.
    last_policy: Option<(Arc<str>, i64)>,
}

/// What the writer starts with.
pub(super) struct Start {
    pub(super) conn: Connection,
    pub(super) retention: Duration,
    pub(super) recent: Arc<Recent>,
    has_names_beside: bool,
    last_row: i64,
}

/// Statements that every call needs. They are held for good, because finding one among all the
/// prepared ones means hashing its text, twice: as much work as a small statement itself.
#[derive(Clone, Copy)]
pub(super) enum Hot {
    Begin,
    Commit,
    IsKnown,
    Alike,
    Insert,
    Settle,
    Reply,
}

impl Hot {
    const COUNT: usize = Self::Reply as usize + 1;
}

impl Start {
    pub(super) fn new(
        mut conn: Connection,
        retention: Duration,
        recent: &Arc<Recent>,
    ) -> rusqlite::Result<Self> {
        let last_row = conn.query_row("SELECT coalesce(max(id), 0) FROM calls", [], |row| {
            row.get(0)
        })?;
        let sql = "SELECT EXISTS (SELECT 1 FROM aliases) OR EXISTS (SELECT 1 FROM never_send)";
        let has_names_beside = conn.query_row(sql, [], |row| row.get(0))?;
        recent.watch(&mut conn)?;
        Ok(Self {
            conn,
            retention,
            recent: Arc::clone(recent),
            has_names_beside,
            last_row,
        })
    }
}

impl<'c> Db<'c> {
    pub(super) fn new(start: &'c Start) -> Self {
        Self {
            conn: &start.conn,
            retention: start.retention,
            met: RefCell::default(),
            recent: Arc::clone(&start.recent),
            has_names_beside: Cell::new(start.has_names_beside),
            hot: std::array::from_fn(|_| RefCell::new(None)),
            last_row: start.last_row,
            policies: HashMap::new(),
            last_policy: None,
        }
    }

    /// The statement that is always `sql`, compiled once.
    pub(super) fn hot(&self, which: Hot, sql: &str) -> rusqlite::Result<RefMut<'_, Statement<'c>>> {
        let mut slot = self.hot[which as usize].borrow_mut();
        if slot.is_none() {
            let flags = PrepFlags::SQLITE_PREPARE_PERSISTENT;
            *slot = Some(self.conn.prepare_with_flags(sql, flags)?);
        }
        Ok(RefMut::map(slot, |slot| {
            slot.as_mut().expect("it was filled just now")
        }))
    }

    /// Notes a settled call that a repeat has met; remembered once the group is durable.
    pub(super) fn meet(&self, met: Met) {
        self.met.borrow_mut().push(self.recent.noted(met));
    }

    /// Something besides its row was written about a call.
    pub(super) fn changed(&self, row: RowId) {
        self.recent.forget(row);
    }

    /// An id is another call's from now on.
    pub(super) fn renamed(&self, id: &CallId) {
        self.recent.renamed(id);
    }

    /// The group is durable: what its repeats have met need not be read again.
    pub(super) fn remember(&mut self) {
        self.recent.ended(self.met.get_mut().drain(..));
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
        self.met.get_mut().clear();
        self.policies.clear();
        self.last_policy = None;
        if !self.conn.is_autocommit() {
            // When even this fails, SQLite has rolled back by itself, or the next BEGIN tells.
            let _ = self.conn.execute_batch("ROLLBACK");
        }
        self.recent.ended(std::iter::empty());
    }
}
