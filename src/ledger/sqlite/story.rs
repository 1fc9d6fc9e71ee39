//! The whole story of a call: earlier lives, aliases, kin. Reads only, in one snapshot.

use http::StatusCode;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{desk, read, words};
use crate::call::id::{CallId, ClientName};
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::story::{Alias, Found, KIN_MAX, KIN_SPAN, Kin, Life, PastEnd, Story};
use crate::ledger::{CallView, RowId, SettledBy};

/// The stories of every call that `name` means: as a call id, else as a key.
pub(super) fn stories(
    conn: &Connection,
    client: Option<&ClientName>,
    name: &str,
) -> rusqlite::Result<Vec<Story>> {
    // A reader thread has one open for all it is asked at once; a stopped ledger's reader has not.
    let alone = conn.is_autocommit();
    let _snapshot = alone.then(|| conn.unchecked_transaction()).transpose()?;
    let mut found = by_id(conn, client, name)?;
    if found.is_empty() {
        found = by_key(conn, client, name)?;
    }
    found
        .into_iter()
        .map(|(call, found)| tell(conn, call, found))
        .collect()
}

fn by_id(
    conn: &Connection,
    client: Option<&ClientName>,
    name: &str,
) -> rusqlite::Result<Vec<(CallView, Found)>> {
    let Ok(id) = CallId::parse(name.as_bytes()) else {
        return Ok(Vec::new());
    };
    let calls = read::calls(conn, client, &id)?;
    let found = calls.into_iter().map(|call| {
        let own = call.call_id == id;
        (call, if own { Found::CallId } else { Found::Alias })
    });
    Ok(found.collect())
}

