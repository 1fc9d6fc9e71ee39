//! What an order came to, as a word for programs and as a sentence for people.

use crate::call::receipt::Answer;
use crate::flow::operate::{Ordered, Refusal};
use crate::ledger::Verdict;
use crate::ledger::desk;

/// The word of an order's end; a closed set, told in `docs/operations.md`.
#[must_use]
pub const fn result(ordered: &Ordered) -> &'static str {
    match ordered {
        Ordered::Receipt(Verdict::Success)
        | Ordered::Answered {
            verdict: Verdict::Success,
            ..
        } => "settled",
        Ordered::Receipt(Verdict::Failed)
        | Ordered::Answered {
            verdict: Verdict::Failed,
            ..
        } => "failed",
        Ordered::Agrees(_) => "agrees",
        Ordered::Differs(_) => "differs",
        Ordered::ReportedFailure => "reported-failure",
        Ordered::Working(_) => "processing",
        Ordered::Unknown { sent: true, .. } => "unclear",
        Ordered::Unknown {
            receipt: Some(Answer::NotFound),
            ..
        } => "not-found",
        Ordered::Unknown { .. } => "unknown",
        Ordered::Reversed => "reversed",
        Ordered::Reversing => "reversing",
        Ordered::NotReversed(_) => "not-reversed",
        Ordered::Refused(_) => "refused",
        Ordered::Held { .. } => "running",
        Ordered::Gone => "gone",
        Ordered::Unrecorded => "unrecorded",
    }
}

/// Whether the call's end is known now.
#[must_use]
pub const fn is_known(ordered: &Ordered) -> bool {
    match ordered {
        Ordered::Receipt(_)
        | Ordered::Answered { .. }
        | Ordered::Agrees(_)
        | Ordered::Differs(_)
        | Ordered::Reversed => true,
        Ordered::ReportedFailure
        | Ordered::Working(_)
        | Ordered::Unknown { .. }
        | Ordered::Reversing
        | Ordered::NotReversed(_)
        | Ordered::Refused(_)
        | Ordered::Held { .. }
        | Ordered::Gone
        | Ordered::Unrecorded => false,
    }
}

/// The same for people.
#[must_use]
pub fn sentence(ordered: &Ordered) -> String {
    match ordered {
        Ordered::Receipt(verdict) => {
            format!(
                "the tool's receipt says {}: settled",
                verdict.state().as_str()
            )
        }
        Ordered::Answered { verdict, status } => format!(
            "sent again, answered {}: {}",
            status.as_u16(),
            verdict.state().as_str()
        ),
        Ordered::Agrees(verdict) => format!(
            "it had ended as {}, and the tool agrees",
            verdict.state().as_str()
        ),
        Ordered::Differs(kind) => format!(
            "the tool contradicts what is on record ({}); noted as a difference, not applied",
            kind.as_str()
        ),
        Ordered::ReportedFailure => {
            "the tool's receipt says FAILED, and this route leaves that to a human".to_owned()
        }
        Ordered::Working(state) => format!("the tool still works on it ({})", state.as_str()),
        Ordered::Unknown { receipt, sent } => unknown(*receipt, *sent),
        Ordered::Reversed => "it was undone".to_owned(),
        Ordered::Reversing => "the reversal is unclear; the queue sends it again".to_owned(),
        Ordered::NotReversed(reason) => format!("not undone: {}", reason.as_str()),
        Ordered::Refused(refusal) => format!("refused: {}", why_not(*refusal)),
        Ordered::Held { .. } => "somebody else works on it at this moment".to_owned(),
        Ordered::Gone => "there is no such call any more".to_owned(),
        Ordered::Unrecorded => {
            "the ledger could not be read or written; look at `dead show`".to_owned()
        }
    }
}

fn unknown(receipt: Option<Answer>, sent: bool) -> String {
    let done = if sent { "sent again, " } else { "" };
    match receipt {
        Some(Answer::NotFound) => format!("{done}the tool never heard of it"),
        Some(answer) => format!("{done}the tool's receipt says {}", answer.as_str()),
        None => format!("{done}nobody knows what became of it"),
    }
}

/// Why an order is not done, and what to do instead.
#[must_use]
pub const fn why_not(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::InLine => "the call is still in line; its end comes by itself",
        Refusal::Settled => "the call has ended as SUCCESS; `dead receipt` asks the tool again",
        Refusal::Failed => "the call has ended as FAILED; a new operation needs a new call id",
        Refusal::Reversing => {
            "its reversal has begun, and the original is never sent again; see `dead show`"
        }
        Refusal::Reversed => "it was undone; a new operation needs a new call id",
        Refusal::Discarded => {
            "it was discarded; a discarded call is never sent again, but may be resolved"
        }
        Refusal::RouteGone => {
            "its route is no longer configured (or cannot send it); configure it again, or resolve"
        }
        Refusal::RouteChanged => {
            "its route leads to another tool now; list the old address in upstream.formerly, or \
             resolve it"
        }
        Refusal::Credential => {
            "it came with a credential, which is never kept; supply one in upstream.headers, or \
             have its caller repeat it"
        }
        Refusal::Told => {
            "a part of its answer reached its caller, so it is never sent again; `dead receipt` \
             asks the tool, or resolve it"
        }
        Refusal::NoReceipt => {
            "its route has no receipt to ask first; look into the tool's own books, then resolve"
        }
        Refusal::NoReversal => "its route has no compensation.reversal; undo it at the tool",
        Refusal::Irreversible => "its tool cannot undo (reversible: false)",
        Refusal::NeverSent => "nothing ever reached the tool, so there is nothing to undo",
        Refusal::TooOld => "it is older than reversal.max_age; undo it at the tool, then resolve",
    }
}

/// Why a decision is refused, and what to do instead.
#[must_use]
pub const fn why_not_decided(refusal: desk::Refusal) -> &'static str {
    use desk::Refusal as Why;
    match refusal {
        Why::NotParked => "the call was never parked: there is no dead letter to decide about",
        Why::Running => {
            "somebody works on it at this moment (a round, a caller, an order); see \
                         what that brings, then decide"
        }
        Why::StillOpen => "it is still open and may be sent; discard or resolve it first",
        Why::Settled => "the call has ended as SUCCESS",
        Why::Failed => "the call has ended as FAILED",
        Why::Reversing => "its reversal is under way; wait for its end",
        Why::Reversed => "it was undone",
        Why::Discarded => "it was discarded",
        Why::NoKey => "the call has no idempotency key",
    }
}
