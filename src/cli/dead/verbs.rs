//! `callgate dead receipt|resend|reverse|resolve|discard|release-key`: one call, one verb.
//!
//! 0 when it is done and the end of the call is known, 3 when nobody knows the end still, 1 when
//! the gateway refuses, 4 when there is no such call.

use std::time::Duration;

use serde_json::{Value, json};

use super::show::One;
use crate::cli::client::pause;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{self, Printer};

/// How long a command waits for an order that takes longer than an answer may.
const ORDER_WITHIN: Duration = Duration::from_secs(120);

/// Between two looks at it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// An order about one call.
#[derive(Clone, Debug, clap::Args)]
pub struct OrderArgs {
    #[command(flatten)]
    one: One,
    /// Why, for whoever reads the audit later
    #[arg(long, value_name = "TEXT")]
    why: Option<String>,
}

/// `callgate dead resolve`
#[derive(Clone, Debug, clap::Args)]
pub struct ResolveArgs {
    #[command(flatten)]
    one: One,
    /// How the call ended
    #[arg(long = "as", value_name = "END")]
    verdict: End,
    /// How you know
    #[arg(long, value_name = "TEXT")]
    note: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum End {
    /// The tool did the work
    Success,
    /// It did not, and never will
    Failed,
}

/// `callgate dead discard`, `callgate dead release-key`
#[derive(Clone, Debug, clap::Args)]
pub struct DiscardArgs {
    #[command(flatten)]
    one: One,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// Gives an order and waits for its end.
pub(super) fn order(
    verb: &str,
    args: &OrderArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let said = args
        .why
        .as_ref()
        .map_or_else(|| json!({}), |why| json!({ "why": why }));
    let mut told = gateway.tell(&args.one.target(Some(verb)), &said)?;
    if told["result"] == "under-way" {
        eprintln!("The gateway is still at it; waiting.");
        told = wait_for(told, &args.one, gateway)?;
    }
    printer.one(&told, &table(&told))?;
    Ok(if told["known"] == true {
        Exit::Ok
    } else {
        Exit::Unresolved
    })
}

/// Looks at the audit until the order has its end there.
fn wait_for(mut told: Value, one: &One, gateway: &Gateway) -> Result<Value, Failure> {
    let looks = ORDER_WITHIN.as_millis() / LOOK_AGAIN.as_millis();
    for _ in 0..looks {
        pause(LOOK_AGAIN)?;
        let row = gateway.document(&one.target(None))?;
        let lines = row["audit"].as_array().map_or(&[][..], Vec::as_slice);
        let line = lines.iter().find(|line| line["id"] == told["audit"]);
        if let Some(line) = line.filter(|line| !line["after"].is_null()) {
            let settled =
                |state: &Value| matches!(state.as_str(), Some("SETTLED" | "FAILED" | "REVERSED"));
            told["result"] = json!("ended");
            told["known"] = settled(&line["after"]).into();
            for member in ["before", "after", "told"] {
                told[member] = line[member].clone();
            }
            return Ok(told);
        }
    }
    eprintln!("It has not ended yet; `callgate dead show` will have its end.");
    Ok(told)
}

pub(super) fn resolve(
    args: &ResolveArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let verdict = match args.verdict {
        End::Success => "success",
        End::Failed => "failed",
    };
    let said = json!({ "as": verdict, "note": args.note });
    decided(
        &gateway.tell(&args.one.target(Some("resolve")), &said)?,
        printer,
    )
}

/// Gives a call up, or frees its key.
pub(super) fn discard(
    verb: &str,
    args: &DiscardArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let said = json!({ "reason": args.reason });
    decided(&gateway.tell(&args.one.target(Some(verb)), &said)?, printer)
}

fn decided(told: &Value, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    if told["result"] == "already" {
        eprintln!("It was so already; nothing was changed.");
    }
    printer.one(told, &table(told))?;
    Ok(Exit::Ok)
}

fn table(told: &Value) -> String {
    let members = [
        ("call id", "call_id"),
        ("client", "client"),
        ("verb", "verb"),
        ("result", "result"),
        ("told", "told"),
        ("before", "before"),
        ("after", "after"),
    ];
    output::pairs(members.map(|(name, member)| (name, told[member].clone())))
}
