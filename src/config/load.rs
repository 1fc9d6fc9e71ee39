//! From a path to a configuration: the one place that reads the file and the environment.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::file::FILE_BYTES_MAX;
use super::report::Position;
use super::{Config, Report, parse};

/// Where a configuration is looked for when none is named.
pub const DEFAULT_PLACES: [&str; 2] = ["callgate.yaml", "/etc/callgate/callgate.yaml"];

/// The first of [`DEFAULT_PLACES`] that exists.
#[must_use]
pub fn find_default() -> Option<PathBuf> {
    DEFAULT_PLACES
        .map(PathBuf::from)
        .into_iter()
        .find(|place| place.is_file())
}

/// Loads the configuration file at `path`, filling `${NAME}` in from the environment.
///
/// # Errors
/// Every mistake in the file, or why it could not be read.
pub fn load(path: &Path) -> Result<Config, Report> {
    load_opened(path, File::open(path))
}

/// The same of a file that was opened, or could not be.
pub(super) fn load_opened(path: &Path, file: io::Result<File>) -> Result<Config, Report> {
    let name = path.display().to_string();
    let bytes = file.and_then(read).map_err(|error| {
        let hint = "name another with --config FILE, or write one: callgate init > callgate.yaml";
        Report::unread(&name, format!("{error}; {hint}"))
    })?;
    let text = text(bytes).map_err(|place| {
        let message = "not UTF-8; save the file as UTF-8".to_owned();
        Report::at(&name, place, message)
    })?;
    // Absolute, so that what is printed means the same wherever it is read.
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let base = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    parse(&text, &name, &base, &|variable| {
        std::env::var(variable).ok()
    })
}

/// Opens a file whose content is there: neither a pipe nor a device, which would be waited for.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    if std::fs::metadata(path)?.is_file() {
        return File::open(path);
    }
    Err(io::Error::other("it is no regular file"))
}

/// Reads a file, but never more than a configuration may have.
fn read(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the reader can tell.
    let most = FILE_BYTES_MAX as u64 + 1;
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file, or the place where it is none.
fn text(bytes: Vec<u8>) -> Result<String, Position> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let sound = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let sound = String::from_utf8_lossy(sound);
        let line = unmarked(&sound).rsplit('\n').next().unwrap_or("");
        Position {
            line: sound.matches('\n').count() + 1,
            column: line.chars().count() + 1,
        }
    })?;
    Ok(unmarked(&text).to_owned())
}

/// Some editors begin a file with a byte order mark, which is no part of it.
fn unmarked(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}
