//! The metrics of one gateway, on a registry of its own.
//!
//! Two gateways in one process (tests, the demo) do not meet. Handles are resolved once per route
//! and configuration load; counting an event is one atomic addition. Series exist from the start
//! with value 0, so that the first event is visible as an increase, and no traffic can add any.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::Collector;
use prometheus::{
    GaugeVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::labels::{
    AddressState, Alert, AttemptResult, AvoidedBy, Bound, Denied, Difference, Ejected, Label,
    Limited, OpenState, Refusal, Reload, Round, UndoResult,
};
use super::names::{self, Name, ROUTE, ROUTE_GONE};
use crate::call::code::{Code, Word};
use crate::call::outcome::Cause;
use crate::call::receipt::Answer;
use crate::call::step::Reason;

/// From a cache hit on loopback to the longest default `timeouts.total`.
const CALL_BUCKETS: [f64; 15] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];

/// From a write-back cache to a disk that is in trouble.
const COMMIT_BUCKETS: [f64; 12] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5,
];

/// All metrics of one gateway.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    families: Families,
    /// Times bounds were reached.
    pub bounds: Counters<Bound>,
    /// Bytes of the bodies that are held.
    pub bodies_held: IntGauge,
    /// Loads of the configuration after the first.
    pub reloads: Counters<Reload>,
    /// Log lines that standard error did not take.
    pub log_lines_dropped: IntCounter,
    ledger_commit: Histogram,
    last_reload: IntGauge,
    /// The routes of the configuration in use, with their handles. Held while the dead-letter
    /// gauges are set and while they are read, so that no scrape sees them half set.
    routes: Mutex<BTreeMap<String, Arc<RouteMetrics>>>,
    /// Former names of routes, with the present ones.
    renamed: Mutex<BTreeMap<String, String>>,
}

/// The handles of one route, resolved once.
#[derive(Debug)]
pub struct RouteMetrics {
    /// One per caller's request or item of a batch, by what was told.
    pub calls: Counters<Word>,
    /// One per send, by how it ended.
    pub attempts: Counters<AttemptResult>,
    /// One per resend, by its cause.
    pub retries: Counters<Cause>,
    /// One per resend that was wanted and not allowed.
    pub denied: Counters<Denied>,
    /// One per question to the receipt endpoint, by the answer as far as it is believed.
    pub receipts: Counters<Answer>,
    /// One per second effect that did not happen.
    pub avoided: Counters<AvoidedBy>,
    /// One per call that was parked.
    pub parked: Counters<Reason>,
    /// One per round of the compensation worker.
    pub rounds: Counters<Round>,
    /// One per send of a reversal, by how it ended.
    pub reversals: Counters<UndoResult>,
    /// One per address that was ejected.
    pub ejections: Counters<Ejected>,
    /// One per contradiction to what was settled.
    pub differences: Counters<Difference>,
    /// One per try to deliver an alert.
    pub alerts: Counters<Alert>,
    /// One per problem told to a caller.
    pub refused: Counters<Refusal>,
    /// One per call id made by the gateway.
    pub backfilled: IntCounter,
    /// One per request without an id that asked for the same as an open call.
    pub suspected: IntCounter,
    in_flight: IntGauge,
    limited: Box<[IntGauge]>,
    addresses: Box<[IntGauge]>,
    names_failing: IntGauge,
    receipt_broken: IntGauge,
    retries_enabled: IntGauge,
    alerts_undelivered: IntGauge,
    call_duration: Histogram,
    attempt_duration: Histogram,
}

/// One counter per value of a closed label.
#[derive(Debug)]
pub struct Counters<L>(Box<[IntCounter]>, PhantomData<fn(L)>);

/// A call in flight: counted while this lives.
#[derive(Debug)]
#[must_use = "the call counts as in flight while this lives"]
pub struct InFlight(IntGauge);

/// The open dead letters of one route in one state, as the ledger counted them.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenDeadLetters {
    /// The route's name.
    pub route: String,
    /// Their state.
    pub state: OpenState,
    /// How many.
    pub count: u64,
    /// Age of the oldest one.
    pub oldest: Duration,
}

