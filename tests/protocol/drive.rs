//! A call under way: the product's machines under a driver that performs their steps one at a
//! time, as `flow::drive` does, with late exchanges beside it.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::call::machine::Machine;
use crate::call::outcome::Reading;
use crate::call::recovery::{Known, Order, Patience, Recovery, Sending};
use crate::call::step::{Ending, Entry, Event, Reason, Step};
use crate::call::time::{Chance, Mono};
use crate::ledger::DeadState;
use crate::ledger::books::{self, Row};
use crate::rules::{Break, Setting};
use crate::world::{At, Doing, Drive, Errand, Said, Word, World};

/// What was closed is delivered or lost within this time, in an orderly network.
const ON_THE_WAY_MAX: Duration = Duration::from_secs(1);

/// One of the two machines, comparable by everything it holds.
#[derive(Clone, Debug)]
pub(crate) struct Brain {
    machine: Either,
    /// A hash over all its fields, which are its own: taken from their text.
    key: u64,
}

#[derive(Clone, Debug)]
enum Either {
    Line(Machine),
    Round(Recovery),
}

impl PartialEq for Brain {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Brain {}

impl Hash for Brain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key.hash(state);
    }
}

/// Text that is hashed as it is written.
pub(crate) struct Hashed<'a, H>(pub(crate) &'a mut H);

impl<H: Hasher> Write for Hashed<'_, H> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Brain {
    fn new(machine: Either) -> Self {
        let mut brain = Self { machine, key: 0 };
        brain.rekey();
        brain
    }

    fn rekey(&mut self) {
        let mut hasher = DefaultHasher::new();
        write!(Hashed(&mut hasher), "{:?}", self.machine).expect("hashing takes every write");
        self.key = hasher.finish();
    }

    fn on(&mut self, event: Event, now: Mono) -> Step {
        let chance = Chance::new(0.5);
        let step = match &mut self.machine {
            Either::Line(machine) => machine.on(event, now, chance),
            Either::Round(machine) => machine.on(event, now, chance),
        };
        self.rekey();
        step
    }

    pub(crate) const fn tally(&self) -> &crate::call::tally::Tally {
        match &self.machine {
            Either::Line(machine) => machine.tally(),
            Either::Round(machine) => machine.tally(),
        }
    }

    pub(crate) fn bound(&self, now: Mono) -> Duration {
        match &self.machine {
            Either::Line(machine) => machine.attempt_bound(now),
            Either::Round(machine) => machine.attempt_bound(now),
        }
    }

    pub(crate) const fn deadline(&self) -> Option<Mono> {
        match &self.machine {
            Either::Line(machine) => Some(machine.deadline()),
            Either::Round(machine) => machine.deadline(),
        }
    }
}

/// Who takes up a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The queue: a round, or a reversal that goes on.
    Queue,
    /// A caller who repeats the call.
    Repeat,
    /// An operator.
    Order(Order),
}

/// Which drive of which gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    pub(crate) gateway: usize,
    pub(crate) drive: usize,
}

impl World {
    pub(crate) fn drive(&self, at: Place) -> &Drive {
        &self.gateways[at.gateway].drives[at.drive]
    }

    pub(crate) fn drive_mut(&mut self, at: Place) -> &mut Drive {
        &mut self.gateways[at.gateway].drives[at.drive]
    }

    /// A new call in line, just recorded.
    pub(crate) fn enter(&mut self, gateway: usize, row: Row, set: &Setting) {
        let machine = Machine::new(Arc::clone(&set.policy), Mono(0));
        let brain = Brain::new(Either::Line(machine));
        self.start(gateway, row, Errand::Line, brain, set);
    }

