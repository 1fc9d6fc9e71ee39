//! The claim of a call id and key.
//!
//! A new id is one look-up and one insert; the unique indexes refuse a bound key. Only when that
//! writes nothing is the longer way taken, inside the same transaction: who has the id, who has
//! the key, may they be claimed anew. An id that came with another call's key is kept as an alias
//! of that call.

use std::sync::Arc;

use rusqlite::{OptionalExtension, Row, params};

use super::db::{Db, Hot};
use super::recent::Met;
use super::{fields, read, reversal, words};
use crate::call::id::{ClientName, Fingerprint};
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::crash::{self, Point};
use crate::ledger::rule::Held;
use crate::ledger::{Begun, Claim, DeadState, Known, NewCall, RowId};

/// A look at what decides about rows, found as told.
macro_rules! standing {
    ($found:literal) => {
        concat!(
            "SELECT c.id, c.life, c.fence, c.state, c.binds, c.touched_at, c.window_ms, c.sends, \
             d.state, c.client, c.upstream, c.fingerprint, c.idempotency_key, \
             coalesce(d.reversals, 0), c.told FROM calls c \
             LEFT JOIN dead_letter d ON c.parked AND d.call = c.id AND d.life = c.life ",
            $found
        )
    };
}

/// A new call with its header fields as they are stored; made in the caller's thread, since the
/// writer's time is everybody's.
pub(super) struct Claiming {
    new: NewCall,
    headers: Vec<u8>,
}

impl Claiming {
    pub(super) fn new(new: NewCall) -> Self {
        Self {
            headers: fields::to_text(&new.request.headers),
            new,
        }
    }
}

/// A row that stands in the way, as far as it decides.
struct Standing {
    row: RowId,
    held: Held,
    client: String,
    upstream: String,
    same: bool,
}

/// A first send that is noted with the call: when it was received.
const AS_RECEIVED: i64 = 0;

/// Claims id and key, or says who has them. A reversal ends its original in the same step.
pub(super) fn begin(db: &mut Db, claiming: &Claiming) -> rusqlite::Result<Begun> {
    let begun = claim(db, claiming)?;
    if let (Begun::Claimed(_), Some(undone)) = (&begun, &claiming.new.reverses) {
        reversal::mark(db, &claiming.new, undone)?;
    }
    Ok(begun)
}

fn claim(db: &mut Db, claiming: &Claiming) -> rusqlite::Result<Begun> {
    let policy = db.policy(&claiming.new.policy)?;
    let row = db.fresh_row();
    let fresh = Claim {
        row,
        life: 1,
        fence: 1,
    };
    let new = &claiming.new;
    let free = !has_past(new) && !is_known(db, new)? && alike(db, new)?.is_none();
    if free && insert(db, claiming, policy, row)? {
        crash::at(Point::ClaimWritten);
        return Ok(Begun::Claimed(fresh));
    }
    let standing = by_id(db, new)?;
    let (mine, others): (Vec<_>, Vec<_>) = standing
        .into_iter()
        .partition(|found| new.client.is_or_was(&found.client));
    if let Some(taken) = mine.iter().find(|mine| !mine.held.is_free(new.now)) {
        if taken.same && !taken.held.is_settled() && reversal::is_marked(db, new)? {
            return Ok(Begun::Undone {
                sends: taken.held.sends,
            });
        }
        return Ok(Begun::Known(known(db, taken, new.now)?));
    }
    for client in names(&new.client) {
        if let Some(first) = by_alias(db, new, client)? {
            if !first.held.is_free(new.now) {
                return Ok(Begun::Known(known(db, &first, new.now)?));
            }
            forget_alias(db, new, client)?;
        }
    }
    let shared = |other: &Standing| new.is_at(&other.upstream) && !other.held.is_free(new.now);
    if new.exclusive_id && others.iter().any(shared) {
        return Ok(Begun::Foreign);
    }
    for holder in by_key(db, new)? {
        if !holder.held.is_free(new.now) {
            if holder.same {
                alias(db, new, &holder)?;
            }
            return Ok(Begun::KeyTaken(known(db, &holder, new.now)?));
        }
        release_key(db, holder.row)?;
    }
    if reversal::is_marked(db, new)? {
        return Ok(Begun::Undone { sends: 0 });
    }
    if let Some(first) = alike(db, new)? {
        return Ok(Begun::Alike(known(db, &first, new.now)?));
    }
    let own = |found: &Standing| found.client == new.client.as_str();
    if let Some(mine) = mine.into_iter().find(own) {
        return reclaim(db, claiming, policy, &mine).map(Begun::Claimed);
    }
    if insert(db, claiming, policy, row)? {
        return Ok(Begun::Claimed(fresh));
    }
    // Everything that could stand in the way was looked at: an index says otherwise.
    Err(rusqlite::Error::StatementChangedRows(0))
}

