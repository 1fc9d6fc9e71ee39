//! The callers' door: HTTP in, one [`Told`] out.
//!
//! [`listener`] accepts and deals connections to the [`cores`], `identify` proves
//! the headers, [`Door`] is asked for the call, `reply` renders what it says. Nothing here decides
//! anything about a call. Deliberately absent: TLS, and every header that goes to a tool
//! (that is `upstream`'s).
//!
//! The doors of the house meet here: [`Door`] is what this room needs of the rooms below, small
//! enough that the tests of this room bring their own.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Uri, Version};
use tokio_util::sync::CancellationToken;

use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::{Mono, Wall};
use crate::config::Route as RouteConfig;
use crate::flow::accept::Promise;
use crate::flow::told::{Problem, Told};
use crate::flow::{Prefer, Watch};
use crate::ledger::view::CallView;
use crate::telemetry::metrics::RouteMetrics;
use crate::upstream::fields::Fields;
use crate::upstream::headers::Caller;

mod answer;
pub mod body;
mod clients;
pub mod cores;
mod floor;
#[doc(hidden)]
pub mod fuzzing;
mod hush;
mod identify;
pub mod line;
pub mod listener;
mod plain;
mod receipts;
mod reply;
mod seat;
mod serve;
mod streams;
mod tether;
mod tunnel;
mod wire;

pub use body::Payload;
pub use clients::Clients;
pub use cores::{Core, Cores};
pub use line::Line;
pub use listener::{Backlog, Drained, Ingress, Settings};

/// What stands behind this door.
///
/// The request goes through these in order: [`route`](Self::route), [`client`](Self::client), then
/// (its id proved) [`admit`](Self::admit), then its body, then [`call`](Self::call) or
/// [`pass`](Self::pass). Whatever is refused before the body is read costs the caller no upload.
///
/// Counted here, and only here, for every request that comes in: `calls_total`, `refused_total`,
/// `backfilled_call_ids_total`, `calls_in_flight` and `call_duration_seconds`. The line of the log
/// belongs to whoever answers [`call`](Self::call).
pub trait Door: Send + Sync + 'static {
    /// A route of one configuration load. A request keeps the one it was given.
    type Route: Faced;

    /// The first route that matches, if any. `host` is as the caller wrote it.
    fn route(&self, host: Option<&str>, path: &str, method: &Method) -> Option<Arc<Self::Route>>;

    /// Whose request this is; `None` when its key is missing or wrong. The key is taken out of
    /// `headers`, so that it goes no further.
    fn client(&self, headers: &mut Fields) -> Option<ClientName>;

    /// Whether the request may come in: rate limits, a full ledger, a missing idempotency key.
    ///
    /// # Errors
    /// The refusal to tell; the body was not read and is not asked for.
    fn admit(&self, request: &Knock<'_, Self::Route>) -> Result<(), Box<Problem>>;

    /// Makes the call (`effects: once`). Runs to its end whether its caller stays or not.
    fn call(
        &self,
        core: &Core,
        request: Box<Request<Self::Route, Bytes>>,
    ) -> impl Future<Output = Told> + Send;

    /// Passes the request on (`effects: none`). Dropped when its caller leaves.
    fn pass(
        &self,
        core: &Core,
        request: Box<Request<Self::Route, Payload>>,
    ) -> impl Future<Output = Told> + Send;

    /// What the ledger, or memory, knows of a call of this client; with `watch`, once it has
    /// ended.
    fn receipt(
        &self,
        client: &ClientName,
        id: &CallId,
        watch: Option<Watch>,
    ) -> impl Future<Output = Found> + Send;
}

/// What this room reads of a route.
pub trait Faced: Send + Sync + 'static {
    /// What the operator wrote.
    fn config(&self) -> &RouteConfig;
    /// Where it is counted.
    fn metrics(&self) -> &RouteMetrics;
}

/// A request whose body was not read yet.
pub struct Knock<'a, R> {
    /// The route that matched.
    pub route: &'a Arc<R>,
    /// Whose it is.
    pub client: &'a ClientName,
    /// Its call id, as far as its head names one.
    pub call_id: Option<&'a CallId>,
    /// Its method.
    pub method: &'a Method,
    /// Its header fields, as they arrived.
    pub headers: &'a Fields,
}

/// A request that was let in. `B` is its body: collected, or still arriving. Large, and handed
/// from one future to the next: it travels in a box.
pub struct Request<R, B> {
    /// The route that matched.
    pub route: Arc<R>,
    /// Whose it is.
    pub client: ClientName,
    /// Its call id, the client's or made here.
    pub call_id: CallId,
    /// Who made the id.
    pub source: IdSource,
    /// The id was made here, for this very request.
    pub minted: bool,
    /// Its method.
    pub method: Method,
    /// The target as it arrived: origin form, or absolute form (then its authority is the host).
    pub uri: Uri,
    /// Its header fields as they arrived, less `Expect`, and with a `Connection` that nominates no
    /// field a call needs.
    pub headers: Fields,
    /// Its body.
    pub body: B,
    /// Where the caller sits.
    pub caller: Arc<Caller>,
    /// The caller's protocol version.
    pub version: Version,
    /// Cancelled when the caller is gone: a reset, or a write that failed. A FIN is a half-close
    /// and does not count; see [`Line::half_closed`].
    pub gone: CancellationToken,
    /// The caller's connection.
    pub line: Line,
    /// When its head was complete.
    pub received: Mono,
    /// How long its caller wants to wait.
    pub prefer: Prefer,
    /// Whom to tell once the call is on record, where that may be told.
    pub promise: Option<Promise>,
}

impl<R, B> Request<R, B> {
    /// The host the caller asked for: the target's, or the `Host` field.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        identify::host(&self.uri, &self.headers)
    }
}

/// The answer to "what became of this call?".
pub enum Found {
    /// The call, as recorded or as it runs.
    Call {
        /// Everything known about it.
        view: Box<CallView>,
        /// How many rounds its policy gives a dead letter.
        rounds: usize,
    },
    /// Not this client's, or not known; this ledger would know every call since then.
    Nothing {
        /// Since when.
        knows_since: Wall,
    },
    /// The ledger could not be read.
    Unavailable {
        /// What went wrong, in words for the caller.
        detail: String,
    },
}

#[cfg(test)]
mod tests;
