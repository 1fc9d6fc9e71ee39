//! Bulk jobs as rows: made with their items in one transaction, worked off item by item.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::desk::Verb;
use crate::ledger::desk::job::{
    Cancelled, ITEMS_MAX, ItemEnd, ItemState, Job, JobId, JobItem, JobMade, JobState, NewJob,
    RUNNING_MAX, Taken,
};
use crate::ledger::sqlite::db::Db;
use crate::ledger::sqlite::{history, list, words};
use crate::ledger::{Owner, PAGE_MAX, RowId};

/// The columns of a job, in the order in which [`job`] reads them.
const JOB: &str = "SELECT id, verb, filter, who, why, at, per_minute, state, total, unended, \
    beyond, ended_at, ended_by FROM jobs";

/// Items forgotten at one time: everybody who writes waits meanwhile.
const PURGED_MAX: i64 = 1_000;

/// Makes a job of the rows that match, or finds the running one that does the same.
pub(super) fn make(db: &Db, new: &NewJob) -> rusqlite::Result<JobMade> {
    let conn = db.conn;
    let (verb, text) = (new.verb.as_str(), &*new.text);
    let sql = "SELECT id FROM jobs WHERE verb = ?1 AND filter = ?2 AND state = 'RUNNING'";
    let same = conn
        .prepare_cached(sql)?
        .query_row([verb, text], |row| row.get(0).map(JobId))
        .optional()?;
    if let Some(job) = same {
        return Ok(one(conn, job)?.map_or(JobMade::Nothing, JobMade::Joined));
    }
    let running: i64 = conn
        .prepare_cached("SELECT count(*) FROM jobs WHERE state = 'RUNNING'")?
        .query_row([], |row| row.get(0))?;
    if usize::try_from(running).is_ok_and(|running| running >= RUNNING_MAX) {
        return Ok(JobMade::TooMany);
    }
    let sql = "INSERT INTO jobs (verb, filter, who, why, at, per_minute, state, total, unended, \
               beyond) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'RUNNING', 0, 0, 0)";
    let (by, per_minute) = (&new.by, new.per_minute);
    let id = conn.prepare_cached(sql)?.insert(params![
        verb,
        text,
        &*by.who,
        by.why.as_deref(),
        by.now.0,
        per_minute
    ])?;
    let (matching, taken) = fill(conn, id, new)?;
    if taken == 0 {
        conn.prepare_cached("DELETE FROM jobs WHERE id = ?1")?
            .execute([id])?;
        return Ok(JobMade::Nothing);
    }
    let sql = "UPDATE jobs SET total = ?2, unended = ?2, beyond = ?3 WHERE id = ?1";
    conn.prepare_cached(sql)?
        .execute([id, taken, matching.saturating_sub(taken)])?;
    Ok(one(conn, JobId(id))?.map_or(JobMade::Nothing, JobMade::Made))
}

/// Writes the items of a job; says how many rows match and how many were taken.
fn fill(conn: &Connection, id: i64, new: &NewJob) -> rusqlite::Result<(i64, i64)> {
    let which = list::conditions(&new.filter);
    let most = i64::try_from(ITEMS_MAX).unwrap_or(i64::MAX);
    let mut values = vec![Value::from(id)];
    values.extend(which.values.iter().cloned());
    values.push(Value::from(most));
    let sql = format!(
        "INSERT INTO job_items (job, seq, call, life, call_id, client, state) \
         SELECT ?, row_number() OVER (ORDER BY call, life), call, life, call_id, client, \
         'WAITING' FROM dead_letter{} ORDER BY call, life LIMIT ?",
        which.text
    );
    let taken = conn.prepare(&sql)?.execute(params_from_iter(values))?;
    let taken = i64::try_from(taken).unwrap_or(i64::MAX);
    if taken < most {
        return Ok((taken, taken));
    }
    Ok((list::count(conn, &new.filter)?, taken))
}

