//! How a gateway ends: no new work, then time for what runs, then the books are closed.
//!
//! Whatever is not finished by then is in the ledger, and the next start asks about it. So the
//! order is one of politeness, not of safety: a `kill -9` in the middle loses nothing either.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::timeout;

use super::build::Running;
use crate::clock;
use crate::config::Drain;
use crate::ingress::Drained;
use crate::telemetry::readiness::Trouble;

/// The end of the grace is kept for what must not be cut off: one such piece for parking what
/// still runs and telling its callers, one for the last records and the close of the ledger. A
/// fifth of a short grace.
const CLOSING: Duration = Duration::from_secs(1);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Calls that could not even be parked before the end of `drain.grace`; the next start does it.
    pub calls_left: usize,
    /// Connections cut off.
    pub connections_cut: usize,
}

impl Running {
    /// Ends the gateway within `drain.delay` and `drain.grace`.
    pub(super) async fn drain(self, drain: Drain) -> Stopped {
        let ready = &self.ground.readiness;
        ready.raise(Trouble::Draining, "", "this process was told to stop");
        let (calls, connections) = (self.ingress.calls(), self.ingress.connections());
        tracing::info!(calls, connections, "stopping");
        // Load balancers look away meanwhile; whoever comes all the same is served.
        clock::sleep(drain.delay).await;
        let clock = self.ground.clock.clone();
        let over = clock.mono().after(drain.grace);
        let closing = CLOSING.min(drain.grace / 5);
        self.stop_worker.cancel();
        let Drained {
            calls_left,
            connections_cut,
        } = self.empty(drain.grace, closing).await;
        // No caller waits any more: whatever heeds it may stop now.
        self.flow.draining.cancel();
        self.flow.tasks.close();
        let quiet = async { tokio::join!(self.flow.tasks.wait(), self.worker, self.batches) };
        // What does not end in time is cut off: its leases lapse, its row says how far it came.
        let finished = timeout(over.since(clock.mono()), quiet).await.is_ok();
        self.stop_rest.cancel();
        self.rest.close();
        drop(timeout(closing, self.rest.wait()).await);
        self.cores.stop();
        if let Err(error) = self.flow.ledger.close().await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "the ledger was not closed in order; what it said was recorded is recorded"
            );
        }
        tracing::info!(calls_left, connections_cut, finished, "stopped");
        Stopped {
            calls_left,
            connections_cut,
        }
    }

    /// Lets calls run to their end; those that are not there in time are parked, and told so.
    async fn empty(&self, grace: Duration, closing: Duration) -> Drained {
        let parking = async {
            clock::sleep(grace.saturating_sub(closing * 2)).await;
            self.flow.draining.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            drained = self.ingress.drain(grace.saturating_sub(closing)) => drained,
            never = parking => match never {},
        }
    }
}
