//! One call in memory: its view, kept current, and the little a view does not show.

use std::sync::Arc;
use std::time::Duration;

use crate::call::id::ClientName;
use crate::call::outcome::Cause;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::rule::Held;
use crate::ledger::story::Life;
use crate::ledger::view::{DeadLetter, Difference};
use crate::ledger::{
    CallView, Claim, Contradiction, DeadState, Due, Entry, Intention, KeyScope, Known, NewCall,
    Owner, RowId, StoredRequest, StoredUndo,
};

mod ends;

/// A call's row.
pub(super) struct Row {
    pub(super) view: CallView,
    pub(super) key_binds: bool,
    /// What its key belongs to.
    pub(super) scope: Arc<str>,
    /// Dead letters of earlier lives.
    pub(super) past: Vec<DeadLetter>,
    /// Those lives.
    pub(super) lives: Vec<Life>,
    fence: i64,
    touched: Wall,
    window: Duration,
    request: StoredRequest,
    pub(super) policy: Arc<str>,
    undo: Option<StoredUndo>,
}

impl Row {
    /// A fresh row, or a new life of an old one.
    pub(super) fn new(row: RowId, new: NewCall, old: Option<Self>) -> Self {
        let (life, fence, past, lives) = match old {
            None => (1, 1, Vec::new(), Vec::new()),
            Some(mut old) => {
                old.lives.push(Life::of(&old.view));
                let letters = old.past.into_iter().chain(old.view.dead_letter);
                let letters = letters.collect();
                (old.view.life + 1, old.fence + 1, letters, old.lives)
            }
        };
        let first_sent = new.first_send.then_some(new.now);
        let sent = first_sent.map(|at| Entry::Sent {
            at,
            n: 1,
            cause: None,
        });
        let view = CallView {
            row,
            life,
            call_id: new.call_id,
            source: new.source,
            client: new.client,
            route: new.route,
            upstream: new.upstream,
            idempotency_key: new.idempotency_key,
            business_key: new.business_key,
            fingerprint: new.fingerprint,
            trace: new.trace,
            state: if new.first_send {
                State::Processing
            } else {
                State::Received
            },
            binds: true,
            owner: new.owner,
            lease_until: new.lease_until,
            received_at: new.now,
            updated_at: new.now,
            first_sent,
            sends: u32::from(new.first_send),
            promised: new.promised,
            recognised: false,
            told: false,
            settled: None,
            kept: None,
            dead_letter: None,
            differences: Vec::new(),
            history: sent.into_iter().collect(),
        };
        Self {
            key_binds: view.idempotency_key.is_some(),
            scope: Arc::clone(&new.scope.name),
            view,
            past,
            lives,
            fence,
            touched: new.now,
            window: new.window,
            request: new.request,
            policy: new.policy,
            undo: None,
        }
    }

    pub(super) const fn claim(&self) -> Claim {
        Claim {
            row: self.view.row,
            life: self.view.life,
            fence: self.fence,
        }
    }

    /// Every contradiction, with the life it belongs to.
    pub(super) fn differences(&self) -> impl Iterator<Item = (u32, &Difference)> {
        let past = self.lives.iter().map(|life| (life.life, &life.differences));
        past.chain([(self.view.life, &self.view.differences)])
            .flat_map(|(life, all)| all.iter().map(move |difference| (life, difference)))
    }

    pub(super) fn held(&self) -> Held {
        Held {
            life: self.view.life,
            fence: self.fence,
            state: self.view.state,
            binds: self.view.binds,
            touched: self.touched,
            remembered_until: self.touched.after(self.window),
            sends: self.view.sends,
            told: self.view.told,
            dead: self.view.dead_letter.as_ref().map(|letter| letter.state),
            reversals: self
                .view
                .dead_letter
                .as_ref()
                .map_or(0, |letter| letter.reversals),
        }
    }

    pub(super) fn is_same(&self, new: &NewCall) -> bool {
        self.view.fingerprint == new.fingerprint
    }

    /// Whether this is the same request, and the call has no end yet.
    pub(super) fn is_open_for(&self, new: &NewCall) -> bool {
        self.is_repeated_by(new) && self.view.settled.is_none()
    }

    /// Whether this is the same request, under no other key.
    pub(super) fn is_repeated_by(&self, new: &NewCall) -> bool {
        let key = &new.idempotency_key;
        self.is_same(new) && (key.is_none() || self.view.idempotency_key == *key)
    }

