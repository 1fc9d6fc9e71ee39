//! Whether the tools are there when serving begins: a mistyped port is cheapest to find now.
//!
//! One connection attempt per tool, closed at once. A tool that is not there is a warning and never
//! a reason not to serve: it may come later, and other routes have other tools. While one is
//! missing it is looked for again, so that `/readyz?verbose` does not go on saying so. What a
//! reload brings is looked at as at a start, and nothing waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock;
use crate::config::Route;
use crate::config::route::{Endpoint, Upstream};
use crate::telemetry::readiness::{Readiness, Trouble};

/// How long a tool has to accept a connection at start; `serving` is said after it at the latest.
const WITHIN: Duration = Duration::from_secs(1);

/// How often a tool that was missing is looked for again.
const AGAIN_EVERY: Duration = Duration::from_secs(5);

/// A tool that was not there.
pub(super) struct Missing {
    route: Arc<Route>,
    /// The address it is missing at.
    one: Arc<Upstream>,
}

/// Looks for every tool at once and warns of those that are not there. Addresses that are `known`
/// to be there get no connection for that.
pub(super) async fn look(
    routes: &[Arc<Route>],
    known: &BTreeSet<Arc<str>>,
    readiness: &Readiness,
) -> Vec<Missing> {
    let mut looks = JoinSet::new();
    // Routes often share a tool: one look, and one line that names the first of them.
    let tools: BTreeMap<&str, &Arc<Route>> = routes
        .iter()
        .rev()
        .map(|route| (&*route.upstream.address, route))
        .collect();
    for route in tools.into_values() {
        let unknown = route.upstream.each();
        for one in unknown.filter(|one| !known.contains(&one.address)) {
            let (route, one) = (Arc::clone(route), Arc::new(one));
            looks.spawn(async move { (connect(&one.endpoint).await, route, one) });
        }
    }
    let mut missing = Vec::new();
    for (reached, route, one) in looks.join_all().await {
        if let Err(error) = reached {
            let address = &*one.address;
            let detail = format!("{address} does not accept connections: {error}");
            let is_new = readiness.raise(Trouble::ToolUnreachable, &route.name, detail);
            missing.push(Missing {
                route: Arc::clone(&route),
                one: Arc::clone(&one),
            });
            if !is_new {
                continue;
            }
            tracing::warn!(
                route = &*route.name,
                address,
                error = &error as &dyn std::error::Error,
                "the tool cannot be reached; start it, or correct upstream.url and run \
                 `callgate check`"
            );
        }
    }
    missing
}

/// Looks for the missing tools again until all have been there, and for those of every other load:
/// `changed` tells of one, `routes` are those in use. Drop it to stop.
pub(super) async fn look_again(
    mut missing: Vec<Missing>,
    changed: &Notify,
    routes: impl Fn() -> Vec<Arc<Route>>,
    readiness: &Readiness,
) {
    let mut last = addresses(&routes());
    loop {
        let waits = !missing.is_empty();
        tokio::select! {
            () = changed.notified() => {
                let routes = routes();
                for one in &missing {
                    last.remove(&one.one.address);
                }
                let now = look(&routes, &last, readiness).await;
                last = addresses(&routes);
                for before in std::mem::replace(&mut missing, now) {
                    let name = &before.route.name;
                    if !missing.iter().any(|one| one.route.name == *name) {
                        readiness.clear(Trouble::ToolUnreachable, name);
                    }
                }
            }
            () = clock::sleep(AGAIN_EVERY), if waits => {
                missing = still_missing(missing, readiness).await;
            }
        }
    }
}

fn addresses(routes: &[Arc<Route>]) -> BTreeSet<Arc<str>> {
    let upstreams = routes.iter().flat_map(|route| route.upstream.each());
    upstreams.map(|one| Arc::clone(&one.address)).collect()
}

async fn still_missing(missing: Vec<Missing>, readiness: &Readiness) -> Vec<Missing> {
    let (mut still, mut back) = (Vec::new(), Vec::new());
    for looked in missing {
        match connect(&looked.one.endpoint).await {
            Ok(()) => back.push(looked),
            Err(_) => still.push(looked),
        }
    }
    for Missing { route, one } in back {
        // Another address of the same tool may still be missing.
        if !still.iter().any(|other| other.route.name == route.name) {
            readiness.clear(Trouble::ToolUnreachable, &route.name);
        }
        let address = &*one.address;
        tracing::info!(route = &*route.name, address, "the tool can be reached now");
    }
    still
}

async fn connect(endpoint: &Endpoint) -> io::Result<()> {
    let connecting = TcpStream::connect((&*endpoint.host, endpoint.port));
    tokio::select! {
        connected = connecting => connected.map(drop),
        () = clock::sleep(WITHIN) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "no answer within a second"))
        }
    }
}
