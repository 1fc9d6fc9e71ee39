//! Keys of a tool's receipts, and of answers read like receipts.

use super::*;

keys! {
    pub(super) RECEIPT {
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
    pub(super) STATES {
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
    pub(super) RESULT {
        /// The status, a number.
        status: POINTER;
        /// The header fields, an object.
        headers: POINTER;
        /// The body, text.
        body: POINTER;
        /// utf8 or base64.
        encoding: POINTER;
    }
    pub(super) ANSWER {
        /// Where the state word stands.
        state: POINTER, must;
        /// The tool's words for each state.
        states: Kind::Section(STATES);
    }
}
