//! Everything that is settled about a world before it begins, drawn from its seed: what its tool
//! is like, how its network and its disk behave, who calls, and when the gateway dies.

use std::time::Duration;

use callgate::flow::Prefer;

use crate::dice::Dice;
use crate::files::File;
use crate::several::Dead;

/// The longest a request of a prompt network is under way, in ms.
pub(crate) const PROMPT_MS: u64 = 300;
/// The longest a receipt lags behind what the tool has done, in ms.
pub(crate) const LAG_MS: u64 = 150;
/// Parts the second sequence of draws from the first; such that it adds nothing to the worlds that
/// are kept from before it.
const MORE: u64 = 0x6b65_7a19;
/// The same, for the worlds in which another gateway takes over.
const HANDOVER: u64 = 0x4a4d_0a00;
/// Parts further sequences of draws from the first; as above.
const ADDRESSES: u64 = 0x0adc_0002;
const JOBS: u64 = 0x1d9e_0b5a;
const FORGETS: u64 = 0xf0_49e7;
/// Rounds of the queue; the last one only asks.
pub(crate) const ROUNDS: u32 = 3;
/// The longest run of the tool, in ms.
pub(crate) const RUN_MS: u64 = 4_000;

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Nothing fails in this world.
    pub(crate) quiet: bool,
    pub(crate) tool: ToolPlan,
    pub(crate) net: NetPlan,
    pub(crate) disk: DiskPlan,
    pub(crate) rules: Rules,
    pub(crate) callers: Vec<Script>,
    pub(crate) files: Vec<File>,
    pub(crate) ends: Vec<EndPlan>,
    /// The wall clock is stepped, at this time and by so many ms.
    pub(crate) step: Option<(u64, i64)>,
    /// A second gateway on the same ledger begins so long after each start of the first one.
    pub(crate) twin: Option<u64>,
    /// Another gateway takes over the ledger so long after each start: the earlier one lets go of
    /// what it holds, and its exchanges go on.
    pub(crate) handover: Option<u64>,
    /// An operator orders something about each call that waits for a human.
    pub(crate) orders: bool,
    /// Operators work on many calls at once (`jobs`).
    pub(crate) jobs: bool,
    /// The product's own worker makes the rounds, instead of a plain loop.
    pub(crate) real_worker: bool,
}

/// What the tool is like. All shares are in percent.
#[derive(Clone, Debug)]
pub(crate) struct ToolPlan {
    /// It does the work of one call id at most once.
    pub(crate) honours: bool,
    /// It answers a duplicate with 409 instead of what it answered first.
    pub(crate) says_conflict: bool,
    /// A refusal gets a receipt and is repeated.
    pub(crate) records_refusals: bool,
    pub(crate) receipts: Receipts,
    pub(crate) lag_ms: u64,
    /// It forgets its receipts after this time.
    pub(crate) retention_ms: Option<u64>,
    /// It answers 202 and works afterwards.
    pub(crate) promises: bool,
    /// It has never heard of a call that it has recognised before.
    pub(crate) forgets: u64,
    pub(crate) limits: u64,
    pub(crate) refuses: u64,
    pub(crate) breaks_before: u64,
    pub(crate) breaks_after: u64,
    /// The work is begun, and refused at its end.
    pub(crate) fails: u64,
    pub(crate) slow: u64,
    pub(crate) mute: u64,
    /// A receipt query that brings nothing usable.
    pub(crate) bad_receipt: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receipts {
    /// There are none.
    None,
    /// From the arrival on.
    Arrival,
    /// From the commit on, and the route says so.
    Commit,
    /// From the commit on, and the route does not know: NOT_FOUND lies.
    Lying,
    /// It never knows anything.
    NeverKnows,
}

/// What the network does to a request or an answer. All shares are in percent.
#[derive(Clone, Debug)]
pub(crate) struct NetPlan {
    /// Requests may arrive long after they were sent.
    pub(crate) slow: bool,
    pub(crate) loses: u64,
    /// Bytes that wait in the sender's kernel, until the connection is reset.
    pub(crate) stalls: u64,
    pub(crate) resets: u64,
    pub(crate) cuts: u64,
    pub(crate) delays: u64,
    pub(crate) doubles: u64,
    pub(crate) refuses: u64,
    /// Nothing can be reached before this time.
    pub(crate) down_until: u64,
    /// One of several addresses is dead for a while.
    pub(crate) dead: Option<Dead>,
}

#[derive(Clone, Debug)]
pub(crate) struct DiskPlan {
    /// The longest ordinary commit in ms; 0 completes every verb inline.
    pub(crate) commit_ms: u64,
    /// A share of commits that take up to four seconds.
    pub(crate) hangs: u64,
    /// A share of commits that fail.
    pub(crate) fails: u64,
}

/// The route's rules, as far as they differ between worlds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Rules {
    pub(crate) retries: u64,
    pub(crate) base_ms: u64,
    pub(crate) resend_on: &'static str,
    pub(crate) resend: bool,
    pub(crate) believe: &'static str,
    pub(crate) late_s: u64,
    pub(crate) response: &'static str,
    pub(crate) gone: &'static str,
    pub(crate) unresolved: &'static str,
    pub(crate) on_failed: &'static str,
    pub(crate) late_max: u64,
    pub(crate) idle: bool,
    pub(crate) accepted: bool,
    pub(crate) receipts: bool,
    pub(crate) at_commit: bool,
    pub(crate) retention_s: Option<u64>,
    /// The route has no effects (`effects: none`).
    pub(crate) none: bool,
    /// The same request under a new id is refused (`detect_new_ids: block`).
    pub(crate) block: bool,
    /// What stays unclear after the last round is undone.
    pub(crate) undoes: bool,
    /// Addresses of the tool.
    pub(crate) addresses: u64,
    /// All of them know what any was sent, and the route says so.
    pub(crate) shared: bool,
    /// When all are out, all are used.
    pub(crate) all_used: bool,
}

