//! The client that most of us have written: on a timeout, a lost connection or a 5xx it tries
//! again, with a new key, because it takes "no answer" for "not done". It has the timings of
//! demo.yaml, honours `Retry-After`, and believes a 4xx, so the comparison is about one thing only.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::audit::Told;
use super::batch::{Batch, Progress, Pushed, Stopwatch};
use super::client::{Answer, Client, Failure};
use super::faults::Plan;
use super::parcel::Parcel;

/// The policy of demo.yaml, which a test holds against these.
const ATTEMPT: Duration = Duration::from_millis(300);
const TOTAL: Duration = Duration::from_secs(5);
const MAX_RETRIES: u32 = 3;
const BASE: Duration = Duration::from_millis(50);
const CAP: Duration = Duration::from_millis(400);
const FACTOR: u32 = 2;
const JITTER: f64 = 0.2;

/// One worker of the plain client.
#[derive(Debug)]
pub(super) struct Plain {
    client: Client,
    plan: Plan,
}

/// What the plain client makes of one attempt.
enum Reading {
    Final(Told),
    /// Try again, after that long when the tool named a time.
    Again(Option<Duration>),
}

/// Pushes the whole batch: its items are dealt in order. Time counts from the first call.
///
/// # Errors
/// When a worker panicked: its accounts are gone, so no figure could be trusted.
pub(super) async fn push(batch: Batch, tool: SocketAddr) -> anyhow::Result<Pushed> {
    let next = Arc::new(AtomicU32::new(0));
    let progress = Arc::new(Progress::new("plain retry with a new key", batch.calls));
    let watch = Stopwatch::start();
    let mut workers = JoinSet::new();
    for _ in 0..batch.workers {
        let worker = Plain::new(tool, batch.plan);
        let (next, progress) = (Arc::clone(&next), Arc::clone(&progress));
        workers.spawn(worker.work(batch, next, progress));
    }
    let mut told = Vec::with_capacity(batch.calls as usize);
    while let Some(share) = workers.join_next().await {
        told.extend(share?);
    }
    let took = watch.elapsed();
    progress.finish();
    told.sort_unstable_by_key(|(item, _)| *item);
    let told = told.into_iter();
    let accounts = told.map(|(item, told)| batch.account(item, told)).collect();
    Ok(Pushed { accounts, took })
}

impl Plain {
    fn new(tool: SocketAddr, plan: Plan) -> Self {
        Self {
            client: Client::new(tool),
            plan,
        }
    }

    async fn work(
        mut self,
        batch: Batch,
        next: Arc<AtomicU32>,
        progress: Arc<Progress>,
    ) -> Vec<(u32, Told)> {
        let mut share = Vec::new();
        loop {
            let item = next.fetch_add(1, Ordering::Relaxed);
            if item >= batch.calls {
                return share;
            }
            share.push((item, self.push(item, batch.parcel(item)).await));
            progress.advance();
        }
    }

    async fn push(&mut self, item: u32, parcel: Parcel) -> Told {
        let watch = Stopwatch::start();
        for attempt in 1..=1 + MAX_RETRIES {
            let request = request(item, attempt, &parcel);
            let wait = match read(self.client.ask(request, ATTEMPT).await) {
                Reading::Final(told) => return told,
                Reading::Again(named) => {
                    named.unwrap_or_else(|| backoff(attempt, self.plan.chance(item, attempt)))
                }
            };
            if attempt > MAX_RETRIES || watch.elapsed() + wait > TOTAL {
                break;
            }
            sleep(wait).await;
        }
        Told::Failed
    }
}

/// A new key for every attempt: the habit that this column is about.
fn request(item: u32, attempt: u32, parcel: &Parcel) -> Request<Bytes> {
    Request::post("/track")
        .header("content-type", "application/json")
        .header("x-call-id", format!("plain-{item}-{attempt}"))
        .body(Bytes::from(parcel.json()))
        .expect("the request is well-formed")
}

fn read(attempt: Result<Answer, Failure>) -> Reading {
    match attempt {
        Ok(answer) if answer.status.is_success() => Reading::Final(Told::Done),
        Ok(answer) if answer.status == StatusCode::TOO_MANY_REQUESTS => {
            Reading::Again(answer.retry_after())
        }
        Ok(answer) if answer.status.is_client_error() => Reading::Final(Told::Refused),
        Ok(_) | Err(Failure::Unreachable | Failure::TimedOut | Failure::Disconnected) => {
            Reading::Again(None)
        }
    }
}

fn backoff(attempt: u32, chance: f64) -> Duration {
    CAP.min(BASE * FACTOR.pow(attempt - 1))
        .mul_f64(1.0 - JITTER + 2.0 * JITTER * chance)
}

#[cfg(test)]
mod tests {
    use super::super::audit::Figures;
    use super::super::batch::Batch;
    use super::super::tool::Tool;
    use super::*;

    #[test]
    fn the_timings_are_those_of_demo_yaml() {
        let yaml: serde_yaml::Value =
            serde_yaml::from_str(super::super::YAML).expect("demo.yaml is YAML");
        let span = |section: &str, key: &str| {
            let text = yaml["defaults"][section][key].as_str().expect("a duration");
            humantime::parse_duration(text).expect("a duration")
        };
        assert_eq!(span("timeouts", "attempt"), ATTEMPT);
        assert_eq!(span("timeouts", "total"), TOTAL);
        assert_eq!(span("retry", "base"), BASE);
        assert_eq!(span("retry", "cap"), CAP);
        let retry = &yaml["defaults"]["retry"];
        assert_eq!(retry["max_retries"].as_u64(), Some(u64::from(MAX_RETRIES)));
        assert_eq!(retry["factor"].as_u64(), Some(u64::from(FACTOR)));
        assert_eq!(retry["jitter"].as_f64(), Some(JITTER));
    }

    #[test]
    fn the_wait_doubles_up_to_its_cap_with_a_fifth_either_way() {
        let waits = |chance| (1..=5).map(move |n| backoff(n, chance).as_millis());
        assert!(waits(0.5).eq([50, 100, 200, 400, 400]));
        assert!(waits(0.0).eq([40, 80, 160, 320, 320]));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_new_key_for_every_try_doubles_effects_and_tells_lies() {
        // A short batch still meets both outages and, by its seed, every fault but the work that
        // takes seconds.
        let plan = Plan::new(42, 200);
        let tool = Tool::open(plan).expect("a free port");
        let batch = Batch {
            plan,
            calls: 200,
            workers: 20,
        };
        let pushed = push(batch, tool.address()).await.expect("no panic");
        assert!(tool.quiet(Duration::from_secs(30)).await);
        let figures = Figures::of(&pushed.accounts, &tool.books());
        assert_eq!(figures.calls, 200);
        assert!(
            figures.twice > 0 && figures.extra_effects >= figures.twice,
            "{figures:?}"
        );
        assert!(figures.told_wrong > 0, "{figures:?}");
        assert_eq!(figures.receipts_asked, 0);
        assert!(!figures.clean());
    }
}
