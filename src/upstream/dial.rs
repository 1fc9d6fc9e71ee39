//! From an address to a connection that can take a request, and from such a connection to one that
//! hyper speaks on.
//!
//! Everything that fails here is proof that nothing was sent: no byte of a request exists yet.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::destination::{Destination, Place};
use super::plain::HEAD_BYTES_MAX;
use super::pool::{Conn, Http};
use super::transport::Transport;
use super::wire::{Line, Wire};
use super::{Core, Payload};
use crate::call::outcome::NotSent;

/// The most hyper buffers for one connection and direction. Twice the largest head, so that a
/// head over its limit is told by that limit.
const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    #[error("the host name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("the host name has no address")]
    NoAddress,
    #[error("cannot connect to {0}")]
    Connect(SocketAddr, #[source] io::Error),
    #[error("the simulated network takes no connection")]
    StandIn(#[source] io::Error),
    #[error("the TLS handshake failed")]
    Tls(#[source] io::Error),
    #[error("the TLS handshake did not end within {0:?}")]
    TlsTimeout(Duration),
    #[error("the HTTP client refused the connection")]
    Http(#[source] hyper::Error),
    #[error("the tool does not agree to HTTP/2 (ALPN)")]
    NoHttp2,
    #[error("the tool does not speak HTTP/2")]
    Http2(#[source] h2::Error),
    #[error("the tool ended the connection before it said anything in HTTP/2")]
    Hangup,
    #[error("all {0} HTTP/2 connections to the tool are taken")]
    Crowded(usize),
}

/// What TLS is to agree on (RFC 7301).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alpn {
    Http1,
    Http2,
    Both,
}

impl DialError {
    pub(super) const fn outcome(&self) -> NotSent {
        match self {
            Self::Timeout(_)
            | Self::Resolve(_)
            | Self::NoAddress
            | Self::Connect(..)
            | Self::StandIn(_)
            | Self::Http2(_)
            | Self::Hangup
            | Self::Crowded(_) => NotSent::Connect,
            Self::Tls(_) | Self::TlsTimeout(_) | Self::NoHttp2 => NotSent::Tls,
            Self::Http(_) => NotSent::HandedBack,
        }
    }
}

/// Opens a connection within `limit`, TLS included. It lives on `core`'s runtime, where this must
/// be polled.
pub(super) async fn dial(
    core: &Core,
    to: &Destination,
    limit: Duration,
) -> Result<Conn, DialError> {
    begin(core, open(core, to, limit, Alpn::Http1).await?).await
}

/// Begins HTTP/1.1 on a socket.
pub(super) async fn begin(core: &Core, transport: Transport) -> Result<Conn, DialError> {
    let plain = !matches!(transport, Transport::Tls(_));
    let line = Line::new(transport);
    let http = match plain {
        true => None,
        false => {
            let (http, driver) = hyper_on(&line).await.map_err(DialError::Http)?;
            Some(http.driven(core, driver))
        }
    };
    let mut conn = Conn::new(line);
    conn.http = http;
    Ok(conn)
}

/// The same, for a connection that may be switched to another protocol.
pub(super) async fn dial_switching(
    core: &Core,
    to: &Destination,
    limit: Duration,
) -> Result<Conn, DialError> {
    let line = Line::new(open(core, to, limit, Alpn::Http1).await?);
    let (sender, connection) = handshake(&line).await.map_err(DialError::Http)?;
    // As in `hyper_on`; after a switch the tunnel has the socket, and this is over.
    let driver = async move {
        let _ended = connection.with_upgrades().await;
    };
    let mut conn = Conn::new(line);
    conn.http = Some(Undriven(sender).driven(core, driver));
    Ok(conn)
}

/// A connected socket, within `limit`.
pub(super) async fn open(
    core: &Core,
    to: &Destination,
    limit: Duration,
    alpn: Alpn,
) -> Result<Transport, DialError> {
    let mut expired = core.wheel.sleep(limit);
    if let Some(dialer) = to.stand_in.get() {
        let opened = tokio::select! {
            opened = dialer() => opened.map_err(DialError::StandIn)?,
            () = &mut expired => return Err(DialError::Timeout(limit)),
        };
        return Ok(Transport::StandIn(opened));
    }
    let tcp = tokio::select! {
        tcp = connect(core, to) => tcp?,
        () = &mut expired => {
            if let Place::Name(name) = &to.place {
                name.hurry(core);
            }
            return Err(DialError::Timeout(limit));
        }
    };
    // Head and body leave in one write; waiting for a fuller segment only costs time.
    if let Err(e) = tcp.set_nodelay(true) {
        tracing::debug!(error = %e, "no TCP_NODELAY on a new connection");
    }
    Ok(match &to.tls {
        None => Transport::Plain(tcp),
        Some(tls) => tokio::select! {
            shaken = tls.connector(alpn).connect(tls.name.clone(), tcp) => {
                Transport::Tls(Box::new(shaken.map_err(DialError::Tls)?))
            }
            () = &mut expired => return Err(DialError::TlsTimeout(limit)),
        },
    })
}

/// A connection that hyper is to speak on, and the future that has to be driven for it.
pub(super) struct Undriven(SendRequest<Payload>);

/// Lets hyper speak on a connection. Nothing is read or written before it is driven, so that a
/// request can be given to it first.
pub(super) async fn hyper_on(
    line: &Arc<Line>,
) -> Result<(Undriven, impl Future<Output = ()> + Send + use<>), hyper::Error> {
    let (sender, connection) = handshake(line).await?;
    let driver = async move {
        // What ends a connection is told to the exchange on it; an idle one has nobody to tell.
        let _ended = connection.await;
    };
    Ok((Undriven(sender), driver))
}

type Handshake = (
    SendRequest<Payload>,
    http1::Connection<TokioIo<Wire>, Payload>,
);

async fn handshake(line: &Arc<Line>) -> Result<Handshake, hyper::Error> {
    http1::Builder::new()
        .writev(false)
        .max_buf_size(BUFFER_BYTES_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .handshake::<_, Payload>(TokioIo::new(line.wire()))
        .await
}

impl Undriven {
    /// Hands a request over; it goes out once the connection is driven.
    pub(super) fn send(
        &mut self,
        request: Request<Payload>,
    ) -> impl Future<Output = Result<Response<Incoming>, TrySendError<Request<Payload>>>> + use<>
    {
        self.0.try_send_request(request)
    }

    /// Drives the connection on `core`.
    pub(super) fn driven(
        self,
        core: &Core,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Http {
        let task = core.spawn(driver).abort_handle();
        Http {
            sender: self.0,
            task,
        }
    }
}

/// The first of the host's addresses that takes a connection.
async fn connect(core: &Core, to: &Destination) -> Result<TcpStream, DialError> {
    let name = match &to.place {
        Place::Address(address) => return connect_one(*address).await,
        Place::Name(name) => name,
    };
    let found = name.addresses(core).await.map_err(DialError::Resolve)?;
    let mut last = DialError::NoAddress;
    for address in found.iter() {
        match connect_one(*address).await {
            Ok(tcp) => return Ok(tcp),
            Err(e) => last = e,
        }
    }
    name.hurry(core);
    Err(last)
}

async fn connect_one(address: SocketAddr) -> Result<TcpStream, DialError> {
    TcpStream::connect(address)
        .await
        .map_err(|e| DialError::Connect(address, e))
}
