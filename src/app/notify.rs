//! What the service manager is told (`sd_notify`): a datagram of `NAME=value` lines.
//!
//! Ours because it is so little. Who does not run under systemd has no such socket, and nothing is
//! told. Deliberately absent: a watchdog; a gateway whose ledger hangs is better looked at than
//! killed, and one that died is seen without.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service manager, if there is one.
#[derive(Clone, Debug, Default)]
pub struct Manager {
    /// Where it listens (`NOTIFY_SOCKET`): a path, or `@` and an abstract name.
    address: Option<OsString>,
}

impl Manager {
    /// The manager that listens at `address`; none without one.
    #[must_use]
    pub fn at(address: Option<OsString>) -> Self {
        Self {
            address: address.filter(|address| !address.is_empty()),
        }
    }

    /// Callers are served.
    pub(super) fn ready(&self) {
        self.tell("READY=1");
    }

    /// The gateway drains.
    pub(super) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Another process is the service now.
    pub(super) fn succeeded_by(&self, process: u32) {
        self.tell(&format!("MAINPID={process}\nREADY=1"));
    }

    fn tell(&self, what: &str) {
        let Some(address) = &self.address else { return };
        let told = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            path => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path)),
        };
        if let Err(error) = told.and_then(|to| send(what, &to)) {
            tracing::warn!(%error, what, "the service manager could not be told");
        }
    }
}

fn send(what: &str, to: &SocketAddr) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read must not hold the gateway up.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(what.as_bytes(), to).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_manager_is_told_by_path_and_by_abstract_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("callgate-notify-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        let managers = [
            (UnixDatagram::bind(&path).unwrap(), path.into_os_string()),
            (
                UnixDatagram::bind_addr(&abstract_name).unwrap(),
                format!("@{name}").into(),
            ),
        ];
        for (manager, address) in managers {
            let told = Manager::at(Some(address));
            told.ready();
            told.succeeded_by(7);
            told.stopping();
            manager
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            for expected in ["READY=1", "MAINPID=7\nREADY=1", "STOPPING=1"] {
                let mut heard = [0; 64];
                let bytes = manager.recv(&mut heard).unwrap();
                assert_eq!(&heard[..bytes], expected.as_bytes());
            }
        }
        Manager::at(None).ready();
        Manager::at(Some("/nowhere/at/all".into())).ready();
    }
}
