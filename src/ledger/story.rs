//! The whole story of a call, for `why`: every life of its id, the ids that stand for it, and the
//! other calls that may be the same operation.
//!
//! A view shows one life; a person who asks why something ran twice needs what came before, and
//! what else came from the same caller. Deliberately absent: any judgement, which is
//! `call::history`.

use std::sync::Arc;

use http::StatusCode;

use super::desk::AuditLine;
use super::step::Entry;
use super::view::{CallView, DeadLetter, Difference, SettledBy};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::receipt::State;
use crate::call::time::Wall;

/// How many other calls a story names.
pub const KIN_MAX: usize = 20;

/// Other calls are looked for among so many that were recorded before a call, and so many after it:
/// without an index, which every call would have to pay for, this is a fraction of a second.
pub const KIN_SPAN: i64 = 100_000;

/// Everything the ledger can tell about one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    /// How the name that was asked about led to this call.
    pub found: Found,
    /// The call in its present life.
    pub call: CallView,
    /// Until when a repeat of it, or of its key, is met by it once it is settled.
    pub remembered_until: Wall,
    /// The policy it lives by, as text.
    pub policy: Arc<str>,
    /// Earlier lives of its id, oldest first.
    pub past: Vec<Life>,
    /// Ids that came with its key and stand for it.
    pub aliases: Vec<Alias>,
    /// What operators did about it, oldest first.
    pub acts: Vec<AuditLine>,
    /// Other calls of this client on this route with its key, or with the same request.
    pub kin: Vec<Kin>,
    /// Whether every call of the ledger was looked at for kin.
    pub searched_all: bool,
}

/// What a name was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The call's own id.
    CallId,
    /// An id that came with the call's key.
    Alias,
    /// The call's idempotency key, or the text it was made from.
    Key,
}

/// A use of a call id that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Life {
    /// Which, from 1.
    pub life: u32,
    /// How it stood when the id was used again; `None` for lives that ended before ledgers kept it.
    pub end: Option<PastEnd>,
    /// Its dead letter, if it had one.
    pub dead_letter: Option<DeadLetter>,
    /// Its contradictions.
    pub differences: Vec<Difference>,
    /// Its history, oldest first.
    pub history: Vec<Entry>,
}

/// How an earlier life stood when it was over.
#[derive(Clone, Debug, PartialEq)]
pub struct PastEnd {
    /// When it was recorded.
    pub received_at: Wall,
    /// Its state.
    pub state: State,
    /// Its idempotency key.
    pub idempotency_key: Option<Arc<str>>,
    /// What settled it, and when.
    pub settled: Option<(SettledBy, Wall)>,
    /// The status that was told.
    pub status: Option<StatusCode>,
}

/// An id that stands for another call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The id.
    pub call_id: CallId,
    /// The life of the call it stands for.
    pub life: u32,
    /// When it came.
    pub at: Wall,
}

/// Another call that may be the same operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Kin {
    /// Its id.
    pub call_id: CallId,
    /// Whose it is.
    pub client: ClientName,
    /// Who made the id.
    pub source: IdSource,
    /// Its state.
    pub state: State,
    /// Its idempotency key.
    pub idempotency_key: Option<Arc<str>>,
    /// It has the call's key.
    pub same_key: bool,
    /// It is the same request, byte for byte.
    pub same_request: bool,
    /// How many sends are noted.
    pub sends: u32,
    /// When it was recorded.
    pub received_at: Wall,
    /// What settled it, and when.
    pub settled: Option<(SettledBy, Wall)>,
    /// Until when its key is remembered, once it is settled.
    pub remembered_until: Wall,
}
