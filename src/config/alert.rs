//! Who is told when a human is needed: `compensation.alert` of one route, proven.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;

use super::route::{CaFile, Endpoint};
use crate::call::alert::Event;

/// Where a route's alerts go, and which there are.
#[derive(Clone, Debug, PartialEq)]
pub struct AlertRule {
    /// Scheme, host, port and path of the webhook.
    pub endpoint: Endpoint,
    /// Its path and query. It may hold a secret, so it is never shown.
    pub target: Hidden,
    /// PEM certificates trusted besides the system's roots.
    pub ca: Option<CaFile>,
    /// What people are told of; never [`Event::OldestOver`], which `oldest_over` turns on.
    pub on: Vec<Event>,
    /// How old the oldest unresolved call may grow before people are told.
    pub oldest_over: Option<Duration>,
    /// Events of one kind within this time after an alert are told with the next one.
    pub repeat: Duration,
    /// What alerts are signed with.
    pub secret: Option<SigningKey>,
    /// Set on every alert; the values are marked sensitive.
    pub headers: HeaderMap,
}

/// Text that no log and no print shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Hidden(pub(super) Arc<str>);

/// The secret of `secret_file`, without the line's end.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey {
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl AlertRule {
    /// Scheme, host and port: what may be shown of the address.
    #[must_use]
    pub fn origin(&self) -> String {
        let scheme = if self.endpoint.https { "https" } else { "http" };
        format!("{scheme}://{}", self.endpoint.authority)
    }
}

impl Hidden {
    /// The text itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl SigningKey {
    /// A key of these bytes, which stand in the file at `path`.
    #[must_use]
    pub fn new(path: PathBuf, bytes: &[u8]) -> Self {
        let bytes = Arc::from(bytes);
        Self { path, bytes }
    }

    /// Where it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes themselves.
    #[must_use]
    pub fn reveal(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hidden(***)")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(***)")
    }
}
