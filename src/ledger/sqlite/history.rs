//! History: one line per thing that happened, written by whoever writes the step it belongs to.

use rusqlite::params;

use super::db::Db;
use super::words;
use crate::call::time::Wall;
use crate::ledger::{Contradiction, Entry, RowId};

/// One line of the table, whatever its kind.
#[derive(Default)]
struct Line<'a> {
    kind: &'static str,
    n: Option<i64>,
    word: Option<&'a str>,
    doubt: Option<&'static str>,
    status: Option<u16>,
    ms: Option<i64>,
    late: Option<bool>,
    detail: Option<&'a str>,
}

/// Adds an entry to a life of a call.
pub(super) fn write(db: &Db, row: RowId, life: u32, entry: &Entry) -> rusqlite::Result<()> {
    let outcome;
    let line = match entry {
        Entry::Differs { at, kind, told } => {
            return differ(db, row, life, *at, *kind, told).map(drop);
        }
        Entry::Sent { n, cause, .. } => Line {
            kind: "sent",
            n: Some(i64::from(*n)),
            word: cause.map(|cause| cause.as_str()),
            ..Line::default()
        },
        Entry::Ended {
            n,
            outcome: how,
            took,
            late,
            detail,
            ..
        } => {
            outcome = words::outcome_text(*how);
            Line {
                kind: "ended",
                n: Some(i64::from(*n)),
                word: Some(&outcome),
                ms: Some(millis(*took)),
                late: Some(*late),
                detail: detail.as_deref(),
                ..Line::default()
            }
        }
        Entry::Receipt {
            answer,
            doubt,
            status,
            took,
            detail,
            ..
        } => Line {
            kind: "receipt",
            word: Some(answer.as_str()),
            doubt: doubt.map(|doubt| doubt.as_str()),
            status: status.map(|status| status.as_u16()),
            ms: Some(millis(*took)),
            detail: detail.as_deref(),
            ..Line::default()
        },
        Entry::Waited { why, wait, .. } => Line {
            kind: "waited",
            word: Some(why),
            ms: Some(millis(*wait)),
            ..Line::default()
        },
        Entry::Reconnected { n, .. } => Line {
            kind: "reconnected",
            n: Some(i64::from(*n)),
            ..Line::default()
        },
        Entry::Claimed { owner, fence, .. } => Line {
            kind: "claimed",
            n: Some(*fence),
            word: Some(owner),
            ..Line::default()
        },
        Entry::Parked {
            state,
            reason,
            round,
            ..
        } => Line {
            kind: "parked",
            n: Some(i64::from(*round)),
            word: Some(state.as_str()),
            detail: Some(reason),
            ..Line::default()
        },
    };
    insert(db, row, life, entry.at(), &line)
}

fn insert(db: &Db, row: RowId, life: u32, at: Wall, line: &Line<'_>) -> rusqlite::Result<()> {
    let sql = "INSERT INTO history (call, life, seq, at, kind, n, word, doubt, status, ms, late, \
        detail) VALUES (?1, ?2, coalesce((SELECT max(seq) FROM history WHERE call = ?1 AND \
        life = ?2), 0) + 1, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    db.conn.prepare_cached(sql)?.execute(params![
        row.0,
        life,
        at.0,
        line.kind,
        line.n,
        line.word,
        line.doubt,
        line.status,
        line.ms,
        line.late,
        line.detail,
    ])?;
    Ok(())
}

/// Records a contradiction; `true` when it is the first of its kind for this life.
pub(super) fn differ(
    db: &Db,
    row: RowId,
    life: u32,
    at: Wall,
    kind: Contradiction,
    told: &str,
) -> rusqlite::Result<bool> {
    let sql = "INSERT INTO differences (call, life, kind, at, told) VALUES (?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT DO NOTHING";
    let written =
        db.conn
            .prepare_cached(sql)?
            .execute(params![row.0, life, kind.as_str(), at.0, told])?;
    Ok(written == 1)
}

pub(super) fn millis(took: std::time::Duration) -> i64 {
    i64::try_from(took.as_millis()).unwrap_or(i64::MAX)
}
