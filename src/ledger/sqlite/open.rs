//! Opening a ledger file: the lock, the checks before anything is changed, the pragmas, the schema.
//!
//! Every way this can go wrong has its own error that says what to do, and a file that is not ours
//! or newer than we are is left exactly as it was found.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::call::time::Wall;
use crate::ledger::LedgerError;
use crate::ledger::error::Cause;

/// Marks the file as ours (`PRAGMA application_id`): "clgt".
const APPLICATION_ID: i64 = 0x636c_6774;

/// The schema, one step per version. A step that was released is never edited; the next one adds.
const STEPS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
    include_str!("schema_5.sql"),
    include_str!("schema_6.sql"),
    include_str!("schema_7.sql"),
    include_str!("schema_8.sql"),
    include_str!("schema_9.sql"),
    include_str!("schema_10.sql"),
    include_str!("schema_11.sql"),
];

/// The version of the schema this program writes.
pub(super) const SCHEMA: i64 = STEPS.len() as i64;

/// How long a statement waits for somebody else's lock: a person's shell on the file, or the
/// truncating checkpoint of an idle moment.
const BUSY: Duration = Duration::from_secs(5);

/// The page cache of the writer in KiB: the upper levels of the indexes of some million calls. Not
/// larger, because a commit that has balanced a page walks the whole cache (measured at 16 MiB: a
/// twelfth of the writer's time), and the system caches the rest of the file anyway.
const WRITER_CACHE_KIB: i64 = 4 * 1024;

/// The WAL file is cut back to this after a burst.
const WAL_KEPT_BYTES: i64 = 16 * 1024 * 1024;

/// When a commit is on the disk (`ledger.sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Sync {
    /// Before it is told: survives a power failure.
    #[default]
    Full,
    /// Soon: survives `kill -9`, may lose the last commits to a power failure.
    Normal,
}

