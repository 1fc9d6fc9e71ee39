//! The list of contradictions, each with the call it is about.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use crate::call::id::{CallId, ClientName};
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::desk::{DifferenceCursor, DifferencePage, Differing, WhichDifferences};
use crate::ledger::sqlite::list::Where;
use crate::ledger::sqlite::words;
use crate::ledger::{DeadState, PAGE_MAX, RowId};

/// One line each. The end of a call stands in its row only for the life it lives now.
const DIFFERENCES: &str = "SELECT d.at, d.call, d.life, d.kind, d.told, c.call_id, c.client, \
    c.route, c.business_key, c.idempotency_key, iif(c.life = d.life, c.state, NULL), \
    iif(c.life = d.life, c.settled_by, NULL), iif(c.life = d.life, c.settled_at, NULL), \
    l.state FROM differences d JOIN calls c ON c.id = d.call \
    LEFT JOIN dead_letter l ON l.call = d.call AND l.life = d.life";

/// The contradictions that match, newest first.
pub(super) fn page(
    conn: &Connection,
    which: &WhichDifferences,
    from: Option<DifferenceCursor>,
    limit: usize,
) -> rusqlite::Result<DifferencePage> {
    let limit = limit.clamp(1, PAGE_MAX);
    let text = |value: &str| Value::from(value.to_owned());
    let mut conditions = Where::default();
    if let Some(kind) = which.kind {
        conditions.and("d.kind = ?", [text(kind.as_str())]);
    }
    if let Some(route) = &which.route {
        conditions.and("c.route = ?", [text(route)]);
    }
    if let Some(client) = &which.client {
        conditions.and("c.client = ?", [text(client.as_str())]);
    }
    if let Some(since) = which.since {
        conditions.and("d.at >= ?", [Value::from(since.0)]);
    }
    if let Some(from) = from {
        let place = [
            Value::from(from.at.0),
            Value::from(from.row.0),
            Value::from(from.life),
            text(from.kind.as_str()),
        ];
        conditions.and("(d.at, d.call, d.life, d.kind) < (?, ?, ?, ?)", place);
    }
    let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    conditions.values.push(Value::from(most));
    let order = "ORDER BY d.at DESC, d.call DESC, d.life DESC, d.kind DESC LIMIT ?";
    let sql = format!("{DIFFERENCES}{} {order}", conditions.text);
    let mut items = conn
        .prepare_cached(&sql)?
        .query_map(params_from_iter(conditions.values), line)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().map(|item| item.place);
    Ok(DifferencePage {
        next: if more { last } else { None },
        items,
    })
}

fn line(row: &Row<'_>) -> rusqlite::Result<Differing> {
    Ok(Differing {
        place: DifferenceCursor {
            at: Wall(row.get(0)?),
            row: RowId(row.get(1)?),
            life: row.get(2)?,
            kind: words::word(row, 3, words::contradiction)?,
        },
        told: words::text(row, 4)?,
        call_id: words::word(row, 5, |text| CallId::parse(text.as_bytes()).ok())?,
        client: words::word(row, 6, |text| Some(ClientName::new(text)))?,
        route: words::text(row, 7)?,
        business_key: words::optional_text(row, 8)?,
        idempotency_key: words::optional_text(row, 9)?,
        recorded: words::optional_word(row, 10, State::from_word)?,
        by: words::optional_word(row, 11, words::settled_by)?,
        settled_at: row.get::<_, Option<i64>>(12)?.map(Wall),
        dead: words::optional_word(row, 13, DeadState::from_word)?,
    })
}
