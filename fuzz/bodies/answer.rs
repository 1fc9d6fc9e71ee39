//! An answer of a tool, read by the plain client and by hyper: both come to the same.
//!
//! The input is four bytes (who asks, how the request is taken, where the answer is cut in pieces,
//! how the connection ends) and the bytes that the tool says.

use bytes::Bytes;
use callgate::upstream::fuzzing::{End, Observed, Outcome, Script, run};

/// Plays `data` to both clients.
pub(super) fn check(data: &[u8]) {
    let Some((head, said)) = data.split_at_checked(4) else {
        return;
    };
    let script = script(head, said);
    let (plain, hyper) = (seen(&script, false), seen(&script, true));
    assert_eq!(plain, hyper, "{script:?}");
    // What was not sent left no byte.
    if plain.observed == Observed::NotSent {
        assert!(plain.request.is_empty());
    }
}

fn script(head: &[u8], said: &[u8]) -> Script {
    let piece = 1 + usize::from(head[2]);
    Script {
        head_only: head[0] & 1 == 1,
        streamed: head[0] & 2 == 2,
        takes: 1 + usize::from(head[1]),
        after: None,
        chokes: None,
        pieces: said.chunks(piece).map(Bytes::copy_from_slice).collect(),
        end: [End::Open, End::Fin, End::Reset][usize::from(head[3]) % 3],
    }
}

/// What came of it, less what is a matter of turns (see the differential test of `upstream`).
fn seen(script: &Script, by_hyper: bool) -> Outcome {
    let mut outcome = run(script, by_hyper);
    match &mut outcome.observed {
        Observed::Broken(..) => outcome.observed = Observed::Unclear,
        Observed::Answer(_, fields, body, _) => {
            if !body.is_empty() {
                fields.retain(|(name, _)| name != "content-length");
            }
            outcome.reset = false;
        }
        Observed::NotSent | Observed::Unclear | Observed::Waiting => {}
    }
    if script.end != End::Open {
        outcome.kept = 0;
        outcome.reset = false;
    }
    outcome
}
