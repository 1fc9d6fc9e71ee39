//! Records that are written while nobody waits, until they are written.
//!
//! The caller already has the tool's answer; should its record fail, it is repeated with growing
//! gaps until it is taken, so that the ledger converges on the truth while the process lives.
//! After a crash in between, the receipt tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dashmap::DashMap;

use super::Flow;
use super::call::Call;
use crate::call::id::CallId;
use crate::ledger::{
    CallView, Claim, Contradiction, DeadState, Entry, Fact, FactWritten, Intention, LedgerError,
    News, Pending, RowId, SettledBy, Settlement, Verdict, Written,
};
use crate::telemetry::labels::Difference;
use crate::telemetry::metrics::RouteMetrics;
use crate::upstream::Answer;

/// Gap before the first repeat of a record that was not written; doubled up to [`REPEAT_MAX`].
const REPEAT_FIRST: Duration = Duration::from_millis(100);
/// The longest gap between two repeats of a record.
const REPEAT_MAX: Duration = Duration::from_secs(10);

/// Successes whose record is on its way. Their callers have been told, or are about to be, so the
/// gateway's own receipts must not say less. A failure is told by nobody before it is durable.
#[derive(Debug, Default)]
pub(super) struct Pursued {
    facts: DashMap<(RowId, u32), Fact>,
    /// How many have left: what a reader saw of the ledger before that may lack them.
    left: AtomicU64,
}

impl Pursued {
    /// How many have left so far.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Acquire)
    }

    /// Adds to an unsettled call what is on its way to its record; whether there was anything.
    pub(super) fn complete(&self, call: &mut CallView) -> bool {
        let letter = call.dead_letter.as_ref().map(|letter| letter.state);
        let is_undone = matches!(letter, Some(DeadState::Reversing | DeadState::Reversed));
        if call.settled.is_some() || is_undone {
            return false;
        }
        let Some(fact) = self.facts.get(&(call.row, call.life)) else {
            return false;
        };
        let (by, reply, document) = match &fact.news {
            News::Answer { n, reply, .. } | News::Unbinding { n, reply } => {
                (SettledBy::Answer(*n), Some(reply.clone()), None)
            }
            News::Receipt {
                reply, document, ..
            } => (SettledBy::Receipt, reply.clone(), document.clone()),
        };
        let verdict = fact.news.verdict();
        call.state = verdict.state();
        call.updated_at = fact.now;
        call.settled = Some(Settlement {
            verdict,
            by,
            at: fact.now,
            reply,
            document,
        });
        if let Some(letter) = &mut call.dead_letter {
            letter.state = DeadState::Settled;
            letter.next_retry_time = None;
        }
        true
    }

    fn enter(&self, fact: &Fact) {
        if fact.news.verdict() == Verdict::Success {
            self.facts.insert((fact.row, fact.life), fact.clone());
        }
    }

    fn leave(&self, fact: &Fact) {
        if self.facts.remove(&(fact.row, fact.life)).is_some() {
            self.left.fetch_add(1, Ordering::Release);
        }
    }
}

impl Flow {
    /// Writes a fact in the background, for as long as it takes.
    pub(super) fn pursue(self: &Arc<Self>, fact: Fact, call: &Call) {
        self.calls.pursued.enter(&fact);
        let first = self.ledger.fact(fact.clone());
        let (call_id, metrics) = (call.call_id.clone(), Arc::clone(&call.route.metrics));
        let flow = Arc::clone(self);
        self.background(async move {
            let written = until_written(&call_id, first, || flow.ledger.fact(fact.clone())).await;
            flow.calls.pursued.leave(&fact);
            if let Some(written) = written {
                differs(&call_id, &metrics, written);
            }
        });
    }

    /// Parks a call whose park was not written, for as long as it takes: until then nobody works on
    /// it.
    pub(super) fn pursue_park(self: &Arc<Self>, park: Intention, call: &Call) {
        let (call_id, claim, flow) = (call.call_id.clone(), call.claim, Arc::clone(self));
        self.background(async move {
            crate::clock::sleep(REPEAT_FIRST).await;
            let append = || flow.ledger.append(claim, flow.clock.wall(), park.clone());
            // Stale: somebody else has settled it or taken it over.
            let (Some(Written::Applied | Written::Stale) | None) =
                until_written(&call_id, append(), append).await;
        });
    }

    /// Has the row remember that the tool knows the call, for as long as that takes.
    pub(super) fn pursue_recognition(self: &Arc<Self>, call: &Call) {
        let Claim { row, life, .. } = call.claim;
        let first = self.ledger.recognise(row, life);
        let (call_id, flow) = (call.call_id.clone(), Arc::clone(self));
        self.background(async move {
            let again = || flow.ledger.recognise(row, life);
            let (Some(()) | None) = until_written(&call_id, first, again).await;
        });
    }

    /// A receipt carries a result that disagrees with its own state: a difference.
    pub(super) fn disagrees(&self, call: &Call, verdict: Verdict, result: &Answer) {
        call.route.metrics.differences.inc(Difference::Result);
        let told = format!(
            "the receipt says {} and carries status {}",
            verdict.state().as_str(),
            result.status.as_u16()
        );
        tracing::warn!(call_id = %call.call_id, %told, "difference");
        let entry = Entry::Differs {
            at: self.clock.wall(),
            kind: Contradiction::Result,
            told: Arc::from(told),
        };
        self.ledger
            .note(call.claim.row, call.claim.life, vec![entry]);
    }
}

/// Waits for a record, and writes it again with growing gaps until it is taken; `None` when the
/// ledger was closed before.
async fn until_written<T: Unpin>(
    call_id: &CallId,
    first: Pending<T>,
    again: impl Fn() -> Pending<T>,
) -> Option<T> {
    let mut written = first.await;
    let mut gap = REPEAT_FIRST;
    loop {
        match written {
            Ok(written) => return Some(written),
            Err(LedgerError::Closed) => {
                lost(call_id);
                return None;
            }
            Err(e) => tracing::warn!(
                call_id = %call_id,
                error = %e,
                "what is known of the call is not recorded yet; it is written again"
            ),
        }
        crate::clock::sleep(gap).await;
        gap = (gap * 2).min(REPEAT_MAX);
        written = again().await;
    }
}

/// Counts and tells a fact that contradicts what the call already ended with.
pub(super) fn differs(call_id: &CallId, metrics: &RouteMetrics, written: FactWritten) {
    match written {
        FactWritten::Applied | FactWritten::Repeated => {}
        FactWritten::Alone => {
            tracing::info!(
                call_id = %call_id,
                "a refusal came for an attempt that was followed by others; it settles nothing"
            );
        }
        FactWritten::Difference { kind, first } => {
            if first {
                metrics.differences.inc(label(kind));
            }
            tracing::warn!(
                call_id = %call_id,
                kind = kind.as_str(),
                "difference: a fact contradicts the recorded end; it was noted and not applied"
            );
        }
        FactWritten::Gone => {
            tracing::info!(call_id = %call_id, "a fact came for a call that is no longer kept");
        }
    }
}

const fn label(kind: Contradiction) -> Difference {
    match kind {
        Contradiction::Answer => Difference::Answer,
        Contradiction::Receipt => Difference::Receipt,
        Contradiction::Result => Difference::Result,
        Contradiction::Reversal => Difference::Reversal,
    }
}

fn lost(call_id: &CallId) {
    tracing::warn!(
        call_id = %call_id,
        "the gateway ended before what it knew of the call was recorded; the next start asks the \
         receipt"
    );
}