/// The newest call of each client with this key, or with a key made from this text.
fn by_key(
    conn: &Connection,
    client: Option<&ClientName>,
    name: &str,
) -> rusqlite::Result<Vec<(CallView, Found)>> {
    let sql = "SELECT max(id) FROM calls WHERE id > (SELECT coalesce(max(id), 0) FROM calls) - ?3 \
               AND (idempotency_key = ?1 OR business_key = ?1) AND (?2 IS NULL OR client = ?2) \
               GROUP BY client ORDER BY client";
    let rows = conn
        .prepare_cached(sql)?
        .query_map(
            params![name, client.map(ClientName::as_str), 2 * KIN_SPAN],
            |row| Ok(RowId(row.get(0)?)),
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut calls = Vec::with_capacity(rows.len());
    for row in rows {
        calls.extend(read::call(conn, row)?.map(|call| (call, Found::Key)));
    }
    Ok(calls)
}

fn tell(conn: &Connection, call: CallView, found: Found) -> rusqlite::Result<Story> {
    let (row, life) = (call.row, call.life);
    let sql = "SELECT touched_at + window_ms, text FROM calls \
               JOIN policies ON policies.id = calls.policy WHERE calls.id = ?1";
    let (remembered_until, policy) = conn
        .prepare_cached(sql)?
        .query_row([row.0], |row| Ok((Wall(row.get(0)?), words::text(row, 1)?)))?;
    let past = (1..life).map(|life| past(conn, row, life));
    Ok(Story {
        found,
        remembered_until,
        policy,
        past: past.collect::<rusqlite::Result<_>>()?,
        aliases: aliases(conn, row)?,
        acts: desk::audit(conn, row)?,
        kin: kin(conn, &call)?,
        searched_all: searched_all(conn, row)?,
        call,
    })
}

fn past(conn: &Connection, row: RowId, life: u32) -> rusqlite::Result<Life> {
    let sql = "SELECT received_at, state, idempotency_key, settled_at, settled_by, reply_status, \
               first_sent_at, first_ended_at, first_outcome, first_took_ms FROM lives \
               WHERE call = ?1 AND life = ?2";
    let kept = conn
        .prepare_cached(sql)?
        .query_row(params![row.0, life], |row| {
            let ended = past_end(row)?;
            let said = (ended.state, row.get(5)?);
            let first = (
                read::first_sent(row, 6, ended.received_at)?,
                read::first_end(row, 7, said)?,
            );
            Ok((ended, first))
        })
        .optional()?;
    let (end, (sent, ended)) = kept.map_or((None, (None, None)), |(end, first)| (Some(end), first));
    let history = read::history(conn, row, life)?;
    Ok(Life {
        life,
        end,
        dead_letter: read::dead_letter(conn, row, life)?,
        differences: read::differences(conn, row, life)?,
        history: read::with_first(history, sent, ended),
    })
}

fn past_end(row: &Row<'_>) -> rusqlite::Result<PastEnd> {
    Ok(PastEnd {
        received_at: Wall(row.get(0)?),
        state: words::word(row, 1, State::from_word)?,
        idempotency_key: words::optional_text(row, 2)?,
        settled: settled(row, 3)?,
        status: row
            .get::<_, Option<u16>>(5)?
            .and_then(|status| StatusCode::from_u16(status).ok()),
    })
}

/// When and by what, in two columns from `at`.
fn settled(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<(SettledBy, Wall)>> {
    let by = words::optional_word(row, at + 1, words::settled_by)?;
    Ok(by.zip(row.get::<_, Option<i64>>(at)?.map(Wall)))
}

fn aliases(conn: &Connection, row: RowId) -> rusqlite::Result<Vec<Alias>> {
    let sql = "SELECT call_id, life, at FROM aliases WHERE call = ?1 ORDER BY at, call_id LIMIT ?2";
    conn.prepare_cached(sql)?
        .query_map(params![row.0, KIN_MAX as i64], |row| {
            Ok(Alias {
                call_id: words::word(row, 0, |text| CallId::parse(text.as_bytes()).ok())?,
                life: row.get(1)?,
                at: Wall(row.get(2)?),
            })
        })?
        .collect()
}

fn kin(conn: &Connection, call: &CallView) -> rusqlite::Result<Vec<Kin>> {
    let sql = "SELECT call_id, client, source, state, idempotency_key, \
        coalesce(idempotency_key = ?5 OR business_key = ?6, 0), fingerprint = ?4, sends, \
        received_at, settled_at, settled_by, touched_at + window_ms \
        FROM calls WHERE id BETWEEN ?1 - ?7 AND ?1 + ?7 AND id <> ?1 AND client = ?2 \
        AND ((route = ?3 AND fingerprint = ?4) OR (scope = (SELECT scope FROM calls WHERE id = ?1) \
        AND (idempotency_key = ?5 OR business_key = ?6))) \
        ORDER BY abs(id - ?1), id LIMIT ?8";
    let mut found: Vec<Kin> = conn
        .prepare_cached(sql)?
        .query_map(
            params![
                call.row.0,
                call.client.as_str(),
                &*call.route,
                call.fingerprint.0,
                call.idempotency_key.as_deref(),
                call.business_key.as_deref(),
                KIN_SPAN,
                KIN_MAX as i64,
            ],
            one_kin,
        )?
        .collect::<rusqlite::Result<_>>()?;
    found.sort_by(|a, b| {
        (a.received_at, a.call_id.as_str()).cmp(&(b.received_at, b.call_id.as_str()))
    });
    Ok(found)
}

fn one_kin(row: &Row<'_>) -> rusqlite::Result<Kin> {
    Ok(Kin {
        call_id: words::word(row, 0, |text| CallId::parse(text.as_bytes()).ok())?,
        client: words::word(row, 1, |text| Some(ClientName::new(text)))?,
        source: words::word(row, 2, words::source)?,
        state: words::word(row, 3, State::from_word)?,
        idempotency_key: words::optional_text(row, 4)?,
        same_key: row.get(5)?,
        same_request: row.get(6)?,
        sends: row.get(7)?,
        received_at: Wall(row.get(8)?),
        settled: settled(row, 9)?,
        remembered_until: Wall(row.get(11)?),
    })
}

fn searched_all(conn: &Connection, row: RowId) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT ?1 - min(id) <= ?2 AND max(id) - ?1 <= ?2 FROM calls")?
        .query_row([row.0, KIN_SPAN], |found| found.get(0))
}
