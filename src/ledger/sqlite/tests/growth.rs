//! How large a file becomes: what one settled call costs, and that a file under steady load stops
//! growing once what expires is as much as what comes.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::*;
use crate::call::id::{Fingerprint, IdSource};
use crate::call::outcome::{Outcome, Reading};
use crate::ledger::contract::{LEASE, WINDOW, call, id};
use crate::ledger::{Begun, Entry, Fact, FactWritten, Kept, News, Owner, Reply};

/// Calls of one window: enough that indexes have levels and pages are reused.
const CALLS: usize = 1_000;

/// An ordinary call: an id as the gateway makes them, every other one with a key, the header
/// fields of a client library.
fn new_call(n: usize, body: usize, now: Wall) -> NewCall {
    let mut new = call(&format!("orders-{}-9f3c{n:08x}-node07", now.0));
    new.source = IdSource::Gateway;
    new.owner = Owner::new("node07-9f3c5a7b1d2e4f60");
    new.now = now;
    new.lease_until = now.after(LEASE);
    new.fingerprint = Fingerprint(std::array::from_fn(|at| {
        let mixed = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ now.0.unsigned_abs();
        mixed.to_le_bytes()[at % 8]
    }));
    new.idempotency_key = n
        .is_multiple_of(2)
        .then(|| format!("{:032x}", n as i64 ^ now.0).into());
    new.request.body = Bytes::from(vec![b'x'; body]);
    for (name, value) in [
        ("host", "tools.internal"),
        ("accept", "*/*"),
        ("user-agent", "some-client/1.4.2"),
        ("forwarded", "for=127.0.0.1;host=tools.internal;proto=http"),
        ("via", "1.1 callgate-node07"),
    ] {
        new.request
            .headers
            .insert(name, HeaderValue::from_static(value));
    }
    new
}

fn answer(body: usize) -> News {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("server", HeaderValue::from_static("tool"));
    News::Answer {
        n: 1,
        reply: Reply {
            status: StatusCode::CREATED,
            headers,
            body: Kept::Whole(Bytes::from(vec![b'y'; body])),
        },
        success: true,
    }
}

/// The end of its only attempt.
fn ended(now: Wall) -> Entry {
    Entry::Ended {
        at: now,
        n: 1,
        outcome: Outcome::Answered(Reading::Success(StatusCode::CREATED)),
        took: Duration::from_millis(7),
        late: false,
        detail: None,
    }
}

/// Makes and settles the calls of one window.
fn one_window(ledger: &SqliteLedger, body: usize, now: Wall) {
    for chunk in (0..CALLS).collect::<Vec<_>>().chunks(200) {
        let begun: Vec<_> = chunk
            .iter()
            .map(|n| ledger.begin(new_call(*n, body, now)))
            .collect();
        let settled: Vec<_> = begun
            .into_iter()
            .map(|begun| {
                let Begun::Claimed(claim) = begun.wait().unwrap() else {
                    panic!("every id and key is new")
                };
                ledger.fact(Fact {
                    row: claim.row,
                    life: claim.life,
                    now,
                    entries: vec![ended(now)],
                    news: answer(body),
                })
            })
            .collect();
        for settled in settled {
            assert_eq!(settled.wait().unwrap(), FactWritten::Applied);
        }
    }
}

fn pages(ledger: &SqliteLedger) -> i64 {
    ledger.ask("PRAGMA page_count")
}

#[test]
fn a_settled_call_costs_less_than_two_and_a_half_times_its_bodies() {
    let mut figures = Vec::new();
    for body in [200, 500, 1_000, 4_000] {
        let folder = tempfile::tempdir().unwrap();
        let ledger = open_in(&folder, Sync::Normal).unwrap();
        let empty = pages(&ledger);
        one_window(&ledger, body, NOW);
        let bytes = (pages(&ledger) - empty) * ledger.ask("PRAGMA page_size");
        let each = bytes as f64 / CALLS as f64;
        figures.push((body, each, each / (2 * body) as f64));
    }
    println!("(body, bytes per settled call, times its two bodies): {figures:?}");
    for (body, each, times) in &figures {
        // The smallest bodies are outweighed by the rest of their call.
        assert!(*times < if *body < 500 { 2.5 } else { 2.0 }, "{figures:?}");
        // What a call costs besides its bodies, and what the pages of the file add to both.
        assert!(each - 1.75 * (2 * body) as f64 <= 800.0, "{figures:?}");
    }
}

#[test]
fn a_file_under_steady_load_stops_growing() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = open_in(&folder, Sync::Normal).unwrap();
    let mut sizes = Vec::new();
    for window in 0..6 {
        let now = Wall(NOW.0 + i64::try_from(WINDOW.as_millis()).unwrap() * window);
        let mut gone = 0;
        loop {
            let purged = ledger.purge(now, 200).wait().unwrap();
            gone += purged.calls;
            if !purged.more {
                break;
            }
        }
        assert_eq!(gone, if window == 0 { 0 } else { CALLS as u64 });
        one_window(&ledger, 500, now);
        sizes.push(pages(&ledger));
    }
    println!("pages after each window: {sizes:?}");
    assert_eq!(ledger.ask("SELECT count(*) FROM calls"), CALLS as i64);
    // Random keys leave the pages of an index a little less full the second time.
    assert!(sizes[5] * 100 <= sizes[1] * 103, "{sizes:?}");
    assert!(sizes[1] * 100 <= sizes[0] * 115, "{sizes:?}");
    assert!(ledger.view(None, id("nobody")).wait().unwrap().is_empty());
}
