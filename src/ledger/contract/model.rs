//! The two ledgers against each other: whatever is asked of them, they tell the same.
//!
//! The suite checks promises one by one; this walks random schedules in which claims go stale,
//! clocks step back and ids live again. The ledger in memory is the model: short enough to read.

use proptest::prelude::*;

use super::*;
use crate::ledger::memory::MemoryLedger;
use crate::ledger::sqlite::{Options, SqliteLedger, Sync};
use crate::ledger::story::Story;
use crate::ledger::{Entry, OwnerTest, RowId, StoredUndo, Taker, Watch};

#[derive(Clone, Debug)]
enum Op {
    Begin {
        id: u8,
        client: u8,
        key: Option<u8>,
        print: u8,
        route: u8,
        bits: u16,
    },
    Send {
        claim: usize,
        n: u32,
    },
    Park {
        claim: usize,
        place: u8,
    },
    Round {
        claim: usize,
        kind: u8,
    },
    Lend {
        claim: usize,
        operator: bool,
    },
    Reversal {
        claim: usize,
        kind: u8,
    },
    Fact {
        claim: usize,
        kind: u8,
    },
    Extend {
        claim: usize,
    },
    Note {
        claim: usize,
    },
    Due {
        owner: u8,
        limit: usize,
    },
    Recover {
        owner: u8,
        all: bool,
    },
    Purge {
        batch: usize,
    },
    Pass {
        secs: i64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let claim = || 0..12_usize;
    prop_oneof![
        4 => (0..3_u8, 0..2_u8, prop::option::of(0..2_u8), 0..2_u8, 0..2_u8, any::<u16>())
            .prop_map(|(id, client, key, print, route, bits)| Op::Begin {
                id, client, key, print, route, bits
            }),
        1 => (claim(), 1..4_u32).prop_map(|(claim, n)| Op::Send { claim, n }),
        2 => (claim(), 0..3_u8).prop_map(|(claim, place)| Op::Park { claim, place }),
        2 => (claim(), 0..3_u8).prop_map(|(claim, kind)| Op::Round { claim, kind }),
        2 => (claim(), any::<bool>())
            .prop_map(|(claim, operator)| Op::Lend { claim, operator }),
        3 => (claim(), 0..5_u8).prop_map(|(claim, kind)| Op::Reversal { claim, kind }),
        2 => (claim(), 0..6_u8).prop_map(|(claim, kind)| Op::Fact { claim, kind }),
        1 => claim().prop_map(|claim| Op::Extend { claim }),
        1 => claim().prop_map(|claim| Op::Note { claim }),
        2 => (0..2_u8, 0..3_usize).prop_map(|(owner, limit)| Op::Due { owner, limit }),
        1 => (0..2_u8, any::<bool>()).prop_map(|(owner, all)| Op::Recover { owner, all }),
        1 => (1..3_usize).prop_map(|batch| Op::Purge { batch }),
        2 => prop_oneof![-40..40_i64, Just(86_400), Just(31 * 86_400)]
            .prop_map(|secs| Op::Pass { secs }),
    ]
}

/// One ledger on its way through a schedule.
struct Walk {
    world: World,
    now: Wall,
    claims: Vec<Claim>,
}

impl Walk {
    fn claim(&self, n: usize) -> Claim {
        let nowhere = Claim {
            row: RowId(0),
            life: 1,
            fence: 1,
        };
        self.claims
            .get(self.claims.len().wrapping_sub(n + 1))
            .copied()
            .unwrap_or(nowhere)
    }

    /// Does one thing and tells what the ledger said.
    fn step(&mut self, op: &Op) -> String {
        let now = self.now;
        let ledger = Arc::clone(&self.world.ledger);
        match op {
            Op::Begin { .. } => self.begin(op),
            Op::Send { claim, n } => {
                let lease_until = now.after(LEASE);
                self.append(
                    *claim,
                    Intention::Send {
                        n: *n,
                        cause: None,
                        moved: None,
                        lease_until,
                    },
                )
            }
            Op::Park { claim, place } => {
                let kept = Some(reply(503));
                let how = Park {
                    kept,
                    ..park(self.place(*place))
                };
                self.append(*claim, Intention::Park(how))
            }
            Op::Round { claim, kind } => self.append(*claim, self.end_of_round(*kind)),
            Op::Lend { claim, operator } => self.lend(*claim, *operator),
            Op::Reversal { claim, kind } => self.append(*claim, self.reversal(*kind)),
            Op::Fact { claim, kind } => {
                format!(
                    "{:?}",
                    self.world.fact(self.claim(*claim), now, news(*kind))
                )
            }
            Op::Extend { claim } => {
                format!(
                    "{:?}",
                    ledger.extend(self.claim(*claim), now.after(LEASE)).wait()
                )
            }
            Op::Note { claim } => self.note(*claim),
            Op::Due { owner, limit } => self.due(*owner, *limit),
            Op::Recover { owner: who, all } => {
                let test = if *all {
                    OwnerTest::AllOthers
                } else {
                    OwnerTest::LeaseRanOut
                };
                let who = owner(["one", "two"][usize::from(*who)]);
                format!("{:?}", ledger.recover(who, now, test).wait())
            }
            Op::Purge { batch } => {
                // How often a row is looked at is the ledger's own business; what goes is not.
                while ledger.purge(now, *batch).wait().unwrap().more {}
                String::new()
            }
            Op::Pass { secs } => {
                self.now = Wall(now.0 + secs * 1_000);
                String::new()
            }
        }
    }

