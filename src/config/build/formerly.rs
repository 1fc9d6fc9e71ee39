//! Rules about former names (`formerly`): each leads to one route, or one client, and to no other.
//!
//! A name that two could have had would hand one's calls to the other. Keys are kept under a scope,
//! which is the route's name unless another one is named; so a route that got a scope may list its
//! own name, under which its earlier keys are.

use std::sync::Arc;

use super::Builder;
use super::scope::Scope;
use crate::config::clients::Client;
use crate::config::file::read::Value;
use crate::config::report::Path;
use crate::config::route::Route;

/// Whoever has a name, and had others.
struct Named<'a> {
    name: &'a str,
    formerly: &'a [Arc<str>],
    /// Whether its own name may stand among the former ones.
    own_too: bool,
}

impl Builder<'_> {
    /// Judges the former names of the routes.
    pub(super) fn judge_former_routes(
        &mut self,
        elements: &[Value],
        path: &Path,
        routes: &[Arc<Route>],
    ) {
        let named = routes.iter().map(|route| Named {
            name: &route.name,
            formerly: &route.formerly,
            own_too: route.idempotency.scope.is_some(),
        });
        self.judge_former("route", elements, path, &named.collect::<Vec<_>>());
    }

    /// Judges the former names of the clients.
    pub(super) fn judge_former_clients(
        &mut self,
        elements: &[Value],
        path: &Path,
        clients: &[Client],
    ) {
        let named = clients.iter().map(|client| Named {
            name: &client.name,
            formerly: &client.formerly,
            own_too: false,
        });
        self.judge_former("client", elements, path, &named.collect::<Vec<_>>());
    }

    fn judge_former(&mut self, what: &str, elements: &[Value], path: &Path, all: &[Named<'_>]) {
        for (at, one) in all.iter().enumerate() {
            for former in one.formerly {
                let bears = |other: &&Named<'_>| {
                    *other.name == **former && !(other.name == one.name && one.own_too)
                };
                let had = |other: &&Named<'_>| other.formerly.contains(former);
                let message = if let Some(other) = all.iter().find(bears) {
                    let who = other.name;
                    format!("a {what} is called {who:?} now; only names nobody has any more")
                } else if let Some(other) = all[..at].iter().find(had) {
                    let who = other.name;
                    format!("{former:?} stands among the former names of the {what} {who:?} too")
                } else {
                    continue;
                };
                let place = self.place_of(elements, path, one.name);
                self.refuse(&place, message);
            }
        }
    }

    /// Where the former names of the element with this name stand.
    fn place_of(&self, elements: &[Value], path: &Path, name: &str) -> Path {
        let scopes = elements.iter().enumerate();
        let mut scopes = scopes.map(|(at, element)| Scope::new(element, &path.index(at)));
        let found = scopes.find(|scope| scope.text("name").is_some_and(|(text, _)| text == name));
        found.map_or_else(|| path.clone(), |scope| scope.blame(&["formerly"]))
    }
}
