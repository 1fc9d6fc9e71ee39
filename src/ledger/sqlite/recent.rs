//! Settled calls that were met a moment ago, so that a storm of repeats is answered from memory.
//!
//! What is here says what the file says, or is not here. A call enters when a repeat has met it,
//! after the commit in which its window was renewed; it leaves before anything that changes its row
//! is durable, because SQLite itself reports every such change, whichever verb makes it. It answers
//! only where the ledger would read and write nothing: the same request of the same client, inside
//! the window, in the second to which the last replay was noted. Everything else asks the writer,
//! and comes back here with the next second noted. Deliberately absent: calls that are open, parked
//! or released, and whatever was merely settled and not repeated.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use crate::call::id::CallId;
use crate::ledger::rule::Held;
use crate::ledger::{CallView, Kept, Known, NewCall, RowId};

/// Bytes that are kept: some hundred calls as they usually are, and a few per cent of what an idle
/// gateway takes. A call that finds no room is read from the file, as every first repeat is.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// What a call takes besides its answer's body, generously.
const CALL_BYTES: usize = 2 * 1024;

/// The calls; shared by the writer, which fills it, and the callers.
#[derive(Default)]
pub(super) struct Recent(Mutex<Shelf>);

#[derive(Default)]
struct Shelf {
    calls: HashMap<CallId, Met>,
    /// The same by their rows, and when they came.
    rows: HashMap<RowId, (CallId, u64)>,
    /// In the order in which they came; those that left since still stand here for a while.
    order: VecDeque<(RowId, u64)>,
    came: u64,
    bytes: usize,
    /// The file is somebody else's from now on.
    closed: bool,
}

/// A settled call as a repeat has met it.
pub(super) struct Met {
    held: Held,
    call: CallView,
}

impl Met {
    /// A call that can be met again in the same way: settled in line, and bound.
    pub(super) fn of(held: Held, call: &CallView) -> Option<Self> {
        let stays = held.is_settled() && held.binds && held.dead.is_none();
        let fits = size(call) <= BYTES_MAX / 8;
        (stays && fits).then(|| Self {
            held,
            call: call.clone(),
        })
    }

    /// Whether `new` repeats it, and the ledger would answer without writing anything.
    fn is_met_by(&self, new: &NewCall) -> bool {
        // Under a name it had before, the client may have another call of this id.
        self.call.client == new.client
            && new.client.formerly().is_empty()
            && self.call.fingerprint == new.fingerprint
            && self.call.idempotency_key == new.idempotency_key
            && !self.held.is_free(new.now)
            && self.held.renewed(new.now).is_none()
    }
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

    /// The settled call that `new` repeats, if it is here.
    pub(super) fn meets(&self, new: &NewCall) -> Option<Box<Known>> {
        let shelf = self.0.lock();
        let met = shelf.calls.get(&new.call_id)?;
        met.is_met_by(new).then(|| {
            Box::new(Known {
                same_request: true,
                call: met.call.clone(),
            })
        })
    }

    /// Keeps a call; the oldest ones make room.
    pub(super) fn keep(&self, met: Met) {
        self.0.lock().keep(met);
    }

    /// The ledger is let go: nothing is known any more about what the file says.
    pub(super) fn close(&self) {
        let closed = Shelf {
            closed: true,
            ..Shelf::default()
        };
        *self.0.lock() = closed;
    }

    /// A row has changed, or what else is told about its call.
    pub(super) fn forget(&self, row: RowId) {
        self.0.lock().forget(row);
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
