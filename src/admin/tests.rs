use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::outcome::{Cause, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, Doubt, State as Is};
use crate::ledger::{
    CallView, Contradiction, Cursor, DeadLetter, DeadState, Entry, Kept, Owner, Reply, RowId,
    SettledBy, Settlement, Tally, Verdict,
};
use crate::telemetry::readiness::Trouble;
use shelf::Shelf;

pub(crate) mod shelf;

/// 2026-11-01T12:00:00Z.
const NOON: Wall = Wall(1_793_534_400_000);

pub(crate) fn admin(shelf: Shelf, token: Option<&str>) -> Arc<Admin> {
    Arc::new(Admin {
        ledger: Arc::new(shelf),
        metrics: Arc::new(Metrics::new("0.1.0")),
        readiness: Arc::new(Readiness::new()),
        now: Arc::new(|| NOON),
        config: json!({"listen": "127.0.0.1:8080", "admin": {"token": "***"}}),
        token: token.map(TokenDigest::of),
    })
}

struct Got {
    status: u16,
    kind: String,
    body: Bytes,
}

impl Got {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("an answer is text")
    }
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("an answer is JSON")
    }
    #[track_caller]
    fn problem(&self, status: u16, code: Code) -> String {
        let document = self.json();
        assert_eq!((self.status, &document["status"]), (status, &json!(status)));
        assert_eq!(self.kind, "application/problem+json");
        assert_eq!(document["code"], code.as_str());
        document["detail"].as_str().expect("a detail").to_owned()
    }
}

async fn ask(admin: &Arc<Admin>, request: Request<Body>) -> Got {
    let response = router(Arc::clone(admin))
        .oneshot(request)
        .await
        .expect("it answers");
    let status = response.status().as_u16();
    let kind = response
        .headers()
        .get("content-type")
        .expect("a content type");
    let kind = kind.to_str().expect("text").to_owned();
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    Got { status, kind, body }
}

async fn get(admin: &Arc<Admin>, target: &str) -> Got {
    ask(
        admin,
        Request::get(target).body(Body::empty()).expect("a request"),
    )
    .await
}

/// A call by `client` that nobody has begun to work on.
fn call(id: &str, client: &str) -> CallView {
    CallView {
        row: RowId(7),
        life: 1,
        call_id: CallId::parse(id.as_bytes()).unwrap(),
        source: IdSource::Client,
        client: ClientName::new(client),
        route: Arc::from("orders"),
        upstream: Arc::from("http://127.0.0.1:9000"),
        idempotency_key: None,
        business_key: None,
        fingerprint: Fingerprint([0; 32]),
        trace: None,
        state: Is::Received,
        binds: true,
        owner: Owner::new("node07-1"),
        lease_until: NOON,
        received_at: NOON,
        updated_at: NOON,
        first_sent: None,
        sends: 0,
        settled: None,
        kept: None,
        dead_letter: None,
        differences: Vec::new(),
        history: Vec::new(),
    }
}

fn at(ms: i64) -> Wall {
    Wall(NOON.0 + ms)
}

/// Timed out once, resent, settled by the second answer; the tool later said otherwise.
pub(crate) fn settled() -> CallView {
    let created = Reading::by_status(StatusCode::CREATED);
    let reply = Reply {
        status: StatusCode::CREATED,
        headers: http::HeaderMap::new(),
        body: Kept::Whole(Bytes::from_static(b"{\"secret\":1}")),
    };
    CallView {
        state: Is::Success,
        sends: 2,
        settled: Some(Settlement {
            verdict: Verdict::Success,
            by: SettledBy::Answer(2),
            at: at(9_000),
            reply: Some(reply),
            document: None,
        }),
        differences: vec![crate::ledger::view::Difference {
            kind: Contradiction::Receipt,
            at: at(60_000),
            told: Arc::from("FAILED"),
        }],
        history: vec![
            Entry::Sent {
                at: at(1),
                n: 1,
                cause: None,
            },
            Entry::Ended {
                at: at(8_001),
                n: 1,
                outcome: Outcome::Unclear(Unclear::Timeout),
                took: Duration::from_secs(8),
                late: false,
                detail: None,
            },
            Entry::Receipt {
                at: at(8_010),
                answer: Answer::State(Is::Unknown),
                doubt: Some(Doubt::Unproven),
                status: Some(StatusCode::NOT_FOUND),
                took: Duration::from_micros(3_100),
                detail: None,
            },
            Entry::Sent {
                at: at(8_900),
                n: 2,
                cause: Some(Cause::Timeout),
            },
            Entry::Ended {
                at: at(9_000),
                n: 2,
                outcome: Outcome::Answered(created),
                took: Duration::from_millis(100),
                late: true,
                detail: Some(Arc::from("late")),
            },
        ],
        ..call("ord/1", "billing")
    }
}

