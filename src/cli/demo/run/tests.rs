//! The course of the demonstration against two stand-ins for the gateway and its batches: a careful
//! one that sends again only after the tool has twice said that it never heard of the call, and a
//! hasty one that sends again at once. The first shows that a gateway can be clean against this
//! tool, the second that one which is not is found out. The real gateway is no part of these tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::super::batch::Stopwatch;
use super::super::client::{Client, Failure, get};
use super::*;

const ATTEMPT: Duration = Duration::from_millis(300);
const TOTAL: Duration = Duration::from_secs(5);
const SETTLE: Duration = Duration::from_millis(100);
const SENDS_MAX: u32 = 4;

/// A stand-in for the gateway: one call, one client, no ledger.
#[derive(Debug)]
struct StandIn {
    tool: SocketAddr,
    manner: Manner,
    unresolved: Mutex<BTreeSet<String>>,
    /// The rows of the batch that have ended, each as a line of the export.
    ended: Mutex<Vec<Value>>,
    rows: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Careful,
    Hasty,
}

type Answer = Response<Full<Bytes>>;

impl StandIn {
    async fn open(tool: SocketAddr, manner: Manner) -> SocketAddr {
        let stand_in = Arc::new(Self {
            tool,
            manner,
            unresolved: Mutex::default(),
            ended: Mutex::default(),
            rows: AtomicUsize::new(0),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stand_in = Arc::clone(&stand_in);
                let service = service_fn(move |request| {
                    let stand_in = Arc::clone(&stand_in);
                    async move { Ok::<_, std::convert::Infallible>(stand_in.serve(request).await) }
                });
                let io = TokioIo::new(stream);
                tokio::spawn(http1::Builder::new().serve_connection(io, service));
            }
        });
        address
    }

    async fn serve(self: &Arc<Self>, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        match path.as_str() {
            "/api/v1/batches" => {
                let rows = body.collect().await.expect("a body").to_bytes();
                return self.take(&rows);
            }
            "/api/v1/batches/demo" => {
                let (items, ended) = (self.rows.load(Ordering::SeqCst), self.ended.lock().len());
                let state = if ended == items {
                    "FINISHED"
                } else {
                    "RUNNING"
                };
                let batch = json!({"state": state, "items": items, "waiting": items - ended});
                return document(200, "", &batch);
            }
            "/api/v1/batches/demo/export" => return self.export(),
            _ => {}
        }
        if path == "/api/v1/dead-letters" {
            let rows: Vec<_> = self
                .unresolved
                .lock()
                .iter()
                .map(|id| json!({"call_id": id, "state": "MANUAL"}))
                .collect();
            return document(200, "", &json!({"items": rows, "next": null}));
        }
        if let Some(id) = path.strip_prefix("/_callgate/receipts/") {
            return self.receipt(id).await;
        }
        panic!("the demonstration asks for {path}");
    }

    /// A batch: its rows are pushed by a few workers.
    fn take(self: &Arc<Self>, rows: &[u8]) -> Answer {
        let rows: Vec<Bytes> = rows
            .split(|byte| *byte == b'\n')
            .filter(|row| !row.is_empty())
            .map(Bytes::copy_from_slice)
            .collect();
        self.rows.store(rows.len(), Ordering::SeqCst);
        let new = rows.len();
        let workers = Arc::new(Semaphore::new(20));
        for (n, row) in rows.into_iter().enumerate() {
            let (stand_in, workers) = (Arc::clone(self), Arc::clone(&workers));
            tokio::spawn(async move {
                let _turn = workers.acquire().await.expect("never closed");
                let ended = stand_in.push(n + 1, row).await;
                stand_in.ended.lock().push(ended);
            });
        }
        document(200, "", &json!({ "new": new }))
    }

    /// One row, again under its id as long as the answer says "not now".
    async fn push(&self, line: usize, row: Bytes) -> Value {
        let id = format!("track-{line}");
        loop {
            let answer = self.forward(&id, row.clone()).await;
            let status = answer.status().as_u16();
            let state = match answer.headers()["x-call-outcome"].as_bytes() {
                b"unresolved" => "UNRESOLVED",
                b"refused" => "",
                _ if status == 429 => "",
                _ if status < 400 => "DONE",
                _ => "REFUSED",
            };
            if !state.is_empty() {
                return json!({"line": line, "state": state, "callId": id, "status": status});
            }
            tokio::time::sleep(SETTLE).await;
        }
    }

    fn export(&self) -> Answer {
        let lines: Vec<_> = self.ended.lock().iter().map(Value::to_string).collect();
        Response::new(Full::new(Bytes::from(lines.join("\n") + "\n")))
    }

    async fn forward(&self, id: &str, body: Bytes) -> Answer {
        let watch = Stopwatch::start();
        for sends in 1..=SENDS_MAX {
            let request = Request::post("/track")
                .header("x-call-id", id)
                .body(body.clone())
                .expect("well-formed");
            match Client::new(self.tool).ask(request, ATTEMPT).await {
                Ok(answer) if answer.status.as_u16() < 500 => {
                    let text: Value = serde_json::from_slice(&answer.body).expect("JSON");
                    return document(answer.status.as_u16(), "answered", &text);
                }
                Err(Failure::Unreachable) if sends == 1 => {
                    let problem = json!({"sent": "no", "repeat": "safe"});
                    return document(502, "refused", &problem);
                }
                Ok(_) | Err(_) => {}
            }
            if self.manner == Manner::Hasty {
                continue;
            }
            match self.settle(id, &watch).await {
                Some(404) => {}
                Some(status) => return document(status, "receipt", &json!({})),
                None => break,
            }
        }
        self.unresolved.lock().insert(id.to_owned());
        document(504, "unresolved", &json!({"code": "unresolved"}))
    }

    /// The status that the receipt carries; 404 when it was twice unknown with `SETTLE` between.
    async fn settle(&self, id: &str, watch: &Stopwatch) -> Option<u16> {
        let mut unknown = 0;
        while watch.elapsed() < TOTAL {
            let question = get(&format!("/receipts/{id}"));
            let answer = Client::new(self.tool).ask(question, ATTEMPT).await;
            let document: Value = answer.as_ref().map_or(Value::Null, |answer| {
                serde_json::from_slice(&answer.body).expect("JSON")
            });
            match (
                answer.map(|answer| answer.status.as_u16()),
                &document["result"]["status"],
            ) {
                (Ok(200), Value::Number(status)) => {
                    return status
                        .as_u64()
                        .and_then(|status| u16::try_from(status).ok());
                }
                (Ok(404), _) if unknown == 1 => return Some(404),
                (Ok(404), _) => unknown = 1,
                _ => unknown = 0,
            }
            tokio::time::sleep(SETTLE).await;
        }
        None
    }

    async fn receipt(&self, id: &str) -> Answer {
        let path = format!("/receipts/{id}");
        // The tool may still lie dead, which no patience of a single attempt outlasts.
        let patience = Duration::from_secs(5);
        let answer = Client::new(self.tool)
            .ask(get(&path), patience)
            .await
            .expect("a receipt");
        let mut receipt: Value = serde_json::from_slice(&answer.body).expect("JSON");
        if answer.status == 404 {
            receipt["state"] = json!("UNKNOWN");
        }
        receipt["deadLetter"] = json!({"state": "MANUAL"});
        document(200, "", &receipt)
    }
}

