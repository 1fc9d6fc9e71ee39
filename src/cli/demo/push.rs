//! The callgate side: what a worker does who keeps one call id for one call. It needs to know very
//! little: an answer is an answer, *unresolved* belongs to the gateway's queue, and whatever was
//! refused before it reached the tool may be repeated under the same id.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use serde_json::Value;
use tokio::time::sleep;

use super::audit::Told;
use super::batch::Worker;
use super::client::{Answer, Client, Failure};
use super::parcel::Parcel;

/// Longer than `timeouts.total` of demo.yaml: the gateway always answers first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Repeats of one call under its id. With the pause below they outlast every outage of the plan.
const REPEATS: u32 = 12;
const PAUSE: Duration = Duration::from_millis(250);

/// One worker behind the gateway.
#[derive(Debug)]
pub(super) struct Through {
    client: Client,
    seed: u64,
}

/// What the worker makes of one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Final(Told),
    /// Nothing was decided: repeat with the same id, and give up with that word.
    Repeat {
        pause: Duration,
        at_last: Told,
    },
}

impl Through {
    pub(super) fn new(gateway: SocketAddr, seed: u64) -> Self {
        Self {
            client: Client::new(gateway),
            seed,
        }
    }
}

impl Worker for Through {
    async fn push(&mut self, item: u32, parcel: Parcel) -> Told {
        let mut last = Told::Nothing;
        for _ in 0..=REPEATS {
            let request = request(&call_id(self.seed, item), &parcel);
            match read(self.client.ask(request, PATIENCE).await) {
                Reading::Final(told) => return told,
                Reading::Repeat { pause, at_last } => {
                    last = at_last;
                    sleep(pause).await;
                }
            }
        }
        last
    }
}

/// The id of an item's call: the same over all repeats, so that there is only ever one call.
pub(super) fn call_id(seed: u64, item: u32) -> String {
    format!("demo-{seed}-{item:05}")
}

fn request(call_id: &str, parcel: &Parcel) -> Request<Bytes> {
    Request::post("/track")
        .header("content-type", "application/json")
        .header("x-call-id", call_id)
        .body(Bytes::from(parcel.json()))
        .expect("the request is well-formed")
}

fn read(attempt: Result<Answer, Failure>) -> Reading {
    let Ok(answer) = attempt else {
        return Reading::Repeat {
            pause: PAUSE,
            at_last: Told::Nothing,
        };
    };
    let pause = answer.retry_after().unwrap_or(PAUSE);
    match answer.field("x-call-outcome") {
        "unresolved" => Reading::Final(Told::Open),
        "answered" | "receipt" | "replayed" => settled(answer.status, pause),
        "refused" => refused(&answer, pause),
        _ => Reading::Repeat {
            pause,
            at_last: Told::Nothing,
        },
    }
}

/// A settled answer. The five statuses that bind no id say "not now", not "no".
fn settled(status: StatusCode, pause: Duration) -> Reading {
    match status.as_u16() {
        200..=399 => Reading::Final(Told::Done),
        401 | 403 | 408 | 425 | 429 => Reading::Repeat {
            pause,
            at_last: Told::Failed,
        },
        400..=499 => Reading::Final(Told::Refused),
        _ => Reading::Final(Told::Failed),
    }
}

/// The gateway's own refusal says in its document whether the call was sent and may be repeated.
fn refused(answer: &Answer, pause: Duration) -> Reading {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let sent = document["sent"] == "yes" || document["sent"] == "maybe";
    let at_last = if sent { Told::Nothing } else { Told::Failed };
    match document["repeat"].as_str() {
        Some("safe" | "same-call-id-only") => Reading::Repeat { pause, at_last },
        _ => Reading::Final(at_last),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use serde_json::json;

    use super::*;

    fn answer(status: u16, outcome: &str, body: &Value) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert("x-call-outcome", outcome.parse().expect("a header value"));
        let status = StatusCode::from_u16(status).expect("a status");
        Answer {
            status,
            headers,
            body: Bytes::from(body.to_string()),
        }
    }

    fn check(status: u16, outcome: &str, body: &Value, expected: Reading) {
        assert_eq!(
            read(Ok(answer(status, outcome, body))),
            expected,
            "{status} {outcome} {body}"
        );
    }

    #[test]
    fn every_answer_of_the_gateway_has_one_reading() {
        let none = json!({});
        let repeat = |at_last| Reading::Repeat {
            pause: PAUSE,
            at_last,
        };
        check(200, "answered", &none, Reading::Final(Told::Done));
        check(200, "receipt", &none, Reading::Final(Told::Done));
        check(200, "replayed", &none, Reading::Final(Told::Done));
        check(422, "answered", &none, Reading::Final(Told::Refused));
        check(422, "receipt", &none, Reading::Final(Told::Refused));
        check(502, "receipt", &none, Reading::Final(Told::Failed));
        check(429, "answered", &none, repeat(Told::Failed));
        check(504, "unresolved", &none, Reading::Final(Told::Open));
        check(500, "unresolved", &none, Reading::Final(Told::Open));
        let unsent = json!({"sent": "no", "repeat": "safe"});
        check(502, "refused", &unsent, repeat(Told::Failed));
        let running = json!({"sent": "yes", "repeat": "same-call-id-only"});
        check(409, "refused", &running, repeat(Told::Nothing));
        check(
            422,
            "refused",
            &json!({"sent": "no", "repeat": "never"}),
            Reading::Final(Told::Failed),
        );
        check(200, "", &none, repeat(Told::Nothing));
        assert_eq!(read(Err(Failure::TimedOut)), repeat(Told::Nothing));
    }

    #[test]
    fn retry_after_sets_the_pause() {
        let mut busy = answer(429, "answered", &json!({}));
        busy.headers
            .insert("retry-after", "2".parse().expect("a header value"));
        let pause = Duration::from_secs(2);
        assert_eq!(
            read(Ok(busy)),
            Reading::Repeat {
                pause,
                at_last: Told::Failed
            }
        );
    }
}
