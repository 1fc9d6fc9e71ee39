//! A door for `fuzz/`, the replay of its corpus and the differential test: what a request's head
//! and body prove about the call's id, and what each of the two servers takes bytes for, without a
//! connection. No part of the interface.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::identify;
use super::plain;
use super::reply::ReplyBody;
use crate::call::id::{CallId, IdSource};
use crate::config::template::JsonPointer;

/// The id that head and body agree on, or the sentence the caller would read.
///
/// # Errors
/// As the door refuses it.
pub fn identified(
    headers: &HeaderMap,
    name: &HeaderName,
    body: &[u8],
    pointer: &JsonPointer,
) -> Result<Option<(CallId, IdSource)>, String> {
    let in_head = identify::from_headers(&headers.clone().into(), name);
    let found = in_head.and_then(|in_head| {
        identify::from_body(body, pointer).and_then(|in_body| identify::agree(in_head, in_body))
    });
    found.map_err(|problem| problem.detail(name))
}

/// A request as a server understood it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Understood {
    method: String,
    target: String,
    /// By name, less `Connection`, which says nothing about the request.
    fields: Vec<(String, Vec<u8>)>,
    body: Bytes,
}

impl Understood {
    fn new((method, uri): (&Method, &Uri), headers: &HeaderMap, body: Bytes) -> Self {
        let field = |(name, value): (&HeaderName, &HeaderValue)| {
            (name.to_string(), value.as_bytes().to_vec())
        };
        let fields = headers.iter().filter(|(name, _)| **name != CONNECTION);
        let mut fields: Vec<_> = fields.map(field).collect();
        fields.sort_by(|a, b| a.0.cmp(&b.0));
        Self {
            method: method.to_string(),
            target: uri.to_string(),
            fields,
            body,
        }
    }
}

/// What the plain server takes the first of `bytes` for, and how many of them; `None` when it
/// leaves them to hyper.
#[must_use]
pub fn plainly(bytes: &[u8]) -> Option<(Understood, usize)> {
    let (head, body, taken) = plain::taken(bytes)?;
    let way = (&head.method, &head.uri);
    Some((Understood::new(way, &head.headers, body), taken))
}

/// What hyper takes the first request for; nothing follows these bytes.
///
/// # Panics
/// When no runtime can be built.
#[must_use]
pub fn hyper_hears(bytes: &[u8]) -> Option<Understood> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let answer = Response::new(ReplyBody::empty());
    runtime
        .expect("a runtime")
        .block_on(by_hyper(bytes, answer))
        .0
}

/// The same, and what hyper writes when it is given this answer.
///
/// # Panics
/// Never: memory takes every write.
pub(super) async fn by_hyper(
    bytes: &[u8],
    answer: Response<ReplyBody>,
) -> (Option<Understood>, Vec<u8>) {
    let (mut ours, theirs) = tokio::io::duplex(256 * 1024);
    ours.write_all(bytes).await.expect("room for a request");
    ours.shutdown().await.expect("an open pipe");
    let heard = Mutex::new(None);
    let answer = Mutex::new(Some(answer));
    let service = service_fn(|request: Request<Incoming>| {
        let (heard, answer) = (&heard, answer.lock().take());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map(|body| body.to_bytes());
            if let (Ok(body), Some(_)) = (body, &answer) {
                let way = (&parts.method, &parts.uri);
                *heard.lock() = Some(Understood::new(way, &parts.headers, body));
            }
            Ok::<_, Infallible>(answer.unwrap_or_else(|| Response::new(ReplyBody::empty())))
        }
    });
    let mut builder = http1::Builder::new();
    builder.half_close(true).writev(false).keep_alive(false);
    let serving = builder.serve_connection(TokioIo::new(theirs), service);
    // How the connection ends is not asked here.
    drop(serving.await);
    let mut said = Vec::new();
    ours.read_to_end(&mut said).await.expect("an open pipe");
    (heard.into_inner(), said)
}
