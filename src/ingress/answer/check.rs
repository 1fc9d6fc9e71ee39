//! Everything that can be refused before the body is read, and what the caller reads then.
//!
//! These refusals were made before the ledger was asked: the same id may have been sent before, so
//! they say `sent: unknown`, `repeat: same-call-id-only`. The exception is an id that breaks the
//! rules: it never was sent, and never will be.

use std::sync::Arc;

use http::{HeaderName, Method};
use http_body::Body as _;

use super::{Guest, Head, NamedBy, Refusal, Visit};
use crate::call::code::{Code, Repeat, Sent};
use crate::config::matcher;
use crate::config::route::Protocol;
use crate::flow::told::{Problem, Told};
use crate::ingress::body::Fault;
use crate::ingress::identify::{self, IdProblem};
use crate::ingress::reply::problem::SOON;
use crate::ingress::{Door, Faced, Knock};
use crate::upstream::fields::Fields;
use crate::upstream::headers;

/// The parts of a request line that are neither method nor target, and its line end.
const REQUEST_LINE: usize = "  HTTP/1.1\r\n".len();

/// `: ` and a line end.
const FIELD_LINE: usize = 4;

/// What a caller reads whose key is missing or wrong.
pub(super) const STRANGER: &str = "The request carries no key of a known client, or those of two. \
    Send one valid key as `Authorization: Bearer` or `X-Api-Key`.";

/// What a caller reads whose body finds no room.
const NO_ROOM_FOR_BODY: &str = "The bodies under way take as much memory as limits.bodies allows. \
    The call was not looked at. Repeat it with the same call id a little later.";

impl<D: Door> Visit<'_, D> {
    /// Everything that can be refused without the body.
    pub(super) fn check(&mut self) -> Result<Guest<D::Route>, Refusal<D::Route>> {
        let (head, door) = (&self.origin.head, &self.origin.room.door);
        self.check_head()
            .map_err(|told| Refusal { route: None, told })?;
        let host = identify::host(&head.uri, &head.headers);
        let Some(route) = door.route(host, head.uri.path(), &head.method) else {
            let detail = "No route takes this host, path and method. Compare them with the \
                          `match` of the routes; the first match wins.";
            return Err(Refusal {
                route: None,
                told: unseen_told(None, Code::NoRoute, detail),
            });
        };
        let refuse = |told| Refusal {
            route: Some(Arc::clone(&route)),
            told,
        };
        let field = &route.config().call_id.header;
        let id = identify::from_headers(&head.headers, field)
            .map_err(|problem| refuse(invalid_id(&problem, field)))?;
        self.check_call(&route, id.as_ref()).map_err(refuse)?;
        let head = &mut self.origin.head;
        let Some(client) = door.client(&mut head.headers) else {
            let told = unseen_told(id.as_ref(), Code::Unauthorized, STRANGER);
            return Err(refuse(told));
        };
        let knock = Knock {
            route: &route,
            client: &client,
            call_id: id.as_ref().map(|(id, _)| id),
            method: &head.method,
            headers: &head.headers,
        };
        door.admit(&knock)
            .map_err(|problem| refuse(Box::new(Told::refused(id.clone(), *problem))))?;
        Ok(Guest { route, client, id })
    }

    /// What is wrong with a head whatever its route.
    fn check_head(&self) -> Result<(), Box<Told>> {
        let head = &self.origin.head;
        if !identify::host_is_sound(head.version, &head.headers) {
            let detail =
                "The request needs exactly one `Host` field, with a host and perhaps a port.";
            return Err(unseen_told(None, Code::BadRequest, detail));
        }
        if matcher::walks(head.uri.path()) {
            let detail = "The path has `.` or `..` as a segment, so that it can mean another one \
                          at the tool. Send the path it leads to.";
            return Err(unseen_told(None, Code::BadRequest, detail));
        }
        let text = head.headers.text();
        if text.is_none() && !headers::coding_is_known(&head.headers) {
            let detail = "The only transfer coding taken here is `chunked`, once. Send the body \
                          with it or with a Content-Length.";
            return Err(unseen_told(None, Code::BadRequest, detail));
        }
        if head.method == Method::CONNECT {
            let detail = "callgate does not tunnel. Reach that endpoint directly.";
            return Err(unseen_told(None, Code::UpgradeRefused, detail));
        }
        let limits = &self.origin.room.settings().limits;
        if head.headers.count() > limits.headers || head_bytes(head) > limits.header_bytes {
            let detail = "The head of the request is over limits.headers or \
                          limits.header_bytes. Send fewer or shorter fields.";
            return Err(unseen_told(None, Code::HeadersTooLarge, detail));
        }
        Ok(())
    }

    /// What is wrong with a call whose route is known.
    fn check_call(&self, route: &D::Route, id: Option<&NamedBy>) -> Result<(), Box<Told>> {
        let head = &self.origin.head;
        let once = route.config().effects.is_once(&head.method);
        if let Some(detail) = unspoken(route, once, &head.headers) {
            return Err(unseen_told(id, Code::UpgradeRefused, detail));
        }
        let floor = &self.origin.room.floor;
        let text = head.headers.text();
        if text.is_none() && floor.settings.node.is_named_in(&head.headers) {
            let detail = "The request has been through this gateway already (`Via`): the route's \
                          upstream.url leads back here.";
            return Err(unseen_told(id, Code::LoopDetected, detail));
        }
        if floor.draining.is_cancelled() {
            let detail = "This gateway is shutting down. Repeat with the same call id in a \
                          moment.";
            let mut problem = unseen(Code::Draining, detail);
            problem.retry_after = Some(SOON);
            return Err(Box::new(Told::refused(id.cloned(), problem)));
        }
        let announced = self.body.size_hint().lower();
        if self
            .limit(route)
            .is_some_and(|limit| announced > limit as u64)
        {
            return Err(body_refused(id, Fault::TooLarge));
        }
        Ok(())
    }
}

