//! Batches and their items: what is submitted at once and worked off by the gateway itself.
//!
//! An item is the intention of one call. Its call id is fixed when it is written and never changes,
//! so that whoever takes it up, also after a crash, asks for the same call: what became of that
//! call is the business of the calls, and an item that is run twice meets it there. The counts
//! stand in the batch's row and move in the same step as its items.
//!
//! Deliberately absent: what an answer means for an item (`batch/run` reads it), and the order of
//! sends beyond that items are claimed by line.

mod state;

use std::sync::Arc;

pub(super) use state::outcome_of;

use super::pending::Pending;
use super::record::{Owner, StoredRequest};
use super::view::{OwnerTest, Purged};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::Wall;

/// The number of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchId(pub i64);

/// The verbs of batches; part of every ledger.
pub trait Batches: Send + Sync {
    /// Makes a batch that takes items, or finds the one of that name.
    fn open_batch(&self, new: NewBatch) -> Pending<Opened>;

    /// Adds items in the order of their lines; those that are there already are only compared.
    /// All of them or none.
    fn add_items(&self, batch: BatchId, now: Wall, items: Vec<NewItem>) -> Pending<Added>;

    /// The last item came: a batch that was loading runs.
    fn batch_loaded(&self, batch: BatchId, now: Wall) -> Pending<Option<BatchView>>;

    /// Claims up to `limit` waiting items of a running batch, in order.
    fn claim_items(
        &self,
        batch: BatchId,
        owner: Owner,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<ItemDue>>;

    /// The heartbeat of everything `owner` holds in a batch; how many items that is.
    fn extend_items(&self, batch: BatchId, owner: Owner, lease_until: Wall) -> Pending<u64>;

    /// Writes how items ended that `owner` still holds; how many that were.
    fn end_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        ends: Vec<ItemEnd>,
    ) -> Pending<u64>;

    /// Gives back items that `owner` holds and has not begun, or could not get anywhere with.
    fn return_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        lines: Vec<u32>,
    ) -> Pending<u64>;

    /// Gives back what dead owners hold, in every batch; how many items that were.
    fn recover_items(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<u64>;

    /// Pauses, resumes or cancels a batch; `None` when there is none of that name.
    fn turn_batch(&self, name: Arc<str>, turn: Turn, now: Wall) -> Pending<Option<Turned>>;

    /// Ends up to `limit` waiting items of a cancelled batch; how many that were.
    fn cancel_items(&self, batch: BatchId, now: Wall, limit: usize) -> Pending<u64>;

    /// Looks at unresolved items, in order, and ends those whose call has come to its end since.
    fn follow_items(&self, look: FollowLook, now: Wall) -> Pending<Followed>;

    /// One batch.
    fn batch(&self, name: Arc<str>) -> Pending<Option<BatchView>>;

    /// Batches, the newest first.
    fn batches(&self, which: WhichBatches, limit: usize) -> Pending<Vec<BatchView>>;

    /// Items of a batch after line `after`, in order; of one state or of all.
    fn items(
        &self,
        batch: BatchId,
        state: Option<ItemState>,
        after: u32,
        limit: usize,
    ) -> Pending<Vec<ItemView>>;

    /// The batch and line of an unresolved item with this call id.
    fn item_of(&self, call_id: CallId) -> Pending<Option<(Arc<str>, u32)>>;

    /// Removes up to `limit` items of batches that ended longer ago than the retention, and then
    /// the batches. One with unresolved items stays.
    fn purge_batches(&self, now: Wall, limit: usize) -> Pending<Purged>;
}

/// Where a batch stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BatchState {
    /// Its items are still being submitted, or the submission broke off. Nothing of it is sent.
    Loading,
    /// Its items are worked off.
    Running,
    /// A human stopped it for a while: nothing new is begun.
    Paused,
    /// A human ended it: nothing new is begun, and what was not begun never will be.
    Cancelled,
    /// Every item has ended, as far as can be known.
    Finished,
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ItemState {
    /// Its turn has not come.
    Waiting,
    /// A worker has it.
    Leased,
    /// Its call succeeded.
    Done,
    /// Its call was refused for good, or failed for certain.
    Refused,
    /// Nobody knows yet: its call is a dead letter.
    Unresolved,
    /// Its row could not be made into a call; nothing was sent.
    Bad,
    /// It was not begun when the batch was cancelled.
    Cancelled,
}

/// A batch to make.
#[derive(Clone, Debug)]
pub struct NewBatch {
    /// Its name, unique in the ledger.
    pub name: Arc<str>,
    /// Whose calls its items are.
    pub client: ClientName,
    /// The route they take.
    pub route: Arc<str>,
    /// Items that may run at once.
    pub workers: u32,
    /// When.
    pub now: Wall,
}