/// One caller.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The id it sends; none: the gateway makes one for each request.
    pub(crate) id: Option<String>,
    /// Which operation this is, and which of those who want it done.
    pub(crate) of: (u64, u64),
    /// Its idempotency key, which all who want the operation done share.
    pub(crate) key: Option<String>,
    /// What it wants done: the body of its requests.
    pub(crate) wants: String,
    pub(crate) begins: u64,
    pub(crate) tries: u64,
    pub(crate) patience: u64,
    /// It goes on after a definite answer.
    pub(crate) insists: bool,
    /// How long it wants to wait before a promise is enough.
    pub(crate) prefer: Prefer,
}

/// How one life of the gateway ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EndPlan {
    /// Killed at this time after its start.
    KillAt(u64),
    /// Killed at its n-th touch of the world, before or after it took effect.
    KillAtTouch { n: u64, after: bool },
    /// Told to drain at this time, killed a second later.
    Drain(u64),
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let d = &mut dice;
        let quiet = d.percent(5);
        let share = |d: &mut Dice, of: &[u64]| if quiet { 0 } else { d.pick(of) };
        let honours = d.percent(50);
        let receipts = Self::receipts(d, honours, quiet);
        let net = NetPlan {
            slow: !quiet && d.percent(20),
            loses: share(d, &[0, 0, 10, 25]),
            stalls: share(d, &[0, 0, 15]),
            resets: share(d, &[0, 5, 15]),
            cuts: share(d, &[0, 5, 10]),
            delays: share(d, &[0, 20, 40]),
            doubles: if honours { share(d, &[0, 0, 20]) } else { 0 },
            refuses: share(d, &[0, 0, 5, 40]),
            down_until: share(d, &[0, 0, 0, 0, 0, 6_000, 20_000]),
            dead: None,
        };
        let tool = ToolPlan {
            honours,
            says_conflict: honours && d.percent(40),
            records_refusals: d.percent(60),
            receipts,
            lag_ms: share(d, &[0, LAG_MS]),
            retention_ms: d.percent(15).then_some(25_000),
            promises: receipts != Receipts::None && d.percent(10),
            forgets: 0,
            limits: share(d, &[0, 0, 0, 30]),
            refuses: d.pick(&[0, 10, 25]),
            breaks_before: share(d, &[0, 10, 25]),
            breaks_after: share(d, &[0, 15, 30]),
            fails: d.pick(&[0, 0, 15]),
            slow: share(d, &[0, 15, 40]),
            mute: share(d, &[0, 5, 20]),
            bad_receipt: share(d, &[0, 0, 15, 40]),
        };
        let disk = DiskPlan {
            commit_ms: d.pick(&[0, 0, 5, 40]),
            hangs: share(d, &[0, 0, 0, 3, 10]),
            fails: share(d, &[0, 0, 0, 5, 15]),
        };
        let rules = Self::rules(d, &tool);
        let mut callers = Self::callers(d, quiet);
        // Dice of their own: the kept worlds stay as they were found.
        let mut wishes = Dice::new(seed ^ 0x7240);
        if wishes.percent(70) {
            for caller in &mut callers {
                caller.prefer = Self::prefer(&mut wishes);
            }
        }
        let plan = Self {
            seed,
            quiet,
            rules,
            callers,
            ends: Self::ends(d, quiet),
            real_worker: d.percent(15),
            step: Self::step(d, quiet, &tool),
            tool,
            net,
            disk,
            twin: None,
            handover: None,
            orders: false,
            files: Vec::new(),
            jobs: false,
        };
        plan.with_all(seed)
    }

    /// Sequences of their own, so that what was drawn before stays as it was.
    fn with_all(self, seed: u64) -> Self {
        let plan = self.with_more(&mut Dice::new(seed ^ MORE));
        let plan = plan.with_handover(&mut Dice::new(seed ^ HANDOVER));
        let mut plan = plan.with_addresses(&mut Dice::new(seed ^ ADDRESSES));
        plan.files = File::drawn(seed, &plan.rules, &plan.callers);
        let mut memory = Dice::new(seed ^ FORGETS);
        if !plan.quiet && memory.percent(15) {
            plan.tool.forgets = memory.pick(&[30, 60, 100]);
        }
        // Where there are two gateways, whose job it is to go on is not settled yet.
        let alone = plan.twin.is_none() && plan.handover.is_none() && !plan.rules.none;
        plan.jobs = alone && Dice::new(seed ^ JOBS).percent(25);
        plan
    }

    /// A tool that forgets and a clock that jumps are too much at once: nobody could tell.
    fn step(d: &mut Dice, quiet: bool, tool: &ToolPlan) -> Option<(u64, i64)> {
        (!quiet && tool.retention_ms.is_none() && d.percent(15)).then(|| {
            let by = [-3_600_000, -60_000, -700, 700, 60_000, 3_600_000];
            (d.within(1, 40_000), d.pick(&by))
        })
    }

    fn with_handover(mut self, d: &mut Dice) -> Self {
        let alone = self.twin.is_none() && !self.quiet;
        self.handover = (alone && d.percent(15)).then(|| d.within(1, 8_000));
        self
    }

    /// Keys, new ids, a second gateway, routes without effects.
    fn with_more(mut self, d: &mut Dice) -> Self {
        if d.percent(5) {
            self.rules.none = true;
            self.rules.accepted = false;
            self.tool.promises = false;
            // Without a record nobody joins anybody: each caller has ids of its own.
            for script in &mut self.callers {
                let (of, racer) = script.of;
                script.id = Some(format!("call-{of}-{racer}"));
            }
            return self;
        }
        self.rules.block = d.percent(30);
        if !self.quiet && d.percent(10) {
            self.twin = Some(d.within(1, 8_000));
            // Leases are in wall time; with a clock that jumps nobody could tell who is alive.
            self.step = None;
        }
        let keyed = [0, 1, 2].map(|_| d.percent(25));
        for script in &mut self.callers {
            let (of, racer) = script.of;
            if keyed[usize::try_from(of).expect("three at most")] {
                script.key = Some(format!("key-{of}"));
                let mints = d.percent(30);
                script.id = (!mints).then(|| format!("call-{of}-{racer}"));
                script.tries = d.pick(&[1, 2, 4]);
            }
        }
        self.rules.undoes = self.rules.receipts && d.percent(35);
        self.orders = d.percent(25);
        self
    }

    fn receipts(d: &mut Dice, honours: bool, quiet: bool) -> Receipts {
        use Receipts::{Arrival, Commit, Lying, NeverKnows, None};
        let mut of = vec![Arrival; 6];
        of.extend([Commit, Commit, None]);
        if !quiet {
            of.push(NeverKnows);
        }
        if honours && !quiet {
            of.push(Lying);
        }
        d.pick(&of)
    }

    fn rules(d: &mut Dice, tool: &ToolPlan) -> Rules {
        let dedupes = tool.honours && d.percent(40);
        let never = tool.receipts == Receipts::NeverKnows;
        Rules {
            retries: d.pick(&[0, 1, 3, 3]),
            // Shorter than a request is under way, and longer.
            base_ms: d.pick(&[50, 500]),
            resend_on: if dedupes {
                "[NOT_FOUND, UNKNOWN]"
            } else {
                d.pick(&["[NOT_FOUND]", "[NOT_FOUND]", "[NOT_FOUND]", "[]"])
            },
            resend: d.percent(60),
            // Only a proof keeps an endpoint that knows nothing from being believed.
            believe: if never {
                "proven"
            } else {
                d.pick(&["proven", "always"])
            },
            late_s: if tool.receipts == Receipts::Commit {
                5
            } else {
                d.pick(&[3, 12])
            },
            response: d.pick(&["auto", "auto", "collect", "stream"]),
            gone: d.pick(&["finish", "finish", "cancel"]),
            unresolved: d.pick(&["problem", "upstream"]),
            on_failed: d.pick(&["drop", "drop", "keep"]),
            late_max: d.pick(&[1, 64]),
            idle: d.percent(70),
            accepted: tool.promises,
            receipts: tool.receipts != Receipts::None,
            at_commit: tool.receipts == Receipts::Commit,
            retention_s: tool.retention_ms.map(|ms| ms / 1_000),
            none: false,
            block: false,
            undoes: false,
            addresses: 1,
            shared: false,
            all_used: true,
        }
    }

    fn callers(d: &mut Dice, quiet: bool) -> Vec<Script> {
        let mut callers = Vec::new();
        for n in 0..d.pick(&[1, 1, 2, 3]) {
            let mints = d.percent(15);
            let racers = if mints { 1 } else { d.pick(&[1, 1, 1, 2, 3]) };
            for racer in 0..racers {
                // Somebody else's request under an id that is taken.
                let other = racer > 0 && d.percent(20);
                callers.push(Script {
                    of: (n, racer),
                    key: None,
                    id: (!mints).then(|| format!("call-{n}")),
                    wants: format!("{{\"want\":\"{n}{}\"}}", if other { "-other" } else { "" }),
                    begins: d.within(0, if quiet { 100 } else { 3_000 }),
                    tries: if mints {
                        d.pick(&[1, 2])
                    } else {
                        d.pick(&[1, 1, 2, 4, 8])
                    },
                    patience: if quiet {
                        60_000
                    } else {
                        d.pick(&[700, 5_000, 20_000, 60_000])
                    },
                    insists: d.percent(30),
                    prefer: Prefer::default(),
                });
            }
        }
        callers
    }

    fn prefer(d: &mut Dice) -> Prefer {
        let wait = d.pick(&[None, None, None, Some(0), Some(1), Some(6)]);
        Prefer {
            respond_async: d.percent(25),
            wait: wait.map(Duration::from_secs),
        }
    }

    fn ends(d: &mut Dice, quiet: bool) -> Vec<EndPlan> {
        if quiet {
            return Vec::new();
        }
        let many = d.pick(&[0, 0, 0, 1, 1, 2, 4]);
        (0..many)
            .map(|_| match d.below(5) {
                0 => EndPlan::KillAt(d.within(1, 25_000)),
                1 => EndPlan::KillAt(d.within(1, 4_000)),
                2 => EndPlan::Drain(d.within(1, 8_000)),
                _ => EndPlan::KillAtTouch {
                    n: d.within(1, 60),
                    after: d.percent(50),
                },
            })
            .collect()
    }

    /// Whether nothing arrives after a believed NOT_FOUND, and a NOT_FOUND is true.
    pub(crate) fn is_strict(&self) -> bool {
        !self.net.slow && self.tool.receipts != Receipts::Lying
    }
}
