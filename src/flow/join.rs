//! Joining a call that runs: a repeat waits for the first one's answer and gets the same.
//!
//! It waits as long as its caller asked (`Prefer: wait=N`, RFC 7240), never longer than
//! `timeouts.total`, and is then told that the call is in progress. Another request under the same
//! id is told so at once, before anything is said about the running one. Where the first one was
//! promised the call, one that asks for no more (`respond-async`) is told the same promise.

use std::sync::Arc;

use bytes::Bytes;

use super::running::{Asked, Entered, Heard, Seat};
use super::told::{Told, Word};
use super::visit::Visit;
use super::{Flow, Request, accept, dedup};
use crate::call::receipt::State;
use crate::call::time::Mono;
use crate::ledger::Known;
use crate::telemetry::labels::AvoidedBy;
use crate::upstream::Core;

/// Until when the caller of `request` waits for a call that somebody else began.
pub(super) fn until(request: &Request<Bytes>) -> Mono {
    let total = request.route.conf.policy.timeouts.total;
    let wait = request.prefer.wait.map_or(total, |wait| wait.min(total));
    request.received.after(wait)
}

impl Flow {
    /// Waits for the call that `seat` is at; `None` when the ledger has to be asked after all.
    pub(super) async fn join(&self, core: &Core, visit: &Visit, seat: &Seat) -> Option<Told> {
        let told = self.joined(core, visit, &visit.asked, seat).await?;
        visit.line(&told, &[], core);
        Some(told)
    }

    /// The same at the call that came first with this request's key. One that is no longer in line
    /// is asked about by the first one who comes, for all who come meanwhile by its id or its key.
    pub(super) async fn join_first(
        self: &Arc<Self>,
        core: &Core,
        visit: &Visit,
        known: &Known,
    ) -> Option<Told> {
        let first = &known.call;
        let asked = Asked {
            client: first.client.clone(),
            call_id: first.call_id.clone(),
            ..visit.asked.clone()
        };
        let seat = if first.dead_letter.is_none() {
            self.calls.beside(&asked.client, &asked.call_id)?
        } else {
            match self.calls.enter(&asked) {
                Entered::First(lead) => {
                    let told = self.repeat(core, visit, known.clone(), Some(lead)).await;
                    return Some(told);
                }
                Entered::Second(seat) => seat,
            }
        };
        let told = self.joined(core, visit, &asked, &seat).await?;
        let told = visit.about_first(told, &first.call_id);
        visit.line(&told, &[], core);
        Some(told)
    }

    async fn joined(&self, core: &Core, visit: &Visit, asked: &Asked, seat: &Seat) -> Option<Told> {
        let request = &visit.request;
        let heard = tokio::select! {
            biased;
            heard = seat.heard(asked) => heard,
            // Nobody is left to be told; what is told is only counted.
            () = request.gone.cancelled() => Heard::Streamed,
            () = promised(core, request, seat), if request.prefer.respond_async => {
                let named = (request.call_id.clone(), request.source);
                return Some(accept::told(named, seat.call().sends(), request.prefer));
            }
            () = core.clock.sleep_until(visit.until) => Heard::Streamed,
        };
        match heard {
            Heard::Told(told) => {
                let how = match told.word {
                    _ if asked.call_id != request.call_id => AvoidedBy::Key,
                    Word::Replayed => AvoidedBy::Replay,
                    Word::Answered | Word::Receipt | Word::Unresolved | Word::Refused => {
                        AvoidedBy::Join
                    }
                };
                request.route.metrics.avoided.inc(how);
                Some(told)
            }
            Heard::Streamed => {
                let named = (request.call_id.clone(), request.source);
                let state = State::Processing;
                Some(dedup::in_progress(named, seat.call().sends(), state))
            }
            Heard::Other => {
                let first = seat.call().asked();
                let problem = if first.fingerprint == asked.fingerprint {
                    dedup::other_key_problem(first.key.as_deref())
                } else {
                    dedup::reused_problem()
                };
                Some(Told::refused(visit.named(), problem))
            }
            Heard::Nothing => None,
        }
    }
}

/// Resolves when a caller who asks for a promise has waited long enough for a call that was
/// promised already.
async fn promised(core: &Core, request: &Request<Bytes>, seat: &Seat) {
    seat.promised().await;
    let wait = request.prefer.wait.unwrap_or_default();
    core.clock.sleep_until(request.received.after(wait)).await;
}
