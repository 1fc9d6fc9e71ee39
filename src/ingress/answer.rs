//! The way of one request: proved, let in, handed to the door, answered.
//!
//! The order is the contract's: whatever can be refused without the body is refused without it
//! (`check`), so that no caller uploads for nothing and no `100 Continue` is sent for a refusal.
//! Deliberately absent: everything that decides about a call.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::{Method, Response, Uri, Version};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use super::body::{Arriving, Fate, Payload, Raw, Reading, collect};
use super::floor::Floor;
use super::identify;
use super::reply::problem::SOON;
use super::reply::{self, ReplyBody, Shape};
use super::seat::{Requests, Turn};
use super::tether::{Tether, caught};
use super::tunnel;
use super::wire::Wire;
use super::{Door, Faced, Request, Settings, receipts};
use crate::call::code::Code;
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::Mono;
use crate::flow::Prefer;
use crate::flow::told::{Shown, Told};
use crate::telemetry::labels::Bound;
use crate::upstream::fields::Fields;
use crate::upstream::headers::X_CALL_ID;

mod accepted;
mod check;
mod own;
mod tale;
mod turned;

use tale::Tale;
pub(super) use turned::Turned;

/// Bodies up to here are collected before they are passed on: then one write carries the request,
/// and it can be sent again (contract, `effects: none`).
const SMALL_BODY: u64 = 64 * 1024;

/// What the connections of one core share.
pub(super) struct Room<D: Door> {
    pub(super) door: Arc<D>,
    pub(super) floor: Arc<Floor>,
    /// Of all cores together.
    pub(super) requests: Arc<Requests>,
}

/// A call's id, and who made it.
type NamedBy = (CallId, IdSource);

/// The head of a request.
pub(super) struct Head {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) version: Version,
    pub(super) headers: Fields,
}

/// What is said to a request.
pub(super) struct Said {
    /// By the call, or by the gateway itself.
    pub(super) told: Result<Told, Response<ReplyBody>>,
    pub(super) shape: Shape,
    /// Kept until the answer is out.
    pub(super) turn: Option<Turn>,
}

/// One request: its head, and its body in the state it is in.
struct Visit<'a, D: Door> {
    origin: Origin<'a, D>,
    body: Raw,
}

/// A request without its body.
struct Origin<'a, D: Door> {
    room: &'a Arc<Room<D>>,
    wire: &'a Arc<Wire>,
    /// On the heap: every future it goes through would hold it once more.
    head: Box<Head>,
    received: Mono,
}

/// A request that passed every check its head allows.
struct Guest<R> {
    route: Arc<R>,
    client: ClientName,
    id: Option<NamedBy>,
}

/// A refusal before the door was asked.
struct Refusal<R> {
    route: Option<Arc<R>>,
    told: Box<Told>,
}

/// A request being worked on, as its connection counts it.
struct Underway {
    wire: Arc<Wire>,
    answered: bool,
}

/// Answers one request that hyper has read; never fails, since every failure is an answer.
pub(super) async fn answer<D: Door>(
    room: Arc<Room<D>>,
    wire: Arc<Wire>,
    mut request: http::Request<Incoming>,
) -> Result<Response<Turned>, Infallible> {
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let (parts, body) = request.into_parts();
    let head = Box::new(Head::from(parts));
    let mut said = said(&room, &wire, head, Raw::Arriving(body)).await;
    if let Ok(told) = &mut said.told {
        tunnel::arm(told, &wire, upgrade);
    }
    Ok(said.response(wire.is_multiplexed()))
}

/// What is said to one request.
pub(super) async fn said<D: Door>(
    room: &Arc<Room<D>>,
    wire: &Arc<Wire>,
    head: Box<Head>,
    body: Raw,
) -> Said {
    let mut underway = Underway::begin(wire, &body);
    let mut shape = Shape {
        id_field: X_CALL_ID,
        head: head.method == Method::HEAD,
        close: false,
        fragile: (head.version < Version::HTTP_11).then(|| Arc::clone(wire)),
    };
    let visit = Visit::of(room, wire, head, body);
    let own = visit.origin.head.uri.path().starts_with(receipts::OWN);
    let (told, turn) = match room.requests.take() {
        None => (Ok(visit.turned_away(&mut shape)), None),
        Some(turn) if own => (Err(own::answer(visit, &mut shape).await), Some(turn)),
        Some(turn) => {
            let (told, turn) = visit.enter(&mut shape, turn).await;
            (Ok(told), turn)
        }
    };
    shape.close |= room.floor.leaving.is_cancelled();
    // HTTP/2 says it with a GOAWAY, or resets the one stream.
    shape.close &= !wire.is_multiplexed();
    underway.answered = true;
    drop(underway);
    Said { told, shape, turn }
}

