//! A configuration file in use: whether it changed, and what it says now beside what is in force.
//!
//! A change is seen by looking, not by being told: an editor that renames, a symlink that is
//! swapped and a network file system all look the same then. What cannot change without a restart
//! is refused together with everything else that is wrong, so that a file is in force as a whole or
//! not at all. Deliberately absent: carrying a change out, which is `app`'s.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::load::{load_opened, open_plain};
use super::report::{End, Finding, Report};
use super::{Config, file, report};

/// The file a gateway was started with.
#[derive(Clone, Debug)]
pub struct Source {
    file: PathBuf,
}

/// How the files of a configuration looked. Two looks that are equal saw the same files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look(Vec<(PathBuf, Option<Seen>)>);

/// One file: where its name leads, which file that is, and when it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    target: Option<PathBuf>,
    file: (u64, u64),
    written: (i64, i64),
    bytes: u64,
}

impl Source {
    /// The configuration in `file`.
    #[must_use]
    pub fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
        }
    }

    /// The file, as the operator named it.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// How the file looks now, and those that `config` was read from besides: keys of clients,
    /// certificates, keys that alerts are signed with.
    #[must_use]
    pub fn look(&self, config: &Config) -> Look {
        let keys = config.clients.iter().map(|client| &client.key_file);
        let of_routes = config.routes.iter().flat_map(|route| {
            let alert = route.alert.as_ref();
            let certificates = [
                route.upstream.ca.as_ref(),
                alert.and_then(|rule| rule.ca.as_ref()),
            ];
            let certificates = certificates.into_iter().flatten().map(|ca| ca.path.clone());
            let secret = alert.and_then(|rule| rule.secret.as_ref());
            certificates.chain(secret.map(|secret| secret.path().to_owned()))
        });
        let mut files: Vec<_> = keys.cloned().chain(of_routes).collect();
        files.sort_unstable();
        files.dedup();
        files.insert(0, self.file.clone());
        let look = |file: PathBuf| {
            let seen = seen(&file);
            (file, seen)
        };
        Look(files.into_iter().map(look).collect())
    }

    /// Whether the file can be read now, whatever it says.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        open_plain(&self.file).is_ok()
    }

    /// What the file says now. Only a regular file can be read more than once.
    ///
    /// # Errors
    /// Every mistake in it, or every key that differs from `running` and cannot change without a
    /// restart.
    pub fn load(&self, running: &Config) -> Result<Config, Report> {
        let config = load_opened(&self.file, open_plain(&self.file))?;
        let fixed = fixed(running, &config);
        if fixed.is_empty() {
            return Ok(config);
        }
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        let findings = fixed.into_iter().map(|key| Finding {
            position: place(&text, key),
            path: key.to_owned(),
            message: "cannot change while the gateway runs: restart it, or put the old value \
                      back; nothing of this file was applied"
                .to_owned(),
            source: None,
        });
        Err(Report {
            file: self.file.display().to_string(),
            findings: findings.collect(),
            left_out: 0,
            unread: false,
        })
    }
}

impl Look {
    /// Whether the configuration file is being written, as far as that shows: it is not there, or
    /// nothing is in it.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        let file = self.0.first().and_then(|(_, seen)| seen.as_ref());
        file.is_none_or(|seen| seen.bytes == 0)
    }
}

fn seen(file: &Path) -> Option<Seen> {
    let found = std::fs::metadata(file).ok()?;
    Some(Seen {
        target: std::fs::canonicalize(file).ok(),
        file: (found.dev(), found.ino()),
        written: (found.mtime(), found.mtime_nsec()),
        bytes: found.len(),
    })
}

/// The keys that differ and cannot.
fn fixed(running: &Config, wanted: &Config) -> Vec<&'static str> {
    let (is, shall) = (running, wanted);
    let (limits, limits_wanted) = (is.limits, shall.limits);
    let ledger = (&is.ledger, &shall.ledger);
    macro_rules! limit {
        ($($key:ident),*) => {
            [$((concat!("limits.", stringify!($key)), limits.$key != limits_wanted.$key),)*]
        };
    }
    let differs = [
        ("node", is.node != shall.node),
        ("log", is.log != shall.log),
        ("workers", is.workers != shall.workers),
        ("listen", is.listen != shall.listen),
        ("admin.listen", is.admin.listen != shall.admin.listen),
        ("admin.token", is.admin.token != shall.admin.token),
        ("ledger.url", ledger.0.url != ledger.1.url),
        ("ledger.sync", ledger.0.sync != ledger.1.sync),
        ("ledger.queue", ledger.0.queue != ledger.1.queue),
        ("ledger.retention", ledger.0.retention != ledger.1.retention),
    ];
    let limits = limit![
        connections,
        calls,
        bodies,
        async_calls,
        connections_per_address,
        headers,
        header_bytes,
        header_timeout,
        body_timeout,
        keepalive
    ];
    let all = differs.into_iter().chain(limits);
    let differing = all.filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// Where the value of a key stands; where it was left out, its nearest parent.
