//! The callers' door and the flow behind it, fitted together.
//!
//! Every field is handed on as it came; what a caller's leaving means is the one thing read here,
//! because only the connection can tell a half-close from a reset. Deliberately absent: rate
//! limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Method;
use http::uri::PathAndQuery;
use tokio_util::sync::CancellationToken;

use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, ClientName};
use crate::call::policy::OnClientGone;
use crate::config;
use crate::flow::told::{Problem, Told};
use crate::flow::{self, Flow, PassBody, Route, Watch};
use crate::ingress::{Clients, Core, Door, Faced, Found, Knock, Line, Payload, Request};
use crate::telemetry::metrics::RouteMetrics;
use crate::upstream::Upload;
use crate::upstream::fields::Fields;

/// What stands behind the callers' door of one process.
pub(super) struct CallerDoor {
    pub(super) flow: Arc<Flow>,
    pub(super) clients: Arc<ArcSwap<Clients>>,
    /// The ledger failed when it was last looked at.
    pub(super) ledger_fails: Arc<AtomicBool>,
}

impl Faced for Route {
    fn config(&self) -> &config::Route {
        &self.conf
    }

    fn metrics(&self) -> &RouteMetrics {
        &self.metrics
    }
}

impl CallerDoor {
    /// How many rounds a dead letter of this route gets; none when the route is gone.
    fn rounds(&self, route: &str) -> usize {
        let route = self.flow.routes.named(route);
        route.map_or(0, |route| route.conf.policy.compensation.rounds.len())
    }
}

impl Door for CallerDoor {
    type Route = Route;

    fn route(&self, host: Option<&str>, path: &str, method: &Method) -> Option<Arc<Route>> {
        self.flow.routes.find(host, path, method)
    }

    fn client(&self, headers: &mut Fields) -> Option<ClientName> {
        self.clients.load().recognise(headers)
    }

    fn admit(&self, request: &Knock<'_, Route>) -> Result<(), Box<Problem>> {
        let recorded = request.route.conf.effects.is_once(request.method);
        if recorded && self.ledger_fails.load(Ordering::Relaxed) {
            return Err(Box::new(unrecordable()));
        }
        if recorded {
            flow::refusal_by_head(request.headers, request.route)?;
        }
        request.route.admit(request.client, &self.flow.metrics)
    }

    async fn call(&self, core: &Core, request: Box<Request<Route, Bytes>>) -> Told {
        let (request, leaving) = asked(*request, |body| body);
        let Some(leaving) = leaving else {
            return self.flow.call(core.tools(), request).await;
        };
        Box::pin(beside(self.flow.call(core.tools(), request), leaving)).await
    }

    async fn pass(&self, core: &Core, request: Box<Request<Route, Payload>>) -> Told {
        // Dropped with its caller by the door itself.
        let (request, _leaving) = asked(*request, |body| match body {
            Payload::Whole(whole) => PassBody::Whole(whole),
            Payload::Arriving(arriving) => PassBody::Arriving(Upload::new(arriving)),
        });
        self.flow.pass(core.tools(), Box::new(request)).await
    }

    async fn receipt(&self, client: &ClientName, id: &CallId, watch: Option<Watch>) -> Found {
        match self.flow.receipt(client, id, watch.as_ref()).await {
            Ok(Some(call)) => Found::Call {
                rounds: self.rounds(&call.route),
                view: Box::new(call),
            },
            Ok(None) => Found::Nothing {
                knows_since: self.flow.ledger.knows_since(),
            },
            Err(error) => {
                tracing::warn!(
                    call_id = %id,
                    error = &error as &dyn std::error::Error,
                    "a receipt could not be read"
                );
                Found::Unavailable {
                    detail: format!("{error}. Ask again a little later."),
                }
            }
        }
    }
}

/// A caller that may still shut its side, and whom to tell.
struct Leaving {
    line: Line,
    gone: CancellationToken,
}

/// The request as `flow` takes it, with the caller's FIN still to be watched where it matters.
fn asked<B, C>(
    request: Request<Route, B>,
    body: impl FnOnce(B) -> C,
) -> (flow::Request<C>, Option<Leaving>) {
    let authority = request.uri.authority().map(|host| Arc::from(host.as_str()));
    let (gone, leaving) = match request.route.conf.policy.on_client_gone {
        OnClientGone::Finish => (request.gone, None),
        OnClientGone::Cancel => {
            let gone = request.gone.child_token();
            (
                gone.clone(),
                Some(Leaving {
                    line: request.line,
                    gone,
                }),
            )
        }
    };
    let target = request.uri.path_and_query().cloned();
    let request = flow::Request {
        route: request.route,
        client: request.client,
        call_id: request.call_id,
        source: request.source,
        minted: request.minted,
        method: request.method,
        target: target.unwrap_or_else(|| PathAndQuery::from_static("/")),
        authority,
        headers: request.headers,
        body: body(request.body),
        caller: request.caller,
        version: request.version,
        gone,
        received: request.received,
        prefer: request.prefer,
        promised: request.promise.is_some(),
        promise: request.promise,
        first_seen: None,
    };
    (request, leaving)
}

/// Runs the call to its end; on the way, a FIN of its caller counts as gone.
async fn beside(call: impl Future<Output = Told>, leaving: Leaving) -> Told {
    let Leaving { line, gone } = leaving;
    let mut call = std::pin::pin!(call);
    tokio::select! {
        told = &mut call => return told,
        () = line.half_closed() => gone.cancel(),
    }
    call.await
}

fn unrecordable() -> Problem {
    let detail = "The durable record cannot be written at the moment, so nothing is sent. Repeat \
                  the call under the same id a little later.";
    let mut problem = Problem::new(
        Code::LedgerUnavailable,
        detail,
        Sent::Unknown,
        Repeat::SameCallIdOnly,
    );
    problem.retry_after = Some(std::time::Duration::from_secs(1));
    problem
}
