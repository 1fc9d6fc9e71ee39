//! Every key of the file, in one table: name, kind of value, meaning.
//!
//! The strict reader, the suggestions for misspelt keys and the JSON Schema are all read off this
//! table, so none of them can know a key the others do not. Deliberately absent: default values,
//! which are code (`defaults`), and rules between keys, which are checks (`build`).

use crate::call::outcome::Cause;
use crate::call::policy::{
    BelieveNotFound, MAX_RETRIES_MAX, OnClientGone, OnFailed, Records, UnresolvedAnswer,
};
use crate::config::resolved::{LogFormat, LogLevel, Sync};
use crate::config::route::{Accepted, Credentials, HostMode, KeyHash, ResponseMode, UpstreamKind};
use crate::config::words::Word;

/// One key of a section.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value must be.
    pub kind: Kind,
    /// Whether it must be there.
    pub must: bool,
    /// What it means, in one sentence.
    pub doc: &'static str,
}

/// What a value must be.
#[derive(Debug)]
pub enum Kind {
    /// Text, described for the operator.
    Text(&'static str),
    /// Text that is never shown.
    Secret(&'static str),
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Whole {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// A number.
    Number {
        /// The least.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// A duration with its unit.
    Duration {
        /// Whether zero makes sense.
        zero: bool,
    },
    /// A size with its unit, in bytes.
    Size {
        /// The least.
        min: u64,
        /// The greatest.
        max: u64,
    },
    /// One of these numbers.
    OneOf(&'static [u64]),
    /// A list.
    List {
        /// What each element must be.
        of: &'static Self,
        /// The fewest elements.
        min: usize,
        /// The most elements.
        max: usize,
    },
    /// A map with names of the operator's own.
    Named(&'static Self),
    /// A map with these keys.
    Section(&'static [Key]),
    /// The same, but its presence alone means something, so it must be written as a map.
    Presence(&'static [Key]),
    /// A key of the contract that this version does not carry out yet: refused when set.
    Later,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The most elements of a list of names.
const NAMES_MAX: usize = 64;
/// The most clients. A request's key is compared with every one of theirs.
const CLIENTS_MAX: usize = 256;
/// The most routes; a hundred times what a gateway of one team has.
const ROUTES_MAX: usize = 1_000;

const LONGER_THAN_ZERO: Kind = Kind::Duration { zero: false };
const MAYBE_ZERO: Kind = Kind::Duration { zero: true };
const SOCKET: Kind = Kind::Text("an address and port, such as 127.0.0.1:8080");
const HEADER: Kind = Kind::Text("the name of a header field");
const POINTER: Kind = Kind::Text("a JSON pointer, such as /state");
const HEADERS: Kind = Kind::List {
    of: &HEADER,
    min: 0,
    max: NAMES_MAX,
};
const WORDS: Kind = Kind::List {
    of: &Kind::Text("a state word of the tool"),
    min: 0,
    max: NAMES_MAX,
};

macro_rules! keys {
    ($(
        $(#[$about:meta])* $vis:vis $section:ident {
            $($(#[doc = $doc:literal])+ $name:ident: $kind:expr $(, $must:ident)?;)+
        }
    )+) => {$(
        $(#[$about])*
        $vis const $section: &[Key] = &[$(Key {
            name: stringify!($name),
            kind: $kind,
            must: must!($($must)?),
            doc: concat!($($doc),+),
        }),+];
    )+};
}

macro_rules! must {
    () => {
        false
    };
    (must) => {
        true
    };
}

keys! {
    /// The top of the file.
    pub ROOT {
        /// This gateway's name, the last part of the call ids it makes; the host name when not set.
        node: Kind::Text("a name of 1 to 48 letters, digits, `.`, `_` and `-`");
        /// What is logged and how.
        log: Kind::Section(LOG);
        /// Cores that serve calls; 0 = all.
        workers: Kind::Whole { min: 0, max: 1_024 };
        /// Where callers connect.
        listen: SOCKET;
        /// Bounds of one caller's connection.
        limits: Kind::Section(LIMITS);
        /// The operator's listener.
        admin: Kind::Section(ADMIN);
        /// Where calls are recorded before they are sent.
        ledger: Kind::Section(LEDGER);
        /// How the process leaves.
        drain: Kind::Section(DRAIN);
        /// The callers and their keys; with none listed every caller is `anonymous`.
        clients: Kind::List { of: &Kind::Section(CLIENT), min: 0, max: CLIENTS_MAX };
        /// What every route inherits, key by key.
        defaults: Kind::Section(DEFAULTS);
        /// The routes; the first that matches takes the request.
        routes: Kind::List { of: &Kind::Section(ROUTE), min: 1, max: ROUTES_MAX }, must;
    }
    LOG {
        /// The least important line still written.
        level: Kind::Word(LogLevel::NAMES);
        /// auto: text on a terminal, else json.
        format: Kind::Word(LogFormat::NAMES);
    }
    LIMITS {
        /// Open connections of callers.
        connections: Kind::Whole { min: 1, max: 1_000_000 };
        /// Header fields of one request.
        headers: Kind::Whole { min: 1, max: 1_000 };
        /// Bytes of one request's head.
        // The HTTP parser's smallest buffer is 8 KiB.
        header_bytes: Kind::Size { min: 8 * KIB, max: MIB };
        /// How long a request's head may take.
        header_timeout: LONGER_THAN_ZERO;
        /// How long a request's body may pause.
        body_timeout: LONGER_THAN_ZERO;
        /// How long an idle connection is kept.
        keepalive: LONGER_THAN_ZERO;
    }
    ADMIN {
        /// Where metrics, health, API and console are served.
        listen: SOCKET;
        /// What mutations must carry; must be set when admin.listen is not loopback.
        token: Kind::Secret("the token mutations carry");
    }
    LEDGER {
        /// sqlite:PATH, or memory: for trying out.
        url: Kind::Text("sqlite:PATH or memory:");
        /// full survives power loss, normal survives kill -9.
        sync: Kind::Word(Sync::NAMES);
        /// Records that may wait for the writer; past it the gateway is overloaded.
        queue: Kind::Whole { min: 1, max: 1_000_000 };
        /// How long ended dead letters are kept.
        retention: LONGER_THAN_ZERO;
    }
    DRAIN {
        /// How long it still accepts after readiness went off.
        delay: MAYBE_ZERO;
        /// How long running calls have after that.
        grace: LONGER_THAN_ZERO;
    }
    CLIENT {
        /// The client's name: call ids, keys and receipts are its own.
        name: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`"), must;
        /// The file with its key, sent as `Authorization: Bearer` or `X-Api-Key`; several lines are
        /// several valid keys.
        key_file: Kind::Text("the file with the client's key"), must;
        /// Names this client had before.
        formerly: Kind::Later;
    }
    DEFAULTS {
        /// Bounds of every wait.
        timeouts: Kind::Section(TIMEOUTS);
        /// When and how often a call is sent again.
        retry: Kind::Section(RETRY);
        /// Bounds of the bodies.
        body: Kind::Section(BODY);
        /// How long ids and keys bind.
        idempotency: Kind::Section(IDEMPOTENCY);
        /// What happens to unresolved calls.
        compensation: Kind::Section(COMPENSATION);
        /// The status that tells a caller "nobody knows yet".
        unresolved_status: Kind::OneOf(&[504, 503, 502, 409, 202]);
        /// What an unresolved caller gets when the tool sent a 5xx: the gateway's problem document
        /// or that 5xx. Not set: problem when the gateway made the call id, else upstream.
        unresolved_answer: Kind::Word(UnresolvedAnswer::NAMES);
        /// Whether answers are collected before they are passed on.
        response: Kind::Word(ResponseMode::NAMES);
        /// What the caller's leaving changes: nothing, or no new send starts.
        on_client_gone: Kind::Word(OnClientGone::NAMES);
    }
    TIMEOUTS {
        /// TCP connect and TLS handshake.
        connect: LONGER_THAN_ZERO;
        /// One attempt; past it the outcome is unclear.
        attempt: LONGER_THAN_ZERO;
        /// The longest gap between two reads of an answer.
        idle: LONGER_THAN_ZERO;
        /// One receipt query.
        receipt: LONGER_THAN_ZERO;
        /// Everything a caller waits for.
        total: LONGER_THAN_ZERO;
        /// How long past its attempt timeout an exchange may still speak.
        late: MAYBE_ZERO;
    }
    RETRY {
        /// Resends; at most 1 + max_retries sends.
        max_retries: Kind::Whole { min: 0, max: MAX_RETRIES_MAX as u64 };
        /// The wait before the first resend.
        base: LONGER_THAN_ZERO;
        /// Growth of the wait per resend.
        factor: Kind::Number { min: 1.0, max: 10.0 };
        /// The longest wait, before jitter; at least base.
        cap: LONGER_THAN_ZERO;
        /// Spread of the wait to both sides.
        jitter: Kind::Number { min: 0.0, max: 1.0 };
        /// What may be followed by a resend; the receipt is asked in any case.
        on: Kind::List { of: &Kind::Word(Cause::NAMES), min: 0, max: 4 };
        /// Receipt answers that allow a resend. Adding UNKNOWN declares: this tool dedupes by call
        /// id.
        resend_on: Kind::List { of: &Kind::Word(&["NOT_FOUND", "UNKNOWN"]), min: 0, max: 2 };
    }
    BODY {
        /// The longest request taken.
        max_request: Kind::Size { min: 0, max: 1_024 * MIB };
        /// The longest answer collected and kept.
        max_kept_response: Kind::Size { min: 0, max: 64 * MIB };
    }
    IDEMPOTENCY {
        /// The header field with the client's key.
        header: HEADER;
        /// How long call ids and keys bind; 24h to 7d.
        window: LONGER_THAN_ZERO;
        /// A key derived from the request.
        key: Kind::Text("text with {body:/pointer}, {header:NAME}, {path:NAME}, {query:NAME}");
        /// How a derived key is hashed.
        hash: Kind::Word(KeyHash::NAMES);
        /// Whether a call without a key is refused.
        required: Kind::Flag;
        /// Where the key goes on the way to the tool.
        send: Kind::Section(SEND_KEY);
        /// Another scope than client and route.
        scope: Kind::Later;
        /// Body fields that do not make another request.
        exclude: Kind::Later;
    }
    SEND_KEY {
        /// The header field; the client's unless named.
        header: HEADER;
        /// Where in a JSON body, as a pointer; a field that is there is overwritten.
        body: POINTER;
    }
    COMPENSATION {
        /// Gaps before round 1, 2, ..; growing.
        rounds: Kind::List { of: &LONGER_THAN_ZERO, min: 1, max: 5 };
        /// Whether a round that believes NOT_FOUND may resend.
        resend: Kind::Flag;
        /// How long a claim holds without a heartbeat.
        lease: Kind::Duration { zero: false };
        /// Rounds that may run at once.
        workers: Kind::Whole { min: 1, max: 256 };
        /// Receipt FAILED: drop ends the row, keep shows it to a human.
        on_failed: Kind::Word(OnFailed::NAMES);
        /// Whether the work can be undone.
        reversible: Kind::Later;
        /// The undo request.
        reversal: Kind::Later;
        /// Who is told when a human is needed.
        alert: Kind::Later;
    }
    ROUTE {
        /// The route's name: its identity over reloads, and a metric label.
        name: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`"), must;
        /// Which requests it takes; every one when not set.
        match: Kind::Section(MATCH);
        /// The tool.
        upstream: Kind::Section(UPSTREAM), must;
        /// Whether a call may have an effect; when not set, none for GET, HEAD, OPTIONS and TRACE,
        /// else once.
        effects: Kind::Word(&["once", "none"]);
        /// Header fields never stored, besides the usual credentials.
        secret_headers: HEADERS;
        /// How a call's id travels.
        call_id: Kind::Section(CALL_ID);
        /// How the tool is asked what became of a call; {} for the gateway's own format.
        receipt: Kind::Presence(RECEIPT);
        /// How a 2xx that may say "failed" is read.
        answer: Kind::Presence(ANSWER);
        /// What a tool's own 202 means.
        accepted: Kind::Word(Accepted::NAMES);
        /// Bounds of every wait.
        timeouts: Kind::Section(TIMEOUTS);
        /// When and how often a call is sent again.
        retry: Kind::Section(RETRY);
        /// Bounds of the bodies.
        body: Kind::Section(BODY);
        /// How long ids and keys bind.
        idempotency: Kind::Section(IDEMPOTENCY);
        /// What happens to unresolved calls.
        compensation: Kind::Section(COMPENSATION);
        /// The status that tells a caller "nobody knows yet".
        unresolved_status: Kind::OneOf(&[504, 503, 502, 409, 202]);
        /// What an unresolved caller gets when the tool sent a 5xx: the gateway's problem document
        /// or that 5xx. Not set: problem when the gateway made the call id, else upstream.
        unresolved_answer: Kind::Word(UnresolvedAnswer::NAMES);
        /// Whether answers are collected before they are passed on.
        response: Kind::Word(ResponseMode::NAMES);
        /// What the caller's leaving changes: nothing, or no new send starts.
        on_client_gone: Kind::Word(OnClientGone::NAMES);
        /// Names this route had before.
        formerly: Kind::Later;
    }
    MATCH {
        /// The host asked for.
        host: Kind::Text("a host name without port");
        /// The path: ** matches the rest (also nothing), {name} one segment.
        path: Kind::Text("a path pattern, such as /orders/** or /orders/{id}");
        /// The methods.
        methods: Kind::List { of: &Kind::Text("a method, such as POST"), min: 1, max: 16 };
    }
    UPSTREAM {
        /// The tool's address; the request path is appended to its path.
        url: Kind::Text("an http:// or https:// URL"), must;
        /// Removed from the path first.
        strip_prefix: Kind::Text("a path, such as /orders");
        /// The Host sent: the url's, or the caller's.
        host: Kind::Word(HostMode::NAMES);
        /// Set on every send and receipt query; not stored.
        headers: Kind::Named(&Kind::Secret("the value of a header field"));
        /// Certificates trusted besides the system's.
        ca_file: Kind::Text("a file of PEM certificates");
        /// A tool, or another callgate.
        kind: Kind::Word(UpstreamKind::NAMES);
        /// Idle connections.
        pool: Kind::Section(POOL);
        /// Exchanges kept open past their attempt timeout.
        late_max: Kind::Whole { min: 0, max: 10_000 };
        /// Addresses this tool had before.
        formerly: Kind::List { of: &Kind::Text("a URL this tool had before"), min: 0, max: 16 };
        /// The field that tells the tool who calls; then each client has call ids of its own there.
        tenant_header: HEADER;
    }
    POOL {
        /// How long an idle connection is kept.
        idle: LONGER_THAN_ZERO;
        /// How many are kept, per core.
        max_idle: Kind::Whole { min: 0, max: 10_000 };
    }
    CALL_ID {
        /// The header field that carries it.
        header: HEADER;
        /// The first part of ids made here; the route's name when not set.
        prefix: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`");
        /// Where a JSON body may carry it.
        body: Kind::Later;
    }
    RECEIPT {
        /// Where to ask; a path is appended to the upstream's.
        url: Kind::Text("a path, or an http:// or https:// URL, with {call_id}");
        /// How to ask.
        method: Kind::Word(&["GET", "POST"]);
        /// What a POST carries.
        body: Kind::Text("the body of a POST, with {call_id}");
        /// Whether a question in line carries the caller's credential.
        credentials: Kind::Word(Credentials::NAMES);
        /// Where the state word stands.
        state: POINTER;
        /// Where the call id stands; if present it must be equal.
        call_id: POINTER;
        /// The tool's words for each state.
        states: Kind::Section(STATES);
        /// Statuses that mean "never heard of it".
        not_found: Kind::List { of: &Kind::Whole { min: 200, max: 499 }, min: 0, max: 16 };
        /// Where the call's result stands.
        result: Kind::Section(RESULT);
        /// The longest answer read.
        max_body: Kind::Size { min: KIB, max: 64 * MIB };
        /// When the tool's receipt begins to exist: as the call arrives, or as its work commits.
        records: Kind::Word(Records::NAMES);
        /// How long after closing earlier exchanges "not found" becomes believable.
        settle: MAYBE_ZERO;
        /// How long the tool remembers.
        retention: LONGER_THAN_ZERO;
        /// Whether "not found" needs a proof of the endpoint first.
        believe_not_found: Kind::Word(BelieveNotFound::NAMES);
    }
    STATES {
        /// Words for: known, not started.
        RECEIVED: WORDS;
        /// Words for: being worked on.
        PROCESSING: WORDS;
        /// Words for: done.
        SUCCESS: WORDS;
        /// Words for: refused, or failed for good.
        FAILED: WORDS;
        /// Words for: nobody knows.
        UNKNOWN: WORDS;
    }
    RESULT {
        /// The status, a number.
        status: POINTER;
        /// The header fields, an object.
        headers: POINTER;
        /// The body, text.
        body: POINTER;
        /// utf8 or base64.
        encoding: POINTER;
    }
    ANSWER {
        /// Where the state word stands.
        state: POINTER, must;
        /// The tool's words for each state.
        states: Kind::Section(STATES);
    }
}
