//! The judgements every ledger makes the same way: is an id free, is a claim current, does a fact
//! apply. Pure, so that they stand once and not once per store.

use super::record::Claim;
use super::step::{Contradiction, Intention, News, Verdict};
use super::view::{DeadState, Taker};
use crate::call::receipt::State;
use crate::call::time::Wall;

/// What a judgement looks at: the part of a call's row that decides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) life: u32,
    pub(super) fence: i64,
    pub(super) state: State,
    /// Whether a repeat of the id meets this call.
    pub(super) binds: bool,
    /// The last of settlement and replay, from which the window of a settled call runs.
    pub(super) touched: Wall,
    /// End of the window of a settled call.
    pub(super) remembered_until: Wall,
    pub(super) sends: u32,
    /// A part of its answer may have reached its caller.
    pub(super) told: bool,
    /// The dead letter of this life.
    pub(super) dead: Option<DeadState>,
    /// How often its reversal was sent. Past none the original is over, whatever the state.
    pub(super) reversals: u32,
}

/// What becomes of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Applies,
    Repeats,
    Contradicts(Contradiction),
    /// A refusal of one attempt of a parked call, after which others were sent: whoever heard it
    /// cannot know of them.
    Alone,
    Gone,
}

/// Times of replays are kept to the second, rounded up, so that a storm of them is read and not
/// written. A window is never shorter by that, and less than a second longer.
const TOUCH_MS: i64 = 1_000;

impl Held {
    /// From when the window runs after a replay at `now`; `None` when it does so already.
    pub(super) const fn renewed(&self, now: Wall) -> Option<Wall> {
        if !self.is_settled() || self.touched.0 >= now.0 {
            return None;
        }
        let late = now.0.rem_euclid(TOUCH_MS);
        Some(Wall(if late == 0 {
            now.0
        } else {
            now.0.saturating_add(TOUCH_MS - late)
        }))
    }

    /// The same with its window running from `touched`.
    pub(super) const fn touched_at(self, touched: Wall) -> Self {
        let moved = touched.0.saturating_sub(self.touched.0);
        Self {
            touched,
            remembered_until: Wall(self.remembered_until.0.saturating_add(moved)),
            ..self
        }
    }

    /// A terminal state and the end of a call are the same thing in the ledger.
    pub(super) const fn is_settled(&self) -> bool {
        self.state.is_terminal()
    }

    /// Whether the id may be claimed anew: released, or settled and past its window. An unresolved
    /// call is never free, nor is one that was undone: as long as its row says so it is not sent.
    pub(super) fn is_free(&self, now: Wall) -> bool {
        let undone = self.dead == Some(DeadState::Reversed);
        let forgotten = now >= self.remembered_until && !undone;
        self.is_settled() && (!self.binds || forgotten)
    }

    /// Whether `claim` is the current one of a call that is still open.
    pub(super) fn honours(&self, claim: Claim) -> bool {
        self.life == claim.life && self.fence == claim.fence && !self.is_settled()
    }

    /// Whether an intention fits the state, its claim being current.
    pub(super) fn allows(&self, intention: &Intention) -> bool {
        match intention {
            Intention::Send { n, .. } => {
                self.is_worked_on() && self.reversals == 0 && !self.told && *n == self.sends + 1
            }
            Intention::Tell | Intention::Park(_) => self.dead.is_none(),
            Intention::NextRound { .. } => self.dead == Some(DeadState::Running),
            Intention::Reverse { n, .. } => self.is_leased() && *n == self.reversals + 1,
            Intention::ReverseAgain { .. } | Intention::Reversed => {
                self.dead == Some(DeadState::Reversing)
            }
            Intention::Manual { .. } | Intention::ReleaseLease { .. } => self.is_leased(),
        }
    }

