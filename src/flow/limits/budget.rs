//! What may be sent to one tool again: a share of the calls it has answered lately, and a floor.
//!
//! During an outage nothing is answered, so that resends fall to the floor and the tool is left
//! time to come back; with the first answers they grow again. Shares that are not spent lapse after
//! [`WINDOW_S`] seconds. A resend is paid for once, before its record is made, and what was paid
//! for a resend that did not take place is given back. Rounds have a floor of their own that
//! callers cannot spend; questions beyond the first of a call come out of another one. The floor is
//! shared: while several clients want to send again, each that has had nothing in the present
//! second has one resend of it put by, up to half of the floor, so that a noisy one does not take
//! all.
//!
//! Time is an argument; one lock per answered call and per resend, none without a budget.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::call::id::ClientName;
use crate::call::time::Mono;
use crate::config::limits::RetryBudget;

/// How long a share lasts.
const WINDOW_S: usize = 10;

/// One resend, in thousandths.
const ONE: u64 = 1_000;

/// The budget of one tool.
#[derive(Debug)]
pub(in crate::flow) struct Budget(Mutex<State>);

/// A resend that was paid for. Dropped unused, it is given back; used, it holds its client's place
/// until the resend has ended.
#[derive(Debug)]
pub(in crate::flow) struct Paid {
    budget: Arc<Budget>,
    from: Purse,
    client: Option<ClientName>,
    used: bool,
}

/// Why a resend is not paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) enum Unpaid {
    /// The share and the floor are spent.
    Budget,
    /// The client has as many resends under way as it may.
    Client,
}

/// Who wants to send again.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) enum Payer<'a> {
    /// A call in line, or a repeat.
    Caller(&'a ClientName),
    /// The compensation worker.
    Round,
}

#[derive(Clone, Copy, Debug)]
enum Purse {
    Share,
    Floor,
    Rounds,
}

#[derive(Debug)]
struct State {
    conf: RetryBudget,
    /// Unspent shares by the second they came in, in thousandths.
    shares: [u64; WINDOW_S],
    /// The second of the newest share.
    second: u64,
    floor: Bucket,
    rounds: Bucket,
    receipts: Bucket,
    /// Resends under way, per client.
    clients: HashMap<ClientName, usize>,
    /// Who has wished for a resend lately.
    wishes: HashMap<ClientName, Wish>,
}

/// A client's latest wish.
#[derive(Clone, Copy, Debug)]
struct Wish {
    second: u64,
    /// It was granted one out of the floor in that second.
    granted: bool,
}

/// Filled by time, up to one second's worth.
#[derive(Debug)]
struct Bucket {
    per_second: u64,
    level: u64,
    at: Mono,
}

impl Budget {
    pub(super) fn new(conf: RetryBudget) -> Arc<Self> {
        let full = |per_second: u32| Bucket {
            per_second: per_second.into(),
            level: u64::from(per_second) * ONE,
            at: Mono(0),
        };
        Arc::new(Self(Mutex::new(State {
            conf,
            shares: [0; WINDOW_S],
            second: 0,
            floor: full(conf.floor),
            rounds: full(conf.rounds),
            receipts: full(conf.receipts),
            clients: HashMap::new(),
            wishes: HashMap::new(),
        })))
    }

    /// Other numbers from now on; levels and resends under way stay.
    pub(super) fn change(&self, conf: RetryBudget) {
        let mut state = self.0.lock();
        state.conf = conf;
        state.floor.per_second = conf.floor.into();
        state.rounds.per_second = conf.rounds.into();
        state.receipts.per_second = conf.receipts.into();
    }

