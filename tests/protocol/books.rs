//! The one row of the ledger. Whether a claim is current, an intention fits and a fact applies is
//! judged by the product's own `ledger::rule`; what is written then is the little that the
//! protocol looks at, by hand, because the product's row carries whole requests and answers.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};

use crate::call::receipt::State;
use crate::call::step::{Parked, Parking};
use crate::call::time::Wall;
use crate::ledger::rule::{Held, Weight};
use crate::ledger::{
    Claim, DeadState, Intention, Kept, News, Park, Place, Reply, RowId, StoredUndo, Taker, Verdict,
};
use crate::world::{Errand, Said, Word};

/// The call's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) life: u32,
    pub(crate) fence: i64,
    pub(crate) state: State,
    pub(crate) binds: bool,
    pub(crate) sends: u32,
    pub(crate) dead: Option<DeadState>,
    pub(crate) round: u32,
    /// Sends of its reversal.
    pub(crate) reversals: u32,
    /// A pass holds a lease of the dead letter.
    pub(crate) leased: bool,
    /// An operator's order does, and it goes back in front of a human.
    pub(crate) by_hand: bool,
    /// Gateway and process instance that work on it, or did last.
    pub(crate) owner: (usize, u8),
    /// A fact contradicted the recorded end.
    pub(crate) differs: bool,
}

impl std::hash::Hash for Row {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        let dead = self.dead.map(|dead| dead.as_str());
        (self.life, self.fence, self.state, self.binds, self.sends).hash(state);
        (dead, self.round, self.owner, self.differs).hash(state);
        (self.reversals, self.leased, self.by_hand).hash(state);
    }
}

pub(crate) const fn claim(life: u32, fence: i64) -> Claim {
    Claim {
        row: RowId(1),
        life,
        fence,
    }
}

impl Row {
    /// The claim of an id and its first send, in one commit.
    pub(crate) fn begin(old: Option<Self>, owner: (usize, u8)) -> Self {
        Self {
            life: old.map_or(1, |row| row.life + 1),
            fence: old.map_or(1, |row| row.fence + 1),
            state: State::Processing,
            binds: true,
            sends: 1,
            dead: None,
            round: 0,
            reversals: 0,
            leased: false,
            by_hand: false,
            owner,
            differs: false,
        }
    }

    fn held(&self) -> Held {
        Held {
            life: self.life,
            fence: self.fence,
            state: self.state,
            binds: self.binds,
            // The window is longer than this world.
            remembered_until: Wall(i64::MAX),
            touched: Wall(0),
            sends: self.sends,
            told: false,
            dead: self.dead,
            reversals: self.reversals,
        }
    }

    /// Whether an operator may borrow it.
    pub(crate) fn lends_to_operator(&self) -> bool {
        self.held().lends_to(Taker::Operator, self.life)
    }

    /// Nobody works on it any more.
    const fn release(&mut self, dead: DeadState) {
        self.dead = Some(dead);
        self.leased = false;
        self.by_hand = false;
    }

    /// The same, and it waits where it waited before.
    const fn give_back(&mut self) {
        self.release(match self.dead {
            Some(DeadState::Reversing) => DeadState::Reversing,
            _ if self.by_hand => DeadState::Manual,
            _ => DeadState::Queued,
        });
    }

    pub(crate) fn is_free(&self) -> bool {
        self.held().is_free(Wall(0))
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.held().is_settled()
    }

    /// Writes an intention if the claim is current and it fits.
    pub(crate) fn append(&mut self, claim: Claim, intention: &Intention) -> bool {
        let held = self.held();
        if !held.honours(claim) || !held.allows(intention) {
            return false;
        }
        if let Intention::NextRound { reached, .. }
        | Intention::Manual { reached, .. }
        | Intention::ReleaseLease { reached } = intention
            && !reached
        {
            self.state = State::Received;
        }
        match intention {
            Intention::Send { n, .. } => {
                self.sends = *n;
                self.state = match self.dead {
                    None => State::Processing,
                    Some(_) => State::Unknown,
                };
            }
            // Nothing is streamed in this world.
            Intention::Tell => return false,
            Intention::Park(how) => self.park(how),
            Intention::NextRound { round, .. } => {
                self.release(DeadState::Queued);
                self.round = *round;
            }
            Intention::Manual { round, .. } => {
                self.release(DeadState::Manual);
                self.round = *round;
            }
            Intention::Reverse { n, .. } => {
                self.dead = Some(DeadState::Reversing);
                self.reversals = *n;
                self.by_hand = false;
            }
            Intention::ReverseAgain { .. } | Intention::ReleaseLease { .. } => self.give_back(),
            Intention::Reversed => {
                self.release(DeadState::Reversed);
                self.state = State::Failed;
            }
        }
        true
    }

