//! Limits: what is let in, what is sent to a tool at once, and what may be sent again.
//!
//! Their levels belong to routes and tools, not to one load of the configuration: [`Limits`] lives
//! as long as the process, routes are keyed by their name and tools by their address, so that a
//! reload keeps the level of what it did not change and resizes what it did. What is not configured
//! is `None` and costs nothing.
//!
//! Deliberately absent: what a refusal means for a call. A first send that finds no place is
//! refused before anything is recorded; a resend that is not allowed is told to the machine.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::budget::Budget;
use self::gate::Gate;
use self::rate::{Meter, Slots};
use crate::call::id::ClientName;
use crate::config::limits::{Rate, RouteLimits};
use crate::config::route::{Route, Upstream};

mod aimd;
pub(super) mod budget;
pub(super) mod gate;
pub(super) mod rate;

pub(super) use rate::Slot;

/// Every limit of the process, over all loads of the configuration.
#[derive(Debug, Default)]
pub(super) struct Limits {
    doors: Mutex<HashMap<Arc<str>, Arc<DoorLimits>>>,
    tools: Mutex<HashMap<Arc<str>, Arc<ToolLimits>>>,
}

/// What one route lets in.
#[derive(Debug, Default)]
pub(super) struct DoorLimits {
    rate: Option<Arc<Meter>>,
    client_rate: Option<Arc<Meter>>,
    client_most: Option<usize>,
    slots: Arc<Slots>,
}

/// What one tool is spared.
#[derive(Debug, Default)]
pub(super) struct ToolLimits {
    /// Sends at once.
    pub(super) gate: Option<Arc<Gate>>,
    /// Resends.
    pub(super) budget: Option<Arc<Budget>>,
}

/// A rate that is used up: what the caller is told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exceeded {
    /// `route` or `client`.
    pub whose: &'static str,
    /// The rate.
    pub rate: Rate,
}

impl Exceeded {
    /// When a repeat is worth it: the interval has ended by then in any case.
    #[must_use]
    pub const fn retry_after(&self) -> Duration {
        self.rate.per
    }
}

impl Limits {
    /// The limits of a route, with the levels they had.
    pub(super) fn door(&self, route: &Route) -> Arc<DoorLimits> {
        let mut doors = self.doors.lock();
        let before = doors.get(&route.name).cloned().unwrap_or_default();
        let now = Arc::new(DoorLimits::after(&before, &route.limits));
        doors.insert(Arc::clone(&route.name), Arc::clone(&now));
        now
    }

    /// The limits of a tool, with the levels they had.
    pub(super) fn tool(&self, upstream: &Upstream) -> Arc<ToolLimits> {
        let mut tools = self.tools.lock();
        let before = tools.get(&upstream.address).cloned().unwrap_or_default();
        let now = Arc::new(ToolLimits::after(&before, upstream));
        tools.insert(Arc::clone(&upstream.address), Arc::clone(&now));
        now
    }
}

impl Limits {
    /// Forgets the levels of routes and tools that are gone: over many loads they would only pile
    /// up. Calls under way keep theirs.
    pub(super) fn keep(&self, routes: &[Arc<super::Route>]) {
        let written = || routes.iter().map(|route| &route.conf);
        let named = |name: &Arc<str>| written().any(|route| route.name == *name);
        self.doors.lock().retain(|name, _| named(name));
        let used = |address: &Arc<str>| written().any(|it| it.upstream.address == *address);
        self.tools.lock().retain(|address, _| used(address));
    }
}

impl DoorLimits {
    fn after(before: &Self, limits: &RouteLimits) -> Self {
        Self {
            rate: meter(before.rate.as_ref(), limits.rate),
            client_rate: meter(before.client_rate.as_ref(), limits.client_rate),
            client_most: limits.client_concurrent,
            slots: Arc::clone(&before.slots),
        }
    }

    /// Counts a request against the rates.
    pub(super) fn admit(&self, client: &ClientName) -> Result<(), Exceeded> {
        let exceeded = |whose, meter: &Meter| Exceeded {
            whose,
            rate: meter.rate,
        };
        // A client over its own rate uses up nothing of the others'.
        if let Some(meter) = &self.client_rate
            && meter.admit(client).is_none()
        {
            return Err(exceeded("client", meter));
        }
        if let Some(meter) = &self.rate
            && meter.admit(&()).is_none()
        {
            return Err(exceeded("route", meter));
        }
        Ok(())
    }

    /// A slot among the client's requests at once; `Err` when all are taken.
    pub(super) fn slot(&self, client: &ClientName) -> Result<Option<Slot>, usize> {
        match self.client_most {
            None => Ok(None),
            Some(most) => self.slots.take(client, most).map(Some).ok_or(most),
        }
    }
}

impl ToolLimits {
    fn after(before: &Self, upstream: &Upstream) -> Self {
        let gate = upstream.concurrency.map(|conf| {
            let kept = before.gate.as_ref().inspect(|gate| gate.change(conf));
            kept.map_or_else(|| Gate::new(conf), Arc::clone)
        });
        let budget = upstream.retry_budget.map(|conf| {
            let kept = before.budget.as_ref().inspect(|budget| budget.change(conf));
            kept.map_or_else(|| Budget::new(conf), Arc::clone)
        });
        Self { gate, budget }
    }
}

/// The meter that counts by this rate already, or a new one.
fn meter(before: Option<&Arc<Meter>>, rate: Option<Rate>) -> Option<Arc<Meter>> {
    let rate = rate?;
    let kept = before.filter(|meter| meter.rate == rate);
    Some(kept.map_or_else(|| Arc::new(Meter::new(rate)), Arc::clone))
}

#[cfg(test)]
mod exact;
#[cfg(test)]
mod tests;
