//! Whole gateways in this process, on ports of their own, against a trivial tool.
//!
//! Here it is proved that the parts are joined and come apart again; what the whole does to calls
//! is proved from outside, by the tests of the binary.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use super::{Gateway, Ground, StartError, Stopped};
use crate::config::{self, Config};
use crate::ledger::LedgerError;
use crate::telemetry::readiness::Trouble;

/// Longer than anything here takes, so that a hang is a failure and not a hang.
const PATIENCE: Duration = Duration::from_secs(20);

const IN_ORDER: Stopped = Stopped {
    calls_left: 0,
    connections_cut: 0,
};

/// A tool that tells of every request and answers 201, or never.
struct Tool {
    address: SocketAddr,
    asked: Receiver<String>,
}

impl Tool {
    fn start(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, asked) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let tell = tell.clone();
                std::thread::spawn(move || Self::serve(&stream, &tell, answers));
            }
        });
        Self { address, asked }
    }

    fn serve(mut stream: &TcpStream, tell: &Sender<String>, answers: bool) {
        let mut reader = BufReader::new(stream);
        while let Some(head) = read_request(&mut reader) {
            let asks = head.starts_with("GET /receipts/");
            // The test is over when nobody listens.
            if !asks && tell.send(head).is_err() {
                return;
            }
            let answer: &[u8] = match (asks, answers) {
                (true, _) => b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\n{}",
                (false, true) => b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ndone",
                (false, false) => continue,
            };
            if stream.write_all(answer).is_err() {
                return;
            }
        }
    }

    fn next(&self) -> String {
        self.asked.recv_timeout(PATIENCE).unwrap()
    }
}

/// The head of the next request, its body read and thrown away; `None` at the end.
fn read_request(reader: &mut impl std::io::BufRead) -> Option<String> {
    let (mut head, mut line) = (String::new(), String::new());
    let mut length = 0;
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            break;
        }
        if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(head)
}

fn configuration(folder: &Path, tool: SocketAddr, more: &str) -> Config {
    let text = format!(
        "listen: 127.0.0.1:0\n\
         admin: {{ listen: \"127.0.0.1:0\" }}\n\
         workers: 1\n\
         ledger: {{ url: \"sqlite:calls.db\", sync: normal }}\n\
         routes:\n\
         - name: all\n  \
           upstream: {{ url: \"http://{tool}\" }}\n  \
           receipt: {{ believe_not_found: always }}\n\
         {more}\n"
    );
    config::parse(&text, "test.yaml", folder, &|_| None).unwrap()
}

fn post(gateway: SocketAddr, id: &str) -> TcpStream {
    let mut caller = TcpStream::connect(gateway).unwrap();
    caller.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        caller,
        "POST /orders HTTP/1.1\r\nhost: t\r\nx-call-id: {id}\r\nconnection: close\r\n\
         content-length: 2\r\n\r\nhi"
    )
    .unwrap();
    caller
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut asker = TcpStream::connect(address).unwrap();
    write!(
        asker,
        "GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    rest(asker)
}

fn rest(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_gateway_serves_a_call_stops_in_order_and_knows_the_call_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::start(true);
    let start = || {
        let config = configuration(folder.path(), tool.address, "");
        Gateway::start(config, Ground::new()).unwrap()
    };
    let gateway = start();
    let first = rest(post(gateway.callers(), "a-1"));
    assert!(first.starts_with("HTTP/1.1 201 "), "{first}");
    assert!(first.contains("x-call-outcome: answered\r\n"), "{first}");
    assert!(first.ends_with("done"), "{first}");
    assert!(tool.next().contains("x-call-id: a-1\r\n"));
    let ready = get(gateway.admin(), "/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    let callers = gateway.callers();
    assert_eq!(gateway.stop(), Some(IN_ORDER));
    assert!(TcpStream::connect(callers).is_err(), "the port is free");

    let gateway = start();
    let again = rest(post(gateway.callers(), "a-1"));
    assert!(again.contains("x-call-outcome: replayed\r\n"), "{again}");
    let receipt = get(gateway.callers(), "/_callgate/receipts/a-1");
    assert!(receipt.contains("\"state\":\"SUCCESS\""), "{receipt}");
    assert_eq!(gateway.stop(), Some(IN_ORDER));
    assert!(tool.asked.try_recv().is_err(), "the tool was asked once");
}

#[test]
fn a_call_that_outlasts_the_grace_is_parked_and_its_caller_told() {
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::start(false);
    let config = configuration(folder.path(), tool.address, "drain: { grace: 1s }");
    let gateway = Gateway::start(config, Ground::new()).unwrap();
    let caller = post(gateway.callers(), "slow-1");
    tool.next();
    let stopping = std::thread::spawn(move || gateway.stop());
    let told = rest(caller);
    assert!(told.starts_with("HTTP/1.1 504 "), "{told}");
    assert!(told.contains("\"code\":\"unresolved\""), "{told}");
    assert!(told.contains("connection: close\r\n"), "{told}");
    assert_eq!(stopping.join().unwrap(), Some(IN_ORDER));
}

#[test]
fn a_ledger_has_one_gateway_and_the_next_one_starts_when_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::start(true);
    let config = || configuration(folder.path(), tool.address, "");
    let gateway = Gateway::start(config(), Ground::new()).unwrap();
    let error = Gateway::start(config(), Ground::new()).unwrap_err();
    let locked = matches!(
        error,
        StartError::Ledger(LedgerError::Locked { holder: Some(pid), .. })
            if pid == std::process::id()
    );
    assert!(locked, "{error}");
    gateway.stop().unwrap();
    assert!(
        Gateway::start(config(), Ground::new())
            .unwrap()
            .stop()
            .is_some()
    );
}

#[test]
fn a_taken_port_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let tool = Tool::start(true);
    let mut config = configuration(folder.path(), tool.address, "");
    config.listen = tool.address;
    let error = Gateway::start(config.clone(), Ground::new()).unwrap_err();
    assert!(
        matches!(error, StartError::InUse { key: "listen", .. }),
        "{error}"
    );
    config.listen.set_port(0);
    // The ledger is free again.
    assert!(
        Gateway::start(config, Ground::new())
            .unwrap()
            .stop()
            .is_some()
    );
}

#[test]
fn a_tool_that_is_not_there_is_told_and_does_not_keep_the_gateway_from_serving() {
    let folder = tempfile::tempdir().unwrap();
    // Bound and not listening: nobody else gets the port meanwhile.
    let nobody = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    nobody
        .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
        .unwrap();
    let address = nobody.local_addr().unwrap().as_socket().unwrap();
    let ground = Ground::new();
    let config = configuration(folder.path(), address, "");
    let gateway = Gateway::start(config, ground.clone()).unwrap();
    assert!(ground.readiness.has(Trouble::ToolUnreachable));
    let ready = get(gateway.admin(), "/readyz?verbose");
    assert!(ready.starts_with("HTTP/1.1 200 "), "{ready}");
    assert!(ready.contains("unreachable-tool"), "{ready}");
    assert_eq!(gateway.stop(), Some(IN_ORDER));
}
