//! Alerts: tells people what they have to know of, once, and tells it until it is heard.
//!
//! Nobody calls this: it looks into the ledger for rows nobody was told of, so that no alert hangs
//! on whoever changed a row, and none is lost by a crash. What was found is taken into a note in
//! the ledger first and delivered then; a delivery that is not noted as done is made again under
//! the same name. When something is told is decided by `call::alert`. Deliberately absent: any
//! channel but a webhook, and any look at what the receiver makes of it.

mod desk;
mod letter;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::call::alert::{Event, again_after};
use crate::call::time::Wall;
use crate::clock;
use crate::config::Route;
use crate::config::alert::AlertRule;
use crate::ledger::alert::Note;
use crate::ledger::{Ledger, LedgerError, Told, Untold, Watch};
use crate::telemetry::labels::{Alert, Bound};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::{Readiness, Trouble};
use crate::upstream::{Core, Hook, HookFailure, SetupError};
use desk::{Desk, Post};

/// Between two looks. A burst of one incident is one alert, and a person is not faster anyway.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Rows of each kind taken in one record; calls wait for the same writer.
const FOLD_MAX: usize = 200;

/// Records of one look: the rest of a flood is taken by the next one.
const FOLDS_MAX: u32 = 500;

/// How long a receiver has for one alert.
const DELIVER_WITHIN: Duration = Duration::from_secs(10);

/// Tells people what happens to the calls of the routes that name a webhook.
pub struct Alerter {
    means: Means,
    /// Read anew by every look, so that another configuration is heeded by the next one.
    desk: ArcSwap<Desk>,
    /// The desk is another one, or a receiver is free for it.
    replaced: Notify,
    /// Receivers that are being told something: one alert after another to each.
    busy: Mutex<BTreeSet<String>>,
    every: Duration,
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

/// The receivers of a configuration that is not in force yet.
#[must_use = "the receivers in use are others until these are put in their place"]
pub struct Receivers(Vec<(Arc<Route>, Arc<AlertRule>, Hook)>);

impl Alerter {
    /// An alerter that has nobody to tell yet.
    #[must_use]
    pub fn new(means: Means) -> Self {
        Self {
            means,
            desk: ArcSwap::default(),
            replaced: Notify::new(),
            busy: Mutex::default(),
            every: LOOK_EVERY,
        }
    }

    /// Makes the receivers of those of `routes` ready that name a webhook. Nothing changes yet.
    ///
    /// # Errors
    /// What can never work about a webhook's address.
    pub fn prepare(routes: &[Arc<Route>]) -> Result<Receivers, SetupError> {
        let named = routes.iter().filter_map(|route| {
            let rule = route.alert.as_ref()?;
            let made = |hook| (Arc::clone(route), Arc::clone(rule), hook);
            Some(Hook::new(rule).map(made))
        });
        named.collect::<Result<_, _>>().map(Receivers)
    }

    /// Puts these receivers in place of those in use, at once. What is being told to one that
    /// stays as it was goes on; what is being told to another ends, and waits for whoever is
    /// told from now on.
    pub fn replace(&self, Receivers(receivers): Receivers) {
        let before = self.desk.load();
        let mut desk = Desk::default();
        let mut watches = Vec::new();
        for (route, rule, hook) in receivers {
            let same = before.posts.iter().find(|post| post.is(&route, &rule));
            let post = same.cloned().unwrap_or_else(|| {
                Arc::new(Post {
                    route: Arc::clone(&route.name),
                    formerly: route.formerly.clone(),
                    hook,
                    rule,
                    metrics: self.means.metrics.route(&route.name),
                    trouble: Mutex::default(),
                    tried: AtomicBool::new(false),
                    gone: CancellationToken::new(),
                })
            });
            for name in std::iter::once(&route.name).chain(&route.formerly) {
                watches.push(Watch {
                    route: Arc::clone(name),
                    events: post.rule.on.clone(),
                    repeat: post.rule.repeat,
                });
                desk.posts.push(Arc::clone(&post));
            }
        }
        desk.watches = Arc::from(watches);
        let stays = |post: &Arc<Post>| desk.posts.iter().any(|new| Arc::ptr_eq(new, post));
        for gone in before.posts.iter().filter(|post| !stays(post)) {
            gone.gone.cancel();
            gone.metrics.alerts_undelivered(0);
            let readiness = &self.means.readiness;
            readiness.clear(Trouble::AlertsUndelivered, &gone.route);
        }
        self.desk.store(Arc::new(desk));
        self.replaced.notify_one();
    }

