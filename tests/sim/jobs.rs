//! Bulk jobs in a world: the product's own runner, two operators who want the same, and a gateway
//! that is killed in the middle of what it began.
//!
//! What each row comes to is held by the promises that hold for every call; here it is only that a
//! job ends, with a result for each of its rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use callgate::compensate::{Jobs, Verbs};
use callgate::ledger::desk::job::{ItemState, JobMade, JobState, NewJob};
use callgate::ledger::desk::{By, Verb};
use callgate::ledger::{CallView, DeadState, Desk as _, Filter};
use tokio_util::sync::CancellationToken;

use crate::gateway::Gateway;
use crate::world::State;

/// Jobs of one world, and kills in the middle of them.
const JOBS_MAX: u32 = 3;
const KILLS_MAX: u32 = 4;

/// What a job is about: whatever may still be acted on, as at the operators' door.
const OPEN: &[DeadState] = &[DeadState::Queued, DeadState::Running, DeadState::Manual];

/// How far a world's jobs are.
#[derive(Default)]
pub(crate) struct Bulk {
    /// The world is over: who wants something now wants it of a gateway that lets go.
    pub(crate) over: bool,
    made: u32,
    killed: u32,
}

/// Works on the jobs of the ledger, and makes some.
pub(crate) fn opens(gateway: &Arc<Gateway>) {
    let verbs = Verbs::new(Arc::clone(&gateway.flow), gateway.core.clone());
    let jobs = Jobs::new(verbs.clone(), CancellationToken::new());
    drop(tokio::spawn(jobs.run()));
    drop(tokio::spawn(wants(Arc::clone(gateway), verbs)));
}

/// Now and then two operators want the same, at the same moment.
async fn wants(gateway: Arc<Gateway>, verbs: Verbs) {
    loop {
        let (pause, verb, humans) = {
            let dice = &mut gateway.world.lock().dice;
            let verb = dice.pick(&[
                Verb::Resend,
                Verb::Resend,
                Verb::Resend,
                Verb::Reverse,
                Verb::Receipt,
                Verb::Discard,
            ]);
            let pause = dice.pick(&[400, 3_000, 9_000, 30_000]);
            (pause, verb, dice.percent(70))
        };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        {
            let state = gateway.world.lock();
            if !state.is_alive(gateway.life) || state.bulk.over || state.bulk.made >= JOBS_MAX {
                return;
            }
        }
        let filter = Filter {
            state: humans.then_some(DeadState::Manual),
            within: OPEN,
            ..Filter::default()
        };
        let job = |who: &str| NewJob {
            verb,
            filter: filter.clone(),
            text: format!("{} {humans}", verb.as_str()).into(),
            per_minute: 6_000,
            by: By {
                who: who.into(),
                why: None,
                now: verbs.now(),
                job: None,
            },
        };
        let (one, other) = tokio::join!(verbs.make_job(job("ann")), verbs.make_job(job("bob")));
        let mut state = gateway.world.lock();
        for made in [one, other] {
            match made {
                Ok(JobMade::Made(_)) => {
                    state.bulk.made += 1;
                    state.truth.reached.at("job");
                }
                Ok(JobMade::Joined(_)) => state.truth.reached.at("job joined"),
                // A disk that fails, or nothing to be done.
                Ok(JobMade::Nothing | JobMade::TooMany) | Err(_) => {}
            }
        }
    }
}

impl State {
    /// Items are about to be begun, or one is just being sent: the gateway may not see its end.
    pub(crate) fn may_die_of_a_job(&mut self, touches: u64) {
        let may = self.plan.jobs && !self.plan.quiet && self.bulk.killed < KILLS_MAX;
        if may && self.dice.percent(40) {
            let touches = self.dice.within(1, touches);
            let after = self.dice.percent(50);
            if self.dies_within(touches, after) {
                self.bulk.killed += 1;
            }
        }
    }

    /// Whether every job has ended, and those who wait for a human have seen one.
    pub(crate) fn jobs_are_over(&self, rows: &[CallView]) -> bool {
        let manual = |row: &CallView| {
            let letter = row.dead_letter.as_ref();
            letter.is_some_and(|letter| letter.state == DeadState::Manual)
        };
        if self.plan.jobs && self.bulk.made == 0 && rows.iter().any(manual) {
            return false;
        }
        let jobs = self.ledger.jobs(JOBS_MAX as usize + 1).wait();
        let jobs = jobs.expect("memory is always readable");
        jobs.iter().all(|job| job.state != JobState::Running)
    }

    /// Every job has ended, with a result for each of its rows.
    pub(crate) fn jobs_are_whole(&mut self) {
        for _ in 0..self.bulk_again.load(Ordering::Relaxed) {
            self.truth.reached.at("job item resumed");
        }
        let jobs = self.ledger.jobs(JOBS_MAX as usize + 1).wait();
        for job in jobs.expect("memory is always readable") {
            let items = self.ledger.job_items(job.id, 0, 1_000).wait();
            let items = items.expect("memory is always readable");
            let whole = items.iter().all(|item| item.state == ItemState::Done);
            let ended = job.state != JobState::Running;
            if !ended || !whole || items.len() != job.total as usize || job.unended != 0 {
                let what = format!("job {}: {items:?}", job.id.0);
                self.breaks("a job has a result for each row", &what);
            }
        }
    }
}
