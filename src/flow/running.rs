//! Calls in flight: who waits for which call, so that a repeat joins it instead of being sent.
//!
//! One entry per call that is between its door and its answer; a repeat of the same request waits
//! for that answer and gets the same one. The map only saves the ledger a question: its unique
//! index decides, also over processes and restarts, and whoever finds nothing here asks there.
//! Waiting never turns into executing: when the first one ends without an answer that can be
//! shared, those who waited ask the ledger like newcomers. Calls are found by a hash of client and
//! call id that nobody outside can predict; the names themselves are compared on a hit, and a call
//! whose hash is taken by another one simply cannot be joined.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::alike::{Alikes, Stand};
use super::driven::Driven;
use super::pursue::Pursued;
use super::told::Told;
use crate::call::id::{CallId, ClientName, Fingerprint};
use crate::call::step::Event;

/// Every call in flight of one process.
#[derive(Debug, Default)]
pub struct Calls {
    open: DashMap<u128, Arc<Running>>,
    alikes: Arc<Alikes>,
    hash: [RandomState; 2],
    /// Dead letters that are being driven, by a round or for a repeat.
    pub(super) driven: Arc<Driven>,
    /// Ends whose record is on its way.
    pub(super) pursued: Pursued,
}

/// What a request asks for: the call it names, and what makes it the same request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) client: ClientName,
    pub(super) call_id: CallId,
    pub(super) fingerprint: Fingerprint,
    pub(super) key: Option<Arc<str>>,
}

/// One call in flight.
#[derive(Debug)]
pub(super) struct Running {
    asked: Asked,
    state: Mutex<State>,
    /// The phase has changed; those who joined look again.
    turned: Notify,
    /// The first one has come or the last one has gone; the call's driver looks again.
    attended: Notify,
    sends: AtomicU32,
    /// Its caller may leave: the call is on record and will be finished.
    promised: AtomicBool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// Callers who are there, the first one included.
    here: u32,
    /// Whether anybody ever joined: if not, nobody has to be told.
    joined: bool,
}

#[derive(Debug)]
enum Phase {
    /// The ledger was not heard yet: the call may be another request's, or settled.
    Claiming,
    /// The call is this request's.
    Claimed,
    /// It was told this; `None` when it was told in a stream, which cannot be shared.
    Told(Option<Box<Told>>),
    /// The first one ended without telling anything.
    Left,
}

/// The place of a request at its call.
pub(super) enum Entered {
    /// Nobody else is there: ask the ledger.
    First(Lead),
    /// Somebody was there before.
    Second(Seat),
}

/// The right to tell those who join. Dropped without a word, it sends them to the ledger.
#[derive(Debug)]
pub(super) struct Lead {
    calls: Arc<Calls>,
    running: Arc<Running>,
    hash: u128,
    /// Its place among the calls that ask for the same.
    stand: Option<Stand>,
    over: bool,
}

/// A joined caller's place; dropping it means that the caller has gone.
#[derive(Debug)]
pub(super) struct Seat(Arc<Running>);

/// What those who joined come to hear.
pub(super) enum Heard {
    /// The call was told this.
    Told(Told),
    /// The call was told in a stream.
    Streamed,
    /// The running call is another request's.
    Other,
    /// Nothing: ask the ledger.
    Nothing,
}

/// Whether anybody still waits for a call, as its driver hears it.
#[derive(Debug)]
pub(super) struct Attendance(Option<Attended>);

#[derive(Debug)]
struct Attended {
    running: Arc<Running>,
    /// Cancelled when the first caller has gone.
    first: CancellationToken,
    first_gone: bool,
    /// Whether a leaving changes anything (`on_client_gone`).
    heeded: bool,
    /// What the machine was told last.
    anyone: bool,
}