pub(crate) fn dead(id: &str) -> DeadLetter {
    DeadLetter {
        row: RowId(7),
        life: 2,
        call_id: CallId::parse(id.as_bytes()).unwrap(),
        route: Arc::from("orders"),
        client: ClientName::anonymous(),
        business_key: Some(Arc::from("LX1")),
        idempotency_key: None,
        reason: Arc::from("deadline"),
        last_error: Arc::from("receipt: UNKNOWN"),
        fail_count: 1,
        next_retry_time: Some(at(300_000)),
        create_time: NOON,
        state: DeadState::Queued,
        round: 1,
        owner: None,
        fence: 3,
        lease_until: None,
        ended_at: None,
    }
}

#[tokio::test]
async fn a_call_is_told_with_attempts_receipts_and_differences_but_without_bodies() {
    let admin = admin(
        Shelf {
            calls: vec![settled()],
            ..Shelf::default()
        },
        None,
    );
    let got = get(&admin, "/api/v1/calls/ord%2F1").await;
    assert_eq!(got.status, 200, "{}", got.text());
    let expected = json!({
        "callId": "ord/1", "client": "billing", "route": "orders", "source": "client",
        "state": "SUCCESS", "outcome": "answered", "settledBy": "answer",
        "upstream": "http://127.0.0.1:9000", "idempotencyKey": null,
        "receivedAt": "2026-11-01T12:00:00.000Z", "updatedAt": "2026-11-01T12:00:00.000Z",
        "attempts": [
            {"n": 1, "cause": null, "startedAt": "2026-11-01T12:00:00.001Z",
             "durationMs": 8000.0, "result": "timeout", "status": null},
            {"n": 2, "cause": "timeout", "startedAt": "2026-11-01T12:00:08.900Z",
             "durationMs": 100.0, "result": "answered", "status": 201, "late": true,
             "detail": "late"},
        ],
        "receipts": [{"at": "2026-11-01T12:00:08.010Z", "state": "UNKNOWN", "doubt": "unproven",
                      "status": 404, "durationMs": 3.1}],
        "result": {"status": 201, "bodyBytes": 12, "bodyKept": true},
        "differences": [{"at": "2026-11-01T12:01:00.000Z", "kind": "receipt", "told": "FAILED"}],
        "deadLetter": null,
    });
    assert_eq!(got.json(), expected);
}

#[tokio::test]
async fn a_call_nobody_knows_and_an_id_that_is_none_are_told_apart() {
    let admin = admin(Shelf::default(), None);
    let unknown = get(&admin, "/api/v1/calls/ord-1").await;
    let detail = unknown.problem(404, Code::ReceiptNotFound);
    assert!(
        detail.contains("began at 2026-11-01T12:00:00.000Z"),
        "{detail}"
    );
    let bad = get(&admin, "/api/v1/calls/a%09b").await;
    let detail = bad.problem(400, Code::InvalidCallId);
    assert!(detail.starts_with("`a\\x09b` is not a call id"), "{detail}");
}

#[tokio::test]
async fn an_id_of_several_clients_asks_whose() {
    let calls = vec![call("ord-1", "billing"), call("ord-1", "shop")];
    let admin = admin(
        Shelf {
            calls,
            ..Shelf::default()
        },
        None,
    );
    let which = get(&admin, "/api/v1/calls/ord-1").await;
    let detail = which.problem(400, Code::BadRequest);
    assert!(
        detail.contains("billing, shop") && detail.contains("?client=NAME"),
        "{detail}"
    );
    let one = get(&admin, "/api/v1/calls/ord-1?client=shop").await.json();
    assert_eq!(
        (&one["client"], &one["outcome"]),
        (&json!("shop"), &Value::Null)
    );
    let wrong = get(&admin, "/api/v1/calls/ord-1?clinet=shop").await;
    wrong.problem(400, Code::BadRequest);
}

