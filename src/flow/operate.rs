//! An operator's order about one call: ask its receipt, send it again, undo it.
//!
//! The same driver and the same rules as a round: the receipt first, the same id, a believed "not
//! found" before a send, one send at most. What an order borrows it gives back where it was: a call
//! in front of a human comes back there, never to the queue. Deliberately absent: who may order,
//! the audit, and orders about many calls; those are the doors' part.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::uri::PathAndQuery;

use super::call::{Call, Decider, Hold, Place};
use super::drive::Drive;
use super::pursue::differs;
use super::round::recovered;
use super::running::Attendance;
use super::{Flow, Route};
use crate::call::policy::Policy;
use crate::call::receipt::{Answer, State};
use crate::call::recovery::{Known, Recovery, Sending};
use crate::call::step::{Ending, Event, Parked, Parking, Reason, Step};
use crate::call::time::Wall;
use crate::ledger::{
    Claim, Contradiction, DeadState, Due, FactWritten, LedgerError, RowId, Taker, Verdict,
};
use crate::upstream::Core;

pub use crate::call::recovery::Order;

/// What an order brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// The tool's receipt has ended the call, now.
    Receipt(Verdict),
    /// It was sent again, and the answer has ended it.
    Answered {
        /// How it ended.
        verdict: Verdict,
        /// The status of the answer.
        status: StatusCode,
    },
    /// It had ended so before, and the tool's receipt agrees.
    Agrees(Verdict),
    /// The tool says otherwise than what is on record: a difference, noted and not applied.
    Differs(Contradiction),
    /// The receipt says FAILED, and the route wants a human to see that before it ends the call
    /// (`on_failed: keep`).
    ReportedFailure,
    /// Nobody knows still.
    Unknown {
        /// What the receipt said last, as far as it is believed; `None` when it was not asked.
        receipt: Option<Answer>,
        /// Whether the order sent the call.
        sent: bool,
    },
    /// The tool still works on it (`RECEIVED` or `PROCESSING`).
    Working(State),
    /// It was undone.
    Reversed,
    /// Its reversal was sent and is unclear: the queue sends it again.
    Reversing,
    /// The tool refused to undo it, or it stays unclear whether it was: a human decides.
    NotReversed(Reason),
    /// Not done, and why.
    Refused(Refusal),
    /// Somebody else works on it right now.
    Held {
        /// Until when, at least.
        until: Option<Wall>,
    },
    /// There is no such call any more.
    Gone,
    /// The ledger could not be read or written; what the order did otherwise stands in the history.
    Unrecorded,
}

/// Why an order is not done: a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The call is in line: its caller waits, and its end comes by itself.
    InLine,
    /// It ended as success.
    Settled,
    /// It ended as failure, or was never sent.
    Failed,
    /// Its reversal has begun.
    Reversing,
    /// It was undone.
    Reversed,
    /// A human gave it up.
    Discarded,
    /// Its route is no longer configured, or cannot send it.
    RouteGone,
    /// Its route leads to another tool now than the one it was sent to.
    RouteChanged,
    /// It came with a credential that is not kept, and nothing supplies it.
    Credential,
    /// A part of its streamed answer has reached its caller, or may have.
    Told,
    /// Its route has no receipt that could be asked first.
    NoReceipt,
    /// Its route has no reversal.
    NoReversal,
    /// Its tool cannot undo (`reversible: false`).
    Irreversible,
    /// Nothing ever reached the tool, so there is nothing to undo.
    NeverSent,
    /// It is older than the reversal's `max_age`.
    TooOld,
}

impl Refusal {
    /// Every reason, in the order of the documentation.
    pub const ALL: [Self; 15] = [
        Self::InLine,
        Self::Settled,
        Self::Failed,
        Self::Reversing,
        Self::Reversed,
        Self::Discarded,
        Self::RouteGone,
        Self::RouteChanged,
        Self::Credential,
        Self::Told,
        Self::NoReceipt,
        Self::NoReversal,
        Self::Irreversible,
        Self::NeverSent,
        Self::TooOld,
    ];

