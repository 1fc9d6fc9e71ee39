//! The log: one JSON line per event (or text on a terminal), on standard error.
//!
//! A line begins with `ts`, `level` and, when the event is about a call, `call_id`, so that a
//! person with `grep` and a machine with a parser both find a call's lines. Values are escaped;
//! what a stranger sent reaches the log only through [`escaped`]. Deliberately absent: bodies,
//! credentials, and spans: fields stand in the event itself.

mod call_line;
mod format;
mod sink;

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;

use prometheus::IntCounter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

use crate::call::time::Wall;
pub use call_line::{AttemptLine, CallLine};
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
    #[error(
        "`{0}` is no log level; use error, warn, info, debug, trace or off (log.level, or \
         {LEVEL_VARIABLE} in the environment)"
    )]
    Level(String),
    /// The `target=level` pairs cannot be read.
    #[error("`{text}` cannot be read as target=level pairs ({LEVEL_VARIABLE})")]
    Pairs {
        /// What was given.
        text: String,
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

/// Opens the log of this process on standard error; panics are logged from then on.
///
/// # Errors
/// When the level is no level, the process already has a log, or there is no thread for it.
pub fn open(setup: Setup) -> Result<Log, LogError> {
    let text = setup
        .overriding
        .filter(|text| !text.is_empty())
        .unwrap_or(setup.level);
    let filter = filter(&text)?;
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
    std::panic::set_hook(Box::new(panicked));
    Ok(Log { sink })
}

/// A panic is a line like any other: a reader of JSON lines must not stumble over it.
fn panicked(panic: &std::panic::PanicHookInfo<'_>) {
    let at = panic
        .location()
        .map(ToString::to_string)
        .unwrap_or_default();
    let said = panic.payload_as_str().unwrap_or("no message");
    let thread = std::thread::current();
    tracing::error!(
        at,
        thread = thread.name().unwrap_or("unnamed"),
        panic = said,
        "a panic: a bug"
    );
}

/// A plain level means callgate's own lines: what its libraries say below `warn` is noise, and some
/// of them log header fields, which hold secrets. `target=level` pairs are taken as they are.
fn filter(text: &str) -> Result<EnvFilter, LogError> {
    let directives = match text.trim().to_ascii_lowercase().as_str() {
        own @ ("warn" | "info" | "debug" | "trace") => format!("warn,callgate={own}"),
        all @ ("off" | "error") => all.to_owned(),
        // The parser would take a word that is no level for the name of a target.
        _ if !text.contains('=') => return Err(LogError::Level(text.to_owned())),
        _ => text.to_owned(),
    };
    EnvFilter::try_new(directives).map_err(|source| LogError::Pairs {
        text: text.to_owned(),
        source,
    })
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

/// Text that is safe on a terminal: control characters, which could move its cursor or forge a
/// line, are shown escaped.
#[must_use]
pub fn visible(text: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.into()
        }
    };
    text.chars().map(shown).collect()
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
