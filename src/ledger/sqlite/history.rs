//! History: one line per thing that happened, written by whoever writes the step it belongs to.

use std::time::Duration;

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
    if let Entry::Differs { at, kind, told } = entry {
        return differ(db, row, life, *at, *kind, told).map(drop);
    }
    let outcome = match entry {
        Entry::Ended { outcome, .. } | Entry::Undone { outcome, .. } => {
            words::outcome_text(*outcome)
        }
        _ => String::new(),
    };
    insert(db, row, life, entry.at(), &Line::of(entry, &outcome))
}

impl<'a> Line<'a> {
    /// The line of an entry; the outcome of an ended attempt comes as the text it is stored as.
    fn of(entry: &'a Entry, outcome: &'a str) -> Self {
        match entry {
            Entry::Sent { n, cause, .. } => Self::new("sent")
                .n(*n)
                .word(cause.map(|cause| cause.as_str())),
            Entry::Moved { from, to, .. } => Self {
                detail: Some(to),
                ..Self::new("moved").word(Some(from))
            },
            Entry::Ended {
                n,
                took,
                late,
                detail,
                ..
            } => Self {
                late: Some(*late),
                detail: detail.as_deref(),
                ..Self::new("ended").n(*n).word(Some(outcome)).took(*took)
            },
            Entry::Receipt {
                answer,
                doubt,
                status,
                took,
                detail,
                ..
            } => Self {
                doubt: doubt.map(|doubt| doubt.as_str()),
                status: status.map(|status| status.as_u16()),
                detail: detail.as_deref(),
                ..Self::new("receipt").word(Some(answer.as_str())).took(*took)
            },
            Entry::Waited { why, wait, .. } => Self::new("waited").word(Some(why)).took(*wait),
            Entry::Reconnected { n, .. } => Self::new("reconnected").n(*n),
            Entry::Claimed { owner, fence, .. } => Self::new("claimed").n(*fence).word(Some(owner)),
            Entry::Parked {
                state,
                reason,
                round,
                ..
            } => Self {
                detail: Some(reason),
                ..Self::new("parked").n(*round).word(Some(state.as_str()))
            },
            Entry::Reversing { n, .. } => Self::new("reversing").n(*n),
            Entry::Undone {
                n, took, detail, ..
            } => Self {
                detail: detail.as_deref(),
                ..Self::new("undone").n(*n).word(Some(outcome)).took(*took)
            },
            // Has a table of its own, and is written there.
            Entry::Differs { told, .. } => Self {
                detail: Some(told),
                ..Self::new("differs")
            },
        }
    }

    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }

    fn n(self, n: impl Into<i64>) -> Self {
        Self {
            n: Some(n.into()),
            ..self
        }
    }

    fn word(self, word: Option<&'a str>) -> Self {
        Self { word, ..self }
    }

    fn took(self, took: Duration) -> Self {
        Self {
            ms: Some(millis(took)),
            ..self
        }
    }
}

fn insert(db: &Db, row: RowId, life: u32, at: Wall, line: &Line<'_>) -> rusqlite::Result<()> {
    db.changed(row);
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
    db.changed(row);
    let sql = "INSERT INTO differences (call, life, kind, at, told) VALUES (?1, ?2, ?3, ?4, ?5) \
               ON CONFLICT DO NOTHING";
    let written =
        db.conn
            .prepare_cached(sql)?
            .execute(params![row.0, life, kind.as_str(), at.0, told])?;
    Ok(written == 1)
}

pub(super) fn millis(took: Duration) -> i64 {
    i64::try_from(took.as_millis()).unwrap_or(i64::MAX)
}
