//! The command line: what can be typed, and how each command ends.
//!
//! One module per subcommand; composition only, nothing about a call is decided here. Data goes to
//! standard output, everything else to standard error, so that a pipe gets nothing but data.
//! Deliberately absent: colours beyond those of the help text, which heed `NO_COLOR` themselves.

mod client;
pub mod dead;
pub mod demo;
pub mod exit;
pub mod gateway;
pub mod health;
pub mod output;
pub mod receipt;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use demo::DemoArgs;
use exit::{Exit, Failure};
use gateway::{Configured, GatewayArgs};

/// What the command line is composed with: the parts that live in lower layers.
#[derive(Clone, Copy)]
pub struct Parts {
    /// Serves until it is told to stop.
    pub serve: fn(ServeArgs) -> anyhow::Result<ExitCode>,
    /// Starts the demonstration's gateway in this process.
    pub launch: fn(demo::Setting) -> anyhow::Result<demo::Gateway>,
    /// The operator's address in a configuration file: the given one, else the usual places.
    pub configured: fn(Option<&Path>) -> anyhow::Result<Option<Configured>>,
}

/// A gateway for calls to tools: it never says success or failure when it does not know.
#[derive(Debug, Parser)]
#[command(
    name = "callgate",
    version,
    propagate_version = true,
    max_term_width = 100
)]
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
    /// List and show calls that could not be settled in line
    #[command(subcommand)]
    Dead(dead::Command),
    /// Show what the gateway knows about a call
    Receipt(receipt::ReceiptArgs),
    /// Ask whether the gateway is ready; for containers and scripts
    Health(health::HealthArgs),
}

/// `callgate serve`
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ServeArgs {
    /// The configuration file [default: ./callgate.yaml, then /etc/callgate/callgate.yaml]
    #[arg(long, value_name = "FILE", conflicts_with = "tool")]
    pub config: Option<PathBuf>,
    /// Serve without a file: every call goes to this tool
    #[arg(long, value_name = "URL")]
    pub tool: Option<String>,
}

/// Runs the command line and says how it ended. Blocks; must not be called inside a runtime.
pub fn run(args: impl IntoIterator<Item = OsString>, parts: Parts) -> ExitCode {
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
    perform(cli, parts).unwrap_or_else(|failure| {
        if failure.is_end_of_pipe() {
            return Exit::Ok.into();
        }
        eprintln!("callgate: {failure}");
        failure.exit().into()
    })
}

fn perform(cli: Cli, parts: Parts) -> Result<ExitCode, Failure> {
    let gateway = |args: GatewayArgs| args.find(parts.configured);
    let output = cli.gateway.output;
    let exit = match cli.command {
        Command::Demo(args) => return Ok(demo::run(&args, Box::new(parts.launch))?),
        Command::Serve(args) => return Ok((parts.serve)(args)?),
        Command::Dead(command) => dead::run(&command, &gateway(cli.gateway)?, output)?,
        Command::Receipt(args) => receipt::run(&args, &gateway(cli.gateway)?, output)?,
        Command::Health(args) => health::run(&args, &gateway(cli.gateway)?)?,
    };
    Ok(exit.into())
}

#[cfg(test)]
mod tests;
