//! `callgate retries`: the run-time switch for resends.
//!
//! First sends and questions go on. The switch belongs to the running gateway and is forgotten by
//! its restart; a configuration that resends nothing says so with `retry.max_retries: 0`.

use serde_json::{Value, json};

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::{self, Column, Printer};

const SWITCHES: &[Column] = &[("ROUTE", "route"), ("SENT AGAIN", "enabled")];

/// `callgate retries`
#[derive(Clone, Debug, clap::Args)]
pub struct RetriesArgs {
    /// What to do; without it, the switches are shown
    #[arg(value_enum)]
    turn: Option<Turn>,
    /// Only this route; without it, all of them
    #[arg(long, value_name = "NAME", requires = "turn")]
    route: Option<String>,
}

/// Where the switch shall stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Turn {
    /// Calls may be sent again, as their policy says
    On,
    /// No call is sent again; what stays unclear is asked about and queued
    Off,
}

/// Runs `callgate retries`.
///
/// # Errors
/// When the gateway cannot be asked, or has no such route.
pub fn run(
    args: &RetriesArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let target = Target::new("/api/v1/retries");
    let switches = match args.turn {
        None => gateway.document(&target)?,
        Some(turn) => {
            let mut wanted = json!({ "enabled": turn == Turn::On });
            if let Some(route) = &args.route {
                wanted["route"] = Value::from(route.as_str());
            }
            gateway.tell(&target, &wanted)?
        }
    };
    let routes = switches["routes"].as_object().into_iter().flatten();
    let rows: Vec<Value> = routes
        .map(|(name, enabled)| json!({ "route": name, "enabled": enabled }))
        .collect();
    printer.one(&switches, &output::rows(&rows, SWITCHES))?;
    Ok(Exit::Ok)
}
