//! Callers that leave, and calls that panic (C54).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::gate::LIMITS;
use super::{Gate, told_whole};
use crate::flow::told::Word;

/// A door whose calls wait for permits and tell when they end.
struct Held {
    gate: Gate,
    go: Arc<Semaphore>,
    ended: mpsc::UnboundedReceiver<bool>,
    begun: mpsc::UnboundedReceiver<(CancellationToken, crate::ingress::Line)>,
}

fn held() -> Held {
    let go = Arc::new(Semaphore::new(0));
    let (tell, ended) = mpsc::unbounded_channel();
    let (begin, begun) = mpsc::unbounded_channel();
    let may_go = Arc::clone(&go);
    let gate = Gate::scripted(LIMITS, move |seen| {
        let (go, tell) = (Arc::clone(&may_go), tell.clone());
        begin.send((seen.gone.clone(), seen.line.clone())).unwrap();
        Box::pin(async move {
            go.acquire().await.unwrap().forget();
            tell.send(seen.gone.is_cancelled()).unwrap();
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                b"done",
            )
        })
    });
    Held {
        gate,
        go,
        ended,
        begun,
    }
}

#[tokio::test]
async fn a_caller_that_only_shuts_its_writing_side_is_answered() {
    let mut held = held();
    let mut peer = held.gate.peer().await;
    peer.post("/orders/1", "", "{}").await;
    tokio::io::AsyncWriteExt::shutdown(&mut peer.stream)
        .await
        .unwrap();
    let (gone, line) = held.begun.recv().await.unwrap();
    // Seen by those who ask for it, and by nobody else.
    line.half_closed().await;
    assert!(!gone.is_cancelled());
    held.go.add_permits(1);
    assert!(!held.ended.recv().await.unwrap());
    assert_eq!(peer.answer().await.body, "done");
    peer.assert_closed().await;
}

#[tokio::test]
async fn a_reset_is_noticed_and_the_call_runs_to_its_end() {
    let mut held = held();
    let mut peer = held.gate.peer().await;
    // A pipelined request lies unread in front of the reset.
    peer.post("/orders/1", "", "{}").await;
    let (gone, line) = held.begun.recv().await.unwrap();
    peer.post("/orders/2", "", "{}").await;
    peer.stream.set_zero_linger().unwrap();
    drop(peer);
    gone.cancelled().await;
    assert_eq!(held.gate.ingress.calls(), 1);
    held.go.add_permits(2);
    assert!(
        held.ended.recv().await.unwrap(),
        "the call knew that its caller had left"
    );
    line.half_closed().await;
    held.gate.until_idle().await;
    let metrics = &held.gate.route(0).metrics;
    assert_eq!(metrics.in_flight_now(), 0);
    assert!(metrics.calls.get(Word::Answered) >= 1);
}

#[tokio::test]
async fn a_request_without_effects_is_dropped_with_its_caller() {
    struct Dropped(Option<oneshot::Sender<()>>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            if let Some(tell) = self.0.take() {
                tell.send(()).unwrap();
            }
        }
    }
    let (tell, dropped) = oneshot::channel();
    let tell = parking_lot::Mutex::new(Some(tell));
    let gate = Gate::scripted(LIMITS, move |_| {
        let guard = Dropped(tell.lock().take());
        Box::pin(async move {
            let _guard = guard;
            std::future::pending().await
        })
    });
    // HTTP/2 tells a stream's end; on HTTP/1 a pass-through ends with the first failed write.
    let stream = tokio::net::TcpStream::connect(gate.ingress.address())
        .await
        .unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut send, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get("http://t/look/1")
        .body(String::new())
        .unwrap();
    let mut answer = Box::pin(send.send_request(request));
    while gate.ingress.calls() == 0 {
        tokio::select! {
            biased;
            answer = &mut answer => panic!("{answer:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    drop(answer);
    dropped.await.unwrap();
    gate.until_idle().await;
    assert_eq!(gate.route(1).metrics.calls.get(Word::Unresolved), 1);
}

#[tokio::test]
async fn a_panic_ends_one_call_with_500_and_nothing_else() {
    let gate = Gate::scripted(LIMITS, |seen| {
        Box::pin(async move {
            assert!(seen.body != "boom", "this call panics");
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                b"fine",
            )
        })
    });
    let mut peer = gate.peer().await;
    for path in ["/orders/1", "/look/1"] {
        peer.post(path, "X-Call-Id: p1\r\n", "boom").await;
        let answer = peer.answer().await;
        assert_eq!((answer.status, &*answer.code()), (500, "internal"));
        assert_eq!(answer.header("x-call-id"), Some("p1"));
        assert_eq!(answer.header("x-call-outcome"), Some("unresolved"));
        assert_eq!(answer.json()["sent"], "maybe");
        peer.post(path, "", "ok").await;
        assert_eq!(peer.answer().await.body, "fine");
    }
}

#[tokio::test]
async fn a_request_without_effects_is_dropped_with_its_caller_s_reset() {
    let gate = Gate::scripted(LIMITS, |_| Box::pin(std::future::pending()));
    let mut peer = gate.peer().await;
    peer.post("/look/1", "", "").await;
    while gate.ingress.calls() == 0 {
        tokio::task::yield_now().await;
    }
    peer.stream.set_zero_linger().unwrap();
    drop(peer);
    gate.until_idle().await;
    gate.until_open(0).await;
}

/// C54: whenever and however callers leave, every call ends, is counted once, and nothing leaks.
#[tokio::test]
async fn callers_that_leave_at_any_moment_leave_nothing_behind() {
    const CALLERS: u64 = 150;
    let gate = Gate::scripted(LIMITS, |seen| {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            told_whole(
                Some((seen.call_id, seen.source)),
                200,
                Default::default(),
                &seen.body,
            )
        })
    });
    let mut callers = tokio::task::JoinSet::new();
    for n in 0..CALLERS {
        let mut peer = gate.peer().await;
        // Spread over before, during and after the call.
        let stay = Duration::from_micros(n * 40);
        callers.spawn(async move {
            peer.post("/orders/1", "", "body").await;
            tokio::time::sleep(stay).await;
            match n % 3 {
                0 => drop(peer),
                1 => {
                    peer.stream.set_zero_linger().unwrap();
                    drop(peer);
                }
                _ => {
                    tokio::io::AsyncWriteExt::shutdown(&mut peer.stream)
                        .await
                        .unwrap();
                    assert_eq!(peer.answer().await.body, "body");
                }
            }
        });
        if n % 30 == 29 {
            while let Some(left) = callers.join_next().await {
                left.unwrap();
            }
        }
    }
    gate.until_open(0).await;
    gate.until_idle().await;
    let metrics = &gate.route(0).metrics;
    assert_eq!(metrics.in_flight_now(), 0);
    // A reset may have overtaken its request; no call that began was lost.
    let told = metrics.calls.get(Word::Answered);
    assert!((CALLERS * 2 / 3..=CALLERS).contains(&told), "{told}");
    assert_eq!(metrics.calls.get(Word::Unresolved), 0);
}
