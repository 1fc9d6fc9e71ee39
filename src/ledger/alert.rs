//! What the ledger keeps of alerts: which rows people were told of, and what waits to be told.
//!
//! Alerts are derived from the record and not from whoever changed it: a row that is `MANUAL` and
//! was not told of is found by index, also after a crash and whatever made it so. Taking it marks
//! it and adds it to the note of its route and event in one step, so that it is told of once; the
//! note lives until it is delivered. Deliberately absent: addresses and deliveries.

use std::sync::Arc;
use std::time::Duration;

use crate::call::alert::{Event, Standing};
use crate::call::id::CallId;
use crate::call::time::Wall;
use crate::ledger::DeadState;

/// How many calls an alert names; it is an alert, not a list.
pub const EXAMPLES_MAX: usize = 5;

/// What is looked for on behalf of one route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The route.
    pub route: Arc<str>,
    /// What people want to be told of. [`Event::OldestOver`] here means that the oldest call is
    /// over its age now and that it has to be noted.
    pub events: Vec<Event>,
    /// Events within this time after an alert are told with the next one.
    pub repeat: Duration,
}

/// What waits to be told about one route and event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The route.
    pub route: Arc<str>,
    /// What happened.
    pub event: Event,
    /// Alerts told so far: together with route, event and `since` the name of the next one.
    pub told: u64,
    /// How it stands.
    pub standing: Standing,
    /// How many of the waiting came up within the window of the alert before.
    pub held: u64,
    /// When the first of the waiting was seen.
    pub since: Wall,
    /// Some of them, the first seen first.
    pub examples: Vec<Example>,
}

/// One call of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Example {
    /// The call.
    pub call_id: CallId,
    /// The reason of its dead letter, or the kind of its difference.
    pub reason: Arc<str>,
}

/// What a look for alerts found. Reads only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Untold {
    /// Whether rows are there that no note has yet.
    pub fresh: bool,
    /// For each watch, in its order: when its oldest unresolved call was parked.
    pub oldest: Vec<Option<Wall>>,
    /// Every note, also of routes that are not watched.
    pub notes: Vec<Note>,
}

/// What became of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was delivered, and spoke of so many events; those that came up since wait on.
    Delivered {
        /// How many it spoke of.
        count: u64,
    },
    /// It was not, and is tried again then.
    Failed {
        /// When.
        next_try: Wall,
    },
    /// There is nothing to tell any more.
    Over,
}

impl Untold {
    /// What waits about a route and event.
    #[must_use]
    pub fn note(&self, route: &str, event: Event) -> Option<&Note> {
        let is = |note: &&Note| *note.route == *route && note.event == event;
        self.notes.iter().find(is)
    }
}

impl Note {
    /// Nothing was ever told, and nothing waits.
    pub(super) fn empty(route: &Arc<str>, event: Event) -> Self {
        Self {
            route: Arc::clone(route),
            event,
            told: 0,
            standing: Standing::default(),
            held: 0,
            since: Wall(0),
            examples: Vec::new(),
        }
    }

    /// Adds what was taken at `now`.
    pub(super) fn add(&mut self, taken: Vec<Example>, repeat: Duration, now: Wall) {
        let count = taken.len() as u64;
        if count == 0 {
            return;
        }
        if self.standing.waiting == 0 {
            self.since = now;
        }
        if self.standing.holds(repeat, now) {
            self.held += count;
        }
        self.standing.waiting += count;
        let room = EXAMPLES_MAX.saturating_sub(self.examples.len());
        self.examples.extend(taken.into_iter().take(room));
    }

    /// Notes what became of the alert.
    pub(super) fn step(&mut self, told: Told, now: Wall) {
        let standing = &mut self.standing;
        match told {
            Told::Delivered { count } => {
                *standing = Standing {
                    waiting: standing.waiting.saturating_sub(count),
                    told_at: Some(now),
                    ..Standing::default()
                };
                self.told += 1;
                // What came up while it was under way waits for the next one.
                self.held = standing.waiting;
                self.since = now;
                self.examples.clear();
            }
            Told::Failed { next_try } => {
                standing.tries = standing.tries.saturating_add(1);
                standing.next_try = Some(next_try);
            }
            Told::Over => {
                *standing = Standing {
                    told_at: standing.told_at,
                    ..Standing::default()
                };
                self.held = 0;
                self.examples.clear();
            }
        }
    }
}

/// The dead letters an event speaks of, by their state.
pub(super) const fn state_of(event: Event) -> Option<DeadState> {
    match event {
        Event::Manual => Some(DeadState::Manual),
        Event::Reversed => Some(DeadState::Reversed),
        Event::Difference | Event::OldestOver => None,
    }
}
