//! The bounded queue in front of the writer and of the readers.
//!
//! Not a channel, because it has two bounds: new calls are refused at the first, while what belongs
//! to running calls may go up to the second. A gateway that sheds load must still be able to write
//! down how its running calls end.

use std::collections::VecDeque;

use parking_lot::{Condvar, Mutex};

use crate::ledger::LedgerError;

/// A queue of work for a few threads.
pub(super) struct Queue<T> {
    line: Mutex<Line<T>>,
    filled: Condvar,
    limit: usize,
}

struct Line<T> {
    work: VecDeque<T>,
    open: bool,
}

/// How far up a piece of work may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// Refused at the limit.
    Ordinary,
    /// Refused at twice the limit.
    Reserved,
}

impl<T> Queue<T> {
    pub(super) fn new(limit: usize) -> Self {
        let line = Line {
            work: VecDeque::new(),
            open: true,
        };
        Self {
            line: Mutex::new(line),
            filled: Condvar::new(),
            limit,
        }
    }

    /// Adds work, or says why not; the work is dropped then.
    pub(super) fn push(&self, work: T, lane: Lane) -> Result<(), LedgerError> {
        let limit = match lane {
            Lane::Ordinary => self.limit,
            Lane::Reserved => self.limit.saturating_mul(2),
        };
        let mut line = self.line.lock();
        if !line.open {
            return Err(LedgerError::Closed);
        }
        let waiting = line.work.len();
        if waiting >= limit {
            return Err(LedgerError::Overloaded { waiting });
        }
        line.work.push_back(work);
        drop(line);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for work and moves up to `most` pieces of it into `batch`. `false` once the queue is
    /// closed and empty.
    pub(super) fn take(&self, batch: &mut Vec<T>, most: usize) -> bool {
        let mut line = self.line.lock();
        while line.work.is_empty() {
            if !line.open {
                return false;
            }
            self.filled.wait(&mut line);
        }
        let count = line.work.len().min(most);
        batch.extend(line.work.drain(..count));
        true
    }

    /// Takes no more work; what waits is still done.
    pub(super) fn close(&self) {
        self.line.lock().open = false;
        self.filled.notify_all();
    }

    /// Takes no more work and drops what waits: nobody is left to do it.
    pub(super) fn abandon(&self) {
        let left = {
            let mut line = self.line.lock();
            line.open = false;
            std::mem::take(&mut line.work)
        };
        self.filled.notify_all();
        drop(left);
    }

    pub(super) fn waiting(&self) -> usize {
        self.line.lock().work.len()
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_calls_are_refused_before_running_ones() {
        let queue = Queue::new(2);
        for n in 0..2 {
            queue.push(n, Lane::Ordinary).unwrap();
        }
        let refused = queue.push(2, Lane::Ordinary);
        assert!(matches!(
            refused,
            Err(LedgerError::Overloaded { waiting: 2 })
        ));
        for n in 2..4 {
            queue.push(n, Lane::Reserved).unwrap();
        }
        let refused = queue.push(4, Lane::Reserved);
        assert!(matches!(
            refused,
            Err(LedgerError::Overloaded { waiting: 4 })
        ));
        let mut batch = Vec::new();
        assert!(queue.take(&mut batch, 3));
        assert_eq!((batch, queue.waiting()), (vec![0, 1, 2], 1));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_an_abandoned_one_is_not() {
        for (abandoned, left) in [(false, vec![1]), (true, vec![])] {
            let queue = Queue::new(2);
            queue.push(1, Lane::Ordinary).unwrap();
            if abandoned {
                queue.abandon()
            } else {
                queue.close()
            }
            assert!(matches!(
                queue.push(2, Lane::Reserved),
                Err(LedgerError::Closed)
            ));
            let mut batch = Vec::new();
            assert_eq!(queue.take(&mut batch, 9), !abandoned);
            assert_eq!(batch, left);
            assert!(!queue.take(&mut batch, 9));
        }
    }
}
