//! Batches: their rows, and the verbs over them. What happens to items stands in `items`.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::db::Db;
use super::queue::Lane;
use super::{SqliteLedger, items, words};
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::batch::{
    Added, BatchId, BatchState, BatchView, Batches, Counts, FollowLook, Followed, ItemDue, ItemEnd,
    ItemState, ItemView, NewBatch, NewItem, Opened, Turn, Turned, WhichBatches,
};
use crate::ledger::{Owner, OwnerTest, Pending, Purged};

/// The columns of a batch, in the order in which [`batch_row`] reads them.
const BATCH: &str = "SELECT id, name, client, route, state, workers, created_at, updated_at, \
    ended_at, last_line, waiting, leased, done, refused, unresolved, bad, cancelled, retried, \
    by_receipt, replayed FROM batches";

impl Batches for SqliteLedger {
    fn open_batch(&self, new: NewBatch) -> Pending<Opened> {
        self.write(Lane::Ordinary, move |db| open(db, &new))
    }

    fn add_items(&self, batch: BatchId, now: Wall, new: Vec<NewItem>) -> Pending<Added> {
        self.write(Lane::Ordinary, move |db| items::add(db, batch, now, &new))
    }

    fn batch_loaded(&self, batch: BatchId, now: Wall) -> Pending<Option<BatchView>> {
        self.write(Lane::Reserved, move |db| loaded(db, batch, now))
    }

    fn claim_items(
        &self,
        batch: BatchId,
        owner: Owner,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<ItemDue>> {
        self.write(Lane::Reserved, move |db| {
            items::claim(db, batch, &owner, lease_until, limit)
        })
    }

    fn extend_items(&self, batch: BatchId, owner: Owner, lease_until: Wall) -> Pending<u64> {
        self.write(Lane::Reserved, move |db| {
            items::extend(db, batch, &owner, lease_until)
        })
    }

    fn end_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        ends: Vec<ItemEnd>,
    ) -> Pending<u64> {
        self.write(Lane::Reserved, move |db| {
            items::end(db, batch, &owner, now, &ends)
        })
    }

    fn return_items(
        &self,
        batch: BatchId,
        owner: Owner,
        now: Wall,
        lines: Vec<u32>,
    ) -> Pending<u64> {
        self.write(Lane::Reserved, move |db| {
            items::give_back(db, batch, &owner, now, &lines)
        })
    }

