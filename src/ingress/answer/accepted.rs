//! A caller that need not be told the end: it is told that the call is accepted, and leaves.
//!
//! The call itself notices nothing: it goes on where it is, counted as running, and its end is
//! counted and logged as any other. Deliberately absent: what makes a call worth a promise
//! (`flow/accept`).

use std::future::pending;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::call::time::Mono;
use crate::clock::Clock;
use crate::flow::Prefer;
use crate::flow::accept::{self, Accepted};
use crate::flow::told::Told;
use crate::ingress::seat::Turn;
use crate::ingress::tether::Tether;
use crate::ingress::{Faced, Request};

/// How long a caller waits for the end before the promise is enough.
pub(super) struct Until {
    prefer: Prefer,
    at: Mono,
    accepted: oneshot::Receiver<Accepted>,
}

impl Until {
    /// What the caller of `request` wishes; `None` when it waits for the end.
    pub(super) fn of<R: Faced>(request: &mut Request<R, Bytes>) -> Option<Self> {
        let prefer = Prefer::read(&request.headers);
        request.prefer = prefer;
        let total = request.route.config().policy.timeouts.total;
        prefer.may_be_accepted(total).then(|| {
            let (promise, accepted) = accept::promise();
            request.promise = Some(promise);
            let at = request.received.after(prefer.wait.unwrap_or_default());
            Self {
                prefer,
                at,
                accepted,
            }
        })
    }

    /// What the caller is told: the call's end, if that comes first. A call that goes on without
    /// its caller keeps its turn.
    pub(super) async fn told<F>(self, mut call: Tether<F>, clock: &Clock) -> (Told, Option<Turn>)
    where
        F: Future<Output = (Told, Option<Turn>)> + Send + 'static,
    {
        let Self {
            prefer,
            at,
            accepted,
        } = self;
        let promised = async {
            match accepted.await {
                Ok(accepted) => {
                    clock.sleep_until(at).await;
                    accepted
                }
                // Nothing was promised: the call is refused, or was there before.
                Err(_) => pending().await,
            }
        };
        tokio::select! {
            biased;
            told = &mut call => told,
            accepted = promised => {
                call.let_go();
                (accepted.told(prefer), None)
            }
        }
    }
}
