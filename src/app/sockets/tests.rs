//! Addresses that are taken, made, inherited, and those that cannot be used.

use super::*;
use crate::config;
use std::path::Path;

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn config(listen: SocketAddr, admin: SocketAddr) -> Config {
    let text = format!(
        "listen: {listen}\nadmin: {{ listen: \"{admin}\" }}\nledger: {{ url: \"memory:\" }}\n\
         routes: [{{ name: all, upstream: {{ url: \"http://127.0.0.1:9\" }}, receipt: {{}} }}]\n"
    );
    config::parse(&text, "test.yaml", Path::new(""), &|_| None).unwrap()
}

fn made() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn a_taken_address_is_told_by_its_key_and_with_the_next_command() {
    let (taken, _) = Bound::new(Door::Callers, loopback())
        .unwrap()
        .listen()
        .unwrap();
    let address = taken.local_addr().unwrap();
    let error = Bound::new(Door::Operators, address).err().unwrap();
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
    let error = Bound::new(Door::Callers, elsewhere).err().unwrap();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn nobody_can_connect_before_it_listens() {
    let bound = Bound::new(Door::Callers, loopback()).unwrap();
    let address = bound.socket.local_addr().unwrap().as_socket().unwrap();
    let refused = std::net::TcpStream::connect(address).err().unwrap();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    let (listener, _) = bound.listen().unwrap();
    assert!(std::net::TcpStream::connect(listener.local_addr().unwrap()).is_ok());
}

#[test]
fn a_managers_sockets_are_known_by_name_by_address_or_by_being_alone() {
    let named = |name: &str| Some(name.to_owned());
    let ((a, at_a), (b, at_b)) = (made(), made());
    let doors = |sockets, config: &Config| {
        let inherited = assign(sockets, config).unwrap();
        inherited.iter().map(|one| one.door).collect::<Vec<_>>()
    };
    let any = config(loopback(), loopback());
    let copies = || (a.try_clone().unwrap(), b.try_clone().unwrap());
    let (x, y) = copies();
    let by_name = doors(vec![(named("admin"), x), (named("listen"), y)], &any);
    assert_eq!(by_name, [Door::Operators, Door::Callers]);
    let (x, y) = copies();
    let theirs = config(at_b, at_a);
    let by_address = doors(vec![(named("callgate.socket"), x), (None, y)], &theirs);
    assert_eq!(by_address, [Door::Operators, Door::Callers]);
    let (x, y) = copies();
    assert_eq!(
        doors(vec![(named("callgate.socket"), x)], &any),
        [Door::Callers]
    );
    let error = assign(vec![(None, y), (named("listen"), copies().0)], &any).unwrap_err();
    assert!(error.to_string().contains(&at_b.to_string()), "{error}");
    let (x, y) = copies();
    let twice = assign(vec![(named("listen"), x), (named("listen"), y)], &any);
    assert!(
        matches!(twice, Err(StartError::Unnamed { .. })),
        "{twice:?}"
    );
}

#[test]
fn a_predecessors_socket_is_taken_where_the_configuration_still_says_so() {
    let (listener, address) = made();
    let inherit = |configured| Inherited {
        door: Door::Callers,
        listener: listener.try_clone().unwrap(),
        configured,
        kept: false,
    };
    let same = config(loopback(), loopback());
    let sockets = Sockets::of(&same, vec![inherit(Some(loopback()))]).unwrap();
    assert!(sockets.callers.is_inherited() && !sockets.operators.is_inherited());
    let (taken, copy) = sockets.callers.listen().unwrap();
    assert_eq!(taken.local_addr().unwrap(), address);
    assert!(!copy.kept);
    let elsewhere = config("127.0.0.2:0".parse().unwrap(), loopback());
    let sockets = Sockets::of(&elsewhere, vec![inherit(Some(loopback()))]).unwrap();
    assert!(!sockets.callers.is_inherited());
}

#[test]
fn what_does_not_listen_is_not_taken() {
    let (_peer, at) = made();
    let connected = std::net::TcpStream::connect(at).unwrap();
    let one = Inherited {
        door: Door::Callers,
        listener: TcpListener::from(std::os::fd::OwnedFd::from(connected)),
        configured: None,
        kept: true,
    };
    let error = Sockets::of(&config(loopback(), loopback()), vec![one])
        .err()
        .unwrap();
    assert!(error.to_string().contains("not a listening"), "{error}");
}