    /// A dead letter, just claimed, by a round or for a caller who repeats.
    pub(crate) fn take_up(&mut self, gateway: usize, row: Row, visit: Visit, set: &Setting) {
        let unclear = row.state != crate::call::receipt::State::Received;
        // Time that nobody waited for has not passed here, so nothing was closed for any.
        let known = Known {
            open: self.gateways[gateway]
                .drives
                .iter()
                .any(|d| !d.late.is_empty()),
            reversals: if set.breaks == Break::OpenDoor {
                0
            } else {
                row.reversals
            },
            ..Known::of(u8::try_from(row.sends).unwrap_or(u8::MAX), unclear)
        };
        let policy = Arc::clone(&set.policy);
        let allowed = Sending::Allowed;
        let (errand, machine) = if let Visit::Order(order) = visit {
            let machine = Recovery::order(policy, Mono(0), order, known, allowed);
            (Errand::Order(order, row.round), machine)
        } else if row.dead == Some(DeadState::Reversing) {
            let machine = Recovery::undo(policy, Mono(0), known, allowed);
            (Errand::Undo(row.round), machine)
        } else if visit == Visit::Repeat {
            let patience = Patience {
                deadline: Mono(0).after(set.policy.timeouts.total),
                last_sent: Duration::ZERO,
            };
            let machine = Recovery::repeat(policy, Mono(0), patience, known, allowed);
            (Errand::Repeat(row.round), machine)
        } else {
            let round = row.round + 1;
            let machine = Recovery::new(policy, Mono(0), round, known, allowed);
            (Errand::Round(round), machine)
        };
        let brain = Brain::new(Either::Round(machine));
        self.start(gateway, row, errand, brain, set);
    }

    fn start(&mut self, gateway: usize, row: Row, errand: Errand, brain: Brain, set: &Setting) {
        self.seen.holder += 1;
        let id = self.seen.holder;
        let drives = &mut self.gateways[gateway].drives;
        drives.push(Drive {
            id,
            fence: row.fence,
            life: row.life,
            errand,
            brain,
            now: Mono(0),
            doing: Doing::Over,
            doomed: 0,
            late: Vec::new(),
            answers: matches!(errand, Errand::Line | Errand::Repeat(_)),
        });
        let at = Place {
            gateway,
            drive: drives.len() - 1,
        };
        self.tell(at, Event::Begun, set);
    }

    pub(crate) fn do_next(&mut self, at: Place, doing: Doing) {
        self.drive_mut(at).doing = doing;
        self.drive_mut(at).doomed = self.closed();
    }

    /// Time passes for a drive. After a tick, what was closed before is dead: delivered by now,
    /// or lost.
    pub(crate) fn pass(&mut self, at: Place, d: Duration, set: &Setting) {
        let drive = self.drive_mut(at);
        drive.now = drive.now.after(d);
        let doomed = drive.doomed;
        if d >= ON_THE_WAY_MAX && set.orderly {
            self.messages
                .retain(|m| m.bit() & doomed == 0 || m.at != At::Way);
        }
    }

    /// Tells the machine, and makes durable what its step needs.
    pub(crate) fn tell(&mut self, at: Place, event: Event, set: &Setting) {
        let doing = self.drive(at).doing;
        let over = doing == Doing::Over && event != Event::Begun;
        let now = self.drive(at).now;
        let step = self.drive_mut(at).brain.on(event, now);
        if over {
            return self.heard_late(at, event, step);
        }
        if step == Step::Keep {
            return;
        }
        // What was in flight when a late success came stays open.
        if let (Doing::Flying { n, message }, false) = (
            self.drive(at).doing,
            matches!(event, Event::Attempted { .. }),
        ) {
            self.drive_mut(at).late.push((n, message));
        }
        self.follow(at, step, set);
    }

    fn follow(&mut self, at: Place, step: Step, set: &Setting) {
        if let Step::Park(parking) = step
            && parking.reason == Reason::Impossible
        {
            self.seen.impossible = true;
        }
        if set.breaks == Break::PerformFirst && matches!(step, Step::Send { .. }) {
            return self.do_next(at, Doing::Perform(step));
        }
        match step {
            Step::Send { n, .. } if n > 1 || self.drive(at).errand != Errand::Line => {
                if !self.append(at, &books::send(n), set) {
                    return self.tell(at, Event::LedgerFailed, set);
                }
            }
            Step::Reverse { n } => {
                let written = self.append(at, &books::reverse(n), set);
                if !written && set.breaks != Break::ReverseFirst {
                    return self.tell(at, Event::LedgerFailed, set);
                }
            }
            Step::Park(parking) => {
                let drive = self.drive(at);
                let reached = drive.brain.tally().has_reached();
                let intention = books::parking(&parking, drive.errand, reached);
                if !self.append(at, &intention, set) {
                    return self.answer(at, None);
                }
            }
            Step::Answer(ending) if !self.record(at, ending, step.entry(true), set) => {
                return self.tell(at, Event::LedgerFailed, set);
            }
            Step::Answer(_)
            | Step::Send { .. }
            | Step::Ask
            | Step::Wait(_)
            | Step::CloseEarlier
            | Step::Keep
            | Step::PassHead(_) => {}
        }
        let doing = if step == Step::Ask {
            Doing::Asking
        } else {
            Doing::Perform(step)
        };
        self.do_next(at, doing);
    }

