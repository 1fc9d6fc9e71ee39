//! `callgate serve`: with a configuration file, or in front of one tool.
//!
//! The demonstration's gateway in this process starts here too, since it is the same gateway.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

pub mod inherit;

use inherit::{Given, Numbers};

use super::exit::{Exit, Failure};
use super::{check, demo, probe};
use crate::app::{self, Begin, Ended, Entrance, Gateway, Ground};
use crate::config::{self, Config, LedgerUrl, Report, Source, ToolOptions};
use crate::telemetry::log::LEVEL_VARIABLE;

/// Where `--tool` looks for receipts: the form callgate itself answers.
const RECEIPTS: &str = "/receipts/{call_id}";

/// `callgate serve`
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
pub struct ServeArgs {
    /// The configuration file [default: ./callgate.yaml, then /etc/callgate/callgate.yaml]
    #[arg(long, value_name = "FILE", conflicts_with = "tool")]
    pub config: Option<PathBuf>,
    /// Serve without a file: every call goes to this tool
    #[arg(long, value_name = "URL")]
    pub tool: Option<String>,
    /// With --tool: where callers connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS", requires = "tool")]
    pub listen: Option<SocketAddr>,
    /// With --tool: where operators connect [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDRESS", requires = "tool")]
    pub admin_listen: Option<SocketAddr>,
    /// With --tool: where calls are recorded [default: sqlite:callgate.db]
    #[arg(long, value_name = "URL", requires = "tool")]
    pub ledger: Option<String>,
    /// Listen on sockets this process was started with: callers', and operators' next to it
    #[arg(long, value_name = "N[,N+1]", conflicts_with = "takeover")]
    pub inherit_fd: Option<Numbers>,
    /// Take over from the process that started this one, over standard input
    #[arg(long, hide = true)]
    pub takeover: bool,
}

/// Serves until it is told to stop.
///
/// # Errors
/// Why it did not start, or why it could not go on.
pub fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    if let Some(numbers) = args.inherit_fd {
        return Err(numbers.adopt());
    }
    let given = Given::take()?;
    let ground = Ground::new();
    let (config, source) = match &args.tool {
        Some(url) => (for_tool(url, args, &ground)?, None),
        None => from_file(args.config.as_deref())?,
    };
    let overriding = std::env::var(LEVEL_VARIABLE).ok();
    let _log = ground.open_log(config.log, overriding).map_err(failed)?;
    for notice in &config.warnings {
        tracing::warn!(key = notice.path, "{}", notice.text);
    }
    let entrance = if args.takeover {
        inherit::taken_over()?
    } else {
        Entrance {
            inherited: given.assigned(&config)?,
            predecessor: None,
        }
    };
    let told = Told::of(&config);
    let begin = Begin {
        config,
        source,
        ground,
        entrance,
        manager: inherit::manager(),
        invocation: inherit::invocation(),
    };
    let ended = app::serve(begin, |gateway| told.serving(gateway)).map_err(failed)?;
    Ok(match ended {
        Ended::Drained(_) => ExitCode::SUCCESS,
        Ended::AtOnce => Exit::Failed.into(),
    })
}

/// Starts the demonstration's gateway in this process.
///
/// # Errors
/// Why it did not start.
pub fn launch(setting: demo::Setting) -> anyhow::Result<demo::Gateway> {
    let lookup = |name: &str| setting.variables.get(name).cloned();
    let config = config::parse(&setting.yaml, "demo.yaml", &setting.folder, &lookup)?;
    let ground = Ground::new();
    let log = ground.open_log(config.log, std::env::var(LEVEL_VARIABLE).ok())?;
    let gateway = Gateway::start(config, ground)?;
    let (callers, admin) = (gateway.callers(), gateway.admin());
    Ok(demo::Gateway::new(callers, admin, move || {
        // How it ended is in the log, which is written out after it.
        let _stopped = gateway.stop();
        drop(log);
    }))
}

fn from_file(named: Option<&Path>) -> Result<(Config, Option<Source>), Failure> {
    let Some(file) = named.map(Path::to_owned).or_else(config::find_default) else {
        let nowhere = check::nowhere();
        return Err(Failure::Usage(format!(
            "{}\n  Without a file: callgate serve --tool http://127.0.0.1:9000",
            nowhere.trim_end()
        )));
    };
    let config = config::load(&file).map_err(wrong)?;
    Ok((config, Some(Source::new(&file))))
}

/// The configuration for one tool, after a look at what it offers.
fn for_tool(url: &str, args: &ServeArgs, ground: &Ground) -> Result<Config, Failure> {
    let without = ToolOptions {
        receipt: None,
        listen: args.listen,
        admin_listen: args.admin_listen,
        ledger: args.ledger.clone(),
    };
    let with = ToolOptions {
        receipt: Some(RECEIPTS.to_owned()),
        ..without.clone()
    };
    let config = config::for_tool(url, &with).map_err(wrong)?;
    let route = config.routes.first().expect("one tool makes one route");
    let probed = app::probe::receipts(route, &route.upstream, ground).map_err(failed)?;
    let probed = probed.expect("the route was made with receipts");
    eprint!("{}", probe::of_tool(&route.upstream.address, &probed));
    if probe::is_receipt(probed.answer) {
        return Ok(config);
    }
    config::for_tool(url, &without).map_err(wrong)
}

/// What a person at the terminal is told once callers are served.
struct Told {
    routes: Vec<String>,
    ledger: String,
}

impl Told {
    fn of(config: &Config) -> Self {
        let routes = config.routes.iter().map(|route| {
            format!(
                "{} -> {}",
                route.matcher.path.as_str(),
                route.upstream.address
            )
        });
        let ledger = match &config.ledger.url {
            LedgerUrl::Sqlite(path) => path.display().to_string(),
            LedgerUrl::Memory => "memory: calls are forgotten when this process ends".to_owned(),
        };
        Self {
            routes: routes.collect(),
            ledger,
        }
    }

    fn serving(&self, gateway: &Gateway) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        eprintln!("callers    http://{}", gateway.callers());
        for route in &self.routes {
            eprintln!("             {route}");
        }
        eprintln!(
            "operators  http://{}  (/metrics, /readyz?verbose)",
            gateway.admin()
        );
        eprintln!("ledger     {}", self.ledger);
        eprintln!(
            "Stop with Ctrl-C: running calls are finished first; a second Ctrl-C ends at once."
        );
    }
}

/// What is wrong with a configuration, every mistake of it.
fn wrong(report: Report) -> Failure {
    Failure::Usage(report.to_string())
}

/// Why something of the gateway could not be started.
pub(super) fn failed(error: app::StartError) -> Failure {
    let configuration = error.is_configuration();
    let error = anyhow::Error::new(error);
    if configuration {
        Failure::Usage(format!("{error:#}"))
    } else {
        Failure::Other(error)
    }
}
