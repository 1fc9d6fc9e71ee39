//! Bulk jobs: one verb over many dead letters, fixed when the job is made.
//!
//! A job is rows of the ledger and nothing else, so that a crash loses none of it: what waits,
//! what was begun, what each came to.

use std::sync::Arc;

use super::{By, Verb};
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::record::RowId;
use crate::ledger::view::Filter;

/// The most rows one job has. Making the job is one record of the writer, which calls wait for
/// too: measured, this many take a tenth of a second.
pub const ITEMS_MAX: usize = 50_000;

/// The most jobs that may run at once; past it a new one is refused.
pub const RUNNING_MAX: usize = 16;

/// The number of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub i64);

/// A job to be made.
#[derive(Clone, Debug)]
pub struct NewJob {
    /// What is done to each row.
    pub verb: Verb,
    /// Which rows.
    pub filter: Filter,
    /// The filter as it was asked for: two jobs with the same verb and text are the same job.
    pub text: Arc<str>,
    /// How many rows are begun in a minute.
    pub per_minute: u32,
    /// Who, when, why.
    pub by: By,
}

/// What became of a job to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum JobMade {
    /// It runs.
    Made(Job),
    /// One that does the same runs already.
    Joined(Job),
    /// No row matches: there is nothing to do and no job.
    Nothing,
    /// [`RUNNING_MAX`] jobs run already.
    TooMany,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number.
    pub id: JobId,
    /// What is done to each row.
    pub verb: Verb,
    /// The filter as it was asked for.
    pub text: Arc<str>,
    /// Who made it.
    pub who: Arc<str>,
    /// Why.
    pub why: Option<Arc<str>>,
    /// When.
    pub at: Wall,
    /// How many rows are begun in a minute.
    pub per_minute: u32,
    /// Whether it runs.
    pub state: JobState,
    /// Rows in it.
    pub total: u32,
    /// Rows without a result yet.
    pub unended: u32,
    /// Rows that matched and were left out, past [`ITEMS_MAX`].
    pub beyond: u32,
    /// When it ended.
    pub ended_at: Option<Wall>,
    /// Who cancelled it.
    pub ended_by: Option<Arc<str>>,
    /// How many rows came to what, by the word.
    pub results: Vec<(Arc<str>, u32)>,
}

/// Whether a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Its rows are being worked off.
    Running,
    /// Every row has a result.
    Done,
    /// Somebody stopped it: rows that waited are left alone.
    Cancelled,
}

/// One row of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobItem {
    /// Its place in the job, from 1.
    pub seq: u32,
    /// The call's row.
    pub row: RowId,
    /// The life of the call id.
    pub life: u32,
    /// The call id.
    pub call_id: CallId,
    /// The client.
    pub client: ClientName,
    /// How far it is.
    pub state: ItemState,
    /// What it came to: a word.
    pub result: Option<Arc<str>>,
    /// The same for people.
    pub detail: Option<Arc<str>>,
    /// When.
    pub ended_at: Option<Wall>,
}

/// How far a row of a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemState {
    /// Nothing was done about it.
    Waiting,
    /// Somebody is at it, or was when the process ended.
    Begun,
    /// It has a result.
    Done,
}

/// A row taken to be worked on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its place in the job.
    pub seq: u32,
    /// The call's row.
    pub row: RowId,
    /// The life of the call id.
    pub life: u32,
    /// Whether a process that ended had begun it.
    pub again: bool,
}

/// What an item came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemEnd {
    /// A word of a closed set.
    pub result: &'static str,
    /// The same for people.
    pub detail: Option<Arc<str>>,
}

/// What became of a wish to cancel.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Cancelled {
    /// It stops.
    Applied(Job),
    /// It was over before.
    Already(Job),
    /// There is no such job.
    Gone,
}

impl JobState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Running, Self::Done, Self::Cancelled];

    /// The word in the ledger and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The state a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

impl ItemState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Begun, Self::Done];

    /// The word in the ledger and in lists.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "WAITING",
            Self::Begun => "BEGUN",
            Self::Done => "DONE",
        }
    }

    /// The state a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}
