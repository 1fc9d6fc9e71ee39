//! Configuration: YAML as an operator writes it, and the proven values the rest of the house uses.
//!
//! Two stages: [`mod@file`] reads strictly and knows positions, [`resolved`] holds values that need
//! no second look. Past this module no raw string names a thing. Reading a text needs no
//! environment: a look-up function is passed in, so that tests and the demo bring their own; only
//! [`load()`] asks the real one. Deliberately absent: carrying out what a reload brings (`app`).

pub mod alert;
mod build;
pub mod clients;
mod defaults;
pub mod ejection;
pub mod file;
pub mod key_template;
pub mod limits;
mod load;
pub mod matcher;
pub mod memory;
mod print;
pub mod reload;
pub mod report;
pub mod resolved;
pub mod reversal;
pub mod route;
pub mod schema;
pub mod snapshot;
pub mod template;
mod words;

pub use load::{DEFAULT_PLACES, find_default, load};
pub use matcher::{Matcher, PathPattern};
pub use reload::Source;
pub use report::Report;
pub use resolved::{Admin, Config, Drain, LedgerConfig, LedgerUrl, Limits, Log, Notice, Secret};
pub use route::{ReceiptRule, Route, Upstream};

use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;

use file::fill::escape;
use file::read::{Lookup, Reader};
use report::{Finding, MISTAKES_MAX, Mistake};

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

/// Reads a configuration from `text`. Messages call it `name`, relative paths start at `base`, and
/// `lookup` fills `${NAME}` in.
///
/// # Errors
/// Every mistake in the text, in its order.
pub fn parse(text: &str, name: &str, base: &Path, lookup: Lookup<'_>) -> Result<Config, Report> {
    let tree = file::parse(text, name)?;
    let environment = RefCell::new(Vec::new());
    let noted = |wanted: &str| {
        let value = lookup(wanted)?;
        environment
            .borrow_mut()
            .push((wanted.to_owned(), value.clone()));
        Some(value)
    };
    let mut reader = Reader::new(&noted);
    let values = reader.section(&tree, file::keys::ROOT, &report::Path::default());
    let mut mistakes = reader.mistakes;
    match build::build(&values, base) {
        Ok(config) if mistakes.is_empty() => return Ok(config),
        Ok(_) => {}
        Err(more) => mistakes.extend(more),
    }
    for mistake in &mut mistakes {
        mask(&mut mistake.message, &environment.borrow());
    }
    Err(report(text, name, mistakes, &reader.secrets))
}

/// A shorter value is no secret worth the name, and would be found in half of all words.
const MASKED_BYTES_MIN: usize = 4;

/// Puts `${NAME}` back where a message shows what the environment said: a value that landed under
/// the wrong key may be a secret all the same.
fn mask(message: &mut String, environment: &[(String, String)]) {
    let long = |(_, value): &&(String, String)| value.len() >= MASKED_BYTES_MIN;
    for (name, value) in environment.iter().filter(long) {
        let escaped = value.escape_debug().to_string();
        for shown in [value.as_str(), escaped.as_str()] {
            if message.contains(shown) {
                *message = message.replace(shown, &format!("${{{name}}}"));
            }
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

/// Looks up where each mistake stands and puts them in the order of the file.
fn report(text: &str, name: &str, mut mistakes: Vec<Mistake>, secrets: &[String]) -> Report {
    let left_out = mistakes.len().saturating_sub(MISTAKES_MAX);
    mistakes.truncate(MISTAKES_MAX);
    let mut findings: Vec<Finding> = mistakes
        .into_iter()
        .map(|mistake| {
            let position = file::position(text, &mistake.path, mistake.at);
            let source = position
                .filter(|_| !mistake.secret)
                .and_then(|at| text.lines().nth(at.line - 1))
                .filter(|line| !secrets.iter().any(|secret| line.contains(secret.as_str())))
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
        unread: false,
    }
}

#[cfg(test)]
mod tests;
