//! One gateway, from its configuration to its first caller.
//!
//! The order is the safety: the ledger is locked before anything is asked of it, the addresses are
//! ours before the ledger is swept, and nobody is served before the sweep has found what a
//! predecessor left in the middle.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::books::{self, LedgerObserver};
use super::door::CallerDoor;
use super::error::StartError;
use super::reload::{Heeded, Reloader};
use super::sockets::{Bound, Held, Inherited, Sockets, Spare};
use super::upkeep::Upkeep;
use super::{Ground, Predecessor, reach};
use crate::admin::{self, Admin, BatchDoor, TokenDigest};
use crate::batch::{self, Intake};
use crate::compensate::alert::Means;
use crate::compensate::{Alerter, Jobs, Verbs, Worker};
use crate::config::{Config, Source};
use crate::entropy::Minter;
use crate::flow::{ClientNames, Flow, LateRegistry, Promises, Retries, Routes};
use crate::ingress::{Cores, Ingress, Settings};
use crate::ledger::{Ledger, Owner};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::names::ROUTE_NONE;
use crate::telemetry::readiness::Trouble;
use crate::upstream::headers::Node;
use crate::upstream::{Bodies, Core};

/// What this process was given by another one.
#[derive(Default)]
pub struct Entrance {
    /// Listening sockets.
    pub inherited: Vec<Inherited>,
    /// The process that is taken over from.
    pub predecessor: Option<Predecessor>,
}

/// Longer than the other process has for its drain: how long a ledger is waited for besides.
const LEDGER_SLACK: Duration = Duration::from_secs(5);

/// A gateway at work; lives on the background runtime.
pub(super) struct Running {
    pub(super) ground: Ground,
    pub(super) flow: Arc<Flow>,
    pub(super) cores: Cores,
    pub(super) ingress: Ingress,
    pub(super) admin: SocketAddr,
    pub(super) worker: JoinHandle<()>,
    pub(super) batches: JoinHandle<()>,
    /// The configuration in force.
    pub(super) reloader: Arc<Reloader>,
    /// Its sockets, for a process that takes over; shared with the handle.
    pub(super) held: Arc<Mutex<Option<Held>>>,
    /// The process that was taken over from, until it is told that callers are served.
    pub(super) predecessor: Option<Predecessor>,
    /// Stops the compensation worker and that of the batches.
    pub(super) stop_worker: CancellationToken,
    /// Stops what is useful until the end: the operator's listener and upkeep.
    pub(super) stop_rest: CancellationToken,
    /// The operator's listener, upkeep, the look for missing tools.
    pub(super) rest: TaskTracker,
}

/// The file a gateway follows, and what tells it to look there, or to drain.
pub(super) struct Follows {
    pub(super) source: Option<Source>,
    pub(super) hung_up: Arc<Notify>,
    pub(super) stop: CancellationToken,
}

/// Builds a gateway on the current runtime and begins to serve.
pub(super) async fn build(
    config: &Config,
    follows: Follows,
    ground: Ground,
    entrance: Entrance,
) -> Result<Running, StartError> {
    let readiness = &ground.readiness;
    readiness.raise(Trouble::Starting, "", "the ledger is being read");
    raise_limit(config.limits.connections);
    let observer = LedgerObserver::new(&ground.metrics);
    let Ours {
        sockets,
        predecessor,
        ledger,
    } = take(config, &ground, &observer, entrance).await?;
    let (stop_rest, rest) = (CancellationToken::new(), TaskTracker::new());
    let (admin, operators) = sockets.operators.listen()?;
    let (door, admin) = open_admin(config, &ground, &ledger, admin, (&rest, &stop_rest))?;
    let owner = Owner::new(&ground.entropy.instance(&config.node));
    books::sweep(&*ledger, &owner, ground.clock.wall()).await?;

    let bodies = Bodies::new(config.limits.bodies, &ground.metrics);
    let cores = Cores::start(config.workers, &ground.clock, &bodies)
        .map_err(StartError::system("threads"))?;
    let around = (cores.all().len() + 1, predecessor.is_some());
    let flow = flow(config, &ground, ledger, owner, around).await?;
    let ledger_fails = Arc::new(AtomicBool::new(false));
    let upkeep = upkeep(&ground, &flow, observer, &ledger_fails);
    rest.spawn(upkeep.run(stop_rest.clone()));
    let back = Core::start(cores.all().len(), ground.clock.clone()).within(&bodies);
    let alerter = tell_people(config, &ground, &flow, &back)?;
    rest.spawn(Arc::clone(&alerter).run(stop_rest.clone()));
    let heeded = Heeded::new(&flow, &config.clients, alerter);
    let caller_door = CallerDoor {
        flow: Arc::clone(&flow),
        clients: Arc::clone(&heeded.clients),
        ledger_fails,
    };
    let minter = Arc::new(Minter::new(&config.node, &ground.entropy));
    let ways = (sockets.callers, Arc::clone(&minter));
    let (ingress, callers) = open_ingress(config, &ground, caller_door, &cores, ways)?;
    let held = Arc::new(Mutex::new(Some(Held { callers, operators })));
    let in_force = (follows.source, config, follows.stop);
    let reloader = Reloader::new(heeded, &ground, cores.all().len() + 1, in_force);
    door.open_controls(Arc::clone(&reloader) as _);
    rest.spawn(Arc::clone(&reloader).run(follows.hung_up, stop_rest.clone()));
    ground.readiness.clear(Trouble::Starting, "");

    let stop_worker = CancellationToken::new();
    let batches = open_batches(&door, &flow, (&back, &stop_worker), minter);
    let worker = open_queue(&door, &flow, back, &stop_worker);
    let at = (ingress.address(), admin);
    let told = (config, &reloader);
    greet(told, &ground, at, (&rest, &stop_rest)).await;
    Ok(Running {
        ground,
        flow,
        cores,
        ingress,
        admin,
        worker,
        batches,
        reloader,
        held,
        predecessor,
        stop_worker,
        stop_rest,
        rest,
    })
}

