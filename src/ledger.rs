//! The ledger: the durable record of calls, written before anything is sent.
//!
//! A trait in verbs, each ONE atomic transition, so that no caller can stand between two halves of
//! a step. [`begin`](Ledger::begin) is the claim of id and key and the first send in one commit;
//! [`append`](Ledger::append) writes intentions and needs the current claim;
//! [`fact`](Ledger::fact) writes what the tool has said and needs none;
//! [`note`](Ledger::note) writes history and gates nothing; [`Desk`] has the operators' verbs. What
//! a verb answered `Ok` to is durable; what it answered `Err` to does not count as written.
//!
//! `sqlite` is the embedded default, `memory` exists for tests and simulation, and `contract` is
//! the one suite both pass. Deliberately absent: policy (who decides what is written is `flow`),
//! time and chance (they come as arguments), and every form of "read, then write".

pub mod alert;
pub mod batch;
#[cfg(test)]
mod contract;
pub mod desk;
pub mod error;
pub mod memory;
pub mod pending;
pub mod record;
mod relay;
mod rule;
pub mod sqlite;
pub mod step;
pub mod story;
pub mod view;

use std::sync::Arc;

pub use alert::{Told, Untold, Watch};
pub use batch::Batches;
pub use desk::Desk;
pub use error::LedgerError;
pub use pending::Pending;
pub use record::{
    Again, Begun, Claim, Kept, KeyScope, Known, NewCall, Owner, Reply, RowId, StoredRequest,
    StoredUndo,
};
pub use step::{
    Contradiction, Entry, Fact, FactWritten, Intention, News, Park, Place, Reason, Verdict, Written,
};
pub use story::Story;
pub use view::{
    CallView, Cursor, DeadLetter, DeadState, Due, Filter, Health, OwnerTest, Page, Proof,
    ProofNote, Purged, Recovered, SettledBy, Settlement, Sort, Taker, Tally,
};

use crate::call::alert::Event;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;

/// The durable record of calls.
///
/// Verbs take effect in the order in which one thread hands them over. Each answers
/// [`LedgerError::Overloaded`] when too many records wait (new calls are refused first, so that
/// running ones can still be recorded), and an error that says why when nothing can be written.
pub trait Ledger: Batches + Desk {
    /// Claims the call id and the key, and notes the first send, in one commit.
    ///
    /// An id or key whose call is settled and past its window, or was released, is claimed anew in
    /// the same step: a new life of the same row, with its history kept. Names that client and
    /// scope had before are looked at as well.
    fn begin(&self, call: NewCall) -> Pending<Begun>;

    /// The settled call that a request repeats, when that is known without a look into the store:
    /// what [`begin`](Self::begin) would answer, had it nothing to write. `None` says nothing.
    fn recall(&self, _again: &Again<'_>) -> Option<Box<Known>> {
        None
    }

    /// Writes what the owner is about to do, if `claim` is still the current one.
    fn append(&self, claim: Claim, now: Wall, intention: Intention) -> Pending<Written>;

    /// Writes what the tool has said: applied to any unsettled call, whatever the claim.
    fn fact(&self, fact: Fact) -> Pending<FactWritten>;

    /// Notes that the tool has shown that it knows a life of a call: from now on nobody who reads
    /// the row believes a "not found" about it. Needs no claim; a settled call is left as it is.
    fn recognise(&self, row: RowId, life: u32) -> Pending<()>;

    /// Adds history to a life of a call. Nothing waits for it; it is written with the next group,
    /// before every later verb that writes. When the ledger cannot take it, it is lost and counted.
    fn note(&self, row: RowId, life: u32, entries: Vec<Entry>);

