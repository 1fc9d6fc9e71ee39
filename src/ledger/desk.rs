//! The operator's verbs: ends given by hand, the record of who did what, differences, bulk jobs.
//!
//! What an operator decides without asking anybody is one step together with its line in the
//! audit; what may ask or send is noted before and completed after, by whoever performs it
//! (`compensate/verbs`). Deliberately absent: sending, and any judgement about a tool.

pub mod job;
pub mod judge;

use std::sync::Arc;

use super::pending::Pending;
use super::record::{Owner, RowId};
use super::step::{Contradiction, Verdict};
use super::view::{DeadLetter, DeadState, Filter, SettledBy};
use crate::call::id::{CallId, ClientName};
use crate::call::receipt::State;
use crate::call::time::Wall;

use job::{Cancelled, Job, JobId, JobItem, JobMade, NewJob, Taken};

/// The verbs of operators; part of every ledger.
pub trait Desk: Send + Sync {
    /// Ends a dead letter or frees its key by an operator's word, with its line in the audit, in
    /// one step; or says why not, and changes nothing.
    fn decide(&self, decision: Decision) -> Pending<Decided>;

    /// Notes that an operator ordered something that may ask or send. Durable before it is done.
    fn order(&self, order: OrderLine) -> Pending<AuditId>;

    /// Completes the line of an order: the state its dead letter is in now, and what it came to.
    fn performed(&self, line: AuditId, now: Wall, told: Arc<str>) -> Pending<()>;

    /// What operators did to a call, in all its lives, oldest first.
    fn audit(&self, row: RowId) -> Pending<Vec<AuditLine>>;

    /// Contradictions, newest first.
    fn differences(
        &self,
        which: WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> Pending<DifferencePage>;

    /// How many dead letters match, and up to `limit` of them, evenly spread over all.
    fn sample(&self, filter: Filter, limit: usize) -> Pending<Sample>;

    /// Makes a bulk job with the rows that match now, or joins the running one that does the same
    /// with the same filter.
    fn make_job(&self, job: NewJob) -> Pending<JobMade>;

    /// The newest jobs, newest first.
    fn jobs(&self, limit: usize) -> Pending<Vec<Job>>;

    /// One job.
    fn job(&self, id: JobId) -> Pending<Option<Job>>;

    /// The items of a job after `from`, in order.
    fn job_items(&self, id: JobId, from: u32, limit: usize) -> Pending<Vec<JobItem>>;

    /// After a start: ends what belonged to cancelled jobs of dead processes, and names the jobs
    /// that are to be gone on with.
    fn resume_jobs(&self, owner: Owner, now: Wall) -> Pending<Vec<Job>>;

    /// The next items of a running job, marked as begun: first those that a dead process had
    /// begun, then the waiting ones.
    fn take_items(&self, id: JobId, owner: Owner, limit: usize) -> Pending<Vec<Taken>>;

    /// Writes what became of an item; the last one ends the job. Once per item: a second word
    /// about the same item changes nothing.
    fn end_item(&self, id: JobId, seq: u32, now: Wall, end: job::ItemEnd) -> Pending<()>;

    /// Cancels a running job: nothing of it is begun any more.
    fn cancel_job(&self, id: JobId, who: Arc<str>, now: Wall) -> Pending<Cancelled>;
}

/// What an operator decides without asking the tool.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The call's row.
    pub row: RowId,
    /// The life of the call id it is about.
    pub life: u32,
    /// What is decided.
    pub verb: Verb,
    /// Who, when, why.
    pub by: By,
    /// The receipt document that repeats of a call resolved as done are told.
    pub document: Option<bytes::Bytes>,
}

/// Who does something, when and why.
#[derive(Clone, Debug)]
pub struct By {
    /// Who, as they call themselves.
    pub who: Arc<str>,
    /// Why, in their words.
    pub why: Option<Arc<str>>,
    /// When.
    pub now: Wall,
    /// The bulk job that does it for them.
    pub job: Option<JobId>,
}

/// A verb of an operator, as it stands in the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Ask the tool's receipt now.
    Receipt,
    /// Send again, after the receipt was asked.
    Resend,
    /// Undo.
    Reverse,
    /// The work was done, or was not and never will be: a human knows.
    Resolve(Verdict),
    /// Give it up: nothing is done about it any more.
    Discard,
    /// Free the idempotency key of a call that ended without success.
    ReleaseKey,
}

/// What became of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decided {
    /// It is durable.
    Applied {
        /// The dead letter's state before.
        before: DeadState,
        /// And now.
        after: DeadState,
    },
    /// It was decided so before; nothing was changed.
    Already(DeadState),
    /// The state forbids it; nothing was changed.
    Refused(Refusal),
    /// The row is gone, or the id lives another life now.
    Gone,
}

