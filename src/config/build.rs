//! From checked values to the proven configuration: defaults, inheritance, rules between keys.
//!
//! Building never stops at a mistake. Where a value was refused, its default stands in so that
//! everything else is still judged; a configuration with mistakes is never handed out.

use std::path::Path as FilePath;
use std::sync::Arc;

use super::defaults;
use super::file::read::{Value, has_credentials};
use super::report::{Mistake, Path};
use super::resolved::{Admin, Config, Drain, LedgerConfig, LedgerUrl, Limits, Log, Notice, Secret};
use super::route::Effects;
use scope::Scope;

mod addresses;
mod alert;
mod clients;
mod formerly;
mod limits;
pub(super) mod names;
mod receipt;
mod reversal;
mod route;
mod rules;
mod scope;
mod upstream;

/// The longest part of a call id that comes from the configuration.
const NAME_BYTES_MAX: usize = 48;

/// Builds the configuration from the checked values of the whole file.
///
/// # Errors
/// Every mistake found, in no particular order.
pub(super) fn build(root: &Value, base: &FilePath) -> Result<Config, Vec<Mistake>> {
    let mut builder = Builder {
        base,
        mistakes: Vec::new(),
        warnings: Vec::new(),
    };
    let config = builder.config(root);
    if builder.mistakes.is_empty() {
        Ok(Config {
            warnings: builder.warnings,
            ..config
        })
    } else {
        Err(builder.mistakes)
    }
}

/// What the parts of the build share.
struct Builder<'a> {
    /// The file's folder; relative paths start here.
    base: &'a FilePath,
    mistakes: Vec<Mistake>,
    warnings: Vec<Notice>,
}

