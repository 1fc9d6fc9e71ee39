//! The words that leave the house: error codes and metric names. A caller programs against a
//! code, an operator alerts on a name, so each stands in one source file and in one document,
//! and neither side may know a word that the other does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::scan::Rust;
use crate::{Finding, Text};

/// The file that spells the error codes; the list itself is `Code::ALL`.
const CODES_OWNER: &str = "src/call/code.rs";

/// Codes and documented headings, both ways, and the status each is told with.
pub(crate) fn codes(codes: &[(&str, u16)], errors_md: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let headings = headings(errors_md);
    for (code, _) in codes {
        if !headings.iter().any(|(_, heading, _)| heading == code) {
            let what = format!("`{code}` has no heading in docs/errors.md: tell its caller");
            findings.push(Finding::new(CODES_OWNER, 0, what));
        }
    }
    for (line, heading, rest) in headings {
        let known = codes.iter().find(|(code, _)| *code == heading);
        let what = match known {
            None => format!("`{heading}` is no error code: remove it"),
            Some((_, status)) if !rest.trim().ends_with(&status.to_string()) => {
                format!("`{heading}` is told with status {status}: end the heading with it")
            }
            Some(_) => continue,
        };
        findings.push(Finding::new("docs/errors.md", line, what));
    }
    findings
}

/// Headings that begin with a word in code font: line, word, and what follows it.
fn headings(markdown: &str) -> Vec<(usize, &str, &str)> {
    let numbered = markdown.lines().enumerate();
    let headings = numbered.filter_map(|(i, line)| Some((i + 1, line.strip_prefix("### `")?)));
    let split = headings.filter_map(|(n, rest)| Some((n, rest.split_once('`')?)));
    split.map(|(n, (word, rest))| (n, word, rest)).collect()
}

/// Boundaries that `src/crash.rs` names and at which no process dies in `tests/it/crashes.rs`.
pub(crate) fn boundaries(files: &[Rust]) -> Vec<Finding> {
    let of = |path: &str| files.iter().find(|f| f.path == path);
    let (Some(names), Some(walk)) = (of("src/crash.rs"), of("tests/it/crashes.rs")) else {
        return vec![Finding::new(
            "src/crash.rs",
            0,
            "the boundaries or their walk are missing",
        )];
    };
    let walked: BTreeSet<&str> = walk.literals.iter().map(|(_, s)| s.as_str()).collect();
    let lines: Vec<&str> = names.text.lines().collect();
    let named = names
        .product_literals()
        .filter(|(line, name)| lines[line - 1].trim().ends_with(&format!("=> \"{name}\",")));
    let missed = named.filter(|(_, name)| !walked.contains(name));
    let what = |name| format!("no process dies at `{name}`: add it to tests/it/crashes.rs");
    missed
        .map(|(line, name)| Finding::new(&names.path, line, what(name)))
        .collect()
}

#[test]
fn a_boundary_at_which_nothing_dies_is_found() {
    let names = "match self {\n    Self::A => \"a\",\n    Self::B => \"b\",\n}\nf(\"c\");\n";
    let names = Rust::new("src/crash.rs", names);
    let walk = Rust::new("tests/it/crashes.rs", "walk(&[(\"a\", 1..=1)]);\n");
    crate::must_find(&boundaries(&[names, walk]), &[3]);
    crate::must_find(&boundaries(&[]), &[0]);
}

/// A code spelled a second time would drift; a hyphen tells a code from an ordinary word.
pub(crate) fn spelled_twice(files: &[Rust], codes: &[(&str, u16)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files
        .iter()
        .filter(|f| f.is_source() && f.path != CODES_OWNER)
    {
        for (line, literal) in file.product_literals() {
            if literal.contains('-') && codes.iter().any(|(code, _)| *code == literal) {
                let what = format!("`{literal}` is an error code: use `Code`, do not spell it");
                findings.push(Finding::new(&file.path, line, what));
            }
        }
    }
    findings
}

pub(crate) fn metrics(files: &[Rust], operations_md: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sources = metric_sources(files);
    let told: BTreeSet<&str> = operations_md.lines().flat_map(metric_names).collect();
    for (name, places) in &sources {
        let (file, line) = places[0];
        if places.iter().any(|(other, _)| *other != file) {
            let what = format!("`{name}` is spelled in several files: name it in telemetry only");
            findings.push(Finding::new(file, line, what));
        }
        if !told.contains(name) {
            let what = format!("`{name}` is not in docs/operations.md: tell the operator");
            findings.push(Finding::new(file, line, what));
        }
    }
    for (index, line) in operations_md.lines().enumerate() {
        for name in metric_names(line).filter(|n| !sources.contains_key(n)) {
            let what = format!("no source file exports `{name}`");
            findings.push(Finding::new("docs/operations.md", index + 1, what));
        }
    }
    findings
}

/// Dashboards, rules and examples name only what is exported.
pub(crate) fn metric_uses(files: &[Rust], texts: &[Text]) -> Vec<Finding> {
    let sources = metric_sources(files);
    let mut findings = Vec::new();
    for text in texts.iter().filter(|t| t.path.starts_with("deploy/")) {
        for (index, line) in text.text.lines().enumerate() {
            for name in metric_names(line) {
                let whole = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|s| name.strip_suffix(s));
                if !sources.contains_key(name) && !whole.is_some_and(|w| sources.contains_key(w)) {
                    let what = format!("no source file exports `{name}`");
                    findings.push(Finding::new(&text.path, index + 1, what));
                }
            }
        }
    }
    findings
}

