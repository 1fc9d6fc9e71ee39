//! `callgate demo`: a deliberately faulty tool, a night's batch of parcel-tracking calls, and two
//! ways to push it. The figures come from the tool's own books; the exit code is 0 only if callgate
//! executed nothing twice, lost nothing and told nobody anything untrue.
//!
//! `parcel` is the business, `faults` the plan, `books` the truth, `tool` the server; `batch` has
//! the items, which `baseline` pushes with a new key for every try, and `push` as a batch of the
//! gateway; `queue` reads the gateway afterwards, `audit` compares, `table` prints, `run` is the
//! course.
//! Deliberately absent: the gateway itself. It comes in through [`Launch`] and is used over sockets
//! only, as a stranger would use it.

mod audit;
mod baseline;
mod batch;
mod books;
mod client;
mod faults;
mod parcel;
mod push;
mod queue;
mod run;
mod table;
mod tool;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

/// The gateway's configuration for the demonstration.
const YAML: &str = include_str!("../../config/demo.yaml");

/// The largest batch: its accounts and books stay in memory.
const MOST: i64 = 1_000_000;

/// `callgate demo`
#[derive(Debug, Clone, clap::Args)]
pub struct DemoArgs {
    /// Names the fault plan: the same seed is the same batch with the same faults
    #[arg(long, default_value_t = 7)]
    pub seed: u64,
    /// How many calls the batch has
    #[arg(long, default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=MOST))]
    pub calls: u32,
    /// How many workers push them
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub workers: u32,
    /// Leave tool and gateway serving afterwards, with four lines to paste
    #[arg(long, conflicts_with = "tool")]
    pub keep: bool,
    /// Serve the faulty tool alone
    #[arg(long)]
    pub tool: bool,
}

/// What a gateway is started with.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The text of the configuration file.
    pub yaml: String,
    /// The folder that relative paths of the configuration mean. It is gone after the run.
    pub folder: PathBuf,
    /// Values for `${NAME}` in the configuration.
    pub variables: BTreeMap<String, String>,
}

/// A gateway that serves.
pub struct Gateway {
    /// The callers' listener.
    pub callers: SocketAddr,
    /// The admin listener.
    pub admin: SocketAddr,
    stop: Box<dyn FnOnce() + Send>,
}

/// Starts a gateway in this process. Called on a thread that may block, inside a Tokio runtime.
pub type Launch = Box<dyn FnOnce(Setting) -> anyhow::Result<Gateway> + Send>;

impl Gateway {
    /// `stop` ends the gateway; it is called once, on a thread that may block.
    pub fn new(
        callers: SocketAddr,
        admin: SocketAddr,
        stop: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            callers,
            admin,
            stop: Box::new(stop),
        }
    }

    fn stop(self) {
        (self.stop)();
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Gateway")
            .field("callers", &self.callers)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

/// Runs the subcommand. Blocks; must not be called from inside a Tokio runtime.
///
/// # Errors
/// When the demonstration could not be carried out: no port, no gateway, an admin API that does not
/// answer. A column that is not clean is no error but exit code 1.
pub fn run(args: &DemoArgs, launch: Launch) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("demo")
        .enable_all()
        .build()?;
    if args.tool {
        runtime.block_on(run::serve_tool(args))?;
        return Ok(ExitCode::SUCCESS);
    }
    let clean = runtime.block_on(run::compare(args, launch))?;
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::DemoArgs;

    fn parse(line: &str) -> Result<DemoArgs, clap::Error> {
        let command = DemoArgs::augment_args(Command::new("demo"));
        let matches = command.try_get_matches_from(line.split(' '))?;
        DemoArgs::from_arg_matches(&matches)
    }

    #[test]
    fn the_flags_have_their_defaults_and_their_limits() {
        let plain = parse("demo").expect("no flag is needed");
        assert_eq!((plain.calls, plain.workers), (3_000, 20));
        assert!(!plain.keep && !plain.tool);
        let chosen = parse("demo --seed 3 --calls 50 --workers 2 --keep").expect("all flags");
        assert_eq!((chosen.seed, chosen.calls, chosen.workers), (3, 50, 2));
        for wrong in [
            "--calls 0",
            "--workers 0",
            "--workers 257",
            "--keep --tool",
            "--seed -1",
        ] {
            assert!(parse(&format!("demo {wrong}")).is_err(), "{wrong}");
        }
    }
}
