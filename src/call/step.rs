//! What the machines are told and what they answer: events in, steps out, both plain data.
//!
//! The driver performs a step and has no `if` about the call; what must be durable before a step
//! is performed is said by the step itself ([`Step::entry`]).

use std::time::Duration;

use super::code::Code;
use super::outcome::{Cause, Outcome, Reading};
use super::receipt::Answer;

/// Something that happened to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// The call's record is durable (in line), or its round is leased (recovery).
    Begun,
    /// The attempt that was sent has ended, as far as the caller's patience goes.
    Attempted {
        /// How it ended.
        outcome: Outcome,
        /// `Retry-After` of a kept answer.
        retry_after: Option<Duration>,
        /// The exchange stays open in the background and may still speak.
        open: bool,
    },
    /// The head of an answer that will be streamed has arrived.
    Head(Reading),
    /// An exchange past its attempt timeout brought a complete answer.
    LateAnswer {
        /// The attempt it belongs to.
        n: u8,
        /// What it says.
        reading: Reading,
    },
    /// An exchange past its attempt timeout ended without an answer.
    LateEnded {
        /// The attempt it belongs to.
        n: u8,
    },
    /// The receipt query has ended; what was not believed arrives as UNKNOWN.
    Receipt(Answer),
    /// The wait is over.
    Waited,
    /// Every earlier exchange is closed.
    Closed,
    /// The last waiter has gone.
    ClientGone,
    /// Somebody waits again: a repeat joined after the last one had gone.
    ClientBack,
    /// `timeouts.total` has passed.
    DeadlinePassed,
    /// The process ends before the call does.
    Draining,
    /// A send was not allowed by a limit or a budget.
    Denied,
    /// Every address that the send may go to is left alone at the moment: nothing was recorded and
    /// nothing has left.
    HeldBack,
    /// The entry of the last step could not be made durable.
    LedgerFailed,
    /// The reversal that was sent has ended.
    Reversed(Undo),
}

/// How one send of a reversal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Undo {
    /// The tool has undone the call.
    Done,
    /// The tool refuses to.
    Refused,
    /// There is no request that could be sent; nothing was.
    Unsendable,
    /// Nobody knows: it is sent again with its own id.
    Unclear,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Send attempt `n` (1-based); a resend says why.
    Send {
        /// The attempt's number.
        n: u8,
        /// Why it is sent again; `None` for the first.
        cause: Option<Cause>,
    },
    /// Ask the receipt, with the same call id.
    Ask,
    /// Send the reversal, for the `n`th time (1-based), under its own id.
    Reverse {
        /// Which send of it this is.
        n: u32,
    },
    /// Wait this long; facts may end it early.
    Wait(Duration),
    /// Reset every exchange that is still open.
    CloseEarlier,
    /// Nothing changes: go on with what runs.
    Keep,
    /// Begin to pass the streamed answer of this attempt to the caller: from then on the call is
    /// never sent again, by nobody.
    PassHead(u8),
    /// The call is settled.
    Answer(Ending),
    /// The call leaves the line, or the round ends.
    Park(Parking),
}

/// How a call is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The answer of this attempt is the call's success.
    Success(u8),
    /// The answer of this attempt is the call's definite failure.
    Failure(u8),
    /// The answer of this attempt is passed on and releases id and key.
    Unbinding(u8),
    /// The receipt says SUCCESS.
    ReceiptSuccess,
    /// The receipt says FAILED; this attempt's complete 4xx/5xx is shown when it carries none.
    ReceiptFailed {
        /// The attempt with the last complete 4xx or 5xx answer.
        kept: Option<u8>,
    },
    /// The gateway refuses: nothing was sent and nothing is bound.
    Refused(Code),
}

/// How a call leaves the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    /// Why.
    pub reason: Reason,
    /// Where it goes.
    pub state: Parked,
    /// The attempt whose complete 5xx answer may be handed through.
    pub kept: Option<u8>,
}

/// Where a parked call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// The compensation queue; the next round is due after this wait.
    Queued(Duration),
    /// In front of a human.
    Manual,
    /// Nothing ever reached the tool: it ends, and id and key are free again.
    NeverSent,
    /// Nothing ever reached the tool, but it may be sent by a round after this wait.
    Unsent(Duration),
    /// Where it was: the question taught nothing, and the dead letter waits as before.
    AsBefore,
    /// Its reversal is sent again after this wait.
    Reversing(Duration),
    /// It was undone.
    Reversed,
}

