//! The rows of a file: CSV with a header row, or one JSON object a line.
//!
//! Two kinds of trouble are told apart. A bad row is one row's own: it is reported with its line,
//! and the others go on. What makes the file unreadable as a whole (no header, another encoding, a
//! quote that stays open) ends the reading, because whatever follows could not be trusted.

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use super::csv::{Csv, Line, Lines, RECORD_BYTES_MAX, Record, too_long, without_end};
use crate::telemetry::log::visible;
use crate::upstream::json::Json;

/// How much of the file's start is looked at before anything is believed of it.
const LOOK_BYTES: usize = 8 << 10;

/// The most columns; more is a file of another kind.
const COLUMNS_MAX: usize = 1_000;

/// How rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Comma-separated, the first record names the columns.
    Csv,
    /// One JSON object a line.
    JsonLines,
}

/// Why a file cannot be read on. Each text ends with the next thing to do.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Nothing is in it.
    #[error("the file is empty: a CSV needs a header row and at least one more, JSON lines one")]
    Empty,
    /// A header and nothing else.
    #[error("the file has a header row and no other: there is nothing to push")]
    NoRows,
    /// Not a text.
    #[error(
        "the file is binary (a zero byte within its first 8 KiB): export it as CSV or JSON lines"
    )]
    Binary,
    /// UTF-16.
    #[error("the file is UTF-16: save it as UTF-8, or say `--encoding utf-16le` (or utf-16be)")]
    Utf16,
    /// Some other encoding.
    #[error(
        "line {line} is no UTF-8: save the file as UTF-8, or name its encoding, for example \
         `--encoding gbk`"
    )]
    Encoding {
        /// The line.
        line: u32,
    },
    /// The header row cannot be used.
    #[error("the header row cannot be used: {why}")]
    Header {
        /// What is wrong with it.
        why: String,
    },
    /// A quote stays open.
    #[error(
        "line {line} opens a quote that is never closed, so nobody can say where the next row \
         begins: close it, or double quotes inside a field (\"\")"
    )]
    OpenQuote {
        /// The line.
        line: u32,
    },
    /// More lines than a batch holds.
    #[error("the file has more than {most} lines: split it")]
    TooManyLines {
        /// The bound.
        most: u32,
    },
    /// It cannot be read.
    #[error("the file cannot be read on: {0}")]
    Read(#[from] io::Error),
}

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The line it begins on, from 1.
    pub line: u32,
    values: Values,
}

#[derive(Clone, Debug)]
enum Values {
    Fields {
        columns: Arc<[String]>,
        fields: Vec<String>,
    },
    Object {
        text: Bytes,
        map: Map<String, Value>,
    },
}

/// A row that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The line it begins on.
    pub line: u32,
    /// Why.
    pub why: String,
}

/// Reads rows, one at a time.
pub struct Rows<R> {
    source: Source<BufReader<R>>,
    /// Rows read, good or bad.
    read: u32,
}

enum Source<R> {
    Csv { csv: Csv<R>, columns: Arc<[String]> },
    JsonLines { lines: Lines<R>, raw: Vec<u8> },
}

impl Format {
    /// The format that a file's name says it has.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, ending) = name.rsplit_once('.')?;
        match ending.to_ascii_lowercase().as_str() {
            "csv" => Some(Self::Csv),
            "jsonl" | "ndjson" => Some(Self::JsonLines),
            _ => None,
        }
    }

    /// The format of a `Content-Type`.
    #[must_use]
    pub fn of_type(value: &str) -> Option<Self> {
        let kind = value.split(';').next().unwrap_or_default().trim();
        match kind.to_ascii_lowercase().as_str() {
            "text/csv" => Some(Self::Csv),
            "application/x-ndjson"
            | "application/ndjson"
            | "application/jsonl"
            | "application/json-lines" => Some(Self::JsonLines),
            _ => None,
        }
    }

    /// What it is called in a `Content-Type`.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv",
            Self::JsonLines => "application/x-ndjson",
        }
    }
}

