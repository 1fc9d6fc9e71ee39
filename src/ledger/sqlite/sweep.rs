//! Verbs over many rows: due work, the sweep after a start, the clean-up, proofs.

use rusqlite::params;

use super::append::park;
use super::begin::held_of;
use super::db::Db;
use super::{history, read, words};
use crate::call::time::Wall;
use crate::ledger::{
    Claim, DeadState, Due, Entry, Owner, OwnerTest, Park, Place, Proof, Purged, Recovered, RowId,
};

/// Claims due dead letters: abandoned rounds first, then the longest due.
pub(super) fn claim_due(
    db: &Db,
    owner: &Owner,
    now: Wall,
    lease_until: Wall,
    limit: usize,
) -> rusqlite::Result<Vec<Due>> {
    const ABANDONED: &str = "SELECT call, life FROM dead_letter \
        WHERE state = 'RUNNING' AND lease_until <= ?1 \
        ORDER BY lease_until, next_retry_time LIMIT ?2";
    const QUEUED: &str = "SELECT call, life FROM dead_letter \
        WHERE state = 'QUEUED' AND next_retry_time <= ?1 ORDER BY next_retry_time LIMIT ?2";
    let mut rows: Vec<(RowId, u32)> = Vec::new();
    for sql in [ABANDONED, QUEUED] {
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

/// Claims one dead letter, if it waits in the queue.
pub(super) fn claim_letter(
    db: &Db,
    (row, life): (RowId, u32),
    owner: &Owner,
    now: Wall,
    lease_until: Wall,
) -> rusqlite::Result<Option<Due>> {
    match held_of(db, row)? {
        Some(held) if held.life == life && held.dead == Some(DeadState::Queued) => {
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
            "UPDATE dead_letter SET state = 'RUNNING', owner = ?3, fence = ?4, lease_until = ?5 \
             WHERE call = ?1 AND life = ?2",
        )?
        .execute(params![row.0, life, owner.as_str(), fence, lease_until.0])?;
    let entry = Entry::Claimed {
        at: now,
        owner: owner.as_str().into(),
        fence,
    };
    history::write(db, row, life, &entry)?;
    let call = read::call(&db.conn, row)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let (request, policy) = read::request(&db.conn, row)?;
    Ok(Due {
        claim: Claim { row, life, fence },
        call,
        request,
        policy,
    })
}

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
    let sql = "UPDATE dead_letter SET state = 'QUEUED', owner = NULL, lease_until = NULL \
               WHERE state = 'RUNNING' AND owner <> ?1 AND lease_until <= ?2";
    let requeued = db
        .conn
        .prepare_cached(sql)?
        .execute(params![owner.as_str(), lease_limit])?;
    recovered.requeued = requeued as u64;
    Ok(recovered)
}

fn orphans(db: &Db, owner: &Owner, lease_limit: i64) -> rusqlite::Result<Vec<Orphan>> {
    let sql = "SELECT id, life, sends > 0, promised FROM calls \
               WHERE purge_at IS NULL AND parked = 0 AND owner <> ?1 AND lease_until <= ?2";
    db.conn
        .prepare_cached(sql)?
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
    let found: Vec<(i64, i64)> = db
        .conn
        .prepare_cached(sql)?
        .query_map(
            params![now.0, history::millis(db.retention), now.0, limit],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let mut purged = Purged {
        calls: 0,
        more: found.len() >= batch,
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