/// The newest jobs, newest first.
pub(super) fn newest(conn: &Connection, limit: usize) -> rusqlite::Result<Vec<Job>> {
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let sql = format!("{JOB} ORDER BY id DESC LIMIT ?1");
    let jobs = conn
        .prepare_cached(&sql)?
        .query_map([limit], job)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    jobs.into_iter().map(|job| counted(conn, job)).collect()
}

/// One job.
pub(super) fn one(conn: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    let sql = format!("{JOB} WHERE id = ?1");
    let found = conn
        .prepare_cached(&sql)?
        .query_row([id.0], job)
        .optional()?;
    found.map(|job| counted(conn, job)).transpose()
}

fn job(row: &Row<'_>) -> rusqlite::Result<Job> {
    Ok(Job {
        id: JobId(row.get(0)?),
        verb: words::word(row, 1, Verb::from_word)?,
        text: words::text(row, 2)?,
        who: words::text(row, 3)?,
        why: words::optional_text(row, 4)?,
        at: Wall(row.get(5)?),
        per_minute: row.get(6)?,
        state: words::word(row, 7, JobState::from_word)?,
        total: row.get(8)?,
        unended: row.get(9)?,
        beyond: row.get(10)?,
        ended_at: row.get::<_, Option<i64>>(11)?.map(Wall),
        ended_by: words::optional_text(row, 12)?,
        results: Vec::new(),
    })
}

