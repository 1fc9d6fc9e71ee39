//! What operators turn while the gateway runs: the configuration it follows, whether calls are
//! sent again, and whether it goes on.
//!
//! Who turned it stands in the log. Deliberately absent: what a turn means, which is told by those
//! who carry it out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use super::document;
use super::operator::Operator;
use super::problem::Problem;
use crate::call::code::Code;
use crate::call::time::Wall;
use crate::flow::Flow;
use crate::telemetry::log::escaped;
use crate::upstream::addresses::Shown;

/// A load of the configuration on its way.
pub type Loading = Pin<Box<dyn Future<Output = Result<(), Refused>> + Send>>;

/// Why the configuration was not reloaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// There is no file it could be loaded from.
    pub without_file: bool,
    /// Everything that is wrong, with its places.
    pub detail: String,
}

/// What can be turned.
pub trait Controls: Send + Sync {
    /// The configuration in force, secrets masked, and how the last load ended.
    fn config(&self) -> Value;
    /// Loads the configuration anew.
    fn reload(self: Arc<Self>) -> Loading;
    /// Has the gateway drain, as SIGTERM does; more than once is as once.
    fn drain(&self);
    /// Where calls are made.
    fn flow(&self) -> &Flow;
}

/// A time as this listener writes it.
#[must_use]
pub fn rfc3339(at: Wall) -> String {
    document::rfc3339(at)
}

/// The addresses of what can be turned.
pub(super) fn routes() -> Router<Arc<Admin>> {
    Router::new()
        .route("/api/v1/config", get(config))
        .route("/api/v1/reload", post(reload))
        .route("/api/v1/drain", post(drain))
        .route("/api/v1/retries", get(retries).post(switch))
        .route("/api/v1/upstreams", get(upstreams))
}

/// The switch for resends, as it shall stand.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Switch {
    /// Of this route only.
    route: Option<String>,
    enabled: bool,
}

async fn config(State(admin): State<Arc<Admin>>) -> Json<Value> {
    let running = admin.controls.get();
    Json(running.map_or_else(|| admin.config.clone(), |controls| controls.config()))
}

async fn reload(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
) -> Result<Json<Value>, Problem> {
    tracing::info!(operator = &*operator.0, "an operator asks for a reload");
    match Arc::clone(admin.controls()?).reload().await {
        Ok(()) => Ok(Json(json!({ "result": "success" }))),
        Err(refused) => {
            // The request is sound; what it is to load is not there, or is not.
            let problem = Problem::new(Code::OrderRefused, refused.detail);
            Err(if refused.without_file {
                problem.because("no-file")
            } else {
                let status = StatusCode::UNPROCESSABLE_ENTITY;
                problem.because("bad-configuration").with_status(status)
            })
        }
    }
}

/// Answers before it drains; the end of the listener is the last thing to come.
async fn drain(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
) -> Result<(StatusCode, Json<Value>), Problem> {
    let controls = admin.controls()?;
    tracing::warn!(operator = &*operator.0, "an operator has the gateway drain");
    controls.drain();
    Ok((StatusCode::ACCEPTED, Json(json!({ "result": "draining" }))))
}

async fn retries(State(admin): State<Arc<Admin>>) -> Result<Json<Value>, Problem> {
    Ok(Json(switches(admin.controls()?.flow())))
}

async fn switch(
    State(admin): State<Arc<Admin>>,
    Extension(operator): Extension<Operator>,
    wanted: Result<Json<Switch>, JsonRejection>,
) -> Result<Json<Value>, Problem> {
    let Json(Switch { route, enabled }) = wanted?;
    let flow = admin.controls()?.flow();
    if !flow.switch_retries(route.as_deref(), enabled) {
        let name = route.unwrap_or_default();
        let detail = format!(
            "No route is called `{}`; /api/v1/config lists them.",
            escaped(name.as_bytes())
        );
        return Err(Problem::new(Code::NoRoute, detail));
    }
    tracing::warn!(
        operator = &*operator.0,
        route = route.as_deref().unwrap_or("all"),
        enabled,
        "the switch for resends was turned"
    );
    Ok(Json(switches(flow)))
}

async fn upstreams(State(admin): State<Arc<Admin>>) -> Result<Json<Value>, Problem> {
    let flow = admin.controls()?.flow();
    let routes = flow.routes.all();
    let each = routes.iter().map(|route| {
        let known = route.upstreams(flow.clock.mono());
        let shown: Vec<Value> = known.iter().map(upstream).collect();
        json!({
            "route": &*route.conf.name,
            "sharedState": route.conf.upstream.shared_state,
            "addresses": shown,
        })
    });
    Ok(Json(json!({ "items": each.collect::<Vec<_>>() })))
}

/// One address of a tool.
fn upstream(shown: &Shown) -> Value {
    json!({
        "url": &*shown.url,
        "at": shown.at.map(|at| at.to_string()),
        "state": shown.standing.as_str(),
        "outForMs": u64::try_from(shown.out_for.as_millis()).unwrap_or(u64::MAX),
        "sends": shown.sends,
        "failuresInARow": shown.failures,
        "ejections": shown.ejections,
        "unresolved": shown.unresolved.as_deref(),
    })
}

/// Every switch, and what they come to for each route.
fn switches(flow: &Flow) -> Value {
    let state = flow.retries();
    let routes = flow.routes.all();
    let each = routes.iter().map(|route| {
        let name = &route.conf.name;
        let allowed = state.enabled && !state.off.contains(name);
        (name.to_string(), Value::Bool(allowed))
    });
    json!({
        "enabled": state.enabled,
        "off": state.off.iter().map(|name| &**name).collect::<Vec<_>>(),
        "routes": each.collect::<serde_json::Map<_, _>>(),
    })
}