    /// The word in answers and in the audit.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InLine => "in-line",
            Self::Settled => "settled",
            Self::Failed => "failed",
            Self::Reversing => "reversing",
            Self::Reversed => "reversed",
            Self::Discarded => "discarded",
            Self::RouteGone => "route-gone",
            Self::RouteChanged => "route-changed",
            Self::Credential => "credential-not-kept",
            Self::Told => "told",
            Self::NoReceipt => "no-receipt",
            Self::NoReversal => "no-reversal",
            Self::Irreversible => "irreversible",
            Self::NeverSent => "never-sent",
            Self::TooOld => "too-old",
        }
    }
}

/// What an order needs besides the call: how it lives, and whether it may be sent.
struct Plan {
    call: Call,
    machine: Recovery,
    /// How long its claim holds without a heartbeat.
    lease: Duration,
}

impl Flow {
    /// Does what an operator wants done about one life of a call, if its state allows it. Runs to
    /// its end whether the one who ordered it waits or not.
    pub async fn order(
        self: &Arc<Self>,
        core: &Core,
        row: RowId,
        life: u32,
        order: Order,
    ) -> Ordered {
        let (flow, on) = (Arc::clone(self), core.clone());
        let task = self
            .tasks
            .track_future(async move { flow.obey(&on, row, life, order).await });
        core.spawn(task).await.unwrap_or_else(|e| {
            tracing::error!(%row, error = %e, "an order ended abnormally");
            Ordered::Unrecorded
        })
    }

    /// What would be answered to an order about one life of a call, were it given now; `None` when
    /// it would be begun, or wait for somebody who works on the row.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub async fn refusal(
        &self,
        core: &Core,
        (row, life): (RowId, u32),
        order: Order,
    ) -> Result<Option<Refusal>, LedgerError> {
        let due = self.ledger.dossier(row).await?;
        let Some(due) = due.filter(|due| due.call.life == life) else {
            return Ok(None);
        };
        if let Some(ordered) = refused(&due, order) {
            return Ok(match ordered {
                Ordered::Refused(refusal) => Some(refusal),
                _ => None,
            });
        }
        let Some(route) = self.routes.named(&due.call.route) else {
            return Ok(Some(Refusal::RouteGone));
        };
        Ok(self.plan(core, &route, due, order).err())
    }

    async fn obey(self: &Arc<Self>, core: &Core, row: RowId, life: u32, order: Order) -> Ordered {
        let due = match self.ledger.dossier(row).await {
            Ok(Some(due)) if due.call.life == life => due,
            Ok(_) => return Ordered::Gone,
            Err(e) => return unrecorded(row, &e),
        };
        if let Some(refused) = refused(&due, order) {
            return refused;
        }
        let Some(route) = self.routes.named(&due.call.route) else {
            return Ordered::Refused(Refusal::RouteGone);
        };
        let plan = match self.plan(core, &route, due, order) {
            Ok(plan) => plan,
            Err(refusal) => return Ordered::Refused(refusal),
        };
        match order {
            // A question needs no claim: what it brings is a fact, or nothing.
            Order::Ask => self.drive_order(core, plan).await,
            Order::Resend | Order::Reverse => self.leased_order(core, &route, plan, order).await,
        }
    }

    /// Claims the dead letter and does the order under that claim.
    async fn leased_order(
        self: &Arc<Self>,
        core: &Core,
        route: &Arc<Route>,
        plan: Plan,
        order: Order,
    ) -> Ordered {
        let now = self.clock.wall();
        let Claim { row, life, .. } = plan.call.claim;
        let taker = (Taker::Operator, self.owner.clone());
        let until = now.after(plan.lease);
        let claimed = self.ledger.claim_letter(row, life, taker, now, until);
        let due = match claimed.await {
            Ok(Some(due)) => due,
            Ok(None) => return self.taken(row, life, order).await,
            Err(e) => return unrecorded(row, &e),
        };
        let (claim, lease) = (due.claim, plan.lease);
        // What was refused a moment ago was looked at without a claim; the row is ours now.
        let plan = match self.plan(core, route, due, order) {
            Ok(plan) => plan,
            Err(refusal) => return Ordered::Refused(refusal),
        };
        let driving = self.calls.driven.take(row).await;
        tokio::select! {
            ordered = self.drive_order(core, plan) => ordered,
            () = self.beat(claim, lease) => Ordered::Held { until: None },
            () = driving.displaced() => Ordered::Held { until: None },
        }
    }

    async fn drive_order(self: &Arc<Self>, core: &Core, plan: Plan) -> Ordered {
        let decider = Decider::Round(plan.machine);
        Drive::new(self, core, plan.call, decider, Attendance::nobody())
            .order()
            .await
    }

    /// The dead letter could not be claimed: somebody has it, or it ended meanwhile.
    async fn taken(&self, row: RowId, life: u32, order: Order) -> Ordered {
        match self.ledger.dossier(row).await {
            Ok(Some(due)) if due.call.life == life => {
                refused(&due, order).unwrap_or_else(|| Ordered::Held {
                    until: due.call.dead_letter.and_then(|letter| letter.lease_until),
                })
            }
            Ok(_) => Ordered::Gone,
            Err(e) => unrecorded(row, &e),
        }
    }

    /// How the order is done, or why not.
    fn plan(
        &self,
        core: &Core,
        route: &Arc<Route>,
        due: Due,
        order: Order,
    ) -> Result<Plan, Refusal> {
        let Ok(target) = PathAndQuery::try_from(&*due.request.target) else {
            return Err(Refusal::RouteGone);
        };
        let Some(home) = self.routes.home(route, &due.call) else {
            return Err(Refusal::RouteChanged);
        };
        let policy = self.policy_of(route, &due);
        let known = self.known(&due.call, &policy, self.clock.wall());
        let rounds = due.call.dead_letter.as_ref().map_or(0, |l| l.round);
        let hold = if due.claim.is_one() {
            Hold::Leased(rounds)
        } else {
            Hold::Nothing
        };
        let call = recovered(home, due, target, Place::Order(hold));
        let sending = match order {
            Order::Ask => Sending::WithHuman,
            Order::Resend | Order::Reverse => call.sending(),
        };
        let why_not = match (order, sending) {
            (Order::Ask, _) if !call.route.has_receipts() => Some(Refusal::NoReceipt),
            (Order::Resend | Order::Reverse, Sending::RouteChanged) => Some(Refusal::RouteChanged),
            (Order::Resend, Sending::Told) => Some(Refusal::Told),
            (Order::Resend, Sending::NoCredential) => Some(Refusal::Credential),
            (Order::Resend, _) if !may_resend(&policy, known.unclear) => Some(Refusal::NoReceipt),
            (Order::Reverse, _) => why_not_reversed(route, &policy, &known),
            (Order::Ask | Order::Resend, _) => None,
        };
        if let Some(refusal) = why_not {
            return Err(refusal);
        }
        let lease = policy.compensation.lease;
        let machine = Recovery::order(policy, core.clock.mono(), order, known, sending);
        Ok(Plan {
            call,
            machine,
            lease,
        })
    }
}

