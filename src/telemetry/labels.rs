//! The closed sets of label values.
//!
//! The metrics library tells two series of a family apart by a hash over their label values with
//! nothing between them, so `("a", "bc")` and `("ab", "c")` would be one series. Here that cannot
//! happen: a family has at most one closed label, which goes first and whose words are prefix-free
//! (no word begins another), and at most one free label, the route, which goes last.

use crate::call::code::{Code, Word};
use crate::call::outcome::{Cause, NotSent, Outcome, Unclear};
use crate::call::receipt::{Answer, State};
use crate::call::step::{Reason, Undo};

/// A closed set of label values.
pub trait Label: Copy {
    /// Every value, each at its [`Label::index`].
    fn all() -> Vec<Self>;
    /// The position of this value in [`Label::all`].
    fn index(self) -> usize;
    /// The word in the exposition.
    fn word(self) -> &'static str;
}

/// Defines an enum that is nothing but a closed set of words.
macro_rules! labels {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:expr,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
            pub enum $name { $($(#[$vdoc])* $variant,)* }

            impl $name {
                /// Every value, in the order of the documentation.
                pub const ALL: &[Self] = &[$(Self::$variant,)*];

                /// The word on the wire, in logs and as a label.
                #[must_use]
                pub const fn as_str(self) -> &'static str {
                    match self { $(Self::$variant => $word,)* }
                }
            }

            impl Label for $name {
                fn all() -> Vec<Self> {
                    Self::ALL.to_vec()
                }
                fn index(self) -> usize {
                    self as usize
                }
                fn word(self) -> &'static str {
                    self.as_str()
                }
            }
        )*
    };
}

