//! Alerts in the file: rows nobody was told of, by index, and the notes they are taken into.

use std::fmt::Write as _;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::db::Db;
use super::words;
use crate::call::alert::{Event, Standing};
use crate::call::id::CallId;
use crate::call::time::Wall;
use crate::ledger::DeadState;
use crate::ledger::alert::{EXAMPLES_MAX, Example, Note, Told, Untold, Watch, state_of};

/// Of one route and state, by `dead_letter_unalerted`; the middle term is the index's own.
const FRESH: &str = "FROM dead_letter WHERE route = ?1 AND state = ?2 \
    AND state IN ('MANUAL', 'REVERSED') AND alerted IS NOT state";

/// What waits and what is new. Reads only.
pub(super) fn untold(conn: &Connection, watches: &[Watch]) -> rusqlite::Result<Untold> {
    let mut untold = Untold {
        fresh: conn
            .prepare_cached("SELECT 1 FROM differences WHERE alerted = 0")?
            .exists([])?,
        oldest: Vec::with_capacity(watches.len()),
        notes: notes(conn)?,
    };
    let sql = format!("SELECT 1 {FRESH}");
    let mut fresh = conn.prepare_cached(&sql)?;
    for watch in watches {
        for state in watch.events.iter().filter_map(|event| state_of(*event)) {
            untold.fresh |= fresh.exists(params![&*watch.route, state.as_str()])?;
        }
        untold
            .oldest
            .push(oldest(conn, &watch.route)?.map(|(at, _)| at));
    }
    Ok(untold)
}

/// Takes up to `limit` rows of each kind into the notes of those who want to be told. Whether there
/// are more.
pub(super) fn fold(db: &Db, watches: &[Watch], now: Wall, limit: usize) -> rusqlite::Result<bool> {
    let mut more = fold_differences(db, watches, now, limit)?;
    for watch in watches {
        for event in &watch.events {
            let taken = match (event, state_of(*event)) {
                (_, Some(state)) => take(db, &watch.route, state, limit)?,
                (Event::OldestOver, None) => the_oldest(db, &watch.route)?,
                (_, None) => Vec::new(),
            };
            more |= taken.len() >= limit;
            add(db, watch, *event, taken, now)?;
        }
    }
    Ok(more)
}

