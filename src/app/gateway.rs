//! The handle on one gateway, and the background thread that carries it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::build::{self, Entrance, Follows, Running};
use super::reload::Reloader;
use super::sockets::{Held, Inherited};
use super::{Ground, StartError, Stopped};
use crate::config::{Config, Source};

/// How long the background runtime waits for a blocked look-up of a name when it ends.
const LOOKUP_WAIT: Duration = Duration::from_millis(100);

/// A gateway that serves. Dropped, it begins to stop by itself.
pub struct Gateway {
    callers: SocketAddr,
    admin: SocketAddr,
    stop: CancellationToken,
    /// The configuration is to be loaded anew.
    reload: Arc<Notify>,
    reloader: Arc<Reloader>,
    held: Arc<Mutex<Option<Held>>>,
    /// Has it hand over; gone once it does.
    hand_over: Option<oneshot::Sender<Released>>,
    stopped: oneshot::Receiver<Stopped>,
    _stops: DropGuard,
}

/// Is told when the ledger was let go.
type Released = oneshot::Sender<()>;

/// What the handle gets of a gateway that serves.
struct Started {
    callers: SocketAddr,
    admin: SocketAddr,
    reloader: Arc<Reloader>,
    held: Arc<Mutex<Option<Held>>>,
}

/// What the background thread is told, and tells.
struct Strings {
    stop: CancellationToken,
    hand_over: oneshot::Receiver<Released>,
    started: oneshot::Sender<Result<Started, StartError>>,
    stopped: oneshot::Sender<Stopped>,
}

impl Gateway {
    /// Starts a gateway and returns once it serves. Blocks.
    ///
    /// # Errors
    /// Why it did not start; nothing is left of it then.
    pub fn start(config: Config, ground: Ground) -> Result<Self, StartError> {
        Self::enter((config, None), ground, Entrance::default())
    }

    /// Starts a gateway that follows the file its configuration came from, with what this process
    /// was given by another one. Blocks.
    ///
    /// # Errors
    /// Why it did not start; nothing is left of it then.
    pub(super) fn enter(
        (config, source): (Config, Option<Source>),
        ground: Ground,
        entrance: Entrance,
    ) -> Result<Self, StartError> {
        let reload = Arc::new(Notify::new());
        let stop = CancellationToken::new();
        let (tell_started, started) = oneshot::channel();
        let (tell_stopped, stopped) = oneshot::channel();
        let (hand_over, to_hand_over) = oneshot::channel();
        let follows = Follows {
            source,
            hung_up: Arc::clone(&reload),
            stop: stop.clone(),
        };
        let strings = Strings {
            stop: stop.clone(),
            hand_over: to_hand_over,
            started: tell_started,
            stopped: tell_stopped,
        };
        std::thread::Builder::new()
            .name("callgate-back".to_owned())
            .spawn(move || carry(&config, (follows, entrance), ground, strings))
            .map_err(StartError::system("a thread"))?;
        let Started {
            callers,
            admin,
            reloader,
            held,
        } = started.blocking_recv().map_err(|_| StartError::Died)??;
        let stops = stop.clone().drop_guard();
        Ok(Self {
            callers,
            admin,
            stop,
            reload,
            reloader,
            held,
            hand_over: Some(hand_over),
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

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        self.reloader.config()
    }

    /// Has the configuration loaded anew, as SIGHUP does.
    pub fn reload(&self) {
        self.reload.notify_one();
    }

    /// Its listening sockets, for another process. None once it drains.
    pub(super) fn inheritance(&self) -> std::io::Result<Vec<Inherited>> {
        let held = self.held.lock();
        held.as_ref()
            .map_or_else(|| Ok(Vec::new()), Held::inheritance)
    }

    /// Lets the ledger go within a second, and then drains; resolves when the ledger is free.
    pub(super) async fn hand_over(&mut self) {
        let (tell_released, released) = oneshot::channel();
        if let Some(hand_over) = self.hand_over.take() {
            // It drains already: then the ledger is free when it has stopped.
            drop(hand_over.send(tell_released));
        }
        // Not told: it has died, and let go with that.
        drop(released.await);
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

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut said = f.debug_struct("Gateway");
        said.field("callers", &self.callers)
            .field("admin", &self.admin);
        said.finish_non_exhaustive()
    }
}

/// The background thread: builds the gateway, carries it, ends it.
fn carry(
    config: &Config,
    (follows, entrance): (Follows, Entrance),
    ground: Ground,
    strings: Strings,
) {
    let Strings {
        stop,
        hand_over,
        started,
        stopped: tell_stopped,
    } = strings;
    // Whoever started it may be gone by the time it is told: then `stop` was cancelled too.
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return drop(started.send(Err(StartError::system("a runtime")(error))));
        }
    };
    let stopped = runtime.block_on(async {
        match build::build(config, follows, ground, entrance).await {
            Ok(mut running) => {
                if let Some(predecessor) = running.predecessor.take() {
                    predecessor.serves();
                }
                drop(started.send(Ok(Started::of(&running))));
                Some(tokio::select! {
                    biased;
                    () = stop.cancelled() => {
                        let drain = running.reloader.config().drain;
                        running.drain(drain).await
                    }
                    Ok(released) = hand_over => {
                        let drain = running.reloader.config().drain;
                        running.hand_over(drain, released).await
                    }
                })
            }
            Err(error) => {
                drop(started.send(Err(error)));
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

impl Started {
    fn of(running: &Running) -> Self {
        Self {
            callers: running.ingress.address(),
            admin: running.admin,
            reloader: Arc::clone(&running.reloader),
            held: Arc::clone(&running.held),
        }
    }
}
