//! The callers: they send, wait as long as they like, leave, and send again under the same id, or
//! under none at all and get a new one each time. A crash of the gateway cuts their connection.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callgate::call::code::{Code, Repeat, Sent};
use callgate::call::id::{CallId, ClientName, IdSource};
use callgate::call::time::Mono;
use callgate::flow::told::{Shown, Told, Word};
use callgate::flow::{PassBody, Request, accept};
use callgate::upstream::headers;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Version};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::check::Heard;
use crate::gateway::Gateway;
use crate::plan::Script;
use crate::world::State;

/// A caller and how far it has come.
pub(crate) struct Caller {
    script: Script,
    next: u64,
    left: u64,
    waiting: bool,
}

impl Caller {
    pub(crate) fn new(script: Script) -> Self {
        Self {
            next: script.begins,
            left: script.tries,
            waiting: false,
            script,
        }
    }

    /// The gateway is gone, and with it the connection.
    pub(crate) fn lost(&mut self, now: u64) {
        if std::mem::take(&mut self.waiting) {
            self.next = now + 500;
        }
    }

    /// Whether it has sent all it wanted to send.
    pub(crate) fn is_done(&self) -> bool {
        self.left == 0 && !self.waiting
    }
}

impl State {
    fn waits(&mut self, n: usize) {
        let caller = &mut self.callers[n];
        caller.left -= 1;
        caller.waiting = true;
    }

    fn heard(&mut self, n: usize, id: &str, heard: Option<Heard>, what: &str) {
        self.say(|| format!("call  caller {n} of {id} heard {heard:?} ({what})"));
        let unknown = heard.is_none_or(|heard| heard == Heard::Unknown);
        // An answer too large to keep for which nobody read while it came: its state is told.
        let not_kept = what == "Answered 409 Conflict";
        let put_off = not_kept || what.starts_with("Refused") || what.starts_with("Accepted");
        if self.plan.quiet && unknown && !put_off {
            self.breaks(
                "where nothing fails everything is answered",
                &format!("{id}: {what}"),
            );
        }
        self.told(id, heard.unwrap_or(Heard::Unknown));
        let pause = self.dice.pick(&[100, 700, 3_000, 9_000]);
        let next = self.now() + pause;
        let caller = &mut self.callers[n];
        caller.waiting = false;
        caller.next = next;
        let knows = heard.is_some_and(|heard| heard != Heard::Unknown);
        if knows && !caller.script.insists {
            caller.left = 0;
        }
    }
}

/// The gateway that callers go to.
pub(crate) type At = Arc<Mutex<Arc<Gateway>>>;

/// One caller's life while a gateway lives.
pub(crate) async fn call(at: At, n: usize) {
    loop {
        let gateway = Arc::clone(&at.lock());
        let (script, next) = {
            let state = gateway.world.lock();
            let caller = &state.callers[n];
            if caller.left == 0 {
                return;
            }
            (caller.script.clone(), caller.next)
        };
        let when = next.saturating_sub(gateway.base).saturating_mul(1_000_000);
        gateway.flow.clock.sleep_until(Mono(when)).await;
        let gateway = Arc::clone(&at.lock());
        let gone = CancellationToken::new();
        let mut request = request(&gateway, &script, gone.clone());
        let id = request.call_id.to_string();
        let accepted = promised(&gateway, &mut request);
        {
            let mut state = gateway.world.lock();
            if !state.touched(gateway.life) {
                return;
            }
            state.waits(n);
            if state.plan.rules.none {
                state.facts(&id).answered_at = None;
            }
            state.say(|| format!("call  caller {n} sends {id}"));
        }
        let call = gateway.core.spawn(asked(Arc::clone(&gateway), request));
        let (heard, what, first) = tokio::select! {
            biased;
            told = call => hear(told.expect("a call does not panic")).await,
            told = accepted => {
                gateway.world.lock().accepted(&id);
                hear(told).await
            }
            () = tokio::time::sleep(Duration::from_millis(script.patience)) => {
                gone.cancel();
                (None, "left".to_owned(), None)
            }
        };
        let mut state = gateway.world.lock();
        if !state.touched(gateway.life) {
            return;
        }
        // Whose key came first, its end is what was told.
        let id = first.map_or(id, |first| first.to_string());
        state.heard(n, &id, heard, &what);
    }
}