#[derive(Debug)]
struct Families {
    calls: IntCounterVec,
    attempts: IntCounterVec,
    retries: IntCounterVec,
    denied: IntCounterVec,
    receipts: IntCounterVec,
    avoided: IntCounterVec,
    parked: IntCounterVec,
    rounds: IntCounterVec,
    reversals: IntCounterVec,
    ejections: IntCounterVec,
    addresses: IntGaugeVec,
    names_failing: IntGaugeVec,
    differences: IntCounterVec,
    alerts: IntCounterVec,
    refused: IntCounterVec,
    backfilled: IntCounterVec,
    suspected: IntCounterVec,
    in_flight: IntGaugeVec,
    limited: IntGaugeVec,
    receipt_broken: IntGaugeVec,
    retries_enabled: IntGaugeVec,
    alerts_undelivered: IntGaugeVec,
    call_duration: HistogramVec,
    attempt_duration: HistogramVec,
    dead_letters: IntGaugeVec,
    dead_letter_oldest: GaugeVec,
}

impl Metrics {
    /// The metrics of a gateway of this `version`, on their own registry.
    #[must_use]
    pub fn new(version: &str) -> Self {
        let registry = Registry::new();
        let families = Families::on(&registry);
        let bounds = counters(&registry, names::BOUNDS_REACHED);
        let bodies_held = gauges(&registry, names::BODIES_HELD).with_label_values(NONE);
        let reloads = counters(&registry, names::CONFIG_RELOADS);
        let ledger_commit = histograms(&registry, names::LEDGER_COMMIT, &COMMIT_BUCKETS);
        let last_reload = gauges(&registry, names::CONFIG_LAST_RELOAD).with_label_values(NONE);
        last_reload.set(1);
        gauges(&registry, names::BUILD_INFO)
            .with_label_values(&[version])
            .set(1);
        let dropped = counters(&registry, names::LOG_LINES_DROPPED);
        #[cfg(target_os = "linux")]
        register(
            &registry,
            prometheus::process_collector::ProcessCollector::for_self(),
        );
        Self {
            registry,
            families,
            bounds: Counters::of(&bounds, None),
            bodies_held,
            reloads: Counters::of(&reloads, None),
            log_lines_dropped: dropped.with_label_values(NONE),
            ledger_commit: ledger_commit.with_label_values(NONE),
            last_reload,
            routes: Mutex::default(),
            renamed: Mutex::default(),
        }
    }

    /// The handles of the route `name`; the same counters go on over a reload.
    #[must_use]
    pub fn route(&self, name: &str) -> Arc<RouteMetrics> {
        let mut routes = self.routes.lock();
        if let Some(route) = routes.get(name) {
            return Arc::clone(route);
        }
        let route = Arc::new(RouteMetrics::of(&self.families, name));
        routes.insert(name.to_owned(), Arc::clone(&route));
        route
    }

    /// From now on the dead letters of a route that was called `former` are counted for `name`.
    pub fn renamed(&self, former: &str, name: &str) {
        let mut renamed = self.renamed.lock();
        renamed.insert(former.to_owned(), name.to_owned());
    }

    /// Keeps only these routes: the dead letters of others are counted as `gone` from now on.
    /// Counters of removed routes stay, since calls that began under them still end.
    pub fn keep_routes(&self, names: &[&str]) {
        self.routes
            .lock()
            .retain(|name, _| names.contains(&name.as_str()));
    }

    /// Notes one group commit of the ledger.
    pub fn ledger_commit(&self, took: Duration) {
        self.ledger_commit.observe(took.as_secs_f64());
    }

    /// Notes how a load of the configuration after the first ended.
    pub fn reloaded(&self, result: Reload) {
        self.reloads.inc(result);
        self.last_reload.set(i64::from(result == Reload::Success));
    }

    /// Sets the dead-letter gauges from a count of the ledger; what it does not name is zero.
    pub fn set_dead_letters(&self, open: &[OpenDeadLetters]) {
        let (routes, renamed) = (self.routes.lock(), self.renamed.lock());
        let mut oldest: BTreeMap<&str, Duration> = BTreeMap::new();
        let (count, age) = (
            &self.families.dead_letters,
            &self.families.dead_letter_oldest,
        );
        count.reset();
        age.reset();
        for route in routes.keys().map(String::as_str).chain([ROUTE_GONE]) {
            OpenState::ALL
                .iter()
                .for_each(|s| count.with_label_values(&[s.word(), route]).set(0));
            oldest.insert(route, Duration::ZERO);
        }
        for row in open {
            let present = || routes.get_key_value(renamed.get(&row.route)?);
            let known = routes.get_key_value(&row.route).or_else(present);
            let route = known.map_or(ROUTE_GONE, |(name, _)| name.as_str());
            let more = i64::try_from(row.count).unwrap_or(i64::MAX);
            count
                .with_label_values(&[row.state.word(), route])
                .add(more);
            oldest
                .entry(route)
                .and_modify(|age| *age = row.oldest.max(*age));
        }
        for (route, oldest) in oldest {
            age.with_label_values(&[route]).set(oldest.as_secs_f64());
        }
    }

