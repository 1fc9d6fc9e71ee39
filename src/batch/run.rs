//! One batch being worked off: items are claimed in chunks, run side by side, and their ends
//! written in groups.
//!
//! Claiming, running and writing go on beside each other, each at most once, so that a slow disk
//! does not idle the workers and a slow tool does not hold up a record. Everything an owner holds
//! is leased: whoever dies leaves items that are claimed again under the same call ids.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::intake::Going;
use super::item::{self, Item};
use crate::call::id::ClientName;
use crate::call::time::Mono;
use crate::flow::{Errand, Flow};
use crate::ledger::batch::{BatchId, BatchView, ItemDue, ItemEnd};
use crate::ledger::{LedgerError, Owner, Pending};
use crate::upstream::Core;

/// Items of one claim. A claim is one record of the ledger's writer, which calls wait for too.
const CHUNK: usize = 50;

/// How long a lease holds without a heartbeat, and how often it is extended.
pub(super) const LEASE: Duration = Duration::from_secs(60);
const BEAT: Duration = Duration::from_secs(20);

/// How long a batch stays away from a ledger that fails: doubled up to the longest.
const AWAY_FIRST: Duration = Duration::from_millis(250);
const AWAY_MAX: Duration = Duration::from_secs(15);

/// A batch that is being worked off.
pub(super) struct Run {
    flow: Arc<Flow>,
    core: Core,
    /// The route's name: each item takes the one that is configured when it begins.
    route: Arc<str>,
    client: ClientName,
    batch: BatchId,
    name: Arc<str>,
    /// This run: what a run that ends in a panic held is claimed again once its lease ran out.
    owner: Owner,
    workers: usize,
    /// Cancelled when nothing new is to be begun.
    stop: CancellationToken,
    /// How many run, for whoever looks.
    under_way: Arc<AtomicUsize>,
    ready: VecDeque<ItemDue>,
    running: JoinSet<(u32, Option<ItemEnd>)>,
    claiming: Option<Pending<Vec<ItemDue>>>,
    /// Ended and not yet on record.
    ended: Vec<ItemEnd>,
    /// Held and not begun, or not got anywhere with.
    returned: Vec<u32>,
    writing: Option<Writing>,
    /// No item was waiting at the last claim.
    exhausted: bool,
    /// A rate of the route is used up: nothing is begun before this.
    held: Option<Mono>,
    /// The ledger failed: no claim and no record before this.
    away: Option<(Mono, Duration)>,
    beaten: Mono,
}

/// A record on its way, with what it says: done again when it fails.
struct Writing {
    pending: Pending<u64>,
    ended: Vec<ItemEnd>,
    returned: Vec<u32>,
}

/// What happened next.
enum Happened {
    Claimed(Result<Vec<ItemDue>, LedgerError>),
    Ran(u32, Option<ItemEnd>),
    Wrote(Result<u64, LedgerError>),
    /// A task was lost to a panic; its item is claimed again once its lease has run out.
    Lost,
    /// Time to look again.
    Woke,
}

impl Run {
    pub(super) fn new(
        flow: &Arc<Flow>,
        core: &Core,
        batch: &BatchView,
        (n, going): (u64, Going),
    ) -> Self {
        Self {
            owner: Owner::new(&format!("{}/{n}", flow.owner)),
            flow: Arc::clone(flow),
            core: core.clone(),
            route: Arc::clone(&batch.route),
            client: batch.client.clone(),
            batch: batch.id,
            name: Arc::clone(&batch.name),
            workers: usize::try_from(batch.workers).unwrap_or(1).max(1),
            stop: going.stop,
            under_way: going.calls,
            ready: VecDeque::new(),
            running: JoinSet::new(),
            claiming: None,
            ended: Vec::new(),
            returned: Vec::new(),
            writing: None,
            exhausted: false,
            held: None,
            away: None,
            beaten: core.clock.mono(),
        }
    }

    /// Works until nothing waits any more, or until it is told to stop; returns when what it had
    /// begun has ended and is on record.
    pub(super) async fn work(mut self) {
        tracing::debug!(batch = &*self.name, "a batch is worked off");
        loop {
            self.begin();
            self.under_way.store(self.running.len(), Ordering::Relaxed);
            self.claim();
            self.write();
            self.beat();
            if self.is_over() {
                return;
            }
            let happened = self.next().await;
            self.take(happened);
        }
    }

    fn now(&self) -> Mono {
        self.core.clock.mono()
    }

    fn is_held(&self) -> bool {
        self.held.is_some_and(|until| self.now() < until)
    }

    fn is_away(&self) -> bool {
        self.away.is_some_and(|(until, _)| self.now() < until)
    }

    /// Begins what is ready, as far as there is room.
    fn begin(&mut self) {
        if self.stop.is_cancelled() {
            let lines = self.ready.drain(..).map(|item| item.line);
            self.returned.extend(lines);
            return;
        }
        while self.running.len() < self.workers && !self.is_held() {
            let Some(due) = self.ready.pop_front() else {
                return;
            };
            let Some(route) = self.flow.routes.named(&self.route) else {
                // A reload has taken it away: the batch waits for it.
                self.returned.push(due.line);
                self.stop.cancel();
                return self.begin();
            };
            let errand = Errand {
                route,
                client: self.flow.clients.called(self.client.as_str()),
                call_id: due.call.call_id.clone(),
                source: due.call.source,
                request: due.call.request.clone(),
                seen_at: due.seen_at,
            };
            if let Err(held) = item::admit(&self.flow, &errand) {
                self.held = Some(self.now().after(held));
                self.ready.push_front(due);
                return;
            }
            let item = Item {
                flow: Arc::clone(&self.flow),
                core: self.core.clone(),
                line: due.line,
                errand,
                stop: self.stop.clone(),
            };
            self.running
                .spawn(async move { (item.line, item.run().await) });
        }
    }

