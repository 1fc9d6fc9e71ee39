//! The log: one JSON line per event (or text on a terminal), on standard error.
//!
//! A line begins with `ts`, `level` and, when the event is about a call, `call_id`, so that a
//! person with `grep` and a machine with a parser both find a call's lines. Values are escaped;
//! what a stranger sent reaches the log only through [`escaped`]. Deliberately absent: bodies,
//! credentials, and spans: fields stand in the event itself.

pub mod call_line;
mod format;
mod sink;

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;

use prometheus::IntCounter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::call::time::Wall;
use format::Lines;
use sink::Sink;

/// How many bytes of a rejected value reach the log.
pub const REJECTED_BYTES_SHOWN: usize = 64;

/// The variable that overrides the configured level: a level, or `target=level` pairs.
pub const LEVEL_VARIABLE: &str = "CALLGATE_LOG";

/// How lines look (`log.format`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text when standard error is a terminal, else JSON.
    Auto,
    /// One JSON object per line.
    Json,
    /// Text for people.
    Text,
}

/// What the log needs to know.
pub struct Setup {
    /// `log.level`: `error`, `warn`, `info`, `debug`, `trace` or `off`.
    pub level: String,
    /// `log.format`.
    pub format: Format,
    /// The value of [`LEVEL_VARIABLE`], read by the caller at start.
    pub overriding: Option<String>,
    /// The reader of the wall clock.
    pub now: Arc<dyn Fn() -> Wall + Send + Sync>,
    /// Counts lines that standard error did not take in time.
    pub dropped: Option<IntCounter>,
}

/// Keeps the log open; when it is dropped, what was logged is written out.
#[must_use = "lines logged after this is dropped may be lost"]
pub struct Log {
    sink: Sink,
}

/// Why the log could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is no level.
    #[error("`{level}` is no log level; use error, warn, info, debug, trace or off")]
    Level {
        /// What was configured.
        level: String,
        /// What the parser says.
        source: tracing_subscriber::filter::ParseError,
    },
    /// This process already has a log.
    #[error("the log of this process is already open")]
    AlreadyOpen,
    /// The writer's thread could not be started.
    #[error("the log's writer could not be started")]
    Writer(#[source] std::io::Error),
}

/// Opens the log of this process on standard error.
///
/// # Errors
/// When the level is no level, or the process already has a log.
pub fn open(setup: Setup) -> Result<Log, LogError> {
    let text = setup.overriding.unwrap_or(setup.level);
    let filter = EnvFilter::try_new(&text).map_err(|source| LogError::Level {
        level: text.clone(),
        source,
    })?;
    let json = match setup.format {
        Format::Json => true,
        Format::Text => false,
        Format::Auto => !std::io::stderr().is_terminal(),
    };
    let sink = Sink::start(std::io::stderr(), setup.dropped).map_err(LogError::Writer)?;
    let subscriber = fmt()
        .with_env_filter(filter)
        .event_format(Lines {
            json,
            now: setup.now,
        })
        .with_writer(sink.clone())
        .finish();
    tracing::subscriber::set_global_default(subscriber).map_err(|_| LogError::AlreadyOpen)?;
    Ok(Log { sink })
}

impl Drop for Log {
    fn drop(&mut self) {
        self.sink.close();
    }
}

/// A value a stranger sent, safe to show: visible ASCII as it is, every other byte and the
/// backslash escaped, cut after [`REJECTED_BYTES_SHOWN`] bytes of the value.
#[must_use]
pub fn escaped(value: &[u8]) -> String {
    let shown = &value[..value.len().min(REJECTED_BYTES_SHOWN)];
    let mut text = String::with_capacity(shown.len() + 16);
    for byte in shown {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(*byte)),
            _ => write!(text, "\\x{byte:02x}").expect("a String takes every write"),
        }
    }
    if shown.len() < value.len() {
        write!(text, ".. ({} bytes)", value.len()).expect("a String takes every write");
    }
    text
}

/// The trace id of a `traceparent` field: 32 hex digits that are not all zero.
#[must_use]
pub fn trace_id(traceparent: &str) -> Option<&str> {
    let mut parts = traceparent.split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let hex =
        |s: &str, len| s.len() == len && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let known = hex(version, 2) && hex(trace, 32) && hex(parent, 16);
    (known && trace.bytes().any(|b| b != b'0')).then_some(trace)
}

#[cfg(test)]
mod tests;