    fn begin(&mut self, op: &Op) -> String {
        let Op::Begin {
            id: id_of,
            client,
            key,
            print,
            route,
            bits,
        } = op
        else {
            unreachable!("only asked to begin")
        };
        let one_of = |bit: u16, names: [&'static str; 2]| names[usize::from(bits & bit != 0)];
        let former = |bit: u16, name: &'static str| {
            let names = [name.into()];
            names[..usize::from(bits & bit != 0)].to_vec()
        };
        let client = ClientName::new(["a", "b"][usize::from(*client)]);
        let scope = KeyScope {
            name: one_of(32, ["orders", "shared"]).into(),
            formerly: former(64, "returns").into(),
        };
        let begun = self.world.begin(NewCall {
            client: client.with_former(&former(128, "a")),
            scope: scope.into(),
            wary: bits & 256 != 0,
            idempotency_key: key.map(|key| format!("k{key}").into()),
            fingerprint: Fingerprint([*print; 32]),
            route: ["orders", "returns"][usize::from(*route)].into(),
            owner: owner(one_of(1, ["one", "two"])),
            first_send: bits & 2 == 0,
            promised: bits & 4 == 0,
            exclusive_id: bits & 8 == 0,
            upstream: one_of(16, ["http://a", "http://b"]).into(),
            reverses: (bits & 0xe0 == 0xe0).then(|| id(&format!("c{}", (id_of + 1) % 3))),
            now: self.now,
            lease_until: self.now.after(LEASE),
            ..call(&format!("c{id_of}"))
        });
        match begun {
            Begun::Claimed(claim) => {
                self.claims.push(claim);
                format!("{claim:?}")
            }
            Begun::Known(known) => {
                format!("id {} {}", known.same_request, told((*known.call).clone()))
            }
            Begun::KeyTaken(known) => {
                format!("key {} {}", known.same_request, told((*known.call).clone()))
            }
            Begun::Foreign => "foreign".to_owned(),
            Begun::Undone { sends } => format!("undone {sends}"),
            Begun::Alike(known) => format!("alike {}", told((*known.call).clone())),
        }
    }

    fn note(&self, claim: usize) -> String {
        let Claim { row, life, .. } = self.claim(claim);
        let (why, wait) = ("backoff".into(), Duration::from_millis(5));
        if row.0 > 0 {
            let entry = Entry::Waited {
                at: self.now,
                why,
                wait,
            };
            self.world.ledger.note(row, life, vec![entry]);
        }
        String::new()
    }

    fn due(&mut self, owner: u8, limit: usize) -> String {
        let due = self
            .world
            .due(["one", "two"][usize::from(owner)], self.now, limit);
        self.claims.extend(due.iter().map(|due| due.claim));
        due.into_iter()
            .map(|due| format!("{:?} {:?} {}", due.claim, due.undo, told(due.call)))
            .collect()
    }

    fn lend(&mut self, claim: usize, operator: bool) -> String {
        let Claim { row, life, .. } = self.claim(claim);
        let taker = if operator {
            Taker::Operator
        } else {
            Taker::Caller
        };
        let (now, who) = (self.now, (taker, owner("door")));
        let ledger = Arc::clone(&self.world.ledger);
        let lent = ledger
            .claim_letter(row, life, who, now, now.after(LEASE))
            .wait();
        let lent = lent.unwrap();
        self.claims.extend(lent.iter().map(|due| due.claim));
        lent.map_or_else(String::new, |due| {
            format!("{:?} {:?} {}", due.claim, due.undo, told(due.call))
        })
    }

    fn reversal(&self, n: u8) -> Intention {
        let reverse = |n| Intention::Reverse {
            n,
            request: StoredUndo {
                method: Method::POST,
                target: format!("/undo/{n}").into(),
                body: Bytes::new(),
            },
            lease_until: self.now.after(LEASE),
        };
        match n {
            0 | 1 => reverse(1),
            2 => reverse(2),
            3 => Intention::ReverseAgain {
                due: self.now.after(Duration::from_secs(7)),
                last_error: "reversal".into(),
            },
            _ => Intention::Reversed,
        }
    }

    const fn place(&self, n: u8) -> Place {
        match n {
            0 => Place::Queued {
                due: Wall(self.now.0 + 5_000),
            },
            1 => Place::Manual,
            _ => Place::NeverSent,
        }
    }

