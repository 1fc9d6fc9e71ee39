//! The file: read twice, and held to being the same both times.
//!
//! Once to see that it can be used and to make its name, once to submit it. Standard input, and
//! whatever else can be read only once, is written to a temporary file first; so a submission can
//! begin again after the gateway was restarted.

use std::collections::VecDeque;
use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use encoding_rs::{Decoder, DecoderResult, Encoding};
use sha2::{Digest, Sha256};

use super::super::exit::Failure;
use crate::batch::recipe::Recipe;
use crate::batch::rows::{BadRow, Format, Rows, Trouble};
use crate::telemetry::log::visible;

/// Bad rows told in full.
const BAD_TOLD_MAX: usize = 20;

/// Bytes decoded at once.
const PIECE: usize = 64 << 10;

/// The longest character in UTF-8.
const CHAR_BYTES: usize = 4;

/// Where the rows are.
pub(super) struct Source {
    path: PathBuf,
    /// What it is called where somebody is told of it.
    shown: String,
    encoding: Option<&'static Encoding>,
    /// Removes the copy of standard input or of a pipe.
    _spooled: Option<tempfile::TempPath>,
}

/// What the first reading found.
pub(super) struct Looked {
    pub(super) digest: [u8; 32],
    pub(super) rows: u64,
    pub(super) bad: u64,
    pub(super) bad_rows: Vec<BadRow>,
}

/// A reader that hashes what passes.
pub(super) struct Hashed<R> {
    inner: R,
    hash: Sha256,
}

/// A reader that turns another encoding into UTF-8.
struct Decoded<R> {
    inner: R,
    decoder: Decoder,
    name: &'static str,
    raw: Vec<u8>,
    /// What of `raw` is there, and what of it is decoded.
    filled: usize,
    taken: usize,
    over: bool,
    finished: bool,
    /// The rest of a character that did not fit.
    rest: VecDeque<u8>,
}

impl Source {
    /// Finds the file; copies standard input or a pipe into one.
    pub(super) fn open(path: &Path, encoding: Option<&str>) -> Result<Self, Failure> {
        let encoding = encoding.map(encoding_of).transpose()?;
        let is_stdin = path.as_os_str() == "-";
        // What is not there or is a folder is told by the first reading.
        let is_once = |kind: FileType| !kind.is_file() && !kind.is_dir();
        if !is_stdin && !fs::metadata(path).is_ok_and(|found| is_once(found.file_type())) {
            return Ok(Self {
                path: path.to_owned(),
                shown: visible(&path.to_string_lossy()),
                encoding,
                _spooled: None,
            });
        }
        let (spooled, shown) = if is_stdin {
            let shown = "standard input".to_owned();
            (copied(&mut io::stdin().lock(), &shown)?, shown)
        } else {
            let shown = visible(&path.to_string_lossy());
            let pipe = File::open(path);
            let mut pipe = pipe.map_err(|error| Failure::Usage(cannot_read(&shown, &error)))?;
            (copied(&mut pipe, &shown)?, shown)
        };
        Ok(Self {
            path: spooled.to_path_buf(),
            shown,
            encoding,
            _spooled: Some(spooled),
        })
    }

    /// Reads it from its beginning, as UTF-8.
    pub(super) fn read(&self) -> io::Result<Hashed<Box<dyn Read + Send>>> {
        let told =
            |error: io::Error| io::Error::new(error.kind(), cannot_read(&self.shown, &error));
        let file = File::open(&self.path).map_err(told)?;
        if file.metadata().map_err(told)?.is_dir() {
            let what = format!(
                "{} is a folder; push the files in it one by one",
                self.shown
            );
            return Err(io::Error::other(what));
        }
        let inner: Box<dyn Read + Send> = match self.encoding {
            None => Box::new(file),
            Some(encoding) => Box::new(Decoded::new(file, encoding)),
        };
        Ok(Hashed {
            inner,
            hash: Sha256::new(),
        })
    }

    /// Reads all of it and says what it holds.
    pub(super) fn look(&self, format: Format, recipe: &Recipe) -> Result<Looked, String> {
        let file = self.read().map_err(|error| error.to_string())?;
        let told = |trouble: Trouble| format!("{}: {trouble}", self.shown);
        let mut looked = Looked {
            digest: [0; 32],
            rows: 0,
            bad: 0,
            bad_rows: Vec::new(),
        };
        let mut hashed = file;
        let mut rows = Rows::open(format, &mut hashed).map_err(told)?;
        if let Some(columns) = rows.columns() {
            recipe.check(columns)?;
        }
        while let Some(row) = rows.row().map_err(told)? {
            looked.rows += 1;
            // The path is the route's affair; whether the row fills its places is not.
            let bad = match row {
                Ok(row) => recipe.make(&row, "/").err().map(|why| BadRow {
                    line: row.line,
                    why,
                }),
                Err(bad) => Some(bad),
            };
            if let Some(bad) = bad {
                looked.bad += 1;
                if looked.bad_rows.len() < BAD_TOLD_MAX {
                    looked.bad_rows.push(bad);
                }
            }
        }
        drop(rows);
        looked.digest = hashed.digest();
        Ok(looked)
    }
}

fn cannot_read(shown: &str, error: &io::Error) -> String {
    format!(
        "{shown} cannot be read: {error}; name a CSV or a file of JSON lines, or - for \
         standard input"
    )
}

