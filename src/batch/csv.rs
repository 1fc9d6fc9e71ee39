//! A strict reader of CSV (RFC 4180), one record at a time.
//!
//! Written here and not taken from a library, because the usual readers are lenient: a quote that
//! is never closed swallows the rest of the file into one field, without an error and without a
//! bound. Here a record has a largest size, a stray quote is an error of its row, and a quote that
//! stays open is an error of the file, since nobody can say where the next row begins.

use std::io::{self, BufRead};

use super::rows::Trouble;

/// The largest record, quotes and all. Larger than any request body a route takes by default.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Physical lines of a file, counted, each with a largest size.
pub(super) struct Lines<R> {
    input: R,
    /// The number of the line that is read next, from 1.
    next: u32,
}

/// What one call of [`Lines::append`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line, its end included.
    Read,
    /// The line is longer than what is left of the bound; the rest of it was skipped.
    TooLong,
    /// The file is over.
    End,
}

/// One record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// Its fields, as bytes.
    Fields(Vec<Vec<u8>>),
    /// It cannot be read; the next line begins a new one.
    Broken(String),
}

/// A reader of records.
pub(super) struct Csv<R> {
    lines: Lines<R>,
    raw: Vec<u8>,
}

/// Where in a record the reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    FieldBegins,
    Bare,
    Quoted,
    /// Behind a quote inside a quoted field: its end, or half of a doubled one.
    AfterQuote,
}

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, next: 1 }
    }

    /// The number of the line that is read next.
    pub(super) const fn number(&self) -> u32 {
        self.next
    }

    /// Appends the next line to `raw`, which never grows past `most` bytes.
    pub(super) fn append(&mut self, raw: &mut Vec<u8>, most: usize) -> io::Result<Line> {
        let before = raw.len();
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                let nothing = raw.len() == before;
                self.next = self.next.saturating_add(u32::from(!nothing));
                return Ok(if nothing { Line::End } else { Line::Read });
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(chunk.len(), |at| at + 1);
            if raw.len() + taken > most {
                self.input.consume(taken);
                if end.is_none() {
                    self.skip()?;
                }
                self.next = self.next.saturating_add(1);
                return Ok(Line::TooLong);
            }
            raw.extend_from_slice(&chunk[..taken]);
            self.input.consume(taken);
            if end.is_some() {
                self.next = self.next.saturating_add(1);
                return Ok(Line::Read);
            }
        }
    }

    /// Skips to the end of the line.
    fn skip(&mut self) -> io::Result<()> {
        loop {
            let chunk = self.input.fill_buf()?;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let (taken, over) = match end {
                Some(at) => (at + 1, true),
                None => (chunk.len(), chunk.is_empty()),
            };
            self.input.consume(taken);
            if over {
                return Ok(());
            }
        }
    }
}

impl<R: BufRead> Csv<R> {
    pub(super) const fn new(lines: Lines<R>) -> Self {
        Self {
            lines,
            raw: Vec::new(),
        }
    }

    /// The next record with the line it begins on; empty lines are no records.
    ///
    /// # Errors
    /// The file cannot be read on.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Record)>, Trouble> {
        loop {
            let line = self.lines.number();
            self.raw.clear();
            match self.lines.append(&mut self.raw, RECORD_BYTES_MAX)? {
                Line::End => return Ok(None),
                Line::TooLong => return Ok(Some((line, too_long()))),
                Line::Read if without_end(&self.raw).is_empty() => {}
                Line::Read => return self.record(line).map(|record| Some((line, record))),
            }
        }
    }

    /// Reads the record whose first line is there, and as many lines more as its quotes ask for.
    fn record(&mut self, line: u32) -> Result<Record, Trouble> {
        let mut fields = Vec::new();
        let mut field = Vec::new();
        let mut place = Place::FieldBegins;
        let mut at = 0;
        loop {
            let whole = without_end(&self.raw).len();
            while at < self.raw.len() {
                // Inside quotes a line's end is a part of the field, as it stands.
                let (byte, ends) = (self.raw[at], at >= whole && place != Place::Quoted);
                if ends {
                    break;
                }
                at += 1;
                place = match (place, byte) {
                    (Place::FieldBegins, b'"') => Place::Quoted,
                    (Place::FieldBegins | Place::Bare | Place::AfterQuote, b',') => {
                        fields.push(std::mem::take(&mut field));
                        Place::FieldBegins
                    }
                    (Place::Bare, b'"') => return Ok(stray(fields.len())),
                    (Place::FieldBegins | Place::Bare, byte) => {
                        field.push(byte);
                        Place::Bare
                    }
                    (Place::Quoted, b'"') => Place::AfterQuote,
                    (Place::Quoted, byte) => {
                        field.push(byte);
                        Place::Quoted
                    }
                    (Place::AfterQuote, b'"') => {
                        field.push(b'"');
                        Place::Quoted
                    }
                    (Place::AfterQuote, _) => return Ok(behind_quote(fields.len())),
                };
            }
            if place != Place::Quoted {
                fields.push(field);
                return Ok(Record::Fields(fields));
            }
            match self.lines.append(&mut self.raw, RECORD_BYTES_MAX)? {
                Line::Read => {}
                Line::End | Line::TooLong => return Err(Trouble::OpenQuote { line }),
            }
        }
    }
}

