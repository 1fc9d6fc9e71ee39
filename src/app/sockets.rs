//! The two listeners: bound before anything is changed, listening only when they can be answered.
//!
//! A port that is taken is found out before the ledger is swept, and nobody can connect to a
//! gateway that does not serve yet.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::error::StartError;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// An address that is ours, but answers nobody yet.
pub(super) struct Bound {
    socket: Socket,
    key: &'static str,
    address: SocketAddr,
}

impl Bound {
    /// Takes `address`, which the configuration has under `key`.
    pub(super) fn new(key: &'static str, address: SocketAddr) -> Result<Self, StartError> {
        match bind(address) {
            Ok(socket) => Ok(Self {
                socket,
                key,
                address,
            }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(StartError::InUse { key, address })
            }
            Err(source) => Err(StartError::Listen {
                key,
                address,
                source,
            }),
        }
    }

    /// Begins to listen.
    pub(super) fn listen(self) -> Result<TcpListener, StartError> {
        let Self {
            socket,
            key,
            address,
        } = self;
        match socket.listen(BACKLOG) {
            Ok(()) => Ok(socket.into()),
            // Two processes may bind before either listens; the second to listen is refused.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                Err(StartError::InUse { key, address })
            }
            Err(source) => Err(StartError::Listen {
                key,
                address,
                source,
            }),
        }
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_cloexec(true)?;
    // A restart must not wait for the connections of its predecessor to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn a_taken_address_is_told_by_its_key_and_with_the_next_command() {
        let taken = Bound::new("listen", loopback()).unwrap().listen().unwrap();
        let address = taken.local_addr().unwrap();
        let error = Bound::new("admin.listen", address).err().unwrap();
        assert!(
            matches!(
                error,
                StartError::InUse {
                    key: "admin.listen",
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .contains(&format!("ss -ltnp 'sport = :{}'", address.port()))
        );
        assert!(!error.is_configuration());
    }

    #[test]
    fn an_address_of_another_machine_is_told_with_what_the_system_said() {
        let elsewhere = "192.0.2.1:0".parse().unwrap();
        let error = Bound::new("listen", elsewhere).err().unwrap();
        assert!(matches!(error, StartError::Listen { .. }), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }

    #[test]
    fn nobody_can_connect_before_it_listens() {
        let bound = Bound::new("listen", loopback()).unwrap();
        let address = bound.socket.local_addr().unwrap().as_socket().unwrap();
        let refused = std::net::TcpStream::connect(address).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let listener = bound.listen().unwrap();
        assert!(std::net::TcpStream::connect(listener.local_addr().unwrap()).is_ok());
    }
}
