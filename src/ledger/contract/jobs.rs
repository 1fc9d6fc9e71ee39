//! Promises about bulk jobs: their rows are fixed, each is taken and ended once, a crash loses
//! none, two who want the same get one job.

use super::desk::by;
use super::*;
use crate::ledger::desk::Verb;
use crate::ledger::desk::job::{
    Cancelled, ItemEnd, ItemState, Job, JobMade, JobState, NewJob, RUNNING_MAX, Taken,
};

fn new(text: &str) -> NewJob {
    NewJob {
        verb: Verb::Resend,
        filter: Filter {
            within: &[DeadState::Queued, DeadState::Manual],
            ..Filter::default()
        },
        text: text.into(),
        per_minute: 600,
        by: by(1),
    }
}

impl World {
    fn make(&self, job: NewJob) -> JobMade {
        self.ledger.make_job(job).wait().unwrap()
    }

    fn made(&self, text: &str) -> Job {
        match self.make(new(text)) {
            JobMade::Made(job) => job,
            other => panic!("expected a job, got {other:?}"),
        }
    }

    fn take(&self, job: &Job, who: &str, limit: usize) -> Vec<Taken> {
        self.ledger
            .take_items(job.id, owner(who), limit)
            .wait()
            .unwrap()
    }

    fn end(&self, job: &Job, seq: u32, result: &'static str) {
        let end = ItemEnd {
            result,
            detail: None,
        };
        self.ledger
            .end_item(job.id, seq, secs(50), end)
            .wait()
            .unwrap();
    }

    fn job(&self, job: &Job) -> Job {
        self.ledger
            .job(job.id)
            .wait()
            .unwrap()
            .expect("the job is there")
    }
}

fn seqs(taken: &[Taken]) -> Vec<u32> {
    taken.iter().map(|item| item.seq).collect()
}