/// Why a call is not undone on an order, as far as it is known before it is claimed.
fn why_not_reversed(route: &Route, policy: &Policy, known: &Known) -> Option<Refusal> {
    match policy.compensation.reversal {
        _ if !route.conf.reversible => Some(Refusal::Irreversible),
        None => Some(Refusal::NoReversal),
        Some(_) if route.sites[0].reversal.is_none() => Some(Refusal::NoReversal),
        Some(_) if !known.unclear => Some(Refusal::NeverSent),
        Some(reversal) if known.reversals == 0 && known.sent_for > reversal.max_age => {
            Some(Refusal::TooOld)
        }
        Some(_) => None,
    }
}

/// A call that may have had an effect is sent again only after its receipt was asked, unless its
/// tool is declared to know its ids.
fn may_resend(policy: &Policy, unclear: bool) -> bool {
    use crate::call::policy::ResendOn;
    !unclear || policy.receipt.is_some() || policy.retry.resend_on() == ResendOn::NotFoundOrUnknown
}

/// What the state of the call alone answers to an order; `None` when the order goes on.
fn refused(due: &Due, order: Order) -> Option<Ordered> {
    if order == Order::Ask {
        return None;
    }
    let call = &due.call;
    let ended = match call.state {
        State::Success => Some(Refusal::Settled),
        State::Failed => Some(Refusal::Failed),
        State::Received | State::Processing | State::Unknown => None,
    };
    let Some(letter) = &call.dead_letter else {
        return Some(Ordered::Refused(ended.unwrap_or(Refusal::InLine)));
    };
    let refusal = match letter.state {
        DeadState::Reversed => Refusal::Reversed,
        DeadState::Reversing => Refusal::Reversing,
        DeadState::Discarded => Refusal::Discarded,
        DeadState::Settled => Refusal::Settled,
        DeadState::Failed => Refusal::Failed,
        DeadState::Manual | DeadState::Queued if order == Order::Resend && letter.reversals > 0 => {
            Refusal::Reversing
        }
        DeadState::Running => {
            return Some(Ordered::Held {
                until: letter.lease_until,
            });
        }
        DeadState::Manual | DeadState::Queued => return None,
    };
    Some(Ordered::Refused(refusal))
}

