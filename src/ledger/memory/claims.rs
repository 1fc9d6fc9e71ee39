//! The claim of a call id and key in memory: who stands in the way, and what an undone id means.

use std::sync::Arc;

use super::Books;
use super::row::Row;
use crate::call::id::{CallId, ClientName};
use crate::ledger::{Begun, NewCall, RowId};

impl Books {
    pub(super) fn begin(&mut self, new: NewCall) -> Begun {
        let names = std::iter::once(&new.client).chain(new.client.formerly());
        let undone: Vec<_> = names
            .flat_map(|name| new.addresses().map(move |address| (name, address)))
            .filter_map(|(name, address)| {
                Some((new.reverses.clone()?, name.clone(), Arc::clone(address)))
            })
            .collect();
        let now = new.now;
        let begun = self.claim(new);
        if let Begun::Claimed(_) = &begun {
            for id in undone {
                self.undone.entry(id).or_insert(now);
            }
        }
        begun
    }

    /// Whether its client has undone this call at its upstream.
    pub(super) fn is_undone(&self, new: &NewCall) -> bool {
        let mut names = std::iter::once(&new.client).chain(new.client.formerly());
        names.any(|name| {
            let key = (new.call_id.clone(), name.clone(), Arc::clone(&new.upstream));
            self.undone.contains_key(&key)
        })
    }

    pub(super) fn claim(&mut self, new: NewCall) -> Begun {
        let undone = self.is_undone(&new);
        let (now, client) = (new.now, new.client.clone());
        let is_taken = |row: &Row| !row.held().is_free(now);
        let mine = |row: &Row| {
            row.view.call_id == new.call_id && client.is_or_was(row.view.client.as_str())
        };
        let known = self.ids.get(&new.call_id).cloned().unwrap_or_default();
        let taken = self.one_of(&known, |row| mine(row) && is_taken(row));
        if let Some(row) = taken.and_then(|number| self.rows.get_mut(&number)) {
            if undone && row.is_open_for(&new) {
                return Begun::Undone {
                    sends: row.view.sends,
                };
            }
            let same = row.is_repeated_by(&new);
            return Begun::Known(row.known(same, now));
        }
        for alias in std::iter::once(&client).chain(client.formerly()) {
            let name = (new.call_id.clone(), alias.clone());
            if let Some(row) = self.by_alias(&name) {
                if !row.held().is_free(now) {
                    let same = row.is_repeated_by(&new);
                    return Begun::Known(row.known(same, now));
                }
                self.aliases.remove(&name);
            }
        }
        let foreign = |row: &Row| {
            row.view.call_id == new.call_id
                && !client.is_or_was(row.view.client.as_str())
                && new.is_at(&row.view.upstream)
                && !row.held().is_free(now)
        };
        if new.exclusive_id && self.one_of(&known, foreign).is_some() {
            return Begun::Foreign;
        }
        let keyed = new.idempotency_key.is_some();
        let rows = self.rows.values_mut().filter(|_| keyed);
        for holder in rows.filter(|row| row.holds_key_of(&new)) {
            if !holder.held().is_free(now) {
                let same = holder.is_same(&new);
                if same {
                    let first = (holder.view.row, holder.view.life, now);
                    self.aliases.insert((new.call_id, client), first);
                }
                return Begun::KeyTaken(holder.known(same, now));
            }
            holder.key_binds = false;
        }
        if undone {
            return Begun::Undone { sends: 0 };
        }
        if new.wary
            && let Some(first) = self.rows.values_mut().find(|row| row.is_alike(&new))
        {
            return Begun::Alike(first.known(true, now));
        }
        let own = self.one_of(&known, |row| mine(row) && row.view.client == client);
        let number = own.unwrap_or_else(|| self.fresh_row(&new.call_id));
        let old = self.rows.remove(&number);
        let row = Row::new(number, new, old);
        let claim = row.claim();
        self.rows.insert(number, row);
        Begun::Claimed(claim)
    }

    /// The first of these rows of which something is true.
    fn one_of(&self, numbers: &[RowId], is: impl Fn(&Row) -> bool) -> Option<RowId> {
        let mut numbers = numbers.iter().copied();
        numbers.find(|number| self.rows.get(number).is_some_and(&is))
    }

    /// A number that no row had before.
    fn fresh_row(&mut self, id: &CallId) -> RowId {
        self.last_row += 1;
        let fresh = RowId(self.last_row);
        self.ids.entry(id.clone()).or_default().push(fresh);
        fresh
    }

    /// A row of this id is gone.
    pub(super) fn forget_id(&mut self, id: &CallId, row: RowId) {
        let Some(rows) = self.ids.get_mut(id) else {
            return;
        };
        rows.retain(|number| *number != row);
        if rows.is_empty() {
            self.ids.remove(id);
        }
    }

    /// The call whose key this id came with, in the life it had then.
    pub(super) fn by_alias(&mut self, name: &(CallId, ClientName)) -> Option<&mut Row> {
        let (row, life, _) = self.aliases.get(name)?;
        self.rows.get_mut(row).filter(|row| row.view.life == *life)
    }

    /// The calls whose keys came with this id, of one client or of any.
    pub(super) fn aliases_of(
        &self,
        call_id: &CallId,
        is_meant: impl Fn(&ClientName) -> bool,
    ) -> impl Iterator<Item = &Row> {
        let names = self
            .aliases
            .iter()
            .filter(move |((id, client), _)| id == call_id && is_meant(client));
        names.filter_map(|(_, (row, life, _))| {
            let row = self.rows.get(row)?;
            (row.view.life == *life).then_some(row)
        })
    }
}