fn take(db: &Db, route: &str, state: DeadState, limit: usize) -> rusqlite::Result<Vec<Example>> {
    let sql = format!("SELECT call_id, reason, call, life {FRESH} LIMIT ?3");
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = db
        .conn
        .prepare_cached(&sql)?
        .query_map(params![route, state.as_str(), limit], |row| {
            Ok((example(row)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut mark = db
        .conn
        .prepare_cached("UPDATE dead_letter SET alerted = state WHERE call = ?1 AND life = ?2")?;
    found
        .into_iter()
        .map(|(example, call, life)| mark.execute([call, life]).map(|_| example))
        .collect()
}

/// Differences carry no route. There are few, so all are looked at, and those of routes where
/// nobody wants to be told are marked as well.
fn fold_differences(db: &Db, watches: &[Watch], now: Wall, limit: usize) -> rusqlite::Result<bool> {
    let sql = "SELECT c.call_id, d.kind, d.call, d.life, c.route FROM differences d \
               JOIN calls c ON c.id = d.call WHERE d.alerted = 0 LIMIT ?1";
    let most = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = db
        .conn
        .prepare_cached(sql)?
        .query_map([most], |row| {
            let key: (i64, i64) = (row.get(2)?, row.get(3)?);
            Ok((example(row)?, key, words::text(row, 4)?))
        })?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut mark = db.conn.prepare_cached(
        "UPDATE differences SET alerted = 1 WHERE call = ?1 AND life = ?2 AND kind = ?3",
    )?;
    for (example, (call, life), _) in &found {
        mark.execute(params![call, life, &*example.reason])?;
    }
    let more = found.len() >= limit;
    for watch in watches {
        if watch.events.contains(&Event::Difference) {
            let mine = found.iter().filter(|(_, _, route)| *route == watch.route);
            let mine = mine.map(|(example, ..)| example.clone()).collect();
            add(db, watch, Event::Difference, mine, now)?;
        }
    }
    Ok(more)
}

fn the_oldest(db: &Db, route: &str) -> rusqlite::Result<Vec<Example>> {
    let Some((_, (call, life))) = oldest(db.conn, route)? else {
        return Ok(Vec::new());
    };
    let found = db
        .conn
        .prepare_cached("SELECT call_id, reason FROM dead_letter WHERE call = ?1 AND life = ?2")?
        .query_row([call, life], example)?;
    Ok(vec![found])
}

/// When the oldest open dead letter of a route was parked, and which it is.
fn oldest(conn: &Connection, route: &str) -> rusqlite::Result<Option<(Wall, (i64, i64))>> {
    let sql = "SELECT create_time, call, life FROM dead_letter WHERE state = ?1 AND route = ?2 \
               ORDER BY create_time LIMIT 1";
    let mut statement = conn.prepare_cached(sql)?;
    let mut oldest = None;
    for state in DeadState::ALL.into_iter().filter(|state| state.is_open()) {
        let found = statement
            .query_row(params![state.as_str(), route], |row| {
                Ok((Wall(row.get(0)?), (row.get(1)?, row.get(2)?)))
            })
            .optional()?;
        oldest = [oldest, found].into_iter().flatten().min();
    }
    Ok(oldest)
}

fn example(row: &Row<'_>) -> rusqlite::Result<Example> {
    Ok(Example {
        call_id: words::word(row, 0, |text| CallId::parse(text.as_bytes()).ok())?,
        reason: words::text(row, 1)?,
    })
}

fn add(
    db: &Db,
    watch: &Watch,
    event: Event,
    taken: Vec<Example>,
    now: Wall,
) -> rusqlite::Result<()> {
    if taken.is_empty() {
        return Ok(());
    }
    let kept = db
        .conn
        .prepare_cached(&format!("{NOTE} WHERE route = ?1 AND event = ?2"))?
        .query_row(params![&*watch.route, event.as_str()], note)
        .optional()?;
    let mut note = kept.unwrap_or_else(|| Note::empty(&watch.route, event));
    note.add(taken, watch.repeat, now);
    write(db, &note)
}

/// Notes what became of an alert.
pub(super) fn told(
    db: &Db,
    route: &str,
    event: Event,
    told: Told,
    now: Wall,
) -> rusqlite::Result<()> {
    let kept = db
        .conn
        .prepare_cached(&format!("{NOTE} WHERE route = ?1 AND event = ?2"))?
        .query_row(params![route, event.as_str()], note)
        .optional()?;
    match kept {
        None => Ok(()),
        Some(mut note) => {
            note.step(told, now);
            write(db, &note)
        }
    }
}

const NOTE: &str = "SELECT route, event, told, told_at, waiting, held, since, examples, tries, \
    next_try FROM alerts";

fn notes(conn: &Connection) -> rusqlite::Result<Vec<Note>> {
    conn.prepare_cached(&format!("{NOTE} ORDER BY route, event"))?
        .query_map([], note)?
        .collect()
}

fn note(row: &Row<'_>) -> rusqlite::Result<Note> {
    let count = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(Note {
        route: words::text(row, 0)?,
        event: words::word(row, 1, Event::from_word)?,
        told: count(2)?,
        standing: Standing {
            waiting: count(4)?,
            told_at: row.get::<_, Option<i64>>(3)?.map(Wall),
            tries: row.get(8)?,
            next_try: row.get::<_, Option<i64>>(9)?.map(Wall),
        },
        held: count(5)?,
        since: Wall(row.get(6)?),
        examples: words::word(row, 7, examples)?,
    })
}

fn examples(text: &str) -> Option<Vec<Example>> {
    let one = |line: &str| {
        let (call_id, reason) = line.split_once(' ')?;
        Some(Example {
            call_id: CallId::parse(call_id.as_bytes()).ok()?,
            reason: Arc::from(reason),
        })
    };
    text.lines().map(one).collect()
}

fn write(db: &Db, note: &Note) -> rusqlite::Result<()> {
    let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let mut examples = String::new();
    for Example { call_id, reason } in note.examples.iter().take(EXAMPLES_MAX) {
        writeln!(examples, "{call_id} {reason}").expect("a String takes every write");
    }
    let sql = "INSERT OR REPLACE INTO alerts (route, event, told, told_at, waiting, held, since, \
               examples, tries, next_try) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    db.conn.prepare_cached(sql)?.execute(params![
        &*note.route,
        note.event.as_str(),
        signed(note.told),
        note.standing.told_at.map(|at| at.0),
        signed(note.standing.waiting),
        signed(note.held),
        note.since.0,
        examples,
        note.standing.tries,
        note.standing.next_try.map(|at| at.0),
    ])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::LedgerError;
    use crate::ledger::sqlite::{Options, SqliteLedger};

    /// The look for new rows must not walk the waiting ones.
    #[test]
    fn new_rows_are_found_by_index() {
        let folder = tempfile::tempdir().unwrap();
        let options = Options::new(&folder.path().join("callgate.db"), Wall(0));
        let ledger = SqliteLedger::open(&options, Arc::new(())).unwrap();
        let plan = |sql: String| -> Result<String, LedgerError> {
            ledger
                .read(move |conn| {
                    conn.query_row(&format!("EXPLAIN QUERY PLAN {sql}"), [], |row| row.get(3))
                })
                .wait()
        };
        let fresh = format!("SELECT 1 {FRESH}")
            .replace("?1", "'r'")
            .replace("?2", "'MANUAL'");
        let seen = plan(fresh).unwrap();
        assert!(seen.contains("dead_letter_unalerted"), "{seen}");
        let seen = plan("SELECT 1 FROM differences WHERE alerted = 0".to_owned()).unwrap();
        assert!(seen.contains("differences_unalerted"), "{seen}");
    }
}
