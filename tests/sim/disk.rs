//! The disk under the ledger: the memory ledger behind a queue that writes late, fails, and may or
//! may not have written what was waiting when the gateway died.
//!
//! Verbs take effect in the order they were handed over, as the trait promises, and an answer
//! comes only after the verb took effect.

mod desk;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callgate::call::alert;
use callgate::call::id::{CallId, ClientName};
use callgate::call::time::Wall;
use callgate::ledger::error::Cause;
use callgate::ledger::memory::MemoryLedger;
use callgate::ledger::{
    Begun, CallView, Claim, Cursor, Due, Entry, Fact, FactWritten, Filter, Health, Intention,
    KeyScope, Ledger, LedgerError, NewCall, Owner, OwnerTest, Page, Pending, Proof, ProofNote,
    Purged, Recovered, RowId, Story, Taker, Tally, Told, Untold, Watch, Written,
};

use parking_lot::Mutex;

use crate::world::{Event, State, World};

type Verb = Box<dyn FnOnce(&MemoryLedger, Fate) + Send>;

/// What waits to be written.
#[derive(Default)]
pub(crate) struct Disk {
    waiting: VecDeque<(u64, Fate, Verb)>,
    last: u64,
    /// The claims that were made for a caller's repeat, not for a round.
    pub(crate) repeats: Arc<Mutex<BTreeSet<(RowId, i64)>>>,
    /// Claims made for an operator.
    pub(crate) orders: Arc<Mutex<BTreeSet<(RowId, i64)>>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Written,
    Fails,
}

impl Disk {
    /// Whether nothing waits to be written.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The ledger of one gateway.
pub(crate) struct Book {
    world: World,
    inner: Arc<MemoryLedger>,
    life: u32,
    /// The story is wanted.
    told: bool,
    closed: AtomicBool,
}

impl State {
    /// Hands a verb to the disk.
    fn writes(&mut self, verb: Verb) {
        let plan = self.plan.disk.clone();
        let now = self.now();
        let fate = if now < 60_000 && self.dice.percent(plan.fails) {
            self.say(|| "disk  will fail".to_owned());
            Fate::Fails
        } else {
            Fate::Written
        };
        let hangs = now < 60_000 && self.dice.percent(plan.hangs);
        let takes = if hangs {
            self.dice.within(500, 4_000)
        } else if plan.commit_ms == 0 {
            0
        } else {
            self.dice.within(0, plan.commit_ms)
        };
        let when = self.disk.last.max(now + takes);
        self.disk.last = when;
        self.disk.waiting.push_back((when, fate, verb));
        if when == now {
            self.disk_writes();
        } else {
            self.at(when, Event::Written);
        }
    }

    pub(crate) fn disk_writes(&mut self) {
        let now = self.now();
        while self
            .disk
            .waiting
            .front()
            .is_some_and(|(when, ..)| *when <= now)
        {
            let (_, fate, verb) = self.disk.waiting.pop_front().expect("there is one");
            verb(&self.ledger, fate);
        }
    }

    /// Of what waited when the gateway died, the first few were written.
    pub(crate) fn disk_after_crash(&mut self) {
        let waiting = std::mem::take(&mut self.disk.waiting);
        let written = self.dice.below(waiting.len() as u64 + 1);
        for (n, (_, fate, verb)) in waiting.into_iter().enumerate() {
            if (n as u64) < written {
                verb(&self.ledger, fate);
            }
        }
        self.disk.last = 0;
    }
}

fn full() -> LedgerError {
    let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
    LedgerError::Full {
        source: Cause::from(full),
    }
}

impl Book {
    pub(crate) fn new(world: &World, life: u32) -> Arc<Self> {
        let state = world.lock();
        Arc::new(Self {
            world: world.clone(),
            inner: Arc::clone(&state.ledger),
            life,
            told: state.story.told,
            closed: AtomicBool::new(false),
        })
    }

    pub(crate) fn inner(&self) -> &MemoryLedger {
        &self.inner
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) -> Option<String> {
        self.told.then(what)
    }

    pub(crate) fn write<T: Send + 'static>(
        &self,
        what: Option<String>,
        verb: impl FnOnce(&MemoryLedger) -> Pending<T> + Send + 'static,
    ) -> Pending<T> {
        let mut state = self.world.lock();
        if self.closed.load(Ordering::Relaxed) {
            return Pending::ready(Err(LedgerError::Closed));
        }
        let (reply, pending) = Pending::later();
        if !state.touched(self.life) {
            state.keep.push(Box::new(reply));
            return pending;
        }
        state.say(|| format!("book  {}", what.unwrap_or_default()));
        let verb: Verb = Box::new(move |ledger, fate| {
            let answer = match fate {
                Fate::Written => verb(ledger).wait(),
                Fate::Fails => Err(full()),
            };
            reply.send(answer);
        });
        state.writes(verb);
        pending
    }
}

impl Ledger for Book {
    fn begin(&self, call: NewCall) -> Pending<Begun> {
        let id = call.call_id.clone();
        self.world.lock().begun(id.as_str());
        self.write(self.tell(|| format!("begin {id}")), |ledger| {
            ledger.begin(call)
        })
    }

