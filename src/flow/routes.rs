//! A route ready for work: its configuration with everything resolved that a call needs.
//!
//! Built once per load of the configuration, so that the path of a call looks nothing up by name:
//! metric handles, the tool's pools, the receipt endpoint with what is known about it, the policy
//! as the text that ledger rows keep. A call holds its route's `Arc` for its whole life, so a load
//! in between changes nothing for it. What a load does not change goes on as it is: connections,
//! late exchanges, what is known about an endpoint.

mod index;

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::Method;
use index::Index;

use super::alike::Lines;
use super::former::Former;
use super::late::Allowance;
use super::limits::{DoorLimits, Limits, ToolLimits};
use super::sites::Site;
use crate::config::route::Route as Written;
use crate::config::snapshot;
use crate::ledger::{KeyScope, Proof, ProofNote};
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use crate::telemetry::names::ROUTE_NONE;
use crate::upstream::addresses::{Addresses, Directory};
use crate::upstream::{SetupError, Tool};

/// One route, ready for work.
#[derive(Debug)]
pub struct Route {
    /// What the operator wrote, proven.
    pub conf: Arc<Written>,
    /// The policy as ledger rows keep it.
    pub policy_text: Arc<str>,
    /// What its keys belong to.
    pub scope: Arc<KeyScope>,
    /// Where it is counted.
    pub metrics: Arc<RouteMetrics>,
    /// The tool, at its first address: what all of them share.
    pub tool: Arc<Tool>,
    /// The addresses of the tool, in the order of the file: one at least.
    pub sites: Box<[Site]>,
    /// All addresses but the first: a call id is one at all of them.
    pub siblings: Arc<[Arc<str>]>,
    /// Which address is used; `None`: there is one, and nothing to weigh.
    pub addresses: Option<Addresses>,
    /// Lines about suspected repeats (`detect_new_ids`).
    pub repeats_logged: Lines,
    /// The bound on exchanges past their attempt timeout.
    pub late: Arc<Allowance>,
    /// What is let in.
    pub(super) door: Arc<DoorLimits>,
    /// What the tool is spared.
    pub(super) spare: Arc<ToolLimits>,
}

/// The routes in use, first match wins.
#[derive(Debug, Default)]
pub struct Routes {
    table: ArcSwap<Table>,
    limits: Arc<Limits>,
    directory: Arc<Directory>,
}

/// The routes of one load.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) list: Arc<Vec<Arc<Route>>>,
    index: Option<Index>,
    pub(super) former: Former,
}

/// What one load of the configuration builds its routes from.
#[derive(Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) proofs: &'a HashMap<&'a str, Proof>,
    pub(super) cores: usize,
    /// The routes in use so far.
    pub(super) before: &'a [Arc<Route>],
}

/// Routes that are ready and not yet in use.
#[derive(Debug)]
#[must_use = "the routes in use are others until these are put in their place"]
pub struct Ready {
    made: Vec<Made>,
    former: Former,
}

/// One of them.
#[derive(Debug)]
enum Made {
    /// It is as it was.
    Same(Arc<Route>),
    /// It is new, or another one.
    New(Parts),
}

/// What of a route can fail to be made.
#[derive(Debug)]
struct Parts {
    conf: Arc<Written>,
    sites: Box<[Site]>,
    late: Arc<Allowance>,
}

impl Routes {
    /// Makes every route ready, with connections for `cores` cores.
    ///
    /// # Errors
    /// The first route whose tool can never be reached as configured.
    pub fn build(
        written: &[Arc<Written>],
        metrics: &Metrics,
        remembered: &[ProofNote],
        cores: usize,
    ) -> Result<Self, SetupError> {
        let none = Self::default();
        let ready = none.prepare(written, remembered, cores)?;
        none.replace(ready, metrics);
        Ok(none)
    }

    /// Makes the routes of another load ready. Those in use stay as they are, with the levels of
    /// their limits.
    ///
    /// # Errors
    /// The first route whose tool can never be reached as configured.
    pub fn prepare(
        &self,
        written: &[Arc<Written>],
        remembered: &[ProofNote],
        cores: usize,
    ) -> Result<Ready, SetupError> {
        let noted = remembered.iter();
        let proofs = noted.map(|note| (&*note.endpoint, note.proof)).collect();
        let before = self.table.load();
        let load = Load {
            proofs: &proofs,
            cores,
            before: &before.list,
        };
        let made = written.iter().map(|conf| load.make(conf));
        Ok(Ready {
            made: made.collect::<Result<_, _>>()?,
            former: Former::new(remembered, cores),
        })
    }

