//! One driver per dead letter in this process, whatever its lease says.
//!
//! A lease is a promise to other processes and is judged by the wall clock and by heartbeats that
//! reach the ledger. When the clock jumps ahead, the machine was asleep, or the ledger was away for
//! longer than a lease, a process may be handed a row that it is still driving itself. The new
//! claim is the right one; but before anything is done under it the earlier driver has ended and
//! its exchange is closed, else a receipt could say "never heard of it" about a request that is
//! still on its way.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use tokio_util::sync::CancellationToken;

use crate::ledger::RowId;

/// The dead letters that are being driven here.
#[derive(Debug, Default)]
pub(super) struct Driven {
    rows: DashMap<RowId, Hold>,
}

/// The right to drive a row; it is given back when this is dropped. Declared before the driver, so
/// that the driver is gone first.
#[derive(Debug)]
pub(super) struct Driving {
    driven: Arc<Driven>,
    row: RowId,
    hold: Hold,
}

#[derive(Clone, Debug, Default)]
struct Hold {
    leave: CancellationToken,
    left: CancellationToken,
}

impl Driven {
    /// Takes the row over: whoever drives it here has ended when this returns.
    pub(super) async fn take(self: &Arc<Self>, row: RowId) -> Driving {
        loop {
            // The guard of the map ends before anything is waited for.
            let earlier = match self.rows.entry(row) {
                Entry::Vacant(free) => {
                    let hold = free.insert(Hold::default()).clone();
                    let driven = Arc::clone(self);
                    return Driving { driven, row, hold };
                }
                Entry::Occupied(taken) => taken.get().clone(),
            };
            tracing::warn!(
                row = row.0,
                "a call is claimed again while it is being worked on here: its lease ran out \
                 early (the clock was set, or the ledger was away); the earlier work is ended first"
            );
            earlier.leave.cancel();
            earlier.left.cancelled().await;
        }
    }
}

impl Driven {
    /// Has everybody who drives a row here end; returns when they have.
    pub(super) async fn leave_all(&self) {
        let holds: Vec<Hold> = self.rows.iter().map(|row| row.value().clone()).collect();
        for hold in &holds {
            hold.leave.cancel();
        }
        for hold in holds {
            hold.left.cancelled().await;
        }
    }
}

impl Driving {
    /// Resolves when a later claim wants the row.
    pub(super) async fn displaced(&self) {
        self.hold.leave.cancelled().await;
    }
}

impl Drop for Driving {
    fn drop(&mut self) {
        self.driven.rows.remove(&self.row);
        self.hold.left.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_later_claim_waits_until_the_earlier_driver_has_ended() {
        let driven = Arc::new(Driven::default());
        let first = driven.take(RowId(1)).await;
        let other = driven.take(RowId(2)).await;
        let second = tokio::spawn({
            let driven = Arc::clone(&driven);
            async move { driven.take(RowId(1)).await }
        });
        first.displaced().await;
        assert!(!second.is_finished());
        drop(first);
        let second = second.await.unwrap();
        assert!(!second.hold.leave.is_cancelled());
        assert!(!other.hold.leave.is_cancelled());
        drop((second, other));
        assert!(driven.rows.is_empty());
    }

    #[tokio::test]
    async fn all_are_told_to_leave_and_waited_for() {
        let driven = Arc::new(Driven::default());
        driven.leave_all().await;
        let held = [driven.take(RowId(1)).await, driven.take(RowId(2)).await];
        let leaving = tokio::spawn({
            let driven = Arc::clone(&driven);
            async move { driven.leave_all().await }
        });
        for driving in &held {
            driving.displaced().await;
        }
        assert!(!leaving.is_finished());
        drop(held);
        leaving.await.unwrap();
    }
}
