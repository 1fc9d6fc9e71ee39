//! The items of batches: written once, claimed in order, ended once.
//!
//! A row's number is its batch and its line, so that "in order" is the order of the table and a
//! claim reads the front of one small index, wherever the batch stands.

use std::sync::Arc;

use http::Method;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::batch::{numbered, store};
use super::db::Db;
use super::{fields, words};
use crate::call::id::{CallId, ClientName};
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::batch::{
    Added, BatchId, BatchState, Counts, FollowLook, Followed, ItemCall, ItemDue, ItemEnd,
    ItemState, ItemView, NewItem, outcome_of,
};
use crate::ledger::{Owner, OwnerTest, StoredRequest};

/// Lines of one batch; the other half of a row's number is the batch's.
const LINES: i64 = 1 << 32;

const fn row_of(batch: BatchId, line: u32) -> i64 {
    batch.0 * LINES + line as i64
}

fn line_of(row: i64) -> u32 {
    u32::try_from(row.rem_euclid(LINES)).expect("the remainder has 32 bits")
}

/// All or none: compared first, written afterwards.
pub(super) fn add(
    db: &Db,
    batch: BatchId,
    now: Wall,
    items: &[NewItem],
) -> rusqlite::Result<Added> {
    let view = numbered(db.conn, batch)?;
    let Some(mut view) = view.filter(|view| view.state != BatchState::Cancelled) else {
        return Ok(Added::Closed);
    };
    let before = view.last_line;
    for item in items.iter().take_while(|item| item.line <= before) {
        let known: Option<Vec<u8>> = db
            .conn
            .prepare_cached("SELECT hash FROM batch_items WHERE id = ?1")?
            .query_row([row_of(batch, item.line)], |row| row.get(0))
            .optional()?;
        if known.as_deref() != Some(&item.hash[..]) {
            return Ok(Added::Differs(item.line));
        }
    }
    let mut added = Counts::default();
    let mut new = 0;
    for item in items.iter().filter(|item| item.line > before) {
        insert(db, batch, now, item)?;
        let state = if item.call.is_ok() {
            ItemState::Waiting
        } else {
            ItemState::Bad
        };
        *added.of(state) += 1;
        new += 1;
        view.last_line = view.last_line.max(item.line);
    }
    let known = u32::try_from(items.len()).unwrap_or(u32::MAX) - new;
    if new > 0 {
        view.counts.add(&added);
        // Nothing new runs before the last line of it came.
        view.state = BatchState::Loading;
        view.ended_at = None;
        view.updated_at = now;
        store(db, &view)?;
    }
    Ok(Added::Applied { new, known })
}

fn insert(db: &Db, batch: BatchId, now: Wall, item: &NewItem) -> rusqlite::Result<()> {
    let row = row_of(batch, item.line);
    match &item.call {
        Ok(call) => {
            let sql = "INSERT INTO batch_items (id, state, seen_at, updated_at, attempts, call_id, \
                source, business_key, hash, method, target, headers, body) \
                VALUES (?1, 'WAITING', ?2, ?2, 0, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
            db.conn.prepare_cached(sql)?.execute(params![
                row,
                now.0,
                call.call_id.as_str(),
                call.source.as_str(),
                call.key,
                item.hash,
                call.request.method.as_str(),
                call.request.target,
                fields::to_text(&call.request.headers),
                &*call.request.body,
            ])?;
        }
        Err(why) => {
            let sql = "INSERT INTO batch_items (id, state, seen_at, updated_at, attempts, hash, \
                       error) VALUES (?1, 'BAD', ?2, ?2, 0, ?3, ?4)";
            let values = params![row, now.0, item.hash, why];
            db.conn.prepare_cached(sql)?.execute(values)?;
        }
    }
    Ok(())
}

