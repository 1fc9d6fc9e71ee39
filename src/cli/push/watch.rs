//! Watching: the batch is looked at until it has ended, over a restart of the gateway as well, and
//! Ctrl-C asks what is meant.

use std::io::{BufRead as _, IsTerminal as _};
use std::time::Duration;

use http::Method;
use serde_json::Value;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::super::client::Target;
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::BATCHES;
use super::progress::{Figures, Progress};
use super::wire::Link;
use crate::clock;

/// How often the batch is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// What the one at the terminal wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Detach,
    Cancel,
    GoOn,
}

/// Watches a batch to its end; how the command ends, and the batch.
pub(in crate::cli) async fn watch(
    link: &Link<'_>,
    name: &str,
    quiet: bool,
) -> Result<(Exit, Value), Failure> {
    let target = Target::new(BATCHES).segment(name);
    let mut progress = Progress::new(quiet);
    let mut away = false;
    let mut last = Value::Null;
    // One listener for all of it: what is typed between two looks is heard at the next one.
    let mut interrupts = signal(SignalKind::interrupt())?;
    loop {
        let looked = tokio::select! {
            looked = look(link, &target) => Some(looked),
            _ = interrupts.recv() => None,
        };
        match looked {
            Some(Ok(batch)) => {
                if std::mem::take(&mut away) {
                    progress.say("the gateway is there again; the batch goes on");
                }
                progress.show(&batch);
                last = batch;
                if has_ended(&last) {
                    progress.finish();
                    return Ok((exit(&last), last));
                }
            }
            // A batch that was there once is there again when the gateway is.
            Some(Err(Failure::Unreachable { .. } | Failure::Strange { .. })) => {
                if !std::mem::replace(&mut away, true) {
                    progress.say("the gateway is away; its batch waits for it, and so does this");
                }
            }
            Some(Err(failure)) => return Err(failure),
            None => match wish(&mut progress, &mut interrupts).await {
                Wish::GoOn => {}
                Wish::Cancel => {
                    let cancel = Target::new(BATCHES).segment(name).segment("cancel");
                    last = link.document(Method::POST, &cancel).await?;
                    progress.say("cancelled: what runs is finished, nothing else is begun");
                }
                Wish::Detach => {
                    progress.finish();
                    eprintln!(
                        "detached: the gateway goes on. callgate batch watch {name} looks at it"
                    );
                    return Ok((Exit::Unresolved, last));
                }
            },
        }
    }
}

/// The batch as it is a little later.
async fn look(link: &Link<'_>, target: &Target) -> Result<Value, Failure> {
    clock::sleep(LOOK_EVERY).await;
    link.document(Method::GET, target).await
}

/// Asks at the terminal; where nobody can be asked, or who is asked types Ctrl-C again, the command
/// leaves and the batch goes on.
async fn wish(progress: &mut Progress, interrupts: &mut Signal) -> Wish {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Wish::Detach;
    }
    progress.pause();
    eprint!("\n[d]etach, [c]ancel the batch, or Enter to go on? ");
    let asked = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        read.map(|_| line).unwrap_or_else(|_| "d".to_owned())
    });
    let wish = tokio::select! {
        line = asked => meant(&line.unwrap_or_else(|_| "d".to_owned())),
        _ = interrupts.recv() => {
            // The question's line has no end yet.
            eprintln!();
            Wish::Detach
        }
    };
    progress.resume();
    wish
}

fn meant(line: &str) -> Wish {
    match line.trim().to_ascii_lowercase().as_str() {
        "d" | "detach" => Wish::Detach,
        "c" | "cancel" => Wish::Cancel,
        _ => Wish::GoOn,
    }
}

fn has_ended(batch: &Value) -> bool {
    match batch["state"].as_str() {
        Some("FINISHED") => true,
        Some("CANCELLED") => !batch["endedAt"].is_null(),
        _ => false,
    }
}

/// How a command ends that waited for this batch.
fn exit(batch: &Value) -> Exit {
    let figures = Figures::of(batch);
    let cancelled = batch["cancelled"].as_u64().unwrap_or(0);
    if figures.unresolved > 0 {
        Exit::Unresolved
    } else if figures.refused + figures.bad + cancelled > 0 {
        Exit::Failed
    } else {
        Exit::Ok
    }
}

/// A batch as a person reads it.
pub(in crate::cli) fn summary(batch: &Value) -> String {
    let of = |name: &str| batch[name].clone();
    let some = |name: &str| match batch[name].as_u64() {
        Some(0) | None => Value::Null,
        Some(count) => count.into(),
    };
    let mut text = output::pairs([
        ("batch", of("name")),
        ("state", of("state")),
        ("route", of("route")),
        ("items", of("items")),
        ("waiting", some("waiting")),
        ("leased", some("leased")),
        ("  running", some("running")),
        ("done", of("done")),
        ("  already done", some("replayed")),
        ("  by receipt", some("settledByReceipt")),
        ("  retried", some("retried")),
        ("refused", of("refused")),
        ("unresolved", of("unresolved")),
        ("bad rows", some("bad")),
        ("cancelled", some("cancelled")),
        ("began", of("createdAt")),
        ("ended", of("endedAt")),
    ]);
    let name = batch["name"].as_str().unwrap_or_default();
    for (member, state) in [
        ("unresolved", "UNRESOLVED"),
        ("refused", "REFUSED"),
        ("bad", "BAD"),
    ] {
        if batch[member].as_u64().is_some_and(|count| count > 0) {
            text.push_str(&format!("callgate batch export {name} --state {state}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_end_says_whether_everything_is_known_and_done() {
        let ends = |unresolved: u64, refused: u64, bad: u64, cancelled: u64| {
            exit(&json!({
                "unresolved": unresolved, "refused": refused, "bad": bad, "cancelled": cancelled
            }))
        };
        assert_eq!(ends(0, 0, 0, 0), Exit::Ok);
        assert_eq!(ends(1, 1, 0, 0), Exit::Unresolved);
        for end in [ends(0, 1, 0, 0), ends(0, 0, 1, 0), ends(0, 0, 0, 1)] {
            assert_eq!(end, Exit::Failed);
        }
    }

    #[test]
    fn a_batch_has_ended_only_when_nothing_of_it_runs() {
        let ended = |state: &str, at: Value| has_ended(&json!({"state": state, "endedAt": at}));
        assert!(ended("FINISHED", json!("x")) && ended("CANCELLED", json!("x")));
        for state in ["LOADING", "RUNNING", "PAUSED", "CANCELLED"] {
            assert!(!ended(state, Value::Null), "{state}");
        }
    }

    #[test]
    fn a_wish_is_a_letter_and_anything_else_goes_on() {
        assert_eq!(meant("d\n"), Wish::Detach);
        assert_eq!(meant(" Cancel "), Wish::Cancel);
        assert_eq!(meant("\n"), Wish::GoOn);
    }

    #[test]
    fn a_summary_names_the_next_step() {
        let text = summary(&json!({
            "name": "night", "state": "FINISHED", "items": 3, "done": 2, "refused": 0,
            "unresolved": 1, "replayed": 1, "waiting": 0
        }));
        assert!(text.contains("already done  1"), "{text}");
        assert!(
            text.ends_with("callgate batch export night --state UNRESOLVED\n"),
            "{text}"
        );
        assert!(!text.contains("waiting"), "{text}");
    }
}