impl Said {
    /// As hyper takes it.
    pub(super) fn response(self, multiplexed: bool) -> Response<Turned> {
        let Self { told, shape, turn } = self;
        let response = match told {
            Ok(told) => reply::render(told, shape),
            Err(own) => reply::finish(own, &shape),
        };
        Turned::response(response, turn, multiplexed)
    }
}

impl From<Parts> for Head {
    fn from(parts: Parts) -> Self {
        Self {
            method: parts.method,
            uri: parts.uri,
            version: parts.version,
            headers: parts.headers.into(),
        }
    }
}

fn is_small(body: &Raw) -> bool {
    body.size_hint()
        .upper()
        .is_some_and(|bytes| bytes <= SMALL_BODY)
}

impl<D: Door> Room<D> {
    pub(super) fn settings(&self) -> &Arc<Settings> {
        &self.floor.settings
    }
}

impl Underway {
    fn begin(wire: &Arc<Wire>, body: &Raw) -> Self {
        wire.begin(!body.is_here());
        Self {
            wire: Arc::clone(wire),
            answered: false,
        }
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.wire.answered();
        if self.wire.is_multiplexed() {
            self.wire.stream_ended(self.answered);
        }
    }
}

impl<'a, D: Door> Visit<'a, D> {
    fn of(room: &'a Arc<Room<D>>, wire: &'a Arc<Wire>, head: Box<Head>, body: Raw) -> Self {
        let received = room.settings().clock.mono();
        Self {
            origin: Origin {
                room,
                wire,
                head,
                received,
            },
            body,
        }
    }

    /// As many requests are worked on as may be: this one is not looked at.
    fn turned_away(self, shape: &mut Shape) -> Told {
        self.leave_unread(shape);
        let settings = self.origin.room.settings();
        settings.metrics.bounds.inc(Bound::Calls);
        let detail = "As many requests are worked on as limits.calls allows. This one was not \
                      looked at. Repeat it with the same call id a little later.";
        let mut problem = check::unseen(Code::Overloaded, detail);
        problem.retry_after = Some(SOON);
        let refusal = Refusal {
            route: None,
            told: Box::new(Told::refused(None, problem)),
        };
        tale::note_refusal(self.origin.room, &refusal, self.origin.received);
        *refusal.told
    }

    /// All the way to what the caller is told, and in which shape; and the turn, if it is not kept
    /// by a call that goes on.
    async fn enter(mut self, shape: &mut Shape, turn: Turn) -> (Told, Option<Turn>) {
        let Origin {
            room,
            wire,
            received,
            ..
        } = self.origin;
        let refusal = match self.check() {
            Ok(guest) => {
                shape
                    .id_field
                    .clone_from(&guest.route.config().call_id.header);
                let once = guest
                    .route
                    .config()
                    .effects
                    .is_once(&self.origin.head.method);
                let told = if once {
                    self.call(guest, turn).await
                } else {
                    let told = self.pass(guest).await;
                    told.map(|told| (told, Some(turn)))
                };
                match told {
                    Ok(told) => return told,
                    Err(refusal) => {
                        shape.close = wire.was_left_unread();
                        refusal
                    }
                }
            }
            Err(refusal) => {
                self.leave_unread(shape);
                refusal
            }
        };
        if let Some(route) = &refusal.route {
            shape.id_field.clone_from(&route.config().call_id.header);
        }
        tale::note_refusal(room, &refusal, received);
        (*refusal.told, None)
    }

    /// A call with effects: its body is collected, and it outlives its caller.
    async fn call(
        self,
        guest: Guest<D::Route>,
        turn: Turn,
    ) -> Result<(Told, Option<Turn>), Refusal<D::Route>> {
        let room = Arc::clone(self.origin.room);
        let mut request = self.collected(guest, std::convert::identity).await?;
        let until = accepted::Until::of(&mut request);
        let tale = Tale::begin(&request);
        let named = (request.call_id.clone(), request.source);
        let gone = request.gone.clone();
        let running = room.floor.calls.token();
        let clock = room.settings().clock.clone();
        let call = async move {
            let told = caught(room.door.call(&room.floor.core, request)).await;
            let told = told.unwrap_or_else(|panic| tale::panicked(named, &panic));
            tale.end(&room, &told);
            drop(running);
            (told, Some(turn))
        };
        let call = Tether::new(call, gone);
        Ok(match until {
            None => call.await,
            Some(until) => Box::pin(until.told(call, &clock)).await,
        })
    }

