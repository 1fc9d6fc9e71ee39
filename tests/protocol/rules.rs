//! What has to hold in every world, and the settings it is looked at in.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use stateright::Property;

use crate::call::outcome::Cause;
use crate::call::policy::{
    BelieveNotFound, Compensation, OnClientGone, OnFailed, Policy, Receipts, Records, ResendOn,
    Retry, RetryNumbers, Reversal, Timeouts, UnresolvedAnswer,
};
use crate::call::receipt::State;
use crate::ledger::DeadState;
use crate::moves::Fate;
use crate::world::{Caller, Gateway, Luck, Seen, Tool, World};

/// A setting: the tool, the network, the gateways, and what may go wrong.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) policy: Arc<Policy>,
    /// The tool makes one effect per call id.
    pub(crate) honours: bool,
    /// What was closed is delivered or lost within `settle`.
    pub(crate) orderly: bool,
    pub(crate) shared: Shared,
    pub(crate) requests: u8,
    /// What the network does besides.
    pub(crate) troubles: Troubles,
    /// How the tool may turn a request away without keeping anything.
    pub(crate) turned: &'static [u16],
    /// How its work may end.
    pub(crate) ends: &'static [Fate],
    pub(crate) luck: Luck,
    /// A rule that is not kept, to see that it is missed.
    pub(crate) breaks: Break,
}

/// Troubles that multiply the worlds; a setting looks at some of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Troubles {
    /// Connections are refused.
    pub(crate) refused: bool,
    /// Connections break under an attempt.
    pub(crate) cut: bool,
    /// Late exchanges break.
    pub(crate) silent: bool,
    /// `timeouts.total` passes while a question is open.
    pub(crate) stalls: bool,
}

/// Who may open the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shared {
    /// One process at a time: a second gateway starts when the first is dead.
    Never,
    /// Two at once; a round waits while another process holds an exchange of the call.
    Guarded,
    /// Two at once, without that.
    Bare,
}

/// A rule that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    Nothing,
    /// A send is performed without its record.
    PerformFirst,
    /// A failure is told while its record is on its way.
    TellFirst,
    /// A resend goes under an id of its own.
    NewId,
    /// An unclear call is sent again without asking what became of it.
    SkipReceipt,
    /// Nothing is closed before NOT_FOUND is believed.
    NoClose,
    /// Nothing is waited for after closing (`settle: 0`).
    NoSettle,
    /// UNKNOWN is taken for NOT_FOUND.
    TrustUnknown,
    /// A living owner's call is recovered.
    LivingOwner,
    /// A dead owner's call is run again instead of asked about.
    RunAgain,
    /// A claim does not raise the fencing number.
    NoFence,
    /// A reversal is sent though `REVERSING` could not be written.
    ReverseFirst,
    /// What is being undone may be sent all the same.
    OpenDoor,
    /// A reversal is taken for done when it is unclear.
    TrustUndo,
}

/// The numbers of a setting.
#[derive(Clone, Copy)]
pub(crate) struct Numbers {
    pub(crate) retries: u8,
    pub(crate) rounds: u64,
    /// In ticks, as every wait.
    pub(crate) total: u64,
    pub(crate) settle: u64,
    pub(crate) records: Records,
    pub(crate) resend_on: ResendOn,
    /// What stays unclear after the last round is undone.
    pub(crate) undoes: bool,
}

impl Numbers {
    /// Waits are whole ticks and questions take none, so that the worlds stay few.
    pub(crate) fn policy(self) -> Arc<Policy> {
        let tick = Duration::from_secs;
        let retry = Retry::new(RetryNumbers {
            max_retries: self.retries,
            base: tick(1),
            factor: 1.0,
            cap: tick(1),
            jitter: 0.0,
            on: Cause::ALL.to_vec(),
            resend_on: self.resend_on,
        });
        Arc::new(Policy {
            timeouts: Timeouts {
                connect: tick(1),
                attempt: tick(1),
                idle: tick(9),
                receipt: tick(0),
                total: tick(self.total),
                late: tick(9),
            },
            retry: retry.expect("numbers within their bounds"),
            receipt: Some(Receipts {
                settle: tick(self.settle),
                retention: tick(1_000),
                records: self.records,
                believe_not_found: BelieveNotFound::Proven,
            }),
            compensation: Compensation {
                rounds: (1..=self.rounds).map(tick).collect(),
                resend: true,
                lease: tick(9),
                on_failed: OnFailed::Drop,
                reversal: self.undoes.then_some(Reversal {
                    unknown: true,
                    not_found: true,
                    min_age: tick(self.settle.max(1)),
                    max_age: tick(1_000),
                }),
            },
            unresolved_status: StatusCode::GATEWAY_TIMEOUT,
            unresolved_answer: UnresolvedAnswer::Problem,
            on_client_gone: OnClientGone::Finish,
        })
    }
}

