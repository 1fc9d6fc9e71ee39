//! `callgate push`: a file of rows becomes a batch of the gateway.
//!
//! The command reads the file once to see that it can be used, submits it, and watches. The batch
//! lives in the gateway: whoever ends this command, or the gateway, in the middle loses nothing,
//! and the same command again joins the same batch, because its name is made of what the file
//! says. Deliberately absent: sending anything to a tool.

mod name;
mod progress;
mod source;
mod submit;
mod watch;
pub(super) mod wire;

use std::path::PathBuf;

use clap::ArgAction;

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::Printer;
use crate::batch::recipe::{Recipe, Typed};
use crate::batch::rows::{BadRow, Format};
use source::Source;
pub(super) use watch::{summary, watch};
use wire::Link;

pub(super) const BATCHES: &str = "/api/v1/batches";

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Written {
    /// Comma-separated, with a header row
    Csv,
    /// One JSON object a line
    Jsonl,
}

/// `callgate push`
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 every row is done, 1 rows were refused or bad (or it \
                        failed), 3 something is unresolved or still runs."
)]
pub struct PushArgs {
    /// A CSV with a header row, or JSON lines; `-` is standard input
    file: PathBuf,
    /// The route the calls take
    #[arg(long)]
    route: String,
    /// How many calls run at once
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=256))]
    workers: u32,
    /// The batch's name; the same name again joins it [default: made of the file's contents]
    #[arg(long, value_name = "NAME")]
    batch: Option<String>,
    /// Whose calls these are, where clients are configured
    #[arg(long)]
    client: Option<String>,
    /// The method [default: POST]
    #[arg(long)]
    method: Option<String>,
    /// The path, such as '/track/{column}' [default: the route's]
    #[arg(long)]
    path: Option<String>,
    /// The body, with {column} parts [default: the row as a JSON object]
    #[arg(long, value_name = "TEMPLATE")]
    body: Option<String>,
    /// A header field, such as 'X-Tracking: {column}'; as often as needed
    #[arg(long, value_name = "FIELD", action = ArgAction::Append)]
    header: Vec<String>,
    /// How the rows are written [default: by the file's name]
    #[arg(long, value_enum)]
    format: Option<Written>,
    /// What the file is encoded in, such as gbk [default: UTF-8]
    #[arg(long)]
    encoding: Option<String>,
    /// Run nothing if any row is bad
    #[arg(long)]
    strict: bool,
    /// Submit and leave; the gateway goes on
    #[arg(long)]
    detach: bool,
    /// No progress
    #[arg(short, long)]
    quiet: bool,
}

/// What is submitted, and how it is called.
struct Job {
    name: String,
    target: Target,
    format: Format,
}

/// Runs `callgate push`.
///
/// # Errors
/// When the file cannot be used, or the gateway cannot be asked or refuses.
pub fn run(args: &PushArgs, gateway: &Gateway, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    let recipe = Typed {
        method: args.method.clone(),
        path: args.path.clone(),
        body: args.body.clone(),
        headers: args.header.clone(),
    };
    let read = Recipe::read(&recipe).map_err(Failure::Usage)?;
    let source = Source::open(&args.file, args.encoding.as_deref())?;
    let format = format_of(args)?;
    let looked = source.look(format, &read).map_err(Failure::Usage)?;
    if args.strict && looked.bad > 0 {
        tell_bad(&looked.bad_rows, looked.bad, None);
        return Err(Failure::Usage(format!(
            "{} of {} rows cannot be used, and --strict runs nothing then",
            looked.bad, looked.rows
        )));
    }
    let job = job(args, format, &looked.digest);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let link = Link::new(gateway);
        let submitted = submit::submit(&link, &job, &source, looked.digest, args.quiet).await?;
        told(&job, &submitted, args.quiet);
        if args.detach {
            return Ok((Exit::Ok, submitted["batch"].clone()));
        }
        watch(&link, &job.name, args.quiet).await
    });
    // A question at the terminal may still wait for its line; nobody needs the answer.
    runtime.shutdown_background();
    let (exit, batch) = ended?;
    printer.one(&batch, &summary(&batch))?;
    Ok(exit)
}

fn format_of(args: &PushArgs) -> Result<Format, Failure> {
    let named = match args.format {
        Some(Written::Csv) => Some(Format::Csv),
        Some(Written::Jsonl) => Some(Format::JsonLines),
        None => Format::of_name(&args.file.to_string_lossy()),
    };
    named.ok_or_else(|| {
        Failure::Usage(format!(
            "`{}` does not say how its rows are written: add --format csv or --format jsonl",
            args.file.display()
        ))
    })
}

fn job(args: &PushArgs, format: Format, digest: &[u8; 32]) -> Job {
    let name = args.batch.clone().unwrap_or_else(|| name::of(args, digest));
    let workers = args.workers.to_string();
    let mut target = Target::new(BATCHES)
        .with("name", Some(&name))
        .with("route", Some(&args.route))
        .with("workers", Some(&workers))
        .with("client", args.client.as_deref())
        .with("strict", args.strict.then_some("true"))
        .with("method", args.method.as_deref())
        .with("path", args.path.as_deref())
        .with("body", args.body.as_deref());
    for field in &args.header {
        target = target.with("header", Some(field));
    }
    Job {
        name,
        target,
        format,
    }
}

/// Says what was submitted, and which rows were not.
fn told(job: &Job, submitted: &serde_json::Value, quiet: bool) {
    let number = |name: &str| submitted[name].as_u64().unwrap_or(0);
    let (new, known, bad) = (number("new"), number("known"), number("bad"));
    let rows: Vec<BadRow> = submitted["badRows"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|row| BadRow {
            line: row["line"]
                .as_u64()
                .and_then(|n| u32::try_from(n).ok())
                .unwrap_or(0),
            why: row["why"].as_str().unwrap_or_default().to_owned(),
        })
        .collect();
    tell_bad(&rows, bad, Some(&job.name));
    if quiet {
        return;
    }
    let name = &job.name;
    if new == 0 && known > 0 {
        eprintln!("batch {name}: all {known} rows were submitted before; nothing is sent twice");
    } else if known > 0 {
        eprintln!("batch {name}: {new} rows submitted, {known} were there before");
    } else {
        eprintln!("batch {name}: {new} rows submitted");
    }
}

/// Reports bad rows, as many as were told.
fn tell_bad(rows: &[BadRow], count: u64, batch: Option<&str>) {
    for row in rows {
        eprintln!(
            "line {}: {}",
            row.line,
            crate::telemetry::log::visible(&row.why)
        );
    }
    let more = count.saturating_sub(rows.len() as u64);
    match batch {
        Some(name) if more > 0 => {
            eprintln!("and {more} bad rows more: callgate batch export {name} --state BAD");
        }
        Some(_) | None if more > 0 => eprintln!("and {more} bad rows more"),
        Some(_) | None => {}
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn parse(line: &str) -> PushArgs {
        let command = PushArgs::augment_args(Command::new("push"));
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        PushArgs::from_arg_matches(&matches).unwrap()
    }

    #[test]
    fn a_file_without_a_known_ending_needs_a_word() {
        assert!(format_of(&parse("push x.txt --route r")).is_err());
        let said = format_of(&parse("push x.txt --route r --format jsonl"));
        assert_eq!(said.unwrap(), Format::JsonLines);
    }
}
