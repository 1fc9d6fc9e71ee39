//! The faulty tool: a parcel-tracking API on loopback that misbehaves by plan and keeps books.
//! It speaks through hyper, and cuts its connections below it. Every exchange runs on a task of its
//! own, because hyper drops a handler when the caller hangs up and this tool, like a real one, goes
//! on working. Its receipts are truthful: they are written in the same step as the effect.
//! Deliberately absent: deduplication; a second send is a second effect, whatever id it carries.

mod door;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::batch::Stopwatch;
use super::books::Books;
use super::faults::{Fault, Outage, Plan};
use super::parcel::{self, Parcel};

/// The largest request that the tool reads; a parcel has about a hundred bytes.
const REQUEST_BYTES_MAX: usize = 64 * 1024;

/// A running tool. Dropping it closes its door.
#[derive(Debug)]
pub(super) struct Tool {
    desk: Arc<Desk>,
    address: SocketAddr,
    _door: DropGuard,
}

/// What all connections of one tool share.
#[derive(Debug)]
struct Desk {
    plan: Plan,
    books: Mutex<Books>,
    health: watch::Sender<Health>,
    exchanges: TaskTracker,
    /// Since the first call came.
    first: OnceLock<Stopwatch>,
}

/// The condition of the whole tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    Up,
    Refusing,
    Dead,
}

/// How a connection ends instead of answering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Cut {
    #[error("the tool resets the connection")]
    Reset,
    #[error("the tool closes the connection")]
    Close,
}

type Answer = Response<Full<Bytes>>;

