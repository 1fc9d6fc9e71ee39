//! The wheel's slots: linked lists in one vector, so that an insert and a cancel allocate nothing
//! once the wheel is warm.
//!
//! Knows ticks only, no time and no task.

use std::task::Waker;

/// One turn is 2,048 ticks of 10 ms, 20 s: most timeouts are shorter and looked at once.
const SLOTS: usize = 2048;
const WORDS: usize = SLOTS / 64;
const NIL: u32 = u32::MAX;

/// A sleep's place; the generation tells a place used again from the one it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

pub(super) struct Slots {
    nodes: Vec<Node>,
    /// First node of each slot's list.
    heads: Box<[u32; SLOTS]>,
    /// One bit per slot with a list.
    occupied: [u64; WORDS],
    /// First unused node.
    free: u32,
    len: usize,
    /// The last tick looked at.
    now: u64,
    /// When the turning task looks next; `None` while it waits for a first sleep.
    looks_at: Option<u64>,
}

struct Node {
    tick: u64,
    prev: u32,
    next: u32,
    generation: u32,
    place: Place,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Free,
    Waiting,
    Due,
}

impl Slots {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            heads: Box::new([NIL; SLOTS]),
            occupied: [0; WORDS],
            free: NIL,
            len: 0,
            now: 0,
            looks_at: None,
        }
    }

    /// When the turning task looks next.
    #[cfg(test)]
    pub(super) const fn next_look(&self) -> Option<u64> {
        self.looks_at
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a sleep ending at `tick`; true when the turning task has to look sooner than planned.
    pub(super) fn insert(&mut self, tick: u64) -> (Key, bool) {
        // A tick already looked at would only come round with the next turn.
        let tick = tick.max(self.now + 1);
        let index = self.take_free();
        let slot = slot_of(tick);
        let head = self.heads[slot];
        if head != NIL {
            self.nodes[head as usize].prev = index;
        }
        self.heads[slot] = index;
        self.occupied[slot / 64] |= 1 << (slot % 64);
        let node = &mut self.nodes[index as usize];
        node.tick = tick;
        node.prev = NIL;
        node.next = head;
        node.place = Place::Waiting;
        let generation = node.generation;
        self.len += 1;
        let sooner = self.looks_at.is_none_or(|at| tick < at);
        if sooner {
            self.looks_at = Some(tick);
        }
        (Key { index, generation }, sooner)
    }

    /// Whether the sleep has ended (its place is then given back); otherwise keeps `waker`.
    pub(super) fn poll(&mut self, key: Key, waker: &Waker) -> bool {
        let Some(node) = self.node(key) else {
            return true;
        };
        match node.place {
            Place::Waiting => {
                if !node
                    .waker
                    .as_ref()
                    .is_some_and(|kept| kept.will_wake(waker))
                {
                    node.waker = Some(waker.clone());
                }
                false
            }
            Place::Due | Place::Free => {
                self.remove(key);
                true
            }
        }
    }

    /// Takes a sleep off the wheel, ended or not.
    pub(super) fn remove(&mut self, key: Key) {
        let Some(node) = self.node(key) else { return };
        let place = node.place;
        node.waker = None;
        if place == Place::Waiting {
            self.unlink(key.index);
        }
        if place != Place::Free {
            self.give_back(key.index);
            self.len -= 1;
        }
    }

    /// Ends every sleep due at or before `now`, handing out the wakers, and says at which tick to
    /// look again.
    pub(super) fn advance(&mut self, now: u64, due: &mut Vec<Waker>) -> Option<u64> {
        if now > self.now {
            let steps = (now - self.now).min(SLOTS as u64);
            for tick in (now + 1 - steps)..=now {
                self.expire_slot(slot_of(tick), now, due);
            }
            self.now = now;
        }
        self.looks_at = self.next_occupied();
        self.looks_at
    }

    fn expire_slot(&mut self, slot: usize, now: u64, due: &mut Vec<Waker>) {
        let mut at = self.heads[slot];
        while at != NIL {
            let next = self.nodes[at as usize].next;
            if self.nodes[at as usize].tick <= now {
                self.unlink(at);
                let node = &mut self.nodes[at as usize];
                node.place = Place::Due;
                due.extend(node.waker.take());
            }
            at = next;
        }
    }

    /// The first tick after `now` whose slot holds anything.
    fn next_occupied(&self) -> Option<u64> {
        let start = slot_of(self.now + 1);
        // One word more than there are: the first is looked at from `start` on, and the part of
        // it before `start` comes last.
        for step in 0..=WORDS {
            let word = (start / 64 + step) % WORDS;
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            if bits != 0 {
                let slot = word * 64 + bits.trailing_zeros() as usize;
                let ahead = (slot + SLOTS - start) % SLOTS;
                return Some(self.now + 1 + ahead as u64);
            }
        }
        None
    }

    fn node(&mut self, key: Key) -> Option<&mut Node> {
        self.nodes
            .get_mut(key.index as usize)
            .filter(|node| node.generation == key.generation)
    }

    fn unlink(&mut self, index: u32) {
        let Node {
            prev, next, tick, ..
        } = self.nodes[index as usize];
        if next != NIL {
            self.nodes[next as usize].prev = prev;
        }
        if prev != NIL {
            self.nodes[prev as usize].next = next;
            return;
        }
        let slot = slot_of(tick);
        self.heads[slot] = next;
        if next == NIL {
            self.occupied[slot / 64] &= !(1 << (slot % 64));
        }
    }

    fn take_free(&mut self) -> u32 {
        if self.free != NIL {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            return index;
        }
        // A sleep belongs to a connection or a call; both are bounded far below this.
        let index = u32::try_from(self.nodes.len()).expect("fewer than 2^32 sleeps at once");
        self.nodes.push(Node {
            tick: 0,
            prev: NIL,
            next: NIL,
            generation: 0,
            place: Place::Free,
            waker: None,
        });
        index
    }

    fn give_back(&mut self, index: u32) {
        let free = self.free;
        let node = &mut self.nodes[index as usize];
        node.place = Place::Free;
        node.generation = node.generation.wrapping_add(1);
        node.next = free;
        self.free = index;
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the remainder is below SLOTS"
)]
const fn slot_of(tick: u64) -> usize {
    (tick % SLOTS as u64) as usize
}
