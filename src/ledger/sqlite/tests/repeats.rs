//! Repeats of settled calls that are answered from memory: only what the file says, and only as
//! long as it says so.

use bytes::Bytes;

use super::*;
use crate::call::id::{ClientName, Fingerprint};
use crate::ledger::contract::{WINDOW, answer, call, id};
use crate::ledger::{Entry, Fact, FactWritten, Kept, Known, News, Reply};
use recent::Since;

fn later(ms: i64) -> Wall {
    Wall(NOW.0 + ms)
}

/// A settled call; its row.
fn settled(ledger: &SqliteLedger, name: &str, news: News) -> Claim {
    let Begun::Claimed(claim) = ledger.begin(call(name)).wait().unwrap() else {
        panic!("{name} is new")
    };
    let fact = Fact {
        row: claim.row,
        life: claim.life,
        now: NOW,
        entries: Vec::new(),
        news,
    };
    assert_eq!(ledger.fact(fact).wait().unwrap(), FactWritten::Applied);
    claim
}

/// Notes what contradicts the call, which is told beside its row.
fn contradicts(ledger: &SqliteLedger, claim: Claim) {
    let differs = Entry::Differs {
        at: later(2),
        kind: crate::ledger::Contradiction::Receipt,
        told: "FAILED".into(),
    };
    ledger.note(claim.row, claim.life, vec![differs]);
    assert_eq!(ledger.ask("SELECT count(*) FROM differences"), 1);
}

fn repeat(name: &str, now: Wall) -> NewCall {
    NewCall { now, ..call(name) }
}

/// What a repeat meets, and whether the writer was asked for it.
fn meets(ledger: &SqliteLedger, repeat: NewCall) -> (Known, bool) {
    let before = ledger.commits();
    let Begun::Known(known) = ledger.begin(repeat).wait().unwrap() else {
        panic!("a settled call is known")
    };
    (*known, ledger.commits() > before)
}

fn open() -> (SqliteLedger, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    (open_in(&folder, Sync::Normal).unwrap(), folder)
}

#[test]
fn the_second_repeat_within_a_second_is_answered_from_memory_and_word_for_word() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    let (first, asked) = meets(&ledger, repeat("c", later(5_001)));
    assert!(asked);
    let (second, asked) = meets(&ledger, repeat("c", later(5_900)));
    assert!(!asked);
    assert_eq!((second.same_request, second.call), (true, first.call));
    // The next second is noted in the file: the window runs from it.
    let (_, asked) = meets(&ledger, repeat("c", later(6_001)));
    assert!(asked);
    assert_eq!(ledger.ask("SELECT touched_at FROM calls"), later(7_000).0);
    assert!(!meets(&ledger, repeat("c", later(7_000))).1);
}

/// What the client reads about its call, and whether the file was asked for it.
fn reads(ledger: &SqliteLedger, name: &str) -> (CallView, bool) {
    let pending = ledger.view(Some(ClientName::anonymous()), id(name));
    let asked = format!("{pending:?}") == "Pending(waiting)";
    let mut found = pending.wait().unwrap();
    assert_eq!(found.len(), 1);
    (found.remove(0), asked)
}

#[test]
fn a_receipt_that_was_read_is_read_from_memory_until_something_changes() {
    let (ledger, _folder) = open();
    let claim = settled(&ledger, "c", answer(200));
    let (first, asked) = reads(&ledger, "c");
    assert!(asked);
    assert_eq!(reads(&ledger, "c"), (first.clone(), false));
    // Another client, and whoever asks for all of them, learn what the file says.
    let stranger = ClientName::new("somebody-else");
    assert!(
        ledger
            .view(Some(stranger), id("c"))
            .wait()
            .unwrap()
            .is_empty()
    );
    assert_eq!(ledger.view(None, id("c")).wait().unwrap(), [first]);
    contradicts(&ledger, claim);
    let (changed, asked) = reads(&ledger, "c");
    assert_eq!((changed.differences.len(), asked), (1, true));
    // Whoever has only been read is judged by the writer when it is repeated.
    assert!(!reads(&ledger, "c").1);
    assert!(meets(&ledger, repeat("c", later(3))).1);
    let end = later(2_000 + i64::try_from(WINDOW.as_millis()).unwrap());
    reads(&ledger, "c");
    while ledger.purge(end, 10).wait().unwrap().more {}
    let gone = ledger.view(Some(ClientName::anonymous()), id("c"));
    assert!(gone.wait().unwrap().is_empty());
}

#[test]
fn what_is_open_is_read_from_the_file_every_time() {
    let (ledger, _folder) = open();
    ledger.begin(call("open")).wait().unwrap();
    assert!(reads(&ledger, "open").1);
    assert!(reads(&ledger, "open").1);
}

#[test]
fn an_id_that_became_an_alias_is_read_as_the_call_it_stands_for() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    reads(&ledger, "c");
    assert!(!reads(&ledger, "c").1);
    let end = later(1_000 + i64::try_from(WINDOW.as_millis()).unwrap());
    let keyed = |name: &str| NewCall {
        now: end,
        ..contract::keyed(name, "k")
    };
    assert!(matches!(
        ledger.begin(keyed("first")).wait(),
        Ok(Begun::Claimed(_))
    ));
    assert!(matches!(
        ledger.begin(keyed("c")).wait(),
        Ok(Begun::KeyTaken(_))
    ));
    let found = ledger.view(Some(ClientName::anonymous()), id("c"));
    let found = found.wait().unwrap();
    assert_eq!(found.first().unwrap().call_id, id("first"));
}

