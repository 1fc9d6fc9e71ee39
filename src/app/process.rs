//! One process: its signals, its gateway, and the process that takes over from it.
//!
//! SIGUSR2 starts the same command once more. The gateway serves on until the new process has
//! proved what it can; only then is anything let go here. Should the new process die after that,
//! a gateway is started here again on the same sockets, in which callers have waited meanwhile.

use std::io;

use tokio::task::spawn_blocking;

use super::build::Entrance;
use super::handover::Successor;
use super::signals::{Signals, Told};
use super::sockets::Inherited;
use super::{Begin, Ended, Gateway, Ground, Invocation, Manager, StartError};
use crate::config::{Config, Source};
use crate::telemetry::readiness::Trouble;

/// What a process is made of.
struct Process {
    signals: Signals,
    ground: Ground,
    source: Option<Source>,
    manager: Manager,
    invocation: Option<Invocation>,
    /// Gateways whose ledger is let go, and what still streams.
    leaving: Vec<Gateway>,
}

/// What came of a handover.
enum Handed {
    /// The new process serves.
    Over,
    /// It died; these sockets are still ours.
    Back(Vec<Inherited>),
}

/// Lives until it is told to stop, or until another process serves in its place.
pub(super) async fn live(
    begin: Begin,
    serving: impl FnOnce(&Gateway),
) -> Result<Ended, StartError> {
    let signals = Signals::listen().map_err(StartError::system("signal handlers"))?;
    let is_successor = begin.entrance.predecessor.is_some();
    let mut process = Process {
        signals,
        ground: begin.ground,
        source: begin.source,
        manager: begin.manager,
        invocation: begin.invocation,
        leaving: Vec::new(),
    };
    let Some((gateway, told)) = process.start(begin.config, begin.entrance).await? else {
        return Ok(at_once());
    };
    if told {
        return process.stop(gateway).await;
    }
    serving(&gateway);
    if !is_successor {
        // The manager hears of a successor from the process it knows.
        process.manager.ready();
    }
    process.serve(gateway).await
}

impl Process {
    /// Starts a gateway, and says whether it was told to stop meanwhile; `None` when it was told so
    /// twice. Told while it starts, it ends as one that serves does: callers may be there already,
    /// since sockets open before their owner has the handle.
    async fn start(
        &mut self,
        config: Config,
        entrance: Entrance,
    ) -> Result<Option<(Gateway, bool)>, StartError> {
        let (source, ground) = (self.source.clone(), self.ground.clone());
        let mut starting =
            spawn_blocking(move || Gateway::enter((config, source), ground, entrance));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                started = &mut starting => {
                    let gateway = started.map_err(|_| StartError::Died)??;
                    return Ok(Some((gateway, told)));
                }
                () = self.signals.told_to_stop() => {
                    if std::mem::replace(&mut told, true) {
                        return Ok(None);
                    }
                }
            }
        }
    }

    async fn serve(&mut self, mut gateway: Gateway) -> Result<Ended, StartError> {
        let mut successor: Option<Successor> = None;
        loop {
            tokio::select! {
                told = self.signals.told() => match told {
                    Told::Stop => break,
                    Told::Reload => gateway.reload(),
                    Told::HandOver => successor = self.succeed(&gateway, successor),
                },
                ready = ready(&mut successor), if successor.is_some() => {
                    let Some(next) = successor.take().filter(|_| is_ready(ready)) else {
                        continue;
                    };
                    match self.hand_over(&mut gateway, next).await {
                        // Nothing more comes here; what still runs gets its time.
                        Handed::Over => return self.end(gateway).await,
                        Handed::Back(sockets) => {
                            let Some(again) = self.start_again(&gateway, sockets).await? else {
                                return Ok(at_once());
                            };
                            self.leaving.push(std::mem::replace(&mut gateway, again));
                        }
                    }
                }
                // Told by an operator; or its background thread has died.
                stopped = gateway.stopped() => {
                    return stopped.map(Ended::Drained).ok_or(StartError::Died);
                }
            }
        }
        drop(successor);
        self.stop(gateway).await
    }

    /// Starts the process that is to take over.
    fn succeed(&self, gateway: &Gateway, before: Option<Successor>) -> Option<Successor> {
        if before.is_some() {
            tracing::warn!("SIGUSR2: a process that takes over is being started already");
            return before;
        }
        let Some(invocation) = &self.invocation else {
            tracing::error!("SIGUSR2: this process does not know the command it was started by");
            return None;
        };
        if std::process::id() == 1 {
            tracing::error!(
                "SIGUSR2: this is the first process of its container, which would end with it; \
                 restart the container instead"
            );
            return None;
        }
        let started = gateway.inheritance().and_then(|sockets| {
            if sockets.is_empty() {
                return Err(io::Error::other("this process drains already"));
            }
            Successor::start(invocation, &sockets)
        });
        match started {
            Ok(next) => {
                tracing::info!(process = next.id(), "started the process that takes over");
                Some(next)
            }
            Err(error) => {
                let program = invocation.program.to_string_lossy();
                tracing::error!(%error, %program, "no process that takes over could be started");
                None
            }
        }
    }

    async fn hand_over(&self, gateway: &mut Gateway, mut next: Successor) -> Handed {
        // Held until the other one serves: so long the kernel takes connections for somebody.
        let sockets = gateway.inheritance().unwrap_or_default();
        let process = next.id();
        gateway.hand_over().await;
        match next.take_over().await {
            Ok(()) => {
                next.release();
                self.manager.succeeded_by(process);
                tracing::info!(process, "another process has taken over");
                Handed::Over
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    process,
                    "the process that was to take over does not serve; serving again here"
                );
                Handed::Back(sockets)
            }
        }
    }

    /// Another gateway in this process, where the other process has died.
    async fn start_again(
        &mut self,
        gateway: &Gateway,
        inherited: Vec<Inherited>,
    ) -> Result<Option<Gateway>, StartError> {
        let config = Config::clone(&gateway.config());
        let entrance = Entrance {
            inherited,
            predecessor: None,
        };
        self.ground.readiness.clear(Trouble::Draining, "");
        let started = self.start(config, entrance).await?;
        Ok(started.map(|(again, told)| {
            if told {
                again.begin_to_stop();
            }
            again
        }))
    }

    async fn stop(&mut self, gateway: Gateway) -> Result<Ended, StartError> {
        self.manager.stopping();
        gateway.begin_to_stop();
        self.end(gateway).await
    }

    async fn end(&mut self, mut gateway: Gateway) -> Result<Ended, StartError> {
        let leaving = &mut self.leaving;
        let all = async {
            for earlier in leaving {
                earlier.stopped().await;
            }
            gateway.stopped().await
        };
        tokio::select! {
            stopped = all => stopped.map(Ended::Drained).ok_or(StartError::Died),
            () = self.signals.told_to_stop() => Ok(at_once()),
        }
    }
}

async fn ready(successor: &mut Option<Successor>) -> io::Result<()> {
    match successor {
        Some(next) => next.ready().await,
        None => std::future::pending().await,
    }
}

fn is_ready(ready: io::Result<()>) -> bool {
    if let Err(error) = &ready {
        tracing::error!(
            %error,
            "the process that was to take over did not become ready, its own lines say why; \
             nothing has changed here"
        );
    }
    ready.is_ok()
}

fn at_once() -> Ended {
    tracing::warn!("told to stop twice: ending at once; the ledger keeps what runs");
    Ended::AtOnce
}