impl Setting {
    pub(crate) fn at_commit(&self) -> bool {
        self.policy
            .receipt
            .is_some_and(|r| r.records == Records::Commit)
    }

    /// Nothing has happened yet.
    pub(crate) fn world(&self) -> World {
        let up = Gateway {
            up: true,
            instance: 1,
            ..Gateway::default()
        };
        let second = match self.shared {
            Shared::Never => Gateway::default(),
            Shared::Guarded | Shared::Bare => up.clone(),
        };
        World {
            row: None,
            gateways: [up, second],
            tool: Tool::default(),
            messages: Vec::new(),
            caller: Caller {
                left: self.requests,
                waits: None,
            },
            luck: self.luck,
            seen: Seen::default(),
        }
    }

    /// Where one effect is promised: before a tool that honours ids, or as long as no request is
    /// delivered after its receipt said NOT_FOUND.
    fn promises_one(&self, world: &World) -> bool {
        self.honours || self.denies_truly(world)
    }

    /// An orderly network keeps to that by itself, which is the gateway's merit: it closes, waits
    /// and asks again. In any other it is the condition.
    fn denies_truly(&self, world: &World) -> bool {
        self.orderly || !world.seen.after_not_found
    }
}

fn effects(world: &World) -> u8 {
    world.tool.effects.iter().sum()
}

fn is_over(world: &World) -> bool {
    world.row.as_ref().is_none_or(|row| {
        let ended = Some(DeadState::Manual) == row.dead || Some(DeadState::Reversed) == row.dead;
        row.is_settled() || ended
    })
}

/// The rules, each over every world that can be reached.
pub(crate) fn all() -> Vec<Property<Setting>> {
    let always = Property::<Setting>::always;
    let sometimes = Property::<Setting>::sometimes;
    vec![
        always("at most one effect", |set, w| {
            effects(w) <= 1 || !set.promises_one(w)
        }),
        always("never told success without an effect", |_, w| {
            !w.seen.told_success || effects(w) > 0
        }),
        always("never told failure with an effect", |set, w| {
            let lied = (0..3).any(|life| w.seen.told_failure[life] && w.tool.effects[life] > 0);
            !lied || !set.denies_truly(w)
        }),
        always("the ledger never holds a false end", |set, w| {
            w.row.as_ref().is_none_or(|row| match row.state {
                State::Success => effects(w) > w.tool.undone,
                // What was undone is looked at by a rule of its own.
                State::Failed if row.dead == Some(DeadState::Reversed) => true,
                State::Failed => w.tool.effects[row.life as usize] == 0 || !set.denies_truly(w),
                State::Received | State::Processing | State::Unknown => true,
            })
        }),
        always("nothing leaves before it is on record", |_, w| {
            !w.seen.unrecorded_send
        }),
        always("a stale owner writes nothing", |_, w| !w.seen.stale_write),
        always("nothing is sent after its reversal began", |set, w| {
            !w.seen.sent_after_reversing || !set.orderly
        }),
        always("what is reversed has no effect left", |set, w| {
            let reversed = w
                .row
                .as_ref()
                .is_some_and(|r| r.dead == Some(DeadState::Reversed));
            !reversed || effects(w) == w.tool.undone || !set.denies_truly(w)
        }),
        always("sends are bounded", |set, w| {
            let rounds = set.policy.compensation.rounds.len() as u8;
            let lives = set.requests;
            let each = 1 + set.policy.retry.max_retries() + rounds - 1;
            w.seen.sends <= lives * each + set.luck.crashes + set.luck.pauses
        }),
        always("no event of this world is impossible", |_, w| {
            !w.seen.impossible
        }),
        always(
            "where nothing can happen any more, all is over",
            |set, w| {
                let mut actions = Vec::new();
                w.actions(set, &mut actions);
                !actions.is_empty() || is_over(w)
            },
        ),
        // Worlds that must be reached, else the rules above say nothing.
        sometimes("a call is resent and succeeds", |_, w| {
            w.seen.sends > 1 && w.seen.told_success
        }),
        sometimes("a failure is told", |set, w| {
            let can_fail = !set.turned.is_empty() || set.ends.contains(&Fate::Fail);
            w.seen.told_failure[1] || !can_fail
        }),
        sometimes("a call ends in front of a human, or is reversed", |_, w| {
            let dead = w.row.as_ref().and_then(|row| row.dead);
            matches!(dead, Some(DeadState::Manual | DeadState::Reversed))
        }),
    ]
}
