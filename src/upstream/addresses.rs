//! The addresses of a tool: which one a send goes to, which ones are left alone, and what a host
//! name leads to.
//!
//! A tool has one url, or several that are one tool; where addresses are ejected, each address that
//! the host name of a url leads to is weighed for itself. What is known about an address belongs
//! to the process, not to a route or to one load of the configuration ([`Directory`]). Whether a
//! call may go to another url at all is the caller's business ([`Reach`]); nothing here knows
//! calls. A tool with one url that is never ejected asks nobody here.
//!
//! Deliberately absent: questions of our own to find out whether an address lives (what is sent
//! anyway says it), and weights.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use self::level::{Level, Sample};
use self::pick::{Seen, is_panic, pick};
use super::{Core, Destination};
use crate::call::outcome::{Cause, NotSent, Outcome, Reading, Unclear};
use crate::call::time::Mono;
use crate::config::ejection::Ejection;

mod level;
mod name;
mod pick;
mod show;

pub use level::{Change, State, Why};
pub use name::{Lookup, Name, Resolver};
pub use pick::Reach;
pub use show::{Shown, Standing};

/// What is known about every address in use, by its url.
#[derive(Debug, Default)]
pub struct Directory(Mutex<HashMap<Arc<str>, Weak<Address>>>);

/// One url, as all routes that lead there share it.
#[derive(Debug)]
struct Address {
    url: Arc<str>,
    /// All that its name leads to, as one.
    whole: Arc<Seat>,
    /// Each address that its name leads to.
    single: Mutex<HashMap<SocketAddr, Arc<Seat>>>,
}

/// What is weighed and chosen: a url, or one address that it leads to.
#[derive(Debug)]
struct Seat {
    url: Arc<str>,
    at: Option<SocketAddr>,
    /// As in `level`, for those who only look.
    is_in: AtomicBool,
    load: AtomicUsize,
    /// When it was last brought back, in the clock's nanoseconds; 0: never.
    back: AtomicU64,
    level: Mutex<Level>,
}

/// The addresses of one route's tool.
#[derive(Debug)]
pub struct Addresses {
    rule: Option<Arc<Ejection>>,
    sites: Box<[Site]>,
    turn: AtomicUsize,
}

/// One url with the connections of its route.
#[derive(Debug)]
struct Site {
    address: Arc<Address>,
    whole: Arc<Destination>,
    board: ArcSwap<Board>,
}

/// Where connections of a site can go to, as its name was last found.
#[derive(Debug)]
struct Board {
    version: u64,
    places: Vec<Place>,
}

#[derive(Clone, Debug)]
struct Place {
    seat: Arc<Seat>,
    to: Arc<Destination>,
}

/// Where a send goes.
#[derive(Debug)]
pub struct Chosen {
    /// The number of its url.
    pub site: usize,
    /// What its requests are sent to.
    pub to: Arc<Destination>,
    /// Its place there.
    pub seated: Seated,
}

/// A send under way at an address, or a question that is its probe. It counts while this lives.
#[derive(Debug)]
#[must_use = "it counts as under way while this lives"]
pub struct Seated {
    seat: Arc<Seat>,
    rule: Option<Arc<Ejection>>,
    name: Option<Arc<Name>>,
    weight: Weight,
}

/// What the end of a send says about its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// It is one of many, begun in this epoch.
    Send(u32),
    /// It decides.
    Probe,
    /// It was told.
    Told,
}

impl Directory {
    /// What is known about `url`; nothing yet when nobody uses it.
    fn address(&self, url: &Arc<str>) -> Arc<Address> {
        let mut known = self.0.lock();
        known.retain(|_, address| address.strong_count() > 0);
        if let Some(address) = known.get(url).and_then(Weak::upgrade) {
            return address;
        }
        let address = Arc::new(Address {
            url: Arc::clone(url),
            whole: Arc::new(Seat::new(url, None)),
            single: Mutex::default(),
        });
        known.insert(Arc::clone(url), Arc::downgrade(&address));
        address
    }
}

