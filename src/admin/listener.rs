//! The operator's socket: a bounded number of connections, each with a limit on how long its
//! request may take to arrive.
//!
//! A loop of our own because the framework's has neither bound. Here HTTP/1 and HTTP/2 are told
//! apart by the library: speed does not matter on this listener, callers never come here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Scrapers, probes and a few operators; more than this is a mistake or an attack.
const CONNECTIONS_MAX: usize = 128;

/// How long a request's head may take to arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers on `listener` until `stop`; returns when the last request in work has its answer.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = TaskTracker::new();
    loop {
        let slot = tokio::select! {
            () = stop.cancelled() => break,
            slot = Arc::clone(&slots).acquire_owned() => slot.expect("nobody closes the slots"),
        };
        let socket = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener) => accepted,
        };
        let Some(socket) = socket else { continue };
        let (router, stop) = (router.clone(), stop.clone());
        open.spawn(async move {
            connection(socket, router, stop).await;
            drop(slot);
        });
    }
    open.close();
    open.wait().await;
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

async fn connection(socket: TcpStream, router: Router, stop: CancellationToken) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(32);
    let service = TowerToHyperService::new(router);
    let serving = builder.serve_connection(TokioIo::new(socket), service);
    let mut serving = std::pin::pin!(serving);
    // A broken connection is the peer's business: it is over either way.
    let over = tokio::select! {
        ended = serving.as_mut() => { drop(ended); true }
        () = stop.cancelled() => false,
    };
    if !over {
        serving.as_mut().graceful_shutdown();
        drop(serving.await);
    }
}