/// Whether a key may bind under a name that client or scope had before, where the index of the
/// present names cannot see it.
fn has_past(new: &NewCall) -> bool {
    let renamed = !new.client.formerly().is_empty() || !new.scope.formerly.is_empty();
    renamed && new.idempotency_key.is_some()
}

/// The name a client has and those it had.
fn names(client: &ClientName) -> impl Iterator<Item = &ClientName> {
    std::iter::once(client).chain(client.formerly())
}

/// Whether any client uses the id, or has undone it.
fn is_known(db: &Db, new: &NewCall) -> rusqlite::Result<bool> {
    let id = [new.call_id.as_str()];
    let sql = "SELECT 1 FROM calls WHERE call_id = ?1";
    if db.hot(Hot::IsKnown, sql)?.exists(id)? {
        return Ok(true);
    }
    let sql = "SELECT 1 FROM aliases WHERE call_id = ?1 \
               UNION ALL SELECT 1 FROM never_send WHERE call_id = ?1";
    Ok(db.has_names_beside.get() && db.conn.prepare_cached(sql)?.exists(id)?)
}

/// Writes a new row, unless an index is in the way.
fn insert(
    db: &mut Db,
    Claiming { new, headers }: &Claiming,
    policy: i64,
    row: RowId,
) -> rusqlite::Result<bool> {
    let sql = "INSERT OR IGNORE INTO calls (id, call_id, client, life, fence, state, binds, \
        key_binds, parked, promised, sends, touched_at, window_ms, owner, lease_until, \
        received_at, updated_at, first_sent_at, route, upstream, policy, source, fingerprint, \
        idempotency_key, business_key, trace, credential, method, target, request_headers, \
        request_body, scope) VALUES (?1, ?2, ?3, 1, 1, ?4, 1, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?11, \
        ?8, 0, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26)";
    let written = db.hot(Hot::Insert, sql)?.execute(params![
        row.0,
        new.call_id.as_str(),
        new.client.as_str(),
        first_state(new).as_str(),
        new.idempotency_key.is_some(),
        new.promised,
        u32::from(new.first_send),
        new.now.0,
        window_ms(new),
        new.owner.as_str(),
        new.lease_until.0,
        new.first_send.then_some(AS_RECEIVED),
        &*new.route,
        &*new.upstream,
        policy,
        new.source.as_str(),
        new.fingerprint.0,
        new.idempotency_key.as_deref(),
        new.business_key.as_deref(),
        new.trace.as_deref(),
        new.request.credential,
        new.request.method.as_str(),
        &*new.request.target,
        headers,
        &*new.request.body,
        key_scope(new),
    ])?;
    if written == 1 {
        db.use_row(row);
    }
    Ok(written == 1)
}

