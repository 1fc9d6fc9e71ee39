//! What the gateway answers itself on the callers' listener: receipts, and nothing else.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::check::{STRANGER, never, unseen};
use super::{Origin, Visit};
use crate::call::code::Code;
use crate::call::time::Wall;
use crate::flow::Watch;
use crate::flow::told::Problem;
use crate::ingress::receipts::{self, call_id_in, rfc3339};
use crate::ingress::reply::problem::{self, SOON};
use crate::ingress::reply::{ReplyBody, Shape};
use crate::ingress::{Door, Found};

/// What a caller reads whose `wait` is none.
const WAIT: &str = "`wait` is a whole number of seconds: /_callgate/receipts/{call_id}?wait=30.";

/// What a caller reads whose receipt is long and finds no room.
const NO_ROOM: &str = "The bodies under way take as much memory as limits.bodies allows. Ask \
    again a little later.";

/// Answers a request below `/_callgate/`.
pub(super) async fn answer<D: Door>(
    mut visit: Visit<'_, D>,
    shape: &mut Shape,
) -> Response<ReplyBody> {
    visit.leave_unread(shape);
    let (status, headers, body) = match find(&mut visit).await {
        Ok(document) => {
            let mut headers = HeaderMap::with_capacity(4);
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            // It may say something else a moment later.
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            (StatusCode::OK, headers, ReplyBody::Whole(document))
        }
        Err(problem) => {
            visit
                .origin
                .room
                .settings()
                .unrouted
                .refused
                .inc(problem.code);
            // The only problem here that is about a call.
            let about = call_id_in(visit.origin.head.uri.path())
                .filter(|_| problem.code == Code::ReceiptNotFound)
                .and_then(Result::ok);
            let facts = problem::Facts {
                call: about.as_ref(),
                attempts: 0,
                recorded: false,
            };
            let mut headers = problem::headers(&problem);
            if problem.status == StatusCode::METHOD_NOT_ALLOWED {
                headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            }
            (problem.status, headers, problem::body(&problem, &facts))
        }
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

async fn find<D: Door>(visit: &mut Visit<'_, D>) -> Result<Bytes, Box<Problem>> {
    let Origin {
        head,
        room,
        received,
        ..
    } = &mut visit.origin;
    let door = &room.door;
    let Some(id) = call_id_in(head.uri.path()) else {
        let detail = "callgate answers only /_callgate/receipts/{call_id} here.";
        return Err(refusal(Code::NoRoute, detail));
    };
    if !matches!(head.method, Method::GET | Method::HEAD) {
        let mut problem = refusal(Code::BadRequest, "A receipt can only be read: use GET.");
        problem.status = StatusCode::METHOD_NOT_ALLOWED;
        return Err(problem);
    }
    let id = id.map_err(|why| {
        let detail = format!("The address names no call id: {why}. Percent-encode the id.");
        Box::new(never(Code::InvalidCallId, detail))
    })?;
    let Some(client) = door.client(&mut head.headers) else {
        return Err(refusal(Code::Unauthorized, STRANGER));
    };
    let wait = receipts::wait_in(head.uri.query())
        .map_err(|()| Box::new(never(Code::BadRequest, WAIT)))?;
    let watch = wait.map(|wait| Watch {
        until: received.after(wait),
        stop: room.floor.draining.clone(),
    });
    match door.receipt(&client, &id, watch).await {
        Found::Call { view, rounds } => {
            let document = receipts::document_for(&id, &view, rounds);
            drop(view);
            let bodies = &room.floor.core.tools().bodies;
            bodies.keep(document.into()).map_err(|_full| {
                let mut problem = unseen(Code::Overloaded, NO_ROOM);
                problem.retry_after = Some(SOON);
                Box::new(problem)
            })
        }
        Found::Nothing { knows_since } => Err(not_found(knows_since)),
        Found::Unavailable { detail } => {
            let mut problem = unseen(Code::LedgerUnavailable, detail);
            problem.retry_after = Some(SOON);
            Err(Box::new(problem))
        }
    }
}

/// The ledger was not asked, so nothing is said about the call; asking again is another matter, and
/// harmless.
fn refusal(code: Code, detail: impl Into<String>) -> Box<Problem> {
    Box::new(unseen(code, detail))
}

fn not_found(knows_since: Wall) -> Box<Problem> {
    let detail = "This ledger knows no such call of this client. About calls before `knowsSince` \
                  it says nothing. Check the id, and that this gateway took the call.";
    let mut problem = unseen(Code::ReceiptNotFound, detail);
    problem.more = vec![("knowsSince", rfc3339(knows_since))];
    Box::new(problem)
}