impl Seat {
    fn new(url: &Arc<str>, at: Option<SocketAddr>) -> Self {
        Self {
            url: Arc::clone(url),
            at,
            is_in: AtomicBool::new(true),
            load: AtomicUsize::new(0),
            back: AtomicU64::new(0),
            level: Mutex::new(Level::new(Mono(0))),
        }
    }

    fn is_in(&self) -> bool {
        self.is_in.load(Ordering::Acquire)
    }

    /// The sends under way, as a choice weighs them: one that has just come back is not given its
    /// full share at once.
    fn weighed(&self, rule: Option<&Ejection>, now: Mono) -> usize {
        let load = self.load.load(Ordering::Relaxed);
        match (self.back.load(Ordering::Relaxed), rule) {
            (0, _) | (_, None) => load,
            (back, Some(rule)) => pick::returning(load, now.since(Mono(back)), rule.base),
        }
    }

    /// Takes the probe, if one is due.
    fn take_probe(&self, now: Mono) -> bool {
        let taken = !self.is_in() && self.level.lock().take_probe(now);
        if taken {
            tracing::info!(
                url = &*self.url,
                at = self.at.map(tracing::field::display),
                "an ejected address is tried with one send"
            );
        }
        taken
    }

    fn take_vouched(&self) -> bool {
        let taken = !self.is_in() && self.level.lock().take_vouched();
        if taken {
            tracing::info!(
                url = &*self.url,
                at = self.at.map(tracing::field::display),
                "an ejected address answers questions and is tried with one send"
            );
        }
        taken
    }

    /// Carries out a change and tells of it.
    fn changed(&self, change: Change, now: Mono) {
        let at = self.at.map(tracing::field::display);
        match change {
            Change::Ejected { why, out_for } => {
                self.is_in.store(false, Ordering::Release);
                tracing::warn!(
                    url = &*self.url,
                    at,
                    reason = why.as_str(),
                    seconds = out_for.as_secs_f64(),
                    "an address of a tool is ejected: nothing new is sent there for a while"
                );
            }
            Change::Returned => {
                self.back.store(now.0.max(1), Ordering::Relaxed);
                self.is_in.store(true, Ordering::Release);
                tracing::info!(url = &*self.url, at, "an ejected address is used again");
            }
        }
    }
}

impl Why {
    /// The word in logs and as a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Row => "row",
            Self::Share => "share",
            Self::Probe => "probe",
        }
    }
}

impl Addresses {
    /// The addresses of a tool, each with the connections to it; `None` for one that is never
    /// ejected: there is nothing to choose and nothing to weigh.
    #[must_use]
    pub fn new(
        sites: &[(&Arc<str>, &Arc<Destination>)],
        rule: Option<&Ejection>,
        directory: &Directory,
    ) -> Option<Self> {
        if sites.len() == 1 && rule.is_none() {
            return None;
        }
        let site = |(url, whole): &(&Arc<str>, &Arc<Destination>)| {
            let address = directory.address(url);
            let board = Board {
                version: 0,
                places: vec![Place {
                    seat: Arc::clone(&address.whole),
                    to: Arc::clone(whole),
                }],
            };
            Site {
                address,
                whole: Arc::clone(whole),
                board: ArcSwap::from_pointee(board),
            }
        };
        Some(Self {
            rule: rule.map(|rule| Arc::new(rule.clone())),
            sites: sites.iter().map(site).collect(),
            turn: AtomicUsize::new(0),
        })
    }

    /// The address for a send that begins now; `None` when all that it may go to are ejected.
    #[must_use]
    pub fn choose(&self, reach: Reach, now: Mono) -> Option<Chosen> {
        let places = self.places();
        if self.rule.is_some() {
            let mut allowed = places.iter().filter(|(site, _)| reach.allows(*site));
            if let Some((site, place)) = allowed.find(|(_, place)| place.seat.take_probe(now)) {
                return Some(self.seat(*site, place, Weight::Probe));
            }
        }
        self.pick(&places, reach, now, false)
    }

