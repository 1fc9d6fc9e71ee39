//! No batch lies on this shelf; what is asked about them is tested on the ledger in memory.

use super::{Shelf, refused};
use crate::call::id::CallId;
use crate::call::time::Wall;
use crate::ledger::batch::{
    Added, BatchId, BatchView, Batches, FollowLook, Followed, ItemDue, ItemEnd, ItemState,
    ItemView, NewBatch, NewItem, Opened, Turn, Turned, WhichBatches,
};
use crate::ledger::{Owner, OwnerTest, Pending, Purged};
use std::sync::Arc;

impl Batches for Shelf {
    fn open_batch(&self, _: NewBatch) -> Pending<Opened> {
        refused()
    }
    fn add_items(&self, _: BatchId, _: Wall, _: Vec<NewItem>) -> Pending<Added> {
        refused()
    }
    fn batch_loaded(&self, _: BatchId, _: Wall) -> Pending<Option<BatchView>> {
        refused()
    }
    fn claim_items(&self, _: BatchId, _: Owner, _: Wall, _: usize) -> Pending<Vec<ItemDue>> {
        refused()
    }
    fn extend_items(&self, _: BatchId, _: Owner, _: Wall) -> Pending<u64> {
        refused()
    }
    fn end_items(&self, _: BatchId, _: Owner, _: Wall, _: Vec<ItemEnd>) -> Pending<u64> {
        refused()
    }
    fn return_items(&self, _: BatchId, _: Owner, _: Wall, _: Vec<u32>) -> Pending<u64> {
        refused()
    }
    fn recover_items(&self, _: Owner, _: Wall, _: OwnerTest) -> Pending<u64> {
        refused()
    }
    fn turn_batch(&self, _: Arc<str>, _: Turn, _: Wall) -> Pending<Option<Turned>> {
        refused()
    }
    fn cancel_items(&self, _: BatchId, _: Wall, _: usize) -> Pending<u64> {
        refused()
    }
    fn follow_items(&self, _: FollowLook, _: Wall) -> Pending<Followed> {
        refused()
    }
    fn batch(&self, _: Arc<str>) -> Pending<Option<BatchView>> {
        refused()
    }
    fn batches(&self, _: WhichBatches, _: usize) -> Pending<Vec<BatchView>> {
        refused()
    }
    fn items(&self, _: BatchId, _: Option<ItemState>, _: u32, _: usize) -> Pending<Vec<ItemView>> {
        refused()
    }
    fn item_of(&self, _: CallId) -> Pending<Option<(Arc<str>, u32)>> {
        refused()
    }
    fn purge_batches(&self, _: Wall, _: usize) -> Pending<Purged> {
        refused()
    }
}
