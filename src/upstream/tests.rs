//! Exchanges against a scripted peer that speaks exact bytes over a real socket.
//!
//! Waits are for events: a request that arrived, a connection that ended. Times appear only as
//! policies in milliseconds and as generous upper bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method};

use super::exchange::Course;
use super::pool::Conn;
use super::{Answer, Core, Ended, Exchange, Mode, Outgoing, Payload, StreamAnswer, Terms, Tool};
use crate::call::outcome::{NotSent, Unclear};
use crate::clock::Clock;

mod closing;
mod differential;
mod ends;
mod frames;
mod http2;
pub(in crate::upstream) mod peer;
mod pooling;
mod streaming;
mod tls;
mod uploads;

use peer::{Peer, Sock};

const TERMS: Terms = Terms {
    connect: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    max_kept: 64 * 1024,
    mode: Mode::Auto,
};

/// A core, and a tool that is a scripted peer.
struct Rig {
    core: Core,
    tool: Arc<Tool>,
    peer: Peer,
}

impl Rig {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut crate::config::route::Upstream)) -> Self {
        let peer = Peer::bind().await;
        let mut upstream = peer::upstream(&peer.endpoint());
        change(&mut upstream);
        let tool = Tool::new(&upstream, 1).unwrap();
        Self {
            core: Core::start(0, Clock::start()),
            tool,
            peer,
        }
    }

    fn send(&self, request: Outgoing, terms: Terms) -> Exchange {
        Exchange::new(&self.core, self.tool.destination(), request, terms)
    }

    /// An exchange that begins on this connection, whatever has become of it.
    fn send_over(&self, conn: Conn, request: Outgoing) -> Exchange {
        let (core, to) = (self.core.clone(), Arc::clone(self.tool.destination()));
        Exchange::run(
            Course {
                core,
                to,
                terms: TERMS,
                first: Some(conn),
            },
            request,
        )
    }

    /// One POST, answered with `answer`, on whichever connection it comes.
    async fn exchange(&self, answer: &str, terms: Terms) -> Ended {
        let (ended, _sock) = self.exchange_keeping(answer, terms).await;
        ended
    }

    async fn exchange_keeping(&self, answer: &str, terms: Terms) -> (Ended, Sock) {
        let script = async {
            let mut sock = self.peer.accept().await;
            sock.request().await;
            sock.write(answer).await;
            sock
        };
        tokio::join!(self.send(post(b"hello"), terms), script)
    }
}

fn post(body: &'static [u8]) -> Outgoing {
    request(Method::POST, Bytes::from_static(body))
}

fn request(method: Method, body: Bytes) -> Outgoing {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::HOST, "tool".parse().unwrap());
    if !body.is_empty() {
        headers.insert(http::header::CONTENT_LENGTH, body.len().into());
    }
    let target = PathAndQuery::from_static("/work?x=1");
    Outgoing {
        method,
        target,
        headers: headers.into(),
        body: Payload::from(body),
    }
}

fn collected(ended: Ended) -> Answer {
    match ended {
        Ended::Collected(answer) => answer,
        other => panic!("not a collected answer: {other:?}"),
    }
}

fn streaming(ended: Ended) -> StreamAnswer {
    match ended {
        Ended::Streaming(answer) => *answer,
        other => panic!("not a streamed answer: {other:?}"),
    }
}

fn unclear(ended: &Ended) -> Unclear {
    match ended {
        Ended::Unclear(why) => *why,
        other => panic!("not unclear: {other:?}"),
    }
}

fn not_sent(ended: &Ended) -> NotSent {
    match ended {
        Ended::NotSent(why) => *why,
        other => panic!("not unsent: {other:?}"),
    }
}
