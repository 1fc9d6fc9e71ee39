//! What a queue of a hundred thousand costs those who look into it. Not run with the others, since
//! filling takes a while: `tests/run figures`.
//!
//! Figures are the time its thread was running, not the time that passed, so that a machine that
//! is busy with other things says the same: queries run out of the page cache and hardly wait.

use std::time::Duration;

use super::*;
use crate::call::receipt::{Answer, State};
use crate::ledger::contract::{call, owner};
use crate::ledger::desk::job::ITEMS_MAX;
use crate::ledger::sqlite::{alerts, claim, list, read};
use crate::ledger::{
    Begun, Cursor, DeadState, Entry, FactWritten, Filter, Intention, News, Park, Place, Sort,
    Verdict, Watch, Written,
};

/// The queue of the figures.
const ROWS: usize = 100_000;

/// What is asked for at once, as the command line does.
const PAGE: usize = 100;

/// What a list may take (issue: under 100 ms), and a worker's look, whatever waits.
const LIST_MAX: Duration = Duration::from_millis(100);
const TICK_MAX: Duration = Duration::from_millis(1);

/// Looks measured together: one alone is less than the clock of a thread can tell.
const LOOKS: u32 = 500;

const DAY: Duration = Duration::from_secs(86_400);

/// For how long this thread has run.
fn run_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanos = stat.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanos)
}

/// The least of several, so that neither a cold cache nor a neighbour is measured.
fn least(mut once: impl FnMut() -> Duration) -> Duration {
    (0..5).map(|_| once()).min().unwrap()
}

/// Rows `from..to`: six in ten wait for a round that is far, two for a human, two are settled.
fn fill(ledger: &SqliteLedger, (from, to): (usize, usize)) {
    for chunk in (from..to).collect::<Vec<_>>().chunks(500) {
        let begun: Vec<_> = chunk.iter().map(|n| ledger.begin(new_call(*n))).collect();
        let claims = begun.into_iter().map(|begun| match begun.wait().unwrap() {
            Begun::Claimed(claim) => claim,
            other => panic!("{other:?}"),
        });
        let claims: Vec<_> = claims.collect();
        let mut written = Vec::new();
        for (n, claim) in chunk.iter().zip(&claims) {
            let at = NOW.after(Duration::from_millis(*n as u64));
            ledger.note(claim.row, claim.life, vec![asked(*n, at)]);
            written.push(ledger.append(*claim, at, Intention::Park(parked(*n, at))));
        }
        for one in written {
            assert_eq!(one.wait().unwrap(), Written::Applied);
        }
        let settled = chunk.iter().zip(&claims).filter(|(n, _)| *n % 10 >= 8);
        let facts: Vec<_> = settled
            .map(|(_, claim)| ledger.fact(success(claim)))
            .collect();
        for fact in facts {
            assert_eq!(fact.wait().unwrap(), FactWritten::Applied);
        }
    }
}

fn new_call(n: usize) -> NewCall {
    let mut new = call(&format!("orders-1764500000000-9f3c{n:08x}-node07"));
    new.route = format!("route-{}", n % 4).into();
    new.client = ClientName::new(&format!("client-{}", n % 5));
    new.idempotency_key = Some(format!("key-{n:08}").into());
    new.business_key = Some(format!("SF{n:010}2026-11-30track_sync").into());
    new
}

fn asked(n: usize, at: Wall) -> Entry {
    let said = [State::Unknown, State::Processing, State::Received];
    Entry::Receipt {
        at,
        answer: Answer::State(said[n % 3]),
        doubt: None,
        status: None,
        took: Duration::ZERO,
        detail: None,
    }
}

fn parked(n: usize, at: Wall) -> Park {
    let errors = [
        "timeout; receipt UNKNOWN",
        "HTTP 503; receipt NOT_FOUND",
        "disconnect; receipt PROCESSING",
    ];
    let reasons = ["deadline", "retries-exhausted"];
    let rare = n % 10_007 == 10_006;
    Park {
        reason: reasons[n % 2].into(),
        place: match n % 10 {
            0..=5 | 8.. => Place::Queued { due: at.after(DAY) },
            _ => Place::Manual,
        },
        reached: true,
        last_error: if rare {
            "certificate expired"
        } else {
            errors[n % 3]
        }
        .into(),
        kept: None,
    }
}

fn success(claim: &Claim) -> Fact {
    Fact {
        row: claim.row,
        life: claim.life,
        now: NOW.after(DAY),
        entries: Vec::new(),
        news: News::Receipt {
            verdict: Verdict::Success,
            reply: None,
            document: None,
        },
    }
}

/// What a read takes, and how many rows it brings.
fn reading(
    ledger: &SqliteLedger,
    of: impl Fn(&Connection) -> rusqlite::Result<usize> + Clone + Send + 'static,
) -> (Duration, usize) {
    let mut rows = 0;
    let took = least(|| {
        let of = of.clone();
        let timed = move |conn: &Connection| {
            let began = run_time();
            let rows = of(conn)?;
            Ok((run_time() - began, rows))
        };
        let (took, found) = ledger.read(timed).wait().unwrap();
        rows = found;
        took
    });
    (took, rows)
}

