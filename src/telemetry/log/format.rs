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

use super::visible;
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
            let level = match level {
                "ERROR" => "error",
                "WARN" => "warn",
                "INFO" => "info",
                "DEBUG" => "debug",
                _ => "trace",
            };
            let message = if message.is_empty() { "\"\"" } else { &message };
            for part in ["{\"ts\":\"", &ts, "\",\"level\":\"", level, "\""] {
                writer.write_str(part)?;
            }
            if !call_id.is_empty() {
                writer.write_str(",\"call_id\":")?;
                writer.write_str(&call_id)?;
            }
            for part in [",\"msg\":", message, &rest, "}\n"] {
                writer.write_str(part)?;
            }
            Ok(())
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
    /// Where the value of `field` is written.
    fn place(&mut self, field: &Field) -> &mut String {
        match field.name() {
            "message" => &mut self.message,
            CALL_ID => &mut self.call_id,
            name => {
                let name = name.strip_prefix(RAW).unwrap_or(name);
                let name = name.strip_prefix("r#").unwrap_or(name);
                let (before, after) = if self.json {
                    (",\"", "\":")
                } else {
                    (" ", "=")
                };
                for part in [before, name, after] {
                    self.rest.push_str(part);
                }
                &mut self.rest
            }
        }
    }

    fn put(&mut self, field: &Field, written: impl fmt::Display) {
        write!(self.place(field), "{written}").expect("a String takes every write");
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        let (is_raw, json) = (field.name().starts_with(RAW), self.json);
        let place = self.place(field);
        if is_raw {
            place.push_str(value);
        } else if json {
            put_json(place, value);
        } else {
            place.push_str(&visible(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.put(field, value);
        } else {
            self.put(field, "null");
        }
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

/// A text as JSON. Nearly every one is plain, and there is a line for every call.
fn put_json(place: &mut String, value: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if value.bytes().all(is_plain) {
        for part in ["\"", value, "\""] {
            place.push_str(part);
        }
    } else {
        place.push_str(&serde_json::to_string(value).expect("a string is valid JSON"));
    }
}
