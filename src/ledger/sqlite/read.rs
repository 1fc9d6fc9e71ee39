//! Rows as the values readers see.
//!
//! Used by the reader threads and, inside its transaction, by the writer (what a repeat meets, what
//! is due), so that both tell a call the same way.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::{fields, reversal, words};
use crate::call::id::{CallId, ClientName, Fingerprint};
use crate::call::outcome::Outcome;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::view::Difference;
use crate::ledger::{
    CallView, Claim, DeadLetter, DeadState, Due, Entry, Kept, KeyScope, Owner, ProofNote, Reply,
    RowId, Settlement, StoredRequest, Tally, Verdict,
};

/// The columns of a call, in the order in which [`call_row`] reads them.
const CALL: &str = "SELECT id, life, call_id, source, client, route, upstream, idempotency_key, \
    business_key, fingerprint, trace, state, binds, owner, lease_until, received_at, updated_at, \
    first_sent_at, sends, first_ended_at, first_outcome, first_took_ms, settled_at, settled_by, \
    reply_status, reply_bytes, reply_sha256, coalesce(kept_headers, reply_headers), \
    coalesce(kept_body, reply_body), coalesce(kept_document, document), parked, promised, \
    recognised, told \
    FROM calls LEFT JOIN replies ON replies.call = calls.id";

/// One call by its row, with everything known about its current life.
pub(super) fn call(conn: &Connection, row: RowId) -> rusqlite::Result<Option<CallView>> {
    let sql = format!("{CALL} WHERE id = ?1");
    let found = conn
        .prepare_cached(&sql)?
        .query_row([row.0], call_row)
        .optional()?;
    found
        .map(|(call, rest)| complete(conn, call, rest))
        .transpose()
}

