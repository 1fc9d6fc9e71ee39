//! Files as they come: byte order marks, huge fields, broken lines, and one that changes meanwhile.

use crate::batches::{assert_once_each, command_at, document, file, keyed, push, rows};
use crate::fixture::{Checked, Script, World};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

/// More than the command and two sockets hold on the way.
const LONG: usize = 24 << 20;

#[test]
fn a_byte_order_mark_is_no_part_of_the_first_column() {
    let world = World::with(Script::new(), keyed);
    for (name, text) in [
        ("a.csv", "\u{feff}no,what\nRX1,a\n"),
        ("b.jsonl", "\u{feff}{\"no\":\"RX2\"}\n"),
    ] {
        let path = file(&world.gateway, name, text);
        let pushed = push(&world.gateway, &path, &[]);
        assert_eq!(pushed.code, 0, "{name}: {pushed:?}");
    }
    let body = |n| world.tool.wait_request(n).body().to_vec();
    assert_eq!(body(1), br#"{"no":"RX1","what":"a"}"#);
    assert_eq!(body(2), br#"{"no":"RX2"}"#);
}

#[test]
fn a_huge_field_is_a_bad_row_with_its_line_and_the_others_go_on() {
    let world = World::with(Script::new(), keyed);
    // Larger than the route takes, and larger than any row may be.
    let (large, huge) = ("x".repeat(2 << 20), "y".repeat(5 << 20));
    let text = format!("no,what\nRX1,a\nRX2,{large}\nRX3,b\nRX4,\"{huge}\"\nRX5,c\n");
    let path = file(&world.gateway, "huge.csv", text);
    let pushed = push(&world.gateway, &path, &[]);
    assert_eq!(pushed.code, 1, "{pushed:?}");
    for told in ["line 3: its body has 2097", "line 5: "] {
        assert!(pushed.err.contains(told), "{told}: {pushed:?}");
    }
    assert!(pushed.err.len() < 4096, "a report is no copy of the file");
    let told = document(&pushed);
    assert_eq!((&told["done"], &told["bad"]), (&3.into(), &2.into()));
    assert_once_each(&world, 3);
}

#[test]
fn a_line_that_is_no_json_object_is_a_bad_row() {
    let world = World::with(Script::new(), keyed);
    let text = "{\"no\":\"RX1\"}\n{\"no\":\n[1]\n\n{\"no\":\"RX1\"}\n{\"what\":1}\n";
    let path = file(&world.gateway, "rows.jsonl", text);
    let pushed = push(&world.gateway, &path, &[]);
    assert_eq!(pushed.code, 1, "{pushed:?}");
    for line in [2, 3, 5, 6] {
        let told = format!("line {line}: ");
        assert!(pushed.err.contains(&told), "{told}: {pushed:?}");
    }
    assert_once_each(&world, 1);
}

#[test]
fn a_file_that_changes_while_it_is_pushed_runs_nothing_until_it_is_pushed_again() {
    let world = World::with(Script::new(), keyed);
    // Few rows and many bytes: what matters is that it cannot all be on its way.
    let text = rows(1, 2) + &format!("{}\n", "z".repeat(2 << 20)).repeat(LONG >> 21);
    let path = file(&world.gateway, "night.csv", &text);
    let (listener, admin) = between();
    let target = world.gateway.admin;
    let growing = path.clone();
    let way = std::thread::spawn(move || {
        let (caller, _) = listener.accept().expect("the command calls");
        // It has looked at the file: now somebody writes into it.
        let mut grown = std::fs::OpenOptions::new()
            .append(true)
            .open(growing)
            .expect("it is there");
        grown
            .write_all(b"RX9999,late\n")
            .expect("it can be written");
        pipe(&caller, &TcpStream::connect(target).expect("it listens"));
    });
    let path = path.to_str().expect("a plain path");
    let admin = format!("http://{admin}");
    let args = ["push", path, "--route", "tool", "--batch", "night"];
    let changed = Checked::run(&mut command_at(&admin, &args));
    way.join().expect("no panic");
    assert_eq!(changed.code, 2, "{changed:?}");
    let told = "changed while it was read; the batch night stays LOADING";
    assert!(changed.err.contains(told), "{changed:?}");
    let batch = crate::batches::batch(&world.gateway, "night");
    assert_eq!(batch["state"], "LOADING", "{batch}");
    assert_eq!(world.tool.a(), 0);
}

/// A listener for the one connection that is watched.
fn between() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound");
    (listener, address)
}

/// Passes everything on in both directions until both have ended.
fn pipe(one: &TcpStream, other: &TcpStream) {
    std::thread::scope(|threads| {
        for (mut from, mut to) in [(one, other), (other, one)] {
            threads.spawn(move || {
                let mut bytes = vec![0; 64 << 10];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if to.write_all(&bytes[..count]).is_err() {
                        break;
                    }
                }
                let _gone = to.shutdown(Shutdown::Write);
            });
        }
    });
}
