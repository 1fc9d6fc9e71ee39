//! A long queue: what waits costs a look for due work nothing, nor a start.

use std::time::Duration;

use super::super::{claim, sweep};
use super::*;
use crate::clock::Clock;

/// Rows that wait for a round in a year, and as many for their reversal.
const WAITING: i64 = 100_000;

fn long_queue(conn: &Connection, rows: i64) {
    let fill = format!(
        "BEGIN;
         INSERT INTO policies (id, text) VALUES (1, 'policy');
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO calls (id, call_id, client, life, fence, state, binds, key_binds, parked,
             promised, sends, touched_at, window_ms, owner, lease_until, received_at, updated_at,
             route, upstream, policy, source, fingerprint, credential, method, target,
             request_headers, request_body)
         SELECT i, 'c' || i, 'a', 1, 1, 'UNKNOWN', 1, 0, 1, 0, 1, 0, 0, 'o', 0, 0, 0, 'r', 'u', 1,
             'client', zeroblob(32), 0, 'POST', '/', x'', x'' FROM n;
         INSERT INTO dead_letter (call, life, call_id, route, client, reason, last_error,
             fail_count, next_retry_time, create_time, state, round, fence)
         SELECT id, 1, call_id, 'r', 'a', 'deadline', '', 0, {year} + id, 0,
             iif(id % 2, 'QUEUED', 'REVERSING'), 0, 1 FROM calls;
         COMMIT;",
        year = NOW.0 + 365 * 86_400_000,
    );
    conn.execute_batch(&fill).unwrap();
}

#[test]
fn due_work_is_found_by_index() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_in(&folder, Sync::Normal).unwrap());
    let conn = Connection::open(file_in(&folder)).unwrap();
    for (sql, index) in [
        (claim::BY_HAND, "dead_letter_leased"),
        (claim::ABANDONED, "dead_letter_leased"),
        (claim::REVERSING, "dead_letter_due"),
        (claim::QUEUED, "dead_letter_due"),
    ] {
        let plan = plan(&conn, sql);
        let searched = plan
            .iter()
            .any(|step| step.starts_with("SEARCH") && step.contains(index));
        assert!(searched, "{sql}\n{plan:?}");
    }
}

#[test]
fn the_sweep_of_a_start_looks_at_no_dead_letter() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_in(&folder, Sync::Normal).unwrap());
    let conn = Connection::open(file_in(&folder)).unwrap();
    let plan = plan(&conn, sweep::ORPHANS);
    let passed = plan.iter().any(|step| step.contains("INDEX calls_open"));
    assert!(passed, "{plan:?}");
}

fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let bound = sql.replace("?1", "1").replace("?2", "1");
    conn.prepare(&format!("EXPLAIN QUERY PLAN {bound}"))
        .unwrap()
        .query_map([], |row| row.get(3))
        .unwrap()
        .map(Result::unwrap)
        .collect()
}

/// `cargo nextest run --run-ignored only --no-capture a_tick_over`
#[test]
#[ignore = "a measurement: prints what a tick costs with 100 and 200,000 waiting rows"]
fn a_tick_over_a_long_queue_costs_what_it_costs_over_a_short_one() {
    let mut each = Vec::new();
    for rows in [100, 2 * WAITING] {
        let folder = tempfile::tempdir().unwrap();
        drop(open_in(&folder, Sync::Normal).unwrap());
        long_queue(&Connection::open(file_in(&folder)).unwrap(), rows);
        let ledger = open_in(&folder, Sync::Normal).unwrap();
        let tick = || {
            let owner = Owner::new("worker");
            let found = ledger.claim_due(owner, NOW, NOW, 32).wait().unwrap();
            assert!(found.is_empty());
        };
        tick();
        let (clock, ticks) = (Clock::start(), 500);
        let began = clock.mono();
        (0..ticks).for_each(|_| tick());
        let took = clock.mono().since(began) / ticks;
        println!("{rows} waiting rows: {took:?} a tick");
        each.push(took);
    }
    assert!(
        each[1] < each[0] * 5 + Duration::from_micros(200),
        "{each:?}"
    );
}
