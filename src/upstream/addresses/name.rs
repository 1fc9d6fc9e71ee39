//! What a host name leads to, looked up behind the calls.
//!
//! The first connection waits for the first look-up; from then on what was found last is used while
//! the name is looked up again, every so often and after a failed connect. A look-up that fails
//! changes nothing and is told. Deliberately absent: times to live, which the system's resolver
//! does not tell.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use crate::call::time::Mono;
use crate::clock;
use crate::upstream::Core;

/// How long one look-up may take; the system's resolver itself has no bound worth the name.
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);

/// After a failed connect the name is looked up again, but no sooner than this after the last time.
const HURRY_GAP: Duration = Duration::from_secs(1);

/// The most addresses of one name that are used.
const FOUND_MAX: usize = 64;

/// What a look-up brings.
pub type Lookup = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Looks up a host and port: the system's resolver, unless a test brings one.
pub type Resolver = Box<dyn Fn(Arc<str>, u16) -> Lookup + Send + Sync>;

/// A host name, and what it leads to.
pub struct Name {
    host: Arc<str>,
    port: u16,
    every: Duration,
    found: ArcSwapOption<Vec<SocketAddr>>,
    /// Counts what was found that was something else than before.
    version: AtomicU64,
    /// One look-up at a time.
    turn: tokio::sync::Mutex<()>,
    /// It is looked up again and again.
    followed: AtomicBool,
    last: Mutex<Last>,
    resolver: OnceLock<Resolver>,
}

#[derive(Debug, Default)]
struct Last {
    at: Option<Mono>,
    failing: Option<Arc<str>>,
}

impl Name {
    pub(in crate::upstream) fn new(host: &Arc<str>, port: u16, every: Duration) -> Arc<Self> {
        Arc::new(Self {
            host: Arc::clone(host),
            port,
            every,
            found: ArcSwapOption::empty(),
            version: AtomicU64::new(0),
            turn: tokio::sync::Mutex::new(()),
            followed: AtomicBool::new(false),
            last: Mutex::default(),
            resolver: OnceLock::new(),
        })
    }

    /// Takes every further look-up from `resolver`. For tests; the first one given stays.
    #[doc(hidden)]
    pub fn resolve_by(&self, resolver: Resolver) {
        drop(self.resolver.set(resolver));
    }

    /// What was found last; nothing while nobody has asked.
    #[must_use]
    pub fn found(&self) -> Option<Arc<Vec<SocketAddr>>> {
        self.found.load_full()
    }

    /// Another number for everything else that was found.
    #[must_use]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Why the last look-up failed; `None` when it did not.
    #[must_use]
    pub fn failing(&self) -> Option<Arc<str>> {
        self.last.lock().failing.clone()
    }

    /// Where it leads. Only the first caller ever waits.
    ///
    /// # Errors
    /// Why it cannot be looked up, while nothing was ever found.
    pub(in crate::upstream) async fn addresses(
        self: &Arc<Self>,
        core: &Core,
    ) -> io::Result<Arc<Vec<SocketAddr>>> {
        self.follow(core);
        if let Some(found) = self.found.load_full() {
            return Ok(found);
        }
        let seen = {
            let last = self.last.lock();
            let recent = |at| core.clock.mono().since(at) < HURRY_GAP;
            if let (Some(failing), true) = (&last.failing, last.at.is_some_and(recent)) {
                return Err(io::Error::other(failing.to_string()));
            }
            last.at
        };
        // Whoever waits may give up; what is found then serves the next one.
        let (name, on) = (Arc::clone(self), core.clone());
        let looked = core.spawn(async move { name.look(&on, seen).await });
        looked.await.map_err(io::Error::other)??;
        self.found.load_full().ok_or_else(nothing)
    }

