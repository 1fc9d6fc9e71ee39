//! The ledger in memory: for tests and simulated time only. Nothing survives the process.
//!
//! The same verbs with the same judgements (`rule`), completed inline, so that a test decides the
//! order of everything and needs no runtime. It can be told to fail, which a real disk cannot.
//! Deliberately absent: speed. It walks its rows where SQLite has an index.

mod alerts;
mod desk;
mod row;
mod story;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::alert::{Told, Untold, Watch};
use super::error::Cause;
use super::rule::Weight;
use super::story::Story;
use super::view::DeadLetter;
use super::{
    Begun, CallView, Claim, Cursor, DeadState, Due, Entry, Fact, FactWritten, Filter, Health,
    Intention, Known, Ledger, LedgerError, NewCall, Owner, OwnerTest, PAGE_MAX, Page, Park,
    Pending, Place, Proof, ProofNote, Purged, Recovered, RowId, Sort, Taker, Tally, Written,
};
use crate::call::alert::Event;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
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
    proofs: BTreeMap<Arc<str>, ProofNote>,
    /// Ids that came with another call's key: that call's row and life, and when.
    aliases: BTreeMap<(CallId, ClientName), (RowId, u32, Wall)>,
    alerts: alerts::Alerts,
    last_row: i64,
    desk: desk::Drawer,
    closed: bool,
}

/// Who claims one dead letter, and until when.
struct Lease {
    taker: Taker,
    owner: Owner,
    now: Wall,
    until: Wall,
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
    fn begin(&mut self, new: NewCall) -> Begun {
        let (now, client) = (new.now, new.client.clone());
        let is_taken = |row: &&mut Row| !row.held().is_free(now);
        let mine = |row: &Row| {
            row.view.call_id == new.call_id && client.is_or_was(row.view.client.as_str())
        };
        let mut taken = self.rows.values_mut().filter(|row| mine(row));
        if let Some(row) = taken.find(is_taken) {
            let same = row.is_same(&new) && row.view.idempotency_key == new.idempotency_key;
            return Begun::Known(row.known(same, now));
        }
        for alias in std::iter::once(&client).chain(client.formerly()) {
            let name = (new.call_id.clone(), alias.clone());
            if let Some(row) = self.by_alias(&name) {
                if !row.held().is_free(now) {
                    let same = row.is_same(&new) && row.view.idempotency_key == new.idempotency_key;
                    return Begun::Known(row.known(same, now));
                }
                self.aliases.remove(&name);
            }
        }
        let foreign = |row: &Row| {
            row.view.call_id == new.call_id
                && !client.is_or_was(row.view.client.as_str())
                && row.view.upstream == new.upstream
                && !row.held().is_free(now)
        };
        if new.exclusive_id && self.rows.values().any(foreign) {
            return Begun::Foreign;
        }
        for holder in self.rows.values_mut().filter(|row| row.holds_key_of(&new)) {
            if !holder.held().is_free(now) {
                let same = holder.is_same(&new);
                if same {
                    let first = (holder.view.row, holder.view.life, now);
                    self.aliases.insert((new.call_id, client), first);
                }
                return Begun::KeyTaken(holder.known(same, now));
            }
            holder.key_binds = false;
        }
        if new.wary
            && let Some(first) = self.rows.values_mut().find(|row| row.is_alike(&new))
        {
            return Begun::Alike(first.known(true, now));
        }
        let own = |row: &&Row| mine(row) && row.view.client == client;
        let own = self.rows.values().find(own).map(|row| row.view.row);
        let number = own.unwrap_or_else(|| {
            self.last_row += 1;
            RowId(self.last_row)
        });
        let old = self.rows.remove(&number);
        let row = Row::new(number, new, old);
        let claim = row.claim();
        self.rows.insert(number, row);
        Begun::Claimed(claim)
    }

    /// The call whose key this id came with, in the life it had then.
    fn by_alias(&mut self, name: &(CallId, ClientName)) -> Option<&mut Row> {
        let (row, life, _) = self.aliases.get(name)?;
        self.rows.get_mut(row).filter(|row| row.view.life == *life)
    }

    /// The calls whose keys came with this id, of one client or of any.
    fn aliases_of(
        &self,
        call_id: &CallId,
        is_meant: impl Fn(&ClientName) -> bool,
    ) -> impl Iterator<Item = &Row> {
        let names = self
            .aliases
            .iter()
            .filter(move |((id, client), _)| id == call_id && is_meant(client));
        names.filter_map(|(_, (row, life, _))| {
            let row = self.rows.get(row)?;
            (row.view.life == *life).then_some(row)
        })
    }

