//! The embedded ledger: one SQLite file, one writer thread, group commit.
//!
//! SQLite because an operator can open the file with any shell, its unique indexes are the last
//! line of defence for the promise, and its crash safety is older than most databases. One writer
//! thread because SQLite has one writer anyway, and because everything that waits for it can then
//! share one `fdatasync`. Reads have two threads of their own, so that a person leafing through
//! dead letters never stands in front of a call.
//!
//! Deliberately absent: a connection pool, a statement outside a transaction, and reading what a
//! step depends on anywhere but inside that step.

mod alerts;
mod append;
mod batch;
mod begin;
mod checkpoint;
mod claim;
mod db;
mod desk;
mod fact;
mod fields;
mod history;
mod items;
mod list;
mod open;
mod queue;
mod read;
mod reader;
mod recent;
mod reply;
mod reversal;
mod shared;
pub mod stopped;
mod story;
mod sweep;
mod words;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

pub use open::Sync;
pub use shared::Observer;

use begin::Claiming;
use db::{Db, Start};
use queue::Lane;
use recent::Recent;
use shared::Shared;

use super::alert::{Told, Untold, Watch};
use super::error::Cause;
use super::relay::Wakes;
use super::step::{Entry, Fact, FactWritten, Intention, Written};
use super::story::Story;
use super::view::{
    CallView, Cursor, Due, Filter, Health, OwnerTest, Page, Proof, ProofNote, Purged, Recovered,
    Taker, Tally,
};
use super::{
    Again, Begun, Claim, KeyScope, Known, Ledger, LedgerError, NewCall, Owner, Pending, RowId,
};
use crate::call::alert::Event;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;

/// Reads that may wait; two threads do thousands a second.
const READS_MAX: usize = 1_024;

/// Where and how a ledger file is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file; created when it is not there. Its folder must be.
    pub path: PathBuf,
    /// When a commit is on the disk (`ledger.sync`).
    pub sync: Sync,
    /// Records that may wait (`ledger.queue`).
    pub queue: usize,
    /// How long ended dead letters and their history stay (`ledger.retention`).
    pub retention: Duration,
    /// The time of the start; remembered as `knows_since` when the file is new.
    pub now: Wall,
}

/// A ledger in an SQLite file that only this process works on. Dropping it writes what waits.
pub struct SqliteLedger {
    shared: Arc<Shared>,
    recent: Arc<Recent>,
    knows_since: Wall,
    threads: Vec<JoinHandle<()>>,
}

impl Options {
    /// The defaults of the configuration for this file.
    #[must_use]
    pub fn new(path: &Path, now: Wall) -> Self {
        Self {
            path: path.to_owned(),
            sync: Sync::Full,
            queue: 4_096,
            retention: Duration::from_secs(30 * 86_400),
            now,
        }
    }
}

/// Looks whether the file could be opened once its lock is free, without changing it. A file that
/// is not there can be made.
///
/// # Errors
/// It is not a ledger, is newer than this program, or cannot be read.
pub fn examine(path: &Path) -> Result<(), LedgerError> {
    if !path.exists() {
        return Ok(());
    }
    open::inspect(&open::reader(path)?, path)
}

