//! A small HTTP client for the workers of both columns: one keep-alive connection, one request at
//! a time, a deadline, and nothing else. Deliberately absent: any repeat of a request that may have
//! been sent; what to do about a failure is the whole subject of the demonstration. Only a request
//! that hyper hands back unwritten, because the idle connection had ended, goes out on a fresh one.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The largest answer that is read: a page of the dead-letter list stays far below it.
const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;

/// One caller with its connection.
#[derive(Debug)]
pub(super) struct Client {
    address: SocketAddr,
    line: Option<SendRequest<Full<Bytes>>>,
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Why there is none. None of these says what the other side did, except `Unreachable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    #[error("the connection was refused")]
    Unreachable,
    #[error("no answer within the deadline")]
    TimedOut,
    #[error("the connection ended before the answer was complete")]
    Disconnected,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            line: None,
        }
    }

    /// Sends the request and reads its answer, both within `patience`.
    ///
    /// # Errors
    /// Any failure leaves the connection behind; the next request opens a new one.
    pub(super) async fn ask(
        &mut self,
        request: Request<Bytes>,
        patience: Duration,
    ) -> Result<Answer, Failure> {
        let mut request = request.map(Full::new);
        let host = HeaderValue::from_str(&self.address.to_string())
            .expect("a socket address is visible ASCII");
        request.headers_mut().insert(header::HOST, host);
        match timeout(patience, self.exchange(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(failure)) => {
                self.line = None;
                Err(failure)
            }
            Err(_) => {
                self.line = None;
                Err(Failure::TimedOut)
            }
        }
    }

    /// Sends the request and reads its answer line by line; `patience` is for the head and for each
    /// piece.
    ///
    /// # Errors
    /// When there is no such answer, it breaks off, or `each` objects to a line.
    pub(super) async fn lines(
        &mut self,
        request: Request<Bytes>,
        patience: Duration,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.line = Some(connect(self.address).await?);
        let mut request = request.map(Full::new);
        let host = HeaderValue::from_str(&self.address.to_string());
        request.headers_mut().insert(header::HOST, host?);
        let sent = timeout(patience, self.send(request)).await?;
        let response = sent.map_err(|_| Failure::Disconnected)?;
        anyhow::ensure!(response.status().is_success(), "{}", response.status());
        let (mut body, mut rest) = (response.into_body(), Vec::new());
        while let Some(frame) = timeout(patience, body.frame()).await? {
            rest.extend_from_slice(frame?.data_ref().map_or(&[][..], |data| data));
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                each(&rest[..end])?;
                rest.drain(..=end);
            }
        }
        anyhow::ensure!(rest.is_empty(), "its last line has no end");
        Ok(())
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Failure> {
        let request = match self.send(request).await {
            Ok(response) => return collect(response).await,
            Err(Some(unwritten)) => unwritten,
            Err(None) => return Err(Failure::Disconnected),
        };
        self.line = Some(connect(self.address).await?);
        let response = self
            .send(request)
            .await
            .map_err(|_| Failure::Disconnected)?;
        collect(response).await
    }

    /// Sends on the open connection; hands the request back when provably nothing was written.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, Option<Request<Full<Bytes>>>> {
        let Some(line) = self.line.as_mut() else {
            return Err(Some(request));
        };
        if line.ready().await.is_err() {
            return Err(Some(request));
        }
        line.try_send_request(request)
            .await
            .map_err(|mut error| error.take_message())
    }
}

impl Answer {
    /// A header field as text; empty when absent.
    pub(super) fn field(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// `Retry-After` in whole seconds.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        self.field("retry-after")
            .parse()
            .ok()
            .map(Duration::from_secs)
    }
}

/// `GET path` without a body.
pub(super) fn get(path: &str) -> Request<Bytes> {
    Request::get(path)
        .body(Bytes::new())
        .expect("the paths of the demonstration are well-formed")
}

async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Failure> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|_| Failure::Unreachable)?;
    let _ = stream.set_nodelay(true);
    let (line, driving) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| Failure::Disconnected)?;
    tokio::spawn(driving);
    Ok(line)
}

async fn collect(response: http::Response<Incoming>) -> Result<Answer, Failure> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|_| Failure::Disconnected)?
        .to_bytes();
    Ok(Answer {
        status: head.status,
        headers: head.headers,
        body,
    })
}
