//! The proven configuration: what one load of the file means, with every default filled in.
//!
//! No `Option` here waits to be interpreted: where one stays, its absence has a meaning of its own
//! and is documented. Routes live in [`super::route`]. Deliberately absent: positions and raw
//! text, which end at the reader.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::clients::Client;
use super::route::Route;
use super::words::Word;

/// One load of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// This gateway's name; the last part of every call id it makes.
    pub node: Arc<str>,
    /// What is logged and how.
    pub log: Log,
    /// Cores that serve calls; 0 means one per core of the machine.
    pub workers: usize,
    /// Where callers connect.
    pub listen: SocketAddr,
    /// Bounds of one caller's connection.
    pub limits: Limits,
    /// The operator's listener.
    pub admin: Admin,
    /// Where calls are recorded.
    pub ledger: LedgerConfig,
    /// How the process leaves.
    pub drain: Drain,
    /// The callers and their keys; empty: every caller is `anonymous`.
    pub clients: Vec<Client>,
    /// The routes, first match wins; never empty.
    pub routes: Vec<Arc<Route>>,
    /// What is allowed but probably not meant; `check` and `serve` print it.
    pub warnings: Vec<Notice>,
}

/// What is logged and how (`log`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The least important line still written.
    pub level: LogLevel,
    /// Text or JSON.
    pub format: LogFormat,
}

/// The least important line still written (`log.level`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// Only what needs a human.
    Error,
    /// Also what may need one.
    Warn,
    /// Also one line per call.
    Info,
    /// Also clean calls of `effects: none`.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The word in the file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.word().expect("every level has a word")
    }
}

/// Text or JSON (`log.format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    /// Lines for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Bounds on what callers may take (`limits`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open connections of callers.
    pub connections: usize,
    /// Requests being worked on, also those whose caller has left.
    pub calls: usize,
    /// Bytes that bodies may take which came in more than one piece.
    pub bodies: usize,
    /// Calls that run on after their caller was told that they are accepted.
    pub async_calls: usize,
    /// Of these, from one address.
    pub connections_per_address: usize,
    /// Header fields of one request.
    pub headers: usize,
    /// Bytes of one request's head.
    pub header_bytes: usize,
    /// How long a request's head may take to arrive.
    pub header_timeout: Duration,
    /// How long a request's body may pause.
    pub body_timeout: Duration,
    /// How long an idle connection is kept.
    pub keepalive: Duration,
}

/// The operator's listener (`admin`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where metrics, health, API and console are served.
    pub listen: SocketAddr,
    /// What mutations must carry; `None` only when `listen` is loopback.
    pub token: Option<Secret>,
}

/// Where calls are recorded (`ledger`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerConfig {
    /// Which ledger, and where.
    pub url: LedgerUrl,
    /// What a commit survives.
    pub sync: Sync,
    /// Records that may wait for the writer; past it the gateway is overloaded.
    pub queue: usize,
    /// How long ended dead letters and their history are kept.
    pub retention: Duration,
}

/// Which ledger, and where (`ledger.url`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerUrl {
    /// `sqlite:PATH`; relative paths were joined to the file's folder.
    Sqlite(PathBuf),
    /// `memory:`; nothing survives the process.
    Memory,
}

/// What a commit survives (`ledger.sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Power loss.
    Full,
    /// `kill -9`, but not power loss.
    Normal,
}

/// How the process leaves (`drain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// How long it still accepts after readiness went off.
    pub delay: Duration,
    /// How long running calls have after that.
    pub grace: Duration,
}

/// Something allowed but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The key it is about, such as `routes[0].receipt`.
    pub path: String,
    /// What it means and what to do, in one or two sentences.
    pub text: String,
}

/// Text that is never printed, logged or compared carelessly.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps the text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text itself; every use of this method is a place to look at.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}
