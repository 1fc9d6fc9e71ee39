//! The ledger in memory: for tests and simulated time only. Nothing survives the process.
//!
//! The same verbs with the same judgements (`rule`), completed inline, so that a test decides the
//! order of everything and needs no runtime. It can be told to fail, which a real disk cannot.
//! Deliberately absent: speed. It walks its rows where SQLite has an index, except for the call id,
//! without which a simulation of many calls would never end.

mod alerts;
mod batch;
mod claims;
mod desk;
mod list;
mod queue;
mod row;
mod story;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::alert::{Told, Untold, Watch};
use super::error::Cause;
use super::rule::Weight;
use super::story::Story;
use super::{
    Begun, CallView, Claim, Cursor, Due, Entry, Fact, FactWritten, Filter, Health, Intention,
    KeyScope, Known, Ledger, LedgerError, NewCall, Owner, OwnerTest, Page, Pending, Proof,
    ProofNote, Purged, Recovered, RowId, Taker, Tally, Written,
};
use crate::call::alert::Event;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use queue::Lease;
use row::Row;

/// How many records "may wait" in front of a ledger where none ever does.
const CAPACITY: usize = 4_096;

/// A ledger that forgets everything when it is dropped.
pub struct MemoryLedger {
    books: Mutex<Books>,
    retention: Duration,
    knows_since: Wall,
    failures: AtomicU64,
}

#[derive(Default)]
struct Books {
    rows: BTreeMap<RowId, Row>,
    /// The rows of each call id, one a client.
    ids: HashMap<CallId, Vec<RowId>>,
    proofs: BTreeMap<Arc<str>, ProofNote>,
    /// Ids their clients have undone, each at one upstream.
    undone: BTreeMap<(CallId, ClientName, Arc<str>), Wall>,
    /// Ids that came with another call's key: that call's row and life, and when.
    aliases: BTreeMap<(CallId, ClientName), (RowId, u32, Wall)>,
    alerts: alerts::Alerts,
    last_row: i64,
    batches: batch::Shelf,
    desk: desk::Drawer,
    closed: bool,
}

impl MemoryLedger {
    /// An empty ledger that began at `now` and keeps ended dead letters for `retention`.
    #[must_use]
    pub fn new(now: Wall, retention: Duration) -> Self {
        Self {
            books: Mutex::default(),
            retention,
            knows_since: now,
            failures: AtomicU64::new(0),
        }
    }

    /// Makes the next `count` writes fail as a full disk does. History fails silently, as it may.
    pub fn fail_writes(&self, count: u64) {
        self.failures.store(count, Ordering::SeqCst);
    }

    fn write<T>(&self, verb: impl FnOnce(&mut Books) -> T) -> Pending<T> {
        let mut books = self.books.lock();
        if books.closed {
            return Pending::ready(Err(LedgerError::Closed));
        }
        let down = |left: u64| left.checked_sub(1);
        if self
            .failures
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, down)
            .is_ok()
        {
            return Pending::ready(Err(injected()));
        }
        Pending::ready(Ok(verb(&mut books)))
    }

    fn read<T>(&self, question: impl FnOnce(&Books) -> T) -> Pending<T> {
        let books = self.books.lock();
        if books.closed {
            return Pending::ready(Err(LedgerError::Closed));
        }
        Pending::ready(Ok(question(&books)))
    }
}

fn injected() -> LedgerError {
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    LedgerError::Full {
        source: Cause::new(full),
    }
}

impl Books {
    fn append(&mut self, claim: Claim, now: Wall, intention: Intention) -> Written {
        let Some(row) = self.rows.get_mut(&claim.row) else {
            return Written::Stale;
        };
        let held = row.held();
        if !held.honours(claim) || !held.allows(&intention) {
            return Written::Stale;
        }
        if matches!(intention, Intention::Send { .. }) {
            let view = &row.view;
            let key = (
                view.call_id.clone(),
                view.client.clone(),
                Arc::clone(&view.upstream),
            );
            if self.undone.contains_key(&key) {
                return Written::Stale;
            }
        }
        row.append(now, intention);
        Written::Applied
    }

