//! `callgate check`: what a configuration means, or everything that is wrong with it.
//!
//! It asks nobody unless told to (`--probe`), so that it can run where no tool can be reached.

use std::path::{Path, PathBuf};

use super::exit::Exit;
use super::probe;
use crate::config::{self, Config};

/// `callgate check`
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct CheckArgs {
    /// The configuration file [default: ./callgate.yaml, then /etc/callgate/callgate.yaml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Show the effective values as YAML, secrets masked
    #[arg(long)]
    pub print: bool,
    /// Ask every route's receipt endpoint about a call id that nobody has used
    #[arg(long)]
    pub probe: bool,
}

/// What a command says, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// For standard output: data.
    pub out: String,
    /// For standard error: everything else.
    pub err: String,
    /// How the command ends.
    pub exit: Exit,
}

/// Checks the named file, or the first of the usual places.
#[must_use]
pub fn run(args: &CheckArgs) -> Told {
    let Some(path) = args.config.clone().or_else(config::find_default) else {
        return Told {
            out: String::new(),
            err: nowhere(),
            exit: Exit::Usage,
        };
    };
    match config::load(&path) {
        Ok(config) => valid(args, &path, &config),
        Err(report) => Told {
            out: String::new(),
            err: format!("{report}\n"),
            exit: Exit::Usage,
        },
    }
}

/// What a valid configuration means, and with `--probe` whether its tools agree.
fn valid(args: &CheckArgs, path: &Path, config: &Config) -> Told {
    let warnings = config.warnings.iter();
    let mut told = Told {
        out: if args.print {
            config.print()
        } else {
            summary(path, config)
        },
        err: warnings
            .map(|notice| format!("warning: {notice}\n"))
            .collect(),
        exit: Exit::Ok,
    };
    if !args.probe {
        return told;
    }
    match probe::of_routes(config) {
        Ok((lines, all)) => {
            told.err.push_str(&lines);
            told.exit = if all { Exit::Ok } else { Exit::Failed };
        }
        Err(failure) => {
            told.err.push_str(&format!("{failure}\n"));
            told.exit = failure.exit();
        }
    }
    told
}

/// What to do when there is no file at all.
#[must_use]
pub fn nowhere() -> String {
    let [here, system] = config::DEFAULT_PLACES;
    format!(
        "no configuration: neither ./{here} nor {system} exists; name one with --config FILE, or \
         write one: callgate init > {here}\n"
    )
}

/// One line for the file and one for every route.
fn summary(path: &Path, config: &Config) -> String {
    let memory = config.memory(config.cores()).mib();
    let mut text = format!(
        "{} is valid; memory: at most about {memory} MiB\n",
        path.display()
    );
    for route in &config.routes {
        let receipt = if route.receipt.is_some() {
            "asks receipts"
        } else {
            "no receipts"
        };
        let line = format!(
            "  {}: {} -> {}",
            route.name,
            route.matcher.path.as_str(),
            route
                .upstream
                .addresses()
                .map(|url| &**url)
                .collect::<Vec<_>>()
                .join(", ")
        );
        text.push_str(&format!("{line}, {receipt}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, print: bool) -> Told {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("callgate.yaml");
        std::fs::write(&file, text).unwrap();
        let told = run(&CheckArgs {
            config: Some(file),
            print,
            probe: false,
        });
        let folder = format!("{}/", folder.path().display());
        Told {
            out: told.out.replace(&folder, ""),
            err: told.err.replace(&folder, ""),
            ..told
        }
    }

    const GOOD: &str = "routes: [{ name: a, upstream: { url: \"http://t\" } }]";

    #[test]
    fn a_valid_file_says_what_it_means_and_what_it_may_not_mean() {
        let told = check(GOOD, false);
        let (first, rest) = told.out.split_once('\n').unwrap();
        let memory = first.strip_prefix("callgate.yaml is valid; memory: at most about ");
        assert!(memory.is_some_and(|it| it.ends_with(" MiB")), "{first}");
        assert_eq!(rest, "  a: /** -> http://t, no receipts\n");
        assert!(
            told.err
                .starts_with("warning: routes[0].name: the route \"a\" has no `receipt`")
        );
        assert_eq!(told.exit, Exit::Ok);
    }

    #[test]
    fn print_shows_a_file_that_is_valid_again() {
        let told = check(GOOD, true);
        assert!(
            told.out.contains("\nlisten: 127.0.0.1:8080\n"),
            "{}",
            told.out
        );
        assert_eq!(check(&told.out, true).out, told.out);
    }

    #[test]
    fn a_wrong_file_ends_with_every_mistake_and_code_2() {
        let told = check("node: a b\nroutes: []", true);
        assert_eq!(told.out, "");
        assert_eq!(told.exit, Exit::Usage);
        assert!(
            told.err.contains("callgate.yaml:1:7: node: "),
            "{}",
            told.err
        );
        assert!(
            told.err.contains("callgate.yaml:2:9: routes: "),
            "{}",
            told.err
        );
    }

    #[test]
    fn a_missing_file_names_the_next_command() {
        let told = run(&CheckArgs {
            config: Some("/nonexistent.yaml".into()),
            print: false,
            probe: false,
        });
        assert_eq!(told.exit, Exit::Usage);
        assert!(told.err.contains("callgate init"), "{}", told.err);
        assert!(nowhere().contains("callgate init > callgate.yaml"));
    }
}
