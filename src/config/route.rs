//! One route, proven: which requests it takes, which tool they go to, and by which rules.
//!
//! The numbers a decision needs are in [`Policy`]; here is what carries it out: addresses, names
//! of header fields, templates, pointers. Deliberately absent: metric handles and pools, which
//! `flow` and `upstream` build from these values.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use http::{HeaderMap, Method, StatusCode};
use jiff::tz::TimeZone;

use super::alert::AlertRule;
use super::build::names;
use super::ejection::Ejection;
use super::key_template::KeyTemplate;
use super::limits::{Concurrency, RetryBudget, RouteLimits};
use super::matcher::Matcher;
use super::reversal::ReversalRule;
use super::template::{JsonPointer, Template};
use crate::call::policy::Policy;
use crate::call::receipt::State;

/// One entry of `routes`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The route's name; the same route over reloads, and a metric label.
    pub name: Arc<str>,
    /// Which requests it takes.
    pub matcher: Matcher,
    /// The tool.
    pub upstream: Upstream,
    /// Whether a call may have an effect.
    pub effects: Effects,
    /// Header fields never stored, besides the four every route protects.
    pub secret_headers: Vec<HeaderName>,
    /// How a call's id travels.
    pub call_id: CallIdRule,
    /// What the tool can be asked; `None` when it has no receipts.
    pub receipt: Option<ReceiptRule>,
    /// How the body of a 2xx is read; `None` when the status says it all.
    pub answer: Option<AnswerRule>,
    /// What a tool's own 202 means.
    pub accepted: Accepted,
    /// Bounds of the bodies.
    pub body: BodyLimits,
    /// Whether answers are collected before they are passed on.
    pub response: ResponseMode,
    /// The business key, and how long it and the call id bind.
    pub idempotency: Idempotency,
    /// How a call is undone; `None` when it never is.
    pub reversal: Option<ReversalRule>,
    /// Whether the tool's work can be undone at all (`compensation.reversible`).
    pub reversible: bool,
    /// What is let in.
    pub limits: RouteLimits,
    /// What happens to the same request under a new id.
    pub detect_new_ids: DetectNewIds,
    /// Names this route had before.
    pub formerly: Vec<Arc<str>>,
    /// Rounds of this route that may run at once (`compensation.workers`).
    pub compensation_workers: usize,
    /// Who is told when a human is needed; `None`: nobody.
    pub alert: Option<Arc<AlertRule>>,
    /// The numbers and choices one call lives by; each call keeps its own `Arc`.
    pub policy: Arc<Policy>,
}

/// The tool (`upstream`).
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// Scheme, host, port and path of `upstream.url`; of the first of `upstream.urls`.
    pub endpoint: Endpoint,
    /// The normalised text of that URL: what ledger rows keep and compare.
    pub address: Arc<str>,
    /// The other addresses of the same tool: the rest of `upstream.urls`.
    pub others: Vec<Address>,
    /// Whether every address knows what any of them was sent.
    pub shared_state: bool,
    /// How often host names are looked up again.
    pub resolve: Duration,
    /// When an address that fails is left alone; `None`: never.
    pub ejection: Option<Ejection>,
    /// Removed from the request's path first; begins with `/` and does not end with one.
    pub strip_prefix: Option<Arc<str>>,
    /// The `Host` sent.
    pub host: HostMode,
    /// Set on every send and receipt query, never stored; the values are marked sensitive.
    pub headers: HeaderMap,
    /// PEM certificates trusted besides the system's roots.
    pub ca: Option<CaFile>,
    /// What answers there.
    pub kind: UpstreamKind,
    /// Idle connections.
    pub pool: PoolConfig,
    /// Exchanges kept open past their attempt timeout.
    pub late_max: usize,
    /// The field that tells the tool who calls. `None`: the tool sees one name space of call ids.
    pub tenant_header: Option<HeaderName>,
    /// Sends at once; `None`: unbounded.
    pub concurrency: Option<Concurrency>,
    /// What may be sent again; `None`: what each call's policy allows.
    pub retry_budget: Option<RetryBudget>,
    /// Addresses this tool had before, normalised.
    pub formerly: Vec<Arc<str>>,
}

/// One address of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its scheme, host, port and path.
    pub endpoint: Endpoint,
    /// Its normalised text.
    pub text: Arc<str>,
}

