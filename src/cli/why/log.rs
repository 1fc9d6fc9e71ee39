//! A tool's own log, compared with what the gateway knows: JSON lines with a call id.
//!
//! A line tells of an execution only when it says so: many tools log an arrival too, and taking an
//! arrival for an execution would accuse a tool that recognises ids. What counted is told with the
//! result.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::call::history::ToolLog;
use crate::cli::exit::Failure;

/// Names a call id usually has, without case, `-` and `_`.
const ID_NAMES: [&str; 2] = ["callid", "xcallid"];

/// Fields whose word says what a line is about.
const WORD_NAMES: [&str; 7] = ["event", "msg", "message", "action", "kind", "type", "op"];

/// Words that tell of an execution.
const EXECUTION_WORDS: [&str; 5] = ["execut", "effect", "commit", "performed", "charged"];

/// How deep an id may lie in a line.
const DEPTH_MAX: usize = 4;

/// The longest line looked at; what is longer is no log line.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A shortened id this long is no coincidence.
const CUT_BYTES_MIN: usize = 8;

/// How many ids of a kind are named.
const NAMED_MAX: usize = 10;

/// The log of `callgate why --log`.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct LogArgs {
    /// Compare with the tool's own log: JSON lines with a call id
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// The log's field with the call id: a name, or a JSON pointer [default: callId, x-call-id ..]
    #[arg(long, value_name = "FIELD", requires = "log")]
    log_field: Option<String>,
    /// Text of a line that tells of an execution [default: a word such as `executed`, `effect` or
    /// `committed` in event, msg, message, action, kind, type or op]
    #[arg(long, value_name = "TEXT", requires = "log")]
    log_executed: Option<String>,
}

/// What a log said.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) found: ToolLog,
    /// What was taken for an execution.
    pub(super) how_counted: String,
    pub(super) lines: usize,
    /// Lines that are no JSON objects.
    pub(super) skipped: usize,
}

/// The call that is looked for.
struct Wanted {
    id: String,
    keys: Vec<String>,
    known: BTreeSet<String>,
}

impl LogArgs {
    /// Reads the log, if one is named, for the call of this document.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(&self, why: &Value) -> Result<Option<Read>, Failure> {
        let Some(path) = &self.log else {
            return Ok(None);
        };
        let cannot = |error: std::io::Error| {
            Failure::Usage(format!(
                "the log {} cannot be read: {error}; --log wants the tool's log, one JSON object a \
                 line",
                path.display()
            ))
        };
        let file = File::open(path).map_err(cannot)?;
        let read = self
            .compare(BufReader::new(file), &Wanted::of(why))
            .map_err(cannot)?;
        self.judge(read, path).map(Some)
    }

    /// A log without a single call id was read with the wrong name of its field.
    fn judge(&self, read: Read, path: &Path) -> Result<Read, Failure> {
        if read.lines > 0 && read.skipped == read.lines {
            return Err(Failure::Usage(format!(
                "{} holds no JSON lines; --log wants one JSON object a line",
                path.display()
            )));
        }
        Ok(read)
    }

    fn compare(&self, mut log: impl std::io::BufRead, wanted: &Wanted) -> std::io::Result<Read> {
        let mut read = Read {
            found: ToolLog::default(),
            how_counted: self.how_counted(),
            lines: 0,
            skipped: 0,
        };
        let (mut executions, mut any_executed) = (0, false);
        let (mut altered, mut strangers) = (BTreeSet::new(), BTreeSet::new());
        let mut line = Vec::new();
        loop {
            line.clear();
            if log
                .by_ref()
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)?
                == 0
            {
                break;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            read.lines += 1;
            let Ok(Value::Object(object)) = serde_json::from_slice(&line) else {
                read.skipped += 1;
                continue;
            };
            let object = Value::Object(object);
            let executed = self.is_execution(&object, &line);
            any_executed |= executed;
            let Some(id) = self.id_of(&object) else {
                continue;
            };
            if id == wanted.id {
                read.found.lines += 1;
                executions += usize::from(executed);
            } else if wanted.is_altered(&id) {
                altered.insert(id);
            } else if wanted.has_key(&object) && !wanted.known.contains(&id) {
                strangers.insert(id);
            }
        }
        read.found.executions = (any_executed && read.found.lines > 0).then_some(executions);
        read.found.altered = altered.into_iter().take(NAMED_MAX).collect();
        read.found.strangers = strangers.into_iter().take(NAMED_MAX).collect();
        Ok(read)
    }

    fn how_counted(&self) -> String {
        match &self.log_executed {
            Some(text) => format!("lines with `{text}`"),
            None => "lines that say executed, effect, committed; else name the text with \
                     --log-executed"
                .to_owned(),
        }
    }

    fn is_execution(&self, object: &Value, line: &[u8]) -> bool {
        if let Some(text) = &self.log_executed {
            return !text.is_empty()
                && line.windows(text.len()).any(|part| part == text.as_bytes());
        }
        let Value::Object(fields) = object else {
            return false;
        };
        fields.iter().any(|(name, value)| {
            let word = value.as_str().unwrap_or_default().to_ascii_lowercase();
            WORD_NAMES.contains(&&*plain(name))
                && EXECUTION_WORDS.iter().any(|stem| word.contains(stem))
        })
    }

    fn id_of(&self, object: &Value) -> Option<String> {
        let found = match self.log_field.as_deref() {
            Some(pointer) if pointer.starts_with('/') => object.pointer(pointer),
            Some(name) => find(object, &|field| plain(field) == plain(name), DEPTH_MAX),
            None => find(
                object,
                &|field| ID_NAMES.contains(&&*plain(field)),
                DEPTH_MAX,
            ),
        };
        match found? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            // Header fields are often logged as lists.
            Value::Array(list) => list.first()?.as_str().map(str::to_owned),
            Value::Null | Value::Bool(_) | Value::Object(_) => None,
        }
    }
}

