//! The command line: what can be typed, and how each command ends.
//!
//! One module per subcommand; composition only, nothing about a call is decided here. Data goes to
//! standard output, everything else to standard error, so that a pipe gets nothing but data.
//! Deliberately absent: colours beyond those of the help text, which heed `NO_COLOR` themselves.

pub mod batch;
pub mod check;
mod client;
pub mod dead;
pub mod demo;
pub mod exit;
pub mod gateway;
pub mod health;
pub mod init;
pub mod output;
mod probe;
pub mod push;
pub mod receipt;
pub mod retries;
pub mod serve;
pub mod why;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use demo::DemoArgs;
use exit::{Exit, Failure};
use gateway::GatewayArgs;
use output::Printer;
use serve::ServeArgs;

/// A gateway for calls to tools: it never says success or failure when it does not know.
#[derive(Debug, Parser)]
#[command(name = "callgate", version, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 ok, 1 failed, 2 usage or configuration, 3 finished but \
                        something is unresolved, 4 not found."
)]
struct Cli {
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show on this machine what callgate does about a faulty tool
    Demo(DemoArgs),
    /// Serve: with a configuration file, or in front of one tool
    Serve(ServeArgs),
    /// Print a short commented configuration to start from
    Init,
    /// Validate a configuration, without serving
    Check(check::CheckArgs),
    /// Push a file of rows as calls, each exactly once, and watch
    Push(push::PushArgs),
    /// List, show, pause, resume, cancel and export batches
    #[command(subcommand)]
    Batch(batch::Command),
    /// Look at calls that could not be settled in line, and do something about them
    #[command(subcommand)]
    Dead(dead::Command),
    /// Show what the gateway knows about a call
    Receipt(receipt::ReceiptArgs),
    /// Switch resends on or off while the gateway runs
    Retries(retries::RetriesArgs),
    /// Tell why a call ran as it did: its timeline, and a verdict
    Why(why::WhyArgs),
    /// Ask whether the gateway is ready; for containers and scripts
    Health(health::HealthArgs),
}

/// Runs the command line and says how it ended. Blocks; must not be called inside a runtime.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        // Help and version are errors to the parser and no errors to anybody else.
        Err(stop) => {
            let exit = if stop.use_stderr() {
                Exit::Usage
            } else {
                Exit::Ok
            };
            // Nobody is left to tell when the terminal is gone.
            drop(stop.print());
            return exit.into();
        }
    };
    perform(cli).unwrap_or_else(|failure| {
        if failure.is_end_of_pipe() {
            return Exit::Ok.into();
        }
        eprintln!("callgate: {failure}");
        failure.exit().into()
    })
}

fn perform(cli: Cli) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout();
    let mut printer = Printer::new(cli.gateway.output, &mut out);
    let exit = match cli.command {
        Command::Demo(args) => return Ok(demo::run(&args, Box::new(serve::launch))?),
        Command::Serve(args) => return serve::run(&args),
        Command::Init => tell(&init::run(), &mut printer)?,
        Command::Check(args) => tell(&check::run(&args), &mut printer)?,
        Command::Push(args) => push::run(&args, &cli.gateway.find()?, &mut printer)?,
        Command::Batch(command) => batch::run(&command, &cli.gateway.find()?, &mut printer)?,
        Command::Dead(command) => dead::run(&command, &cli.gateway.find()?, &mut printer)?,
        Command::Receipt(args) => receipt::run(&args, &cli.gateway.find()?, &mut printer)?,
        Command::Retries(args) => retries::run(&args, &cli.gateway.find()?, &mut printer)?,
        Command::Why(args) => why::run(&args, || cli.gateway.find(), &mut printer)?,
        Command::Health(args) => health::run(&args, &cli.gateway.find()?, &mut printer)?,
    };
    Ok(exit.into())
}

fn tell(told: &check::Told, printer: &mut Printer<'_>) -> Result<Exit, Failure> {
    eprint!("{}", told.err);
    printer.text(&told.out)?;
    Ok(told.exit)
}

#[cfg(test)]
mod tests;
