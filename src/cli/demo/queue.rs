//! After the push: the wait for the gateway's own queue, the receipts of the calls that nobody knew
//! the end of, and the list of dead letters. Only what any operator can read; nothing is changed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio::time::sleep;

use super::audit::Told;
use super::batch::Stopwatch;
use super::client::{Client, get};

/// Chosen against the rounds of demo.yaml: 1 s, 2 s and 4 s, each a fifth longer at most.
const QUEUE_WAIT_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(5);
const PAGE: usize = 500;
/// A list longer than this is not walked to its end: the demonstration would never return.
const PAGES_MAX: usize = 500;

/// The gateway as its operator sees it.
#[derive(Debug)]
pub(super) struct Operator {
    callers: Client,
    admin: Client,
}

impl Operator {
    pub(super) fn new(callers: SocketAddr, admin: SocketAddr) -> Self {
        Self {
            callers: Client::new(callers),
            admin: Client::new(admin),
        }
    }

    /// Waits until no dead letter is due or running any more, at most ten seconds.
    ///
    /// # Errors
    /// When the admin API does not answer as promised.
    pub(super) async fn drain(&mut self) -> anyhow::Result<Duration> {
        let watch = Stopwatch::start();
        let mut told = false;
        while watch.elapsed() < QUEUE_WAIT_MAX {
            let moving = self.moving("QUEUED").await? + self.moving("RUNNING").await?;
            if moving == 0 {
                break;
            }
            if !told {
                told = true;
                eprintln!(
                    "{moving} calls in the gateway's queue: waiting {QUEUE_WAIT_MAX:?} at most"
                );
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(watch.elapsed())
    }

    /// Dead letters by state, over all pages.
    ///
    /// # Errors
    /// When the admin API does not answer as promised.
    pub(super) async fn dead_letters(&mut self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut states = BTreeMap::new();
        let mut path = format!("/api/v1/dead-letters?limit={PAGE}");
        for _ in 0..PAGES_MAX {
            let page = self.look(&path).await?;
            for row in items(&page)? {
                let state = row["state"]
                    .as_str()
                    .context("a dead letter without a state")?;
                *states.entry(state.to_owned()).or_insert(0) += 1;
            }
            let Some(next) = cursor(&page["next"]) else {
                break;
            };
            let next = utf8_percent_encode(&next, NON_ALPHANUMERIC).to_string();
            path = format!("/api/v1/dead-letters?limit={PAGE}&cursor={next}");
        }
        Ok(states)
    }

    /// What the gateway's receipt says today about a call that was told *unresolved*.
    ///
    /// # Errors
    /// When the receipt endpoint does not answer as promised.
    pub(super) async fn receipt(&mut self, call_id: &str) -> anyhow::Result<Told> {
        let path = format!("/_callgate/receipts/{call_id}");
        let answer = self
            .callers
            .ask(get(&path), PATIENCE)
            .await
            .context(path.clone())?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(Told::Nothing);
        }
        ensure!(
            answer.status.is_success(),
            "{path} answered {}",
            answer.status
        );
        let document: Value = serde_json::from_slice(&answer.body).context(path)?;
        Ok(read(&document))
    }

    async fn moving(&mut self, state: &str) -> anyhow::Result<usize> {
        let page = self
            .look(&format!("/api/v1/dead-letters?state={state}&limit={PAGE}"))
            .await?;
        Ok(items(&page)?
            .iter()
            .filter(|row| row["state"] == state)
            .count())
    }

    async fn look(&mut self, path: &str) -> anyhow::Result<Value> {
        let answer = self
            .admin
            .ask(get(path), PATIENCE)
            .await
            .context(path.to_owned())?;
        ensure!(
            answer.status.is_success(),
            "admin {path} answered {}",
            answer.status
        );
        serde_json::from_slice(&answer.body).context(path.to_owned())
    }
}

fn items(page: &Value) -> anyhow::Result<&Vec<Value>> {
    page["items"]
        .as_array()
        .context("the list of dead letters has no items")
}

fn cursor(next: &Value) -> Option<String> {
    match next {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The receipt as the last word of its call. Unsettled without a dead letter means that nobody
/// keeps the call, which is exactly what must not happen.
fn read(document: &Value) -> Told {
    let refused = document["result"]["status"]
        .as_u64()
        .is_some_and(|code| (400..500).contains(&code));
    match document["state"].as_str() {
        Some("SUCCESS") => Told::Done,
        Some("FAILED") if refused => Told::Refused,
        Some("FAILED") => Told::Failed,
        _ if document["deadLetter"].is_object() => Told::Open,
        _ => Told::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(document: Value, expected: Told) {
        assert_eq!(read(&document), expected, "{document}");
    }

    #[test]
    fn a_receipt_has_one_reading() {
        check(
            json!({"state": "SUCCESS", "deadLetter": {"state": "SETTLED"}}),
            Told::Done,
        );
        check(
            json!({"state": "FAILED", "result": {"status": 422}}),
            Told::Refused,
        );
        check(json!({"state": "FAILED", "result": null}), Told::Failed);
        check(
            json!({"state": "UNKNOWN", "deadLetter": {"state": "MANUAL"}}),
            Told::Open,
        );
        check(
            json!({"state": "RECEIVED", "deadLetter": {"state": "QUEUED"}}),
            Told::Open,
        );
        check(
            json!({"state": "UNKNOWN", "deadLetter": null}),
            Told::Nothing,
        );
        check(json!({"state": "PROCESSING"}), Told::Nothing);
        check(json!({}), Told::Nothing);
    }

    #[test]
    fn a_cursor_is_text_or_a_number() {
        assert_eq!(cursor(&json!("a/b")), Some("a/b".to_owned()));
        assert_eq!(cursor(&json!(17)), Some("17".to_owned()));
        assert_eq!(cursor(&Value::Null), None);
    }
}
