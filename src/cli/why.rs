//! `callgate why`: the timeline of one call or key, a verdict, and the four questions behind it.
//!
//! It asks the gateway, or reads the ledger of one that is not running; both make the document with
//! the same code. A tool's own log is read here and only here: it lies where the person is.

mod log;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::{self, Column, Printer};
use crate::admin::why::{Telling, tell};
use crate::call::history::{self, Judgement, Verdict};
use crate::call::id::ClientName;
use crate::ledger::LedgerError;
use crate::ledger::sqlite::stopped;
use log::LogArgs;

const TIMELINE: &[Column] = &[
    ("TIME", "at"),
    ("SINCE", "since"),
    ("WHAT HAPPENED", "text"),
];

const QUESTIONS: &[Column] = &[
    ("QUESTION", "question"),
    ("ANSWER", "answer"),
    ("EVIDENCE", "evidence"),
];

const OTHERS: &[Column] = &[
    ("OTHER ID", "callId"),
    ("HOW", "how"),
    ("CAME", "at"),
    ("STATE", "state"),
    ("SENDS", "sends"),
    ("KEY", "idempotencyKey"),
];

/// `callgate why`
#[derive(Clone, Debug, clap::Args)]
pub struct WhyArgs {
    /// The call id, or an idempotency key, or the text one was made from
    #[arg(value_name = "ID|KEY")]
    name: String,
    /// Whose call, when several clients use this name
    #[arg(long)]
    client: Option<String>,
    /// Read this ledger file instead of asking a gateway; it is not locked and not changed
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    #[command(flatten)]
    log: LogArgs,
}

/// Runs `callgate why`: 0 when the story was told, whatever the verdict; 4 when nothing of that
/// name is known.
///
/// # Errors
/// When the gateway or the file cannot be asked, or knows no such name.
pub fn run(
    args: &WhyArgs,
    gateway: impl FnOnce() -> Result<Gateway, Failure>,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let mut why = match &args.ledger {
        Some(file) => from_file(args, file)?,
        None => {
            let target = Target::new("/api/v1/calls")
                .segment(&args.name)
                .plain("/why")
                .with("client", args.client.as_deref());
            gateway()?.document(&target)?
        }
    };
    if let Some(read) = args.log.read(&why)? {
        compare(&mut why, &read);
    }
    printer.one(&why, &table(&why))?;
    Ok(Exit::Ok)
}

fn from_file(args: &WhyArgs, file: &std::path::Path) -> Result<Value, Failure> {
    let client = args.client.as_deref().map(ClientName::new);
    let stories = stopped::stories(file, client.as_ref(), &args.name);
    let stories = stories.map_err(|error| match error {
        LedgerError::NoFile { .. }
        | LedgerError::NotAFile { .. }
        | LedgerError::NotALedger { .. }
        | LedgerError::NewerSchema { .. }
        | LedgerError::NoAccess { .. } => Failure::Usage(error.to_string()),
        error => Failure::Other(error.into()),
    })?;
    match tell(&stories, &args.name) {
        Telling::One(why) => {
            serde_json::to_value(why).map_err(|error| Failure::Other(error.into()))
        }
        Telling::Nothing => Err(Failure::NotFound(format!(
            "{} knows neither a call id nor a key of this name; ended calls are forgotten after \
             their window (idempotency.window)",
            file.display()
        ))),
        Telling::Several(clients) => Err(Failure::Usage(format!(
            "several clients use this name ({}): add --client NAME",
            clients.join(", ")
        ))),
    }
}

/// Lets the tool's own log speak.
fn compare(why: &mut Value, read: &log::Read) {
    let verdict = why["verdict"].as_str().and_then(Verdict::from_word);
    let base = Judgement {
        verdict: verdict.unwrap_or(Verdict::Unknown),
        because: why["because"].as_str().unwrap_or_default().to_owned(),
    };
    let Judgement { verdict, because } = history::with_log(base, &read.found);
    why["verdict"] = verdict.as_str().into();
    why["because"] = because.into();
    if let Some((answer, evidence)) = history::same_id_by_log(&read.found) {
        let first = &mut why["questions"][0];
        let before = first["evidence"].as_str().unwrap_or_default();
        let evidence = format!("{before}; {evidence}");
        first["evidence"] = evidence.into();
        // A log can only take away what the gateway saw: it does not see what callers sent.
        if answer == history::Certain::No {
            first["answer"] = answer.as_str().into();
        }
    }
    let found = &read.found;
    why["log"] = json!({
        "lines": found.lines,
        "executions": found.executions,
        "altered": found.altered,
        "strangers": found.strangers,
        "howCounted": read.how_counted,
        "linesRead": read.lines,
        "linesSkipped": read.skipped,
    });
}

