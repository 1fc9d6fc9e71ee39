//! What callers are told: the outcome word, error codes, what was sent, what a repeat would do.
//!
//! Every code has a heading in `docs/errors.md`; `tests/tidy.rs` checks both directions.

use http::StatusCode;

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal, $status:literal;)*) => {
        /// A code of a problem document the gateway makes (RFC 9457 member `code`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word in the problem document and in `callgate_refused_total{code}`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The status the code is told with. `unresolved` may be configured to another.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                let number: u16 = match self { $(Self::$name => $status,)* };
                match StatusCode::from_u16(number) {
                    Ok(status) => status,
                    Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
                }
            }
        }
    };
}

codes! {
    /// No route matches the request.
    NoRoute = "no-route", 404;
    /// This ledger knows no such call of this client.
    ReceiptNotFound = "receipt-not-found", 404;
    /// The call id breaks the rules of the header.
    InvalidCallId = "invalid-call-id", 400;
    /// The request cannot be used as it is.
    BadRequest = "bad-request", 400;
    /// The route demands an idempotency key.
    IdempotencyKeyRequired = "idempotency-key-required", 400;
    /// No valid client key.
    Unauthorized = "unauthorized", 401;
    /// The request did not arrive in time.
    RequestTimeout = "request-timeout", 408;
    /// The call is running.
    InProgress = "in-progress", 409;
    /// The call is settled, but its answer was not kept.
    ResultNotKept = "result-not-kept", 409;
    /// The call was or is being reversed.
    Reversed = "reversed", 409;
    /// The same request is running under another, gateway-made id.
    NewIdForRunningCall = "new-id-for-running-call", 409;
    /// An operator's verb does not fit the state of the call.
    OrderRefused = "order-refused", 409;
    /// The request body is over the limit.
    BodyTooLarge = "body-too-large", 413;
    /// The call id belongs to another request.
    CallIdReused = "call-id-reused", 422;
    /// The idempotency key belongs to another request.
    IdempotencyKeyReused = "idempotency-key-reused", 422;
    /// A rate limit was reached.
    RateLimited = "rate-limited", 429;
    /// The request headers are over the limit.
    HeadersTooLarge = "headers-too-large", 431;
    /// A fault of the gateway itself.
    Internal = "internal", 500;
    /// Upgrades are not supported.
    UpgradeRefused = "upgrade-refused", 501;
    /// The tool's receipt says FAILED and carries no answer.
    ToolReportedFailure = "tool-reported-failure", 502;
    /// An operator resolved the call as failed.
    ResolvedAsFailed = "resolved-as-failed", 502;
    /// Nothing could be sent to the tool.
    ToolUnreachable = "tool-unreachable", 502;
    /// The tool closed the connection (`effects: none`).
    ToolDisconnected = "tool-disconnected", 502;
    /// The gateway has more work than it may take.
    Overloaded = "overloaded", 503;
    /// The gateway is shutting down.
    Draining = "draining", 503;
    /// The durable record could not be written; nothing was sent.
    LedgerUnavailable = "ledger-unavailable", 503;
    /// Nobody knows yet what became of the call.
    Unresolved = "unresolved", 504;
    /// The tool did not answer in time (`effects: none`).
    ToolTimeout = "tool-timeout", 504;
    /// The request has been through this gateway before.
    LoopDetected = "loop-detected", 508;
}

/// The value of `X-Call-Outcome`, and the label of `callgate_calls_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The tool answered, late or not.
    Answered,
    /// Settled by a receipt.
    Receipt,
    /// A stored result.
    Replayed,
    /// Nobody knows yet, or the call is queued.
    Unresolved,
    /// Refused by the gateway: nothing sent and nothing queued.
    Refused,
}

impl Word {
    /// Every word, in the order of the documentation.
    pub const ALL: [Self; 5] = [
        Self::Answered,
        Self::Receipt,
        Self::Replayed,
        Self::Unresolved,
        Self::Refused,
    ];

    /// The word on the wire and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Receipt => "receipt",
            Self::Replayed => "replayed",
            Self::Unresolved => "unresolved",
            Self::Refused => "refused",
        }
    }
}

/// Whether the tool was sent the call (member `sent`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It was not.
    No,
    /// It may have arrived.
    Maybe,
    /// The tool answered.
    Yes,
    /// The ledger was not asked; the same id may have been sent before.
    Unknown,
}

impl Sent {
    /// The word in the problem document.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::No => "no",
            Self::Maybe => "maybe",
            Self::Yes => "yes",
            Self::Unknown => "unknown",
        }
    }
}

/// What the caller may do next (member `repeat`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// A repeat cannot double anything, under whatever id.
    Safe,
    /// Only under the same call id.
    SameCallIdOnly,
    /// A repeat changes nothing, or is refused.
    Never,
}

impl Repeat {
    /// The word in the problem document.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::SameCallIdOnly => "same-call-id-only",
            Self::Never => "never",
        }
    }
}