impl Tool {
    /// Opens the tool on a free port of loopback.
    ///
    /// # Errors
    /// When no port can be bound.
    pub(super) fn open(plan: Plan) -> std::io::Result<Self> {
        let desk = Arc::new(Desk {
            plan,
            books: Mutex::default(),
            health: watch::Sender::new(Health::Up),
            exchanges: TaskTracker::new(),
            first: OnceLock::new(),
        });
        let closing = CancellationToken::new();
        let address = door::open(Arc::clone(&desk), closing.clone())?;
        Ok(Self {
            desk,
            address,
            _door: closing.drop_guard(),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The books as they stand. The lock is short; do not hold it over an await.
    pub(super) fn books(&self) -> MutexGuard<'_, Books> {
        self.desk.books.lock()
    }

    /// How long ago the first call came; `None` when none did.
    pub(super) fn since_first(&self) -> Option<Duration> {
        self.desk.first.get().map(Stopwatch::elapsed)
    }

    /// Waits until no work is in hand, at most `patience`; says whether that came true.
    pub(super) async fn quiet(&self, patience: Duration) -> bool {
        self.desk.exchanges.close();
        tokio::time::timeout(patience, self.desk.exchanges.wait())
            .await
            .is_ok()
    }
}

impl Desk {
    /// One request and its answer, or the cut that comes instead.
    async fn serve(self: Arc<Self>, request: Request<Incoming>) -> Result<Answer, Cut> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if head.method == Method::POST && path == "/track" {
            self.first.get_or_init(Stopwatch::start);
            let call_id = head
                .headers
                .get("x-call-id")
                .and_then(|id| id.to_str().ok());
            let Some(call_id) = call_id.map(str::to_owned) else {
                return Ok(answer(
                    StatusCode::BAD_REQUEST,
                    &json!({"error": "X-Call-Id is missing"}),
                ));
            };
            let Ok(body) = Limited::new(body, REQUEST_BYTES_MAX).collect().await else {
                return Err(Cut::Close);
            };
            let exchange = Arc::clone(&self).track(call_id, body.to_bytes());
            return self
                .exchanges
                .spawn(exchange)
                .await
                .unwrap_or(Err(Cut::Close));
        }
        if head.method == Method::GET && path == "/books" {
            return Ok(answer(StatusCode::OK, &self.books.lock().summary()));
        }
        match path.strip_prefix("/receipts/") {
            Some(call_id) if head.method == Method::GET => Ok(self.tell(call_id).await),
            _ => Ok(answer(
                StatusCode::NOT_FOUND,
                &json!({"error": "no such endpoint"}),
            )),
        }
    }

    /// `GET /receipts/{callId}`; hangs while the tool lies dead.
    async fn tell(&self, call_id: &str) -> Answer {
        self.alive().await;
        let call_id = percent_encoding::percent_decode_str(call_id).decode_utf8_lossy();
        match self.books.lock().ask(&call_id) {
            Some(receipt) => answer(StatusCode::OK, &receipt.document(&call_id)),
            None => answer(
                StatusCode::NOT_FOUND,
                &json!({"callId": call_id, "state": "NOT_FOUND"}),
            ),
        }
    }

    /// `POST /track`: the work, with whatever goes wrong around it.
    async fn track(self: Arc<Self>, call_id: String, body: Bytes) -> Result<Answer, Cut> {
        self.alive().await;
        let Ok(parcel) = serde_json::from_slice::<Parcel>(&body) else {
            let error = json!({"error": "expected {trackingNo, date, scene}"});
            return Ok(answer(StatusCode::BAD_REQUEST, &error));
        };
        let fault = self.receive(&parcel);
        self.alive().await;
        match fault {
            Fault::Honest => Ok(self.work(&call_id, &parcel)),
            Fault::AnswerLate(delay) => {
                let done = self.work(&call_id, &parcel);
                sleep(delay).await;
                Ok(done)
            }
            Fault::WorkSlowly(delay) => {
                self.books.lock().begin(&call_id);
                sleep(delay).await;
                Ok(self.work(&call_id, &parcel))
            }
            Fault::ResetBefore => Err(Cut::Reset),
            Fault::CloseBefore => Err(Cut::Close),
            Fault::ResetAfter => {
                self.work(&call_id, &parcel);
                Err(Cut::Reset)
            }
            Fault::CloseAfter => {
                self.work(&call_id, &parcel);
                Err(Cut::Close)
            }
            Fault::ErrorBefore => Ok(broken()),
            Fault::ErrorAfter => {
                self.work(&call_id, &parcel);
                Ok(broken())
            }
            Fault::RateLimit => Ok(busy()),
        }
    }

    /// Notes the arrival, begins the outage that is planned for this moment, looks up the fault.
    fn receive(self: &Arc<Self>, parcel: &Parcel) -> Fault {
        let arrival = self.books.lock().arrive(&parcel.tracking_no);
        if arrival.attempt == 1
            && let Some(outage) = self.plan.outage(arrival.seen)
        {
            self.begin(outage);
        }
        // A fault asked for by name strikes once, so that the repeat shows how the call ends.
        let asked_for = Fault::named(&parcel.scene).filter(|_| arrival.attempt == 1);
        let planned = || {
            parcel::read(&parcel.tracking_no).map_or(Fault::Honest, |reading| {
                self.plan.fault(reading.item, arrival.attempt)
            })
        };
        asked_for.unwrap_or_else(planned)
    }

    /// The work itself, in one step with its receipt: the effect, or the business refusal.
    fn work(&self, call_id: &str, parcel: &Parcel) -> Answer {
        let number = &parcel.tracking_no;
        if parcel::read(number).is_some_and(|reading| reading.valid) {
            let body = json!({"trackingNo": number, "scene": parcel.scene, "recorded": true});
            self.books
                .lock()
                .execute(call_id, number, &body.to_string());
            return answer(StatusCode::OK, &body);
        }
        let body = json!({"trackingNo": number, "error": "not a tracking number: check digit"});
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        self.books
            .lock()
            .refuse(call_id, number, status.as_u16(), &body.to_string());
        answer(status, &body)
    }

    fn begin(self: &Arc<Self>, outage: Outage) {
        let (health, span) = match outage {
            Outage::Refuse(span) => (Health::Refusing, span),
            Outage::LieDead(span) => (Health::Dead, span),
        };
        self.health.send_replace(health);
        let desk = Arc::clone(self);
        tokio::spawn(async move {
            sleep(span).await;
            desk.health.send_replace(Health::Up);
        });
    }

    async fn alive(&self) {
        let mut health = self.health.subscribe();
        // The sender is `self`, so it cannot be gone.
        let _ = health.wait_for(|health| *health != Health::Dead).await;
    }
}

fn broken() -> Answer {
    answer(
        StatusCode::INTERNAL_SERVER_ERROR,
        &json!({"error": "something went wrong"}),
    )
}

fn busy() -> Answer {
    let mut answer = answer(
        StatusCode::TOO_MANY_REQUESTS,
        &json!({"error": "too many requests"}),
    );
    answer
        .headers_mut()
        .insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
    answer
}

fn answer(status: StatusCode, body: &Value) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body.to_string())));
    *answer.status_mut() = status;
    answer.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    answer
}

#[cfg(test)]
mod tests;