/// Every call with this id, of one client or of all.
pub(super) fn calls(
    conn: &Connection,
    client: Option<&ClientName>,
    call_id: &CallId,
) -> rusqlite::Result<Vec<CallView>> {
    // An alias shows the call whose key it came with, and comes first: it stands only where an own
    // call of that id is over.
    let sql = format!(
        "{CALL} WHERE (call_id = ?1 AND (?2 IS NULL OR client = ?2)) OR id IN \
         (SELECT a.call FROM aliases a JOIN calls first ON first.id = a.call \
         AND first.life = a.life WHERE a.call_id = ?1 AND (?2 IS NULL OR a.client = ?2)) \
         ORDER BY call_id = ?1, id"
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let found = statement
        .query_map(
            params![call_id.as_str(), client.map(ClientName::as_str)],
            call_row,
        )?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    found
        .into_iter()
        .map(|(call, rest)| complete(conn, call, rest))
        .collect()
}

/// Whether one of the client's names has a call under this id, or under this key.
pub(super) fn knows(
    conn: &Connection,
    client: &ClientName,
    call_id: Option<&CallId>,
    key: Option<&(Arc<str>, Arc<KeyScope>)>,
) -> rusqlite::Result<bool> {
    let by_id = "SELECT 1 FROM calls WHERE call_id = ?1 AND client = ?2 UNION ALL \
        SELECT 1 FROM aliases a JOIN calls first ON first.id = a.call AND first.life = a.life \
        WHERE a.call_id = ?1 AND a.client = ?2";
    let by_key = "SELECT 1 FROM calls \
        WHERE client = ?1 AND scope = ?2 AND idempotency_key = ?3 AND key_binds = 1";
    for client in std::iter::once(client).chain(client.formerly()) {
        if let Some(id) = call_id
            && conn
                .prepare_cached(by_id)?
                .exists([id.as_str(), client.as_str()])?
        {
            return Ok(true);
        }
        let Some((key, scopes)) = key else {
            continue;
        };
        for scope in scopes.names() {
            let of = params![client.as_str(), &**scope, &**key];
            if conn.prepare_cached(by_key)?.exists(of)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What a row of `calls` holds for the history besides the view itself.
struct Rest {
    first_end: Option<Entry>,
    parked: bool,
}

fn call_row(row: &Row<'_>) -> rusqlite::Result<(CallView, Rest)> {
    let state = words::word(row, 11, State::from_word)?;
    let reply = reply(row, 24)?;
    let settled = settlement(row, state, reply.clone())?;
    let received_at = Wall(row.get(15)?);
    let view = CallView {
        row: RowId(row.get(0)?),
        life: row.get(1)?,
        call_id: words::word(row, 2, |text| CallId::parse(text.as_bytes()).ok())?,
        source: words::word(row, 3, words::source)?,
        client: words::word(row, 4, |text| Some(ClientName::new(text)))?,
        route: words::text(row, 5)?,
        upstream: words::text(row, 6)?,
        idempotency_key: words::optional_text(row, 7)?,
        business_key: words::optional_text(row, 8)?,
        fingerprint: Fingerprint(row.get(9)?),
        trace: words::optional_text(row, 10)?,
        state,
        binds: row.get(12)?,
        owner: words::word(row, 13, |text| Some(Owner::new(text)))?,
        lease_until: Wall(row.get(14)?),
        received_at,
        updated_at: updated_at(row)?,
        first_sent: first_sent(row, 17, received_at)?,
        sends: row.get(18)?,
        promised: row.get(31)?,
        recognised: row.get(32)?,
        told: row.get(33)?,
        kept: if settled.is_none() { reply } else { None },
        settled,
        dead_letter: None,
        differences: Vec::new(),
        history: Vec::new(),
    };
    Ok((
        view,
        Rest {
            first_end: first_end(row, 19, (state, row.get(24)?))?,
            parked: row.get(30)?,
        },
    ))
}

fn settlement(
    row: &Row<'_>,
    state: State,
    reply: Option<Reply>,
) -> rusqlite::Result<Option<Settlement>> {
    let verdict = match state {
        State::Success => Verdict::Success,
        State::Failed => Verdict::Failed,
        State::Received | State::Processing | State::Unknown => return Ok(None),
    };
    Ok(Some(Settlement {
        verdict,
        by: words::word(row, 23, words::settled_by)?,
        at: Wall(row.get(22)?),
        reply,
        document: bytes(row, 29)?,
    }))
}

/// When the row changed last: a call that has only begun and ended does not say it again.
fn updated_at(row: &Row<'_>) -> rusqlite::Result<Wall> {
    let at = match (row.get(16)?, row.get::<_, Option<i64>>(22)?) {
        (0, Some(settled_at)) => settled_at,
        (0, None) => row.get(15)?,
        (at, _) => at,
    };
    Ok(Wall(at))
}

/// When a call that was received at `received` was first sent, in the column `at`.
pub(super) fn first_sent(
    row: &Row<'_>,
    at: usize,
    received: Wall,
) -> rusqlite::Result<Option<Wall>> {
    let sent = row.get::<_, Option<i64>>(at)?.map(Wall);
    Ok(sent.map(|sent| if sent == Wall(0) { received } else { sent }))
}

/// The end of the first attempt, in three columns from `at`, of a call that ended in this state
/// with this status.
pub(super) fn first_end(
    row: &Row<'_>,
    at: usize,
    (state, status): (State, Option<u16>),
) -> rusqlite::Result<Option<Entry>> {
    let Some(ended) = row.get::<_, Option<i64>>(at)? else {
        return Ok(None);
    };
    Ok(Some(Entry::Ended {
        at: Wall(ended),
        n: 1,
        outcome: match words::optional_word(row, at + 1, words::outcome)? {
            Some(outcome) => outcome,
            None => settling(state, status).ok_or_else(|| words::damaged(at + 1, "nothing"))?,
        },
        took: millis(row.get(at + 2)?),
        late: false,
        detail: None,
    }))
}

/// The outcome of the attempt whose answer has settled a call.
fn settling(state: State, status: Option<u16>) -> Option<Outcome> {
    let status = StatusCode::from_u16(status?).ok()?;
    match state {
        State::Success => Some(Verdict::Success.of_answer(status)),
        State::Failed => Some(Verdict::Failed.of_answer(status)),
        State::Received | State::Processing | State::Unknown => None,
    }
}

/// A reply in five columns from `at`: status, length, digest, headers, body.
fn reply(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Reply>> {
    let Some(status) = row.get::<_, Option<u16>>(at)? else {
        return Ok(None);
    };
    let body = match (row.get::<_, Option<i64>>(at + 1)?, row.get(at + 2)?) {
        (Some(length), sha256) => Kept::Digest {
            bytes: u64::try_from(length).unwrap_or(0),
            sha256,
        },
        (None, _) => Kept::Whole(bytes(row, at + 4)?.unwrap_or_default()),
    };
    Ok(Some(Reply {
        status: StatusCode::from_u16(status)
            .map_err(|_| words::damaged(at, &status.to_string()))?,
        headers: headers(row, at + 3)?,
        body,
    }))
}

fn headers(row: &Row<'_>, column: usize) -> rusqlite::Result<HeaderMap> {
    let text = row.get_ref(column)?.as_blob()?;
    fields::from_text(text).ok_or_else(|| words::damaged(column, "no header lines"))
}

fn bytes(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Bytes>> {
    Ok(row
        .get_ref(column)?
        .as_blob_or_null()?
        .map(Bytes::copy_from_slice))
}

fn millis(ms: i64) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Adds what stands in the other tables.
fn complete(conn: &Connection, mut call: CallView, rest: Rest) -> rusqlite::Result<CallView> {
    let history = history(conn, call.row, call.life)?;
    call.history = with_first(history, call.first_sent, rest.first_end);
    if rest.parked {
        call.dead_letter = dead_letter(conn, call.row, call.life)?;
    }
    call.differences = differences(conn, call.row, call.life)?;
    Ok(call)
}

/// The first send and its clean end stand in the call's own row, not in the table of history.
pub(super) fn with_first(
    mut history: Vec<Entry>,
    sent: Option<Wall>,
    ended: Option<Entry>,
) -> Vec<Entry> {
    history.extend(ended);
    let noted = |entry: &Entry| matches!(entry, Entry::Sent { n: 1, .. });
    if let Some(at) = sent
        && !history.iter().any(noted)
    {
        let first = Entry::Sent {
            at,
            n: 1,
            cause: None,
        };
        history.insert(0, first);
    }
    history
}

pub(super) fn history(conn: &Connection, row: RowId, life: u32) -> rusqlite::Result<Vec<Entry>> {
    let sql = "SELECT at, kind, n, word, doubt, status, ms, late, detail FROM history \
               WHERE call = ?1 AND life = ?2 ORDER BY seq";
    conn.prepare_cached(sql)?
        .query_map(params![row.0, life], entry)?
        .collect()
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    let at = Wall(row.get(0)?);
    let detail = words::optional_text(row, 8)?;
    let kind = row.get_ref(1)?.as_str()?;
    Ok(match kind {
        "sent" => Entry::Sent {
            at,
            n: row.get(2)?,
            cause: words::optional_word(row, 3, words::cause)?,
        },
        "moved" => Entry::Moved {
            at,
            from: words::text(row, 3)?,
            to: detail.ok_or_else(|| words::damaged(8, "nothing"))?,
        },
        "ended" => Entry::Ended {
            at,
            n: row.get(2)?,
            outcome: words::word(row, 3, words::outcome)?,
            took: millis(row.get(6)?),
            late: row.get(7)?,
            detail,
        },
        "receipt" => Entry::Receipt {
            at,
            answer: words::word(row, 3, words::answer)?,
            doubt: words::optional_word(row, 4, words::doubt)?,
            status: row
                .get::<_, Option<u16>>(5)?
                .and_then(|status| StatusCode::from_u16(status).ok()),
            took: millis(row.get(6)?),
            detail,
        },
        "waited" => Entry::Waited {
            at,
            why: row.get::<_, String>(3)?.into(),
            wait: millis(row.get(6)?),
        },
        "reconnected" => Entry::Reconnected { at, n: row.get(2)? },
        "claimed" => Entry::Claimed {
            at,
            owner: words::text(row, 3)?,
            fence: row.get(2)?,
        },
        "parked" => Entry::Parked {
            at,
            state: words::word(row, 3, DeadState::from_word)?,
            reason: detail
                .map_or_else(String::new, |text| text.to_string())
                .into(),
            round: row.get(2)?,
        },
        "reversing" => Entry::Reversing { at, n: row.get(2)? },
        "undone" => Entry::Undone {
            at,
            n: row.get(2)?,
            outcome: words::word(row, 3, words::outcome)?,
            took: millis(row.get(6)?),
            detail,
        },
        stranger => return Err(words::damaged(1, stranger)),
    })
}

pub(super) fn differences(
    conn: &Connection,
    row: RowId,
    life: u32,
) -> rusqlite::Result<Vec<Difference>> {
    let sql =
        "SELECT kind, at, told FROM differences WHERE call = ?1 AND life = ?2 ORDER BY at, kind";
    conn.prepare_cached(sql)?
        .query_map(params![row.0, life], |row| {
            Ok(Difference {
                kind: words::word(row, 0, words::contradiction)?,
                at: Wall(row.get(1)?),
                told: words::text(row, 2)?,
            })
        })?
        .collect()
}

/// The columns of a dead letter, in the order in which [`dead_row`] reads them.
pub(super) const DEAD: &str = "SELECT call, life, call_id, route, client, business_key, \
    request_id, reason, last_error, fail_count, next_retry_time, create_time, state, round, owner, \
    fence, lease_until, ended_at, by_hand, reversals, last_receipt, begun_by \
    FROM dead_letter";

pub(super) fn dead_letter(
    conn: &Connection,
    row: RowId,
    life: u32,
) -> rusqlite::Result<Option<DeadLetter>> {
    let sql = format!("{DEAD} WHERE call = ?1 AND life = ?2");
    conn.prepare_cached(&sql)?
        .query_row(params![row.0, life], dead_row)
        .optional()
}

pub(super) fn dead_row(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    Ok(DeadLetter {
        row: RowId(row.get(0)?),
        life: row.get(1)?,
        call_id: words::word(row, 2, |text| CallId::parse(text.as_bytes()).ok())?,
        route: words::text(row, 3)?,
        client: words::word(row, 4, |text| Some(ClientName::new(text)))?,
        business_key: words::optional_text(row, 5)?,
        idempotency_key: words::optional_text(row, 6)?,
        reason: words::text(row, 7)?,
        last_error: words::text(row, 8)?,
        fail_count: row.get(9)?,
        next_retry_time: row.get::<_, Option<i64>>(10)?.map(Wall),
        create_time: Wall(row.get(11)?),
        state: words::word(row, 12, DeadState::from_word)?,
        round: row.get(13)?,
        owner: words::optional_text(row, 14)?.map(|text| Owner::new(&text)),
        fence: row.get(15)?,
        lease_until: row.get::<_, Option<i64>>(16)?.map(Wall),
        ended_at: row.get::<_, Option<i64>>(17)?.map(Wall),
        by_hand: row.get(18)?,
        reversals: row.get(19)?,
        last_receipt: words::optional_word(row, 20, words::answer)?,
        begun_by: words::optional_text(row, 21)?.map(|text| Owner::new(&text)),
    })
}

/// A call with everything a pass over it needs, without a claim.
pub(super) fn dossier(conn: &Connection, row: RowId) -> rusqlite::Result<Option<Due>> {
    let Some(call) = call(conn, row)? else {
        return Ok(None);
    };
    let (request, policy) = request(conn, row)?;
    let undo = reversal::request(conn, row, call.life)?;
    Ok(Some(Due {
        claim: Claim::none(row, call.life),
        call,
        request,
        policy,
        undo,
    }))
}

/// What a call sends, and the policy it lives by.
pub(super) fn request(
    conn: &Connection,
    row: RowId,
) -> rusqlite::Result<(StoredRequest, Arc<str>)> {
    let sql = "SELECT method, target, request_headers, request_body, credential, text \
               FROM calls JOIN policies ON policies.id = calls.policy WHERE calls.id = ?1";
    conn.prepare_cached(sql)?.query_row([row.0], |row| {
        let request = StoredRequest {
            method: words::word(row, 0, |text| Method::from_bytes(text.as_bytes()).ok())?,
            target: words::text(row, 1)?,
            headers: headers(row, 2)?,
            body: bytes(row, 3)?.unwrap_or_default(),
            credential: row.get(4)?,
        };
        Ok((request, words::text(row, 5)?))
    })
}

/// Open dead letters by route and state.
pub(super) fn tally(conn: &Connection) -> rusqlite::Result<Vec<Tally>> {
    let sql = "SELECT route, state, count(*), min(create_time) FROM dead_letter \
               WHERE state IN ('QUEUED', 'RUNNING', 'REVERSING', 'MANUAL') GROUP BY state, route";
    conn.prepare_cached(sql)?
        .query_map([], |row| {
            Ok(Tally {
                route: words::text(row, 0)?,
                state: words::word(row, 1, DeadState::from_word)?,
                count: u64::try_from(row.get::<_, i64>(2)?).unwrap_or(0),
                oldest: Wall(row.get(3)?),
            })
        })?
        .collect()
}

/// Everything remembered about receipt endpoints.
pub(super) fn proofs(conn: &Connection) -> rusqlite::Result<Vec<ProofNote>> {
    conn.prepare_cached("SELECT endpoint, state, at FROM proofs ORDER BY endpoint")?
        .query_map([], |row| {
            Ok(ProofNote {
                endpoint: words::text(row, 0)?,
                proof: words::word(row, 1, words::proof)?,
                at: Wall(row.get(2)?),
            })
        })?
        .collect()
}
