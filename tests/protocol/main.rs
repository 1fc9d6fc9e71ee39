//! The exhaustive check of the protocol claim, lease, receipt, resend, reverse: every order of
//! events of one call, two gateways, a tool, crashes and losses, up to small bounds.
//!
//! Real: the decision core (`src/call`, compiled here from the same files) and the ledger's
//! judgements (`ledger::rule`). By hand: the driver, because the product's is asynchronous; the
//! ledger's row, because the product's carries requests and answers; time, which passes only as a
//! drive waits for it; and the tool's side of a reversal.
//!
//! Deliberately not looked at: draining, cancelling, streamed answers, records that fail.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use stateright::{Checker, Model};

use crate::call::policy::{Records, ResendOn};
use crate::moves::Fate;
use crate::rules::{Break, Numbers, Setting, Shared, Troubles};
use crate::world::Luck;

#[path = "../../src/call"]
#[allow(
    dead_code,
    reason = "the product's own core; the protocol uses a part of it"
)]
mod call {
    pub mod code;
    pub mod id;
    pub mod machine;
    pub mod outcome;
    pub mod policy;
    pub mod receipt;
    pub mod recovery;
    pub mod step;
    pub mod tally;
    pub mod time;
}

#[path = "../../src/ledger"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the product's own values; the protocol uses a part of them"
)]
mod ledger {
    #[path = "../../tests/protocol/books.rs"]
    pub(crate) mod books;
    pub mod record;
    mod rule;
    pub mod step;
    pub mod view;

    pub use record::{Claim, Kept, Reply, RowId, StoredUndo};
    pub use step::{Intention, News, Park, Place, Verdict};
    pub use view::{DeadState, Taker};
}

mod acts;
mod drive;
mod moves;
mod rules;
mod world;

/// A setting that does not end in this time says so instead of going on for ever.
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    let (mut states, mut sound) = (0, true);
    let began = Instant::now();
    let only = std::env::args().nth(1);
    let wanted = |set: &Setting| {
        only.as_ref()
            .is_none_or(|only| set.name.contains(only.as_str()))
    };
    let mut chosen = settings();
    chosen.extend(only.is_some().then(long));
    chosen.retain(&wanted);
    for set in chosen {
        let (found, fine) = check(set, true);
        states += found;
        sound &= fine;
    }
    let broken = broken_sends().into_iter().chain(broken_claims());
    for set in broken.filter(&wanted) {
        sound &= check(set, false).1;
    }
    println!("{states} states in {:.1} s", began.elapsed().as_secs_f64());
    if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Looks at every world of a setting; with `keeps`, every rule has to hold, else one must not.
fn check(set: Setting, keeps: bool) -> (usize, bool) {
    let began = Instant::now();
    let (name, breaks) = (set.name, set.breaks);
    let checker = set.checker().threads(2).timeout(PATIENCE);
    let checker = if keeps {
        checker
    } else {
        checker.finish_when(stateright::HasDiscoveries::AnyFailures)
    };
    let checker = checker.spawn_bfs().join();
    let states = checker.unique_state_count();
    let seconds = began.elapsed().as_secs_f64();
    let mut sound = checker.is_done();
    let mut caught = None;
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        let must_be_found = property.expectation == stateright::Expectation::Sometimes;
        match found {
            Some(path) if !must_be_found => {
                caught.get_or_insert(property.name);
                if keeps {
                    println!("BROKEN: {}", property.name);
                    for action in path.into_actions() {
                        println!("    {action:?}");
                    }
                }
            }
            None if must_be_found && keeps => {
                println!("NEVER: {}", property.name);
                sound = false;
            }
            Some(_) | None => {}
        }
    }
    if keeps {
        sound &= caught.is_none();
        let verdict = if sound { "holds" } else { "FAILS" };
        println!("{verdict:7} {name:44} {states:9} states {seconds:6.1} s");
    } else {
        sound = caught.is_some();
        let verdict = if sound { "caught" } else { "MISSED" };
        let by = caught.unwrap_or("nothing");
        println!("{verdict:7} without {breaks:?}: {by} ({states} states, {seconds:.1} s)");
    }
    (states, sound)
}

/// One process at a time, a tool that knows nothing of ids, and a network that keeps its word.
fn plain() -> Setting {
    Setting {
        name: "a tool without ids, one process at a time",
        policy: numbers().policy(),
        honours: false,
        orderly: true,
        shared: Shared::Never,
        requests: 1,
        turned: &[422, 429],
        ends: &[Fate::Commit(200), Fate::Fail],
        troubles: Troubles {
            refused: false,
            cut: false,
            silent: false,
            stalls: false,
        },
        luck: Luck {
            crashes: 1,
            pauses: 0,
            orders: 0,
        },
        breaks: Break::Nothing,
    }
}

const fn numbers() -> Numbers {
    Numbers {
        retries: 1,
        rounds: 2,
        total: 4,
        settle: 1,
        records: Records::Arrival,
        resend_on: ResendOn::NotFound,
        undoes: false,
    }
}

/// Nothing is resent in line.
const fn once() -> Numbers {
    Numbers {
        retries: 0,
        total: 2,
        ..numbers()
    }
}

const CALM: Luck = Luck {
    crashes: 0,
    pauses: 0,
    orders: 0,
};

const ALL: Troubles = Troubles {
    refused: true,
    cut: true,
    silent: true,
    stalls: true,
};

/// Looked at every time.
fn settings() -> Vec<Setting> {
    let mut all = settings_of_answers();
    all.extend(settings_of_protocol());
    all.extend(settings_of_reversal());
    all
}