    /// Puts these routes in place of those in use. Calls under way keep theirs; what is left of
    /// routes that are gone is counted as such.
    pub fn replace(&self, ready: Ready, metrics: &Metrics) {
        let Ready { made, former } = ready;
        let routes = made.into_iter().map(|made| match made {
            Made::Same(route) => route,
            Made::New(parts) => {
                Arc::new(Route::of(parts, metrics, (&self.limits, &self.directory)))
            }
        });
        let list: Vec<Arc<Route>> = routes.collect();
        let matchers: Vec<_> = list.iter().map(|route| &route.conf.matcher).collect();
        self.table.store(Arc::new(Table {
            index: Index::of(&matchers),
            list: Arc::new(list),
            former,
        }));
        let routes = self.all();
        let names = routes.iter().map(|route| &*route.conf.name);
        let names: Vec<&str> = names.chain([ROUTE_NONE]).collect();
        metrics.keep_routes(&names);
        self.limits.keep(&routes);
    }

    /// The first route that matches.
    #[must_use]
    pub fn find(&self, host: Option<&str>, path: &str, method: &Method) -> Option<Arc<Route>> {
        let table = self.table.load();
        let takes = |route: &&Arc<Route>| route.conf.matcher.matches(host, path, method);
        let found = match &table.index {
            None => table.list.iter().find(takes),
            Some(index) => {
                let candidates = index.candidates(host, path);
                candidates.map(|at| &table.list[at]).find(takes)
            }
        };
        found.cloned()
    }

    /// The route with this name, or the one that had it before.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Arc<Route>> {
        let has = |route: &&Arc<Route>| *route.conf.name == *name;
        let had = |route: &&Arc<Route>| route.conf.formerly.iter().any(|old| **old == *name);
        let table = self.table.load();
        let found = table.list.iter().find(has);
        found.or_else(|| table.list.iter().find(had)).cloned()
    }

    pub(super) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// All of them, in order.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<Arc<Route>>> {
        Arc::clone(&self.table.load().list)
    }
}

impl Route {
    fn of(parts: Parts, metrics: &Metrics, (limits, directory): (&Limits, &Directory)) -> Self {
        let Parts { conf, sites, late } = parts;
        for former in &conf.formerly {
            metrics.renamed(former, &conf.name);
        }
        let seats: Vec<_> = sites
            .iter()
            .map(|site| (site.tool.address(), site.tool.destination()))
            .collect();
        Self {
            addresses: Addresses::new(&seats, conf.upstream.ejection.as_ref(), directory),
            siblings: conf.upstream.addresses().skip(1).cloned().collect(),
            tool: Arc::clone(&sites[0].tool),
            sites,
            policy_text: Arc::from(snapshot::encode(&conf.policy)),
            scope: Arc::new(KeyScope {
                name: Arc::clone(conf.idempotency.scope.as_ref().unwrap_or(&conf.name)),
                formerly: conf.formerly.clone().into(),
            }),
            metrics: metrics.route(&conf.name),
            repeats_logged: Lines::default(),
            late,
            door: limits.door(&conf),
            spare: limits.tool(&conf.upstream),
            conf,
        }
    }
}

impl Route {
    /// The same route over other addresses of its tool: `conf` differs in nothing else.
    pub(super) fn at_sites(&self, conf: Arc<Written>, sites: Box<[Site]>) -> Self {
        Self {
            addresses: None,
            siblings: Arc::default(),
            tool: Arc::clone(&sites[0].tool),
            sites,
            policy_text: Arc::clone(&self.policy_text),
            scope: Arc::clone(&self.scope),
            metrics: Arc::clone(&self.metrics),
            repeats_logged: Lines::default(),
            late: Arc::clone(&self.late),
            door: Arc::clone(&self.door),
            spare: Arc::clone(&self.spare),
            conf,
        }
    }
}

impl<'a> Load<'a> {
    fn make(&self, conf: &Arc<Written>) -> Result<Made, SetupError> {
        let old: Option<&'a Arc<Route>> = self.before.iter().find(|old| old.conf.name == conf.name);
        if let Some(same) = old.filter(|old| old.conf == *conf) {
            return Ok(Made::Same(Arc::clone(same)));
        }
        let upstream = &conf.upstream;
        let late = old.filter(|old| old.conf.upstream.late_max == upstream.late_max);
        let late = late.map_or_else(
            || Arc::new(Allowance::new(upstream.late_max)),
            |old| Arc::clone(&old.late),
        );
        Ok(Made::New(Parts {
            sites: self.sites(old, conf)?,
            conf: Arc::clone(conf),
            late,
        }))
    }
}
