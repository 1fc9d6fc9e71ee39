//! Puts a changed configuration in force while calls run: all of it, or nothing.
//!
//! Everything that can go wrong goes wrong before anything is changed: the file is read and proved,
//! its routes are made ready, and then they take the place of the old ones at once. Whoever asked
//! for it (a signal, the file itself, an operator), one load follows the other. Deliberately
//! absent: what changed means for a call under way, which keeps the route it began with.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Ground;
use crate::admin::control::{Controls, Refused};
use crate::call::time::Wall;
use crate::clock;
use crate::compensate::Alerter;
use crate::compensate::alert::Receivers;
use crate::config::clients::Client;
use crate::config::reload::Look;
use crate::config::{Config, Report, Source};
use crate::flow::{Flow, Ready};
use crate::ingress::Clients;
use crate::telemetry::labels::Reload;
use crate::telemetry::readiness::Trouble;

/// Between two looks at the files. What has not changed from one look to the next is taken for
/// written completely.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long the disk may take to give the files.
const READ_PATIENCE: Duration = Duration::from_secs(8);

/// Looks at a file that is missing, empty or unreadable before that is taken for its content: five
/// seconds.
const UNFINISHED_LOOKS: u32 = 20;

/// The configuration in force, and where it came from.
pub(super) struct Reloader {
    heeded: Heeded,
    ground: Ground,
    /// Shards of every pool of connections.
    cores: usize,
    source: Option<Source>,
    /// Has the gateway drain.
    stop: CancellationToken,
    config: ArcSwap<Config>,
    /// How the last load ended; none was made while it is empty.
    last: Mutex<Option<Last>>,
    /// Told of every load that is in force.
    pub(super) changed: Notify,
    /// One load at a time.
    turn: tokio::sync::Mutex<()>,
}

/// Those who heed the configuration while they run.
pub(super) struct Heeded {
    pub(super) flow: Arc<Flow>,
    pub(super) clients: Arc<ArcSwap<Clients>>,
    pub(super) alerter: Arc<Alerter>,
}

impl Heeded {
    pub(super) fn new(flow: &Arc<Flow>, clients: &[Client], alerter: Arc<Alerter>) -> Self {
        Self {
            flow: Arc::clone(flow),
            clients: Arc::new(ArcSwap::from_pointee(Clients::new(clients))),
            alerter,
        }
    }
}

/// How a load ended.
struct Last {
    at: Wall,
    cause: Cause,
    refused: Option<Report>,
}

/// Who asked for a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Signal,
    File,
    Operator,
}

impl Cause {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Signal => "signal",
            Self::File => "file",
            Self::Operator => "operator",
        }
    }
}

impl Reloader {
    pub(super) fn new(
        heeded: Heeded,
        ground: &Ground,
        cores: usize,
        (source, config, stop): (Option<Source>, &Config, CancellationToken),
    ) -> Arc<Self> {
        Arc::new(Self {
            heeded,
            ground: ground.clone(),
            cores,
            source,
            stop,
            config: ArcSwap::from_pointee(config.clone()),
            last: Mutex::new(None),
            changed: Notify::new(),
            turn: tokio::sync::Mutex::new(()),
        })
    }

    /// The configuration in force.
    pub(super) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    /// Follows the signal and the file until `stop`.
    pub(super) async fn run(self: Arc<Self>, hung_up: Arc<Notify>, stop: CancellationToken) {
        let follow = async {
            tokio::join!(self.follow_signal(&hung_up), self.follow_file());
        };
        tokio::select! {
            () = follow => {}
            () = stop.cancelled() => {}
        }
    }

    async fn follow_signal(&self, hung_up: &Notify) {
        loop {
            hung_up.notified().await;
            // How it ended is in the log.
            drop(self.load(Cause::Signal).await);
        }
    }

    async fn follow_file(&self) {
        let Some(source) = &self.source else { return };
        // The file may have changed since it was read for the start: nobody looked until now.
        let mut applied = None;
        let mut before = None;
        let mut unfinished = 0;
        loop {
            let (look, readable) = self.look(source).await;
            let settled = before.as_ref() == Some(&look);
            if applied.as_ref() == Some(&look) && !(readable && self.was_unread()) {
                unfinished = 0;
            } else if !settled
                || ((look.is_unfinished() || !readable) && unfinished < UNFINISHED_LOOKS)
            {
                unfinished += u32::from(settled);
            } else {
                unfinished = 0;
                if applied.is_some() || self.is_other(source).await {
                    drop(self.load(Cause::File).await);
                }
                // Keys and certificates of the new configuration are other files perhaps.
                applied = Some(self.look(source).await.0);
            }
            before = Some(look);
            clock::sleep(LOOK_EVERY).await;
        }
    }

    /// Whether the last load could not read the file, which may pass without a change that shows.
    fn was_unread(&self) -> bool {
        let last = self.last.lock();
        last.as_ref()
            .and_then(|last| last.refused.as_ref())
            .is_some_and(|report| report.unread)
    }

    /// How the files look, and whether the first of them can be read. A disk may take its time, so
    /// no thread that serves waits for it, here and below.
    async fn look(&self, source: &Source) -> (Look, bool) {
        let (source, config) = (source.clone(), self.config());
        blocking(move || (source.look(&config), source.is_readable())).await
    }