    /// Looks until it is told to stop. What is under way then is told again after the next start.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let looking = async {
            let mut told = false;
            let mut deliveries = JoinSet::new();
            loop {
                told = match self.look(&mut deliveries).await {
                    Ok(()) => false,
                    Err(error) => tell_once(&error, told),
                };
                self.rest(&mut deliveries).await;
            }
        };
        tokio::select! {
            () = looking => {}
            () = stop.cancelled() => {}
        }
    }

    /// Until the next look is due; takes in meanwhile what deliveries came to.
    async fn rest(&self, deliveries: &mut Deliveries) {
        let pause = clock::sleep(self.every);
        tokio::pin!(pause);
        loop {
            tokio::select! {
                () = &mut pause => return,
                () = self.replaced.notified() => return,
                Some(ended) = deliveries.join_next() => match ended {
                    Ok(Ok(())) => {}
                    // It is kept, as everything that is not noted as told, and told again.
                    Ok(Err(error)) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "what became of an alert could not be noted; it is told again"
                    ),
                    Err(error) => {
                        tracing::error!(error = %error, "a delivery of alerts failed inside");
                    }
                },
            }
        }
    }
}

/// What is under way: one task for each receiver.
type Deliveries = JoinSet<Result<(), LedgerError>>;

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

impl Alerter {
    /// Takes what is new, then tells what is due.
    async fn look(self: &Arc<Self>, deliveries: &mut Deliveries) -> Result<(), LedgerError> {
        let desk = self.desk.load_full();
        if desk.watches.is_empty() {
            return Ok(());
        }
        let (ledger, now) = (&self.means.ledger, self.means.core.clock.wall());
        let mut seen = ledger.untold(Arc::clone(&desk.watches)).await?;
        let aged = desk.aged(&seen, now);
        if seen.fresh || aged.is_some() {
            self.fold(aged.unwrap_or_else(|| Arc::clone(&desk.watches)), now)
                .await?;
            seen = ledger.untold(Arc::clone(&desk.watches)).await?;
        }
        self.close_aged(&desk, &seen, now).await?;
        self.show(&desk, &seen);
        self.deliver(&desk, seen.notes, now, deliveries);
        Ok(())
    }

    async fn fold(&self, watches: Arc<[Watch]>, now: Wall) -> Result<(), LedgerError> {
        for _ in 0..FOLDS_MAX {
            let watches = Arc::clone(&watches);
            let ledger = &self.means.ledger;
            if !ledger.fold_alerts(watches, now, FOLD_MAX).await? {
                return Ok(());
            }
        }
        self.means.metrics.bounds.inc(Bound::AlertRows);
        tracing::warn!("more calls than one look can take are waiting to be told of");
        Ok(())
    }

    /// The age of a call that was settled meanwhile is no news.
    async fn close_aged(&self, desk: &Desk, seen: &Untold, now: Wall) -> Result<(), LedgerError> {
        for (at, watch) in desk.watches.iter().enumerate() {
            let waits = seen
                .note(&watch.route, Event::OldestOver)
                .is_some_and(|note| note.standing.waiting > 0);
            if waits && !desk.is_over(at, seen, now) {
                let route = Arc::clone(&watch.route);
                let ledger = &self.means.ledger;
                let over = ledger.alert_told(route, Event::OldestOver, Told::Over, now);
                over.await?;
            }
        }
        Ok(())
    }

