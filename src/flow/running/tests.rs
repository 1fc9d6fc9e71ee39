//! Joining, leaving and coming back, without sockets and without a ledger.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::*;
use crate::flow::told::{Shown, Whole, Word};

fn asked(call_id: &str, request: u8) -> Asked {
    Asked {
        client: ClientName::anonymous(),
        call_id: CallId::parse(call_id.as_bytes()).unwrap(),
        fingerprint: Fingerprint([request; 32]),
        key: None,
    }
}

fn answered(body: &'static [u8]) -> Told {
    Told {
        call: None,
        word: Word::Answered,
        attempts: 1,
        shown: Shown::Whole(Whole {
            status: StatusCode::CREATED,
            headers: HeaderMap::new().into(),
            body: Bytes::from_static(body),
        }),
        original: None,
        same_id_only: false,
        recorded: true,
    }
}

fn first(calls: &Arc<Calls>, asked: &Asked) -> Lead {
    match calls.enter(asked) {
        Entered::First(lead) => lead,
        Entered::Second(_) => panic!("somebody is there already"),
    }
}

fn second(calls: &Arc<Calls>, asked: &Asked) -> Seat {
    match calls.enter(asked) {
        Entered::Second(seat) => seat,
        Entered::First(_) => panic!("nobody is there"),
    }
}

fn poll<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn body(heard: Poll<Heard>) -> Bytes {
    match heard {
        Poll::Ready(Heard::Told(told)) => match told.shown {
            Shown::Whole(whole) => whole.body,
            other => panic!("{other:?}"),
        },
        Poll::Ready(_) => panic!("heard something else"),
        Poll::Pending => panic!("heard nothing"),
    }
}

#[test]
fn all_who_join_are_told_the_same_and_the_next_one_asks_the_ledger() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let seats = [(); 3].map(|()| second(&calls, &call));
    assert!(poll(seats[0].heard(&call)).is_pending());
    lead.claimed();
    assert!(poll(seats[0].heard(&call)).is_pending());
    lead.tell(&answered(b"\xff\n"));
    for seat in &seats {
        assert_eq!(body(poll(seat.heard(&call))), &b"\xff\n"[..]);
    }
    assert!(calls.is_empty());
    drop(first(&calls, &call));
    assert!(calls.is_empty());
}

#[tokio::test]
async fn who_waits_is_woken() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let (seat, same) = (second(&calls, &call), call.clone());
    let waiting = tokio::spawn(async move { seat.heard(&same).await });
    tokio::task::yield_now().await;
    lead.claimed();
    tokio::task::yield_now().await;
    lead.tell(&answered(b"x"));
    assert_eq!(body(Poll::Ready(waiting.await.unwrap())), &b"x"[..]);
}

#[test]
fn another_request_is_told_so_while_the_first_one_runs() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let other = asked("c", 2);
    let keyed = Asked {
        key: Some("k".into()),
        ..call.clone()
    };
    let seat = second(&calls, &other);
    assert!(
        poll(seat.heard(&other)).is_pending(),
        "until the ledger has spoken nobody knows whose call it is"
    );
    lead.claimed();
    for other in [&other, &keyed] {
        assert!(matches!(poll(seat.heard(other)), Poll::Ready(Heard::Other)));
    }
    lead.tell(&answered(b"x"));
    assert!(
        matches!(poll(seat.heard(&other)), Poll::Ready(Heard::Nothing)),
        "the first one's answer is none of its business"
    );
}

#[test]
fn a_lead_that_ends_without_a_word_sends_everybody_to_the_ledger() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let seat = second(&calls, &call);
    drop(lead);
    assert!(matches!(
        poll(seat.heard(&call)),
        Poll::Ready(Heard::Nothing)
    ));
    assert!(calls.is_empty());
}

#[test]
fn a_streamed_answer_cannot_be_shared() {
    use http_body_util::{BodyExt, Empty};
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let seat = second(&calls, &call);
    let shown = Shown::Stream {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: Empty::new().map_err(|never| match never {}).boxed_unsync(),
    };
    lead.tell(&Told {
        shown,
        ..answered(b"")
    });
    assert!(matches!(
        poll(seat.heard(&call)),
        Poll::Ready(Heard::Streamed)
    ));
}

#[test]
fn calls_of_other_clients_and_other_ids_are_other_calls() {
    let calls = Arc::new(Calls::default());
    let foreign = Asked {
        client: ClientName::new("other"),
        ..asked("c", 1)
    };
    let leads = [&asked("c", 1), &asked("d", 1), &foreign].map(|call| first(&calls, call));
    assert_eq!(calls.len(), leads.len());
    drop(leads);
    assert!(calls.is_empty());
}

#[test]
fn only_the_last_ones_leaving_is_gone_and_a_repeat_lifts_it() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let gone = CancellationToken::new();
    let mut waiters = lead.attendance(gone.clone(), true);
    assert!(poll(waiters.change()).is_pending());
    let seat = second(&calls, &call);
    gone.cancel();
    assert!(poll(waiters.change()).is_pending(), "somebody still waits");
    drop(seat);
    assert_eq!(poll(waiters.change()), Poll::Ready(Event::ClientGone));
    assert!(poll(waiters.change()).is_pending());
    let seat = second(&calls, &call);
    assert_eq!(poll(waiters.change()), Poll::Ready(Event::ClientBack));
    drop(seat);
    assert_eq!(poll(waiters.change()), Poll::Ready(Event::ClientGone));
}

#[test]
fn a_leaving_that_changes_nothing_is_not_told() {
    let (calls, call) = (Arc::new(Calls::default()), asked("c", 1));
    let lead = first(&calls, &call);
    let gone = CancellationToken::new();
    let mut waiters = lead.attendance(gone.clone(), false);
    gone.cancel();
    assert!(poll(waiters.change()).is_pending());
    waiters.sent(2);
    assert_eq!(second(&calls, &call).call().sends(), 2);
}

#[test]
fn calls_that_ask_for_the_same_stand_together_until_they_are_told() {
    let calls = Arc::new(Calls::default());
    let [mut one, mut two, mut three] =
        ["one", "two", "three"].map(|name| first(&calls, &asked(name, 1)));
    let other = &mut first(&calls, &asked("other", 2));
    assert_eq!(one.stand("r", true), None);
    let named = |id: Option<CallId>| id.map(|id| id.to_string());
    assert_eq!(named(two.stand("r", false)).as_deref(), Some("one"));
    assert_eq!(other.stand("r", true), None);
    // Who may only stand alone does not, and leaves the others as they were.
    assert_eq!(named(three.stand("r", true)).as_deref(), Some("one"));
    assert_eq!(three.stand("another route", true), None);
    drop(three);
    one.tell(&answered(b"done"));
    let mut four = first(&calls, &asked("four", 1));
    assert_eq!(named(four.stand("r", true)).as_deref(), Some("two"));
    drop((four, two));
    let mut five = first(&calls, &asked("five", 1));
    assert_eq!(five.stand("r", true), None);
    assert_eq!(calls.alikes.len(), 2);
    drop(five);
    assert_eq!(calls.alikes.len(), 1);
}