    /// The address for a send of the compensation queue, which no ejection holds back: its rounds
    /// are few and lie far apart, and what they do not try is tried by nobody. Where all that it
    /// may go to are ejected it is the probe of one, or goes beside the probe under way.
    #[must_use]
    pub fn choose_in_round(&self, reach: Reach, now: Mono) -> Option<Chosen> {
        let probe = || {
            let mut sites = (0..self.sites.len()).filter(|site| reach.allows(*site));
            sites.find_map(|site| self.vouched(site))
        };
        self.choose(reach, now)
            .or_else(probe)
            .or_else(|| self.pick(&self.places(), reach, now, true))
    }

    fn pick(
        &self,
        places: &[(usize, Place)],
        reach: Reach,
        now: Mono,
        whatever: bool,
    ) -> Option<Chosen> {
        let seen: Vec<Seen> = places
            .iter()
            .map(|(site, place)| Seen {
                site: *site,
                is_in: place.seat.is_in(),
                load: place.seat.weighed(self.rule.as_deref(), now),
            })
            .collect();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let at = pick(&seen, reach, whatever || self.is_panic(&seen), turn)?;
        let (site, place) = &places[at];
        let weight = match self.rule {
            Some(_) => Weight::Send(place.seat.level.lock().epoch()),
            None => Weight::Told,
        };
        Some(self.seat(*site, place, weight))
    }

    /// The address for a send to this url, which has just answered a question and is ejected all
    /// the same: the send is its probe. `None` while another one is under way.
    #[must_use]
    pub fn vouched(&self, site: usize) -> Option<Chosen> {
        let places = self.sites.get(site)?.board(self.rule.is_some());
        let place = places
            .places
            .iter()
            .find(|place| place.seat.take_vouched())?;
        Some(self.seat(site, place, Weight::Probe))
    }

    /// Whether a call that has to go to this url can go nowhere now.
    #[must_use]
    pub fn is_out(&self, site: usize) -> bool {
        let places = self.places();
        let seen: Vec<Seen> = places
            .iter()
            .map(|(site, place)| Seen {
                site: *site,
                is_in: place.seat.is_in(),
                load: 0,
            })
            .collect();
        let reach = Reach::Only(site);
        pick(&seen, reach, self.is_panic(&seen), 0).is_none()
    }

    /// A question to this url is its probe, if one is due and the url is one address.
    #[must_use]
    pub fn question(&self, site: usize, now: Mono) -> Option<Seated> {
        let board = self.sites.get(site)?.board(self.rule.is_some());
        let [place] = &*board.places else {
            return None;
        };
        let probes = place.seat.take_probe(now);
        probes.then(|| self.seat(site, place, Weight::Probe).seated)
    }

    fn is_panic(&self, seen: &[Seen]) -> bool {
        let out = seen.iter().filter(|seen| !seen.is_in).count();
        let rule = self.rule.as_ref();
        rule.is_some_and(|rule| is_panic(out, seen.len(), rule.max_ejected))
    }

    fn places(&self) -> Vec<(usize, Place)> {
        let weighed = self.rule.is_some();
        let mut places = Vec::with_capacity(self.sites.len());
        for (n, site) in self.sites.iter().enumerate() {
            let board = site.board(weighed);
            places.extend(board.places.iter().map(|place| (n, place.clone())));
        }
        places
    }

    fn seat(&self, site: usize, place: &Place, weight: Weight) -> Chosen {
        place.seat.load.fetch_add(1, Ordering::Relaxed);
        let name = self.sites[site].whole.name();
        Chosen {
            site,
            to: Arc::clone(&place.to),
            seated: Seated {
                seat: Arc::clone(&place.seat),
                rule: self.rule.clone(),
                name: name.map(Arc::clone),
                weight,
            },
        }
    }
}

