//! Intentions: written only under the current claim, each one step.

use std::sync::Arc;

use rusqlite::params;

use super::begin::held_of;
use super::db::Db;
use super::reply::Columns;
use crate::call::outcome::Cause;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::{Claim, DeadState, Entry, Intention, Park, Place, RowId, SettledBy, Written};

use super::{history, reversal, words};

/// Writes an intention, if the claim is current and the intention fits.
pub(super) fn append(
    db: &Db,
    claim: Claim,
    now: Wall,
    intention: &Intention,
) -> rusqlite::Result<Written> {
    let Some(held) = held_of(db, claim.row)? else {
        return Ok(Written::Stale);
    };
    if !held.honours(claim) || !held.allows(intention) {
        return Ok(Written::Stale);
    }
    if matches!(intention, Intention::Send { .. }) && reversal::is_undone(db, claim.row)? {
        return Ok(Written::Stale);
    }
    write(db, claim, now, intention, held.dead.is_some())?;
    if intention.is_of_unsent() && held.state != State::Received {
        db.conn
            .prepare_cached("UPDATE calls SET state = ?2 WHERE id = ?1")?
            .execute(params![claim.row.0, State::Received.as_str()])?;
    }
    Ok(Written::Applied)
}

/// Writes an intention that is known to fit.
fn write(
    db: &Db,
    claim: Claim,
    now: Wall,
    intention: &Intention,
    parked: bool,
) -> rusqlite::Result<()> {
    match intention {
        Intention::Send {
            n,
            cause,
            moved,
            lease_until,
        } => {
            if let Some(to) = moved {
                move_to(db, claim, now, to)?;
            }
            note_send(db, claim, now, (*n, *cause), parked)?;
            hold(db, claim.row, *lease_until, parked)?;
        }
        Intention::Tell => tell(db, claim.row)?,
        Intention::Park(how) => park(db, claim.row, claim.life, now, how)?,
        Intention::NextRound {
            round,
            due,
            last_error,
            ..
        } => {
            let step = Step {
                state: DeadState::Queued,
                reason: None,
                round: *round,
                last_error,
            };
            move_on(db, claim, now, Some(*due), &step)?;
        }
        Intention::Manual {
            reason,
            round,
            last_error,
            ..
        } => {
            let reason = Some(&**reason);
            let step = Step {
                state: DeadState::Manual,
                reason,
                round: *round,
                last_error,
            };
            move_on(db, claim, now, None, &step)?;
        }
        Intention::Reverse {
            n,
            request,
            lease_until,
        } => {
            reversal::send(db, claim, now, (*n, request))?;
            hold(db, claim.row, *lease_until, true)?;
        }
        Intention::ReverseAgain { due, last_error } => {
            reversal::again(db, claim, now, *due, last_error)?;
        }
        Intention::Reversed => reversal::done(db, claim, now)?,
        Intention::ReleaseLease { .. } => release(db, claim)?,
    }
    Ok(())
}

/// Extends a lease, if the claim is current and somebody works under it.
pub(super) fn extend(db: &Db, claim: Claim, lease_until: Wall) -> rusqlite::Result<Written> {
    match held_of(db, claim.row)? {
        Some(held) if held.honours(claim) && held.is_worked_on() => {
            hold(db, claim.row, lease_until, held.dead.is_some())?;
            Ok(Written::Applied)
        }
        _ => Ok(Written::Stale),
    }
}

/// Notes that the tool knows the call; once is enough.
pub(super) fn recognise(db: &Db, row: RowId, life: u32) -> rusqlite::Result<()> {
    let sql = "UPDATE calls SET recognised = 1 \
               WHERE id = ?1 AND life = ?2 AND settled_at IS NULL AND recognised = 0";
    db.conn.prepare_cached(sql)?.execute(params![row.0, life])?;
    Ok(())
}

/// Notes that a part of the answer may reach the caller from now on.
fn tell(db: &Db, row: RowId) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("UPDATE calls SET told = 1 WHERE id = ?1")?
        .execute([row.0])?;
    Ok(())
}

fn note_send(
    db: &Db,
    claim: Claim,
    now: Wall,
    (n, cause): (u32, Option<Cause>),
    parked: bool,
) -> rusqlite::Result<()> {
    let state = if parked {
        State::Unknown
    } else {
        State::Processing
    };
    let sql = "UPDATE calls SET sends = ?2, state = ?3, updated_at = ?4, \
               first_sent_at = coalesce(first_sent_at, ?4) WHERE id = ?1";
    db.conn
        .prepare_cached(sql)?
        .execute(params![claim.row.0, n, state.as_str(), now.0])?;
    // A first send that came with its call stands in the call's row; this one came later.
    let sent = Entry::Sent { at: now, n, cause };
    history::write(db, claim.row, claim.life, &sent)
}

/// From now on the call is one of this address: asked, sent again and undone there.
fn move_to(db: &Db, claim: Claim, now: Wall, to: &Arc<str>) -> rusqlite::Result<()> {
    let from = db
        .conn
        .prepare_cached("SELECT upstream FROM calls WHERE id = ?1")?
        .query_row([claim.row.0], |row| words::text(row, 0))?;
    db.conn
        .prepare_cached("UPDATE calls SET upstream = ?2 WHERE id = ?1")?
        .execute(params![claim.row.0, &**to])?;
    let to = Arc::clone(to);
    let moved = Entry::Moved { at: now, from, to };
    history::write(db, claim.row, claim.life, &moved)
}

