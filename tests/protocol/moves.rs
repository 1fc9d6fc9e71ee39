//! What can happen next in a world, and what becomes of it.

use stateright::Model;

use crate::call::outcome::{NotSent, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, State};
use crate::call::step::{Ending, Event, Parked, Step};
use crate::drive::Place;
use crate::ledger::DeadState;
use crate::ledger::books::Row;
use crate::rules::{Break, Setting, Shared};
use crate::world::{At, Doing, Message, Undo, World};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// The caller sends its request (again) to this gateway.
    Request(usize),
    Crash(usize),
    Start(usize),
    /// A gateway finds a call in line whose owner is dead, or is taken for dead.
    Recover(usize),
    /// A gateway claims the dead letter.
    Claim(usize),
    /// A fact that was told is written.
    Write(usize),
    /// A request arrives at the tool.
    Deliver(u8, Fate),
    /// The tool finishes its work on a request.
    Finish(u8, Fate),
    Drive(Place, Move),
}

/// What the tool does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// Begins to work.
    Work,
    /// Knows the id and answers for it.
    Known,
    /// Answers with this status and keeps nothing.
    Turned(u16),
    /// Commits, and answers with this status.
    Commit(u16),
    /// Fails for good, and records that.
    Fail,
}

/// What happens to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Move {
    /// It performs its step.
    Go,
    /// The connection is refused.
    Refused,
    /// The attempt's answer arrives.
    Answered,
    /// No answer in time: the exchange stays open.
    Timeout,
    /// The connection breaks, or is torn down because the request was not written in time.
    Cut,
    /// The tool forms its answer to a question.
    Form,
    /// The question or its answer is lost.
    Lose,
    /// `timeouts.total` passes.
    Deadline,
    /// A late exchange brings its answer.
    Late(u8),
    /// A late exchange ends without one.
    Silent(u8),
}

impl World {
    pub(crate) fn actions(&self, set: &Setting, out: &mut Vec<Action>) {
        for (g, gateway) in self.gateways.iter().enumerate() {
            if !gateway.up {
                let alone = self.gateways.iter().all(|other| !other.up);
                if gateway.instance > 0 || (alone && set.shared == Shared::Never) {
                    out.extend((alone || set.shared != Shared::Never).then_some(Action::Start(g)));
                }
                continue;
            }
            // Two gateways that both live are alike: the first request may as well go to the first.
            let alike = self.row.is_none() && self.gateways[0].up;
            if self.caller.waits.is_none() && self.caller.left > 0 && (g == 0 || !alike) {
                out.push(Action::Request(g));
            }
            if self.luck.crashes > 0 {
                out.push(Action::Crash(g));
            }
            if let Some(row) = &self.row {
                self.claims(set, g, row, out);
            }
            out.extend((!gateway.pursued.is_empty()).then_some(Action::Write(g)));
            for drive in 0..gateway.drives.len() {
                let at = Place { gateway: g, drive };
                self.moves(set, at, out);
            }
        }
        for message in &self.messages {
            self.fates(set, message.number, message.at, out);
        }
    }

    fn claims(&self, set: &Setting, gateway: usize, row: &Row, out: &mut Vec<Action>) {
        if row.is_settled() {
            return;
        }
        let owner_lives = self.is_alive(row.owner);
        let taken = !owner_lives || self.luck.pauses > 0;
        match row.dead {
            None if taken || set.breaks == Break::LivingOwner => {
                out.push(Action::Recover(gateway));
            }
            Some(DeadState::Queued) if self.may_take(set, gateway) => {
                out.push(Action::Claim(gateway));
            }
            Some(DeadState::Running | DeadState::Reversing) if taken => {
                out.push(Action::Claim(gateway));
            }
            _ => {}
        }
    }

    /// With a shared ledger a round waits until no other gateway holds an exchange of the call.
    fn may_take(&self, set: &Setting, gateway: usize) -> bool {
        set.shared != Shared::Guarded
            || self.gateways.iter().enumerate().all(|(g, other)| {
                g == gateway || other.drives.iter().all(|drive| drive.holds() == 0)
            })
    }

    fn fates(&self, set: &Setting, number: u8, at: At, out: &mut Vec<Action>) {
        match (at, self.tool.record) {
            (At::Way, Some(_)) if set.honours => out.push(Action::Deliver(number, Fate::Known)),
            (At::Way, Some(_)) => out.push(Action::Deliver(number, Fate::Work)),
            (At::Way, None) => {
                out.push(Action::Deliver(number, Fate::Work));
                let turned = set.turned.iter().map(|s| Fate::Turned(*s));
                out.extend(turned.map(|fate| Action::Deliver(number, fate)));
            }
            (At::Work, _) => {
                let ends = set.ends.iter();
                out.extend(ends.map(|fate| Action::Finish(number, *fate)));
            }
            (At::Answered(_), _) => {}
        }
    }