    /// All metrics in the Prometheus text format.
    #[must_use]
    pub fn render(&self) -> String {
        let _whole = self.routes.lock();
        let gathered = self.registry.gather();
        TextEncoder::new()
            .encode_to_string(&gathered)
            .expect("a String takes every write")
    }
}

impl RouteMetrics {
    fn of(families: &Families, route: &str) -> Self {
        let own = Some(route);
        Self {
            calls: Counters::of(&families.calls, own),
            attempts: Counters::of(&families.attempts, own),
            retries: Counters::of(&families.retries, own),
            denied: Counters::of(&families.denied, own),
            receipts: Counters::of(&families.receipts, own),
            avoided: Counters::of(&families.avoided, own),
            parked: Counters::of(&families.parked, own),
            rounds: Counters::of(&families.rounds, own),
            reversals: Counters::of(&families.reversals, own),
            differences: Counters::of(&families.differences, own),
            alerts: Counters::of(&families.alerts, own),
            refused: Counters::of(&families.refused, own),
            backfilled: families.backfilled.with_label_values(&[route]),
            suspected: families.suspected.with_label_values(&[route]),
            in_flight: families.in_flight.with_label_values(&[route]),
            ejections: Counters::of(&families.ejections, Some(route)),
            addresses: (AddressState::ALL.iter())
                .map(|state| {
                    families
                        .addresses
                        .with_label_values(&[state.as_str(), route])
                })
                .collect(),
            names_failing: families.names_failing.with_label_values(&[route]),
            limited: (Limited::ALL.iter())
                .map(|what| families.limited.with_label_values(&[what.as_str(), route]))
                .collect(),
            receipt_broken: families.receipt_broken.with_label_values(&[route]),
            retries_enabled: {
                let enabled = families.retries_enabled.with_label_values(&[route]);
                enabled.set(1);
                enabled
            },
            alerts_undelivered: families.alerts_undelivered.with_label_values(&[route]),
            call_duration: families.call_duration.with_label_values(&[route]),
            attempt_duration: families.attempt_duration.with_label_values(&[route]),
        }
    }

    /// Handles that belong to no registry, for tests of other modules.
    #[must_use]
    pub fn detached() -> Arc<Self> {
        Arc::new(Self::of(&Families::on(&Registry::new()), names::ROUTE_NONE))
    }

    /// Counts a call as in flight until the guard is dropped.
    pub fn in_flight(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// Counts something that a limit bounds until the guard is dropped.
    pub fn limited(&self, what: Limited) -> InFlight {
        let gauge = &self.limited[what.index()];
        gauge.inc();
        InFlight(gauge.clone())
    }

    /// Calls in flight now.
    #[must_use]
    pub fn in_flight_now(&self) -> i64 {
        self.in_flight.get()
    }

    /// Counts a caller's request that has ended: what was told, the code of a problem, and how
    /// long it took. An item of a batch is such a request.
    pub fn told(&self, word: Word, code: Option<Code>, took: Duration) {
        self.calls.inc(word);
        if let Some(code) = code {
            self.refused.inc(code);
        }
        self.call_duration.observe(took.as_secs_f64());
    }

    /// Notes how long one send took.
    pub fn attempt_took(&self, d: Duration) {
        self.attempt_duration.observe(d.as_secs_f64());
    }

    /// Notes whether calls may be sent again.
    pub fn retries_enabled(&self, enabled: bool) {
        self.retries_enabled.set(i64::from(enabled));
    }

    /// Notes how many alerts could not be delivered yet.
    pub fn alerts_undelivered(&self, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.alerts_undelivered.set(count);
    }

    /// Notes how many of the tool's addresses stand like this.
    pub fn addresses(&self, state: AddressState, count: usize) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.addresses[state.index()].set(count);
    }

