//! The reversal of a call as it is written: that it is sent, that it is sent again, that it is done.

use rusqlite::params;

use super::db::Db;
use super::{history, words};
use crate::call::time::Wall;
use crate::ledger::{Claim, DeadState, Entry, SettledBy};

/// The reversal is about to be sent for the `n`th time: the original is over.
pub(super) fn send(db: &Db, claim: Claim, now: Wall, n: u32) -> rusqlite::Result<()> {
    let sql = "UPDATE dead_letter SET state = 'REVERSING', reversals = ?3, by_hand = 0 \
               WHERE call = ?1 AND life = ?2";
    db.conn
        .prepare_cached(sql)?
        .execute(params![claim.row.0, claim.life, n])?;
    touch(db, claim, now)?;
    let sent = Entry::Reversing { at: now, n };
    history::write(db, claim.row, claim.life, &sent)
}

/// It is given back, to be sent again at `due`.
pub(super) fn again(
    db: &Db,
    claim: Claim,
    now: Wall,
    due: Wall,
    last_error: &str,
) -> rusqlite::Result<()> {
    let sql = "UPDATE dead_letter SET next_retry_time = ?3, last_error = ?4, owner = NULL, \
               lease_until = NULL WHERE call = ?1 AND life = ?2";
    db.conn
        .prepare_cached(sql)?
        .execute(params![claim.row.0, claim.life, due.0, last_error])?;
    touch(db, claim, now)
}

/// The tool has undone the call. Id and key stay bound.
pub(super) fn done(db: &Db, claim: Claim, now: Wall) -> rusqlite::Result<()> {
    let sql = "UPDATE calls SET state = 'FAILED', settled_at = ?2, settled_by = ?3, \
        updated_at = ?2, touched_at = max(touched_at, ?2), \
        purge_at = max(touched_at, ?2) + window_ms, reply_status = NULL, reply_bytes = NULL, \
        reply_sha256 = NULL, reply_headers = NULL, reply_body = NULL WHERE id = ?1";
    let by = words::settled_by_text(SettledBy::Reversal);
    db.conn
        .prepare_cached(sql)?
        .execute(params![claim.row.0, now.0, by])?;
    let sql = "UPDATE dead_letter SET state = 'REVERSED', next_retry_time = NULL, ended_at = ?3, \
        owner = NULL, lease_until = NULL WHERE call = ?1 AND life = ?2 RETURNING round";
    let round = db
        .conn
        .prepare_cached(sql)?
        .query_row(params![claim.row.0, claim.life, now.0], |row| row.get(0))?;
    let over = Entry::Parked {
        at: now,
        state: DeadState::Reversed,
        reason: "reversed".into(),
        round,
    };
    history::write(db, claim.row, claim.life, &over)
}

fn touch(db: &Db, claim: Claim, now: Wall) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("UPDATE calls SET updated_at = ?2 WHERE id = ?1")?
        .execute(params![claim.row.0, now.0])?;
    Ok(())
}
