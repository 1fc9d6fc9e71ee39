//! The alerter over a memory ledger and a receiver, in virtual time.

mod inbox;
mod reload;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tokio::task::JoinHandle;

use super::*;
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::clock::Clock;
use crate::config;
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{
    Begun, Claim, Fact, FactWritten, Intention, KeyScope, NewCall, News, Owner, Park, Place, RowId,
    StoredRequest, Verdict, Written,
};
use inbox::{Act, Inbox, Plan};

const NOW: Wall = Wall(1_700_000_000_000);
const HOUR: Duration = Duration::from_secs(3_600);
const SELDOM: Duration = Duration::from_secs(20);
const ALWAYS: Plan = |_| Act::Answer(204);
const NEVER: Plan = |_| Act::Answer(503);

struct World {
    ledger: Arc<MemoryLedger>,
    clock: Clock,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    inbox: Inbox,
    /// What the route is called, with what it was called before.
    route: &'static str,
    rule: String,
    every: Duration,
    running: Option<(Arc<Alerter>, CancellationToken, JoinHandle<()>)>,
    calls: u32,
}

impl World {
    /// An alerter of the route `r` with these keys besides the webhook.
    fn start(keys: &str, plan: Plan) -> Self {
        Self::looking_every(LOOK_EVERY, keys, plan)
    }

    /// The same, for days that would be long in seconds.
    fn looking_every(every: Duration, keys: &str, plan: Plan) -> Self {
        let mut world = Self {
            every,
            ledger: Arc::new(MemoryLedger::new(NOW, HOUR * 24 * 30)),
            clock: Clock::simulated(NOW).0,
            metrics: Arc::new(Metrics::new("0")),
            readiness: Arc::new(Readiness::new()),
            inbox: Inbox::new(plan),
            route: "r",
            rule: rule(keys),
            running: None,
            calls: 0,
        };
        world.wake();
        world
    }

    /// The receivers of the routes as they are written now.
    fn receivers(&self) -> Receivers {
        let text = format!(
            "routes:\n  - name: {}\n    upstream: {{ url: \"http://t\" }}\n    compensation: {{ \
             {} }}\n",
            self.route, self.rule
        );
        let config = config::parse(&text, "", std::path::Path::new("/"), &|_| None);
        let config = config.unwrap_or_else(|report| panic!("{report}"));
        Alerter::prepare(&config.routes).unwrap()
    }

    /// Starts an alerter, as a process does.
    fn wake(&mut self) {
        let stop = CancellationToken::new();
        let mut alerter = Alerter::new(Means {
            ledger: Arc::clone(&self.ledger) as _,
            core: Core::start(0, self.clock.clone()),
            node: "node07".into(),
            metrics: Arc::clone(&self.metrics),
            readiness: Arc::clone(&self.readiness),
        });
        alerter.every = self.every;
        let alerter = Arc::new(alerter);
        self.replace(&alerter);
        let task = tokio::spawn(Arc::clone(&alerter).run(stop.clone()));
        self.running = Some((alerter, stop, task));
    }

    fn replace(&self, alerter: &Alerter) {
        alerter.replace(self.receivers());
        for post in &alerter.desk.load().posts {
            post.hook.destination().dial_by(self.inbox.dialer());
        }
    }

    /// Another configuration comes into force, with these keys besides the webhook.
    fn reload(&mut self, keys: &str) {
        self.rule = rule(keys);
        let (alerter, ..) = self.running.as_ref().expect("it runs");
        self.replace(alerter);
    }

    /// Ends it, as a crash does.
    async fn die(&mut self) {
        let (_, _, task) = self.running.take().expect("it runs");
        task.abort();
        drop(task.await);
    }

    fn begin(&mut self) -> Claim {
        self.calls += 1;
        let id = format!("c{}", self.calls);
        let now = self.clock.wall();
        let call = NewCall {
            client: ClientName::anonymous(),
            call_id: CallId::parse(id.as_bytes()).unwrap(),
            source: IdSource::Client,
            route: "r".into(),
            siblings: Arc::default(),
            upstream: "http://t".into(),
            policy: "".into(),
            fingerprint: Fingerprint([0; 32]),
            idempotency_key: None,
            scope: Arc::new(KeyScope::new(&"r".into())),
            wary: false,
            reverses: None,
            business_key: None,
            request: StoredRequest {
                method: Method::POST,
                target: "/".into(),
                headers: HeaderMap::new(),
                body: Bytes::new(),
                credential: false,
            },
            trace: None,
            owner: Owner::new("o"),
            lease_until: now,
            now,
            window: HOUR,
            first_send: true,
            promised: false,
            exclusive_id: true,
        };
        match self.ledger.begin(call).wait().unwrap() {
            Begun::Claimed(claim) => claim,
            other => panic!("{other:?}"),
        }
    }

