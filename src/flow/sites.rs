//! The addresses of a route's tool, ready for work: each with its connections, the receipts that
//! can be asked for there, and what is known about them.
//!
//! A call belongs to the address that it was first sent to: that one is asked about it, sent it
//! again and made to undo it, because no other one has to know it. Two things free a call: nothing
//! of it can have arrived there (then it moves, durably, before it is sent), or the operator
//! declares that the addresses share their state (`upstream.shared_state`).

use std::sync::Arc;

use super::Flow;
use super::proof::Trust;
use super::routes::{Load, Route};
use crate::call::policy::BelieveNotFound;
use crate::call::time::Mono;
use crate::config::route::{ReceiptRule, Route as Written, Upstream};
use crate::telemetry::labels::AddressState;
use crate::upstream::addresses::{Chosen, Reach, Shown, Standing};
use crate::upstream::{ReceiptEndpoint, ReversalEndpoint, SetupError, Tool};

/// One address of a tool.
#[derive(Debug)]
pub struct Site {
    /// The upstream, as if this were its only address.
    pub upstream: Upstream,
    /// Where calls are sent.
    pub tool: Arc<Tool>,
    /// What can be asked there; `None` when the tool has no receipts.
    pub receipts: Option<Receipts>,
    /// How calls are undone there; `None` when they never are.
    pub reversal: Option<Arc<ReversalEndpoint>>,
}

/// A receipt endpoint and what is known about it.
#[derive(Debug)]
pub struct Receipts {
    /// How it is asked.
    pub endpoint: Arc<ReceiptEndpoint>,
    /// About calls that were sent to the same address.
    pub own: Known,
    /// About calls that were sent to another one of the tool, where it can be asked about them.
    pub others: Option<Known>,
}

/// Whether a "not found" can be believed.
#[derive(Clone, Debug)]
pub struct Known {
    /// What the proof is remembered under: where it is and how it is asked.
    pub address: Arc<str>,
    /// What was found out so far.
    pub trust: Arc<Trust>,
}

/// Where a send goes.
#[derive(Debug)]
pub(super) enum Choice {
    /// There is one address, and nothing to weigh.
    Plain,
    /// This one.
    To(Chosen),
    /// Every address that it may go to is ejected.
    Out,
}

