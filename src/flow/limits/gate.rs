//! At most so many sends to one tool at once, and a fair, bounded queue in front.
//!
//! A place that comes free goes to the client that has the fewest of them, and among equals in
//! turn: a client with one call waits for one place, however many calls another one has waiting and
//! under way, and who asks for more than its share gets its share. When the queue is full, whoever
//! waits last of the client with the most waiting calls makes room for a client with fewer: a noisy
//! client fills the queue with its own calls only. Exact, because it protects the tool: one short
//! lock per send, and no state is shared with tools that have no bound.
//!
//! Deliberately absent: deadlines, which whoever waits brings along, and any word about a call.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::aimd::Aimd;
use crate::call::id::ClientName;
use crate::config::limits::{Adaptive, Concurrency};

/// The bound on sends to one tool.
#[derive(Debug)]
pub(in crate::flow) struct Gate(Mutex<State>);

/// A place among the sends; given back when this is dropped.
#[derive(Debug)]
pub(in crate::flow) struct Permit {
    gate: Arc<Gate>,
    client: ClientName,
    /// Whether the send it was for brought an answer; `None` while nobody knows.
    went_well: Option<bool>,
}

/// What became of the wish to send.
pub(in crate::flow) enum Entry {
    /// There was a place.
    Granted(Permit),
    /// A place in the queue.
    Queued(Waiting),
    /// The queue is full.
    Full,
}

/// A place in the queue; given up when this is dropped.
pub(in crate::flow) struct Waiting {
    gate: Arc<Gate>,
    client: ClientName,
    ticket: oneshot::Receiver<()>,
}

#[derive(Debug)]
struct State {
    conf: Concurrency,
    aimd: Aimd,
    in_flight: usize,
    /// The same, per client; never a zero.
    held: HashMap<ClientName, usize>,
    /// Tickets in `lines`.
    waiting: usize,
    /// Who waits, per client; never an empty line.
    lines: HashMap<ClientName, VecDeque<oneshot::Sender<()>>>,
    /// The clients in `lines`, in turn.
    turns: VecDeque<ClientName>,
}

impl Gate {
    pub(super) fn new(conf: Concurrency) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            conf,
            aimd: Aimd::new(conf.max),
            in_flight: 0,
            held: HashMap::new(),
            waiting: 0,
            lines: HashMap::new(),
            turns: VecDeque::new(),
        })))
    }

    /// Other numbers from now on; who is in flight or waits stays.
    pub(super) fn change(&self, conf: Concurrency) {
        let mut state = self.0.lock();
        if state.conf.max != conf.max {
            state.aimd = Aimd::new(conf.max);
        }
        state.conf = conf;
        state.serve();
    }

    /// A place now, a place in the queue, or neither.
    pub(in crate::flow) fn enter(self: &Arc<Self>, client: &ClientName) -> Entry {
        let mut state = self.0.lock();
        if state.waiting == 0 && state.in_flight < state.bound() {
            state.takes(client);
            return Entry::Granted(self.permit(client.clone()));
        }
        if state.waiting >= state.conf.queue && !state.make_room(client) {
            return Entry::Full;
        }
        let (give, ticket) = oneshot::channel();
        state.join(client, give);
        state.serve();
        drop(state);
        Entry::Queued(Waiting {
            gate: Arc::clone(self),
            client: client.clone(),
            ticket,
        })
    }

    /// Whether somebody who comes now would have to wait.
    pub(in crate::flow) fn is_busy(&self) -> bool {
        let state = self.0.lock();
        state.waiting > 0 || state.in_flight >= state.bound()
    }

    /// Whether `client`, coming now, would find neither a place nor one in the queue.
    pub(in crate::flow) fn is_full(&self, client: &ClientName) -> bool {
        let state = self.0.lock();
        let is_free = state.waiting == 0 && state.in_flight < state.bound();
        !is_free && state.waiting >= state.conf.queue && state.noisier(client).is_none()
    }

    /// Sends under way and calls that wait.
    #[cfg(test)]
    pub(in crate::flow) fn load(&self) -> (usize, usize) {
        let state = self.0.lock();
        (state.in_flight, state.waiting)
    }

    fn permit(self: &Arc<Self>, client: ClientName) -> Permit {
        Permit {
            gate: Arc::clone(self),
            client,
            went_well: None,
        }
    }

    fn leave(&self, client: &ClientName, went_well: Option<bool>) {
        let mut state = self.0.lock();
        if state.conf.adaptive == Adaptive::Aimd
            && let Some(went_well) = went_well
        {
            let most = state.conf.max;
            let in_flight = state.in_flight;
            state.aimd.ended(went_well, in_flight, most);
        }
        state.leaves(client);
        state.serve();
    }
}

