//! The operator's verbs in the file: decisions and the audit.
//!
//! A decision and its line are one transaction, like every verb. What may ask or send gets its
//! line first and the end of it later, so that a crash in between shows as a line without an end.

mod differences;
mod jobs;

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::db::Db;
use super::queue::Lane;
use super::{SqliteLedger, list, words};
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::desk::job::{Cancelled, ItemEnd, Job, JobId, JobItem, JobMade, NewJob, Taken};
use crate::ledger::desk::judge::{Judgement, Standing, after, judge};
use crate::ledger::desk::{
    AuditId, AuditLine, By, Decided, Decision, Desk, DifferenceCursor, DifferencePage, OrderLine,
    Sample, Verb, WhichDifferences,
};
use crate::ledger::{DeadState, Filter, Owner, Pending, RowId, SettledBy, Verdict};

impl Desk for SqliteLedger {
    fn decide(&self, decision: Decision) -> Pending<Decided> {
        self.write(Lane::Reserved, move |db| decide(db, &decision))
    }

    fn order(&self, order: OrderLine) -> Pending<AuditId> {
        self.write(Lane::Reserved, move |db| {
            let before = state_word(db, order.row, order.life)?;
            let open = Ends::Later;
            write_line(
                db,
                (order.row, order.life),
                order.verb,
                &order.by,
                &before,
                open,
            )
        })
    }

    fn performed(&self, line: AuditId, now: Wall, told: Arc<str>) -> Pending<()> {
        self.write(Lane::Reserved, move |db| performed(db, line, now, &told))
    }

    fn audit(&self, row: RowId) -> Pending<Vec<AuditLine>> {
        self.read(move |conn| audit(conn, row))
    }

    fn differences(
        &self,
        which: WhichDifferences,
        from: Option<DifferenceCursor>,
        limit: usize,
    ) -> Pending<DifferencePage> {
        self.read(move |conn| differences::page(conn, &which, from, limit))
    }

    fn sample(&self, filter: Filter, limit: usize) -> Pending<Sample> {
        self.read(move |conn| list::sample(conn, &filter, limit))
    }

    fn make_job(&self, job: NewJob) -> Pending<JobMade> {
        self.write(Lane::Reserved, move |db| jobs::make(db, &job))
    }

    fn jobs(&self, limit: usize) -> Pending<Vec<Job>> {
        self.read(move |conn| jobs::newest(conn, limit))
    }

    fn job(&self, id: JobId) -> Pending<Option<Job>> {
        self.read(move |conn| jobs::one(conn, id))
    }

    fn job_items(&self, id: JobId, from: u32, limit: usize) -> Pending<Vec<JobItem>> {
        self.read(move |conn| jobs::items(conn, id, from, limit))
    }

    fn resume_jobs(&self, owner: Owner, now: Wall) -> Pending<Vec<Job>> {
        self.write(Lane::Reserved, move |db| jobs::resume(db, &owner, now))
    }

    fn take_items(&self, id: JobId, owner: Owner, limit: usize) -> Pending<Vec<Taken>> {
        self.write(Lane::Reserved, move |db| jobs::take(db, id, &owner, limit))
    }

    fn end_item(&self, id: JobId, seq: u32, now: Wall, end: ItemEnd) -> Pending<()> {
        self.write(Lane::Reserved, move |db| {
            jobs::end_item(db, id, seq, now, &end)
        })
    }

    fn cancel_job(&self, id: JobId, who: Arc<str>, now: Wall) -> Pending<Cancelled> {
        self.write(Lane::Reserved, move |db| jobs::cancel(db, id, &who, now))
    }
}

