//! Renders what a caller is told: status, the `X-Call-*` fields, problem documents.
//!
//! One place for every answer, so that none lacks its call id. What callgate says about a call and
//! about itself comes from here alone: a tool's fields of these names (it may be a gateway further
//! in, or a liar) are replaced or dropped, in its trailers too. Deliberately absent: the fields
//! hyper writes (`Date`, framing) and the decision what to tell.

use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::json;

use super::tunnel;
use super::wire::Wire;
use crate::call::id::{CallId, IdSource};
use crate::call::receipt::State;
use crate::flow::Prefer;
use crate::flow::told::{BodyError, Shown, Stream, Told, Whole, Word};
use crate::upstream::headers::{
    IDEMPOTENT_REPLAYED, PREFERENCE_APPLIED, X_CALL_ATTEMPTS, X_CALL_ID_SOURCE, X_CALL_OUTCOME,
    X_ORIGINAL_CALL_ID, is_call_field,
};

pub(super) mod problem;

pub(super) use problem::SLOW_HEAD;

const RECEIPT: HeaderName = HeaderName::from_static("x-call-receipt");
const REPEAT: HeaderName = HeaderName::from_static("x-call-repeat");
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// Where this gateway answers what became of a call.
pub(super) const RECEIPTS: &str = "/_callgate/receipts/";

/// What stands in a receipt's address as it is: unreserved characters (RFC 3986).
const IN_ADDRESS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The server copies what it is given beside the head, so a long body goes in pieces: one copy of
/// this size exists at a time, not one of the whole body at every slow reader.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Attempt counts that need no formatting; more than any policy allows in line.
const SMALL: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];

/// What the request says about the shape of its answer.
#[derive(Clone)]
pub(super) struct Shape {
    /// The field for the call id.
    pub(super) id_field: HeaderName,
    /// HEAD: the fields of the answer without its body.
    pub(super) head: bool,
    /// The connection ends after this answer.
    pub(super) close: bool,
    /// Reset this wire when the body breaks off: HTTP/1.0 knows no other sign.
    pub(super) fragile: Option<Arc<Wire>>,
}

/// The body of an answer.
pub(super) enum ReplyBody {
    /// Nothing, or the whole.
    Whole(Bytes),
    /// Still arriving.
    Stream {
        /// The body itself.
        body: Stream,
        /// The wire to reset when it breaks off.
        fragile: Option<Arc<Wire>>,
        /// It has broken off, and what came before that is on its way out.
        broken: Option<BodyError>,
    },
}

/// Renders `told`.
pub(super) fn render(told: Told, shape: Shape) -> Response<ReplyBody> {
    let Told {
        call,
        word,
        attempts,
        shown,
        original,
        same_id_only,
        recorded,
    } = told;
    let switches = matches!(shown, Shown::Tunnel(_));
    let (mut status, mut headers, body) = match shown {
        Shown::Whole(mut whole) => {
            if whole.headers.may_tell_of_calls() {
                remove_own(&mut whole.headers);
            }
            whole_parts(whole, shape.head)
        }
        Shown::Stream {
            status,
            mut headers,
            body,
        } => {
            remove_own(&mut headers);
            (status, headers, stream_body(body, &shape))
        }
        Shown::Tunnel(switched) => (
            StatusCode::SWITCHING_PROTOCOLS,
            tunnel::headers(&switched),
            ReplyBody::empty(),
        ),
        Shown::Problem(problem) => {
            let facts = problem::Facts {
                call: call.as_ref().map(|(id, _)| id),
                attempts,
                recorded,
            };
            (
                problem.status,
                problem::headers(&problem),
                problem::body(&problem, &facts),
            )
        }
        Shown::Accepted(prefer) => accepted_parts(prefer, call.as_ref(), attempts),
    };
    if status.is_informational() && !switches {
        // 1xx never ends an exchange, and a 101 hands a connection over only as a tunnel.
        status = StatusCode::BAD_GATEWAY;
    }
    if let Some((id, source)) = &call {
        name_call(&mut headers, id, &shape.id_field, recorded);
        headers.insert(X_CALL_ID_SOURCE, HeaderValue::from_static(source.as_str()));
    }
    headers.insert(X_CALL_ATTEMPTS, attempts_value(attempts));
    headers.insert(X_CALL_OUTCOME, HeaderValue::from_static(word.as_str()));
    if word == Word::Replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    if let Some(first) = &original {
        headers.insert(X_ORIGINAL_CALL_ID, id_value(first));
    }
    if same_id_only {
        headers.insert(REPEAT, HeaderValue::from_static("same-call-id-only"));
        headers.remove(RETRY_AFTER);
    }
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    finish(response, &shape)
}

