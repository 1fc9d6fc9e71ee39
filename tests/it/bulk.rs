//! Bulk jobs: killed in the middle, wanted by two, cancelled; every row exactly once.

use crate::fixture::{Act, Call, Gateway, Receipts, Reply, Script, World};
use crate::reversal::{order, undoing};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::thread;
use std::time::Instant;

/// Rows of the job that is killed twice; `tests/run soak` sets a thousand.
fn killed_rows() -> usize {
    let rows = std::env::var("CALLGATE_BULK_ROWS").ok();
    rows.map_or(150, |rows| rows.parse().expect("a number of rows"))
}

/// Begun in a second.
const RATE: u64 = 100;

impl Gateway {
    fn make_job(&self, wanted: &Value) -> Value {
        let (status, job) = self.told(Call::new("POST", "/api/v1/jobs"), wanted);
        assert_eq!(status, 200, "{job}");
        job
    }

    fn job(&self, id: &Value) -> Value {
        self.admin(&format!("/api/v1/jobs/{id}")).json()
    }

    /// Waits until so many rows of a job have a result; whether rows are lost is looked at
    /// meanwhile.
    fn wait_ended(&self, id: &Value, least: usize, rows: usize) -> Value {
        self.wait_until(&format!("{least} rows of job {id}"), || {
            let list = self.admin("/api/v1/dead-letters?limit=1000").json();
            let items = list["items"].as_array().map(Vec::len);
            assert_eq!(items, Some(rows), "no row comes or goes");
            Some(self.job(id)).filter(|job| job["ended"].as_u64() >= Some(least as u64))
        })
    }
}

/// Loses the first `rows` sends without an effect, then works, and does the work again whenever it
/// is told to.
fn forgetful(rows: usize) -> Script {
    let works = Act::read_all().wait(5).commit().answer_result();
    (1..=rows).fold(Script::new().otherwise(works).ignores_ids(), |script, n| {
        script.request(n, Act::read_all().fin())
    })
}

fn world(rows: usize) -> World {
    let world = World::with(forgetful(rows), |config| {
        config
            .slow(2)
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/rounds", json!(["10m"]))
    });
    let calls: Vec<String> = (0..rows).map(|n| format!("c{n}")).collect();
    thread::scope(|scope| {
        for part in calls.chunks(rows.div_ceil(8)) {
            let world = &world;
            scope.spawn(move || {
                for id in part {
                    let answer = world.call(&Call::with_id(id));
                    answer.problem(504, "unresolved");
                }
            });
        }
    });
    assert_eq!((world.tool.a(), world.tool.e()), (rows, 0));
    world
}

fn resend_all() -> Value {
    json!({ "verb": "resend", "all": true, "per_minute": RATE * 60, "why": "the outage" })
}

#[test]
fn a_bulk_resend_killed_twice_does_every_row_once() {
    let rows = killed_rows();
    let mut world = world(rows);
    let job = world.gateway.make_job(&resend_all());
    assert_eq!(
        (&job["total"], &job["joined"]),
        (&json!(rows), &json!(false))
    );
    // Somebody else wants the same: one job.
    let joined = world.gateway.make_job(&resend_all());
    assert_eq!(
        (&joined["job"], &joined["joined"]),
        (&job["job"], &json!(true))
    );
    for share in [30, 60] {
        world
            .gateway
            .wait_ended(&job["job"], rows * share / 100, rows);
        world.crash();
    }
    let done = world.gateway.wait_ended(&job["job"], rows, rows);
    assert_eq!(done["state"], "DONE", "{done}");
    assert_eq!(done["results"], json!({ "settled": rows }), "{done}");
    let effects = world.tool.pages().effects.clone();
    let distinct: BTreeSet<_> = effects.iter().collect();
    assert_eq!((effects.len(), distinct.len()), (rows, rows), "each once");
    let settled = world
        .gateway
        .admin("/api/v1/dead-letters?state=SETTLED&limit=1000")
        .json();
    assert_eq!(settled["items"].as_array().map(Vec::len), Some(rows));
    let items = format!("/api/v1/jobs/{}/items?limit=1000", job["job"]);
    let items = world.gateway.admin(&items).json();
    let items = items["items"].as_array().expect("a list").clone();
    assert!(
        items.iter().all(|item| item["result"] == "settled"),
        "{items:?}"
    );
}

