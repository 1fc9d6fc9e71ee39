//! Calls and dead letters as a ledger would show them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use crate::call::id::{CallId, ClientName, Fingerprint, IdSource};
use crate::call::outcome::{Cause, Outcome, Reading, Unclear};
use crate::call::policy::Policy;
use crate::call::receipt::{Answer, Doubt, State as Is};
use crate::call::time::Wall;
use crate::config::snapshot;
use crate::ledger::story::{Found, Story};
use crate::ledger::view::Difference;
use crate::ledger::{
    CallView, Contradiction, DeadLetter, DeadState, Entry, Kept, Owner, Reply, RowId, SettledBy,
    Settlement, Verdict,
};

/// 2026-11-01T12:00:00Z.
pub(crate) const NOON: Wall = Wall(1_793_534_400_000);

/// A call by `client` that nobody has begun to work on.
pub(crate) fn call(id: &str, client: &str) -> CallView {
    CallView {
        row: RowId(7),
        life: 1,
        call_id: CallId::parse(id.as_bytes()).unwrap(),
        source: IdSource::Client,
        client: ClientName::new(client),
        route: Arc::from("orders"),
        upstream: Arc::from("http://127.0.0.1:9000"),
        idempotency_key: None,
        business_key: None,
        fingerprint: Fingerprint([0; 32]),
        trace: None,
        state: Is::Received,
        binds: true,
        owner: Owner::new("node07-1"),
        lease_until: NOON,
        received_at: NOON,
        updated_at: NOON,
        first_sent: None,
        sends: 0,
        promised: false,
        recognised: false,
        told: false,
        settled: None,
        kept: None,
        dead_letter: None,
        differences: Vec::new(),
        history: Vec::new(),
    }
}

pub(crate) fn at(ms: i64) -> Wall {
    Wall(NOON.0 + ms)
}

/// Timed out once, resent, settled by the second answer; the tool later said otherwise.
pub(crate) fn settled() -> CallView {
    let created = Reading::by_status(StatusCode::CREATED);
    let reply = Reply {
        status: StatusCode::CREATED,
        headers: http::HeaderMap::new(),
        body: Kept::Whole(Bytes::from_static(b"{\"secret\":1}")),
    };
    CallView {
        state: Is::Success,
        sends: 2,
        promised: false,
        settled: Some(Settlement {
            verdict: Verdict::Success,
            by: SettledBy::Answer(2),
            at: at(9_000),
            reply: Some(reply),
            document: None,
        }),
        differences: vec![Difference {
            kind: Contradiction::Receipt,
            at: at(60_000),
            told: Arc::from("FAILED"),
        }],
        history: vec![
            Entry::Sent {
                at: at(1),
                n: 1,
                cause: None,
            },
            Entry::Ended {
                at: at(8_001),
                n: 1,
                outcome: Outcome::Unclear(Unclear::Timeout),
                took: Duration::from_secs(8),
                late: false,
                detail: None,
            },
            Entry::Receipt {
                at: at(8_010),
                answer: Answer::State(Is::Unknown),
                doubt: Some(Doubt::Unproven),
                status: Some(StatusCode::NOT_FOUND),
                took: Duration::from_micros(3_100),
                detail: None,
            },
            Entry::Sent {
                at: at(8_900),
                n: 2,
                cause: Some(Cause::Timeout),
            },
            Entry::Ended {
                at: at(9_000),
                n: 2,
                outcome: Outcome::Answered(created),
                took: Duration::from_millis(100),
                late: true,
                detail: Some(Arc::from("late")),
            },
        ],
        ..call("ord/1", "billing")
    }
}

pub(crate) fn dead(id: &str) -> DeadLetter {
    DeadLetter {
        row: RowId(7),
        life: 2,
        call_id: CallId::parse(id.as_bytes()).unwrap(),
        route: Arc::from("orders"),
        client: ClientName::anonymous(),
        business_key: Some(Arc::from("LX1")),
        idempotency_key: None,
        reason: Arc::from("deadline"),
        last_error: Arc::from("receipt: UNKNOWN"),
        fail_count: 1,
        next_retry_time: Some(at(300_000)),
        create_time: NOON,
        state: DeadState::Queued,
        round: 1,
        owner: None,
        fence: 3,
        lease_until: None,
        ended_at: None,
        by_hand: false,
        reversals: 0,
        last_receipt: None,
        begun_by: None,
    }
}

/// The story of a call that has nothing else.
pub(crate) fn story(call: &CallView) -> Story {
    Story {
        found: Found::CallId,
        remembered_until: NOON.after(Duration::from_secs(86_400)),
        policy: snapshot::encode(&Policy::default()).into(),
        past: Vec::new(),
        aliases: Vec::new(),
        acts: Vec::new(),
        kin: Vec::new(),
        searched_all: true,
        call: call.clone(),
    }
}
