//! The plain client beside hyper: over the same connection both come to the same.

use bytes::Bytes;
use proptest::prelude::*;

use crate::upstream::fuzzing::{End, Observed, Outcome, Script, run};

/// Heads, fields and bodies, sound and not, out of which answers are put together.
const STATUS: [&str; 13] = [
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.1 201 \r\n",
    "HTTP/1.1 204 No Content\r\n",
    "HTTP/1.1 304 Not Modified\r\n",
    "HTTP/1.1 500 Oops\r\n",
    "HTTP/1.1 799 Odd\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n",
    "HTTP/1.1 101 Switching Protocols\r\n",
    "HTTP/1.0 200 OK\r\n",
    "HTTP/2.0 200 OK\r\n",
    "HTTP/1.1 200 OK\n",
    "HTTP/1.1 2x0 OK\r\n",
];

const FIELDS: [&str; 22] = [
    "Content-Length: 5\r\n",
    "Content-Length: 5\r\n",
    "content-length:5\r\n",
    "Content-Length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: +5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Content-Length: 4\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Connection: close\r\n",
    "Connection: keep-alive, X-A\r\n",
    "Connection: caf\u{e9}, close\r\n",
    "X-A: 1\r\n",
    "X-A: 2\r\n",
    "X-Empty:\r\n",
    "X-Bytes: \u{fc}\r\n",
    " folded\r\n",
    "Bad Name: 1\r\n",
    "No colon\r\n",
    "Content-Type: text/event-stream\r\n",
    "X-Nul: \0\r\n",
];

const BODIES: [&str; 10] = [
    "hello",
    "hello",
    "",
    "hell",
    "hello and more",
    "5\r\nhello\r\n0\r\n\r\n",
    "5;ext\r\nhello\r\n0\r\nT: 1\r\n\r\n",
    "5\r\nhello\r\n",
    "z\r\nhello\r\n0\r\n\r\n",
    "helloHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
];

fn answers() -> impl Strategy<Value = Vec<u8>> {
    let fields = prop::collection::vec(prop::sample::select(&FIELDS[..]), 0..5);
    let put_together = (
        prop::sample::select(&STATUS[..]),
        fields,
        prop::sample::select(&BODIES[..]),
    )
        .prop_map(|(status, fields, body)| {
            format!("{status}{}\r\n{body}", fields.concat()).into_bytes()
        });
    let mutilated = (
        put_together.clone(),
        any::<prop::sample::Index>(),
        any::<u8>(),
    )
        .prop_map(|(mut bytes, at, byte)| {
            let at = at.index(bytes.len());
            bytes[at] = byte;
            bytes
        });
    let cut = (put_together.clone(), any::<prop::sample::Index>()).prop_map(|(mut bytes, at)| {
        bytes.truncate(at.index(bytes.len()));
        bytes
    });
    prop_oneof![
        4 => put_together,
        1 => mutilated,
        1 => cut,
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
}

fn scripts() -> impl Strategy<Value = Script> {
    let splits = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    let ends = prop_oneof![Just(End::Open), Just(End::Fin), Just(End::Reset)];
    let sides = (any::<bool>(), any::<bool>(), 1usize..300, 1usize..120);
    (answers(), splits, ends, sides).prop_map(
        |(bytes, splits, end, (head_only, streamed, takes, after))| Script {
            // Mostly a POST.
            head_only: head_only && takes % 3 == 0,
            streamed,
            takes,
            // Mostly the whole request is taken before anything is said.
            after: (after % 4 == 0).then_some(after),
            chokes: None,
            pieces: pieces(&bytes, &splits),
            end,
        },
    )
}

fn pieces(bytes: &[u8], splits: &[prop::sample::Index]) -> Vec<Bytes> {
    let mut at: Vec<_> = splits.iter().map(|s| s.index(bytes.len() + 1)).collect();
    at.extend([0, bytes.len()]);
    at.sort_unstable();
    at.windows(2)
        .filter(|pair| pair[0] < pair[1])
        .map(|pair| Bytes::copy_from_slice(&bytes[pair[0]..pair[1]]))
        .collect()
}

/// Both clients, less what they may differ in. An end that comes after a complete answer is noticed
/// by hyper's task at once, by the plain client when it looks, and so are bytes too many. How much
/// of a request is out when an early answer ends the exchange is a matter of turns, and so is
/// whether the head of an answer that breaks off was passed on before.
///
/// None of that is a judgement about the call. An early answer is complete or it is none, for both;
/// what is still unsent then dies with the connection, which `closing` holds. An end behind a
/// complete answer cannot take it back: the kernel gives out what it has before it tells of a
/// reset, and a connection is looked at before it is used again. An answer that breaks off is
/// unclear whether its head was passed on or not.
fn both(script: &Script) -> (Outcome, Outcome) {
    let mut plain = run(script, false);
    let mut hyper = run(script, true);
    for outcome in [&mut plain, &mut hyper] {
        match &mut outcome.observed {
            Observed::Broken(..) => outcome.observed = Observed::Unclear,
            // A length that goes out with the whole body is left to whoever writes it.
            Observed::Answer(_, fields, body, _) if !body.is_empty() => {
                fields.retain(|(name, _)| name != "content-length");
            }
            _ => {}
        }
    }
    if script.after.is_some() {
        let (short, long) = match plain.request.len() < hyper.request.len() {
            true => (&plain.request, &hyper.request),
            false => (&hyper.request, &plain.request),
        };
        assert!(long.starts_with(short), "{script:?}");
        plain.request.clone_from(&hyper.request);
        plain.written = hyper.written;
    }
    if script.end != End::Open || script.after.is_some() {
        plain.kept = hyper.kept;
    }
    if script.end != End::Open || matches!(plain.observed, Observed::Answer(..)) {
        plain.reset = hyper.reset;
    }
    (plain, hyper)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_clients_come_to_the_same(script in scripts()) {
        let (plain, hyper) = both(&script);
        prop_assert_eq!(plain, hyper);
    }

    /// A connection that takes no more of the request: nothing was sent only if nothing was taken.
    #[test]
    fn a_request_is_handed_back_only_while_no_byte_was_taken(
        script in scripts(),
        chokes in 0usize..40,
    ) {
        let script = Script { chokes: Some(chokes), takes: 16, after: None, ..script };
        let outcome = run(&script, false);
        prop_assert!(!outcome.written);
        prop_assert_eq!(outcome.request.len(), chokes);
        let expected = if chokes == 0 { Observed::NotSent } else { Observed::Unclear };
        prop_assert_eq!(outcome.observed, expected);
        prop_assert_eq!(outcome.kept, 0);
    }
}
