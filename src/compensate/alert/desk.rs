//! Who is told what, by one load of the configuration. Reads the ledger's notes, changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::call::alert::Event;
use crate::call::time::Wall;
use crate::config::Route;
use crate::config::alert::AlertRule;
use crate::ledger::alert::Note;
use crate::ledger::{Untold, Watch};
use crate::telemetry::metrics::RouteMetrics;
use crate::upstream::Hook;

/// Who is told what, by one load of the configuration.
#[derive(Default)]
pub(super) struct Desk {
    /// One for each name a route has or had: its dead letters keep the name they began with.
    pub(super) watches: Arc<[Watch]>,
    /// In the order of the watches; those of one route share theirs.
    pub(super) posts: Vec<Arc<Post>>,
}

/// Where the alerts of one route go.
pub(super) struct Post {
    pub(super) route: Arc<str>,
    pub(super) formerly: Vec<Arc<str>>,
    pub(super) rule: Arc<AlertRule>,
    pub(super) hook: Hook,
    pub(super) metrics: Arc<RouteMetrics>,
    /// Why the last delivery failed.
    pub(super) trouble: Mutex<Option<String>>,
    /// Something was told by it, or tried to. Until then no failure of a predecessor delays it.
    pub(super) tried: AtomicBool,
    /// Another configuration is in force, without this one.
    pub(super) gone: CancellationToken,
}

impl Post {
    /// Whether it is this route's, with this rule.
    pub(super) fn is(&self, route: &Route, rule: &AlertRule) -> bool {
        *self.route == *route.name && self.formerly == route.formerly && *self.rule == *rule
    }

    pub(super) fn wants(&self, event: Event) -> bool {
        match event {
            Event::Manual | Event::Reversed | Event::Difference => self.rule.on.contains(&event),
            Event::OldestOver => self.rule.oldest_over.is_some(),
        }
    }

    /// Whether a dead letter under this name is this route's.
    pub(super) fn is_of(&self, name: &str) -> bool {
        *self.route == *name || self.formerly.iter().any(|old| **old == *name)
    }
}

impl Desk {
    /// The watches with those routes marked whose oldest call has to be told of; `None` when there
    /// is none.
    pub(super) fn aged(&self, seen: &Untold, now: Wall) -> Option<Arc<[Watch]>> {
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

    pub(super) fn is_over(&self, at: usize, seen: &Untold, now: Wall) -> bool {
        let limit = self.posts[at].rule.oldest_over;
        let oldest = seen.oldest.get(at).copied().flatten();
        limit
            .zip(oldest)
            .is_some_and(|(limit, oldest)| now.since(oldest) > limit)
    }

    /// Every post, once.
    pub(super) fn each_post(&self) -> impl Iterator<Item = &Arc<Post>> {
        let named = self.watches.iter().zip(&self.posts);
        named.filter_map(|(watch, post)| (watch.route == post.route).then_some(post))
    }

    /// Which post a note goes to, when it is to go now.
    pub(super) fn is_due(&self, note: &Note, now: Wall) -> Option<&Arc<Post>> {
        let at = self.watches.iter().position(|w| w.route == note.route)?;
        let post = &self.posts[at];
        let mut standing = note.standing;
        if !post.tried.load(Ordering::Relaxed) {
            standing.next_try = None;
        }
        (post.wants(note.event) && standing.is_due(post.rule.repeat, now)).then_some(post)
    }
}