labels! {
    /// How one attempt ended.
    AttemptResult {
        /// A complete answer that is not a 5xx.
        Answered = "answered",
        /// A complete 5xx answer: it says nothing about the effect.
        ServerError = "5xx",
        /// No byte reached the tool.
        NotSent = "not_sent",
        /// No complete answer in time.
        Timeout = "timeout",
        /// The connection died or the answer was unusable.
        Disconnect = "disconnect",
    }

    /// Why a wanted resend was not allowed.
    Denied {
        /// All `max_retries` resends were used.
        Exhausted = "retries-exhausted",
        /// Too little of `timeouts.total` was left to be answered.
        Deadline = "deadline",
        /// The tool's `Retry-After` does not fit into `timeouts.total`.
        RetryAfter = "retry-after",
        /// The cause is not listed in `retry.on`.
        Cause = "cause",
        /// The receipt did not allow it (`retry.resend_on`).
        Receipt = "receipt",
        /// The route has no receipt endpoint to ask.
        NoReceipt = "no-receipt",
        /// The credential of the call was not kept.
        Credential = "credential-not-kept",
        /// An operator switched resends off.
        SwitchedOff = "switched-off",
        /// The caller left and the route says `cancel`.
        ClientGone = "client-gone",
        /// The tool's retry budget is spent.
        Budget = "budget",
        /// The client has as many resends under way as it may.
        ClientRetries = "client-retries",
        /// No place among the sends at once came free in time.
        Concurrency = "concurrency",
        /// Every address it could go to was left alone.
        Ejected = "ejected",
    }

    /// What prevented the same work from being done twice.
    AvoidedBy {
        /// The receipt said the work was done, instead of a resend.
        Receipt = "receipt",
        /// A repeat got the stored answer.
        Replay = "replay",
        /// A repeat waited for the running call.
        Join = "join",
        /// Another call id with the same idempotency key.
        Key = "key",
    }

    /// The open states of a dead letter.
    OpenState {
        /// Waits for its next round.
        Queued = "QUEUED",
        /// A worker holds its lease.
        Running = "RUNNING",
        /// Is being reversed.
        Reversing = "REVERSING",
        /// Waits for a human.
        Manual = "MANUAL",
    }

    /// What one round brought.
    Round {
        /// The receipt said SUCCESS.
        Settled = "settled",
        /// The receipt said FAILED.
        Failed = "failed",
        /// Nothing new: the next round is planned.
        Again = "again",
        /// The last round: a human is needed.
        Manual = "manual",
        /// The call was undone.
        Reversed = "reversed",
        /// The lease was lost to another worker; nothing was changed.
        LeaseLost = "lease_lost",
    }

    /// How one send of a reversal ended.
    UndoResult {
        /// The tool has undone the call.
        Reversed = "reversed",
        /// The tool refuses to.
        Refused = "refused",
        /// Nobody knows: it is sent again, and then a human decides.
        Unclear = "unclear",
    }

    /// Why an address of a tool was ejected.
    Ejected {
        /// So many failures in a row.
        Row = "row",
        /// The share of failures among the sends of late.
        Share = "share",
        /// The send that tried it again failed.
        Probe = "probe",
    }

    /// How an address of a tool stands.
    AddressState {
        /// It is used.
        In = "in",
        /// It is left alone.
        Out = "out",
        /// One send finds out whether it can be used again.
        Probing = "probing",
    }

    /// What contradicts the end a call already has.
    Difference {
        /// An answer says otherwise.
        Answer = "answer",
        /// A receipt says otherwise.
        Receipt = "receipt",
        /// A receipt carries a result that disagrees with its own state.
        Result = "result",
        /// A fact arrived after the reversal began.
        Reversal = "reversal",
    }

    /// How a try to deliver an alert ended.
    Alert {
        /// The receiver took it.
        Delivered = "delivered",
        /// It did not; the alert is tried again.
        Failed = "failed",
    }

    /// What the limits of a tool count at the moment.
    Limited {
        /// Sends that hold a place.
        Sends = "sends",
        /// Calls that wait for a place.
        Waiting = "waiting",
        /// Resends that hold their client's place.
        Resends = "resends",
    }

    /// Bounds that are reached in ordinary bad days.
    Bound {
        /// `limits.connections`.
        Connections = "connections",
        /// `limits.connections_per_address`.
        ConnectionsPerAddress = "address-connections",
        /// `upstream.late_max`: the oldest late exchange was reset.
        LateExchanges = "late-exchanges",
        /// An answer that nobody read had not ended in time: its exchange was closed.
        UnreadAnswers = "unread-answers",
        /// Connections of the admin listener: silent ones are closed, newcomers wait.
        AdminConnections = "admin-connections",
        /// HTTP/2 connections of one core to one tool: there was none for a send in time.
        UpstreamConnections = "upstream-connections",
        /// An HTTP/2 caller went past what one connection may do: it was cut off.
        Http2Abuse = "http2-abuse",
        /// `ledger.queue`: the call was refused as overloaded.
        LedgerQueue = "ledger-queue",
        /// `limits.calls`: a request was refused as overloaded.
        Calls = "calls",
        /// `limits.bodies`: a request was refused, or an answer not kept.
        Bodies = "bodies",
        /// `limits.async_calls`: a call was refused as overloaded.
        AsyncCalls = "async-calls",
        /// Callers who wait at a receipt: one was told at once.
        ReceiptWaits = "receipt-waits",
        /// The readers' queue of the ledger.
        LedgerReaders = "ledger-readers",
        /// `limits.rate` or `limits.client_rate`: the request was refused.
        Rate = "rate",
        /// `limits.client_concurrent`: the request was refused.
        ClientConcurrent = "client-concurrent",
        /// `upstream.concurrency`: the first send of a call found no place.
        Concurrency = "concurrency",
        /// `upstream.ejection`: a send was put off, since every address it may go to is left alone.
        Ejected = "ejected",
        /// `upstream.retry_budget.receipts`: a question was put off.
        ReceiptQueries = "receipt-queries",
        /// The sum of `compensation.workers`: dead letters that are due wait for a round to end.
        Rounds = "rounds",
        /// Bulk jobs at once: one more was refused.
        Jobs = "jobs",
        /// Rows of one bulk job: what matched beyond them was left out.
        JobRows = "job-rows",
        /// Items of one bulk job under way at once: it is slower than its rate.
        JobItems = "job-items",
        /// Rows a preview asks about: it took a sample.
        PreviewRows = "preview-rows",
        /// The time of a preview: it ended before every row of it was asked about.
        PreviewTime = "preview-time",
        /// Rows one look for alerts takes: the rest is taken by the next.
        AlertRows = "alert-rows",
        /// Questions of operators at once: one was refused.
        AdminRequests = "admin-requests",
        /// `body.max_kept_response`: an answer was passed on and not kept.
        KeptResponse = "kept-response",
    }

    /// How a load of the configuration ended.
    Reload {
        /// The new configuration is in use.
        Success = "success",
        /// The file is bad; the old configuration stays in use.
        Failure = "failure",
    }
}