fn counted(conn: &Connection, mut job: Job) -> rusqlite::Result<Job> {
    let sql = "SELECT result, count(*) FROM job_items WHERE job = ?1 AND result IS NOT NULL \
               GROUP BY result ORDER BY result";
    job.results = conn
        .prepare_cached(sql)?
        .query_map([job.id.0], |row| Ok((words::text(row, 0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    Ok(job)
}

/// The items of a job after `from`, in order.
pub(super) fn items(
    conn: &Connection,
    id: JobId,
    from: u32,
    limit: usize,
) -> rusqlite::Result<Vec<JobItem>> {
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let sql = "SELECT seq, call, life, call_id, client, state, result, detail, ended_at \
               FROM job_items WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    conn.prepare_cached(sql)?
        .query_map(params![id.0, from, limit], |row| {
            Ok(JobItem {
                seq: row.get(0)?,
                row: RowId(row.get(1)?),
                life: row.get(2)?,
                call_id: words::word(row, 3, |text| CallId::parse(text.as_bytes()).ok())?,
                client: words::word(row, 4, |text| Some(ClientName::new(text)))?,
                state: words::word(row, 5, ItemState::from_word)?,
                result: words::optional_text(row, 6)?,
                detail: words::optional_text(row, 7)?,
                ended_at: row.get::<_, Option<i64>>(8)?.map(Wall),
            })
        })?
        .collect()
}

/// The running jobs; what dead processes had begun of cancelled ones is closed.
pub(super) fn resume(db: &Db, owner: &Owner, now: Wall) -> rusqlite::Result<Vec<Job>> {
    let sql = "SELECT i.job, i.seq FROM jobs j JOIN job_items i ON i.job = j.id \
        WHERE j.state = 'CANCELLED' AND j.unended > 0 AND i.state = 'BEGUN' AND i.owner <> ?1";
    let left: Vec<(i64, u32)> = db
        .conn
        .prepare_cached(sql)?
        .query_map([owner.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    let end = ItemEnd {
        result: "interrupted",
        detail: Some("the gateway ended while it was at it, and the job is cancelled".into()),
    };
    for (job, seq) in left {
        end_item(db, JobId(job), seq, now, &end)?;
    }
    let sql = format!("{JOB} WHERE state = 'RUNNING' ORDER BY id");
    db.conn
        .prepare_cached(&sql)?
        .query_map([], job)?
        .collect::<rusqlite::Result<Vec<_>>>()
}

/// The next items of a running job, begun for `owner`.
pub(super) fn take(
    db: &Db,
    id: JobId,
    owner: &Owner,
    limit: usize,
) -> rusqlite::Result<Vec<Taken>> {
    // The index holds what is not done; items of this owner that run now are skipped in it.
    let sql = "SELECT i.seq, i.call, i.life, i.state = 'BEGUN' FROM job_items i JOIN jobs j \
        ON j.id = i.job WHERE i.job = ?1 AND i.state <> 'DONE' AND j.state = 'RUNNING' \
        AND (i.state = 'WAITING' OR i.owner <> ?2) ORDER BY i.seq LIMIT ?3";
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let taken: Vec<Taken> = db
        .conn
        .prepare_cached(sql)?
        .query_map(params![id.0, owner.as_str(), limit], |row| {
            Ok(Taken {
                seq: row.get(0)?,
                row: RowId(row.get(1)?),
                life: row.get(2)?,
                again: row.get(3)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let sql = "UPDATE job_items SET state = 'BEGUN', owner = ?3 WHERE job = ?1 AND seq = ?2";
    for item in &taken {
        db.conn
            .prepare_cached(sql)?
            .execute(params![id.0, item.seq, owner.as_str()])?;
    }
    Ok(taken)
}

/// Writes the result of an item that has none; the last one ends the job.
pub(super) fn end_item(
    db: &Db,
    id: JobId,
    seq: u32,
    now: Wall,
    end: &ItemEnd,
) -> rusqlite::Result<()> {
    let sql = "UPDATE job_items SET state = 'DONE', result = ?3, detail = ?4, ended_at = ?5 \
               WHERE job = ?1 AND seq = ?2 AND state = 'BEGUN'";
    let (result, detail) = (end.result, end.detail.as_deref());
    let written = db
        .conn
        .prepare_cached(sql)?
        .execute(params![id.0, seq, result, detail, now.0])?;
    if written == 1 {
        let sql = "UPDATE jobs SET unended = unended - 1, \
            ended_at = iif(unended = 1, coalesce(ended_at, ?2), ended_at), \
            state = iif(unended = 1 AND state = 'RUNNING', 'DONE', state) WHERE id = ?1";
        db.conn.prepare_cached(sql)?.execute([id.0, now.0])?;
    }
    Ok(())
}

/// Stops a running job.
pub(super) fn cancel(db: &Db, id: JobId, who: &str, now: Wall) -> rusqlite::Result<Cancelled> {
    let sql = "UPDATE jobs SET state = 'CANCELLED', ended_at = ?2, ended_by = ?3 \
               WHERE id = ?1 AND state = 'RUNNING'";
    let written = db
        .conn
        .prepare_cached(sql)?
        .execute(params![id.0, now.0, who])?;
    Ok(match one(db.conn, id)? {
        None => Cancelled::Gone,
        Some(job) if written == 1 => Cancelled::Applied(job),
        Some(job) => Cancelled::Already(job),
    })
}

/// Forgets a job that ended longer ago than the retention, or the first part of a large one.
pub(super) fn purge(db: &Db, now: Wall) -> rusqlite::Result<()> {
    let before = now.0.saturating_sub(history::millis(db.retention));
    let sql = "SELECT id FROM jobs WHERE state <> 'RUNNING' AND ended_at <= ?1 \
               ORDER BY id LIMIT 1";
    let old: Option<i64> = db
        .conn
        .prepare_cached(sql)?
        .query_row([before], |row| row.get(0))
        .optional()?;
    let Some(id) = old else { return Ok(()) };
    let sql = "DELETE FROM job_items WHERE job = ?1 AND seq IN \
               (SELECT seq FROM job_items WHERE job = ?1 ORDER BY seq LIMIT ?2)";
    let gone = db.conn.prepare_cached(sql)?.execute([id, PURGED_MAX])?;
    if i64::try_from(gone).unwrap_or(i64::MAX) < PURGED_MAX {
        db.conn
            .prepare_cached("DELETE FROM jobs WHERE id = ?1")?
            .execute([id])?;
    }
    Ok(())
}