/// A line without its end.
pub(super) fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

pub(super) fn too_long() -> Record {
    Record::Broken(format!(
        "the row is longer than {} MiB",
        RECORD_BYTES_MAX >> 20
    ))
}

fn stray(field: usize) -> Record {
    Record::Broken(format!(
        "field {} has a quote in its middle: put the whole field in quotes and double the quote \
         (\"\")",
        field + 1
    ))
}

fn behind_quote(field: usize) -> Record {
    Record::Broken(format!(
        "field {} goes on behind its closing quote: double the quotes inside it (\"\")",
        field + 1
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records(text: &[u8]) -> Result<Vec<(u32, Record)>, Trouble> {
        let mut csv = Csv::new(Lines::new(text));
        let mut all = Vec::new();
        while let Some(record) = csv.next()? {
            all.push(record);
        }
        Ok(all)
    }

    fn fields(of: &[&str]) -> Record {
        Record::Fields(of.iter().map(|field| field.as_bytes().to_vec()).collect())
    }

    fn check(text: &str, expected: Vec<(u32, Record)>) {
        assert_eq!(records(text.as_bytes()).unwrap(), expected, "{text:?}");
    }

    #[test]
    fn records_are_read_as_rfc_4180_writes_them() {
        check("", vec![]);
        check(
            "a,b\n1,2\n",
            vec![(1, fields(&["a", "b"])), (2, fields(&["1", "2"]))],
        );
        check(
            "a,b\r\n1,2",
            vec![(1, fields(&["a", "b"])), (2, fields(&["1", "2"]))],
        );
        check("\n\r\na\n", vec![(3, fields(&["a"]))]);
        check("a,,\n", vec![(1, fields(&["a", "", ""]))]);
        check(
            "\"a,b\",\"c\"\"d\",\"\"\n",
            vec![(1, fields(&["a,b", "c\"d", ""]))],
        );
        let two_lines = vec![(1, fields(&["a\r\nb", "c"])), (3, fields(&["d", "e"]))];
        check("\"a\r\nb\",c\nd,e\n", two_lines);
    }

    #[test]
    fn a_stray_quote_costs_its_row_only() {
        let found = records(b"a,b\"c\n\"x\"y,z\nok,1\n").unwrap();
        assert!(matches!(&found[0], (1, Record::Broken(why)) if why.contains("field 2")));
        assert!(matches!(&found[1], (2, Record::Broken(why)) if why.contains("closing quote")));
        assert_eq!(found[2], (3, fields(&["ok", "1"])));
    }

    #[test]
    fn an_open_quote_is_an_error_of_the_file_and_names_its_line() {
        for text in [&b"a,b\n1,\"2\n3,4\n"[..], b"a\n\"", b"x\n\"y\"\",z\n"] {
            let trouble = records(text).unwrap_err();
            assert!(
                matches!(trouble, Trouble::OpenQuote { line: 2 }),
                "{trouble}"
            );
        }
    }

    #[test]
    fn a_record_has_a_largest_size_and_the_next_one_is_found() {
        let mut text = vec![b'x'; RECORD_BYTES_MAX + 9];
        text.extend_from_slice(b"\nnext\n");
        let found = records(&text).unwrap();
        assert!(matches!(&found[0], (1, Record::Broken(why)) if why.contains("4 MiB")));
        assert_eq!(found[1], (2, fields(&["next"])));
    }

    fn written(records: &[Vec<String>]) -> String {
        let field = |field: &String| format!("\"{}\"", field.replace('"', "\"\""));
        let row = |row: &Vec<String>| row.iter().map(field).collect::<Vec<_>>().join(",") + "\r\n";
        records.iter().map(row).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_comes_back(
            rows in prop::collection::vec(prop::collection::vec("[a-z,\"\r\n é]{0,6}", 1..4), 0..6)
        ) {
            let found = records(written(&rows).as_bytes()).unwrap();
            let fields = found.into_iter().map(|(_, record)| match record {
                Record::Fields(fields) => fields
                    .into_iter()
                    .map(|field| String::from_utf8(field).unwrap())
                    .collect::<Vec<_>>(),
                Record::Broken(why) => panic!("{why}"),
            });
            prop_assert_eq!(fields.collect::<Vec<_>>(), rows);
        }

        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(records(&text));
        }
    }
}