#[tokio::test]
async fn dead_letters_keep_the_names_of_their_columns_and_pages_follow() {
    let next = Some(Cursor {
        row: RowId(7),
        life: 2,
    });
    let shelf = Arc::new(Shelf {
        dead: vec![dead("ord-1")],
        next,
        ..Shelf::default()
    });
    let mut admin = admin(Shelf::default(), None);
    Arc::get_mut(&mut admin).expect("not shared yet").ledger =
        Arc::clone(&shelf) as Arc<dyn Ledger>;
    let got = get(&admin, "/api/v1/dead-letters").await;
    let expected = json!({
        "items": [{
            "call_id": "ord-1", "route": "orders", "client": "anonymous",
            "business_key": "LX1", "request_id": null, "reason": "deadline",
            "last_error": "receipt: UNKNOWN", "fail_count": 1,
            "next_retry_time": "2026-11-01T12:05:00.000Z",
            "create_time": "2026-11-01T12:00:00.000Z", "state": "QUEUED", "round": 1,
            "owner": null, "fence": 3, "lease_until": null, "ended_at": null,
        }],
        "next": "7.2",
    });
    assert_eq!(got.json(), expected);
    let all = "/api/v1/dead-letters?state=manual&route=orders&client=shop&older_than=2h\
               &error=reset&key=k&limit=5&cursor=7.2";
    assert_eq!(get(&admin, all).await.status, 200);
    let asked = shelf.asked.lock().take();
    let (filter, from, limit) = asked.expect("the ledger was asked");
    assert_eq!(
        (filter.state, from, limit),
        (Some(DeadState::Manual), next, 5)
    );
    assert_eq!(filter.parked_before, Some(Wall(NOON.0 - 7_200_000)));
    assert_eq!(filter.client, Some(ClientName::new("shop")));
    let words = [filter.route, filter.error, filter.key].map(|word| word.expect("was given"));
    assert_eq!(
        words.each_ref().map(|word| &**word),
        ["orders", "reset", "k"]
    );
}

#[tokio::test]
async fn a_filter_nobody_understands_lists_nothing() {
    let admin = admin(
        Shelf {
            dead: vec![dead("ord-1")],
            ..Shelf::default()
        },
        None,
    );
    for query in [
        "state=STUCK",
        "older_than=old",
        "limit=0",
        "limit=1001",
        "limit=x",
        "cursor=7",
        "cursor=a.b",
        "stat=MANUAL",
    ] {
        let got = get(&admin, &format!("/api/v1/dead-letters?{query}")).await;
        let detail = got.problem(400, Code::BadRequest);
        assert!(!detail.is_empty(), "{query}");
    }
}

#[tokio::test]
async fn a_dead_letter_comes_with_its_call() {
    let parked = CallView {
        dead_letter: Some(dead("ord-1")),
        ..call("ord-1", "shop")
    };
    let calls = vec![parked, call("fine", "shop")];
    let admin = admin(
        Shelf {
            calls,
            ..Shelf::default()
        },
        None,
    );
    let shown = get(&admin, "/api/v1/dead-letters/ord-1").await.json();
    assert_eq!(
        (&shown["state"], &shown["call"]["outcome"]),
        (&json!("QUEUED"), &json!("unresolved"))
    );
    let never = get(&admin, "/api/v1/dead-letters/fine").await;
    assert!(
        never
            .problem(404, Code::ReceiptNotFound)
            .contains("never parked")
    );
}

#[tokio::test]
async fn a_ledger_in_trouble_is_told_as_such() {
    let admin = admin(
        Shelf {
            overloaded: true,
            ..Shelf::default()
        },
        None,
    );
    get(&admin, "/api/v1/dead-letters")
        .await
        .problem(503, Code::Overloaded);
    let scrape = get(&admin, "/metrics").await;
    assert_eq!(scrape.status, 200, "a scrape goes on without the gauges");
}

