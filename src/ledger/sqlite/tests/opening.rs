//! Opening: what is refused, with which words, and that a refused file stays as it was.

use rusqlite::params;

use super::*;
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::{Answer, State};
use crate::ledger::contract::call;
use crate::ledger::{Entry, Fact, News, OwnerTest, Written};

fn refused(folder: &tempfile::TempDir) -> LedgerError {
    match open_in(folder, Sync::Full) {
        Ok(_) => panic!("the file was to be refused"),
        Err(error) => error,
    }
}

#[test]
fn the_pragmas_are_what_was_asked_for() {
    for (sync, level) in [(Sync::Full, 2), (Sync::Normal, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open_in(&folder, sync).unwrap();
        assert_eq!(ledger.ask("PRAGMA synchronous"), level);
        assert_eq!(ledger.ask("PRAGMA wal_autocheckpoint"), 0);
        assert_eq!(ledger.ask("PRAGMA user_version"), open::SCHEMA);
        let mode = ledger.write(Lane::Reserved, |db| {
            db.conn
                .query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))
        });
        assert_eq!(mode.wait().unwrap(), "wal");
    }
}

#[test]
fn a_file_serves_one_process_and_says_which() {
    let folder = tempfile::tempdir().unwrap();
    let first = open_in(&folder, Sync::Normal).unwrap();
    let error = refused(&folder);
    let LedgerError::Locked { holder, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(*holder, Some(std::process::id()));
    let text = error.to_string();
    assert!(
        text.contains(&format!("in use by process {}", std::process::id())),
        "{text}"
    );
    assert!(text.contains("ledger.url"), "{text}");
    // The one that has it goes on, and gives it back with its end.
    first.begin(call("c")).wait().unwrap();
    first.close().wait().unwrap();
    open_in(&folder, Sync::Normal).unwrap();
}

#[test]
fn a_missing_folder_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/there/callgate.db");
    let error = open_with(Options::new(&path, NOW)).err().unwrap();
    let LedgerError::NoFolder {
        folder: missing, ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(Some(missing.as_path()), path.parent());
}

#[test]
fn a_place_that_cannot_be_written_is_read_only() {
    // Not even root creates files in sysfs, so this holds for whoever runs the tests.
    let error = open_with(Options::new(Path::new("/sys/callgate.db"), NOW))
        .err()
        .unwrap();
    assert!(matches!(error, LedgerError::ReadOnly { .. }), "{error:?}");
    assert!(error.to_string().contains("nothing is sent"), "{error}");
}

#[test]
fn a_file_without_the_right_to_write_is_read_only() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_in(&folder, Sync::Normal).unwrap());
    let path = file_in(&folder);
    let mut rights = std::fs::metadata(&path).unwrap().permissions();
    rights.set_readonly(true);
    std::fs::set_permissions(&path, rights).unwrap();
    let may_write = std::fs::OpenOptions::new().append(true).open(&path).is_ok();
    match open_in(&folder, Sync::Normal) {
        // Root may write whatever the rights say.
        Ok(ledger) => assert!(may_write, "{:?}", ledger.health()),
        Err(error) => assert!(matches!(error, LedgerError::ReadOnly { .. }), "{error:?}"),
    }
}

#[test]
fn a_file_that_is_no_ledger_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = file_in(&folder);
    let text = "tracking_no,date\n".repeat(500);
    std::fs::write(&path, &text).unwrap();
    let error = refused(&folder);
    assert!(matches!(error, LedgerError::NotALedger { .. }), "{error:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    std::fs::remove_file(&path).unwrap();
    let foreign = Connection::open(&path).unwrap();
    foreign
        .execute_batch("CREATE TABLE customers (id)")
        .unwrap();
    drop(foreign);
    let before = std::fs::read(&path).unwrap();
    let error = refused(&folder);
    assert!(matches!(error, LedgerError::NotALedger { .. }), "{error:?}");
    assert!(error.to_string().contains("another program's"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_newer_schema_is_refused_and_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    drop(open_in(&folder, Sync::Normal).unwrap());
    let conn = Connection::open(file_in(&folder)).unwrap();
    conn.pragma_update(None, "user_version", open::SCHEMA + 1)
        .unwrap();
    conn.pragma_update(None, "journal_mode", "delete").unwrap();
    drop(conn);
    let before = std::fs::read(file_in(&folder)).unwrap();
    let error = refused(&folder);
    let LedgerError::NewerSchema { found, known, .. } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((*found, *known), (open::SCHEMA + 1, open::SCHEMA));
    assert_eq!(std::fs::read(file_in(&folder)).unwrap(), before);
}

#[test]
fn a_folder_in_place_of_the_file_is_told() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(file_in(&folder)).unwrap();
    let error = refused(&folder);
    assert!(matches!(error, LedgerError::NotAFile { .. }), "{error:?}");
}

#[test]
fn a_damaged_row_is_an_error_and_not_a_guess() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    ledger.begin(call("c")).wait().unwrap();
    let damage = |db: &mut Db| db.conn.execute("UPDATE calls SET state = 'DONE'", []);
    assert_eq!(ledger.write(Lane::Reserved, damage).wait().unwrap(), 1);
    let viewed = ledger.view(None, contract::id("c")).wait();
    assert!(
        matches!(viewed, Err(LedgerError::Read { .. })),
        "{viewed:?}"
    );
}

