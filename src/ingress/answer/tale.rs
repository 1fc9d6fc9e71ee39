//! What is counted about a request, whether its caller waits for the end or not.
//!
//! One place, so that every request is one `calls_total` and every problem one `refused_total`.
//! Items of batches come through no door: `batch/run` counts them.

use std::sync::Arc;

use super::{Refusal, Room};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::call::time::Mono;
use crate::clock::Clock;
use crate::flow::told::{Problem, Shown, Told, Word};
use crate::ingress::tether::{Panic, panic_text};
use crate::ingress::{Door, Faced, Request};
use crate::telemetry::metrics::{InFlight, RouteMetrics};

/// A request at the door.
pub(super) struct Tale<R: Faced> {
    route: Arc<R>,
    received: Mono,
    ended: bool,
    _in_flight: InFlight,
}

impl<R: Faced> Tale<R> {
    pub(super) fn begin<B>(request: &Request<R, B>) -> Self {
        Self {
            route: Arc::clone(&request.route),
            received: request.received,
            ended: false,
            _in_flight: request.route.metrics().in_flight(),
        }
    }

    pub(super) fn end<D: Door<Route = R>>(mut self, room: &Room<D>, told: &Told) {
        self.ended = true;
        let clock = &room.settings().clock;
        note(self.route.metrics(), told, clock, self.received);
    }
}

impl<R: Faced> Drop for Tale<R> {
    fn drop(&mut self) {
        if !self.ended {
            // Passed on, and dropped with its caller: nobody was told anything.
            self.route.metrics().calls.inc(Word::Unresolved);
        }
    }
}

/// Counts a refusal that never came to the door, and writes its line.
pub(super) fn note_refusal<D: Door>(room: &Room<D>, refusal: &Refusal<D::Route>, received: Mono) {
    let Refusal { route, told } = refusal;
    let settings = room.settings();
    let metrics = route
        .as_ref()
        .map_or(&*settings.unrouted, |route| route.metrics());
    note(metrics, told, &settings.clock, received);
    if let Shown::Problem(problem) = &told.shown {
        tracing::info!(
            call_id = told.call.as_ref().map(|(id, _)| id.as_str()),
            route = route.as_ref().map_or("none", |route| &*route.config().name),
            code = problem.code.as_str(),
            detail = problem.detail.as_str(),
            "refused"
        );
    }
}

fn note(metrics: &RouteMetrics, told: &Told, clock: &Clock, received: Mono) {
    let took = clock.mono().since(received);
    metrics.told(told.word, told.shown.code(), took);
}

/// What is told when the door panicked. Its record, if it was made, stands.
pub(super) fn panicked(id: (CallId, IdSource), panic: &Panic) -> Told {
    let text = panic_text(panic);
    tracing::error!(call_id = id.0.as_str(), panic = text, "a call panicked");
    let detail = "A fault of the gateway. If the call was recorded, the compensation queue takes \
                  it. Repeat with the same call id only.";
    Told {
        word: Word::Unresolved,
        recorded: true,
        ..Told::refused(
            Some(id),
            Problem::new(Code::Internal, detail, Sent::Maybe, Repeat::SameCallIdOnly),
        )
    }
}
