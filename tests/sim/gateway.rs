//! One life of the gateway: the real flow over the world's network and disk, from the sweep after
//! the last crash to its own end.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callgate::clock::Clock;
use callgate::compensate::Worker;
use callgate::config::{self, route::Route};
use callgate::entropy::{Entropy, Minter};
use callgate::flow::operate::Order;
use callgate::flow::{ClientNames, Flow, LateRegistry, Promises, Retries, Routes};
use callgate::ledger::{CallView, DeadState, Ledger, Owner, OwnerTest};
use callgate::telemetry::metrics::Metrics;
use callgate::telemetry::readiness::Readiness;
use callgate::upstream::Core;
use callgate::upstream::headers::Node;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::callers;
use crate::disk::Book;
use crate::files;
use crate::jobs;
use crate::pipe::dialer;
use crate::plan::{EndPlan, Rules};
use crate::world::{self, World};

/// By when a world must have come to its end, in ms.
const END_MS: u64 = 400_000;

/// A gateway that lives.
pub(crate) struct Gateway {
    pub(crate) world: World,
    pub(crate) flow: Arc<Flow>,
    pub(crate) core: Core,
    pub(crate) minter: Arc<Minter>,
    pub(crate) life: u32,
    /// When it began, in the world's time.
    pub(crate) base: u64,
}

/// How long a gateway that is taken over from has to let go of its rows.
const LETS_GO_WITHIN: Duration = Duration::from_millis(200);

/// Which gateway of its life it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comes {
    /// After everybody else has died.
    First,
    /// While another one lives.
    Beside,
    /// After another one has let the ledger go.
    After,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It was killed.
    Killed,
    /// Everything has come to its end.
    Over,
}

thread_local! {
    /// Routes and metrics are dear; worlds are many.
    static ROUTES: RefCell<HashMap<Rules, Arc<Route>>> = RefCell::default();
    static METRICS: Arc<Metrics> = Arc::new(Metrics::new("sim"));
}

/// Lives once, until the planned end or the world's.
pub(crate) fn live(world: &World, end: Option<EndPlan>) -> Ended {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true);
    #[cfg(tokio_unstable)]
    {
        let seed = world.lock().plan.seed;
        builder.rng_seed(tokio::runtime::RngSeed::from_bytes(&seed.to_le_bytes()));
    }
    let runtime = builder.build().expect("a runtime without sockets");
    let ended = runtime.block_on(async {
        let touch = match end {
            Some(EndPlan::KillAtTouch { n, after }) => Some((n, after)),
            Some(EndPlan::KillAt(_) | EndPlan::Drain(_)) | None => None,
        };
        let (clock, base, life, crash) = {
            let mut state = world.lock();
            let clock = state.begins(touch);
            (clock, state.base(), state.life, Arc::clone(&state.crash))
        };
        drop(tokio::spawn(world::turn(world.clone(), clock.clone())));
        let ended = tokio::select! {
            biased;
            () = crash.notified() => Ended::Killed,
            ended = serve(world, clock, life, base, end) => ended,
        };
        // What its tasks do while they are dropped must not change anything any more.
        world.lock().dies();
        ended
    });
    drop(runtime);
    let mut state = world.lock();
    state.keep.clear();
    let later = state.dice.pick(&[1, 300, 5_000]);
    state.gone(later);
    ended
}

async fn serve(world: &World, clock: Clock, life: u32, base: u64, end: Option<EndPlan>) -> Ended {
    let gateway = Arc::new(start(world, clock.clone(), life, (base, Comes::First)).await);
    let (callers, twin, handover) = {
        let state = world.lock();
        (state.callers.len(), state.plan.twin, state.plan.handover)
    };
    // Where there are two, every second caller goes to the second one.
    let is_twins = move |n: &usize| twin.is_some() && n % 2 == 1;
    let (theirs, ours): (Vec<_>, Vec<_>) = (0..callers).partition(is_twins);
    let door = opens(&gateway, ours);
    let second = Arc::new(OnceLock::new());
    if let Some(at) = twin {
        let (world, second, clock) = (world.clone(), Arc::clone(&second), clock.clone());
        drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(at)).await;
            world
                .lock()
                .say(|| "### a second gateway begins".to_owned());
            let twin = Arc::new(start(&world, clock, life, (base, Comes::Beside)).await);
            opens(&twin, theirs);
            second.set(twin).ok().expect("there is one twin");
        }));
    }
    if let Some(at) = handover {
        let (first, second) = (Arc::clone(&gateway), Arc::clone(&second));
        drop(tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(at)).await;
            let next = Arc::new(hands_over(&first, clock).await);
            works(&next);
            *door.lock() = Arc::clone(&next);
            second.set(next).ok().expect("there is one successor");
        }));
    }
    let ended = tokio::select! {
        biased;
        () = dies(&gateway, end) => return Ended::Killed,
        ended = over(&gateway) => ended,
    };
    for gateway in [Some(&gateway), second.get()].into_iter().flatten() {
        lets_go(gateway).await;
    }
    ended
}

