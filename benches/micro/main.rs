//! What the parts of a call take, each by itself: `cargo bench --bench micro`.
//!
//! Times are this machine's; what a change does to them is what counts. `benches/instructions` has
//! the whole path, and the gate.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callgate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use callgate::call::machine::Machine;
use callgate::call::outcome::{Outcome, Reading};
use callgate::call::policy::Policy;
use callgate::call::step::{Event, Step};
use callgate::call::time::{Chance, Mono, Wall};
use callgate::config::template::JsonPointer;
use callgate::config::{self, Config};
use callgate::entropy::{Entropy, Minter};
use callgate::flow::{Prefer, Request, Routes, measured};
use callgate::ingress::fuzzing::identified;
use callgate::ledger::memory::MemoryLedger;
use callgate::ledger::sqlite::{Options, SqliteLedger};
use callgate::ledger::{
    Begun, Claim, Fact, Kept, KeyScope, Ledger, NewCall, News, Owner, Reply, StoredRequest,
};
use callgate::telemetry::metrics::Metrics;
use callgate::upstream::Answer;
use callgate::upstream::headers::Caller;
use callgate::upstream::receipt::fuzzing;
use divan::{Bencher, black_box};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version};

const ROUTES: &str = r#"
routes:
  - name: plain
    upstream: { url: "http://tool" }
    receipt: {}
  - name: keyed
    upstream: { url: "http://tool" }
    receipt: {}
    idempotency: { key: "{body:/order/id}-{header:x-tenant}" }
"#;

const BODY: &[u8] = br#"{"order":{"id":"A-1794","lines":[{"sku":"b","n":2}]},"note":"by noon"}"#;

fn main() {
    divan::main();
}

fn written() -> Config {
    config::parse(ROUTES, "routes", Path::new(""), &|_| None)
        .unwrap_or_else(|report| panic!("{report}"))
}

fn policy() -> Arc<Policy> {
    Arc::clone(&written().routes[0].policy)
}

fn fields() -> HeaderMap {
    let lines = [
        ("host", "gateway"),
        ("content-type", "application/json"),
        ("accept", "application/json"),
        ("user-agent", "micro/1"),
        ("x-request-id", "0f8fad5b-d9cb-469f-a165-70867728950e"),
        ("x-tenant", "billing"),
        ("x-call-id", "ord-1794000000000-00000000abcd-node07"),
    ];
    let field = |(name, value): (&'static str, &'static str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        )
    };
    lines.into_iter().map(field).collect()
}

/// A clean call in line: begun, sent, answered.
#[divan::bench]
fn machine_of_a_clean_call(bencher: Bencher) {
    let policy = policy();
    let answered = || Event::Attempted {
        outcome: Outcome::Answered(Reading::by_status(StatusCode::OK)),
        retry_after: None,
        open: false,
    };
    bencher.bench(|| {
        let mut machine = Machine::new(Arc::clone(&policy), Mono(0));
        let chance = Chance::new(0.5);
        let sent = machine.on(Event::Begun, Mono(1), chance);
        assert!(matches!(sent, Step::Send { n: 1, .. }));
        machine.on(black_box(answered()), Mono(2), chance)
    });
}

#[divan::bench]
fn minting_an_id(bencher: Bencher) {
    let minter = Minter::new("node07", &Entropy::seeded(1));
    bencher.bench(|| minter.mint(black_box("orders"), Wall(1_794_000_000_000)));
}

#[divan::bench]
fn identifying_a_request(bencher: Bencher) {
    let (fields, name) = (fields(), HeaderName::from_static("x-call-id"));
    let pointer = JsonPointer::parse("/callId").expect("a pointer");
    bencher.bench(|| identified(black_box(&fields), &name, BODY, &pointer));
}

#[divan::bench(args = [512, 65_536])]
fn fingerprint(bencher: Bencher, bytes: usize) {
    let body = vec![b'x'; bytes];
    bencher.bench(|| measured::fingerprint(&Method::POST, "/tool?x=1", black_box(&body)));
}

