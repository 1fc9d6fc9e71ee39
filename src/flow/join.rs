//! Joining a call that runs: a repeat waits for the first one's answer and gets the same.
//!
//! It waits as long as its caller asked (`Prefer: wait=N`, RFC 7240), never longer than
//! `timeouts.total`, and is then told that the call is in progress. Another request under the same
//! id is told so at once, before anything is said about the running one.

use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;

use super::admit::Visit;
use super::running::{Asked, Heard, Seat};
use super::told::{Told, Word};
use super::{Flow, Request, dedup};
use crate::call::receipt::State;
use crate::call::time::Mono;
use crate::ledger::CallView;
use crate::telemetry::labels::AvoidedBy;
use crate::upstream::Core;
use crate::upstream::headers::PREFER;

/// Until when the caller of `request` waits for a call that somebody else began.
pub(super) fn until(request: &Request<Bytes>) -> Mono {
    let total = request.route.conf.policy.timeouts.total;
    let wait = preferred_wait(&request.headers).map_or(total, |wait| wait.min(total));
    request.received.after(wait)
}

impl Flow {
    /// Waits for the call that `seat` is at; `None` when the ledger has to be asked after all.
    pub(super) async fn join(&self, core: &Core, visit: &Visit, seat: &Seat) -> Option<Told> {
        let told = self.joined(core, visit, &visit.asked, seat).await?;
        visit.line(&told, &[], core);
        Some(told)
    }

    /// The same at the call that came first with this request's key.
    pub(super) async fn join_first(
        &self,
        core: &Core,
        visit: &Visit,
        first: &CallView,
    ) -> Option<Told> {
        let asked = Asked {
            client: first.client.clone(),
            call_id: first.call_id.clone(),
            ..visit.asked.clone()
        };
        let seat = self.calls.beside(&asked.client, &asked.call_id)?;
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
            Heard::Other => Some(Told::refused(visit.named(), dedup::reused_problem())),
            Heard::Nothing => None,
        }
    }
}

/// The `wait` preference in whole seconds, if the request has one that can be read.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let lines = headers.get_all(PREFER).iter();
    let preferences = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','));
    for preference in preferences {
        let Some((name, value)) = preference.split_once('=') else {
            continue;
        };
        if name.trim().eq_ignore_ascii_case("wait") {
            // Parameters may follow; the first `wait` counts, whatever it says.
            let value = value.split(';').next().unwrap_or_default();
            let seconds = value.trim().trim_matches('"').parse().ok()?;
            return Some(Duration::from_secs(seconds));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn the_first_wait_preference_counts() {
        let waits = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(PREFER, HeaderValue::from_static(line));
            }
            preferred_wait(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(waits(&[]), None);
        assert_eq!(waits(&["respond-async"]), None);
        assert_eq!(waits(&["wait=3"]), Some(3));
        assert_eq!(waits(&["respond-async, Wait = 0"]), Some(0));
        assert_eq!(
            waits(&["return=minimal", "wait=\"7\"; x=1, wait=9"]),
            Some(7)
        );
        assert_eq!(waits(&["wait=soon"]), None);
        assert_eq!(waits(&["wait=-1"]), None);
    }
}