/// A new life of a row whose call is over. Its history and dead letters stay under their life.
fn reclaim(
    db: &Db,
    Claiming { new, headers }: &Claiming,
    policy: i64,
    old: &Standing,
) -> rusqlite::Result<Claim> {
    let claim = Claim {
        row: old.row,
        life: old.held.life + 1,
        fence: old.held.fence.saturating_add(1),
    };
    keep_life(db, old.row)?;
    db.conn
        .prepare_cached("DELETE FROM replies WHERE call = ?1")?
        .execute([old.row.0])?;
    let sql = "UPDATE calls SET life = ?2, fence = ?3, state = ?4, binds = 1, key_binds = ?5, \
        parked = 0, promised = ?6, sends = ?7, touched_at = ?8, window_ms = ?9, purge_at = NULL, \
        owner = ?10, lease_until = ?11, received_at = ?8, updated_at = 0, first_sent_at = ?12, \
        first_ended_at = NULL, first_outcome = NULL, first_took_ms = NULL, settled_at = NULL, \
        settled_by = NULL, route = ?13, upstream = ?14, policy = ?15, source = ?16, \
        fingerprint = ?17, idempotency_key = ?18, business_key = ?19, trace = ?20, \
        credential = ?21, reply_status = NULL, reply_bytes = NULL, reply_sha256 = NULL, \
        method = ?22, target = ?23, request_headers = ?24, request_body = ?25, \
        reply_headers = NULL, reply_body = NULL, document = NULL, scope = ?26, recognised = 0, \
        told = 0 WHERE id = ?1";
    db.conn.prepare_cached(sql)?.execute(params![
        claim.row.0,
        claim.life,
        claim.fence,
        first_state(new).as_str(),
        new.idempotency_key.is_some(),
        new.promised,
        u32::from(new.first_send),
        new.now.0,
        window_ms(new),
        new.owner.as_str(),
        new.lease_until.0,
        new.first_send.then_some(AS_RECEIVED),
        &*new.route,
        &*new.upstream,
        policy,
        new.source.as_str(),
        new.fingerprint.0,
        new.idempotency_key.as_deref(),
        new.business_key.as_deref(),
        new.trace.as_deref(),
        new.request.credential,
        new.request.method.as_str(),
        &*new.request.target,
        headers,
        &*new.request.body,
        key_scope(new),
    ])?;
    Ok(claim)
}

/// Keeps how the life that is over has ended, for the story of the id.
fn keep_life(db: &Db, row: RowId) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO lives (call, life, source, route, upstream, \
        idempotency_key, business_key, fingerprint, state, sends, received_at, first_sent_at, \
        first_ended_at, first_outcome, first_took_ms, settled_at, settled_by, reply_status) \
        SELECT id, life, source, route, upstream, idempotency_key, business_key, fingerprint, \
        state, sends, received_at, first_sent_at, first_ended_at, first_outcome, first_took_ms, \
        settled_at, settled_by, reply_status FROM calls WHERE id = ?1";
    db.conn.prepare_cached(sql)?.execute([row.0])?;
    Ok(())
}

fn key_scope(new: &NewCall) -> Option<&str> {
    let scope = &new.scope.name;
    new.idempotency_key.as_ref().map(|_| &**scope)
}

const fn first_state(new: &NewCall) -> State {
    if new.first_send {
        State::Processing
    } else {
        State::Received
    }
}

fn window_ms(new: &NewCall) -> i64 {
    i64::try_from(new.window.as_millis()).unwrap_or(i64::MAX)
}

/// The call that was there before. A replay of a settled one makes its window run anew.
fn known(db: &Db, standing: &Standing, now: Wall) -> rusqlite::Result<Box<Known>> {
    let mut held = standing.held;
    if let Some(touched) = held.renewed(now).filter(|_| standing.same) {
        db.conn
            .prepare_cached("UPDATE calls SET touched_at = ?2 WHERE id = ?1")?
            .execute(params![standing.row.0, touched.0])?;
        held = held.touched_at(touched);
    }
    let call = read::call(db.conn, standing.row)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
    let call = Arc::new(call);
    if let Some(met) = Met::of(held, &call) {
        db.meet(met);
    }
    Ok(Box::new(Known {
        same_request: standing.same,
        call,
    }))
}

/// The call whose key this id came with, in the life it had then.
fn by_alias(db: &Db, new: &NewCall, client: &ClientName) -> rusqlite::Result<Option<Standing>> {
    let sql = standing!(
        "JOIN aliases a ON a.call = c.id AND a.life = c.life \
         WHERE a.call_id = ?1 AND a.client = ?2"
    );
    db.conn
        .prepare_cached(sql)?
        .query_row([new.call_id.as_str(), client.as_str()], |row| {
            keyed_standing(row, new)
        })
        .optional()
}

fn alias(db: &Db, new: &NewCall, first: &Standing) -> rusqlite::Result<()> {
    db.has_names_beside.set(true);
    db.renamed(&new.call_id);
    let sql = "INSERT OR REPLACE INTO aliases (call_id, client, call, life, at) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    db.conn.prepare_cached(sql)?.execute(params![
        new.call_id.as_str(),
        new.client.as_str(),
        first.row.0,
        first.held.life,
        new.now.0
    ])?;
    Ok(())
}

