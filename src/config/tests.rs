//! Whole files through the reader: what is refused, where, and that nothing hides behind a first
//! mistake.

use super::*;

mod accepted;
mod addresses;
mod alerts;
mod chains;
mod clients;
mod refused;
mod reversal;

/// The environment of these tests.
fn environment(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("s3cret".to_owned()),
        "WORKERS" => Some("4".to_owned()),
        "WAIT" => Some("7s".to_owned()),
        "BARE" => Some("30".to_owned()),
        "YES" => Some("true".to_owned()),
        _ => None,
    }
}

fn read(text: &str) -> Result<Config, Report> {
    parse(
        text,
        "callgate.yaml",
        Path::new("/etc/callgate"),
        &environment,
    )
}

/// A file with one plain route, and `top` before it.
fn with_top(top: &str) -> String {
    format!("{top}\nroutes:\n  - name: r\n    upstream: {{ url: \"http://t\" }}\n")
}

/// A file whose one route also says `keys`, from line 4 on.
fn with_route(keys: &str) -> String {
    let keys = keys.replace('\n', "\n    ");
    format!("routes:\n  - name: r\n    upstream: {{ url: \"http://t\" }}\n    {keys}\n")
}

mod damaged;
