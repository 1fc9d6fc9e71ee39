//! The signals this process heeds.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Signals that come together count as one: `timeout` and some supervisors signal a process and
/// then its group, and nobody means "at once" so fast.
const TOGETHER: Duration = Duration::from_millis(20);

/// SIGTERM, SIGINT and SIGHUP, from the moment this was made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// A signal to stop has come and was not yet told.
    told: bool,
    /// SIGHUP has come and was not yet told.
    hung_up: bool,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To stop.
    Stop,
    /// To load the configuration anew.
    Reload,
}

impl Signals {
    /// Begins to listen; until now a signal ended the process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            told: false,
            hung_up: false,
        })
    }

    /// Resolves at the next signal. Dropped before that, it loses none.
    pub(super) async fn told(&mut self) -> Told {
        if std::mem::take(&mut self.hung_up) {
            return Told::Reload;
        }
        if !self.told && self.next().await == Told::Reload {
            return Told::Reload;
        }
        self.told_to_stop().await;
        Told::Stop
    }

    /// Resolves at the next signal to stop; a wish to reload waits. Dropped before that, it loses
    /// none.
    pub(super) async fn told_to_stop(&mut self) {
        while !self.told {
            match self.next().await {
                Told::Stop => self.told = true,
                Told::Reload => self.hung_up = true,
            }
        }
        while timeout(TOGETHER, self.next()).await.is_ok() {}
        self.told = false;
    }

    async fn next(&mut self) -> Told {
        let told = tokio::select! {
            _ = self.terminate.recv() => Told::Stop,
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.hang_up.recv() => Told::Reload,
        };
        self.told |= told == Told::Stop;
        told
    }
}