    fn moves(&self, set: &Setting, at: Place, out: &mut Vec<Action>) {
        let drive = self.drive(at);
        let mut add = |m| out.push(Action::Drive(at, m));
        // While the end is being recorded and told, nobody listens; later somebody does.
        let leaving = matches!(drive.doing, Doing::Perform(Step::Answer(_) | Step::Park(_)));
        for (n, message) in drive.late.iter().filter(|_| !leaving) {
            match self.at(*message) {
                Some(At::Answered(_)) => add(Move::Late(*n)),
                _ if set.troubles.silent => add(Move::Silent(*n)),
                _ => {}
            }
        }
        let bounded = drive.brain.deadline();
        match drive.doing {
            Doing::Perform(Step::Send { .. }) => {
                add(Move::Go);
                if set.troubles.refused {
                    add(Move::Refused);
                }
            }
            Doing::Perform(Step::Wait(d)) => {
                let ends = drive.now.after(d);
                if bounded.is_some_and(|deadline| ends > deadline) {
                    add(Move::Deadline);
                } else if self.may_pass(set, drive.doomed) {
                    add(Move::Go);
                }
            }
            Doing::Perform(_) | Doing::Heard(_) => add(Move::Go),
            Doing::Flying { message, .. } => {
                if let Some(At::Answered(_)) = self.at(message) {
                    add(Move::Answered);
                }
                add(Move::Timeout);
                if set.troubles.cut {
                    add(Move::Cut);
                }
            }
            Doing::Asking => {
                add(Move::Form);
                add(Move::Lose);
                let early = bounded.is_some_and(|deadline| drive.now < deadline);
                if early && set.troubles.stalls {
                    add(Move::Deadline);
                }
            }
            Doing::Undo(Undo::Settle) if !self.may_pass(set, self.closed()) => {}
            Doing::Undo(Undo::Ask) => {
                add(Move::Form);
                add(Move::Lose);
            }
            Doing::Undo(Undo::Send { .. }) => {
                add(Move::Go);
                add(Move::Cut);
                add(Move::Refused);
            }
            Doing::Undo(Undo::Settle | Undo::Heard(_) | Undo::Sent { .. }) => add(Move::Go),
            Doing::Over => {}
        }
    }

    /// Where receipts begin with the commit, `settle` is longer than the tool's longest run.
    fn may_pass(&self, set: &Setting, doomed: u32) -> bool {
        let works = |m: &Message| m.at == At::Work && m.bit() & doomed != 0;
        !(set.at_commit() && set.orderly && self.messages.iter().any(works))
    }

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
            Action::Claim(g) => self.claim(g, set),
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
                State::Failed => self.seen.told_failure[row.life as usize] = true,
                State::Received | State::Processing | State::Unknown => {}
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

    fn claim(&mut self, g: usize, set: &Setting) {
        self.write_facts(g);
        let instance = self.gateways[g].instance;
        let row = self.row.as_mut().expect("a row was found");
        if row.is_settled() {
            return;
        }
        let (owner, queued) = (row.owner, row.dead == Some(DeadState::Queued));
        row.claim_round((g, instance), set.breaks != Break::NoFence);
        let row = *row;
        if !queued {
            self.paused(owner);
        }
        self.take_up(g, row, set);
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
        if set.breaks == Break::TrustUnknown {
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
            (_, Doing::Undo(undo)) => self.undo(at, m, undo, set),
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
            Step::Ask | Step::Keep | Step::PassHead(_) => {}
        }
    }

    fn send(&mut self, at: Place, n: u8) {
        let (life, number) = (self.drive(at).life, self.seen.sends);
        let on_record = |row: &Row| row.life == life && row.sends >= u32::from(n);
        self.seen.unrecorded_send |= !self.row.as_ref().is_some_and(on_record);
        let reversing =
            |row: &Row| matches!(row.dead, Some(DeadState::Reversing | DeadState::Reversed));
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
    fn answer(&mut self, at: Place, success: Option<bool>) {
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

    fn undo(&mut self, at: Place, m: Move, undo: Undo, set: &Setting) {
        let manual = |tries| tries + 1 >= 2;
        let next = match undo {
            Undo::Settle => {
                self.close(at.gateway);
                self.drive_mut(at).doomed = self.closed();
                let settle = set.policy.receipt.map(|r| r.settle).unwrap_or_default();
                self.pass(at, settle, set);
                Undo::Ask
            }
            Undo::Ask if m == Move::Form => Undo::Heard(self.formed(set)),
            Undo::Ask => Undo::Heard(Answer::State(State::Unknown)),
            Undo::Heard(answer) => return self.decide(at, answer, set),
            Undo::Send { tries } => {
                let arrived = m != Move::Refused;
                let undone = arrived.then(|| self.undone());
                Undo::Sent {
                    tries,
                    undone: undone.filter(|_| m == Move::Go),
                }
            }
            Undo::Sent {
                tries,
                undone: None,
            } if !manual(tries) => Undo::Send { tries: tries + 1 },
            Undo::Sent { undone, .. } => {
                let to = match undone {
                    Some(true) => DeadState::Reversed,
                    Some(false) | None => DeadState::Manual,
                };
                let _ = self.reverse(at, DeadState::Reversing, to);
                return self.leave(at);
            }
        };
        self.do_next(at, Doing::Undo(next));
    }

    /// The receipt asked immediately before the reversal.
    fn decide(&mut self, at: Place, answer: Answer, set: &Setting) {
        let life = self.drive(at).life;
        let word = match answer {
            Answer::State(State::Success) => Some(crate::world::Word::ReceiptDone),
            Answer::State(State::Failed) => Some(crate::world::Word::ReceiptFailed),
            Answer::State(_) | Answer::NotFound => None,
        };
        if let Some(word) = word {
            if let Some(row) = &mut self.row {
                row.fact(crate::world::Said { life, n: 0, word });
            }
            return self.leave(at);
        }
        if matches!(answer, Answer::State(State::Received | State::Processing)) {
            let _ = self.reverse(at, DeadState::Running, DeadState::Manual);
            return self.leave(at);
        }
        let durable = self.reverse(at, DeadState::Running, DeadState::Reversing);
        if durable || set.breaks == Break::ReverseFirst {
            self.do_next(at, Doing::Undo(Undo::Send { tries: 0 }));
        } else {
            self.leave(at);
        }
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

impl Model for Setting {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![self.world()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(self, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.act(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<stateright::Property<Self>> {
        crate::rules::all()
    }
}