    /// Claims ahead, so that no worker waits for the disk.
    fn claim(&mut self) {
        let enough = self.ready.len() >= self.workers.min(CHUNK);
        let idle = self.claiming.is_none() && !enough && !self.exhausted && !self.is_away();
        if !idle || self.stop.is_cancelled() {
            return;
        }
        let until = self.core.clock.wall().after(LEASE);
        let owner = self.owner.clone();
        let ledger = &self.flow.ledger;
        self.claiming = Some(ledger.claim_items(self.batch, owner, until, CHUNK));
    }

    /// Hands what has gathered to the ledger, one record at a time.
    fn write(&mut self) {
        if self.writing.is_some() || self.is_away() {
            return;
        }
        let (owner, now) = (self.owner.clone(), self.core.clock.wall());
        let ledger = &self.flow.ledger;
        let writing = if !self.ended.is_empty() {
            let ended = std::mem::take(&mut self.ended);
            Writing {
                pending: ledger.end_items(self.batch, owner, now, ended.clone()),
                ended,
                returned: Vec::new(),
            }
        } else if !self.returned.is_empty() {
            let returned = std::mem::take(&mut self.returned);
            Writing {
                pending: ledger.return_items(self.batch, owner, now, returned.clone()),
                ended: Vec::new(),
                returned,
            }
        } else {
            return;
        };
        self.writing = Some(writing);
    }

    /// Extends the leases now and then; a beat that is lost is made up for by the next one.
    fn beat(&mut self) {
        if self.now() < self.beaten.after(BEAT) {
            return;
        }
        self.beaten = self.now();
        let until = self.core.clock.wall().after(LEASE);
        let owner = self.owner.clone();
        let beaten = self.flow.ledger.extend_items(self.batch, owner, until);
        let name = Arc::clone(&self.name);
        drop(self.core.spawn(async move {
            if let Err(error) = beaten.await {
                tracing::warn!(batch = &*name, %error, "the leases of a batch were not extended");
            }
        }));
    }

    fn is_over(&self) -> bool {
        let busy = !self.running.is_empty()
            || !self.ready.is_empty()
            || !self.ended.is_empty()
            || !self.returned.is_empty()
            || self.writing.is_some()
            || self.claiming.is_some();
        !busy && (self.exhausted || self.stop.is_cancelled())
    }

    async fn next(&mut self) -> Happened {
        let stopped = self.stop.is_cancelled();
        let away = self.away.map(|(until, _)| until).filter(|_| self.is_away());
        let beat = self.beaten.after(BEAT);
        let held = self.held.filter(|_| self.is_held());
        let wake = away.into_iter().chain(held).fold(beat, Mono::min);
        tokio::select! {
            claimed = answer(self.claiming.as_mut()) => {
                self.claiming = None;
                Happened::Claimed(claimed)
            }
            wrote = answer(self.writing.as_mut().map(|writing| &mut writing.pending)) => {
                Happened::Wrote(wrote)
            }
            Some(ran) = self.running.join_next() => match ran {
                Ok((line, end)) => Happened::Ran(line, end),
                Err(_panic) => Happened::Lost,
            },
            () = self.stop.cancelled(), if !stopped => Happened::Woke,
            () = self.core.clock.sleep_until(wake) => Happened::Woke,
        }
    }

    fn take(&mut self, happened: Happened) {
        match happened {
            Happened::Claimed(Ok(items)) => {
                self.away = None;
                self.exhausted = items.is_empty();
                self.ready.extend(items);
            }
            Happened::Claimed(Err(error)) => self.failed(&error),
            Happened::Ran(_, Some(end)) => self.ended.push(end),
            Happened::Ran(line, None) => self.returned.push(line),
            Happened::Wrote(Ok(_)) => {
                self.away = None;
                self.writing = None;
            }
            Happened::Wrote(Err(error)) => {
                if let Some(writing) = self.writing.take() {
                    self.ended.extend(writing.ended);
                    self.returned.extend(writing.returned);
                }
                self.failed(&error);
            }
            Happened::Lost => {
                tracing::error!(
                    batch = &*self.name,
                    "an item's run panicked; it is run again"
                );
            }
            Happened::Woke => {}
        }
    }

    /// One line each time, and the times grow apart.
    fn failed(&mut self, error: &LedgerError) {
        let before = self.away.map(|(_, wait)| wait);
        let wait = before.map_or(AWAY_FIRST, |wait| wait.saturating_mul(2).min(AWAY_MAX));
        self.away = Some((self.now().after(wait), wait));
        tracing::warn!(
            batch = &*self.name,
            error = error as &dyn std::error::Error,
            again_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            "the ledger did not take a record of a batch; it waits"
        );
    }
}

/// The answer to what was handed to the ledger; never, where nothing was.
async fn answer<T>(asked: Option<&mut Pending<T>>) -> Result<T, LedgerError> {
    match asked {
        Some(asked) => asked.await,
        None => pending().await,
    }
}