    fn park(&mut self, how: &Park) {
        self.state = match (how.place, how.reached) {
            (Place::NeverSent, _) => State::Failed,
            (_, true) => State::Unknown,
            (_, false) => State::Received,
        };
        self.dead = Some(match how.place {
            Place::Queued { .. } => DeadState::Queued,
            Place::Manual => DeadState::Manual,
            Place::NeverSent => DeadState::Failed,
        });
        self.binds &= how.place != Place::NeverSent;
    }

    /// What a dead owner had under way.
    pub(crate) fn recover(&mut self) {
        match self.dead {
            Some(_) => self.give_back(),
            None => self.park(&parked(Place::Queued { due: Wall(0) }, true)),
        }
    }

    /// A round is claimed.
    pub(crate) const fn claim_round(&mut self, owner: (usize, u8), fenced: bool) {
        self.fence += fenced as i64;
        self.owner = owner;
        self.leased = true;
        self.by_hand = matches!(self.dead, Some(DeadState::Manual));
        if !matches!(self.dead, Some(DeadState::Reversing)) {
            self.dead = Some(DeadState::Running);
        }
    }

    /// Writes a fact if it applies; says whether it is on record now.
    pub(crate) fn fact(&mut self, said: Said) -> bool {
        let news = said.news();
        match self.held().weigh(said.life, &news) {
            Weight::Repeats => true,
            Weight::Gone | Weight::Alone => false,
            Weight::Contradicts(_) => {
                self.differs = true;
                false
            }
            Weight::Applies => {
                self.state = news.verdict().state();
                self.binds = news.bindings().id;
                if self.dead.is_some() {
                    self.release(match news.verdict() {
                        Verdict::Success => DeadState::Settled,
                        Verdict::Failed => DeadState::Failed,
                    });
                }
                true
            }
        }
    }
}

/// The record of a call that leaves the line, of a round that ends, or of a repeat.
pub(crate) fn parking(parking: &Parking, errand: Errand, reached: bool) -> Intention {
    let last_error = Arc::from("");
    let manual = |round| Intention::Manual {
        reason: "".into(),
        round,
        reached,
        last_error: Arc::from(""),
    };
    match (errand, parking.state) {
        (_, Parked::Reversed) => Intention::Reversed,
        (_, Parked::Reversing(_)) => Intention::ReverseAgain {
            due: Wall(0),
            last_error,
        },
        (Errand::Line, Parked::Queued(_) | Parked::Unsent(_) | Parked::AsBefore) => {
            Intention::Park(parked(Place::Queued { due: Wall(0) }, reached))
        }
        (Errand::Line, Parked::Manual) => Intention::Park(parked(Place::Manual, reached)),
        (Errand::Line, Parked::NeverSent) => Intention::Park(parked(Place::NeverSent, reached)),
        (Errand::Round(round), Parked::Queued(_) | Parked::Unsent(_)) => Intention::NextRound {
            round,
            due: Wall(0),
            reached,
            last_error,
        },
        (Errand::Round(round), Parked::Manual | Parked::NeverSent)
        | (Errand::Repeat(round) | Errand::Order(_, round), Parked::Manual)
        | (Errand::Undo(round), Parked::Manual) => manual(round),
        (Errand::Round(_), Parked::AsBefore)
        | (
            Errand::Repeat(_) | Errand::Order(..) | Errand::Undo(_),
            Parked::AsBefore | Parked::Queued(_) | Parked::Unsent(_) | Parked::NeverSent,
        ) => Intention::ReleaseLease { reached },
    }
}

/// The record of a send of the reversal.
pub(crate) fn reverse(n: u32) -> Intention {
    Intention::Reverse {
        n,
        request: StoredUndo {
            method: http::Method::POST,
            target: Arc::from(""),
            body: bytes::Bytes::new(),
        },
        lease_until: Wall(0),
    }
}

/// The record of a send.
pub(crate) const fn send(n: u8) -> Intention {
    Intention::Send {
        n: n as u32,
        cause: None,
        moved: None,
        lease_until: Wall(0),
    }
}

fn parked(place: Place, reached: bool) -> Park {
    Park {
        reason: "".into(),
        place,
        reached,
        last_error: Arc::from(""),
        kept: None,
    }
}

impl Said {
    fn news(self) -> News {
        let reply = |status: StatusCode| Reply {
            status,
            headers: HeaderMap::new(),
            body: Kept::Whole(bytes::Bytes::new()),
        };
        let answer = |success, status| News::Answer {
            n: self.n,
            reply: reply(status),
            success,
        };
        let receipt = |verdict| News::Receipt {
            verdict,
            reply: None,
            document: None,
        };
        match self.word {
            Word::Done => answer(true, StatusCode::OK),
            Word::Refused => answer(false, StatusCode::UNPROCESSABLE_ENTITY),
            Word::PassedOn => News::Unbinding {
                n: self.n,
                reply: reply(StatusCode::TOO_MANY_REQUESTS),
            },
            Word::ReceiptDone => receipt(Verdict::Success),
            Word::ReceiptFailed => receipt(Verdict::Failed),
        }
    }
}
