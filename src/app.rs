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
mod log;
pub mod probe;
mod reach;
mod reload;
mod signals;
mod sockets;
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

pub use drain::Stopped;
pub use error::StartError;
pub use gateway::Gateway;

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
/// change of the file it came from (`source`), load the configuration anew. `serving` is
/// called once callers are served. Blocks; must not be called inside a runtime.
///
/// # Errors
/// Why it did not start.
pub fn serve(
    config: Config,
    source: Option<Source>,
    ground: Ground,
    serving: impl FnOnce(&Gateway),
) -> Result<Ended, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::system("a runtime"))?;
    let ended = runtime.block_on(until_told((config, source), ground, serving));
    // Whoever is told twice does not wait for a thread that still starts.
    runtime.shutdown_background();
    ended
}

async fn until_told(
    (config, source): (Config, Option<Source>),
    ground: Ground,
    serving: impl FnOnce(&Gateway),
) -> Result<Ended, StartError> {
    let mut signals = signals::Signals::listen().map_err(StartError::system("signal handlers"))?;
    let mut starting = tokio::task::spawn_blocking(move || Gateway::follow(config, source, ground));
    let started = tokio::select! {
        biased;
        started = &mut starting => Some(started),
        () = signals.told_to_stop() => None,
    };
    let mut gateway = match started {
        Some(started) => {
            let mut gateway = started.map_err(|_| StartError::Died)??;
            serving(&gateway);
            loop {
                tokio::select! {
                    told = signals.told() => match told {
                        signals::Told::Stop => break,
                        signals::Told::Reload => gateway.reload(),
                    },
                    // It ends by itself only when its background thread dies.
                    _ = gateway.stopped() => return Err(StartError::Died),
                }
            }
            gateway
        }
        // Told while it starts, it ends as one that serves does: callers may be there already,
        // since sockets open before their owner has the handle.
        None => tokio::select! {
            started = starting => started.map_err(|_| StartError::Died)??,
            () = signals.told_to_stop() => return Ok(at_once()),
        },
    };
    gateway.begin_to_stop();
    tokio::select! {
        stopped = gateway.stopped() => stopped.map(Ended::Drained).ok_or(StartError::Died),
        () = signals.told_to_stop() => Ok(at_once()),
    }
}

fn at_once() -> Ended {
    tracing::warn!("told to stop twice: ending at once; the ledger keeps what runs");
    Ended::AtOnce
}
