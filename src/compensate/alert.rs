//! Alerts: tells people what they have to know of, once, and tells it until it is heard.
//!
//! Nobody calls this: it looks into the ledger for rows nobody was told of, so that no alert hangs
//! on whoever changed a row, and none is lost by a crash. What was found is taken into a note in
//! the ledger first and delivered then; a delivery that is not noted as done is made again under
//! the same name. When something is told is decided by `call::alert`. Deliberately absent: any
//! channel but a webhook, and any look at what the receiver makes of it.

mod letter;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::alert::{Event, again_after};
use crate::call::time::Wall;
use crate::clock;
use crate::config::Route;
use crate::config::alert::AlertRule;
use crate::ledger::alert::Note;
use crate::ledger::{Ledger, LedgerError, Told, Untold, Watch};
use crate::telemetry::labels::Alert;
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use crate::telemetry::readiness::{Readiness, Trouble};
use crate::upstream::{Core, Hook, HookFailure, SetupError};

/// Between two looks. A burst of one incident is one alert, and a person is not faster anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Rows of each kind taken in one record; calls wait for the same writer.
const FOLD_MAX: usize = 200;

/// Records of one look: the rest of a flood is taken by the next one.
const FOLDS_MAX: u32 = 500;

/// How long a receiver has for one alert.
const DELIVER_WITHIN: Duration = Duration::from_secs(10);

/// Tells people what happens to the calls of some routes.
pub struct Alerter {
    desk: Arc<Desk>,
    every: Duration,
    stop: CancellationToken,
}

/// What the deliveries of one look share.
struct Desk {
    ledger: Arc<dyn Ledger>,
    core: Core,
    node: Arc<str>,
    readiness: Arc<Readiness>,
    watches: Arc<[Watch]>,
    /// In the order of the watches.
    posts: Vec<Post>,
}

/// Where the alerts of one route go.
struct Post {
    rule: Arc<AlertRule>,
    hook: Hook,
    metrics: Arc<RouteMetrics>,
    /// Why the last delivery failed.
    trouble: Mutex<Option<String>>,
}

/// What an alerter works with.
pub struct Means {
    /// Where calls are recorded.
    pub ledger: Arc<dyn Ledger>,
    /// The runtime deliveries run on.
    pub core: Core,
    /// This gateway's name.
    pub node: Arc<str>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Where an alert that cannot be delivered shows.
    pub readiness: Arc<Readiness>,
}

impl Alerter {
    /// An alerter for those of `routes` that name a webhook; `None` when none does.
    ///
    /// # Errors
    /// What can never work about a webhook's address.
    pub fn new(
        routes: &[Arc<Route>],
        means: Means,
        stop: CancellationToken,
    ) -> Result<Option<Self>, SetupError> {
        let mut posts = Vec::new();
        let mut watches = Vec::new();
        for route in routes {
            let Some(rule) = &route.alert else { continue };
            watches.push(Watch {
                route: Arc::clone(&route.name),
                events: rule.on.clone(),
                repeat: rule.repeat,
            });
            posts.push(Post {
                hook: Hook::new(rule)?,
                rule: Arc::clone(rule),
                metrics: means.metrics.route(&route.name),
                trouble: Mutex::default(),
            });
        }
        let desk = Desk {
            ledger: means.ledger,
            core: means.core,
            node: means.node,
            readiness: means.readiness,
            watches: Arc::from(watches),
            posts,
        };
        let any = !desk.posts.is_empty();
        Ok(any.then(|| Self {
            desk: Arc::new(desk),
            every: LOOK_EVERY,
            stop,
        }))
    }

    /// Looks until it is told to stop. What is under way then is told again after the next start.
    pub async fn run(self) {
        let Self { desk, every, stop } = self;
        let looking = async {
            let mut told = false;
            loop {
                told = match desk.look().await {
                    Ok(()) => false,
                    Err(error) => tell_once(&error, told),
                };
                clock::sleep(every).await;
            }
        };
        tokio::select! {
            () = looking => {}
            () = stop.cancelled() => {}
        }
    }
}

/// One line for the first of several failures in a row.
fn tell_once(error: &LedgerError, told: bool) -> bool {
    if !told {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "alerts cannot be looked for; they wait in the ledger"
        );
    }
    true
}

impl Desk {
    /// Takes what is new, then tells what is due.
    async fn look(self: &Arc<Self>) -> Result<(), LedgerError> {
        let mut seen = self.ledger.untold(Arc::clone(&self.watches)).await?;
        let now = self.core.clock.wall();
        let aged = self.aged(&seen, now);
        if seen.fresh || aged.is_some() {
            self.fold(aged.unwrap_or_else(|| Arc::clone(&self.watches)), now)
                .await?;
            seen = self.ledger.untold(Arc::clone(&self.watches)).await?;
        }
        self.close_aged(&seen, now).await?;
        self.show(&seen);
        self.deliver(seen.notes, now).await
    }

    async fn fold(&self, watches: Arc<[Watch]>, now: Wall) -> Result<(), LedgerError> {
        for _ in 0..FOLDS_MAX {
            let watches = Arc::clone(&watches);
            if !self.ledger.fold_alerts(watches, now, FOLD_MAX).await? {
                return Ok(());
            }
        }
        tracing::warn!("more calls than one look can take are waiting to be told of");
        Ok(())
    }

    /// The watches with those routes marked whose oldest call has to be told of; `None` when there
    /// is none.
    fn aged(&self, seen: &Untold, now: Wall) -> Option<Arc<[Watch]>> {
        let mut watches = self.watches.to_vec();
        let mut any = false;
        for (at, watch) in watches.iter_mut().enumerate() {
            let note = seen.note(&watch.route, Event::OldestOver);
            let quiet = note.is_none_or(|note| {
                note.standing.waiting == 0 && !note.standing.holds(watch.repeat, now)
            });
            if quiet && self.is_over(at, seen, now) {
                watch.events.push(Event::OldestOver);
                any = true;
            }
        }
        any.then(|| Arc::from(watches))
    }