fn unrecorded(row: RowId, error: &LedgerError) -> Ordered {
    tracing::error!(%row, error = %error, "an order could not be recorded");
    Ordered::Unrecorded
}

impl Drive {
    /// Drives an order to its end and says what it brought.
    async fn order(mut self: Box<Self>) -> Ordered {
        let before = self.decider.tally().sends();
        let mut step = self.on(Event::Begun);
        let mut unrecorded = false;
        let ordered = loop {
            step = match step {
                Step::Answer(ending) => match self.order_ends(ending).await {
                    Ok(ordered) => break ordered,
                    Err(step) => {
                        unrecorded = true;
                        step
                    }
                },
                Step::Park(parking) => {
                    let recorded = self.parked(parking).await.recorded;
                    break if recorded && !unrecorded {
                        self.stays(parking, before)
                    } else {
                        Ordered::Unrecorded
                    };
                }
                other => self.perform(other).await,
            };
        };
        self.part();
        ordered
    }

    /// Records the end the order brought.
    async fn order_ends(&mut self, ending: Ending) -> Result<Ordered, Step> {
        let fact = self.fact(ending);
        let verdict = fact.news.verdict();
        let by_answer = match ending {
            Ending::Success(n) | Ending::Failure(n) | Ending::Unbinding(n) => self.status_of(n),
            Ending::ReceiptSuccess | Ending::ReceiptFailed { .. } | Ending::Refused(_) => None,
        };
        let written = match self.flow.ledger.fact(fact.clone()).await {
            Ok(written) => written,
            Err(e) => {
                tracing::error!(call_id = %self.call.call_id, error = %e, "not recorded");
                // A success stays true whatever is told now.
                if verdict == Verdict::Success {
                    self.flow.pursue(fact, &self.call);
                }
                return Err(self.on(Event::LedgerFailed));
            }
        };
        differs(&self.call.call_id, &self.call.route.metrics, written);
        match written {
            FactWritten::Applied => {
                Ok(
                    by_answer.map_or(Ordered::Receipt(verdict), |status| Ordered::Answered {
                        verdict,
                        status,
                    }),
                )
            }
            FactWritten::Repeated => Ok(Ordered::Agrees(verdict)),
            FactWritten::Difference { kind, .. } => Ok(Ordered::Differs(kind)),
            FactWritten::Gone => Ok(Ordered::Gone),
            FactWritten::Alone => Err(self.on(Event::LedgerFailed)),
        }
    }

    /// The order ended nothing: what was learnt all the same.
    fn stays(&self, parking: Parking, before: u8) -> Ordered {
        match (parking.state, parking.reason) {
            (Parked::Reversed, _) => return Ordered::Reversed,
            (Parked::Reversing(_), _) => return Ordered::Reversing,
            (_, Reason::ReportedFailure) => return Ordered::ReportedFailure,
            (
                _,
                reason @ (Reason::ReversalRefused
                | Reason::ReversalIncomplete
                | Reason::ReversalUnclear),
            ) => {
                return Ordered::NotReversed(reason);
            }
            (_, _) => {}
        }
        match self.receipt.said {
            Some(Answer::State(state @ (State::Received | State::Processing))) => {
                Ordered::Working(state)
            }
            receipt => Ordered::Unknown {
                receipt,
                sent: self.decider.tally().sends() > before,
            },
        }
    }
}