impl SqliteLedger {
    /// Locks and opens the file, brings its schema up to date and starts the threads.
    ///
    /// # Errors
    /// Says what is wrong with the file and what to do: locked, read-only, not a ledger, newer than
    /// this program, in a folder that is missing, on a full disk. The file was not changed then.
    pub fn open(options: &Options, observer: Arc<dyn Observer>) -> Result<Self, LedgerError> {
        let path = &options.path;
        let lock = open::lock(path)?;
        let conn = open::writer(path, options.sync, options.now)?;
        let told = |error: rusqlite::Error| LedgerError::Open {
            path: path.clone(),
            source: Cause::new(error),
        };
        let knows_since = conn
            .query_row(
                "SELECT value FROM meta WHERE name = 'knows_since'",
                [],
                |row| row.get(0),
            )
            .map_err(told)?;
        let recent = Arc::new(Recent::default());
        let start = Start::new(conn, options.retention, &recent).map_err(told)?;
        let shared = Arc::new(Shared::new(options.queue, READS_MAX, observer));
        let mut ledger = Self {
            shared,
            recent,
            knows_since: Wall(knows_since),
            threads: Vec::new(),
        };
        let checkpointing = open::checkpointer(path)?;
        // Two: one may be busy with a long list while the other answers receipts.
        let readers = [open::reader(path)?, open::reader(path)?];
        // The writer first: the others end when it does.
        ledger.spawn("ledger-writer", path, move |shared| {
            writer::run(start, shared, lock)
        })?;
        for conn in readers {
            ledger.spawn("ledger-reader", path, move |shared| {
                reader::run(&conn, shared)
            })?;
        }
        ledger.spawn("ledger-checkpoint", path, move |shared| {
            checkpoint::run(&checkpointing, shared);
        })?;
        Ok(ledger)
    }

    /// Groups committed since the start; for tests of the grouping.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.shared.commits()
    }

    fn spawn(
        &mut self,
        name: &str,
        path: &Path,
        body: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<(), LedgerError> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || body(&shared))
            .map_err(|error| LedgerError::Open {
                path: path.to_owned(),
                source: Cause::new(error),
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Hands a verb to the writer.
    fn write<T, F>(&self, lane: Lane, verb: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Db) -> rusqlite::Result<T> + Send + 'static,
    {
        let (work, pending) = writer::work(verb);
        match self.shared.write(work, lane) {
            Ok(()) => pending,
            Err(error) => Pending::ready(Err(error)),
        }
    }

    /// Hands a question to the readers.
    fn read<T, F>(&self, question: F) -> Pending<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, pending) = Pending::later();
        let read = Box::new(move |conn: &Connection, wakes: &mut Wakes| {
            let answer = question(conn).map_err(|error| LedgerError::Read {
                source: Cause::new(error),
            });
            reply.send_with(answer, wakes);
        });
        match self.shared.read(read) {
            Ok(()) => pending,
            Err(error) => Pending::ready(Err(error)),
        }
    }
}

impl Ledger for SqliteLedger {
    fn begin(&self, call: NewCall) -> Pending<Begun> {
        if let Some(known) = self.recent.meets(&call.again()) {
            return Pending::ready(Ok(Begun::Known(known)));
        }
        let claiming = Claiming::new(call);
        self.write(Lane::Ordinary, move |db| begin::begin(db, &claiming))
    }

    fn recall(&self, again: &Again<'_>) -> Option<Box<Known>> {
        self.recent.meets(again)
    }

    fn append(&self, claim: Claim, now: Wall, intention: Intention) -> Pending<Written> {
        self.write(Lane::Reserved, move |db| {
            append::append(db, claim, now, &intention)
        })
    }

    fn fact(&self, fact: Fact) -> Pending<FactWritten> {
        self.write(Lane::Reserved, move |db| fact::fact(db, &fact))
    }

    fn recognise(&self, row: RowId, life: u32) -> Pending<()> {
        self.write(Lane::Reserved, move |db| append::recognise(db, row, life))
    }

    fn note(&self, row: RowId, life: u32, entries: Vec<Entry>) {
        let count = entries.len();
        let work = writer::unattended(move |db| {
            entries
                .iter()
                .try_for_each(|entry| history::write(db, row, life, entry))
        });
        if self.shared.write(work, Lane::Ordinary).is_err() {
            self.shared.lost(count);
        }
    }

