//! What a caller is told: the one value every door renders, whatever path led to it.
//!
//! Deliberately absent: header names and JSON, which belong to `ingress/reply`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;

use super::limits::Exceeded;
pub use super::prefer::Prefer;
pub use crate::call::code::Word;
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::call::receipt::State;
use crate::upstream::Tunnel;
use crate::upstream::fields::Fields;

/// What went wrong while a body was on its way; the text is for the log.
pub type BodyError = Box<dyn std::error::Error + Send + Sync>;

/// A body that is still arriving.
pub type Stream = UnsyncBoxBody<Bytes, BodyError>;

/// What a caller is told about one call.
#[derive(Debug)]
pub struct Told {
    /// The call's id, when one is known (a refused id is not).
    pub call: Option<(CallId, IdSource)>,
    /// How the call ended, as far as anybody knows.
    pub word: Word,
    /// Sends so far.
    pub attempts: u32,
    /// The answer itself.
    pub shown: Shown,
    /// The id of the first call with the same idempotency key, when this answer is that call's.
    pub original: Option<CallId>,
    /// Adds `X-Call-Repeat: same-call-id-only`: a handed-through 5xx must not look repeatable
    /// under a new id.
    pub same_id_only: bool,
    /// The call's own ledger row exists, so `X-Call-Receipt` leads somewhere.
    pub recorded: bool,
}

/// The answer a caller gets.
#[derive(Debug)]
pub enum Shown {
    /// A collected or stored answer of the tool.
    Whole(Whole),
    /// An answer whose body is still arriving.
    Stream {
        /// Status of the answer.
        status: StatusCode,
        /// End-to-end fields of the answer.
        headers: HeaderMap,
        /// The body; an error in it must break the caller's connection visibly.
        body: Stream,
    },
    /// A problem document of the gateway.
    Problem(Problem),
    /// The call is on record and will be finished; its caller wished for no more than that.
    Accepted(Prefer),
    /// The tool switched to another protocol and handed its connection over.
    Tunnel(Box<Switched>),
}

/// A connection that was switched to another protocol (101).
#[derive(Debug)]
pub struct Switched {
    /// End-to-end fields of the 101.
    pub headers: HeaderMap,
    /// The protocol, as the caller named it.
    pub protocol: HeaderValue,
    /// The tool's end, until the door takes it.
    pub tunnel: Option<Tunnel>,
    /// How long it may be silent in both directions.
    pub idle: Duration,
}

impl Shown {
    /// The status the caller sees.
    #[must_use]
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::Whole(whole) => whole.status,
            Self::Stream { status, .. } => *status,
            Self::Problem(problem) => problem.status,
            Self::Accepted(_) => StatusCode::ACCEPTED,
            Self::Tunnel(_) => StatusCode::SWITCHING_PROTOCOLS,
        }
    }

    /// The fields of an answer of the tool.
    #[must_use]
    pub fn headers(&self) -> Option<&HeaderMap> {
        match self {
            Self::Whole(whole) => Some(&whole.headers),
            Self::Stream { headers, .. } => Some(headers),
            Self::Problem(_) | Self::Accepted(_) | Self::Tunnel(_) => None,
        }
    }

    /// The code of a problem.
    #[must_use]
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Whole(_) | Self::Stream { .. } | Self::Accepted(_) | Self::Tunnel(_) => None,
            Self::Problem(problem) => Some(problem.code),
        }
    }
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Whole {
    /// Status of the answer.
    pub status: StatusCode,
    /// End-to-end fields of the answer.
    pub headers: Fields,
    /// The body, byte for byte.
    pub body: Bytes,
}

/// A problem document (RFC 9457) before it is rendered.
#[derive(Clone, Debug)]
pub struct Problem {
    /// What went wrong.
    pub code: Code,
    /// The status told; the code's own unless the route configures another.
    pub status: StatusCode,
    /// One or two sentences, the last one with the next action.
    pub detail: String,
    /// Whether the tool was sent the call.
    pub sent: Sent,
    /// What a repeat would do.
    pub repeat: Repeat,
    /// The state of the call, when the ledger knows one.
    pub state: Option<State>,
    /// Seconds for `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The rate that is used up, for `RateLimit` and `RateLimit-Policy`.
    pub exceeded: Option<Exceeded>,
    /// Further members, such as the kept status and digest of `result-not-kept`.
    pub more: Vec<(&'static str, serde_json::Value)>,
}

impl Problem {
    /// A problem with the code's own status and nothing known about the call.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>, sent: Sent, repeat: Repeat) -> Self {
        Self {
            code,
            status: code.status(),
            detail: detail.into(),
            sent,
            repeat,
            state: None,
            retry_after: None,
            exceeded: None,
            more: Vec::new(),
        }
    }

    /// The tool's status, where its answer was too large to keep (`result-not-kept`).
    #[must_use]
    pub fn kept_status(&self) -> Option<StatusCode> {
        let (_, result) = self.more.iter().find(|(name, _)| *name == "result")?;
        let status = u16::try_from(result.get("status")?.as_u64()?).ok()?;
        StatusCode::from_u16(status).ok()
    }
}

impl Told {
    /// A refusal made before the ledger was asked: the same id may have been sent before, so a
    /// repeat is safe under the same id only.
    #[must_use]
    pub fn refused_unseen(
        call: Option<(CallId, IdSource)>,
        code: Code,
        detail: impl Into<String>,
    ) -> Self {
        Self::refused(
            call,
            Problem::new(code, detail, Sent::Unknown, Repeat::SameCallIdOnly),
        )
    }

    /// The same once more, for another caller; `None` when its body can be read only once.
    #[must_use]
    pub(super) fn copy(&self) -> Option<Self> {
        let shown = match &self.shown {
            Shown::Whole(whole) => Shown::Whole(whole.clone()),
            Shown::Problem(problem) => Shown::Problem(problem.clone()),
            Shown::Accepted(prefer) => Shown::Accepted(*prefer),
            Shown::Stream { .. } | Shown::Tunnel(_) => return None,
        };
        Some(Self {
            call: self.call.clone(),
            word: self.word,
            attempts: self.attempts,
            shown,
            original: self.original.clone(),
            same_id_only: self.same_id_only,
            recorded: self.recorded,
        })
    }

    /// A refusal by the gateway.
    #[must_use]
    pub const fn refused(call: Option<(CallId, IdSource)>, problem: Problem) -> Self {
        Self {
            call,
            word: Word::Refused,
            attempts: 0,
            shown: Shown::Problem(problem),
            original: None,
            same_id_only: false,
            recorded: false,
        }
    }
}
