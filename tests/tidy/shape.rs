//! The size and shape of files: what keeps code readable in one sitting. A file stops at 500
//! lines, a function at 70, a line at 100 columns; every file says at its top what lives in it,
//! and no file lies in the tree without being compiled.

use std::collections::BTreeSet;

use crate::scan::{Rust, closing, line_of, words};
use crate::{Finding, Text};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;

pub(crate) fn sizes(files: &[Rust]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines: split it where a second subject begins");
            findings.push(Finding::new(&file.path, FILE_LINES_MAX + 1, what));
        }
        for (index, line) in file.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > LINE_COLUMNS_MAX {
                let what = format!("{columns} columns: break the line (a literal: with `\\`)");
                findings.push(Finding::new(&file.path, index + 1, what));
            }
        }
        for (name, first, length) in functions(&file.code) {
            if length > FUNCTION_LINES_MAX {
                let what = format!("fn {name} has {length} lines: give its steps names");
                findings.push(Finding::new(&file.path, first, what));
            }
        }
    }
    findings
}

/// Name, first line and length of every function with a body.
fn functions(code: &str) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let signature = &code[at + 2..];
        let name = signature
            .trim_start()
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .next();
        let Some(name) = name.filter(|n| !n.is_empty()) else {
            continue;
        };
        let Some(open) = body(code, at) else { continue };
        let end = closing(code, open).unwrap_or(code.len());
        let first = line_of(code, at);
        found.push((name, first, line_of(code, end - 1) - first + 1));
    }
    found
}

/// The `{` of the body; none when the signature ends in `;` (a trait's method).
fn body(code: &str, at: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (i, b) in code.bytes().enumerate().skip(at) {
        match b {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b';' if depth == 0 => return None,
            b'{' if depth == 0 => return Some(i),
            _ => {}
        }
    }
    None
}

pub(crate) fn headers(files: &[Rust]) -> Vec<Finding> {
    let bare = files.iter().filter(|f| !f.text.starts_with("//! "));
    let what = "open with `//!`: what lives here, why so, what is absent on purpose";
    bare.map(|f| Finding::new(&f.path, 1, what)).collect()
}

/// Files under `src/` and `tests/` that no `mod` line leads to from a crate root.
pub(crate) fn orphans(files: &[Rust]) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&Rust> = files.iter().filter(|f| is_root(&f.path)).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file.path.as_str()) {
            let children = children(file);
            open.extend(files.iter().filter(|f| children.contains(&f.path)));
        }
    }
    let lost = files
        .iter()
        .filter(|f| f.path.starts_with("src/") || f.path.starts_with("tests/"));
    let lost = lost.filter(|f| !reached.contains(f.path.as_str()));
    let what = "no `mod` line leads here, so it is never compiled: add one or delete the file";
    lost.map(|f| Finding::new(&f.path, 0, what)).collect()
}

fn is_root(path: &str) -> bool {
    let direct = |dir: &str| {
        path.strip_prefix(dir)
            .is_some_and(|rest| !rest.contains('/'))
    };
    // A folder of `tests/` with a `main.rs` is a test of its own (declared in Cargo.toml).
    let of_a_folder = |rest: &str| {
        rest.split_once('/')
            .is_some_and(|(_, file)| file == "main.rs")
    };
    matches!(path, "src/lib.rs" | "src/main.rs")
        || direct("tests/")
        || path.strip_prefix("tests/").is_some_and(of_a_folder)
}

fn children(file: &Rust) -> Vec<String> {
    let (dir, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let inner = match name {
        "mod.rs" | "lib.rs" | "main.rs" => dir.to_owned(),
        _ => file.path.trim_end_matches(".rs").to_owned(),
    };
    let mut found = Vec::new();
    let mut redirect = None;
    for (code, text) in file.code.lines().zip(file.text.lines()) {
        if code.trim_start().starts_with("#[path") {
            redirect = text.split('"').nth(1).map(|p| format!("{dir}/{p}"));
        }
        let Some(module) = declared(code) else {
            continue;
        };
        found.extend(redirect.take());
        found.push(format!("{inner}/{module}.rs"));
        found.push(format!("{inner}/{module}/mod.rs"));
    }
    found
}

/// `x` of `mod x;`, with any visibility or attribute before it.
fn declared(code: &str) -> Option<&str> {
    let at = words(code, "mod").next()?;
    let (name, rest) = code[at + 3..].split_once(';')?;
    let name = name.trim();
    let plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (plain && rest.trim().is_empty()).then_some(name)
}

/// Words that promise work to nobody in particular. (Written in two parts, or this file would
/// be the first finding.)
const LEFTOVERS: [&str; 4] = [
    concat!("FIX", "ME"),
    concat!("TO", "DO"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
];

pub(crate) fn leftovers(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in texts {
        for (index, line) in text.text.lines().enumerate() {
            for word in LEFTOVERS
                .into_iter()
                .filter(|w| words(line, w).next().is_some())
            {
                let what = format!("{word}: do it now, or file an issue and leave the word out");
                findings.push(Finding::new(&text.path, index + 1, what));
            }
        }
    }
    findings
}

#[test]
fn long_files_functions_and_lines_are_found() {
    let long = "x".repeat(101);
    let steps = "    step();\n".repeat(69);
    let text =
        format!("// {long}\nfn short() {{}}\nfn long(a: [u8; 2])\n{{\n{steps}}}\nfn no();\n");
    crate::must_find(&sizes(&[Rust::new("src/a.rs", &text)]), &[1, 3]);
    let file = "//! a\n".repeat(501);
    crate::must_find(&sizes(&[Rust::new("src/a.rs", &file)]), &[501]);
    let braces = format!("fn fits() {{\n{}}}\n", "    f(\"{\", '{');\n".repeat(68));
    crate::must_find(&sizes(&[Rust::new("src/a.rs", &braces)]), &[]);
}

#[test]
fn a_file_without_a_header_is_found() {
    crate::must_find(&headers(&[Rust::new("src/a.rs", "use std::fmt;\n")]), &[1]);
    crate::must_find(
        &headers(&[Rust::new("src/a.rs", "//! What lives here.\n")]),
        &[],
    );
}

#[test]
fn an_orphan_is_found() {
    let files = [
        Rust::new("src/lib.rs", "pub mod call;\n// mod lost;\n"),
        Rust::new("src/call/mod.rs", "mod id;\n#[cfg(test)]\nmod tests;\n"),
        Rust::new("src/call/id.rs", "mod tests;\n"),
        Rust::new("src/call/id/tests.rs", ""),
        Rust::new("src/call/tests.rs", ""),
        Rust::new("src/lost.rs", ""),
        Rust::new("tests/tidy.rs", "#[path = \"tidy/scan.rs\"]\nmod scan;\n"),
        Rust::new("tests/tidy/scan.rs", ""),
        Rust::new("tests/tidy/lost.rs", ""),
    ];
    let lost: Vec<String> = orphans(&files).into_iter().map(|f| f.file).collect();
    assert_eq!(lost, ["src/lost.rs", "tests/tidy/lost.rs"]);
}

#[test]
fn a_leftover_is_found() {
    let text = format!("fine\n// {}: later\nATOMIC\n", LEFTOVERS[1]);
    crate::must_find(&leftovers(&[Text::new("src/a.rs", &text)]), &[2]);
}