fn decide(db: &Db, decision: &Decision) -> rusqlite::Result<Decided> {
    let (row, life) = (decision.row, decision.life);
    let Some(standing) = standing(db, row, life)? else {
        return Ok(Decided::Gone);
    };
    let judgement = judge(standing, decision.verb);
    let (Some(before), now) = (standing.dead, decision.by.now) else {
        return Ok(match judgement {
            Judgement::Refuse(refusal) => Decided::Refused(refusal),
            Judgement::Settle(_) | Judgement::Discard | Judgement::FreeKey | Judgement::Already => {
                Decided::Gone
            }
        });
    };
    match judgement {
        Judgement::Refuse(refusal) => return Ok(Decided::Refused(refusal)),
        Judgement::Already => return Ok(Decided::Already(before)),
        Judgement::Settle(verdict) => settle(db, decision, verdict)?,
        Judgement::Discard => discard(db, row, now)?,
        Judgement::FreeKey => {
            let sql = "UPDATE calls SET key_binds = 0, updated_at = ?2 WHERE id = ?1";
            db.conn.prepare_cached(sql)?.execute([row.0, now.0])?;
        }
    }
    let now_in = after(judgement, before);
    if now_in != before {
        end_letter(db, row, life, now, now_in)?;
    }
    let told = match judgement {
        Judgement::FreeKey => "the key is free",
        _ => "done",
    };
    let ends = Ends::Now {
        after: now_in.as_str(),
        told,
    };
    write_line(
        db,
        (row, life),
        decision.verb,
        &decision.by,
        before.as_str(),
        ends,
    )?;
    Ok(Decided::Applied {
        before,
        after: now_in,
    })
}

/// What decides about one life of a call; `None` when the row is gone or lives another one.
fn standing(db: &Db, row: RowId, life: u32) -> rusqlite::Result<Option<Standing>> {
    let sql = "SELECT d.state, c.settled_by, c.idempotency_key IS NOT NULL, c.key_binds \
        FROM calls c LEFT JOIN dead_letter d ON c.parked AND d.call = c.id AND d.life = c.life \
        WHERE c.id = ?1 AND c.life = ?2";
    db.conn
        .prepare_cached(sql)?
        .query_row(params![row.0, life], |row| {
            Ok(Standing {
                dead: words::optional_word(row, 0, DeadState::from_word)?,
                by: words::optional_word(row, 1, words::settled_by)?,
                has_key: row.get(2)?,
                key_binds: row.get(3)?,
            })
        })
        .optional()
}

/// Ends the call by an operator's word. A kept 5xx is nobody's answer to it any more.
fn settle(db: &Db, decision: &Decision, verdict: Verdict) -> rusqlite::Result<()> {
    let sql = "UPDATE calls SET state = ?2, binds = 1, key_binds = key_binds AND ?3, \
        touched_at = max(touched_at, ?4), purge_at = max(touched_at, ?4) + window_ms, \
        updated_at = ?4, settled_at = ?4, settled_by = ?5, reply_status = NULL, \
        reply_bytes = NULL, reply_sha256 = NULL, reply_headers = NULL, reply_body = NULL, \
        document = ?6, owner = '', lease_until = 0 WHERE id = ?1";
    db.conn.prepare_cached(sql)?.execute(params![
        decision.row.0,
        verdict.state().as_str(),
        verdict == Verdict::Success,
        decision.by.now.0,
        words::settled_by_text(SettledBy::Operator),
        decision.document.as_deref(),
    ])?;
    Ok(())
}

/// Makes a call that was given up ripe some day: nobody works on it any more.
fn discard(db: &Db, row: RowId, now: Wall) -> rusqlite::Result<()> {
    // UNKNOWN also of what was never sent: a human has given it up.
    let sql = "UPDATE calls SET state = ?3, touched_at = max(touched_at, ?2), \
        purge_at = max(touched_at, ?2) + window_ms, updated_at = ?2 WHERE id = ?1";
    db.conn
        .prepare_cached(sql)?
        .execute(params![row.0, now.0, State::Unknown.as_str()])?;
    Ok(())
}

