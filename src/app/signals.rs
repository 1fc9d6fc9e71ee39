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
}

impl Signals {
    /// Begins to listen; until now a signal ended the process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            told: false,
        })
    }

    /// Resolves at the next signal to stop. Dropped before that, it loses none.
    pub(super) async fn told_to_stop(&mut self) {
        if !self.told {
            self.next().await;
            self.told = true;
        }
        while timeout(TOGETHER, self.next()).await.is_ok() {}
        self.told = false;
    }

    async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hang_up.recv() => tracing::warn!(
                    "SIGHUP: this version cannot reload; restart it to use a changed configuration"
                ),
            }
        }
    }
}
