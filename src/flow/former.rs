//! Where the rows of a route belong whose tool had another address when they were first sent.
//!
//! The row names that address, and only what answers there was ever sent the call: whatever
//! another tool says of its id is about another call. So it is asked there, as the route asks its
//! tool today; where the operator lists the address (`upstream.formerly`) it is also sent again and
//! undone there. Two things bring a row to a present address: nothing of it has left yet, or the
//! operator declares that the addresses share their state (`upstream.shared_state`).

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::routes::{Load, Route, Routes};
use crate::config::route::{Endpoint, Route as Written};
use crate::ledger::{CallView, Proof, ProofNote};

/// Where a row is asked, sent again and undone.
#[derive(Debug)]
pub(super) struct Home {
    /// Its route, as it is reached there.
    pub(super) route: Arc<Route>,
    /// Which address of that.
    pub(super) site: usize,
    /// Whether it may be sent again and undone there, and not only asked about.
    pub(super) same_address: bool,
    /// Nothing of it has left, and it goes to a present address: its next send moves it there.
    pub(super) moves: bool,
}

/// What one load needs to reach former addresses, and those it has come to.
#[derive(Debug, Default)]
pub(super) struct Former {
    proofs: HashMap<Box<str>, Proof>,
    cores: usize,
    /// No more than the operator ever configured.
    reached: Mutex<HashMap<Place, Arc<Route>>>,
}

/// A route's name, and an address.
type Place = (Arc<str>, Arc<str>);

impl Former {
    pub(super) fn new(remembered: &[ProofNote], cores: usize) -> Self {
        let proofs = remembered.iter();
        Self {
            proofs: proofs
                .map(|note| (Box::from(&*note.endpoint), note.proof))
                .collect(),
            cores,
            reached: Mutex::default(),
        }
    }
}

impl Routes {
    /// Where a row of `route` belongs; `None` when what was there cannot be reached any more.
    pub(super) fn home(&self, route: &Arc<Route>, call: &CallView) -> Option<Home> {
        let address = &call.upstream;
        if let Some(site) = route.site_of(address) {
            return Some(Home {
                route: Arc::clone(route),
                site,
                same_address: true,
                moves: false,
            });
        }
        let former = &route.conf.upstream.formerly;
        let listed = former.iter().any(|old| old == address);
        if listed && !call.may_have_left() {
            return Some(Home {
                route: Arc::clone(route),
                site: 0,
                same_address: true,
                moves: true,
            });
        }
        Some(Home {
            route: self.at(route, address, listed)?,
            site: 0,
            same_address: listed,
            moves: false,
        })
    }

    /// The route as its tool is reached at `address`.
    fn at(&self, route: &Arc<Route>, address: &Arc<str>, listed: bool) -> Option<Arc<Route>> {
        let table = self.table();
        let name = (Arc::clone(&route.conf.name), Arc::clone(address));
        let mut reached = table.former.reached.lock();
        if let Some(known) = reached.get(&name) {
            return Some(Arc::clone(known));
        }
        let upstream = route.conf.upstream.at(Endpoint::of_address(address)?);
        // Receipts at a place of their own know a tool that nobody lists by nothing but today's
        // configuration: they may be another tool's.
        let apart = |rule: &crate::config::ReceiptRule| rule.elsewhere.is_some();
        let unknown = !listed && route.conf.receipt.as_ref().is_some_and(apart);
        let conf = Written {
            upstream,
            receipt: route.conf.receipt.clone().filter(|_| !unknown),
            ..Written::clone(&route.conf)
        };
        let proofs = &table.former.proofs;
        let load = Load {
            proofs: &proofs.iter().map(|(of, proof)| (&**of, *proof)).collect(),
            cores: table.former.cores,
            before: &table.list,
        };
        let made = load.sites(Some(route), &conf);
        let sites = made
            .inspect_err(|e| {
                let route = &*route.conf.name;
                tracing::warn!(%route, %address, error = %e, "a former address cannot be reached");
            })
            .ok()?;
        let made = Arc::new(route.at_sites(Arc::new(conf), sites));
        reached.insert(name, Arc::clone(&made));
        Some(made)
    }
}