    /// Whether one dead letter of `life` may be claimed now.
    pub(super) fn lends_to(&self, taker: Taker, life: u32) -> bool {
        let waits = match taker {
            Taker::Caller => matches!(self.dead, Some(DeadState::Queued)),
            Taker::Operator => matches!(self.dead, Some(DeadState::Queued | DeadState::Manual)),
        };
        self.life == life && waits && !self.is_settled()
    }

    /// In line, or in a round: somebody holds a lease that can be extended.
    pub(super) fn is_worked_on(&self) -> bool {
        self.dead.is_none() || self.is_leased()
    }

    /// A pass over the dead letter holds a lease.
    fn is_leased(&self) -> bool {
        matches!(self.dead, Some(DeadState::Running | DeadState::Reversing))
    }

    /// Weighs a fact about `life` against what is held.
    pub(super) fn weigh(&self, life: u32, news: &News) -> Weight {
        if self.life != life {
            return Weight::Gone;
        }
        if self.dead == Some(DeadState::Reversed) && news.verdict() == Verdict::Failed {
            return Weight::Repeats;
        }
        if self.reversals > 0 {
            return Weight::Contradicts(Contradiction::Reversal);
        }
        if !self.is_settled() {
            let speaks_for = news.refused_attempt().filter(|_| self.dead.is_some());
            let alone = speaks_for.is_some_and(|n| n < self.sends);
            return if alone {
                Weight::Alone
            } else {
                Weight::Applies
            };
        }
        if self.state == news.verdict().state() {
            return Weight::Repeats;
        }
        Weight::Contradicts(match news {
            News::Answer { .. } | News::Unbinding { .. } => Contradiction::Answer,
            News::Receipt { .. } => Contradiction::Receipt,
        })
    }
}

/// What a fact does to the bindings of its call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bindings {
    /// The call id stays bound.
    pub(super) id: bool,
    /// The idempotency key stays bound: a definite refusal releases it.
    pub(super) key: bool,
}

impl Intention {
    /// Whether it says that nothing of the call can have reached the tool, however often a send of
    /// it was noted: the dead letter it leaves behind is `RECEIVED` again.
    pub(super) const fn is_of_unsent(&self) -> bool {
        match self {
            Self::NextRound { reached, .. }
            | Self::Manual { reached, .. }
            | Self::ReleaseLease { reached } => !*reached,
            // Parking writes the state by itself; the others say that there was a send.
            Self::Send { .. }
            | Self::Tell
            | Self::Park(_)
            | Self::Reverse { .. }
            | Self::ReverseAgain { .. }
            | Self::Reversed => false,
        }
    }
}

impl News {
    /// How the call ends by it. An answer that binds nothing ends it by its status: 3xx is no
    /// refusal.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Answer { success: true, .. } => Verdict::Success,
            Self::Answer { success: false, .. } => Verdict::Failed,
            Self::Unbinding { reply, .. } if reply.status.as_u16() < 400 => Verdict::Success,
            Self::Unbinding { .. } => Verdict::Failed,
            Self::Receipt { verdict, .. } => *verdict,
        }
    }

    /// The attempt this refuses, when it is an answer and no success.
    fn refused_attempt(&self) -> Option<u32> {
        match self {
            Self::Answer { n, .. } | Self::Unbinding { n, .. } => {
                (self.verdict() == Verdict::Failed).then_some(*n)
            }
            Self::Receipt { .. } => None,
        }
    }

    /// What stays bound.
    pub(super) fn bindings(&self) -> Bindings {
        match self {
            Self::Unbinding { .. } => Bindings {
                id: false,
                key: false,
            },
            Self::Answer { .. } | Self::Receipt { .. } => Bindings {
                id: true,
                key: self.verdict() == Verdict::Success,
            },
        }
    }

    /// What was said, for the record of a difference.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Answer { n, reply, .. } | Self::Unbinding { n, reply } => {
                format!("attempt {n} answered {}", reply.status.as_u16())
            }
            Self::Receipt { verdict, .. } => {
                format!("the receipt said {}", verdict.state().as_str())
            }
        }
    }
}
