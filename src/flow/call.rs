//! One call on its way: what the driver needs besides the decisions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};

use super::routes::Route;
use super::told::{Problem, Shown, Told, Word};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::machine::Machine;
use crate::call::recovery::Recovery;
use crate::call::step::{Event, Step};
use crate::call::tally::Tally;
use crate::call::time::{Chance, Mono, Wall};
use crate::ledger::{Claim, Reply};
use crate::upstream::Answer;

/// A call that was claimed.
#[derive(Debug)]
pub struct Call {
    /// Its route, as it was when the call was admitted.
    pub route: Arc<Route>,
    /// Whose it is.
    pub client: ClientName,
    /// Its id.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// The right to write intentions for it.
    pub claim: Claim,
    /// What is sent.
    pub request: Sendable,
    /// When it was first sent.
    pub first_sent: Wall,
    /// Whether the route's tool is the one it was first sent to.
    pub same_address: bool,
    /// In line, or in a round.
    pub place: Place,
}

/// Where a call is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A caller waits.
    Line,
    /// The compensation worker holds its lease, in this round.
    Round(u32),
}

/// The request as it is sent, and sent again, byte for byte.
#[derive(Debug)]
pub struct Sendable {
    /// The method.
    pub method: Method,
    /// The tool's path and query.
    pub target: PathAndQuery,
    /// The caller's end-to-end fields. In a round: as stored, without credentials.
    pub headers: HeaderMap,
    /// What the gateway adds to every send, resolved once.
    pub stamp: Stamp,
    /// The body.
    pub body: Bytes,
    /// Whether it came with a credential.
    pub credential: bool,
}

/// What the gateway adds to every send of one call.
#[derive(Debug)]
pub struct Stamp {
    /// The host the caller asked for.
    pub host: Option<Arc<str>>,
    /// The caller's address and protocol version, while there is a caller.
    pub caller: Option<(std::net::SocketAddr, http::Version)>,
    /// The business key, when the call has one.
    pub idempotency_key: Option<HeaderValue>,
}

/// The machine that decides about a call.
#[derive(Debug)]
pub enum Decider {
    /// In line.
    Line(Machine),
    /// In a round.
    Round(Recovery),
}

/// The answers of a call so far, by attempt. The machine names them by number only.
#[derive(Debug, Default)]
pub struct Replies(Vec<(u8, Answer)>);

impl Decider {
    /// The next step.
    pub fn on(&mut self, event: Event, now: Mono, chance: Chance) -> Step {
        match self {
            Self::Line(machine) => machine.on(event, now, chance),
            Self::Round(recovery) => recovery.on(event, now, chance),
        }
    }

    /// What is known about the attempts.
    #[must_use]
    pub const fn tally(&self) -> &Tally {
        match self {
            Self::Line(machine) => machine.tally(),
            Self::Round(recovery) => recovery.tally(),
        }
    }

    /// How long the attempt that begins now may take.
    #[must_use]
    pub fn attempt_bound(&self, now: Mono) -> Duration {
        match self {
            Self::Line(machine) => machine.attempt_bound(now),
            Self::Round(recovery) => recovery.attempt_bound(),
        }
    }

    /// When `timeouts.total` passes; a round has no such bound.
    #[must_use]
    pub const fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Line(machine) => Some(machine.deadline()),
            Self::Round(_) => None,
        }
    }
}

impl Replies {
    /// Keeps the answer of attempt `n`.
    pub fn put(&mut self, n: u8, answer: Answer) {
        self.0.push((n, answer));
    }

    /// Takes the answer of attempt `n`.
    pub fn take(&mut self, n: u8) -> Option<Answer> {
        let at = self.0.iter().position(|(of, _)| *of == n)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl Call {
    /// What the caller is told about this call.
    #[must_use]
    pub fn told(&self, word: Word, attempts: u8, shown: Shown) -> Told {
        Told {
            call: Some((self.call_id.clone(), self.source)),
            word,
            attempts: u32::from(attempts),
            shown,
            same_id_only: false,
            recorded: true,
        }
    }

    /// A problem the caller is told about this call.
    #[must_use]
    pub fn problem(&self, word: Word, attempts: u8, problem: Problem) -> Told {
        self.told(word, attempts, Shown::Problem(problem))
    }

    /// An answer as the ledger keeps it.
    #[must_use]
    pub fn reply(&self, answer: &Answer) -> Reply {
        let max = self.route.conf.body.max_kept_response;
        super::record::reply(answer.status, &answer.headers, &answer.body, max)
    }
}
