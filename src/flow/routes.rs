//! A route ready for work: its configuration with everything resolved that a call needs.
//!
//! Built once per load of the configuration, so that the path of a call looks nothing up by name:
//! metric handles, the tool's pools, the receipt endpoint with what is known about it, the policy
//! as the text that ledger rows keep. A call holds its route's `Arc` for its whole life.

use std::collections::HashMap;
use std::sync::Arc;

use http::Method;

use super::alike::Lines;
use super::late::Allowance;
use super::limits::{DoorLimits, Limits, ToolLimits};
use super::proof::Trust;
use crate::config::route::{ReceiptRule, Route as Written};
use crate::config::snapshot;
use crate::ledger::{KeyScope, Proof, ProofNote};
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use crate::upstream::{ReceiptEndpoint, ReversalEndpoint, SetupError, Tool};

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
    /// The tool.
    pub tool: Arc<Tool>,
    /// What the tool can be asked; `None` when it has no receipts.
    pub receipts: Option<Receipts>,
    /// How its calls are undone; `None` when they never are.
    pub reversal: Option<Arc<ReversalEndpoint>>,
    /// Lines about suspected repeats (`detect_new_ids`).
    pub repeats_logged: Lines,
    /// The bound on exchanges past their attempt timeout.
    pub late: Allowance,
    /// What is let in.
    pub(super) door: Arc<DoorLimits>,
    /// What the tool is spared.
    pub(super) spare: Arc<ToolLimits>,
}

/// A receipt endpoint and what is known about it.
#[derive(Debug)]
pub struct Receipts {
    /// What its proof is remembered under: where it is and how it is asked.
    pub address: Arc<str>,
    /// How it is asked.
    pub endpoint: Arc<ReceiptEndpoint>,
    /// Whether its "not found" can be believed.
    pub trust: Trust,
}

/// The routes of one load, first match wins.
#[derive(Debug, Default)]
pub struct Routes {
    list: Vec<Arc<Route>>,
    limits: Arc<Limits>,
}

/// What outlives a load of the configuration.
struct Kept<'a> {
    proofs: HashMap<&'a str, Proof>,
    limits: &'a Limits,
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
        Self::default().again(written, metrics, remembered, cores)
    }

    /// The routes of another load: what it did not change of the limits keeps its level.
    ///
    /// # Errors
    /// The first route whose tool can never be reached as configured.
    pub fn again(
        &self,
        written: &[Arc<Written>],
        metrics: &Metrics,
        remembered: &[ProofNote],
        cores: usize,
    ) -> Result<Self, SetupError> {
        let noted = remembered.iter();
        let kept = Kept {
            proofs: noted.map(|note| (&*note.endpoint, note.proof)).collect(),
            limits: &self.limits,
        };
        let ready = written
            .iter()
            .map(|conf| Route::build(conf, metrics, &kept, cores));
        Ok(Self {
            list: ready.collect::<Result<_, _>>()?,
            limits: Arc::clone(&self.limits),
        })
    }

    /// The first route that matches.
    #[must_use]
    pub fn find(&self, host: Option<&str>, path: &str, method: &Method) -> Option<&Arc<Route>> {
        self.list
            .iter()
            .find(|route| route.conf.matcher.matches(host, path, method))
    }

    /// The route with this name, or the one that had it before.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<&Arc<Route>> {
        let has = |route: &&Arc<Route>| *route.conf.name == *name;
        let had = |route: &&Arc<Route>| route.conf.formerly.iter().any(|old| **old == *name);
        self.list
            .iter()
            .find(has)
            .or_else(|| self.list.iter().find(had))
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.list.iter()
    }
}

impl Route {
    fn build(
        conf: &Arc<Written>,
        metrics: &Metrics,
        kept: &Kept<'_>,
        cores: usize,
    ) -> Result<Arc<Self>, SetupError> {
        let tool = Tool::new(&conf.upstream, cores)?;
        let receipts = match (&conf.receipt, &conf.policy.receipt) {
            (Some(rule), Some(policy)) => {
                let address = address(conf, rule);
                let endpoint = ReceiptEndpoint::new(&conf.upstream, rule, cores)?;
                let remembered = kept.proofs.get(&*address).copied();
                let trust = Trust::new(policy.believe_not_found, remembered);
                Some(Receipts {
                    address,
                    endpoint,
                    trust,
                })
            }
            (None, _) | (_, None) => None,
        };
        let undo = conf.reversal.as_ref();
        let reversal = undo.map(|rule| ReversalEndpoint::new(&conf.upstream, rule, cores));
        for former in &conf.formerly {
            metrics.renamed(former, &conf.name);
        }
        Ok(Arc::new(Self {
            reversal: reversal.transpose()?,
            policy_text: Arc::from(snapshot::encode(&conf.policy)),
            scope: Arc::new(KeyScope {
                name: Arc::clone(conf.idempotency.scope.as_ref().unwrap_or(&conf.name)),
                formerly: conf.formerly.clone().into(),
            }),
            metrics: metrics.route(&conf.name),
            repeats_logged: Lines::default(),
            late: Allowance::new(conf.upstream.late_max),
            door: kept.limits.door(conf),
            spare: kept.limits.tool(&conf.upstream),
            conf: Arc::clone(conf),
            tool,
            receipts,
        }))
    }

    /// Whether a row first sent to `address` was sent to this route's tool.
    #[must_use]
    pub fn is_at(&self, address: &str) -> bool {
        let upstream = &self.conf.upstream;
        *upstream.address == *address || upstream.formerly.iter().any(|old| **old == *address)
    }
}

/// What identifies a receipt endpoint over restarts and reloads.
fn address(conf: &Written, rule: &ReceiptRule) -> Arc<str> {
    let place = rule
        .elsewhere
        .as_ref()
        .map_or(&*conf.upstream.address, |e| &*e.authority);
    Arc::from(format!("{} {place} {}", rule.method, rule.path))
}