/// What its caller is told when it is promised the call: at the callers' door, as `ingress` does.
fn promised(gateway: &Gateway, request: &mut Request) -> impl Future<Output = Told> + use<> {
    let prefer = request.prefer;
    let total = request.route.conf.policy.timeouts.total;
    let at = request.received.after(prefer.wait.unwrap_or_default());
    let clock = gateway.flow.clock.clone();
    let heard = prefer.may_be_accepted(total).then(|| {
        let (promise, heard) = accept::promise();
        request.promise = Some(promise);
        request.promised = true;
        heard
    });
    async move {
        if let Some(heard) = heard
            && let Ok(accepted) = heard.await
        {
            clock.sleep_until(at).await;
            return accepted.told(prefer);
        }
        std::future::pending().await
    }
}

/// Goes through the door the route has.
async fn asked(gateway: Arc<Gateway>, request: Request) -> Told {
    let (flow, core) = (&gateway.flow, &gateway.core);
    if request.route.conf.effects.is_once(&request.method) {
        return flow.call(core, request).await;
    }
    let Request {
        route,
        client,
        call_id,
        source,
        minted,
        method,
        target,
        authority,
        headers,
        body,
        caller,
        version,
        gone,
        received,
        prefer,
        promised,
        promise,
        first_seen,
    } = request;
    let request = Request {
        route,
        client,
        call_id,
        source,
        minted,
        method,
        target,
        authority,
        headers,
        body: PassBody::Whole(body),
        caller,
        version,
        gone,
        received,
        prefer,
        promised,
        promise,
        first_seen,
    };
    // What has no effects ends with its caller.
    let left = request.gone.clone();
    tokio::select! {
        biased;
        told = flow.pass(core, Box::new(request)) => told,
        () = left.cancelled() => {
            Told::refused_unseen(None, Code::Internal, "nobody is there to be told")
        }
    }
}

fn request(gateway: &Gateway, script: &Script, gone: CancellationToken) -> Request {
    let (call_id, source) = match &script.id {
        Some(id) => {
            let id = CallId::parse(id.as_bytes()).expect("a plain word is an id");
            (id, IdSource::Client)
        }
        None => {
            let now = gateway.flow.clock.wall();
            (gateway.minter.mint("sim", now), IdSource::Gateway)
        }
    };
    let mut headers = HeaderMap::new();
    if let Some(key) = &script.key {
        let key = HeaderValue::from_str(key).expect("a plain word is a key");
        headers.insert("idempotency-key", key);
    }
    Request {
        route: gateway.flow.routes.named("tool").expect("there is one"),
        client: ClientName::anonymous(),
        call_id,
        source,
        minted: source == IdSource::Gateway,
        method: Method::POST,
        target: PathAndQuery::from_static("/work"),
        authority: None,
        headers: headers.into(),
        body: Bytes::from(script.wants.clone()),
        caller: Arc::new(headers::Caller::at(Ipv4Addr::LOCALHOST.into())),
        version: Version::HTTP_11,
        gone,
        received: gateway.flow.clock.mono(),
        prefer: script.prefer,
        promised: false,
        promise: None,
        first_seen: None,
    }
}

/// What a caller takes from what it is told.
async fn hear(told: Told) -> (Option<Heard>, String, Option<CallId>) {
    let first = told.original.clone();
    let status = told.shown.status();
    let mut what = format!("{:?} {status}", told.word);
    let heard = match (told.word, told.shown) {
        (_, Shown::Accepted(_)) => {
            what = format!("Accepted {status}");
            Heard::Unknown
        }
        (Word::Answered | Word::Receipt | Word::Replayed, shown) => match shown {
            Shown::Whole(_) => by_status(status.as_u16()),
            Shown::Stream { body, .. } => match body.collect().await {
                Ok(_) => by_status(status.as_u16()),
                Err(_) => Heard::Unknown,
            },
            Shown::Problem(problem) if problem.code == Code::ToolReportedFailure => Heard::Failure,
            Shown::Problem(_) | Shown::Tunnel(_) | Shown::Accepted(_) => Heard::Unknown,
        },
        (Word::Refused, Shown::Problem(problem)) => {
            what = format!("{what} {:?}", problem.code);
            // Never sent, and never will be.
            match (problem.sent, problem.repeat) {
                (Sent::No, Repeat::Safe) => Heard::Failure,
                _ => Heard::Unknown,
            }
        }
        (Word::Refused | Word::Unresolved, _) => Heard::Unknown,
    };
    (Some(heard), what, first)
}

const fn by_status(status: u16) -> Heard {
    match status {
        200..=399 => Heard::Success,
        400..=499 => Heard::Failure,
        // A 5xx is told as an end only on the word of a receipt.
        _ => Heard::Failure,
    }
}
