//! Sockets that somebody else made: a service manager, or a supervisor that hands them on.

use super::living::{Living, signal};
use crate::fixture::gateway::{BINARY, folder, write_config};
use crate::fixture::{Act, Call, Client, Config, Gate, Script, Tool};
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// What a service manager holds.
struct Manager {
    socket: TcpListener,
    listen: SocketAddr,
}

impl Manager {
    fn new() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
        let listen = socket.local_addr().expect("bound");
        Self { socket, listen }
    }

    /// The gateway on this manager's socket, which is number 3 in its process.
    fn starts(&self, folder: TempDir, config: &Config, how: &str) -> Living {
        let mut command = self.command(&folder, config, how);
        Living::start_by(folder, &mut command)
    }

    fn command(&self, folder: &TempDir, config: &Config, how: &str) -> Command {
        let socket = self.socket.try_clone().expect("a socket can be cloned");
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("exec 3<&0 0</dev/null; {how}"), BINARY])
            .arg(write_config(folder.path(), config))
            .stdin(Stdio::from(OwnedFd::from(socket)));
        command
    }
}

const ACTIVATED: &str = r#"LISTEN_PID=$$; LISTEN_FDS=1; LISTEN_FDNAMES=listen
    export LISTEN_PID LISTEN_FDS LISTEN_FDNAMES; exec "$0" serve --config "$1""#;
const NUMBERED: &str = r#"exec "$0" serve --config "$1" --inherit-fd 3"#;

fn config(tool: &Tool) -> Config {
    Config::standard(tool).slow(5)
}

#[test]
fn callers_of_an_activated_socket_wait_over_a_restart() {
    for how in [ACTIVATED, NUMBERED] {
        let tool = Tool::start(Script::new());
        let manager = Manager::new();
        let config = config(&tool);
        // Here before the gateway is.
        let mut early = Client::connect(manager.listen);
        early.send(&Call::with_id("early"));
        let mut living = manager.starts(folder(), &config, how);
        assert_eq!(living.listen, manager.listen);
        assert_eq!(early.answer().status, 201);
        living.end();
        assert!(living.first_ends().success());
        // Nobody is there, and nobody is refused.
        let mut between = Client::connect(manager.listen);
        between.send(&Call::with_id("between"));
        let mut again = manager.starts(folder(), &config, how);
        assert_eq!(between.answer().status, 201);
        again.end();
    }
}

#[test]
fn who_starts_on_an_inherited_socket_waits_for_the_ledger() {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let tool = Tool::start(Script::new().request(1, act));
    let manager = Manager::new();
    let config = config(&tool);
    let mut first = manager.starts(folder(), &config, ACTIVATED);
    let mut caller = first.client();
    caller.send(&Call::with_id("runs"));
    tool.wait_effect(1);
    let file = first.folder().join("callgate.yaml");
    let socket = manager.socket.try_clone().expect("a socket can be cloned");
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("exec 3<&0 0</dev/null; {ACTIVATED}"), BINARY])
        .arg(&file)
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stderr(Stdio::piped());
    let mut second = command.spawn().expect("a shell");
    let log = crate::fixture::log::Log::follow(second.stderr.take().expect("piped"));
    let waits = "waiting for another process to let the ledger go";
    let said = log.wait(crate::fixture::PATIENCE, |record| record["msg"] == waits);
    assert!(said.is_some(), "{}", log.tail());
    first.signal("TERM");
    gate.open();
    assert_eq!(caller.answer().status, 201);
    assert!(first.first_ends().success());
    let serving = log.wait(crate::fixture::PATIENCE, |record| {
        record["msg"] == "serving"
    });
    assert!(serving.is_some(), "{}", log.tail());
    let repeat = Client::connect(manager.listen).call(&Call::with_id("runs"));
    assert_eq!(repeat.outcome(), "replayed");
    signal(second.id(), "TERM");
    assert!(second.wait().expect("a child").success());
}

#[test]
fn a_socket_that_is_meant_for_nobody_is_refused_with_what_to_do() {
    let tool = Tool::start(Script::new());
    let manager = Manager::new();
    let folder = folder();
    let refused = |how: &str| {
        let ended = manager.command(&folder, &config(&tool), how).output();
        let ended = ended.expect("a shell runs");
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        (ended.status.code(), said)
    };
    let serve = r#"exec "$0" serve --config "$1""#;
    let two = "exec 4<&3; LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=listen:other";
    let (code, said) = refused(&format!("{two} {serve}"));
    assert!(said.contains("FileDescriptorName="), "{said}");
    assert_eq!(code, Some(1));
    let none = "exec 3</dev/null; LISTEN_PID=$$ LISTEN_FDS=1";
    let (code, said) = refused(&format!("{none} {serve}"));
    assert!(
        said.contains("LISTEN_FDS") && said.contains("socket"),
        "{said}"
    );
    assert_eq!(code, Some(2));
    let (code, said) = refused(&format!("{serve} --inherit-fd 3,9"));
    assert!(said.contains("3,4"), "{said}");
    assert_eq!(code, Some(2));
    let (code, said) = refused(&format!("{serve} --takeover"));
    assert!(said.contains("SIGUSR2"), "{said}");
    assert_eq!(code, Some(2));
}

#[test]
fn the_service_manager_is_told_of_start_takeover_and_stop() {
    let tool = Tool::start(Script::new());
    let place = folder();
    let path = place.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("a socket");
    manager
        .set_read_timeout(Some(crate::fixture::PATIENCE))
        .expect("a timeout");
    let hears = || {
        let mut heard = [0; 256];
        let bytes = manager.recv(&mut heard).expect("it tells");
        String::from_utf8_lossy(&heard[..bytes]).into_owned()
    };
    let address = OsString::from(&path);
    let mut living = Living::start_with(&config(&tool), &[("NOTIFY_SOCKET", address)]);
    assert_eq!(hears(), "READY=1");
    living.hand_over();
    assert_eq!(hears(), format!("MAINPID={}\nREADY=1", living.process));
    assert!(living.first_ends().success());
    living.end();
    assert_eq!(hears(), "STOPPING=1");
}
