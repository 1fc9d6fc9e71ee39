//! What becomes of the world by an action.

use crate::call::outcome::{NotSent, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, State};
use crate::call::step::{Ending, Event, Parked, Step, Undo};
use crate::drive::{Place, Visit};
use crate::ledger::DeadState;
use crate::ledger::books::Row;
use crate::moves::{Action, Fate, Move};
use crate::rules::{Break, Setting};
use crate::world::{At, Doing, Message, World};

impl World {
    pub(crate) fn act(&mut self, set: &Setting, action: Action) {
        match action {
            Action::Request(g) => self.request(g, set),
            Action::Crash(g) => self.crash(g),
            Action::Start(g) => {
                self.gateways[g].up = true;
                self.gateways[g].instance += 1;
            }
            Action::Recover(g) => {
                let row = self.row.as_mut().expect("a row was found");
                row.recover();
                let owner = row.owner;
                self.paused(owner);
                let instance = self.gateways[g].instance;
                if set.breaks == Break::RunAgain {
                    let row = Row::begin(self.row, (g, instance));
                    self.row = Some(row);
                    self.enter(g, row, set);
                }
            }
            Action::Claim(g) => self.claim(g, Visit::Queue, set),
            Action::Order(g, order) => {
                self.luck.orders -= 1;
                self.claim(g, Visit::Order(order), set);
            }
            Action::Write(g) => self.write_facts(g),
            Action::Deliver(number, fate) => self.deliver(number, fate, set),
            Action::Finish(number, fate) => self.finish(number, fate),
            Action::Drive(at, m) => self.step(at, m, set),
        }
        self.sweep();
    }

    fn request(&mut self, g: usize, set: &Setting) {
        self.write_facts(g);
        self.caller.left -= 1;
        let owner = (g, self.gateways[g].instance);
        match self.row {
            Some(row) if !row.is_free() => match row.state {
                State::Success => self.seen.told_success = true,
                // It is told that its call was undone.
                State::Failed if row.dead == Some(DeadState::Reversed) => {}
                State::Failed => self.seen.told_failure[row.life as usize] = true,
                State::Received | State::Processing | State::Unknown => {
                    // A repeat takes up what waits in the queue; else it is told that nobody knows.
                    if row.dead == Some(DeadState::Queued) && self.may_take(set, g) {
                        self.caller.waits = Some(g);
                        self.claim(g, Visit::Repeat, set);
                    }
                }
            },
            free => {
                let row = Row::begin(free, owner);
                self.row = Some(row);
                self.caller.waits = Some(g);
                self.enter(g, row, set);
            }
        }
    }

    fn crash(&mut self, g: usize) {
        self.luck.crashes -= 1;
        let gateway = &mut self.gateways[g];
        gateway.up = false;
        gateway.drives.clear();
        gateway.pursued.clear();
        if self.caller.waits == Some(g) {
            self.caller.waits = None;
        }
    }

    /// A living owner was taken for dead.
    fn paused(&mut self, owner: (usize, u8)) {
        if self.is_alive(owner) {
            self.luck.pauses = self.luck.pauses.saturating_sub(1);
        }
    }

    fn claim(&mut self, g: usize, visit: Visit, set: &Setting) {
        self.write_facts(g);
        let instance = self.gateways[g].instance;
        let row = self.row.as_mut().expect("a row was found");
        if row.is_settled() {
            return;
        }
        let (owner, free) = (row.owner, !row.leased);
        row.claim_round((g, instance), set.breaks != Break::NoFence);
        let row = *row;
        if !free {
            self.paused(owner);
        }
        self.take_up(g, row, visit, set);
    }