#[test]
fn keys_of_an_older_file_go_on_under_their_routes() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    ledger.begin(contract::keyed("old", "k")).wait().unwrap();
    ledger.begin(call("plain")).wait().unwrap();
    ledger.close().wait().unwrap();
    drop(ledger);
    let old = Connection::open(file_in(&folder)).unwrap();
    old.execute_batch(
        "DROP INDEX calls_open; ALTER TABLE dead_letter DROP COLUMN begun_by; \
         DROP TABLE header_letters; DROP INDEX calls_key; DROP INDEX calls_alike; \
         ALTER TABLE calls DROP COLUMN scope; ALTER TABLE calls DROP COLUMN recognised; \
         ALTER TABLE calls DROP COLUMN told; \
         CREATE UNIQUE INDEX calls_key ON calls (client, route, idempotency_key) \
         WHERE key_binds = 1; DROP INDEX dead_letter_unalerted; DROP INDEX differences_unalerted; \
         DROP TABLE alerts; DROP TABLE lives; DROP TABLE replies; \
         ALTER TABLE dead_letter DROP COLUMN alerted; \
         ALTER TABLE differences DROP COLUMN alerted; PRAGMA user_version = 5",
    )
    .unwrap();
    drop(old);
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let taken = ledger.begin(contract::keyed("new", "k")).wait().unwrap();
    assert!(matches!(taken, Begun::KeyTaken(known) if known.call.call_id == contract::id("old")));
    let scoped = ledger.ask("SELECT count(*) FROM calls WHERE scope = 'orders'");
    assert_eq!((scoped, ledger.ask("SELECT count(*) FROM calls")), (1, 2));
}

#[test]
fn answers_of_an_older_file_stay_with_their_calls() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let Begun::Claimed(claim) = ledger.begin(call("old")).wait().unwrap() else {
        panic!("it is new")
    };
    let fact = Fact {
        row: claim.row,
        life: claim.life,
        now: NOW,
        entries: Vec::new(),
        news: contract::answer(200),
    };
    drop(ledger.fact(fact));
    ledger.close().wait().unwrap();
    drop(ledger);
    let old = Connection::open(file_in(&folder)).unwrap();
    old.execute_batch(
        "UPDATE calls SET reply_headers = kept_headers, reply_body = kept_body FROM replies \
         WHERE call = id; DROP TABLE replies; DROP INDEX calls_open; \
         ALTER TABLE dead_letter DROP COLUMN begun_by; DROP TABLE header_letters; \
         ALTER TABLE calls DROP COLUMN recognised; \
         ALTER TABLE calls DROP COLUMN told; PRAGMA user_version = 8",
    )
    .unwrap();
    drop(old);
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let Begun::Known(known) = ledger.begin(call("old")).wait().unwrap() else {
        panic!("it is settled")
    };
    let News::Answer { reply, .. } = contract::answer(200) else {
        panic!("an answer is one")
    };
    assert_eq!(known.call.settled.clone().unwrap().reply, Some(reply));
    assert_eq!(ledger.ask("SELECT count(*) FROM replies"), 0);
}

