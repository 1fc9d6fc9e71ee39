//! Waiting for the end of a call at its receipt, without taking part in it.
//!
//! Whoever waits here only reads: no question is put to a tool, and the call does not count as
//! having a caller. A call that runs in this process wakes those who wait; for any other (a dead
//! letter, another process's) the ledger is looked at now and then.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Flow;
use super::running::Running;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Mono;
use crate::ledger::{CallView, DeadState, LedgerError};
use crate::telemetry::labels::Bound;

/// Between two looks into the ledger: doubled up to the longest. The record of a call that ended
/// here follows within milliseconds.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long a reader of a receipt waits for the call's end.
#[derive(Debug)]
pub struct Watch {
    /// At the latest until then,
    pub until: Mono,
    /// and not when the process is about to end.
    pub stop: CancellationToken,
}

impl Flow {
    /// The call as it is when it has ended, or when the wait is over.
    ///
    /// # Errors
    /// When the ledger cannot be read at all.
    pub async fn receipt(
        &self,
        client: &ClientName,
        id: &CallId,
        watch: Option<&Watch>,
    ) -> Result<Option<CallView>, LedgerError> {
        let mut call = self.seen(client, id).await?;
        let Some(watch) = watch else { return Ok(call) };
        let Ok(_place) = self.promises.waits.try_acquire() else {
            self.metrics.bounds.inc(Bound::ReceiptWaits);
            tracing::debug!(call_id = %id, "too many wait at receipts; this one is told at once");
            return Ok(call);
        };
        let mut gap = LOOK_FIRST;
        while let Some(seen) = call.as_ref().filter(|call| is_open(call)) {
            let running = self.calls.watched(&seen.client, &seen.call_id);
            let woken = async {
                match running {
                    Some(running) => running.over().await,
                    None => crate::clock::sleep(gap).await,
                }
            };
            tokio::select! {
                () = woken => {}
                () = watch.stop.cancelled() => return Ok(call),
                () = self.clock.sleep_until(watch.until) => return Ok(call),
            }
            gap = (gap * 2).min(LOOK_MAX);
            match self.seen(client, id).await {
                Ok(seen) => call = seen,
                // What was read before is still worth telling.
                Err(error) => tracing::debug!(call_id = %id, %error, "a receipt was not read"),
            }
        }
        Ok(call)
    }

    /// The call with this id, the client's under the name it has or else under one it had.
    async fn seen(
        &self,
        client: &ClientName,
        id: &CallId,
    ) -> Result<Option<CallView>, LedgerError> {
        for name in std::iter::once(client).chain(client.formerly()) {
            if let Some(call) = self.as_told(name, id).await? {
                return Ok(Some(call));
            }
        }
        Ok(None)
    }

    /// The call with this id as its caller knows it: a success that was told counts, even if its
    /// record is still on its way.
    async fn as_told(
        &self,
        client: &ClientName,
        id: &CallId,
    ) -> Result<Option<CallView>, LedgerError> {
        loop {
            let pursued = &self.calls.pursued;
            let before = pursued.left();
            let found = self.ledger.view(Some(client.clone()), id.clone()).await?;
            let Some(mut call) = found.into_iter().next() else {
                return Ok(None);
            };
            // What left between the two looks is in the ledger by now.
            let known = call.settled.is_some() || pursued.complete(&mut call);
            if known || pursued.left() == before {
                return Ok(Some(call));
            }
        }
    }
}

/// Whether the end may come without a human.
fn is_open(call: &CallView) -> bool {
    let letter = call.dead_letter.as_ref().map(|letter| letter.state);
    let goes_on = matches!(
        letter,
        None | Some(DeadState::Queued | DeadState::Running | DeadState::Reversing)
    );
    call.settled.is_none() && goes_on
}

impl Running {
    /// Resolves when the call was told its end, or was left.
    async fn over(self: &Arc<Self>) {
        loop {
            // Made before the look, so that no turn is missed between look and wait.
            let turned = self.turned();
            if self.is_over() {
                return;
            }
            turned.await;
        }
    }
}