    /// Claims up to `limit` dead letters that are due, or whose worker's lease ran out, for
    /// `owner`; the longest due first.
    fn claim_due(
        &self,
        owner: Owner,
        now: Wall,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<Due>>;

    /// Claims one dead letter that waits, due or not, for a caller who repeats its call or for an
    /// operator; `None` when it waits no longer. Its rounds and their times stay as they are.
    fn claim_letter(
        &self,
        row: RowId,
        life: u32,
        taker: (Taker, Owner),
        now: Wall,
        lease_until: Wall,
    ) -> Pending<Option<Due>>;

    /// A call with everything a pass over it needs, in whatever state it is, without a claim: what
    /// comes of it can be told and noted as a fact, and no intention fits it. `None` when it is
    /// gone.
    fn dossier(&self, row: RowId) -> Pending<Option<Due>>;

    /// The heartbeat: extends the lease, if `claim` is still the current one.
    fn extend(&self, claim: Claim, lease_until: Wall) -> Pending<Written>;

    /// The sweep before serving: what dead owners had under way. Calls that may have been sent are
    /// parked with reason `crash` and due at once; calls without a noted send are closed as never
    /// sent; their rounds are due again.
    fn recover(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<Recovered>;

    /// Every call with this id, of one client or of all. Empty when the ledger knows none.
    fn view(&self, client: Option<ClientName>, call_id: CallId) -> Pending<Vec<CallView>>;

    /// Whether a call is on record under this id or this key, whatever became of it. A look: it
    /// claims nothing, and what it finds may be past its window.
    fn knows(
        &self,
        client: ClientName,
        call_id: Option<CallId>,
        key: Option<(Arc<str>, Arc<KeyScope>)>,
    ) -> Pending<bool>;

    /// The whole story of every call that `name` means, of one client or of all: as a call id, else
    /// as an idempotency key or as the text one was made from. A read for people; it may look at
    /// many rows.
    fn stories(&self, client: Option<ClientName>, name: Arc<str>) -> Pending<Vec<Story>>;

    /// The dead letters that match, in the order of the filter, at most `limit` (and never more
    /// than [`PAGE_MAX`]), after `from`.
    fn dead_letters(&self, filter: Filter, from: Option<Cursor>, limit: usize) -> Pending<Page>;

    /// How many dead letters are in open states, for the gauges; by index.
    fn tally(&self) -> Pending<Vec<Tally>>;

    /// What waits to be told, and whether rows are there that no note has yet; by index.
    fn untold(&self, watches: Arc<[Watch]>) -> Pending<Untold>;

    /// Takes up to `limit` new rows of each kind into the notes of those who want to be told, and
    /// marks them: each is taken once. Whether there are more.
    fn fold_alerts(&self, watches: Arc<[Watch]>, now: Wall, limit: usize) -> Pending<bool>;

    /// Notes what became of the alert of a route and event.
    fn alert_told(&self, route: Arc<str>, event: Event, told: Told, now: Wall) -> Pending<()>;

    /// Remembers what was found about a receipt endpoint.
    fn remember_proof(&self, endpoint: Arc<str>, proof: Proof, now: Wall) -> Pending<()>;

    /// Everything remembered about receipt endpoints.
    fn proofs(&self) -> Pending<Vec<ProofNote>>;

    /// Looks at up to `batch` ripe calls and removes those whose window is over and whose dead
    /// letters, if any, ended longer ago than the retention. Never an unresolved one. Everybody who
    /// writes waits meanwhile: a hundred at a time is a millisecond or two.
    fn purge(&self, now: Wall, batch: usize) -> Pending<Purged>;

    /// Since when this ledger would know a call.
    fn knows_since(&self) -> Wall;

    /// Whether records can be written. Asked while they cannot, it also makes the ledger try again,
    /// so that a gateway without traffic finds its way back.
    fn health(&self) -> Health;

    /// Writes what waits, checkpoints, and ends. Later verbs answer [`LedgerError::Closed`].
    fn close(&self) -> Pending<()>;
}

/// The most dead letters one page holds.
pub const PAGE_MAX: usize = 1_000;
