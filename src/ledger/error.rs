//! What can keep the ledger from doing its part, told so that an operator knows the next step.
//!
//! Expected outcomes (a known id, a stale claim, a difference) are values of the verbs, not errors.
//! An error means: nothing of that verb counts as written. Cloneable, because one failed commit
//! answers everybody who waited for it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Why a ledger could not be opened, or a verb not be done.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// Another process works on this file.
    #[error(
        "the ledger {} is in use by {}; one process per ledger file: stop that one, or give this \
         one a file of its own (ledger.url)",
        path.display(),
        holder_text(*.holder)
    )]
    Locked {
        /// The ledger file.
        path: PathBuf,
        /// The process that holds it, when it left its number.
        holder: Option<u32>,
    },
    /// A ledger that was to be read is not there.
    #[error(
        "there is no ledger {}; ledger.url of the configuration says where it is",
        path.display()
    )]
    NoFile {
        /// The file.
        path: PathBuf,
    },
    /// The folder the file should be in does not exist.
    #[error(
        "the ledger {} cannot be created: there is no folder {}; create it or change \
         ledger.url",
        path.display(),
        folder.display()
    )]
    NoFolder {
        /// The ledger file.
        path: PathBuf,
        /// The folder that is missing.
        folder: PathBuf,
    },
    /// The file or its folder cannot be written.
    #[error(
        "the ledger {} is read-only for this user; nothing can be recorded, so nothing is sent: \
         make the file and its folder writable",
        path.display()
    )]
    ReadOnly {
        /// The ledger file.
        path: PathBuf,
    },
    /// What is there is no file.
    #[error(
        "{} is {what}, and a ledger is a file: name the file itself (ledger.url, or --ledger)",
        path.display()
    )]
    NotAFile {
        /// What was named.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file may not be read.
    #[error(
        "the ledger {} may not be read by this user, or a folder on the way may not: run this as \
         the user that callgate runs as, or let this one read the file and what lies beside it",
        path.display()
    )]
    NoAccess {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{} is not a callgate ledger ({why}); it was not touched: name another file (ledger.url, \
         or --ledger)",
        path.display()
    )]
    NotALedger {
        /// The file.
        path: PathBuf,
        /// How that was seen.
        why: &'static str,
    },
    /// A newer callgate wrote the file.
    #[error(
        "the ledger {} has schema {found}, this callgate knows up to {known}; it was not touched: \
         use the callgate that wrote it, or a newer one",
        path.display()
    )]
    NewerSchema {
        /// The ledger file.
        path: PathBuf,
        /// The version found in it.
        found: i64,
        /// The newest version this program knows.
        known: i64,
    },
    /// The file could not be opened for another reason.
    #[error("the ledger {} cannot be opened", path.display())]
    Open {
        /// The ledger file.
        path: PathBuf,
        /// What the system or the store said.
        #[source]
        source: Cause,
    },
    /// No space is left for the record.
    #[error("the disk of the ledger is full; nothing was recorded: free some space")]
    Full {
        /// What the store said.
        #[source]
        source: Cause,
    },
    /// The record could not be written.
    #[error("the ledger could not be written; nothing was recorded")]
    Write {
        /// What the store said.
        #[source]
        source: Cause,
    },
    /// A record could not be read.
    #[error("the ledger could not be read")]
    Read {
        /// What the store said.
        #[source]
        source: Cause,
    },
    /// The queue in front of the writer or the readers is full (`ledger.queue`).
    #[error("the ledger has {waiting} records waiting and takes no more for now")]
    Overloaded {
        /// How many were waiting.
        waiting: usize,
    },
    /// The ledger was closed.
    #[error("the ledger is closed")]
    Closed,
    /// The ledger failed inside while it did this verb: a fault of the gateway. Whether it was
    /// written is not known when the whole writer has ended, else it was not.
    #[error("the ledger failed inside; should this come again, restart callgate")]
    WriterGone,
}

/// What the store or the system said, shared by all who are told. Which kind of store it was is not
/// for callers to know.
#[derive(Clone, Debug)]
pub struct Cause(Arc<dyn std::error::Error + Send + Sync>);

impl Cause {
    /// Keeps an error as a cause.
    #[must_use]
    pub fn new(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Cause {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source()
    }
}

impl LedgerError {
    /// Whether the gateway merely has too much to do right now: told as `overloaded` instead of
    /// `ledger-unavailable`.
    #[must_use]
    pub const fn is_overload(&self) -> bool {
        matches!(self, Self::Overloaded { .. })
    }
}

fn holder_text(holder: Option<u32>) -> String {
    holder.map_or_else(
        || "another process".to_owned(),
        |pid| format!("process {pid}"),
    )
}

impl From<std::io::Error> for Cause {
    fn from(error: std::io::Error) -> Self {
        Self::new(error)
    }
}
