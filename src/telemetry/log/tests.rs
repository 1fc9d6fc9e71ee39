use std::io;
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tracing::Level;

use super::call_line::{AttemptLine, CallLine};
use super::*;
use crate::call::id::{CallId, ClientName, IdSource};
use crate::call::outcome::{Cause, Outcome, Reading, Unclear};
use crate::call::receipt::{Answer, State};
use crate::telemetry::labels::Word;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What `events` log at 2026-11-01T12:00:00.007Z.
fn logged(json: bool, level: Level, events: impl FnOnce()) -> String {
    let captured = Captured::default();
    let writer = captured.clone();
    let subscriber = fmt()
        .with_max_level(level)
        .event_format(Lines {
            json,
            now: Arc::new(|| Wall(1_793_534_400_007)),
        })
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, events);
    let bytes = captured.0.lock().clone();
    String::from_utf8(bytes).expect("a log is UTF-8")
}

#[test]
fn a_line_is_json_with_time_level_and_call_id_first() {
    let line = logged(true, Level::INFO, || {
        tracing::warn!(
            round = 2,
            late = true,
            call_id = "a\"b",
            error = "x\ny",
            "parked"
        );
    });
    let expected = "{\"ts\":\"2026-11-01T12:00:00.007Z\",\"level\":\"warn\",\"call_id\":\"a\\\"b\",\
                    \"msg\":\"parked\",\"round\":2,\"late\":true,\"error\":\"x\\ny\"}\n";
    assert_eq!(line, expected);
    let parsed: serde_json::Value = serde_json::from_str(&line).expect("a line is JSON");
    assert_eq!(parsed["call_id"], "a\"b");
}

#[test]
fn an_event_without_a_call_has_no_call_id() {
    let line = logged(true, Level::INFO, || {
        tracing::info!("serving on {}", "127.0.0.1:8080")
    });
    let expected = "{\"ts\":\"2026-11-01T12:00:00.007Z\",\"level\":\"info\",\
                    \"msg\":\"serving on 127.0.0.1:8080\"}\n";
    assert_eq!(line, expected);
}

#[test]
fn an_error_is_logged_with_its_causes() {
    let error = LogError::Writer(io::Error::other("no more threads"));
    let line = logged(true, Level::INFO, || {
        tracing::error!(error = &error as &dyn std::error::Error, "no log");
    });
    assert!(line.contains("\"error\":\"the log's writer could not be started: no more threads\""));
}

#[test]
fn text_is_for_people_and_cannot_be_forged() {
    let line = logged(false, Level::INFO, || {
        tracing::info!(
            call_id = "ord-1",
            cause = "up\x1b[2J\nERROR forged",
            "sent again"
        );
    });
    let expected = "2026-11-01T12:00:00.007Z INFO  [ord-1] sent again \
                    cause=up\\u{1b}[2J\\nERROR forged\n";
    assert_eq!(line, expected);
}

#[test]
fn a_call_ends_in_one_line_with_its_attempts() {
    let id = CallId::parse(b"ord-1").unwrap();
    let client = ClientName::anonymous();
    let attempts = [
        AttemptLine {
            n: 1,
            cause: None,
            outcome: Outcome::Unclear(Unclear::Timeout),
            duration: Duration::from_millis(8_000),
            receipt: Some(Answer::NotFound),
            wait: Duration::ZERO,
        },
        AttemptLine {
            n: 2,
            cause: Some(Cause::Timeout),
            outcome: Outcome::Answered(Reading::by_status(StatusCode::BAD_GATEWAY)),
            duration: Duration::from_micros(12_340),
            receipt: Some(Answer::State(State::Success)),
            wait: Duration::from_millis(1_100),
        },
    ];
    let call = CallLine {
        call_id: Some(&id),
        source: Some(IdSource::Client),
        route: "orders",
        client: Some(&client),
        outcome: Word::Receipt,
        status: StatusCode::CREATED,
        code: None,
        attempts: &attempts,
        total: Duration::from_millis(9_200),
        recorded: Some(Duration::from_micros(800)),
        trace_id: Some("0af7651916cd43dd8448eb211c80319c"),
        clean: false,
    };
    let line = logged(true, Level::INFO, || call.emit());
    let expected = "{\"ts\":\"2026-11-01T12:00:00.007Z\",\"level\":\"info\",\"call_id\":\"ord-1\",\
        \"msg\":\"call\",\"route\":\"orders\",\"client\":\"anonymous\",\"outcome\":\"receipt\",\
        \"status\":201,\"id_source\":\"client\",\"attempts\":[\
        {\"n\":1,\"result\":\"timeout\",\"duration_ms\":8000.0,\"receipt\":\"NOT_FOUND\"},\
        {\"n\":2,\"cause\":\"timeout\",\"result\":\"5xx\",\"status\":502,\"duration_ms\":12.34,\
        \"receipt\":\"SUCCESS\",\"wait_ms\":1100.0}],\
        \"total_ms\":9200,\"recorded_ms\":0.8,\"trace_id\":\"0af7651916cd43dd8448eb211c80319c\"}\n";
    assert_eq!(line, expected);

    let clean = CallLine {
        clean: true,
        ..call
    };
    assert_eq!(logged(true, Level::INFO, || clean.emit()), "");
    assert_eq!(
        logged(true, Level::DEBUG, || clean.emit()).lines().count(),
        1
    );
}

#[test]
fn a_rejected_value_is_escaped_and_cut() {
    let table: [(&[u8], &str); 6] = [
        (b"a\tb", "a\\x09b"),
        (b"a\x80b", "a\\x80b"),
        (b"a\x1b[31m", "a\\x1b[31m"),
        (b"%0d%0aERROR forged", "%0d%0aERROR forged"),
        (b"a\\x09b", "a\\\\x09b"),
        (b"", ""),
    ];
    for (value, expected) in table {
        assert_eq!(escaped(value), expected, "{value:?}");
    }
    let long = escaped(&[b'a'; 8192]);
    assert_eq!(
        long,
        format!("{}.. (8192 bytes)", "a".repeat(REJECTED_BYTES_SHOWN))
    );
}

#[test]
fn a_trace_id_is_taken_only_from_a_valid_traceparent() {
    let id = "0af7651916cd43dd8448eb211c80319c";
    assert_eq!(trace_id(&format!("00-{id}-b7ad6b7169203331-01")), Some(id));
    let zero = "0".repeat(32);
    let bad = [
        String::new(),
        id.to_owned(),
        format!("00-{zero}-b7ad6b7169203331-01"),
        format!("00-{}-b7ad6b7169203331-01", id.to_uppercase()),
        format!("00-{id}-b7ad-01"),
    ];
    for value in bad {
        assert_eq!(trace_id(&value), None, "{value}");
    }
}
