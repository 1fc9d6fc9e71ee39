//! What a bulk verb would meet: the tool is asked about the rows that match, all of them or an
//! even sample, before anything is done.
//!
//! Asking is asking: what the tool says for good is recorded and settles the row, as any question
//! does. Nothing is sent and nothing is decided here.

use std::time::Duration;

use tokio::task::JoinSet;

use super::Verbs;
use crate::call::receipt::Answer;
use crate::clock;
use crate::flow::operate::{Order, Ordered};
use crate::ledger::{DeadLetter, Filter, LedgerError, RowId, Verdict};
use crate::telemetry::labels::Bound;

/// Rows asked about at most; past it an even sample of this many.
pub const ASKED_MAX: usize = 200;

/// Questions under way at once.
const AT_ONCE: usize = 16;

/// How long a preview asks; the listener would give up a little later.
const PATIENCE: Duration = Duration::from_secs(8);

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// Rows that match.
    pub matching: u64,
    /// Of them: the tool was asked about so many.
    pub asked: u64,
    /// The tool has done the work.
    pub done: u64,
    /// The tool says that it failed.
    pub failed: u64,
    /// The tool still works on it.
    pub processing: u64,
    /// The tool never heard of it, believably, and it may be sent again.
    pub safe_to_resend: u64,
    /// The tool never heard of it, and it may not be sent again: its reversal has begun, or the
    /// credential it came with was not kept, or its route leads elsewhere now.
    pub not_resendable: u64,
    /// The tool does not say.
    pub unknown: u64,
    /// The tool could not be asked: no receipt, no route.
    pub not_askable: u64,
}

/// What was found about one row.
struct Found {
    /// What asking brought.
    ordered: Ordered,
    /// Whether an order to send it again would be begun.
    resendable: bool,
}

impl Preview {
    /// Whether every row that matches was asked about.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.asked == self.matching
    }

    const fn count(&mut self, found: &Found) {
        self.asked += 1;
        let counted = match &found.ordered {
            Ordered::Receipt(Verdict::Success)
            | Ordered::Answered {
                verdict: Verdict::Success,
                ..
            }
            | Ordered::Agrees(Verdict::Success) => &mut self.done,
            Ordered::Receipt(Verdict::Failed)
            | Ordered::Answered {
                verdict: Verdict::Failed,
                ..
            }
            | Ordered::Agrees(Verdict::Failed)
            | Ordered::ReportedFailure => &mut self.failed,
            Ordered::Working(_) => &mut self.processing,
            Ordered::Unknown {
                receipt: Some(Answer::NotFound),
                ..
            } if found.resendable => &mut self.safe_to_resend,
            Ordered::Unknown {
                receipt: Some(Answer::NotFound),
                ..
            } => &mut self.not_resendable,
            Ordered::Refused(_) => &mut self.not_askable,
            Ordered::Unknown { .. }
            | Ordered::Differs(_)
            | Ordered::Reversed
            | Ordered::Reversing
            | Ordered::NotReversed(_)
            | Ordered::Held { .. }
            | Ordered::Gone
            | Ordered::Unrecorded => &mut self.unknown,
        };
        *counted += 1;
    }
}

impl Verbs {
    /// Asks the tool about the dead letters that match, at most [`ASKED_MAX`] of them.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn preview(&self, filter: Filter) -> Result<Preview, LedgerError> {
        let sample = self.flow.ledger.sample(filter, ASKED_MAX).await?;
        let mut preview = Preview {
            matching: sample.matching,
            ..Preview::default()
        };
        let bounds = &self.flow.metrics.bounds;
        if sample.matching > sample.items.len() as u64 {
            bounds.inc(Bound::PreviewRows);
        }
        let asking = self.ask_all(sample.items, &mut preview);
        tokio::select! {
            () = asking => {}
            () = clock::sleep(PATIENCE) => {
                bounds.inc(Bound::PreviewTime);
                tracing::info!("a preview ended before every row of it was asked about");
            }
        }
        Ok(preview)
    }

    async fn ask_all(&self, rows: Vec<DeadLetter>, preview: &mut Preview) {
        let mut questions = JoinSet::new();
        for letter in rows {
            if questions.len() >= AT_ONCE
                && let Some(Ok(found)) = questions.join_next().await
            {
                preview.count(&found);
            }
            let this = self.clone();
            questions.spawn(async move { this.look((letter.row, letter.life)).await });
        }
        while let Some(found) = questions.join_next().await {
            if let Ok(found) = found {
                preview.count(&found);
            }
        }
    }

    async fn look(&self, (row, life): (RowId, u32)) -> Found {
        let flow = &self.flow;
        let ordered = flow.order(&self.core, row, life, Order::Ask).await;
        let refusal = flow.refusal(&self.core, (row, life), Order::Resend).await;
        Found {
            ordered,
            // A ledger that cannot be read promises nothing.
            resendable: matches!(refusal, Ok(None)),
        }
    }
}
