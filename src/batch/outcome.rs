//! What an item's call came to: an end of the item, or a reason to ask again.
//!
//! The words are those of a caller's answer. An answer that binds nothing ("not now", a ledger that
//! cannot be written) leaves the item where it was; everything else ends it, and what nobody knows
//! is told as that.

use std::sync::Arc;
use std::time::Duration;

use crate::call::code::Code;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::flow::told::{Problem, Shown, Told, Word};
use crate::ledger::batch::{ItemEnd, ItemState};
use crate::upstream::headers::retry_after;

/// Statuses that say "not now": the call is released, and a repeat is sent.
const NOT_NOW: [u16; 3] = [408, 425, 429];

/// How long to wait after "not now" that names no time.
const PAUSE: Duration = Duration::from_secs(1);

/// How long an item waits that a bound of this gateway has shed. Short, because places come free
/// all the time: a batch with more workers than places would else idle at its end.
const SHED: Duration = Duration::from_millis(100);

/// The longest a tool's `Retry-After` is honoured in one go; then it is asked again.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// What a run of an item came to.
#[derive(Debug)]
pub enum Outcome {
    /// The item has ended so.
    Ended(ItemEnd),
    /// Not now.
    Again {
        /// How long to wait.
        after: Duration,
        /// Whether it is the gateway that could not, so that it does not count.
        ours: bool,
        /// How the item ends if nobody asks again.
        at_last: ItemEnd,
    },
}

/// Reads what the caller of an item's call would have been told.
#[must_use]
pub fn read(line: u32, told: &Told, now: Wall) -> Outcome {
    let status = status_of(&told.shown);
    let end = |state, error: Option<Arc<str>>| ItemEnd {
        line,
        state,
        attempts: told.attempts,
        status: Some(status),
        outcome: Arc::from(told.word.as_str()),
        error,
        original: told.original.clone(),
    };
    match (told.word, &told.shown) {
        (Word::Unresolved, shown) => {
            let why = match shown {
                Shown::Problem(problem) => problem.code.as_str(),
                Shown::Whole(_) | Shown::Stream { .. } | Shown::Tunnel(_) | Shown::Accepted(_) => {
                    "unresolved"
                }
            };
            Outcome::Ended(end(ItemState::Unresolved, Some(Arc::from(why))))
        }
        (Word::Answered, shown) if NOT_NOW.contains(&status) => Outcome::Again {
            after: named_pause(shown, now).unwrap_or(PAUSE).min(PAUSE_MAX),
            ours: false,
            at_last: end(
                ItemState::Refused,
                Some(Arc::from(format!("HTTP {status} to the last"))),
            ),
        },
        (_, Shown::Problem(problem)) => refused(problem, end),
        (Word::Answered | Word::Receipt | Word::Replayed | Word::Refused, _) => {
            Outcome::Ended(match status {
                200..=399 => end(ItemState::Done, None),
                _ => end(
                    ItemState::Refused,
                    Some(Arc::from(format!("HTTP {status}"))),
                ),
            })
        }
    }
}

fn refused(problem: &Problem, end: impl Fn(ItemState, Option<Arc<str>>) -> ItemEnd) -> Outcome {
    let code = || Some(Arc::from(problem.code.as_str()));
    let again = |ours, after, state| Outcome::Again {
        after,
        ours,
        at_last: end(state, code()),
    };
    let told = problem.retry_after.unwrap_or(PAUSE);
    match problem.code {
        Code::Overloaded | Code::RateLimited => again(true, SHED, ItemState::Unresolved),
        Code::LedgerUnavailable | Code::Draining => again(true, told, ItemState::Unresolved),
        // The call runs for somebody else; its end will be this item's.
        Code::InProgress => again(false, told, ItemState::Unresolved),
        // The same request runs under another id: nothing was sent for this one, or ever will be.
        Code::NewIdForRunningCall => again(false, told, ItemState::Refused),
        Code::ResultNotKept if problem.state == Some(State::Success) => {
            Outcome::Ended(end(ItemState::Done, None))
        }
        // An answer that binds nothing says "not now", whether it was kept or not.
        Code::ResultNotKept if problem.state.is_none() => again(false, told, ItemState::Refused),
        _ => Outcome::Ended(end(ItemState::Refused, code())),
    }
}

/// The status the tool gave, also of an answer that was too large to keep.
fn status_of(shown: &Shown) -> u16 {
    let kept = match shown {
        Shown::Problem(problem) => problem.kept_status(),
        Shown::Whole(_) | Shown::Stream { .. } | Shown::Tunnel(_) | Shown::Accepted(_) => None,
    };
    kept.unwrap_or_else(|| shown.status()).as_u16()
}