    /// The tool has answered a call's first send.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a ratio is configured between 0 and 5"
    )]
    pub(in crate::flow) fn answered(&self, now: Mono) {
        let mut state = self.0.lock();
        state.lapse(now);
        let share = (state.conf.ratio * ONE as f64).round() as u64;
        let at = slot(state.second);
        state.shares[at] += share;
    }

    /// Pays for one resend.
    pub(in crate::flow) fn pay(
        self: &Arc<Self>,
        payer: Payer<'_>,
        now: Mono,
    ) -> Result<Paid, Unpaid> {
        let mut state = self.0.lock();
        state.lapse(now);
        let client = match payer {
            Payer::Caller(client) if state.is_at_cap(client) => return Err(Unpaid::Client),
            Payer::Caller(client) => Some(client),
            Payer::Round => None,
        };
        let rounds = client.is_none() && state.rounds.take(now);
        let from = if rounds {
            Purse::Rounds
        } else if state.take_floor(client, now) {
            Purse::Floor
        } else if state.take_share() {
            Purse::Share
        } else {
            return Err(Unpaid::Budget);
        };
        if let Some(client) = client {
            *state.clients.entry(client.clone()).or_default() += 1;
        }
        drop(state);
        Ok(Paid {
            budget: Arc::clone(self),
            from,
            client: client.cloned(),
            used: false,
        })
    }

    /// Whether a question beyond the first of its call may be asked.
    pub(in crate::flow) fn may_ask(&self, now: Mono) -> bool {
        self.0.lock().receipts.take(now)
    }

    /// Resends of callers under way.
    #[cfg(test)]
    pub(in crate::flow) fn in_flight(&self) -> usize {
        self.0.lock().clients.values().sum()
    }

    fn give_back(&self, paid: &Paid) {
        let mut state = self.0.lock();
        if let Some(client) = &paid.client
            && let Some(count) = state.clients.get_mut(client)
        {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(client);
            }
        }
        if paid.used {
            return;
        }
        match paid.from {
            Purse::Share => {
                let at = slot(state.second);
                state.shares[at] += ONE;
            }
            Purse::Floor => state.floor.put_back(),
            Purse::Rounds => state.rounds.put_back(),
        }
    }
}

impl Paid {
    /// The resend is on record: it counts, whatever becomes of it.
    pub(in crate::flow) const fn used(&mut self) {
        self.used = true;
    }
}

impl Drop for Paid {
    fn drop(&mut self) {
        self.budget.give_back(self);
    }
}

impl State {
    fn is_at_cap(&self, client: &ClientName) -> bool {
        let under_way = self.clients.get(client).copied().unwrap_or(0);
        under_way >= self.conf.per_client
    }

    /// Lets shares go whose time is over.
    fn lapse(&mut self, now: Mono) {
        let second = Duration::from_nanos(now.0).as_secs();
        let gone = second.saturating_sub(self.second).min(WINDOW_S as u64);
        if gone > 0 {
            let kept = second.saturating_sub(WINDOW_S as u64);
            self.wishes.retain(|_, wish| wish.second >= kept);
        }
        for past in 0..gone {
            self.shares[slot(second - past)] = 0;
        }
        self.second = self.second.max(second);
    }

    /// One of the floor, unless what is left is put by for others.
    fn take_floor(&mut self, client: Option<&ClientName>, now: Mono) -> bool {
        let second = self.second;
        let latest = client.map(|client| {
            let none = Wish {
                second,
                granted: false,
            };
            let wish = self.wishes.entry(client.clone()).or_insert(none);
            if wish.second < second {
                *wish = none;
            }
            *wish
        });
        let is_first = latest.is_some_and(|wish| !wish.granted);
        let waits = |wish: &Wish| wish.second < second || !wish.granted;
        let others = self.wishes.iter();
        let others = others.filter(|(name, wish)| Some(*name) != client && waits(wish));
        let put_by = (others.count() as u64).min(self.floor.per_second / 2);
        self.floor.fill(now);
        if !is_first && self.floor.level < (put_by + 1) * ONE {
            return false;
        }
        let taken = self.floor.take(now);
        if let Some(wish) = client.and_then(|client| self.wishes.get_mut(client)) {
            wish.granted |= taken;
        }
        taken
    }

    /// The oldest shares first.
    fn take_share(&mut self) -> bool {
        if self.shares.iter().sum::<u64>() < ONE {
            return false;
        }
        let mut left = ONE;
        for age in (0..WINDOW_S as u64).rev() {
            let at = slot((self.second + WINDOW_S as u64) - age);
            let taken = left.min(self.shares[at]);
            self.shares[at] -= taken;
            left -= taken;
        }
        true
    }
}

impl Bucket {
    fn take(&mut self, now: Mono) -> bool {
        self.fill(now);
        let is_enough = self.level >= ONE;
        if is_enough {
            self.level -= ONE;
        }
        is_enough
    }

    fn fill(&mut self, now: Mono) {
        let passed = now.since(self.at).as_millis();
        // Thousandths per millisecond are pieces per second.
        let gained = u64::try_from(passed)
            .unwrap_or(u64::MAX)
            .saturating_mul(self.per_second);
        if gained > 0 {
            self.level = self.level.saturating_add(gained).min(self.per_second * ONE);
            self.at = now;
        }
    }

    fn put_back(&mut self) {
        self.level = (self.level + ONE).min(self.per_second * ONE);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a remainder of ten fits everywhere"
)]
const fn slot(second: u64) -> usize {
    (second % WINDOW_S as u64) as usize
}

#[cfg(test)]
mod tests;
