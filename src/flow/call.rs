//! One call on its way: what the driver needs besides the decisions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};

use super::record;
use super::routes::Route;
use super::sites::{Choice, Site};
use super::told::{Problem, Shown, Told, Word};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::machine::Machine;
use crate::call::outcome::Cause;
use crate::call::recovery::Recovery;
use crate::call::step::{Event, Step};
use crate::call::tally::Tally;
use crate::call::time::{Chance, Mono, Wall};
use crate::ledger::{Claim, Reply, StoredUndo};
use crate::upstream::addresses::Reach;
use crate::upstream::headers::{self, Length, Mark};
use crate::upstream::{Answer, Mode, Outgoing, Payload, Terms};

/// A call that was claimed.
#[derive(Debug)]
pub(super) struct Call {
    /// Its route, as it was when the call was admitted.
    pub(super) route: Arc<Route>,
    /// Whose it is.
    pub(super) client: ClientName,
    /// Its id.
    pub(super) call_id: CallId,
    /// Who made the id.
    pub(super) source: IdSource,
    /// The right to write intentions for it.
    pub(super) claim: Claim,
    /// What is sent.
    pub(super) request: Sendable,
    /// When it was first sent.
    pub(super) first_sent: Wall,
    /// Whether the route's tool is the one it was first sent to.
    pub(super) same_address: bool,
    /// The tool has shown that it knows the call: no "not found" about it is believed any more.
    pub(super) recognised: bool,
    /// A part of its streamed answer may have reached the caller.
    pub(super) was_told: bool,
    /// Its row names a former address, and its next send another one.
    pub(super) moves: bool,
    /// The address it belongs to: the one it was first sent to.
    pub(super) site: usize,
    /// The address of its last send.
    pub(super) via: usize,
    /// Where its first send goes, which was chosen before the call was recorded; with
    /// [`Choice::Out`] no send is on record. `None` from then on, and in rounds.
    pub(super) first: Option<Choice>,
    /// In line, or in a round.
    pub(super) place: Place,
    /// Whether a caller is there who reads an answer while it arrives; else it is collected.
    pub(super) is_read: bool,
    /// Its undo request, once that was sent.
    pub(super) undo: Option<StoredUndo>,
}

/// Where a call is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A caller waits.
    Line,
    /// The compensation worker holds its lease, in this round.
    Round(u32),
    /// The same, to go on with a reversal; so many rounds were done.
    Undo(u32),
    /// A dead letter that a caller asks for again.
    Repeat(Hold),
    /// A call that an operator has taken up.
    Order(Hold),
}

/// Whether a pass holds the lease of the dead letter it asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// It does, and gives it back; so many rounds were done.
    Leased(u32),
    /// It only asks: a human, or somebody else, holds the call.
    Nothing,
}

/// The request as it is sent, and sent again, byte for byte.
#[derive(Debug)]
pub(super) struct Sendable {
    /// The method.
    pub(super) method: Method,
    /// The tool's path and query.
    pub(super) target: PathAndQuery,
    /// The caller's end-to-end fields. In a round: as stored, without credentials.
    pub(super) headers: HeaderMap,
    /// The business key, when the call has one.
    pub(super) idempotency_key: Option<HeaderValue>,
    /// The body.
    pub(super) body: Bytes,
    /// Whether it came with a credential.
    pub(super) credential: bool,
}

/// The machine that decides about a call.
#[derive(Debug)]
pub(super) enum Decider {
    /// In line.
    Line(Machine),
    /// In a round, or for a repeat of a dead letter.
    Round(Recovery),
}

/// The answers of a call so far, by attempt. The machine names them by number only.
#[derive(Debug, Default)]
pub(super) struct Replies(Vec<(u8, Said)>);

/// An answer, or what is left of one whose body has passed.
#[derive(Debug)]
pub(super) enum Said {
    /// All of it.
    Answer(Answer),
    /// As the ledger keeps it; its body was streamed.
    Kept(Reply),
}

impl Decider {
    /// The next step.
    pub(super) fn on(&mut self, event: Event, now: Mono, chance: Chance) -> Step {
        match self {
            Self::Line(machine) => machine.on(event, now, chance),
            Self::Round(recovery) => recovery.on(event, now, chance),
        }
    }

    /// Notes whether a gateway further in still works on the call.
    pub(super) const fn worked_on(&mut self, worked_on: bool) {
        match self {
            // In line a caller waits, and `timeouts.total` ends that in any case.
            Self::Line(_) => {}
            Self::Round(recovery) => recovery.worked_on(worked_on),
        }
    }

    /// What is known about the attempts.
    #[must_use]
    pub(super) const fn tally(&self) -> &Tally {
        match self {
            Self::Line(machine) => machine.tally(),
            Self::Round(recovery) => recovery.tally(),
        }
    }

    /// How long the attempt that begins now may take.
    #[must_use]
    pub(super) fn attempt_bound(&self, now: Mono) -> Duration {
        match self {
            Self::Line(machine) => machine.attempt_bound(now),
            Self::Round(recovery) => recovery.attempt_bound(now),
        }
    }