    /// A connection failed: perhaps the name leads elsewhere by now. Nobody waits for that.
    pub(in crate::upstream) fn hurry(self: &Arc<Self>, core: &Core) {
        let last = self.last.lock().at;
        let now = core.clock.mono();
        if last.is_some_and(|at| now.since(at) < HURRY_GAP) {
            return;
        }
        let (name, on) = (Arc::clone(self), core.clone());
        drop(core.spawn(async move {
            // Its failure is told by `told`.
            drop(name.look(&on, last).await);
        }));
    }

    /// Looks the name up again and again for as long as anybody has it.
    fn follow(self: &Arc<Self>, core: &Core) {
        if self.followed.load(Ordering::Relaxed) || self.followed.swap(true, Ordering::AcqRel) {
            return;
        }
        let (name, on, every) = (Arc::downgrade(self), core.clone(), self.every);
        drop(core.spawn(follow(name, on, every)));
    }

    /// Looks it up, unless somebody has done so since `seen`.
    async fn look(&self, core: &Core, seen: Option<Mono>) -> io::Result<()> {
        let _turn = self.turn.lock().await;
        {
            let last = self.last.lock();
            if last.at != seen {
                let failing = last.failing.as_ref();
                return failing.map_or(Ok(()), |why| Err(io::Error::other(why.to_string())));
            }
        }
        let looked = tokio::select! {
            looked = self.lookup() => looked,
            () = clock::sleep(LOOKUP_WITHIN) => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "the look-up took too long"))
            }
        };
        let looked = looked.and_then(|found| match found.is_empty() {
            true => Err(nothing()),
            false => Ok(found),
        });
        self.told(core.clock.mono(), looked.as_ref().err());
        self.take(looked?);
        Ok(())
    }

    async fn lookup(&self) -> io::Result<Vec<SocketAddr>> {
        match self.resolver.get() {
            Some(resolver) => resolver(Arc::clone(&self.host), self.port).await,
            None => Ok(tokio::net::lookup_host((&*self.host, self.port))
                .await?
                .collect()),
        }
    }

    /// Notes how a look-up ended, and tells when that is news.
    fn told(&self, now: Mono, error: Option<&io::Error>) {
        let mut last = self.last.lock();
        last.at = Some(now);
        let before = last.failing.take();
        last.failing = error.map(|error| Arc::from(error.to_string()));
        match (before, error) {
            (None, Some(error)) => tracing::warn!(
                host = &*self.host,
                error = error as &dyn std::error::Error,
                "the host name of a tool cannot be looked up; what was found before is used"
            ),
            (Some(_), None) => {
                tracing::info!(host = &*self.host, "the host name of a tool is found again");
            }
            (Some(_), Some(_)) | (None, None) => {}
        }
    }

    /// Puts what was found in place of what was, if it is something else. In which order a resolver
    /// says the same is nothing new.
    fn take(&self, mut found: Vec<SocketAddr>) {
        if found.len() > FOUND_MAX {
            tracing::warn!(
                host = &*self.host,
                found = found.len(),
                used = FOUND_MAX,
                "the host name of a tool leads to more addresses than are used"
            );
            found.truncate(FOUND_MAX);
        }
        let sorted = |found: &[SocketAddr]| {
            let mut sorted = found.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            sorted
        };
        let before = self.found.load_full();
        if before
            .as_ref()
            .is_some_and(|before| sorted(before) == sorted(&found))
        {
            return;
        }
        if let Some(before) = before {
            tracing::info!(
                host = &*self.host,
                ?before,
                now = ?found,
                "the host name of a tool leads elsewhere"
            );
        }
        let mut once = Vec::with_capacity(found.len());
        for address in found {
            if !once.contains(&address) {
                once.push(address);
            }
        }
        self.found.store(Some(Arc::new(once)));
        self.version.fetch_add(1, Ordering::AcqRel);
    }
}

async fn follow(name: Weak<Name>, core: Core, every: Duration) {
    loop {
        clock::sleep(every).await;
        let Some(name) = name.upgrade() else { return };
        let last = name.last.lock().at;
        // Its failure is told by `told`.
        drop(name.look(&core, last).await);
    }
}

fn nothing() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the host name has no address")
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Name({}:{})", self.host, self.port)
    }
}
