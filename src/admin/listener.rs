//! The operator's socket: a bounded number of connections, each with a limit on how long its
//! request may take to arrive and on how long it may be silent.
//!
//! A loop of our own because the framework's has none of these bounds. Here HTTP/1 and HTTP/2 are
//! told apart by the library: speed does not matter on this listener, callers never come here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;
use idle::{Answering, Pulse, Watched};

mod idle;

/// Scrapers, probes and a few operators; more than this is a mistake or an attack.
const CONNECTIONS_MAX: usize = 128;

/// How long a request's head may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How often silent connections are told that they hold a place somebody may want.
const CROWDED_EVERY: Duration = Duration::from_secs(1);

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on `listener` until `stop`; returns when the last request in work has its answer.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) {
    let room = Arc::new(Room {
        slots: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
        crowded: Notify::new(),
        metrics,
    });
    let open = TaskTracker::new();
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = room.slot() => slot,
        };
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Some(socket) = socket else { continue };
        let (room, router, stop) = (Arc::clone(&room), router.clone(), stop.clone());
        open.spawn(async move {
            connection(socket, router, &room.crowded, stop).await;
            drop(slot);
        });
    }
    open.close();
    open.wait().await;
}

/// The places of the listener.
struct Room {
    slots: Arc<Semaphore>,
    crowded: Notify,
    metrics: Arc<Metrics>,
}

impl Room {
    /// A place for one more connection. As long as all are taken, silent ones make room.
    async fn slot(&self) -> OwnedSemaphorePermit {
        let free = Arc::clone(&self.slots).try_acquire_owned();
        if let Ok(slot) = free {
            return slot;
        }
        self.metrics.bounds.inc(Bound::AdminConnections);
        tracing::warn!(
            max = CONNECTIONS_MAX,
            "all connections of the admin listener are taken; silent ones are closed"
        );
        let mut slot = std::pin::pin!(Arc::clone(&self.slots).acquire_owned());
        loop {
            self.crowded.notify_waiters();
            tokio::select! {
                slot = &mut slot => return slot.expect("nobody closes the slots"),
                () = tokio::time::sleep(CROWDED_EVERY) => {}
            }
        }
    }
}

async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    match listener.accept().await {
        Ok((socket, _)) => Some(socket),
        Err(error) => {
            if !is_of_one_connection(&error) {
                tracing::warn!(error = %error, "the admin listener could not accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            None
        }
    }
}

/// The peer was gone before it was accepted: no trouble of ours.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset
    )
}

async fn connection(socket: TcpStream, router: Router, crowded: &Notify, stop: CancellationToken) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(32);
    let pulse = Arc::new(Pulse::default());
    let works = Arc::clone(&pulse);
    let service = service_fn(move |request: Request<Incoming>| {
        let turn = works.turn();
        let answer = router.clone().oneshot(request.map(Body::new));
        let pulse = Arc::clone(&works);
        async move {
            let answer = answer.await;
            drop(turn);
            answer.map(|answer| answer.map(|body| Answering::new(body, pulse)))
        }
    });
    let socket = Watched {
        socket,
        pulse: Arc::clone(&pulse),
    };
    let serving = builder.serve_connection(TokioIo::new(socket), service);
    let mut serving = std::pin::pin!(serving);
    // A broken connection is the peer's business: it is over either way.
    let over = tokio::select! {
        ended = serving.as_mut() => { drop(ended); true }
        // Whatever it still has to read, it does not take.
        () = pulse.stops(crowded) => true,
        () = stop.cancelled() => false,
    };
    if !over {
        serving.as_mut().graceful_shutdown();
        drop(serving.await);
    }
}
