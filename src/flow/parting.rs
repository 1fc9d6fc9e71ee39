//! A call leaves the line unsettled: what the ledger is told, and what the caller is told.
//!
//! The caller never hears success or failure here, except for a call of which it is certain that
//! it was never sent and never will be.

use std::sync::Arc;

use http::header::RETRY_AFTER;

use super::call::{self, Call, Hold, Said};
use super::drive::Drive;
use super::told::{Problem, Shown, Told, Whole, Word};
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::IdSource;
use crate::call::outcome::{NotSent, Outcome};
use crate::call::policy::UnresolvedAnswer;
use crate::call::receipt::State;
use crate::call::step::{Parked, Parking, Reason};
use crate::call::time::Wall;
use crate::config::template::JsonPointer;
use crate::ledger::{Intention, Kept, Park, Place};
use crate::telemetry::labels::Denied;
use crate::upstream::Answer;
use crate::upstream::json::Json;

/// A call, or a round, that ended without settling anything.
pub(super) struct Unresolved {
    /// The machine's word.
    pub(super) parking: Parking,
    /// It is durable; what is not is never told as an end.
    pub(super) recorded: bool,
    /// Some attempt has reached the tool, or may have.
    pub(super) reached: bool,
    /// Sends so far.
    pub(super) sends: u8,
    /// What is known of earlier ones, where none of these has reached the tool.
    pub(super) before: Sent,
    /// The last complete 5xx answer.
    pub(super) kept: Option<Answer>,
    /// What went wrong last, for people.
    pub(super) last_error: Arc<str>,
}

impl Unresolved {
    /// The record of it; `None` where nothing is held that could be given up.
    pub(super) fn intention(&self, call: &Call, now: Wall) -> Option<Intention> {
        match call.place {
            call::Place::Line => Some(self.park(call, now)),
            call::Place::Round(round) => Some(self.next_round(round, now)),
            call::Place::Undo(rounds) => Some(self.give_back(rounds, now)),
            call::Place::Repeat(Hold::Leased(rounds))
            | call::Place::Order(Hold::Leased(rounds)) => Some(self.give_back(rounds, now)),
            call::Place::Repeat(Hold::Nothing) | call::Place::Order(Hold::Nothing) => None,
        }
    }

    /// The record of a call that leaves the line.
    fn park(&self, call: &Call, now: Wall) -> Intention {
        let place = match self.parking.state {
            Parked::Queued(wait) | Parked::Unsent(wait) => Place::Queued {
                due: now.after(wait),
            },
            Parked::Manual => Place::Manual,
            Parked::NeverSent => Place::NeverSent,
            // Never said in line; were it, the next round would find out.
            Parked::AsBefore | Parked::Reversing(_) | Parked::Reversed => {
                Place::Queued { due: now }
            }
        };
        Intention::Park(Park {
            reason: self.parking.reason.as_str().into(),
            place,
            reached: self.reached,
            last_error: Arc::clone(&self.last_error),
            kept: self.kept.as_ref().map(|answer| call.reply_of(answer)),
        })
    }

    /// The record of a round that ended without settling the call.
    fn next_round(&self, round: u32, now: Wall) -> Intention {
        let last_error = Arc::clone(&self.last_error);
        match self.parking.state {
            Parked::Queued(wait) | Parked::Unsent(wait) => Intention::NextRound {
                round,
                due: now.after(wait),
                reached: self.reached,
                last_error,
            },
            Parked::AsBefore => self.release(),
            Parked::Manual | Parked::NeverSent => self.manual(round),
            Parked::Reversing(wait) => self.reverse_again(now.after(wait)),
            Parked::Reversed => Intention::Reversed,
        }
    }

    /// Whoever only borrowed the dead letter gives it back; rounds and their times do not move.
    fn give_back(&self, rounds: u32, now: Wall) -> Intention {
        match self.parking.state {
            Parked::Manual => self.manual(rounds),
            Parked::Reversing(wait) => self.reverse_again(now.after(wait)),
            Parked::Reversed => Intention::Reversed,
            Parked::AsBefore | Parked::Queued(_) | Parked::Unsent(_) | Parked::NeverSent => {
                self.release()
            }
        }
    }

    const fn release(&self) -> Intention {
        Intention::ReleaseLease {
            reached: self.reached,
        }
    }

    fn reverse_again(&self, due: Wall) -> Intention {
        Intention::ReverseAgain {
            due,
            last_error: Arc::clone(&self.last_error),
        }
    }

    fn manual(&self, round: u32) -> Intention {
        Intention::Manual {
            reason: self.parking.reason.as_str().into(),
            round,
            reached: self.reached,
            last_error: Arc::clone(&self.last_error),
        }
    }

    /// Counts a new dead letter, and the resend that was wanted and not allowed.
    pub(super) fn count(&self, call: &Call) {
        let metrics = &call.route.metrics;
        match call.place {
            call::Place::Line => metrics.parked.inc(self.parking.reason),
            call::Place::Round(_) | call::Place::Undo(_) => {}
            // What a repeat or an order did not get is no news of the dead letter.
            call::Place::Repeat(_) | call::Place::Order(_) => return,
        }
        if let Some(denied) = denied(self.parking.reason) {
            metrics.denied.inc(denied);
        }
    }

