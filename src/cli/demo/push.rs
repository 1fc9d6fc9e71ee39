//! The callgate side: the batch as any operator pushes it. The rows go to the gateway in one
//! request, it works them off, and its export says what became of each. There is nothing to decide
//! here: no ids, no repeats, no reading of answers.

use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::Request;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::sleep;

use super::Gateway;
use super::audit::{Account, Told};
use super::batch::{Batch, Progress, Stopwatch};
use super::client::{Client, get};
use super::tool::Tool;

const BATCHES: &str = "/api/v1/batches";
const NAME: &str = "demo";
const LOOK_EVERY: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(5);
/// The gateway answers when every row is on record: a base, and a share for each row.
const SUBMIT_PATIENCE: Duration = Duration::from_secs(60);
const ROW_PATIENCE: Duration = Duration::from_millis(2);
/// Far longer than any outage of the plan: a batch of which nothing ends for so long stands still.
const STILL_MAX: Duration = Duration::from_secs(60);
/// Statuses that say "not now": who gets one to the last was not refused for a business reason.
const NOT_NOW: [u16; 5] = [401, 403, 408, 425, 429];

/// What came of the batch.
#[derive(Debug)]
pub(super) struct Night {
    /// In the order of the items.
    pub accounts: Vec<Account>,
    /// The call ids of those that nobody knows the end of, by their place among the accounts.
    pub open: Vec<(usize, String)>,
    /// From the first call until the last item had ended.
    pub took: Duration,
}

/// One line of the export.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    line: u32,
    state: String,
    call_id: Option<String>,
    status: Option<u16>,
}

/// Pushes the whole batch through the gateway. Time counts from the first call that the tool saw.
///
/// # Errors
/// When the gateway does not answer as promised, or its batch stands still.
pub(super) async fn push(batch: Batch, gateway: &Gateway, tool: &Tool) -> anyhow::Result<Night> {
    let mut admin = Client::new(gateway.admin);
    let progress = Progress::new("callgate", batch.calls);
    submit(&mut admin, batch).await?;
    watch(&mut admin, batch, &progress).await?;
    let took = tool.since_first().unwrap_or_default();
    progress.finish();
    let mut night = Night {
        accounts: (0..batch.calls)
            .map(|item| batch.account(item, Told::Nothing))
            .collect(),
        open: Vec::new(),
        took,
    };
    let path = format!("{BATCHES}/{NAME}/export?format=ndjson");
    let each = |line: &[u8]| night.enter(line);
    admin
        .lines(get(&path), PATIENCE, each)
        .await
        .context(path)?;
    Ok(night)
}

/// Hands the rows over: JSON lines, which the gateway sends on byte for byte.
async fn submit(admin: &mut Client, batch: Batch) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for item in 0..batch.calls {
        rows.extend(batch.parcel(item).json());
        rows.push(b'\n');
    }
    let (calls, workers) = (batch.calls, batch.workers);
    let path = format!("{BATCHES}?name={NAME}&route=track&workers={workers}");
    let request = Request::post(&path)
        .header("content-type", "application/x-ndjson")
        .body(Bytes::from(rows))
        .expect("the request is well-formed");
    let patience = SUBMIT_PATIENCE + ROW_PATIENCE * calls;
    let answer = admin.ask(request, patience).await.context(path)?;
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    ensure!(
        answer.status.is_success() && document["new"] == calls,
        "the gateway did not take the batch: {} {document}",
        answer.status
    );
    Ok(())
}

/// Looks until every item has ended.
async fn watch(admin: &mut Client, batch: Batch, progress: &Progress) -> anyhow::Result<()> {
    let path = format!("{BATCHES}/{NAME}");
    let mut still = (0, Stopwatch::start());
    loop {
        let answer = admin
            .ask(get(&path), PATIENCE)
            .await
            .context(path.clone())?;
        ensure!(
            answer.status.is_success(),
            "admin {path} answered {}",
            answer.status
        );
        let document: Value = serde_json::from_slice(&answer.body).context(path.clone())?;
        let of = |name: &str| document[name].as_u64().unwrap_or(0);
        let left = of("waiting") + of("leased");
        let ended = u32::try_from(of("items").saturating_sub(left)).unwrap_or(batch.calls);
        progress.reach(ended);
        if document["state"] == "FINISHED" {
            return Ok(());
        }
        if ended > still.0 {
            still = (ended, Stopwatch::start());
        }
        ensure!(
            still.1.elapsed() < STILL_MAX,
            "nothing of the batch has ended for {STILL_MAX:?}: {document}"
        );
        sleep(LOOK_EVERY).await;
    }
}

impl Night {
    /// Enters one line of the export.
    fn enter(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let line: Line = serde_json::from_slice(line).context("a line of the export")?;
        let place = (line.line as usize).checked_sub(1);
        let place = place.filter(|place| *place < self.accounts.len());
        let place = place.with_context(|| format!("nobody pushed line {}", line.line))?;
        let told = told(&line.state, line.status);
        if let (Told::Open, Some(id)) = (told, line.call_id) {
            self.open.push((place, id));
        }
        self.accounts[place].told = told;
        Ok(())
    }
}

/// An item as the last word of its call.
fn told(state: &str, status: Option<u16>) -> Told {
    let refused = |status: u16| (400..500).contains(&status) && !NOT_NOW.contains(&status);
    match state {
        "DONE" => Told::Done,
        "REFUSED" if status.is_some_and(refused) => Told::Refused,
        "REFUSED" => Told::Failed,
        "UNRESOLVED" => Told::Open,
        _ => Told::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::super::faults::Plan;
    use super::*;

    #[test]
    fn every_end_of_an_item_has_one_reading() {
        for (state, status, expected) in [
            ("DONE", Some(200), Told::Done),
            ("REFUSED", Some(422), Told::Refused),
            ("REFUSED", Some(429), Told::Failed),
            ("REFUSED", Some(502), Told::Failed),
            ("REFUSED", None, Told::Failed),
            ("UNRESOLVED", Some(500), Told::Open),
            ("WAITING", None, Told::Nothing),
            ("BAD", None, Told::Nothing),
        ] {
            assert_eq!(told(state, status), expected, "{state} {status:?}");
        }
    }

    #[test]
    fn a_line_of_the_export_is_entered_at_its_item() {
        let batch = Batch {
            plan: Plan::new(1, 2),
            calls: 2,
            workers: 1,
        };
        let mut night = Night {
            accounts: (0..2).map(|n| batch.account(n, Told::Nothing)).collect(),
            open: Vec::new(),
            took: Duration::ZERO,
        };
        let open = br#"{"line":2,"state":"UNRESOLVED","callId":"track-2","status":504}"#;
        night.enter(open).expect("it is one of two");
        assert_eq!(night.open, [(1, "track-2".to_owned())]);
        let told: Vec<_> = night.accounts.iter().map(|account| account.told).collect();
        assert_eq!(told, [Told::Nothing, Told::Open]);
        for strange in [
            &br#"{"line":3,"state":"DONE"}"#[..],
            br#"{"line":0,"state":"DONE"}"#,
            b"x",
        ] {
            assert!(night.enter(strange).is_err());
        }
    }
}
