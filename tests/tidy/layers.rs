//! Who may import whom. The table is the architecture's, line by line: a module imports from the
//! lines above its own, never from a sibling on the same line. And the first line, the decision
//! core, imports nothing that could wait, fail or surprise, so that it can be proved by tables.

use crate::Finding;
use crate::scan::{Rust, closing, is_word, line_of, words};

const LAYERS: [&[&str]; 9] = [
    &["call"],
    &["clock", "entropy", "config", "telemetry", "crash"],
    &["ledger", "upstream"],
    &["flow"],
    &["ingress", "compensate", "batch"],
    &["admin"],
    &["app"],
    &["cli"],
    &["main"],
];

/// What of the standard library the core must not touch, beside every dependency but `http`.
const IMPURE: [&str; 11] = [
    "Instant",
    "SystemTime",
    "std::env",
    "std::fs",
    "std::io",
    "std::net",
    "std::process",
    "Mutex",
    "RwLock",
    "atomic",
    "std::thread",
];

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|line| line.contains(&module))
}

/// `src/flow/drive.rs` is `["flow", "drive"]`; `src/lib.rs` is the crate itself, `[]`.
fn module_path(path: &str) -> Vec<&str> {
    let inner = path.trim_start_matches("src/").trim_end_matches(".rs");
    let mut parts: Vec<&str> = inner.split('/').collect();
    if matches!(parts.last(), Some(&"mod" | &"lib")) {
        parts.pop();
    }
    parts
}

pub(crate) fn imports(files: &[Rust]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is_source()) {
        let path = module_path(&file.path);
        // lib.rs only lists the modules.
        let Some(own) = path.first() else { continue };
        let Some(own_layer) = layer(own) else {
            let what = format!("`{own}` is in no layer: give it a line in tests/tidy/layers.rs");
            findings.push(Finding::new(&file.path, 0, what));
            continue;
        };
        for (line, target) in references(file, path.len()) {
            if file.is_test(line) || target == *own {
                continue;
            }
            // A name that is no module is an item of lib.rs itself.
            if layer(&target).is_some_and(|l| l >= own_layer) {
                let what = format!(
                    "`{own}` (layer {own_layer}) imports `{target}`, which is not above it: \
                     pass a value or a trait down instead",
                );
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

/// Top-level modules named by `crate::x`, `callgate::x`, `crate::{x, y::z}` or enough `super::`.
fn references(file: &Rust, depth: usize) -> Vec<(usize, String)> {
    let supers = "super::".repeat(depth);
    let mut found = Vec::new();
    for prefix in ["crate::", "callgate::", supers.as_str()] {
        for at in words(&file.code, prefix) {
            let longer = file.code[..at].ends_with("super::");
            if prefix.starts_with("super") && longer {
                continue;
            }
            for (offset, name) in first_names(&file.code, at + prefix.len()) {
                found.push((line_of(&file.code, offset), name));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn first_names(code: &str, at: usize) -> Vec<(usize, String)> {
    let bytes = code.as_bytes();
    if bytes.get(at) != Some(&b'{') {
        let length = bytes[at..].iter().position(|b| !is_word(*b)).unwrap_or(0);
        return vec![(at, code[at..at + length].to_owned())];
    }
    let end = closing(code, at).unwrap_or(code.len());
    let (mut names, mut depth, mut fresh) = (Vec::new(), 0usize, true);
    for i in at + 1..end - 1 {
        match bytes[i] {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 0 => fresh = true,
            b if is_word(b) && depth == 0 && fresh => {
                fresh = false;
                let length = bytes[i..].iter().position(|b| !is_word(*b)).unwrap_or(0);
                names.push((i, code[i..i + length].to_owned()));
            }
            _ => {}
        }
    }
    names
}

pub(crate) fn purity(files: &[Rust], dependencies: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let core = files
        .iter()
        .filter(|f| module_path(&f.path).first() == Some(&"call"));
    for file in core.filter(|f| f.is_source()) {
        for (line, code) in file.product_lines() {
            let mut seen: Vec<&str> = IMPURE.into_iter().filter(|w| names(code, w)).collect();
            let foreign = dependencies
                .iter()
                .map(String::as_str)
                .filter(|d| *d != "http");
            seen.extend(foreign.filter(|d| names_crate(code, d)));
            if names_crate(code, "http") && !code.contains("http::StatusCode") {
                seen.push("http (beyond StatusCode)");
            }
            for word in seen {
                let what = format!("`call` is pure and must not see `{word}`: take a value");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

fn names(code: &str, word: &str) -> bool {
    words(code, word).next().is_some()
}

/// `krate::..` or `use krate`, not a local name or a module that happens to be called the same.
fn names_crate(code: &str, krate: &str) -> bool {
    words(code, krate).any(|at| {
        let inside_path = code[..at].ends_with("::");
        let behind = &code[at + krate.len()..];
        let used = code[..at].trim_end().ends_with("use") || behind.starts_with("::");
        used && !inside_path
    })
}

#[test]
fn an_upward_or_sideways_import_is_found() {
    let flow = "use crate::call::Step;\nuse crate::{ledger::Ledger, admin::Api};\n\
                fn f() { super::super::batch::go() }\n\
                #[cfg(test)]\nmod tests { use crate::app; }\n";
    crate::must_find(&imports(&[Rust::new("src/flow/drive.rs", flow)]), &[2, 3]);
    let sibling = "use crate::ledger::{self, Record};\nuse crate::upstream::Pool;\n";
    crate::must_find(&imports(&[Rust::new("src/ledger/mod.rs", sibling)]), &[2]);
    crate::must_find(
        &imports(&[Rust::new("src/main.rs", "use callgate::cli;\n")]),
        &[],
    );
    crate::must_find(&imports(&[Rust::new("src/utils.rs", "\n")]), &[0]);
}

#[test]
fn an_impure_core_is_found() {
    let core = "use std::time::Duration;\nuse std::time::Instant;\nuse http::StatusCode;\n\
                use http::HeaderMap;\nfn f(t: &tokio::Task) {}\n// tokio::spawn\nlet http = 1;\n";
    let dependencies = ["tokio".to_owned(), "http".to_owned()];
    crate::must_find(
        &purity(&[Rust::new("src/call/id.rs", core)], &dependencies),
        &[2, 4, 5],
    );
}
