//! A connection that a tool switches to another protocol (WebSocket, RFC 6455) and hands over.
//!
//! It gets a connection of its own, never a pooled one: after the switch it is no HTTP connection
//! any more, and before it a dead pooled one would cost the caller its handshake. Deliberately
//! absent: frames; what is said in a tunnel is opaque.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::StatusCode;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::answer::Head;
use super::exchange::Outgoing;
use super::pool::{Conn, Lease};
use super::reading::Source;
use super::sending::into_request;
use super::{Core, Destination, Ended, Terms, answer, dial, headers};
use crate::call::outcome::{NotSent, Unclear};

/// The tool's end of a tunnel. Dropped, it closes the connection.
pub struct Tunnel(TokioIo<Upgraded>);

/// What a tool made of the wish for a tunnel.
pub enum Opened {
    /// It switched. With the fields of its 101, those of this hop left out.
    Switched(http::HeaderMap, Tunnel),
    /// It did not: an answer like any other, or none.
    Not(Ended),
}

/// A connection that is reset unless somebody takes it over.
struct Held(Option<Conn>);

/// Asks `to` to switch protocols; `upgrade` names the protocol. Dropped before its end, the
/// connection is reset.
pub async fn open(
    core: &Core,
    to: &Arc<Destination>,
    mut request: Outgoing,
    upgrade: &http::HeaderValue,
    terms: Terms,
) -> Opened {
    headers::ask_to_switch(request.headers.make_mut(), upgrade);
    let mut held = match dial::dial_switching(core, to, terms.connect).await {
        Ok(conn) => Held(Some(conn)),
        Err(e) => return Opened::Not(Ended::NotSent(e.outcome())),
    };
    let Some(Conn {
        line,
        http: Some(http),
        ..
    }) = &mut held.0
    else {
        return Opened::Not(Ended::NotSent(NotSent::HandedBack));
    };
    line.begin();
    let mut request = into_request(request);
    request.body_mut().bind(line);
    let response = match http.sender.try_send_request(request).await {
        Ok(response) => response,
        Err(mut refused) => {
            return Opened::Not(match refused.take_message() {
                Some(_) => Ended::NotSent(NotSent::HandedBack),
                None => Ended::Unclear(Unclear::Disconnect),
            });
        }
    };
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Opened::Not(held.answer(core, to, response, terms).await);
    }
    // Nobody has asked for another protocol, and nobody would know what is said in it.
    if headers::websocket(response.headers()).is_none() {
        tracing::debug!("a tool switched to another protocol than it was asked for");
        return Opened::Not(Ended::Unclear(Unclear::Disconnect));
    }
    let mut fields = response.headers().clone();
    headers::strip_answer(&mut fields);
    match hyper::upgrade::on(response).await {
        Ok(upgraded) => {
            held.hand_over();
            Opened::Switched(fields, Tunnel(TokioIo::new(upgraded)))
        }
        Err(error) => {
            tracing::debug!(%error, "a tool that switched protocols broke off");
            Opened::Not(Ended::Unclear(Unclear::Disconnect))
        }
    }
}

impl Held {
    /// What the tool says instead of switching; its connection goes the usual way.
    async fn answer(
        &mut self,
        core: &Core,
        to: &Arc<Destination>,
        response: http::Response<hyper::body::Incoming>,
        terms: Terms,
    ) -> Ended {
        let Some(conn) = self.0.take() else {
            return Ended::Unclear(Unclear::Disconnect);
        };
        let lease = Lease::new(core.clone(), Arc::clone(to), conn);
        let (parts, body) = response.into_parts();
        let head = Head {
            status: parts.status,
            headers: parts.headers.into(),
        };
        let ended = answer::receive(lease, head, Source::Hyper(body), terms, false).await;
        ended.unwrap_or_else(|trouble| Ended::Unclear(trouble.unclear()))
    }

    /// The socket is the tunnel's now, and closing it an ordinary close.
    fn hand_over(&mut self) {
        if let Some(conn) = self.0.take() {
            conn.line.rest();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(conn) = self.0.take() {
            conn.reset();
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tunnel")
    }
}
