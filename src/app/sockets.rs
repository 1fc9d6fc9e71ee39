//! The two listeners: bound or inherited before anything is changed, listening only when they can
//! be answered.
//!
//! A port that is taken is found out before the ledger is touched, and nobody can connect to a
//! gateway that does not serve yet. A socket that came from a service manager, or from the process
//! this one takes over from, listens already: whoever connects meanwhile waits in its queue.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::error::StartError;
use crate::config::Config;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4_096;

/// Which of the two listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// The callers' (`listen`).
    Callers,
    /// The operators' (`admin.listen`).
    Operators,
}

/// A listening socket that another process made.
#[derive(Debug)]
pub struct Inherited {
    /// Which listener it is to be.
    pub door: Door,
    /// The socket.
    pub listener: TcpListener,
    /// What the configuration said of it where it was made; `None` when a service manager made it,
    /// who need not write an address as we do.
    pub configured: Option<SocketAddr>,
    /// A service manager has it too, so that it outlives every process.
    pub kept: bool,
}

/// Both addresses; they answer nobody yet.
pub(super) struct Sockets {
    pub(super) callers: Bound,
    pub(super) operators: Bound,
}

/// An address that is ours, but answers nobody yet.
pub(super) struct Bound {
    socket: Socket,
    door: Door,
    configured: SocketAddr,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Made,
    Inherited { kept: bool },
}

/// Copies of both listening sockets, for the next process. As long as they are held the kernel
/// takes connections, whoever accepts them.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) callers: Spare,
    pub(super) operators: Spare,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) listener: TcpListener,
    pub(super) configured: SocketAddr,
    pub(super) kept: bool,
}

impl Door {
    /// The configuration key of its address.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Callers => "listen",
            Self::Operators => "admin.listen",
        }
    }

    const fn address(self, config: &Config) -> SocketAddr {
        match self {
            Self::Callers => config.listen,
            Self::Operators => config.admin.listen,
        }
    }
}

impl Sockets {
    /// Takes both addresses of the configuration: from what was inherited, else anew.
    pub(super) fn of(config: &Config, inherited: Vec<Inherited>) -> Result<Self, StartError> {
        let (mut callers, mut operators) = (None, None);
        for one in inherited {
            let place = match one.door {
                Door::Callers => &mut callers,
                Door::Operators => &mut operators,
            };
            *place = Some(one);
        }
        let bound = |door: Door, inherited: Option<Inherited>| {
            let configured = door.address(config);
            // Its predecessor may have listened elsewhere, by an older configuration.
            let fits = |one: &Inherited| one.configured.is_none_or(|was| was == configured);
            match inherited.filter(fits) {
                Some(one) => Bound::adopt(one, configured),
                None => Bound::new(door, configured),
            }
        };
        Ok(Self {
            callers: bound(Door::Callers, callers)?,
            operators: bound(Door::Operators, operators)?,
        })
    }
}

impl Bound {
    /// Takes `address`, which the configuration has for `door`.
    pub(super) fn new(door: Door, address: SocketAddr) -> Result<Self, StartError> {
        Ok(Self {
            socket: bind(address).map_err(refused(door, address))?,
            door,
            configured: address,
            origin: Origin::Made,
        })
    }

    fn adopt(one: Inherited, configured: SocketAddr) -> Result<Self, StartError> {
        let (door, kept) = (one.door, one.kept);
        let unusable = |why| StartError::Unusable {
            key: door.key(),
            why,
        };
        let socket = Socket::from(one.listener);
        if !socket.is_listener().unwrap_or(false) {
            return Err(unusable("it is not a listening stream socket"));
        }
        let Some(address) = socket.local_addr().ok().and_then(|it| it.as_socket()) else {
            return Err(unusable("it has no Internet address"));
        };
        let prepared = socket
            .set_cloexec(true)
            .and_then(|()| socket.set_nonblocking(true));
        prepared.map_err(StartError::system("an inherited socket"))?;
        if one.configured.is_none() {
            tracing::info!(
                key = door.key(),
                %address,
                "listening on an inherited socket; the configured address is not used"
            );
        }
        Ok(Self {
            socket,
            door,
            configured,
            origin: Origin::Inherited { kept },
        })
    }

    /// Whether it was made by another process.
    pub(super) const fn is_inherited(&self) -> bool {
        matches!(self.origin, Origin::Inherited { .. })
    }

    /// Begins to listen; with it comes a spare one for the next process.
    pub(super) fn listen(self) -> Result<(TcpListener, Spare), StartError> {
        let Self {
            socket,
            door,
            configured,
            origin,
        } = self;
        let kept = match origin {
            // Two processes may bind before either listens; the second to listen is refused.
            Origin::Made => {
                let listening = socket.listen(BACKLOG);
                listening.map_err(refused(door, configured))?;
                false
            }
            Origin::Inherited { kept } => kept,
        };
        let listener = TcpListener::from(socket);
        let spare = Spare {
            listener: listener
                .try_clone()
                .map_err(StartError::system("a socket"))?,
            configured,
            kept,
        };
        Ok((listener, spare))
    }
}

impl Held {
    /// The same sockets, as whoever takes them over inherits them.
    pub(super) fn inheritance(&self) -> io::Result<Vec<Inherited>> {
        let one = |door, spare: &Spare| -> io::Result<Inherited> {
            Ok(Inherited {
                door,
                listener: spare.listener.try_clone()?,
                configured: Some(spare.configured),
                kept: spare.kept,
            })
        };
        let callers = one(Door::Callers, &self.callers)?;
        Ok(vec![callers, one(Door::Operators, &self.operators)?])
    }
}

fn refused(door: Door, address: SocketAddr) -> impl FnOnce(io::Error) -> StartError {
    let key = door.key();
    move |source| match source.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse { key, address },
        _ => StartError::Listen {
            key,
            address,
            source,
        },
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

/// Which listeners the sockets of a service manager are to be: by its names (`listen`, `admin`),
/// else by the configured addresses; a single one without either is the callers'.
///
/// # Errors
/// When one of them is neither, or two are the same.
pub fn assign(
    sockets: Vec<(Option<String>, TcpListener)>,
    config: &Config,
) -> Result<Vec<Inherited>, StartError> {
    let alone = sockets.len() == 1;
    let mut inherited: Vec<Inherited> = Vec::with_capacity(sockets.len());
    for (name, listener) in sockets {
        let address = listener.local_addr().ok();
        let is = |door: Door| address == Some(door.address(config));
        let door = match name.as_deref() {
            Some("listen") => Some(Door::Callers),
            Some("admin") => Some(Door::Operators),
            Some(_) | None if is(Door::Callers) => Some(Door::Callers),
            Some(_) | None if is(Door::Operators) => Some(Door::Operators),
            Some(_) | None => alone.then_some(Door::Callers),
        };
        let taken = |door: &Door| inherited.iter().any(|one| one.door == *door);
        let Some(door) = door.filter(|door| !taken(door)) else {
            let what = SockRef::from(&listener).local_addr().ok();
            let what = what.and_then(|it| it.as_socket());
            return Err(StartError::Unnamed {
                name: name.unwrap_or_default(),
                address: what.map_or_else(String::new, |it| it.to_string()),
            });
        };
        inherited.push(Inherited {
            door,
            listener,
            configured: None,
            kept: true,
        });
    }
    Ok(inherited)
}

#[cfg(test)]
mod tests;