/// Copies what can be read only once into a file.
fn copied(from: &mut dyn Read, shown: &str) -> Result<tempfile::TempPath, Failure> {
    let folder = std::env::temp_dir();
    let cannot = |error: io::Error| {
        Failure::Usage(format!(
            "{shown} cannot be copied into a file in {} before it is submitted: {error}. Name \
             another folder by TMPDIR, or push a file",
            folder.display()
        ))
    };
    let mut copy = tempfile::NamedTempFile::new_in(&folder).map_err(cannot)?;
    io::copy(from, copy.as_file_mut()).map_err(cannot)?;
    Ok(copy.into_temp_path())
}

fn encoding_of(label: &str) -> Result<&'static Encoding, Failure> {
    Encoding::for_label(label.as_bytes()).ok_or_else(|| {
        Failure::Usage(format!(
            "`{label}` is no encoding; there are gbk, gb18030, big5, shift_jis, euc-kr, utf-16le, \
             windows-1252 and the others of the WHATWG list"
        ))
    })
}

impl<R> Hashed<R> {
    /// Of what has passed.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.hash.clone().finalize().into()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(into)?;
        self.hash.update(&into[..n]);
        Ok(n)
    }
}

impl<R: Read> Decoded<R> {
    fn new(inner: R, encoding: &'static Encoding) -> Self {
        Self {
            inner,
            decoder: encoding.new_decoder_with_bom_removal(),
            name: encoding.name(),
            raw: vec![0; PIECE],
            filled: 0,
            taken: 0,
            over: false,
            finished: false,
            rest: VecDeque::new(),
        }
    }
}

impl<R: Read> Read for Decoded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        // A character may need four bytes; a smaller buffer takes it in pieces.
        if self.rest.is_empty() && into.len() < CHAR_BYTES {
            let mut one = [0; CHAR_BYTES];
            let written = self.decode(&mut one)?;
            self.rest.extend(&one[..written]);
        }
        if self.rest.is_empty() {
            return self.decode(into);
        }
        self.rest.read(into)
    }
}

impl<R: Read> Decoded<R> {
    /// Decodes into a buffer that takes any character.
    fn decode(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.finished {
                return Ok(0);
            }
            if self.taken == self.filled && !self.over {
                self.filled = self.inner.read(&mut self.raw)?;
                self.taken = 0;
                self.over = self.filled == 0;
            }
            let raw = &self.raw[self.taken..self.filled];
            let (result, read, written) = self
                .decoder
                .decode_to_utf8_without_replacement(raw, into, self.over);
            self.taken += read;
            match result {
                DecoderResult::Malformed(..) => {
                    let what = format!("it is no {}: --encoding names another one", self.name);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                DecoderResult::InputEmpty => self.finished = self.over,
                DecoderResult::OutputFull => {}
            }
            if written > 0 {
                return Ok(written);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::recipe::Typed;

    fn written(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.csv");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    fn text(bytes: &[u8], encoding: Option<&str>) -> Result<String, String> {
        let (_folder, path) = written(bytes);
        let source = Source::open(&path, encoding).map_err(|failure| failure.to_string())?;
        let mut text = String::new();
        let mut file = source.read().map_err(|error| error.to_string())?;
        file.read_to_string(&mut text)
            .map_err(|error| error.to_string())?;
        Ok(text)
    }

    #[test]
    fn another_encoding_becomes_utf_8() {
        // "单号" in GBK, and "é" in UTF-16 with its mark.
        let gbk = text(b"\xb5\xa5\xba\xc5,b\n", Some("gbk"));
        assert_eq!(gbk.unwrap(), "单号,b\n");
        let utf16 = text(b"\xff\xfe\xe9\0\n\0", Some("utf-16le"));
        assert_eq!(utf16.unwrap(), "é\n");
        let long = [&b"\xb5\xa5"[..]; 100_000].concat();
        assert_eq!(
            text(&long, Some("GB2312")).unwrap().chars().count(),
            100_000
        );
        assert!(text(b"\xb5", Some("gbk")).unwrap_err().contains("no GBK"));
        assert!(text(b"", Some("klingon")).unwrap_err().contains("gb18030"));
    }

    #[test]
    fn a_look_finds_bad_rows_and_makes_the_digest() {
        let (_folder, path) = written(b"no,b\n1,2\n3\n,4\n");
        let source = Source::open(&path, None).unwrap();
        let typed = Typed {
            path: Some("/t/{no}".to_owned()),
            ..Typed::default()
        };
        let recipe = Recipe::read(&typed).unwrap();
        let looked = source.look(Format::Csv, &recipe).unwrap();
        assert_eq!((looked.rows, looked.bad), (3, 2));
        let lines: Vec<_> = looked.bad_rows.iter().map(|row| row.line).collect();
        assert_eq!(lines, [3, 4]);
        let expected: [u8; 32] = Sha256::digest(b"no,b\n1,2\n3\n,4\n").into();
        assert_eq!(looked.digest, expected);
        let gone = Source::open(Path::new("/nowhere/x.csv"), None).unwrap();
        let why = gone.look(Format::Csv, &recipe).err().unwrap();
        assert!(why.contains("/nowhere/x.csv"), "{why}");
    }
}