    fn fact(&mut self, fact: Fact) -> FactWritten {
        let Some(row) = self.rows.get_mut(&fact.row) else {
            return FactWritten::Gone;
        };
        let weight = row.held().weigh(fact.life, &fact.news);
        if weight == Weight::Gone {
            return FactWritten::Gone;
        }
        row.note(fact.entries);
        match weight {
            Weight::Gone => FactWritten::Gone,
            Weight::Repeats => FactWritten::Repeated,
            Weight::Alone => FactWritten::Alone,
            Weight::Contradicts(kind) => {
                let first = row.differ(fact.now, kind, &fact.news.told());
                FactWritten::Difference { kind, first }
            }
            Weight::Applies => {
                row.settle(fact.now, fact.news);
                FactWritten::Applied
            }
        }
    }

    fn note(&mut self, row: RowId, life: u32, entries: Vec<Entry>) {
        let Some(row) = self.rows.get_mut(&row) else {
            return;
        };
        for entry in entries {
            row.note_of(life, entry);
        }
    }

    fn purge(&mut self, now: Wall, batch: usize, retention: Duration) -> Purged {
        let ripe: Vec<RowId> = self
            .rows
            .values()
            .filter(|row| row.is_ripe(now, retention))
            .map(|row| row.view.row)
            .take(batch)
            .collect();
        for row in &ripe {
            if let Some(gone) = self.rows.remove(row) {
                self.forget_id(&gone.view.call_id, *row);
            }
            self.aliases.retain(|_, (of, ..)| of != row);
            self.forget_alerts(*row);
            self.desk.forget(*row);
        }
        self.undone.retain(|_, at| at.after(retention) > now);
        self.desk.purge(now, retention);
        Purged {
            calls: ripe.len() as u64,
            more: ripe.len() >= batch,
        }
    }
}

impl Ledger for MemoryLedger {
    fn begin(&self, call: NewCall) -> Pending<Begun> {
        self.write(|books| books.begin(call))
    }

    fn append(&self, claim: Claim, now: Wall, intention: Intention) -> Pending<Written> {
        self.write(|books| books.append(claim, now, intention))
    }

    fn fact(&self, fact: Fact) -> Pending<FactWritten> {
        self.write(|books| books.fact(fact))
    }

    fn recognise(&self, row: RowId, life: u32) -> Pending<()> {
        self.write(|books| {
            if let Some(row) = books.rows.get_mut(&row) {
                row.recognise(life);
            }
        })
    }

    fn note(&self, row: RowId, life: u32, entries: Vec<Entry>) {
        drop(self.write(|books| books.note(row, life, entries)));
    }

