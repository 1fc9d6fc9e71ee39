//! The list of dead letters with its filters.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

use super::read::{DEAD, dead_row};
use crate::ledger::desk::Sample;
use crate::ledger::{Cursor, Filter, PAGE_MAX, Page, Sort};

/// Conditions of a query with their values.
#[derive(Default)]
pub(super) struct Where {
    pub(super) text: String,
    pub(super) values: Vec<Value>,
}

impl Where {
    /// Adds a condition with a `?` for each value.
    pub(super) fn and(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(if self.text.is_empty() {
            " WHERE "
        } else {
            " AND "
        });
        self.text.push_str(condition);
        self.values.extend(values);
    }
}

/// The dead letters that match, in the order of the filter.
pub(super) fn dead_letters(
    conn: &Connection,
    filter: &Filter,
    from: Option<Cursor>,
    limit: usize,
) -> rusqlite::Result<Page> {
    let limit = limit.clamp(1, PAGE_MAX);
    let mut which = conditions(filter);
    if let Some(cursor) = from {
        after(&mut which, filter.sort, cursor);
    }
    // One more than asked for tells whether there is another page.
    let most = i64::try_from(limit + 1).unwrap_or(i64::MAX);
    which.values.push(Value::from(most));
    let order = order(filter.sort);
    let sql = format!("{DEAD}{} ORDER BY {order} LIMIT ?", which.text);
    let mut items = conn
        .prepare_cached(&sql)?
        .query_map(params_from_iter(which.values), dead_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().map(|item| filter.sort.behind(item));
    Ok(Page {
        next: if more { last } else { None },
        items,
    })
}

/// How many dead letters match.
pub(super) fn count(conn: &Connection, filter: &Filter) -> rusqlite::Result<i64> {
    let which = conditions(filter);
    let sql = format!("SELECT count(*) FROM dead_letter{}", which.text);
    conn.prepare_cached(&sql)?
        .query_row(params_from_iter(which.values), |row| row.get(0))
}

/// How many dead letters match, and up to `limit` of them, evenly spread.
pub(super) fn sample(conn: &Connection, filter: &Filter, limit: usize) -> rusqlite::Result<Sample> {
    let matching = count(conn, filter)?;
    let limit = i64::try_from(limit.clamp(1, PAGE_MAX)).unwrap_or(i64::MAX);
    let step = (matching + limit - 1) / limit;
    let mut which = conditions(filter);
    which.values.extend([step.max(1), limit].map(Value::from));
    let sql = format!(
        "{DEAD} WHERE (call, life) IN (SELECT call, life FROM (SELECT call, life, row_number() \
         OVER (ORDER BY call, life) AS place FROM dead_letter{}) WHERE (place - 1) % ? = 0) \
         ORDER BY call, life LIMIT ?",
        which.text
    );
    let items = conn
        .prepare_cached(&sql)?
        .query_map(params_from_iter(which.values), dead_row)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(Sample {
        matching: u64::try_from(matching).unwrap_or(0),
        items,
    })
}

const fn order(sort: Sort) -> &'static str {
    match sort {
        Sort::Oldest => "call, life",
        Sort::Newest => "call DESC, life DESC",
        Sort::Due => "coalesce(next_retry_time, 9223372036854775807), call, life",
        Sort::Fails => "-fail_count, call, life",
    }
}

fn after(which: &mut Where, sort: Sort, Cursor { at, row, life }: Cursor) {
    let (row, life) = (Value::from(row.0), Value::from(life));
    match sort {
        Sort::Oldest => which.and("(call, life) > (?, ?)", [row, life]),
        Sort::Newest => which.and("(call, life) < (?, ?)", [row, life]),
        Sort::Due => which.and(
            "(coalesce(next_retry_time, 9223372036854775807), call, life) > (?, ?, ?)",
            [Value::from(at), row, life],
        ),
        Sort::Fails => which.and(
            "(-fail_count, call, life) > (?, ?, ?)",
            [Value::from(at), row, life],
        ),
    }
}

/// The conditions of a filter, on the columns of `dead_letter`.
pub(super) fn conditions(filter: &Filter) -> Where {
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
    if let Some(receipt) = filter.receipt {
        which.and("last_receipt = ?", [text(receipt.as_str())]);
    }
    if let Some(wanted) = &filter.text {
        // LIKE heeds no ASCII case and, unlike lower(), copies no row (three times as fast).
        let wanted = text(&format!("%{}%", literally(wanted)));
        let places = [
            "call_id",
            "business_key",
            "request_id",
            "reason",
            "last_error",
        ];
        let holds = places.map(|place| format!("{place} LIKE ? ESCAPE '\\'"));
        let holds = format!("({})", holds.join(" OR "));
        which.and(&holds, places.map(|_| wanted.clone()));
    }
    if !filter.within.is_empty() {
        let marks = vec!["?"; filter.within.len()].join(", ");
        let states = filter.within.iter().map(|state| text(state.as_str()));
        which.and(&format!("state IN ({marks})"), states);
    }
    which
}

/// A text that LIKE takes for itself.
fn literally(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}