/// What has to be ours alone before anything is done.
struct Ours {
    sockets: Sockets,
    predecessor: Option<Predecessor>,
    ledger: Arc<dyn Ledger>,
}

async fn take(
    config: &Config,
    ground: &Ground,
    observer: &Arc<LedgerObserver>,
    entrance: Entrance,
) -> Result<Ours, StartError> {
    let sockets = Sockets::of(config, entrance.inherited)?;
    let predecessor = entrance.predecessor.map(|before| succeed(before, config));
    let predecessor = predecessor.transpose()?;
    let patience = patience(config, &sockets);
    let ledger = books::open_within(&config.ledger, &ground.clock, observer, patience).await?;
    Ok(Ours {
        sockets,
        predecessor,
        ledger,
    })
}

fn open_batches(
    door: &Admin,
    flow: &Arc<Flow>,
    (back, stop): (&Core, &CancellationToken),
    minter: Arc<Minter>,
) -> JoinHandle<()> {
    let taking = Arc::new(Intake::new(Arc::clone(flow), minter));
    let worker = batch::Worker::new(Arc::clone(flow), back.clone(), &taking, stop.clone());
    let batches = tokio::spawn(worker.run());
    door.batches.open(taking);
    batches
}

/// Lets operators in, and starts the worker of the queue and that of bulk jobs.
fn open_queue(
    door: &Admin,
    flow: &Arc<Flow>,
    core: Core,
    stop: &CancellationToken,
) -> JoinHandle<()> {
    let verbs = Verbs::new(Arc::clone(flow), core.clone());
    let jobs = Jobs::new(verbs.clone(), stop.clone());
    door.open_desk(verbs);
    let worker = Worker::new(Arc::clone(flow), core, stop.clone());
    tokio::spawn(async { tokio::join!(worker.run(), jobs.run()).0 })
}

fn upkeep(
    ground: &Ground,
    flow: &Flow,
    observer: Arc<LedgerObserver>,
    ledger_fails: &Arc<AtomicBool>,
) -> Upkeep {
    Upkeep {
        ledger: Arc::clone(&flow.ledger),
        observer,
        metrics: Arc::clone(&ground.metrics),
        readiness: Arc::clone(&ground.readiness),
        clock: ground.clock.clone(),
        ledger_fails: Arc::clone(ledger_fails),
    }
}

/// Who tells people what happens to calls, of the routes that have a webhook.
fn tell_people(
    config: &Config,
    ground: &Ground,
    flow: &Flow,
    core: &Core,
) -> Result<Arc<Alerter>, StartError> {
    let alerter = Alerter::new(Means {
        ledger: Arc::clone(&flow.ledger),
        core: core.clone(),
        node: Arc::clone(&config.node),
        metrics: Arc::clone(&ground.metrics),
        readiness: Arc::clone(&ground.readiness),
    });
    alerter.replace(Alerter::prepare(&config.routes)?);
    Ok(Arc::new(alerter))
}

/// Looks for the tools, then says that callers are served and where.
async fn greet(
    (config, reloader): (&Config, &Arc<Reloader>),
    ground: &Ground,
    (listen, admin): (SocketAddr, SocketAddr),
    (rest, stop): (&TaskTracker, &CancellationToken),
) {
    let readiness = Arc::clone(&ground.readiness);
    let missing = reach::look(&config.routes, &BTreeSet::new(), &readiness).await;
    let (reloader, stop) = (Arc::clone(reloader), stop.clone());
    rest.spawn(async move {
        let routes = || reloader.config().routes.clone();
        let again = reach::look_again(missing, &reloader.changed, routes, &readiness);
        stop.run_until_cancelled(again).await.unwrap_or_default();
    });
    let memory_mib_max = config.memory(config.cores()).mib();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(%listen, %admin, version, memory_mib_max, "serving");
}

