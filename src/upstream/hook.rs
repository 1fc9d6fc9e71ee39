//! An address that is told something: one POST, one status, over the connections tools have.
//!
//! For alerts. Whether it is told again is not decided here. Deliberately absent: redirects (a
//! secret in the fields would follow them), and reading what the receiver says beyond its status.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use super::exchange::{Ended, Exchange, Mode, Outgoing, Terms};
use super::{Core, Destination, Payload, SetupError, headers};
use crate::config::alert::AlertRule;
use crate::config::route::{PoolConfig, Protocol};

/// How long the receiver has for TCP and TLS.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// How often a host name is looked up again.
const RESOLVE: Duration = Duration::from_secs(30);

/// What is read of its answer: nobody looks at it.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Alerts are rare: a connection is kept for a burst over several routes.
const POOL: PoolConfig = PoolConfig {
    idle: Duration::from_secs(5),
    max_idle: 4,
    protocol: Protocol::Http1,
};

/// Where alerts of a route go.
pub struct Hook {
    destination: Arc<Destination>,
    target: PathAndQuery,
    headers: HeaderMap,
}

/// Why something was not told, for people.
#[derive(Debug, thiserror::Error)]
pub enum HookFailure {
    /// The receiver answered, and not with a 2xx.
    #[error("it answered {0}")]
    Status(StatusCode),
    /// There was no answer in time.
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// The connection failed.
    #[error("{0}")]
    Connection(Box<str>),
}

impl HookFailure {
    /// Whether the receiver was there at all.
    #[must_use]
    pub const fn is_answer(&self) -> bool {
        matches!(self, Self::Status(_))
    }
}

impl Hook {
    /// The receiver of a rule.
    ///
    /// # Errors
    /// What can never work, as for [`super::Tool::new`].
    pub fn new(rule: &AlertRule) -> Result<Self, SetupError> {
        let path = rule.target.reveal();
        Ok(Self {
            destination: Destination::new(&rule.endpoint, rule.ca.as_ref(), POOL, (1, RESOLVE))?,
            target: PathAndQuery::try_from(path).map_err(|source| SetupError::Path {
                path: rule.origin(),
                source,
            })?,
            headers: rule.headers.clone(),
        })
    }

    /// Where it is.
    #[must_use]
    pub const fn destination(&self) -> &Arc<Destination> {
        &self.destination
    }

    /// Posts a JSON document with these fields.
    ///
    /// # Errors
    /// Whatever is no 2xx within `within`.
    pub async fn post(
        &self,
        core: &Core,
        body: Bytes,
        fields: HeaderMap,
        within: Duration,
    ) -> Result<(), HookFailure> {
        let terms = Terms {
            connect: CONNECT_WITHIN.min(within),
            idle: within,
            max_kept: ANSWER_BYTES_MAX,
            mode: Mode::Collect,
        };
        let outgoing = self.outgoing(body, fields);
        let mut exchange = Exchange::new(core, &self.destination, outgoing, terms);
        let ended = tokio::select! {
            ended = &mut exchange => ended,
            () = core.wheel.sleep(within) => return Err(HookFailure::Timeout(within)),
        };
        let status = match ended {
            Ended::Collected(answer) => answer.status,
            // A long answer is an answer; the rest is left unread.
            Ended::Streaming(answer) => answer.status,
            Ended::NotSent(_) | Ended::Unclear(_) => {
                let trouble = exchange.trouble();
                let trouble = trouble.unwrap_or_else(|| "the connection broke".into());
                return Err(HookFailure::Connection(trouble));
            }
        };
        if status.is_success() {
            Ok(())
        } else {
            Err(HookFailure::Status(status))
        }
    }

    fn outgoing(&self, body: Bytes, fields: HeaderMap) -> Outgoing {
        let mut all = HeaderMap::with_capacity(8);
        let agent = concat!("callgate/", env!("CARGO_PKG_VERSION"));
        all.insert(USER_AGENT, HeaderValue::from_static(agent));
        headers::set_all(&mut all, &self.headers);
        all.insert(HOST, self.destination.host().clone());
        all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        all.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers::set_all(&mut all, &fields);
        Outgoing {
            method: Method::POST,
            target: self.target.clone(),
            headers: all.into(),
            body: Payload::from(body),
        }
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({:?})", self.destination)
    }
}
