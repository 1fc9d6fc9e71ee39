//! The list of dead letters and its figures, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Books;
use crate::ledger::{Cursor, DeadLetter, DeadState, Filter, PAGE_MAX, Page, Sort, Tally};

impl Books {
    pub(super) fn letters(&self) -> impl Iterator<Item = &DeadLetter> {
        self.rows
            .values()
            .flat_map(|row| row.past.iter().chain(&row.view.dead_letter))
    }

    pub(super) fn dead_letters(&self, filter: &Filter, from: Option<Cursor>, limit: usize) -> Page {
        let limit = limit.clamp(1, PAGE_MAX);
        let sort = filter.sort;
        let place = |letter: &DeadLetter| sort.behind(letter);
        let mut items: Vec<DeadLetter> = self
            .letters()
            .filter(|letter| matches(filter, letter))
            .filter(|letter| from.is_none_or(|from| stands_after(sort, letter, from)))
            .cloned()
            .collect();
        items.sort_by_key(place);
        if sort == Sort::Newest {
            items.reverse();
        }
        let more = items.len() > limit;
        items.truncate(limit);
        Page {
            next: if more { items.last().map(place) } else { None },
            items,
        }
    }

    pub(super) fn tally(&self) -> Vec<Tally> {
        let mut tallies: BTreeMap<(DeadState, Arc<str>), Tally> = BTreeMap::new();
        for letter in self.letters().filter(|letter| letter.state.is_open()) {
            let route = Arc::clone(&letter.route);
            let tally = tallies
                .entry((letter.state, Arc::clone(&route)))
                .or_insert(Tally {
                    route,
                    state: letter.state,
                    count: 0,
                    oldest: letter.create_time,
                });
            tally.count += 1;
            tally.oldest = tally.oldest.min(letter.create_time);
        }
        tallies.into_values().collect()
    }
}

/// Whether a dead letter is one of those asked for.
pub(super) fn matches(filter: &Filter, letter: &DeadLetter) -> bool {
    let is = |wanted: &Option<Arc<str>>, found: &str| {
        wanted.as_ref().is_none_or(|wanted| **wanted == *found)
    };
    let keys = [&letter.idempotency_key, &letter.business_key];
    filter.state.is_none_or(|state| state == letter.state)
        && is(&filter.route, &letter.route)
        && filter
            .client
            .as_ref()
            .is_none_or(|client| *client == letter.client)
        && filter
            .parked_before
            .is_none_or(|before| letter.create_time < before)
        && filter.error.as_ref().is_none_or(|error| {
            letter.last_error.contains(&**error) || letter.reason.contains(&**error)
        })
        && filter
            .key
            .as_ref()
            .is_none_or(|key| keys.contains(&&Some(Arc::clone(key))))
        && filter
            .call_id
            .as_ref()
            .is_none_or(|id| *id == letter.call_id)
        && filter
            .receipt
            .is_none_or(|said| letter.last_receipt == Some(said))
        && filter
            .text
            .as_ref()
            .is_none_or(|text| holds(letter, &text.to_ascii_lowercase()))
        && (filter.within.is_empty() || filter.within.contains(&letter.state))
}

fn holds(letter: &DeadLetter, text: &str) -> bool {
    let keys = [&letter.business_key, &letter.idempotency_key];
    let keys = keys.into_iter().filter_map(|key| key.as_deref());
    [letter.call_id.as_str(), &letter.reason, &letter.last_error]
        .into_iter()
        .chain(keys)
        .any(|place| place.to_ascii_lowercase().contains(text))
}

/// Whether a dead letter stands behind a cursor.
fn stands_after(sort: Sort, letter: &DeadLetter, from: Cursor) -> bool {
    let place = sort.behind(letter);
    match sort {
        Sort::Newest => place < from,
        Sort::Oldest | Sort::Due | Sort::Fails => place > from,
    }
}