fn named_pause(shown: &Shown, now: Wall) -> Option<Duration> {
    if let Shown::Problem(problem) = shown {
        return problem.retry_after;
    }
    retry_after(shown.headers()?, now)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::header::RETRY_AFTER;
    use http::{HeaderMap, HeaderValue, StatusCode};

    use super::*;
    use crate::call::code::{Repeat, Sent};
    use crate::flow::told::Whole;

    fn whole(word: Word, status: u16, attempts: u32) -> Told {
        let mut headers = HeaderMap::new();
        if status == 429 {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("7"));
        }
        let whole = Whole {
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers.into(),
            body: Bytes::new(),
        };
        told(word, attempts, Shown::Whole(whole))
    }

    fn told(word: Word, attempts: u32, shown: Shown) -> Told {
        Told {
            call: None,
            word,
            attempts,
            shown,
            original: None,
            same_id_only: false,
            recorded: true,
        }
    }

    fn problem(word: Word, code: Code, state: Option<State>) -> Told {
        let problem = Problem {
            state,
            ..Problem::new(code, "", Sent::Unknown, Repeat::SameCallIdOnly)
        };
        told(word, 1, Shown::Problem(problem))
    }

    fn ends(told: &Told, state: ItemState) {
        match read(3, told, Wall(0)) {
            Outcome::Ended(end) => assert_eq!((end.line, end.state), (3, state), "{told:?}"),
            again @ Outcome::Again { .. } => panic!("{told:?}: {again:?}"),
        }
    }

    #[test]
    fn what_is_known_ends_the_item_and_what_is_not_is_told_as_that() {
        for (word, status, state) in [
            (Word::Answered, 201, ItemState::Done),
            (Word::Answered, 304, ItemState::Done),
            (Word::Receipt, 200, ItemState::Done),
            (Word::Replayed, 200, ItemState::Done),
            (Word::Answered, 422, ItemState::Refused),
            (Word::Answered, 403, ItemState::Refused),
            (Word::Receipt, 502, ItemState::Refused),
            (Word::Unresolved, 500, ItemState::Unresolved),
        ] {
            ends(&whole(word, status, 1), state);
        }
        for (code, state) in [
            (Code::ToolReportedFailure, ItemState::Refused),
            (Code::IdempotencyKeyReused, ItemState::Refused),
            (Code::CallIdReused, ItemState::Refused),
            (Code::Reversed, ItemState::Refused),
            (Code::BadRequest, ItemState::Refused),
        ] {
            ends(&problem(Word::Refused, code, None), state);
        }
        let open = problem(Word::Unresolved, Code::Unresolved, Some(State::Unknown));
        ends(&open, ItemState::Unresolved);
        // A late answer that was too large to keep comes under `Answered`.
        for word in [Word::Refused, Word::Answered] {
            let kept = |state| problem(word, Code::ResultNotKept, Some(state));
            ends(&kept(State::Success), ItemState::Done);
            ends(&kept(State::Failed), ItemState::Refused);
        }
    }

    #[test]
    fn not_now_is_asked_again_when_the_tool_says_and_counts_only_if_it_was_the_tool() {
        let at_last = |told: &Told| match read(1, told, Wall(0)) {
            Outcome::Again { at_last, .. } => at_last.state,
            Outcome::Ended(end) => panic!("{end:?}"),
        };
        let twin = problem(Word::Refused, Code::NewIdForRunningCall, None);
        assert_eq!(
            at_last(&twin),
            ItemState::Refused,
            "it has no call to follow"
        );
        let running = problem(Word::Refused, Code::InProgress, None);
        assert_eq!(at_last(&running), ItemState::Unresolved);
        let again = |told: &Told| match read(1, told, Wall(0)) {
            Outcome::Again { after, ours, .. } => (after, ours),
            Outcome::Ended(end) => panic!("{end:?}"),
        };
        assert_eq!(again(&whole(Word::Answered, 429, 1)), (7 * PAUSE, false));
        assert_eq!(again(&whole(Word::Answered, 425, 1)), (PAUSE, false));
        for (code, after, ours) in [
            (Code::InProgress, PAUSE, false),
            (Code::LedgerUnavailable, PAUSE, true),
            (Code::Overloaded, SHED, true),
            (Code::RateLimited, SHED, true),
            (Code::Draining, PAUSE, true),
        ] {
            let told = problem(Word::Refused, code, None);
            assert_eq!(again(&told), (after, ours), "{code:?}");
        }
    }
}
