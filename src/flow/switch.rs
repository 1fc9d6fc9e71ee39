//! The run-time switch for resends: off for one route, or for all, without a new configuration.
//!
//! For the bad hour in which every resend makes things worse. It is asked only when a resend is
//! about to be recorded, and belongs to the process: a restart begins with everything on, a reload
//! leaves it as it is. First sends and questions are not its business.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Flow;

/// What is switched off.
#[derive(Debug, Default)]
pub struct Retries(Mutex<Off>);

#[derive(Clone, Debug, Default)]
struct Off {
    all: bool,
    routes: BTreeSet<Arc<str>>,
}

/// The switches as they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switches {
    /// The one for all routes.
    pub enabled: bool,
    /// Routes that are switched off by themselves.
    pub off: Vec<Arc<str>>,
}

impl Retries {
    /// Whether calls of this route may be sent again.
    #[must_use]
    pub fn allows(&self, route: &str) -> bool {
        let off = self.0.lock();
        !off.all && !off.routes.contains(route)
    }
}

impl Flow {
    /// Switches resends of one route, or of all, on or off. `false`: there is no such route.
    pub fn switch_retries(&self, route: Option<&str>, enabled: bool) -> bool {
        match route {
            None => self.retries.0.lock().all = !enabled,
            Some(name) => {
                let Some(route) = self.routes.named(name) else {
                    return false;
                };
                let mut off = self.retries.0.lock();
                if enabled {
                    off.routes.remove(&route.conf.name);
                } else {
                    off.routes.insert(Arc::clone(&route.conf.name));
                }
            }
        }
        self.show_retries();
        true
    }

    /// The switches as they stand.
    #[must_use]
    pub fn retries(&self) -> Switches {
        let off = self.retries.0.lock();
        Switches {
            enabled: !off.all,
            off: off.routes.iter().cloned().collect(),
        }
    }

    /// Sets the gauge of every route in use.
    pub fn show_retries(&self) {
        for route in self.routes.all().iter() {
            let allowed = self.retries.allows(&route.conf.name);
            route.metrics.retries_enabled(allowed);
        }
    }
}
