//! Batches in memory: the same verbs over sorted maps.

mod follow;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Books, MemoryLedger};
use crate::call::id::CallId;
use crate::call::time::Wall;
use crate::ledger::batch::{
    Added, BatchId, BatchState, BatchView, Batches, Counts, FollowLook, Followed, ItemCall,
    ItemDue, ItemEnd, ItemState, ItemView, NewBatch, NewItem, Opened, Turn, Turned, WhichBatches,
};
use crate::ledger::{Owner, OwnerTest, Pending, Purged};

/// Every batch, by number.
#[derive(Default)]
pub(super) struct Shelf {
    batches: BTreeMap<BatchId, Batch>,
    last: i64,
}

struct Batch {
    view: BatchView,
    items: BTreeMap<u32, Item>,
}

struct Item {
    view: ItemView,
    hash: [u8; 16],
    call: Option<ItemCall>,
    lease: Option<(Owner, Wall)>,
    seen_at: Wall,
}

impl Shelf {
    fn named(&mut self, name: &str) -> Option<&mut Batch> {
        self.batches
            .values_mut()
            .find(|batch| *batch.view.name == *name)
    }

    fn open(&mut self, new: NewBatch) -> Opened {
        if let Some(found) = self.named(&new.name) {
            let view = found.view.clone();
            let same = new.client.is_or_was(view.client.as_str()) && view.route == new.route;
            return if same {
                Opened::Known(view)
            } else {
                Opened::Other(view)
            };
        }
        self.last += 1;
        let view = BatchView {
            id: BatchId(self.last),
            name: new.name,
            client: new.client,
            route: new.route,
            state: BatchState::Loading,
            workers: new.workers,
            created_at: new.now,
            updated_at: new.now,
            ended_at: None,
            last_line: 0,
            counts: Counts::default(),
        };
        let batch = Batch {
            view: view.clone(),
            items: BTreeMap::new(),
        };
        self.batches.insert(view.id, batch);
        Opened::New(view)
    }

    fn recover(&mut self, owner: &Owner, now: Wall, dead: OwnerTest) -> u64 {
        let is_void = |(of, until): &(Owner, Wall)| match dead {
            OwnerTest::AllOthers => of != owner,
            OwnerTest::LeaseRanOut => of != owner && *until <= now,
        };
        let mut recovered = 0;
        for batch in self.batches.values_mut() {
            for item in batch.items.values_mut() {
                if item.lease.as_ref().is_some_and(is_void) {
                    item.give_back(&mut batch.view.counts);
                    batch.view.updated_at = now;
                    recovered += 1;
                }
            }
        }
        recovered
    }
}

impl Batch {
    fn add(&mut self, now: Wall, items: Vec<NewItem>) -> Added {
        if self.view.state == BatchState::Cancelled {
            return Added::Closed;
        }
        let before = self.view.last_line;
        let differs = |item: &&NewItem| {
            let known = self.items.get(&item.line);
            item.line <= before && known.is_none_or(|known| known.hash != item.hash)
        };
        if let Some(item) = items.iter().find(differs) {
            return Added::Differs(item.line);
        }
        let (mut new, mut known) = (0, 0);
        for item in items {
            if item.line <= before {
                known += 1;
                continue;
            }
            new += 1;
            self.view.last_line = self.view.last_line.max(item.line);
            let item = Item::new(item, now);
            *self.view.counts.of(item.view.state) += 1;
            self.items.insert(item.view.line, item);
        }
        if new > 0 {
            self.view.state = BatchState::Loading;
            self.view.ended_at = None;
            self.view.updated_at = now;
        }
        Added::Applied { new, known }
    }

    fn claim(&mut self, owner: &Owner, lease_until: Wall, limit: usize) -> Vec<ItemDue> {
        if self.view.state != BatchState::Running {
            return Vec::new();
        }
        let waiting = self
            .items
            .values_mut()
            .filter(|item| item.view.state == ItemState::Waiting);
        let mut due = Vec::new();
        for item in waiting.take(limit) {
            let call = item.call.clone().expect("a waiting item has a call");
            item.view.state = ItemState::Leased;
            item.lease = Some((owner.clone(), lease_until));
            self.view
                .counts
                .moved(ItemState::Waiting, ItemState::Leased);
            due.push(ItemDue {
                line: item.view.line,
                call,
                seen_at: item.seen_at,
            });
        }
        due
    }

