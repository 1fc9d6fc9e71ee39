//! Claims of dead letters: what is due for a worker, and one for a caller or an operator.
//!
//! A claim raises the fencing number, so whoever held the row before writes nothing any more.

use rusqlite::params;

use super::begin::held_of;
use super::db::Db;
use super::{history, read, reversal};
use crate::call::time::Wall;
use crate::ledger::{Claim, Due, Entry, Owner, RowId, Taker};

// `+state`: not by the index of states, where all that wait would be walked.

/// Orders whose lease ran out.
pub(super) const BY_HAND: &str = "UPDATE dead_letter SET state = 'MANUAL', by_hand = 0, \
    owner = NULL, lease_until = NULL \
    WHERE owner IS NOT NULL AND lease_until <= ?1 AND +state = 'RUNNING' AND by_hand";
/// Passes whose lease ran out.
pub(super) const ABANDONED: &str = "SELECT call, life FROM dead_letter \
    WHERE owner IS NOT NULL AND lease_until <= ?1 AND +state IN ('RUNNING', 'REVERSING') \
    ORDER BY lease_until, next_retry_time LIMIT ?2";
/// Reversals that are due.
pub(super) const REVERSING: &str = "SELECT call, life FROM dead_letter \
    WHERE state = 'REVERSING' AND next_retry_time <= ?1 AND owner IS NULL \
    ORDER BY next_retry_time LIMIT ?2";
/// Rounds that are due.
pub(super) const QUEUED: &str = "SELECT call, life FROM dead_letter \
    WHERE state = 'QUEUED' AND next_retry_time <= ?1 ORDER BY next_retry_time LIMIT ?2";

/// Claims due dead letters: abandoned passes first, then reversals, then rounds, the longest due
/// first.
pub(super) fn due(
    db: &Db,
    owner: &Owner,
    now: Wall,
    lease_until: Wall,
    limit: usize,
) -> rusqlite::Result<Vec<Due>> {
    give_back_by_hand(db, now)?;
    let mut rows: Vec<(RowId, u32)> = Vec::new();
    for sql in [ABANDONED, REVERSING, QUEUED] {
        let left = i64::try_from(limit.saturating_sub(rows.len())).unwrap_or(i64::MAX);
        let mut statement = db.conn.prepare_cached(sql)?;
        let found =
            statement.query_map([now.0, left], |row| Ok((RowId(row.get(0)?), row.get(1)?)))?;
        for row in found {
            rows.push(row?);
        }
    }
    rows.into_iter()
        .map(|(row, life)| claim(db, row, life, owner, now, lease_until))
        .collect()
}

/// What an operator's order left behind whose lease ran out goes back in front of a human.
fn give_back_by_hand(db: &Db, now: Wall) -> rusqlite::Result<()> {
    db.conn.prepare_cached(BY_HAND)?.execute([now.0])?;
    Ok(())
}

/// Claims one dead letter, if it waits where the taker may take it from.
pub(super) fn letter(
    db: &Db,
    (row, life): (RowId, u32),
    (taker, owner): (Taker, &Owner),
    now: Wall,
    lease_until: Wall,
) -> rusqlite::Result<Option<Due>> {
    match held_of(db, row)? {
        Some(held) if held.lends_to(taker, life) => {
            claim(db, row, life, owner, now, lease_until).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}

fn claim(
    db: &Db,
    row: RowId,
    life: u32,
    owner: &Owner,
    now: Wall,
    lease_until: Wall,
) -> rusqlite::Result<Due> {
    let fence: i64 = db
        .conn
        .prepare_cached(
            "UPDATE calls SET fence = fence + 1, owner = ?2, lease_until = ?3 WHERE id = ?1 \
             RETURNING fence",
        )?
        .query_row(params![row.0, owner.as_str(), lease_until.0], |found| {
            found.get(0)
        })?;
    db.conn
        .prepare_cached(
            "UPDATE dead_letter SET by_hand = (state = 'MANUAL'), \
             state = iif(state = 'REVERSING', state, 'RUNNING'), owner = ?3, fence = ?4, \
             lease_until = ?5 \
             WHERE call = ?1 AND life = ?2",
        )?
        .execute(params![row.0, life, owner.as_str(), fence, lease_until.0])?;
    let entry = Entry::Claimed {
        at: now,
        owner: owner.as_str().into(),
        fence,
    };
    history::write(db, row, life, &entry)?;
    let call = read::call(db.conn, row)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let (request, policy) = read::request(db.conn, row)?;
    let undo = reversal::request(db.conn, row, life)?;
    Ok(Due {
        claim: Claim { row, life, fence },
        call,
        request,
        policy,
        undo,
    })
}
