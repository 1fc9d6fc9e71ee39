//! The checkpointer: moves the WAL into the database from a thread of its own.
//!
//! SQLite's automatic checkpoint runs inside a commit and stalls everybody who waits for it (20 ms
//! were measured). Here a second connection copies pages while the writer goes on. Under constant
//! writing it would never catch up, and the WAL would grow for ever; so past a bound the writer
//! itself copies the little that is left between two groups, and then starts the WAL over. When
//! nobody writes, the file is cut to nothing.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use super::shared::Shared;

/// How often it looks while there are commits.
const TICK: Duration = Duration::from_millis(100);

/// Pages (of 4 KiB) in the WAL that are worth a pass: 4 MiB.
const PASS_PAGES: i64 = 1_024;

/// Pages in the WAL, copied or not, at which the writer helps to start it over: 8 MiB. Not more,
/// because a page that every commit writes stands in the WAL's index once for each of them, and
/// SQLite passes them all to add the next one (measured at 16 MiB: a fifth of what a call takes
/// that is committed alone).
const RESTART_PAGES: i64 = 2_048;

/// Pages in the WAL at which the writer stops until it is started over: 64 MiB. Reached when the
/// checkpointer gets no processor, or a reader has held an old page for long.
const BOUND_PAGES: i64 = 16_384;

/// A page, the way SQLite is built.
const PAGE_BYTES: i64 = 4_096;

/// Ticks without a commit after which the WAL is emptied.
const IDLE_TICKS: u32 = 20;

/// What the WAL holds.
#[derive(Clone, Copy, Debug)]
struct Wal {
    /// Pages in it.
    pages: i64,
    /// How many of them the database has already.
    copied: i64,
}

/// The checkpointer's thread: until the writer has ended.
pub(super) fn run(conn: &Connection, shared: &Arc<Shared>) {
    shared.register_checkpointer();
    let mut seen = 0;
    let mut idle = 0;
    while !shared.has_ended() {
        let commits = shared.commits();
        idle = if commits == seen { idle + 1 } else { 0 };
        seen = commits;
        if idle < IDLE_TICKS {
            keep_up(conn, shared);
            std::thread::park_timeout(TICK);
        } else {
            // Somebody reading keeps it from being emptied; the next idle moment will do.
            let _ = checkpoint(conn, "TRUNCATE");
            idle = 0;
            shared.sleep_until_commit();
        }
    }
}

fn keep_up(conn: &Connection, shared: &Shared) {
    let Ok(wal) = checkpoint(conn, "NOOP") else {
        return;
    };
    if wal.pages - wal.copied >= PASS_PAGES {
        let _pass = shared.checkpointing.lock();
        // An error here (a full disk) leaves the WAL as it is; commits tell when they fail.
        let _ = passive(conn);
    }
    if wal.pages >= RESTART_PAGES {
        shared.want_checkpoint();
    }
}

/// The writer's part, between two groups: short when the checkpointer has kept up, since only what
/// came in meanwhile is left.
pub(super) fn finish(conn: &Connection, shared: &Shared) {
    let asked = shared.take_checkpoint_request();
    let past_bound = || {
        file_reaches(conn, BOUND_PAGES)
            && checkpoint(conn, "NOOP").is_ok_and(|wal| wal.pages >= BOUND_PAGES)
    };
    // What cannot be done now, the next group tries again.
    if past_bound() {
        // Here the writer does wait, for a pass of the checkpointer (SQLite would not) and for
        // readers: a stall that everybody sees is better than a disk that fills up.
        let _pass = shared.checkpointing.lock();
        let _ = checkpoint(conn, "RESTART");
    } else if asked {
        let _ = passive(conn);
    }
}

/// Whether so many pages fit into the WAL's file: each takes its size and a header. Asked after
/// every group, where a look at the file is a tenth of what SQLite takes to compile a pragma, which
/// it does anew each time.
fn file_reaches(conn: &Connection, pages: i64) -> bool {
    let name = conn.path().map(|path| format!("{path}-wal"));
    let length = name.and_then(|name| std::fs::metadata(name).ok());
    // What cannot be looked at is asked about.
    length.is_none_or(|file| i64::try_from(file.len()).is_ok_and(|n| n >= pages * PAGE_BYTES))
}

/// Copies what can be copied without waiting for anybody.
fn passive(conn: &Connection) -> rusqlite::Result<Wal> {
    checkpoint(conn, "PASSIVE")
}

fn checkpoint(conn: &Connection, mode: &str) -> rusqlite::Result<Wal> {
    conn.prepare_cached(&format!("PRAGMA wal_checkpoint({mode})"))?
        .query_row([], |row| {
            Ok(Wal {
                pages: row.get(1)?,
                copied: row.get(2)?,
            })
        })
}