    fn end_of_round(&self, n: u8) -> Intention {
        let (due, last_error) = (self.now.after(Duration::from_secs(9)), "round".into());
        match n {
            0 => Intention::NextRound {
                round: 1,
                due,
                reached: true,
                last_error,
            },
            1 => Intention::Manual {
                reason: "used up".into(),
                round: 2,
                reached: true,
                last_error,
            },
            _ => Intention::ReleaseLease { reached: true },
        }
    }

    fn append(&self, claim: usize, intention: Intention) -> String {
        format!(
            "{:?}",
            self.world.append(self.claim(claim), self.now, intention)
        )
    }

    /// The whole stories, and what people would be told of.
    fn stories(&self) -> String {
        let ledger = &self.world.ledger;
        let mut all = String::new();
        for name in ["c0", "c1", "c2", "k0", "k1"] {
            let stories = ledger.stories(None, name.into()).wait().unwrap();
            let tell = |mut story: Story| {
                let past = &mut story.past;
                past.iter_mut().for_each(|life| sort(&mut life.history));
                let (past, kin, aliases) = (&story.past, &story.kin, &story.aliases);
                let call = told(story.call.clone());
                format!("{name} {call} {past:#?}{kin:#?}{aliases:#?}")
            };
            all += &in_order(stories.into_iter().map(tell));
        }
        let watch = |route: &str| Watch {
            route: route.into(),
            events: crate::call::alert::Event::ALL.to_vec(),
            repeat: Duration::from_secs(60),
        };
        let watches: Arc<[Watch]> = Arc::from(["orders", "returns"].map(watch));
        let more = ledger.fold_alerts(Arc::clone(&watches), self.now, 999);
        assert!(!more.wait().unwrap());
        let mut untold = ledger.untold(watches).wait().unwrap();
        // Which of many are named, and which of an instant come first, is the ledger's business.
        let notes = &mut untold.notes;
        notes.iter_mut().for_each(|note| note.examples.clear());
        notes.sort_by_key(|note| (Arc::clone(&note.route), format!("{:?}", note.event)));
        format!("{all}{untold:#?}")
    }

    /// Everything the ledger knows.
    fn everything(&self) -> String {
        // A reader sees what is committed: let the history of the last step be that.
        self.world.ledger.purge(Wall(0), 1).wait().unwrap();
        let mut all = String::new();
        for n in 0..3 {
            let found = self
                .world
                .ledger
                .view(None, id(&format!("c{n}")))
                .wait()
                .unwrap();
            all += &in_order(found.into_iter().map(told));
            all.push('\n');
        }
        let page = self
            .world
            .ledger
            .dead_letters(Filter::default(), None, 100)
            .wait()
            .unwrap();
        let mut tally: Vec<_> = self
            .world
            .ledger
            .tally()
            .wait()
            .unwrap()
            .iter()
            .map(|t| format!("{t:?}"))
            .collect();
        tally.sort();
        format!("{all}{:#?} {tally:#?}{}", page.items, self.stories())
    }
}

fn news(n: u8) -> News {
    match n {
        0 => answer(200),
        1 => answer(404),
        2 => unbinding(401),
        3 => unbinding(304),
        4 => receipt(Verdict::Success),
        _ => receipt(Verdict::Failed),
    }
}

/// Those of several clients in one order, each once: one may have an id by two of its names.
fn in_order(told: impl Iterator<Item = String>) -> String {
    let mut all: Vec<_> = told.collect();
    all.sort();
    all.dedup();
    all.concat()
}

/// A call as text. The order of history within one instant is the ledger's own business.
fn told(mut call: CallView) -> String {
    sort(&mut call.history);
    format!("{call:#?}")
}

fn sort(history: &mut [Entry]) {
    history.sort_by_key(|entry| (entry.at(), format!("{entry:?}")));
}

/// Equal, or the first lines that are not.
fn agree(model: &str, real: &str, at: &str) -> Result<(), TestCaseError> {
    for (line, (model, real)) in model.lines().zip(real.lines()).enumerate() {
        prop_assert_eq!(model, real, "{}, line {}", at, line);
    }
    prop_assert_eq!(model.lines().count(), real.lines().count(), "{}", at);
    Ok(())
}

/// Each schedule opens a file of its own, so a run walks a few.
fn few() -> ProptestConfig {
    ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn both_ledgers_tell_the_same_story(ops in prop::collection::vec(op(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("callgate.db");
        let options =
            Options { retention: RETENTION, sync: Sync::Normal, ..Options::new(&path, NOW) };
        let file = Arc::new(SqliteLedger::open(&options, Arc::new(())).unwrap());
        let walk = |ledger: Arc<dyn Ledger>| Walk {
            world: World { ledger, _folder: None },
            now: NOW,
            claims: Vec::new(),
        };
        let mut model = walk(Arc::new(MemoryLedger::new(NOW, RETENTION)));
        let mut real = walk(file);
        for (n, op) in ops.iter().enumerate() {
            agree(&model.step(op), &real.step(op), &format!("step {n}: {op:?}"))?;
        }
        agree(&model.everything(), &real.everything(), "in the end")?;
    }
}