fn hold(db: &Db, row: RowId, lease_until: Wall, parked: bool) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("UPDATE calls SET lease_until = ?2 WHERE id = ?1")?
        .execute(params![row.0, lease_until.0])?;
    if parked {
        let sql = "UPDATE dead_letter SET lease_until = ?2 \
                   WHERE call = ?1 AND life = (SELECT life FROM calls WHERE id = ?1)";
        db.conn
            .prepare_cached(sql)?
            .execute(params![row.0, lease_until.0])?;
    }
    Ok(())
}

/// Makes a dead letter of an open call. The caller has made sure that it may.
pub(super) fn park(db: &Db, row: RowId, life: u32, now: Wall, how: &Park) -> rusqlite::Result<()> {
    let (state, due, ended) = match how.place {
        Place::Queued { due } => (DeadState::Queued, Some(due), None),
        Place::Manual => (DeadState::Manual, None, None),
        Place::NeverSent => (DeadState::Failed, None, Some(now)),
    };
    if ended.is_some() {
        end_never_sent(db, row, now)?;
    } else {
        let word = if how.reached {
            State::Unknown
        } else {
            State::Received
        };
        db.conn
            .prepare_cached(
                "UPDATE calls SET parked = 1, state = ?2, updated_at = ?3 WHERE id = ?1",
            )?
            .execute(params![row.0, word.as_str(), now.0])?;
    }
    if let (Some(kept), None) = (&how.kept, ended) {
        keep(db, row, &Columns::of(Some(kept)))?;
    }
    let sql = "INSERT INTO dead_letter (call, life, call_id, route, client, business_key, \
        request_id, reason, last_error, fail_count, next_retry_time, create_time, state, round, \
        fence, ended_at, begun_by) SELECT id, life, call_id, route, client, business_key, \
        idempotency_key, ?2, ?3, 0, ?4, ?5, ?6, 0, fence, ?7, nullif(owner, '') FROM calls \
        WHERE id = ?1";
    db.conn.prepare_cached(sql)?.execute(params![
        row.0,
        how.reason,
        &*how.last_error,
        due.map(|due| due.0),
        now.0,
        state.as_str(),
        ended.map(|at| at.0),
    ])?;
    let entry = Entry::Parked {
        at: now,
        state,
        reason: how.reason.clone(),
        round: 0,
    };
    history::write(db, row, life, &entry)
}

fn end_never_sent(db: &Db, row: RowId, now: Wall) -> rusqlite::Result<()> {
    let sql = "UPDATE calls SET parked = 1, state = 'FAILED', binds = 0, key_binds = 0, \
        updated_at = ?2, settled_at = ?2, settled_by = ?3, touched_at = max(touched_at, ?2), \
        purge_at = max(touched_at, ?2) + window_ms, owner = '', lease_until = 0 WHERE id = ?1";
    let by = words::settled_by_text(SettledBy::NeverSent);
    db.conn
        .prepare_cached(sql)?
        .execute(params![row.0, now.0, by])?;
    Ok(())
}

fn keep(db: &Db, row: RowId, reply: &Columns<'_>) -> rusqlite::Result<()> {
    let sql = "UPDATE calls SET reply_status = ?2, reply_bytes = ?3, reply_sha256 = ?4, \
               reply_headers = ?5, reply_body = ?6 WHERE id = ?1";
    db.conn.prepare_cached(sql)?.execute(params![
        row.0,
        reply.status,
        reply.bytes,
        reply.sha256,
        reply.headers,
        reply.body
    ])?;
    Ok(())
}

/// Where a dead letter goes after a round.
struct Step<'a> {
    state: DeadState,
    /// A new reason, when there is one.
    reason: Option<&'a str>,
    round: u32,
    last_error: &'a str,
}

fn move_on(
    db: &Db,
    claim: Claim,
    now: Wall,
    due: Option<Wall>,
    step: &Step<'_>,
) -> rusqlite::Result<()> {
    let sql = "UPDATE dead_letter SET state = ?3, reason = coalesce(?4, reason), round = ?5, \
        last_error = ?6, next_retry_time = ?7, fail_count = fail_count + 1, by_hand = 0, \
        owner = NULL, lease_until = NULL WHERE call = ?1 AND life = ?2";
    db.conn.prepare_cached(sql)?.execute(params![
        claim.row.0,
        claim.life,
        step.state.as_str(),
        step.reason,
        step.round,
        step.last_error,
        due.map(|due| due.0),
    ])?;
    db.conn
        .prepare_cached("UPDATE calls SET updated_at = ?2 WHERE id = ?1")?
        .execute(params![claim.row.0, now.0])?;
    let entry = Entry::Parked {
        at: now,
        state: step.state,
        reason: step.reason.unwrap_or(step.last_error).to_owned().into(),
        round: step.round,
    };
    history::write(db, claim.row, claim.life, &entry)
}

fn release(db: &Db, claim: Claim) -> rusqlite::Result<()> {
    let sql = "UPDATE dead_letter SET \
        state = CASE WHEN state = 'REVERSING' THEN state WHEN by_hand THEN 'MANUAL' \
        ELSE 'QUEUED' END, by_hand = 0, owner = NULL, lease_until = NULL \
        WHERE call = ?1 AND life = ?2";
    db.conn
        .prepare_cached(sql)?
        .execute(params![claim.row.0, claim.life])?;
    Ok(())
}
