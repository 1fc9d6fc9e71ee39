//! `callgate dead diff`: what the tool said against what is on record, for reconciliation.

use super::list;
use crate::cli::client::Target;
use crate::cli::exit::{Exit, Failure};
use crate::cli::gateway::Gateway;
use crate::cli::output::{Column, Printer};

const COLUMNS: &[Column] = &[
    ("SEEN", "seen"),
    ("CALL ID", "call_id"),
    ("BETWEEN", "kind"),
    ("TOLD", "told"),
    ("ON RECORD", "recorded"),
    ("SETTLED BY", "settled_by"),
    ("DEAD LETTER", "dead_letter"),
    ("ROUTE", "route"),
    ("CLIENT", "client"),
];

const WIDE: &[&str] = &[
    "seen",
    "call_id",
    "kind",
    "told",
    "recorded",
    "settled_by",
    "settled_at",
    "dead_letter",
    "route",
    "client",
    "business_key",
    "request_id",
];

/// `callgate dead diff`
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    /// Only of this kind: answer, receipt, result, reversal
    #[arg(long)]
    kind: Option<String>,
    /// Only of this route
    #[arg(long)]
    route: Option<String>,
    /// Only of this client
    #[arg(long)]
    client: Option<String>,
    /// How many at most, newest first
    #[arg(long, default_value_t = 100, value_parser = list::rows())]
    limit: u32,
    /// Go on after the page that ended here
    #[arg(long)]
    cursor: Option<String>,
}

pub(super) fn run(
    args: &DiffArgs,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let target = || {
        Target::new("/api/v1/differences")
            .with("kind", args.kind.as_deref())
            .with("route", args.route.as_deref())
            .with("client", args.client.as_deref())
    };
    let page = list::pages(gateway, target, args.limit, args.cursor.as_deref())?;
    printer.list(&page, COLUMNS, WIDE)?;
    list::hint(&page, "No difference is on record.");
    Ok(Exit::Ok)
}
