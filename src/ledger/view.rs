//! What is read from the ledger: a call with everything known about it, dead letters, due work.
//!
//! One shape for all readers, so that they cannot disagree. Deliberately absent: any formatting.

mod attempts;

use std::sync::Arc;

use bytes::Bytes;

pub use self::attempts::Attempt;
use super::record::{Claim, Owner, Reply, RowId, StoredRequest, StoredUndo};
use super::step::{Contradiction, Entry, Verdict};
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::receipt::{Answer, State};
use crate::call::time::Wall;

/// A call with everything known about its current life.
#[derive(Clone, Debug, PartialEq)]
pub struct CallView {
    /// Its row.
    pub row: RowId,
    /// Which use of the call id this is, from 1.
    pub life: u32,
    /// Its id.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// Whose call it is.
    pub client: ClientName,
    /// The route it came by.
    pub route: Arc<str>,
    /// The upstream address it was first sent to.
    pub upstream: Arc<str>,
    /// Its idempotency key.
    pub idempotency_key: Option<Arc<str>>,
    /// The key before it was hashed.
    pub business_key: Option<Arc<str>>,
    /// What makes a repeat the same request.
    pub fingerprint: Fingerprint,
    /// Its trace.
    pub trace: Option<Arc<str>>,
    /// Its state: `RECEIVED`, `PROCESSING` in line, `UNKNOWN` as a dead letter, or how it ended.
    pub state: State,
    /// Whether the id is bound: a repeat meets this call instead of being sent.
    pub binds: bool,
    /// Who works on it, or did last; nobody once it has ended.
    pub owner: Owner,
    /// Until when that claim holds, while it is open.
    pub lease_until: Wall,
    /// When it was recorded.
    pub received_at: Wall,
    /// When its row last changed.
    pub updated_at: Wall,
    /// When it was first sent, if it was.
    pub first_sent: Option<Wall>,
    /// How many sends are noted.
    pub sends: u32,
    /// Whether the caller was promised the call: it is sent, however long that takes.
    pub promised: bool,
    /// Whether the tool has shown that it knows the call.
    pub recognised: bool,
    /// Whether a part of its streamed answer may have reached the caller: it is never sent again.
    pub told: bool,
    /// How it ended, if it did.
    pub settled: Option<Settlement>,
    /// The last complete answer that settled nothing, while the call is open.
    pub kept: Option<Reply>,
    /// Its dead letter, if this life has one.
    pub dead_letter: Option<DeadLetter>,
    /// The contradictions recorded for it.
    pub differences: Vec<Difference>,
    /// Its history, oldest first.
    pub history: Vec<Entry>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Settlement {
    /// The word.
    pub verdict: Verdict,
    /// What said so.
    pub by: SettledBy,
    /// When.
    pub at: Wall,
    /// What repeats are answered with; `None` when there is nothing but the receipt.
    pub reply: Option<Reply>,
    /// The receipt that settled it, as it came.
    pub document: Option<Bytes>,
}

/// What settled a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledBy {
    /// The answer to this attempt.
    Answer(u32),
    /// A receipt.
    Receipt,
    /// The certainty that it was never sent.
    NeverSent,
    /// Its reversal: the work was undone.
    Reversal,
    /// A human.
    Operator,
}

/// A recorded contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Which.
    pub kind: Contradiction,
    /// When it was seen first.
    pub at: Wall,
    /// What was said, for people.
    pub told: Arc<str>,
}

/// A dead letter: the row of the compensation queue (contract, section 6).
#[derive(Clone, Debug, PartialEq)]
pub struct DeadLetter {
    /// The call's row.
    pub row: RowId,
    /// The life of the call id it belongs to.
    pub life: u32,
    /// The call id.
    pub call_id: CallId,
    /// The route.
    pub route: Arc<str>,
    /// The client.
    pub client: ClientName,
    /// The key before it was hashed.
    pub business_key: Option<Arc<str>>,
    /// The idempotency key (column `request_id`).
    pub idempotency_key: Option<Arc<str>>,
    /// Why it was parked, or why it is in front of a human.
    pub reason: Arc<str>,
    /// The last thing that went wrong.
    pub last_error: Arc<str>,
    /// How many rounds ended without an end.
    pub fail_count: u32,
    /// When the next round is due.
    pub next_retry_time: Option<Wall>,
    /// When it was parked.
    pub create_time: Wall,
    /// Its state.
    pub state: DeadState,
    /// Rounds done.
    pub round: u32,
    /// Who works on it.
    pub owner: Option<Owner>,
    /// The fencing number of the last claim.
    pub fence: i64,
    /// Until when that claim holds.
    pub lease_until: Option<Wall>,
    /// When it ended, if it did.
    pub ended_at: Option<Wall>,
    /// An operator's order holds it, and it goes back in front of a human.
    pub by_hand: bool,
    /// How often its reversal was sent. Past none, the original is never sent again.
    pub reversals: u32,
    /// What the receipt said when it was asked last.
    pub last_receipt: Option<Answer>,
    /// Who had the call in line.
    pub begun_by: Option<Owner>,
}

/// The state of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DeadState {
    /// Waits for its next round.
    Queued,
    /// A worker holds it.
    Running,
    /// The tool confirmed it.
    Settled,
    /// The tool refused it, or it was never sent.
    Failed,
    /// The undo request is under way; nothing is sent for the original any more.
    Reversing,
    /// It was undone.
    Reversed,
    /// Waits for a human.
    Manual,
    /// A human gave it up.
    Discarded,
}

