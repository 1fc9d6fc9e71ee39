//! Alerts of a route: the webhook, what it is told of, what it is signed with.

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use super::scope::Scope;
use super::{Builder, names};
use crate::config::alert::{AlertRule, Hidden, SigningKey};
use crate::config::defaults;
use crate::config::load::open_plain;
use crate::config::report::Path;
use crate::config::route::Endpoint;
use crate::config::words::Word;

/// The longest secret file; a key has a few dozen bytes.
const SECRET_BYTES_MAX: u64 = 4 * 1024;

/// What makes no sense without a webhook.
const KEYS: [&str; 6] = [
    "on",
    "oldest_over",
    "repeat",
    "secret_file",
    "ca_file",
    "headers",
];

/// Below this a secret can be guessed.
const SECRET_BYTES_WISE: usize = 16;

impl Builder<'_> {
    /// Builds `compensation.alert`; `None` when nobody is to be told of anything.
    pub(super) fn alert(&mut self, scope: &Scope<'_>) -> Option<Arc<AlertRule>> {
        let on = self.each(scope, "on", |word| {
            Word::from_word(word).ok_or_else(String::new)
        });
        let oldest_over = scope.duration_set("oldest_over");
        let headers = self.own_headers(scope);
        let secret = self.secret(scope);
        let (endpoint, target) = self.webhook(scope)?;
        let rule = AlertRule {
            ca: self.ca_file(scope, "webhook", &endpoint),
            target: Hidden(Arc::from(target)),
            on: on.unwrap_or_else(|| defaults::ALERT_ON.to_vec()),
            oldest_over,
            repeat: scope.duration("repeat", defaults::ALERT_REPEAT),
            secret,
            headers,
            endpoint,
        };
        let silent = rule.on.is_empty() && rule.oldest_over.is_none();
        (!silent).then(|| Arc::new(rule))
    }

    /// The address that is told. It may hold a secret, so a mistake does not show it.
    fn webhook(&mut self, scope: &Scope<'_>) -> Option<(Endpoint, String)> {
        let Some((text, path)) = scope.text("webhook") else {
            if !scope.is_empty() && !scope.any_bad(&["webhook"]) {
                let message = "expected `webhook` beside it: the address that is told";
                self.refuse(&scope.blame(&KEYS), message);
            }
            return None;
        };
        webhook(text)
            .map_err(|expected| self.refuse_secret(&path, &format!("expected {expected}")))
            .ok()
    }

    fn secret(&mut self, scope: &Scope<'_>) -> Option<SigningKey> {
        let (text, at) = scope.text("secret_file")?;
        let path = self.base.join(text);
        let mut bytes = Vec::new();
        let read = open_plain(&path)
            .and_then(|file| file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            self.refuse(&at, format!("cannot read {}: {error}", path.display()));
            return None;
        }
        self.key_of(&bytes, path, &at)
    }

    /// The first line is the key, so that an editor's last line end does not become part of it.
    fn key_of(&mut self, bytes: &[u8], path: PathBuf, at: &Path) -> Option<SigningKey> {
        let file = path.display();
        let key = bytes.trim_ascii_end();
        if key.is_empty() || key.contains(&b'\n') || bytes.len() as u64 > SECRET_BYTES_MAX {
            let message = format!(
                "expected one line of at most {SECRET_BYTES_MAX} bytes in {file}: the secret that \
                 alerts are signed with; make one with: openssl rand -hex 32"
            );
            self.refuse(at, message);
            return None;
        }
        if key.len() < SECRET_BYTES_WISE {
            let message = format!(
                "the secret in {file} is shorter than {SECRET_BYTES_WISE} bytes and can be \
                 guessed; make one with: openssl rand -hex 32"
            );
            self.warn(at, message);
        }
        Some(SigningKey::new(path, key))
    }
}

/// An address with its path and query.
fn webhook(text: &str) -> Result<(Endpoint, String), String> {
    let (address, query) = text
        .split_once('?')
        .map_or((text, None), |(a, q)| (a, Some(q)));
    let endpoint = names::endpoint(address)?;
    if query.is_some_and(|query| query.contains('#')) {
        return Err("an http:// or https:// URL without fragment".to_owned());
    }
    // As it is written: a slash at the end may matter to who listens there.
    let path = address
        .split_once("://")
        .and_then(|(_, rest)| rest.find('/').map(|at| &rest[at..]));
    let mut target = path.unwrap_or("/").to_owned();
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    http::uri::PathAndQuery::try_from(target.as_str())
        .map_err(|_| "an http:// or https:// URL, percent-encoded".to_owned())?;
    // Kept in one place only, so that no print of the endpoint shows it.
    let endpoint = Endpoint {
        base_path: Arc::from(""),
        ..endpoint
    };
    Ok((endpoint, target))
}
