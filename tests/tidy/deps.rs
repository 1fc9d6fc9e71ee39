//! What comes from elsewhere: the crates of the lock file and their licences. And what must not
//! be carried along: hosts of package registries and paths of one machine.

use std::process::Command;

use crate::{Finding, Text};

/// Crates that may not come in, also not through another one, and why.
const BANNED: [(&str, &str); 14] = [
    ("openssl", "TLS is rustls with ring"),
    ("openssl-sys", "TLS is rustls with ring"),
    ("native-tls", "TLS is rustls with ring"),
    ("hyper-tls", "TLS is rustls with ring"),
    ("aws-lc-rs", "one TLS provider only, and that is ring"),
    (
        "aws-lc-sys",
        "one TLS provider only, and that is ring; this one also needs cmake",
    ),
    ("rustls-pemfile", "unmaintained; rustls-pki-types reads PEM"),
    (
        "reqwest",
        "a second HTTP client with retries and a pool of its own",
    ),
    ("hyper-rustls", "a second connector beside `upstream`"),
    ("serde_yaml", "archived; its continuation is yaml_serde"),
    (
        "serde_yml",
        "unsound and unmaintained; yaml_serde is the continuation",
    ),
    ("atty", "unmaintained; std::io::IsTerminal does it"),
    ("async-std", "one runtime only, and that is tokio"),
    ("sqlx", "does not resolve beside rusqlite"),
];

/// Licences that ask for no more than naming the authors.
const ALLOWED: [&str; 9] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
];

/// Written in parts, or this file would be the first finding.
const PLACES: [(&str, &str); 10] = [
    (concat!("crates", ".io"), "a registry host"),
    (concat!("py", "pi.org"), "a registry host"),
    (concat!("python", "hosted.org"), "a registry host"),
    (concat!("npm", "js."), "a registry host"),
    (concat!("proxy.golang", ".org"), "a registry host"),
    (concat!("debian", ".org"), "a registry host"),
    (concat!("/ro", "ot/"), "a path of one machine"),
    (concat!("/ho", "me/"), "a path of one machine"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("sha", "red/"), "a folder outside the repository"),
];

/// The crates' names as paths spell them, from every dependency table of Cargo.toml.
pub(crate) fn dependency_names(manifest: &str) -> Vec<String> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if inside && let Some((name, _)) = line.split_once('=') {
            names.push(name.trim().replace('-', "_"));
        }
    }
    assert!(
        !names.is_empty(),
        "Cargo.toml lists no dependency: was it read?"
    );
    names
}

pub(crate) fn banned(lock: &str) -> Vec<Finding> {
    let names = lock.lines().enumerate().filter_map(|(index, line)| {
        let name = line.strip_prefix("name = \"")?.strip_suffix('"')?;
        Some((index + 1, name))
    });
    let hits = names.filter_map(|(line, name)| {
        let (_, why) = BANNED.iter().find(|(banned, _)| *banned == name)?;
        Some(Finding::new(
            "Cargo.lock",
            line,
            format!("`{name}` is banned: {why}"),
        ))
    });
    hits.collect()
}

pub(crate) fn lock_is_kept(gitignore: &str) -> Vec<Finding> {
    let ignored = gitignore
        .lines()
        .enumerate()
        .filter(|(_, l)| l.contains("Cargo.lock"));
    let what = "the lock file is committed: builds must be the same everywhere";
    ignored
        .map(|(i, _)| Finding::new(".gitignore", i + 1, what))
        .collect()
}

/// `cargo metadata` for this host: every crate that is really built here.
pub(crate) fn metadata() -> String {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO"))
            .args(args)
            .current_dir(crate::root())
            .output();
        let output = output.expect("cargo ran this test, so it is there");
        assert!(
            output.status.success(),
            "cargo: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).expect("cargo writes UTF-8")
    };
    let about = run(&["-vV"]);
    let host = about
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .expect("cargo names its host");
    let args = [
        "metadata",
        "--offline",
        "--locked",
        "--format-version=1",
        "--filter-platform",
    ];
    run(&[&args[..], &[host]].concat())
}

pub(crate) fn licences(metadata: &str) -> Vec<Finding> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).expect("cargo writes JSON");
    let packages = metadata["packages"]
        .as_array()
        .expect("metadata lists packages");
    assert!(
        !packages.is_empty(),
        "metadata lists no package: was it read?"
    );
    let mut findings = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("none");
        if !allowed(licence) {
            let what = format!(
                "{}: licence `{licence}` is not on the list",
                package["name"]
            );
            findings.push(Finding::new("Cargo.lock", 0, what));
        }
    }
    findings
}

/// Whether an SPDX expression can be met by the list. `AND` binds closer than `OR`; the old `/`
/// means `OR`. Parentheses are resolved from the inside out.
fn allowed(expression: &str) -> bool {
    let mut rest = expression.replace('/', " OR ");
    while let Some(close) = rest.find(')') {
        let Some(open) = rest[..close].rfind('(') else {
            return false;
        };
        let inner = if allowed(&rest[open + 1..close]) {
            "MIT"
        } else {
            "none"
        };
        rest.replace_range(open..=close, inner);
    }
    let known = |term: &str| ALLOWED.contains(&term.trim());
    rest.split(" OR ").any(|all| all.split(" AND ").all(known))
}

pub(crate) fn places(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    // A lock file names its source by design.
    for text in texts.iter().filter(|t| !t.path.ends_with("Cargo.lock")) {
        for (index, line) in text.text.lines().enumerate() {
            for (word, kind) in PLACES.iter().filter(|(word, _)| line.contains(word)) {
                let what = format!("`{word}` is {kind}: nothing that is committed needs it");
                findings.push(Finding::new(&text.path, index + 1, what));
            }
        }
    }
    findings
}

#[test]
fn a_banned_crate_and_an_ignored_lock_are_found() {
    let lock = "[[package]]\nname = \"openssl-probe\"\n\n[[package]]\nname = \"openssl-sys\"\n";
    crate::must_find(&banned(lock), &[5]);
    crate::must_find(&lock_is_kept("/target\nCargo.lock\n"), &[2]);
}

#[test]
fn a_licence_off_the_list_is_found() {
    let package = |licence: &str| {
        let json = serde_json::json!({"packages": [{"name": "x", "license": licence}]});
        licences(&json.to_string()).is_empty()
    };
    for fine in [
        "MIT",
        "MIT/Apache-2.0",
        "(MIT OR GPL-3.0) AND Unicode-3.0",
        "GPL-2.0 OR ISC",
    ] {
        assert!(package(fine), "{fine}");
    }
    for not in [
        "GPL-3.0-only",
        "MIT AND GPL-2.0",
        "(GPL-2.0 OR AGPL-3.0) AND MIT",
        "",
    ] {
        assert!(!package(not), "{not}");
    }
}

#[test]
fn a_place_that_is_not_everywhere_is_found() {
    let text = format!("fine\nsee {}\n", PLACES[0].0);
    crate::must_find(&places(&[Text::new("docs/a.md", &text)]), &[2]);
}

#[test]
fn dependency_names_are_read_as_paths_spell_them() {
    let manifest = "[package]\nname = \"a\"\n[dependencies]\n# x = 1\nhyper-util = \"1\"\n";
    let names = dependency_names(manifest);
    assert!(names.contains(&"hyper_util".to_owned()), "{names:?}");
    assert!(!names.contains(&"name".to_owned()), "{names:?}");
}