fn metric_sources(files: &[Rust]) -> BTreeMap<&str, Vec<(&str, usize)>> {
    let mut sources: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|f| f.is_source()) {
        for (line, literal) in file.product_literals() {
            if metric_names(literal).any(|name| name == literal) {
                sources.entry(literal).or_default().push((&file.path, line));
            }
        }
    }
    sources
}

fn metric_names(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|w| {
        w.strip_prefix("callgate_")
            .is_some_and(|rest| !rest.is_empty())
    })
}

/// Relative links of Markdown files, to files and to headings of files.
pub(crate) fn links(texts: &[Text]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for text in texts.iter().filter(|t| t.path.ends_with(".md")) {
        let dir = text.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        for (index, line) in text.text.lines().enumerate() {
            for target in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                if target.contains("://") || leads_somewhere(target, dir, &text.path, texts) {
                    continue;
                }
                let what = format!("the link to `{target}` leads nowhere");
                findings.push(Finding::new(&text.path, index + 1, what));
            }
        }
    }
    findings
}

fn leads_somewhere(target: &str, dir: &str, own: &str, texts: &[Text]) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        own.to_owned()
    } else {
        resolve(dir, path)
    };
    let folder = format!("{}/", path.trim_end_matches('/'));
    let is_folder = texts.iter().any(|t| t.path.starts_with(&folder));
    match texts.iter().find(|t| t.path == path) {
        Some(text) => anchor.is_empty() || text.text.lines().any(|l| slug(l) == anchor),
        None => is_folder && anchor.is_empty(),
    }
}

fn resolve(dir: &str, path: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|p| !p.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchor that a heading gets: lower case, blanks to hyphens, other signs dropped.
fn slug(line: &str) -> String {
    let Some(heading) = line.strip_prefix('#') else {
        return String::new();
    };
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn a_code_without_a_heading_and_a_heading_without_a_code_are_found() {
    let known = [("no-route", 404), ("draining", 503)];
    let told = "# Errors\n### `no-route` 404\n### `draining` 503\n";
    crate::must_find(&codes(&known, told), &[]);
    crate::must_find(
        &codes(&known, &told.replace("draining", "dreaming")),
        &[0, 3],
    );
    crate::must_find(&codes(&known, &told.replace("404", "400")), &[2]);
}

#[test]
fn a_code_spelled_a_second_time_is_found() {
    let text = "f(\"no-route\");\ng(\"draining\");\n";
    let known = [("no-route", 404), ("draining", 503)];
    crate::must_find(
        &spelled_twice(&[Rust::new("src/app.rs", text)], &known),
        &[1],
    );
    crate::must_find(&spelled_twice(&[Rust::new(CODES_OWNER, text)], &known), &[]);
}

#[test]
fn a_metric_in_two_files_or_untold_or_invented_is_found() {
    let names = Rust::new("src/telemetry/names.rs", "f(\"callgate_calls_total\");\n");
    let told = "| `callgate_calls_total{route}` |\n";
    crate::must_find(&metrics(std::slice::from_ref(&names), told), &[]);
    crate::must_find(
        &metrics(std::slice::from_ref(&names), "\n`callgate_x`\n"),
        &[1, 2],
    );
    let other = Rust::new("src/admin/api.rs", "\ng(\"callgate_calls_total\");\n");
    crate::must_find(&metrics(&[names, other], told), &[1]);
}

#[test]
fn an_invented_metric_in_deploy_is_found() {
    let files = [Rust::new(
        "src/telemetry/names.rs",
        "f(\"callgate_wait_seconds\");\n",
    )];
    let rules = "expr: callgate_wait_seconds_bucket\nexpr: rate(callgate_wait_ms[5m])\n";
    crate::must_find(
        &metric_uses(&files, &[Text::new("deploy/rules.yml", rules)]),
        &[2],
    );
}

#[test]
fn a_dead_link_is_found() {
    let texts = [
        Text::new(
            "README.md",
            "[a](docs/a.md)\n[b](docs/a.md#the-way-out)\n[c](docs/)\n",
        ),
        Text::new(
            "docs/a.md",
            "[no](b.md)\n## The way out!\n[no](#nowhere)\n[up](../README.md)\n",
        ),
    ];
    crate::must_find(&links(&texts), &[1, 3]);
}
