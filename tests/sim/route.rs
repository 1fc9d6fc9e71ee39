//! The route of a world, as an operator would write it.

use std::fmt::Write as _;

use crate::plan::Rules;

/// How a call is undone, in the worlds where it is.
const UNDO: &str =
    ", reversal: { url: '/undo/{call_id}', when: [UNKNOWN, NOT_FOUND], min_age: 6s }";

impl Rules {
    /// The route as an operator would write it.
    pub(crate) fn yaml(&self) -> String {
        let mut text = format!(
            "node: sim\nledger: {{ url: 'memory:' }}\nroutes:\n- name: tool\n  \
             match: {{ path: /** }}\n  upstream: {{ {}, late_max: {}, \
             pool: {{ max_idle: {} }} }}\n  \
             timeouts: {{ connect: 1s, attempt: 2s, idle: 1s, receipt: 1s, total: 12s, \
             late: {}s }}\n  \
             retry: {{ max_retries: {}, base: {}ms, cap: 4s, resend_on: {} }}\n  \
             compensation: {{ rounds: [5s, 10s, 20s], resend: {}, lease: 3s, on_failed: {}{} }}\n  \
             body: {{ max_kept_response: 64B }}\n  \
             response: {}\n  on_client_gone: {}\n  unresolved_answer: {}\n",
            self.tool(),
            self.late_max,
            if self.idle { 8 } else { 0 },
            self.late_s,
            self.retries,
            self.base_ms,
            self.resend_on,
            self.resend,
            self.on_failed,
            if self.undoes { UNDO } else { "" },
            self.response,
            self.gone,
            self.unresolved,
        );
        if self.none {
            text.push_str("  effects: none\n");
        }
        if self.block {
            text.push_str("  detect_new_ids: block\n");
        }
        if self.accepted {
            text.push_str("  accepted: pending\n");
        }
        if self.receipts {
            let retention = self.retention_s.unwrap_or(86_400);
            let (records, settle) = if self.at_commit {
                ("commit", 5_000)
            } else {
                ("arrival", 600)
            };
            writeln!(
                text,
                "  receipt: {{ records: {records}, settle: {settle}ms, retention: {retention}s, \
                 believe_not_found: {} }}",
                self.believe
            )
            .expect("a String takes every write");
        }
        text
    }
}
