//! A listener with a scripted door behind it.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::time::Wall;
use crate::clock::Clock;
use crate::config::template::JsonPointer;
use crate::config::{self, Limits, Route as RouteConfig};
use crate::entropy::{Entropy, Minter};
use crate::flow::Watch;
use crate::flow::told::{Problem, Shown, Stream, Told, Whole, Word};
use crate::ingress::{
    Core, Cores, Door, Faced, Found, Ingress, Knock, Line, Payload, Request, Settings,
};
use crate::telemetry::metrics::{Metrics, RouteMetrics};
use crate::upstream::Bodies;
use crate::upstream::fields::Fields;
use crate::upstream::headers::Node;

use super::Peer;

/// Two routes: `/orders/**` records its calls, `/look/**` passes them on; `/body/**` also looks
/// for the id in the body.
const ROUTES: &str = r"
node: test
routes:
  - name: orders
    match: { path: /orders/** }
    upstream: { url: 'http://127.0.0.1:1' }
    call_id: { prefix: ord }
    receipt: {}
    body: { max_request: 64KiB }
  - name: look
    match: { path: /look/** }
    upstream: { url: 'http://127.0.0.1:1' }
    effects: none
    body: { max_request: 1MiB }
  - name: body
    match: { path: /body/** }
    upstream: { url: 'http://127.0.0.1:1' }
    receipt: {}
    call_id: { header: X-Task-Id }
";

/// A request as the door saw it.
pub(super) struct Seen {
    pub(super) once: bool,
    pub(super) call_id: CallId,
    pub(super) source: IdSource,
    pub(super) method: Method,
    pub(super) target: String,
    pub(super) host: Option<String>,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) gone: CancellationToken,
    pub(super) line: Line,
}

pub(super) type Doing = Pin<Box<dyn Future<Output = Told> + Send>>;
type Script = Box<dyn Fn(Seen) -> Doing + Send + Sync>;

pub(super) struct FakeRoute {
    config: RouteConfig,
    pub(super) metrics: Arc<RouteMetrics>,
}

pub(super) struct FakeDoor {
    routes: Vec<Arc<FakeRoute>>,
    script: Script,
    arrivals: mpsc::UnboundedSender<String>,
    pub(super) refuse: Mutex<Option<Problem>>,
    pub(super) found: Mutex<Option<Found>>,
}

/// The listener, its door and its threads.
pub(super) struct Gate {
    pub(super) ingress: Ingress,
    pub(super) door: Arc<FakeDoor>,
    pub(super) unrouted: Arc<RouteMetrics>,
    pub(super) metrics: Arc<Metrics>,
    /// The call id of every request that came to the door, in order.
    pub(super) arrivals: mpsc::UnboundedReceiver<String>,
    _cores: Cores,
}

pub(super) const LIMITS: Limits = Limits {
    connections: 64,
    calls: 64,
    bodies: 16 << 20,
    async_calls: 8,
    connections_per_address: 64,
    headers: 100,
    header_bytes: 32 * 1024,
    header_timeout: Duration::from_secs(5),
    body_timeout: Duration::from_secs(5),
    keepalive: Duration::from_secs(5),
};

impl Gate {
    /// A door that answers 200 with the request's body.
    pub(super) fn echo() -> Self {
        Self::scripted(LIMITS, |seen| {
            Box::pin(async move {
                told_whole(
                    Some((seen.call_id, seen.source)),
                    200,
                    HeaderMap::new(),
                    &seen.body,
                )
            })
        })
    }

    /// A door that does what `script` says, behind these limits.
    pub(super) fn scripted<F>(limits: Limits, script: F) -> Self
    where
        F: Fn(Seen) -> Doing + Send + Sync + 'static,
    {
        let config = config::parse(ROUTES, "test", Path::new(""), &|_| None).unwrap();
        let metrics = Arc::new(Metrics::new("test"));
        let routes = config
            .routes
            .iter()
            .map(|route| {
                let mut config = RouteConfig::clone(route);
                if &*config.name == "body" {
                    // The reader of the configuration does not offer it yet.
                    config.call_id.body = JsonPointer::parse("/task/id");
                }
                let metrics = metrics.route(&config.name);
                Arc::new(FakeRoute { config, metrics })
            })
            .collect();
        let (tell, arrivals) = mpsc::unbounded_channel();
        let door = Arc::new(FakeDoor {
            routes,
            script: Box::new(script),
            arrivals: tell,
            refuse: Mutex::new(None),
            found: Mutex::new(None),
        });
        let unrouted = metrics.route("none");
        let clock = Clock::start();
        let settings = Settings {
            limits,
            node: Node::new("test"),
            clock: clock.clone(),
            minter: Arc::new(Minter::new("test", &Entropy::seeded(7))),
            metrics: Arc::clone(&metrics),
            unrouted: Arc::clone(&unrouted),
        };
        let cores = Cores::start(1, &clock, &Bodies::default()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let ingress = Ingress::open(listener, &cores, Arc::clone(&door), settings).unwrap();
        Self {
            ingress,
            door,
            unrouted,
            metrics,
            arrivals,
            _cores: cores,
        }
    }

    pub(super) async fn peer(&self) -> Peer {
        Peer::connect(self.ingress.address()).await
    }

    /// Waits until so many connections are open; the gateway tells nobody when that happens.
    pub(super) async fn until_open(&self, connections: usize) {
        while self.ingress.connections() != connections {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Waits until no call runs.
    pub(super) async fn until_idle(&self) {
        while self.ingress.calls() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) fn route(&self, at: usize) -> &FakeRoute {
        &self.door.routes[at]
    }

    /// Nothing came to the door, and nothing will: the answer is already there.
    pub(super) fn assert_nothing_arrived(&mut self) {
        assert_eq!(
            self.arrivals.try_recv().ok(),
            None,
            "something came to the door"
        );
    }
}

impl Faced for FakeRoute {
    fn config(&self) -> &RouteConfig {
        &self.config
    }
    fn metrics(&self) -> &RouteMetrics {
        &self.metrics
    }
}

impl FakeDoor {
    fn see<B>(&self, request: Request<FakeRoute, B>, once: bool, body: Bytes) -> Doing {
        self.arrivals.send(request.call_id.to_string()).unwrap();
        let host = request.host().map(str::to_owned);
        (self.script)(Seen {
            once,
            call_id: request.call_id,
            source: request.source,
            method: request.method,
            target: request
                .uri
                .path_and_query()
                .map(ToString::to_string)
                .unwrap_or_default(),
            host,
            headers: request.headers.into_map(),
            body,
            gone: request.gone,
            line: request.line,
        })
    }
}

impl Door for FakeDoor {
    type Route = FakeRoute;

    fn route(&self, host: Option<&str>, path: &str, method: &Method) -> Option<Arc<FakeRoute>> {
        self.routes
            .iter()
            .find(|r| r.config.matcher.matches(host, path, method))
            .cloned()
    }

    fn client(&self, headers: &mut Fields) -> Option<ClientName> {
        (!headers.contains_key("x-stranger")).then(ClientName::anonymous)
    }

    fn admit(&self, _: &Knock<'_, FakeRoute>) -> Result<(), Box<Problem>> {
        self.refuse
            .lock()
            .clone()
            .map_or(Ok(()), |problem| Err(Box::new(problem)))
    }

    async fn call(&self, _: &Core, request: Box<Request<FakeRoute, Bytes>>) -> Told {
        let body = request.body.clone();
        self.see(*request, true, body).await
    }

    async fn pass(&self, _: &Core, mut request: Box<Request<FakeRoute, Payload>>) -> Told {
        let named = (request.call_id.clone(), request.source);
        let body = match std::mem::replace(&mut request.body, Payload::Whole(Bytes::new())) {
            Payload::Whole(bytes) => Ok(bytes),
            Payload::Arriving(body) => body.into_stream().collect().await.map(|b| b.to_bytes()),
        };
        match body {
            Ok(body) => self.see(*request, false, body).await,
            Err(error) => told_problem(Some(named), Code::BadRequest, &error.to_string()),
        }
    }

    async fn receipt(&self, _: &ClientName, _: &CallId, _: Option<Watch>) -> Found {
        self.found.lock().take().unwrap_or(Found::Nothing {
            knows_since: Wall(0),
        })
    }
}

pub(super) fn told_whole(
    call: Option<(CallId, IdSource)>,
    status: u16,
    headers: HeaderMap,
    body: &[u8],
) -> Told {
    let status = StatusCode::from_u16(status).unwrap();
    let body = Bytes::copy_from_slice(body);
    told(
        call,
        Shown::Whole(Whole {
            status,
            headers: headers.into(),
            body,
        }),
    )
}

pub(super) fn told_stream(
    call: Option<(CallId, IdSource)>,
    headers: HeaderMap,
    body: Stream,
) -> Told {
    told(
        call,
        Shown::Stream {
            status: StatusCode::OK,
            headers,
            body,
        },
    )
}

pub(super) fn told_problem(call: Option<(CallId, IdSource)>, code: Code, detail: &str) -> Told {
    Told::refused(call, Problem::new(code, detail, Sent::No, Repeat::Safe))
}

fn told(call: Option<(CallId, IdSource)>, shown: Shown) -> Told {
    Told {
        call,
        word: Word::Answered,
        attempts: 1,
        shown,
        original: None,
        same_id_only: false,
        recorded: true,
    }
}