/// What is spoken elsewhere only.
fn unspoken<R: Faced>(route: &R, once: bool, fields: &Fields) -> Option<&'static str> {
    let socket = fields.text().is_none() && headers::websocket(fields).is_some();
    if once && socket {
        return Some(
            "A call with effects cannot be a tunnel: nobody could say what became of it. Give the \
             WebSocket a route with `effects: none`.",
        );
    }
    if socket && route.config().upstream.pool.protocol == Protocol::Http2 {
        return Some(
            "The tool is spoken to by HTTP/2, which has no such tunnels. Give the WebSocket a \
             route with `upstream.protocol: http1`.",
        );
    }
    (once && headers::is_grpc(fields)).then_some(
        "gRPC tells a failure inside a 200, which would be recorded as a success. Give gRPC a \
         route with `effects: none`.",
    )
}

pub(super) fn body_refused(id: Option<&NamedBy>, fault: Fault) -> Box<Told> {
    let (code, detail) = match fault {
        Fault::NoRoom => {
            let mut problem = unseen(Code::Overloaded, NO_ROOM_FOR_BODY);
            problem.retry_after = Some(SOON);
            return Box::new(Told::refused(id.cloned(), problem));
        }
        Fault::TooLarge => (
            Code::BodyTooLarge,
            "The request body is over the route's body.max_request. Send less, or have the limit \
             raised.",
        ),
        Fault::TooSlow => (
            Code::RequestTimeout,
            "The request body did not arrive within limits.body_timeout. Repeat with the same \
             call id.",
        ),
        Fault::Broken => (
            Code::BadRequest,
            "The request body ended early or broke its framing. Repeat with the same call id.",
        ),
    };
    unseen_told(id, code, detail)
}

pub(super) fn invalid_id(problem: &IdProblem, field: &HeaderName) -> Box<Told> {
    let problem = never(Code::InvalidCallId, problem.detail(field));
    Box::new(Told::refused(None, problem))
}

/// What breaks the rules whatever the ledger says: it never was sent, and never will be.
pub(super) fn never(code: Code, detail: impl Into<String>) -> Problem {
    Problem::new(code, detail, Sent::No, Repeat::Never)
}

pub(super) fn unseen(code: Code, detail: impl Into<String>) -> Problem {
    Problem::new(code, detail, Sent::Unknown, Repeat::SameCallIdOnly)
}

fn unseen_told(id: Option<&NamedBy>, code: Code, detail: &str) -> Box<Told> {
    Box::new(Told::refused_unseen(id.cloned(), code, detail))
}

/// The head's size as it stood on an HTTP/1 wire.
fn head_bytes(head: &Head) -> usize {
    let target = head
        .uri
        .path_and_query()
        .map_or(0, |target| target.as_str().len());
    let line = head.method.as_str().len() + target + REQUEST_LINE;
    let field = |name: &HeaderName, value: &http::HeaderValue| {
        name.as_str().len() + value.len() + FIELD_LINE
    };
    if let Some(text) = head.headers.text() {
        return line + text.bytes() + head.headers.count() * FIELD_LINE;
    }
    line + head
        .headers
        .iter()
        .map(|(name, value)| field(name, value))
        .sum::<usize>()
}
