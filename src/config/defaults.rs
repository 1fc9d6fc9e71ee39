//! The default values, as code; `config/callgate.yaml` shows them with comments, and a test holds
//! both equal.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use http::header::HeaderName;
use jiff::tz::TimeZone;

use super::resolved::{
    Admin, Drain, LedgerConfig, LedgerUrl, Limits, Log, LogFormat, LogLevel, Sync,
};
use super::route::{BodyLimits, Idempotency, KeyHash, PoolConfig, Protocol, ResultPointers};
use super::template::JsonPointer;
use crate::call::alert::Event;
use crate::call::outcome::Cause;
use crate::call::policy::{
    BelieveNotFound, Compensation, OnClientGone, OnFailed, Policy, Receipts, Records, ResendOn,
    Retry, RetryNumbers, Reversal, Timeouts, UnresolvedAnswer,
};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Where callers connect when nothing else is said.
pub(super) const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The name of a node whose host has none that fits.
pub(super) const NODE: &str = "callgate";
/// Exchanges kept open past their attempt timeout, per upstream.
pub(super) const LATE_MAX: usize = 64;
/// As long as the usual time to live of names inside a cluster.
pub(super) const RESOLVE: Duration = Duration::from_secs(30);
/// Rounds of one route that may run at once.
pub(super) const COMPENSATION_WORKERS: usize = 8;
/// What people are told of once a webhook is named.
pub(super) const ALERT_ON: [Event; 3] = [Event::Manual, Event::Reversed, Event::Difference];
/// One alert per route and event within this time: an incident is told at once, and then hourly.
pub(super) const ALERT_REPEAT: Duration = Duration::from_secs(3_600);
/// The longest receipt read.
pub(super) const RECEIPT_BODY_MAX: usize = 1 << 20;
/// Where a tool is asked, when its path is not given.
pub(super) const RECEIPT_PATH: &str = "/receipts/{call_id}";
/// Where another callgate is asked.
pub(super) const CALLGATE_RECEIPT_PATH: &str = "/_callgate/receipts/{call_id}";
/// The header field that carries a call's id.
pub(super) const CALL_ID_HEADER: HeaderName = HeaderName::from_static("x-call-id");

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            format: LogFormat::Auto,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            calls: 10_000,
            bodies: 256 << 20,
            async_calls: 4_096,
            connections_per_address: 10_000,
            headers: 100,
            header_bytes: 32 << 10,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            keepalive: Duration::from_secs(75),
        }
    }
}

impl Default for Admin {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)),
            token: None,
        }
    }
}

impl Default for LedgerConfig {
    fn default() -> Self {
        Self {
            url: LedgerUrl::Sqlite(PathBuf::from("callgate.db")),
            sync: Sync::Full,
            queue: 4_096,
            retention: DAY * 30,
        }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            grace: Duration::from_secs(25),
        }
    }
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(15),
            max_idle: 256,
            protocol: Protocol::Http1,
        }
    }
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self {
            max_request: 1 << 20,
            max_kept_response: 256 << 10,
        }
    }
}

impl Default for Idempotency {
    fn default() -> Self {
        Self {
            header: HeaderName::from_static("idempotency-key"),
            key: None,
            time_zone: TimeZone::UTC,
            hash: KeyHash::Sha256,
            required: false,
            send_header: None,
            send_body: None,
            window: DAY,
            scope: None,
            exclude: Vec::new(),
        }
    }
}

impl Default for ResultPointers {
    fn default() -> Self {
        let at = |text| JsonPointer::parse(text).expect("begins with a slash");
        Self {
            status: at("/result/status"),
            headers: at("/result/headers"),
            body: at("/result/body"),
            encoding: at("/result/bodyEncoding"),
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            attempt: Duration::from_secs(8),
            idle: MINUTE,
            receipt: Duration::from_secs(1),
            total: MINUTE,
            late: MINUTE,
        }
    }
}

impl Default for RetryNumbers {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base: Duration::from_secs(1),
            factor: 2.0,
            cap: Duration::from_secs(16),
            jitter: 0.2,
            on: Cause::ALL.to_vec(),
            resend_on: ResendOn::NotFound,
        }
    }
}

impl Default for Receipts {
    fn default() -> Self {
        Self {
            settle: Duration::from_millis(500),
            retention: DAY,
            records: Records::Arrival,
            believe_not_found: BelieveNotFound::Proven,
        }
    }
}

impl Default for Reversal {
    fn default() -> Self {
        Self {
            unknown: true,
            not_found: false,
            min_age: Duration::from_secs(15),
            max_age: Duration::from_secs(24 * 3_600),
        }
    }
}

impl Default for Compensation {
    fn default() -> Self {
        Self {
            rounds: vec![MINUTE, MINUTE * 5, MINUTE * 30, HOUR * 2, HOUR * 6],
            resend: false,
            lease: Duration::from_secs(30),
            on_failed: OnFailed::Drop,
            reversal: None,
        }
    }
}

impl Default for Policy {
    /// The policy of a route that says nothing, and therefore has no receipt endpoint.
    fn default() -> Self {
        Self {
            timeouts: Timeouts::default(),
            retry: Retry::new(RetryNumbers::default()).expect("the defaults are in range"),
            receipt: None,
            compensation: Compensation::default(),
            unresolved_status: StatusCode::GATEWAY_TIMEOUT,
            unresolved_answer: UnresolvedAnswer::ByIdSource,
            on_client_gone: OnClientGone::Finish,
        }
    }
}