fn end_letter(db: &Db, row: RowId, life: u32, now: Wall, state: DeadState) -> rusqlite::Result<()> {
    let sql = "UPDATE dead_letter SET state = ?3, ended_at = ?4, next_retry_time = NULL, \
               by_hand = 0, owner = NULL, lease_until = NULL WHERE call = ?1 AND life = ?2";
    db.conn
        .prepare_cached(sql)?
        .execute(params![row.0, life, state.as_str(), now.0])?;
    Ok(())
}

/// The state a line of the audit shows: the dead letter's, else the call's.
fn state_word(db: &Db, row: RowId, life: u32) -> rusqlite::Result<String> {
    let sql = "SELECT coalesce((SELECT state FROM dead_letter WHERE call = ?1 AND life = ?2), \
               (SELECT state FROM calls WHERE id = ?1 AND life = ?2), 'GONE')";
    db.conn
        .prepare_cached(sql)?
        .query_row(params![row.0, life], |row| row.get(0))
}

/// Whether a line of the audit is complete when it is written.
#[derive(Clone, Copy)]
enum Ends<'a> {
    Now { after: &'a str, told: &'a str },
    Later,
}

fn write_line(
    db: &Db,
    (row, life): (RowId, u32),
    verb: Verb,
    by: &By,
    before: &str,
    ends: Ends<'_>,
) -> rusqlite::Result<AuditId> {
    let (after, told, ended_at) = match ends {
        Ends::Now { after, told } => (Some(after), Some(told), Some(by.now.0)),
        Ends::Later => (None, None, None),
    };
    let sql = "INSERT INTO audit (at, who, verb, why, call, life, call_id, client, job, before, \
        after, told, ended_at) SELECT ?3, ?4, ?5, ?6, ?1, ?2, call_id, client, ?7, ?8, ?9, ?10, \
        ?11 FROM calls WHERE id = ?1";
    let id = db.conn.prepare_cached(sql)?.insert(params![
        row.0,
        life,
        by.now.0,
        &*by.who,
        verb.as_str(),
        by.why.as_deref(),
        by.job.map(|job| job.0),
        before,
        after,
        told,
        ended_at,
    ])?;
    Ok(AuditId(id))
}

fn performed(db: &Db, line: AuditId, now: Wall, told: &str) -> rusqlite::Result<()> {
    let sql = "UPDATE audit SET told = ?2, ended_at = ?3, after = coalesce((SELECT state FROM \
        dead_letter d WHERE d.call = audit.call AND d.life = audit.life), (SELECT state FROM \
        calls c WHERE c.id = audit.call AND c.life = audit.life), 'GONE') WHERE id = ?1";
    db.conn
        .prepare_cached(sql)?
        .execute(params![line.0, told, now.0])?;
    Ok(())
}

pub(super) fn audit(conn: &Connection, row: RowId) -> rusqlite::Result<Vec<AuditLine>> {
    let sql = "SELECT id, life, at, who, verb, why, job, before, after, told, ended_at \
               FROM audit WHERE call = ?1 ORDER BY id";
    conn.prepare_cached(sql)?
        .query_map([row.0], audit_line)?
        .collect()
}

fn audit_line(row: &Row<'_>) -> rusqlite::Result<AuditLine> {
    Ok(AuditLine {
        id: AuditId(row.get(0)?),
        life: row.get(1)?,
        at: Wall(row.get(2)?),
        who: words::text(row, 3)?,
        verb: words::word(row, 4, Verb::from_word)?,
        why: words::optional_text(row, 5)?,
        job: row.get::<_, Option<i64>>(6)?.map(JobId),
        before: words::text(row, 7)?,
        after: words::optional_text(row, 8)?,
        told: words::optional_text(row, 9)?,
        ended_at: row.get::<_, Option<i64>>(10)?.map(Wall),
    })
}

/// Forgets jobs that ended longer ago than the retention, a few at a time.
pub(super) fn purge(db: &Db, now: Wall) -> rusqlite::Result<()> {
    jobs::purge(db, now)
}