impl Upstream {
    /// The texts of all its addresses, in the order of the file.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        let others = self.others.iter().map(|other| &other.text);
        std::iter::once(&self.address).chain(others)
    }

    /// What several addresses share: one upstream for each of them, in the order of the file.
    pub fn each(&self) -> impl Iterator<Item = Self> {
        let alone = Self {
            others: Vec::new(),
            ..self.clone()
        };
        let others = self.others.iter().map({
            let alone = alone.clone();
            move |other| Self {
                endpoint: other.endpoint.clone(),
                address: Arc::clone(&other.text),
                ..alone.clone()
            }
        });
        std::iter::once(alone.clone()).chain(others)
    }

    /// The same tool as it was reached at an address that is none of these.
    #[must_use]
    pub fn at(&self, endpoint: Endpoint) -> Self {
        Self {
            address: Arc::from(endpoint.address()),
            endpoint,
            others: Vec::new(),
            shared_state: false,
            ejection: None,
            formerly: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether both are reached the same way: connections to one serve the other.
    #[must_use]
    pub fn is_reached_as(&self, other: &Self) -> bool {
        self.endpoint.authority == other.endpoint.authority
            && self.endpoint.https == other.endpoint.https
            && self.ca == other.ca
            && self.pool == other.pool
            && self.resolve == other.resolve
    }
}

/// Where requests go: the parts of an `http` or `https` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whether TLS is spoken.
    pub https: bool,
    /// The host: a name or an IP address, without brackets.
    pub host: Arc<str>,
    /// The port, the scheme's own when none was written.
    pub port: u16,
    /// `host` or `host:port` as a `Host` field says it (brackets, no default port).
    pub authority: Arc<str>,
    /// The URL's path without a trailing slash; empty for the root.
    pub base_path: Arc<str>,
}

impl Endpoint {
    /// The endpoint that a ledger row names; `None` when that is no address.
    #[must_use]
    pub fn of_address(address: &str) -> Option<Self> {
        names::endpoint(address).ok()
    }

    /// The URL in its one normal form: what ledger rows keep and compare.
    #[must_use]
    pub fn address(&self) -> String {
        let scheme = if self.https { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority, self.base_path)
    }
}

/// A file of PEM certificates, read when the configuration was.
#[derive(Clone, PartialEq, Eq)]
pub struct CaFile {
    /// Where it was read from.
    pub path: PathBuf,
    /// Its bytes.
    pub pem: Arc<[u8]>,
}

/// The `Host` sent (`upstream.host`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostMode {
    /// The url's.
    Tool,
    /// The caller's.
    Keep,
}

/// What answers there (`upstream.kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamKind {
    /// A tool.
    Tool,
    /// Another callgate, whose `X-Call-Outcome` is read before the status.
    Callgate,
}

/// How connections are made and kept (`upstream.pool`, `upstream.protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// How long one is kept.
    pub idle: Duration,
    /// How many, per core.
    pub max_idle: usize,
    /// What is spoken on them.
    pub protocol: Protocol,
}

impl PoolConfig {
    /// The same for another server than the tool's, whose protocol nobody has named.
    #[must_use]
    pub fn elsewhere(self, endpoint: &Endpoint) -> Self {
        let protocol = match self.protocol {
            Protocol::Http2 | Protocol::Auto if endpoint.https => Protocol::Auto,
            Protocol::Http1 | Protocol::Http2 | Protocol::Auto => Protocol::Http1,
        };
        Self { protocol, ..self }
    }
}

/// What is spoken with a tool (`upstream.protocol`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2: by TLS's agreement (ALPN), without TLS by prior knowledge.
    Http2,
    /// What TLS agrees on, HTTP/2 first; HTTP/1.1 without TLS.
    Auto,
}

/// Whether a call may have an effect (`effects`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effects {
    /// `once`, for every method.
    Once,
    /// `none`, for every method.
    None,
    /// Not set: `none` for GET, HEAD, OPTIONS and TRACE, else `once`.
    ByMethod,
}

impl Effects {
    /// Whether a request with this method is recorded and settled.
    #[must_use]
    pub fn is_once(self, method: &Method) -> bool {
        match self {
            Self::Once => true,
            Self::None => false,
            Self::ByMethod => !matches!(
                *method,
                Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE
            ),
        }
    }
}

/// How a call's id travels (`call_id`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallIdRule {
    /// The header field, to and from the caller and to the tool.
    pub header: HeaderName,
    /// The first part of ids made here; the route's name when not set.
    pub prefix: Arc<str>,
    /// Where a JSON body may carry it.
    pub body: Option<JsonPointer>,
}