pub(super) fn claim(
    db: &Db,
    batch: BatchId,
    owner: &Owner,
    lease_until: Wall,
    limit: usize,
) -> rusqlite::Result<Vec<ItemDue>> {
    let view = numbered(db.conn, batch)?;
    let Some(mut view) = view.filter(|view| view.state == BatchState::Running) else {
        return Ok(Vec::new());
    };
    let sql = "SELECT id, call_id, source, business_key, method, target, headers, body, \
               seen_at FROM batch_items WHERE state = 'WAITING' AND id > ?1 AND id < ?2 \
               ORDER BY id LIMIT ?3";
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let due: Vec<ItemDue> = db
        .conn
        .prepare_cached(sql)?
        .query_map([row_of(batch, 0), row_of(batch, u32::MAX), most], due_row)?
        .collect::<rusqlite::Result<_>>()?;
    let sql = "UPDATE batch_items SET state = 'LEASED', owner = ?2, lease_until = ?3 WHERE id = ?1";
    for item in &due {
        let row = row_of(batch, item.line);
        db.conn
            .prepare_cached(sql)?
            .execute(params![row, owner.as_str(), lease_until.0])?;
        view.counts.moved(ItemState::Waiting, ItemState::Leased);
    }
    if !due.is_empty() {
        store(db, &view)?;
    }
    Ok(due)
}

fn due_row(row: &Row<'_>) -> rusqlite::Result<ItemDue> {
    let headers = row.get_ref(6)?.as_blob()?;
    let headers = fields::from_text(headers).ok_or_else(|| words::damaged(6, "headers"))?;
    let body: Vec<u8> = row.get(7)?;
    Ok(ItemDue {
        line: line_of(row.get(0)?),
        call: ItemCall {
            call_id: words::word(row, 1, |text| CallId::parse(text.as_bytes()).ok())?,
            source: words::word(row, 2, words::source)?,
            key: words::optional_text(row, 3)?,
            request: StoredRequest {
                method: words::word(row, 4, |text| Method::from_bytes(text.as_bytes()).ok())?,
                target: words::text(row, 5)?,
                headers,
                body: body.into(),
                credential: false,
            },
        },
        seen_at: Wall(row.get(8)?),
    })
}

pub(super) fn extend(
    db: &Db,
    batch: BatchId,
    owner: &Owner,
    lease_until: Wall,
) -> rusqlite::Result<u64> {
    let sql = "UPDATE batch_items SET lease_until = ?4 \
               WHERE state = 'LEASED' AND id > ?1 AND id < ?2 AND owner = ?3";
    let (first, last) = (row_of(batch, 0), row_of(batch, u32::MAX));
    let values = params![first, last, owner.as_str(), lease_until.0];
    Ok(db.conn.prepare_cached(sql)?.execute(values)? as u64)
}

pub(super) fn end(
    db: &Db,
    batch: BatchId,
    owner: &Owner,
    now: Wall,
    ends: &[ItemEnd],
) -> rusqlite::Result<u64> {
    let Some(mut view) = numbered(db.conn, batch)? else {
        return Ok(0);
    };
    let sql = "UPDATE batch_items SET state = ?3, updated_at = ?4, attempts = ?5, status = ?6, \
        outcome = ?7, error = ?8, original = ?9, owner = NULL, lease_until = NULL \
        WHERE id = ?1 AND state = 'LEASED' AND owner = ?2";
    let mut ended = 0;
    for end in ends {
        let values = params![
            row_of(batch, end.line),
            owner.as_str(),
            end.state.as_str(),
            now.0,
            end.attempts,
            end.status,
            end.outcome,
            end.error,
            end.original.as_ref().map(CallId::as_str),
        ];
        if db.conn.prepare_cached(sql)?.execute(values)? > 0 {
            ended += 1;
            view.counts.moved(ItemState::Leased, end.state);
            view.counts.how(end);
        }
    }
    if ended > 0 {
        view.close_if_over(now);
        store(db, &view)?;
    }
    Ok(ended)
}

pub(super) fn give_back(
    db: &Db,
    batch: BatchId,
    owner: &Owner,
    now: Wall,
    lines: &[u32],
) -> rusqlite::Result<u64> {
    let Some(mut view) = numbered(db.conn, batch)? else {
        return Ok(0);
    };
    let sql = "UPDATE batch_items SET state = 'WAITING', owner = NULL, lease_until = NULL \
               WHERE id = ?1 AND state = 'LEASED' AND owner = ?2";
    let mut returned = 0;
    for line in lines {
        let values = params![row_of(batch, *line), owner.as_str()];
        if db.conn.prepare_cached(sql)?.execute(values)? > 0 {
            returned += 1;
            view.counts.moved(ItemState::Leased, ItemState::Waiting);
        }
    }
    if returned > 0 {
        view.updated_at = now;
        store(db, &view)?;
    }
    Ok(returned)
}

