//! What is written about a call after it was claimed: intentions, facts, and history.
//!
//! The difference is the heart of the ledger (contract, section 3, rule 11). An **intention** says
//! what its owner is about to do and needs the current claim. A **fact** says what the world has
//! done: it applies to any unsettled call, whoever learnt it, and never to a settled one.
//! **History** gates nothing; it is what `why` tells afterwards.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::record::{Reply, RowId, StoredUndo};
use super::view::DeadState;
use crate::call::outcome::{Cause, Outcome, Reading};
use crate::call::receipt::{Answer, Doubt, State};
use crate::call::time::Wall;

/// What the owner of a call is about to do. Durable before it is done.
#[derive(Clone, Debug)]
pub enum Intention {
    /// Send the call (again). The lease is extended in the same step.
    Send {
        /// Which send this is, 1-based. Must be exactly one more than those noted.
        n: u32,
        /// Why it is sent again; `None` for the first.
        cause: Option<Cause>,
        /// The address it goes to from now on, when that is another one: nothing of it can have
        /// reached the one it was meant for.
        moved: Option<Arc<str>>,
        /// Until when the claim holds now.
        lease_until: Wall,
    },
    /// Pass the head of a streamed answer to the caller: from now on the call is never sent again,
    /// by no door and in no process.
    Tell,
    /// Stop working on the call in line: it becomes a dead letter in the same step.
    Park(Park),
    /// This round is over without an end; the next one is due then.
    NextRound {
        /// Rounds done so far.
        round: u32,
        /// When the next is due.
        due: Wall,
        /// Whether some send may have reached the tool, as in [`Park`]: what a round has tried and
        /// could not send stays `RECEIVED`.
        reached: bool,
        /// What this one came to, for the list of dead letters.
        last_error: Arc<str>,
    },
    /// Nothing more is done about the dead letter without a human.
    Manual {
        /// Why.
        reason: Reason,
        /// Rounds done.
        round: u32,
        /// Whether some send may have reached the tool.
        reached: bool,
        /// What the last one came to.
        last_error: Arc<str>,
    },
    /// Send the reversal (again): from now on nothing is sent for the original by any door, and
    /// what the tool says about it is a difference. The lease is extended in the same step.
    Reverse {
        /// Which send of the reversal this is, 1-based. Must be exactly one more than those noted.
        n: u32,
        /// The undo request; kept with the first.
        request: StoredUndo,
        /// Until when the claim holds now.
        lease_until: Wall,
    },
    /// Whether the reversal took effect is not known yet; it is sent again then.
    ReverseAgain {
        /// When.
        due: Wall,
        /// What this one came to.
        last_error: Arc<str>,
    },
    /// The tool has undone the call: it ends, and keeps its id and its key.
    Reversed,
    /// Give the claim back without having done a round: the dead letter waits as before. (An
    /// in-line call has nobody to give it to: it is parked instead, and this is stale.)
    ReleaseLease {
        /// Whether some send may have reached the tool.
        reached: bool,
    },
}

/// A word from the closed sets of the decision core, such as `timeout` or `crash`.
pub type Reason = Cow<'static, str>;

/// How a call leaves the line.
#[derive(Clone, Debug)]
pub struct Park {
    /// Why; also the metric label of the dead letter.
    pub reason: Reason,
    /// Where it goes.
    pub place: Place,
    /// Whether some attempt may have reached the tool. The call is then `UNKNOWN`, else `RECEIVED`.
    pub reached: bool,
    /// The last thing that went wrong, for people.
    pub last_error: Arc<str>,
    /// The last complete answer that settled nothing (a 5xx), kept for a receipt `FAILED`.
    pub kept: Option<Reply>,
}

/// Where a parked call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the compensation queue, due then.
    Queued {
        /// When the first round is due.
        due: Wall,
    },
    /// In front of a human.
    Manual,
    /// Nowhere: nothing reached the tool and nothing ever will. The call ends `FAILED`, id and key
    /// are free again, a dead letter in state `FAILED` keeps it visible.
    NeverSent,
}

/// Whether an intention was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// It is durable: go ahead.
    Applied,
    /// The claim is not the current one, the call is settled, or the intention does not fit its
    /// state. Nothing was changed: do not go ahead.
    Stale,
}

/// Something the tool has said for good.
#[derive(Clone, Debug)]
pub struct Fact {
    /// The call's row.
    pub row: RowId,
    /// The life of the call id the fact is about.
    pub life: u32,
    /// When it was learnt.
    pub now: Wall,
    /// History that came with it, written in the same step.
    pub entries: Vec<Entry>,
    /// What was said.
    pub news: News,
}

/// What a fact says.
#[derive(Clone, Debug)]
pub enum News {
    /// A final answer. The id stays bound; the key too, unless the answer is a refusal.
    Answer {
        /// The attempt it answers.
        n: u32,
        /// The answer.
        reply: Reply,
        /// Whether it says the work is done, as the route reads it.
        success: bool,
    },
    /// An answer that is passed on and binds nothing: the call is over, id and key are free.
    Unbinding {
        /// The attempt it answers.
        n: u32,
        /// The answer.
        reply: Reply,
    },
    /// A terminal receipt.
    Receipt {
        /// Its word.
        verdict: Verdict,
        /// What callers are told and repeats are answered with; `None` when the answer is to be
        /// made from the document.
        reply: Option<Reply>,
        /// The receipt as it came.
        document: Option<Bytes>,
    },
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The work was done.
    Success,
    /// It was not, and will not be.
    Failed,
}

