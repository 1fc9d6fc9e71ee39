//! Whether the gateway can take calls, and what is wrong although it can.
//!
//! Conditions are set by whoever learns them and read by `/readyz`. Deliberately absent: any probe
//! of its own; a tool that is down is the tool's trouble and must not take the gateway out of a
//! load balancer, which would turn one sick tool into an outage of all.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Serving has not begun: the sweep after a crash, or the listeners.
    Starting,
    /// The gateway is shutting down.
    Draining,
    /// The ledger cannot be written: nothing can be sent.
    Ledger,
    /// A receipt endpoint denies calls that its tool has answered.
    ReceiptsBroken,
    /// A receipt endpoint could not be asked about a call that its tool has answered.
    ReceiptsUnproven,
    /// A tool could not be reached.
    ToolUnreachable,
    /// Alerts of a route cannot be delivered.
    AlertsUndelivered,
    /// The newest configuration file is bad; an older one is in use.
    Configuration,
}

/// The standing of one process; shared by reference.
#[derive(Debug, Default)]
pub struct Readiness {
    /// Trouble and its subject (a route, an upstream, or nothing), with a sentence for a human.
    open: Mutex<BTreeMap<(Trouble, String), String>>,
}

/// One open trouble, as `/readyz?verbose` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What is wrong.
    pub trouble: Trouble,
    /// Which route or upstream it is about; empty for the whole process.
    pub subject: String,
    /// A sentence for a human.
    pub detail: String,
}

impl Trouble {
    /// The word in `/readyz?verbose`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Draining => "draining",
            Self::Ledger => "ledger",
            Self::ReceiptsBroken => "receipt-endpoint-broken",
            Self::ReceiptsUnproven => "receipt-endpoint-unproven",
            Self::ToolUnreachable => "unreachable-tool",
            Self::AlertsUndelivered => "undelivered-alerts",
            Self::Configuration => "configuration",
        }
    }

    /// Whether new calls should go to another gateway while this lasts.
    #[must_use]
    pub const fn blocks(self) -> bool {
        match self {
            Self::Starting | Self::Draining | Self::Ledger => true,
            Self::ReceiptsBroken
            | Self::ReceiptsUnproven
            | Self::ToolUnreachable
            | Self::AlertsUndelivered
            | Self::Configuration => false,
        }
    }
}

impl Readiness {
    /// Nothing is wrong.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a trouble; true when it was not known before, which is when it is worth a log line.
    pub fn raise(&self, trouble: Trouble, subject: &str, detail: impl Into<String>) -> bool {
        let key = (trouble, subject.to_owned());
        self.open.lock().insert(key, detail.into()).is_none()
    }

    /// Forgets a trouble; true when it was there.
    pub fn clear(&self, trouble: Trouble, subject: &str) -> bool {
        self.open
            .lock()
            .remove(&(trouble, subject.to_owned()))
            .is_some()
    }

    /// Whether new calls are welcome.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.open.lock().keys().any(|(trouble, _)| trouble.blocks())
    }

    /// Whether this trouble is open, about whatever subject.
    #[must_use]
    pub fn has(&self, trouble: Trouble) -> bool {
        self.open.lock().keys().any(|(open, _)| *open == trouble)
    }

    /// Everything that is wrong, worst first.
    #[must_use]
    pub fn conditions(&self) -> Vec<Condition> {
        let open = self.open.lock();
        let each = open.iter().map(|((trouble, subject), detail)| Condition {
            trouble: *trouble,
            subject: subject.clone(),
            detail: detail.clone(),
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sick_tool_is_told_but_does_not_take_the_gateway_out() {
        let ready = Readiness::new();
        assert!(ready.is_ready());
        assert!(ready.raise(Trouble::ToolUnreachable, "orders", "connection refused"));
        assert!(!ready.raise(Trouble::ToolUnreachable, "orders", "connection refused"));
        assert!(ready.is_ready());
        assert!(ready.raise(Trouble::Ledger, "", "disk full"));
        assert!(!ready.is_ready());
        let words: Vec<_> = ready
            .conditions()
            .iter()
            .map(|c| c.trouble.as_str())
            .collect();
        assert_eq!(words, ["ledger", "unreachable-tool"]);
        assert!(ready.clear(Trouble::Ledger, ""));
        assert!(!ready.clear(Trouble::Ledger, ""));
        assert!(ready.is_ready());
    }
}
