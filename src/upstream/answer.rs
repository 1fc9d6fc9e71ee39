//! Reading an answer: collected before it counts, or handed on as a stream.
//!
//! A collected answer that is cut short, or silent for longer than `idle`, is no answer. The limit
//! bounds memory, not truth: past it the head and what was read go out and the rest streams, except
//! for a 5xx, which is cut, because it is kept for the caller but settles nothing. An answer that
//! finds no room among the bodies held (`limits.bodies`) fares like one that is too long.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING};

use super::Core;
use super::exchange::{Ended, Mode, Terms};
use super::fields::Fields;
use super::headers;
use super::pool::Lease;
use super::reading::{Now, Reading, Source, Trouble};
use super::stream::{StreamAnswer, StreamBody};
use crate::call::outcome::Unclear;

/// A collected answer of the tool.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    /// 200..=999; informational heads never end an exchange.
    pub status: StatusCode,
    /// All fields but hop-by-hop ones, and without a `Content-Length` the body speaks for itself.
    pub headers: Fields,
    /// The body; empty for HEAD, 204 and 304.
    pub body: Bytes,
    /// Only of a 5xx: the body was longer than could be kept and ends early.
    pub cut: bool,
}

/// The head of an answer.
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) headers: Fields,
}

/// Why what arrived is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAnswer {
    #[error("the answer is informational ({0}) and nothing HTTP can follow")]
    Informational(StatusCode),
    /// Nobody asked for it (`TE`), and who undoes only `chunked` would pass coded bytes on.
    #[error("the answer has a transfer coding besides `chunked`")]
    Coded,
    #[error(transparent)]
    Body(#[from] Trouble),
}

impl NoAnswer {
    pub(super) const fn unclear(&self) -> Unclear {
        match self {
            Self::Informational(_) | Self::Coded => Unclear::Disconnect,
            Self::Body(trouble) => trouble.unclear(),
        }
    }
}

/// What a head says about the way its body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Collected; the bool says that it is cut at the limit instead of streamed past it.
    Collect { cut: bool },
    /// Streamed from the head.
    Stream,
}

/// Takes over a short answer that arrived in full with its head, as most do. Any other is given
/// back for [`receive`].
///
/// # Errors
/// The head and the body as they came.
pub(super) fn at_once(
    lease: Lease,
    mut parts: Head,
    mut body: Source,
    terms: Terms,
    head_only: bool,
) -> Result<Ended, Box<(Lease, Head, Source)>> {
    let limit = match terms.mode {
        Mode::Pass => usize::MAX,
        Mode::Auto | Mode::Stream | Mode::Collect => terms.max_kept,
    };
    let Some(bytes) = body.take_if_here(limit) else {
        return Err(Box::new((lease, parts, body)));
    };
    let bodiless = head_only || parts.status == StatusCode::NOT_MODIFIED;
    if parts.headers.text().is_none() {
        // Of known length, so no trailers follow, whatever the mode.
        clean(&mut parts.headers, bodiless, Mode::Collect);
    }
    lease.finish(!parts.status.is_server_error());
    Ok(whole(parts, bytes, false))
}

/// Takes an answer over from its connection.
///
/// # Errors
/// Whatever makes it no answer; the connection is reset then.
pub(super) async fn receive(
    lease: Lease,
    mut parts: Head,
    body: Source,
    terms: Terms,
    head_only: bool,
) -> Result<Ended, NoAnswer> {
    if parts.status.is_informational() {
        // 101 without an Upgrade of ours: what follows is not HTTP.
        lease.reset();
        return Err(NoAnswer::Informational(parts.status));
    }
    if !headers::coding_is_known(&parts.headers) {
        lease.reset();
        return Err(NoAnswer::Coded);
    }
    let bodiless = head_only || parts.status == StatusCode::NOT_MODIFIED;
    let known = clean(&mut parts.headers, bodiless, terms.mode);
    let mut reading = Reading::new(body, terms.idle);
    let Way::Collect { cut } = way(&parts, known, terms) else {
        return pass_on(lease, parts, reading, terms).await;
    };
    let collected = match collect(lease.core(), &mut reading, terms.max_kept).await {
        Ok(collected) => collected,
        Err(trouble) => {
            lease.reset();
            return Err(trouble.into());
        }
    };
    match collected {
        Collected::Whole(body) => {
            lease.finish(!parts.status.is_server_error());
            Ok(whole(parts, body, false))
        }
        Collected::Longer(read) if cut => {
            let kept = beginning(lease.core(), &read, terms.max_kept);
            lease.reset();
            Ok(whole(parts, kept, true))
        }
        Collected::Longer(read) => {
            reading.put_back(read);
            Ok(stream(lease, parts, reading, terms))
        }
    }
}