/// Lets another gateway have the ledger, as a process does that is taken over from; the other one.
async fn hands_over(first: &Gateway, clock: Clock) -> Gateway {
    let world = &first.world;
    world
        .lock()
        .say(|| "### another gateway takes over".to_owned());
    let letting_go = tokio::time::timeout(LETS_GO_WITHIN, first.flow.let_go());
    let has_let_go = letting_go.await.is_ok();
    // What was handed over to the disk is written, or has failed; nothing more is.
    drop(first.flow.ledger.close().await);
    {
        let mut state = world.lock();
        let sound = state.plan.disk.fails == 0;
        if has_let_go && sound && state.holds(&first.flow.owner) {
            state.breaks("who hands over lets go of everything", "a row in line");
        }
        state.truth.reached.at("handover");
    }
    start(world, clock, first.life, (first.base, Comes::After)).await
}

/// Takes these callers, and works on the queue and on files. Which gateway they go to can change.
fn opens(gateway: &Arc<Gateway>, callers: Vec<usize>) -> callers::At {
    let door: callers::At = Arc::new(Mutex::new(Arc::clone(gateway)));
    for n in callers {
        drop(tokio::spawn(callers::call(Arc::clone(&door), n)));
    }
    works(gateway);
    door
}

/// Works on the queue and on files.
fn works(gateway: &Arc<Gateway>) {
    files::opens(gateway);
    if gateway.world.lock().plan.jobs {
        jobs::opens(gateway);
    }
    let stop = CancellationToken::new();
    if gateway.world.lock().plan.real_worker {
        let (flow, core) = (Arc::clone(&gateway.flow), gateway.core.clone());
        drop(tokio::spawn(Worker::new(flow, core, stop).run()));
    } else {
        drop(tokio::spawn(rounds(Arc::clone(gateway), stop)));
    }
}

