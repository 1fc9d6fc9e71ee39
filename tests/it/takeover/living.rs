//! A gateway whose process changes while it serves: one folder, one log, one pair of addresses.

use crate::fixture::gateway::{BINARY, folder, write_config};
use crate::fixture::log::Log;
use crate::fixture::{Answer, Call, Client, Config, PATIENCE, ms};
use serde_json::Value;
use std::cell::Cell;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;
use tempfile::TempDir;

/// The gateway, whichever process it is.
pub(super) struct Living {
    folder: TempDir,
    pub(super) log: Log,
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    /// The process that serves.
    pub(super) process: u32,
    /// The first one, which is a child of this test.
    first: Child,
    /// Handovers so far.
    handed: usize,
}

/// Where the program lies that is started: a name that a test can give to another program.
pub(super) fn program(folder: &Path) -> PathBuf {
    folder.join("callgate")
}

/// Puts this program there.
pub(super) fn install(folder: &Path, source: &Path) {
    let (place, beside) = (program(folder), folder.join("callgate.new"));
    std::os::unix::fs::symlink(source, &beside).expect("a name can be made");
    std::fs::rename(beside, place).expect("a name can be put in the place of another");
}

impl Living {
    pub(super) fn start(config: &Config) -> Self {
        Self::start_with(config, &[])
    }

    /// Starts it with these variables.
    pub(super) fn start_with(config: &Config, variables: &[(&str, OsString)]) -> Self {
        let folder = folder();
        install(folder.path(), Path::new(BINARY));
        let mut command = Command::new(program(folder.path()));
        command
            .arg("serve")
            .arg("--config")
            .arg(write_config(folder.path(), config))
            .envs(variables.iter().map(|(name, value)| (name, value)));
        Self::start_by(folder, command.stdin(Stdio::null()))
    }

    pub(super) fn start_by(folder: TempDir, command: &mut Command) -> Self {
        let mut first = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .env_remove("CALLGATE_ADMIN_TOKEN")
            .env_remove("RUST_LOG")
            .spawn()
            .expect("the binary under test can be started");
        let log = Log::follow(first.stderr.take().expect("stderr is piped"));
        let serving = log.wait(PATIENCE, |record| record["msg"] == "serving");
        let serving = serving.unwrap_or_else(|| panic!("it does not serve:\n{}", log.tail()));
        let address = |name: &str| {
            let text = serving[name].as_str().expect("it says where");
            text.parse().expect("an address")
        };
        Self {
            folder,
            listen: address("listen"),
            admin: address("admin"),
            process: first.id(),
            first,
            log,
            handed: 0,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn signal(&self, name: &str) {
        signal(self.process, name);
    }

    /// The n-th record with this message.
    pub(super) fn said(&self, message: &str, n: usize) -> Value {
        let count = Cell::new(0);
        let found = self.log.wait(PATIENCE, |record| {
            count.set(count.get() + usize::from(record["msg"] == message));
            count.get() == n
        });
        found.unwrap_or_else(|| panic!("never said: {message}\n{}", self.log.tail()))
    }

    /// Has another process take over, and waits until it has.
    pub(super) fn hand_over(&mut self) {
        self.signal("USR2");
        self.wait_handed_over();
    }

    pub(super) fn wait_handed_over(&mut self) {
        self.handed += 1;
        let over = self.said("another process has taken over", self.handed);
        let process = over["process"].as_u64().expect("it says which");
        self.process = u32::try_from(process).expect("a process id");
    }

    pub(super) fn client(&self) -> Client {
        Client::connect(self.listen)
    }

    pub(super) fn call(&self, call: &Call) -> Answer {
        self.client().call(call)
    }

    /// The dead letter of a call, once there is one in this state.
    pub(super) fn dead_letter(&self, id: &str, state: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let list = Client::connect(self.admin).call(&Call::get("/api/v1/dead-letters"));
            let list = list.json();
            let rows = list["items"].as_array().expect("a list");
            let is = |row: &&Value| row["call_id"] == id && row["state"] == state;
            if let Some(row) = rows.iter().find(is) {
                return row.clone();
            }
            std::thread::sleep(ms(20));
        }
        panic!("{id} is not {state}:\n{}", self.log.tail());
    }

    /// Waits until the first process has ended by itself.
    pub(super) fn first_ends(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ended = self.first.try_wait().expect("a child can be waited for");
            if let Some(status) = ended {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "it goes on:\n{}",
                self.log.tail()
            );
            std::thread::sleep(ms(20));
        }
    }

    /// Ends it in order, with all its processes.
    pub(super) fn end(&mut self) {
        self.signal("TERM");
        assert!(
            self.log.wait_ended(),
            "it does not end:\n{}",
            self.log.tail()
        );
    }
}

impl Drop for Living {
    fn drop(&mut self) {
        drop(self.first.kill());
        drop(self.first.wait());
        if !self.log.wait_ended_now() {
            signal(self.process, "KILL");
        }
        if std::thread::panicking() {
            eprintln!("--- the gateway said ---\n{}", self.log.tail());
        }
    }
}

pub(super) fn signal(process: u32, name: &str) {
    let line = format!("kill -{name} {process} 2>/dev/null");
    drop(Command::new("sh").args(["-c", &line]).status());
}