#[tokio::test]
async fn ready_means_that_new_calls_are_welcome() {
    let mut admin = admin(Shelf::default(), None);
    let shelf = Arc::new(Shelf::default());
    Arc::get_mut(&mut admin).expect("not shared yet").ledger =
        Arc::clone(&shelf) as Arc<dyn Ledger>;
    admin.readiness.raise(
        Trouble::ReceiptBroken,
        "orders",
        "an answered call is unknown there",
    );
    let ready = get(&admin, "/readyz").await;
    assert_eq!((ready.status, ready.text()), (200, "ready\n"));
    let verbose = get(&admin, "/readyz?verbose").await;
    let expected = "ready\n[!] receipt-endpoint-broken orders: an answered call is unknown there\n\
                    [+] ledger\n";
    assert_eq!((verbose.status, verbose.text()), (200, expected));
    *shelf.failing.lock() = Some(Arc::from("disk full"));
    let sick = get(&admin, "/readyz").await;
    assert_eq!(
        (sick.status, sick.text()),
        (503, "not ready\n[-] ledger: disk full\n")
    );
    assert_eq!(get(&admin, "/livez").await.status, 200);
    *shelf.failing.lock() = None;
    assert_eq!(get(&admin, "/readyz").await.status, 200);
}

#[tokio::test]
async fn a_scrape_counts_the_open_dead_letters() {
    let tally = vec![Tally {
        route: Arc::from("orders"),
        state: DeadState::Manual,
        count: 3,
        oldest: at(-90_000),
    }];
    let admin = admin(
        Shelf {
            tally,
            ..Shelf::default()
        },
        None,
    );
    let _route = admin.metrics.route("orders");
    let got = get(&admin, "/metrics").await;
    assert_eq!(got.kind, "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "callgate_dead_letters{route=\"orders\",state=\"MANUAL\"} 3\n",
        "callgate_dead_letter_oldest_seconds{route=\"orders\"} 90\n",
    ] {
        assert!(got.text().contains(line), "{line}\n{}", got.text());
    }
}

#[tokio::test]
async fn the_token_guards_everything_but_health_and_metrics() {
    let admin = admin(Shelf::default(), Some("s3cret"));
    for open in ["/livez", "/readyz", "/readyz?verbose", "/metrics"] {
        assert_eq!(get(&admin, open).await.status, 200, "{open}");
    }
    for guarded in [
        "/api/v1/config",
        "/api/v1/dead-letters",
        "/api/v1/calls/a",
        "/",
        "/x",
    ] {
        for wrong in [
            "",
            "Bearer",
            "Bearer s3cre",
            "Bearer s3cret2",
            "Basic s3cret",
        ] {
            let request = Request::get(guarded).header("authorization", wrong);
            let got = ask(&admin, request.body(Body::empty()).expect("a request")).await;
            got.problem(401, Code::Unauthorized);
        }
    }
    let right = Request::get("/api/v1/config").header("authorization", "bearer s3cret");
    let got = ask(&admin, right.body(Body::empty()).expect("a request")).await;
    assert_eq!(
        (got.status, &got.json()["admin"]["token"]),
        (200, &json!("***"))
    );
}

#[tokio::test]
async fn a_stranger_learns_what_is_here() {
    let admin = admin(Shelf::default(), None);
    let lost = get(&admin, "/orders/1").await.problem(404, Code::NoRoute);
    assert!(
        lost.contains("/api/v1/dead-letters") && lost.contains("`listen`"),
        "{lost}"
    );
    let post = Request::post("/api/v1/config")
        .body(Body::empty())
        .expect("a request");
    ask(&admin, post).await.problem(405, Code::BadRequest);
}

#[tokio::test]
async fn stopping_ends_idle_connections_and_the_loop() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(serve(
        listener,
        router(admin(Shelf::default(), None)),
        stop.clone(),
    ));
    let mut socket = tokio::net::TcpStream::connect(address)
        .await
        .expect("it accepts");
    socket
        .write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .expect("it reads");
    let mut answer = [0; 12];
    socket.read_exact(&mut answer).await.expect("it answers");
    assert_eq!(&answer, b"HTTP/1.1 200");
    stop.cancel();
    serving
        .await
        .expect("the loop ends although a connection is idle");
    let mut rest = Vec::new();
    socket
        .read_to_end(&mut rest)
        .await
        .expect("the connection is closed");
    assert!(rest.ends_with(b"alive\n"));
}