fn place(text: &str, key: &str) -> Option<report::Position> {
    let mut path = report::Path::default();
    for step in key.split('.') {
        path = path.key(step);
    }
    file::position(text, &path, End::Value)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::load;

    const FILE: &str = "ledger: { url: 'memory:' }\nroutes:\n- name: a\n  \
                        upstream: { url: 'http://127.0.0.1:1' }\n  receipt: {}\n";

    fn in_use(text: &str) -> (tempfile::TempDir, Source, Config) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("callgate.yaml");
        fs::write(&file, text).unwrap();
        let config = load(&file).unwrap();
        (folder, Source::new(&file), config)
    }

    #[test]
    fn every_way_a_file_is_replaced_is_seen() {
        let (folder, source, config) = in_use(FILE);
        let file = folder.path().join("callgate.yaml");
        let mut last = source.look(&config);
        assert_eq!(source.look(&config), last);
        let mut changed = |what: &str| {
            let now = source.look(&config);
            assert_ne!(now, last, "{what}");
            last = now;
        };
        fs::write(&file, format!("{FILE}# longer\n")).unwrap();
        changed("written over");
        let other = folder.path().join("other.yaml");
        fs::write(&other, format!("{FILE}# longer\n")).unwrap();
        fs::rename(&other, &file).unwrap();
        changed("renamed over");
        // As a ConfigMap is mounted: the name leads to a folder that leads to another one.
        let data = folder.path().join("..data");
        for version in ["one", "two"] {
            fs::create_dir(folder.path().join(version)).unwrap();
            fs::write(folder.path().join(version).join("callgate.yaml"), FILE).unwrap();
        }
        std::os::unix::fs::symlink("one", &data).unwrap();
        fs::remove_file(&file).unwrap();
        changed("gone");
        assert!(source.look(&config).is_unfinished());
        std::os::unix::fs::symlink("..data/callgate.yaml", &file).unwrap();
        changed("a link");
        let swapped = folder.path().join("..data_tmp");
        std::os::unix::fs::symlink("two", &swapped).unwrap();
        fs::rename(&swapped, &data).unwrap();
        changed("a link on the way was swapped");
        fs::write(folder.path().join("two/callgate.yaml"), "").unwrap();
        changed("emptied");
        assert!(source.look(&config).is_unfinished());
    }

    #[test]
    fn the_keys_and_certificates_beside_it_are_looked_at_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("callgate.yaml");
        let (ca, key) = (folder.path().join("ca.pem"), folder.path().join("key"));
        let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        fs::write(&ca, pem).unwrap();
        fs::write(&key, "one secret").unwrap();
        let alert = "  compensation: { alert: { webhook: 'https://h', ca_file: ca.pem, \
                     secret_file: key } }\n";
        fs::write(&file, format!("{FILE}{alert}")).unwrap();
        let source = Source::new(&file);
        let config = load(&file).unwrap();
        for beside in [ca, key] {
            let before = source.look(&config);
            fs::write(&beside, "another text").unwrap();
            assert_ne!(source.look(&config), before, "{}", beside.display());
        }
    }

    #[test]
    fn what_needs_a_restart_is_refused_with_its_place_and_the_rest_is_taken() {
        let (folder, source, config) = in_use(FILE);
        let file = folder.path().join("callgate.yaml");
        let route = "- name: b\n  upstream: { url: 'http://127.0.0.1:2' }\n  receipt: {}\n";
        fs::write(&file, format!("drain: {{ grace: 3s }}\n{FILE}{route}")).unwrap();
        let taken = source.load(&config).unwrap();
        assert_eq!((taken.routes.len(), taken.drain.grace.as_secs()), (2, 3));
        fs::write(
            &file,
            format!("workers: 3\nlimits:\n  keepalive: 1s\n{FILE}"),
        )
        .unwrap();
        let refused = source.load(&config).unwrap_err();
        let told = refused.to_string();
        assert!(told.contains("callgate.yaml:1:10"), "{told}");
        let keys: Vec<_> = refused.findings.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(keys, ["workers", "limits.keepalive"], "{told}");
        assert!(told.contains("restart"), "{told}");
        fs::write(&file, "routes: 7\n").unwrap();
        assert!(source.load(&config).is_err_and(|report| !report.unread));
    }

    #[test]
    fn a_pipe_is_not_waited_for() {
        let (folder, source, config) = in_use(FILE);
        let file = folder.path().join("callgate.yaml");
        fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        assert!(!source.is_readable());
        let refused = source.load(&config).unwrap_err();
        assert!(refused.unread, "{refused}");
        assert!(refused.to_string().contains("no regular file"), "{refused}");
        fs::remove_file(&file).unwrap();
        assert!(source.load(&config).is_err_and(|report| report.unread));
        fs::write(&file, FILE).unwrap();
        assert!(source.is_readable() && source.load(&config).is_ok());
    }
}
