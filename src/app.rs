//! The composition: one gateway put together from a configuration, served, and ended.
//!
//! Three kinds of threads are started here: the cores, on which connections and calls live; one
//! background thread with a runtime of its own for everything a call must not wait for (the
//! operator's listener, the compensation worker, upkeep); and those of the ledger. [`Gateway`] is
//! the handle on all of them, [`serve`] is a process with one gateway. Deliberately absent: any
//! word to a person, which is the command line's, and any decision about a call.

mod books;
mod build;
mod door;
mod drain;
pub mod error;
pub mod gateway;
pub mod handover;
mod log;
pub mod notify;
pub mod probe;
mod process;
mod reach;
mod reload;
mod signals;
pub mod sockets;
#[cfg(test)]
mod tests;
mod upkeep;

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::resolved;
use crate::config::{Config, Source};
use crate::entropy::Entropy;
use crate::telemetry::log::Log;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;

pub use build::Entrance;
pub use drain::Stopped;
pub use error::StartError;
pub use gateway::Gateway;
pub use handover::{Invocation, Predecessor};
pub use notify::Manager;

/// What a gateway stands on: its time, its chance, and what is seen of it. Clones are the same.
#[derive(Clone)]
pub struct Ground {
    /// The clock.
    pub clock: Clock,
    /// The source of chance.
    pub entropy: Entropy,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is wrong, if anything.
    pub readiness: Arc<Readiness>,
}

/// What a process begins with.
pub struct Begin {
    /// Its configuration.
    pub config: Config,
    /// The file that came from.
    pub source: Option<Source>,
    /// What it stands on.
    pub ground: Ground,
    /// What another process gave it.
    pub entrance: Entrance,
    /// The service manager.
    pub manager: Manager,
    /// The command that starts another one like it; without it none takes over.
    pub invocation: Option<Invocation>,
}

/// How a served gateway ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to stop, and did so in order.
    Drained(Stopped),
    /// It was told a second time and did not wait. What was recorded stays recorded.
    AtOnce,
}

impl Ground {
    /// A ground of its own, whose clock begins now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            clock: Clock::start(),
            entropy: Entropy::from_os(),
            metrics: Arc::new(Metrics::new(env!("CARGO_PKG_VERSION"))),
            readiness: Arc::new(Readiness::new()),
        }
    }

    /// Opens the log of this process. `overriding` is the value of
    /// [`LEVEL_VARIABLE`](crate::telemetry::log::LEVEL_VARIABLE).
    ///
    /// # Errors
    /// When the level is no level, or the process already has a log.
    pub fn open_log(
        &self,
        config: resolved::Log,
        overriding: Option<String>,
    ) -> Result<Log, StartError> {
        log::open(config, overriding, &self.clock, &self.metrics)
    }
}

impl Default for Ground {
    fn default() -> Self {
        Self::new()
    }
}

/// Serves until SIGTERM or SIGINT, then drains; a second signal ends it at once. SIGHUP, and a
/// change of the file it came from, load the configuration anew. SIGUSR2 starts the same command
/// once more, which takes over. `serving` is called once callers are served. Blocks; must not be
/// called inside a runtime.
///
/// # Errors
/// Why it did not start.
pub fn serve(begin: Begin, serving: impl FnOnce(&Gateway)) -> Result<Ended, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::system("a runtime"))?;
    let ended = runtime.block_on(process::live(begin, serving));
    // Whoever is told twice does not wait for a thread that still starts.
    runtime.shutdown_background();
    ended
}
