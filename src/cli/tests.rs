//! The command tree, and commands against a real admin listener on a port of its own.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use axum::Router;
use http::StatusCode;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::admin;
use crate::admin::tests::fixture::{dead as dead_letter, settled};
use crate::admin::tests::shelf::Shelf;
use crate::telemetry::metrics::Metrics;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(line.split_whitespace())
}

#[test]
fn the_command_tree_is_sound() {
    use clap::CommandFactory as _;
    Cli::command().debug_assert();
}

#[test]
fn every_command_of_the_documentation_parses() {
    let lines = [
        "callgate demo",
        "callgate serve",
        "callgate serve --config callgate.yaml",
        "callgate serve --tool http://127.0.0.1:9000",
        "callgate serve --tool http://127.0.0.1:9000 --listen 127.0.0.1:8181 --ledger memory:",
        "callgate init",
        "callgate check",
        "callgate check --config callgate.yaml --print",
        "callgate dead list",
        "callgate dead list --state MANUAL --route orders --client billing --older-than 2h",
        "callgate dead list --error reset --key k --limit 5 --cursor 0.7.1 -o ndjson",
        "callgate dead list --receipt NOT_FOUND --text SF123 --sort due --limit 20000 -o csv",
        "callgate dead show ord-1 --client billing --output json",
        "callgate dead receipt ord-1 --client billing --why asked",
        "callgate dead resend ord-1",
        "callgate dead reverse ord-1",
        "callgate dead resolve ord-1 --as success --note carrier-says-so",
        "callgate dead resolve ord-1 --as failed --note carrier-says-so",
        "callgate dead discard ord-1 --reason test",
        "callgate dead release-key ord-1 --reason again-today",
        "callgate dead diff --kind receipt --route orders -o csv",
        "callgate dead bulk resend --route orders --older-than 1h --dry-run",
        "callgate dead bulk discard --all --yes --rate 90/m --why gone",
        "callgate dead bulk reverse --state MANUAL --yes",
        "callgate dead bulk receipt --all --yes -o json",
        "callgate dead job list",
        "callgate dead job show 3",
        "callgate dead job show 3 --items -o csv",
        "callgate dead job cancel 3",
        "callgate receipt ord-1 --admin http://gw:9090 --token t",
        "callgate --admin gw:9090 -o json receipt ord-1",
        "callgate health",
        "callgate health --live",
        "callgate why ord-1 --client billing -o json",
        "callgate why k1 --ledger callgate.db --log tool.log --log-field /ctx/id \
         --log-executed done",
    ];
    for line in lines {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn wrong_lines_are_usage_errors() {
    let lines = [
        "callgate",
        "callgate fly",
        "callgate serve --config a.yaml --tool http://127.0.0.1:9000",
        "callgate serve --listen 127.0.0.1:8181",
        "callgate dead list --limit many",
        "callgate receipt",
        "callgate dead list -o xml",
        "callgate why",
        "callgate why ord-1 --log-field id",
        "callgate dead resolve ord-1 --note carrier-says-so",
        "callgate dead resolve ord-1 --as maybe --note x",
        "callgate dead resolve ord-1 --as success",
        "callgate dead discard ord-1",
        "callgate dead bulk resolve --all",
        "callgate dead bulk resend --all --rate 10/h",
        "callgate dead job cancel",
    ];
    for line in lines {
        let stop = parse(line).expect_err(line);
        assert!(stop.use_stderr(), "{line}");
    }
    assert!(!parse("callgate --help").unwrap_err().use_stderr());
    assert!(!parse("callgate --version").unwrap_err().use_stderr());
}

/// A gateway's admin listener on a port of its own, for as long as this lives.
struct Listening {
    url: String,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    fn start(router: Router) -> Self {
        let stop = CancellationToken::new();
        let (tell, told) = channel();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                tell.send(listener.local_addr().expect("an address"))
                    .expect("a waiting test");
                let metrics = Arc::new(Metrics::new("0.1.0"));
                admin::serve(listener, router, metrics, stopped).await;
            });
        });
        let url = format!("http://{}", told.recv().expect("the listener's address"));
        Self {
            url,
            stop,
            thread: Some(thread),
        }
    }

    fn of(shelf: Shelf, token: Option<&str>) -> Self {
        Self::start(admin::router(admin::tests::admin(shelf, token)))
    }

    fn run(&self, line: &str) -> Result<(Exit, String), Failure> {
        run_at(&self.url, line)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(
            ended.is_some_and(|end| end.is_ok()),
            "the admin listener ends"
        );
    }
}

/// Runs a client command against `url`.
fn run_at(url: &str, line: &str) -> Result<(Exit, String), Failure> {
    let cli = parse(&format!("callgate --admin {url} {line}")).expect("a valid line");
    let mut out = Vec::new();
    let mut printer = Printer::new(cli.gateway.output, &mut out);
    let gateway = cli.gateway.find()?;
    let exit = match cli.command {
        Command::Why(args) => why::run(&args, || Ok(gateway), &mut printer),
        Command::Push(args) => push::run(&args, &gateway, &mut printer),
        Command::Batch(command) => batch::run(&command, &gateway, &mut printer),
        Command::Dead(command) => dead::run(&command, &gateway, &mut printer),
        Command::Receipt(args) => receipt::run(&args, &gateway, &mut printer),
        Command::Retries(args) => retries::run(&args, &gateway, &mut printer),
        Command::Health(args) => health::run(&args, &gateway, &mut printer),
        Command::Demo(_) | Command::Serve(_) | Command::Init | Command::Check(_) => {
            unreachable!("no client command")
        }
    };
    Ok((exit?, String::from_utf8(out).expect("output is text")))
}