impl<R: Read> Rows<R> {
    /// Looks at the beginning and reads the header.
    ///
    /// # Errors
    /// The file is of another kind than it should be.
    pub fn open(format: Format, input: R) -> Result<Self, Trouble> {
        let mut input = BufReader::with_capacity(LOOK_BYTES.max(64 << 10), input);
        let bom = look(&mut input)?;
        input.consume(bom);
        let begins = input.buffer().trim_ascii_start().first();
        if format == Format::Csv && begins == Some(&b'{') {
            return Err(Trouble::Header {
                why:
                    "it begins like JSON; JSON lines are pushed with `--format jsonl`, one object \
                      a line"
                        .to_owned(),
            });
        }
        let lines = Lines::new(input);
        let source = match format {
            Format::Csv => {
                let mut csv = Csv::new(lines);
                let columns = header(&mut csv)?;
                Source::Csv { csv, columns }
            }
            Format::JsonLines => Source::JsonLines {
                lines,
                raw: Vec::new(),
            },
        };
        Ok(Self { source, read: 0 })
    }

    /// The columns every row has; `None` where each row has its own.
    #[must_use]
    pub fn columns(&self) -> Option<&[String]> {
        match &self.source {
            Source::Csv { columns, .. } => Some(columns),
            Source::JsonLines { .. } => None,
        }
    }

    /// The next row.
    ///
    /// # Errors
    /// The file cannot be read on, or it had no row at all.
    pub fn row(&mut self) -> Result<Option<Result<Row, BadRow>>, Trouble> {
        let row = match &mut self.source {
            Source::Csv { csv, columns } => match csv.next()? {
                Some((line, record)) => Some(of_record(columns, line, record)?),
                None => None,
            },
            Source::JsonLines { lines, raw } => next_object(lines, raw)?,
        };
        match (&row, &self.source) {
            (Some(_), _) => self.read = self.read.saturating_add(1),
            (None, Source::Csv { .. }) if self.read == 0 => return Err(Trouble::NoRows),
            (None, _) if self.read == 0 => return Err(Trouble::Empty),
            (None, _) => {}
        }
        Ok(row)
    }
}

/// Looks at the first bytes; how many of them are a byte order mark.
fn look<R: Read>(input: &mut BufReader<R>) -> Result<usize, Trouble> {
    let first = input.fill_buf()?;
    if first.is_empty() {
        return Err(Trouble::Empty);
    }
    if first.starts_with(b"\xff\xfe") || first.starts_with(b"\xfe\xff") {
        return Err(Trouble::Utf16);
    }
    if first.iter().take(LOOK_BYTES).any(|byte| *byte == 0) {
        return Err(Trouble::Binary);
    }
    Ok(if first.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    })
}

fn header<R: BufRead>(csv: &mut Csv<R>) -> Result<Arc<[String]>, Trouble> {
    let refuse = |why: String| Err(Trouble::Header { why });
    let (line, fields) = match csv.next()? {
        None => return Err(Trouble::Empty),
        Some((_, Record::Broken(why))) => return refuse(why),
        Some((line, Record::Fields(fields))) => (line, fields),
    };
    if fields.len() > COLUMNS_MAX {
        return refuse(format!(
            "it has {} columns, more than {COLUMNS_MAX}",
            fields.len()
        ));
    }
    if let Some(why) = another_kind(&fields) {
        return refuse(why);
    }
    let mut columns: Vec<String> = Vec::with_capacity(fields.len());
    for field in fields {
        let name = String::from_utf8(field).map_err(|_| Trouble::Encoding { line })?;
        let name = name.trim().to_owned();
        if name.is_empty() {
            return refuse(format!("column {} has no name", columns.len() + 1));
        }
        if columns.contains(&name) {
            return refuse(format!("`{}` stands in it twice", visible(&name)));
        }
        columns.push(name);
    }
    Ok(Arc::from(columns))
}

/// What a header row is that was not written with commas and line feeds: every row behind it would
/// be told for something else.
fn another_kind(fields: &[Vec<u8>]) -> Option<String> {
    let mut pairs = fields.iter().flat_map(|field| field.windows(2));
    if pairs.any(|pair| pair[0] == b'\r' && pair[1] != b'\n') {
        return Some(
            "its lines end with a carriage return alone; save the file with line feeds (CSV for \
             Windows or Unix)"
                .to_owned(),
        );
    }
    let [only] = fields else { return None };
    let separators = [(b';', "semicolons"), (b'\t', "tabs"), (b'|', "bars")];
    let found = separators.into_iter().find(|(byte, _)| only.contains(byte));
    found.map(|(_, name)| {
        let shown = visible(&String::from_utf8_lossy(only));
        format!(
            "`{shown}` is one column, and looks like several that are separated by {name}; \
             separate them by commas"
        )
    })
}