    fn is_over(&self, at: usize, seen: &Untold, now: Wall) -> bool {
        let limit = self.posts[at].rule.oldest_over;
        let oldest = seen.oldest.get(at).copied().flatten();
        limit
            .zip(oldest)
            .is_some_and(|(limit, oldest)| now.since(oldest) > limit)
    }

    /// The age of a call that was settled meanwhile is no news.
    async fn close_aged(&self, seen: &Untold, now: Wall) -> Result<(), LedgerError> {
        for (at, watch) in self.watches.iter().enumerate() {
            let waits = seen
                .note(&watch.route, Event::OldestOver)
                .is_some_and(|note| note.standing.waiting > 0);
            if waits && !self.is_over(at, seen, now) {
                let route = Arc::clone(&watch.route);
                let over = self
                    .ledger
                    .alert_told(route, Event::OldestOver, Told::Over, now);
                over.await?;
            }
        }
        Ok(())
    }

    /// Makes visible what could not be told yet.
    fn show(&self, seen: &Untold) {
        for (watch, post) in self.watches.iter().zip(&self.posts) {
            let failing = |note: &&Note| {
                note.route == watch.route && note.standing.waiting > 0 && note.standing.tries > 0
            };
            let failing = seen.notes.iter().filter(failing).count();
            post.metrics.alerts_undelivered(failing);
            if failing == 0 {
                if self
                    .readiness
                    .clear(Trouble::AlertsUndelivered, &watch.route)
                {
                    tracing::info!(route = &*watch.route, "alerts are delivered again");
                }
                continue;
            }
            let trouble = post.trouble.lock();
            let trouble = trouble.as_deref().unwrap_or("not tried since the start");
            let detail = format!(
                "{failing} alert(s) to {} wait: {trouble}",
                post.rule.origin()
            );
            self.readiness
                .raise(Trouble::AlertsUndelivered, &watch.route, detail);
        }
    }

    /// Delivers what is due: one receiver after another at the same time, and one alert after
    /// another to each, so that a receiver that hangs holds up nobody else.
    async fn deliver(self: &Arc<Self>, notes: Vec<Note>, now: Wall) -> Result<(), LedgerError> {
        let mut by_receiver: BTreeMap<String, Vec<(usize, Note)>> = BTreeMap::new();
        for note in notes {
            if let Some(at) = self.is_due(&note, now) {
                let receiver = self.posts[at].rule.origin();
                by_receiver.entry(receiver).or_default().push((at, note));
            }
        }
        let mut receivers = JoinSet::new();
        for due in by_receiver.into_values() {
            receivers.spawn(Arc::clone(self).deliver_all(due));
        }
        while let Some(told) = receivers.join_next().await {
            match told {
                Ok(told) => told?,
                // Kept and tried again by the next look, like everything that is not noted as told.
                Err(error) => tracing::error!(error = %error, "a delivery of alerts failed inside"),
            }
        }
        Ok(())
    }

    /// Which post a note goes to, when it is to go now.
    fn is_due(&self, note: &Note, now: Wall) -> Option<usize> {
        let at = self.watches.iter().position(|w| w.route == note.route)?;
        let rule = &self.posts[at].rule;
        let wanted = rule.on.contains(&note.event)
            || (note.event == Event::OldestOver && rule.oldest_over.is_some());
        (wanted && note.standing.is_due(rule.repeat, now)).then_some(at)
    }

    /// Alerts to one receiver. When it is not there, the rest is put off with the first.
    async fn deliver_all(self: Arc<Self>, due: Vec<(usize, Note)>) -> Result<(), LedgerError> {
        let mut away = None;
        for (at, note) in due {
            let failure = match away.take() {
                None => self.post(&self.posts[at], &note).await.err(),
                away => away,
            };
            let now = self.core.clock.wall();
            let told = self.told(&self.posts[at], &note, failure.as_ref(), now);
            away = failure.filter(|failure| !failure.is_answer());
            let route = Arc::clone(&note.route);
            self.ledger.alert_told(route, note.event, told, now).await?;
        }
        Ok(())
    }

    async fn post(&self, post: &Post, note: &Note) -> Result<(), HookFailure> {
        let at = self.core.clock.wall();
        let letter = letter::write(&self.node, note, at);
        let fields = letter.fields(post.rule.secret.as_ref(), at);
        let posted = post
            .hook
            .post(&self.core, letter.body, fields, DELIVER_WITHIN)
            .await;
        post.metrics.alerts.inc(match &posted {
            Ok(()) => Alert::Delivered,
            Err(_) => Alert::Failed,
        });
        posted
    }

    /// Counts, logs, and says what to note.
    fn told(&self, post: &Post, note: &Note, failure: Option<&HookFailure>, now: Wall) -> Told {
        let (route, event) = (&*note.route, note.event.as_str());
        let Some(failure) = failure else {
            *post.trouble.lock() = None;
            let count = note.standing.waiting;
            tracing::info!(route, event, count, "an alert was delivered");
            return Told::Delivered { count };
        };
        let tries = note.standing.tries.saturating_add(1);
        let wait = again_after(tries);
        let receiver = post.rule.origin();
        tracing::warn!(
            route,
            event,
            tries,
            receiver,
            error = failure as &dyn std::error::Error,
            again_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "an alert could not be delivered; it is kept and tried again"
        );
        *post.trouble.lock() = Some(failure.to_string());
        Told::Failed {
            next_try: now.after(wait),
        }
    }
}

#[cfg(test)]
mod tests;
