//! The runner over a memory ledger, in virtual time.
//!
//! The rows belong to a route that is gone, so that an item ends as soon as it is begun: what is
//! measured is when it is begun.

use super::*;
use crate::clock::Clock;
use crate::compensate::worker::tests::{NOW, flow_over, park};
use crate::ledger::desk::job::{JobMade, JobState, NewJob};
use crate::ledger::memory::MemoryLedger;
use crate::ledger::{DeadState, Desk as _, Filter};
use crate::upstream::Core;

/// What a rate may be off by.
const PER_CENT: u128 = 5;

async fn took(rows: usize, per_minute: u32) -> Duration {
    let ledger = Arc::new(MemoryLedger::new(NOW, Duration::from_secs(60)));
    for n in 0..rows {
        park(&ledger, n, NOW.after(Duration::from_secs(86_400))).await;
    }
    let (clock, _) = Clock::simulated(NOW);
    let flow = flow_over(&ledger, &clock);
    let verbs = Verbs::new(flow, Core::start(0, clock.clone()));
    let jobs = Jobs::new(verbs.clone(), CancellationToken::new());
    let working = tokio::spawn(jobs.run());
    let began = clock.mono();
    let made = verbs.make_job(NewJob {
        verb: Verb::Resend,
        filter: Filter {
            within: &[DeadState::Queued],
            ..Filter::default()
        },
        text: "{}".into(),
        per_minute,
        by: By {
            who: "ann".into(),
            why: None,
            now: NOW,
            job: None,
        },
    });
    let JobMade::Made(job) = made.await.unwrap() else {
        panic!("it is new");
    };
    assert_eq!(job.total as usize, rows);
    loop {
        clock::sleep(Duration::from_millis(10)).await;
        let job = ledger.job(job.id).await.unwrap().unwrap();
        if job.state == JobState::Done {
            break;
        }
    }
    working.abort();
    clock.mono().since(began)
}

#[tokio::test(start_paused = true)]
async fn a_thousand_rows_are_begun_at_the_rate_of_their_job() {
    for (rows, per_minute) in [(1_000, 6_000), (1_000, 600), (5_000, 60_000)] {
        let took = took(rows, per_minute).await.as_millis();
        // The first is begun at once.
        let wanted = (rows as u128 - 1) * 60_000 / u128::from(per_minute);
        let off = took.abs_diff(wanted);
        assert!(
            off * 100 <= wanted * PER_CENT,
            "{rows} rows at {per_minute} a minute took {took} ms instead of {wanted}"
        );
    }
}