    /// A request without effects: streamed, unless it is small, and dropped with its caller.
    async fn pass(self, guest: Guest<D::Route>) -> Result<Told, Refusal<D::Route>> {
        let room = self.origin.room;
        let whole = is_small(&self.body) || guest.route.config().call_id.body.is_some();
        let (request, fate) = if whole {
            let request = self.collected(guest, Payload::Whole).await?;
            (request, Fate::default())
        } else {
            let fate = Fate::watched();
            (self.arriving(guest, &fate), fate)
        };
        let tale = Tale::begin(&request);
        let named = (request.call_id.clone(), request.source);
        let _running = room.floor.calls.token();
        let told = caught(room.door.pass(&room.floor.core, request)).await;
        let mut told = told.unwrap_or_else(|panic| tale::panicked(named, &panic));
        if let (Some(fault), Shown::Problem(_)) = (fate.fault(), &told.shown) {
            // The tool is not to blame for a request that never came to its end.
            told = *check::body_refused(told.call.as_ref(), fault);
        }
        tale.end(room, &told);
        Ok(told)
    }

    async fn collected<B>(
        self,
        guest: Guest<D::Route>,
        as_body: impl FnOnce(Bytes) -> B,
    ) -> Result<Box<Request<D::Route, B>>, Refusal<D::Route>> {
        let Guest { route, client, id } = guest;
        let reading = self.reading(&route);
        let refuse = |told| Refusal {
            route: Some(Arc::clone(&route)),
            told,
        };
        let body = collect(self.body, reading)
            .await
            .map_err(|problem| refuse(check::body_refused(id.as_ref(), problem.fault())))?;
        let rule = &route.config().call_id;
        let in_body = rule
            .body
            .as_ref()
            .map_or(Ok(None), |at| identify::from_body(&body, at));
        let id = in_body
            .and_then(|in_body| identify::agree(id, in_body))
            .map_err(|problem| refuse(check::invalid_id(&problem, &rule.header)))?;
        let guest = Guest { route, client, id };
        Ok(self.origin.request(guest, as_body(body)))
    }

    fn arriving(self, guest: Guest<D::Route>, fate: &Fate) -> Box<Request<D::Route, Payload>> {
        let reading = self.reading(&guest.route);
        let body = Payload::Arriving(Arriving::new(self.body, reading, fate.clone()));
        self.origin.request(guest, body)
    }

    /// How long the body may be; only one that is collected has a limit.
    fn limit(&self, route: &D::Route) -> Option<usize> {
        let config = route.config();
        let collects =
            config.effects.is_once(&self.origin.head.method) || config.call_id.body.is_some();
        collects.then_some(config.body.max_request)
    }

    fn reading(&self, route: &D::Route) -> Reading {
        let floor = &self.origin.room.floor;
        Reading {
            core: floor.core.tools().clone(),
            patience: floor.settings.limits.body_timeout,
            limit: self.limit(route).unwrap_or(usize::MAX),
            wire: Arc::clone(self.origin.wire),
        }
    }

    /// Gives the body up. A small one that came along with its head hyper throws away, and the
    /// connection goes on; any other ends it.
    fn leave_unread(&self, shape: &mut Shape) {
        if !self.body.is_here() {
            self.origin.wire.uploaded(false);
            let asked = self.origin.head.headers.contains_key(EXPECT);
            shape.close = asked || !is_small(&self.body);
        }
    }
}

impl<D: Door> Origin<'_, D> {
    /// The request as the door gets it; its id is made now if the caller sent none.
    fn request<B>(self, guest: Guest<D::Route>, body: B) -> Box<Request<D::Route, B>> {
        let Guest { route, client, id } = guest;
        let Head {
            method,
            uri,
            version,
            mut headers,
        } = *self.head;
        if headers.text().is_none() {
            headers.remove(EXPECT);
        }
        let minted = id.is_none();
        let (call_id, source) = id.unwrap_or_else(|| {
            let settings = self.room.settings();
            route.metrics().backfilled.inc();
            let prefix = &route.config().call_id.prefix;
            identify::make(&settings.minter, prefix, settings.clock.wall())
        });
        Box::new(Request {
            route,
            client,
            call_id,
            source,
            minted,
            method,
            uri,
            headers,
            body,
            caller: Arc::clone(self.wire.caller()),
            version,
            gone: self.wire.gone_of_request(),
            line: self.wire.line(),
            received: self.received,
            prefer: Prefer::default(),
            promise: None,
        })
    }
}
