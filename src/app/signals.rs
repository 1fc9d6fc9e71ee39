//! The signals this process heeds.

use std::io;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;

/// Signals that come together count as one: `timeout` and some supervisors signal a process and
/// then its group, and nobody means "at once" so fast.
const TOGETHER: Duration = Duration::from_millis(20);

/// SIGTERM, SIGINT, SIGHUP and SIGUSR2, from the moment this was made.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    user: Signal,
    /// A signal to stop has come and was not yet told.
    told: bool,
    /// What else has come and was not yet told: SIGHUP, SIGUSR2.
    hung_up: bool,
    to_hand_over: bool,
}

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// To stop.
    Stop,
    /// To load the configuration anew.
    Reload,
    /// To let a new process take over.
    HandOver,
}

impl Signals {
    /// Begins to listen; until now a signal ended the process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined2())?,
            told: false,
            hung_up: false,
            to_hand_over: false,
        })
    }

    /// Resolves at the next signal. Dropped before that, it loses none.
    pub(super) async fn told(&mut self) -> Told {
        if std::mem::take(&mut self.hung_up) {
            return Told::Reload;
        }
        if std::mem::take(&mut self.to_hand_over) {
            return Told::HandOver;
        }
        if !self.told {
            match self.next().await {
                other @ (Told::Reload | Told::HandOver) => return other,
                Told::Stop => {}
            }
        }
        self.told_to_stop().await;
        Told::Stop
    }

    /// Resolves at the next signal to stop; other wishes wait. Dropped before that, it loses
    /// none.
    pub(super) async fn told_to_stop(&mut self) {
        while !self.told {
            match self.next().await {
                Told::Stop => self.told = true,
                Told::Reload => self.hung_up = true,
                Told::HandOver => self.to_hand_over = true,
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
            _ = self.user.recv() => Told::HandOver,
        };
        self.told |= told == Told::Stop;
        told
    }
}
