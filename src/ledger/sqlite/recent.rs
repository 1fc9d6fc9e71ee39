//! Settled calls that were met or read a moment ago, so that a storm of repeats, or of readers of
//! receipts, is answered from memory.
//!
//! What is here says what the file says, or is not here. A call enters when a repeat has met it,
//! after the commit in which its window was renewed, or when its receipt was read; it leaves before
//! anything that changes it is durable, because SQLite itself reports every change of its row,
//! whichever verb makes it, and whoever writes beside the row says so. A repeat is answered only
//! where the ledger would read and write nothing: the same request of the same client, inside the
//! window, in the second to which the last replay was noted. Everything else asks the writer, and
//! comes back here with the next second noted. Deliberately absent: calls that are open, parked or
//! released, and whatever was merely settled.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::call::id::{CallId, ClientName};
use crate::ledger::record::Again;
use crate::ledger::rule::Held;
use crate::ledger::{CallView, Kept, Known, RowId};

/// Bytes that are kept: some thousand calls as they usually are, what a storm of repeats or of
/// readers of receipts is about. A call that finds no room is read from the file, as every first
/// repeat is; and where more are asked for by turns than find room, each of them is (measured with
/// 1,000 calls and a quarter of this room: a receipt took 15.2 µs of CPU, a replay 17.7).
const BYTES_MAX: usize = 8 * 1024 * 1024;

/// No call takes more than this of it.
const CALL_BYTES_MAX: usize = 256 * 1024;

/// What a call takes besides its answer's body, generously.
const CALL_BYTES: usize = 2 * 1024;

/// Places that changes are noted at. Two calls that share one only cost each other a read.
const PLACES: usize = 1_024;

/// The calls; shared by the writer, which fills it, and the callers.
#[derive(Default)]
pub(super) struct Recent {
    shelf: Mutex<Shelf>,
    hasher: RandomState,
}

#[derive(Default)]
struct Shelf {
    calls: HashMap<CallId, Met>,
    /// The same by their rows, and when they came.
    rows: HashMap<RowId, (CallId, u64)>,
    /// In the order in which they came; those that left since still stand here for a while.
    order: VecDeque<(RowId, u64)>,
    came: u64,
    bytes: usize,
    changes: Changes,
    /// The file is somebody else's from now on.
    closed: bool,
}

/// When what was changed last, so that nobody keeps what was read before.
#[derive(Default)]
struct Changes {
    count: u64,
    places: Vec<Change>,
    /// Places that the open transaction has changed.
    open: Vec<usize>,
}

#[derive(Clone, Copy, Default)]
struct Change {
    /// The last one noted here.
    at: u64,
    /// It is not durable yet: a reader may still see what was before.
    is_open: bool,
}

/// A settled call as a repeat has met it, or a reader has seen it.
pub(super) struct Met {
    /// What judges a repeat; a reader does not know it.
    held: Option<Held>,
    call: Arc<CallView>,
    /// The last change that it shows.
    shows: u64,
}

/// How far a reader sees at least who begins to read now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Since(u64);

impl Met {
    /// A call that can be met again in the same way: settled in line, and bound.
    pub(super) fn of(held: Held, call: &Arc<CallView>) -> Option<Self> {
        let stays = held.is_settled() && held.binds && held.dead.is_none();
        (stays && fits(call)).then(|| Self {
            held: Some(held),
            call: Arc::clone(call),
            shows: 0,
        })
    }

    /// Whether `again` repeats it, and the ledger would answer without writing anything.
    fn is_met_by(&self, again: &Again<'_>) -> bool {
        let stands = |held: &Held| !held.is_free(again.now) && held.renewed(again.now).is_none();
        // Under a name it had before, the client may have another call of this id.
        self.call.client == *again.client
            && again.client.formerly().is_empty()
            && self.call.fingerprint == again.fingerprint
            && (again.key.is_none() || self.call.idempotency_key.as_ref() == again.key)
            && self.held.as_ref().is_some_and(stands)
    }
}

fn fits(call: &CallView) -> bool {
    size(call) <= CALL_BYTES_MAX
}

/// What a call takes here.
fn size(call: &CallView) -> usize {
    let end = call.settled.as_ref();
    let reply = end.and_then(|end| end.reply.as_ref());
    let body = match reply.map(|reply| &reply.body) {
        Some(Kept::Whole(body)) => body.len(),
        Some(Kept::Digest { .. }) | None => 0,
    };
    let document = end.and_then(|end| end.document.as_ref());
    CALL_BYTES + body + document.map_or(0, |document| document.len())
}

impl Recent {
    /// Has SQLite report what changes. Nobody changes the file but through this connection.
    pub(super) fn watch(self: &Arc<Self>, conn: &mut Connection) -> rusqlite::Result<()> {
        let recent = Arc::clone(self);
        conn.update_hook(Some(move |_, _: &str, table: &str, row| {
            if table == "calls" {
                recent.forget(RowId(row));
            }
        }))
    }

    /// The settled call that `again` repeats, if it is here.
    pub(super) fn meets(&self, again: &Again<'_>) -> Option<Box<Known>> {
        let shelf = self.shelf.lock();
        let met = shelf.calls.get(again.call_id)?;
        met.is_met_by(again).then(|| {
            Box::new(Known {
                same_request: true,
                call: Arc::clone(&met.call),
            })
        })
    }