    fn claim_due(
        &self,
        owner: Owner,
        now: Wall,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<Due>> {
        self.write(|books| books.claim_due(&owner, now, lease_until, limit))
    }

    fn claim_letter(
        &self,
        row: RowId,
        life: u32,
        (taker, owner): (Taker, Owner),
        now: Wall,
        lease_until: Wall,
    ) -> Pending<Option<Due>> {
        let lease = Lease {
            taker,
            owner,
            now,
            until: lease_until,
        };
        self.write(|books| books.claim_letter(row, life, &lease))
    }

    fn dossier(&self, row: RowId) -> Pending<Option<Due>> {
        self.read(|books| books.rows.get(&row).map(Row::dossier))
    }

    fn extend(&self, claim: Claim, lease_until: Wall) -> Pending<Written> {
        self.write(|books| match books.rows.get_mut(&claim.row) {
            Some(row) if row.held().honours(claim) && row.held().is_worked_on() => {
                row.hold(lease_until);
                Written::Applied
            }
            _ => Written::Stale,
        })
    }

    fn recover(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<Recovered> {
        self.write(|books| books.recover(&owner, now, dead))
    }

    fn view(&self, client: Option<ClientName>, call_id: CallId) -> Pending<Vec<CallView>> {
        self.read(|books| {
            let is_meant = |of: &ClientName| client.as_ref().is_none_or(|c| c == of);
            let named = |row: &&Row| row.view.call_id == call_id && is_meant(&row.view.client);
            books
                .aliases_of(&call_id, is_meant)
                .chain(books.rows.values().filter(named))
                .map(|row| row.view.clone())
                .collect()
        })
    }

    fn knows(
        &self,
        client: ClientName,
        call_id: Option<CallId>,
        key: Option<(Arc<str>, Arc<KeyScope>)>,
    ) -> Pending<bool> {
        self.read(|books| {
            let is_meant = |of: &ClientName| client.is_or_was(of.as_str());
            let is_named = |id: &CallId| {
                books.aliases_of(id, is_meant).next().is_some()
                    || (books.rows.values())
                        .any(|row| row.view.call_id == *id && is_meant(&row.view.client))
            };
            let is_bound = |(key, scopes): &(Arc<str>, Arc<KeyScope>)| {
                let mut rows = books.rows.values();
                rows.any(|row| row.holds_key(&client, key, scopes))
            };
            call_id.as_ref().is_some_and(is_named) || key.as_ref().is_some_and(is_bound)
        })
    }

    fn stories(&self, client: Option<ClientName>, name: Arc<str>) -> Pending<Vec<Story>> {
        self.read(|books| books.stories(client.as_ref(), &name))
    }

    fn dead_letters(&self, filter: Filter, from: Option<Cursor>, limit: usize) -> Pending<Page> {
        self.read(|books| books.dead_letters(&filter, from, limit))
    }

    fn tally(&self) -> Pending<Vec<Tally>> {
        self.read(Books::tally)
    }

    fn untold(&self, watches: Arc<[Watch]>) -> Pending<Untold> {
        self.read(|books| books.untold(&watches))
    }

    fn fold_alerts(&self, watches: Arc<[Watch]>, now: Wall, limit: usize) -> Pending<bool> {
        self.write(|books| books.fold_alerts(&watches, now, limit))
    }

    fn alert_told(&self, route: Arc<str>, event: Event, told: Told, now: Wall) -> Pending<()> {
        self.write(|books| books.alert_told(&route, event, told, now))
    }

    fn remember_proof(&self, endpoint: Arc<str>, proof: Proof, now: Wall) -> Pending<()> {
        self.write(|books| {
            let note = ProofNote {
                endpoint: Arc::clone(&endpoint),
                proof,
                at: now,
            };
            books.proofs.insert(endpoint, note);
        })
    }

    fn proofs(&self) -> Pending<Vec<ProofNote>> {
        self.read(|books| books.proofs.values().cloned().collect())
    }

    fn purge(&self, now: Wall, batch: usize) -> Pending<Purged> {
        self.write(|books| books.purge(now, batch, self.retention))
    }

    fn knows_since(&self) -> Wall {
        self.knows_since
    }

    fn health(&self) -> Health {
        let closed = self.books.lock().closed;
        let failing = if closed {
            Some("the ledger is closed".into())
        } else if self.failures.load(Ordering::SeqCst) > 0 {
            Some(injected().to_string().into())
        } else {
            None
        };
        Health {
            failing,
            waiting: 0,
            capacity: CAPACITY,
        }
    }

    fn close(&self) -> Pending<()> {
        self.books.lock().closed = true;
        Pending::ready(Ok(()))
    }
}

impl Known {
    /// The call that was there before.
    fn boxed(same_request: bool, call: CallView) -> Box<Self> {
        Box::new(Self {
            same_request,
            call: call.into(),
        })
    }
}

#[cfg(test)]
mod tests;
