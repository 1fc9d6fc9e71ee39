//! Where a decision meets an effect: the only module that performs what `call` decides.
//!
//! The doors (`ingress`, `compensate`) hand requests in and get a [`told::Told`] back; none of
//! them decides anything about a call. [`Flow`] is what all calls of one process share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{Method, Version};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::told::{Problem, Told};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::{Mono, Wall};
use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::ledger::{Ledger, Owner};
use crate::telemetry::log::{AttemptLine, CallLine};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;
use crate::upstream::Core;
use crate::upstream::fields::Fields;
use crate::upstream::headers::{Caller, Node};

pub mod accept;
mod admit;
mod aim;
mod alike;
mod allow;
mod ask;
mod call;
mod canonical;
pub mod dedup;
mod drive;
mod driven;
mod errand;
mod former;
#[doc(hidden)]
pub mod fuzzing;
mod join;
mod key;
mod late;
mod limits;
mod listen;
#[doc(hidden)]
pub mod measured;
mod names;
pub mod operate;
mod parting;
mod pass;
mod passing;
mod prefer;
mod proof;
mod pursue;
mod reading;
mod record;
mod repeat;
mod reverse;
pub mod round;
pub mod routes;
mod running;
mod settle;
pub mod sites;
mod switch;
pub mod told;
mod visit;
mod watch;
mod window;

pub use accept::Promises;
pub use errand::Errand;
pub use key::refusal_by_head;
pub use late::Registry as LateRegistry;
pub use limits::Exceeded;
pub use names::ClientNames;
pub use pass::PassBody;
pub use prefer::Prefer;
pub use proof::Standing;
pub use routes::{Ready, Route, Routes};
pub use running::Calls;
pub use switch::{Retries, Switches};
pub use watch::Watch;

/// How long past `timeouts.total` the claim of a call in line holds: room for a last question and
/// a slow commit, so that a shared ledger never takes a living call for dead.
const LEASE_SLACK: Duration = Duration::from_secs(15);

/// What all calls of one process share.
pub struct Flow {
    /// The durable record.
    pub ledger: Arc<dyn Ledger>,
    /// The routes of the configuration in use.
    pub routes: Routes,
    /// The process's clock.
    pub clock: Clock,
    /// The process's chance.
    pub entropy: Entropy,
    /// This process instance.
    pub owner: Owner,
    /// Whether another process may have exchanges of this ledger's calls open: one that shares it,
    /// or the one this took over from.
    pub beside_others: bool,
    /// This gateway's name on the wire.
    pub node: Node,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
    /// What keeps this process from being ready.
    pub readiness: Arc<Readiness>,
    /// Calls in flight, for repeats to join.
    pub calls: Arc<Calls>,
    /// The clients by name.
    pub clients: ClientNames,
    /// Whether calls may be sent again at all.
    pub retries: Retries,
    /// How many callers may be promised something at once.
    pub promises: Promises,
    /// Exchanges past their attempt timeout.
    pub late: Arc<LateRegistry>,
    /// Cancelled when the process cannot wait for calls in line any longer: they are parked.
    pub draining: CancellationToken,
    /// Calls in line whose record is this process's to write.
    pub in_line: TaskTracker,
    /// What runs behind a caller's back: late exchanges, streamed ends, records being pursued.
    pub tasks: TaskTracker,
}

/// A request that was let in, with its id proved. `B` is its body: collected, or still arriving.
#[derive(Debug)]
pub struct Request<B = Bytes> {
    /// The route that matched.
    pub route: Arc<Route>,
    /// Whose it is.
    pub client: ClientName,
    /// Its call id, the client's or made here.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// The id was made for this very request, so that nobody can know it yet.
    pub minted: bool,
    /// Its method.
    pub method: Method,
    /// Path and query as they arrived.
    pub target: PathAndQuery,
    /// The host in the target, when it names one; then the `Host` field does not count.
    pub authority: Option<Arc<str>>,
    /// Its header fields as they arrived.
    pub headers: Fields,
    /// Its body.
    pub body: B,
    /// Where the caller sits.
    pub caller: Arc<Caller>,
    /// The caller's protocol version.
    pub version: Version,
    /// Cancelled when this caller is gone, as the route's `on_client_gone` understands it.
    pub gone: CancellationToken,
    /// When its head was complete.
    pub received: Mono,
    /// How long its caller wants to wait.
    pub prefer: Prefer,
    /// It is never given up as never sent: its caller is told that it is accepted, or nobody else
    /// would send it.
    pub promised: bool,
    /// Whom to tell once the call is on record.
    pub promise: Option<accept::Promise>,
    /// When it was first seen, where that was before it came here: windows of its key are of that
    /// time.
    pub first_seen: Option<Wall>,
}

impl<B> Request<B> {
    /// A refusal before anything was made ready for it, with its line in the log.
    fn turned_away(&self, problem: Problem, core: &Core) -> Told {
        let told = Told::refused(Some((self.call_id.clone(), self.source)), problem);
        CallLine {
            trace_id: reading::trace_id(&self.headers),
            ..self.line(&told, &[], core.clock.mono())
        }
        .emit();
        told
    }

    /// Its line in the log, as far as the request and what is told know it.
    fn line<'a>(&'a self, told: &Told, attempts: &'a [AttemptLine], now: Mono) -> CallLine<'a> {
        CallLine {
            call_id: Some(&self.call_id),
            source: Some(self.source),
            route: &self.route.conf.name,
            client: Some(&self.client),
            outcome: told.word,
            status: told.shown.status(),
            code: told.shown.code(),
            attempts,
            total: now.since(self.received),
            recorded: None,
            trace_id: None,
            clean: false,
        }
    }
}

impl Flow {
    /// Until when a call of `route` that is sent at `now` counts as alive without a heartbeat.
    fn lease_until(&self, route: &Route, now: Wall) -> Wall {
        now.after(route.conf.policy.timeouts.total)
            .after(LEASE_SLACK)
    }

    /// Has every row that is held here let go, for the ledger goes to another process: calls in
    /// line are parked, due at once, and their callers told; rounds end. Returns when none is held
    /// any more. Nothing is sent from then on but what was recorded before; exchanges that may
    /// still speak stay open, since many tools cancel their work when they are closed, and what
    /// they say is learnt from the receipt.
    pub async fn let_go(&self) {
        self.draining.cancel();
        self.in_line.close();
        tokio::join!(self.in_line.wait(), self.calls.leave_all());
    }

    /// Runs something nobody waits for, counted so that a drain can wait for it.
    fn background(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(task));
    }
}