/// Why a call became a dead letter, or why a round ended without settling it: a closed set, also
/// the label of `callgate_dead_letters_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A resend would have been next, and none was left.
    RetriesExhausted,
    /// `timeouts.total` passed, or left too little for a send.
    Deadline,
    /// The tool's `Retry-After` does not fit into `timeouts.total`.
    RetryAfter,
    /// The route has nothing to ask.
    NoReceipt,
    /// Nothing ever reached the tool.
    NeverSent,
    /// The process ended while the call was in line.
    Crash,
    /// The process was told to end while the call was in line.
    Drain,
    /// The caller has gone and the route says `cancel`: no round sends it either.
    Cancelled,
    /// A streamed answer was cut.
    StreamCut,
    /// A limit or budget forbade the resend.
    Denied,
    /// Every address that a send could go to was left alone as long as there was time.
    Ejected,
    /// The record could not be written.
    LedgerFailed,
    /// The last round did not settle it.
    RoundsExhausted,
    /// The route's upstream is another one now, or the route is gone.
    RouteChanged,
    /// The receipt says FAILED and `on_failed: keep` wants a human to see it.
    ReportedFailure,
    /// The call came with a credential that is not kept, so it cannot be resent.
    CredentialNotKept,
    /// The tool refused to undo it.
    ReversalRefused,
    /// Its undo request names something that neither the call nor its receipt has.
    ReversalIncomplete,
    /// Whether it was undone is not known either.
    ReversalUnclear,
    /// A fault of this program: an event that cannot happen.
    Impossible,
}

/// What must be durable before a step is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Nothing,
    /// An intention, under the current fencing number.
    Intention,
    /// A fact, written and waited for before it is told.
    Fact,
}

impl Step {
    /// What must be durable before this step is performed. A success is told while its record is
    /// on its way when the tool can be asked about it (`asks`): after a crash in between the
    /// receipt tells.
    #[must_use]
    pub const fn entry(&self, asks: bool) -> Entry {
        match self {
            Self::Send { .. } | Self::Reverse { .. } | Self::PassHead(_) | Self::Park(_) => {
                Entry::Intention
            }
            Self::Answer(Ending::Success(_) | Ending::ReceiptSuccess) if asks => Entry::Nothing,
            Self::Answer(Ending::Refused(_)) => Entry::Nothing,
            Self::Answer(_) => Entry::Fact,
            Self::Ask | Self::Wait(_) | Self::CloseEarlier | Self::Keep => Entry::Nothing,
        }
    }
}

impl Reason {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 20] = [
        Self::RetriesExhausted,
        Self::Deadline,
        Self::RetryAfter,
        Self::NoReceipt,
        Self::NeverSent,
        Self::Crash,
        Self::Drain,
        Self::Cancelled,
        Self::StreamCut,
        Self::Denied,
        Self::Ejected,
        Self::LedgerFailed,
        Self::RoundsExhausted,
        Self::RouteChanged,
        Self::ReportedFailure,
        Self::CredentialNotKept,
        Self::ReversalRefused,
        Self::ReversalIncomplete,
        Self::ReversalUnclear,
        Self::Impossible,
    ];

    /// The word in the ledger, in logs and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetriesExhausted => "retries-exhausted",
            Self::Deadline => "deadline",
            Self::RetryAfter => "retry-after",
            Self::NoReceipt => "no-receipt",
            Self::NeverSent => "never-sent",
            Self::Crash => "crash",
            Self::Drain => "drain",
            Self::Cancelled => "cancelled",
            Self::StreamCut => "stream-cut",
            Self::Denied => "denied",
            Self::Ejected => "ejected",
            Self::LedgerFailed => "ledger-failed",
            Self::RoundsExhausted => "rounds-exhausted",
            Self::RouteChanged => "route-changed",
            Self::ReportedFailure => "reported-failure",
            Self::CredentialNotKept => "credential-not-kept",
            Self::ReversalRefused => "reversal-refused",
            Self::ReversalIncomplete => "reversal-incomplete",
            Self::ReversalUnclear => "reversal-unclear",
            Self::Impossible => "impossible",
        }
    }
}
