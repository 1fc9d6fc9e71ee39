//! What an item's call came to: an end of the item, or a reason to ask again.
//!
//! The words are those of a caller's answer. An answer that binds nothing ("not now", a ledger that
//! cannot be written) leaves the item where it was; everything else ends it, and what nobody knows
//! is told as that.

use std::sync::Arc;
use std::time::Duration;

use http::header::RETRY_AFTER;

use crate::call::code::Code;
use crate::call::receipt::State;
use crate::flow::told::{Problem, Shown, Told, Word};
use crate::ledger::batch::{ItemEnd, ItemState};

/// Statuses that say "not now": the call is released, and a repeat is sent.
const NOT_NOW: [u16; 3] = [408, 425, 429];

/// How long to wait after "not now" that names no time.
const PAUSE: Duration = Duration::from_secs(1);

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
pub fn read(line: u32, told: &Told) -> Outcome {
    let status = told.shown.status().as_u16();
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
                Shown::Whole(_) | Shown::Stream { .. } | Shown::Tunnel(_) => "unresolved",
            };
            Outcome::Ended(end(ItemState::Unresolved, Some(Arc::from(why))))
        }
        (Word::Answered, shown) if NOT_NOW.contains(&status) => Outcome::Again {
            after: named_pause(shown).unwrap_or(PAUSE).min(PAUSE_MAX),
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
    let again = |ours, state| Outcome::Again {
        after: problem.retry_after.unwrap_or(PAUSE),
        ours,
        at_last: end(state, code()),
    };
    match problem.code {
        Code::LedgerUnavailable | Code::Overloaded | Code::Draining | Code::RateLimited => {
            again(true, ItemState::Unresolved)
        }
        // The same call runs for somebody else.
        Code::InProgress => again(false, ItemState::Unresolved),
        Code::ResultNotKept if problem.state == Some(State::Success) => {
            Outcome::Ended(end(ItemState::Done, None))
        }
        _ => Outcome::Ended(end(ItemState::Refused, code())),
    }
}

fn named_pause(shown: &Shown) -> Option<Duration> {
    let headers = match shown {
        Shown::Whole(whole) => &whole.headers,
        Shown::Stream { headers, .. } => headers,
        Shown::Problem(problem) => return problem.retry_after,
        Shown::Tunnel(_) => return None,
    };
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse();
    seconds.ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
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
            headers,
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
        match read(3, told) {
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
        let kept = problem(Word::Refused, Code::ResultNotKept, Some(State::Success));
        ends(&kept, ItemState::Done);
    }

    #[test]
    fn not_now_is_asked_again_when_the_tool_says_and_counts_only_if_it_was_the_tool() {
        let again = |told: &Told| match read(1, told) {
            Outcome::Again { after, ours, .. } => (after.as_secs(), ours),
            Outcome::Ended(end) => panic!("{end:?}"),
        };
        assert_eq!(again(&whole(Word::Answered, 429, 1)), (7, false));
        assert_eq!(again(&whole(Word::Answered, 425, 1)), (1, false));
        for (code, ours) in [
            (Code::InProgress, false),
            (Code::LedgerUnavailable, true),
            (Code::Overloaded, true),
            (Code::Draining, true),
        ] {
            let told = problem(Word::Refused, code, None);
            assert_eq!(again(&told), (1, ours), "{code:?}");
        }
    }
}
