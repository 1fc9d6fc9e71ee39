//! The whole story of a call, in memory.

use super::Books;
use super::row::Row;
use crate::call::id::ClientName;
use crate::ledger::CallView;
use crate::ledger::story::{Alias, Found, KIN_MAX, Kin, Life, PastEnd, Story};

impl Books {
    pub(super) fn stories(&self, client: Option<&ClientName>, name: &str) -> Vec<Story> {
        let is_meant = |of: &ClientName| client.is_none_or(|client| client == of);
        let named = |row: &&Row| row.view.call_id.as_str() == name && is_meant(&row.view.client);
        let aliased = self
            .aliases
            .iter()
            .filter_map(|((id, of), (row, life, _))| {
                let row = self.rows.get(row)?;
                (id.as_str() == name && is_meant(of) && row.view.life == *life).then_some(row)
            });
        let mut found: Vec<(&Row, Found)> = aliased.map(|row| (row, Found::Alias)).collect();
        found.extend(
            self.rows
                .values()
                .filter(named)
                .map(|row| (row, Found::CallId)),
        );
        if found.is_empty() {
            let keyed = self.newest_with_key(name);
            found.extend(
                keyed
                    .filter(|row| is_meant(&row.view.client))
                    .map(|row| (row, Found::Key)),
            );
        }
        found
            .into_iter()
            .map(|(row, how)| self.tell(row, how))
            .collect()
    }

    fn newest_with_key(&self, key: &str) -> impl Iterator<Item = &Row> {
        let has = |row: &&Row| has_key(&row.view, Some(key), Some(key));
        let newest: std::collections::BTreeMap<&str, &Row> = self
            .rows
            .values()
            .filter(has)
            .map(|row| (row.view.client.as_str(), row))
            .collect();
        newest.into_values()
    }

    fn tell(&self, row: &Row, found: Found) -> Story {
        let call = &row.view;
        let mut aliases: Vec<Alias> = self
            .aliases
            .iter()
            .filter(|(_, (of, ..))| *of == call.row)
            .map(|((id, _), (_, life, at))| Alias {
                call_id: id.clone(),
                life: *life,
                at: *at,
            })
            .collect();
        aliases.sort_by_key(|alias| (alias.at, alias.call_id.to_string()));
        let is_kin = |other: &&Row| {
            let theirs = &other.view;
            let same_request = theirs.route == call.route && theirs.fingerprint == call.fingerprint;
            let (key, business) = keys_of(call);
            let same_key = other.scope == row.scope && has_key(theirs, key, business);
            theirs.row != call.row && theirs.client == call.client && (same_request || same_key)
        };
        let mut kin: Vec<&Row> = self.rows.values().filter(is_kin).collect();
        kin.sort_by_key(|other| (other.view.row.0.abs_diff(call.row.0), other.view.row));
        kin.truncate(KIN_MAX);
        kin.sort_by_key(|other| (other.view.received_at, other.view.call_id.to_string()));
        Story {
            found,
            remembered_until: row.held().remembered_until,
            policy: row.policy.clone(),
            past: row.lives.clone(),
            aliases,
            acts: self.audit_of(call.row),
            kin: kin.into_iter().map(|other| kin_of(call, other)).collect(),
            searched_all: true,
            call: call.clone(),
        }
    }
}

impl Life {
    /// The life a view shows, once it is over.
    pub(super) fn of(view: &CallView) -> Self {
        Self {
            life: view.life,
            end: Some(PastEnd {
                received_at: view.received_at,
                state: view.state,
                idempotency_key: view.idempotency_key.clone(),
                settled: view.settled.as_ref().map(|end| (end.by, end.at)),
                status: view
                    .settled
                    .as_ref()
                    .map_or(view.kept.as_ref(), |end| end.reply.as_ref())
                    .map(|reply| reply.status),
            }),
            dead_letter: view.dead_letter.clone(),
            differences: view.differences.clone(),
            history: view.history.clone(),
        }
    }
}

fn has_key(call: &CallView, key: Option<&str>, business: Option<&str>) -> bool {
    (key.is_some() && call.idempotency_key.as_deref() == key)
        || (business.is_some() && call.business_key.as_deref() == business)
}

fn kin_of(call: &CallView, row: &Row) -> Kin {
    let other = &row.view;
    let (key, business) = keys_of(call);
    Kin {
        call_id: other.call_id.clone(),
        client: other.client.clone(),
        source: other.source,
        state: other.state,
        idempotency_key: other.idempotency_key.clone(),
        same_key: has_key(other, key, business),
        same_request: other.fingerprint == call.fingerprint,
        sends: other.sends,
        received_at: other.received_at,
        settled: other.settled.as_ref().map(|end| (end.by, end.at)),
        remembered_until: row.held().remembered_until,
    }
}

/// The key of a call, and what it was made from.
fn keys_of(call: &CallView) -> (Option<&str>, Option<&str>) {
    (
        call.idempotency_key.as_deref(),
        call.business_key.as_deref(),
    )
}
