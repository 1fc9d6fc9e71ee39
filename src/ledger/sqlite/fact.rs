//! Facts: what the tool has said for good.
//!
//! The common case, a call in line that is answered, is one update whose condition is the rule
//! itself (same life, not settled, no dead letter). Everything else is weighed first.

use rusqlite::params;

use super::begin::held_of;
use super::db::{Db, Hot};
use super::reply::Columns;
use super::{history, words};
use crate::call::outcome::Outcome;
use crate::ledger::rule::Weight;
use crate::ledger::{DeadState, Entry, Fact, FactWritten, News, Reply, RowId, SettledBy, Verdict};

/// Applies a fact to an open call; records it as a difference where it contradicts.
pub(super) fn fact(db: &Db, fact: &Fact) -> rusqlite::Result<FactWritten> {
    let (first_end, others) = split(&fact.entries);
    let written = if settle(db, fact, first_end, InLine::Only)? {
        FactWritten::Applied
    } else {
        weigh(db, fact, first_end)?
    };
    if written != FactWritten::Gone {
        for entry in others {
            history::write(db, fact.row, fact.life, entry)?;
        }
        if let (false, Some(end)) = (written == FactWritten::Applied, first_end) {
            history::write(db, fact.row, fact.life, end)?;
        }
    }
    Ok(written)
}

fn weigh(db: &Db, fact: &Fact, first_end: Option<&Entry>) -> rusqlite::Result<FactWritten> {
    let Some(held) = held_of(db, fact.row)? else {
        return Ok(FactWritten::Gone);
    };
    match held.weigh(fact.life, &fact.news) {
        Weight::Gone => Ok(FactWritten::Gone),
        Weight::Repeats => Ok(FactWritten::Repeated),
        Weight::Alone => Ok(FactWritten::Alone),
        Weight::Contradicts(kind) => {
            let told = fact.news.told();
            let first = history::differ(db, fact.row, fact.life, fact.now, kind, &told)?;
            Ok(FactWritten::Difference { kind, first })
        }
        Weight::Applies => {
            settle(db, fact, first_end, InLine::OrParked)?;
            end_dead_letter(db, fact)?;
            Ok(FactWritten::Applied)
        }
    }
}

/// Which calls an update may settle.
#[derive(Clone, Copy)]
enum InLine {
    /// Those without a dead letter.
    Only,
    /// Any open one.
    OrParked,
}

/// The end of a call: what else is set, and of which calls. Its owner leaves, and makes room for
/// what its end brings: a row that grew would no longer fit among its neighbours.
macro_rules! settle {
    ($more:literal, $and:literal) => {
        concat!(
            "UPDATE calls SET state = ?3, binds = ?4, touched_at = max(touched_at, ?5), \
             purge_at = max(touched_at, ?5) + window_ms, owner = '', lease_until = 0, \
             updated_at = 0, settled_at = ?5, settled_by = ?6, first_ended_at = ?7, \
             first_outcome = ?8, first_took_ms = ?9, reply_status = ?10, reply_bytes = ?11, \
             reply_sha256 = ?12",
            $more,
            " WHERE id = ?1 AND life = ?2 AND settled_at IS NULL",
            $and
        )
    };
}

impl InLine {
    /// The statement that settles. A key that stays bound is not mentioned: naming its column would
    /// write its index anew.
    const fn settles(self, keeps_key: bool) -> &'static str {
        match (self, keeps_key) {
            (Self::Only, true) => settle!("", " AND parked = 0"),
            (Self::Only, false) => settle!(", key_binds = 0", " AND parked = 0"),
            (Self::OrParked, true) => settle!(
                ", reply_headers = ?13, reply_body = ?14, document = ?15",
                ""
            ),
            (Self::OrParked, false) => settle!(
                ", reply_headers = ?13, reply_body = ?14, document = ?15, key_binds = 0",
                ""
            ),
        }
    }
}

