//! Leaving without losing a request (C55).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::gate::LIMITS;
use super::{Gate, told_whole};
use crate::ingress::{Backlog, Drained};

const GRACE: Duration = Duration::from_secs(10);

fn waiting(go: &Arc<Semaphore>) -> Gate {
    let go = Arc::clone(go);
    Gate::scripted(LIMITS, move |seen| {
        let go = Arc::clone(&go);
        Box::pin(async move {
            go.acquire().await.unwrap().forget();
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                b"done",
            )
        })
    })
}

#[tokio::test]
async fn what_runs_is_answered_and_what_is_silent_is_closed() {
    let go = Arc::new(Semaphore::new(1));
    let mut gate = waiting(&go);
    let mut idle = gate.peer().await;
    idle.post("/orders/1", "", "").await;
    assert_eq!(idle.answer().await.header("connection"), None);
    gate.arrivals.recv().await.unwrap();
    let mut fresh = gate.peer().await;
    let mut half = gate.peer().await;
    half.send("POST /orders/1 HTTP/1.1\r\nHost: t\r\nX-Call-Id: late\r\n")
        .await;
    let mut running = gate.peer().await;
    running.post("/orders/1", "", "").await;
    gate.arrivals.recv().await.unwrap();
    gate.until_open(4).await;
    let draining = gate.ingress.drain(GRACE, Backlog::Ours);
    let callers = async {
        idle.assert_closed().await;
        fresh.assert_closed().await;
        half.send("Content-Length: 0\r\n\r\n").await;
        let late = half.answer().await;
        assert_eq!((late.status, &*late.code()), (503, "draining"));
        assert_eq!(late.header("x-call-id"), Some("late"));
        assert_eq!(late.header("retry-after"), Some("1"));
        assert_eq!(late.json()["sent"], "unknown");
        half.assert_closed().await;
        go.add_permits(1);
        let answer = running.answer().await;
        assert_eq!(
            (&*answer.body, answer.header("connection")),
            ("done", Some("close"))
        );
        running.assert_closed().await;
    };
    let (drained, ()) = tokio::join!(draining, callers);
    assert_eq!(
        drained,
        Drained {
            calls_left: 0,
            connections_cut: 0
        }
    );
    assert!(
        tokio::net::TcpStream::connect(gate.ingress.address())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn after_the_grace_what_is_left_is_cut_off() {
    let go = Arc::new(Semaphore::new(0));
    let mut gate = waiting(&go);
    let mut peer = gate.peer().await;
    peer.post("/orders/1", "", "").await;
    gate.arrivals.recv().await.unwrap();
    let drained = gate
        .ingress
        .drain(Duration::from_millis(50), Backlog::Ours)
        .await;
    assert_eq!(
        drained,
        Drained {
            calls_left: 1,
            connections_cut: 1
        }
    );
    peer.assert_closed().await;
}

#[tokio::test]
async fn an_http_2_caller_is_told_to_go_away() {
    let go = Arc::new(Semaphore::new(0));
    let mut gate = waiting(&go);
    let stream = tokio::net::TcpStream::connect(gate.ingress.address())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) =
        hyper::client::conn::http2::handshake::<_, _, String>(executor, io)
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://t/orders/1")
        .body(String::new())
        .unwrap();
    let answer = tokio::spawn(send.send_request(request));
    gate.arrivals.recv().await.unwrap();
    let (drained, answer) = tokio::join!(gate.ingress.drain(GRACE, Backlog::Ours), async {
        go.add_permits(1);
        answer.await.unwrap().unwrap()
    });
    assert_eq!(answer.status(), 200);
    assert_eq!(drained.calls_left, 0);
    drop(answer);
    connection.await.unwrap().unwrap();
}