#[divan::bench]
fn key_of_a_template(bencher: Bencher) {
    let routes = Routes::build(&written().routes, &Metrics::new("0"), &[], 1);
    let routes = routes.expect("routes that can be reached");
    let request = Request {
        route: routes.named("keyed").expect("the route"),
        client: ClientName::anonymous(),
        call_id: CallId::parse(b"ord-1").expect("an id"),
        source: IdSource::Client,
        minted: false,
        method: Method::POST,
        target: "/tool".parse().expect("a path"),
        authority: None,
        headers: fields().into(),
        body: Bytes::from_static(BODY),
        caller: Arc::new(Caller::at(Ipv4Addr::LOCALHOST.into())),
        version: Version::HTTP_11,
        gone: tokio_util::sync::CancellationToken::new(),
        received: Mono(0),
        promised: false,
        first_seen: None,
        prefer: Prefer::default(),
        promise: None,
    };
    assert!(matches!(measured::key(&request), Ok(Some(1..))));
    bencher.bench(|| measured::key(black_box(&request)).is_ok());
}

#[divan::bench]
fn reading_a_receipt(bencher: Bencher) {
    let written = written();
    let rule = written.routes[0].receipt.as_ref().expect("a receipt");
    let id = CallId::parse(b"ord-1").expect("an id");
    let document = br#"{"callId":"ord-1","state":"SUCCESS","result":{"status":200,"body":"{}"}}"#;
    let answer = Answer {
        status: StatusCode::OK,
        headers: fields().into(),
        body: Bytes::from_static(document),
        cut: false,
    };
    bencher
        .with_inputs(|| answer.clone())
        .bench_values(|answer| fuzzing::read(rule, false, &id, answer));
}

/// A recorded call's two verbs, one at a time. In SQLite that is two commits on this disk.
#[divan::bench(sample_count = 20, sample_size = 20)]
fn begin_and_fact_in_sqlite(bencher: Bencher) {
    // Beside the build, not in /tmp, which may be memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let options = Options::new(&folder.path().join("bench.db"), Wall(0));
    let ledger = SqliteLedger::open(&options, Arc::new(())).expect("a ledger");
    both_verbs(bencher, &ledger);
}

#[divan::bench]
fn begin_and_fact_in_memory(bencher: Bencher) {
    let ledger = MemoryLedger::new(Wall(0), Duration::from_secs(86_400));
    both_verbs(bencher, &ledger);
}

fn both_verbs(bencher: Bencher, ledger: &dyn Ledger) {
    let minter = Minter::new("node07", &Entropy::seeded(1));
    bencher
        .with_inputs(|| new_call(minter.mint("bench", Wall(1))))
        .bench_local_values(|call| {
            let Ok(Begun::Claimed(claim)) = ledger.begin(call).wait() else {
                panic!("a new id is claimed");
            };
            ledger.fact(fact(claim)).wait().expect("written")
        });
}

fn new_call(call_id: CallId) -> NewCall {
    NewCall {
        client: ClientName::anonymous(),
        call_id,
        source: IdSource::Gateway,
        route: "bench".into(),
        siblings: Arc::default(),
        upstream: "http://tool".into(),
        policy: "a policy".into(),
        fingerprint: Fingerprint([7; 32]),
        idempotency_key: None,
        scope: Arc::new(KeyScope {
            name: "bench".into(),
            formerly: Box::default(),
        }),
        wary: false,
        business_key: None,
        request: StoredRequest {
            method: Method::POST,
            target: "/tool".into(),
            headers: fields(),
            body: Bytes::from_static(BODY),
            credential: false,
        },
        trace: None,
        owner: Owner::new("bench"),
        lease_until: Wall(0).after(Duration::from_secs(30)),
        now: Wall(0),
        window: Duration::from_secs(86_400),
        first_send: true,
        promised: false,
        reverses: None,
        exclusive_id: true,
    }
}

fn fact(claim: Claim) -> Fact {
    Fact {
        row: claim.row,
        life: claim.life,
        now: Wall(1),
        entries: Vec::new(),
        news: News::Answer {
            n: 1,
            reply: Reply {
                status: StatusCode::OK,
                headers: fields(),
                body: Kept::Whole(Bytes::from_static(BODY)),
            },
            success: true,
        },
    }
}
