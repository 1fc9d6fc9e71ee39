//! The world of one call: a caller, two gateways over one ledger, a network, a tool.
//!
//! Everything is plain data that can be compared and hashed; what can happen stands in `moves`,
//! what has to hold in `rules`.

use std::fmt::Write;
use std::hash::{Hash, Hasher};

use crate::call::receipt::{Answer, State};
use crate::call::recovery::Order;
use crate::call::step::{Step, Undo};
use crate::call::time::Mono;
use crate::drive::{Brain, Hashed};
use crate::ledger::Claim;
use crate::ledger::books::Row;

/// Gateways.
pub(crate) const GATEWAYS: usize = 2;

/// One state of the world.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The call's row; durable.
    pub(crate) row: Option<Row>,
    pub(crate) gateways: [Gateway; GATEWAYS],
    pub(crate) tool: Tool,
    /// Requests on the way to the tool, at work there, or answered; by number.
    pub(crate) messages: Vec<Message>,
    pub(crate) caller: Caller,
    /// What may still go wrong.
    pub(crate) luck: Luck,
    pub(crate) seen: Seen,
}

/// One gateway process, or none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Gateway {
    pub(crate) up: bool,
    /// Which process of this gateway; an owner that is not up is dead.
    pub(crate) instance: u8,
    pub(crate) drives: Vec<Drive>,
    /// Facts that were told and are being written.
    pub(crate) pursued: Vec<Said>,
}

/// A fact on its way into the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Said {
    pub(crate) life: u32,
    /// The attempt it is about; 0 for a receipt.
    pub(crate) n: u32,
    pub(crate) word: Word,
}

/// What a fact says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Word {
    /// A final answer that is a success.
    Done,
    /// A final answer that binds as a refusal.
    Refused,
    /// An answer that binds nothing.
    PassedOn,
    /// A receipt SUCCESS.
    ReceiptDone,
    /// A receipt FAILED.
    ReceiptFailed,
}

/// A call under way in one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Drive {
    /// Which claim of all that were ever made; for the observer.
    pub(crate) id: u64,
    /// Its fencing number.
    pub(crate) fence: i64,
    pub(crate) life: u32,
    pub(crate) errand: Errand,
    pub(crate) brain: Brain,
    /// Time by this drive's own clock: only what it waited for itself.
    pub(crate) now: Mono,
    pub(crate) doing: Doing,
    /// Messages whose exchange was closed when the present doing began.
    pub(crate) doomed: u32,
    /// Late exchanges: attempt and message.
    pub(crate) late: Vec<(u8, u8)>,
    /// A caller waits for this drive.
    pub(crate) answers: bool,
}

/// Why a call is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    Line,
    /// This round of the queue.
    Round(u32),
    /// A caller repeats the call after so many rounds.
    Repeat(u32),
    /// An operator wants this done, after so many rounds.
    Order(Order, u32),
    /// A reversal goes on after so many rounds.
    Undo(u32),
}

impl Hash for Errand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        write!(Hashed(state), "{self:?}").expect("hashing takes every write");
    }
}

/// What a drive is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Doing {
    /// The step is durable where it has to be and is performed next.
    Perform(Step),
    /// An attempt is in flight.
    Flying { n: u8, message: u8 },
    /// A question is at the tool.
    Asking,
    /// Its answer is on the way back.
    Heard(Answer),
    /// Ended; late exchanges may speak.
    Over,
    /// The reversal was sent; how that ended is on the way back.
    Undone(Undo),
}

impl Eq for Doing {}

impl Hash for Doing {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
        match self {
            // A step holds durations only besides small numbers; its text tells all of it.
            Self::Perform(step) => {
                write!(Hashed(state), "{step:?}").expect("hashing takes every write");
            }
            Self::Flying { n, message } => (n, message).hash(state),
            Self::Asking | Self::Over => {}
            Self::Heard(answer) => answer.hash(state),
            Self::Undone(undo) => undo.hash(state),
        }
    }
}

/// One request on one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Message {
    pub(crate) number: u8,
    pub(crate) life: u32,
    /// The attempt it belongs to.
    pub(crate) n: u8,
    pub(crate) at: At,
}

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum At {
    /// Between gateway and tool.
    Way,
    /// The tool works on it.
    Work,
    /// The tool has answered with this status.
    Answered(u16),
}

/// The tool's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Tool {
    /// What its receipt says; `None` is "never heard of it".
    pub(crate) record: Option<State>,
    /// Effects that were ever made, by life of the call (1-based).
    pub(crate) effects: [u8; 3],
    /// Effects that were undone.
    pub(crate) undone: u8,
}

/// The caller, who repeats the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    /// Requests it may still make.
    pub(crate) left: u8,
    /// The gateway it waits for.
    pub(crate) waits: Option<usize>,
}

/// What may still go wrong; each bound keeps the world finite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Luck {
    pub(crate) crashes: u8,
    /// Leases that run out under a living owner.
    pub(crate) pauses: u8,
    /// Orders an operator gives.
    pub(crate) orders: u8,
}

/// What an observer has noted. No gateway looks here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(crate) struct Seen {
    pub(crate) told_success: bool,
    /// Failure was told, by life.
    pub(crate) told_failure: [bool; 3],
    pub(crate) sends: u8,
    /// Who claimed the row last: the only one whose intentions may be written.
    pub(crate) holder: u64,
    /// An intention of somebody else was written.
    pub(crate) stale_write: bool,
    /// Something left before it was on record.
    pub(crate) unrecorded_send: bool,
    /// The call was sent after its reversal was durable.
    pub(crate) sent_after_reversing: bool,
    /// A machine called an event of this world impossible.
    pub(crate) impossible: bool,
    /// A request arrived although its send was on record when the tool said NOT_FOUND.
    pub(crate) after_not_found: bool,
    /// Life and sends on record when the tool last said NOT_FOUND.
    pub(crate) denied: (u32, u32),
}

impl Message {
    pub(crate) const fn bit(self) -> u32 {
        1 << self.number
    }
}

impl Drive {
    /// Messages on exchanges of this drive.
    pub(crate) fn holds(&self) -> u32 {
        let late = self
            .late
            .iter()
            .fold(0, |mask, (_, number)| mask | 1 << number);
        match self.doing {
            Doing::Flying { message, .. } => late | 1 << message,
            Doing::Perform(_)
            | Doing::Asking
            | Doing::Heard(_)
            | Doing::Over
            | Doing::Undone(_) => late,
        }
    }
}

impl World {
    pub(crate) fn message(&mut self, number: u8) -> Option<&mut Message> {
        self.messages.iter_mut().find(|m| m.number == number)
    }

    pub(crate) fn at(&self, number: u8) -> Option<At> {
        self.messages
            .iter()
            .find(|m| m.number == number)
            .map(|m| m.at)
    }

    /// Messages whose exchange nobody holds: reset, or their process died. No answer gets back.
    pub(crate) fn closed(&self) -> u32 {
        let drives = self.gateways.iter().flat_map(|g| &g.drives);
        let open = drives.fold(0, |mask, drive| mask | drive.holds());
        let all = self.messages.iter().fold(0, |mask, m| mask | m.bit());
        all & !open
    }

    pub(crate) fn forget(&mut self, number: u8) {
        self.messages.retain(|m| m.number != number);
    }

    pub(crate) fn is_alive(&self, (gateway, instance): (usize, u8)) -> bool {
        self.gateways[gateway].up && self.gateways[gateway].instance == instance
    }

    /// The claim a drive believes to hold.
    pub(crate) fn claim_of(drive: &Drive) -> Claim {
        crate::ledger::books::claim(drive.life, drive.fence)
    }
}
