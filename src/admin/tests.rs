//! The operator's door over a shelf instead of a ledger: exact documents, filters, tokens.

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;
use crate::call::id::ClientName;
use crate::ledger::{CallView, Cursor, DeadState, RowId, Tally};
use crate::telemetry::labels::Bound;
use crate::telemetry::readiness::Trouble;
use fixture::{NOON, at, call, dead, settled};
use shelf::Shelf;

mod doors;
pub(crate) mod fixture;
pub(crate) mod shelf;

pub(crate) fn admin(shelf: Shelf, token: Option<&str>) -> Arc<Admin> {
    Arc::new(Admin {
        ledger: Arc::new(shelf),
        metrics: Arc::new(Metrics::new("0.1.0")),
        readiness: Arc::new(Readiness::new()),
        now: Arc::new(|| NOON),
        batches: BatchDoor::new(tokio_util::sync::CancellationToken::new()),
        config: json!({"listen": "127.0.0.1:8080", "admin": {"token": "***"}}),
        token: token.map(TokenDigest::of),
        verbs: OnceLock::new(),
        controls: OnceLock::new(),
    })
}

struct Got {
    status: u16,
    kind: String,
    /// The methods the address takes, where it says so.
    allow: Option<String>,
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
        let promised: Value = serde_json::from_str(openapi::DOCUMENT).expect("a document");
        let codes = &promised["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
        let codes = codes.as_array().expect("the codes are listed");
        assert!(codes.contains(&document["code"]), "{document}");
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
    let allow = response.headers().get(header::ALLOW);
    let allow = allow.map(|methods| methods.to_str().expect("text").to_owned());
    let body = response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes();
    Got {
        status,
        kind,
        allow,
        body,
    }
}

async fn get(admin: &Arc<Admin>, target: &str) -> Got {
    ask(
        admin,
        Request::get(target).body(Body::empty()).expect("a request"),
    )
    .await
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
        "reversal": null,
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
        at: 0,
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
            "last_receipt": null,
        }],
        "next": "0.7.2",
    });
    assert_eq!(got.json(), expected);
    let all = "/api/v1/dead-letters?state=manual&route=orders&client=shop&older_than=2h\
               &error=reset&key=k&limit=5&cursor=0.7.2";
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
        "cursor=7.2",
        "cursor=a.b.c",
        "receipt=MAYBE",
        "sort=prettiest",
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
        Trouble::ReceiptsBroken,
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
        lost.contains("/openapi.json") && lost.contains("`listen`"),
        "{lost}"
    );
    let post = Request::post("/api/v1/config")
        .body(Body::empty())
        .expect("a request");
    ask(&admin, post).await.problem(405, Code::NoRoute);
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
        Arc::new(Metrics::new("0.1.0")),
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

#[tokio::test]
async fn connections_that_say_nothing_make_room_for_those_that_ask() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let admin = admin(Shelf::default(), None);
    let (metrics, stop) = (
        Arc::clone(&admin.metrics),
        tokio_util::sync::CancellationToken::new(),
    );
    let serving = tokio::spawn(serve(
        listener,
        router(admin),
        Arc::clone(&metrics),
        stop.clone(),
    ));
    let mut silent = Vec::new();
    // Nothing, half a head, and the beginning of an HTTP/2 preface: more than there is room for.
    for n in 0..200 {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let said = [&b""[..], b"GET /livez HTTP/1.1\r\n", b"PRI * HT"][n % 3];
        socket.write_all(said).await.expect("it is sent");
        silent.push(socket);
    }
    let asks = async {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n";
        socket.write_all(request).await.expect("it is sent");
        let mut answer = [0; 12];
        socket.read_exact(&mut answer).await.expect("it answers");
        assert_eq!(&answer, b"HTTP/1.1 200");
    };
    tokio::time::timeout(Duration::from_secs(8), asks)
        .await
        .expect("silent connections keep nobody out");
    assert!(metrics.bounds.get(Bound::AdminConnections) >= 1);
    stop.cancel();
    serving.await.expect("the loop ends");
}

#[tokio::test]
async fn what_is_too_large_is_refused_in_our_words() {
    let admin = admin(Shelf::default(), None);
    let request = Request::post("/api/v1/dead-letters/c1/resolve")
        .header("content-type", "application/json")
        .header("content-length", BODY_BYTES_MAX + 1)
        .body(Body::from(vec![b' '; BODY_BYTES_MAX + 1]))
        .unwrap();
    let detail = ask(&admin, request).await.problem(413, Code::BodyTooLarge);
    assert!(detail.contains("64 KiB"), "{detail}");
}
