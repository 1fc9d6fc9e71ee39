//! Why a gateway did not start, each with the operator's next step.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::ledger::LedgerError;
use crate::telemetry::log::LogError;
use crate::upstream::SetupError;

/// Why a gateway did not start. Nothing was sent then, and nobody was served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A route's tool can never be reached as configured.
    #[error("a route's tool can never be reached as configured; `callgate check` shows all routes")]
    Setup(#[from] SetupError),
    /// A listener's address is taken.
    #[error(
        "`{key}` {address} is in use by another process: stop that one (`ss -ltnp 'sport = :{}'` \
         shows it) or set `{key}` to another address",
        address.port()
    )]
    InUse {
        /// The configuration key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// A listener's address cannot be had.
    #[error(
        "`{key}` {address} cannot be listened on; set `{key}` to an address this user may have"
    )]
    Listen {
        /// The configuration key.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// An inherited socket cannot be what it is meant for.
    #[error(
        "the inherited socket for `{key}` cannot be used: {why}; hand over a TCP socket that \
         listens (systemd: ListenStream=)"
    )]
    Unusable {
        /// The configuration key.
        key: &'static str,
        /// What is wrong with it.
        why: &'static str,
    },
    /// An inherited socket is for neither listener.
    #[error(
        "an inherited socket (name `{name}`, address {address}) is not known to be for callers \
         or for operators: name it `listen` or `admin` (systemd: FileDescriptorName=), or let \
         it have the configured address"
    )]
    Unnamed {
        /// Its name, as it came.
        name: String,
        /// Where it listens.
        address: String,
    },
    /// The process that has the ledger did not let it go.
    #[error("waited {} s for another process to let the ledger go", waited.as_secs())]
    Waited {
        /// How long.
        waited: Duration,
        /// Who holds it.
        source: LedgerError,
    },
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The log cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The system refused a thread, a runtime or a signal handler.
    #[error("the system refused {what}; look at the limits of this user (`ulimit -a`)")]
    System {
        /// What was wanted.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The thread that starts the gateway died.
    #[error("the gateway failed inside while it started; the line above says where")]
    Died,
}

impl StartError {
    /// Whether the configuration has to be changed, as opposed to the machine.
    #[must_use]
    pub const fn is_configuration(&self) -> bool {
        match self {
            Self::Setup(_)
            | Self::Log(LogError::Level(_) | LogError::Pairs { .. })
            | Self::Ledger(LedgerError::NotAFile { .. } | LedgerError::NotALedger { .. }) => true,
            Self::InUse { .. }
            | Self::Listen { .. }
            | Self::Unusable { .. }
            | Self::Unnamed { .. }
            | Self::Waited { .. }
            | Self::Ledger(_)
            | Self::Log(LogError::AlreadyOpen | LogError::Writer(_))
            | Self::System { .. }
            | Self::Died => false,
        }
    }

    pub(super) fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}