fn shelf() -> Shelf {
    Shelf {
        calls: vec![settled()],
        dead: vec![dead_letter("ord-1")],
        ..Shelf::default()
    }
}

/// A command, how it ends, and how its output begins.
const ENDS: &[(&str, Exit, &str)] = &[
    (
        "receipt ord/1 --token t",
        Exit::Ok,
        "call id     ord/1\nstate       SUCCESS\n",
    ),
    (
        "receipt ord/1 --token t -o ndjson",
        Exit::Ok,
        "{\"callId\":\"ord/1\",\"client\":",
    ),
    (
        "dead list --state QUEUED --token t",
        Exit::Ok,
        "CALL ID  STATE   AGE ",
    ),
    (
        "dead list --token t -o ndjson",
        Exit::Ok,
        "{\"call_id\":\"ord-1\",\"route\":",
    ),
    (
        "dead list --token t -o json",
        Exit::Ok,
        "{\n  \"items\": [\n    {\n      \"call_id\":",
    ),
    (
        "dead list --token t -o csv",
        Exit::Ok,
        "business_key,request_id,last_error,fail_count,next_retry_time,create_time,call_id,",
    ),
    (
        "dead diff --token t -o csv",
        Exit::Ok,
        "seen,call_id,kind,told,",
    ),
    ("dead bulk resend --token t --yes", Exit::Usage, ""),
    (
        "dead bulk resend --state SETTLED --token t --yes",
        Exit::Usage,
        "",
    ),
    ("dead bulk resend --all --token t", Exit::Usage, ""),
    ("dead resend nobody --token t", Exit::NotFound, ""),
    ("dead resend ord/1 --token t", Exit::Failed, ""),
    ("dead job show 9 --token t", Exit::NotFound, ""),
    ("dead list --state STUCK --token t", Exit::Usage, ""),
    ("receipt nobody --token t", Exit::NotFound, ""),
    ("dead show ord/1 --token t", Exit::NotFound, ""),
    ("receipt ord/1 --token wrong", Exit::Failed, ""),
    ("health", Exit::Ok, "ready\n[+] ledger\n"),
    ("health --live", Exit::Ok, "alive\n"),
    (
        "health -o ndjson",
        Exit::Ok,
        "{\"status\":\"ready\",\"ok\":true,\"checks\":[\"[+] ledger\"]}\n",
    ),
    (
        "health --live -o csv",
        Exit::Ok,
        "status,ok\r\nalive,true\r\n",
    ),
    (
        "why ord/1 --token t",
        Exit::Ok,
        "call id  ord/1\nverdict  receipt-and",
    ),
    (
        "why ord/1 --token t -o ndjson",
        Exit::Ok,
        "{\"asked\":\"ord/1\",\"found\":\"call-id\",",
    ),
    ("why nobody --token t", Exit::NotFound, ""),
    ("why ord/1 --ledger no-such.db", Exit::Usage, ""),
    ("why ord/1 --token t --log no-such.log", Exit::Usage, ""),
];

#[test]
fn commands_end_as_the_gateway_answers() {
    let gateway = Listening::of(shelf(), Some("t"));
    for &(line, expected, begins) in ENDS {
        let ended = gateway.run(line);
        let (exit, out) = ended.unwrap_or_else(|failure| (failure.exit(), String::new()));
        assert_eq!(exit, expected, "{line}");
        assert!(
            out.starts_with(begins) && out.is_empty() == begins.is_empty(),
            "{line}: {out}"
        );
    }
    let refused = gateway
        .run("dead list --token wrong")
        .unwrap_err()
        .to_string();
    assert!(refused.contains("CALLGATE_ADMIN_TOKEN"), "{refused}");
}

#[test]
fn a_gateway_that_is_not_ready_fails_the_health_check() {
    let sick = Shelf::default();
    *sick.failing.lock() = Some("disk full".into());
    let gateway = Listening::of(sick, None);
    let (exit, out) = gateway.run("health").expect("it answers");
    assert_eq!(
        (exit, &*out),
        (Exit::Failed, "not ready\n[-] ledger: disk full\n")
    );
    assert_eq!(
        gateway.run("health --live").expect("it answers").0,
        Exit::Ok
    );
}

#[test]
fn nobody_there_says_the_address_tried_and_the_next_command() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", taken.local_addr().expect("an address"));
    drop(taken);
    let failure = run_at(&url, "dead list").unwrap_err();
    assert_eq!(failure.exit(), Exit::Failed);
    let text = failure.to_string();
    for part in [
        url.as_str(),
        "callgate serve",
        "--admin URL",
        "CALLGATE_ADMIN",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn an_address_of_something_else_is_told_as_such() {
    let other = Router::new().fallback(|| async { "hello" });
    let page = Listening::start(other);
    let text = page.run("dead list").unwrap_err().to_string();
    assert!(text.contains("no callgate admin listener"), "{text}");
    let refusing = Router::new().fallback(|| async { StatusCode::NOT_FOUND });
    let text = Listening::start(refusing)
        .run("receipt ord-1")
        .unwrap_err()
        .to_string();
    assert!(text.contains("without a problem document"), "{text}");
}
