//! What an operator may rely on with nothing but `sqlite3`: the queries of the documentation, and
//! the columns of `dead_letter`.

use rusqlite::OpenFlags;

use super::*;
use crate::ledger::contract::call;
use crate::ledger::{Begun, Intention, Ledger as _, Park, Place};

const OPERATIONS: &str = include_str!("../../../../docs/operations.md");

/// The columns that the contract names; they may be added to and never change.
const STABLE: &str = "call_id, route, client, business_key, request_id, reason, last_error, \
    fail_count, next_retry_time, create_time, state, round, owner, fence, lease_until, \
    last_receipt, ended_at, call, life";

#[test]
fn the_queries_of_the_documentation_run_while_the_gateway_serves() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let Begun::Claimed(claim) = ledger.begin(call("ord-17")).wait().unwrap() else {
        panic!("the id is new");
    };
    let how = Park {
        reason: "timeout".into(),
        place: Place::Manual,
        reached: true,
        last_error: "no answer within 8s".into(),
        kept: None,
    };
    let parked = ledger.append(claim, NOW, Intention::Park(how));
    assert_eq!(parked.wait().unwrap(), Written::Applied);
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let shell = Connection::open_with_flags(file_in(&folder), read_only).unwrap();
    let rows = |sql: &str| {
        let mut statement = shell.prepare(sql).unwrap_or_else(|e| panic!("{e}: {sql}"));
        let found = statement.query_map([], |_| Ok(())).unwrap();
        found
            .map(|row| row.unwrap_or_else(|e| panic!("{e}: {sql}")))
            .count()
    };
    let queries: Vec<&str> = OPERATIONS
        .split("```sql\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    let found: Vec<usize> = queries.iter().map(|sql| rows(sql)).collect();
    // What waits, what needs a human, what goes wrong, what happened; nobody did anything, and
    // the tool contradicted nothing.
    assert_eq!(found, [1, 1, 1, 1, 0, 0], "{queries:?}");
    assert_eq!(rows(&format!("SELECT {STABLE} FROM dead_letter")), 1);
    for column in STABLE.split(", ") {
        assert!(
            OPERATIONS.contains(&format!("`{column}`")),
            "{column} is not documented"
        );
    }
}