/// A record as a row. Another encoding is the whole file's: rows that happen to be ASCII must not
/// go out while the others wait for `--encoding`.
fn of_record(
    columns: &Arc<[String]>,
    line: u32,
    record: Record,
) -> Result<Result<Row, BadRow>, Trouble> {
    let fields = match record {
        Record::Broken(why) => return Ok(Err(BadRow { line, why })),
        Record::Fields(fields) => fields,
    };
    let text = |field: Vec<u8>| String::from_utf8(field).map_err(|_| Trouble::Encoding { line });
    let fields: Vec<String> = fields.into_iter().map(text).collect::<Result<_, _>>()?;
    if fields.len() != columns.len() {
        let why = format!(
            "it has {} fields, the header row has {}",
            fields.len(),
            columns.len()
        );
        return Ok(Err(BadRow { line, why }));
    }
    Ok(Ok(Row {
        line,
        values: Values::Fields {
            columns: Arc::clone(columns),
            fields,
        },
    }))
}

fn next_object<R: BufRead>(
    lines: &mut Lines<R>,
    raw: &mut Vec<u8>,
) -> Result<Option<Result<Row, BadRow>>, Trouble> {
    loop {
        let line = lines.number();
        raw.clear();
        let bad = |why: String| Ok(Some(Err(BadRow { line, why })));
        match lines.append(raw, RECORD_BYTES_MAX)? {
            Line::End => return Ok(None),
            Line::TooLong => {
                let Record::Broken(why) = too_long() else {
                    continue;
                };
                return bad(why);
            }
            Line::Read => {}
        }
        let text = without_end(raw).trim_ascii();
        if text.is_empty() {
            continue;
        }
        if std::str::from_utf8(text).is_err() {
            return Err(Trouble::Encoding { line });
        }
        // Whoever reads the row elsewhere may take the other one.
        let doubled = Json::read(text).ok().and_then(Json::doubled_name);
        if let Some(name) = doubled {
            return bad(format!("the name `{}` stands in it twice", visible(&name)));
        }
        return match serde_json::from_slice::<Map<String, Value>>(text) {
            Ok(map) => Ok(Some(Ok(Row {
                line,
                values: Values::Object {
                    text: Bytes::copy_from_slice(text),
                    map,
                },
            }))),
            Err(error) => {
                // It speaks of a line of its own, which is always the first.
                let (said, column) = (error.to_string(), error.column());
                let said = said.split(" at line ").next().unwrap_or_default();
                bad(format!("it is no JSON object: {said} (column {column})"))
            }
        };
    }
}

impl Row {
    /// The value of a column as text; `None` when the row has none, or nothing that is a text.
    #[must_use]
    pub fn value(&self, column: &str) -> Option<Cow<'_, str>> {
        match &self.values {
            Values::Fields { columns, fields } => {
                let at = columns.iter().position(|name| name == column)?;
                fields.get(at).map(|field| Cow::Borrowed(field.as_str()))
            }
            Values::Object { map, .. } => match map.get(column)? {
                Value::String(text) => Some(Cow::Borrowed(text)),
                value @ (Value::Number(_) | Value::Bool(_)) => Some(Cow::Owned(value.to_string())),
                Value::Null | Value::Array(_) | Value::Object(_) => None,
            },
        }
    }

    /// The row as a JSON object: every field a string, or the line as it stands.
    #[must_use]
    pub fn object(&self) -> Bytes {
        match &self.values {
            Values::Object { text, .. } => text.clone(),
            Values::Fields { columns, fields } => {
                let pairs = columns.iter().zip(fields);
                let map: Map<String, Value> = pairs
                    .map(|(name, field)| (name.clone(), Value::from(field.as_str())))
                    .collect();
                Bytes::from(Value::Object(map).to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests;
