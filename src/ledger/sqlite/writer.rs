//! The writer: one thread, and everything that waits in one transaction.
//!
//! It never lingers for company: while one group is on its way to the disk, the next one gathers.
//! Verbs of a group do not touch each other's fate: if one of them fails, the group is undone and
//! each is done again by itself. If the commit fails, nobody's record counts as written.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use rusqlite::ErrorCode;

use super::checkpoint;
use super::db::{Db, Hot, Start};
use super::open::FileLock;
use super::shared::Shared;
use crate::crash::{self, Point};
use crate::ledger::LedgerError;
use crate::ledger::error::Cause;
use crate::ledger::pending::{Pending, Reply};
use crate::ledger::relay::Wakes;

/// The most records one commit carries; measured: more does not make it cheaper per record.
const GROUP_MAX: usize = 512;

/// One verb on its way to the file. It can be run again after its transaction was undone.
pub(super) trait Work: Send {
    /// Does the verb inside the open transaction and keeps the answer.
    fn run(&mut self, db: &mut Db) -> rusqlite::Result<()>;
    /// Gives the answer, once it is known whether it is durable.
    fn tell(self: Box<Self>, written: Result<(), LedgerError>, wakes: &mut Wakes);
}

struct Task<F, T> {
    verb: F,
    answer: Option<T>,
    reply: Option<Reply<T>>,
}

/// Work that somebody waits for.
pub(super) fn work<T, F>(verb: F) -> (Box<dyn Work>, Pending<T>)
where
    T: Send + 'static,
    F: FnMut(&mut Db) -> rusqlite::Result<T> + Send + 'static,
{
    let (reply, pending) = Pending::later();
    (
        Box::new(Task {
            verb,
            answer: None,
            reply: Some(reply),
        }),
        pending,
    )
}

/// Work that nobody waits for.
pub(super) fn unattended<F>(verb: F) -> Box<dyn Work>
where
    F: FnMut(&mut Db) -> rusqlite::Result<()> + Send + 'static,
{
    Box::new(Task {
        verb,
        answer: None,
        reply: None,
    })
}

impl<T, F> Work for Task<F, T>
where
    T: Send,
    F: FnMut(&mut Db) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, db: &mut Db) -> rusqlite::Result<()> {
        self.answer = Some((self.verb)(db)?);
        Ok(())
    }

    fn tell(self: Box<Self>, written: Result<(), LedgerError>, wakes: &mut Wakes) {
        let Self { answer, reply, .. } = *self;
        let Some(reply) = reply else { return };
        let answer = written.and_then(|()| answer.ok_or(LedgerError::WriterGone));
        reply.send_with(answer, wakes);
    }
}

/// What stopped a group.
enum Failure {
    /// A verb failed; the others may be fine.
    Verb(LedgerError),
    /// The transaction could not be begun or committed.
    Group(LedgerError),
}

impl Failure {
    /// What the waiters are told.
    fn told(self) -> LedgerError {
        match self {
            Self::Verb(error) | Self::Group(error) => error,
        }
    }
}

/// The writer's thread: until the queue is closed and empty.
pub(super) fn run(start: Start, shared: &Arc<Shared>, lock: FileLock) {
    let ended = EndOfWriter { shared };
    let mut db = Db::new(&start);
    let mut group = Vec::with_capacity(GROUP_MAX);
    while shared.writes.take(&mut group, GROUP_MAX) {
        write_group(&mut db, shared, &mut group);
        checkpoint::finish(db.conn, shared);
    }
    // What the planner learnt and what the WAL holds; both can be done again at the next start.
    let _ = db
        .conn
        .execute_batch("PRAGMA optimize; PRAGMA wal_checkpoint(TRUNCATE)");
    drop(db);
    drop(start);
    // Before the waiters of `close` are told, so that they find the file free.
    drop(lock);
    drop(ended);
}

/// Whatever ends the writer, nobody is left waiting for it.
struct EndOfWriter<'a> {
    shared: &'a Shared,
}

impl Drop for EndOfWriter<'_> {
    fn drop(&mut self) {
        self.shared.writes.abandon();
        self.shared.writer_ended();
    }
}

fn write_group(db: &mut Db, shared: &Shared, group: &mut Vec<Box<dyn Work>>) {
    let mut wakes = Wakes::default();
    match commit(db, shared, group) {
        // Perhaps one of them alone is to blame: each by itself.
        Err(Failure::Verb(_)) if group.len() > 1 => {
            for mut work in group.drain(..) {
                let written = commit(db, shared, std::slice::from_mut(&mut work));
                work.tell(written.map_err(Failure::told), &mut wakes);
            }
        }
        written => {
            let written = written.map_err(Failure::told);
            group
                .drain(..)
                .for_each(|work| work.tell(written.clone(), &mut wakes));
        }
    }
    wakes.call();
}

/// Does a group and keeps count of how that went.
fn commit(db: &mut Db, shared: &Shared, group: &mut [Box<dyn Work>]) -> Result<(), Failure> {
    let started = shared.now();
    let done = attempt(db, group);
    match &done {
        Ok(()) => shared.committed(group.len(), started),
        // Tried again at once, one by one.
        Err(Failure::Verb(_)) if group.len() > 1 => {}
        Err(Failure::Verb(error) | Failure::Group(error)) => shared.failed(error),
    }
    done
}

/// Does a group in one transaction; after an error nothing of it is left.
fn attempt(db: &mut Db, group: &mut [Box<dyn Work>]) -> Result<(), Failure> {
    let done = execute(db, Hot::Begin, "BEGIN IMMEDIATE")
        .map_err(|error| Failure::Group(write_error(error)))
        .and_then(|()| run_all(db, group))
        .and_then(|()| {
            crash::at(Point::Committing);
            execute(db, Hot::Commit, "COMMIT").map_err(|error| Failure::Group(write_error(error)))
        });
    if done.is_err() {
        db.roll_back();
    } else {
        db.remember();
        crash::at(Point::Committed);
    }
    done
}

fn run_all(db: &mut Db, group: &mut [Box<dyn Work>]) -> Result<(), Failure> {
    // A panic in one verb is a fault of ours; it must cost that verb and not the ledger.
    let ran = catch_unwind(AssertUnwindSafe(|| {
        group.iter_mut().try_for_each(|work| work.run(db))
    }));
    match ran {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::Verb(write_error(error))),
        Err(_panic) => Err(Failure::Verb(LedgerError::WriterGone)),
    }
}

fn execute(db: &Db, which: Hot, sql: &str) -> rusqlite::Result<()> {
    db.hot(which, sql)?.execute([]).map(drop)
}

/// What SQLite said while something was being written.
pub(super) fn write_error(error: rusqlite::Error) -> LedgerError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => LedgerError::Full {
            source: Cause::new(error),
        },
        _ => LedgerError::Write {
            source: Cause::new(error),
        },
    }
}
