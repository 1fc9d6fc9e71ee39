//! The disk under the batches: the same queue as for calls. See `disk`.

use std::sync::Arc;

use callgate::call::id::CallId;
use callgate::call::time::Wall;
use callgate::ledger::batch::{
    Added, BatchId, BatchView, Batches, FollowLook, Followed, ItemDue, ItemEnd, ItemState,
    ItemView, NewBatch, NewItem, Opened, Turn, Turned, WhichBatches,
};
use callgate::ledger::{Owner, OwnerTest, Pending, Purged};

use crate::disk::Book;

impl Batches for Book {
    fn open_batch(&self, new: NewBatch) -> Pending<Opened> {
        let what = self.tell(|| format!("open batch {}", new.name));
        self.write(what, |ledger| ledger.open_batch(new))
    }

    fn add_items(&self, batch: BatchId, now: Wall, items: Vec<NewItem>) -> Pending<Added> {
        let what = self.tell(|| format!("add {} items", items.len()));
        self.write(what, move |ledger| ledger.add_items(batch, now, items))
    }

    fn batch_loaded(&self, batch: BatchId, now: Wall) -> Pending<Option<BatchView>> {
        let what = self.tell(|| "batch loaded".to_owned());
        self.write(what, move |ledger| ledger.batch_loaded(batch, now))
    }

    fn claim_items(
        &self,
        batch: BatchId,
        owner: Owner,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<ItemDue>> {
        let what = self.tell(|| format!("claim {limit} items"));
        self.write(what, move |ledger| {
            ledger.claim_items(batch, owner, lease_until, limit)
        })
    }

    fn extend_items(&self, batch: BatchId, owner: Owner, lease_until: Wall) -> Pending<u64> {
        let what = self.tell(|| "extend items".to_owned());
        self.write(what, move |ledger| {
            ledger.extend_items(batch, owner, lease_until)
        })
    }

    fn end_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        ends: Vec<ItemEnd>,
    ) -> Pending<u64> {
        let what = self.tell(|| format!("end items {ends:?}"));
        self.write(what, move |ledger| {
            ledger.end_items(batch, owner, now, ends)
        })
    }

    fn return_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        lines: Vec<u32>,
    ) -> Pending<u64> {
        let what = self.tell(|| format!("return items {lines:?}"));
        self.write(what, move |ledger| {
            ledger.return_items(batch, owner, now, lines)
        })
    }

    fn recover_items(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<u64> {
        let what = self.tell(|| "recover items".to_owned());
        self.write(what, move |ledger| ledger.recover_items(owner, now, dead))
    }

    fn turn_batch(&self, name: Arc<str>, turn: Turn, now: Wall) -> Pending<Option<Turned>> {
        let what = self.tell(|| format!("turn {name} {turn:?}"));
        self.write(what, move |ledger| ledger.turn_batch(name, turn, now))
    }

    fn cancel_items(&self, batch: BatchId, now: Wall, limit: usize) -> Pending<u64> {
        let what = self.tell(|| "cancel items".to_owned());
        self.write(what, move |ledger| ledger.cancel_items(batch, now, limit))
    }

    fn follow_items(&self, look: FollowLook, now: Wall) -> Pending<Followed> {
        let what = self.tell(|| "follow items".to_owned());
        self.write(what, move |ledger| ledger.follow_items(look, now))
    }

    fn batch(&self, name: Arc<str>) -> Pending<Option<BatchView>> {
        self.inner().batch(name)
    }

    fn batches(&self, which: WhichBatches, limit: usize) -> Pending<Vec<BatchView>> {
        self.inner().batches(which, limit)
    }

    fn items(
        &self,
        batch: BatchId,
        state: Option<ItemState>,
        after: u32,
        limit: usize,
    ) -> Pending<Vec<ItemView>> {
        self.inner().items(batch, state, after, limit)
    }

    fn item_of(&self, call_id: CallId) -> Pending<Option<(Arc<str>, u32)>> {
        self.inner().item_of(call_id)
    }

    fn purge_batches(&self, now: Wall, limit: usize) -> Pending<Purged> {
        let what = self.tell(|| "purge batches".to_owned());
        self.write(what, move |ledger| ledger.purge_batches(now, limit))
    }
}
