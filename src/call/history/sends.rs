//! The sends of a call, each with how it ended and what the receipt said after it.

use std::time::Duration;

use super::Event;
use crate::call::outcome::{Outcome, Reading};
use crate::call::receipt::Answer;

/// The sends, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Sends(pub(super) Vec<Send>);

/// One send.
#[derive(Debug)]
pub(super) struct Send {
    pub(super) n: u32,
    pub(super) by_hand: bool,
    pub(super) ended: Option<Ended>,
    /// What the receipt said between this send and the next.
    pub(super) receipts: Vec<Answer>,
}

/// How a send ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) took: Duration,
    pub(super) late: bool,
}

impl Sends {
    /// Sorts events by send; what belongs to none is left out.
    pub(super) fn of(events: &[Event]) -> Self {
        let mut sends: Vec<Send> = Vec::new();
        for event in events {
            match event {
                Event::Sent { n, by_hand, .. } => sends.push(Send {
                    n: *n,
                    by_hand: *by_hand,
                    ended: None,
                    receipts: Vec::new(),
                }),
                Event::Ended {
                    n,
                    outcome,
                    took,
                    late,
                    ..
                } => {
                    // The last word about a send is its end: a late answer follows its timeout.
                    if let Some(send) = sends.iter_mut().rfind(|send| send.n == *n) {
                        send.ended = Some(Ended {
                            outcome: *outcome,
                            took: *took,
                            late: *late,
                        });
                    }
                }
                Event::Receipt { answer, .. } => {
                    if let Some(send) = sends.last_mut() {
                        send.receipts.push(*answer);
                    }
                }
            }
        }
        Self(sends)
    }

    /// The last send an operator asked for that was not the first of the call.
    pub(super) fn by_hand(&self) -> Option<u32> {
        self.0
            .iter()
            .skip(1)
            .rfind(|send| send.by_hand)
            .map(|send| send.n)
    }

    /// How many sends may have reached the tool and were not ruled out by a receipt.
    pub(super) fn not_ruled_out(&self) -> usize {
        let open = |send: &&Send| send.may_have_arrived() && !send.is_ruled_out();
        self.0.iter().filter(open).count()
    }

    /// How many sends a receipt ruled out.
    pub(super) fn ruled_out(&self) -> usize {
        let out = |send: &&Send| send.may_have_arrived() && send.is_ruled_out();
        self.0.iter().filter(out).count()
    }

    /// A send that the receipt denied and the tool answered with success.
    pub(super) fn denied_and_done(&self) -> Option<u32> {
        let both = |send: &&Send| send.receipts.contains(&Answer::NotFound) && send.succeeded();
        self.0.iter().find(both).map(|send| send.n)
    }
}

impl Send {
    /// Whether something of it may have reached the tool.
    pub(super) const fn may_have_arrived(&self) -> bool {
        !matches!(
            self.ended,
            Some(Ended {
                outcome: Outcome::NotSent(_),
                ..
            })
        )
    }

    /// The receipt said, believed, that the tool never got it.
    pub(super) fn is_ruled_out(&self) -> bool {
        self.receipts.contains(&Answer::NotFound) && !self.succeeded()
    }

    pub(super) const fn succeeded(&self) -> bool {
        matches!(
            self.ended,
            Some(Ended {
                outcome: Outcome::Answered(Reading::Success(_)),
                ..
            })
        )
    }
}
