//! The worker over a memory ledger, in virtual time.
//!
//! The calls here belong to a route that is no longer configured: a round puts such a call in front
//! of a human without asking anybody, which is all these tests need a round for.

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::task::JoinHandle;

use super::*;
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::time::Wall;
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::flow::{ClientNames, LateRegistry, Promises, Retries};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{
    Begun, DeadState, Filter, Intention, KeyScope, Ledger as _, NewCall, Owner, Park, Place,
    StoredRequest, Written,
};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use crate::upstream::headers::Node;

pub(in crate::compensate) const NOW: Wall = Wall(1_700_000_000_000);

struct World {
    ledger: Arc<MemoryLedger>,
    stop: CancellationToken,
    worker: JoinHandle<()>,
}

impl World {
    /// A worker over calls that are due after these seconds.
    async fn start(due: &[u64], failures: u64) -> Self {
        let ledger = Arc::new(MemoryLedger::new(NOW, Duration::from_secs(60)));
        for (n, after) in due.iter().enumerate() {
            park(&ledger, n, NOW.after(Duration::from_secs(*after))).await;
        }
        ledger.fail_writes(failures);
        let (clock, _) = Clock::simulated(NOW);
        let flow = flow_over(&ledger, &clock);
        let stop = CancellationToken::new();
        let worker = Worker::new(flow, Core::start(0, clock), stop.clone());
        let worker = tokio::spawn(worker.run());
        Self {
            ledger,
            stop,
            worker,
        }
    }

    async fn in_state(&self, state: DeadState) -> usize {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        self.ledger
            .dead_letters(filter, None, 100)
            .await
            .unwrap()
            .items
            .len()
    }
}

/// A flow without routes over this ledger.
pub(in crate::compensate) fn flow_over(ledger: &Arc<MemoryLedger>, clock: &Clock) -> Arc<Flow> {
    Arc::new(Flow {
        ledger: Arc::clone(ledger) as _,
        routes: Routes::default(),
        clock: clock.clone(),
        entropy: Entropy::seeded(1),
        owner: Owner::new("worker"),
        node: Node::new("n"),
        metrics: Arc::new(Metrics::new("0")),
        readiness: Arc::new(Readiness::new()),
        calls: Arc::default(),
        clients: ClientNames::default(),
        retries: Retries::default(),
        promises: Promises::new(8),
        late: Arc::new(LateRegistry::default()),
        draining: CancellationToken::new(),
        beside_others: false,
        in_line: TaskTracker::new(),
        tasks: TaskTracker::new(),
    })
}

pub(in crate::compensate) async fn park(ledger: &MemoryLedger, n: usize, due: Wall) {
    let call = NewCall {
        client: ClientName::anonymous(),
        call_id: CallId::parse(format!("c-{n}").as_bytes()).unwrap(),
        source: IdSource::Client,
        route: "gone".into(),
        siblings: Arc::default(),
        upstream: "http://tool".into(),
        policy: "{}".into(),
        fingerprint: Fingerprint([1; 32]),
        idempotency_key: None,
        scope: Arc::new(KeyScope::new(&"gone".into())),
        wary: false,
        business_key: None,
        request: StoredRequest {
            method: Method::POST,
            target: "/".into(),
            headers: HeaderMap::new(),
            body: Bytes::new(),
            credential: false,
        },
        trace: None,
        owner: Owner::new("line"),
        lease_until: NOW,
        now: NOW,
        window: Duration::from_secs(60),
        first_send: true,
        promised: false,
        exclusive_id: true,
        reverses: None,
    };
    let Ok(Begun::Claimed(claim)) = ledger.begin(call).await else {
        panic!("the id is new");
    };
    let park = Intention::Park(Park {
        reason: "timeout".into(),
        place: Place::Queued { due },
        reached: true,
        last_error: "timeout".into(),
        kept: None,
    });
    assert_eq!(
        ledger.append(claim, NOW, park).await.unwrap(),
        Written::Applied
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_due_is_taken_up_and_what_is_not_waits() {
    let world = World::start(&[0, 0, 0, 10], 0).await;
    clock::sleep(Duration::from_secs(2)).await;
    assert_eq!(world.in_state(DeadState::Manual).await, 3);
    assert_eq!(world.in_state(DeadState::Queued).await, 1);
    clock::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.in_state(DeadState::Manual).await, 4);
}

#[tokio::test(start_paused = true)]
async fn it_stops_when_told_and_claims_nothing_more() {
    let world = World::start(&[5], 0).await;
    clock::sleep(Duration::from_secs(1)).await;
    world.stop.cancel();
    let World { ledger, worker, .. } = world;
    worker.await.unwrap();
    clock::sleep(Duration::from_secs(10)).await;
    let page = ledger
        .dead_letters(Filter::default(), None, 10)
        .await
        .unwrap();
    assert_eq!(page.items[0].state, DeadState::Queued);
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_fails_for_a_while_is_taken_up_again() {
    // Away for 1 s, then 2 s.
    let world = World::start(&[0], 2).await;
    clock::sleep(Duration::from_millis(2_900)).await;
    assert_eq!(world.in_state(DeadState::Queued).await, 1);
    clock::sleep(Duration::from_millis(500)).await;
    assert_eq!(world.in_state(DeadState::Manual).await, 1);
}

#[test]
fn a_failing_ledger_is_asked_at_growing_distances_and_a_good_one_at_once_again() {
    let mut mood = Mood::Idle;
    let mut waits = Vec::new();
    for _ in 0..7 {
        mood = mood.failed(&LedgerError::Closed);
        waits.push(mood.pause(Mono(0)).as_secs());
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    assert_eq!(mood.claimed(0, Mono(0)).pause(Mono(0)), POLL_IDLE);
}

#[test]
fn it_looks_often_while_something_is_due_and_seldom_when_nothing_was_for_a_while() {
    let now = Mono(0);
    let mood = Mood::Idle.claimed(3, now);
    assert_eq!(mood.pause(now), POLL_BUSY);
    let soon = now.after(BUSY_FOR / 2);
    let mood = mood.claimed(0, soon);
    assert_eq!(mood.pause(soon), POLL_BUSY);
    let later = now.after(BUSY_FOR);
    let mood = mood.claimed(0, later);
    assert_eq!(mood.pause(later), POLL_IDLE);
}
