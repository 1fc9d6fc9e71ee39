//! Tools with several addresses, each with a store of its own or all with one, and one of them dead
//! for a while.

use callgate::call::outcome::Outcome;
use callgate::ledger::{CallView, Entry};

use crate::dice::Dice;
use crate::net::Request;
use crate::plan::{Plan, Rules};
use crate::world::State;

/// An address that cannot be reached for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dead {
    site: usize,
    from: u64,
    until: u64,
}

impl Dead {
    pub(crate) fn has(&self, site: usize, now: u64) -> bool {
        self.site == site && (self.from..self.until).contains(&now)
    }
}

/// Parts the draw of long outages from the others; such that no world that is kept has one.
const OUTAGE: u64 = 0x0d0f_0001;
/// The longest that a tool is away, in ms: longer than all rounds of the queue together.
const OUTAGE_MS: u64 = 120_000;

impl Plan {
    /// Several addresses of the tool, one of which may be dead for a while.
    pub(crate) fn with_addresses(mut self, d: &mut Dice) -> Self {
        let mut outage = Dice::new(self.seed ^ OUTAGE);
        if !self.quiet && outage.percent(6) {
            self.net.down_until = outage.within(40_000, OUTAGE_MS);
        }
        if !d.percent(35) {
            return self;
        }
        self.rules.addresses = d.pick(&[2, 2, 3]);
        self.rules.shared = d.percent(30);
        self.rules.all_used = d.percent(50);
        if !self.quiet && d.percent(70) {
            let from = d.pick(&[0, 0, 500, 3_000]);
            self.net.dead = Some(Dead {
                site: usize::try_from(d.below(self.rules.addresses)).expect("a few"),
                from,
                until: from + d.pick(&[2_000, 8_000, 40_000]),
            });
        }
        self
    }
}

impl Rules {
    /// Where the tool is, as an operator would write it.
    pub(crate) fn tool(&self) -> String {
        if self.addresses == 1 {
            return "url: 'http://tool.sim'".to_owned();
        }
        let urls: Vec<_> = (0..self.addresses)
            .map(|n| format!("'http://tool-{n}.sim'"))
            .collect();
        format!(
            "urls: [{}], shared_state: {}, ejection: {{ consecutive: 2, share: 0, base: 1s, \
             cap: 8s, max_ejected: {} }}",
            urls.join(", "),
            self.shared,
            if self.all_used { 0.8 } else { 1.0 },
        )
    }
}

impl State {
    /// A request has left the gateway for this address of the tool. Where each has a store of its
    /// own, what has left for one goes to no other one. Says which use of the id it is.
    pub(crate) fn sends_to(&mut self, site: usize, request: &Request) -> u32 {
        let life = self.sends(request);
        let id = request.id.as_str();
        self.asks_at(site, id);
        if self.has_stores() {
            let went = *self.facts(id).went.entry(life).or_insert(site);
            if went != site {
                let what = format!("{id} #{}: from address {went} to {site}", request.attempt);
                self.breaks("what may have arrived goes nowhere else", &what);
            }
        }
        life
    }

    /// A call is sent, asked about and undone at the address that stands on record.
    pub(crate) fn asks_at(&mut self, site: usize, id: &str) {
        let Some(row) = self.row(id).filter(|_| self.has_stores()) else {
            return;
        };
        let here = format!("http://tool-{site}.sim");
        if *row.upstream != *here {
            let what = format!("{id} at {here}, which belongs to {}", row.upstream);
            self.breaks("a call belongs to one address", &what);
        }
        let moved = |entry: &Entry| matches!(entry, Entry::Moved { .. });
        if row.history.iter().any(moved) {
            self.truth.reached.at("moved");
        }
        self.truth.reached.at("one of several addresses");
    }

    /// What the gateway itself holds back is no send: whatever is on record as one was tried, and a
    /// connection that fails takes its time.
    pub(crate) fn sends_were_tried(&mut self, id: &str, row: &CallView) {
        for entry in &row.history {
            match entry {
                Entry::Ended {
                    n,
                    outcome: Outcome::NotSent(_),
                    took,
                    detail,
                    ..
                } if took.is_zero() => {
                    let too_late = detail.as_ref().is_some_and(|why| {
                        why.contains("no time") || &**why == "no connection in time"
                    });
                    if !too_late {
                        let what = format!("{id} #{n}: {detail:?}");
                        self.breaks("what is on record as a send was tried", &what);
                    }
                }
                Entry::Waited { why, .. } if *why == *"ejected" => {
                    self.truth.reached.at("held back");
                }
                _ => {}
            }
        }
    }

    /// Whether the tool has several addresses that know nothing of one another.
    fn has_stores(&self) -> bool {
        let rules = &self.plan.rules;
        rules.addresses > 1 && !rules.shared && !rules.none
    }
}
