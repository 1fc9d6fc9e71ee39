//! Verbs over many rows: the sweep after a start, the clean-up, proofs.

use rusqlite::params;

use super::append::park;
use super::db::Db;
use super::{desk, history, reversal, words};
use crate::call::time::Wall;
use crate::ledger::{Owner, OwnerTest, Park, Place, Proof, Purged, Recovered, RowId};

/// An in-line call whose owner is dead.
struct Orphan {
    row: RowId,
    life: u32,
    sent: bool,
    promised: bool,
}

/// Parks or closes what dead owners had in line, and makes their rounds due again.
pub(super) fn recover(
    db: &Db,
    owner: &Owner,
    now: Wall,
    dead: OwnerTest,
) -> rusqlite::Result<Recovered> {
    // With the only lock on the file every lease of another owner is void, whatever it says.
    let lease_limit = match dead {
        OwnerTest::AllOthers => i64::MAX,
        OwnerTest::LeaseRanOut => now.0,
    };
    let mut recovered = Recovered::default();
    for orphan in orphans(db, owner, lease_limit)? {
        let place = if orphan.sent || orphan.promised {
            recovered.parked += 1;
            Place::Queued { due: now }
        } else {
            recovered.never_sent += 1;
            Place::NeverSent
        };
        let reason = if place == Place::NeverSent {
            "never-sent"
        } else {
            "crash"
        };
        let how = Park {
            reason: reason.into(),
            place,
            reached: orphan.sent,
            last_error: "the gateway ended while the call was in line".into(),
            kept: None,
        };
        park(db, orphan.row, orphan.life, now, &how)?;
    }
    const GIVEN_BACK: &str = "UPDATE dead_letter \
        SET state = iif(by_hand, 'MANUAL', 'QUEUED'), by_hand = 0, owner = NULL, \
        lease_until = NULL WHERE state = 'RUNNING' AND owner <> ?1 AND lease_until <= ?2";
    const REVERSING: &str = "UPDATE dead_letter \
        SET next_retry_time = ?3, owner = NULL, lease_until = NULL \
        WHERE state = 'REVERSING' AND owner <> ?1 AND lease_until <= ?2";
    let given_back = db
        .conn
        .prepare_cached(GIVEN_BACK)?
        .execute(params![owner.as_str(), lease_limit])?;
    let reversing =
        db.conn
            .prepare_cached(REVERSING)?
            .execute(params![owner.as_str(), lease_limit, now.0])?;
    recovered.requeued = (given_back + reversing) as u64;
    Ok(recovered)
}

/// Unsettled and not in the queue: in line. They have an index of their own, however many wait in
/// the queue.
pub(super) const ORPHANS: &str = "SELECT id, life, sends > 0, promised FROM calls \
    WHERE purge_at IS NULL AND parked = 0 AND owner <> ?1 AND lease_until <= ?2";

fn orphans(db: &Db, owner: &Owner, lease_limit: i64) -> rusqlite::Result<Vec<Orphan>> {
    db.conn
        .prepare_cached(ORPHANS)?
        .query_map(params![owner.as_str(), lease_limit], |row| {
            Ok(Orphan {
                row: RowId(row.get(0)?),
                life: row.get(1)?,
                sent: row.get(2)?,
                promised: row.get(3)?,
            })
        })?
        .collect()
}

/// Removes calls that nothing needs any more. A row found early (it was replayed since, or one of
/// its dead letters has to stay) is only marked with its later time.
pub(super) fn purge(db: &Db, now: Wall, batch: usize) -> rusqlite::Result<Purged> {
    let sql = "SELECT c.id, max(c.touched_at + c.window_ms, \
        coalesce((SELECT max(coalesce(ended_at, ?3)) + ?2 FROM dead_letter WHERE call = c.id), 0)) \
        FROM calls c WHERE c.purge_at <= ?1 ORDER BY c.purge_at LIMIT ?4";
    let limit = i64::try_from(batch).unwrap_or(i64::MAX);
    let kept_since = now.0.saturating_sub(history::millis(db.retention));
    let forgotten = reversal::forget(db, Wall(kept_since), limit)?;
    let found: Vec<(i64, i64)> = db
        .conn
        .prepare_cached(sql)?
        .query_map(
            params![now.0, history::millis(db.retention), now.0, limit],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    desk::purge(db, now)?;
    let mut purged = Purged {
        calls: 0,
        more: found.len().max(forgotten) >= batch,
    };
    for (row, ripe) in found {
        if ripe > now.0 {
            db.conn
                .prepare_cached("UPDATE calls SET purge_at = ?2 WHERE id = ?1")?
                .execute([row, ripe])?;
        } else {
            remove(db, row)?;
            purged.calls += 1;
        }
    }
    Ok(purged)
}

fn remove(db: &Db, row: i64) -> rusqlite::Result<()> {
    for sql in [
        "DELETE FROM history WHERE call = ?1",
        "DELETE FROM differences WHERE call = ?1",
        "DELETE FROM dead_letter WHERE call = ?1",
        "DELETE FROM aliases WHERE call = ?1",
        "DELETE FROM lives WHERE call = ?1",
        "DELETE FROM reversals WHERE call = ?1",
        "DELETE FROM replies WHERE call = ?1",
        "DELETE FROM audit WHERE call = ?1",
        "DELETE FROM calls WHERE id = ?1",
    ] {
        db.conn.prepare_cached(sql)?.execute([row])?;
    }
    Ok(())
}

/// Remembers what was found about a receipt endpoint.
pub(super) fn remember_proof(
    db: &Db,
    endpoint: &str,
    proof: Proof,
    now: Wall,
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO proofs (endpoint, state, at) VALUES (?1, ?2, ?3) \
               ON CONFLICT (endpoint) DO UPDATE SET state = ?2, at = ?3";
    db.conn
        .prepare_cached(sql)?
        .execute(params![endpoint, words::proof_word(proof), now.0])?;
    Ok(())
}
