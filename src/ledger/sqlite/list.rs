//! The list of dead letters with its filters.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::read::{DEAD, dead_row};
use crate::ledger::{Cursor, Filter, PAGE_MAX, Page};

/// Conditions of a query with their values.
#[derive(Default)]
struct Where {
    text: String,
    values: Vec<Value>,
}

impl Where {
    /// Adds a condition with a `?` for each value.
    fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(if self.text.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        self.text.push_str(condition);
        self.values.extend(values);
    }
}

/// The dead letters that match, by call and life.
pub(super) fn dead_letters(
    conn: &Connection,
    filter: &Filter,
    from: Option<Cursor>,
    limit: usize,
) -> rusqlite::Result<Page> {
    let limit = limit.clamp(1, PAGE_MAX);
    let mut which = conditions(filter);
    if let Some(Cursor { row, life }) = from {
        which.and(
            "(call, life) > (?, ?)",
            [Value::from(row.0), Value::from(life)],
        );
    }
    // One more than asked for tells whether there is another page.
    let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    which.values.push(Value::from(most));
    let sql = format!("{DEAD}{} ORDER BY call, life LIMIT ?", which.text);
    let mut items = conn
        .prepare_cached(&sql)?
        .query_map(params_from_iter(which.values), dead_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().map(|item| Cursor {
        row: item.row,
        life: item.life,
    });
    Ok(Page {
        next: if more { last } else { None },
        items,
    })
}

fn conditions(filter: &Filter) -> Where {
    let text = |value: &str| Value::from(value.to_owned());
    let mut which = Where::default();
    if let Some(state) = filter.state {
        which.and("state = ?", [text(state.as_str())]);
    }
    if let Some(route) = &filter.route {
        which.and("route = ?", [text(route)]);
    }
    if let Some(client) = &filter.client {
        which.and("client = ?", [text(client.as_str())]);
    }
    if let Some(before) = filter.parked_before {
        which.and("create_time < ?", [Value::from(before.0)]);
    }
    if let Some(error) = &filter.error {
        which.and(
            "(instr(last_error, ?) OR instr(reason, ?))",
            [text(error), text(error)],
        );
    }
    if let Some(key) = &filter.key {
        which.and(
            "(request_id = ? OR business_key = ?)",
            [text(key), text(key)],
        );
    }
    if let Some(call_id) = &filter.call_id {
        let mine = "call IN (SELECT id FROM calls WHERE call_id = ?)";
        which.and(mine, [text(call_id.as_str())]);
    }
    which
}
