//! Asking a tool what became of a call, and reading its answer without ever guessing.
//!
//! Whatever is not a well-formed answer for exactly this call id is [`RawAnswer::Unknown`] with a
//! reason. Whether a "not found" is believed is not decided here (`call::receipt::Belief`).
//! Deliberately absent: redirects, retries, caches.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::exchange::{Ended, Exchange, Mode, Outgoing, Terms};
use super::{Answer, Core, Destination, Payload, SetupError, headers};
use crate::call::id::{CallId, ClientName};
use crate::call::outcome::{NotSent, Unclear};
use crate::call::receipt::{Answer as Said, State};
use crate::call::time::Wall;
use crate::config::route::{ReceiptRule, Upstream, UpstreamKind};
use crate::config::template::Template;

pub(super) mod fill;
#[doc(hidden)]
pub mod fuzzing;
mod mapping;

/// Where and how a route's tool is asked. Its connections are its own: a receipt endpoint that
/// drips never holds one an attempt could use.
pub struct ReceiptEndpoint {
    destination: Arc<Destination>,
    base_path: Arc<str>,
    path: Template,
    method: Method,
    body: Option<Template>,
    body_is: fill::Form,
    headers: HeaderMap,
    tenant_header: Option<HeaderName>,
    mapping: mapping::Mapping,
    max_body: usize,
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The route's field for the call id.
    pub field: &'a HeaderName,
    /// The call asked about.
    pub call_id: &'a CallId,
    /// Whose call it is; told only where the tool's call ids are apart by client.
    pub client: &'a ClientName,
    /// Its idempotency key, for templates that name it.
    pub key: Option<&'a str>,
    /// The trace context.
    pub traceparent: Option<&'a HeaderValue>,
    /// The caller's credential fields, where the route forwards them.
    pub credentials: Option<&'a HeaderMap>,
    /// `timeouts.connect`.
    pub connect: Duration,
    /// `timeouts.receipt`: over everything.
    pub timeout: Duration,
}

/// What was learned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The word.
    pub answer: RawAnswer,
    /// The call's result, when the receipt carries a complete one.
    pub result: Option<Answer>,
    /// The receipt document itself, when it was a well-formed answer with a state.
    pub document: Option<Bytes>,
    /// Since when the endpoint would know the call (a callgate's `knowsSince`).
    pub knows_since: Option<Wall>,
    /// The state word nobody mapped, cut to `WORD_CHARS_MAX`: an operator has to see it.
    pub foreign: Option<Box<str>>,
    /// Another gateway answered, and it still works on the call.
    pub worked_on: bool,
}

/// State words are short; what is longer is something else and not worth a longer line.
const WORD_CHARS_MAX: usize = 48;

/// A receipt's word before it is weighed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawAnswer {
    /// A mapped state word for this call id (never [`State::Unknown`]: that is [`Why::Said`]).
    State(State),
    /// "Never heard of it".
    NotFound,
    /// No information.
    Unknown(Why),
}

/// Why an answer is no information; a word for logs and history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// The tool itself says that it does not know.
    Said,
    /// No complete answer within `timeouts.receipt`.
    Timeout,
    /// No connection.
    Unreachable,
    /// TLS failed.
    Tls,
    /// The connection broke, or the answer was no HTTP.
    Disconnect,
    /// The answer is longer than `receipt.max_body`.
    TooLarge,
    /// 3xx: never followed.
    Redirect,
    /// 401, 403 or 407.
    Denied,
    /// 429.
    RateLimited,
    /// 5xx.
    ServerError,
    /// Another status nobody mapped.
    Status,
    /// An empty body.
    Empty,
    /// A web page.
    Html,
    /// Not JSON, or only half of it.
    NotJson,
    /// A name that decides stands twice: readers disagree about which one counts.
    Doubled,
    /// Another call's receipt.
    OtherCall,
    /// No call id in the answer, though the question went by idempotency key.
    NoCallId,
    /// No state where one should stand.
    NoState,
    /// A state word nobody mapped.
    UnmappedState,
    /// A "not found" about something else than the call (a gateway's own 404).
    OtherNotFound,
    /// A "not found" that names this call and its state.
    Contradiction,
    /// The question could not be put: the route's template needs a key the call has not.
    NoQuestion,
}

