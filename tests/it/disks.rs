//! Disks that fail while the gateway runs, with real processes: full, not syncing, held by somebody
//! else, and failing only when the end of a call is to be recorded.
//!
//! A full disk is a limit on the size of the process's files. A disk that does not sync is a
//! library in front of the system's, made here by the C compiler that also builds SQLite; it fails
//! every sync while a file is there.

use crate::fixture::gateway::{folder, serve_command};
use crate::fixture::{Act, Answer, Call, Client, Config, Gate, Gateway, Reply, Script, Tool};
use rlimit::Resource;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::process::Command;

fn limit_files(gateway: &Gateway, bytes: u64) {
    let pid = i32::try_from(gateway.pid()).expect("a process id");
    let limits = Some((bytes, rlimit::INFINITY));
    rlimit::prlimit(pid, Resource::FSIZE, limits, None)
        .expect("the limits of one's own child can be set");
}

#[test]
fn on_a_full_disk_nothing_is_sent_and_room_is_enough_to_go_on() {
    let tool = Tool::start(Script::new());
    let gateway = Gateway::start_with_limitable_files(&Config::standard(&tool));
    let limit = |bytes| limit_files(&gateway, bytes);
    assert_eq!(gateway.call(&Call::with_id("before")).status, 201);
    gateway.wait_history("before", "its end", |history| history["state"] == "SUCCESS");
    limit(1);
    for id in ["full-1", "full-2"] {
        let refused = gateway.call(&Call::with_id(id));
        let problem = refused.problem(503, "ledger-unavailable");
        assert_eq!(problem["repeat"], "same-call-id-only", "{problem}");
        assert_eq!(refused.outcome(), "refused");
        assert!(tool.sends(id).is_empty(), "it was sent without a record");
    }
    let ready = gateway.admin("/readyz");
    assert_eq!(
        ready.status, 503,
        "a gateway that can record nothing is not ready"
    );
    assert_eq!(gateway.admin("/livez").status, 200);
    limit(rlimit::INFINITY);
    gateway.wait_until("calls go on", || {
        let answer = gateway.call(&Call::with_id("after"));
        (answer.status == 201).then_some(())
    });
    assert_eq!(tool.sends("after").len(), 1);
    let replayed = gateway.call(&Call::with_id("before"));
    assert_eq!(replayed.outcome(), "replayed");
    let refused = gateway.metrics();
    let counted = refused.value("callgate_refused_total", &[("code", "ledger-unavailable")]);
    assert!(counted >= 2.0, "{counted}");
}

/// A call in the tool's hands, at a gateway that then has no room for its end; what the caller is
/// told, with the gateway before there is room again.
fn ends_without_room(
    reply: Option<Reply>,
    bend: impl FnOnce(Config) -> Config,
) -> (Tool, Config, Gateway, Answer) {
    let gate = Gate::default();
    let act = match reply {
        None => Act::read_all().commit().pass(&gate).answer_result(),
        Some(reply) => Act::read_all().pass(&gate).answer(reply),
    };
    let tool = Tool::start(Script::new().request(1, act));
    let config = bend(Config::standard(&tool).slow(5));
    let gateway = Gateway::start_with_limitable_files(&config);
    let mut client = Client::connect(gateway.listen);
    client.send(&Call::with_id("ends"));
    tool.wait_request(1);
    limit_files(&gateway, 1);
    gate.open();
    let answer = client.answer();
    (tool, config, gateway, answer)
}

fn recorded_as(gateway: &Gateway, state: &str) {
    let is = |history: &serde_json::Value| history["state"] == state;
    gateway.wait_history("ends", state, is);
}

