//! How results are shown: tables for people, JSON for programs.
//!
//! A table cell never moves the cursor: what tools and callers wrote is shown with its control
//! characters escaped. JSON is the gateway's document as it came.

mod csv;

use std::io::{self, Write};

use comfy_table::{Table, presets};
use serde_json::Value;

use crate::telemetry::log::visible;

/// How results are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// Columns for people
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One JSON document a line
    Ndjson,
    /// Comma-separated values with a heading (RFC 4180), for spreadsheets
    Csv,
}

/// Where results go, and in which form.
pub struct Printer<'a> {
    form: Output,
    /// What was asked for, where something was.
    asked: Option<Output>,
    out: &'a mut dyn Write,
}

/// One column of a list: its heading and the member it shows.
pub(super) type Column = (&'static str, &'static str);

impl<'a> Printer<'a> {
    /// Prints to `out`; tables, unless something else was asked for.
    pub fn new(asked: Option<Output>, out: &'a mut dyn Write) -> Self {
        Self {
            form: asked.unwrap_or_default(),
            asked,
            out,
        }
    }

    /// What was asked for, where something was.
    pub(super) const fn asked(&self) -> Option<Output> {
        self.asked
    }

    /// Whether it is a person who reads it.
    pub(super) fn is_table(&self) -> bool {
        self.form == Output::Table
    }

    /// A list: the columns of its items, or the page as it came. A spreadsheet gets the members
    /// `wide`, under their own names.
    pub(super) fn list(
        &mut self,
        page: &Value,
        columns: &[Column],
        wide: &[&str],
    ) -> io::Result<()> {
        let items = page["items"].as_array().map_or(&[][..], Vec::as_slice);
        match self.form {
            Output::Json => self.text(&format!("{page:#}\n")),
            Output::Ndjson => items
                .iter()
                .try_for_each(|item| writeln!(self.out, "{item}")),
            Output::Csv => self.text(&csv::rows(items, wide)),
            Output::Table if items.is_empty() => Ok(()),
            Output::Table => self.text(&rows(items, columns)),
        }
    }

    /// One thing: its table, or the document as it came.
    pub(super) fn one(&mut self, whole: &Value, table: &str) -> io::Result<()> {
        match self.form {
            Output::Table => self.text(table),
            Output::Json => self.text(&format!("{whole:#}\n")),
            Output::Ndjson => self.text(&format!("{whole}\n")),
            Output::Csv => self.text(&csv::one(whole)),
        }
    }

    /// Bytes as they come.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)
    }

    /// Text as it is.
    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }
}

/// Items as aligned columns with a heading.
pub(super) fn rows(items: &[Value], columns: &[Column]) -> String {
    let mut table = plain();
    table.set_header(columns.iter().map(|(heading, _)| *heading));
    for item in items {
        table.add_row(columns.iter().map(|(_, member)| cell(&item[*member])));
    }
    finish(&table)
}

/// Names and values, one pair a line; pairs without a value are left out.
pub(super) fn pairs(pairs: impl IntoIterator<Item = (&'static str, Value)>) -> String {
    let mut table = plain();
    for (name, value) in pairs {
        if !value.is_null() {
            table.add_row([name.to_owned(), cell(&value)]);
        }
    }
    finish(&table)
}

fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).force_no_tty();
    table
}

fn finish(table: &Table) -> String {
    // Every cell is padded by one; what is indented beyond that means it.
    let lines = table.lines().map(|line| {
        let line = line.trim_end();
        line.strip_prefix(' ').unwrap_or(line).to_owned()
    });
    lines.fold(String::new(), |text, line| text + &line + "\n")
}

/// A value as a person reads it.
fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => visible(text),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_is_aligned_and_cannot_move_the_cursor() {
        let items = [
            json!({"id": "ord-1", "state": "QUEUED", "error": "reset\u{1b}[2J", "round": 2}),
            json!({"id": "ord-1000", "state": "MANUAL", "error": "", "round": null}),
        ];
        let columns = [
            ("ID", "id"),
            ("STATE", "state"),
            ("ROUND", "round"),
            ("ERROR", "error"),
        ];
        let expected = "ID        STATE   ROUND  ERROR\n\
                        ord-1     QUEUED  2      reset\\u{1b}[2J\n\
                        ord-1000  MANUAL  -      -\n";
        assert_eq!(rows(&items, &columns), expected);
    }

    #[test]
    fn pairs_without_a_value_are_left_out() {
        let shown = pairs([
            ("id", json!("a")),
            ("gone", Value::Null),
            ("attempts", json!(3)),
            ("  late", json!(1)),
        ]);
        assert_eq!(shown, "id        a\nattempts  3\n  late    1\n");
    }
}