fn table(why: &Value) -> String {
    let (asked, id) = (&why["asked"], &why["callId"]);
    let head = output::pairs([
        ("call id", id.clone()),
        (
            "asked about",
            if asked == id {
                Value::Null
            } else {
                asked_about(why)
            },
        ),
        ("verdict", why["verdict"].clone()),
        ("because", why["because"].clone()),
        ("state", why["state"].clone()),
        ("client", why["client"].clone()),
        ("route", why["route"].clone()),
        ("key", why["idempotencyKey"].clone()),
        ("key made from", why["businessKey"].clone()),
        ("tool's log", log_line(&why["log"])),
    ]);
    let lines: Vec<Value> = list(&why["timeline"])
        .iter()
        .map(|line| line_of(why, line))
        .collect();
    let mut text = head + "\n" + &output::rows(&lines, TIMELINE);
    text += "\n";
    text += &output::rows(list(&why["questions"]), QUESTIONS);
    let others = list(&why["others"]);
    if !others.is_empty() {
        text += "\n";
        text += &output::rows(others, OTHERS);
    }
    if why["searchedAll"] == false {
        text += "\nOther ids were looked for among the calls recorded nearest to this one only.\n";
    }
    text
}

fn asked_about(why: &Value) -> Value {
    let asked = why["asked"].as_str().unwrap_or_default();
    let id = why["callId"].as_str().unwrap_or_default();
    let what = match why["found"].as_str() {
        Some("alias") => format!("{asked}: an id that came with the same key as {id}"),
        _ => format!("{asked}: the key of {id}"),
    };
    what.into()
}

fn log_line(log: &Value) -> Value {
    if log.is_null() {
        return Value::Null;
    }
    let executions = match log["executions"].as_u64() {
        Some(count) => format!("{count} execution(s)"),
        None => "executions cannot be told apart".to_owned(),
    };
    let how = log["howCounted"].as_str().unwrap_or_default();
    let skipped = match log["linesSkipped"].as_u64() {
        Some(count @ 1..) => format!("; {count} line(s) were no JSON"),
        _ => String::new(),
    };
    format!(
        "{} line(s) with this id, {executions} ({how}){skipped}",
        log["lines"]
    )
    .into()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[][..], Vec::as_slice)
}

/// A line as it is shown: with its offset as people read it, and its life when there are several.
fn line_of(why: &Value, line: &Value) -> Value {
    let lives = list(&why["timeline"])
        .iter()
        .filter_map(|line| line["life"].as_u64())
        .max();
    let text = line["text"].as_str().unwrap_or_default();
    let text = match line["life"].as_u64() {
        Some(life) if lives > Some(1) => format!("[use {life} of the id] {text}"),
        _ => text.to_owned(),
    };
    json!({
        "at": line["at"],
        "since": offset(line["offsetMs"].as_i64().unwrap_or_default()),
        "text": text,
    })
}

/// `+0 ms`, `+8.2 s`, `+3 min 10 s`, `+2 h 5 min`, `+1 d 3 h`.
fn offset(ms: i64) -> String {
    let s = ms / 1_000;
    match ms {
        ..1_000 => format!("+{ms} ms"),
        1_000..60_000 => format!("+{s}.{} s", ms % 1_000 / 100),
        60_000..3_600_000 => format!("+{} min {} s", s / 60, s % 60),
        3_600_000..86_400_000 => format!("+{} h {} min", s / 3_600, s % 3_600 / 60),
        86_400_000.. => format!("+{} d {} h", s / 86_400, s % 86_400 / 3_600),
    }
}

#[cfg(test)]
mod tests;