    fn append(&mut self, claim: Claim, now: Wall, intention: Intention) -> Written {
        let Some(row) = self.rows.get_mut(&claim.row) else {
            return Written::Stale;
        };
        let held = row.held();
        if !held.honours(claim) || !held.allows(&intention) {
            return Written::Stale;
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

    fn claim_due(&mut self, owner: &Owner, now: Wall, lease_until: Wall, limit: usize) -> Vec<Due> {
        self.give_back_by_hand(now);
        let mut due: Vec<_> = self
            .rows
            .values()
            .filter_map(|row| Some((row.due(now)?, row.view.row)))
            .collect();
        due.sort();
        due.truncate(limit);
        due.into_iter()
            .filter_map(|(_, row)| {
                Some(
                    self.rows
                        .get_mut(&row)?
                        .claim_round(owner, now, lease_until),
                )
            })
            .collect()
    }

    fn claim_letter(&mut self, row: RowId, life: u32, lease: &Lease) -> Option<Due> {
        let row = self.rows.get_mut(&row)?;
        row.held()
            .lends_to(lease.taker, life)
            .then(|| row.claim_round(&lease.owner, lease.now, lease.until))
    }

    /// What an operator's order left behind whose lease ran out goes back in front of a human.
    fn give_back_by_hand(&mut self, now: Wall) {
        let letters = self
            .rows
            .values_mut()
            .filter_map(|row| row.view.dead_letter.as_mut());
        for letter in letters.filter(|letter| letter.by_hand) {
            if letter.lease_until.is_some_and(|until| until <= now) {
                letter.give_back();
            }
        }
    }

    fn recover(&mut self, owner: &Owner, now: Wall, dead: OwnerTest) -> Recovered {
        let is_dead = |holder: &Owner, lease: Wall| {
            holder != owner && (dead == OwnerTest::AllOthers || lease <= now)
        };
        let mut recovered = Recovered::default();
        for row in self.rows.values_mut() {
            if let Some(letter) = &mut row.view.dead_letter {
                let holder = letter.owner.clone().zip(letter.lease_until);
                if holder.is_some_and(|(holder, lease)| is_dead(&holder, lease)) {
                    letter.give_back();
                    if letter.state == DeadState::Reversing {
                        letter.next_retry_time = Some(now);
                    }
                    recovered.requeued += 1;
                }
            } else if row.view.settled.is_none() && is_dead(&row.view.owner, row.view.lease_until) {
                let sent = row.view.sends > 0;
                let lost = sent || row.promised;
                *(if lost {
                    &mut recovered.parked
                } else {
                    &mut recovered.never_sent
                }) += 1;
                row.park(
                    now,
                    Park {
                        reason: if lost { "crash" } else { "never-sent" }.into(),
                        place: if lost {
                            Place::Queued { due: now }
                        } else {
                            Place::NeverSent
                        },
                        reached: sent,
                        last_error: "the gateway ended while the call was in line".into(),
                        kept: None,
                    },
                );
            }
        }
        recovered
    }

    fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.rows
            .values()
            .flat_map(|row| row.past.iter().chain(&row.view.dead_letter))
    }

    fn dead_letters(&self, filter: &Filter, from: Option<Cursor>, limit: usize) -> Page {
        let limit = limit.clamp(1, PAGE_MAX);
        let sort = filter.sort;
        let place = |letter: &DeadLetter| sort.behind(letter);
        let mut items: Vec<DeadLetter> = self
            .letters()
            .filter(|letter| row::matches(filter, letter))
            .filter(|letter| from.is_none_or(|from| row::stands_after(sort, letter, from)))
            .cloned()
            .collect();
        items.sort_by_key(place);
        if sort == Sort::Newest {
            items.reverse();
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Page {
            next: if more { items.last().map(place) } else { None },
            items,
        }
    }

    fn tally(&self) -> Vec<Tally> {
        let mut tallies: BTreeMap<(DeadState, Arc<str>), Tally> = BTreeMap::new();
        for letter in self.letters().filter(|letter| letter.state.is_open()) {
            let route = Arc::clone(&letter.route);
            let tally = tallies
                .entry((letter.state, Arc::clone(&route)))
                .or_insert(Tally {
                    route,
                    state: letter.state,
                    count: 0,
                    oldest: letter.create_time,
                });
            tally.count += 1;
            tally.oldest = tally.oldest.min(letter.create_time);
        }
        tallies.into_values().collect()
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
            self.rows.remove(row);
            self.aliases.retain(|_, (of, ..)| of != row);
            self.forget_alerts(*row);
            self.desk.forget(*row);
        }
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
        Box::new(Self { same_request, call })
    }
}

#[cfg(test)]
mod tests;