async fn flow(
    config: &Config,
    ground: &Ground,
    ledger: Arc<dyn Ledger>,
    owner: Owner,
    (cores, beside_others): (usize, bool),
) -> Result<Arc<Flow>, StartError> {
    let remembered = ledger.proofs().await?;
    let routes = Routes::build(&config.routes, &ground.metrics, &remembered, cores)?;
    let clients = ClientNames::default();
    clients.replace(&config.clients);
    Ok(Arc::new(Flow {
        ledger,
        routes,
        clock: ground.clock.clone(),
        entropy: ground.entropy.clone(),
        owner,
        beside_others,
        node: Node::new(&config.node),
        metrics: Arc::clone(&ground.metrics),
        readiness: Arc::clone(&ground.readiness),
        calls: Arc::default(),
        clients,
        retries: Retries::default(),
        promises: Promises::new(config.limits.async_calls),
        late: Arc::new(LateRegistry::default()),
        draining: CancellationToken::new(),
        in_line: TaskTracker::new(),
        tasks: TaskTracker::new(),
    }))
}

fn open_admin(
    config: &Config,
    ground: &Ground,
    ledger: &Arc<dyn Ledger>,
    listener: std::net::TcpListener,
    (rest, stop): (&TaskTracker, &CancellationToken),
) -> Result<(Arc<Admin>, SocketAddr), StartError> {
    let system = StartError::system;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(system("a listener"))?;
    let address = listener.local_addr().map_err(system("a listener"))?;
    let clock = ground.clock.clone();
    let admin = Admin {
        ledger: Arc::clone(ledger),
        metrics: Arc::clone(&ground.metrics),
        readiness: Arc::clone(&ground.readiness),
        now: Arc::new(move || clock.wall()),
        config: config.effective(),
        batches: BatchDoor::new(stop.clone()),
        token: config
            .admin
            .token
            .as_ref()
            .map(|token| TokenDigest::of(token.reveal())),
        verbs: OnceLock::new(),
        controls: OnceLock::new(),
    };
    let admin = Arc::new(admin);
    let router = admin::router(Arc::clone(&admin));
    rest.spawn(admin::serve(
        listener,
        router,
        Arc::clone(&ground.metrics),
        stop.clone(),
    ));
    Ok((admin, address))
}

fn open_ingress(
    config: &Config,
    ground: &Ground,
    door: CallerDoor,
    cores: &Cores,
    (listener, minter): (Bound, Arc<Minter>),
) -> Result<(Ingress, Spare), StartError> {
    let settings = Settings {
        limits: config.limits,
        node: door.flow.node.clone(),
        clock: ground.clock.clone(),
        minter,
        metrics: Arc::clone(&ground.metrics),
        unrouted: ground.metrics.route(ROUTE_NONE),
    };
    let (listener, spare) = listener.listen()?;
    let ingress = Ingress::open(listener, cores, Arc::new(door), settings);
    let ingress = ingress.map_err(StartError::system("the acceptor's thread"))?;
    Ok((ingress, spare))
}

/// How long the ledger is waited for. Who starts on sockets that another process has too is meant
/// to come after it; who starts on its own beside another process was started by mistake.
fn patience(config: &Config, sockets: &Sockets) -> Duration {
    if sockets.callers.is_inherited() {
        config.drain.delay + config.drain.grace + LEDGER_SLACK
    } else {
        Duration::ZERO
    }
}

/// Proves what can be proved beside the process that still serves, and has it let go then.
fn succeed(mut predecessor: Predecessor, config: &Config) -> Result<Predecessor, StartError> {
    let scratch = Metrics::new(env!("CARGO_PKG_VERSION"));
    Routes::build(&config.routes, &scratch, &[], 1)?;
    books::examine(&config.ledger)?;
    predecessor.ready();
    Ok(predecessor)
}

/// Sockets of one caller's connection with a call on it: its own, and the one to the tool.
const SOCKETS_PER_CONNECTION: u64 = 2;

/// Raises the limit on open files as far as this user may: every connection is one.
fn raise_limit(connections: usize) {
    let wanted = (connections as u64).saturating_mul(SOCKETS_PER_CONNECTION);
    match rlimit::increase_nofile_limit(u64::MAX) {
        Ok(limit) if limit < wanted => tracing::warn!(
            limit,
            wanted,
            "few files may be open for so many connections; raise `ulimit -Hn`, or lower \
             limits.connections"
        ),
        Ok(_) => {}
        Err(error) => {
            tracing::warn!(%error, "the limit on open files could not be raised");
        }
    }
}
