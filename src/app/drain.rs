//! How a gateway ends: no new work, then time for what runs, then the books are closed. Or, when
//! another process takes over, the books first.
//!
//! Whatever is not finished by then is in the ledger, and the next start asks about it. So the
//! order is one of politeness, not of safety: a `kill -9` in the middle loses nothing either.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

use super::build::Running;
use crate::call::time::Mono;
use crate::clock;
use crate::config::Drain;
use crate::ingress::{Backlog, Drained};
use crate::telemetry::readiness::Trouble;

/// The end of the grace is kept for what must not be cut off: one such piece for parking what
/// still runs and telling its callers, one for the last records and the close of the ledger. A
/// fifth of a short grace.
const CLOSING: Duration = Duration::from_secs(1);

/// A handover, from its beginning. Callers who connect wait all the while, so that the ledger is
/// let go within a second: so long are requests still taken on connections that were there, after
/// which the silent ones are closed;
const TAKES_UNTIL: Duration = Duration::from_millis(250);
/// so long may calls with effects run, before they are parked;
const RUN_UNTIL: Duration = Duration::from_millis(600);
/// and then the ledger is closed, whatever is still held: the next process recovers it.
const HELD_UNTIL: Duration = Duration::from_millis(750);

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
        let backlog = self.let_sockets_go();
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
        } = self.empty(drain.grace, closing, backlog).await;
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

    /// Lets go of the spare sockets: nobody takes over from here. Whose the kernel's queue is then.
    fn let_sockets_go(&self) -> Backlog {
        let held = self.held.lock().take();
        // Whoever waits at a socket that a service manager keeps is served by the next process.
        match held.is_some_and(|held| held.callers.kept) {
            true => Backlog::Others,
            false => Backlog::Ours,
        }
    }

    /// Lets calls run to their end; those that are not there in time are parked, and told so.
    async fn empty(&self, grace: Duration, closing: Duration, backlog: Backlog) -> Drained {
        let parking = async {
            clock::sleep(grace.saturating_sub(closing * 2)).await;
            self.flow.draining.cancel();
            std::future::pending::<Infallible>().await
        };
        tokio::select! {
            drained = self.ingress.drain(grace.saturating_sub(closing), backlog) => drained,
            never = parking => match never {},
        }
    }

    /// Ends the gateway while another process takes over: the ledger is let go within a second,
    /// which `released` is told; what needs no ledger goes on until `drain.grace` is over.
    pub(super) async fn hand_over(
        mut self,
        drain: Drain,
        released: oneshot::Sender<()>,
    ) -> Stopped {
        let ready = &self.ground.readiness;
        ready.raise(Trouble::Draining, "", "another process takes over");
        let (calls, connections) = (self.ingress.calls(), self.ingress.connections());
        tracing::info!(calls, connections, "handing over");
        let clock = self.ground.clock.clone();
        let began = clock.mono();
        self.stop_worker.cancel();
        // Who calls again and again is asked to leave with an answer, and is not cut off.
        self.ingress.close_door(Backlog::Others).await;
        drop(timeout(TAKES_UNTIL, self.ingress.all_left()).await);
        let over = began.after(drain.grace);
        let Self {
            ingress,
            flow,
            worker,
            batches,
            stop_rest,
            rest,
            ..
        } = &mut self;
        let letting_go = async {
            flow.in_line.close();
            let quiet = async { tokio::join!(flow.in_line.wait(), worker, batches) };
            drop(timeout(left(began, RUN_UNTIL, clock.mono()), quiet).await);
            let until = left(began, HELD_UNTIL, clock.mono());
            let parked = timeout(until, flow.let_go()).await.is_ok();
            stop_rest.cancel();
            rest.close();
            drop(timeout(left(began, HELD_UNTIL, clock.mono()), rest.wait()).await);
            if let Err(error) = flow.ledger.close().await {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the ledger was not closed in order; the next process recovers what it holds"
                );
            }
            let took_ms = u64::try_from(clock.mono().since(began).as_millis()).unwrap_or(u64::MAX);
            tracing::info!(took_ms, parked, "the ledger was let go");
            // Whoever wanted to know has gone: then the lock says it.
            let _unheard = released.send(());
        };
        let emptying = ingress.drain(over.since(clock.mono()), Backlog::Others);
        let (drained, ()) = tokio::join!(emptying, letting_go);
        let Drained {
            calls_left,
            connections_cut,
        } = drained;
        self.cores.stop();
        tracing::info!(calls_left, connections_cut, "stopped");
        Stopped {
            calls_left,
            connections_cut,
        }
    }
}

/// What is left of a piece of time that began earlier.
fn left(began: Mono, piece: Duration, now: Mono) -> Duration {
    piece.saturating_sub(now.since(began))
}
