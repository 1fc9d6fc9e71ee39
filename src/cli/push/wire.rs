//! Requests to the admin API that stream or are made again and again.
//!
//! A connection a request, as the other commands have it, but asynchronous: while one is on its
//! way, Ctrl-C is heard. Deliberately absent: retries; who may repeat what is the caller's affair.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::super::client::Target;
use super::super::exit::Failure;
use super::super::gateway::Gateway;

/// How long a short question may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Every short answer stays far below it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The way to one gateway.
pub(in crate::cli) struct Link<'a> {
    gateway: &'a Gateway,
}

/// A body that somebody else produces, piece by piece.
pub(in crate::cli) struct Pieces(pub(in crate::cli) mpsc::Receiver<io::Result<Bytes>>);

impl<'a> Link<'a> {
    pub(in crate::cli) const fn new(gateway: &'a Gateway) -> Self {
        Self { gateway }
    }

    /// A JSON document.
    ///
    /// # Errors
    /// When the gateway does not answer in time, or answers with a refusal.
    pub(in crate::cli) async fn document(
        &self,
        method: Method,
        target: &Target,
    ) -> Result<Value, Failure> {
        let asked = async {
            let response = self.send(method, target, None, Empty::new()).await?;
            self.read(response).await
        };
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered,
            Err(_) => Err(self.silent()),
        }
    }

    /// Sends a body as it comes; the answer's document. Has no deadline but the body's own.
    ///
    /// # Errors
    /// When the gateway cannot be reached or is lost on the way, or refuses.
    pub(in crate::cli) async fn submit(
        &self,
        target: &Target,
        kind: &'static str,
        body: Pieces,
    ) -> Result<Value, Failure> {
        let response = self.send(Method::POST, target, Some(kind), body).await?;
        self.read(response).await
    }

    /// A body to be read as it comes.
    ///
    /// # Errors
    /// When the gateway does not answer in time, or refuses.
    pub(in crate::cli) async fn stream(&self, target: &Target) -> Result<Incoming, Failure> {
        let asked = self.send(Method::GET, target, None, Empty::new());
        let response = timeout(PATIENCE, asked).await;
        let response = response.map_err(|_| self.silent())??;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        let refused = self.read(response).await;
        Err(refused.err().unwrap_or_else(|| self.silent()))
    }

    async fn send<B>(
        &self,
        method: Method,
        target: &Target,
        kind: Option<&'static str>,
        body: B,
    ) -> Result<Response<Incoming>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let gateway = self.gateway;
        // IPv6 addresses keep their brackets here: the resolver knows them so.
        let port = gateway.authority.port_u16().unwrap_or(80);
        let host = gateway.authority.host().trim_matches(['[', ']']);
        let socket = TcpStream::connect((host, port));
        let socket = socket.await.map_err(|error| self.unreachable(error))?;
        let lost = |error: hyper::Error| self.unreachable(io::Error::other(error));
        let (mut send, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(lost)?;
        // It ends with the answer's body; how it ended is heard there.
        drop(tokio::spawn(connection));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{}", gateway.prefix, target.as_str()))
            .header(header::HOST, gateway.authority.as_str())
            .header(header::ACCEPT, "application/json");
        if let Some(kind) = kind {
            request = request.header(header::CONTENT_TYPE, kind);
        }
        if let Some(token) = &gateway.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body);
        let request = request.map_err(|error| Failure::Usage(error.to_string()))?;
        send.send_request(request).await.map_err(lost)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Value, Failure> {
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| self.unreachable(io::Error::other(error)))?;
        let document = serde_json::from_slice::<Value>(&body.to_bytes()).ok();
        let strange = || Failure::Strange {
            address: self.gateway.url(),
            what: format!("it answered {} without a document", head.status),
        };
        let document = document.ok_or_else(strange)?;
        if head.status.is_success() {
            return Ok(document);
        }
        let detail = document["detail"].as_str().ok_or_else(strange)?.to_owned();
        Err(match head.status {
            StatusCode::UNAUTHORIZED => Failure::Unauthorized {
                address: self.gateway.url(),
            },
            StatusCode::NOT_FOUND => Failure::NotFound(detail),
            status => Failure::Refused { status, detail },
        })
    }

    fn unreachable(&self, source: io::Error) -> Failure {
        Failure::Unreachable {
            address: self.gateway.url(),
            origin: self.gateway.origin.to_string(),
            source,
        }
    }

    fn silent(&self) -> Failure {
        let text = format!("no answer within {} s", PATIENCE.as_secs());
        self.unreachable(io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let piece = self.get_mut().0.poll_recv(context);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}