/// The batch behind a name.
#[derive(Clone, Debug, PartialEq)]
pub enum Opened {
    /// It is new.
    New(BatchView),
    /// It was there, for the same client (under the name it has or had) and route.
    Known(BatchView),
    /// It was there, for another client or route.
    Other(BatchView),
}

/// A batch with everything known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchView {
    /// Its number.
    pub id: BatchId,
    /// Its name.
    pub name: Arc<str>,
    /// Whose calls its items are.
    pub client: ClientName,
    /// The route they take.
    pub route: Arc<str>,
    /// Where it stands.
    pub state: BatchState,
    /// Items that may run at once.
    pub workers: u32,
    /// When it was made.
    pub created_at: Wall,
    /// When its row last changed.
    pub updated_at: Wall,
    /// When it ended.
    pub ended_at: Option<Wall>,
    /// The last line there is.
    pub last_line: u32,
    /// Its items by state.
    pub counts: Counts,
}

/// The items of a batch by where they stand, and how they got there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Waiting.
    pub waiting: i64,
    /// Leased.
    pub leased: i64,
    /// Done.
    pub done: i64,
    /// Refused.
    pub refused: i64,
    /// Unresolved.
    pub unresolved: i64,
    /// Bad rows.
    pub bad: i64,
    /// Cancelled.
    pub cancelled: i64,
    /// Sent more than once.
    pub retried: i64,
    /// Settled by a receipt.
    pub by_receipt: i64,
    /// Answered by a stored result: nothing was sent for them.
    pub replayed: i64,
}

/// An item to add.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// The line of the file it begins on, from 1; unique in its batch.
    pub line: u32,
    /// What tells its content apart.
    pub hash: [u8; 16],
    /// The call it stands for, or why there is none.
    pub call: Result<ItemCall, Arc<str>>,
}

/// The call an item stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemCall {
    /// Its id, the same for ever.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// Its business key, for people.
    pub key: Option<Arc<str>>,
    /// What is sent.
    pub request: StoredRequest,
}

/// What became of items to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// So many are new, the others were there.
    Applied {
        /// Written now.
        new: u32,
        /// There before, with the same content.
        known: u32,
    },
    /// This line was there with other content, or was not there although later ones are. Nothing
    /// was written.
    Differs(u32),
    /// The batch was cancelled, or is gone.
    Closed,
}

/// An item to run.
#[derive(Clone, Debug)]
pub struct ItemDue {
    /// Its line.
    pub line: u32,
    /// Its call.
    pub call: ItemCall,
    /// When it was written: its call counts as first seen then.
    pub seen_at: Wall,
}

/// How an item ended.
#[derive(Clone, Debug)]
pub struct ItemEnd {
    /// Its line.
    pub line: u32,
    /// Done, refused or unresolved.
    pub state: ItemState,
    /// Sends of its call.
    pub attempts: u32,
    /// The status told.
    pub status: Option<u16>,
    /// How its call stands, in the words of `X-Call-Outcome`.
    pub outcome: Arc<str>,
    /// What went wrong, for people.
    pub error: Option<Arc<str>>,
    /// The id of the call whose answer this is, when its key was another call's.
    pub original: Option<CallId>,
}

/// An item as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemView {
    /// Its line.
    pub line: u32,
    /// Where it stands.
    pub state: ItemState,
    /// Its call id; a bad row has none.
    pub call_id: Option<CallId>,
    /// Its business key.
    pub key: Option<Arc<str>>,
    /// Sends of its call.
    pub attempts: u32,
    /// The status told.
    pub status: Option<u16>,
    /// How its call stands.
    pub outcome: Option<Arc<str>>,
    /// What went wrong.
    pub error: Option<Arc<str>>,
    /// The id of the call whose answer this is.
    pub original: Option<CallId>,
    /// When it last changed.
    pub updated_at: Wall,
}

/// What a human does to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Nothing new is begun until it is resumed.
    Pause,
    /// It goes on.
    Resume,
    /// What was not begun never will be.
    Cancel,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub enum Turned {
    /// The batch stands so now (also when it did before).
    Done(BatchView),
    /// Its state does not allow it.
    Not(BatchView),
}

/// Which unresolved items to look at.
#[derive(Clone, Debug)]
pub struct FollowLook {
    /// Of this batch.
    pub batch: BatchId,
    /// Whose calls they are, with the names it had: a call may be known under one of those.
    pub client: ClientName,
    /// Those after this line.
    pub after: u32,
    /// At most so many.
    pub limit: usize,
}

/// What a look at unresolved items brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Items that have ended.
    pub ended: u64,
    /// The last line looked at; `None` when there was nothing left.
    pub next: Option<u32>,
}

/// Which batches to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhichBatches {
    /// All.
    All,
    /// Those somebody has to look after: running, or with items to follow or to cancel.
    Open,
}
