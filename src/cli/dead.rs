//! `callgate dead`: the calls that could not be settled in line, and what an operator does about
//! them.
//!
//! Everything is asked of the running gateway: the command line has no second way to do anything.

mod ages;
mod bulk;
mod diff;
mod job;
mod list;
mod show;
mod verbs;

use super::exit::{Exit, Failure};
use super::gateway::Gateway;
use super::output::Printer;

/// Where dead letters are.
const LETTERS: &str = "/api/v1/dead-letters";

/// `callgate dead ..`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// List dead letters, oldest first
    List(list::ListArgs),
    /// Show a dead letter: its call, every send and question, its rounds, what operators did
    Show(show::ShowArgs),
    /// Ask the tool now what became of a call; also of one that has ended
    Receipt(verbs::OrderArgs),
    /// Ask the tool, and send the call again if it never heard of it
    Resend(verbs::OrderArgs),
    /// Ask the tool, and undo the call if it is still unknown
    Reverse(verbs::OrderArgs),
    /// Settle a call as a human found it to have ended
    Resolve(verbs::ResolveArgs),
    /// Give a call up: nothing is done about it any more
    Discard(verbs::DiscardArgs),
    /// Free the idempotency key of a call that was undone or discarded
    ReleaseKey(verbs::DiscardArgs),
    /// List what the tool said against what is on record
    Diff(diff::DiffArgs),
    /// Do the same to many dead letters, as a job of the gateway
    Bulk(bulk::BulkArgs),
    /// Look at bulk jobs, or cancel one
    #[command(subcommand)]
    Job(job::Command),
}

/// Runs `callgate dead ..`.
///
/// # Errors
/// When the gateway cannot be asked, refuses, or has no such row.
pub fn run(
    command: &Command,
    gateway: &Gateway,
    printer: &mut Printer<'_>,
) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => list::run(args, gateway, printer),
        Command::Show(args) => show::run(args, gateway, printer),
        Command::Receipt(args) => verbs::order("receipt", args, gateway, printer),
        Command::Resend(args) => verbs::order("resend", args, gateway, printer),
        Command::Reverse(args) => verbs::order("reverse", args, gateway, printer),
        Command::Resolve(args) => verbs::resolve(args, gateway, printer),
        Command::Discard(args) => verbs::discard("discard", args, gateway, printer),
        Command::ReleaseKey(args) => verbs::discard("release-key", args, gateway, printer),
        Command::Diff(args) => diff::run(args, gateway, printer),
        Command::Bulk(args) => bulk::run(args, gateway, printer),
        Command::Job(command) => job::run(command, gateway, printer),
    }
}