    /// The client's settled call of this id, if it is here; else how far a look into the file sees.
    pub(super) fn shows(&self, client: &ClientName, id: &CallId) -> Result<Arc<CallView>, Since> {
        let shelf = self.shelf.lock();
        match shelf.calls.get(id) {
            Some(met) if met.call.client.as_str() == client.as_str() => Ok(Arc::clone(&met.call)),
            Some(_) | None => Err(Since(shelf.changes.count)),
        }
    }

    /// Keeps what a reader has found under the id `asked`, when nothing has changed since.
    pub(super) fn learn(&self, asked: &CallId, found: &[CallView], Since(since): Since) {
        let [call] = found else { return };
        let stays = call.settled.is_some() && call.binds && call.dead_letter.is_none();
        // An alias shows another call.
        if !stays || call.call_id != *asked || !fits(call) {
            return;
        }
        let place = self.place_of(asked);
        let mut shelf = self.shelf.lock();
        let changes = &shelf.changes;
        let fresh = |place| {
            changes
                .at(place)
                .is_none_or(|it| !it.is_open && it.at <= since)
        };
        if fresh(place_of(call.row)) && fresh(place) && !shelf.rows.contains_key(&call.row) {
            let met = Met {
                held: None,
                call: Arc::new(call.clone()),
                shows: since,
            };
            shelf.keep(met);
        }
    }

    /// A call that a repeat has met in the open transaction, and what it shows.
    pub(super) fn noted(&self, met: Met) -> Met {
        let shelf = self.shelf.lock();
        let last = shelf.changes.at(place_of(met.call.row));
        Met {
            shows: last.map_or(0, |change| change.at),
            ..met
        }
    }

    /// The transaction has ended. Keeps what its repeats have met, if it was durable and did not
    /// change it afterwards; the oldest ones make room.
    pub(super) fn ended(&self, met: impl Iterator<Item = Met>) {
        let mut shelf = self.shelf.lock();
        for met in met {
            let last = shelf.changes.at(place_of(met.call.row));
            if last.map_or(0, |change| change.at) == met.shows {
                shelf.keep(met);
            }
        }
        shelf.changes.close();
    }

    /// The ledger is let go: nothing is known any more about what the file says.
    pub(super) fn close(&self) {
        let closed = Shelf {
            closed: true,
            ..Shelf::default()
        };
        *self.shelf.lock() = closed;
    }

    /// A row has changed, or what else is told about its call.
    pub(super) fn forget(&self, row: RowId) {
        let mut shelf = self.shelf.lock();
        shelf.forget(row);
        shelf.changes.note(place_of(row));
    }

    /// The id means another call from now on.
    pub(super) fn renamed(&self, id: &CallId) {
        let place = self.place_of(id);
        let mut shelf = self.shelf.lock();
        if let Some(met) = shelf.calls.get(id) {
            let row = met.call.row;
            shelf.forget(row);
        }
        shelf.changes.note(place);
    }

    fn place_of(&self, id: &CallId) -> usize {
        self.hasher.hash_one(id) as usize % PLACES
    }
}

const fn place_of(row: RowId) -> usize {
    row.0.unsigned_abs() as usize % PLACES
}

impl Changes {
    /// The last change at a place, if there was one.
    fn at(&self, place: usize) -> Option<Change> {
        self.places.get(place).copied()
    }

    fn note(&mut self, place: usize) {
        if self.places.is_empty() {
            self.places.resize(PLACES, Change::default());
        }
        self.count += 1;
        let change = Change {
            at: self.count,
            is_open: true,
        };
        if let Some(its) = self.places.get_mut(place)
            && !std::mem::replace(its, change).is_open
        {
            self.open.push(place);
        }
    }

    /// What was open is durable, or undone: whoever began to read before now may not have seen it.
    fn close(&mut self) {
        self.count += 1;
        let closed = Change {
            at: self.count,
            is_open: false,
        };
        for place in self.open.drain(..) {
            if let Some(its) = self.places.get_mut(place) {
                *its = closed;
            }
        }
    }
}

impl Shelf {
    fn keep(&mut self, met: Met) {
        if self.closed {
            return;
        }
        let row = met.call.row;
        self.forget(row);
        // Another client's call of the same id may be here; one of them is enough.
        if let Entry::Vacant(free) = self.calls.entry(met.call.call_id.clone()) {
            self.came += 1;
            self.bytes += size(&met.call);
            self.rows.insert(row, (free.key().clone(), self.came));
            self.order.push_back((row, self.came));
            free.insert(met);
        }
        while self.bytes > BYTES_MAX
            && let Some((oldest, came)) = self.order.pop_front()
        {
            if is_here(&self.rows, oldest, came) {
                self.forget(oldest);
            }
        }
        if self.order.len() > 2 * self.rows.len() + 16 {
            let rows = &self.rows;
            self.order.retain(|(row, came)| is_here(rows, *row, *came));
        }
    }

    fn forget(&mut self, row: RowId) {
        if let Some((call_id, _)) = self.rows.remove(&row)
            && let Some(met) = self.calls.remove(&call_id)
        {
            self.bytes -= size(&met.call);
        }
    }
}

fn is_here(rows: &HashMap<RowId, (CallId, u64)>, row: RowId, came: u64) -> bool {
    rows.get(&row).is_some_and(|(_, last)| *last == came)
}