impl Calls {
    /// Takes a place at the call, the first one or one beside others.
    pub(super) fn enter(self: &Arc<Self>, asked: &Asked) -> Entered {
        let hash = self.hash((&asked.client, &asked.call_id));
        let running = match self.open.entry(hash) {
            Entry::Occupied(taken) if taken.get().is_of(&asked.client, &asked.call_id) => {
                return Entered::Second(Seat::beside(taken.get()));
            }
            Entry::Occupied(_) => Arc::new(Running::new(asked.clone())),
            Entry::Vacant(free) => {
                let running = Arc::new(Running::new(asked.clone()));
                free.insert(Arc::clone(&running));
                running
            }
        };
        Entered::First(Lead {
            calls: Arc::clone(self),
            running,
            hash,
            stand: None,
            over: false,
        })
    }

    /// A place beside others at a call that is named by somebody else's request.
    pub(super) fn beside(&self, client: &ClientName, call_id: &CallId) -> Option<Seat> {
        let found = self.open.get(&self.hash((client, call_id)))?;
        found.is_of(client, call_id).then(|| Seat::beside(&found))
    }

    /// A call in flight, for somebody who waits for its end and takes no part in it.
    pub(super) fn watched(&self, client: &ClientName, call_id: &CallId) -> Option<Arc<Running>> {
        let found = self.open.get(&self.hash((client, call_id)))?;
        found.is_of(client, call_id).then(|| {
            found.state.lock().joined = true;
            Arc::clone(&found)
        })
    }

    /// Has every pass over a dead letter end; returns when all have.
    pub(super) async fn leave_all(&self) {
        self.driven.leave_all().await;
    }

    /// How many calls are in flight.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    fn hash(&self, of: impl Hash) -> u128 {
        let [high, low] = [0, 1].map(|n: usize| self.hash[n].hash_one(&of));
        u128::from(high) << 64 | u128::from(low)
    }
}

impl Running {
    fn new(asked: Asked) -> Self {
        let state = State {
            phase: Phase::Claiming,
            here: 1,
            joined: false,
        };
        Self {
            asked,
            state: Mutex::new(state),
            turned: Notify::new(),
            attended: Notify::new(),
            sends: AtomicU32::new(0),
            promised: AtomicBool::new(false),
        }
    }

    /// Whether its caller was promised the call.
    pub(super) fn is_promised(&self) -> bool {
        self.promised.load(Ordering::Relaxed)
    }

    /// Whether there is nothing left to wait for.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Told(_) | Phase::Left)
    }

    /// The next turn of its phase.
    pub(super) fn turned(&self) -> tokio::sync::futures::Notified<'_> {
        self.turned.notified()
    }

    /// The call's id.
    pub(super) const fn call_id(&self) -> &CallId {
        &self.asked.call_id
    }

    /// The request that came first.
    pub(super) const fn asked(&self) -> &Asked {
        &self.asked
    }

    /// Sends so far.
    pub(super) fn sends(&self) -> u32 {
        self.sends.load(Ordering::Relaxed)
    }

    fn is_of(&self, client: &ClientName, call_id: &CallId) -> bool {
        self.asked.client == *client && self.asked.call_id == *call_id
    }

    fn is_same(&self, asked: &Asked) -> bool {
        let key = &asked.key;
        self.asked.fingerprint == asked.fingerprint && (key.is_none() || self.asked.key == *key)
    }

    fn leave(&self) {
        let mut state = self.state.lock();
        state.here = state.here.saturating_sub(1);
        let nobody = state.here == 0;
        drop(state);
        if nobody {
            self.attended.notify_one();
        }
    }

    /// Goes on to `phase`, when it makes a difference to anybody.
    fn turn(&self, phase: impl FnOnce() -> Phase) {
        let mut state = self.state.lock();
        if state.joined {
            state.phase = phase();
            drop(state);
            self.turned.notify_waiters();
        }
    }

    fn heard(&self, asked: &Asked) -> Option<Heard> {
        let state = self.state.lock();
        match &state.phase {
            Phase::Claiming => None,
            Phase::Claimed if self.is_same(asked) => None,
            Phase::Claimed => Some(Heard::Other),
            Phase::Told(_) | Phase::Left if !self.is_same(asked) => Some(Heard::Nothing),
            Phase::Left => Some(Heard::Nothing),
            Phase::Told(told) => Some(
                told.as_ref()
                    .and_then(|told| told.copy())
                    .map_or(Heard::Streamed, Heard::Told),
            ),
        }
    }
}

