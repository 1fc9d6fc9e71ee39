//! The ledger of a gateway that is not running, read without a lock and without changing a byte.
//!
//! An ordinary reader of a file in WAL mode writes: into the shared index beside it, and it makes
//! the WAL anew when none is there. After a crash the last commits stand in the WAL alone, so it
//! cannot be left out either. So the file is opened by what lies there: without a WAL as
//! immutable; with one through a layer that takes no locks, which keeps the index in its own
//! memory, and which never copies the WAL into the file. Should somebody write meanwhile after
//! all, that is seen by the files' marks, and the question is asked again as any shell would ask
//! it beside a running gateway. A file of an older schema is read from a copy in memory.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::{open, story};
use crate::call::id::ClientName;
use crate::call::time::Wall;
use crate::ledger::error::Cause;
use crate::ledger::{LedgerError, Story};

/// SQLite's layer over files that takes no locks.
const NO_LOCKS: &str = "unix-none";

/// The stories of what `name` means in the ledger file at `path`.
///
/// # Errors
/// When there is no such file, when it is no ledger or newer than this program, or when it cannot
/// be read.
pub fn stories(
    path: &Path,
    client: Option<&ClientName>,
    name: &str,
) -> Result<Vec<Story>, LedgerError> {
    let before = Marks::of(path)?;
    let told = alone(path, &before).and_then(|conn| read(conn, path, client, name));
    if Marks::of(path)? == before {
        return told;
    }
    read(open::reader(path)?, path, client, name)
}

fn read(
    conn: Connection,
    path: &Path,
    client: Option<&ClientName>,
    name: &str,
) -> Result<Vec<Story>, LedgerError> {
    open::inspect(&conn, path)?;
    let told = |error| open::sqlite_error(path, error);
    let version: i64 = conn
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(told)?;
    if version < 1 {
        return Err(LedgerError::NotALedger {
            path: path.to_owned(),
            why: "no callgate has written to it",
        });
    }
    let conn = if version < open::SCHEMA {
        upgraded(&conn).map_err(told)?
    } else {
        conn
    };
    story::stories(&conn, client, name).map_err(|error| LedgerError::Read {
        source: Cause::new(error),
    })
}

/// A copy in memory, brought up to date there.
fn upgraded(conn: &Connection) -> rusqlite::Result<Connection> {
    let mut copy = Connection::open_in_memory()?;
    Backup::new(conn, &mut copy)?.step(-1)?;
    open::migrate(&mut copy, Wall(0))?;
    Ok(copy)
}

/// Opens the file as if nobody else were there.
fn alone(path: &Path, marks: &Marks) -> Result<Connection, LedgerError> {
    let told = |error| open::sqlite_error(path, error);
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if marks.wal.is_none_or(|mark| mark.length == 0) {
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        return Connection::open_with_flags(immutable(path), flags).map_err(told);
    }
    let conn = Connection::open_with_flags_and_vfs(path, flags, NO_LOCKS).map_err(told)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .map_err(told)?;
    // Before the first look at the file: then the index of the WAL is kept in memory.
    conn.pragma_update(None, "locking_mode", "exclusive")
        .map_err(told)?;
    Ok(conn)
}

/// The address of a file that does not change.
fn immutable(path: &Path) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                address.push(char::from(*byte));
            }
            other => address.push_str(&format!("%{other:02X}")),
        }
    }
    address + "?immutable=1"
}

/// What tells whether somebody wrote.
#[derive(Debug, PartialEq, Eq)]
struct Marks {
    file: Mark,
    wal: Option<Mark>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    length: u64,
    changed: Option<SystemTime>,
}

impl Marks {
    fn of(path: &Path) -> Result<Self, LedgerError> {
        let Some(file) = Mark::of(path)? else {
            return Err(LedgerError::NoFile {
                path: path.to_owned(),
            });
        };
        let mut wal = path.as_os_str().to_owned();
        wal.push("-wal");
        let wal = Mark::of(&PathBuf::from(wal))?;
        if file.length == 0 && wal.is_none_or(|mark| mark.length == 0) {
            return Err(LedgerError::NotALedger {
                path: path.to_owned(),
                why: "it is empty",
            });
        }
        Ok(Self { file, wal })
    }
}

impl Mark {
    fn of(path: &Path) -> Result<Option<Self>, LedgerError> {
        Ok(open::look(path)?.map(|found| Self {
            length: found.len(),
            changed: found.modified().ok(),
        }))
    }
}
