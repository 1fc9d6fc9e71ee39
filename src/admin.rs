//! The operator's listener: metrics, health, and the API that the command line and people ask.
//!
//! The fourth door: it reads what the others have done, hands the operators' verbs to those who
//! perform them, and decides nothing about a call. It runs on the background runtime, so that a
//! scrape never stands in front of a call. Deliberately absent: request and answer bodies, which
//! an operator rarely needs and which may hold personal data.

mod api;
mod batches;
pub mod control;
mod dead;
mod differences;
mod document;
mod health;
mod jobs;
mod listener;
mod openapi;
pub mod operator;
mod problem;
mod shed;
pub mod why;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use http::{Method, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use crate::call::code::Code;
use crate::call::time::Wall;
use crate::compensate::Verbs;
use crate::ledger::Ledger;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::readiness::Readiness;

pub use batches::BatchDoor;
use control::Controls;
pub use listener::serve;
use problem::Problem;

/// The longest an answer may take; a ledger that does not answer by then is in trouble.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// How long a request's body may take to arrive; it has a few packets.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// The largest request body taken: a filter and a reason.
const BODY_BYTES_MAX: usize = 64 << 10;

/// What the operator's listener sees of the gateway.
pub struct Admin {
    /// Where calls are recorded.
    pub ledger: Arc<dyn Ledger>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is wrong, if anything.
    pub readiness: Arc<Readiness>,
    /// The reader of the wall clock.
    pub now: Arc<dyn Fn() -> Wall + Send + Sync>,
    /// Where batches come in.
    pub batches: BatchDoor,
    /// The effective configuration, secrets masked.
    pub config: serde_json::Value,
    /// SHA-256 of the token that requests must carry; `None` when none is configured.
    pub token: Option<TokenDigest>,
    /// What operators may do; there as soon as calls are served.
    pub verbs: OnceLock<Verbs>,
    /// What operators may turn; there as soon as calls are served.
    pub controls: OnceLock<Arc<dyn Controls>>,
}

impl Admin {
    /// Lets operators do what they may, from now on.
    pub fn open_desk(&self, verbs: Verbs) {
        // A second time cannot happen, and would change nothing.
        let _ = self.verbs.set(verbs);
    }

    /// Lets operators turn what they may, from now on.
    pub fn open_controls(&self, controls: Arc<dyn Controls>) {
        // A second time cannot happen, and would change nothing.
        let _ = self.controls.set(controls);
    }

    /// What operators may turn, once the gateway serves.
    fn controls(&self) -> Result<&Arc<dyn Controls>, Problem> {
        self.controls.get().ok_or_else(starting)
    }

    /// What operators may do, once the gateway serves.
    fn verbs(&self) -> Result<&Verbs, Problem> {
        self.verbs.get().ok_or_else(starting)
    }
}

/// A token as it is compared: by its SHA-256, in constant time.
#[derive(Clone, Copy)]
pub struct TokenDigest([u8; 32]);

impl TokenDigest {
    /// The digest of `token`.
    #[must_use]
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    fn admits(&self, presented: &str) -> bool {
        let presented = Self::of(presented);
        bool::from(self.0.ct_eq(&presented.0))
    }
}

/// Everything the operator's listener answers.
pub fn router(admin: Arc<Admin>) -> Router {
    let in_time = TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, ANSWER_WITHIN);
    let open = Router::new()
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::metrics))
        .route("/openapi.json", get(openapi::document))
        .layer(in_time);
    let guarded = Router::new()
        .route("/api/v1/calls/{id}", get(api::call))
        .route("/api/v1/calls/{id}/why", get(why::why))
        .merge(control::routes())
        .merge(batches::short())
        .merge(dead::routes())
        .merge(differences::routes())
        .merge(jobs::routes())
        .fallback(nothing_here)
        .layer(shed::at_most(
            shed::ANSWERS_AT_ONCE,
            Arc::clone(&admin.metrics),
        ))
        .layer(in_time)
        // In front of both: who sends slowly takes nobody's place, and is told what was slow.
        .layer(middleware::from_fn(arrived))
        .layer(middleware::from_fn(operator::name))
        .layer(middleware::from_fn_with_state(
            Arc::clone(&admin),
            with_token,
        ));
    // What streams has bounds of its own.
    let streaming = batches::streaming().layer(middleware::from_fn_with_state(
        Arc::clone(&admin),
        with_token,
    ));
    open.merge(guarded)
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(middleware::map_response(in_our_words))
        .merge(streaming)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(panicked))
        .with_state(admin)
}

