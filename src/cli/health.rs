//! `callgate health`: readiness for container health checks, where no other program is at hand.

use serde_json::json;

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::Printer;

/// `callgate health`
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct HealthArgs {
    /// Only ask whether the process is alive
    #[arg(long)]
    live: bool,
}

/// Runs `callgate health`: 0 when the gateway is ready (or alive), 1 when it is not.
///
/// # Errors
/// When the gateway does not answer.
pub fn run(
    args: &HealthArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let path = if args.live {
        "/livez"
    } else {
        "/readyz?verbose"
    };
    let answer = gateway.ask(&Target::new(path))?;
    let text = String::from_utf8_lossy(&answer.body);
    let ok = answer.status.is_success();
    let mut lines = text.lines();
    let document = json!({
        "status": lines.next(),
        "ok": ok,
        "checks": lines.collect::<Vec<_>>(),
    });
    printer.one(&document, &text)?;
    Ok(if ok { Exit::Ok } else { Exit::Failed })
}