/// Why a decision is refused: a closed set, told in `docs/errors.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The call was never parked, so there is nothing to decide about.
    NotParked,
    /// A round, a caller or another operator works on it at this moment.
    Running,
    /// It still waits: what is wanted needs an ended dead letter.
    StillOpen,
    /// It ended as done.
    Settled,
    /// It ended as failed.
    Failed,
    /// The undo request is under way.
    Reversing,
    /// It was undone.
    Reversed,
    /// It was given up.
    Discarded,
    /// It has no idempotency key.
    NoKey,
}

/// The number of a line in the audit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditId(pub i64);

/// An order that may ask or send, before it is performed.
#[derive(Clone, Debug)]
pub struct OrderLine {
    /// The call's row.
    pub row: RowId,
    /// The life of the call id it is about.
    pub life: u32,
    /// What was ordered.
    pub verb: Verb,
    /// Who, when, why.
    pub by: By,
}

/// One line of the audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditLine {
    /// Its number.
    pub id: AuditId,
    /// The life of the call id it is about.
    pub life: u32,
    /// When it was decided or ordered.
    pub at: Wall,
    /// Who.
    pub who: Arc<str>,
    /// What.
    pub verb: Verb,
    /// Why.
    pub why: Option<Arc<str>>,
    /// The bulk job that did it for them.
    pub job: Option<JobId>,
    /// The dead letter's state before; the call's, when it has none.
    pub before: Arc<str>,
    /// And after; `None` while it is under way, or when the process ended meanwhile.
    pub after: Option<Arc<str>>,
    /// What it came to.
    pub told: Option<Arc<str>>,
    /// When it was over.
    pub ended_at: Option<Wall>,
}

/// Which contradictions to list. Every field that is set must match.
#[derive(Clone, Debug, Default)]
pub struct WhichDifferences {
    /// Of this kind.
    pub kind: Option<Contradiction>,
    /// Of this route.
    pub route: Option<Arc<str>>,
    /// Of this client.
    pub client: Option<ClientName>,
    /// Seen at this time or later.
    pub since: Option<Wall>,
}

/// Where a page of differences goes on: after this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DifferenceCursor {
    /// When it was seen.
    pub at: Wall,
    /// Its call's row,
    pub row: RowId,
    /// the life,
    pub life: u32,
    /// and the kind.
    pub kind: Contradiction,
}

/// A contradiction with the call it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Differing {
    /// Where it stands in the list.
    pub place: DifferenceCursor,
    /// What was said, for people.
    pub told: Arc<str>,
    /// The call id.
    pub call_id: CallId,
    /// The client.
    pub client: ClientName,
    /// The route.
    pub route: Arc<str>,
    /// The key before it was hashed.
    pub business_key: Option<Arc<str>>,
    /// The idempotency key.
    pub idempotency_key: Option<Arc<str>>,
    /// The state the call is recorded with. `None` when the id lives another life since.
    pub recorded: Option<State>,
    /// What settled it so.
    pub by: Option<SettledBy>,
    /// When it was settled.
    pub settled_at: Option<Wall>,
    /// The state of its dead letter, when it has one.
    pub dead: Option<DeadState>,
}

/// A page of differences, newest first.
#[derive(Clone, Debug)]
pub struct DifferencePage {
    /// The lines.
    pub items: Vec<Differing>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<DifferenceCursor>,
}

/// Some of many.
#[derive(Clone, Debug)]
pub struct Sample {
    /// How many match.
    pub matching: u64,
    /// Those taken, in order.
    pub items: Vec<DeadLetter>,
}

impl Verb {
    /// Every verb, in the order of the documentation.
    pub const ALL: [Self; 7] = [
        Self::Receipt,
        Self::Resend,
        Self::Reverse,
        Self::Resolve(Verdict::Success),
        Self::Resolve(Verdict::Failed),
        Self::Discard,
        Self::ReleaseKey,
    ];

    /// The word in the audit.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Receipt => "receipt",
            Self::Resend => "resend",
            Self::Reverse => "reverse",
            Self::Resolve(Verdict::Success) => "resolve-success",
            Self::Resolve(Verdict::Failed) => "resolve-failed",
            Self::Discard => "discard",
            Self::ReleaseKey => "release-key",
        }
    }

    /// The verb a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.as_str() == word)
    }
}

impl Refusal {
    /// Every refusal, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::NotParked,
        Self::Running,
        Self::StillOpen,
        Self::Settled,
        Self::Failed,
        Self::Reversing,
        Self::Reversed,
        Self::Discarded,
        Self::NoKey,
    ];

    /// The word in a problem document (member `reason`).
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotParked => "not-parked",
            Self::Running => "running",
            Self::StillOpen => "still-open",
            Self::Settled => "settled",
            Self::Failed => "failed",
            Self::Reversing => "reversing",
            Self::Reversed => "reversed",
            Self::Discarded => "discarded",
            Self::NoKey => "no-key",
        }
    }
}