impl Site {
    /// Where connections can go now. Without a rule nobody asks which of the addresses of a name it
    /// was, so that they stay one.
    fn board(&self, weighed: bool) -> Arc<Board> {
        let board = self.board.load_full();
        let Some(name) = self.whole.name().filter(|_| weighed) else {
            return board;
        };
        let version = name.version();
        let found = name.found().filter(|_| board.version != version);
        let Some(found) = found else {
            return board;
        };
        let seats = self.address.seats(&found);
        let place = |seat: Arc<Seat>| {
            let to = seat
                .at
                .map_or_else(|| Arc::clone(&self.whole), |at| self.whole.at(at));
            Place { seat, to }
        };
        let places = seats.into_iter().map(place).collect();
        self.whole.keep(&found);
        let board = Arc::new(Board { version, places });
        self.board.store(Arc::clone(&board));
        board
    }
}

impl Address {
    /// The seats of these addresses, with the levels they had. What is not among them is kept as
    /// long as another route still has it.
    fn seats(&self, found: &[SocketAddr]) -> Vec<Arc<Seat>> {
        let mut single = self.single.lock();
        let seats = found.iter().map(|at| {
            let seat = single.entry(*at);
            Arc::clone(seat.or_insert_with(|| Arc::new(Seat::new(&self.url, Some(*at)))))
        });
        let seats = seats.collect();
        single.retain(|at, seat| found.contains(at) || Arc::strong_count(seat) > 1);
        seats
    }
}

impl Seated {
    /// The send has ended like this. What that changed about its address.
    pub fn ended(&mut self, outcome: Outcome, core: &Core) -> Option<Change> {
        let cause = trouble(outcome);
        if cause == Some(Cause::Connect)
            && let Some(name) = &self.name
        {
            name.hurry(core);
        }
        let rule = self.rule.clone()?;
        let sample = match cause {
            Some(cause) if rule.on.contains(&cause) => Sample::Bad,
            Some(_) | None => Sample::Good,
        };
        self.told(&rule, sample, core.clock.mono())
    }

    /// The question that was the probe was answered, or was not.
    pub fn answered(&mut self, well: bool, now: Mono) -> Option<Change> {
        let rule = self.rule.clone()?;
        self.told(&rule, if well { Sample::Good } else { Sample::Bad }, now)
    }

    fn told(&mut self, rule: &Ejection, sample: Sample, now: Mono) -> Option<Change> {
        let mut level = self.seat.level.lock();
        let change = match std::mem::replace(&mut self.weight, Weight::Told) {
            Weight::Send(epoch) => level.ended(rule, now, epoch, sample),
            Weight::Probe => level.probed(rule, now, sample),
            Weight::Told => None,
        };
        // Under the lock, so that two changes are told in their order.
        change.inspect(|change| self.seat.changed(*change, now))
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.seat.load.fetch_sub(1, Ordering::Relaxed);
        if self.weight == Weight::Probe {
            // The next send may be it.
            self.seat.level.lock().give_back();
        }
    }
}

/// What went wrong with the address, as far as one outcome tells.
fn trouble(outcome: Outcome) -> Option<Cause> {
    match outcome {
        Outcome::NotSent(NotSent::Connect | NotSent::Tls | NotSent::HandedBack) => {
            Some(Cause::Connect)
        }
        // Another gateway is there and has its reasons.
        Outcome::NotSent(NotSent::Refused) => None,
        Outcome::Unclear(Unclear::Timeout) => Some(Cause::Timeout),
        Outcome::Unclear(Unclear::Disconnect) => Some(Cause::Disconnect),
        Outcome::Answered(reading) => is_5xx(reading).then_some(Cause::Status),
    }
}

fn is_5xx(reading: Reading) -> bool {
    reading.status().is_server_error()
}

#[cfg(test)]
mod tests;