    fn append(&self, claim: Claim, now: Wall, intention: Intention) -> Pending<Written> {
        let what = self.tell(|| format!("row {}/{} {intention:?}", claim.row, claim.fence));
        self.write(what, move |ledger| ledger.append(claim, now, intention))
    }

    fn fact(&self, fact: Fact) -> Pending<FactWritten> {
        let what = self.tell(|| format!("row {} fact {:?}", fact.row, fact.news.verdict()));
        self.write(what, |ledger| ledger.fact(fact))
    }

    fn recognise(&self, row: RowId, life: u32) -> Pending<()> {
        let what = self.tell(|| format!("row {row} is known to the tool"));
        self.write(what, move |ledger| ledger.recognise(row, life))
    }

    fn note(&self, row: RowId, life: u32, entries: Vec<Entry>) {
        let what = self.tell(|| format!("row {row} notes {entries:?}"));
        let noted = move |ledger: &MemoryLedger| {
            ledger.note(row, life, entries);
            Pending::ready(Ok(()))
        };
        drop(self.write(what, noted));
    }

    fn claim_due(
        &self,
        owner: Owner,
        now: Wall,
        lease_until: Wall,
        limit: usize,
    ) -> Pending<Vec<Due>> {
        self.write(self.tell(|| "claim due".to_owned()), move |ledger| {
            ledger.claim_due(owner, now, lease_until, limit)
        })
    }

    fn claim_letter(
        &self,
        row: RowId,
        life: u32,
        taker: (Taker, Owner),
        now: Wall,
        lease_until: Wall,
    ) -> Pending<Option<Due>> {
        let what = self.tell(|| format!("row {row} claim for {:?}", taker.0));
        let claims = match taker.0 {
            Taker::Caller => Arc::clone(&self.world.lock().disk.repeats),
            Taker::Operator => Arc::clone(&self.world.lock().disk.orders),
        };
        self.write(what, move |ledger| {
            let claimed = ledger
                .claim_letter(row, life, taker, now, lease_until)
                .wait();
            if let Ok(Some(due)) = &claimed {
                claims.lock().insert((due.claim.row, due.claim.fence));
            }
            Pending::ready(claimed)
        })
    }

    fn dossier(&self, row: RowId) -> Pending<Option<Due>> {
        self.inner.dossier(row)
    }

    fn extend(&self, claim: Claim, lease_until: Wall) -> Pending<Written> {
        self.write(
            self.tell(|| format!("row {}/{} extend", claim.row, claim.fence)),
            move |ledger| ledger.extend(claim, lease_until),
        )
    }

    fn recover(&self, owner: Owner, now: Wall, dead: OwnerTest) -> Pending<Recovered> {
        self.write(self.tell(|| "recover".to_owned()), move |ledger| {
            ledger.recover(owner, now, dead)
        })
    }

    fn view(&self, client: Option<ClientName>, call_id: CallId) -> Pending<Vec<CallView>> {
        self.inner.view(client, call_id)
    }

    fn knows(
        &self,
        client: ClientName,
        call_id: Option<CallId>,
        key: Option<(Arc<str>, Arc<KeyScope>)>,
    ) -> Pending<bool> {
        self.inner.knows(client, call_id, key)
    }

    fn dead_letters(&self, filter: Filter, from: Option<Cursor>, limit: usize) -> Pending<Page> {
        self.inner.dead_letters(filter, from, limit)
    }

    fn tally(&self) -> Pending<Vec<Tally>> {
        self.inner.tally()
    }

    fn remember_proof(&self, endpoint: Arc<str>, proof: Proof, now: Wall) -> Pending<()> {
        self.write(self.tell(|| format!("proof {proof:?}")), move |ledger| {
            ledger.remember_proof(endpoint, proof, now)
        })
    }

    fn stories(&self, client: Option<ClientName>, name: Arc<str>) -> Pending<Vec<Story>> {
        self.inner.stories(client, name)
    }

    fn untold(&self, watches: Arc<[Watch]>) -> Pending<Untold> {
        self.inner.untold(watches)
    }

    fn fold_alerts(&self, watches: Arc<[Watch]>, now: Wall, limit: usize) -> Pending<bool> {
        self.write(self.tell(|| "fold alerts".to_owned()), move |ledger| {
            ledger.fold_alerts(watches, now, limit)
        })
    }

    fn alert_told(
        &self,
        route: Arc<str>,
        event: alert::Event,
        told: Told,
        now: Wall,
    ) -> Pending<()> {
        self.write(
            self.tell(|| format!("alert told {told:?}")),
            move |ledger| ledger.alert_told(route, event, told, now),
        )
    }

    fn proofs(&self) -> Pending<Vec<ProofNote>> {
        self.inner.proofs()
    }

    fn purge(&self, now: Wall, batch: usize) -> Pending<Purged> {
        self.write(self.tell(|| "purge".to_owned()), move |ledger| {
            ledger.purge(now, batch)
        })
    }

    fn knows_since(&self) -> Wall {
        self.inner.knows_since()
    }

    fn health(&self) -> Health {
        self.inner.health()
    }

    /// Everything handed over before this is written before whatever another gateway hands over.
    fn close(&self) -> Pending<()> {
        let closed = self.write(self.tell(|| "close".to_owned()), |_| Pending::ready(Ok(())));
        self.closed.store(true, Ordering::Relaxed);
        closed
    }
}
