//! What an HTTP/2 caller does with one connection beside asking, and how much of it is borne.
//!
//! A connection of many streams can make work out of very few bytes: requests that are reset as
//! soon as they are sent (CVE-2023-44487), frames that only want an acknowledgement, answers that
//! no window lets pass. Each is counted here against its bound; the client that goes past one is
//! cut off, with everything it has open. What one head may cost (CONTINUATION frames, HPACK) the
//! HTTP library bounds itself. Deliberately absent: any judgement about a single request.

use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::wire::Wire;

/// How many more requests a caller may reset before their answer than are answered: more than twice
/// what it may have open, so that one that gives up on all of them at once is borne.
const RESETS_MAX: u32 = 256;

/// PING, SETTINGS and PRIORITY frames a second, and at once. A caller in its senses sends a few a
/// minute.
const CONTROL_MAX: u32 = 1_000;

/// Why a caller was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    /// It resets its requests.
    Resets,
    /// It sends frames that only want an acknowledgement.
    Control,
    /// It lets nothing of an answer pass.
    Unread,
    /// What the HTTP library does not bear (ENHANCE_YOUR_CALM).
    Frames,
}

/// One connection's account.
#[derive(Default)]
pub(super) struct Streams {
    /// Requests that were reset, less those that were answered.
    resets: AtomicU32,
    /// Frames that only want an acknowledgement, less what a second forgives.
    control: AtomicU32,
    /// When each body that is on its way was last taken from; 0 while the tool is waited for.
    bodies: Mutex<Vec<Weak<AtomicU32>>>,
    excess: OnceLock<Excess>,
}

/// The body of an answer on a stream of its own.
pub(super) struct Taken<B> {
    body: B,
    wire: Arc<Wire>,
    since: Arc<AtomicU32>,
}

impl Excess {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Resets => "requests reset before their answer",
            Self::Control => "PING, SETTINGS or PRIORITY frames",
            Self::Unread => "an answer that no window lets pass",
            Self::Frames => "frames that the HTTP library does not bear",
        }
    }
}

impl Streams {
    /// A request was reset by its caller; an excess when it was one too many.
    #[must_use]
    pub(super) fn left(&self) -> Option<Excess> {
        let resets = self.resets.fetch_add(1, Relaxed) + 1;
        (resets > RESETS_MAX).then_some(Excess::Resets)
    }

    /// A request was answered.
    pub(super) fn answered(&self) {
        let less = |resets: u32| resets.checked_sub(1);
        // It fails at zero, where there is nothing to forgive.
        let _forgiven = self.resets.fetch_update(Relaxed, Relaxed, less);
    }

    /// So many frames came that only want an acknowledgement.
    #[must_use]
    pub(super) fn control(&self, frames: u32) -> Option<Excess> {
        let control = self.control.fetch_add(frames, Relaxed) + frames;
        (control > CONTROL_MAX).then_some(Excess::Control)
    }

    /// A part of a second has passed, in thousandths; the tick is `now`. An excess when a body was
    /// not taken from for more than `patience` ticks.
    #[must_use]
    pub(super) fn tick(&self, ms: u32, now: u32, patience: u32) -> Option<Excess> {
        let forgiven = (CONTROL_MAX * ms / 1_000).max(1);
        let less = |control: u32| (control > 0).then(|| control.saturating_sub(forgiven));
        let _forgiven = self.control.fetch_update(Relaxed, Relaxed, less);
        let mut overdue = false;
        self.bodies.lock().retain(|body| {
            let Some(since) = body.upgrade() else {
                return false;
            };
            let since = since.load(Relaxed);
            overdue |= since != 0 && now.wrapping_sub(since) > patience;
            true
        });
        overdue.then_some(Excess::Unread)
    }

    /// Notes why the connection is cut off; the first reason stays.
    pub(super) fn note(&self, excess: Excess) {
        let _first = self.excess.set(excess);
    }

    /// Why it was.
    pub(super) fn excess(&self) -> Option<Excess> {
        self.excess.get().copied()
    }
}

impl<B> Taken<B> {
    pub(super) fn new(body: B, wire: &Arc<Wire>) -> Self {
        let since = Arc::new(AtomicU32::new(wire.now()));
        let streams = wire.streams();
        streams.bodies.lock().push(Arc::downgrade(&since));
        wire.carry();
        Self {
            body,
            wire: Arc::clone(wire),
            since,
        }
    }
}

impl<B: Body + Unpin> Body for Taken<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.since.store(0, Relaxed);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.since.store(self.wire.now(), Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Taken<B> {
    fn drop(&mut self) {
        self.wire.carried();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_may_reset_some_more_than_are_answered() {
        let streams = Streams::default();
        for _ in 0..100 {
            assert_eq!(streams.left(), None);
            streams.answered();
            streams.answered();
        }
        for _ in 0..RESETS_MAX {
            assert_eq!(streams.left(), None);
        }
        assert_eq!(streams.left(), Some(Excess::Resets));
    }

    #[test]
    fn frames_are_forgiven_with_time() {
        let streams = Streams::default();
        for second in 1..100 {
            assert_eq!(streams.control(CONTROL_MAX), None);
            for _ in 0..10 {
                assert_eq!(streams.tick(100, second, 5), None);
            }
        }
        assert_eq!(streams.control(CONTROL_MAX), None);
        assert_eq!(streams.control(1), Some(Excess::Control));
    }

    #[test]
    fn a_body_is_overdue_when_nobody_has_taken_from_it() {
        let streams = Streams::default();
        let body = Arc::new(AtomicU32::new(3));
        streams.bodies.lock().push(Arc::downgrade(&body));
        assert_eq!(streams.tick(100, 8, 5), None);
        assert_eq!(streams.tick(100, 9, 5), Some(Excess::Unread));
        body.store(0, Relaxed);
        assert_eq!(streams.tick(100, 900, 5), None);
        drop(body);
        assert_eq!(streams.tick(100, 901, 5), None);
        assert!(streams.bodies.lock().is_empty(), "a body stays behind");
    }
}
