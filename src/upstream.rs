//! Everything between a decision to send and what the tool's socket said.
//!
//! An [`Exchange`] is one request on one connection and ends as a value ([`Ended`]); nothing here
//! decides what that means for the call. Connections are pooled per core and belong to the core
//! that dialled them; on HTTP/1.1 they are taken in turn, on HTTP/2 (`http2`) shared. A
//! [`ReceiptEndpoint`] asks what became of a call over connections of its own. [`headers`] builds
//! what the tool sees.
//!
//! Deliberately absent: retries (except the one replacement of a reused connection that provably
//! took nothing), attempt timeouts (the driver applies them and may keep an exchange as *late*),
//! and redirects.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::clock::{Clock, Wheel};

pub mod addresses;
pub mod fields;
pub mod headers;
pub(crate) mod json;
pub mod receipt;
pub mod reversal;

mod answer;
mod bodies;
mod destination;
mod dial;
mod exchange;
#[doc(hidden)]
pub mod fuzzing;
mod hook;
mod http2;
pub mod lines;
mod payload;
mod plain;
mod pool;
mod reading;
mod sending;
mod stand_in;
mod stream;
mod tls;
mod tool;
mod transport;
mod tunnel;
mod wire;

pub use answer::Answer;
pub use bodies::{Bodies, Full, Gathering};
pub use destination::{Destination, SetupError};
pub use exchange::{Ended, Exchange, Mode, Outgoing, Terms};
pub use hook::{Hook, HookFailure};
pub use http2::{Frames, Passed};
pub use payload::{Payload, Upload};
pub use receipt::ReceiptEndpoint;
pub use reversal::ReversalEndpoint;
#[doc(hidden)]
#[cfg(test)]
pub(crate) use stand_in::Pipe;
pub use stand_in::{Dialling, StandIn, StandInDialer};
pub use stream::{StreamAnswer, StreamBody, StreamEnd, StreamError, StreamReport};
pub use tool::Tool;
pub use tunnel::{Opened, Tunnel, open as open_tunnel};

/// What one runtime shares: its number, its clock, its wheel, the room for bodies. Cheap to clone.
///
/// The background runtime is a core like the others, with the next number.
#[derive(Clone, Debug)]
pub struct Core(Arc<Shared>);

/// What the clones of a [`Core`] share.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Which shard of every pool is this core's.
    pub index: usize,
    /// The process's clock.
    pub clock: Clock,
    /// This core's timer wheel.
    pub wheel: Wheel,
    /// The memory that bodies may take; of all cores together.
    pub bodies: Bodies,
    turns: Turns,
    runtime: Handle,
}

/// How often a runtime has asked the kernel what happened to its sockets: what is known of one that
/// has come to rest is as fresh as the last turn since.
///
/// Counted by its runtime ([`Turns::count`]), and by none that does not know of it: then nothing is
/// ever known, and every socket is looked at.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<AtomicU64>);

impl Turns {
    /// The kernel was asked.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn so_far(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Deref for Core {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Core {
    /// Makes the current tokio runtime core number `index` and starts its wheel.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn start(index: usize, clock: Clock) -> Self {
        Self(Arc::new(Shared {
            index,
            clock,
            wheel: Wheel::start(),
            bodies: Bodies::default(),
            turns: Turns::default(),
            runtime: Handle::current(),
        }))
    }

    /// The same core, on which bodies take no more memory than `bodies` allows.
    #[must_use]
    pub fn within(self, bodies: &Bodies) -> Self {
        let bodies = bodies.clone();
        let shared = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Shared { bodies, ..shared }))
    }

    /// The same core, whose runtime counts its turns.
    #[must_use]
    pub fn turning(self, turns: Turns) -> Self {
        let shared = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Shared { turns, ..shared }))
    }

    /// Runs `task` on this core, from whichever thread.
    pub fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.runtime.spawn(task)
    }
}

#[cfg(test)]
mod tests;