/// Lets only requests through that carry the token, when one is configured.
async fn with_token(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    let Some(expected) = admin.token else {
        return next.run(request).await;
    };
    let presented = request.headers().get(header::AUTHORIZATION);
    let presented = presented
        .and_then(|value| value.to_str().ok())
        .and_then(bearer);
    if presented.is_some_and(|token| expected.admits(token)) {
        return next.run(request).await;
    }
    let detail = "This address wants the configured admin.token as `Authorization: Bearer ...`; \
                  the command line takes it from --token or CALLGATE_ADMIN_TOKEN.";
    let mut refusal = Problem::new(Code::Unauthorized, detail).into_response();
    let wants = header::HeaderValue::from_static("Bearer");
    refusal
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, wants);
    refusal
}

/// Lets a request through when its body is there; a question has none that anybody reads.
async fn arrived(request: Request, next: Next) -> Result<Response, Problem> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(next.run(request).await);
    }
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY_WITHIN, body.collect()).await {
        Ok(Ok(body)) => {
            let body = Body::from(body.to_bytes());
            Ok(next.run(Request::from_parts(head, body)).await)
        }
        Ok(Err(error)) if is_too_long(&error) => Err(too_large()),
        Ok(Err(_)) => {
            let detail = "The body broke off. Send the request again.";
            Err(Problem::new(Code::BadRequest, detail).because("unreadable"))
        }
        Err(_) => {
            let detail = format!(
                "The body did not arrive within {} s, and nothing was done. Send the request \
                 again.",
                BODY_WITHIN.as_secs()
            );
            Err(Problem::new(Code::RequestTimeout, detail))
        }
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<LengthLimitError>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// The token of an `Authorization` value; the scheme's case does not matter (RFC 9110).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then_some(token.trim())
}

/// What the limits in front of the handlers refuse by a bare status becomes a document like every
/// other refusal.
async fn in_our_words(response: Response) -> Response {
    if response.headers().contains_key(header::CONTENT_TYPE)
        && response.headers()[header::CONTENT_TYPE] == "application/problem+json"
    {
        return response;
    }
    match response.status() {
        StatusCode::PAYLOAD_TOO_LARGE => too_large().into_response(),
        StatusCode::GATEWAY_TIMEOUT => {
            let detail = format!(
                "It could not be answered within {} s. Ask again; narrow the filter, if it has \
                 one.",
                ANSWER_WITHIN.as_secs()
            );
            Problem::new(Code::Overloaded, detail).into_response()
        }
        _ => response,
    }
}

fn too_large() -> Problem {
    let detail = format!(
        "A body here has {} KiB at most; say it in fewer words.",
        BODY_BYTES_MAX / 1024
    );
    Problem::new(Code::BodyTooLarge, detail)
}

fn starting() -> Problem {
    let detail = "The gateway is still starting; ask again in a moment.";
    Problem::new(Code::Overloaded, detail)
}

async fn nothing_here() -> Problem {
    let detail = "The operator's listener has no such address; /openapi.json lists those it has, \
                  beside /metrics, /livez and /readyz. Callers' requests go to the other address \
                  (`listen`).";
    Problem::new(Code::NoRoute, detail)
}

async fn wrong_method() -> Problem {
    let detail = "This address answers another method: lists are GET, verbs are POST, and a job is \
                  cancelled by DELETE.";
    // Among callers, too, a method that no route takes is told as `no-route`.
    Problem::new(Code::NoRoute, detail).with_status(StatusCode::METHOD_NOT_ALLOWED)
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let said = panic.downcast_ref::<String>().map(String::as_str);
    let said = said
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    tracing::error!(panic = said, "an admin request panicked");
    let detail = "The gateway failed at this request; its log has the reason. Calls go on.";
    Problem::new(Code::Internal, detail).into_response()
}

#[cfg(test)]
pub(crate) mod tests;
