//! Every metric name, once, with its help text and its labels.
//!
//! A name listed here is exported from the first scrape on; dashboards and rules in `deploy/` may
//! use no other.

/// A metric as operators know it.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// The name in the exposition.
    pub name: &'static str,
    /// What it counts, in one sentence.
    pub help: &'static str,
    /// The label whose values are a closed set, if it has one.
    pub closed: Option<&'static str>,
    /// Whether each route counts for itself (label `route`).
    pub by_route: bool,
}

/// The one label whose values are not known at compile time.
pub const ROUTE: &str = "route";

/// The route label of requests that no route matches.
pub const ROUTE_NONE: &str = "none";

/// The route label of dead letters whose route the configuration no longer has.
pub const ROUTE_GONE: &str = "gone";

macro_rules! names {
    ($($ident:ident = $name:literal, $closed:expr, $by_route:literal, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $ident: Name =
                Name { name: $name, help: $help, closed: $closed, by_route: $by_route };
        )*

        /// Every metric, in the order of the documentation.
        pub const ALL: &[Name] = &[$($ident,)*];
    };
}

names! {
    CALLS = "callgate_calls_total", Some("outcome"), true,
        "Requests by callers, by what the caller was told.";
    ATTEMPTS = "callgate_attempts_total", Some("result"), true,
        "Sends to the tool, by how they ended.";
    RETRIES = "callgate_retries_total", Some("cause"), true,
        "Resends to the tool, by what made them necessary.";
    RETRIES_DENIED = "callgate_retries_denied_total", Some("reason"), true,
        "Resends that were wanted and not allowed, by the reason.";
    RETRIES_ENABLED = "callgate_retries_enabled", None, true,
        "1 while calls may be sent again, 0 while an operator has switched that off.";
    RECEIPT_QUERIES = "callgate_receipt_queries_total", Some("state"), true,
        "Questions to the tool's receipt endpoint, by the answer as far as it is believed.";
    RECEIPT_BROKEN = "callgate_receipt_endpoint_broken", None, true,
        "1 while the receipt endpoint denies calls that the tool has answered.";
    DUPLICATES_AVOIDED = "callgate_duplicates_avoided_total", Some("how"), true,
        "Times the tool was not asked to do the same work again, by what prevented it.";
    DEAD_LETTERS_TOTAL = "callgate_dead_letters_total", Some("reason"), true,
        "Calls parked in the compensation queue, by the reason.";
    DEAD_LETTERS = "callgate_dead_letters", Some("state"), true,
        "Open dead letters, by state.";
    DEAD_LETTER_OLDEST = "callgate_dead_letter_oldest_seconds", None, true,
        "Age of the oldest open dead letter.";
    ROUNDS = "callgate_compensation_rounds_total", Some("result"), true,
        "Rounds of the compensation worker, by what they brought.";
    REVERSALS = "callgate_reversals_total", Some("result"), true,
        "Sends of undo requests, by how they ended.";
    DIFFERENCES = "callgate_differences_total", Some("kind"), true,
        "Answers and receipts that contradict what is already settled.";
    ALERTS = "callgate_alerts_total", Some("result"), true,
        "Tries to deliver an alert, by how they ended.";
    ALERTS_UNDELIVERED = "callgate_alerts_undelivered", None, true,
        "Alerts that could not be delivered yet and are tried again.";
    BACKFILLED = "callgate_backfilled_call_ids_total", None, true,
        "Call ids the gateway made because the client sent none.";
    SUSPECTED = "callgate_suspected_repeats_total", None, true,
        "Requests without a call id that asked for the same as a call that was still open.";
    REFUSED = "callgate_refused_total", Some("code"), true,
        "Problems the gateway told callers, by code.";
    IN_FLIGHT = "callgate_calls_in_flight", None, true,
        "Calls being worked on in line.";
    LIMITED = "callgate_limited_now", Some("what"), true,
        "What upstream.concurrency and upstream.retry_budget count at the moment.";
    EJECTIONS = "callgate_ejections_total", Some("reason"), true,
        "Times an address of the tool was left alone because sends to it failed, by the reason.";
    ADDRESSES = "callgate_upstream_addresses", Some("state"), true,
        "Addresses of the tool that are weighed, by how they stand.";
    NAMES_FAILING = "callgate_upstream_names_failing", None, true,
        "Host names of the tool whose last look-up failed; what was found before is used.";
    CALL_DURATION = "callgate_call_duration_seconds", None, true,
        "From the end of the request's head to the answer, or to parking.";
    ATTEMPT_DURATION = "callgate_attempt_duration_seconds", None, true,
        "From the beginning of one send to its end.";
    LEDGER_COMMIT = "callgate_ledger_commit_duration_seconds", None, false,
        "One group commit of the ledger.";
    BOUNDS_REACHED = "callgate_bounds_reached_total", Some("bound"), false,
        "Times a configured bound turned work away or cut it short.";
    BODIES_HELD = "callgate_bodies_held_bytes", None, false,
        "Memory that bodies take which count against limits.bodies.";
    LOG_LINES_DROPPED = "callgate_log_lines_dropped_total", None, false,
        "Log lines lost because standard error did not take them in time.";
    CONFIG_RELOADS = "callgate_config_reloads_total", Some("result"), false,
        "Loads of the configuration after the first.";
    CONFIG_LAST_RELOAD = "callgate_config_last_reload_successful", None, false,
        "1 when the newest configuration file is the one in use.";
    BUILD_INFO = "callgate_build_info", Some("version"), false,
        "Always 1; the label says which callgate this is.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_follow_the_conventions() {
        let mut seen = std::collections::BTreeSet::new();
        for metric in ALL {
            assert!(seen.insert(metric.name), "{} stands twice", metric.name);
            assert!(metric.name.starts_with("callgate_"), "{}", metric.name);
            assert!(metric.help.ends_with('.'), "{}", metric.name);
            assert_ne!(metric.closed, Some(ROUTE), "{}", metric.name);
        }
    }
}
