//! A door for `fuzz/`, the replay of its corpus and the differential test: one exchange over a
//! scripted connection, spoken by the plain client or by hyper. No part of the interface.
//!
//! Nothing here waits for time: a script that says no more leaves the exchange
//! [`Observed::Waiting`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::exchange::Course;
use super::fields::{self, Final, Written};
use super::pool::Conn;
use super::transport::Transport;
use super::wire::Line;
use super::{
    Core, Destination, Ended, Exchange, Mode, Outgoing, Payload, StandIn, StreamAnswer, Terms, dial,
};
use crate::clock::Clock;
use crate::config::route::{Endpoint, PoolConfig, Protocol};

/// The body of a POST.
const BODY: &[u8] = b"{\"n\":1}";

/// Polls without anything new after which nothing more will happen.
const TURNS: usize = 40;

/// How a connection ends once it has said everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It does not.
    Open,
    /// By a FIN.
    Fin,
    /// By a reset.
    Reset,
}

/// What the other side of a connection does.
#[derive(Clone, Debug)]
pub struct Script {
    /// HEAD, or POST with a short body.
    pub head_only: bool,
    /// Whether the answer is collected or streamed.
    pub streamed: bool,
    /// The request's bytes are taken so many at a time.
    pub takes: usize,
    /// So many bytes of the request are taken before anything is said; `None`: all of it.
    pub after: Option<usize>,
    /// Past so many bytes of the request the connection takes no more.
    pub chokes: Option<usize>,
    /// What is said, each piece in a read of its own.
    pub pieces: Vec<Bytes>,
    /// And then.
    pub end: End,
}

/// What came of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A whole answer: status, fields in order, body, cut.
    Answer(u16, Vec<(String, Vec<u8>)>, Bytes, bool),
    /// An answer that broke off after these bytes.
    Broken(u16, Bytes),
    /// No byte was sent.
    NotSent,
    /// Nobody knows.
    Unclear,
    /// The script has ended and the exchange has not.
    Waiting,
}

/// An exchange and what it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub observed: Observed,
    /// What the connection took of the request.
    pub request: Bytes,
    /// Whether the whole request was handed over.
    pub written: bool,
    /// Connections kept for the next request.
    pub kept: usize,
    /// Whether the connection was closed by a reset.
    pub reset: bool,
}

/// Runs a script against one of the clients.
///
/// # Panics
/// When no runtime can be built.
#[must_use]
pub fn run(script: &Script, by_hyper: bool) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime
        .expect("a runtime")
        .block_on(exchange(script.clone(), by_hyper))
}

async fn exchange(script: Script, by_hyper: bool) -> Outcome {
    let core = Core::start(0, Clock::start());
    let to = nowhere();
    let (mut request, mode) = (request(&script), mode(&script));
    if mode == Mode::Pass && !by_hyper && !script.head_only {
        write_out(&mut request);
    }
    let stage = Arc::new(Mutex::new(Stage::new(script)));
    let line = Line::new(Transport::StandIn(Box::new(Actor(Arc::clone(&stage)))));
    let mut conn = Conn::new(Arc::clone(&line));
    if by_hyper {
        let (undriven, driver) = dial::hyper_on(&line).await.expect("hyper takes any socket");
        conn.http = Some(undriven.driven(&core, driver));
    }
    let course = Course {
        core: core.clone(),
        to: Arc::clone(&to),
        terms: Terms {
            connect: Duration::from_secs(1),
            idle: Duration::from_secs(3_600),
            max_kept: 4 * 1024,
            mode,
        },
        first: Some(conn),
    };
    let mut exchange = Exchange::run(course, request);
    let ended = unless_silent(&stage, &mut exchange).await;
    let written = exchange.written();
    let observed = match ended {
        None => Observed::Waiting,
        Some(ended) => observe(&stage, ended).await,
    };
    drop(exchange);
    // The connection's task, if there is one, sees what is left of the script.
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
    let kept = to.idle_connections();
    let stage = stage.lock();
    Outcome {
        observed,
        request: Bytes::from(stage.taken.clone()),
        written,
        kept,
        reset: stage.reset,
    }
}

async fn observe(stage: &Mutex<Stage>, ended: Ended) -> Observed {
    match ended {
        Ended::Collected(answer) => {
            let fields = sorted(&answer.headers);
            Observed::Answer(answer.status.as_u16(), fields, answer.body, answer.cut)
        }
        Ended::Streaming(stream) => read(stage, *stream).await,
        Ended::NotSent(_) => Observed::NotSent,
        Ended::Unclear(_) => Observed::Unclear,
    }
}

async fn read(stage: &Mutex<Stage>, stream: StreamAnswer) -> Observed {
    let StreamAnswer {
        status,
        headers,
        mut body,
        ..
    } = stream;
    let mut all = Vec::new();
    loop {
        match unless_silent(stage, std::pin::pin!(body.frame())).await {
            None => return Observed::Waiting,
            Some(None) => {
                // An announced length is the tool's to say; a collected answer says its own.
                return Observed::Answer(status.as_u16(), sorted(&headers), all.into(), false);
            }
            Some(Some(Err(_))) => return Observed::Broken(status.as_u16(), all.into()),
            Some(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    all.extend_from_slice(&data);
                }
            }
        }
    }
}