/// What the network, the tool and the caller can do to one call.
fn settings_of_answers() -> Vec<Setting> {
    vec![
        plain(),
        Setting {
            name: "every trouble of the network, no crash",
            troubles: ALL,
            luck: CALM,
            ..plain()
        },
        Setting {
            name: "5xx answers, before and after the work",
            turned: &[500],
            ends: &[Fate::Commit(500), Fate::Fail],
            ..plain()
        },
        Setting {
            name: "a caller that repeats",
            policy: once().policy(),
            requests: 2,
            turned: &[429],
            ends: &[Fate::Commit(200)],
            troubles: Troubles {
                refused: true,
                ..plain().troubles
            },
            luck: CALM,
            ..plain()
        },
        Setting {
            name: "a caller that repeats over a crash",
            requests: 2,
            turned: &[422],
            ends: &[Fate::Commit(200)],
            ..plain()
        },
    ]
}

/// Other kinds of receipts, and two processes on one ledger.
fn settings_of_protocol() -> Vec<Setting> {
    let commits = Numbers {
        records: Records::Commit,
        ..numbers()
    };
    let declared = Numbers {
        resend_on: ResendOn::NotFoundOrUnknown,
        ..numbers()
    };
    vec![
        Setting {
            name: "receipts that begin with the commit",
            policy: commits.policy(),
            turned: &[422],
            troubles: Troubles {
                cut: true,
                ..plain().troubles
            },
            ..plain()
        },
        Setting {
            name: "a tool that honours ids, and UNKNOWN resends",
            policy: declared.policy(),
            honours: true,
            orderly: false,
            turned: &[429],
            ends: &[Fate::Commit(200)],
            luck: CALM,
            ..plain()
        },
        Setting {
            name: "two processes, one ledger, honest leases",
            shared: Shared::Guarded,
            turned: &[422],
            ..plain()
        },
        Setting {
            name: "two processes, a lease lost by a living one",
            policy: once().policy(),
            shared: Shared::Bare,
            orderly: false,
            turned: &[],
            ends: &[Fate::Commit(200)],
            luck: Luck { pauses: 1, ..CALM },
            ..plain()
        },
    ]
}

/// What stays unclear is undone.
fn settings_of_reversal() -> Vec<Setting> {
    let undoes = Numbers {
        undoes: true,
        ..numbers()
    };
    let undone_at_once = Numbers {
        undoes: true,
        rounds: 1,
        ..numbers()
    };
    vec![
        Setting {
            name: "reversal after the last round, over a crash",
            policy: undoes.policy(),
            turned: &[],
            ends: &[Fate::Commit(200)],
            ..plain()
        },
        Setting {
            name: "reversal, and a caller that repeats",
            policy: undone_at_once.policy(),
            requests: 2,
            turned: &[],
            ends: &[Fate::Commit(200)],
            luck: CALM,
            ..plain()
        },
        Setting {
            name: "reversal and resends by an operator, over a crash",
            policy: undone_at_once.policy(),
            turned: &[],
            ends: &[Fate::Commit(200)],
            luck: Luck {
                orders: 1,
                ..plain().luck
            },
            ..plain()
        },
    ]
}

/// Looked at only when named: it takes minutes.
fn long() -> Setting {
    Setting {
        name: "two processes, a lease lost by a living one, and refusals",
        policy: once().policy(),
        shared: Shared::Bare,
        orderly: false,
        turned: &[422],
        ends: &[Fate::Commit(200)],
        luck: Luck { pauses: 1, ..CALM },
        ..plain()
    }
}

/// A setting without one of the rules.
fn without(breaks: Break, setting: Setting) -> Setting {
    Setting { breaks, ..setting }
}

/// Rules of sending and asking, each left out.
fn broken_sends() -> Vec<Setting> {
    let unsettled = Numbers {
        settle: 0,
        ..numbers()
    };
    let declared = Numbers {
        resend_on: ResendOn::NotFoundOrUnknown,
        ..numbers()
    };
    vec![
        without(Break::PerformFirst, plain()),
        without(
            Break::TellFirst,
            Setting {
                turned: &[422],
                ..plain()
            },
        ),
        without(
            Break::NewId,
            Setting {
                policy: declared.policy(),
                honours: true,
                ends: &[Fate::Commit(200)],
                luck: CALM,
                ..plain()
            },
        ),
        without(Break::SkipReceipt, plain()),
        without(Break::NoClose, plain()),
        without(
            Break::NoSettle,
            Setting {
                policy: unsettled.policy(),
                ..plain()
            },
        ),
        without(Break::TrustUnknown, plain()),
    ]
}

/// Rules of owners and of reversals, each left out.
fn broken_claims() -> Vec<Setting> {
    let two = Setting {
        shared: Shared::Guarded,
        ..plain()
    };
    let undoes = Numbers {
        undoes: true,
        rounds: 1,
        ..once()
    };
    let undoing = Setting {
        policy: undoes.policy(),
        turned: &[],
        ends: &[Fate::Commit(200)],
        luck: CALM,
        ..plain()
    };
    vec![
        without(Break::LivingOwner, two.clone()),
        without(Break::RunAgain, plain()),
        without(
            Break::NoFence,
            Setting {
                honours: true,
                luck: Luck { pauses: 2, ..CALM },
                ..two.clone()
            },
        ),
        without(
            Break::ReverseFirst,
            Setting {
                policy: undoes.policy(),
                luck: Luck { pauses: 2, ..CALM },
                ..two
            },
        ),
        without(
            Break::OpenDoor,
            Setting {
                luck: Luck { orders: 1, ..CALM },
                ..undoing.clone()
            },
        ),
        without(Break::TrustUndo, undoing),
    ]
}
