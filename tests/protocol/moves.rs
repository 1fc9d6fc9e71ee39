//! What can happen next in a world.

use stateright::Model;

use crate::call::recovery::Order;
use crate::call::step::Step;
use crate::drive::Place;
use crate::ledger::DeadState;
use crate::ledger::books::Row;
use crate::rules::{Break, Setting, Shared};
use crate::world::{At, Doing, Message, World};

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The caller sends its request (again) to this gateway.
    Request(usize),
    Crash(usize),
    Start(usize),
    /// A gateway finds a call in line whose owner is dead, or is taken for dead.
    Recover(usize),
    /// A gateway claims the dead letter.
    Claim(usize),
    /// An operator wants something done about the dead letter.
    Order(usize, Order),
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
            Some(DeadState::Reversing) if !row.leased && self.may_take(set, gateway) => {
                out.push(Action::Claim(gateway));
            }
            Some(DeadState::Running | DeadState::Reversing) if taken => {
                out.push(Action::Claim(gateway));
            }
            _ => {}
        }
        if self.luck.orders > 0 && row.lends_to_operator() && self.may_take(set, gateway) {
            for order in [Order::Resend, Order::Reverse] {
                out.push(Action::Order(gateway, order));
            }
        }
    }

    /// With a shared ledger a round waits until no other gateway holds an exchange of the call.
    pub(crate) fn may_take(&self, set: &Setting, gateway: usize) -> bool {
        set.shared != Shared::Guarded
            || self.gateways.iter().enumerate().all(|(g, other)| {
                g == gateway || other.drives.iter().all(|drive| drive.holds() == 0)
            })
    }

    fn fates(&self, set: &Setting, number: u8, at: At, out: &mut Vec<Action>) {
        match (at, self.tool.record) {
            (At::Way, Some(_)) if set.honours && !self.is_renamed(set, number) => {
                out.push(Action::Deliver(number, Fate::Known));
            }
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

    /// Whether a request comes under an id that the tool cannot know.
    fn is_renamed(&self, set: &Setting, number: u8) -> bool {
        let resent = |m: &Message| m.number == number && m.n > 1;
        set.breaks == Break::NewId && self.messages.iter().any(resent)
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
            Doing::Perform(Step::Reverse { .. }) => {
                add(Move::Go);
                add(Move::Cut);
                add(Move::Refused);
            }
            Doing::Perform(_) | Doing::Heard(_) | Doing::Undone(_) => add(Move::Go),
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
            Doing::Over => {}
        }
    }

    /// Where receipts begin with the commit, `settle` is longer than the tool's longest run.
    fn may_pass(&self, set: &Setting, doomed: u32) -> bool {
        let works = |m: &Message| m.at == At::Work && m.bit() & doomed != 0;
        !(set.at_commit() && set.orderly && self.messages.iter().any(works))
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