    pub(super) fn holds_key_of(&self, new: &NewCall) -> bool {
        let key = new.idempotency_key.as_ref();
        key.is_some_and(|key| self.holds_key(&new.client, key, &new.scope))
    }

    /// Whether this key is bound to it for `client`.
    pub(super) fn holds_key(&self, client: &ClientName, key: &Arc<str>, scopes: &KeyScope) -> bool {
        self.key_binds
            && self.view.idempotency_key.as_ref() == Some(key)
            && client.is_or_was(self.view.client.as_str())
            && scopes.names().any(|scope| *scope == self.scope)
    }

    /// Whether it waits in the compensation queue and asks for the same.
    pub(super) fn is_alike(&self, new: &NewCall) -> bool {
        self.is_same(new)
            && new.client.is_or_was(self.view.client.as_str())
            && new.is_route(&self.view.route)
            && self.held().dead.is_some_and(DeadState::is_open)
    }

    pub(super) fn known(&mut self, same: bool, now: Wall) -> Box<Known> {
        if let Some(touched) = self.held().renewed(now).filter(|_| same) {
            self.touched = touched;
        }
        Known::boxed(same, self.view.clone())
    }

    fn send(&mut self, now: Wall, (n, cause): (u32, Option<Cause>), moved: Option<Arc<str>>) {
        if let Some(to) = moved {
            let from = std::mem::replace(&mut self.view.upstream, Arc::clone(&to));
            self.view.history.push(Entry::Moved { at: now, from, to });
        }
        self.view.sends = n;
        self.view.first_sent.get_or_insert(now);
        self.view.state = match self.view.dead_letter {
            None => State::Processing,
            Some(_) => State::Unknown,
        };
        self.view.history.push(Entry::Sent { at: now, n, cause });
    }

    fn touch(&mut self, now: Wall, intention: &Intention) {
        if !matches!(intention, Intention::Tell | Intention::ReleaseLease { .. }) {
            self.view.updated_at = now;
        }
        if intention.is_of_unsent() {
            self.view.state = State::Received;
        }
    }

    /// Writes an intention that is known to fit.
    pub(super) fn append(&mut self, now: Wall, intention: Intention) {
        self.touch(now, &intention);
        match intention {
            Intention::Send {
                n,
                cause,
                moved,
                lease_until,
            } => {
                self.send(now, (n, cause), moved);
                self.hold(lease_until);
            }
            Intention::Tell => self.view.told = true,
            Intention::Park(how) => self.park(now, how),
            Intention::NextRound {
                round,
                due,
                last_error,
                ..
            } => {
                self.move_on(DeadState::Queued, now, None, round, last_error);
                if let Some(letter) = &mut self.view.dead_letter {
                    letter.next_retry_time = Some(due);
                }
            }
            Intention::Manual {
                reason,
                round,
                last_error,
                ..
            } => {
                let reason = Some(Arc::from(&*reason));
                self.move_on(DeadState::Manual, now, reason, round, last_error);
                if let Some(letter) = &mut self.view.dead_letter {
                    letter.next_retry_time = None;
                }
            }
            Intention::Reverse {
                n,
                request,
                lease_until,
            } => {
                self.undo.get_or_insert(request);
                if let Some(letter) = &mut self.view.dead_letter {
                    letter.state = DeadState::Reversing;
                    letter.reversals = n;
                    letter.by_hand = false;
                }
                self.view.history.push(Entry::Reversing { at: now, n });
                self.hold(lease_until);
            }
            Intention::ReverseAgain { due, last_error } => {
                if let Some(letter) = &mut self.view.dead_letter {
                    letter.give_back();
                    letter.last_error = last_error;
                    letter.next_retry_time = Some(due);
                }
            }
            Intention::Reversed => self.reversed(now),
            Intention::ReleaseLease { .. } => {
                if let Some(letter) = &mut self.view.dead_letter {
                    letter.give_back();
                }
            }
        }
    }

    fn move_on(
        &mut self,
        state: DeadState,
        now: Wall,
        reason: Option<Arc<str>>,
        round: u32,
        last_error: Arc<str>,
    ) {
        let Some(letter) = &mut self.view.dead_letter else {
            return;
        };
        letter.release(state);
        letter.round = round;
        letter.fail_count += 1;
        let told = reason.as_ref().unwrap_or(&last_error).to_string();
        if let Some(reason) = reason {
            letter.reason = reason;
        }
        letter.last_error = last_error;
        self.view.history.push(Entry::Parked {
            at: now,
            state,
            reason: told.into(),
            round,
        });
    }