/// A problem told to a caller: one of our codes, or what the HTTP parser refused by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A problem document of the gateway.
    Code(Code),
    /// A bare status from the HTTP parser.
    Malformed,
}

impl From<Code> for Refusal {
    fn from(code: Code) -> Self {
        Self::Code(code)
    }
}

impl From<Undo> for UndoResult {
    fn from(undo: Undo) -> Self {
        match undo {
            Undo::Done => Self::Reversed,
            Undo::Refused => Self::Refused,
            Undo::Unsendable | Undo::Unclear => Self::Unclear,
        }
    }
}

impl From<Outcome> for AttemptResult {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Answered(reading) if reading.status().is_server_error() => Self::ServerError,
            Outcome::Answered(_) => Self::Answered,
            Outcome::NotSent(
                NotSent::Connect | NotSent::Tls | NotSent::HandedBack | NotSent::Refused,
            ) => Self::NotSent,
            Outcome::Unclear(Unclear::Timeout) => Self::Timeout,
            Outcome::Unclear(Unclear::Disconnect) => Self::Disconnect,
        }
    }
}

impl Label for Refusal {
    fn all() -> Vec<Self> {
        let codes = Code::ALL.iter().copied().map(Self::Code);
        codes.chain([Self::Malformed]).collect()
    }
    fn index(self) -> usize {
        match self {
            Self::Code(code) => code as usize,
            Self::Malformed => Code::ALL.len(),
        }
    }
    fn word(self) -> &'static str {
        match self {
            Self::Code(code) => code.as_str(),
            Self::Malformed => "malformed",
        }
    }
}

/// Makes label values of enums whose `ALL` stands in the order of their variants.
macro_rules! label_by_all {
    ($($name:ident),*) => {
        $(impl Label for $name {
            fn all() -> Vec<Self> {
                Self::ALL.to_vec()
            }
            fn index(self) -> usize {
                self as usize
            }
            fn word(self) -> &'static str {
                self.as_str()
            }
        })*
    };
}

label_by_all!(Word, Cause, Reason);

impl Label for Answer {
    fn all() -> Vec<Self> {
        State::ALL
            .into_iter()
            .map(Self::State)
            .chain([Self::NotFound])
            .collect()
    }
    fn index(self) -> usize {
        match self {
            Self::State(state) => state as usize,
            Self::NotFound => State::ALL.len(),
        }
    }
    fn word(self) -> &'static str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;
    use crate::call::outcome::Reading;

    fn closed<L: Label>() {
        let all = L::all();
        for (at, label) in all.iter().enumerate() {
            let word = label.word();
            assert_eq!(label.index(), at, "{word} stands at the place it counts in");
            assert!(!word.is_empty());
            let begun = all.iter().filter(|l| l.word().starts_with(word)).count();
            assert_eq!(
                begun, 1,
                "{word} begins another word: two series could merge"
            );
        }
    }

    #[test]
    fn no_word_of_a_closed_set_begins_another() {
        closed::<Word>();
        closed::<AttemptResult>();
        closed::<Denied>();
        closed::<AvoidedBy>();
        closed::<Reason>();
        closed::<OpenState>();
        closed::<Round>();
        closed::<Difference>();
        closed::<Alert>();
        closed::<Bound>();
        closed::<Limited>();
        closed::<Reload>();
        closed::<Refusal>();
        closed::<Cause>();
        closed::<Answer>();
    }

    #[test]
    fn every_bound_is_told_to_operators() {
        let documented = include_str!("../../docs/operations.md");
        for bound in Bound::all() {
            let word = format!("`{}`", bound.word());
            assert!(
                documented.contains(&word),
                "{word} is not in docs/operations.md"
            );
        }
    }

    #[test]
    fn a_5xx_is_counted_apart_from_an_answer() {
        let read = |n| Outcome::Answered(Reading::by_status(StatusCode::from_u16(n).unwrap()));
        let table = [
            (read(200), AttemptResult::Answered),
            (read(404), AttemptResult::Answered),
            (read(503), AttemptResult::ServerError),
            (Outcome::NotSent(NotSent::Tls), AttemptResult::NotSent),
            (Outcome::Unclear(Unclear::Timeout), AttemptResult::Timeout),
            (
                Outcome::Unclear(Unclear::Disconnect),
                AttemptResult::Disconnect,
            ),
        ];
        for (outcome, expected) in table {
            assert_eq!(AttemptResult::from(outcome), expected, "{outcome:?}");
        }
    }
}
