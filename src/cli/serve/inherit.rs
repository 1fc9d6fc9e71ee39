//! What this process was given by whoever started it: listening sockets, a line to the process it
//! takes over from, the address of the service manager.
//!
//! Read from the environment once, before there is a second thread. A number is made a socket by
//! `listenfd` alone, which knows the service managers' variables; so numbers on the command line
//! are put into those, and the program is started once more in the same process.

use std::ffi::OsString;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use super::failed;
use crate::app::sockets::{self, Inherited};
use crate::app::{Entrance, Invocation, Manager, Predecessor, handover};
use crate::cli::exit::Failure;
use crate::config::Config;

/// The first number behind standard input, output and error.
const FIRST_NUMBER: u32 = 3;

/// Listening sockets on the command line: one for callers, perhaps one for operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    first: u32,
    both: bool,
}

/// Sockets a service manager has given, with their names.
pub(super) struct Given(Vec<(Option<String>, TcpListener)>);

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected the number of an open socket that listens for callers, such as 3, or that \
             and the next one for operators: 3,4"
                .to_owned()
        };
        let number = |text: &str| text.parse().ok().filter(|n| *n >= FIRST_NUMBER);
        let (first, second) = match text.split_once(',') {
            Some((first, second)) => (first, Some(second)),
            None => (text, None),
        };
        let first = number(first).ok_or_else(wrong)?;
        match second {
            None => Ok(Self { first, both: false }),
            Some(second) if number(second).is_some_and(|n| first.checked_add(1) == Some(n)) => {
                Ok(Self { first, both: true })
            }
            Some(_) => Err(wrong()),
        }
    }
}

impl Numbers {
    /// Starts this command once more, told of the numbers as a service manager tells of them.
    pub(super) fn adopt(self) -> Failure {
        let (count, names) = if self.both {
            ("2", "listen:admin")
        } else {
            ("1", "listen")
        };
        let mut command = match std::env::current_exe() {
            Ok(program) => Command::new(program),
            Err(error) => return Failure::Other(error.into()),
        };
        let error = command
            .args(without_numbers(std::env::args_os().skip(1)))
            .env_remove("LISTEN_PID")
            .env("LISTEN_FDS", count)
            .env("LISTEN_FDS_FIRST_FD", self.first.to_string())
            .env("LISTEN_FDNAMES", names)
            .exec();
        Failure::Other(error.into())
    }
}

/// The arguments but `--inherit-fd`, in both of its forms.
fn without_numbers(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut arguments = arguments;
    while let Some(one) = arguments.next() {
        match one.to_str() {
            Some("--inherit-fd") => drop(arguments.next()),
            Some(text) if text.starts_with("--inherit-fd=") => {}
            Some(_) | None => kept.push(one),
        }
    }
    kept
}

impl Given {
    /// The sockets this process was started with. Takes them from the environment: whoever is
    /// started from here is not told of them.
    pub(super) fn take() -> Result<Self, Failure> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let mut given = listenfd::ListenFd::from_env();
        let mut sockets = Vec::with_capacity(given.len());
        for n in 0..given.len() {
            let name = names.next().filter(|name| !name.is_empty());
            match given.take_tcp_listener(n) {
                Ok(Some(listener)) => sockets.push((name, listener)),
                Ok(None) => {}
                Err(error) => {
                    return Err(Failure::Usage(format!(
                        "socket {n} of those this process was started with (LISTEN_FDS) is no TCP \
                         socket: {error}"
                    )));
                }
            }
        }
        Ok(Self(sockets))
    }

    /// What they are to be, by their names or by the configuration.
    pub(super) fn assigned(self, config: &Config) -> Result<Vec<Inherited>, Failure> {
        sockets::assign(self.0, config).map_err(failed)
    }
}

/// What a process gets that takes over from another.
pub(super) fn taken_over() -> Result<Entrance, Failure> {
    let met = Predecessor::meet(std::io::stdin());
    let (predecessor, inherited) = met.map_err(|error| {
        Failure::Usage(format!(
            "{} is for the process that a running callgate starts on SIGUSR2 ({error}); leave it \
             out",
            handover::FLAG
        ))
    })?;
    Ok(Entrance {
        inherited,
        predecessor: Some(predecessor),
    })
}

/// The command this process was started by, which a process that takes over is started by, too.
pub(super) fn invocation() -> Option<Invocation> {
    let mut words = std::env::args_os();
    Some(Invocation {
        program: words.next()?,
        arguments: words.collect(),
    })
}

/// The service manager, as it tells of itself.
pub(super) fn manager() -> Manager {
    Manager::at(std::env::var_os("NOTIFY_SOCKET"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_one_or_two_that_follow_each_other() {
        let one = Numbers {
            first: 3,
            both: false,
        };
        assert_eq!("3".parse(), Ok(one));
        let two = Numbers {
            first: 7,
            both: true,
        };
        assert_eq!("7,8".parse(), Ok(two));
        for wrong in [
            "",
            "2",
            "x",
            "3,",
            "3,5",
            "4,3",
            "3,4,5",
            "-3",
            "4294967295,0",
        ] {
            let told = wrong.parse::<Numbers>().unwrap_err();
            assert!(told.contains("3,4"), "{wrong}: {told}");
        }
    }

    #[test]
    fn the_command_is_started_anew_without_the_numbers() {
        let words = [
            "serve",
            "--inherit-fd",
            "3",
            "--config",
            "a.yaml",
            "--inherit-fd=3,4",
        ];
        let kept = without_numbers(words.into_iter().map(OsString::from));
        assert_eq!(kept, ["serve", "--config", "a.yaml"]);
    }
}
