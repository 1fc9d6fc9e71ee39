//! `callgate batch`: the batches of a running gateway.

mod export;

use http::Method;

use super::client::Target;
use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::{Column, Output, Printer};
use super::push::wire::Link;
use super::push::{BATCHES, summary, watch};

const COLUMNS: &[Column] = &[
    ("BATCH", "name"),
    ("STATE", "state"),
    ("ROUTE", "route"),
    ("ITEMS", "items"),
    ("WAITING", "waiting"),
    ("LEASED", "leased"),
    ("RUNNING", "running"),
    ("DONE", "done"),
    ("REFUSED", "refused"),
    ("UNRESOLVED", "unresolved"),
    ("BAD", "bad"),
    ("BEGAN", "createdAt"),
    ("ENDED", "endedAt"),
];

/// What a spreadsheet gets.
const WIDE: &[&str] = &[
    "name",
    "state",
    "route",
    "client",
    "items",
    "waiting",
    "leased",
    "running",
    "done",
    "refused",
    "unresolved",
    "bad",
    "cancelled",
    "retried",
    "settledByReceipt",
    "replayed",
    "createdAt",
    "endedAt",
];

/// `callgate batch ..`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// List batches, the newest first
    List(ListArgs),
    /// Show a batch
    Show(Named),
    /// Watch a batch to its end, as `push` does
    Watch(Named),
    /// Begin nothing new of a batch until it is resumed
    Pause(Named),
    /// Go on with a paused batch
    Resume(Named),
    /// Finish what runs of a batch, and begin nothing else of it
    Cancel(Named),
    /// One line per item: state, call id, key, attempts, status, error
    Export(ExportArgs),
}

/// `callgate batch list`
#[derive(Clone, Debug, clap::Args)]
pub struct ListArgs {
    /// Only those that run or have something unresolved
    #[arg(long)]
    open: bool,
    /// The batch that the unresolved call with this id belongs to
    #[arg(long, value_name = "ID")]
    call_id: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

/// A batch by its name.
#[derive(Clone, Debug, clap::Args)]
pub struct Named {
    /// The batch's name
    name: String,
}

/// `callgate batch export`
#[derive(Clone, Debug, clap::Args)]
pub struct ExportArgs {
    /// The batch's name
    name: String,
    /// Only items in this state, such as UNRESOLVED, REFUSED or BAD
    #[arg(long)]
    state: Option<String>,
    /// The same as --output, which export takes for csv unless it is given
    #[arg(long = "as", value_enum, hide = true)]
    form: Option<Output>,
}

/// Runs `callgate batch ..`.
///
/// # Errors
/// When the gateway cannot be asked, refuses, or has no such batch.
pub fn run(
    command: &Command,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let link = Link::new(gateway);
    let named = |named: &Named| Target::new(BATCHES).segment(&named.name);
    let (method, target) = match command {
        Command::List(args) => {
            let page = runtime.block_on(link.document(Method::GET, &listed(args)))?;
            printer.list(&page, COLUMNS, WIDE)?;
            if page["items"].as_array().is_none_or(Vec::is_empty) {
                eprintln!("No batch matches.");
            }
            return Ok(Exit::Ok);
        }
        Command::Watch(args) => {
            let (exit, batch) = runtime.block_on(watch(&link, &args.name, false))?;
            runtime.shutdown_background();
            printer.one(&batch, &summary(&batch))?;
            return Ok(exit);
        }
        Command::Export(args) => return runtime.block_on(export::run(&link, args, printer)),
        Command::Show(args) => (Method::GET, named(args)),
        Command::Pause(args) => (Method::POST, named(args).segment("pause")),
        Command::Resume(args) => (Method::POST, named(args).segment("resume")),
        Command::Cancel(args) => (Method::POST, named(args).segment("cancel")),
    };
    let batch = runtime.block_on(link.document(method, &target))?;
    printer.one(&batch, &summary(&batch))?;
    Ok(Exit::Ok)
}

fn listed(args: &ListArgs) -> Target {
    Target::new(BATCHES)
        .with("limit", Some(&args.limit.to_string()))
        .with("open", args.open.then_some("true"))
        .with("call_id", args.call_id.as_deref())
}