/// What became of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum FactWritten {
    /// The call is settled by it.
    Applied,
    /// The call was settled the same way before.
    Repeated,
    /// It contradicts the end the call already has, or the call is being reversed. It was not
    /// applied; `first` when no difference of this kind was recorded for the call before.
    Difference {
        /// Which contradiction.
        kind: Contradiction,
        /// Whether this is the first of its kind: the one to count and tell.
        first: bool,
    },
    /// It is the refusal of one attempt of a dead letter that was sent again since, so it says
    /// nothing about the call. Its history was kept; it was not applied.
    Alone,
    /// The row is gone, or the id lives another life now. Nothing was written.
    Gone,
}

/// The kind of a difference: the metric label of `callgate_differences_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Contradiction {
    /// An answer says otherwise than the recorded end.
    Answer,
    /// A receipt says otherwise than the recorded end.
    Receipt,
    /// A receipt carries a result that disagrees with its own state.
    Result,
    /// A fact arrived after the reversal began.
    Reversal,
}

/// One line of a call's history.
#[derive(Clone, Debug, PartialEq)]
pub enum Entry {
    /// The call was sent. Written by `begin` and by [`Intention::Send`] only.
    Sent {
        /// When.
        at: Wall,
        /// Which send, 1-based.
        n: u32,
        /// Why again; `None` for the first.
        cause: Option<Cause>,
    },
    /// The call goes to another address of its tool, because nothing of it can have reached the one
    /// before. Written by [`Intention::Send`] only.
    Moved {
        /// When.
        at: Wall,
        /// The address before.
        from: Arc<str>,
        /// The address from now on.
        to: Arc<str>,
    },
    /// An attempt ended.
    Ended {
        /// When.
        at: Wall,
        /// Which attempt.
        n: u32,
        /// How.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
        /// Whether it spoke after its attempt timeout.
        late: bool,
        /// What exactly, for people (`connection reset by peer`).
        detail: Option<Arc<str>>,
    },
    /// The receipt was asked and answered, or did not.
    Receipt {
        /// When.
        at: Wall,
        /// What it counts as.
        answer: Answer,
        /// Why a "not found" was not believed.
        doubt: Option<Doubt>,
        /// The status of the answer, when there was one.
        status: Option<StatusCode>,
        /// How long it took.
        took: Duration,
        /// What exactly went wrong, for people.
        detail: Option<Arc<str>>,
    },
    /// The call waited before its next step.
    Waited {
        /// When the wait began.
        at: Wall,
        /// For what: a word of the driver (`backoff`, `settle`, `receipt`).
        why: Reason,
        /// How long it was meant to be.
        wait: Duration,
    },
    /// A reused connection handed the request back unwritten; a fresh one took its place within
    /// the same attempt.
    Reconnected {
        /// When.
        at: Wall,
        /// Which attempt.
        n: u32,
    },
    /// Somebody took over the call: a worker for a round, or the sweep after a crash.
    Claimed {
        /// When.
        at: Wall,
        /// Who.
        owner: Arc<str>,
        /// With which fencing number.
        fence: i64,
    },
    /// The call became a dead letter, or its dead letter went on.
    Parked {
        /// When.
        at: Wall,
        /// The state of the dead letter.
        state: DeadState,
        /// Why, or the error of the round.
        reason: Reason,
        /// Rounds done so far.
        round: u32,
    },
    /// The reversal was sent. Written by [`Intention::Reverse`] only.
    Reversing {
        /// When.
        at: Wall,
        /// Which send of it, 1-based.
        n: u32,
    },
    /// A send of the reversal ended.
    Undone {
        /// When.
        at: Wall,
        /// Which send of it.
        n: u32,
        /// How.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
        /// What exactly, for people.
        detail: Option<Arc<str>>,
    },
    /// A contradiction seen outside [`Fact`]; recorded once per kind in `differences`.
    Differs {
        /// When.
        at: Wall,
        /// Which.
        kind: Contradiction,
        /// What was said, for people.
        told: Arc<str>,
    },
}

impl Verdict {
    /// The state word of a call that ended so.
    #[must_use]
    pub const fn state(self) -> State {
        match self {
            Self::Success => State::Success,
            Self::Failed => State::Failed,
        }
    }

    /// The reading of an answer with this status that has ended a call so.
    pub(super) const fn of_answer(self, status: StatusCode) -> Outcome {
        Outcome::Answered(match self {
            Self::Success => Reading::Success(status),
            Self::Failed => Reading::Failure(status),
        })
    }
}

impl Contradiction {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Answer, Self::Receipt, Self::Result, Self::Reversal];

    /// The word in the ledger and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Receipt => "receipt",
            Self::Result => "result",
            Self::Reversal => "reversal",
        }
    }
}

impl Entry {
    /// When it happened.
    #[must_use]
    pub const fn at(&self) -> Wall {
        match self {
            Self::Sent { at, .. }
            | Self::Moved { at, .. }
            | Self::Ended { at, .. }
            | Self::Receipt { at, .. }
            | Self::Waited { at, .. }
            | Self::Reconnected { at, .. }
            | Self::Claimed { at, .. }
            | Self::Parked { at, .. }
            | Self::Reversing { at, .. }
            | Self::Undone { at, .. }
            | Self::Differs { at, .. } => *at,
        }
    }
}