/// How the tool is asked what became of a call (`receipt`).
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiptRule {
    /// Another place than the upstream's; `None`: `path` is appended to the upstream's path.
    pub elsewhere: Option<Endpoint>,
    /// `path` begins at the root of the upstream's address, not below its path.
    pub at_root: bool,
    /// Path and query; values are percent-encoded when filled in.
    pub path: Template,
    /// GET, or POST with a body.
    pub method: Method,
    /// The body of a POST; values are JSON-escaped when filled in.
    pub body: Option<Template>,
    /// Where the state word stands in the answer.
    pub state: JsonPointer,
    /// Where the call id stands; if present it must be equal.
    pub call_id: JsonPointer,
    /// The tool's words in ours.
    pub states: Words,
    /// Statuses that mean "never heard of it".
    pub not_found: Vec<StatusCode>,
    /// Where the carried result stands.
    pub result: ResultPointers,
    /// The longest answer read, in bytes.
    pub max_body: usize,
    /// Whether a question in line carries the caller's credential.
    pub credentials: Credentials,
}

/// Where a receipt carries the call's result (`receipt.result`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultPointers {
    /// The status, a number.
    pub status: JsonPointer,
    /// The header fields, an object.
    pub headers: JsonPointer,
    /// The body, text.
    pub body: JsonPointer,
    /// `utf8` or `base64`.
    pub encoding: JsonPointer,
}

/// Whether a question in line carries the caller's credential (`receipt.credentials`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// It does.
    Forward,
    /// It carries `upstream.headers` only.
    None,
}

/// How the body of a 2xx is read (`answer`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerRule {
    /// Where the state word stands.
    pub state: JsonPointer,
    /// The tool's words in ours; a word nobody mapped is unclear.
    pub states: Words,
}

/// A tool's state words in ours (`states`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words(Vec<(Box<str>, State)>);

impl Words {
    /// The words of the gateway's own receipts: each state by its own name.
    #[must_use]
    pub fn own() -> Self {
        Self(
            State::ALL
                .map(|state| (Box::from(state.as_str()), state))
                .to_vec(),
        )
    }

    /// Takes pairs; of two equal words the first counts (the reader refuses them).
    #[must_use]
    pub fn new(pairs: Vec<(Box<str>, State)>) -> Self {
        Self(pairs)
    }

    /// The state a tool's word stands for; `None` when nobody mapped it.
    #[must_use]
    pub fn state(&self, word: &str) -> Option<State> {
        // A handful of words: a scan beats hashing.
        self.0
            .iter()
            .find(|(known, _)| **known == *word)
            .map(|(_, state)| *state)
    }

    /// Every word with its state, in the order of the states.
    pub fn iter(&self) -> impl Iterator<Item = (&str, State)> {
        self.0.iter().map(|(word, state)| (&**word, *state))
    }
}

/// What a tool's own 202 means (`accepted`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// An answer like any other 2xx.
    Final,
    /// The call is `PROCESSING`; its receipt will tell.
    Pending,
}

/// Bounds of the bodies, in bytes (`body`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// The longest request taken.
    pub max_request: usize,
    /// The longest answer collected and kept.
    pub max_kept_response: usize,
}

/// Whether answers are collected before they are passed on (`response`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMode {
    /// Streamed when long or an event stream, else collected.
    Auto,
    /// Always streamed from the head.
    Stream,
    /// Always collected, up to `body.max_kept_response`.
    Collect,
}

/// What happens to the same request under a new, gateway-made id while the first call is open
/// (`detect_new_ids`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DetectNewIds {
    /// It is sent; a warning and a counter tell of it.
    #[default]
    Warn,
    /// It is refused.
    Block,
}

/// How a derived key is hashed (`idempotency.hash`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyHash {
    /// SHA-256 in hexadecimal.
    Sha256,
    /// MD5 in hexadecimal: for tools whose keys are made that way elsewhere too.
    Md5,
    /// Not at all.
    Plain,
}

/// The business key, and how long it and the call id bind (`idempotency`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The header field with the client's key.
    pub header: HeaderName,
    /// How a key is derived from a request that brings none.
    pub key: Option<KeyTemplate>,
    /// The time zone of the windows in a derived key.
    pub time_zone: TimeZone,
    /// How a derived key is hashed.
    pub hash: KeyHash,
    /// Whether a call without a key is refused.
    pub required: bool,
    /// The field of the requests to the tool; `header` unless another one is named.
    pub send_header: Option<HeaderName>,
    /// Where the key goes in a JSON body.
    pub send_body: Option<JsonPointer>,
    /// How long ids and keys bind after their call was settled.
    pub window: Duration,
    /// What keys belong to besides their client; the route's name unless another one is named.
    pub scope: Option<Arc<str>>,
    /// Places in a JSON body that do not make another request.
    pub exclude: Vec<JsonPointer>,
}

impl Idempotency {
    /// The header field that carries the key to the tool.
    #[must_use]
    pub fn sent_in(&self) -> &HeaderName {
        self.send_header.as_ref().unwrap_or(&self.header)
    }
}

impl std::fmt::Debug for CaFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CaFile({}, {} bytes)",
            self.path.display(),
            self.pem.len()
        )
    }
}
