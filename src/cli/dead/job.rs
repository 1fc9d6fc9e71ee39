//! `callgate dead job`: the bulk jobs of the gateway.

use serde_json::{Value, json};

use super::list::hint;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{self, Column, Printer};

/// Where jobs are.
pub(super) const JOBS: &str = "/api/v1/jobs";

/// Results after which nobody has to look at the row any more.
const ENDS: [&str; 6] = [
    "settled",
    "failed",
    "agrees",
    "reversed",
    "discarded",
    "already",
];

const COLUMNS: &[Column] = &[
    ("JOB", "job"),
    ("VERB", "verb"),
    ("STATE", "state"),
    ("ENDED", "ended"),
    ("OF", "total"),
    ("MADE", "made_at"),
    ("BY", "who"),
    ("FILTER", "filter"),
];

const WIDE: &[&str] = &[
    "job", "verb", "state", "ended", "total", "left_out", "made_at", "ended_at", "who", "why",
    "filter",
];

const ITEMS: &[Column] = &[
    ("ITEM", "item"),
    ("CALL ID", "call_id"),
    ("CLIENT", "client"),
    ("STATE", "state"),
    ("RESULT", "result"),
    ("DETAIL", "detail"),
];

const WIDE_ITEMS: &[&str] = &[
    "item", "call_id", "client", "state", "result", "detail", "ended_at",
];

/// `callgate dead job ..`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// List jobs, newest first
    List {
        /// How many at most, 1 to 1000
        #[arg(long, default_value_t = 100)]
        limit: u16,
    },
    /// Show a job: its progress, or what became of each row
    Show {
        /// Its number
        job: u32,
        /// List its rows with their results
        #[arg(long)]
        items: bool,
        /// Rows at most, 1 to 1000
        #[arg(long, default_value_t = 1_000)]
        limit: u16,
        /// Go on after the page that ended here
        #[arg(long)]
        cursor: Option<String>,
    },
    /// Cancel a job: rows that wait are left alone, those under way end
    Cancel {
        /// Its number
        job: u32,
    },
}

pub(super) fn run(
    command: &Command,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let at = |job: &u32| Target::new(JOBS).segment(&job.to_string());
    match command {
        Command::List { limit } => {
            let target = Target::new(JOBS).with("limit", Some(&limit.to_string()));
            let page = gateway.document(&target)?;
            printer.list(&page, COLUMNS, WIDE)?;
            hint(&page, "There is no bulk job.");
            Ok(Exit::Ok)
        }
        Command::Show {
            job,
            items: true,
            limit,
            cursor,
        } => {
            let target = at(job)
                .segment("items")
                .with("limit", Some(&limit.to_string()))
                .with("cursor", cursor.as_deref());
            let page = gateway.document(&target)?;
            printer.list(&page, ITEMS, WIDE_ITEMS)?;
            hint(&page, "No rows.");
            Ok(Exit::Ok)
        }
        Command::Show { job, .. } => {
            let found = gateway.document(&at(job))?;
            printer.one(&found, &table(&found))?;
            Ok(exit(&found))
        }
        Command::Cancel { job } => {
            let told = gateway.delete(&at(job))?;
            if told["result"] == "already" {
                eprintln!("It was over already; nothing was changed.");
            }
            printer.one(&told, &table(&told))?;
            Ok(Exit::Ok)
        }
    }
}

/// 0 when every row of a job has an end that needs nobody any more.
pub(super) fn exit(job: &Value) -> Exit {
    let results = job["results"].as_object();
    let known = results.is_some_and(|all| all.keys().all(|word| ENDS.contains(&word.as_str())));
    if job["state"] == "DONE" && known {
        Exit::Ok
    } else {
        Exit::Unresolved
    }
}

/// A job in one look.
pub(super) fn table(job: &Value) -> String {
    let progress = json!(format!("{} of {}", job["ended"], job["total"]));
    let left = job["left_out"].as_u64().filter(|left| *left > 0);
    let head = output::pairs([
        ("job", job["job"].clone()),
        ("verb", job["verb"].clone()),
        ("state", job["state"].clone()),
        ("ended", progress),
        ("left out", left.into()),
        ("filter", job["filter"].clone()),
        ("made by", job["who"].clone()),
        ("made at", job["made_at"].clone()),
        ("why", job["why"].clone()),
        ("over at", job["ended_at"].clone()),
        ("cancelled by", job["cancelled_by"].clone()),
    ]);
    let results = job["results"].as_object().into_iter().flatten();
    let results: Vec<_> = results
        .map(|(word, count)| json!({ "word": word, "count": count }))
        .collect();
    if results.is_empty() {
        return head;
    }
    head + "\n" + &output::rows(&results, &[("RESULT", "word"), ("ROWS", "count")])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_left_something_unresolved_has_an_exit_code_of_its_own() {
        let job = |state: &str, results: Value| json!({ "state": state, "results": results });
        let table = [
            (job("DONE", json!({"settled": 3, "already": 1})), Exit::Ok),
            (
                job("DONE", json!({"settled": 3, "not-found": 1})),
                Exit::Unresolved,
            ),
            (job("DONE", json!({"refused": 1})), Exit::Unresolved),
            (job("CANCELLED", json!({"settled": 1})), Exit::Unresolved),
            (job("RUNNING", json!({})), Exit::Unresolved),
        ];
        for (job, expected) in table {
            assert_eq!(exit(&job), expected, "{job}");
        }
    }

    #[test]
    fn a_job_is_shown_in_one_look() {
        let job = json!({
            "job": 3, "verb": "resend", "state": "DONE", "total": 4, "ended": 4, "left_out": 0,
            "filter": {"route": "orders"}, "who": "ann@ops", "made_at": "2026-11-01T12:00:00.000Z",
            "why": null, "ended_at": "2026-11-01T12:00:09.000Z", "cancelled_by": null,
            "results": {"settled": 3, "unclear": 1},
        });
        let expected = "\
job      3
verb     resend
state    DONE
ended    4 of 4
filter   {\"route\":\"orders\"}
made by  ann@ops
made at  2026-11-01T12:00:00.000Z
over at  2026-11-01T12:00:09.000Z

RESULT   ROWS
settled  3
unclear  1
";
        assert_eq!(table(&job), expected);
    }
}
