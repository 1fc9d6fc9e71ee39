//! Accepts callers' connections and deals them to the cores.
//!
//! One acceptor for all cores: every connection goes to the least loaded one, with one wake-up
//! per connection and none per call. At `limits.connections` a newcomer is told so (503) instead
//! of waiting in the kernel's queue for nobody knows how long. Deliberately absent: `SO_REUSEPORT`,
//! which spreads few long-lived connections badly.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Door;
use super::answer::Room;
use super::cores::Cores;
use super::floor::Floor;
use super::seat::{Addresses, Requests};
use crate::clock::Clock;
use crate::config::Limits;
use crate::entropy::Minter;
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use crate::upstream::headers::Node;

mod accept;

use accept::Acceptor;
pub(super) use accept::Gate;

/// After the grace: how long the cut-off connections get to be gone.
const CUT_OFF: Duration = Duration::from_millis(100);

/// What every connection is served by.
pub struct Settings {
    /// Bounds of one connection.
    pub limits: Limits,
    /// This gateway's name on the wire, by which it knows a loop.
    pub node: Node,
    /// The process's clock.
    pub clock: Clock,
    /// The process's maker of call ids.
    pub minter: Arc<Minter>,
    /// Where bounds are counted.
    pub metrics: Arc<Metrics>,
    /// Where requests are counted that no route matches (route `none`).
    pub unrouted: Arc<RouteMetrics>,
}

/// An open listener for callers.
pub struct Ingress {
    address: SocketAddr,
    floors: Arc<[Arc<Floor>]>,
    /// Stops the acceptor.
    stop: CancellationToken,
    /// Whoever waits in the kernel's queue is left to another process.
    leaves: Arc<AtomicBool>,
    /// Resolves when the acceptor has let go of the port.
    stopped: tokio::sync::Mutex<Option<oneshot::Receiver<()>>>,
}

/// Whose the callers are that wait in the kernel's queue when no more are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// This process's: nobody else has the socket, so that they are served or told.
    Ours,
    /// Another process's, which has the socket too or will be given it.
    Others,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Calls still running when the grace was over.
    pub calls_left: usize,
    /// Connections cut off.
    pub connections_cut: usize,
}

impl Ingress {
    /// Serves `listener` on `cores`.
    ///
    /// # Errors
    /// When the acceptor cannot be started.
    pub fn open<D: Door>(
        listener: TcpListener,
        cores: &Cores,
        door: Arc<D>,
        settings: Settings,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let settings = Arc::new(settings);
        let floors: Arc<[_]> = cores
            .all()
            .iter()
            .map(|core| Floor::new(core.clone(), Arc::clone(&settings)))
            .collect();
        let requests = Requests::at_most(settings.limits.calls);
        let rooms: Vec<_> = floors
            .iter()
            .map(|floor| {
                Arc::new(Room {
                    door: Arc::clone(&door),
                    floor: Arc::clone(floor),
                    requests: Arc::clone(&requests),
                })
            })
            .collect();
        let (stop, leaves) = (CancellationToken::new(), Arc::new(AtomicBool::new(false)));
        let acceptor = Acceptor {
            listener,
            cores: Arc::clone(cores.all()),
            rooms,
            addresses: Addresses::bounded(&settings.limits),
            settings,
            stop: stop.clone(),
            leaves: Arc::clone(&leaves),
        };
        let stopped = tokio::sync::Mutex::new(Some(acceptor.start()?));
        Ok(Self {
            address,
            floors,
            stop,
            leaves,
            stopped,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.floors.iter().map(|floor| floor.open.len()).sum()
    }

    /// Calls that run, also those whose caller has left.
    #[must_use]
    pub fn calls(&self) -> usize {
        self.floors.iter().map(|floor| floor.calls.len()).sum()
    }

    /// Takes no new connections, and asks those that are open to leave: every answer says
    /// `Connection: close` (HTTP/2: a GOAWAY). Requests that come on them are served as ever.
    pub async fn close_door(&self, backlog: Backlog) {
        self.leaves
            .store(backlog == Backlog::Others, Ordering::Relaxed);
        self.floors.iter().for_each(|floor| floor.leaving.cancel());
        self.stop.cancel();
        if let Some(stopped) = self.stopped.lock().await.take() {
            // The acceptor's thread may have died; then it has let go as well.
            drop(stopped.await);
        }
    }

    /// Waits until the last connection has left; for ever, if one does not.
    pub async fn all_left(&self) {
        for floor in &*self.floors {
            floor.open.close();
            floor.open.wait().await;
        }
    }

    /// Takes no new work and waits at most `grace` for what runs.
    ///
    /// New connections are refused by the kernel, or left to whoever has the socket next; silent
    /// ones are closed; a request that comes all the same is told `draining`; what runs is answered
    /// with `Connection: close` (a GOAWAY on HTTP/2). What is left after the grace is cut off; its
    /// calls are in the ledger.
    pub async fn drain(&self, grace: Duration, backlog: Backlog) -> Drained {
        for floor in &*self.floors {
            floor.leaving.cancel();
            floor.draining.cancel();
            floor.calls.close();
            floor.open.close();
        }
        self.close_door(backlog).await;
        self.floors.iter().for_each(|floor| floor.close_silent());
        let all_left = async {
            for floor in &*self.floors {
                floor.open.wait().await;
                floor.calls.wait().await;
            }
        };
        if tokio::time::timeout(grace, all_left).await.is_ok() {
            return Drained {
                calls_left: 0,
                connections_cut: 0,
            };
        }
        let left = Drained {
            calls_left: self.calls(),
            connections_cut: self.connections(),
        };
        self.cut_off().await;
        left
    }

    async fn cut_off(&self) {
        self.floors.iter().for_each(|floor| floor.close_all());
        let gone = async {
            for floor in &*self.floors {
                floor.open.wait().await;
            }
        };
        // Whoever does not go now goes with the process.
        drop(tokio::time::timeout(CUT_OFF, gone).await);
    }
}

impl Drop for Ingress {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
