//! What operators see of a tool's addresses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::{Addresses, Place, State};
use crate::call::time::Mono;

/// How one address stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// It is used.
    In,
    /// It is left alone.
    Out,
    /// One send finds out whether it can be used again.
    Probing,
}

/// One address, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its url.
    pub url: Arc<str>,
    /// The address that the host name of the url leads to, where each is weighed for itself.
    pub at: Option<SocketAddr>,
    /// How it stands.
    pub standing: Standing,
    /// How long it is still left alone.
    pub out_for: Duration,
    /// Sends under way.
    pub sends: usize,
    /// Failures in a row.
    pub failures: u32,
    /// Ejections that were not yet lived down.
    pub ejections: u32,
    /// Why the host name cannot be looked up.
    pub unresolved: Option<Arc<str>>,
}

impl Standing {
    /// Every standing, in the order of the documentation.
    pub const ALL: [Self; 3] = [Self::In, Self::Out, Self::Probing];

    /// The word operators see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
            Self::Probing => "probing",
        }
    }
}

impl Shown {
    /// An address that nobody weighs.
    #[must_use]
    pub fn plain(url: &Arc<str>, unresolved: Option<Arc<str>>) -> Self {
        Self {
            url: Arc::clone(url),
            at: None,
            standing: Standing::In,
            out_for: Duration::ZERO,
            sends: 0,
            failures: 0,
            ejections: 0,
            unresolved,
        }
    }
}

impl Addresses {
    /// Every address, as it is now.
    #[must_use]
    pub fn show(&self, now: Mono) -> Vec<Shown> {
        let places = self.places();
        let show = |(site, place): &(usize, Place)| {
            let level = place.seat.level.lock();
            let (standing, out_for) = match level.state() {
                State::In => (Standing::In, Duration::ZERO),
                State::Out { until } => (Standing::Out, until.since(now)),
                State::Probing => (Standing::Probing, Duration::ZERO),
            };
            let (failures, ejections) = level.counts();
            Shown {
                url: Arc::clone(&place.seat.url),
                at: place.seat.at,
                standing,
                out_for,
                sends: place.seat.load.load(Ordering::Relaxed),
                failures,
                ejections,
                unresolved: self.sites[*site]
                    .whole
                    .name()
                    .and_then(|name| name.failing()),
            }
        };
        places.iter().map(show).collect()
    }
}