fn listed(ledger: &SqliteLedger, filter: &Filter, from: Option<Cursor>) -> (Duration, usize) {
    let filter = filter.clone();
    reading(ledger, move |conn| {
        list::dead_letters(conn, &filter, from, PAGE).map(|page| page.items.len())
    })
}

/// One look of the worker when nothing is due, and one for alerts when nothing is new.
fn ticks(ledger: &SqliteLedger) -> (Duration, Duration) {
    let claim = || {
        let timed = |db: &mut Db| {
            let began = run_time();
            for _ in 0..LOOKS {
                let due = claim::due(db, &owner("worker"), NOW, NOW.after(DAY), 32)?;
                assert_eq!(due.len(), 0);
            }
            Ok((run_time() - began) / LOOKS)
        };
        ledger.write(Lane::Reserved, timed).wait().unwrap()
    };
    let watches: Arc<[Watch]> = (0..4)
        .map(|n| Watch {
            route: format!("route-{n}").into(),
            events: Vec::new(),
            repeat: DAY,
        })
        .collect();
    let look = reading(ledger, move |conn| {
        (0..LOOKS).try_fold(0, |_, _| {
            alerts::untold(conn, &watches).map(|untold| untold.notes.len())
        })
    });
    (least(claim), look.0 / LOOKS)
}

/// Every filter and every order an operator has, with the worst a filter can be asked: a text that
/// nothing holds.
fn questions() -> Vec<(&'static str, Filter)> {
    fn with(set: impl FnOnce(&mut Filter)) -> Filter {
        let mut filter = Filter::default();
        set(&mut filter);
        filter
    }
    let text = |text: &str| Some(text.into());
    let client = |name: &str| Some(ClientName::new(name));
    let nothing = || text("nothing says this");
    let manual = Some(DeadState::Manual);
    vec![
        ("no filter", Filter::default()),
        ("state MANUAL", with(|it| it.state = manual)),
        (
            "state FAILED (none)",
            with(|it| it.state = Some(DeadState::Failed)),
        ),
        ("route", with(|it| it.route = text("route-3"))),
        ("route (none)", with(|it| it.route = text("route-9"))),
        ("client", with(|it| it.client = client("client-4"))),
        ("client (none)", with(|it| it.client = client("nobody"))),
        ("older than (none)", with(|it| it.parked_before = Some(NOW))),
        ("error (ten)", with(|it| it.error = text("certificate"))),
        ("error (none)", with(|it| it.error = nothing())),
        (
            "receipt",
            with(|it| it.receipt = Some(Answer::State(State::Received))),
        ),
        (
            "receipt (none)",
            with(|it| it.receipt = Some(Answer::NotFound)),
        ),
        (
            "key",
            with(|it| it.key = text("SF00000999982026-11-30track_sync")),
        ),
        ("text (one)", with(|it| it.text = text("sf0000099998"))),
        ("text (none)", with(|it| it.text = nothing())),
        (
            "text (none) of MANUAL",
            with(|it| (it.text, it.state) = (nothing(), manual)),
        ),
        ("newest first", with(|it| it.sort = Sort::Newest)),
        ("due first", with(|it| it.sort = Sort::Due)),
        ("most failed first", with(|it| it.sort = Sort::Fails)),
        (
            "due first, MANUAL of a route",
            with(|it| (it.sort, it.state, it.route) = (Sort::Due, manual, text("route-2"))),
        ),
    ]
}

#[test]
#[ignore = "fills a ledger with 100,000 rows: tests/run figures"]
fn a_hundred_thousand_dead_letters_cost_a_list_little_and_a_look_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    fill(&ledger, (0, 1_000));
    let few = ticks(&ledger);
    fill(&ledger, (1_000, ROWS));
    let many = ticks(&ledger);
    let show = |what: &str, took: Duration, rows: usize| {
        println!(
            "{what:<36} {:>9.2} ms {rows:>7} rows",
            took.as_secs_f64() * 1e3
        );
    };
    println!("{ROWS} dead letters, pages of {PAGE}, time of the thread:");
    let mut slow = Vec::new();
    let deep = Cursor {
        at: i64::MIN,
        row: RowId(90_000),
        life: 1,
    };
    let deep = listed(&ledger, &Filter::default(), Some(deep));
    let mut all = vec![("page 900", deep)];
    all.extend(
        questions()
            .into_iter()
            .map(|(what, filter)| (what, listed(&ledger, &filter, None))),
    );
    for (what, (took, rows)) in all {
        show(what, took, rows);
        if took >= LIST_MAX {
            slow.push(what);
        }
    }
    let (took, rows) = reading(&ledger, |conn| {
        list::sample(conn, &Filter::default(), 200).map(|sample| sample.items.len())
    });
    show("sample of a preview", took, rows);
    let (took, rows) = reading(&ledger, |conn| read::tally(conn).map(|tally| tally.len()));
    show("count for the gauges", took, rows);
    println!("rows of one job at most: {ITEMS_MAX}");
    for (what, few, many) in [
        ("worker, nothing due", few.0, many.0),
        ("alerts, nothing new", few.1, many.1),
    ] {
        println!("{what:<36} {few:>9.1?} with 1,000 rows, {many:.1?} with {ROWS}");
        assert!(many < TICK_MAX, "{what}: {many:?}");
    }
    assert!(slow.is_empty(), "over {LIST_MAX:?}: {slow:?}");
}