    fn recover_items(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<u64> {
        self.write(Lane::Reserved, move |db| {
            items::recover(db, &owner, now, dead)
        })
    }

    fn turn_batch(&self, name: Arc<str>, turn: Turn, now: Wall) -> Pending<Option<Turned>> {
        self.write(Lane::Reserved, move |db| take_turn(db, &name, turn, now))
    }

    fn cancel_items(&self, batch: BatchId, now: Wall, limit: usize) -> Pending<u64> {
        self.write(Lane::Reserved, move |db| {
            items::cancel(db, batch, now, limit)
        })
    }

    fn follow_items(&self, look: FollowLook, now: Wall) -> Pending<Followed> {
        self.write(Lane::Ordinary, move |db| items::follow(db, &look, now))
    }

    fn batch(&self, name: Arc<str>) -> Pending<Option<BatchView>> {
        self.read(move |conn| named(conn, &name))
    }

    fn batches(&self, which: WhichBatches, limit: usize) -> Pending<Vec<BatchView>> {
        self.read(move |conn| list(conn, which, limit))
    }

    fn items(
        &self,
        batch: BatchId,
        state: Option<ItemState>,
        after: u32,
        limit: usize,
    ) -> Pending<Vec<ItemView>> {
        self.read(move |conn| items::list(conn, batch, state, after, limit))
    }

    fn item_of(&self, call_id: CallId) -> Pending<Option<(Arc<str>, u32)>> {
        self.read(move |conn| items::of_call(conn, &call_id))
    }

    fn purge_batches(&self, now: Wall, limit: usize) -> Pending<Purged> {
        self.write(Lane::Ordinary, move |db| purge(db, now, limit))
    }
}

fn open(db: &Db, new: &NewBatch) -> rusqlite::Result<Opened> {
    if let Some(found) = named(db.conn, &new.name)? {
        let same = new.client.is_or_was(found.client.as_str()) && found.route == new.route;
        return Ok(if same {
            Opened::Known(found)
        } else {
            Opened::Other(found)
        });
    }
    let sql = "INSERT INTO batches (name, client, route, state, workers, created_at, updated_at, \
        last_line, waiting, leased, done, refused, unresolved, bad, cancelled, retried, \
        by_receipt, replayed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)";
    let loading = BatchState::Loading.as_str();
    let id = db.conn.prepare_cached(sql)?.insert(params![
        new.name,
        new.client.as_str(),
        new.route,
        loading,
        new.workers,
        new.now.0
    ])?;
    let made = numbered(db.conn, BatchId(id))?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    Ok(Opened::New(made))
}

fn loaded(db: &Db, batch: BatchId, now: Wall) -> rusqlite::Result<Option<BatchView>> {
    let Some(mut view) = numbered(db.conn, batch)? else {
        return Ok(None);
    };
    if view.state == BatchState::Loading {
        view.state = BatchState::Running;
        view.close_if_over(now);
        store(db, &view)?;
    }
    Ok(Some(view))
}

fn take_turn(db: &Db, name: &str, turn: Turn, now: Wall) -> rusqlite::Result<Option<Turned>> {
    let Some(mut view) = named(db.conn, name)? else {
        return Ok(None);
    };
    let Some(state) = view.state.after(turn) else {
        return Ok(Some(Turned::Not(view)));
    };
    if view.state != state {
        view.state = state;
        view.close_if_over(now);
        store(db, &view)?;
    }
    Ok(Some(Turned::Done(view)))
}

/// Writes what moves of a batch.
pub(super) fn store(db: &Db, view: &BatchView) -> rusqlite::Result<()> {
    let sql = "UPDATE batches SET state = ?2, updated_at = ?3, ended_at = ?4, last_line = ?5, \
        waiting = ?6, leased = ?7, done = ?8, refused = ?9, unresolved = ?10, bad = ?11, \
        cancelled = ?12, retried = ?13, by_receipt = ?14, replayed = ?15 WHERE id = ?1";
    let counts = &view.counts;
    db.conn
        .prepare_cached(sql)?
        .execute(params![
            view.id.0,
            view.state.as_str(),
            view.updated_at.0,
            view.ended_at.map(|at| at.0),
            view.last_line,
            counts.waiting,
            counts.leased,
            counts.done,
            counts.refused,
            counts.unresolved,
            counts.bad,
            counts.cancelled,
            counts.retried,
            counts.by_receipt,
            counts.replayed,
        ])
        .map(drop)
}

/// The batch with this number.
pub(super) fn numbered(conn: &Connection, id: BatchId) -> rusqlite::Result<Option<BatchView>> {
    conn.prepare_cached(&format!("{BATCH} WHERE id = ?1"))?
        .query_row([id.0], batch_row)
        .optional()
}

fn named(conn: &Connection, name: &str) -> rusqlite::Result<Option<BatchView>> {
    conn.prepare_cached(&format!("{BATCH} WHERE name = ?1"))?
        .query_row([name], batch_row)
        .optional()
}

fn list(conn: &Connection, which: WhichBatches, limit: usize) -> rusqlite::Result<Vec<BatchView>> {
    let open = "WHERE state = 'RUNNING' OR unresolved > 0 \
                OR (state = 'CANCELLED' AND waiting + leased > 0)";
    let condition = match which {
        WhichBatches::All => "",
        WhichBatches::Open => open,
    };
    let sql = format!("{BATCH} {condition} ORDER BY id DESC LIMIT ?1");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    conn.prepare_cached(&sql)?
        .query_map([limit], batch_row)?
        .collect()
}

fn batch_row(row: &Row<'_>) -> rusqlite::Result<BatchView> {
    Ok(BatchView {
        id: BatchId(row.get(0)?),
        name: words::text(row, 1)?,
        client: words::word(row, 2, |text| Some(ClientName::new(text)))?,
        route: words::text(row, 3)?,
        state: words::word(row, 4, BatchState::from_word)?,
        workers: row.get(5)?,
        created_at: Wall(row.get(6)?),
        updated_at: Wall(row.get(7)?),
        ended_at: row.get::<_, Option<i64>>(8)?.map(Wall),
        last_line: row.get(9)?,
        counts: Counts {
            waiting: row.get(10)?,
            leased: row.get(11)?,
            done: row.get(12)?,
            refused: row.get(13)?,
            unresolved: row.get(14)?,
            bad: row.get(15)?,
            cancelled: row.get(16)?,
            retried: row.get(17)?,
            by_receipt: row.get(18)?,
            replayed: row.get(19)?,
        },
    })
}

fn purge(db: &Db, now: Wall, limit: usize) -> rusqlite::Result<Purged> {
    let kept_ms = i64::try_from(db.retention.as_millis()).unwrap_or(i64::MAX);
    let oldest = "SELECT id FROM batches WHERE ended_at <= ?1 AND unresolved = 0 \
                  AND waiting + leased = 0 ORDER BY id LIMIT 1";
    let found: Option<i64> = db
        .conn
        .prepare_cached(oldest)?
        .query_row([now.0.saturating_sub(kept_ms)], |row| row.get(0))
        .optional()?;
    let Some(batch) = found.map(BatchId) else {
        return Ok(Purged {
            calls: 0,
            more: false,
        });
    };
    let removed = items::remove(db, batch, limit)?;
    if removed < limit {
        db.conn
            .prepare_cached("DELETE FROM batches WHERE id = ?1")?
            .execute([batch.0])?;
    }
    Ok(Purged {
        calls: removed as u64,
        more: true,
    })
}