/// Work for a round, claimed.
#[derive(Clone, Debug)]
pub struct Due {
    /// The right to it.
    pub claim: Claim,
    /// The call with its dead letter and history.
    pub call: CallView,
    /// What to send.
    pub request: StoredRequest,
    /// The policy it lives by.
    pub policy: Arc<str>,
    /// Its undo request, once that was sent.
    pub undo: Option<StoredUndo>,
}

/// On whose behalf one dead letter is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taker {
    /// A caller who repeats the call: only what waits in the queue, and it goes back there.
    Caller,
    /// An operator: also what waits for a human, which goes back in front of a human.
    Operator,
}

/// Whose claims are void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerTest {
    /// Every other owner is dead: this process holds the only lock on the ledger.
    AllOthers,
    /// Owners whose lease ran out: the ledger is shared.
    LeaseRanOut,
}

/// What the sweep after a start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Calls that may have been sent: parked with reason `crash`, due at once.
    pub parked: u64,
    /// Calls that never were: closed as never sent.
    pub never_sent: u64,
    /// Rounds that were under way: due again.
    pub requeued: u64,
}

/// Which dead letters to list. Every field that is set must match.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<DeadState>,
    /// Of this route.
    pub route: Option<Arc<str>>,
    /// Of this client.
    pub client: Option<ClientName>,
    /// Parked before this time.
    pub parked_before: Option<Wall>,
    /// Whose last error or reason contains this text.
    pub error: Option<Arc<str>>,
    /// With exactly this idempotency key or business key.
    pub key: Option<Arc<str>>,
    /// With this call id.
    pub call_id: Option<CallId>,
    /// Whose receipt said this when it was asked last.
    pub receipt: Option<Answer>,
    /// With this text in the call id, a key, the reason or the last error, whatever its case.
    pub text: Option<Arc<str>>,
    /// In one of these states, when there are any.
    pub within: &'static [DeadState],
    /// In which order.
    pub sort: Sort,
}

/// The order of a list of dead letters; calls that are equal in it stand oldest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// The oldest call first.
    #[default]
    Oldest,
    /// The newest call first.
    Newest,
    /// The one whose next round is due first; those without one last.
    Due,
    /// The one that failed most often first.
    Fails,
}

/// Where a page of dead letters begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// After this place in the order, for orders that have one beside the row,
    pub at: i64,
    /// after this row,
    pub row: RowId,
    /// in this life.
    pub life: u32,
}

/// A page of dead letters.
#[derive(Clone, Debug)]
pub struct Page {
    /// The rows.
    pub items: Vec<DeadLetter>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<Cursor>,
}

/// How many dead letters of a route are in an open state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The route.
    pub route: Arc<str>,
    /// The state, an open one.
    pub state: DeadState,
    /// How many.
    pub count: u64,
    /// When the oldest of them was parked.
    pub oldest: Wall,
}

/// What is remembered of a receipt endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofNote {
    /// Its address.
    pub endpoint: Arc<str>,
    /// What was found.
    pub proof: Proof,
    /// When.
    pub at: Wall,
}

/// Whether an endpoint's "never heard of it" can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// It recognised a call that was sent.
    Proven,
    /// It did not know a call that was answered.
    Broken,
}

/// What one step of the clean-up did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Calls removed.
    pub calls: u64,
    /// Whether more is ripe: call again.
    pub more: bool,
}

/// Whether the ledger can take records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// What the last write failed with; `None` when it was written.
    pub failing: Option<Arc<str>>,
    /// Records waiting for the writer.
    pub waiting: usize,
    /// How many may wait before new calls are refused.
    pub capacity: usize,
}

impl Sort {
    /// Every order, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Oldest, Self::Newest, Self::Due, Self::Fails];

    /// The word in an address and on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oldest => "oldest",
            Self::Newest => "newest",
            Self::Due => "due",
            Self::Fails => "fails",
        }
    }

    /// The order a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.as_str() == word)
    }

    /// Where a dead letter stands in this order, besides its row.
    #[must_use]
    pub fn key(self, letter: &DeadLetter) -> i64 {
        match self {
            Self::Oldest | Self::Newest => 0,
            Self::Due => letter.next_retry_time.map_or(i64::MAX, |at| at.0),
            Self::Fails => -i64::from(letter.fail_count),
        }
    }

    /// The cursor behind a dead letter.
    #[must_use]
    pub fn behind(self, letter: &DeadLetter) -> Cursor {
        Cursor {
            at: self.key(letter),
            row: letter.row,
            life: letter.life,
        }
    }
}

impl DeadState {
    /// Every state, in the order of the documentation.
    pub const ALL: [Self; 8] = [
        Self::Queued,
        Self::Running,
        Self::Settled,
        Self::Failed,
        Self::Reversing,
        Self::Reversed,
        Self::Manual,
        Self::Discarded,
    ];

    /// The word in the ledger, in lists and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::Settled => "SETTLED",
            Self::Failed => "FAILED",
            Self::Reversing => "REVERSING",
            Self::Reversed => "REVERSED",
            Self::Manual => "MANUAL",
            Self::Discarded => "DISCARDED",
        }
    }

    /// The state a word names.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Whether somebody, a worker or a human, still has to do something.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Queued | Self::Running | Self::Reversing | Self::Manual => true,
            Self::Settled | Self::Failed | Self::Reversed | Self::Discarded => false,
        }
    }
}