impl Lead {
    /// The call's caller is promised it. Said before [`claimed`](Self::claimed), so that those who
    /// join know.
    pub(super) fn promised(&self) -> Arc<Running> {
        self.running.promised.store(true, Ordering::Relaxed);
        Arc::clone(&self.running)
    }

    /// Stands among the calls of `route` that ask for the same, until this call is told. The one
    /// that stood there before; where `alone` is demanded and there is one, this one does not.
    pub(super) fn stand(&mut self, route: &str, alone: bool) -> Option<CallId> {
        let asked = &self.running.asked;
        let hash = self.calls.hash((&asked.client, route, asked.fingerprint));
        let (stand, before) = self.calls.alikes.stand(hash, &self.running, alone);
        self.stand = stand;
        before
    }

    /// The ledger has made the call this request's.
    pub(super) fn claimed(&self) {
        let mut state = self.running.state.lock();
        state.phase = Phase::Claimed;
        let joined = state.joined;
        drop(state);
        if joined {
            self.running.turned.notify_waiters();
        }
    }

    /// Who waits, for the call's driver; `first` is cancelled when the first caller has gone.
    pub(super) fn attendance(&self, first: CancellationToken, heeded: bool) -> Attendance {
        Attendance(Some(Attended {
            running: Arc::clone(&self.running),
            first,
            first_gone: false,
            heeded,
            anyone: true,
        }))
    }

    /// Tells those who joined what the first one is told.
    pub(super) fn tell(mut self, told: &Told) {
        self.remove();
        self.stand = None;
        self.running.turn(|| Phase::Told(told.copy().map(Box::new)));
        self.over = true;
    }

    /// Nobody joins any more; done first, so that everybody who did is counted.
    fn remove(&self) {
        let is_ours = |_: &u128, found: &Arc<Running>| Arc::ptr_eq(found, &self.running);
        self.calls.open.remove_if(&self.hash, is_ours);
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if !self.over {
            self.remove();
            self.running.turn(|| Phase::Left);
        }
    }
}

impl Seat {
    fn beside(running: &Arc<Running>) -> Self {
        let mut state = running.state.lock();
        state.joined = true;
        state.here += 1;
        let back = state.here == 1;
        drop(state);
        if back {
            running.attended.notify_one();
        }
        Self(Arc::clone(running))
    }

    /// The call.
    pub(super) fn call(&self) -> &Running {
        &self.0
    }

    /// Waits until the call is on record and its caller was promised it.
    pub(super) async fn promised(&self) {
        loop {
            let turned = self.0.turned.notified();
            let claimed = matches!(self.0.state.lock().phase, Phase::Claimed);
            if claimed && self.0.is_promised() {
                return;
            }
            turned.await;
        }
    }

    /// Waits until there is something to hear.
    pub(super) async fn heard(&self, asked: &Asked) -> Heard {
        loop {
            // Made before the look, so that no turn is missed between look and wait.
            let turned = self.0.turned.notified();
            if let Some(heard) = self.0.heard(asked) {
                return heard;
            }
            turned.await;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Attendance {
    /// Of a call that no caller waits for.
    pub(super) const fn nobody() -> Self {
        Self(None)
    }

    /// Notes the number of the send that begins, for those who cannot wait for its end.
    pub(super) fn sent(&self, n: u8) {
        if let Some(attended) = &self.0 {
            attended
                .running
                .sends
                .store(u32::from(n), Ordering::Relaxed);
        }
    }

    /// The next change; never resolves where nobody heeds it.
    pub(super) async fn change(&mut self) -> Event {
        let Some(attended) = self.0.as_mut().filter(|attended| attended.heeded) else {
            return std::future::pending().await;
        };
        loop {
            let anyone = attended.running.state.lock().here > 0;
            if anyone != attended.anyone {
                attended.anyone = anyone;
                return if anyone {
                    Event::ClientBack
                } else {
                    Event::ClientGone
                };
            }
            tokio::select! {
                () = attended.first.cancelled(), if !attended.first_gone => {
                    attended.first_gone = true;
                    attended.running.leave();
                }
                // A permit is kept while nobody listens, so no change is missed.
                () = attended.running.attended.notified() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
