//! Keys of how calls live: waits, retries, bodies, keys, compensation.

use super::*;

keys! {
    pub(super) TIMEOUTS {
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
    pub(super) RETRY {
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
    pub(super) BODY {
        /// The longest request taken.
        max_request: Kind::Size { min: 0, max: 1_024 * MIB };
        /// The longest answer collected and kept.
        max_kept_response: Kind::Size { min: 0, max: 64 * MIB };
    }
    pub(super) IDEMPOTENCY {
        /// The header field with the client's key.
        header: HEADER;
        /// How long call ids and keys bind; 24h to 7d.
        window: LONGER_THAN_ZERO;
        /// A key derived from the request.
        key: Kind::Text(
            "text with {body:/pointer}, {header:NAME}, {path:NAME}, {query:NAME}, {day}, {minute}",
        );
        /// The time zone of {day} and {minute} in a derived key.
        time_zone: Kind::Text("the name of a time zone, such as Europe/Berlin");
        /// How a derived key is hashed.
        hash: Kind::Word(KeyHash::NAMES);
        /// Whether a call without a key is refused.
        required: Kind::Flag;
        /// Where the key goes on the way to the tool.
        send: Kind::Section(SEND_KEY);
        /// What a key belongs to besides its client, instead of the route: routes with the same
        /// scope share their keys.
        scope: Kind::Text("1 to 48 letters, digits, `.`, `_` and `-`");
        /// Places in a JSON body that may differ without making another request.
        exclude: Kind::List { of: &POINTER, min: 0, max: NAMES_MAX };
    }
    pub(super) SEND_KEY {
        /// The header field; the client's unless named.
        header: HEADER;
        /// Where in a JSON body, as a pointer; a field that is there is overwritten.
        body: POINTER;
    }
    pub(super) REVERSAL {
        /// Where the undo request goes; a path is appended to the upstream's.
        url: Kind::Text("a path, or an http:// or https:// URL"), must;
        /// Its method.
        method: Kind::Word(&["POST", "PUT", "PATCH", "DELETE"]);
        /// Header fields set on it.
        headers: Kind::Named(&Kind::Secret("the value of a header field"));
        /// Its body.
        body: Kind::Text("text with {call_id}, {reversal_id}, {body:/pointer}");
        /// Receipt answers after which a call is undone.
        when: Kind::List { of: &Kind::Word(&["UNKNOWN", "NOT_FOUND"]), min: 1, max: 2 };
        /// How long every exchange of the call must have been closed.
        min_age: LONGER_THAN_ZERO;
        /// How long after its first send a call may still be undone.
        max_age: LONGER_THAN_ZERO;
    }
    pub(super) COMPENSATION {
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
        reversible: Kind::Flag;
        /// The undo request.
        reversal: Kind::Section(REVERSAL);
        /// Who is told when a human is needed.
        alert: Kind::Section(ALERT);
    }
    pub(super) ALERT {
        /// The address that is told, with POST.
        webhook: Kind::Secret("an http:// or https:// URL");
        /// What it is told of.
        on: Kind::List { of: &Kind::Word(Event::NAMES), min: 0, max: 3 };
        /// Also told: the oldest unresolved call is older than this.
        oldest_over: LONGER_THAN_ZERO;
        /// What comes up within this time after an alert is told with the next one.
        repeat: LONGER_THAN_ZERO;
        /// A file with the secret that alerts are signed with.
        secret_file: Kind::Text("a file with one line, the secret");
        /// Certificates trusted besides the system's.
        ca_file: Kind::Text("a file of PEM certificates");
        /// Set on every alert.
        headers: Kind::Named(&Kind::Secret("the value of a header field"));
    }
}
