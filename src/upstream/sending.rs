//! A request onto a connection, and the head of its answer off it, by whichever client can do it.
//!
//! The plain client goes first. What it does not write (a body that is still arriving, a long one)
//! and what it does not read ([`Said::Odd`]) is hyper's, and a connection that hyper has spoken on
//! stays hyper's: a tool that always answers in chunks pays for the change once per connection.

use std::error::Error;

use http::{Request, Response, Uri};
use hyper::body::Incoming;

use super::answer::Head;
use super::dial;
use super::exchange::{Grip, Outgoing};
use super::plain::{self, Failure, Said};
use super::pool::Conn;
use super::reading::Source;
use super::{Core, Payload};

/// What became of a request.
pub(super) enum Sent {
    /// The head of an answer, and its body.
    Answered(Head, Source),
    /// Proof that no byte of it was sent: the request itself.
    HandedBack(Outgoing, Box<dyn Error + Send + Sync>),
    /// Nobody knows.
    Lost(Box<dyn Error + Send + Sync>),
}

/// Sends a request over a connection that can take it.
pub(super) async fn send(core: &Core, conn: &mut Conn, request: Outgoing, grip: &Grip) -> Sent {
    let body = match &conn.http {
        None => plain::body_of(&request),
        Some(_) => None,
    };
    let Some(body) = body else {
        return Box::pin(send_by_hyper(core, conn, request, grip)).await;
    };
    match plain::ask(&conn.line, &request, body, !conn.reused).await {
        Ok(Said::Head(head, body)) => {
            let plain::Head {
                status, headers, ..
            } = head;
            Sent::Answered(Head { status, headers }, Source::Plain(body))
        }
        Ok(Said::Odd { read, unsent }) => {
            conn.line.hand_over(read, unsent);
            // Not a byte of this one is sent; it tells hyper which answer to expect.
            let mut stand_in = Request::new(Payload::from(bytes::Bytes::new()));
            *stand_in.method_mut() = request.method;
            match Box::pin(begin_hyper(core, conn, stand_in, grip)).await {
                // Whatever hyper hands back, the real request is out.
                Sent::HandedBack(_, error) => Sent::Lost(error),
                sent @ (Sent::Answered(..) | Sent::Lost(_)) => sent,
            }
        }
        Err(failure @ Failure::NotWritten(_)) => Sent::HandedBack(request, failure.into()),
        Err(failure @ Failure::Broken(_)) => Sent::Lost(failure.into()),
    }
}

async fn send_by_hyper(core: &Core, conn: &mut Conn, request: Outgoing, grip: &Grip) -> Sent {
    let mut request = into_request(request);
    request.body_mut().bind(&conn.line);
    match &mut conn.http {
        Some(http) => answered(http.sender.try_send_request(request).await),
        None => begin_hyper(core, conn, request, grip).await,
    }
}

/// Lets hyper speak on a connection from now on, beginning with `request`.
async fn begin_hyper(core: &Core, conn: &mut Conn, request: Request<Payload>, grip: &Grip) -> Sent {
    let (mut undriven, driver) = match dial::hyper_on(&conn.line).await {
        Ok(begun) => begun,
        Err(error) => return Sent::HandedBack(from_request(request), error.into()),
    };
    // Given first, driven then: hyper takes what it reads before it has a request for an intruder.
    let answer = undriven.send(request);
    let http = undriven.driven(core, driver);
    grip.hold_task(http.task.clone());
    conn.http = Some(http);
    answered(answer.await)
}

type Refused = hyper::client::conn::TrySendError<Request<Payload>>;

fn answered(sent: Result<Response<Incoming>, Refused>) -> Sent {
    match sent {
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let head = Head {
                status: parts.status,
                headers: parts.headers.into(),
            };
            Sent::Answered(head, Source::Hyper(body))
        }
        Err(mut refused) => {
            let message = refused.take_message();
            let error = refused.into_error().into();
            match message {
                Some(message) => Sent::HandedBack(from_request(message), error),
                None => Sent::Lost(error),
            }
        }
    }
}

pub(super) fn into_request(outgoing: Outgoing) -> Request<Payload> {
    let Outgoing {
        method,
        target,
        headers,
        body,
    } = outgoing;
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers.into_map();
    request
}

/// A request that was handed back as it was.
fn from_request(request: Request<Payload>) -> Outgoing {
    let (parts, body) = request.into_parts();
    let target = parts.uri.into_parts().path_and_query;
    Outgoing {
        method: parts.method,
        target: target.expect("it was made from a path"),
        headers: parts.headers.into(),
        body,
    }
}