#[test]
fn what_a_killed_job_had_sent_is_asked_about_and_not_sent_again() {
    let rows = 12;
    // The first sends are lost. The next ones do the work, and their answers never come: these rows
    // are with a human, so no round looks at them, and nobody but the job can ask first.
    let script = (1..=rows).fold(Script::new().ignores_ids(), |script, n| {
        let hangs = Act::read_all().commit().hang();
        script
            .request(n, Act::read_all().fin())
            .request(n + rows, hangs)
    });
    let mut world = World::with(script, |config| {
        config
            .slow(20)
            .set("defaults/retry/max_retries", 0)
            .set("defaults/compensation/rounds", json!(["20ms"]))
    });
    for n in 0..rows {
        let id = format!("c{n}");
        world.call(&Call::with_id(&id)).problem(504, "unresolved");
        world.gateway.wait_dead_letter(&id, "MANUAL");
    }
    let job = world.gateway.make_job(&resend_all());
    world.tool.wait_effect(rows);
    assert_eq!(world.gateway.job(&job["job"])["ended"], 0);
    world.crash();
    let done = world.gateway.wait_ended(&job["job"], rows, rows);
    assert_eq!(done["results"], json!({ "settled": rows }), "{done}");
    assert_eq!(
        (world.tool.a(), world.tool.e()),
        (2 * rows, rows),
        "each once"
    );
}

#[test]
fn a_cancelled_bulk_job_leaves_what_waits_alone() {
    let rows = 30;
    let world = world(rows);
    let mut slow = resend_all();
    slow["per_minute"] = json!(600);
    let job = world.gateway.make_job(&slow);
    world.gateway.wait_ended(&job["job"], 3, rows);
    let cancel = Call::new("DELETE", &format!("/api/v1/jobs/{}", job["job"]));
    let (status, told) = world.gateway.told(cancel.clone(), &json!({}));
    assert_eq!((status, &told["result"]), (200, &json!("done")), "{told}");
    assert_eq!(told["cancelled_by"], "ann@ops");
    let (_, again) = world.gateway.told(cancel, &json!({}));
    assert_eq!(again["result"], "already");
    let begun = world.gateway.wait_until("what was begun has ended", || {
        let items = format!("/api/v1/jobs/{}/items", job["job"]);
        let items = world.gateway.admin(&items).json();
        let of = |state: &str| {
            let items = items["items"].as_array().expect("a list");
            items.iter().filter(|item| item["state"] == state).count()
        };
        (of("BEGUN") == 0).then(|| of("DONE"))
    });
    assert!(begun < rows, "it was cancelled in time");
    assert_eq!(
        world.tool.a(),
        rows + begun,
        "each of those begun was sent once"
    );
    assert_eq!(world.tool.e(), begun);
    // What waited waits still, and may be done by another job.
    let rest = world.gateway.make_job(&resend_all());
    assert_eq!(rest["total"], json!(rows - begun));
    world.gateway.wait_ended(&rest["job"], rows - begun, rows);
    assert_eq!(world.tool.e(), rows);
}