    /// The items that `owner` holds.
    fn held(&mut self, owner: &Owner) -> impl Iterator<Item = &mut Item> {
        let is_his = move |item: &&mut Item| matches!(&item.lease, Some((of, _)) if of == owner);
        self.items.values_mut().filter(is_his)
    }

    fn end(&mut self, owner: &Owner, now: Wall, ends: Vec<ItemEnd>) -> u64 {
        let mut ended = 0;
        for end in ends {
            let item = self.items.get_mut(&end.line);
            let is_his = |item: &&mut Item| matches!(&item.lease, Some((of, _)) if of == owner);
            let Some(item) = item.filter(is_his) else {
                continue;
            };
            ended += 1;
            self.view.counts.moved(ItemState::Leased, end.state);
            self.view.counts.how(&end);
            item.lease = None;
            item.view = ItemView {
                state: end.state,
                attempts: end.attempts,
                status: end.status,
                outcome: Some(end.outcome),
                error: end.error,
                original: end.original,
                updated_at: now,
                ..item.view.clone()
            };
        }
        if ended > 0 {
            self.view.close_if_over(now);
        }
        ended
    }

    fn give_back(&mut self, owner: &Owner, now: Wall, lines: &[u32]) -> u64 {
        let mut counts = self.view.counts;
        let mut returned = 0;
        for item in self.held(owner) {
            if lines.contains(&item.view.line) {
                item.give_back(&mut counts);
                returned += 1;
            }
        }
        self.view.counts = counts;
        if returned > 0 {
            self.view.updated_at = now;
        }
        returned
    }

    fn cancel(&mut self, now: Wall, limit: usize) -> u64 {
        if self.view.state != BatchState::Cancelled {
            return 0;
        }
        let waiting = self
            .items
            .values_mut()
            .filter(|item| item.view.state == ItemState::Waiting);
        let mut cancelled = 0;
        for item in waiting.take(limit) {
            item.view.state = ItemState::Cancelled;
            item.view.updated_at = now;
            self.view
                .counts
                .moved(ItemState::Waiting, ItemState::Cancelled);
            cancelled += 1;
        }
        if cancelled > 0 {
            self.view.close_if_over(now);
        }
        cancelled
    }
}

impl Item {
    fn new(new: NewItem, now: Wall) -> Self {
        let (call, error) = match new.call {
            Ok(call) => (Some(call), None),
            Err(why) => (None, Some(why)),
        };
        let state = if call.is_some() {
            ItemState::Waiting
        } else {
            ItemState::Bad
        };
        let view = ItemView {
            line: new.line,
            state,
            call_id: call.as_ref().map(|call| call.call_id.clone()),
            key: call.as_ref().and_then(|call| call.key.clone()),
            attempts: 0,
            status: None,
            outcome: None,
            error,
            original: None,
            updated_at: now,
        };
        Self {
            view,
            hash: new.hash,
            call,
            lease: None,
            seen_at: now,
        }
    }

    fn give_back(&mut self, counts: &mut Counts) {
        self.lease = None;
        self.view.state = ItemState::Waiting;
        counts.moved(ItemState::Leased, ItemState::Waiting);
    }
}

impl Books {
    fn with_batch<T>(&mut self, id: BatchId, gone: T, verb: impl FnOnce(&mut Batch) -> T) -> T {
        self.batches.batches.get_mut(&id).map_or(gone, verb)
    }
}

impl Batches for MemoryLedger {
    fn open_batch(&self, new: NewBatch) -> Pending<Opened> {
        self.write(|books| books.batches.open(new))
    }

    fn add_items(&self, batch: BatchId, now: Wall, items: Vec<NewItem>) -> Pending<Added> {
        self.write(|books| books.with_batch(batch, Added::Closed, |batch| batch.add(now, items)))
    }