    fn deliver(&mut self, number: u8, fate: Fate, set: &Setting) {
        let denied = self.seen.denied;
        let was_denied =
            |m: &Message| m.life < denied.0 || (m.life == denied.0 && u32::from(m.n) <= denied.1);
        let found = self.messages.iter().find(|m| m.number == number);
        self.seen.after_not_found |= found.is_some_and(was_denied);
        let at = match fate {
            Fate::Turned(status) => At::Answered(status),
            Fate::Known => At::Answered(match self.tool.record {
                Some(State::Success) => 200,
                Some(State::Failed) => 422,
                _ => 409,
            }),
            Fate::Work | Fate::Commit(_) | Fate::Fail => At::Work,
        };
        if at == At::Work && !set.at_commit() && self.tool.record.is_none() {
            self.tool.record = Some(State::Processing);
        }
        if let Some(message) = self.message(number) {
            message.at = at;
        }
    }

    fn finish(&mut self, number: u8, fate: Fate) {
        let Some(message) = self.message(number) else {
            return;
        };
        let life = message.life as usize;
        message.at = At::Answered(match fate {
            Fate::Commit(status) => status,
            Fate::Work | Fate::Known | Fate::Turned(_) | Fate::Fail => 422,
        });
        if let Fate::Commit(_) = fate {
            self.tool.effects[life] += 1;
            self.tool.record = Some(State::Success);
        } else if self.tool.record != Some(State::Success) {
            self.tool.record = Some(State::Failed);
        }
    }

    /// The tool's answer to a question asked now.
    fn formed(&mut self, set: &Setting) -> Answer {
        if set.breaks == Break::SkipReceipt {
            return Answer::NotFound;
        }
        match self.tool.record {
            Some(state) => Answer::State(state),
            None => {
                let on_record = self.row.map(|row| (row.life, row.sends));
                self.seen.denied = on_record.unwrap_or_default();
                Answer::NotFound
            }
        }
    }

    fn step(&mut self, at: Place, m: Move, set: &Setting) {
        let doing = self.drive(at).doing;
        match (m, doing) {
            (Move::Late(n), _) => self.late(at, n, true, set),
            (Move::Silent(n), _) => self.late(at, n, false, set),
            (_, Doing::Perform(Step::Reverse { .. })) => self.reverse(at, m, set),
            (_, Doing::Undone(undo)) => self.tell(at, Event::Reversed(undo), set),
            (Move::Refused, _) => self.attempted(at, Outcome::NotSent(NotSent::Connect), set),
            (Move::Cut, _) => self.attempted(at, Outcome::Unclear(Unclear::Disconnect), set),
            (Move::Timeout, Doing::Flying { n, message }) => {
                let bound = self.drive(at).brain.bound(self.drive(at).now);
                self.pass(at, bound, set);
                self.drive_mut(at).late.push((n, message));
                self.tell(
                    at,
                    Event::Attempted {
                        outcome: Outcome::Unclear(Unclear::Timeout),
                        retry_after: None,
                        open: true,
                    },
                    set,
                );
            }
            (Move::Answered, Doing::Flying { message, .. }) => {
                let reading = self.read(message);
                self.forget(message);
                self.attempted(at, Outcome::Answered(reading), set);
            }
            (Move::Form, _) => {
                let answer = self.formed(set);
                self.do_next(at, Doing::Heard(answer));
            }
            (Move::Lose, _) => {
                let unknown = match set.breaks {
                    Break::TrustUnknown => Answer::NotFound,
                    _ => Answer::State(State::Unknown),
                };
                self.tell(at, Event::Receipt(unknown), set);
            }
            (Move::Deadline, _) => {
                let deadline = self.drive(at).brain.deadline();
                let left = deadline
                    .map(|d| d.since(self.drive(at).now))
                    .unwrap_or_default();
                self.pass(at, left, set);
                self.tell(at, Event::DeadlinePassed, set);
            }
            (_, Doing::Heard(answer)) => self.tell(at, Event::Receipt(answer), set),
            (_, Doing::Perform(step)) => self.perform(at, step, set),
            (_, Doing::Flying { .. } | Doing::Asking | Doing::Over) => {}
        }
    }

    fn read(&self, message: u8) -> Reading {
        let status = match self.at(message) {
            Some(At::Answered(status)) => status,
            _ => 500,
        };
        Reading::by_status(http::StatusCode::from_u16(status).expect("a status"))
    }