impl Why {
    /// The word in logs and history.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Said => "said-unknown",
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Tls => "tls",
            Self::Disconnect => "disconnect",
            Self::TooLarge => "too-large",
            Self::Redirect => "redirect",
            Self::Denied => "denied",
            Self::RateLimited => "too-many-questions",
            Self::ServerError => "server-error",
            Self::Status => "unexpected-status",
            Self::Empty => "empty",
            Self::Html => "html",
            Self::NotJson => "not-json",
            Self::Doubled => "doubled-name",
            Self::OtherCall => "other-call-id",
            Self::NoCallId => "no-call-id",
            Self::NoState => "no-state",
            Self::UnmappedState => "unmapped-state",
            Self::OtherNotFound => "other-not-found",
            Self::Contradiction => "contradiction",
            Self::NoQuestion => "no-question",
        }
    }
}

impl RawAnswer {
    /// The answer as the machine takes it, "not found" still unweighed.
    #[must_use]
    pub const fn said(self) -> Said {
        match self {
            Self::State(state) => Said::State(state),
            Self::NotFound => Said::NotFound,
            Self::Unknown(_) => Said::State(State::Unknown),
        }
    }
}

impl Asked {
    /// An answer without any information.
    #[must_use]
    pub const fn unknown(why: Why) -> Self {
        let answer = RawAnswer::Unknown(why);
        Self {
            answer,
            result: None,
            document: None,
            knows_since: None,
            foreign: None,
            worked_on: false,
        }
    }

    /// Whether the endpoint is there and well, whatever it says.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        match self.answer {
            RawAnswer::State(_) | RawAnswer::NotFound => true,
            RawAnswer::Unknown(why) => !matches!(
                why,
                Why::Timeout | Why::Unreachable | Why::Tls | Why::Disconnect | Why::ServerError
            ),
        }
    }

    /// Whether it is a receipt, well-formed and for this call, whatever it says.
    #[must_use]
    pub const fn is_receipt(&self) -> bool {
        match self.answer {
            RawAnswer::State(_) | RawAnswer::NotFound => true,
            RawAnswer::Unknown(why) => matches!(why, Why::Said | Why::UnmappedState),
        }
    }

    /// A well-formed receipt with a state word nobody mapped.
    #[must_use]
    fn unmapped(word: &str) -> Self {
        Self {
            foreign: Some(word.chars().take(WORD_CHARS_MAX).collect()),
            ..Self::unknown(Why::UnmappedState)
        }
    }
}

impl ReceiptEndpoint {
    /// The endpoint of a route, with connections for `cores` cores.
    ///
    /// # Errors
    /// What can never work, as for [`super::Tool::new`], and a path that is none.
    pub fn new(
        upstream: &Upstream,
        rule: &ReceiptRule,
        cores: usize,
    ) -> Result<Arc<Self>, SetupError> {
        let (endpoint, pool) = match &rule.elsewhere {
            Some(elsewhere) => (elsewhere, upstream.pool.elsewhere(elsewhere)),
            None => (&upstream.endpoint, upstream.pool),
        };
        let over = (cores, upstream.resolve);
        let destination = Destination::new(endpoint, upstream.ca.as_ref(), pool, over)?;
        let made = Self {
            destination,
            base_path: match rule.at_root {
                true => Arc::from(""),
                false => Arc::clone(&endpoint.base_path),
            },
            path: rule.path.clone(),
            method: rule.method.clone(),
            body: rule.body.clone(),
            body_is: rule.body.as_ref().map_or(fill::Form::Json, fill::Form::of),
            headers: upstream.headers.clone(),
            tenant_header: upstream.tenant_header.clone(),
            mapping: mapping::Mapping::new(rule, upstream.kind == UpstreamKind::Callgate),
            max_body: rule.max_body,
        };
        // A path that is none for a plain id is none for any: say so at start.
        let sample = CallId::parse(b"sample").expect("a plain word is a call id");
        if let Some(path) = made.path(&sample, Some("sample")) {
            PathAndQuery::try_from(path.as_str())
                .map_err(|source| SetupError::Path { path, source })?;
        }
        Ok(Arc::new(made))
    }

