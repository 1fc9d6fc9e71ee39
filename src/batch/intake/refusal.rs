//! Why a submission is refused, for whoever submitted it.

use super::SUBMISSIONS_MAX;
use crate::batch::rows::Trouble;
use crate::ledger::LedgerError;

/// Why a submission was refused. Each text ends with the next thing to do.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Something that was asked for makes no sense.
    #[error("{0}")]
    Order(String),
    /// No such route.
    #[error("no route is called `{name}`; there are {known}")]
    NoRoute {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The file cannot be read on.
    #[error("{trouble}; {so_far}")]
    File {
        /// Why.
        trouble: Trouble,
        /// What that leaves behind.
        so_far: String,
    },
    /// The name is another batch's.
    #[error("{0}")]
    Taken(String),
    /// A bad row, and `strict`.
    #[error(
        "{count} bad rows, the first: {first}; with `strict` nothing runs: the batch {name} stays \
         LOADING. Correct the file and submit it under another name, or cancel this one"
    )]
    Strict {
        /// The batch.
        name: String,
        /// How many.
        count: u64,
        /// The first.
        first: String,
    },
    /// As many files are read as may be.
    #[error("{SUBMISSIONS_MAX} files are being submitted already; submit this one a little later")]
    Busy,
    /// The ledger cannot be written.
    #[error("{source}; the batch stays LOADING and nothing of it was sent: submit it again")]
    Ledger {
        /// Why.
        #[from]
        source: LedgerError,
    },
}