impl Wanted {
    fn of(why: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let others = why["others"].as_array().map_or(&[][..], Vec::as_slice);
        let keys = [&why["idempotencyKey"], &why["businessKey"]];
        Self {
            id: text(&why["callId"]).unwrap_or_default(),
            keys: keys.into_iter().filter_map(text).collect(),
            known: others
                .iter()
                .filter_map(|other| text(&other["callId"]))
                .collect(),
        }
    }

    /// Whether an id is the wanted one, changed on the way: its case, its escapes, its end.
    fn is_altered(&self, id: &str) -> bool {
        let decoded = percent_decode_str(id).decode_utf8_lossy();
        let cut = id.len() >= CUT_BYTES_MIN && self.id.starts_with(id);
        id.eq_ignore_ascii_case(&self.id)
            || id.trim() == self.id
            || (decoded != id && *decoded == *self.id)
            || cut
    }

    /// Whether the wanted call's key stands anywhere in a line.
    fn has_key(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.keys.iter().any(|key| key == text),
            Value::Array(list) => list.iter().any(|item| self.has_key(item)),
            Value::Object(fields) => fields.values().any(|item| self.has_key(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }
}

/// A field's name without what differs from log to log.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '-' | '_'));
    letters.collect::<String>().to_ascii_lowercase()
}

fn find<'a>(value: &'a Value, is: &dyn Fn(&str) -> bool, depth: usize) -> Option<&'a Value> {
    let Value::Object(fields) = value else {
        return None;
    };
    let here = fields
        .iter()
        .find(|(name, _)| is(name))
        .map(|(_, value)| value);
    here.or_else(|| {
        let below = depth.checked_sub(1)?;
        fields.values().find_map(|value| find(value, is, below))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(args: &LogArgs, log: &str) -> Read {
        let why = json!({
            "callId": "ORD-0001-x",
            "idempotencyKey": "k1",
            "businessKey": "order-7",
            "others": [{ "callId": "ORD-0002-x" }],
        });
        args.compare(log.as_bytes(), &Wanted::of(&why)).unwrap()
    }

    #[test]
    fn executions_are_counted_where_a_line_says_so() {
        let log = r#"{"event":"received","callId":"ORD-0001-x"}
            {"event":"executed","callId":"ORD-0001-x"}
            {"level":"info","headers":{"X-Call-Id":["ORD-0001-x"]},"msg":"Effect committed"}
            not json
            {"event":"executed","callId":"else"}"#;
        let seen = read(&LogArgs::default(), log);
        assert_eq!((seen.found.lines, seen.found.executions), (3, Some(2)));
        assert_eq!((seen.lines, seen.skipped), (5, 1));
        // Arrivals alone tell nothing of executions.
        let arrivals = r#"{"msg":"POST /charge","call_id":"ORD-0001-x"}
            {"msg":"POST /charge","call_id":"ORD-0001-x"}"#;
        assert_eq!(read(&LogArgs::default(), arrivals).found.executions, None);
        let named = LogArgs {
            log_executed: Some("POST".to_owned()),
            ..LogArgs::default()
        };
        assert_eq!(read(&named, arrivals).found.executions, Some(2));
    }

    #[test]
    fn a_changed_id_and_a_stranger_with_the_key_are_told_apart() {
        let log = r#"{"callId":"ord-0001-X","event":"executed"}
            {"callId":"ORD%2D0001-x"}
            {"callId":"ORD-0001"}
            {"callId":"ORD-0002-x","key":"k1"}
            {"callId":"job-9","body":{"ref":["order-7"]}}
            {"callId":"job-8","body":{"ref":"order-8"}}"#;
        let found = read(&LogArgs::default(), log).found;
        assert_eq!(found.altered, ["ORD%2D0001-x", "ORD-0001", "ord-0001-X"]);
        assert_eq!(found.strangers, ["job-9"]);
        assert_eq!((found.lines, found.executions), (0, None));
    }

    #[test]
    fn the_field_can_be_named() {
        let log = r#"{"ctx":{"op-id":"ORD-0001-x"},"callId":"other","event":"executed"}"#;
        for field in ["/ctx/op-id", "OP_ID", "opid"] {
            let args = LogArgs {
                log_field: Some(field.to_owned()),
                ..LogArgs::default()
            };
            assert_eq!(read(&args, log).found.executions, Some(1), "{field}");
        }
    }

    #[test]
    fn a_file_without_json_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tool.log");
        std::fs::write(&path, "2026-11-01 charged\n2026-11-02 charged\n").unwrap();
        let args = |path: &Path| LogArgs {
            log: Some(path.to_owned()),
            ..LogArgs::default()
        };
        let refused = args(&path).read(&json!({})).unwrap_err().to_string();
        assert!(refused.contains("JSON"), "{refused}");
        let missing = args(&folder.path().join("no.log"))
            .read(&json!({}))
            .unwrap_err();
        assert!(missing.to_string().contains("cannot be read"), "{missing}");
    }
}
