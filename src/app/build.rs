//! One gateway, from its configuration to its first caller.
//!
//! The order is the safety: the ledger is locked before anything is asked of it, the addresses are
//! ours before the ledger is swept, and nobody is served before the sweep has found what a
//! predecessor left in the middle.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::books::{self, LedgerObserver};
use super::door::CallerDoor;
use super::error::StartError;
use super::reload::{Heeded, Reloader};
use super::sockets::Bound;
use super::upkeep::Upkeep;
use super::{Ground, reach};
use crate::admin::{self, Admin, BatchDoor, TokenDigest};
use crate::batch::{self, Intake};
use crate::compensate::alert::Means;
use crate::compensate::{Alerter, Jobs, Verbs, Worker};
use crate::config::{Config, Source};
use crate::entropy::Minter;
use crate::flow::{ClientNames, Flow, LateRegistry, Promises, Retries, Routes};
use crate::ingress::{Clients, Cores, Ingress, Settings};
use crate::ledger::{Ledger, Owner};
use crate::telemetry::names::ROUTE_NONE;
use crate::telemetry::readiness::Trouble;
use crate::upstream::headers::Node;
use crate::upstream::{Bodies, Core};

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
    /// Stops the compensation worker and that of the batches.
    pub(super) stop_worker: CancellationToken,
    /// Stops what is useful until the end: the operator's listener and upkeep.
    pub(super) stop_rest: CancellationToken,
    /// The operator's listener, upkeep, the look for missing tools.
    pub(super) rest: TaskTracker,
}

/// The file a gateway follows, and what tells it to look there.
pub(super) type Follows = (Option<Source>, Arc<Notify>);

/// Builds a gateway on the current runtime and begins to serve.
pub(super) async fn build(
    config: &Config,
    (source, hung_up): Follows,
    ground: Ground,
) -> Result<Running, StartError> {
    ground
        .readiness
        .raise(Trouble::Starting, "", "the ledger is being read");
    raise_limit(config.limits.connections);
    let observer = LedgerObserver::new(&ground.metrics);
    let ledger = books::open(&config.ledger, ground.clock.wall(), &observer)?;
    let callers = Bound::new("listen", config.listen)?;
    let (stop_rest, rest) = (CancellationToken::new(), TaskTracker::new());
    let admin = Bound::new("admin.listen", config.admin.listen)?.listen()?;
    let (door, admin) = open_admin(config, &ground, &ledger, admin, (&rest, &stop_rest))?;
    let owner = Owner::new(&ground.entropy.instance(&config.node));
    books::sweep(&*ledger, &owner, ground.clock.wall()).await?;

    let bodies = Bodies::new(config.limits.bodies, &ground.metrics);
    let cores = Cores::start(config.workers, &ground.clock, &bodies);
    let cores = cores.map_err(StartError::system("threads"))?;
    let flow = flow(config, &ground, ledger, owner, cores.all().len() + 1).await?;
    let ledger_fails = Arc::new(AtomicBool::new(false));
    let upkeep = upkeep(&ground, &flow, observer, &ledger_fails);
    rest.spawn(upkeep.run(stop_rest.clone()));
    let back = Core::start(cores.all().len(), ground.clock.clone()).within(&bodies);
    let alerter = tell_people(config, &ground, &flow, &back)?;
    rest.spawn(Arc::clone(&alerter).run(stop_rest.clone()));
    let clients = Arc::new(ArcSwap::from_pointee(Clients::new(&config.clients)));
    let caller_door = CallerDoor {
        flow: Arc::clone(&flow),
        clients: Arc::clone(&clients),
        ledger_fails,
    };
    let minter = Arc::new(Minter::new(&config.node, &ground.entropy));
    let ways = (callers, Arc::clone(&minter));
    let ingress = open_ingress(config, &ground, caller_door, &cores, ways)?;
    let heeded = Heeded {
        flow: Arc::clone(&flow),
        clients,
        alerter,
    };
    let follows = (source, config);
    let reloader = Reloader::new(heeded, &ground, cores.all().len() + 1, follows);
    door.open_controls(Arc::clone(&reloader) as _);
    rest.spawn(Arc::clone(&reloader).run(hung_up, stop_rest.clone()));
    ground.readiness.clear(Trouble::Starting, "");

    let stop_worker = CancellationToken::new();
    let batches = open_batches(&door, &flow, (&back, &stop_worker), minter);
    let verbs = Verbs::new(Arc::clone(&flow), back.clone());
    let jobs = Jobs::new(verbs.clone(), stop_worker.clone());
    door.open_desk(verbs);
    let worker = Worker::new(Arc::clone(&flow), back, stop_worker.clone());
    let worker = tokio::spawn(async { tokio::join!(worker.run(), jobs.run()).0 });
    let places = (ingress.address(), admin);
    greet((config, &reloader), &ground, places, (&rest, &stop_rest)).await;
    Ok(Running {
        ground,
        flow,
        cores,
        ingress,
        admin,
        worker,
        batches,
        reloader,
        stop_worker,
        stop_rest,
        rest,
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
    let missing = reach::look(&config.routes, &readiness).await;
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
    cores: usize,
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
        node: Node::new(&config.node),
        metrics: Arc::clone(&ground.metrics),
        readiness: Arc::clone(&ground.readiness),
        calls: Arc::default(),
        clients,
        retries: Retries::default(),
        promises: Promises::new(config.limits.async_calls),
        late: Arc::new(LateRegistry::default()),
        draining: CancellationToken::new(),
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
    rest.spawn(admin::serve(listener, router, stop.clone()));
    Ok((admin, address))
}

fn open_ingress(
    config: &Config,
    ground: &Ground,
    door: CallerDoor,
    cores: &Cores,
    (listener, minter): (Bound, Arc<Minter>),
) -> Result<Ingress, StartError> {
    let settings = Settings {
        limits: config.limits,
        node: door.flow.node.clone(),
        clock: ground.clock.clone(),
        minter,
        metrics: Arc::clone(&ground.metrics),
        unrouted: ground.metrics.route(ROUTE_NONE),
    };
    Ingress::open(listener.listen()?, cores, Arc::new(door), settings)
        .map_err(StartError::system("the acceptor's thread"))
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
