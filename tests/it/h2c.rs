//! Callers who speak HTTP/2 without TLS: the same calls, ids and answers.

use crate::fixture::{Act, Gate, Gateway, Reply, Script, World, ms};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::future::Future;

type Sender = http2::SendRequest<Full<Bytes>>;

/// Runs a caller on an HTTP/2 connection of its own.
fn over_h2<T, F: Future<Output = T>>(gateway: &Gateway, caller: impl FnOnce(Sender) -> F) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        let stream = tokio::net::TcpStream::connect(gateway.listen)
            .await
            .expect("a connection");
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (sender, connection) = handshake.expect("HTTP/2 is spoken");
        let driver = tokio::spawn(connection);
        let result = tokio::time::timeout(crate::fixture::PATIENCE, caller(sender)).await;
        driver.abort();
        result.expect("an answer in time")
    })
}

fn request(id: &str) -> Request<Full<Bytes>> {
    let request = Request::post("http://tools.test/tool").header("x-call-id", id);
    let body = Full::new(Bytes::from_static(br#"{"n":1}"#));
    request
        .header("content-type", "application/json")
        .body(body)
        .expect("a request")
}

async fn whole(response: Response<Incoming>) -> (u16, hyper::HeaderMap, Bytes) {
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a whole body").to_bytes();
    (head.status.as_u16(), head.headers, body)
}

#[test]
fn calls_over_h2c_are_the_same_calls() {
    let script = Script::new()
        .request(2, Act::read_all().commit().fin())
        .request(3, Act::says(Reply::new(422, "no")));
    let world = World::new(script);
    let answers = over_h2(&world.gateway, async |mut sender| {
        let mut answers = Vec::new();
        for id in ["one", "two", "three", "one"] {
            let response = sender.send_request(request(id)).await.expect("a response");
            answers.push(whole(response).await);
        }
        answers
    });
    let told: Vec<_> = answers
        .iter()
        .map(|(status, fields, _)| {
            let field = |name: &str| fields[name].to_str().expect("text").to_owned();
            (*status, field("x-call-id"), field("x-call-outcome"))
        })
        .collect();
    let told: Vec<_> = told
        .iter()
        .map(|(s, id, o)| (*s, id.as_str(), o.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (201, "one", "answered"),
            (201, "two", "receipt"),
            (422, "three", "answered"),
            (201, "one", "replayed"),
        ]
    );
    assert_eq!(answers[0].2, answers[3].2);
    assert_eq!(world.tool.a(), 3);
    let head = world.tool.sends("one")[0].head.clone();
    assert_eq!(head.start, "POST /tool HTTP/1.1");
    assert_eq!(head.all("host").len(), 1);
}

#[test]
fn many_calls_share_one_h2c_connection() {
    let script = Script::new().otherwise(Act::read_all().wait(50).commit().answer_result());
    let world = World::with(script, |config| config.slow(5));
    let statuses = over_h2(&world.gateway, async |sender| {
        let calls: Vec<_> = (0..50)
            .map(|n| {
                let mut sender = sender.clone();
                tokio::spawn(async move {
                    let response = sender.send_request(request(&format!("many-{n}"))).await;
                    whole(response.expect("a response")).await.0
                })
            })
            .collect();
        let mut statuses = Vec::new();
        for call in calls {
            statuses.push(call.await.expect("a caller"));
        }
        statuses
    });
    assert_eq!(statuses, [201; 50]);
    assert_eq!((world.tool.a(), world.tool.e()), (50, 50));
}

#[test]
fn a_stream_reset_by_its_caller_leaves_a_call_that_ends() {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().request(1, act), |config| config.slow(4));
    over_h2(&world.gateway, async |mut sender| {
        let call = sender.send_request(request("left"));
        let at_work = async {
            while world.tool.e() == 0 {
                tokio::time::sleep(ms(5)).await;
            }
        };
        tokio::select! {
            answer = call => panic!("nobody opened the gate: {answer:?}"),
            () = at_work => {}
        }
        // The stream is gone, its connection is not.
        let receipt = Request::get("http://tools.test/_callgate/receipts/left");
        let receipt = receipt.body(Full::default()).expect("a request");
        let receipt = sender.send_request(receipt).await.expect("a receipt");
        let (status, _, receipt) = whole(receipt).await;
        let receipt: serde_json::Value = serde_json::from_slice(&receipt).expect("JSON");
        assert_eq!((status, &receipt["state"]), (200, &"PROCESSING".into()));
    });
    gate.open();
    world
        .gateway
        .wait_history("left", "its success", |history| {
            history["state"] == "SUCCESS"
        });
    assert_eq!(world.tool.a(), 1);
}

#[test]
fn a_head_over_the_limit_is_refused_and_the_connection_goes_on() {
    let world = World::new(Script::new());
    let statuses = over_h2(&world.gateway, async |mut sender| {
        let mut statuses = Vec::new();
        for (id, bytes) in [("large", 40 * 1024), ("fits", 20 * 1024)] {
            let mut large = request(id);
            let value = "x".repeat(bytes).parse().expect("a value");
            large.headers_mut().insert("x-large", value);
            let response = sender.send_request(large).await.expect("a response");
            statuses.push(response.status().as_u16());
        }
        statuses
    });
    assert_eq!(statuses, [431, 201]);
    assert_eq!(world.tool.a(), 1);
}