/// Removes what concerns only this connection; the announced length of the body, if any.
fn clean(headers: &mut Fields, bodiless: bool, mode: Mode) -> Option<u64> {
    if headers.contains_key(TRANSFER_ENCODING) {
        // Framing went by the transfer coding; a length beside it is at best a leftover.
        headers.remove(CONTENT_LENGTH);
    }
    // What is passed on as it arrives keeps its trailers.
    let trailers = (mode == Mode::Pass && headers.contains_key(TRAILER))
        .then(|| headers::Trailers::of(headers));
    headers::strip_answer(headers);
    if let Some(trailers) = trailers {
        trailers.say(headers);
    }
    if bodiless {
        return Some(0);
    }
    headers
        .get(CONTENT_LENGTH)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn way(head: &Head, known: Option<u64>, terms: Terms) -> Way {
    let longer = known.is_some_and(|length| length > terms.max_kept as u64);
    match terms.mode {
        Mode::Pass => Way::Stream,
        Mode::Auto | Mode::Stream | Mode::Collect if head.status.is_server_error() => {
            Way::Collect { cut: true }
        }
        Mode::Stream => Way::Stream,
        Mode::Auto if longer || is_stream(&head.headers) => Way::Stream,
        Mode::Auto | Mode::Collect => Way::Collect { cut: false },
    }
}

/// Whether the media type says that the body arrives over time.
fn is_stream(headers: &http::HeaderMap) -> bool {
    headers::media_type(headers).eq_ignore_ascii_case(b"text/event-stream")
        || headers::is_grpc(headers)
}

enum Collected {
    Whole(Bytes),
    /// More than may be kept: what was read, in pieces; how much more than the limit that is, is
    /// bounded by one read.
    Longer(Vec<Bytes>),
}

async fn collect(core: &Core, reading: &mut Reading, limit: usize) -> Result<Collected, Trouble> {
    let Some(first) = reading.data(core).await? else {
        return Ok(Collected::Whole(Bytes::new()));
    };
    if first.len() > limit {
        return Ok(Collected::Longer(vec![first]));
    }
    // The common answer arrives in one piece and is passed on without a copy.
    if reading.is_done() {
        return Ok(in_one_piece(core, first));
    }
    let Some(second) = reading.data(core).await? else {
        return Ok(in_one_piece(core, first));
    };
    let whole = reading.hint(first.len() + second.len()).min(limit);
    let mut all = core.bodies.gather();
    if all.push(&first, whole).is_err() {
        return Ok(Collected::Longer(vec![first, second]));
    }
    drop(first);
    let mut next = Some(second);
    while let Some(piece) = next {
        if all.len() + piece.len() > limit || all.push(&piece, whole).is_err() {
            return Ok(Collected::Longer(vec![all.done(), piece]));
        }
        next = reading.data(core).await?;
    }
    Ok(Collected::Whole(all.done()))
}

fn in_one_piece(core: &Core, only: Bytes) -> Collected {
    // A clone is a count; a piece that finds no room is passed on as it is.
    match core.bodies.keep(only.clone()) {
        Ok(kept) => Collected::Whole(kept),
        Err(_full) => Collected::Longer(vec![only]),
    }
}

/// The beginning of what was read, as much of it as may be kept.
fn beginning(core: &Core, pieces: &[Bytes], limit: usize) -> Bytes {
    if let [only] = pieces {
        return only.slice(..limit.min(only.len()));
    }
    let mut all = core.bodies.gather();
    for piece in pieces {
        let piece = &piece[..piece.len().min(limit - all.len())];
        if all.push(piece, limit).is_err() {
            break;
        }
    }
    all.done()
}

/// Hands the answer on as a stream; a short one that has already arrived whole needs none.
async fn pass_on(
    lease: Lease,
    parts: Head,
    mut reading: Reading,
    terms: Terms,
) -> Result<Ended, NoAnswer> {
    let body = match reading.now().await {
        Now::Nothing => return Ok(stream(lease, parts, reading, terms)),
        Now::Data(prefix) if !reading.is_done() || !may_be_whole(&prefix, terms) => {
            reading.put_back(vec![prefix]);
            return Ok(stream(lease, parts, reading, terms));
        }
        Now::Data(whole) => whole,
        Now::Trailers(trailers) => {
            reading.put_back_trailers(trailers);
            return Ok(stream(lease, parts, reading, terms));
        }
        Now::End => Bytes::new(),
        Now::Trouble(trouble) => {
            lease.reset();
            return Err(trouble.into());
        }
    };
    lease.finish(!parts.status.is_server_error());
    Ok(whole(parts, body, false))
}

/// What is kept is bounded also when it came in one piece.
const fn may_be_whole(body: &Bytes, terms: Terms) -> bool {
    matches!(terms.mode, Mode::Pass) || body.len() <= terms.max_kept
}

fn stream(lease: Lease, parts: Head, reading: Reading, terms: Terms) -> Ended {
    let Head { status, headers } = parts;
    let keep = (terms.mode != Mode::Pass).then_some(terms.max_kept);
    let (body, end) = StreamBody::new(lease, reading, !status.is_server_error(), keep);
    Ended::Streaming(Box::new(StreamAnswer {
        status,
        headers: headers.into_map(),
        body,
        end,
    }))
}

fn whole(parts: Head, body: Bytes, cut: bool) -> Ended {
    let Head {
        status,
        mut headers,
    } = parts;
    if !body.is_empty() && headers.text().is_none() {
        // The body's own length goes out with it, whatever was announced.
        headers.remove(CONTENT_LENGTH);
    }
    Ended::Collected(Answer {
        status,
        headers,
        body,
        cut,
    })
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Fields and bodies may hold secrets; their sizes say enough.
        let cut = if self.cut { ", cut" } else { "" };
        let (fields, bytes) = (self.headers.len(), self.body.len());
        write!(
            f,
            "Answer({}, {fields} fields, {bytes} bytes{cut})",
            self.status.as_u16()
        )
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_TYPE;

    use super::*;

    #[test]
    fn event_streams_and_grpc_are_told_by_their_media_type() {
        let table = [
            ("text/event-stream", true),
            ("Text/Event-Stream ; charset=utf-8", true),
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/json", false),
            ("text/event-streams", false),
            ("", false),
        ];
        for (media, expected) in table {
            let headers = http::HeaderMap::from_iter([(CONTENT_TYPE, media.parse().unwrap())]);
            assert_eq!(is_stream(&headers), expected, "{media}");
        }
    }
}