#[test]
fn a_success_whose_record_fails_is_told_and_recorded_once_there_is_room() {
    let (tool, _, gateway, answer) = ends_without_room(None, |config| config);
    assert_eq!(
        (answer.status, answer.outcome().as_str()),
        (201, "answered")
    );
    recorded_as(&gateway, "PROCESSING");
    // Its own receipt says no less than its caller was told.
    for asked in [
        "/_callgate/receipts/ends",
        "/_callgate/receipts/ends?wait=1",
    ] {
        let receipt = gateway.call(&Call::get(asked)).json();
        assert_eq!(receipt["state"], "SUCCESS", "{receipt}");
        assert_eq!(receipt["result"]["status"], 201, "{receipt}");
    }
    limit_files(&gateway, rlimit::INFINITY);
    recorded_as(&gateway, "SUCCESS");
    let again = gateway.call(&Call::with_id("ends"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!(again.body, answer.body);
    assert_eq!((tool.a(), tool.r()), (1, 0));
}

#[test]
fn a_success_whose_record_failed_before_a_crash_is_told_by_the_receipt() {
    let (tool, config, mut gateway, answer) = ends_without_room(None, |config| config);
    assert_eq!(answer.status, 201);
    gateway.kill9();
    gateway.restart(&config);
    recorded_as(&gateway, "SUCCESS");
    let again = gateway.call(&Call::with_id("ends"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!((tool.a(), tool.e()), (1, 1));
}

#[test]
fn without_a_receipt_an_answer_is_not_told_before_it_is_recorded() {
    let (tool, _, gateway, answer) = ends_without_room(None, Config::without_receipt);
    answer.problem(504, "unresolved");
    limit_files(&gateway, rlimit::INFINITY);
    recorded_as(&gateway, "SUCCESS");
    let again = gateway.call(&Call::with_id("ends"));
    assert_eq!((again.status, again.outcome().as_str()), (201, "replayed"));
    assert_eq!(tool.a(), 1);
}

#[test]
fn a_failure_that_cannot_be_recorded_is_not_told_as_one() {
    let refusal = Reply::json(422, r#"{"no":1}"#);
    let (tool, _, gateway, answer) = ends_without_room(Some(refusal), |config| config);
    assert_ne!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.outcome(), "unresolved");
    let receipt = gateway.receipt("ends").json();
    assert_ne!(receipt["state"], "FAILED", "{receipt}");
    limit_files(&gateway, rlimit::INFINITY);
    gateway.wait_dead_letter("ends", "MANUAL");
    assert_eq!((tool.a(), tool.e()), (1, 0));
}

/// A library whose syncs fail while `flag` exists.
fn failing_sync(folder: &Path) -> (PathBuf, PathBuf) {
    const SOURCE: &str = r#"
        #define _GNU_SOURCE
        #include <errno.h>
        #include <stdlib.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        static int sync_by(long call, int fd) {
            const char *flag = getenv("FAILING_SYNC");
            if (flag && access(flag, F_OK) == 0) { errno = EIO; return -1; }
            return (int)syscall(call, fd);
        }
        int fsync(int fd) { return sync_by(SYS_fsync, fd); }
        int fdatasync(int fd) { return sync_by(SYS_fdatasync, fd); }
    "#;
    let (source, library) = (folder.join("sync.c"), folder.join("sync.so"));
    std::fs::write(&source, SOURCE).expect("a file");
    let mut compiler = Command::new("cc");
    compiler
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(&source);
    let made = compiler.status().expect("the compiler that built SQLite");
    assert!(made.success());
    (library, folder.join("syncs-fail"))
}

#[test]
fn a_sync_that_fails_refuses_the_call_and_what_was_synced_stays() {
    let tool = Tool::start(Script::new());
    let config = Config::standard(&tool);
    let made = folder();
    let (library, flag) = failing_sync(made.path());
    let mut command = serve_command(made.path(), &config);
    command
        .env("LD_PRELOAD", library)
        .env("FAILING_SYNC", &flag);
    let mut gateway = Gateway::start_by(made, command);
    assert_eq!(gateway.call(&Call::with_id("before")).status, 201);
    gateway.wait_history("before", "its end", |history| history["state"] == "SUCCESS");
    std::fs::write(&flag, "").expect("a file");
    for id in ["unsynced-1", "unsynced-2"] {
        let refused = gateway.call(&Call::with_id(id));
        refused.problem(503, "ledger-unavailable");
        assert!(tool.sends(id).is_empty(), "it was sent without a record");
    }
    assert_eq!(gateway.admin("/readyz").status, 503);
    std::fs::remove_file(&flag).expect("the flag");
    gateway.wait_until("calls go on", || {
        let answer = gateway.call(&Call::with_id("after"));
        (answer.status == 201).then_some(())
    });
    // A call that was refused was never taken: the same id is a new call.
    assert_eq!(
        gateway.call(&Call::with_id("unsynced-1")).outcome(),
        "answered"
    );
    gateway.kill9();
    gateway.restart(&config);
    for id in ["before", "after", "unsynced-1"] {
        let settled = |history: &serde_json::Value| history["state"] == "SUCCESS";
        gateway.wait_history(id, "its end", settled);
        assert_eq!(gateway.call(&Call::with_id(id)).outcome(), "replayed");
        assert_eq!(tool.sends(id).len(), 1);
    }
}

#[test]
fn a_ledger_that_somebody_locks_while_it_is_used_refuses_calls_until_it_is_free() {
    let tool = Tool::start(Script::new());
    let gateway = Gateway::start(&Config::standard(&tool));
    assert_eq!(gateway.call(&Call::with_id("before")).status, 201);
    gateway.wait_history("before", "its end", |history| history["state"] == "SUCCESS");
    let file = gateway.folder().join("callgate.db");
    let other = Connection::open(file).expect("the ledger is SQLite");
    other
        .execute_batch("BEGIN IMMEDIATE")
        .expect("nobody writes now");
    let refused = gateway.call(&Call::with_id("locked"));
    refused.problem(503, "ledger-unavailable");
    assert!(tool.sends("locked").is_empty());
    // What only reads goes on.
    assert_eq!(gateway.receipt("before").status, 200);
    other.execute_batch("ROLLBACK").expect("its own lock");
    gateway.wait_until("calls go on", || {
        let answer = gateway.call(&Call::with_id("locked"));
        (answer.status == 201).then_some(())
    });
    assert_eq!(tool.sends("locked").len(), 1);
}