    /// A call ends in front of a human.
    fn manual(&mut self) -> RowId {
        let claim = self.begin();
        let how = Park {
            reason: "rounds-exhausted".into(),
            place: Place::Manual,
            reached: true,
            last_error: "receipt: UNKNOWN".into(),
            kept: None,
        };
        let parked = self
            .ledger
            .append(claim, self.clock.wall(), Intention::Park(how));
        assert_eq!(parked.wait().unwrap(), Written::Applied);
        claim.row
    }

    /// The receipt says so, however the call stands.
    fn receipt(&self, row: RowId, verdict: Verdict) {
        let fact = Fact {
            row,
            life: 1,
            now: self.clock.wall(),
            entries: Vec::new(),
            news: News::Receipt {
                verdict,
                reply: None,
                document: None,
            },
        };
        let written = self.ledger.fact(fact).wait().unwrap();
        assert_ne!(written, FactWritten::Gone);
    }

    async fn pass(&self, time: Duration) {
        clock::sleep(time).await;
    }

    fn undelivered(&self) -> bool {
        self.readiness.has(Trouble::AlertsUndelivered)
    }

    fn counted(&self) -> (u64, u64) {
        let alerts = &self.metrics.route("r").alerts;
        (alerts.get(Alert::Delivered), alerts.get(Alert::Failed))
    }
}

