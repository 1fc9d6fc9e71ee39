//! A caller's connection, as a call sees it.
//!
//! A call may outlive its caller's connection; what it holds here keeps nothing open. Deliberately
//! absent: any way to write to the caller past the answer.

use std::sync::Weak;
use std::time::Duration;

use super::wire::Wire;
use crate::clock;

/// How often a caller's FIN is looked for, on routes where it matters (`on_client_gone: cancel`).
/// The kernel tells about unread bytes and a FIN with the same event, so bytes of a pipelined
/// request would hide it from a wait.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A caller's connection. Holds nothing open: the connection may end while the call runs on.
#[derive(Clone)]
pub struct Line(Weak<Wire>);

impl Line {
    pub(super) const fn new(wire: Weak<Wire>) -> Self {
        Self(wire)
    }

    /// Resolves when the caller has shut its writing side (FIN), or its connection has ended. On
    /// HTTP/2 only the latter: a stream's end is an ordinary end of a request.
    pub async fn half_closed(&self) {
        while self.0.upgrade().is_some_and(|wire| !wire.was_half_closed()) {
            clock::sleep(LOOK_EVERY).await;
        }
    }
}
