//! What an operator may do about a dead letter: one implementation behind the API, the command
//! line and bulk jobs.
//!
//! A decision (resolve, discard, release the key) is one step of the ledger with its line in the
//! audit. An order (ask, send again, undo) is noted first, performed by `flow` under the same rules
//! as a round, and completed with what it came to; it runs to its end whether or not the one who
//! gave it waits. Deliberately absent: any judgement about a call, which is the ledger's and
//! `flow`'s, and who an operator is: the name is what they say it is.

pub mod preview;
pub mod words;

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::call::time::Wall;
use crate::flow::Flow;
use crate::flow::operate::{Order, Ordered};
use crate::ledger::desk::job::{Cancelled, JobId, JobMade, NewJob};
use crate::ledger::desk::{AuditId, By, Decided, Decision, OrderLine, Verb};
use crate::ledger::{CallView, LedgerError, RowId, Verdict};
use crate::telemetry::labels::Bound;
use crate::upstream::Core;

/// The operator's verbs of one process. Clones are the same.
#[derive(Clone)]
pub struct Verbs {
    flow: Arc<Flow>,
    core: Core,
    /// A job was made: there is work for the runner.
    made: Arc<Notify>,
}

/// An order on its way.
pub struct Ongoing {
    /// Its line in the audit, where its end will stand too.
    pub line: AuditId,
    /// What it brings.
    pub ordered: JoinHandle<Ordered>,
}

impl Verbs {
    /// The verbs over the calls of `flow`; what they send is sent from `core`.
    #[must_use]
    pub fn new(flow: Arc<Flow>, core: Core) -> Self {
        Self {
            flow,
            core,
            made: Arc::default(),
        }
    }

    /// The present time.
    #[must_use]
    pub fn now(&self) -> Wall {
        self.flow.clock.wall()
    }

    /// Ends a dead letter by an operator's word, or frees its key.
    ///
    /// # Errors
    /// When the ledger cannot be written; nothing was changed then.
    pub async fn decide(
        &self,
        call: &CallView,
        verb: Verb,
        by: By,
    ) -> Result<Decided, LedgerError> {
        let document = (verb == Verb::Resolve(Verdict::Success)).then(|| document(call, by.now));
        let (who, why) = (Arc::clone(&by.who), by.why.clone());
        let decision = Decision {
            row: call.row,
            life: call.life,
            verb,
            by,
            document,
        };
        let decided = self.flow.ledger.decide(decision).await?;
        if let Decided::Applied { before, after } = &decided {
            tracing::info!(
                call_id = %call.call_id,
                verb = verb.as_str(),
                %who,
                why = why.as_deref(),
                before = before.as_str(),
                after = after.as_str(),
                "an operator decided"
            );
        }
        Ok(decided)
    }

    /// Notes an order and begins it. It goes on when nobody waits for it.
    ///
    /// # Errors
    /// When the order could not be noted; then it was not begun.
    pub async fn order(
        &self,
        (row, life): (RowId, u32),
        verb: Verb,
        by: By,
    ) -> Result<Option<Ongoing>, LedgerError> {
        let Some(order) = order_of(verb) else {
            return Ok(None);
        };
        tracing::info!(
            %row,
            verb = verb.as_str(),
            who = %by.who,
            why = by.why.as_deref(),
            "an operator orders"
        );
        let noted = OrderLine {
            row,
            life,
            verb,
            by,
        };
        let line = self.flow.ledger.order(noted).await?;
        let this = self.clone();
        let ordered = self.flow.tasks.spawn(async move {
            let ordered = this.flow.order(&this.core, row, life, order).await;
            this.complete(line, &ordered).await;
            ordered
        });
        Ok(Some(Ongoing { line, ordered }))
    }

    /// Writes what an order came to. What it did is on record in any case.
    async fn complete(&self, line: AuditId, ordered: &Ordered) {
        let told = words::sentence(ordered).into();
        let written = self.flow.ledger.performed(line, self.now(), told).await;
        if let Err(error) = written {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                line = line.0,
                error,
                "the end of an order is not in the audit"
            );
        }
    }

    /// Makes a bulk job, or joins the running one that does the same.
    ///
    /// # Errors
    /// When the ledger cannot be written; there is no job then.
    pub async fn make_job(&self, job: NewJob) -> Result<JobMade, LedgerError> {
        let (verb, who) = (job.verb, Arc::clone(&job.by.who));
        let made = self.flow.ledger.make_job(job).await?;
        match &made {
            JobMade::Made(job) => {
                tracing::info!(
                    job = job.id.0,
                    verb = verb.as_str(),
                    %who,
                    filter = %job.text,
                    rows = job.total,
                    left_out = job.beyond,
                    per_minute = job.per_minute,
                    "a bulk job begins"
                );
                if job.beyond > 0 {
                    self.flow.metrics.bounds.inc(Bound::JobRows);
                }
                self.made.notify_one();
            }
            JobMade::Joined(job) => {
                tracing::info!(job = job.id.0, verb = verb.as_str(), %who, "joined a bulk job");
            }
            JobMade::TooMany => {
                self.flow.metrics.bounds.inc(Bound::Jobs);
                tracing::warn!(verb = verb.as_str(), %who, "too many bulk jobs run; none made");
            }
            JobMade::Nothing => {}
        }
        Ok(made)
    }

    /// Cancels a bulk job.
    ///
    /// # Errors
    /// When the ledger cannot be written; the job goes on then.
    pub async fn cancel_job(&self, id: JobId, who: Arc<str>) -> Result<Cancelled, LedgerError> {
        let told = Arc::clone(&who);
        let cancelled = self.flow.ledger.cancel_job(id, who, self.now()).await?;
        if let Cancelled::Applied(job) = &cancelled {
            let (id, left) = (job.id.0, job.unended);
            tracing::info!(job = id, who = %told, unended = left, "a job is cancelled");
        }
        Ok(cancelled)
    }

    pub(super) const fn flow(&self) -> &Arc<Flow> {
        &self.flow
    }

    /// Returns once a job was made since the last time.
    pub(super) async fn job_made(&self) {
        self.made.notified().await;
    }
}

/// What `flow` is asked to do; `None` for a verb that asks and sends nothing.
const fn order_of(verb: Verb) -> Option<Order> {
    match verb {
        Verb::Receipt => Some(Order::Ask),
        Verb::Resend => Some(Order::Resend),
        Verb::Reverse => Some(Order::Reverse),
        Verb::Resolve(_) | Verb::Discard | Verb::ReleaseKey => None,
    }
}

/// What repeats of a call resolved as done are told: the gateway's own receipt of it.
fn document(call: &CallView, now: Wall) -> bytes::Bytes {
    let time = |at: Wall| {
        let at = jiff::Timestamp::from_millisecond(at.0);
        at.map_or(serde_json::Value::Null, |at| at.to_string().into())
    };
    let document = json!({
        "callId": call.call_id.as_str(),
        "state": "SUCCESS",
        "settledBy": "operator",
        "route": &*call.route,
        "attempts": call.sends,
        "receivedAt": time(call.received_at),
        "updatedAt": time(now),
        "result": null,
        "deadLetter": null,
    });
    bytes::Bytes::from(document.to_string())
}