/// Sweeps: after everybody else when it is alone, after the dead when another one lives.
async fn sweeps(world: &World, book: &Arc<dyn Ledger>, owner: &Owner, clock: &Clock, comes: Comes) {
    let dead = match comes {
        Comes::Beside => OwnerTest::LeaseRanOut,
        Comes::First | Comes::After => OwnerTest::AllOthers,
    };
    // Serving starts after the sweep; a gateway that cannot sweep does not start.
    loop {
        let now = clock.wall();
        let before = world.lock().in_line(now);
        if book.recover(owner.clone(), now, dead).await.is_ok() {
            if comes == Comes::Beside {
                world.lock().the_living_keep_theirs(&before);
            }
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn start(world: &World, clock: Clock, life: u32, (base, comes): (u64, Comes)) -> Gateway {
    let core = Core::start(0, clock.clone());
    let (seed, rules, twins) = {
        let state = world.lock();
        let plan = &state.plan;
        (plan.seed, plan.rules.clone(), plan.twin.is_some())
    };
    let beside_others = twins || comes != Comes::First;
    let entropy = Entropy::seeded(seed ^ u64::from(life) ^ ((comes as u64) << 32));
    let owner = Owner::new(&entropy.instance("sim"));
    let book: Arc<dyn Ledger> = Book::new(world, life);
    sweeps(world, &book, &owner, &clock, comes).await;
    let proofs = book.proofs().await.expect("memory is always readable");
    let metrics = METRICS.with(Arc::clone);
    let routes = Routes::build(&[route(&rules)], &metrics, &proofs, 1).expect("a good route");
    for route in routes.all().iter() {
        for (n, site) in route.sites.iter().enumerate() {
            let dialer = |asks| dialer(world, (n, asks), life);
            site.tool.destination().dial_by(dialer(false));
            if let Some(receipts) = &site.receipts {
                receipts.endpoint.destination().dial_by(dialer(true));
            }
            if let Some(reversal) = &site.reversal {
                reversal.destination().dial_by(dialer(false));
            }
        }
    }
    let flow = Flow {
        ledger: book,
        routes,
        clock,
        owner,
        node: Node::new("sim"),
        metrics,
        readiness: Arc::new(Readiness::new()),
        calls: Arc::default(),
        clients: ClientNames::default(),
        retries: Retries::default(),
        promises: Promises::new(8),
        late: Arc::new(LateRegistry::default()),
        draining: CancellationToken::new(),
        beside_others,
        in_line: TaskTracker::new(),
        tasks: TaskTracker::new(),
        entropy: entropy.clone(),
    };
    Gateway {
        world: world.clone(),
        flow: Arc::new(flow),
        core,
        minter: Arc::new(Minter::new("sim", &entropy)),
        life,
        base,
    }
}

fn route(rules: &Rules) -> Arc<Route> {
    ROUTES.with_borrow_mut(|routes| {
        let made = routes.entry(rules.clone()).or_insert_with(|| {
            let text = rules.yaml();
            match config::parse(&text, "sim", Path::new(""), &|_| None) {
                Ok(config) => Arc::clone(&config.routes[0]),
                Err(report) => panic!("{text}\n{report:?}"),
            }
        });
        Arc::clone(made)
    })
}

/// A plain worker: what is due gets its round.
async fn rounds(gateway: Arc<Gateway>, stop: CancellationToken) {
    let flow = &gateway.flow;
    let lease = Duration::from_secs(3);
    while !stop.is_cancelled() {
        let now = flow.clock.wall();
        let claimed = flow
            .ledger
            .claim_due(flow.owner.clone(), now, now.after(lease), 4);
        for due in claimed.await.unwrap_or_default() {
            let (flow, core) = (Arc::clone(flow), gateway.core.clone());
            drop(
                gateway
                    .core
                    .spawn(async move { flow.round(&core, due).await }),
            );
        }
        operates(&gateway);
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
}

/// An operator orders one thing about each call that waits for a human, if there is one.
fn operates(gateway: &Arc<Gateway>) {
    let mut state = gateway.world.lock();
    if !state.plan.orders || !state.is_alive(gateway.life) {
        return;
    }
    let ids: Vec<String> = state.truth.calls.keys().cloned().collect();
    for row in ids
        .iter()
        .filter_map(|id| state.row(id))
        .collect::<Vec<_>>()
    {
        let letter = row.dead_letter.as_ref().map(|letter| letter.state);
        let place = (row.row, row.life);
        if letter != Some(DeadState::Manual) || !state.ordered.insert(place) {
            continue;
        }
        let order = state
            .dice
            .pick(&[Order::Ask, Order::Resend, Order::Reverse]);
        let (flow, core) = (Arc::clone(&gateway.flow), gateway.core.clone());
        state.truth.reached.at("order");
        drop(
            gateway
                .core
                .spawn(async move { flow.order(&core, row.row, row.life, order).await }),
        );
    }
}

/// Comes to its planned end.
async fn dies(gateway: &Gateway, end: Option<EndPlan>) {
    let sleep = |ms| tokio::time::sleep(Duration::from_millis(ms));
    match end {
        Some(EndPlan::KillAt(ms)) => sleep(ms).await,
        Some(EndPlan::Drain(ms)) => {
            sleep(ms).await;
            gateway
                .world
                .lock()
                .say(|| "### the gateway drains".to_owned());
            gateway.flow.draining.cancel();
            sleep(1_000).await;
        }
        // The world knows when.
        Some(EndPlan::KillAtTouch { .. }) | None => std::future::pending().await,
    }
}

/// Waits until every call has come to its end, and holds the gateway to having let go of all.
async fn over(gateway: &Gateway) -> Ended {
    let mut stuck = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut state = gateway.world.lock();
        let now = state.now();
        // What is due by the wall clock waits as long as that was set back during a crash.
        let back = state
            .plan
            .step
            .map_or(0, |(_, by)| (-by).max(0).unsigned_abs());
        if now > END_MS + back {
            state.breaks("everything ends", "not within its time");
            return Ended::Over;
        }
        let done = state.callers.iter().all(callers::Caller::is_done);
        if !done || !state.disk.is_idle() || !state.files_are_over() {
            continue;
        }
        let ids: Vec<String> = state.truth.calls.keys().cloned().collect();
        let rows: Vec<CallView> = ids.iter().filter_map(|id| state.row(id)).collect();
        if rows.iter().all(has_ended) && state.jobs_are_over(&rows) {
            state.bulk.over = true;
            return Ended::Over;
        }
        // In line, but nobody drives it.
        let in_line = |row: &CallView| row.settled.is_none() && row.dead_letter.is_none();
        let mut open = rows.iter().filter(|row| !has_ended(row)).peekable();
        let lost = open.peek().is_some() && open.all(in_line);
        stuck = if lost { stuck + 1 } else { 0 };
        if stuck > 15 {
            state.breaks("everything ends", "a call is stuck in line");
            return Ended::Over;
        }
    }
}

fn has_ended(row: &CallView) -> bool {
    let letter = row.dead_letter.as_ref().map(|letter| letter.state);
    let human = matches!(letter, Some(DeadState::Manual | DeadState::Discarded));
    row.settled.is_some() || human
}

/// Nothing may be left behind: no late exchange, no task, no gauge.
async fn lets_go(gateway: &Gateway) {
    let flow = &gateway.flow;
    flow.tasks.close();
    let left = tokio::time::timeout(Duration::from_secs(60), flow.tasks.wait()).await;
    // Whoever waits for a call that the other gateway has ended looks there once a second.
    let in_flight = || {
        flow.routes
            .all()
            .iter()
            .any(|it| it.metrics.in_flight_now() != 0)
    };
    if gateway.world.lock().plan.twin.is_some() && in_flight() {
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let mut state = gateway.world.lock();
    if left.is_err() {
        state.breaks("everything ends", "a task is left behind");
    }
    let ids: Vec<String> = state.truth.calls.keys().cloned().collect();
    for id in ids {
        if state.row(&id).is_some_and(|row| flow.late.is_open(row.row)) {
            state.breaks("everything ends", &format!("{id} has a late exchange"));
        }
    }
    for route in flow.routes.all().iter() {
        if route.metrics.in_flight_now() != 0 {
            state.breaks("everything ends", "a gauge is not zero");
        }
    }
}