    /// What the caller hears.
    pub(super) fn told(self, call: &Call) -> Told {
        match self.parking.state {
            Parked::NeverSent if self.recorded => never_sent(call, self.sends, self.before),
            Parked::Unsent(_) => {
                let what = match self.before {
                    Sent::No => "Nothing has reached the tool yet",
                    Sent::Maybe | Sent::Yes | Sent::Unknown => {
                        "The gateway next to the tool has taken nothing yet"
                    }
                };
                let what = format!("{what}; the gateway keeps the call and sends it later.");
                let problem = Problem {
                    state: Some(State::Received),
                    ..unresolved(call, self.before, &what)
                };
                call.problem(Word::Unresolved, self.sends, problem)
            }
            Parked::Queued(_)
            | Parked::Manual
            | Parked::AsBefore
            | Parked::NeverSent
            | Parked::Reversing(_)
            | Parked::Reversed => self.unknown(call),
        }
    }

    fn unknown(self, call: &Call) -> Told {
        let shows_upstream = match call.route.conf.policy.unresolved_answer {
            UnresolvedAnswer::Upstream => true,
            UnresolvedAnswer::Problem => false,
            // An SDK repeats a 5xx by itself, and would repeat it without an id it never saw.
            UnresolvedAnswer::ByIdSource => call.source == IdSource::Client,
        };
        match self.kept.filter(|_| shows_upstream) {
            Some(mut answer) => {
                answer.headers.remove(RETRY_AFTER);
                let Answer {
                    status,
                    headers,
                    body,
                    ..
                } = answer;
                let shown = Shown::Whole(Whole {
                    status,
                    headers,
                    body,
                });
                Told {
                    same_id_only: true,
                    ..call.told(Word::Unresolved, self.sends, shown)
                }
            }
            None => {
                let problem = unresolved(
                    call,
                    Sent::Maybe,
                    "Nobody knows yet what became of this call; the gateway goes on asking the \
                     tool.",
                );
                call.problem(Word::Unresolved, self.sends, problem)
            }
        }
    }
}

fn unresolved(call: &Call, sent: Sent, what: &str) -> Problem {
    let next = "Repeat it under the same call id only, or read its receipt.";
    Problem {
        status: call.route.conf.policy.unresolved_status,
        state: Some(State::Unknown),
        ..Problem::new(
            Code::Unresolved,
            format!("{what} {next}"),
            sent,
            Repeat::SameCallIdOnly,
        )
    }
}

/// Nothing reached the tool and nothing ever will: id and key are free again.
fn never_sent(call: &Call, sends: u8, before: Sent) -> Told {
    let (detail, repeat) = match before {
        Sent::No => (
            "Nothing could be sent to the tool. The call has ended; repeat it whenever the tool \
             is back.",
            Repeat::Safe,
        ),
        Sent::Maybe | Sent::Yes | Sent::Unknown => (
            "The gateway next to the tool took nothing, and the call has ended here. Whether the \
             tool was sent it by an earlier request with this id is not known: repeat it under \
             the same id.",
            Repeat::SameCallIdOnly,
        ),
    };
    let problem = Problem {
        state: Some(State::Failed),
        ..Problem::new(Code::ToolUnreachable, detail, before, repeat)
    };
    call.problem(Word::Refused, sends, problem)
}

impl Drive {
    /// What is known of earlier sends of a call that was not sent from here. A gateway further in
    /// that refuses a call may have sent it before, unless it says that it has not.
    pub(super) fn before(&self) -> Sent {
        let refused = Outcome::NotSent(NotSent::Refused);
        let mut said = self
            .lines
            .iter()
            .filter(|line| line.outcome == refused)
            .filter_map(|line| self.replies.get(u8::try_from(line.n).ok()?));
        if said.all(says_no) {
            Sent::No
        } else {
            Sent::Unknown
        }
    }
}

/// Whether a gateway's refusal says that the tool was not sent the call.
fn says_no(said: &Said) -> bool {
    let body = match said {
        Said::Answer(answer) => &answer.body,
        Said::Kept(reply) => match &reply.body {
            Kept::Whole(body) => body,
            Kept::Digest { .. } => return false,
        },
    };
    let at = JsonPointer::parse("/sent").expect("it is one");
    let sent = Json::read(body).and_then(|problem| problem.text(&at));
    sent.ok().flatten().as_deref() == Some(Sent::No.as_str())
}

/// A fault of this program: told as what it is.
pub(super) fn internal() -> Problem {
    Problem::new(
        Code::Internal,
        "The gateway lost track of this call's answer; its ledger did not. Read its receipt.",
        Sent::Maybe,
        Repeat::SameCallIdOnly,
    )
}

/// Which bound or rule stood against a resend, if a resend was what the call ended for.
const fn denied(reason: Reason) -> Option<Denied> {
    match reason {
        Reason::RetriesExhausted => Some(Denied::Exhausted),
        Reason::Deadline | Reason::RetryAfter => Some(Denied::Deadline),
        Reason::NoReceipt => Some(Denied::NoReceipt),
        Reason::Cancelled => Some(Denied::ClientGone),
        Reason::CredentialNotKept => Some(Denied::Credential),
        Reason::Ejected => Some(Denied::Ejected),
        Reason::NeverSent
        | Reason::Crash
        | Reason::Drain
        | Reason::StreamCut
        | Reason::Denied
        | Reason::LedgerFailed
        | Reason::RoundsExhausted
        | Reason::RouteChanged
        | Reason::ReportedFailure
        | Reason::ReversalRefused
        | Reason::ReversalIncomplete
        | Reason::ReversalUnclear
        | Reason::Impossible => None,
    }
}