    fn claim_due(
        &self,
        owner: Owner,
        now: Wall,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<Due>> {
        self.write(Lane::Reserved, move |db| {
            claim::due(db, &owner, now, lease_until, limit)
        })
    }

    fn claim_letter(
        &self,
        row: RowId,
        life: u32,
        taker: (Taker, Owner),
        now: Wall,
        lease_until: Wall,
    ) -> Pending<Option<Due>> {
        self.write(Lane::Reserved, move |db| {
            claim::letter(db, (row, life), (taker.0, &taker.1), now, lease_until)
        })
    }

    fn dossier(&self, row: RowId) -> Pending<Option<Due>> {
        self.read(move |conn| read::dossier(conn, row))
    }

    fn extend(&self, claim: Claim, lease_until: Wall) -> Pending<Written> {
        self.write(Lane::Reserved, move |db| {
            append::extend(db, claim, lease_until)
        })
    }

    fn recover(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<Recovered> {
        self.write(Lane::Reserved, move |db| {
            sweep::recover(db, &owner, now, dead)
        })
    }

    fn view(&self, client: Option<ClientName>, call_id: CallId) -> Pending<Vec<CallView>> {
        let since = match client
            .as_ref()
            .map(|client| self.recent.shows(client, &call_id))
        {
            Some(Ok(call)) => return Pending::ready(Ok(vec![Arc::unwrap_or_clone(call)])),
            Some(Err(since)) => Some(since),
            None => None,
        };
        let recent = Arc::clone(&self.recent);
        self.read(move |conn| {
            let found = read::calls(conn, client.as_ref(), &call_id)?;
            if let Some(since) = since {
                recent.learn(&call_id, &found, since);
            }
            Ok(found)
        })
    }

    fn knows(
        &self,
        client: ClientName,
        call_id: Option<CallId>,
        key: Option<(Arc<str>, Arc<KeyScope>)>,
    ) -> Pending<bool> {
        self.read(move |conn| read::knows(conn, &client, call_id.as_ref(), key.as_ref()))
    }

    fn stories(&self, client: Option<ClientName>, name: Arc<str>) -> Pending<Vec<Story>> {
        self.read(move |conn| story::stories(conn, client.as_ref(), &name))
    }

    fn dead_letters(&self, filter: Filter, from: Option<Cursor>, limit: usize) -> Pending<Page> {
        self.read(move |conn| list::dead_letters(conn, &filter, from, limit))
    }

    fn tally(&self) -> Pending<Vec<Tally>> {
        self.read(read::tally)
    }

    fn untold(&self, watches: Arc<[Watch]>) -> Pending<Untold> {
        self.read(move |conn| alerts::untold(conn, &watches))
    }

    fn fold_alerts(&self, watches: Arc<[Watch]>, now: Wall, limit: usize) -> Pending<bool> {
        self.write(Lane::Reserved, move |db| {
            alerts::fold(db, &watches, now, limit)
        })
    }

    fn alert_told(&self, route: Arc<str>, event: Event, told: Told, now: Wall) -> Pending<()> {
        self.write(Lane::Reserved, move |db| {
            alerts::told(db, &route, event, told, now)
        })
    }

    fn remember_proof(&self, endpoint: Arc<str>, proof: Proof, now: Wall) -> Pending<()> {
        self.write(Lane::Reserved, move |db| {
            sweep::remember_proof(db, &endpoint, proof, now)
        })
    }

    fn proofs(&self) -> Pending<Vec<ProofNote>> {
        self.read(read::proofs)
    }

    fn purge(&self, now: Wall, batch: usize) -> Pending<Purged> {
        self.write(Lane::Ordinary, move |db| sweep::purge(db, now, batch))
    }

    fn knows_since(&self) -> Wall {
        self.knows_since
    }

    fn health(&self) -> Health {
        self.shared.health()
    }

    fn close(&self) -> Pending<()> {
        self.recent.close();
        self.shared.close()
    }
}

impl Drop for SqliteLedger {
    fn drop(&mut self) {
        let _closing = self.shared.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told its waiters; there is nothing left to do for it.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