    /// Where questions go.
    #[must_use]
    pub const fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    /// Asks once. Never fails: what goes wrong is an answer too.
    pub async fn ask(&self, core: &Core, question: &Question<'_>) -> Asked {
        let Some(outgoing) = self.outgoing(question) else {
            return Asked::unknown(Why::NoQuestion);
        };
        let terms = Terms {
            connect: question.connect.min(question.timeout),
            idle: question.timeout,
            max_kept: self.max_body,
            mode: Mode::Collect,
        };
        let began = core.clock.mono();
        let mut exchange = Exchange::new(core, &self.destination, outgoing, terms);
        let ended = tokio::select! {
            ended = &mut exchange => ended,
            () = core.wheel.sleep(question.timeout) => {
                self.destination.distrust(began);
                exchange.overdue();
                return Asked::unknown(Why::Timeout);
            }
        };
        match ended {
            Ended::Collected(answer) => self.mapping.read(question.call_id, answer),
            // Longer than may be read: dropped here, and its connection with it.
            Ended::Streaming(_) => Asked::unknown(Why::TooLarge),
            Ended::NotSent(NotSent::Tls) => Asked::unknown(Why::Tls),
            Ended::NotSent(NotSent::Connect | NotSent::HandedBack | NotSent::Refused) => {
                Asked::unknown(Why::Unreachable)
            }
            Ended::Unclear(Unclear::Timeout) => Asked::unknown(Why::Timeout),
            Ended::Unclear(Unclear::Disconnect) => Asked::unknown(Why::Disconnect),
        }
    }

    fn outgoing(&self, question: &Question<'_>) -> Option<Outgoing> {
        let path = self.path(question.call_id, question.key)?;
        let target = PathAndQuery::try_from(path).ok()?;
        let mut fields = HeaderMap::with_capacity(8);
        fields.insert(HOST, self.destination.host().clone());
        fields.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(trace) = question.traceparent {
            fields.insert(headers::TRACEPARENT, trace.clone());
        }
        if let Some(credentials) = question.credentials {
            headers::set_all(&mut fields, credentials);
        }
        let body = match &self.body {
            None => Bytes::new(),
            Some(template) => {
                fields.insert(CONTENT_TYPE, self.body_is.media_type());
                let form = self.body_is;
                Bytes::from(fill::fill(template, question.call_id, question.key, form)?)
            }
        };
        if !body.is_empty() {
            fields.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        headers::set_all(&mut fields, &self.headers);
        if let Some(tenant) = &self.tenant_header {
            fields.insert(tenant, headers::client_value(question.client));
        }
        fields.insert(question.field, headers::id_value(question.call_id));
        let method = self.method.clone();
        Some(Outgoing {
            method,
            target,
            headers: fields.into(),
            body: Payload::from(body),
        })
    }

    fn path(&self, id: &CallId, key: Option<&str>) -> Option<String> {
        let filled = fill::fill(&self.path, id, key, fill::Form::Url)?;
        let slash = if filled.starts_with('/') { "" } else { "/" };
        Some(format!("{}{slash}{filled}", self.base_path))
    }
}

impl fmt::Debug for ReceiptEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ReceiptEndpoint({} {:?}{})",
            self.method, self.destination, self.path
        )
    }
}

/// Whether a status says that the asker, not the call, is the trouble.
const fn status_trouble(status: StatusCode) -> Option<Why> {
    match status.as_u16() {
        200..=299 => None,
        300..=399 => Some(Why::Redirect),
        401 | 403 | 407 => Some(Why::Denied),
        429 => Some(Why::RateLimited),
        500..=599 => Some(Why::ServerError),
        _ => Some(Why::Status),
    }
}

#[cfg(test)]
mod tests;