/// Fits an answer to its request and its connection.
pub(super) fn finish(response: Response<ReplyBody>, shape: &Shape) -> Response<ReplyBody> {
    let (mut parts, body) = response.into_parts();
    let headers = &mut parts.headers;
    if shape.close {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let bodiless = shape.head || matches!(parts.status.as_u16(), 204 | 304);
    let body = match body {
        ReplyBody::Whole(bytes) if shape.head => {
            // What a GET would have been told; the tool's own word when it sent one.
            if !bytes.is_empty() {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            }
            ReplyBody::empty()
        }
        _ if bodiless => ReplyBody::empty(),
        body => body,
    };
    Response::from_parts(parts, body)
}

fn whole_parts(whole: Whole, head: bool) -> (StatusCode, HeaderMap, ReplyBody) {
    let Whole {
        status,
        mut headers,
        body,
    } = whole;
    if !head && status != StatusCode::NOT_MODIFIED {
        // hyper writes the length of what is really sent.
        headers.remove(CONTENT_LENGTH);
    }
    (status, headers.into_map(), ReplyBody::Whole(body))
}

/// The call is on record: where its end will be told.
fn accepted_parts(
    prefer: Prefer,
    call: Option<&(CallId, IdSource)>,
    attempts: u32,
) -> (StatusCode, HeaderMap, ReplyBody) {
    let mut headers = HeaderMap::with_capacity(10);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(applied) = HeaderValue::from_str(&prefer.to_string()) {
        headers.insert(PREFERENCE_APPLIED, applied);
    }
    let link = call.map(|(id, _)| receipt_link(id));
    if let Some(link) = link.as_deref().map(HeaderValue::from_str) {
        headers.insert(
            LOCATION,
            link.expect("what is percent-encoded is visible ASCII"),
        );
    }
    let document = json!({
        "callId": call.map(|(id, _)| id.as_str()),
        "state": State::Processing.as_str(),
        "attempts": attempts,
        "receipt": link,
    });
    let body = ReplyBody::Whole(document.to_string().into());
    (StatusCode::ACCEPTED, headers, body)
}

fn stream_body(body: Stream, shape: &Shape) -> ReplyBody {
    ReplyBody::Stream {
        body,
        fragile: shape.fragile.clone(),
        broken: None,
    }
}

/// Drops what is not a tool's to say.
pub(super) fn remove_own(headers: &mut HeaderMap) {
    // Nearly no answer has any.
    while let Some(name) = headers.keys().find(|name| is_call_field(name)).cloned() {
        headers.remove(name);
    }
}

/// Adds the call id and the address of its receipt, out of one allocation when the id needs no
/// encoding, as nearly none does.
fn name_call(headers: &mut HeaderMap, id: &CallId, field: &HeaderName, recorded: bool) {
    let value = |bytes| HeaderValue::from_maybe_shared(bytes).expect("a call id is visible ASCII");
    if !recorded {
        headers.insert(field, value(Bytes::copy_from_slice(id.as_str().as_bytes())));
        return;
    }
    let link = Bytes::from(receipt_link(id));
    let tail = link.slice(RECEIPTS.len()..);
    let tail = if tail == id.as_str() {
        tail
    } else {
        Bytes::copy_from_slice(id.as_str().as_bytes())
    };
    headers.insert(field, value(tail));
    headers.insert(RECEIPT, value(link));
}

fn id_value(id: &CallId) -> HeaderValue {
    HeaderValue::from_str(id.as_str()).expect("a call id is visible ASCII")
}

/// Where the receipt of a call is answered.
pub(super) fn receipt_link(id: &CallId) -> String {
    let mut link = String::with_capacity(RECEIPTS.len() + id.as_str().len());
    link.push_str(RECEIPTS);
    write!(
        link,
        "{}",
        percent_encode(id.as_str().as_bytes(), IN_ADDRESS)
    )
    .expect("a String takes every write");
    link
}

pub(super) fn attempts_value(attempts: u32) -> HeaderValue {
    match SMALL.get(attempts as usize) {
        Some(text) => HeaderValue::from_static(text),
        None => HeaderValue::from(attempts),
    }
}

impl ReplyBody {
    pub(super) const fn empty() -> Self {
        Self::Whole(Bytes::new())
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES_MAX));
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            Self::Stream {
                body,
                fragile,
                broken,
            } => {
                if let Some(error) = broken.take() {
                    if let Some(wire) = fragile {
                        wire.abort();
                    }
                    return Poll::Ready(Some(Err(error)));
                }
                let mut next = std::task::ready!(Pin::new(body).poll_frame(cx));
                if let Some(Ok(frame)) = &mut next
                    && let Some(trailers) = frame.trailers_mut()
                {
                    remove_own(trailers);
                }
                let Some(Err(error)) = next else {
                    return Poll::Ready(next);
                };
                // The server drops what it has not written yet when a body fails: first it has to
                // write, so that a caller sees how far the answer came.
                *broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream { body, .. } => body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests;
