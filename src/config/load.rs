//! From a path to a configuration: the one place that reads the file and the environment.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::file::FILE_BYTES_MAX;
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
    let name = path.display().to_string();
    let text = read(path).map_err(|message| Report::whole(&name, message))?;
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

/// Reads a file, but never more than a configuration may have.
fn read(path: &Path) -> Result<String, String> {
    let hint = "name another with --config FILE, or write one: callgate init > callgate.yaml";
    let file = std::fs::File::open(path).map_err(|error| format!("{error}; {hint}"))?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the reader can tell.
    let most = FILE_BYTES_MAX as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("{error}; {hint}"))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|b| *b == b'\n');
        format!("line {} is not UTF-8; save the file as UTF-8", line.count())
    })?;
    // Some editors begin a file with a byte order mark, which is no part of it.
    Ok(text
        .strip_prefix('\u{feff}')
        .map(str::to_owned)
        .unwrap_or(text))
}
