//! An answer as it goes over the wire.
//!
//! What `reply` makes of it, and then hyper: the same fields, with a length and a date. Of an
//! ordinary answer the tool's lines go out as they came, and this gateway's own behind them.

use std::io::Write as _;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use http::{Response, StatusCode};
use tokio::io::AsyncWriteExt as _;

use super::Dates;
use crate::flow::told::{Shown, Told, Whole, Word};
use crate::ingress::answer::{Said, Turned};
use crate::ingress::reply::{ReplyBody, Shape, attempts_value};
use crate::ingress::seat::Turn;
use crate::ingress::wire::Socket;
use crate::upstream::fields::{FIELD_BYTES, Text, put_all, put_line};
use crate::upstream::headers::{X_CALL_ATTEMPTS, X_CALL_ID_SOURCE, X_CALL_OUTCOME};

/// Up to here an answer's body is copied behind its head, so that one write takes both.
pub(super) const ONE_WRITE: usize = 16 * 1024;

/// Fields that the gateway adds to an answer, with its length and date.
const OWN_FIELDS: usize = 7;

/// An answer as it goes over the wire.
pub(super) struct Written {
    /// The head, and the body if it is short.
    pub(super) head: Vec<u8>,
    /// A longer body.
    pub(super) body: Bytes,
    /// The connection ends after it.
    pub(super) last: bool,
    /// Kept until it is out.
    _turn: Option<Turn>,
}

impl Written {
    /// What is said, unless that is not plain.
    pub(super) fn of(said: Said, dates: &Dates) -> Result<Self, Box<Response<Turned>>> {
        if let Ok(told) = &said.told
            && let Some((text, whole)) = ordinary(told)
        {
            let (head, body) = lines(told, &said.shape, (text, whole), dates);
            return Ok(Self {
                head,
                body,
                last: said.shape.close,
                _turn: said.turn,
            });
        }
        let response = said.response(false);
        match Self::rendered(&response, dates) {
            Some((head, body, last)) => Ok(Self {
                head,
                body,
                last,
                _turn: response.into_body().into_turn(),
            }),
            None => Err(Box::new(response)),
        }
    }

    pub(super) fn rendered(
        response: &Response<Turned>,
        dates: &Dates,
    ) -> Option<(Vec<u8>, Bytes, bool)> {
        let ReplyBody::Whole(body) = response.body().inner() else {
            return None;
        };
        let (status, headers) = (response.status(), response.headers());
        let bodiless = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let framed =
            headers.contains_key(CONTENT_LENGTH) || headers.contains_key(TRANSFER_ENCODING);
        if bodiless || status.is_informational() || framed {
            return None;
        }
        let mut text = begun(status, headers.len() * FIELD_BYTES, body)?;
        put_all(&mut text, headers);
        let dates = (!headers.contains_key(DATE)).then_some(dates);
        let body = ended(&mut text, body, dates);
        Some((text, body, headers.contains_key(CONNECTION)))
    }

    pub(super) async fn send(&self, socket: &mut Socket) -> std::io::Result<()> {
        socket.write_all(&self.head).await?;
        if self.body.is_empty() {
            return Ok(());
        }
        socket.write_all(&self.body).await
    }
}

/// An answer whose lines can go out as they came. Anything that adds more than the four fields of
/// every answer is rendered.
fn ordinary(told: &Told) -> Option<(&Text, &Whole)> {
    let Shown::Whole(whole) = &told.shown else {
        return None;
    };
    let plain = told.word == Word::Answered
        && told.original.is_none()
        && !told.same_id_only
        && !told.recorded
        && whole.status.canonical_reason().is_some()
        && !whole.status.is_informational()
        && !matches!(
            whole.status,
            StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
    whole
        .headers
        .text()
        .filter(|_| plain)
        .map(|text| (text, whole))
}

fn lines(
    told: &Told,
    shape: &Shape,
    (text, whole): (&Text, &Whole),
    dates: &Dates,
) -> (Vec<u8>, Bytes) {
    let room = text.room() + OWN_FIELDS * FIELD_BYTES;
    let mut out = begun(whole.status, room, &whole.body).expect("its status has a name");
    // One of this name that the tool sent is replaced.
    text.write_answer(&mut out, told.call.as_ref().map(|_| &shape.id_field));
    if let Some((id, source)) = &told.call {
        put_line(&mut out, &shape.id_field, id.as_str().as_bytes());
        put_line(&mut out, &X_CALL_ID_SOURCE, source.as_str().as_bytes());
    }
    put_line(
        &mut out,
        &X_CALL_ATTEMPTS,
        attempts_value(told.attempts).as_bytes(),
    );
    put_line(&mut out, &X_CALL_OUTCOME, told.word.as_str().as_bytes());
    if shape.close {
        put_line(&mut out, &CONNECTION, b"close");
    }
    let dates = (!text.is_dated()).then_some(dates);
    let body = ended(&mut out, &whole.body, dates);
    (out, body)
}

/// The first line, with room for `more`.
fn begun(status: StatusCode, more: usize, body: &Bytes) -> Option<Vec<u8>> {
    let reason = status.canonical_reason()?;
    let short = if body.len() <= ONE_WRITE {
        body.len()
    } else {
        0
    };
    let mut text = Vec::with_capacity(more + 3 * FIELD_BYTES + short);
    put(
        &mut text,
        ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"],
    );
    Some(text)
}

/// The length, the date where it is missing, the end of the head; the body, if it is long.
fn ended(text: &mut Vec<u8>, body: &Bytes, dates: Option<&Dates>) -> Bytes {
    // Writing to memory cannot fail.
    let _written = write!(text, "content-length: {}", body.len());
    if let Some(dates) = dates {
        put(text, ["\r\ndate: "]);
        dates.put(text);
    }
    put(text, ["\r\n\r\n"]);
    if body.len() > ONE_WRITE {
        return body.clone();
    }
    text.extend_from_slice(body);
    Bytes::new()
}

fn put<const N: usize>(text: &mut Vec<u8>, parts: [&str; N]) {
    for part in parts {
        text.extend_from_slice(part.as_bytes());
    }
}
