//! Configuration: YAML as an operator writes it, and the proven values the rest of the house uses.
//!
//! Two stages: [`file`] reads strictly and knows positions, [`resolved`] holds values that need no
//! second look. Past this module no raw string names a thing. Deliberately absent: reading the
//! environment (a look-up function is passed in, so that tests and the demo bring their own) and
//! reload, which comes with its own issue.

mod build;
mod defaults;
pub mod file;
pub mod matcher;
mod print;
pub mod report;
pub mod resolved;
pub mod route;
pub mod schema;
pub mod snapshot;
pub mod template;
mod words;

pub use matcher::{Matcher, PathPattern};
pub use report::Report;
pub use resolved::{Admin, Config, Drain, LedgerConfig, LedgerUrl, Limits, Log, Notice, Secret};
pub use route::{ReceiptRule, Route, Upstream};

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use file::fill::escape;
use file::read::{Lookup, Reader};
use report::{Finding, MISTAKES_MAX, Mistake};

/// Where a configuration is looked for when none is named.
pub const DEFAULT_PLACES: [&str; 2] = ["callgate.yaml", "/etc/callgate/callgate.yaml"];

/// What `serve --tool URL` may say besides the address.
#[derive(Clone, Debug, Default)]
pub struct ToolOptions {
    /// Where the tool's receipts are, when it was found to have them: a path with `{call_id}`.
    pub receipt: Option<String>,
    /// Where callers connect.
    pub listen: Option<SocketAddr>,
    /// Where the operator connects.
    pub admin_listen: Option<SocketAddr>,
    /// `ledger.url`.
    pub ledger: Option<String>,
}

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
    // `callgate.yaml` has the empty parent, which joins to the working folder as it should.
    let base = path.parent().unwrap_or_else(|| Path::new(""));
    parse(&text, &name, base, &|variable| std::env::var(variable).ok())
}

/// Reads a configuration from `text`. Messages call it `name`, relative paths start at `base`, and
/// `lookup` fills `${NAME}` in.
///
/// # Errors
/// Every mistake in the text, in its order.
pub fn parse(text: &str, name: &str, base: &Path, lookup: Lookup<'_>) -> Result<Config, Report> {
    let tree = file::parse(text, name)?;
    let mut reader = Reader::new(lookup);
    let values = reader.section(&tree, file::keys::ROOT, &report::Path::default());
    let mut mistakes = reader.mistakes;
    match build::build(&values, base) {
        Ok(config) if mistakes.is_empty() => Ok(config),
        Ok(_) => Err(report(text, name, mistakes)),
        Err(more) => {
            mistakes.extend(more);
            Err(report(text, name, mistakes))
        }
    }
}

/// The configuration of `serve --tool URL`: one route for everything, every other value by default.
///
/// # Errors
/// What is wrong with the address or an option.
pub fn for_tool(url: &str, options: &ToolOptions) -> Result<Config, Report> {
    let mut route = serde_json::json!({
        "name": "tool",
        "upstream": { "url": escape(url) },
    });
    if let Some(receipt) = &options.receipt {
        route["receipt"] = serde_json::json!({ "url": escape(receipt) });
    }
    let mut root = serde_json::json!({ "routes": [route] });
    if let Some(listen) = options.listen {
        root["listen"] = listen.to_string().into();
    }
    if let Some(listen) = options.admin_listen {
        root["admin"] = serde_json::json!({ "listen": listen.to_string() });
    }
    if let Some(ledger) = &options.ledger {
        root["ledger"] = serde_json::json!({ "url": escape(ledger) });
    }
    // JSON is YAML, so the one reader proves these values too.
    parse(&root.to_string(), "--tool", Path::new(""), &|_| None).map_err(Report::without_places)
}

/// Reads a file, but never more than a configuration may have.
fn read(path: &Path) -> Result<String, String> {
    let hint = "name another with --config FILE, or write one: callgate init > callgate.yaml";
    let file = std::fs::File::open(path).map_err(|error| format!("{error}; {hint}"))?;
    let mut bytes = Vec::new();
    // One byte more than allowed, so that the reader can tell.
    let most = file::FILE_BYTES_MAX as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("{error}; {hint}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|b| *b == b'\n');
        format!("line {} is not UTF-8; save the file as UTF-8", line.count())
    })
}

/// Looks up where each mistake stands and puts them in the order of the file.
fn report(text: &str, name: &str, mut mistakes: Vec<Mistake>) -> Report {
    let left_out = mistakes.len().saturating_sub(MISTAKES_MAX);
    mistakes.truncate(MISTAKES_MAX);
    let mut findings: Vec<Finding> = mistakes
        .into_iter()
        .map(|mistake| {
            let position = file::position(text, &mistake.path, mistake.at);
            let source = position
                .filter(|_| !mistake.secret)
                .and_then(|at| text.lines().nth(at.line - 1))
                .map(str::to_owned);
            Finding {
                position,
                path: mistake.path.to_string(),
                message: mistake.message,
                source,
            }
        })
        .collect();
    findings.sort_by_key(|finding| finding.position);
    Report {
        file: name.to_owned(),
        findings,
        left_out,
    }
}

#[cfg(test)]
mod tests;
