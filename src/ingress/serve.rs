//! Serves one connection: HTTP/1 or HTTP/2 by its first bytes, until either side ends it.
//!
//! HTTP/1 goes to the plain server (`plain`) first, and to hyper's as soon as something is not
//! plain. A connection that switches protocols goes on as a tunnel (`tunnel`), in the same place
//! and under the same eyes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::Door;
use super::answer::{Room, Turned, answer};
use super::hush::Hushed;
use super::plain::{self, Left};
use super::seat::Seat;
use super::streams::{Excess, Taken};
use super::wire::{Socket, Wire};
use crate::config::{Limits, memory};
use crate::telemetry::labels::Refusal;

/// How HTTP/2 begins; no HTTP/1 method does.
const PREFACE: &[u8; 3] = b"PRI";

/// Between two looks at a preface that came in pieces.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);

/// hyper parses this many fields without allocating, and refuses more by itself.
const FIELDS_FREE: usize = 100;

/// Requests at once on one HTTP/2 connection, and unanswered resets before it is cut off.
const STREAMS_MAX: u32 = 100;
const RESETS_MAX: usize = 64;

/// What an HTTP/2 caller may send ahead of whoever reads it, per request and in all, and what is
/// held of one answer that it does not take.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const STREAM_UNSENT_MAX: usize = 64 * 1024;

/// How often an HTTP/2 caller is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_PATIENCE: Duration = Duration::from_secs(20);

/// What the first bytes say.
enum Spoken {
    Http1,
    Http2,
    Nothing,
}

/// Serves a connection that was dealt to this core. `seat` counts it since.
pub(super) async fn serve<D: Door>(
    room: Arc<Room<D>>,
    stream: std::net::TcpStream,
    peer: SocketAddr,
    seat: Seat,
) {
    let floor = Arc::clone(&room.floor);
    let wire = match TcpStream::from_std(stream) {
        Ok(stream) => Wire::new(stream, peer, floor.now()),
        Err(error) => {
            // Only a runtime that is ending refuses a socket.
            tracing::warn!(%error, "a connection could not be taken");
            return floor.turn_away(seat);
        }
    };
    let _place = floor.enter(Arc::clone(&wire), seat);
    match sniff(&room, &wire).await {
        Spoken::Http1 => {
            // A task of its own, which a reset can end: hyper reads nothing during a call.
            let mut serving = tokio::spawn(serve_http1(room, Arc::clone(&wire)));
            tokio::select! {
                // A panic was told by its hook; the connection went with it.
                ended = &mut serving => drop(ended),
                _reset = wire.stream().ready(Interest::ERROR) => {
                    wire.gone().cancel();
                    serving.abort();
                }
            }
        }
        Spoken::Http2 => serve_http2(room, wire).await,
        Spoken::Nothing => {}
    }
}

async fn sniff<D: Door>(room: &Room<D>, wire: &Wire) -> Spoken {
    // Once nothing can follow, what is there is all there is: hyper finds the head cut off.
    let mut ended = false;
    loop {
        let mut first = [0; PREFACE.len()];
        match wire.stream().peek(&mut first).await {
            Ok(0) | Err(_) => return Spoken::Nothing,
            Ok(n) if n == PREFACE.len() && first == *PREFACE => return Spoken::Http2,
            Ok(n) if PREFACE.starts_with(&first[..n]) && !ended => {
                // A look is no read, but the head is arriving: from now on it may be overdue.
                wire.after_read();
                room.floor.core.wheel().sleep(PREFACE_PAUSE).await;
                let ready = wire.stream().ready(Interest::READABLE).await;
                ended = ready.map_or(true, |ready| ready.is_read_closed());
            }
            Ok(_) => return Spoken::Http1,
        }
    }
}

async fn serve_http1<D: Door>(room: Arc<Room<D>>, wire: Arc<Wire>) {
    let mut socket = Socket::new(Arc::clone(&wire));
    // Large, and kept for as long as the connection is.
    if let Left::Odd { read, answer } = Box::pin(plain::serve(&room, &wire, &mut socket)).await {
        socket.put_back(read);
        serve_by_hyper(room, wire, socket, answer).await;
    }
}

/// `made`: the answer to the first request that hyper reads, where there is one already.
async fn serve_by_hyper<D: Door>(
    room: Arc<Room<D>>,
    wire: Arc<Wire>,
    socket: Socket,
    made: Option<Response<Turned>>,
) {
    let io = TokioIo::new(socket);
    let (of_requests, settings) = (Arc::clone(&room), Arc::clone(room.settings()));
    let (of_tunnel, core) = (Arc::clone(&wire), room.floor.core.clone());
    let made = Mutex::new(made);
    let service = service_fn(move |request| {
        let made = made.lock().take();
        let (room, wire) = (Arc::clone(&of_requests), Arc::clone(&wire));
        async move {
            match made {
                Some(made) => Ok(made),
                None => answer(room, wire, request).await,
            }
        }
    });
    let connection = http1_builder(&settings.limits).serve_connection(io, service);
    let ended = Hushed::new(connection.with_upgrades()).await;
    if let Err(error) = ended
        && error.is_parse()
    {
        settings.unrouted.refused.inc(Refusal::Malformed);
        tracing::debug!(%error, "a malformed request");
    }
    if let Some(switch) = of_tunnel.take_switch() {
        switch.relay(&of_tunnel, &core).await;
    }
}

fn http1_builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A FIN is a half-close: the caller still gets its answer.
        .half_close(true)
        // Head and body leave in one write.
        .writev(false)
        .max_buf_size(memory::head_buffer(limits));
    if limits.headers > FIELDS_FREE {
        builder.max_headers(limits.headers);
    }
    builder
}

async fn serve_http2<D: Door>(room: Arc<Room<D>>, wire: Arc<Wire>) {
    wire.multiplex();
    let io = TokioIo::new(Socket::new(Arc::clone(&wire)));
    let (of_requests, of_wire) = (Arc::clone(&room), Arc::clone(&wire));
    let service = service_fn(move |request| {
        let (room, wire) = (Arc::clone(&of_requests), Arc::clone(&of_wire));
        async move {
            let response = answer(room, Arc::clone(&wire), request).await;
            response.map(|response| response.map(|body| Taken::new(body, &wire)))
        }
    });
    let limits = &room.settings().limits;
    let mut connection = std::pin::pin!(http2_builder(limits).serve_connection(io, service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = room.floor.leaving.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP/2 connection broke");
        match fault(&error) {
            Some(h2::Reason::ENHANCE_YOUR_CALM) => wire.streams().note(Excess::Frames),
            Some(_) => room.settings().unrouted.refused.inc(Refusal::Malformed),
            None => {}
        }
    }
    if let Some(excess) = wire.streams().excess() {
        room.floor.note_excess(&wire, excess);
    }
    wire.gone().cancel();
}

/// What the HTTP library found wrong with a caller's frames.
fn fault(error: &hyper::Error) -> Option<h2::Reason> {
    let found = std::error::Error::source(error)?.downcast_ref::<h2::Error>()?;
    found.is_library().then(|| found.reason())?
}

fn http2_builder(limits: &Limits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(STREAM_UNSENT_MAX)
        .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_PATIENCE);
    builder
}