#[test]
fn rows_of_schema_9_are_read_ended_and_removed_as_before() {
    let folder = tempfile::tempdir().unwrap();
    let old = Connection::open(file_in(&folder)).unwrap();
    open::schema(&old, 9).unwrap();
    let insert = "INSERT INTO calls (id, call_id, client, life, fence, state, binds, key_binds, \
        parked, promised, sends, touched_at, window_ms, purge_at, owner, lease_until, \
        received_at, updated_at, first_sent_at, settled_at, settled_by, route, upstream, policy, \
        source, fingerprint, credential, reply_status, method, target, request_headers, \
        request_body) VALUES (?1, ?2, 'anonymous', 1, 1, ?3, 1, 0, 0, 0, 1, ?4, ?5, ?6, \
        'before-1', ?4, ?4, ?4, ?4, ?7, ?8, 'orders', 'http://tool:9000', 1, 'client', ?9, 0, \
        ?10, 'POST', '/orders?x=1', ?11, x'7b7d')";
    let window = i64::try_from(contract::WINDOW.as_millis()).unwrap();
    let lines = b"content-type: application/json\r\nx-odd: \xff\r\n".as_slice();
    let (ended, running) = (
        (
            Some(NOW.0 + window),
            Some(NOW.0),
            Some("answer 1"),
            Some(201),
        ),
        (None, None, None, None),
    );
    for (id, name, state, (purge, at, by, status)) in [
        (1, "ended", "SUCCESS", ended),
        (2, "running", "PROCESSING", running),
    ] {
        let values = params![
            id, name, state, NOW.0, window, purge, at, by, [7_u8; 32], status, lines
        ];
        assert_eq!(old.execute(insert, values).unwrap(), 1);
    }
    old.execute_batch(
        "INSERT INTO policies VALUES (1, 'policy one'); INSERT INTO replies VALUES \
         (1, CAST('server: tool' || char(13, 10) AS BLOB), x'6f6b', NULL)",
    )
    .unwrap();
    drop(old);
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let Begun::Known(known) = ledger.begin(call("ended")).wait().unwrap() else {
        panic!("it is settled")
    };
    let reply = known.call.settled.clone().unwrap().reply.unwrap();
    assert_eq!(reply.headers.get("server").unwrap(), "tool");
    // The sweep finds what was in line, and the queue sends what was stored.
    let swept = ledger.recover(contract::owner("two"), NOW, OwnerTest::AllOthers);
    assert_eq!(swept.wait().unwrap().parked, 1);
    let due = ledger.dossier(RowId(2)).wait().unwrap().unwrap();
    assert_eq!(
        due.request.headers.get("x-odd").unwrap().as_bytes(),
        b"\xff"
    );
    assert_eq!(due.request.headers.len(), 2);
    let later = NOW.after(2 * contract::WINDOW);
    assert_eq!(ledger.purge(later, 10).wait().unwrap().calls, 1);
    assert_eq!(ledger.ask("SELECT group_concat(id) = '2' FROM calls"), 1);
}

#[test]
fn open_calls_of_schema_10_that_the_tool_has_recognised_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let receipt = |state| Entry::Receipt {
        at: NOW,
        answer: Answer::State(state),
        doubt: None,
        status: None,
        took: Duration::ZERO,
        detail: None,
    };
    let promised = Entry::Ended {
        at: NOW,
        n: 1,
        outcome: Outcome::Answered(Reading::Pending(http::StatusCode::ACCEPTED)),
        took: Duration::ZERO,
        late: false,
        detail: None,
    };
    for (name, parked, entry) in [
        ("running", false, receipt(State::Processing)),
        ("promised", true, promised),
        ("received", true, receipt(State::Received)),
        ("unknown", true, receipt(State::Unknown)),
    ] {
        let Begun::Claimed(claim) = ledger.begin(call(name)).wait().unwrap() else {
            panic!("it is new")
        };
        ledger.note(claim.row, claim.life, vec![entry]);
        if parked {
            let park = contract::queued(NOW);
            assert_eq!(
                ledger.append(claim, NOW, park).wait().unwrap(),
                Written::Applied
            );
        }
    }
    drop(ledger);
    let old = Connection::open(file_in(&folder)).unwrap();
    old.execute_batch(
        "ALTER TABLE calls DROP COLUMN recognised; \
         ALTER TABLE calls DROP COLUMN told; PRAGMA user_version = 10",
    )
    .unwrap();
    drop(old);
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let known = "SELECT group_concat(call_id) = 'running,promised,received' FROM \
                 (SELECT call_id FROM calls WHERE recognised ORDER BY id)";
    assert_eq!(ledger.ask(known), 1);
}
