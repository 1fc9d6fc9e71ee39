//! What a scheduler and a scraper ask: alive, ready, and the figures.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};

use super::Admin;
use crate::ledger::{DeadState, Tally};
use crate::telemetry::labels::OpenState;
use crate::telemetry::metrics::OpenDeadLetters;
use crate::telemetry::readiness::Trouble;

const TEXT: &str = "text/plain; charset=utf-8";
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The process answers; nothing else is claimed.
pub(super) async fn livez() -> Response {
    text(StatusCode::OK, "alive\n".to_owned())
}

/// 200 when new calls are welcome, else 503 with what stands in the way; `?verbose` also lists
/// what is wrong without standing in the way.
pub(super) async fn readyz(State(admin): State<Arc<Admin>>, RawQuery(query): RawQuery) -> Response {
    look_at_ledger(&admin);
    let verbose = query.is_some_and(|q| q.split('&').any(|p| matches!(p, "verbose" | "verbose=1")));
    let ready = admin.readiness.is_ready();
    let mut body = String::from(if ready { "ready\n" } else { "not ready\n" });
    for condition in admin.readiness.conditions() {
        let blocks = condition.trouble.blocks();
        if blocks || verbose {
            let mark = if blocks { "[-]" } else { "[!]" };
            let word = condition.trouble.as_str();
            let about = Some(condition.subject).filter(|s| !s.is_empty());
            let about = about.map_or_else(String::new, |subject| format!(" {subject}"));
            writeln!(body, "{mark} {word}{about}: {}", condition.detail)
                .expect("a String takes every write");
        }
    }
    if verbose && !admin.readiness.has(Trouble::Ledger) {
        body.push_str("[+] ledger\n");
    }
    text(
        if ready {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        },
        body,
    )
}

/// Asking makes a ledger that failed try again, so that a gateway taken out of its load balancer
/// finds its way back without traffic.
fn look_at_ledger(admin: &Admin) {
    match admin.ledger.health().failing {
        Some(why) => {
            if admin.readiness.raise(Trouble::Ledger, "", &*why) {
                tracing::error!(
                    reason = &*why,
                    "the ledger cannot be written; nothing is sent"
                );
            }
        }
        None => {
            if admin.readiness.clear(Trouble::Ledger, "") {
                tracing::info!("the ledger can be written again");
            }
        }
    }
}

/// All metrics; the dead-letter gauges are counted now.
pub(super) async fn metrics(State(admin): State<Arc<Admin>>) -> Response {
    if let Some(controls) = admin.controls.get() {
        controls.flow().show_upstreams();
    }
    match admin.ledger.tally().await {
        Ok(tally) => {
            let now = (admin.now)();
            let open = tally.into_iter().filter_map(|row| {
                Some(OpenDeadLetters {
                    state: open_state(&row)?,
                    count: row.count,
                    oldest: now.since(row.oldest),
                    route: row.route.to_string(),
                })
            });
            admin.metrics.set_dead_letters(&open.collect::<Vec<_>>());
        }
        // The gauges keep their last values; everything else is still worth a scrape.
        Err(error) => tracing::warn!(error = %error, "dead letters could not be counted"),
    }
    ([(header::CONTENT_TYPE, EXPOSITION)], admin.metrics.render()).into_response()
}

const fn open_state(row: &Tally) -> Option<OpenState> {
    match row.state {
        DeadState::Queued => Some(OpenState::Queued),
        DeadState::Running => Some(OpenState::Running),
        DeadState::Reversing => Some(OpenState::Reversing),
        DeadState::Manual => Some(OpenState::Manual),
        DeadState::Settled | DeadState::Failed | DeadState::Reversed | DeadState::Discarded => None,
    }
}

fn text(status: StatusCode, body: String) -> Response {
    (status, [(header::CONTENT_TYPE, TEXT)], body).into_response()
}
