//! Alerts in memory: the same marks and notes, without an index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Books;
use crate::call::alert::Event;
use crate::call::time::Wall;
use crate::ledger::alert::{Example, Note, Told, Untold, Watch, state_of};
use crate::ledger::{Contradiction, DeadLetter, DeadState, RowId};

/// What people were told of, and what waits.
#[derive(Default)]
pub(super) struct Alerts {
    notes: BTreeMap<(Arc<str>, Event), Note>,
    letters: BTreeSet<(RowId, u32, DeadState)>,
    differences: BTreeSet<(RowId, u32, Contradiction)>,
}

/// A difference nobody was told of.
struct Fresh {
    key: (RowId, u32, Contradiction),
    route: Arc<str>,
    example: Example,
}

impl Books {
    pub(super) fn untold(&self, watches: &[Watch]) -> Untold {
        let any = |watch: &Watch| {
            let states = watch.events.iter().filter_map(|event| state_of(*event));
            states
                .into_iter()
                .any(|state| self.fresh(&watch.route, state).next().is_some())
        };
        Untold {
            fresh: !self.fresh_differences(1).is_empty() || watches.iter().any(any),
            oldest: watches
                .iter()
                .map(|watch| self.oldest(&watch.route).map(|letter| letter.create_time))
                .collect(),
            notes: self.alerts.notes.values().cloned().collect(),
        }
    }

    pub(super) fn fold_alerts(&mut self, watches: &[Watch], now: Wall, limit: usize) -> bool {
        let mut more = self.fold_differences(watches, now, limit);
        for watch in watches {
            for event in &watch.events {
                let taken = match (event, state_of(*event)) {
                    (_, Some(state)) => self.take(&watch.route, state, limit),
                    (Event::OldestOver, None) => {
                        self.oldest(&watch.route).map(example).into_iter().collect()
                    }
                    (_, None) => Vec::new(),
                };
                more |= taken.len() >= limit;
                self.add(watch, *event, taken, now);
            }
        }
        more
    }

    pub(super) fn alert_told(&mut self, route: &Arc<str>, event: Event, told: Told, now: Wall) {
        if let Some(note) = self.alerts.notes.get_mut(&(Arc::clone(route), event)) {
            note.step(told, now);
        }
    }

    /// A purged row takes its marks with it.
    pub(super) fn forget_alerts(&mut self, row: RowId) {
        self.alerts.letters.retain(|(of, ..)| *of != row);
        self.alerts.differences.retain(|(of, ..)| *of != row);
    }

    fn add(&mut self, watch: &Watch, event: Event, taken: Vec<Example>, now: Wall) {
        if taken.is_empty() {
            return;
        }
        self.alerts
            .notes
            .entry((Arc::clone(&watch.route), event))
            .or_insert_with(|| Note::empty(&watch.route, event))
            .add(taken, watch.repeat, now);
    }

    fn fresh(&self, route: &str, state: DeadState) -> impl Iterator<Item = &DeadLetter> {
        self.letters().filter(move |letter| {
            let told = (letter.row, letter.life, state);
            *letter.route == *route && letter.state == state && !self.alerts.letters.contains(&told)
        })
    }

    fn take(&mut self, route: &str, state: DeadState, limit: usize) -> Vec<Example> {
        let found: Vec<_> = self
            .fresh(route, state)
            .take(limit)
            .map(|letter| ((letter.row, letter.life, state), example(letter)))
            .collect();
        let (told, examples): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        self.alerts.letters.extend(told);
        examples
    }

    fn fold_differences(&mut self, watches: &[Watch], now: Wall, limit: usize) -> bool {
        let found = self.fresh_differences(limit);
        self.alerts
            .differences
            .extend(found.iter().map(|fresh| fresh.key));
        for watch in watches {
            if watch.events.contains(&Event::Difference) {
                let mine = found.iter().filter(|fresh| fresh.route == watch.route);
                let mine = mine.map(|fresh| fresh.example.clone()).collect();
                self.add(watch, Event::Difference, mine, now);
            }
        }
        found.len() >= limit
    }

    fn fresh_differences(&self, limit: usize) -> Vec<Fresh> {
        let all = self.rows.values().flat_map(|row| {
            row.differences().map(|(life, difference)| Fresh {
                key: (row.view.row, life, difference.kind),
                route: Arc::clone(&row.view.route),
                example: Example {
                    call_id: row.view.call_id.clone(),
                    reason: difference.kind.as_str().into(),
                },
            })
        });
        all.filter(|fresh| !self.alerts.differences.contains(&fresh.key))
            .take(limit)
            .collect()
    }

    fn oldest(&self, route: &str) -> Option<&DeadLetter> {
        self.letters()
            .filter(|letter| letter.state.is_open() && *letter.route == *route)
            .min_by_key(|letter| (letter.create_time, letter.row, letter.life))
    }
}

fn example(letter: &DeadLetter) -> Example {
    Example {
        call_id: letter.call_id.clone(),
        reason: Arc::clone(&letter.reason),
    }
}