#[test]
fn what_changes_behind_a_repeat_in_its_own_group_is_not_kept() {
    let (ledger, _folder) = open();
    let claim = settled(&ledger, "c", answer(200));
    let held = ledger.hold();
    let repeated = ledger.begin(repeat("c", later(1)));
    let differs = Entry::Differs {
        at: later(1),
        kind: crate::ledger::Contradiction::Receipt,
        told: "FAILED".into(),
    };
    ledger.note(claim.row, claim.life, vec![differs]);
    drop(held);
    assert!(
        matches!(repeated.wait(), Ok(Begun::Known(known)) if known.call.differences.is_empty())
    );
    let (known, asked) = meets(&ledger, repeat("c", later(2)));
    assert_eq!((known.call.differences.len(), asked), (1, true));
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    let found = ledger.view(None, id("c")).wait().unwrap();
    let (client, row) = (ClientName::anonymous(), found[0].row);
    let recent = Recent::default();
    let since = || recent.shows(&client, &id("c")).err();
    let keeps = |since: Option<Since>| {
        recent.learn(&id("c"), &found, since.unwrap());
        recent.shows(&client, &id("c")).is_ok()
    };
    let before = since();
    recent.forget(row);
    let during = since();
    assert!(!keeps(before) && !keeps(during));
    recent.ended(std::iter::empty());
    assert!(!keeps(before) && !keeps(during));
    assert!(keeps(since()));
}

#[test]
fn whoever_asks_for_something_else_is_judged_by_the_file() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    meets(&ledger, repeat("c", later(1)));
    assert!(!meets(&ledger, repeat("c", later(2))).1);
    let other = NewCall {
        fingerprint: Fingerprint([9; 32]),
        ..repeat("c", later(3))
    };
    let (known, asked) = meets(&ledger, other);
    assert!(asked && !known.same_request);
    let keyed = NewCall {
        idempotency_key: Some("k".into()),
        ..repeat("c", later(3))
    };
    let (known, asked) = meets(&ledger, keyed);
    assert!(asked && !known.same_request);
    let stranger = NewCall {
        client: ClientName::new("somebody-else"),
        ..repeat("c", later(3))
    };
    assert!(matches!(ledger.begin(stranger).wait(), Ok(Begun::Foreign)));
}

#[test]
fn what_changes_in_the_file_is_forgotten() {
    let (ledger, _folder) = open();
    let claim = settled(&ledger, "c", answer(200));
    meets(&ledger, repeat("c", later(1)));
    assert!(!meets(&ledger, repeat("c", later(2))).1);
    // A contradiction is told beside the call.
    contradicts(&ledger, claim);
    let (known, asked) = meets(&ledger, repeat("c", later(3)));
    assert!(asked);
    assert_eq!(known.call.differences.len(), 1);
    // The row itself goes, and the id is free.
    assert!(!meets(&ledger, repeat("c", later(4))).1);
    let end = later(2_000 + i64::try_from(WINDOW.as_millis()).unwrap());
    while ledger.purge(end, 10).wait().unwrap().more {}
    assert!(ledger.view(None, id("c")).wait().unwrap().is_empty());
    let again = ledger.begin(repeat("c", later(5))).wait().unwrap();
    assert!(matches!(again, Begun::Claimed(_)), "{again:?}");
}

#[test]
fn an_expired_call_is_not_met_and_its_new_life_is_not_the_old_one() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    meets(&ledger, repeat("c", later(1)));
    let end = later(1_000 + i64::try_from(WINDOW.as_millis()).unwrap());
    let again = ledger.begin(repeat("c", end)).wait().unwrap();
    assert!(matches!(again, Begun::Claimed(Claim { life: 2, .. })));
    // A clock that goes back does not bring the old life back.
    let (known, asked) = meets(&ledger, repeat("c", later(2)));
    assert!(asked);
    assert_eq!((known.call.life, known.call.settled.clone()), (2, None));
}

#[test]
fn what_is_open_or_released_is_never_kept() {
    let (ledger, _folder) = open();
    ledger.begin(call("open")).wait().unwrap();
    meets(&ledger, repeat("open", later(1)));
    assert!(meets(&ledger, repeat("open", later(1))).1);
    let reply = Reply {
        status: http::StatusCode::UNAUTHORIZED,
        headers: http::HeaderMap::new(),
        body: Kept::Whole(Bytes::new()),
    };
    settled(&ledger, "released", News::Unbinding { n: 1, reply });
    let again = ledger.begin(repeat("released", later(1))).wait().unwrap();
    assert!(matches!(again, Begun::Claimed(_)));
}

#[test]
fn memory_is_bounded_and_the_oldest_make_room() {
    let (ledger, _folder) = open();
    let large = |bytes: usize| News::Answer {
        n: 1,
        reply: Reply {
            status: http::StatusCode::OK,
            headers: http::HeaderMap::new(),
            body: Kept::Whole(Bytes::from(vec![b'x'; bytes])),
        },
        success: true,
    };
    for n in 0..48 {
        settled(&ledger, &format!("c{n}"), large(200 * 1024));
        meets(&ledger, repeat(&format!("c{n}"), later(1)));
    }
    assert!(!meets(&ledger, repeat("c47", later(2))).1);
    assert!(meets(&ledger, repeat("c0", later(2))).1);
    settled(&ledger, "larger", large(300 * 1024));
    meets(&ledger, repeat("larger", later(1)));
    assert!(meets(&ledger, repeat("larger", later(2))).1);
}

#[test]
fn a_ledger_that_was_let_go_tells_nothing_from_memory() {
    let (ledger, _folder) = open();
    settled(&ledger, "c", answer(200));
    meets(&ledger, repeat("c", later(1)));
    assert!(!meets(&ledger, repeat("c", later(2))).1);
    ledger.close().wait().unwrap();
    let told = ledger.begin(repeat("c", later(3))).wait();
    assert!(matches!(told, Err(LedgerError::Closed)), "{told:?}");
}