/// The section of a route whose alerts go to the inbox.
fn rule(keys: &str) -> String {
    format!("alert: {{ webhook: \"http://hook/in\"{keys} }}")
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_alert_that_names_a_few_calls() {
    let mut world = World::start("", ALWAYS);
    for _ in 0..500 {
        world.manual();
    }
    world.pass(Duration::from_secs(5)).await;
    let taken = world.inbox.taken();
    let [alert] = &taken[..] else {
        panic!("{taken:?}")
    };
    assert_eq!(alert["event"], "manual");
    assert_eq!(
        (&alert["route"], &alert["node"]),
        (&"r".into(), &"node07".into())
    );
    assert_eq!(
        (&alert["count"], &alert["suppressed"]),
        (&500.into(), &0.into())
    );
    assert_eq!(alert["calls"].as_array().unwrap().len(), 5);
    assert_eq!(alert["calls"][0]["callId"], "c1");
    assert_eq!(alert["calls"][0]["reason"], "rounds-exhausted");
    assert!(
        alert["text"]
            .as_str()
            .unwrap()
            .contains("callgate dead list --state MANUAL")
    );
    assert_eq!(world.counted(), (1, 0));
    let head = &world.inbox.arrived()[0];
    assert!(head.head.starts_with("POST /in HTTP/1.1"), "{}", head.head);
    assert_eq!(head.field("x-callgate-alert"), alert["id"].as_str());
    assert_eq!(head.field("x-callgate-signature"), None);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_is_down_for_a_day_is_an_alert_an_hour() {
    let mut world = World::looking_every(SELDOM, "", ALWAYS);
    for _ in 0..24 * 5 {
        world.manual();
        world.pass(HOUR / 5).await;
    }
    world.pass(HOUR).await;
    let taken = world.inbox.taken();
    assert_eq!(taken.len(), 25, "one at once, one after each hour");
    let sum = |member: &str| -> u64 { taken.iter().map(|a| a[member].as_u64().unwrap()).sum() };
    assert_eq!(sum("count"), 24 * 5);
    // The first is told at once; so is one that comes up just as a window ends.
    assert!(sum("suppressed") >= 24 * 5 - 25, "{}", sum("suppressed"));
    // And then there is nothing more to tell.
    let asked = world.inbox.asked();
    world.pass(HOUR * 3).await;
    assert_eq!((asked, world.inbox.asked()), (25, 25));
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_twice_gets_the_same_alert_three_times() {
    let mut world = World::start("", |n| Act::Answer(if n <= 2 { 500 } else { 200 }));
    world.manual();
    world.pass(Duration::from_millis(1_500)).await;
    assert!(world.undelivered() || world.inbox.arrived().len() == 1);
    world.pass(Duration::from_secs(10)).await;
    let arrived = world.inbox.arrived();
    assert_eq!(arrived.len(), 3);
    let ids: Vec<_> = arrived.iter().map(|a| a.document()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(world.counted(), (1, 2));
    assert!(!world.undelivered());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_for_a_day_is_asked_seldom_and_told_all_in_the_end() {
    let mut world = World::looking_every(SELDOM, "", NEVER);
    for _ in 0..24 {
        world.manual();
        world.pass(HOUR).await;
    }
    let tries = world.inbox.asked();
    assert!((90..=120).contains(&tries), "{tries}");
    assert!(world.undelivered());
    let trouble = &world.readiness.conditions()[0];
    assert!(trouble.detail.contains("http://hook"), "{}", trouble.detail);
    assert!(trouble.detail.contains("503"), "{}", trouble.detail);
    assert!(
        world.readiness.is_ready(),
        "callers are served all the same"
    );
    world.inbox.plan(ALWAYS);
    world.pass(HOUR).await;
    let taken = world.inbox.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0]["count"], 24);
    assert!(!world.undelivered());
}

#[tokio::test(start_paused = true)]
async fn an_alert_outlives_its_process_and_is_told_once() {
    let mut world = World::start("", NEVER);
    world.manual();
    world.pass(Duration::from_secs(2)).await;
    let before = world.inbox.arrived()[0].document()["id"].clone();
    world.die().await;
    // Came up while nobody looked.
    world.manual();
    world.inbox.plan(ALWAYS);
    for _ in 0..20 {
        world.wake();
        world.pass(Duration::from_secs(90)).await;
        world.die().await;
    }
    let taken = world.inbox.taken();
    assert_eq!(taken.len(), 1, "{taken:?}");
    assert_eq!((&taken[0]["id"], &taken[0]["count"]), (&before, &2.into()));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_or_missing_receiver_is_given_up_after_ten_seconds() {
    for plan in [|_| Act::Hang, |_| Act::Refuse] as [Plan; 2] {
        let mut world = World::start("", plan);
        world.manual();
        world.pass(Duration::from_secs(15)).await;
        assert!(world.inbox.asked() >= 1);
        assert!(world.undelivered());
        world.inbox.plan(ALWAYS);
        world.pass(Duration::from_secs(60)).await;
        assert_eq!(world.inbox.taken().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn each_event_has_a_window_of_its_own() {
    let mut world = World::start("", ALWAYS);
    let claim = world.begin();
    for verdict in [Verdict::Success, Verdict::Failed] {
        world.receipt(claim.row, verdict);
    }
    world.manual();
    world.pass(Duration::from_secs(3)).await;
    let events: Vec<_> = world
        .inbox
        .taken()
        .iter()
        .map(|a| a["event"].clone())
        .collect();
    assert_eq!(events, ["manual", "difference"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_asked_for_is_not_told() {
    let mut world = World::start(", on: [reversed]", ALWAYS);
    world.manual();
    world.pass(HOUR).await;
    assert_eq!(world.inbox.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_age_of_the_oldest_call_is_told_while_it_lasts() {
    let keys = ", on: [], oldest_over: 30m, repeat: 2h";
    let mut world = World::looking_every(SELDOM, keys, ALWAYS);
    let row = world.manual();
    world.pass(HOUR / 2).await;
    assert_eq!(world.inbox.taken().len(), 0);
    world.pass(SELDOM * 2).await;
    assert_eq!(world.inbox.taken()[0]["event"], "oldest_over");
    assert_eq!(world.inbox.taken()[0]["calls"][0]["callId"], "c1");
    world.pass(HOUR * 9).await;
    assert_eq!(world.inbox.taken().len(), 5, "every two hours");
    world.receipt(row, Verdict::Success);
    world.pass(HOUR * 9).await;
    assert_eq!(world.inbox.taken().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn an_age_that_is_over_before_it_could_be_told_is_dropped() {
    let mut world = World::start(", on: [], oldest_over: 1m", NEVER);
    let row = world.manual();
    world.pass(HOUR).await;
    assert!(world.undelivered());
    world.receipt(row, Verdict::Success);
    world.inbox.plan(ALWAYS);
    world.pass(HOUR).await;
    assert_eq!(world.inbox.taken().len(), 0);
    assert!(!world.undelivered());
}

#[tokio::test(start_paused = true)]
async fn a_ledger_that_fails_delays_alerts_and_loses_none() {
    let mut world = World::start("", ALWAYS);
    world.manual();
    world.ledger.fail_writes(5);
    world.pass(Duration::from_secs(30)).await;
    let taken = world.inbox.taken();
    // The record that it was told may have failed: then it was told again under the same name.
    assert!(!taken.is_empty());
    assert!(taken.iter().all(|alert| alert["id"] == taken[0]["id"]));
    world.pass(HOUR).await;
    assert_eq!(world.inbox.taken().len(), taken.len());
}

#[tokio::test(start_paused = true)]
async fn a_signed_alert_can_be_verified() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "callgate-test-secret\n").unwrap();
    let keys = format!(", secret_file: {}", file.display());
    let mut world = World::start(&keys, ALWAYS);
    world.manual();
    world.pass(Duration::from_secs(3)).await;
    let alert = &world.inbox.arrived()[0];
    let signature = alert.field("x-callgate-signature").expect("it is signed");
    let (time, mac) = signature.split_once(",v1=").unwrap();
    let time = time.strip_prefix("t=").unwrap();
    assert_eq!(time.parse::<i64>().unwrap(), NOW.0 / 1_000);
    // As a receiver would, from the specification of HMAC.
    let key = |pad: u8| -> Vec<u8> {
        let mut key = b"callgate-test-secret".to_vec();
        key.resize(64, 0);
        key.iter().map(|byte| byte ^ pad).collect()
    };
    let hash = |parts: [&[u8]; 2]| {
        use sha2::Digest as _;
        sha2::Sha256::digest(parts.concat())
    };
    let signed = format!("{time}.{}", alert.body);
    let inner = hash([&key(0x36), signed.as_bytes()]);
    let outer = hash([&key(0x5c), &inner]);
    let hex: String = outer.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(mac, hex);
}
