//! Keys of a route and of the tool behind it.

use super::*;

/// The most addresses of one tool: every send looks at all of them.
const URLS_MAX: usize = 32;

keys! {
    pub(super) DEFAULTS {
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
        /// The same request under a new id while the first call is open: sent and warned about, or
        /// refused.
        detect_new_ids: Kind::Word(DetectNewIds::NAMES);
    }
    pub(super) ROUTE {
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
        /// What is let in.
        limits: Kind::Section(ROUTE_LIMITS);
        /// The same request under a new id while the first call is open: sent and warned about, or
        /// refused.
        detect_new_ids: Kind::Word(DetectNewIds::NAMES);
        /// Names this route had before: its keys and dead letters are still its own.
        formerly: FORMER_NAMES;
    }
    pub(super) MATCH {
        /// The host asked for.
        host: Kind::Text("a host name without port");
        /// The path: ** matches the rest (also nothing), {name} one segment.
        path: Kind::Text("a path pattern, such as /orders/** or /orders/{id}");
        /// The methods.
        methods: Kind::List { of: &Kind::Text("a method, such as POST"), min: 1, max: 16 };
    }
    pub(super) UPSTREAM {
        /// The tool's address; the request path is appended to its path.
        url: Kind::Text("an http:// or https:// URL");
        /// Several addresses of one tool, in place of url: the same scheme and path, other hosts.
        urls: Kind::List { of: &Kind::Text("an http:// or https:// URL"), min: 1, max: URLS_MAX };
        /// Whether every address knows what any of them was sent, so that a call may be asked about
        /// and sent again at another one.
        shared_state: Kind::Flag;
        /// How often a host name is looked up again.
        resolve: LONGER_THAN_ZERO;
        /// When an address that fails is left alone; on by itself for several urls.
        ejection: Kind::Presence(EJECTION);
        /// Removed from the path first.
        strip_prefix: Kind::Text("a path, such as /orders");
        /// The Host sent: the url's, or the caller's.
        host: Kind::Word(HostMode::NAMES);
        /// What is spoken: HTTP/1.1, HTTP/2 (ALPN, or prior knowledge), or what TLS agrees on.
        protocol: Kind::Word(Protocol::NAMES);
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
        /// Sends at once, and who waits for them; unbounded when not set.
        concurrency: Kind::Section(CONCURRENCY);
        /// What may be sent again; {} for the usual numbers, unbounded when not set.
        retry_budget: Kind::Presence(RETRY_BUDGET);
        /// Addresses this tool had before.
        formerly: Kind::List { of: &Kind::Text("a URL this tool had before"), min: 0, max: 16 };
        /// The field that tells the tool who calls; then each client has call ids of its own there.
        tenant_header: HEADER;
    }
    pub(super) POOL {
        /// How long an idle connection is kept.
        idle: LONGER_THAN_ZERO;
        /// How many are kept, per core.
        max_idle: Kind::Whole { min: 0, max: 10_000 };
    }
    pub(super) CALL_ID {
        /// The header field that carries it.
        header: HEADER;
        /// The first part of ids made here; the route's name when not set.
        prefix: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`");
        /// Where a JSON body may carry it.
        body: POINTER;
    }
}
