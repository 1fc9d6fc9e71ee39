//! A bound on what operators ask at once: scripts that poll the API must not take the background
//! runtime from the compensation worker. More is refused at once instead of queued; health and
//! metrics are outside, because a busy gateway has to say so.

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::BoxError;
use axum::error_handling::HandleErrorLayer;
use axum::response::{IntoResponse, Response};
use tower::limit::GlobalConcurrencyLimitLayer;
use tower::load_shed::LoadShedLayer;

use super::problem::Problem;
use crate::call::code::Code;
use crate::telemetry::labels::Bound;
use crate::telemetry::metrics::Metrics;

/// Questions answered at once; each is a read of the ledger or two, and there are two readers.
pub(super) const ANSWERS_AT_ONCE: usize = 64;

/// Sheds what comes while `most` requests are being answered.
pub(super) fn at_most(
    most: usize,
    metrics: Arc<Metrics>,
) -> (
    HandleErrorLayer<impl Fn(BoxError) -> Ready<Response> + Clone, ()>,
    LoadShedLayer,
    GlobalConcurrencyLimitLayer,
) {
    let refuse = move |_: BoxError| {
        metrics.bounds.inc(Bound::AdminRequests);
        ready(busy())
    };
    (
        HandleErrorLayer::new(refuse),
        LoadShedLayer::new(),
        GlobalConcurrencyLimitLayer::new(most),
    )
}

fn busy() -> Response {
    let detail = "As many questions are being answered as this listener takes at once. Ask again \
                  in a moment.";
    Problem::new(Code::Overloaded, detail).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use axum::routing::get;
    use tokio::sync::Notify;
    use tower::ServiceExt as _;

    use super::*;

    #[tokio::test]
    async fn more_than_so_many_questions_at_once_are_refused() {
        let (come, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let handler = {
            let (come, go) = (Arc::clone(&come), Arc::clone(&go));
            move || async move {
                come.notify_one();
                go.notified().await;
                "done"
            }
        };
        let metrics = Arc::new(Metrics::new("0"));
        let layer = at_most(1, Arc::clone(&metrics));
        let router = Router::new().route("/", get(handler)).layer(layer);
        let ask = |router: Router| router.oneshot(Request::new(Body::empty()));
        let first = tokio::spawn(ask(router.clone()));
        come.notified().await;
        let refused = ask(router.clone()).await.unwrap();
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(metrics.bounds.get(Bound::AdminRequests), 1);
        go.notify_one();
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
        go.notify_one();
        assert_eq!(ask(router).await.unwrap().status(), StatusCode::OK);
    }
}