    fn batch_loaded(&self, batch: BatchId, now: Wall) -> Pending<Option<BatchView>> {
        self.write(|books| {
            books.with_batch(batch, None, |batch| {
                if batch.view.state == BatchState::Loading {
                    batch.view.state = BatchState::Running;
                    batch.view.close_if_over(now);
                }
                Some(batch.view.clone())
            })
        })
    }

    fn claim_items(
        &self,
        batch: BatchId,
        owner: Owner,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<ItemDue>> {
        self.write(|books| {
            books.with_batch(batch, Vec::new(), |batch| {
                batch.claim(&owner, lease_until, limit)
            })
        })
    }

    fn extend_items(&self, batch: BatchId, owner: Owner, lease_until: Wall) -> Pending<u64> {
        self.write(|books| {
            books.with_batch(batch, 0, |batch| {
                let mut extended = 0;
                for item in batch.held(&owner) {
                    item.lease = Some((owner.clone(), lease_until));
                    extended += 1;
                }
                extended
            })
        })
    }

    fn end_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        ends: Vec<ItemEnd>,
    ) -> Pending<u64> {
        self.write(|books| books.with_batch(batch, 0, |batch| batch.end(&owner, now, ends)))
    }

    fn return_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        lines: Vec<u32>,
    ) -> Pending<u64> {
        self.write(|books| books.with_batch(batch, 0, |batch| batch.give_back(&owner, now, &lines)))
    }

    fn recover_items(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<u64> {
        self.write(|books| books.batches.recover(&owner, now, dead))
    }

    fn turn_batch(&self, name: Arc<str>, turn: Turn, now: Wall) -> Pending<Option<Turned>> {
        self.write(|books| {
            let batch = books.batches.named(&name)?;
            let Some(state) = batch.view.state.after(turn) else {
                return Some(Turned::Not(batch.view.clone()));
            };
            if batch.view.state != state {
                batch.view.state = state;
                batch.view.close_if_over(now);
            }
            Some(Turned::Done(batch.view.clone()))
        })
    }

    fn cancel_items(&self, batch: BatchId, now: Wall, limit: usize) -> Pending<u64> {
        self.write(|books| books.with_batch(batch, 0, |batch| batch.cancel(now, limit)))
    }

    fn follow_items(&self, look: FollowLook, now: Wall) -> Pending<Followed> {
        self.write(|books| books.follow(&look, now))
    }

    fn batch(&self, name: Arc<str>) -> Pending<Option<BatchView>> {
        self.read(|books| {
            let mut all = books.batches.batches.values();
            let found = all.find(|batch| batch.view.name == name);
            found.map(|batch| batch.view.clone())
        })
    }

    fn batches(&self, which: WhichBatches, limit: usize) -> Pending<Vec<BatchView>> {
        self.read(|books| {
            let all = books.batches.batches.values().rev();
            let wanted = all.filter(|batch| which == WhichBatches::All || batch.view.is_open());
            wanted.take(limit).map(|batch| batch.view.clone()).collect()
        })
    }

    fn items(
        &self,
        batch: BatchId,
        state: Option<ItemState>,
        after: u32,
        limit: usize,
    ) -> Pending<Vec<ItemView>> {
        self.read(|books| {
            let Some(batch) = books.batches.batches.get(&batch) else {
                return Vec::new();
            };
            let rest = batch.items.range(after.saturating_add(1)..);
            let wanted = rest
                .map(|(_, item)| &item.view)
                .filter(|view| state.is_none_or(|state| state == view.state));
            wanted.take(limit).cloned().collect()
        })
    }

    fn item_of(&self, call_id: CallId) -> Pending<Option<(Arc<str>, u32)>> {
        self.read(|books| {
            books.batches.batches.values().find_map(|batch| {
                let mut items = batch.items.values();
                let found = items.find(|item| {
                    item.view.state == ItemState::Unresolved
                        && item.view.call_id.as_ref() == Some(&call_id)
                })?;
                Some((Arc::clone(&batch.view.name), found.view.line))
            })
        })
    }

    fn purge_batches(&self, now: Wall, limit: usize) -> Pending<Purged> {
        let kept_ms = i64::try_from(self.retention.as_millis()).unwrap_or(i64::MAX);
        let before = Wall(now.0.saturating_sub(kept_ms));
        self.write(|books| books.purge_batches(before, limit))
    }
}
