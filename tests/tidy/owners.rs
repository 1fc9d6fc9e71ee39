//! One right, one owner: things that only one module may do, because the promise rests on there
//! being one place to look. Tests are free; clippy holds the same line for time and chance where
//! a path is renamed on import.

use crate::Finding;
use crate::scan::{Rust, words};

/// What is written, who may write it, and whom to ask instead.
struct Right {
    /// Any of these, as whole words.
    written: &'static [&'static str],
    /// Path beginnings, `.rs` cut off.
    owners: &'static [&'static str],
    instead: &'static str,
}

const RIGHTS: [Right; 11] = [
    Right {
        written: &[
            "Instant::now",
            "SystemTime::now",
            "Timestamp::now",
            "Zoned::now",
        ],
        owners: &["src/clock"],
        instead: "take a Clock",
    },
    Right {
        written: &["rand"],
        owners: &["src/entropy"],
        instead: "take an Entropy",
    },
    Right {
        written: &[".mint"],
        owners: &["src/ingress/identify", "src/batch/intake"],
        instead: "pass on the call's id; a call has one for its whole life",
    },
    Right {
        written: &["serde_yaml"],
        owners: &["src/config/file"],
        instead: "take a Config",
    },
    Right {
        written: &["rusqlite"],
        owners: &["src/ledger/sqlite"],
        instead: "use a Ledger verb",
    },
    Right {
        written: &["hyper::client", "client::conn"],
        owners: &["src/upstream/", "src/cli/"],
        instead: "let `upstream` send it",
    },
    Right {
        written: &["prometheus"],
        owners: &["src/telemetry"],
        instead: "take a handle from `telemetry`",
    },
    Right {
        written: &["tracing_subscriber"],
        owners: &["src/telemetry"],
        instead: "log through `tracing`; who reads it is decided once",
    },
    Right {
        written: &["std::env", "env::var", "env::args"],
        owners: &["src/config/", "src/cli", "src/main", "src/crash"],
        instead: "take the value as an argument",
    },
    Right {
        written: &["process::exit"],
        owners: &["src/main", "src/cli"],
        instead: "return an error; only the command line ends the process",
    },
    Right {
        written: &["println", "eprintln", "print", "eprint"],
        owners: &["src/cli", "src/main"],
        instead: "log it, or return it to the command line",
    },
];

pub(crate) fn rights(files: &[Rust]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|f| f.is_source()) {
        for right in RIGHTS.iter().filter(|r| !owns(&file.path, r)) {
            for (line, code) in file.product_lines() {
                for word in right.written.iter().filter(|w| is_written(code, w)) {
                    let what = format!(
                        "`{word}` belongs to {}: {}",
                        right.owners.join(", "),
                        right.instead
                    );
                    findings.push(Finding::new(&file.path, line, what));
                }
            }
        }
    }
    findings
}

/// `src/clock` is `src/clock.rs` and all below `src/clock/`, not `src/clockwork.rs`.
fn owns(path: &str, right: &Right) -> bool {
    right.owners.iter().any(|owner| {
        let rest = path.strip_prefix(owner);
        rest.is_some_and(|r| owner.ends_with('/') || r == ".rs" || r.starts_with('/'))
    })
}

/// As the start of a path, a whole path, a macro, or (`.name`) a call of a method; a variable of
/// that name is not meant.
fn is_written(code: &str, word: &str) -> bool {
    if word.starts_with('.') {
        return code
            .match_indices(word)
            .any(|(at, _)| code[at + word.len()..].starts_with('('));
    }
    words(code, word).any(|at| {
        let behind = &code[at + word.len()..];
        let names_it = word.contains("::") || behind.starts_with("::") || behind.starts_with('!');
        names_it || code[..at].trim_end().ends_with("use")
    })
}

#[test]
fn a_right_taken_without_owning_it_is_found() {
    let text = "let now = Instant::now();\nuse rand::RngExt;\nlet rand = draw(rand);\n\
                // serde_yaml::Value\nlet v: serde_yaml::Value = x;\nprintln!(\"a\");\n\
                #[cfg(test)]\nmod tests { fn f() { Instant::now(); } }\n";
    crate::must_find(
        &rights(&[Rust::new("src/flow/admit.rs", text)]),
        &[1, 2, 5, 6],
    );
    let clock = "fn now() { Instant::now(); }\n";
    crate::must_find(&rights(&[Rust::new("src/clock.rs", clock)]), &[]);
    crate::must_find(&rights(&[Rust::new("src/clock/wheel.rs", clock)]), &[]);
    crate::must_find(&rights(&[Rust::new("src/clockwork.rs", clock)]), &[1]);
    let mint = "let id = minter.mint(prefix);\nlet mint = coin.minted();\n";
    crate::must_find(&rights(&[Rust::new("src/flow/drive.rs", mint)]), &[1]);
}