/// Polls until the end, or until the script is over and nothing happens any more.
async fn unless_silent<F: Future + Unpin>(
    stage: &Mutex<Stage>,
    mut future: F,
) -> Option<F::Output> {
    let mut idle = 0;
    while idle < TURNS {
        let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut future).poll(cx))).await;
        if let Poll::Ready(output) = polled {
            return Some(output);
        }
        idle = if stage.lock().moved() { 0 } else { idle + 1 };
        tokio::task::yield_now().await;
    }
    None
}

fn sorted(headers: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let mut fields: Vec<_> = headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
        .collect();
    fields.sort();
    fields
}

const fn mode(script: &Script) -> Mode {
    if script.streamed {
        Mode::Pass
    } else {
        Mode::Auto
    }
}

fn request(script: &Script) -> Outgoing {
    let body = Bytes::from_static(if script.head_only { b"" } else { BODY });
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_static("tool"));
    headers.insert("x-call-id", HeaderValue::from_static("call-1"));
    headers.append("via", HeaderValue::from_static("1.1 a"));
    headers.append("via", HeaderValue::from_static("1.1 b"));
    if !body.is_empty() {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    Outgoing {
        method: if script.head_only {
            Method::HEAD
        } else {
            Method::POST
        },
        target: PathAndQuery::from_static("/work?x=1"),
        headers: headers.into(),
        body: Payload::from(body),
    }
}

/// As a request without effects is made whose head is passed on as lines.
fn write_out(outgoing: &mut Outgoing) {
    let (method, target) = (outgoing.method.as_str(), outgoing.target.as_str());
    let mut request = format!("{method} {target} HTTP/1.1\r\n").into_bytes();
    let from = request.len();
    fields::put_all(&mut request, outgoing.headers.make_mut());
    request.extend_from_slice(b"\r\n");
    let fields = from..request.len();
    request.extend_from_slice(BODY);
    let request = Bytes::from(request);
    outgoing.headers = Final::Written(Written { request, fields });
}

fn nowhere() -> Arc<Destination> {
    let endpoint = Endpoint {
        https: false,
        host: Arc::from("127.0.0.1"),
        port: 1,
        authority: Arc::from("127.0.0.1:1"),
        base_path: Arc::from(""),
    };
    let pool = PoolConfig {
        idle: Duration::from_secs(3_600),
        max_idle: 8,
        protocol: Protocol::Http1,
    };
    Destination::new(&endpoint, None, pool, (1, Duration::from_secs(30)))
        .expect("an address needs nothing else")
}

/// What both ends of the scripted connection know.
struct Stage {
    script: Script,
    taken: Vec<u8>,
    said: usize,
    /// A read found nothing once; the next piece is there at the next.
    paused: bool,
    reader: Option<Waker>,
    writer_paused: bool,
    reset: bool,
    moves: usize,
    seen: usize,
}

impl Stage {
    const fn new(script: Script) -> Self {
        Self {
            script,
            taken: Vec::new(),
            said: 0,
            paused: false,
            reader: None,
            writer_paused: false,
            reset: false,
            moves: 0,
            seen: 0,
        }
    }

    /// Whether something has happened since this was last asked.
    fn moved(&mut self) -> bool {
        std::mem::replace(&mut self.seen, self.moves) != self.moves
    }

    fn speaks(&self) -> bool {
        match self.script.after {
            Some(after) => self.taken.len() >= after.max(1),
            None if self.script.head_only => self.taken.ends_with(b"\r\n\r\n"),
            None => self.taken.ends_with(BODY),
        }
    }
}

/// The scripted connection.
struct Actor(Arc<Mutex<Stage>>);

impl StandIn for Actor {
    fn is_quiet(&self) -> bool {
        let stage = self.0.lock();
        let all_said = stage.said == stage.script.pieces.len();
        !stage.speaks() || (all_said && stage.script.end == End::Open)
    }

    fn reset(&mut self) {
        self.0.lock().reset = true;
    }
}

impl AsyncRead for Actor {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stage = &mut *self.0.lock();
        if !stage.speaks() {
            stage.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        stage.paused = !stage.paused;
        let over = stage.said == stage.script.pieces.len();
        if stage.paused && !(over && stage.script.end == End::Open) {
            stage.moves += 1;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let Some(piece) = stage.script.pieces.get_mut(stage.said) else {
            return match stage.script.end {
                End::Open => Poll::Pending,
                End::Fin => Poll::Ready(Ok(())),
                End::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            };
        };
        stage.moves += 1;
        let now = piece.split_to(piece.len().min(buf.remaining()));
        buf.put_slice(&now);
        if piece.is_empty() {
            stage.said += 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Actor {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let stage = &mut *self.0.lock();
        let room = stage.script.chokes.map(|most| most - stage.taken.len());
        if room == Some(0) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        stage.writer_paused = !stage.writer_paused;
        stage.moves += 1;
        if stage.writer_paused && !stage.taken.is_empty() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let now = bytes.len().min(stage.script.takes.max(1));
        let now = now.min(room.unwrap_or(usize::MAX));
        stage.taken.extend_from_slice(&bytes[..now]);
        if let Some(reader) = stage.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(now))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
