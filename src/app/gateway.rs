//! The handle on one gateway, and the background thread that carries it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::build::{self, Follows, Running};
use super::{Ground, StartError, Stopped};
use crate::config::{Config, Source};

/// How long the background runtime waits for a blocked look-up of a name when it ends.
const LOOKUP_WAIT: Duration = Duration::from_millis(100);

/// A gateway that serves. Dropped, it begins to stop by itself.
#[derive(Debug)]
pub struct Gateway {
    callers: SocketAddr,
    admin: SocketAddr,
    stop: CancellationToken,
    /// The configuration is to be loaded anew.
    reload: Arc<Notify>,
    stopped: oneshot::Receiver<Stopped>,
    _stops: DropGuard,
}

/// Where a gateway listens.
struct Addresses {
    callers: SocketAddr,
    admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway and returns once it serves. Blocks.
    ///
    /// # Errors
    /// Why it did not start; nothing is left of it then.
    pub fn start(config: Config, ground: Ground) -> Result<Self, StartError> {
        Self::follow(config, None, ground)
    }

    /// Starts a gateway that follows the file its configuration came from. Blocks.
    ///
    /// # Errors
    /// Why it did not start; nothing is left of it then.
    pub fn follow(
        config: Config,
        source: Option<Source>,
        ground: Ground,
    ) -> Result<Self, StartError> {
        let reload = Arc::new(Notify::new());
        let asked = Arc::clone(&reload);
        let stop = CancellationToken::new();
        let (tell_started, started) = oneshot::channel();
        let (tell_stopped, stopped) = oneshot::channel();
        let until = stop.clone();
        std::thread::Builder::new()
            .name("callgate-back".to_owned())
            .spawn(move || {
                let follows = (source, asked);
                carry(
                    (&config, follows),
                    ground,
                    &until,
                    tell_started,
                    tell_stopped,
                );
            })
            .map_err(StartError::system("a thread"))?;
        let Addresses { callers, admin } =
            started.blocking_recv().map_err(|_| StartError::Died)??;
        let stops = stop.clone().drop_guard();
        Ok(Self {
            callers,
            admin,
            stop,
            reload,
            stopped,
            _stops: stops,
        })
    }

    /// Where callers connect.
    #[must_use]
    pub const fn callers(&self) -> SocketAddr {
        self.callers
    }

    /// Where operators connect.
    #[must_use]
    pub const fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Has the configuration loaded anew, as SIGHUP does.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Begins to drain, as SIGTERM does.
    pub fn begin_to_stop(&self) {
        self.stop.cancel();
    }

    /// Resolves when the gateway has ended; `None` when its background thread died.
    pub async fn stopped(&mut self) -> Option<Stopped> {
        (&mut self.stopped).await.ok()
    }

    /// Drains and ends. Blocks; `None` when the background thread died before.
    #[must_use]
    pub fn stop(self) -> Option<Stopped> {
        self.begin_to_stop();
        self.stopped.blocking_recv().ok()
    }
}

/// The background thread: builds the gateway, carries it, ends it.
fn carry(
    (config, follows): (&Config, Follows),
    ground: Ground,
    stop: &CancellationToken,
    tell_started: oneshot::Sender<Result<Addresses, StartError>>,
    tell_stopped: oneshot::Sender<Stopped>,
) {
    // Whoever started it may be gone by the time it is told: then `stop` was cancelled too.
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return drop(tell_started.send(Err(StartError::system("a runtime")(error))));
        }
    };
    let stopped = runtime.block_on(async {
        match build::build(config, follows, ground).await {
            Ok(running) => {
                drop(tell_started.send(Ok(addresses(&running))));
                stop.cancelled().await;
                let drain = running.reloader.config().drain;
                Some(running.drain(drain).await)
            }
            Err(error) => {
                drop(tell_started.send(Err(error)));
                None
            }
        }
    });
    runtime.shutdown_timeout(LOOKUP_WAIT);
    if let Some(stopped) = stopped {
        // Whoever dropped the handle does not ask.
        let _unheard = tell_stopped.send(stopped);
    }
}

const fn addresses(running: &Running) -> Addresses {
    Addresses {
        callers: running.ingress.address(),
        admin: running.admin,
    }
}
