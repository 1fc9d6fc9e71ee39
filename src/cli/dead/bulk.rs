//! `callgate dead bulk`: preview, make and watch a job of the gateway.
//!
//! The job is the gateway's: a command that is interrupted leaves it running, and one that loses
//! the gateway waits for it to come back.

use std::io::{self, BufRead as _, IsTerminal as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::job;
use super::list::FilterArgs;
use crate::cli::client::{Target, pause};
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{self, Printer};

/// Between two looks at a running job.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Looks in a row that may find no gateway, while one restarts: a minute.
const LOST_MAX: u32 = 120;

/// `callgate dead bulk`
#[derive(Clone, Debug, clap::Args)]
pub struct BulkArgs {
    /// What is done to each
    verb: Verb,
    #[command(flatten)]
    filter: FilterArgs,
    /// Every dead letter, when nothing says which
    #[arg(long)]
    all: bool,
    /// Only say what would be met: the tool is asked, nothing is sent
    #[arg(long)]
    dry_run: bool,
    /// Do not ask back
    #[arg(long)]
    yes: bool,
    /// How many are begun, such as 10/s or 90/m
    #[arg(long, value_name = "N/s", default_value = "10/s", value_parser = per_minute)]
    rate: u32,
    /// Why, for whoever reads the audit later; `discard` needs it
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

/// What can be done to many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Verb {
    /// Ask the tool, and send again what it never heard of
    Resend,
    /// Ask the tool, and undo what is still unknown
    Reverse,
    /// Give up
    Discard,
    /// Ask the tool
    Receipt,
}

impl Verb {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Resend => "resend",
            Self::Reverse => "reverse",
            Self::Discard => "discard",
            Self::Receipt => "receipt",
        }
    }
}

pub(super) fn run(
    args: &BulkArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let verb = args.verb.as_str();
    let mut wanted = json!({ "verb": verb, "filter": args.filter.document(), "all": args.all });
    if args.dry_run {
        let found = preview(gateway, &wanted)?;
        printer.one(&found, &table(&found))?;
        return Ok(Exit::Ok);
    }
    if !args.yes && !agreed(gateway, verb, &wanted)? {
        eprintln!("Nothing was done.");
        return Ok(Exit::Failed);
    }
    wanted["per_minute"] = args.rate.into();
    wanted["why"] = args.why.as_deref().into();
    let made = gateway.tell(&Target::new(job::JOBS), &wanted)?;
    if made["joined"] == true {
        eprintln!(
            "{} has the same job running since {}: joined job {}.",
            made["who"].as_str().unwrap_or("Somebody"),
            made["made_at"].as_str().unwrap_or("a while"),
            made["job"]
        );
    } else {
        eprintln!("Job {}: {} dead letters.", made["job"], made["total"]);
    }
    if let Some(left @ 1..) = made["left_out"].as_u64() {
        eprintln!("{left} more match and are left out of this job; run it again for them.");
    }
    let done = watch(gateway, &made)?;
    printer.one(&done, &job::table(&done))?;
    Ok(job::exit(&done))
}

fn preview(gateway: &Gateway, wanted: &Value) -> Result<Value, Failure> {
    gateway.tell(&Target::new(job::JOBS).segment("preview"), wanted)
}

/// Shows what would be met and asks back.
fn agreed(gateway: &Gateway, verb: &str, wanted: &Value) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "`dead bulk {verb}` asks back before it does anything, and nobody is there to answer: \
             add --yes, or look first with --dry-run"
        )));
    }
    let found = preview(gateway, wanted)?;
    eprint!("{}", table(&found));
    eprint!("{verb} {} dead letters? [y/N] ", found["matching"]);
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// Watches a job to its end, over a restart of the gateway if it comes to that.
fn watch(gateway: &Gateway, made: &Value) -> Result<Value, Failure> {
    let bar = indicatif::ProgressBar::new(made["total"].as_u64().unwrap_or(0));
    let target = || Target::new(job::JOBS).segment(&made["job"].to_string());
    let mut lost = 0;
    loop {
        match gateway.document(&target()) {
            Ok(found) => {
                lost = 0;
                bar.set_position(found["ended"].as_u64().unwrap_or(0));
                if found["state"] != "RUNNING" {
                    bar.finish_and_clear();
                    return Ok(found);
                }
            }
            Err(failure @ Failure::Unreachable { .. }) => {
                lost += 1;
                if lost == 1 {
                    eprintln!("The gateway is gone; the job waits in its ledger, and so do I.");
                }
                if lost > LOST_MAX {
                    return Err(failure);
                }
            }
            Err(failure) => return Err(failure),
        }
        pause(LOOK_AGAIN)?;
    }
}

fn table(found: &Value) -> String {
    let complete = found["complete"] == true;
    let asked = if complete {
        "all of them".to_owned()
    } else {
        format!("a sample of {}", found["asked"])
    };
    output::pairs([
        ("matching", found["matching"].clone()),
        ("asked about", asked.into()),
        ("already done at the tool", found["done"].clone()),
        ("failed at the tool", found["failed"].clone()),
        ("still processing", found["processing"].clone()),
        ("safe to resend", found["safe_to_resend"].clone()),
        ("must not be resent", found["not_resendable"].clone()),
        ("the tool does not say", found["unknown"].clone()),
        ("cannot be asked", found["not_askable"].clone()),
    ])
}

/// A rate as items in a minute.
fn per_minute(text: &str) -> Result<u32, String> {
    let wrong = || format!("`{text}` is no rate; write 10/s or 90/m, at most 1000/s");
    let (count, factor) = match text.split_once('/') {
        Some((count, "s")) => (count, 60),
        Some((count, "m")) => (count, 1),
        Some(_) => return Err(wrong()),
        None => (text, 60),
    };
    let count: u32 = count.trim().parse().map_err(|_| wrong())?;
    let rate = count.checked_mul(factor).ok_or_else(wrong)?;
    if (1..=60_000).contains(&rate) {
        Ok(rate)
    } else {
        Err(wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_a_second_or_a_minute() {
        for (text, expected) in [("10/s", 600), ("90/m", 90), ("5", 300), ("1000/s", 60_000)] {
            assert_eq!(per_minute(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "0/s",
            "1001/s",
            "10/h",
            "x/s",
            "-1/s",
            "1.5/s",
            "99999999999/s",
        ] {
            let told = per_minute(text).unwrap_err();
            assert!(told.contains("10/s"), "{told}");
        }
    }

    #[test]
    fn a_preview_says_whether_it_is_a_sample() {
        let mut found = json!({
            "matching": 1000, "asked": 200, "complete": false, "done": 150, "failed": 0,
            "processing": 10, "safe_to_resend": 40, "unknown": 0, "not_askable": 0,
        });
        assert!(table(&found).contains("asked about               a sample of 200\n"));
        found["complete"] = true.into();
        let text = table(&found);
        assert!(
            text.contains("asked about               all of them\n"),
            "{text}"
        );
        assert!(text.contains("safe to resend            40\n"), "{text}");
    }
}