    /// Notes how many of the tool's host names cannot be looked up.
    pub fn names_failing(&self, count: usize) {
        self.names_failing
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Notes whether the receipt endpoint is found broken.
    pub fn receipt_broken(&self, broken: bool) {
        self.receipt_broken.set(i64::from(broken));
    }
}

impl<L: Label> Counters<L> {
    fn of(family: &IntCounterVec, route: Option<&str>) -> Self {
        let own = |label: L| {
            let values: Vec<_> = [label.word()].into_iter().chain(route).collect();
            family.with_label_values(&values)
        };
        Self(L::all().into_iter().map(own).collect(), PhantomData)
    }

    /// Counts one event.
    pub fn inc(&self, label: impl Into<L>) {
        self.0[label.into().index()].inc();
    }

    /// Events so far.
    #[must_use]
    pub fn get(&self, label: impl Into<L>) -> u64 {
        self.0[label.into().index()].get()
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Families {
    fn on(registry: &Registry) -> Self {
        Self {
            calls: counters(registry, names::CALLS),
            attempts: counters(registry, names::ATTEMPTS),
            retries: counters(registry, names::RETRIES),
            denied: counters(registry, names::RETRIES_DENIED),
            receipts: counters(registry, names::RECEIPT_QUERIES),
            avoided: counters(registry, names::DUPLICATES_AVOIDED),
            parked: counters(registry, names::DEAD_LETTERS_TOTAL),
            rounds: counters(registry, names::ROUNDS),
            reversals: counters(registry, names::REVERSALS),
            ejections: counters(registry, names::EJECTIONS),
            addresses: gauges(registry, names::ADDRESSES),
            names_failing: gauges(registry, names::NAMES_FAILING),
            differences: counters(registry, names::DIFFERENCES),
            alerts: counters(registry, names::ALERTS),
            refused: counters(registry, names::REFUSED),
            backfilled: counters(registry, names::BACKFILLED),
            suspected: counters(registry, names::SUSPECTED),
            in_flight: gauges(registry, names::IN_FLIGHT),
            limited: gauges(registry, names::LIMITED),
            receipt_broken: gauges(registry, names::RECEIPT_BROKEN),
            retries_enabled: gauges(registry, names::RETRIES_ENABLED),
            alerts_undelivered: gauges(registry, names::ALERTS_UNDELIVERED),
            call_duration: histograms(registry, names::CALL_DURATION, &CALL_BUCKETS),
            attempt_duration: histograms(registry, names::ATTEMPT_DURATION, &CALL_BUCKETS),
            dead_letters: gauges(registry, names::DEAD_LETTERS),
            dead_letter_oldest: {
                let name = names::DEAD_LETTER_OLDEST;
                on(registry, GaugeVec::new(opts(name), &label_names(name)))
            },
        }
    }
}

/// The label values of a family without labels.
const NONE: &[&str] = &[];

/// The closed label first, the free one last: see `labels` for why.
fn label_names(name: Name) -> Vec<&'static str> {
    name.closed
        .into_iter()
        .chain(name.by_route.then_some(ROUTE))
        .collect()
}

fn opts(name: Name) -> Opts {
    Opts::new(name.name, name.help)
}

fn counters(registry: &Registry, name: Name) -> IntCounterVec {
    on(registry, IntCounterVec::new(opts(name), &label_names(name)))
}

fn gauges(registry: &Registry, name: Name) -> IntGaugeVec {
    on(registry, IntGaugeVec::new(opts(name), &label_names(name)))
}

fn histograms(registry: &Registry, name: Name, buckets: &[f64]) -> HistogramVec {
    let opts = HistogramOpts::new(name.name, name.help).buckets(buckets.to_vec());
    on(registry, HistogramVec::new(opts, &label_names(name)))
}

fn on<C: Collector + Clone + 'static>(
    registry: &Registry,
    family: Result<C, prometheus::Error>,
) -> C {
    let family = family.expect("the names in `names` are valid");
    register(registry, family.clone());
    family
}

fn register(registry: &Registry, collector: impl Collector + 'static) {
    registry
        .register(Box::new(collector))
        .expect("every name stands once in `names`");
}

#[cfg(test)]
mod tests;