pub(super) fn recover(db: &Db, owner: &Owner, now: Wall, dead: OwnerTest) -> rusqlite::Result<u64> {
    // With the only lock on the file every lease of another owner is void, whatever it says.
    let lease_limit = match dead {
        OwnerTest::AllOthers => i64::MAX,
        OwnerTest::LeaseRanOut => now.0,
    };
    let sql = "UPDATE batch_items SET state = 'WAITING', owner = NULL, lease_until = NULL \
               WHERE state = 'LEASED' AND owner <> ?1 AND lease_until <= ?2 RETURNING id";
    let rows: Vec<i64> = db
        .conn
        .prepare_cached(sql)?
        .query_map(params![owner.as_str(), lease_limit], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    for row in &rows {
        let sql = "UPDATE batches SET leased = leased - 1, waiting = waiting + 1, \
                   updated_at = ?2 WHERE id = ?1";
        db.conn
            .prepare_cached(sql)?
            .execute([row.div_euclid(LINES), now.0])?;
    }
    Ok(rows.len() as u64)
}

pub(super) fn cancel(db: &Db, batch: BatchId, now: Wall, limit: usize) -> rusqlite::Result<u64> {
    let view = numbered(db.conn, batch)?;
    let Some(mut view) = view.filter(|view| view.state == BatchState::Cancelled) else {
        return Ok(0);
    };
    let sql = "UPDATE batch_items SET state = 'CANCELLED', updated_at = ?4 WHERE id IN (SELECT id \
        FROM batch_items WHERE state = 'WAITING' AND id > ?1 AND id < ?2 ORDER BY id LIMIT ?3)";
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let (first, last) = (row_of(batch, 0), row_of(batch, u32::MAX));
    let cancelled = db
        .conn
        .prepare_cached(sql)?
        .execute([first, last, most, now.0])?;
    if cancelled > 0 {
        let moved = i64::try_from(cancelled).unwrap_or(i64::MAX);
        view.counts.waiting -= moved;
        view.counts.cancelled += moved;
        view.close_if_over(now);
        store(db, &view)?;
    }
    Ok(cancelled as u64)
}

/// The end of the call behind an unresolved item.
struct CallEnd {
    state: State,
    outcome: &'static str,
    sends: u32,
    status: Option<u16>,
}

pub(super) fn follow(db: &Db, look: &FollowLook, now: Wall) -> rusqlite::Result<Followed> {
    let over = Followed {
        ended: 0,
        next: None,
    };
    let batch = look.batch;
    let Some(mut view) = numbered(db.conn, batch)? else {
        return Ok(over);
    };
    let sql = "SELECT id, call_id FROM batch_items WHERE state = 'UNRESOLVED' \
               AND id > ?1 AND id < ?2 ORDER BY id LIMIT ?3";
    let most = i64::try_from(look.limit).unwrap_or(i64::MAX);
    let open: Vec<(i64, String)> = db
        .conn
        .prepare_cached(sql)?
        .query_map(
            [row_of(batch, look.after), row_of(batch, u32::MAX), most],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?
        .collect::<rusqlite::Result<_>>()?;
    let mut ended = 0;
    for (row, call_id) in &open {
        let Some(end) = call_end(db, &look.client, call_id)? else {
            continue;
        };
        let state = match end.state {
            State::Success => ItemState::Done,
            State::Failed => ItemState::Refused,
            State::Received | State::Processing | State::Unknown => continue,
        };
        let sql = "UPDATE batch_items SET state = ?2, updated_at = ?3, attempts = ?4, \
            status = coalesce(?5, status), outcome = ?6, \
            error = CASE ?2 WHEN 'DONE' THEN NULL ELSE error END WHERE id = ?1";
        let (word, outcome) = (state.as_str(), end.outcome);
        let values = params![row, word, now.0, end.sends, end.status, outcome];
        db.conn.prepare_cached(sql)?.execute(values)?;
        view.counts.moved(ItemState::Unresolved, state);
        view.counts.by_receipt += i64::from(outcome == "receipt");
        ended += 1;
    }
    if ended > 0 {
        view.updated_at = now;
        store(db, &view)?;
    }
    let next = open.last().map(|(row, _)| line_of(*row));
    Ok(Followed { ended, next })
}

/// How the call of this id ended, under the name its client has or one it had.
fn call_end(db: &Db, client: &ClientName, call_id: &str) -> rusqlite::Result<Option<CallEnd>> {
    for name in std::iter::once(client).chain(client.formerly()) {
        if let Some(end) = call_end_of(db, name.as_str(), call_id)? {
            return Ok(Some(end));
        }
    }
    Ok(None)
}

/// How the call of this id ended, or the one whose key it came with.
fn call_end_of(db: &Db, client: &str, call_id: &str) -> rusqlite::Result<Option<CallEnd>> {
    let sql = "SELECT state, settled_by, sends, reply_status FROM calls WHERE id = coalesce( \
        (SELECT a.call FROM aliases a JOIN calls first ON first.id = a.call \
         AND first.life = a.life WHERE a.call_id = ?1 AND a.client = ?2), \
        (SELECT id FROM calls WHERE call_id = ?1 AND client = ?2)) AND settled_by IS NOT NULL";
    db.conn
        .prepare_cached(sql)?
        .query_row([call_id, client], |row| {
            let by = words::word(row, 1, words::settled_by)?;
            Ok(CallEnd {
                state: words::word(row, 0, State::from_word)?,
                outcome: outcome_of(by),
                sends: row.get(2)?,
                status: row.get(3)?,
            })
        })
        .optional()
}

pub(super) fn list(
    conn: &Connection,
    batch: BatchId,
    state: Option<ItemState>,
    after: u32,
    limit: usize,
) -> rusqlite::Result<Vec<ItemView>> {
    let sql = "SELECT id, state, call_id, business_key, attempts, status, outcome, error, \
        original, updated_at FROM batch_items WHERE id > ?1 AND id < ?2 \
        AND (?3 IS NULL OR state = ?3) ORDER BY id LIMIT ?4";
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let values = params![
        row_of(batch, after),
        row_of(batch, u32::MAX),
        state.map(ItemState::as_str),
        most
    ];
    conn.prepare_cached(sql)?
        .query_map(values, item_row)?
        .collect()
}

fn item_row(row: &Row<'_>) -> rusqlite::Result<ItemView> {
    let call_id = |text: &str| CallId::parse(text.as_bytes()).ok();
    Ok(ItemView {
        line: line_of(row.get(0)?),
        state: words::word(row, 1, ItemState::from_word)?,
        call_id: words::optional_word(row, 2, call_id)?,
        key: words::optional_text(row, 3)?,
        attempts: row.get(4)?,
        status: row.get(5)?,
        outcome: words::optional_text(row, 6)?,
        error: words::optional_text(row, 7)?,
        original: words::optional_word(row, 8, call_id)?,
        updated_at: Wall(row.get(9)?),
    })
}

pub(super) fn of_call(
    conn: &Connection,
    call_id: &CallId,
) -> rusqlite::Result<Option<(Arc<str>, u32)>> {
    let sql = "SELECT b.name, i.id FROM batch_items i JOIN batches b ON b.id = i.id / 4294967296 \
               WHERE i.state = 'UNRESOLVED' AND i.call_id = ?1 LIMIT 1";
    conn.prepare_cached(sql)?
        .query_row([call_id.as_str()], |row| {
            Ok((words::text(row, 0)?, line_of(row.get(1)?)))
        })
        .optional()
}

/// Removes up to `limit` items; how many.
pub(super) fn remove(db: &Db, batch: BatchId, limit: usize) -> rusqlite::Result<usize> {
    let sql = "DELETE FROM batch_items WHERE id IN \
               (SELECT id FROM batch_items WHERE id > ?1 AND id < ?2 LIMIT ?3)";
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let (first, last) = (row_of(batch, 0), row_of(batch, u32::MAX));
    db.conn.prepare_cached(sql)?.execute([first, last, most])
}