pub(crate) fn the_rows_of_a_job_are_fixed_when_it_is_made(make: Factory) {
    let world = make();
    let claims = ["a", "b", "c"].map(|name| world.dead(name));
    world.settled(claims[1], secs(1), receipt(Verdict::Success));
    let job = world.made("{}");
    assert_eq!((job.total, job.unended, job.beyond), (2, 2, 0));
    assert_eq!(
        (job.state, job.verb, job.per_minute),
        (JobState::Running, Verb::Resend, 600)
    );
    assert_eq!(
        (&*job.who, job.why.as_deref()),
        ("ann@ops", Some("asked the carrier"))
    );
    world.dead("late");
    let items = world.ledger.job_items(job.id, 0, 9).wait().unwrap();
    let names: Vec<_> = items.iter().map(|item| item.call_id.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(items.iter().all(|item| item.state == ItemState::Waiting));
    let rest = world.ledger.job_items(job.id, 1, 9).wait().unwrap();
    assert_eq!((rest.len(), rest[0].seq), (1, 2));
}

pub(crate) fn who_wants_the_same_joins_the_running_job(make: Factory) {
    let world = make();
    world.dead("a");
    let job = world.made("{}");
    assert_eq!(world.make(new("{}")), JobMade::Joined(job.clone()));
    let other = NewJob {
        verb: Verb::Discard,
        ..new("{}")
    };
    assert!(matches!(world.make(other), JobMade::Made(_)));
    assert!(matches!(
        world.make(new("{\"route\":\"x\"}")),
        JobMade::Made(_)
    ));
    // Once it is over, the same is a new job.
    assert_eq!(seqs(&world.take(&job, "one", 9)), [1]);
    world.end(&job, 1, "settled");
    assert!(matches!(world.make(new("{}")), JobMade::Made(next) if next.id > job.id));
    let newest = world.ledger.jobs(9).wait().unwrap();
    assert_eq!(newest.len(), 4);
    assert!(newest.windows(2).all(|pair| pair[0].id > pair[1].id));
}

pub(crate) fn a_job_of_nothing_is_none_and_there_are_only_so_many(make: Factory) {
    let world = make();
    assert_eq!(world.make(new("{}")), JobMade::Nothing);
    assert!(world.ledger.jobs(9).wait().unwrap().is_empty());
    world.dead("a");
    for n in 0..RUNNING_MAX {
        world.made(&n.to_string());
    }
    assert_eq!(world.make(new("more")), JobMade::TooMany);
}

pub(crate) fn an_item_is_taken_once_and_ended_once(make: Factory) {
    let world = make();
    for name in ["a", "b", "c"] {
        world.dead(name);
    }
    let job = world.made("{}");
    let first = world.take(&job, "one", 2);
    assert_eq!(seqs(&first), [1, 2]);
    assert!(first.iter().all(|item| !item.again));
    assert_eq!(seqs(&world.take(&job, "one", 9)), [3]);
    assert!(world.take(&job, "one", 9).is_empty());
    world.end(&job, 1, "settled");
    world.end(&job, 1, "refused");
    world.end(&job, 3, "settled");
    let half = world.job(&job);
    assert_eq!(
        (half.unended, half.state, half.ended_at),
        (1, JobState::Running, None)
    );
    assert_eq!(half.results, [("settled".into(), 2)]);
    world.end(&job, 2, "refused");
    let done = world.job(&job);
    assert_eq!((done.unended, done.state), (0, JobState::Done));
    assert_eq!(done.ended_at, Some(secs(50)));
    assert_eq!(done.results, [("refused".into(), 1), ("settled".into(), 2)]);
}

pub(crate) fn what_a_dead_process_began_is_taken_again_and_first(make: Factory) {
    let world = make();
    for name in ["a", "b", "c"] {
        world.dead(name);
    }
    let job = world.made("{}");
    world.take(&job, "one", 2);
    world.end(&job, 1, "settled");
    let resumed = world
        .ledger
        .resume_jobs(owner("two"), secs(60))
        .wait()
        .unwrap();
    assert_eq!(
        resumed.iter().map(|job| job.id).collect::<Vec<_>>(),
        [job.id]
    );
    let taken = world.take(&job, "two", 9);
    assert_eq!(seqs(&taken), [2, 3]);
    assert_eq!(
        taken.iter().map(|item| item.again).collect::<Vec<_>>(),
        [true, false]
    );
    assert!(world.take(&job, "two", 9).is_empty());
}

pub(crate) fn a_cancelled_job_begins_nothing_any_more(make: Factory) {
    let world = make();
    for name in ["a", "b", "c"] {
        world.dead(name);
    }
    let job = world.made("{}");
    world.take(&job, "one", 2);
    let cancel = |at| {
        let cancelled = world.ledger.cancel_job(job.id, "bob@ops".into(), secs(at));
        cancelled.wait().unwrap()
    };
    let Cancelled::Applied(stopped) = cancel(40) else {
        panic!("the job runs");
    };
    assert_eq!((stopped.state, stopped.unended), (JobState::Cancelled, 3));
    assert_eq!(stopped.ended_by.as_deref(), Some("bob@ops"));
    assert!(matches!(cancel(41), Cancelled::Already(_)));
    assert!(world.take(&job, "one", 9).is_empty());
    // What was begun ends as it ends; what a dead process had begun is closed.
    world.end(&job, 1, "settled");
    let resumed = world
        .ledger
        .resume_jobs(owner("two"), secs(60))
        .wait()
        .unwrap();
    assert!(resumed.is_empty());
    let stopped = world.job(&job);
    assert_eq!((stopped.state, stopped.unended), (JobState::Cancelled, 1));
    assert_eq!(stopped.ended_at, Some(secs(40)));
    assert_eq!(
        stopped.results,
        [("interrupted".into(), 1), ("settled".into(), 1)]
    );
    assert_eq!(world.letter("c").state, DeadState::Queued);
    let nobody = crate::ledger::desk::job::JobId(99);
    let gone = world
        .ledger
        .cancel_job(nobody, "bob@ops".into(), secs(1))
        .wait()
        .unwrap();
    assert_eq!(gone, Cancelled::Gone);
}

pub(crate) fn an_ended_job_is_forgotten_after_the_retention(make: Factory) {
    let world = make();
    world.dead("a");
    let job = world.made("{}");
    world.take(&job, "one", 1);
    world.end(&job, 1, "settled");
    let purge = |at: Wall| world.ledger.purge(at, 9).wait().unwrap();
    purge(secs(49).after(RETENTION));
    assert!(world.ledger.job(job.id).wait().unwrap().is_some());
    purge(secs(50).after(RETENTION));
    assert!(world.ledger.job(job.id).wait().unwrap().is_none());
    assert!(
        world
            .ledger
            .job_items(job.id, 0, 9)
            .wait()
            .unwrap()
            .is_empty()
    );
}