impl Builder<'_> {
    fn config(&mut self, root: &Value) -> Config {
        let scope = Scope::new(root, &Path::default());
        let clients = self.clients(&scope);
        let routes = self.routes(&scope);
        let config = Config {
            node: self
                .parsed(&scope, "node", names::node)
                .unwrap_or_else(|| Arc::from(host_name())),
            log: log(&scope.section("log")),
            workers: scope.whole("workers", 0),
            listen: self
                .parsed(&scope, "listen", names::socket)
                .unwrap_or(defaults::LISTEN),
            limits: limits(&scope.section("limits")),
            admin: self.admin(&scope.section("admin")),
            ledger: self.ledger(&scope.section("ledger")),
            drain: drain(&scope.section("drain")),
            clients,
            routes,
            warnings: Vec::new(),
        };
        if config.listen == config.admin.listen && config.listen.port() != 0 {
            let path = scope.section("admin").blame(&["listen"]);
            self.refuse(
                &path,
                "callers already connect to this address; choose another port",
            );
        }
        self.judge_bodies(&scope.section("limits"), &config);
        let may_act = config
            .routes
            .iter()
            .any(|route| route.effects != Effects::None);
        if config.clients.is_empty() && !scope.any_bad(&["clients"]) {
            self.warn_about_lone_tenants(&config.routes);
        }
        if config.ledger.url == LedgerUrl::Memory && may_act {
            let path = scope.section("ledger").blame(&["url"]);
            self.warn(
                &path,
                "`memory:` under `effects: once` forgets every call when the process ends; use \
                 sqlite:callgate.db for anything that matters",
            );
        }
        config
    }

    fn admin(&mut self, scope: &Scope<'_>) -> Admin {
        let default = Admin::default();
        let token = scope.text("token").filter(|(text, _)| !text.is_empty());
        let sendable = |secret: &str| secret.bytes().all(|byte| byte.is_ascii_graphic());
        if let Some((text, _)) = &token
            && !sendable(text)
        {
            self.refuse(
                &scope.blame(&["token"]),
                "nobody can send this token; use visible ASCII without blanks",
            );
        }
        let admin = Admin {
            listen: self
                .parsed(scope, "listen", names::socket)
                .unwrap_or(default.listen),
            token: token.map(|(text, _)| Secret::new(text)),
        };
        let open = !admin.listen.ip().is_loopback() && admin.token.is_none();
        if open && !scope.any_bad(&["listen", "token"]) {
            self.refuse(
                &scope.blame(&["listen"]),
                "admin.token must be set when admin.listen is not loopback; set \
                 token: ${CALLGATE_ADMIN_TOKEN}, or listen on 127.0.0.1",
            );
        }
        admin
    }

    fn ledger(&mut self, scope: &Scope<'_>) -> LedgerConfig {
        let default = LedgerConfig::default();
        let base = self.base;
        let url = self.parsed(scope, "url", |text| names::ledger(text, base));
        LedgerConfig {
            url: url.unwrap_or_else(|| match default.url {
                LedgerUrl::Sqlite(path) => LedgerUrl::Sqlite(base.join(path)),
                LedgerUrl::Memory => LedgerUrl::Memory,
            }),
            sync: scope.word("sync", default.sync),
            queue: scope.whole("queue", default.queue),
            retention: scope.duration("retention", default.retention),
        }
    }

    /// Text that was written, parsed; a refusal is noted with what was expected.
    fn parsed<T>(
        &mut self,
        scope: &Scope<'_>,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let (text, path) = scope.text(key)?;
        self.parse(text, &path, parse)
    }

    fn parse<T>(
        &mut self,
        text: &str,
        path: &Path,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        match parse(text) {
            Ok(parsed) => Some(parsed),
            Err(expected) if has_credentials(text) => {
                self.refuse_secret(path, &format!("expected {expected}"));
                None
            }
            Err(expected) => {
                self.refuse(path, format!("expected {expected}, found {text:?}"));
                None
            }
        }
    }

    /// Every element of a list of text, parsed, each at most once.
    fn each<T: PartialEq>(
        &mut self,
        scope: &Scope<'_>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let (elements, path) = scope.list(key)?;
        let mut parsed = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let Value::Text(text) = element else { continue };
            let path = path.index(at);
            match self.parse(text, &path, &parse) {
                Some(twice) if parsed.contains(&twice) => {
                    self.refuse(&path, format!("{text:?} stands in this list twice"));
                }
                Some(new) => parsed.push(new),
                None => {}
            }
        }
        Some(parsed)
    }

    /// Notes a mistake; what several routes inherit is told once.
    fn refuse(&mut self, path: &Path, message: impl Into<String>) {
        let mistake = Mistake::value(path, message);
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    /// Notes a warning; what several routes inherit is told once.
    fn warn(&mut self, path: &Path, text: impl Into<String>) {
        let notice = Notice {
            path: path.to_string(),
            text: text.into(),
        };
        if !self.warnings.contains(&notice) {
            self.warnings.push(notice);
        }
    }
}

fn log(scope: &Scope<'_>) -> Log {
    let default = Log::default();
    Log {
        level: scope.word("level", default.level),
        format: scope.word("format", default.format),
    }
}

fn limits(scope: &Scope<'_>) -> Limits {
    let default = Limits::default();
    let connections = scope.whole("connections", default.connections);
    Limits {
        connections,
        connections_per_address: scope.whole("connections_per_address", connections),
        calls: scope.whole("calls", connections),
        bodies: scope.size("bodies", default.bodies),
        async_calls: scope.whole("async_calls", default.async_calls),
        headers: scope.whole("headers", default.headers),
        header_bytes: scope.size("header_bytes", default.header_bytes),
        header_timeout: scope.duration("header_timeout", default.header_timeout),
        body_timeout: scope.duration("body_timeout", default.body_timeout),
        keepalive: scope.duration("keepalive", default.keepalive),
    }
}

fn drain(scope: &Scope<'_>) -> Drain {
    let default = Drain::default();
    Drain {
        delay: scope.duration("delay", default.delay),
        grace: scope.duration("grace", default.grace),
    }
}

/// The machine's name, cut to what may stand in a call id.
fn host_name() -> String {
    let raw = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = raw
        .trim()
        .chars()
        .filter(|c| names::is_name_char(*c))
        .take(NAME_BYTES_MAX)
        .collect();
    if name.is_empty() {
        defaults::NODE.to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_host_name_may_stand_in_a_call_id() {
        let name = super::host_name();
        assert!(super::names::node(&name).is_ok(), "{name:?}");
    }
}
