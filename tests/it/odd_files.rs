//! Files that commands are given and cannot use: each error says what, where and what next, and
//! ends with the code of a wrong command. What only a stranger's rights can show is left out where
//! these tests run as root, who may read everything.

use crate::fixture::gateway::{BINARY, folder};
use crate::fixture::{Call, Checked, Script, World};
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// A command that is given this file by this option.
fn given(args: &[&str], file: &Path) -> Checked {
    let mut command = Command::new(BINARY);
    command.args(args).arg(file).env_remove("CALLGATE_ADMIN");
    Checked::run(&mut command)
}

/// Whether rights bind this user at all.
fn is_root() -> bool {
    let folder = folder();
    let file = folder.path().join("closed");
    fs::write(&file, "").expect("a file can be written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).expect("it is ours");
    fs::File::open(&file).is_ok()
}

/// The ledger of a gateway that was ended, with one call in it.
fn ledger() -> (World, std::path::PathBuf) {
    let mut world = World::prompt(Script::new());
    world.call(&Call::with_id("c1"));
    let settled = |history: &serde_json::Value| history["state"] == "SUCCESS";
    world.gateway.wait_history("c1", "its end", settled);
    world.gateway.kill9();
    let file = world.gateway.folder().join("callgate.db");
    (world, file)
}

#[test]
fn a_ledger_that_cannot_be_read_is_told_with_the_reason_and_the_way_out() {
    let (world, good) = ledger();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    assert_eq!(given(&["why", "c1", "--ledger"], &good).code, 0);
    fs::create_dir(at("folder")).expect("a folder");
    fs::write(at("empty"), "").expect("a file");
    fs::write(
        at("text"),
        "no database, and long enough to be taken for one",
    )
    .expect("a file");
    fs::write(at("binary"), [0xff; 8192]).expect("a file");
    let conn = Connection::open(at("other.db")).expect("a database");
    conn.execute_batch("CREATE TABLE t (a); DROP TABLE t")
        .expect("SQL");
    drop(conn);
    let conn = Connection::open(at("foreign.db")).expect("a database");
    conn.execute_batch("CREATE TABLE t (a)").expect("SQL");
    drop(conn);
    // A copy of the good one, with everything in one file.
    let conn = Connection::open(&good).expect("a ledger");
    let newer = at("newer.db").display().to_string();
    conn.execute("VACUUM INTO ?1", [&newer]).expect("a copy");
    drop(conn);
    assert_eq!(given(&["why", "c1", "--ledger"], &at("newer.db")).code, 0);
    let whole = fs::read(at("newer.db")).expect("a ledger");
    fs::write(at("cut.db"), &whole[..5_000]).expect("a file");
    fs::write(at("closed.db"), &whole).expect("a file");
    let conn = Connection::open(at("newer.db")).expect("a ledger");
    conn.execute_batch("PRAGMA user_version = 99").expect("SQL");
    drop(conn);
    let pipe = Command::new("mkfifo").arg(at("pipe")).status();
    assert!(pipe.expect("mkfifo is there").success());
    fs::set_permissions(at("closed.db"), fs::Permissions::from_mode(0o000)).expect("it is ours");
    for (name, words) in [
        ("folder", &["is a folder", "name the file itself"][..]),
        ("pipe", &["is a pipe", "name the file itself"]),
        (
            "empty",
            &["is not a callgate ledger (it is empty)", "--ledger"],
        ),
        ("text", &["is not a callgate ledger (it is not an SQLite"]),
        ("binary", &["is not a callgate ledger"]),
        ("other.db", &["no callgate has written to it"]),
        ("foreign.db", &["another program's"]),
        ("cut.db", &["damaged"]),
        ("newer.db", &["schema 99", "a newer one"]),
        ("missing", &["there is no ledger", "ledger.url"]),
        ("text/too", &["there is no ledger", "ledger.url"]),
        (
            "closed.db",
            &["may not be read by this user", "run this as"],
        ),
    ] {
        if name == "closed.db" && is_root() {
            eprintln!("not checked as root: {name}");
            continue;
        }
        let told = given(&["why", "c1", "--ledger"], &at(name));
        assert_eq!(told.code, 2, "{name}: {told:?}");
        let path = at(name).display().to_string();
        for word in words.iter().copied().chain([path.as_str()]) {
            assert!(told.err.contains(word), "{name}: no {word:?} in {told:?}");
        }
        assert_eq!(told.err.lines().count(), 1, "{name}: {told:?}");
    }
    drop(world.without_history());
}

#[test]
fn a_gateway_does_not_start_on_what_is_no_ledger() {
    let folder = folder();
    fs::create_dir(folder.path().join("folder")).expect("a folder");
    fs::write(
        folder.path().join("text"),
        "no database, and long enough for one",
    )
    .expect("a file");
    for (name, word) in [
        ("folder", "is a folder"),
        ("text", "is not a callgate ledger"),
    ] {
        let url = format!("sqlite:{}", folder.path().join(name).display());
        let mut command = Command::new(BINARY);
        let args = [
            "serve",
            "--tool",
            "http://127.0.0.1:1",
            "--listen",
            "127.0.0.1:0",
        ];
        let args = args
            .into_iter()
            .chain(["--admin-listen", "127.0.0.1:0", "--ledger", &url]);
        let told = Checked::run(command.args(args).current_dir(folder.path()));
        assert_eq!(told.code, 2, "{name}: {told:?}");
        assert!(told.err.contains(word), "{name}: {told:?}");
    }
}

#[test]
fn every_command_that_takes_a_file_says_which_one_it_cannot_use() {
    let (_world, good) = ledger();
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("folder")).expect("a folder");
    let good = good.display().to_string();
    let log = ["why", "c1", "--ledger", &good, "--log"];
    let push = [
        "--admin",
        "127.0.0.1:1",
        "push",
        "--route",
        "r",
        "--format",
        "csv",
    ];
    for args in [
        &["check", "--config"][..],
        &["serve", "--config"],
        &log,
        &push,
    ] {
        for name in ["folder", "missing", "missing/too"] {
            let told = given(args, &at(name));
            assert_eq!(told.code, 2, "{args:?} {name}: {told:?}");
            let path = at(name).display().to_string();
            assert!(told.err.contains(&path), "{args:?} {name}: {told:?}");
        }
    }
}
