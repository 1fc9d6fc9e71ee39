//! How one event becomes one line.
//!
//! A formatter of our own because the order of the fields is promised, and because a field may
//! hold a list. Deliberately absent: spans.

use std::fmt::{self, Write};
use std::sync::Arc;

use jiff::Timestamp;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::call::time::Wall;

/// A field whose name begins so holds JSON already and is written as it is. Only
/// [`call_line`](super::call_line) makes such fields.
pub(super) const RAW: &str = "raw.";

/// The field that stands first.
const CALL_ID: &str = "call_id";

/// One line per event.
pub(super) struct Lines {
    pub(super) json: bool,
    pub(super) now: Arc<dyn Fn() -> Wall + Send + Sync>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields {
            json: self.json,
            ..Fields::default()
        };
        event.record(&mut fields);
        let ts = timestamp((self.now)());
        let level = event.metadata().level().as_str();
        let Fields {
            call_id,
            message,
            rest,
            ..
        } = fields;
        if self.json {
            write!(
                writer,
                "{{\"ts\":\"{ts}\",\"level\":\"{}\"",
                level.to_ascii_lowercase()
            )?;
            if !call_id.is_empty() {
                write!(writer, ",\"call_id\":{call_id}")?;
            }
            let message = if message.is_empty() { "\"\"" } else { &message };
            writeln!(writer, ",\"msg\":{message}{rest}}}")
        } else {
            let call = if call_id.is_empty() {
                String::new()
            } else {
                format!(" [{call_id}]")
            };
            let message = if message.is_empty() {
                String::new()
            } else {
                format!(" {message}")
            };
            writeln!(writer, "{ts} {level:<5}{call}{message}{rest}")
        }
    }
}

/// RFC 3339 in UTC with milliseconds; a reading outside the calendar shows as its number.
fn timestamp(at: Wall) -> String {
    Timestamp::from_millisecond(at.0).map_or_else(|_| at.0.to_string(), |t| format!("{t:.3}"))
}

/// The fields of one event, already written in the form of the line.
#[derive(Default)]
struct Fields {
    json: bool,
    call_id: String,
    message: String,
    rest: String,
}

impl Fields {
    fn put(&mut self, field: &Field, written: &str) {
        match field.name() {
            "message" => written.clone_into(&mut self.message),
            CALL_ID => written.clone_into(&mut self.call_id),
            name => {
                let name = name.strip_prefix(RAW).unwrap_or(name);
                let name = name.strip_prefix("r#").unwrap_or(name);
                let wrote = if self.json {
                    write!(self.rest, ",\"{name}\":{written}")
                } else {
                    write!(self.rest, " {name}={written}")
                };
                wrote.expect("a String takes every write");
            }
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name().starts_with(RAW) {
            self.put(field, value);
        } else if self.json {
            self.put(field, &json_string(value));
        } else {
            self.put(field, &plain(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, &value.to_string());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, &value.to_string());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, if value { "true" } else { "false" });
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let written = if value.is_finite() {
            value.to_string()
        } else {
            "null".to_owned()
        };
        self.put(field, &written);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            write!(text, ": {cause}").expect("a String takes every write");
            source = cause.source();
        }
        self.record_str(field, &text);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn json_string(value: &str) -> String {
    serde_json::to_string(value).expect("a string is valid JSON")
}

/// Text for a terminal: control characters could move its cursor or forge a line.
fn plain(value: &str) -> String {
    let shown = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.into()
        }
    };
    value.chars().map(shown).collect()
}
