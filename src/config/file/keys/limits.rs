//! Keys of what is let in, sent at once, and sent again.

use super::*;

/// More sends at once than any tool takes, so that a mistyped bound is seen.
const SENDS_MAX: u64 = 100_000;

keys! {
    pub(super) ROUTE_LIMITS {
        /// Requests of all clients together; more are refused with 429.
        rate: RATE;
        /// Requests of each client; more are refused with 429.
        client_rate: RATE;
        /// Requests of each client at once; more are refused with 429.
        client_concurrent: Kind::Whole { min: 1, max: SENDS_MAX };
    }
    pub(super) CONCURRENCY {
        /// Sends to this tool at once.
        max: Kind::Whole { min: 1, max: SENDS_MAX }, must;
        /// Calls that may wait for a place, shared fairly between clients; max when not set.
        queue: Kind::Whole { min: 0, max: SENDS_MAX };
        /// off: the bound stands at max; aimd: it falls when sends fail and rises with answers.
        adaptive: Kind::Word(Adaptive::NAMES);
    }
    pub(super) EJECTION {
        /// false: no address is ever left alone.
        enabled: Kind::Flag;
        /// Failures in a row that eject an address; 0 = none.
        consecutive: Kind::Whole { min: 0, max: SENDS_MAX };
        /// Share of failures in the window that ejects an address; 0 = none.
        share: Kind::Number { min: 0.0, max: 1.0 };
        /// How far back the share looks.
        window: LONGER_THAN_ZERO;
        /// Sends in the window below which the share says nothing.
        samples: Kind::Whole { min: 1, max: SENDS_MAX };
        /// How long an address is left alone the first time; doubled each further time.
        base: LONGER_THAN_ZERO;
        /// The longest it is left alone.
        cap: LONGER_THAN_ZERO;
        /// When more than this share of several addresses is out, all are used.
        max_ejected: Kind::Number { min: 0.0, max: 1.0 };
        /// What counts as a failure.
        on: Kind::List { of: &Kind::Word(Cause::NAMES), min: 1, max: 4 };
    }
    pub(super) RETRY_BUDGET {
        /// Resends per answered call.
        ratio: Kind::Number { min: 0.0, max: 5.0 };
        /// Resends per second whatever else happens.
        floor: Kind::Whole { min: 0, max: SENDS_MAX };
        /// Resends of one client under way at once.
        per_client: Kind::Whole { min: 1, max: SENDS_MAX };
        /// Resends per second that rounds have for themselves.
        rounds: Kind::Whole { min: 1, max: SENDS_MAX };
        /// Receipt queries per second beyond the first of each call.
        receipts: Kind::Whole { min: 1, max: SENDS_MAX };
    }
}