    /// Whether the file says something else than what it said at the start.
    async fn is_other(&self, source: &Source) -> bool {
        let (source, config) = (source.clone(), self.config());
        blocking(move || source.load(&config).as_ref() != Ok(&*config)).await
    }

    async fn load(&self, cause: Cause) -> Result<(), Report> {
        let _turn = self.turn.lock().await;
        let loaded = self.carry_out().await;
        let readiness = &self.ground.readiness;
        match &loaded {
            Ok(()) => {
                readiness.clear(Trouble::Configuration, "");
                self.changed.notify_one();
                tracing::info!(cause = cause.as_str(), "the configuration was reloaded");
            }
            Err(report) => {
                let said = report.to_string();
                readiness.raise(Trouble::Configuration, "", said.as_str());
                tracing::error!(
                    cause = cause.as_str(),
                    "the configuration was not reloaded and nothing of it is in force: {said}"
                );
            }
        }
        self.ground.metrics.reloaded(match &loaded {
            Ok(()) => Reload::Success,
            Err(_) => Reload::Failure,
        });
        *self.last.lock() = Some(Last {
            at: self.ground.clock.wall(),
            cause,
            refused: loaded.clone().err(),
        });
        loaded
    }

    async fn carry_out(&self) -> Result<(), Report> {
        let Some(source) = self.source.clone() else {
            let nowhere = "this gateway was started without a file; restart it with --config FILE";
            return Err(Report::whole("--tool", nowhere.to_owned()));
        };
        let name = source.file().display().to_string();
        let refuse = |message: String| Report::whole(&name, message);
        let running = self.config();
        let reading = blocking(move || source.load(&running));
        let config = tokio::time::timeout(READ_PATIENCE, reading)
            .await
            .map_err(|_| {
                let late = format!("not read within {READ_PATIENCE:?}; look to its disk");
                Report::unread(&name, late)
            })??;
        let flow = &self.heeded.flow;
        let remembered = flow.ledger.proofs().await;
        let remembered = remembered.map_err(|error| {
            refuse(format!(
                "the ledger could not be read ({error}); reload once it can"
            ))
        })?;
        let never = |what: &str, error| {
            let error = anyhow::Error::new(error);
            refuse(format!(
                "a route's {what} can never be reached as configured: {error:#}"
            ))
        };
        let ready = flow
            .routes
            .prepare(&config.routes, &remembered, self.cores)
            .map_err(|error| never("tool", error))?;
        let receivers =
            Alerter::prepare(&config.routes).map_err(|error| never("webhook", error))?;
        self.put_in_force(config, ready, receivers);
        Ok(())
    }

    /// Nothing from here on can fail.
    fn put_in_force(&self, config: Config, ready: Ready, receivers: Receivers) {
        let Heeded {
            flow,
            clients,
            alerter,
        } = &self.heeded;
        for notice in &config.warnings {
            tracing::warn!(key = notice.path, "{}", notice.text);
        }
        let before = self.config();
        flow.routes.replace(ready, &self.ground.metrics);
        alerter.replace(receivers);
        clients.store(Arc::new(Clients::new(&config.clients)));
        flow.clients.replace(&config.clients);
        let stays = |name: &str| config.routes.iter().any(|route| *route.name == *name);
        for gone in before.routes.iter().filter(|route| !stays(&route.name)) {
            for trouble in [
                Trouble::ToolUnreachable,
                Trouble::ReceiptsBroken,
                Trouble::ReceiptsUnproven,
            ] {
                self.ground.readiness.clear(trouble, &gone.name);
            }
        }
        flow.show_retries();
        self.config.store(Arc::new(config));
    }

    fn last(&self) -> Value {
        let last = self.last.lock();
        let Some(last) = last.as_ref() else {
            return Value::Null;
        };
        let findings = last.refused.iter().flat_map(|report| {
            report.findings.iter().map(|finding| {
                let place = finding.position.map_or_else(
                    || report.file.clone(),
                    |at| format!("{}:{}:{}", report.file, at.line, at.column),
                );
                json!({ "at": place, "key": finding.path, "message": finding.message })
            })
        });
        json!({
            "at": crate::admin::control::rfc3339(last.at),
            "cause": last.cause.as_str(),
            "result": if last.refused.is_none() { "success" } else { "failure" },
            "findings": findings.collect::<Vec<_>>(),
        })
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is ending, and takes whoever waits here with it.
            Err(_ended) => std::future::pending().await,
        },
    }
}

impl Controls for Reloader {
    fn config(&self) -> Value {
        let mut effective = self.config.load().effective();
        effective["reload"] = json!({
            "file": self.source.as_ref().map(|source| source.file().display().to_string()),
            "last": self.last(),
        });
        effective
    }

    fn reload(self: Arc<Self>) -> crate::admin::control::Loading {
        Box::pin(async move {
            let loaded = self.load(Cause::Operator).await;
            loaded.map_err(|report| Refused {
                without_file: self.source.is_none(),
                detail: report.to_string(),
            })
        })
    }

    fn drain(&self) {
        self.stop.cancel();
    }

    fn flow(&self) -> &Flow {
        &self.heeded.flow
    }
}