impl Permit {
    /// Says how the send ended, for a bound that follows the tool.
    pub(in crate::flow) const fn ended(&mut self, went_well: bool) {
        self.went_well = Some(went_well);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.leave(&self.client, self.went_well);
    }
}

impl Waiting {
    /// Whether it was called (true) or sent away (false) by now.
    #[cfg(test)]
    pub(in crate::flow) fn called(&mut self) -> Option<bool> {
        use oneshot::error::TryRecvError;
        match self.ticket.try_recv() {
            Ok(()) => {
                // It stays called.
                let (again, ticket) = oneshot::channel();
                again.send(()).expect("its receiver is here");
                self.ticket = ticket;
                Some(true)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Closed) => Some(false),
        }
    }

    /// Waits for a place; `None` when the queue was needed for a client with fewer waiting calls.
    pub(in crate::flow) async fn turn(mut self) -> Option<Permit> {
        let granted = (&mut self.ticket).await.is_ok();
        granted.then(|| self.gate.permit(self.client.clone()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.ticket.is_terminated() {
            return;
        }
        // Under the lock a ticket is either in its line or was called.
        let mut state = self.gate.0.lock();
        self.ticket.close();
        if self.ticket.try_recv().is_ok() {
            // Called while it left: the place goes on.
            state.leaves(&self.client);
            state.serve();
        } else {
            state.forget(&self.client);
        }
    }
}

impl State {
    fn bound(&self) -> usize {
        match self.conf.adaptive {
            Adaptive::Off => self.conf.max,
            Adaptive::Aimd => self.aimd.bound(self.conf.max),
        }
    }

    fn join(&mut self, client: &ClientName, ticket: oneshot::Sender<()>) {
        let line = self.lines.entry(client.clone()).or_default();
        if line.is_empty() {
            self.turns.push_back(client.clone());
        }
        line.push_back(ticket);
        self.waiting += 1;
    }

    fn takes(&mut self, client: &ClientName) {
        self.in_flight += 1;
        match self.held.get_mut(client) {
            Some(held) => *held += 1,
            None => drop(self.held.insert(client.clone(), 1)),
        }
    }

    fn leaves(&mut self, client: &ClientName) {
        self.in_flight -= 1;
        if let Some(held) = self.held.get_mut(client) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(client);
            }
        }
    }

    /// Whose turn it is: of those who wait, whoever has the fewest places, the first of equals.
    fn next(&mut self) -> Option<ClientName> {
        let held = |client| self.held.get(client).copied().unwrap_or(0);
        let turns = self.turns.iter().enumerate();
        let (at, _) = turns.min_by_key(|(_, client)| held(client))?;
        self.turns.remove(at)
    }

    /// Calls those whose turn it is, as long as there are places.
    fn serve(&mut self) {
        while self.in_flight < self.bound() {
            let Some(client) = self.next() else {
                return;
            };
            let Some(line) = self.lines.get_mut(&client) else {
                continue;
            };
            let called = line.pop_front();
            if line.is_empty() {
                self.lines.remove(&client);
            } else {
                self.turns.push_back(client.clone());
            }
            if let Some(ticket) = called {
                self.waiting -= 1;
                if ticket.send(()).is_ok() {
                    self.takes(&client);
                }
            }
        }
    }

    /// The client with the most waiting calls, if it has more than `client` will have.
    fn noisier(&self, client: &ClientName) -> Option<&ClientName> {
        let own = self.lines.get(client).map_or(0, VecDeque::len);
        let most = self.lines.iter().max_by_key(|(_, line)| line.len());
        let noisy = most.filter(|(_, line)| line.len() > own + 1);
        noisy.map(|(noisy, _)| noisy)
    }

    /// Sends away the last of the noisier client's calls, if there is one.
    fn make_room(&mut self, client: &ClientName) -> bool {
        let Some(noisy) = self.noisier(client).cloned() else {
            return false;
        };
        if let Some(line) = self.lines.get_mut(&noisy)
            && line.pop_back().is_some()
        {
            self.waiting -= 1;
        }
        true
    }

    /// Drops the tickets of `client` that nobody holds any more.
    fn forget(&mut self, client: &ClientName) {
        let Some(line) = self.lines.get_mut(client) else {
            return;
        };
        let before = line.len();
        line.retain(|ticket| !ticket.is_closed());
        self.waiting -= before - line.len();
        if line.is_empty() {
            self.lines.remove(client);
            self.turns.retain(|turn| turn != client);
        }
    }
}

#[cfg(test)]
mod tests;