/// The lock on a ledger file, held as long as this lives; the system frees it with the process.
#[derive(Debug)]
pub(super) struct FileLock(#[expect(dead_code, reason = "held for its lock")] File);

/// Takes the lock file beside the ledger. It is left behind on purpose: removing it would let two
/// processes lock two files of one name.
pub(super) fn lock(path: &Path) -> Result<FileLock, LedgerError> {
    look(path)?;
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(PathBuf::from(name))
        .map_err(|error| file_error(path, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut text = String::new();
            let holder = file
                .read_to_string(&mut text)
                .ok()
                .and_then(|_| text.trim().parse().ok());
            return Err(LedgerError::Locked {
                path: path.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(file_error(path, error)),
    }
    // The number is for the message of the one who comes second; without it the lock holds as well.
    let noted = file
        .rewind()
        .and_then(|()| file.set_len(0))
        .and_then(|()| write!(file, "{}", std::process::id()))
        .and_then(|()| file.flush());
    noted.map_err(|error| file_error(path, error))?;
    Ok(FileLock(file))
}

/// Looks whether a file may lie there and be read: a database library waits at a pipe for ever, and
/// says of a folder that the disk failed. `None` when nothing is there.
pub(super) fn look(path: &Path) -> Result<Option<Metadata>, LedgerError> {
    let path = || path.to_owned();
    let cannot = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => LedgerError::NoAccess { path: path() },
        _ => LedgerError::Open {
            path: path(),
            source: Cause::new(error),
        },
    };
    let found = match std::fs::metadata(path()) {
        Ok(found) => found,
        Err(error) if is_nowhere(&error) => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let what = match found.file_type() {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder"),
        _ => Some("a pipe, a socket or a device"),
    };
    if let Some(what) = what {
        return Err(LedgerError::NotAFile { path: path(), what });
    }
    File::open(path()).map_err(cannot)?;
    Ok(Some(found))
}

/// Opens the writing connection and brings the schema up to date.
pub(super) fn writer(path: &Path, sync: Sync, now: Wall) -> Result<Connection, LedgerError> {
    let mut conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let told = |error| sqlite_error(path, error);
    if conn.is_readonly("main").map_err(told)? {
        return Err(LedgerError::ReadOnly {
            path: path.to_owned(),
        });
    }
    inspect(&conn, path)?;
    conn.pragma_update(None, "journal_mode", "wal")
        .map_err(told)?;
    let level = match sync {
        Sync::Full => "full",
        Sync::Normal => "normal",
    };
    conn.pragma_update(None, "synchronous", level)
        .map_err(told)?;
    // The checkpointer does it from another thread, so that no commit stalls on it.
    conn.pragma_update(None, "wal_autocheckpoint", 0)
        .map_err(told)?;
    conn.pragma_update(None, "journal_size_limit", WAL_KEPT_BYTES)
        .map_err(told)?;
    conn.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)
        .map_err(told)?;
    migrate(&mut conn, now).map_err(told)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(super) fn reader(path: &Path) -> Result<Connection, LedgerError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.pragma_update(None, "query_only", true)
        .map_err(|error| sqlite_error(path, error))?;
    Ok(conn)
}

/// Opens the connection that only checkpoints.
pub(super) fn checkpointer(path: &Path) -> Result<Connection, LedgerError> {
    let conn = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // It gives way at once: whatever it cannot get now, it gets at the next tick.
    conn.busy_timeout(Duration::ZERO)
        .map_err(|error| sqlite_error(path, error))?;
    Ok(conn)
}

fn connect(path: &Path, mode: OpenFlags) -> Result<Connection, LedgerError> {
    let create = mode.contains(OpenFlags::SQLITE_OPEN_READ_WRITE);
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let flags = if create {
        flags | OpenFlags::SQLITE_OPEN_CREATE
    } else {
        flags
    };
    let conn =
        Connection::open_with_flags(path, flags).map_err(|error| sqlite_error(path, error))?;
    conn.busy_timeout(BUSY)
        .map_err(|error| sqlite_error(path, error))?;
    // Every statement of the ledger stays prepared; there are fewer than this.
    conn.set_prepared_statement_cache_capacity(128);
    // One plan per statement, whatever is bound to it. Without this SQLite compiles a statement
    // anew before each use once it has seen a chance that other values want another plan. The
    // price: the condition of a partial index has to stand in a query as a literal.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| sqlite_error(path, error))?;
    Ok(conn)
}

/// Looks at the file without changing it.
pub(super) fn inspect(conn: &Connection, path: &Path) -> Result<(), LedgerError> {
    let ask = |pragma: &str| -> Result<i64, LedgerError> {
        conn.pragma_query_value(None, pragma, |row| row.get(0))
            .map_err(|error| sqlite_error(path, error))
    };
    let version = ask("user_version")?;
    let application = ask("application_id")?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(|error| sqlite_error(path, error))?;
    if tables > 0 && application != APPLICATION_ID {
        return Err(LedgerError::NotALedger {
            path: path.to_owned(),
            why: "it is another program's SQLite database",
        });
    }
    if tables > 0 && version < 1 {
        return Err(LedgerError::NotALedger {
            path: path.to_owned(),
            why: "it has tables and no number of a schema: it is damaged",
        });
    }
    if version > SCHEMA {
        let path = path.to_owned();
        return Err(LedgerError::NewerSchema {
            path,
            found: version,
            known: SCHEMA,
        });
    }
    Ok(())
}

/// A file as the program of that version has made it.
#[cfg(test)]
pub(super) fn schema(conn: &Connection, version: u8) -> rusqlite::Result<()> {
    for step in STEPS.iter().take(version.into()) {
        conn.execute_batch(step)?;
    }
    conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    conn.pragma_update(None, "user_version", version)
}

pub(super) fn migrate(conn: &mut Connection, now: Wall) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let version: i64 = tx.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let done = usize::try_from(version).unwrap_or(0);
    for step in STEPS.iter().skip(done) {
        tx.execute_batch(step)?;
    }
    if done < STEPS.len() {
        tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        tx.pragma_update(None, "user_version", SCHEMA)?;
    }
    let sql = "INSERT INTO meta (name, value) VALUES ('knows_since', ?1) ON CONFLICT DO NOTHING";
    tx.execute(sql, [now.0])?;
    tx.commit()
}

/// Whether nothing is there, be it that what should be its folder is a file.
fn is_nowhere(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The folder, the rights, or another trouble with the file itself.
fn file_error(path: &Path, error: std::io::Error) -> LedgerError {
    match error.kind() {
        _ if is_nowhere(&error) => LedgerError::NoFolder {
            path: path.to_owned(),
            folder: path.parent().unwrap_or_else(|| Path::new(".")).to_owned(),
        },
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => LedgerError::ReadOnly {
            path: path.to_owned(),
        },
        ErrorKind::StorageFull => LedgerError::Full {
            source: Cause::new(error),
        },
        _ => LedgerError::Open {
            path: path.to_owned(),
            source: Cause::new(error),
        },
    }
}

/// What SQLite said while the file was being opened.
pub(super) fn sqlite_error(path: &Path, error: rusqlite::Error) -> LedgerError {
    let path = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => LedgerError::NotALedger {
            path,
            why: "it is not an SQLite database",
        },
        Some(ErrorCode::DatabaseCorrupt) => LedgerError::NotALedger {
            path,
            why: "it is a damaged SQLite database",
        },
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => LedgerError::ReadOnly { path },
        Some(ErrorCode::DiskFull) => LedgerError::Full {
            source: Cause::new(error),
        },
        _ => LedgerError::Open {
            path,
            source: Cause::new(error),
        },
    }
}
