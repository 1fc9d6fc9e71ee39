//! The clients: their names, and their keys out of their files.
//!
//! A key file holds one key a line, so that a new key can be valid beside the old one while callers
//! move over. A mistake names the client, the file and the line, never what stands there.

use std::io::Read;
use std::path::Path as FilePath;
use std::sync::Arc;

use super::scope::Scope;
use super::{Builder, names};
use crate::config::clients::{Client, KeyDigest};
use crate::config::load::open_plain;
use crate::config::report::Path;
use crate::config::route::Route;

/// The longest key file; a thousand times what one needs, and still nothing to run out of memory
/// with.
const KEY_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Keys one client may have at once: the old one, the new one, and some that were forgotten.
const KEYS_MAX: usize = 8;

/// Below this many characters a key can be guessed.
const KEY_BYTES_WISE: usize = 16;

impl Builder<'_> {
    /// Builds `clients`; one with a mistake is left out, since nothing is handed out then.
    pub(super) fn clients(&mut self, root: &Scope<'_>) -> Vec<Client> {
        let mut clients = Vec::new();
        let Some((elements, path)) = root.list("clients") else {
            return clients;
        };
        for (at, element) in elements.iter().enumerate() {
            let scope = Scope::new(element, &path.index(at));
            let name = self.parsed(&scope, "name", names::node);
            let keys = self.keys(&scope, name.as_deref().unwrap_or_default(), &clients);
            let (Some(name), Some((text, _))) = (name, scope.text("key_file")) else {
                continue;
            };
            if clients.iter().any(|earlier: &Client| earlier.name == name) {
                let message = format!("another client is called {name:?} already");
                self.refuse(&scope.blame(&["name"]), message);
            }
            clients.push(Client {
                name,
                key_file: self.base.join(text),
                keys,
                formerly: self
                    .each(&scope, "formerly", names::node)
                    .unwrap_or_default(),
            });
        }
        self.judge_former_clients(elements, &path, &clients);
        clients
    }

    /// Warns of routes that tell their tool who calls, when there is nobody to tell.
    pub(super) fn warn_about_lone_tenants(&mut self, routes: &[Arc<Route>]) {
        for (at, route) in routes.iter().enumerate() {
            if route.upstream.tenant_header.is_some() {
                let path = Path::default().key("routes").index(at).key("upstream");
                self.warn(
                    &path.key("tenant_header"),
                    "without `clients` the tool is told `anonymous` for every call",
                );
            }
        }
    }

    fn keys(&mut self, scope: &Scope<'_>, name: &str, others: &[Client]) -> Vec<KeyDigest> {
        let Some((text, at)) = scope.text("key_file") else {
            return Vec::new();
        };
        let file = self.base.join(text);
        let content = match read(&file) {
            Ok(content) => content,
            Err(why) => {
                self.refuse(&at, format!("cannot use {}: {why}", file.display()));
                return Vec::new();
            }
        };
        let mut keys = Vec::new();
        for (line, key) in content.split(|byte| *byte == b'\n').enumerate() {
            let key = key.trim_ascii();
            if !key.is_empty() {
                let line = format!("line {} of {}", line + 1, file.display());
                self.key(key, &line, &at, (&mut keys, others));
            }
        }
        if keys.is_empty() && !self.has_refused(&at) {
            let message = format!("{} holds no key; write one on a line", file.display());
            self.refuse(&at, message);
        }
        if content.split(|byte| *byte == b'\n').any(is_guessable) {
            self.warn(
                &at,
                format!(
                    "a key of the client {name:?} is shorter than {KEY_BYTES_WISE} characters and \
                     can be guessed; make one with: openssl rand -hex 32"
                ),
            );
        }
        keys
    }

    /// Takes one key of a file, unless somebody else could be taken for this client by it.
    fn key(
        &mut self,
        key: &[u8],
        line: &str,
        at: &Path,
        (keys, others): (&mut Vec<KeyDigest>, &[Client]),
    ) {
        if !key.iter().all(u8::is_ascii_graphic) {
            let message = format!("{line}: expected a key of visible ASCII without spaces");
            return self.refuse(at, message);
        }
        let digest = KeyDigest::of(key);
        let has_it = |client: &&Client| client.keys.contains(&digest);
        if let Some(other) = others.iter().find(has_it) {
            let message = format!(
                "{line}: the client {:?} has this key already; every client needs its own",
                other.name
            );
            return self.refuse(at, message);
        }
        if keys.contains(&digest) {
            return self.refuse(at, format!("{line}: this key stands in the file twice"));
        }
        if keys.len() == KEYS_MAX {
            let message = format!("{line}: expected at most {KEYS_MAX} keys; remove the old ones");
            return self.refuse(at, message);
        }
        keys.push(digest);
    }

    fn has_refused(&self, path: &Path) -> bool {
        self.mistakes.iter().any(|mistake| mistake.path == *path)
    }
}

fn read(file: &FilePath) -> Result<Vec<u8>, String> {
    let opened = open_plain(file).map_err(|error| error.to_string())?;
    let mut content = Vec::new();
    // One byte more than allowed, so that a longer file is told from a full one.
    opened
        .take(KEY_FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)
        .map_err(|error| error.to_string())?;
    if content.len() as u64 > KEY_FILE_BYTES_MAX {
        return Err("it is longer than 64 KiB, which is no key file".to_owned());
    }
    Ok(content)
}

fn is_guessable(line: &[u8]) -> bool {
    (1..KEY_BYTES_WISE).contains(&line.trim_ascii().len())
}
