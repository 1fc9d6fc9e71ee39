//! The reversal of a call as it is written: that it is sent, is sent again, is done.

use bytes::Bytes;
use http::Method;
use rusqlite::{Connection, OptionalExtension, params};

use super::db::Db;
use super::{history, words};
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::{Claim, DeadState, Entry, NewCall, RowId, SettledBy, StoredUndo};

/// The reversal is about to be sent for the `n`th time: the original is over.
pub(super) fn send(
    db: &Db,
    claim: Claim,
    now: Wall,
    (n, request): (u32, &StoredUndo),
) -> rusqlite::Result<()> {
    let kept = "INSERT OR IGNORE INTO reversals (call, life, method, target, body) \
                VALUES (?1, ?2, ?3, ?4, ?5)";
    db.conn.prepare_cached(kept)?.execute(params![
        claim.row.0,
        claim.life,
        request.method.as_str(),
        &*request.target,
        &*request.body,
    ])?;
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
        reply_sha256 = NULL, reply_headers = NULL, reply_body = NULL, owner = '', \
        lease_until = 0 WHERE id = ?1";
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

/// The undo request that was kept with the first send of it.
pub(super) fn request(
    conn: &Connection,
    row: RowId,
    life: u32,
) -> rusqlite::Result<Option<StoredUndo>> {
    let sql = "SELECT method, target, body FROM reversals WHERE call = ?1 AND life = ?2";
    conn.prepare_cached(sql)?
        .query_row(params![row.0, life], |row| {
            Ok(StoredUndo {
                method: words::word(row, 0, |text| Method::from_bytes(text.as_bytes()).ok())?,
                target: words::text(row, 1)?,
                body: Bytes::copy_from_slice(row.get_ref(2)?.as_blob()?),
            })
        })
        .optional()
}

/// From now on nothing is sent under `undone`, the id that `new` reverses.
pub(super) fn mark(db: &Db, new: &NewCall, undone: &CallId) -> rusqlite::Result<()> {
    let sql = "INSERT OR IGNORE INTO never_send (call_id, client, upstream, by, at) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    db.has_names_beside.set(true);
    // The undone call may arrive at any of the tool's addresses.
    for (client, address) in names(new).flat_map(|name| new.addresses().map(move |at| (name, at))) {
        db.conn.prepare_cached(sql)?.execute(params![
            undone.as_str(),
            client.as_str(),
            &**address,
            new.call_id.as_str(),
            new.now.0
        ])?;
    }
    Ok(())
}

/// Whether its client has undone the id of a call that enters.
pub(super) fn is_marked(db: &Db, new: &NewCall) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM never_send WHERE call_id = ?1 AND client = ?2 AND upstream = ?3";
    for client in names(new) {
        let marked = params![new.call_id.as_str(), client.as_str(), &*new.upstream];
        if db.conn.prepare_cached(sql)?.exists(marked)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The name the client has and those it had: a mark holds under all of them.
fn names(new: &NewCall) -> impl Iterator<Item = &ClientName> {
    std::iter::once(&new.client).chain(new.client.formerly())
}

/// Whether its client has undone a call that is there.
pub(super) fn is_undone(db: &Db, row: RowId) -> rusqlite::Result<bool> {
    let sql = "SELECT 1 FROM calls c JOIN never_send n ON n.call_id = c.call_id \
               AND n.client = c.client AND n.upstream = c.upstream WHERE c.id = ?1";
    db.conn.prepare_cached(sql)?.exists([row.0])
}

/// Forgets marks that are older than dead letters are kept, and says how many.
pub(super) fn forget(db: &Db, before: Wall, batch: i64) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM never_send WHERE (call_id, client, upstream) IN \
               (SELECT call_id, client, upstream FROM never_send WHERE at <= ?1 LIMIT ?2)";
    db.conn.prepare_cached(sql)?.execute([before.0, batch])
}

fn touch(db: &Db, claim: Claim, now: Wall) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("UPDATE calls SET updated_at = ?2 WHERE id = ?1")?
        .execute(params![claim.row.0, now.0])?;
    Ok(())
}
