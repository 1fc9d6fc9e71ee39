//! One exchange on an HTTP/2 connection: its request out, its answer in, its end.
//!
//! A short body is given to the client at once, which sends it as the tool's windows allow; one
//! that is still arriving is carried by a task of its own, pulled by the same windows. What is read
//! of an answer is given back to the window when it is taken, so a slow caller slows the tool.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::client::ResponseFuture;
use h2::{Reason, RecvStream, SendStream};
use http::header::{CONNECTION, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use http::{Request, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::Slot;
use super::connection::{Connection, Place};
use crate::call::outcome::NotSent;
use crate::upstream::answer::Head;
use crate::upstream::exchange::Outgoing;
use crate::upstream::{Destination, Payload};

type BoxError = Box<dyn Error + Send + Sync>;

/// What became of a request.
pub(in crate::upstream) enum Fate {
    /// The head of an answer, and its body.
    Answered(Head, Body),
    /// Proof that the tool did not take it up.
    NotSent(Refusal),
    /// Nobody knows.
    Lost(BoxError),
}

/// Proof that a tool did not take a request up.
pub(in crate::upstream) struct Refusal {
    pub(in crate::upstream) why: NotSent,
    /// It was this connection that was the trouble; another may take the request.
    pub(in crate::upstream) elsewhere: bool,
    pub(in crate::upstream) error: BoxError,
}

/// One exchange on a connection, for whoever may have to end it.
pub(in crate::upstream) struct Stream {
    conn: Arc<Connection>,
    /// Given back when the exchange is over.
    place: Mutex<Option<Place>>,
    id: u32,
    send: Mutex<SendStream<Bytes>>,
    /// The task that carries a body still arriving.
    carrier: Mutex<Option<AbortHandle>>,
    /// Its end has to prove that nothing arrives later.
    careful: bool,
    was_whole: AtomicBool,
}

/// The body of an answer.
pub(in crate::upstream) struct Body {
    recv: RecvStream,
    /// What was announced of it and is still to come.
    left: Option<u64>,
    data_ended: bool,
}

/// Sends a request on `slot`. `careful`: see [`Stream::reset`]. The answer is what the returned
/// future waits for; the stream is there at once.
///
/// # Errors
/// Proof that nothing was sent.
pub(in crate::upstream) fn send(
    slot: Slot,
    to: &Destination,
    request: &mut Outgoing,
    careful: bool,
) -> Result<(Arc<Stream>, impl Future<Output = Fate> + Send + use<>), Refusal> {
    let conn = Arc::clone(slot.place.connection());
    // What cannot be written, no connection takes; a refusal to take more is this one's.
    let refusal = |error, elsewhere| Refusal {
        why: NotSent::HandedBack,
        elsewhere,
        error,
    };
    let head = head(to, request).map_err(|error| refusal(error.into(), false))?;
    let sent = conn
        .sender()
        .send_request(head, request.body.is_end_stream());
    let (response, send) = sent.map_err(|error| {
        let elsewhere = error.is_io() || error.is_go_away();
        if elsewhere {
            conn.retire();
        }
        refusal(error.into(), elsewhere)
    })?;
    conn.line.watch(send.stream_id().as_u32());
    let stream = Arc::new(Stream {
        conn,
        place: Mutex::new(Some(slot.place)),
        id: send.stream_id().as_u32(),
        send: Mutex::new(send),
        carrier: Mutex::default(),
        careful,
        was_whole: AtomicBool::new(false),
    });
    stream.carry(&mut request.body);
    let waiting = Arc::clone(&stream);
    Ok((stream, async move { waiting.answer(response).await }))
}

/// The request's head, as HTTP/2 writes it (RFC 9113, 8.2.2 and 8.3.1).
fn head(to: &Destination, outgoing: &Outgoing) -> Result<Request<()>, http::Error> {
    let mut headers = outgoing.headers.clone().into_map();
    let host = headers.remove(HOST);
    let authority = host.as_ref().and_then(|host| host.to_str().ok());
    let scheme = if to.is_tls() { "https" } else { "http" };
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(authority.unwrap_or_else(|| to.authority()))
        .path_and_query(outgoing.target.clone())
        .build()?;
    let asks_trailers = headers.get(TE).is_some_and(|te| te == "trailers");
    for field in [CONNECTION, TRANSFER_ENCODING, UPGRADE] {
        headers.remove(field);
    }
    if !asks_trailers {
        headers.remove(TE);
    }
    let mut request = Request::new(());
    *request.method_mut() = outgoing.method.clone();
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    *request.headers_mut() = headers;
    Ok(request)
}

impl Stream {
    /// Whether the whole request was handed to the kernel.
    pub(in crate::upstream) fn written(&self) -> bool {
        self.was_whole.load(Ordering::Acquire) || self.conn.line.whole(self.id)
    }

    /// The connection takes no further exchange: an attempt's time was over on it.
    pub(in crate::upstream) fn retire(&self) {
        self.conn.retire();
    }

    /// The answer is complete. What the tool has not taken of the request until then it shall not
    /// get any more.
    pub(in crate::upstream) fn finish(&self) {
        if let Some(_place) = self.over()
            && !self.was_whole.load(Ordering::Acquire)
        {
            self.send.lock().send_reset(Reason::NO_ERROR);
        }
        self.conn.line.forget(self.id);
    }

    /// Ends the exchange with an RST_STREAM; nothing happens to one that is over.
    ///
    /// A careful one is ended for good only when the tool has proved that it read the reset, or
    /// when the connection was reset as a whole: the receiver ends with that.
    pub(in crate::upstream) fn reset(&self) -> Option<oneshot::Receiver<()>> {
        let _place = self.over()?;
        let line = &self.conn.line;
        if self.careful && !line.is_gone() && !line.is_over(self.id) {
            let proof = self.conn.closing(self.id);
            self.send.lock().send_reset(Reason::CANCEL);
            return Some(proof);
        }
        self.send.lock().send_reset(Reason::CANCEL);
        line.forget(self.id);
        None
    }

    /// The exchange is over; its place on the connection, the first time.
    fn over(&self) -> Option<Place> {
        let place = self.place.lock().take()?;
        let whole = self.conn.line.whole(self.id);
        self.was_whole.store(whole, Ordering::Release);
        if let Some(carrier) = self.carrier.lock().take() {
            carrier.abort();
        }
        Some(place)
    }

    /// Sees to it that the body goes out.
    fn carry(self: &Arc<Self>, body: &mut Payload) {
        if body.is_end_stream() {
            return;
        }
        if let Some(whole) = body.whole() {
            // It fails only when the stream is over, and then the answer says so.
            drop(self.send.lock().send_data(whole.clone(), true));
            return;
        }
        let body = std::mem::replace(body, Payload::from(Bytes::new()));
        let carrying = carry(Arc::clone(self), body);
        *self.carrier.lock() = Some(self.conn.core.spawn(carrying).abort_handle());
    }

    async fn answer(&self, response: ResponseFuture) -> Fate {
        let error = match response.await {
            Ok(response) => {
                let (head, recv) = response.into_parts();
                let body = Body::new(recv, &head.headers);
                let head = Head {
                    status: head.status,
                    headers: head.headers.into(),
                };
                return Fate::Answered(head, body);
            }
            Err(error) => error,
        };
        if error.is_go_away() || self.conn.line.is_going_away() {
            self.conn.retire();
        }
        let refused =
            error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
        let left_out = self.conn.line.is_left_out(self.id);
        // On a connection that is gone nothing of it can leave any more.
        let unbegun = self.conn.line.is_gone() && !self.conn.line.begun(self.id);
        let why = match (refused || left_out, unbegun) {
            (true, _) => NotSent::Refused,
            (false, true) => NotSent::HandedBack,
            (false, false) => return Fate::Lost(error.into()),
        };
        Fate::NotSent(Refusal {
            why,
            elsewhere: !refused,
            error: error.into(),
        })
    }
}

/// Carries a body that is still arriving, as the tool's windows allow.
async fn carry(stream: Arc<Stream>, mut body: Payload) {
    loop {
        if std::future::poll_fn(|cx| stream.poll_room(cx))
            .await
            .is_err()
        {
            return;
        }
        let frame = match body.frame().await {
            Some(Ok(frame)) => frame,
            // The caller's doing; what is out of the request must not look like all of it.
            Some(Err(_)) => return stream.send.lock().send_reset(Reason::CANCEL),
            None => {
                drop(stream.send.lock().send_data(Bytes::new(), true));
                return;
            }
        };
        let last = body.is_end_stream();
        let sent = match frame.into_data() {
            Ok(data) => stream.send.lock().send_data(data, last),
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => {
                    drop(stream.send.lock().send_trailers(trailers));
                    return;
                }
                Err(_) => continue,
            },
        };
        if sent.is_err() || last {
            return;
        }
    }
}

impl Stream {
    /// Room for one more piece; an error once the stream is over.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
        let mut send = self.send.lock();
        send.reserve_capacity(1);
        while send.capacity() == 0 {
            match ready!(send.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(())),
            }
        }
        match send.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(Err(())),
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl Body {
    fn new(recv: RecvStream, headers: &http::HeaderMap) -> Self {
        let announced = headers.get(http::header::CONTENT_LENGTH);
        let left = match recv.is_end_stream() {
            true => Some(0),
            false => announced.and_then(|n| n.to_str().ok()?.parse().ok()),
        };
        Self {
            recv,
            left,
            data_ended: false,
        }
    }

    pub(in crate::upstream) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if !self.data_ended {
            match ready!(self.recv.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails only on a stream that is over.
                    drop(self.recv.flow_control().release_capacity(data.len()));
                    if let Some(left) = &mut self.left {
                        *left = left.saturating_sub(data.len() as u64);
                    }
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                None => self.data_ended = true,
            }
        }
        match ready!(self.recv.poll_trailers(cx)) {
            Ok(Some(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Ok(None) => Poll::Ready(None),
            Err(error) => Poll::Ready(Some(Err(error.into()))),
        }
    }

    pub(in crate::upstream) fn is_end_stream(&self) -> bool {
        self.recv.is_end_stream()
    }

    pub(in crate::upstream) fn size_hint(&self) -> SizeHint {
        self.left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