    /// How much longer an answer may take that began to arrive `took` after its request, and that
    /// nobody reads yet: what is left for the call in line, of the attempt in a pass.
    #[must_use]
    pub(super) fn left_of_answer(&self, now: Mono, took: Duration) -> Duration {
        match self {
            Self::Line(machine) => machine.deadline().since(now),
            Self::Round(recovery) => recovery.answer_bound(now, took),
        }
    }

    /// Whether a send that begins now can still be answered in line.
    #[must_use]
    pub(super) fn has_room(&self, now: Mono) -> bool {
        match self {
            Self::Line(machine) => machine.has_room(now),
            Self::Round(_) => true,
        }
    }

    /// When the caller has waited long enough; a round has no such bound.
    #[must_use]
    pub(super) const fn deadline(&self) -> Option<Mono> {
        match self {
            Self::Line(machine) => Some(machine.deadline()),
            Self::Round(recovery) => recovery.deadline(),
        }
    }
}

impl Replies {
    /// Keeps the answer of attempt `n`.
    pub(super) fn put(&mut self, n: u8, said: Said) {
        self.0.push((n, said));
    }

    /// The answer of attempt `n`.
    #[must_use]
    pub(super) fn get(&self, n: u8) -> Option<&Said> {
        self.0.iter().find(|(of, _)| *of == n).map(|(_, said)| said)
    }

    /// Takes the answer of attempt `n`.
    pub(super) fn take(&mut self, n: u8) -> Option<Said> {
        let at = self.0.iter().position(|(of, _)| *of == n)?;
        Some(self.0.swap_remove(at).1)
    }
}

impl Call {
    /// What the caller is told about this call.
    #[must_use]
    pub(super) fn told(&self, word: Word, attempts: u8, shown: Shown) -> Told {
        Told {
            call: Some((self.call_id.clone(), self.source)),
            word,
            attempts: u32::from(attempts),
            shown,
            same_id_only: false,
            original: None,
            recorded: true,
        }
    }

    /// A problem the caller is told about this call.
    #[must_use]
    pub(super) fn problem(&self, word: Word, attempts: u8, problem: Problem) -> Told {
        self.told(word, attempts, Shown::Problem(problem))
    }

    /// An answer as the ledger keeps it.
    #[must_use]
    pub(super) fn reply(&self, said: &Said) -> Reply {
        match said {
            Said::Answer(answer) => self.reply_of(answer),
            Said::Kept(reply) => reply.clone(),
        }
    }

    /// A collected answer as the ledger keeps it.
    #[must_use]
    pub(super) fn reply_of(&self, answer: &Answer) -> Reply {
        let max = self.route.conf.body.max_kept_response;
        record::reply(answer.status, &answer.headers, &answer.body, max)
    }

    /// Whether `upstream.headers` brings a credential of its own, in place of the caller's.
    #[must_use]
    pub(super) fn supplies_credential(&self) -> bool {
        let secret = &self.route.conf.secret_headers;
        record::credentials(self.route.tool.headers(), secret)
            .next()
            .is_some()
    }

    /// The address it belongs to.
    #[must_use]
    pub(super) fn home(&self) -> &Site {
        &self.route.sites[self.site]
    }

    /// Where it may be sent now. A call that undoes another one goes where that one is known.
    #[must_use]
    pub(super) fn reach(&self, tally: &Tally) -> Reach {
        let undoes = self.request.headers.contains_key(headers::X_CALL_REVERSES);
        let moves = tally.may_move() && !undoes;
        if moves || self.route.conf.upstream.shared_state {
            let again = tally.sends() > 1;
            Reach::Any {
                avoid: again.then_some(self.via),
            }
        } else {
            Reach::Only(self.site)
        }
    }

    /// How its exchanges are run.
    #[must_use]
    pub(super) fn terms(&self) -> Terms {
        let route = &self.route.conf;
        Terms {
            connect: route.policy.timeouts.connect,
            idle: route.policy.timeouts.idle,
            max_kept: route.body.max_kept_response,
            mode: match self.is_read {
                true => Mode::from(route.response),
                false => Mode::Collect,
            },
        }
    }

    /// The request of attempt `n`.
    #[must_use]
    pub(super) fn outgoing(&mut self, n: u8, cause: Option<Cause>) -> Outgoing {
        // The copy stays behind for a resend: what is sent has room for what is stamped on it.
        let copy = self.request.headers.clone();
        let mut fields = std::mem::replace(&mut self.request.headers, copy);
        let conf = &self.route.conf;
        let mark = Mark {
            field: &conf.call_id.header,
            call_id: &self.call_id,
            client: &self.client,
            source: self.source,
            attempt: u32::from(n),
            cause,
            key: self
                .request
                .idempotency_key
                .as_ref()
                .map(|key| (conf.idempotency.sent_in(), key)),
            traceparent: None,
        };
        let method = self.request.method.clone();
        let length = Length::Known(self.request.body.len() as u64);
        let tool = &self.route.sites[self.via].tool;
        headers::stamp(&mut fields, &mark, tool, &method, length);
        Outgoing {
            method,
            target: self.request.target.clone(),
            headers: fields.into(),
            body: Payload::from(self.request.body.clone()),
        }
    }
}
