//! Keys of the process: its listeners, its ledger, its callers.

use super::*;

keys! {
    pub(super) LOG {
        /// The least important line still written.
        level: Kind::Word(LogLevel::NAMES);
        /// auto: text on a terminal, else json.
        format: Kind::Word(LogFormat::NAMES);
    }
    pub(super) LIMITS {
        /// Open connections of callers.
        connections: Kind::Whole { min: 1, max: 1_000_000 };
        /// Requests being worked on at once, also those whose caller has left; `connections` when
        /// not set.
        calls: Kind::Whole { min: 1, max: 1_000_000 };
        /// What long bodies may take of memory, all together.
        bodies: Kind::Size { min: MIB, max: 1 << 40 };
        /// Accepted calls (`Prefer: respond-async`, `wait`) that run at once.
        async_calls: Kind::Whole { min: 1, max: 1_000_000 };
        /// Open connections of one address (IPv6: of one /64); `connections` when not set.
        connections_per_address: Kind::Whole { min: 1, max: 1_000_000 };
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
    pub(super) ADMIN {
        /// Where metrics, health, API and console are served.
        listen: SOCKET;
        /// What mutations must carry; must be set when admin.listen is not loopback.
        token: Kind::Secret("the token mutations carry");
    }
    pub(super) LEDGER {
        /// sqlite:PATH, or memory: for trying out.
        url: Kind::Text("sqlite:PATH or memory:");
        /// full survives power loss, normal survives kill -9.
        sync: Kind::Word(Sync::NAMES);
        /// Records that may wait for the writer; past it the gateway is overloaded.
        queue: Kind::Whole { min: 1, max: 1_000_000 };
        /// How long ended dead letters are kept.
        retention: LONGER_THAN_ZERO;
    }
    pub(super) DRAIN {
        /// How long it still accepts after readiness went off.
        delay: MAYBE_ZERO;
        /// How long running calls have after that.
        grace: LONGER_THAN_ZERO;
    }
    pub(super) CLIENT {
        /// The client's name: call ids, keys and receipts are its own.
        name: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`"), must;
        /// The file with its key, sent as `Authorization: Bearer` or `X-Api-Key`; several lines are
        /// several valid keys.
        key_file: Kind::Text("the file with the client's key"), must;
        /// Names this client had before: their call ids, keys and receipts are still its own.
        formerly: FORMER_NAMES;
    }
}