fn forget_alias(db: &Db, new: &NewCall, client: &ClientName) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("DELETE FROM aliases WHERE call_id = ?1 AND client = ?2")?
        .execute([new.call_id.as_str(), client.as_str()])?;
    Ok(())
}

fn release_key(db: &Db, row: RowId) -> rusqlite::Result<()> {
    db.conn
        .prepare_cached("UPDATE calls SET key_binds = 0 WHERE id = ?1")?
        .execute([row.0])?;
    Ok(())
}

fn by_id(db: &Db, new: &NewCall) -> rusqlite::Result<Vec<Standing>> {
    let sql = standing!("WHERE c.call_id = ?1 ORDER BY c.id");
    db.conn
        .prepare_cached(sql)?
        .query_map([new.call_id.as_str()], |row| keyed_standing(row, new))?
        .collect()
}

/// A known id with another key is another request; without any it is the same one.
fn keyed_standing(row: &Row<'_>, new: &NewCall) -> rusqlite::Result<Standing> {
    let mut found = standing(row, new.fingerprint)?;
    let key = new.idempotency_key.as_deref();
    found.same &= key.is_none() || row.get_ref(12)?.as_str_or_null()? == key;
    Ok(found)
}

/// Whoever has the key: one at most, unless two clients or scopes became one.
fn by_key(db: &Db, new: &NewCall) -> rusqlite::Result<Vec<Standing>> {
    let mut found = Vec::new();
    let Some(key) = &new.idempotency_key else {
        return Ok(found);
    };
    let sql = standing!(
        "WHERE c.client = ?1 AND c.scope = ?2 AND c.idempotency_key = ?3 \
         AND c.key_binds = 1"
    );
    let mut statement = db.conn.prepare_cached(sql)?;
    for client in names(&new.client) {
        for scope in new.scope.names() {
            let of = params![client.as_str(), &**scope, &**key];
            found.extend(
                statement
                    .query_row(of, |row| standing(row, new.fingerprint))
                    .optional()?,
            );
        }
    }
    found.sort_by_key(|standing| standing.row);
    Ok(found)
}

/// The first call in the compensation queue that asks for the same.
fn alike(db: &Db, new: &NewCall) -> rusqlite::Result<Option<Standing>> {
    if !new.wary {
        return Ok(None);
    }
    let sql = "SELECT id, client, route FROM calls INDEXED BY calls_alike \
               WHERE fingerprint = ?1 AND parked = 1 AND purge_at IS NULL ORDER BY id";
    let mut statement = db.hot(Hot::Alike, sql)?;
    let mut rows = statement.query([new.fingerprint.0])?;
    while let Some(row) = rows.next()? {
        let (client, route) = (row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?);
        if !new.client.is_or_was(client) || !new.is_route(route) {
            continue;
        }
        let sql = standing!("WHERE c.id = ?1");
        let found = db
            .conn
            .prepare_cached(sql)?
            .query_row([row.get::<_, i64>(0)?], |row| {
                standing(row, new.fingerprint)
            })?;
        if found.held.dead.is_some_and(DeadState::is_open) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn standing(row: &Row<'_>, fingerprint: Fingerprint) -> rusqlite::Result<Standing> {
    Ok(Standing {
        row: RowId(row.get(0)?),
        held: held(row)?,
        client: row.get(9)?,
        upstream: row.get(10)?,
        same: row.get::<_, [u8; 32]>(11)? == fingerprint.0,
    })
}

/// What decides about one row.
pub(super) fn held_of(db: &Db, row: RowId) -> rusqlite::Result<Option<Held>> {
    let sql = standing!("WHERE c.id = ?1");
    db.conn
        .prepare_cached(sql)?
        .query_row([row.0], held)
        .optional()
}

fn held(row: &Row<'_>) -> rusqlite::Result<Held> {
    let touched: i64 = row.get(5)?;
    let window: i64 = row.get(6)?;
    Ok(Held {
        life: row.get(1)?,
        fence: row.get(2)?,
        state: words::word(row, 3, State::from_word)?,
        binds: row.get(4)?,
        touched: Wall(touched),
        remembered_until: Wall(touched.saturating_add(window)),
        sends: row.get(7)?,
        dead: words::optional_word(row, 8, DeadState::from_word)?,
        reversals: row.get(13)?,
        told: row.get(14)?,
    })
}
