//! `callgate push` at a terminal: a bar with its figures, and Ctrl-C that asks what is meant.

use crate::batches::{batch, command, file, keyed, rows, wait_state};
use crate::fixture::{Act, Gate, PATIENCE, Script, World};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Condvar, Mutex};

/// A command at a terminal of its own.
struct Terminal {
    keys: File,
    screen: Arc<(Mutex<String>, Condvar)>,
    child: Child,
}

impl Terminal {
    /// Starts it with the terminal as its controlling one, so that a typed Ctrl-C is a signal.
    fn start(command: &Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY;
        let ours = openpt(flags).expect("there are terminals");
        unlockpt(&ours).expect("it is ours");
        let theirs = || File::from(ioctl_tiocgptpeer(&ours, flags).expect("it is unlocked"));
        let mut started = Command::new("setsid");
        started.arg("--ctty").arg(command.get_program());
        started.args(command.get_args());
        started.env("TERM", "xterm").env_remove("CALLGATE_ADMIN");
        started.stdin(theirs()).stdout(theirs()).stderr(theirs());
        let child = started.spawn().expect("setsid can be started");
        // Ours of their ends would keep the terminal open for ever.
        drop(started);
        let ours = File::from(ours);
        let keys = ours.try_clone().expect("a file can be had twice");
        let screen = Arc::<(Mutex<String>, Condvar)>::default();
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || follow(ours, &shown));
        Self {
            keys,
            screen,
            child,
        }
    }

    fn types(&mut self, keys: &str) {
        self.keys
            .write_all(keys.as_bytes())
            .expect("somebody reads");
    }

    /// Waits until this was shown, and forgets everything up to it.
    fn shows(&self, text: &str) {
        let (screen, more) = &*self.screen;
        let screen = screen.lock().expect("no panic");
        let missing = |screen: &mut String| !screen.contains(text);
        let (mut screen, late) = more
            .wait_timeout_while(screen, PATIENCE, missing)
            .expect("no panic");
        assert!(!late.timed_out(), "no {text:?} on the screen: {screen}");
        let end = screen.find(text).expect("it is there") + text.len();
        screen.drain(..end);
    }

    fn ends(mut self) -> Option<i32> {
        self.child.wait().expect("a child can be waited for").code()
    }
}

/// Reads what is shown until everybody has left.
fn follow(mut terminal: File, shown: &(Mutex<String>, Condvar)) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = terminal.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]);
        shown.0.lock().expect("no panic").push_str(&text);
        shown.1.notify_all();
    }
}

/// Six rows, of which two are at a tool that waits.
fn held() -> (World, Gate, Terminal) {
    let gate = Gate::default();
    let act = Act::read_all().commit().pass(&gate).answer_result();
    let world = World::with(Script::new().otherwise(act), |config| {
        keyed(config).slow(15)
    });
    let path = file(&world.gateway, "night.csv", rows(1, 6));
    let path = path.to_str().expect("a plain path");
    let args = [
        "push",
        path,
        "--route",
        "tool",
        "--batch",
        "night",
        "--workers",
        "2",
    ];
    let terminal = Terminal::start(&command(&world.gateway, &args));
    world.tool.wait_request(2);
    terminal.shows("0/6");
    (world, gate, terminal)
}

#[test]
fn ctrl_c_at_a_terminal_asks_and_detaching_leaves_the_batch_running() {
    let (world, gate, mut terminal) = held();
    terminal.shows("done 0, retried 0");
    terminal.types("\x03");
    terminal.shows("[d]etach, [c]ancel the batch, or Enter to go on? ");
    // Whoever goes on sees the bar again, and is asked again.
    terminal.types("\r");
    terminal.shows("0/6");
    terminal.types("\x03");
    terminal.shows("go on? ");
    terminal.types("d\r");
    terminal.shows("detached: the gateway goes on. callgate batch watch night looks at it");
    assert_eq!(terminal.ends(), Some(3));
    assert_eq!(batch(&world.gateway, "night")["state"], "RUNNING");
    gate.open();
    wait_state(&world.gateway, "night", "FINISHED");
    assert_eq!(world.tool.a(), 6);
}

#[test]
fn ctrl_c_at_a_terminal_asks_and_cancelling_begins_nothing_more() {
    let (world, gate, mut terminal) = held();
    terminal.types("\x03");
    terminal.shows("go on? ");
    terminal.types("c\r");
    terminal.shows("cancelled: what runs is finished, nothing else is begun");
    gate.open();
    terminal.shows("cancelled");
    assert_eq!(terminal.ends(), Some(1));
    let batch = batch(&world.gateway, "night");
    assert_eq!(
        (&batch["done"], &batch["cancelled"]),
        (&2.into(), &4.into())
    );
    assert_eq!(world.tool.a(), 2);
}

#[test]
fn a_second_ctrl_c_detaches() {
    let (world, gate, mut terminal) = held();
    terminal.types("\x03");
    terminal.shows("go on? ");
    terminal.types("\x03");
    terminal.shows("detached");
    assert_eq!(terminal.ends(), Some(3));
    gate.open();
    wait_state(&world.gateway, "night", "FINISHED");
}