    /// Makes visible what could not be told yet.
    fn show(&self, desk: &Desk, seen: &Untold) {
        for post in desk.each_post() {
            let failing = |note: &&Note| {
                let tried = note.standing.waiting > 0 && note.standing.tries > 0;
                tried && post.is_of(&note.route) && post.wants(note.event)
            };
            let failing = seen.notes.iter().filter(failing).count();
            post.metrics.alerts_undelivered(failing);
            let readiness = &self.means.readiness;
            if failing == 0 {
                if readiness.clear(Trouble::AlertsUndelivered, &post.route) {
                    tracing::info!(route = &*post.route, "alerts are delivered again");
                }
                continue;
            }
            let trouble = post.trouble.lock();
            let trouble = trouble.as_deref().unwrap_or("not tried since the start");
            let detail = format!(
                "{failing} alert(s) to {} wait: {trouble}",
                post.rule.origin()
            );
            readiness.raise(Trouble::AlertsUndelivered, &post.route, detail);
        }
    }

    /// Begins to deliver what is due: to each receiver one alert after another, and no receiver
    /// waits for another. One that is still at it has its turn at a later look.
    fn deliver(
        self: &Arc<Self>,
        desk: &Desk,
        notes: Vec<Note>,
        now: Wall,
        deliveries: &mut Deliveries,
    ) {
        let mut by_receiver: BTreeMap<String, Vec<(Arc<Post>, Note)>> = BTreeMap::new();
        for note in notes {
            if let Some(post) = desk.is_due(&note, now) {
                let receiver = post.rule.origin();
                let due = by_receiver.entry(receiver).or_default();
                due.push((Arc::clone(post), note));
            }
        }
        for (receiver, due) in by_receiver {
            if let Some(turn) = Turn::take(self, receiver) {
                deliveries.spawn(Arc::clone(self).deliver_all(due, turn));
            }
        }
    }

    /// Alerts to one receiver. When it is not there, the rest is put off with the first.
    async fn deliver_all(
        self: Arc<Self>,
        due: Vec<(Arc<Post>, Note)>,
        turn: Turn,
    ) -> Result<(), LedgerError> {
        let mut away = None;
        let mut let_go = false;
        for (post, note) in due {
            let failure = match away.take() {
                None => tokio::select! {
                    posted = self.post(&post, &note) => posted.err(),
                    () = post.gone.cancelled() => {
                        let_go = true;
                        continue;
                    }
                },
                away => away,
            };
            let now = self.means.core.clock.wall();
            let told = told(&post, &note, failure.as_ref(), now);
            away = failure.filter(|failure| !failure.is_answer());
            let (ledger, route) = (&self.means.ledger, Arc::clone(&note.route));
            ledger.alert_told(route, note.event, told, now).await?;
        }
        drop(turn);
        if let_go {
            // The next look may have found the receiver busy with this.
            self.replaced.notify_one();
        }
        Ok(())
    }

    async fn post(&self, post: &Post, note: &Note) -> Result<(), HookFailure> {
        let core = &self.means.core;
        let at = core.clock.wall();
        let letter = letter::write(&self.means.node, note, at);
        let fields = letter.fields(post.rule.secret.as_ref(), at);
        let posted = post
            .hook
            .post(core, letter.body, fields, DELIVER_WITHIN)
            .await;
        post.metrics.alerts.inc(match &posted {
            Ok(()) => Alert::Delivered,
            Err(_) => Alert::Failed,
        });
        posted
    }
}

/// One receiver's ear: whoever has it is the only one who tells that receiver anything.
struct Turn {
    alerter: Arc<Alerter>,
    receiver: String,
}

impl Turn {
    fn take(alerter: &Arc<Alerter>, receiver: String) -> Option<Self> {
        let free = alerter.busy.lock().insert(receiver.clone());
        free.then(|| Self {
            alerter: Arc::clone(alerter),
            receiver,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.alerter.busy.lock().remove(&self.receiver);
    }
}

/// Logs what a delivery came to, and says what to note.
fn told(post: &Post, note: &Note, failure: Option<&HookFailure>, now: Wall) -> Told {
    let (route, event) = (&*note.route, note.event.as_str());
    post.tried.store(true, Ordering::Relaxed);
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

#[cfg(test)]
mod tests;
