//! What a pass makes of what is known before it: a caller who was told a part, and why the last
//! send settled nothing.

use super::*;
use crate::call::outcome::Cause;

/// A tool that dedupes, as its operator declares: what is told is not sent all the same.
fn dedupes() -> Policy {
    let mut made = resending();
    let mut numbers = made.retry.numbers();
    numbers.resend_on = ResendOn::NotFoundOrUnknown;
    made.retry = Retry::new(numbers).unwrap();
    made
}

#[test]
fn a_call_that_was_told_in_part_is_asked_about_and_never_sent() {
    for answer in [NOT_FOUND, state(State::Unknown)] {
        let mut round = round_of(dedupes(), 1, (1, true), Sending::Told);
        let step = through(&mut round, &[answer]);
        assert_eq!(reason(step), (Reason::StreamCut, NEXT));
        let step = through(&mut repeat_of(dedupes(), 1, Sending::Told), &[answer]);
        assert_eq!(reason(step).1, Parked::AsBefore);
    }
    let rounds = u32::try_from(resending().compensation.rounds.len()).unwrap();
    let mut last = round_of(resending(), rounds, (1, true), Sending::Told);
    let step = through(&mut last, &[NOT_FOUND]);
    assert_eq!(reason(step), (Reason::StreamCut, Parked::Manual));
    let mut round = round_of(resending(), 1, (1, true), Sending::Told);
    let step = through(&mut round, &[state(State::Success)]);
    assert_eq!(step, Step::Answer(Ending::ReceiptSuccess));
}

#[test]
fn a_resend_says_why_the_last_send_settled_nothing() {
    for cause in Cause::ALL {
        let known = Known {
            cause,
            ..Known::of(1, true)
        };
        let policy = Arc::new(resending());
        let mut round = Recovery::new(policy, Mono(0), 1, known, Sending::Allowed);
        let step = through(&mut round, &SENT[..4]);
        let told = Some(cause);
        assert_eq!(step, Step::Send { n: 2, cause: told });
    }
}
