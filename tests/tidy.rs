//! The house rules, as an ordinary test: what a reviewer would have to check by eye in every
//! change is checked here, and a broken rule says the file, the line and what to do.
//!
//! Each rule is a function from the sources to findings. It runs twice: over the repository,
//! where it must find nothing, and over a small bad sample, where it must find the fault; so no
//! rule can pass because it stopped looking. What the compiler can hold stands in `Cargo.toml`
//! ([lints]) and `.clippy.toml` instead; formatting is rustfmt's.

#[path = "tidy/deps.rs"]
mod deps;
#[path = "tidy/layers.rs"]
mod layers;
#[path = "tidy/owners.rs"]
mod owners;
#[path = "tidy/scan.rs"]
mod scan;
#[path = "tidy/shape.rs"]
mod shape;
#[path = "tidy/words.rs"]
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use callgate::call::code::Code;
use scan::Rust;

/// One broken rule at one place.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    /// 1-based; 0 when the whole file is meant.
    line: usize,
    what: String,
}

impl Finding {
    fn new(file: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.what)
    }
}

/// A committed text file, its path relative to the repository with `/` between the parts.
#[derive(Debug)]
struct Text {
    path: String,
    text: String,
}

impl Text {
    fn new(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every text file of the repository but build output and what git keeps for itself.
fn texts() -> Vec<Text> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(
        found.iter().any(|t| t.path == "src/lib.rs"),
        "the walk missed src/lib.rs"
    );
    found
}

fn walk(dir: &Path, found: &mut Vec<Text>) {
    for entry in std::fs::read_dir(dir).expect("a folder of the repository is readable") {
        let path = entry.expect("a folder entry is readable").path();
        let relative = path
            .strip_prefix(root())
            .expect("the walk stays below the root");
        let name = relative.to_string_lossy().replace('\\', "/");
        // In a second work tree `.git` is a file.
        if name == ".git" || name == "target" || name.ends_with("/target") {
            continue;
        }
        if path.is_dir() {
            walk(&path, found);
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.push(Text { path: name, text });
        }
    }
}

fn rust() -> Vec<Rust> {
    let scanned = texts().into_iter().filter(|t| t.path.ends_with(".rs"));
    scanned.map(|t| Rust::new(&t.path, &t.text)).collect()
}

fn must_be_clean(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(
        findings.is_empty(),
        "{} broken house rule(s):\n  {}",
        list.len(),
        list.join("\n  ")
    );
}

/// The self-test of a rule: exactly these lines of the sample are found.
#[track_caller]
fn must_find(findings: &[Finding], lines: &[usize]) {
    let found: Vec<usize> = findings.iter().map(|f| f.line).collect();
    assert_eq!(found, lines, "the rule found {findings:#?}");
}

#[test]
fn a_module_imports_only_from_lines_above_its_own() {
    must_be_clean(&layers::imports(&rust()));
}

#[test]
fn the_decision_core_sees_neither_io_nor_time_nor_chance() {
    must_be_clean(&layers::purity(
        &rust(),
        &deps::dependency_names(&read("Cargo.toml")),
    ));
}

#[test]
fn files_functions_and_lines_keep_their_size() {
    must_be_clean(&shape::sizes(&rust()));
}

#[test]
fn every_file_opens_with_what_lives_in_it() {
    must_be_clean(&shape::headers(&rust()));
}

#[test]
fn every_source_file_is_reached_by_a_mod_line() {
    must_be_clean(&shape::orphans(&rust()));
}

#[test]
fn nothing_is_left_to_be_done_in_a_comment() {
    must_be_clean(&shape::leftovers(&texts()));
}

#[test]
fn every_right_has_one_owner() {
    must_be_clean(&owners::rights(&rust()));
}

#[test]
fn every_error_code_has_a_heading_and_every_heading_a_code() {
    let codes: Vec<(&str, u16)> = Code::ALL
        .iter()
        .map(|code| (code.as_str(), code.status().as_u16()))
        .collect();
    must_be_clean(&words::codes(&codes, &read("docs/errors.md")));
    must_be_clean(&words::spelled_twice(&rust(), &codes));
}

#[test]
fn a_process_dies_at_every_boundary_in_a_test() {
    must_be_clean(&words::boundaries(&rust()));
}

#[test]
fn every_metric_has_one_source_file_and_one_line_for_the_operator() {
    must_be_clean(&words::metrics(&rust(), &read("docs/operations.md")));
}

#[test]
fn every_metric_that_deploy_names_exists() {
    must_be_clean(&words::metric_uses(&rust(), &texts()));
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    must_be_clean(&words::links(&texts()));
}

#[test]
fn the_lock_file_is_kept_and_holds_no_banned_crate() {
    must_be_clean(&deps::banned(&read("Cargo.lock")));
    must_be_clean(&deps::lock_is_kept(&read(".gitignore")));
}

#[test]
fn every_licence_is_on_the_list() {
    must_be_clean(&deps::licences(&deps::metadata()));
}

#[test]
fn nothing_names_a_package_host_or_a_path_of_one_machine() {
    must_be_clean(&deps::places(&texts()));
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}