    /// Records the end; says whether it may be told.
    fn record(&mut self, at: Place, ending: Ending, durable: Entry, set: &Setting) -> bool {
        let life = self.drive(at).life;
        let Some(said) = said(life, ending) else {
            return true;
        };
        if durable == Entry::Nothing || set.breaks == Break::TellFirst {
            self.pursue(at.gateway, said);
            return true;
        }
        self.write_facts(at.gateway);
        self.row.as_mut().is_some_and(|row| row.fact(said))
    }

    fn pursue(&mut self, gateway: usize, said: Said) {
        let pursued = &mut self.gateways[gateway].pursued;
        if !pursued.contains(&said) {
            pursued.push(said);
        }
    }

    /// The ledger takes records in the order in which a process hands them over.
    pub(crate) fn write_facts(&mut self, gateway: usize) {
        for said in std::mem::take(&mut self.gateways[gateway].pursued) {
            if let Some(row) = &mut self.row {
                let _ = row.fact(said);
            }
        }
    }

    /// Late words after the end: facts all the same.
    fn heard_late(&mut self, at: Place, event: Event, step: Step) {
        let sends = self.drive(at).brain.tally().sends();
        let ending = match (step, event) {
            (Step::Answer(ending), _) => ending,
            (
                _,
                Event::LateAnswer {
                    n,
                    reading: Reading::Success(_),
                },
            ) => Ending::Success(n),
            (
                _,
                Event::LateAnswer {
                    n,
                    reading: Reading::Failure(_),
                },
            ) if sends == 1 => Ending::Failure(n),
            (_, _) => return,
        };
        let life = self.drive(at).life;
        if let Some(said) = said(life, ending) {
            self.pursue(at.gateway, said);
        }
    }

    /// Writes an intention, and notes whether it was the holder's.
    pub(crate) fn append(
        &mut self,
        at: Place,
        intention: &crate::ledger::Intention,
        set: &Setting,
    ) -> bool {
        self.write_facts(at.gateway);
        let claim = Self::claim_of(self.drive(at));
        let mine = self.drive(at).id == self.seen.holder;
        let open_door = set.breaks == Break::OpenDoor;
        let Some(row) = &mut self.row else {
            return false;
        };
        let reversals = row.reversals;
        if open_door {
            row.reversals = 0;
        }
        let written = row.append(claim, intention);
        row.reversals = row.reversals.max(reversals);
        self.seen.stale_write |= written && !mine;
        written
    }

    /// The drive is over; it stays while late exchanges may speak.
    pub(crate) fn leave(&mut self, at: Place) {
        self.drive_mut(at).doing = Doing::Over;
        self.drive_mut(at).doomed = 0;
    }

    /// Drives that nothing can happen to any more are gone.
    pub(crate) fn sweep(&mut self) {
        for gateway in &mut self.gateways {
            gateway
                .drives
                .retain(|d| d.doing != Doing::Over || !d.late.is_empty());
        }
        // What was answered cannot be lost any more.
        let open = self.messages.iter();
        let open = open.filter(|m| !matches!(m.at, At::Answered(_)));
        let open = open.fold(0, |mask, m| mask | m.bit());
        for drive in self.gateways.iter_mut().flat_map(|g| &mut g.drives) {
            drive.doomed &= open;
        }
        let closed = self.closed();
        self.messages
            .retain(|m| !(matches!(m.at, At::Answered(_)) && m.bit() & closed != 0));
    }
}

/// The end of a call as a fact.
fn said(life: u32, ending: Ending) -> Option<Said> {
    let (n, word) = match ending {
        Ending::Success(n) => (n, Word::Done),
        Ending::Failure(n) => (n, Word::Refused),
        Ending::Unbinding(n) => (n, Word::PassedOn),
        Ending::ReceiptSuccess => (0, Word::ReceiptDone),
        Ending::ReceiptFailed { .. } => (0, Word::ReceiptFailed),
        Ending::Refused(_) => return None,
    };
    Some(Said {
        life,
        n: u32::from(n),
        word,
    })
}