fn settle(
    db: &Db,
    fact: &Fact,
    first_end: Option<&Entry>,
    which: InLine,
) -> rusqlite::Result<bool> {
    let (reply, by, document) = parts(&fact.news);
    let reply = Columns::of(reply);
    let (ended_at, outcome, took) = match first_end {
        Some(Entry::Ended {
            at, outcome, took, ..
        }) => (
            Some(at.0),
            said_beside(fact, *outcome).then(|| words::outcome_text(*outcome)),
            Some(history::millis(*took)),
        ),
        _ => (None, None, None),
    };
    let bindings = fact.news.bindings();
    let state = fact.news.verdict().state();
    let by = words::settled_by_text(by);
    let values = params![
        fact.row.0,
        fact.life,
        state.as_str(),
        bindings.id,
        fact.now.0,
        by,
        ended_at,
        outcome,
        took,
        reply.status,
        reply.bytes,
        reply.sha256,
        reply.headers,
        reply.body,
        document,
    ];
    let sql = which.settles(bindings.key);
    match which {
        InLine::Only => {
            let in_line = &values[..12];
            let written = if bindings.key {
                db.hot(Hot::Settle, sql)?.execute(in_line)?
            } else {
                db.conn.prepare_cached(sql)?.execute(in_line)?
            };
            if written == 1 && (reply.headers.is_some() || document.is_some()) {
                keep(db, fact.row, &reply, document)?;
            }
            Ok(written == 1)
        }
        InLine::OrParked => {
            let written = db.conn.prepare_cached(sql)?.execute(values)?;
            Ok(written == 1)
        }
    }
}

/// Whether the end of the first attempt says something that the end of the call does not.
fn said_beside(fact: &Fact, outcome: Outcome) -> bool {
    let News::Answer { n: 1, reply, .. } = &fact.news else {
        return true;
    };
    outcome != fact.news.verdict().of_answer(reply.status)
}

/// Keeps what the end of a call in line brought, beside the call.
fn keep(db: &Db, row: RowId, reply: &Columns<'_>, document: Option<&[u8]>) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO replies (call, kept_headers, kept_body, kept_document) \
               VALUES (?1, ?2, ?3, ?4)";
    db.hot(Hot::Reply, sql)?
        .execute(params![row.0, reply.headers, reply.body, document])?;
    Ok(())
}

fn parts(news: &News) -> (Option<&Reply>, SettledBy, Option<&[u8]>) {
    match news {
        News::Answer { n, reply, .. } | News::Unbinding { n, reply } => {
            (Some(reply), SettledBy::Answer(*n), None)
        }
        News::Receipt {
            reply, document, ..
        } => (reply.as_ref(), SettledBy::Receipt, document.as_deref()),
    }
}

fn end_dead_letter(db: &Db, fact: &Fact) -> rusqlite::Result<()> {
    let state = match fact.news.verdict() {
        Verdict::Success => DeadState::Settled,
        Verdict::Failed => DeadState::Failed,
    };
    let sql = "UPDATE dead_letter SET state = ?3, ended_at = ?4, next_retry_time = NULL, \
               by_hand = 0, owner = NULL, lease_until = NULL WHERE call = ?1 AND life = ?2";
    db.conn.prepare_cached(sql)?.execute(params![
        fact.row.0,
        fact.life,
        state.as_str(),
        fact.now.0
    ])?;
    Ok(())
}

/// The plain end of the first attempt, which has columns of its own in the call's row so that a
/// clean call writes no history at all; and the rest.
fn split(entries: &[Entry]) -> (Option<&Entry>, Vec<&Entry>) {
    let plain = |entry: &&Entry| {
        matches!(
            entry,
            Entry::Ended {
                n: 1,
                late: false,
                detail: None,
                ..
            }
        )
    };
    let first = entries.iter().rev().find(plain);
    let others = entries
        .iter()
        .filter(|entry| !first.is_some_and(|f| std::ptr::eq(f, *entry)))
        .collect();
    (first, others)
}