fn document(status: u16, outcome: &str, body: &Value) -> Answer {
    Response::builder()
        .status(status)
        .header("x-call-outcome", outcome)
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("well-formed")
}

fn args(calls: u32) -> DemoArgs {
    DemoArgs {
        seed: 42,
        calls,
        workers: 20,
        keep: false,
        tool: false,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_careful_gateway_is_clean_and_is_stopped_at_the_end() {
    let stopped = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&stopped);
    let launch: Launch = Box::new(move |setting| {
        assert!(setting.folder.is_dir());
        let tool = setting.variables[TOOL_VARIABLE]
            .strip_prefix("http://")
            .expect("a url");
        let tool = tool.parse().expect("an address");
        let handle = tokio::runtime::Handle::current();
        let address = handle.block_on(StandIn::open(tool, Manner::Careful));
        Ok(Gateway::new(address, address, move || {
            noted.store(true, Ordering::SeqCst)
        }))
    });
    assert!(compare(&args(100), launch).await.expect("carried out"));
    assert!(stopped.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_sends_again_when_it_does_not_know_is_found_out() {
    let args = args(100);
    let plan = Plan::new(args.seed, args.calls);
    let tool = Tool::open(plan).expect("a free port");
    let address = StandIn::open(tool.address(), Manner::Hasty).await;
    let gateway = Gateway::new(address, address, || ());
    let batch = Batch {
        plan,
        calls: args.calls,
        workers: args.workers,
    };
    let figures = through(batch, &tool, &gateway).await.expect("carried out");
    assert!(figures.twice > 0, "{figures:?}");
    assert!(!figures.clean());
    assert!(!figures.findings.is_empty());
}

#[tokio::test]
async fn a_gateway_that_does_not_start_is_an_error_with_its_cause() {
    let launch: Launch = Box::new(|_| Err(anyhow::anyhow!("the port is taken")));
    let error = compare(&args(2), launch).await.expect_err("no gateway");
    assert_eq!(
        format!("{error:#}"),
        "starting the gateway: the port is taken"
    );
}

#[test]
fn the_lines_to_paste_are_whole_commands() {
    let address: SocketAddr = "127.0.0.1:80".parse().expect("an address");
    assert_eq!(
        call(address, "try-1", "RX000000001DE", "delivery"),
        "curl -i http://127.0.0.1:80/track -H 'Content-Type: application/json' \
         -H 'X-Call-Id: try-1' \
         -d '{\"trackingNo\":\"RX000000001DE\",\"date\":\"2026-11-30\",\"scene\":\"delivery\"}'"
    );
}

#[test]
fn the_configuration_takes_the_tool_from_its_variable() {
    let yaml: serde_yaml::Value = serde_yaml::from_str(YAML).expect("YAML");
    let url = yaml["routes"][0]["upstream"]["url"].as_str();
    assert_eq!(url, Some(format!("${{{TOOL_VARIABLE}}}").as_str()));
}

#[tokio::test]
async fn the_queue_is_waited_for_until_nothing_moves() {
    let seen = Arc::new(Mutex::new(3_u32));
    let address = moving_queue(Arc::clone(&seen)).await;
    let waited = Operator::new(address, address)
        .drain()
        .await
        .expect("answers");
    assert_eq!(*seen.lock(), 0);
    assert!(waited < Duration::from_secs(10));
}

/// An admin API whose queue is empty after so many looks.
async fn moving_queue(left: Arc<Mutex<u32>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.expect("a look");
        let service = service_fn(move |request: Request<Incoming>| {
            let queued = request
                .uri()
                .query()
                .is_some_and(|query| query.contains("QUEUED"));
            let mut left = left.lock();
            *left -= u32::from(queued && *left > 0);
            let rows = if *left > 0 && queued {
                vec![json!({"state": "QUEUED"})]
            } else {
                vec![]
            };
            let page = document(200, "", &json!({"items": rows, "next": null}));
            async move { Ok::<_, std::convert::Infallible>(page) }
        });
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    address
}