    fn attempted(&mut self, at: Place, outcome: Outcome, set: &Setting) {
        let event = Event::Attempted {
            outcome,
            retry_after: None,
            open: false,
        };
        self.tell(at, event, set);
    }

    fn late(&mut self, at: Place, n: u8, answered: bool, set: &Setting) {
        let late = &mut self.drive_mut(at).late;
        let Some(found) = late.iter().position(|(attempt, _)| *attempt == n) else {
            return;
        };
        let (_, message) = late.remove(found);
        // By the drive's own clock no time has passed since its present doing began.
        self.drive_mut(at).doomed = self.closed();
        let event = if answered {
            let reading = self.read(message);
            self.forget(message);
            Event::LateAnswer { n, reading }
        } else {
            Event::LateEnded { n }
        };
        self.tell(at, event, set);
    }

    fn perform(&mut self, at: Place, step: Step, set: &Setting) {
        match step {
            Step::Send { n, .. } => self.send(at, n),
            Step::Wait(d) => {
                self.pass(at, d, set);
                self.tell(at, Event::Waited, set);
            }
            Step::CloseEarlier => {
                if set.breaks != Break::NoClose {
                    self.close(at.gateway);
                }
                self.tell(at, Event::Closed, set);
            }
            Step::Answer(ending) => {
                let success = matches!(ending, Ending::Success(_) | Ending::ReceiptSuccess);
                let refused = matches!(ending, Ending::Refused(_));
                self.answer(at, (!refused).then_some(success));
            }
            Step::Park(parking) => {
                let never = parking.state == Parked::NeverSent;
                self.answer(at, never.then_some(false));
            }
            Step::Ask | Step::Keep | Step::PassHead(_) | Step::Reverse { .. } => {}
        }
    }

    fn send(&mut self, at: Place, n: u8) {
        let (life, number) = (self.drive(at).life, self.seen.sends);
        let on_record = |row: &Row| row.life == life && row.sends >= u32::from(n);
        self.seen.unrecorded_send |= !self.row.as_ref().is_some_and(on_record);
        let reversing = |row: &Row| row.reversals > 0;
        self.seen.sent_after_reversing |= self.row.as_ref().is_some_and(reversing);
        self.seen.sends += 1;
        self.messages.push(Message {
            number,
            life,
            n,
            at: At::Way,
        });
        self.do_next(at, Doing::Flying { n, message: number });
    }

    /// Every exchange of the call in this gateway is reset.
    fn close(&mut self, gateway: usize) {
        for drive in &mut self.gateways[gateway].drives {
            drive.late.clear();
        }
    }

    /// The caller hears success, failure, or that nobody knows.
    pub(crate) fn answer(&mut self, at: Place, success: Option<bool>) {
        let (answers, life) = (self.drive(at).answers, self.drive(at).life as usize);
        if answers && self.caller.waits == Some(at.gateway) {
            self.caller.waits = None;
            match success {
                Some(true) => self.seen.told_success = true,
                Some(false) => self.seen.told_failure[life] = true,
                None => {}
            }
        }
        self.leave(at);
    }

    /// The reversal is sent: it arrives and is answered, it arrives and its answer is lost, or it
    /// never arrives.
    fn reverse(&mut self, at: Place, m: Move, set: &Setting) {
        let trusting = set.breaks == Break::TrustUndo;
        let undone = (m != Move::Refused).then(|| self.undone());
        let undo = match undone.filter(|_| m == Move::Go) {
            Some(true) => Undo::Done,
            Some(false) => Undo::Refused,
            None if trusting => Undo::Done,
            None => Undo::Unclear,
        };
        self.do_next(at, Doing::Undone(undo));
    }

    /// The tool undoes what it has done; it says no while it still works.
    fn undone(&mut self) -> bool {
        let works = self.messages.iter().any(|m| m.at == At::Work);
        if works {
            return false;
        }
        self.tool.undone = self.tool.effects.iter().sum();
        true
    }
}
