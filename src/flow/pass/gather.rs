//! The first look at the body of an answer, before anything of it goes out.
//!
//! An answer that breaks off can be told as what it is for as long as its caller has seen none of
//! it. So what is announced as short is read to its end first, which
//! costs its caller nothing that it could use; of any other only what came with the head is looked
//! at, because a caller may live on its beginning. Deliberately absent: a bound on the whole of it;
//! what is slow is passed on as it arrives.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::call::outcome::Unclear;
use crate::flow::told::{Shown, Whole};
use crate::upstream::{StreamAnswer, StreamBody, StreamError};

/// The longest body that is called short: what a call may take beside its bodies.
const SHORT_BYTES_MAX: u64 = 16 * 1024;

/// A body of which the beginning was read already.
struct Ahead {
    read: VecDeque<Frame<Bytes>>,
    rest: StreamBody,
}

/// What is shown of an answer whose head has come; a short one is waited for with `patience`.
///
/// # Errors
/// It broke off, and nothing of it was shown.
pub(super) async fn gathered(
    answer: StreamAnswer,
    patience: impl Future<Output = ()>,
) -> Result<Shown, Unclear> {
    let StreamAnswer {
        status,
        headers,
        mut body,
        ..
    } = answer;
    let short = is_short(&headers);
    let mut read = VecDeque::new();
    let mut patience = pin!(patience);
    let whole = loop {
        let next = async {
            tokio::select! {
                biased;
                next = body.frame() => Some(next),
                () = &mut patience, if short => None,
                () = std::future::ready(()), if !short => None,
            }
        };
        match next.await {
            None => break false,
            Some(None) => break read.iter().all(Frame::is_data),
            Some(Some(Ok(frame))) => read.push_back(frame),
            Some(Some(Err(error))) => return Err(unclear(&error)),
        }
        if !short {
            break false;
        }
    };
    Ok(if whole {
        Shown::Whole(Whole {
            status,
            headers: headers.into(),
            body: joined(read),
        })
    } else {
        let body = Ahead { read, rest: body };
        Shown::Stream {
            status,
            headers,
            body: body.map_err(Into::into).boxed_unsync(),
        }
    })
}

fn is_short(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.trim().parse().ok());
    length.is_some_and(|length: u64| length <= SHORT_BYTES_MAX)
}

fn joined(read: VecDeque<Frame<Bytes>>) -> Bytes {
    let mut pieces = read.into_iter().filter_map(|frame| frame.into_data().ok());
    let first = pieces.next().unwrap_or_default();
    let Some(second) = pieces.next() else {
        return first;
    };
    let mut all = [first, second].concat();
    for piece in pieces {
        all.extend_from_slice(&piece);
    }
    all.into()
}

const fn unclear(error: &StreamError) -> Unclear {
    match error {
        StreamError::Broken(_) => Unclear::Disconnect,
        StreamError::Idle => Unclear::Timeout,
    }
}

impl Body for Ahead {
    type Data = Bytes;
    type Error = StreamError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamError>>> {
        match self.read.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.iter().filter_map(Frame::data_ref);
        let read: u64 = read.map(|data| data.len() as u64).sum();
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(read));
        }
        hint
    }
}
