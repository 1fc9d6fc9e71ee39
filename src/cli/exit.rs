//! How a command ends: the exit codes that scripts rely on, and the failures behind them.

use std::process::ExitCode;

use http::StatusCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what it was asked.
    Ok,
    /// It failed.
    Failed,
    /// It was asked wrongly, or the configuration is wrong.
    Usage,
    /// It finished, but what it asked about is unresolved.
    Unresolved,
    /// What it asked about is not there.
    NotFound,
}

impl Exit {
    /// The number for the shell.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Unresolved => 3,
            Self::NotFound => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not do what it was asked. Each text ends with the next thing to do.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An option that makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Nothing answers at the gateway's address.
    #[error(
        "no gateway answers at {address} ({source}); this address comes from {origin}\n  \
         Is it running? Start one with `callgate serve`, or say where it is with --admin URL or \
         CALLGATE_ADMIN."
    )]
    Unreachable {
        /// The address tried.
        address: String,
        /// Who said that it is there.
        origin: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// What answers there does not speak as a gateway does.
    #[error(
        "what answers at {address} is no callgate admin listener: {what}\n  \
         Check --admin: callers use another address (`listen`) than operators (`admin.listen`)."
    )]
    Strange {
        /// The address asked.
        address: String,
        /// What was strange.
        what: String,
    },
    /// The gateway wants another token, or one at all.
    #[error(
        "the gateway at {address} wants its admin.token\n  \
         Give it with --token or CALLGATE_ADMIN_TOKEN."
    )]
    Unauthorized {
        /// The address asked.
        address: String,
    },
    /// The gateway knows nothing of the kind.
    #[error("{0}")]
    NotFound(String),
    /// The gateway refused.
    #[error("the gateway refused ({status}): {detail}")]
    Refused {
        /// The status it answered with.
        status: StatusCode,
        /// What it said.
        detail: String,
    },
    /// The output could not be written.
    #[error("the output could not be written: {0}")]
    Output(#[from] std::io::Error),
    /// Anything else.
    #[error("{0:#}")]
    Other(#[from] anyhow::Error),
}

impl Failure {
    /// Whoever read the output has seen enough, as `head` does: no failure.
    #[must_use]
    pub fn is_end_of_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// The exit code a failure ends with.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            Self::Refused { status, .. } if *status == StatusCode::BAD_REQUEST => Exit::Usage,
            Self::Unreachable { .. }
            | Self::Strange { .. }
            | Self::Unauthorized { .. }
            | Self::Refused { .. }
            | Self::Output(_)
            | Self::Other(_) => Exit::Failed,
        }
    }
}
