//! What the threads of the ledger share: the queues, the health, and the signals between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::queue::{Lane, Queue};
use super::writer::{Work, unattended};
use crate::call::time::Mono;
use crate::clock::Clock;
use crate::ledger::pending::{Pending, Reply};
use crate::ledger::relay::Wakes;
use crate::ledger::{Health, LedgerError};

/// What is told to whoever keeps the metrics. Called from the ledger's threads; must not block.
pub trait Observer: Send + Sync {
    /// A group of `records` became durable and took this long.
    fn committed(&self, records: usize, took: Duration) {
        let _ = (records, took);
    }

    /// A record was refused because too many wait.
    fn overloaded(&self) {}

    /// A question was refused because too many wait.
    fn crowded(&self) {}

    /// History was lost because it could not be queued.
    fn history_lost(&self, entries: usize) {
        let _ = entries;
    }

    /// A group could not be written.
    fn failed(&self, error: &LedgerError) {
        let _ = error;
    }
}

/// Nobody looks.
impl Observer for () {}

/// One read on its way to a reader thread.
pub(super) type Read = Box<dyn FnOnce(&Connection, &mut Wakes) + Send>;

/// Shared by the handle and all threads.
pub(super) struct Shared {
    pub(super) writes: Queue<Box<dyn Work>>,
    pub(super) reads: Queue<Read>,
    observer: Arc<dyn Observer>,
    /// Only ever compared with itself, so it need not be the process's own.
    clock: Clock,
    commits: AtomicU64,
    failing: AtomicBool,
    failure: Mutex<Option<Arc<str>>>,
    probing: AtomicBool,
    /// Held during a pass of the checkpointer.
    pub(super) checkpointing: Mutex<()>,
    checkpoint_wanted: AtomicBool,
    checkpointer: Mutex<Option<Thread>>,
    checkpointer_asleep: AtomicBool,
    closing: Mutex<Closing>,
}

#[derive(Default)]
struct Closing {
    waiters: Vec<Reply<()>>,
    ended: bool,
}

impl Shared {
    pub(super) fn new(writes: usize, reads: usize, observer: Arc<dyn Observer>) -> Self {
        Self {
            writes: Queue::new(writes),
            reads: Queue::new(reads),
            observer,
            clock: Clock::start(),
            commits: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            failure: Mutex::new(None),
            probing: AtomicBool::new(false),
            checkpointing: Mutex::new(()),
            checkpoint_wanted: AtomicBool::new(false),
            checkpointer: Mutex::new(None),
            checkpointer_asleep: AtomicBool::new(false),
            closing: Mutex::default(),
        }
    }

    /// Hands a record to the writer.
    pub(super) fn write(&self, work: Box<dyn Work>, lane: Lane) -> Result<(), LedgerError> {
        self.writes.push(work, lane).inspect_err(|error| {
            if error.is_overload() {
                self.observer.overloaded();
            }
        })
    }

    /// Hands a question to the readers.
    pub(super) fn read(&self, read: Read) -> Result<(), LedgerError> {
        self.reads.push(read, Lane::Ordinary).inspect_err(|error| {
            if error.is_overload() {
                self.observer.crowded();
            }
        })
    }

    pub(super) fn lost(&self, entries: usize) {
        self.observer.history_lost(entries);
    }

    pub(super) fn now(&self) -> Mono {
        self.clock.mono()
    }

    /// A group is durable.
    pub(super) fn committed(&self, records: usize, started: Mono) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if self.failing.swap(false, Ordering::Relaxed) {
            *self.failure.lock() = None;
        }
        self.observer.committed(records, self.now().since(started));
        if self.checkpointer_asleep.swap(false, Ordering::AcqRel)
            && let Some(thread) = &*self.checkpointer.lock()
        {
            thread.unpark();
        }
    }

    /// A group is not.
    pub(super) fn failed(&self, error: &LedgerError) {
        *self.failure.lock() = Some(describe(error).into());
        self.failing.store(true, Ordering::Relaxed);
        self.observer.failed(error);
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }

    /// The health, and while it is bad one attempt to write at a time: without traffic nothing
    /// else would notice that the disk has space again.
    pub(super) fn health(self: &Arc<Self>) -> Health {
        let failing = if self.failing.load(Ordering::Relaxed) {
            let failure = self.failure.lock().clone();
            self.probe();
            failure
        } else {
            None
        };
        let failing = if self.closing.lock().ended {
            Some(failing.unwrap_or_else(|| "the ledger is closed".into()))
        } else {
            failing
        };
        Health {
            failing,
            waiting: self.writes.waiting(),
            capacity: self.writes.limit(),
        }
    }

    fn probe(self: &Arc<Self>) {
        if self.probing.swap(true, Ordering::AcqRel) {
            return;
        }
        let probing = Probing(Arc::clone(self));
        let work = unattended(move |db| {
            let _held = &probing;
            db.conn
                .prepare_cached(
                    "INSERT INTO meta (name, value) VALUES ('probes', 1) \
                     ON CONFLICT (name) DO UPDATE SET value = value + 1",
                )?
                .execute([])
                .map(drop)
        });
        // Refused because the queue is full: then there is traffic enough to find out.
        let _ = self.writes.push(work, Lane::Ordinary);
    }

    /// Asks the writer to finish the checkpoint between two groups.
    pub(super) fn want_checkpoint(&self) {
        self.checkpoint_wanted.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_checkpoint_request(&self) -> bool {
        self.checkpoint_wanted.load(Ordering::Relaxed)
            && self.checkpoint_wanted.swap(false, Ordering::Relaxed)
    }

    /// Makes this thread the one that is woken by commits and by the end.
    pub(super) fn register_checkpointer(&self) {
        *self.checkpointer.lock() = Some(std::thread::current());
    }

    /// Lets the checkpointer sleep until the next commit, or until the ledger ends.
    pub(super) fn sleep_until_commit(&self) {
        let seen = self.commits();
        self.checkpointer_asleep.store(true, Ordering::Release);
        // A commit between the reading and the flag would be slept through.
        while self.checkpointer_asleep.load(Ordering::Acquire)
            && self.commits() == seen
            && !self.has_ended()
        {
            std::thread::park();
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.closing.lock().ended
    }

    /// Lets the writer finish what waits; resolves when it has.
    pub(super) fn close(&self) -> Pending<()> {
        let mut closing = self.closing.lock();
        if closing.ended {
            return Pending::ready(Ok(()));
        }
        let (reply, pending) = Pending::later();
        closing.waiters.push(reply);
        drop(closing);
        self.writes.close();
        pending
    }

    /// The writer is gone, for whatever reason.
    pub(super) fn writer_ended(&self) {
        let waiters = {
            let mut closing = self.closing.lock();
            closing.ended = true;
            std::mem::take(&mut closing.waiters)
        };
        self.reads.close();
        if let Some(thread) = &*self.checkpointer.lock() {
            thread.unpark();
        }
        for waiter in waiters {
            waiter.send(Ok(()));
        }
    }
}

/// One probe under way; the next may follow when this is gone, however it ended.
struct Probing(Arc<Shared>);

impl Drop for Probing {
    fn drop(&mut self) {
        self.0.probing.store(false, Ordering::Release);
    }
}

/// An error with its causes, in one line.
fn describe(error: &LedgerError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
