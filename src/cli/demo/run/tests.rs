//! The course of the demonstration against two stand-ins for the gateway: an honest one that never
//! sends twice and says "unresolved" when it does not know, and a hasty one that sends again after
//! every unclear attempt. The real gateway is tried in tests/it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

use super::super::client::{Client, Failure, get};
use super::*;

const ATTEMPT: Duration = Duration::from_millis(300);

/// A stand-in for the gateway: one call, one client, no ledger.
#[derive(Debug)]
struct StandIn {
    tool: SocketAddr,
    /// Sends after an unclear attempt. Honest is 0.
    hasty_sends: u32,
    unresolved: Mutex<BTreeSet<String>>,
}

type Answer = Response<Full<Bytes>>;

impl StandIn {
    async fn open(tool: SocketAddr, hasty_sends: u32) -> SocketAddr {
        let stand_in = Arc::new(Self {
            tool,
            hasty_sends,
            unresolved: Mutex::default(),
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

    async fn serve(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
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
        let id = head.headers["x-call-id"]
            .to_str()
            .expect("ASCII")
            .to_owned();
        let body = body.collect().await.expect("a body").to_bytes();
        self.forward(&id, body).await
    }

    async fn forward(&self, id: &str, body: Bytes) -> Answer {
        for _ in 0..=self.hasty_sends {
            let request = Request::post("/track")
                .header("x-call-id", id)
                .body(body.clone())
                .expect("well-formed");
            match Client::new(self.tool).ask(request, ATTEMPT).await {
                Ok(answer) if answer.status.as_u16() < 500 => {
                    let text: Value = serde_json::from_slice(&answer.body).expect("JSON");
                    return document(answer.status.as_u16(), "answered", &text);
                }
                Err(Failure::Unreachable) => {
                    let problem = json!({"sent": "no", "repeat": "safe"});
                    return document(502, "refused", &problem);
                }
                Ok(_) | Err(Failure::TimedOut | Failure::Disconnected) => {}
            }
        }
        self.unresolved.lock().insert(id.to_owned());
        document(504, "unresolved", &json!({"code": "unresolved"}))
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
async fn an_honest_gateway_is_clean_and_is_stopped_at_the_end() {
    let stopped = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&stopped);
    let launch: Launch = Box::new(move |setting| {
        assert!(setting.folder.is_dir());
        let tool = setting.variables[TOOL_VARIABLE]
            .strip_prefix("http://")
            .expect("a url");
        let tool = tool.parse().expect("an address");
        let handle = tokio::runtime::Handle::current();
        let address = handle.block_on(StandIn::open(tool, 0));
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
    let address = StandIn::open(tool.address(), 3).await;
    let gateway = Gateway::new(address, address, || ());
    let batch = Batch {
        plan,
        calls: args.calls,
        workers: args.workers,
    };
    let figures = through(batch, args.seed, &tool, &gateway)
        .await
        .expect("carried out");
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