    pub(super) fn hold(&mut self, lease_until: Wall) {
        self.view.lease_until = lease_until;
        if let Some(letter) = &mut self.view.dead_letter {
            letter.lease_until = Some(lease_until);
        }
    }

    /// The tool knows this life of the call, which is not over.
    pub(super) fn recognise(&mut self, life: u32) {
        self.view.recognised |= life == self.view.life && self.view.settled.is_none();
    }

    /// Adds history.
    pub(super) fn note(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let life = self.view.life;
        for entry in entries {
            self.note_of(life, entry);
        }
    }

    /// Adds history to this life, or to one that is over.
    pub(super) fn note_of(&mut self, life: u32, entry: Entry) {
        let past = self.lives.iter_mut().find(|past| past.life == life);
        let mut letters = self.past.iter_mut();
        let letter = letters.find(|letter| letter.life == life);
        let (differences, history, letters) = match past {
            Some(past) => (
                &mut past.differences,
                &mut past.history,
                [past.dead_letter.as_mut(), letter],
            ),
            None if life == self.view.life => (
                &mut self.view.differences,
                &mut self.view.history,
                [self.view.dead_letter.as_mut(), None],
            ),
            None => return,
        };
        if let Entry::Receipt { answer, .. } = &entry {
            for letter in letters.into_iter().flatten() {
                letter.last_receipt = Some(*answer);
            }
        }
        match entry {
            Entry::Differs { at, kind, told } => {
                record(differences, at, kind, &told);
            }
            other => history.push(other),
        }
    }

    pub(super) fn differ(&mut self, at: Wall, kind: Contradiction, told: &str) -> bool {
        record(&mut self.view.differences, at, kind, told)
    }

    /// Where a claimable dead letter stands in line: abandoned passes first, then reversals, then
    /// rounds, each by the time.
    pub(super) fn due(&self, now: Wall) -> Option<(u8, Wall, Option<Wall>)> {
        let letter = self.view.dead_letter.as_ref()?;
        let (turn, at) = match (letter.state, &letter.owner) {
            (DeadState::Running | DeadState::Reversing, Some(_)) => (0, letter.lease_until?),
            (DeadState::Reversing, None) => (1, letter.next_retry_time?),
            (DeadState::Queued, _) => (2, letter.next_retry_time?),
            _ => return None,
        };
        (at <= now).then_some((turn, at, letter.next_retry_time))
    }

    pub(super) fn claim_round(&mut self, owner: &Owner, now: Wall, lease_until: Wall) -> Due {
        self.fence += 1;
        self.view.owner = owner.clone();
        self.hold(lease_until);
        if let Some(letter) = &mut self.view.dead_letter {
            letter.by_hand = letter.state == DeadState::Manual;
            if letter.state != DeadState::Reversing {
                letter.state = DeadState::Running;
            }
            letter.owner = Some(owner.clone());
            letter.fence = self.fence;
        }
        let owner = owner.as_str().into();
        self.view.history.push(Entry::Claimed {
            at: now,
            owner,
            fence: self.fence,
        });
        self.due_under(self.claim())
    }

    /// Everything a pass over it needs, without a claim.
    pub(super) fn dossier(&self) -> Due {
        self.due_under(Claim::none(self.view.row, self.view.life))
    }

    fn due_under(&self, claim: Claim) -> Due {
        Due {
            claim,
            call: self.view.clone(),
            request: self.request.clone(),
            policy: Arc::clone(&self.policy),
            undo: self.undo.clone(),
        }
    }
}

impl DeadLetter {
    /// Nobody works on it any more.
    pub(super) fn release(&mut self, state: DeadState) {
        self.state = state;
        self.owner = None;
        self.lease_until = None;
        self.by_hand = false;
    }

    /// The same, and it waits where it waited before.
    pub(super) fn give_back(&mut self) {
        self.release(match self.state {
            DeadState::Reversing => DeadState::Reversing,
            _ if self.by_hand => DeadState::Manual,
            _ => DeadState::Queued,
        });
    }
}

/// Records a contradiction; `true` when it is the first of its kind.
fn record(seen: &mut Vec<Difference>, at: Wall, kind: Contradiction, told: &str) -> bool {
    let known = seen.iter().any(|difference| difference.kind == kind);
    if !known {
        let told = told.into();
        seen.push(Difference { kind, at, told });
    }
    !known
}