impl Receipts {
    /// What is known about its word for a call that was sent to this address, or to another one.
    #[must_use]
    pub fn known(&self, same: bool) -> &Known {
        match &self.others {
            Some(others) if !same => others,
            Some(_) | None => &self.own,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Known> {
        std::iter::once(&self.own).chain(&self.others)
    }
}

impl Route {
    /// Whether there is anything to ask.
    #[must_use]
    pub fn has_receipts(&self) -> bool {
        self.sites[0].receipts.is_some()
    }

    /// The other addresses of the tool.
    pub(super) fn siblings_of(&self, site: usize) -> Arc<[Arc<str>]> {
        if site == 0 {
            return Arc::clone(&self.siblings);
        }
        let others = self.sites.iter().enumerate().filter(|(n, _)| *n != site);
        others
            .map(|(_, other)| Arc::clone(other.tool.address()))
            .collect()
    }

    /// The present address that a row first sent to `address` belongs to; `None` when there is none
    /// that was sent it, or has to know it.
    #[must_use]
    pub fn site_of(&self, address: &str) -> Option<usize> {
        let at = self
            .sites
            .iter()
            .position(|site| **site.tool.address() == *address);
        let upstream = &self.conf.upstream;
        let mut former = upstream.formerly.iter();
        // One store behind all addresses, the former ones too: the configuration says.
        let shared = upstream.shared_state && former.any(|old| **old == *address);
        at.or_else(|| shared.then_some(0))
    }

    /// What is known about every receipt endpoint of the tool.
    pub fn receipts_known(&self) -> impl Iterator<Item = &Known> {
        let receipts = self.sites.iter().filter_map(|site| site.receipts.as_ref());
        receipts.flat_map(Receipts::all)
    }

    /// The tool's addresses as they are now. One that is never ejected is always in.
    #[must_use]
    pub fn upstreams(&self, now: Mono) -> Vec<Shown> {
        if let Some(addresses) = &self.addresses {
            return addresses.show(now);
        }
        let tool = &self.tool;
        let unresolved = tool.destination().name().and_then(|name| name.failing());
        vec![Shown::plain(tool.address(), unresolved)]
    }

    /// Where a send that begins now goes.
    pub(super) fn choose(&self, reach: Reach, now: Mono) -> Choice {
        match &self.addresses {
            None => Choice::Plain,
            Some(addresses) => addresses.choose(reach, now).map_or(Choice::Out, Choice::To),
        }
    }

    /// The same for a send of a round.
    pub(super) fn choose_in_round(&self, reach: Reach, now: Mono) -> Choice {
        match &self.addresses {
            None => Choice::Plain,
            Some(addresses) => addresses
                .choose_in_round(reach, now)
                .map_or(Choice::Out, Choice::To),
        }
    }

    /// The same for a send to the ejected address `site`, which has just shown that it lives.
    pub(super) fn vouched(&self, site: usize) -> Choice {
        let addresses = self.addresses.as_ref();
        let chosen = addresses.and_then(|addresses| addresses.vouched(site));
        chosen.map_or(Choice::Out, Choice::To)
    }

    /// The address that is asked about a call of `site`: its own, unless that is ejected and the
    /// others know the same.
    pub(super) fn asked(&self, site: usize) -> usize {
        let Some(addresses) = &self.addresses else {
            return site;
        };
        if !self.conf.upstream.shared_state || !addresses.is_out(site) {
            return site;
        }
        let mut others = (0..self.sites.len()).filter(|other| *other != site);
        others
            .find(|other| !addresses.is_out(*other))
            .unwrap_or(site)
    }
}

impl Flow {
    /// Puts how the tools' addresses stand into the metrics.
    pub fn show_upstreams(&self) {
        let now = self.clock.mono();
        for route in self.routes.all().iter() {
            let shown = route.upstreams(now);
            for standing in Standing::ALL {
                let count = shown.iter().filter(|one| one.standing == standing).count();
                let state = match standing {
                    Standing::In => AddressState::In,
                    Standing::Out => AddressState::Out,
                    Standing::Probing => AddressState::Probing,
                };
                route.metrics.addresses(state, count);
            }
            let sites = route.sites.iter();
            let names = sites.filter_map(|site| site.tool.destination().name());
            let failing = names.filter(|name| name.failing().is_some());
            route.metrics.names_failing(failing.count());
        }
    }
}

impl<'a> Load<'a> {
    pub(super) fn sites(
        &self,
        old: Option<&'a Arc<Route>>,
        conf: &Written,
    ) -> Result<Box<[Site]>, SetupError> {
        let several = !conf.upstream.others.is_empty();
        let sites = conf.upstream.each().map(|one| {
            let tool = self.tool(old, &one)?;
            let receipts = match (&conf.receipt, &conf.policy.receipt) {
                (Some(rule), Some(policy)) => {
                    let asking = Asking {
                        upstream: &one,
                        rule,
                        believe: policy.believe_not_found,
                        several,
                    };
                    Some(self.receipts(old, &asking)?)
                }
                (None, _) | (_, None) => None,
            };
            let undo = conf.reversal.as_ref();
            let reversal = undo.map(|rule| ReversalEndpoint::new(&one, rule, self.cores));
            Ok(Site {
                tool,
                receipts,
                reversal: reversal.transpose()?,
                upstream: one,
            })
        });
        sites.collect()
    }

    fn tool(&self, old: Option<&'a Arc<Route>>, one: &Upstream) -> Result<Arc<Tool>, SetupError> {
        if let Some((_, same)) = self.like(old, |_, site| site.upstream == *one) {
            return Ok(Arc::clone(&same.tool));
        }
        match self.like(old, |_, site| one.is_reached_as(&site.upstream)) {
            Some((_, like)) => Tool::over(one, Arc::clone(like.tool.destination())),
            None => Tool::new(one, self.cores),
        }
    }

    /// An address in use that is alike in what counts; those of the route with the same name first.
    fn like(
        &self,
        old: Option<&'a Arc<Route>>,
        is_alike: impl Fn(&Route, &Site) -> bool,
    ) -> Option<(&'a Arc<Route>, &'a Site)> {
        let routes = old.into_iter().chain(self.before);
        let mut sites = routes.flat_map(|route| route.sites.iter().map(move |site| (route, site)));
        sites.find(|(route, site)| is_alike(route, site))
    }

    fn receipts(
        &self,
        old: Option<&'a Arc<Route>>,
        asking: &Asking<'_>,
    ) -> Result<Receipts, SetupError> {
        let Asking { upstream, rule, .. } = asking;
        let same_question = |route: &Route, site: &Site| {
            site.upstream == **upstream && route.conf.receipt.as_ref() == Some(rule)
        };
        let asked = self.like(old, same_question);
        let endpoint = match asked.and_then(|(_, site)| site.receipts.as_ref()) {
            Some(same) => Arc::clone(&same.endpoint),
            None => ReceiptEndpoint::new(upstream, rule, self.cores)?,
        };
        // Receipts at one place of their own are asked the same way about every address.
        let apart = asking.several && upstream.shared_state && rule.elsewhere.is_none();
        Ok(Receipts {
            endpoint,
            own: self.known(old, asking.place(), asking.believe),
            others: apart.then(|| {
                let place = format!("{} for its siblings", asking.place());
                self.known(old, Arc::from(place), asking.believe)
            }),
        })
    }

    fn known(
        &self,
        old: Option<&'a Arc<Route>>,
        address: Arc<str>,
        believe: BelieveNotFound,
    ) -> Known {
        let routes = old.into_iter().chain(self.before);
        let mut before = routes.flat_map(|route| route.receipts_known());
        let same = before.find(|known| known.address == address && known.trust.believes(believe));
        let trust = same.map_or_else(
            || Arc::new(Trust::new(believe, self.proofs.get(&*address).copied())),
            |known| Arc::clone(&known.trust),
        );
        Known { address, trust }
    }
}

/// How one address is asked.
struct Asking<'a> {
    upstream: &'a Upstream,
    rule: &'a ReceiptRule,
    believe: BelieveNotFound,
    /// It is one of several.
    several: bool,
}

impl Asking<'_> {
    /// What identifies a receipt endpoint over restarts and reloads. One that several addresses
    /// have in common has to show for each of them that it knows what that one was sent.
    fn place(&self) -> Arc<str> {
        let (rule, upstream) = (self.rule, self.upstream);
        let (place, about) = match &rule.elsewhere {
            Some(elsewhere) if self.several => (&*elsewhere.authority, Some(&upstream.address)),
            Some(elsewhere) => (&*elsewhere.authority, None),
            None if rule.at_root => (&*upstream.endpoint.authority, None),
            None => (&*upstream.address, None),
        };
        let about = about.map_or_else(String::new, |address| format!(" about {address}"));
        Arc::from(format!("{} {place} {}{about}", rule.method, rule.path))
    }
}