#[test]
fn a_preview_asks_and_sends_nothing_and_a_job_keeps_its_rate() {
    let rows = 60;
    let world = world(rows);
    let wanted = json!({ "verb": "resend", "filter": { "route": "tool" } });
    let (status, found) = world
        .gateway
        .told(Call::new("POST", "/api/v1/jobs/preview"), &wanted);
    assert_eq!(status, 200, "{found}");
    assert_eq!(found["matching"], json!(rows));
    assert_eq!(
        (&found["complete"], &found["safe_to_resend"]),
        (&json!(true), &json!(rows))
    );
    assert_eq!(world.tool.a(), rows, "nothing was sent");
    let began = Instant::now();
    let job = world
        .gateway
        .make_job(&json!({ "verb": "resend", "all": true, "per_minute": 3000 }));
    world.gateway.wait_ended(&job["job"], rows, rows);
    // Fifty a second: the last of sixty is begun after 1180 ms, never before.
    let took = began.elapsed().as_millis();
    assert!(took >= 1_120, "60 rows at 50/s took {took} ms");
    let nothing = json!({ "verb": "resend", "filter": { "route": "nowhere" } });
    let (status, _) = world
        .gateway
        .told(Call::new("POST", "/api/v1/jobs"), &nothing);
    assert_eq!(status, 404);
    let everything = json!({ "verb": "resend" });
    let (status, told) = world
        .gateway
        .told(Call::new("POST", "/api/v1/jobs"), &everything);
    assert_eq!(status, 400, "an empty filter needs `all`: {told}");
}

#[test]
fn a_preview_does_not_promise_what_an_order_would_be_refused_for() {
    // The tool never heard of the call, and refuses to undo it: it is never sent again.
    let script = Script::new()
        .request(1, Act::read_all().fin())
        .request(2, Act::says(Reply::json(409, r#"{"no":1}"#)))
        .receipts(Receipts::always(Act::not_found()));
    let world = World::with(script, |config| {
        undoing(config)
            .set("defaults/retry/max_retries", 0)
            .route("receipt/believe_not_found", "always")
            .route(
                "compensation/reversal/when",
                json!(["UNKNOWN", "NOT_FOUND"]),
            )
    });
    world.call(&order("c")).problem(504, "unresolved");
    let row = world.gateway.wait_dead_letter("c", "MANUAL");
    assert_eq!(row["reason"], "reversal-refused", "{row}");
    let wanted = json!({ "verb": "resend", "filter": { "state": "MANUAL" } });
    let preview = Call::new("POST", "/api/v1/jobs/preview");
    let (_, found) = world.gateway.told(preview, &wanted);
    assert_eq!(
        (&found["safe_to_resend"], &found["not_resendable"]),
        (&json!(0), &json!(1)),
        "{found}"
    );
    let shown = world.gateway.dead("show c");
    assert!(shown.out.contains("it is never sent again"), "{shown:?}");
    assert_eq!(world.gateway.dead("resend c").code, 1);
    assert_eq!(world.tool.sends("c").len(), 1);
}

#[test]
fn the_bounds_of_bulk_work_are_told_and_counted() {
    // More than a preview asks about.
    let rows = 201;
    let world = world(rows);
    let reached = |bound: &str| {
        let metrics = world.gateway.metrics();
        metrics.value("callgate_bounds_reached_total", &[("bound", bound)])
    };
    let wanted = json!({ "verb": "receipt", "filter": { "route": "tool" } });
    let (_, found) = world
        .gateway
        .told(Call::new("POST", "/api/v1/jobs/preview"), &wanted);
    assert_eq!(
        (&found["matching"], &found["complete"]),
        (&json!(rows), &json!(false))
    );
    assert_eq!(reached("preview-rows"), 1.0);
    // Sixteen that go on for hours, each with a filter of its own.
    for n in 1..=16 {
        let filter = json!({ "older_than": format!("{n}ms") });
        let slow = json!({ "verb": "receipt", "filter": filter, "per_minute": 1 });
        world.gateway.make_job(&slow);
    }
    assert_eq!(reached("jobs"), 0.0);
    let one_more = json!({ "verb": "receipt", "all": true, "per_minute": 1 });
    let (status, told) = world
        .gateway
        .told(Call::new("POST", "/api/v1/jobs"), &one_more);
    assert!((400..=503).contains(&status), "{told}");
    assert_eq!(reached("jobs"), 1.0);
}
