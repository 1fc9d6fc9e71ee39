//! The tool: what it does with what reaches it, and what its receipts say.
//!
//! It honours call ids or it does not, it keeps its refusals or it does not, and its receipts exist
//! from the arrival on, from the commit on, or not at all. What it has done is the truth that the
//! gateway's words are held against.

use std::collections::BTreeMap;

use callgate::ledger::CallView;

use crate::net::{Asked, Back, Sent};
use crate::plan::{RUN_MS, Receipts};
use crate::world::{Event, State};

/// Everything the tool remembers: in one store for all its addresses, or in one for each.
#[derive(Default)]
pub(crate) struct Tool {
    records: BTreeMap<(usize, String), Record>,
}

/// Where it remembers what.
#[derive(Clone, Copy)]
struct Place<'a> {
    site: usize,
    id: &'a str,
}

#[derive(Default)]
struct Record {
    seen_at: Option<u64>,
    done_at: Option<u64>,
    refused_at: Option<u64>,
    working: u32,
    /// It was undone.
    undone_at: Option<u64>,
    /// Connections of duplicates that wait for the first one's answer.
    joined: Vec<Back>,
}

/// Work under way.
#[derive(Debug)]
pub(crate) struct Run {
    sent: Sent,
    /// It will be refused at its end.
    fails: bool,
}

/// What the receipt endpoint answers.
enum Said {
    NotFound,
    Word(&'static str),
}

impl State {
    pub(crate) fn request_arrives(&mut self, sent: Sent) {
        if !self.gets_through(&sent) {
            return self.say(|| {
                format!(
                    "net   {} #{} dies with its connection",
                    sent.id, sent.attempt
                )
            });
        }
        if sent.copy && !self.is_kept(sent.place()) {
            return;
        }
        let site = sent.site;
        self.say(|| format!("tool  sees {} #{} at address {site}", sent.id, sent.attempt));
        self.saw(&sent);
        let (back, plan) = (sent.back, self.plan.tool.clone());
        if self.dice.percent(plan.limits) {
            self.say(|| format!("tool  429 {}", sent.id));
            let extra = if self.dice.percent(50) {
                "retry-after: 1\r\n"
            } else {
                ""
            };
            return self.answers(back, 429, extra, "slow down");
        }
        if plan.honours && self.is_kept(sent.place()) {
            return self.knows(&sent);
        }
        if self.dice.percent(plan.refuses) {
            self.say(|| format!("tool  refuses {}", sent.id));
            let now = self.now();
            if plan.records_refusals {
                let record = self.record(sent.place());
                record.seen_at.get_or_insert(now);
                record.refused_at.get_or_insert(now);
            }
            let status = self.dice.pick(&[400, 404, 409, 422]);
            return self.answers(back, status, "", "no");
        }
        if self.dice.percent(plan.breaks_before) {
            self.say(|| format!("tool  breaks before it begins {}", sent.id));
            let status = self.dice.pick(&[500, 502, 503]);
            let extra = ["", "retry-after: 1\r\n", "retry-after: 30\r\n"];
            let extra = self.dice.pick(&extra);
            return self.answers(back, status, extra, "broken");
        }
        self.works(sent);
    }

    fn works(&mut self, sent: Sent) {
        let plan = self.plan.tool.clone();
        let now = self.now();
        let record = self.record(sent.place());
        record.seen_at.get_or_insert(now);
        record.working += 1;
        let fails = self.dice.percent(plan.fails);
        let slow = self.dice.percent(plan.slow);
        let takes = if slow {
            self.dice.within(500, RUN_MS)
        } else {
            self.dice.within(0, 50)
        };
        if plan.promises {
            self.answers(sent.back, 202, "", "later");
        }
        self.after(takes, Event::Commits(Run { sent, fails }));
    }

    /// A duplicate of what it knows.
    fn knows(&mut self, sent: &Sent) {
        let conflict = self.plan.tool.says_conflict;
        let record = self.record(sent.place());
        let (done, refused) = (record.done_at.is_some(), record.refused_at.is_some());
        self.say(|| format!("tool  knows {}", sent.id));
        match (done, refused, conflict) {
            (false, true, _) => self.answers(sent.back, 422, "", "still no"),
            (_, _, true) => self.answers(sent.back, 409, "", "known"),
            (true, _, false) => self.answers(sent.back, 200, "", "done"),
            (false, false, false) => self.record(sent.place()).joined.push(sent.back),
        }
    }

    pub(crate) fn commits(&mut self, run: Run) {
        let Run { sent, fails } = run;
        let (now, plan) = (self.now(), self.plan.tool.clone());
        let record = self.record(sent.place());
        record.working -= 1;
        let backs = std::mem::take(&mut record.joined);
        let backs = backs.into_iter().chain([sent.back]);
        if fails {
            record.refused_at.get_or_insert(now);
            self.say(|| format!("tool  gives {} up", sent.id));
            return backs.for_each(|back| self.answers(back, 422, "", "could not"));
        }
        record.done_at.get_or_insert(now);
        self.say(|| format!("tool  has done {} #{}", sent.id, sent.attempt));
        self.effect(&sent);
        for back in backs {
            if self.dice.percent(plan.breaks_after) {
                self.answers(back, 500, "", "broken after all");
            } else if self.dice.percent(plan.mute) {
                let reset = self.dice.percent(50);
                if self.dice.percent(50) {
                    self.hangs_up(back, reset);
                }
            } else if self.dice.percent(15) && !self.plan.rules.undoes {
                // Passed on while it arrives: told before it is on record.
                self.answers(back, 200, "", &"x".repeat(200));
            } else {
                let status = self.dice.pick(&[200, 201, 303]);
                self.answers(back, status, "", "done");
            }
        }
    }

    pub(crate) fn question_arrives(&mut self, asked: &Asked) {
        let back = asked.back;
        if self.dice.percent(self.plan.tool.bad_receipt) {
            self.say(|| format!("tool  no usable receipt of {}", asked.id));
            return match self.dice.below(8) {
                0 => {}
                1 => self.answers(back, 500, "", "broken"),
                2 => self.answers(back, 401, "", "who are you"),
                3 => self.answers(back, 404, "", "<!doctype html><html>not found</html>"),
                4 => self.answers(
                    back,
                    200,
                    "",
                    "{\"state\":\"SUCCESS\",\"callId\":\"other\"}",
                ),
                5 => self.answers(back, 200, "", "{\"state\":\"WHO_KNOWS\"}"),
                6 => self.answers(back, 200, "", "{\"state\":"),
                _ => self.hangs_up(back, true),
            };
        }
        let id = &asked.id;
        match self.remembered(asked.place()) {
            Said::NotFound => {
                self.say(|| format!("tool  never heard of {id}"));
                self.denied(id);
                self.answers(back, 404, "", "{}");
            }
            Said::Word(word) => {
                self.say(|| format!("tool  says {word} of {id}"));
                let result = match (word, self.dice.percent(50)) {
                    ("SUCCESS", true) => ",\"result\":{\"status\":201,\"body\":\"done\"}",
                    ("FAILED", true) => ",\"result\":{\"status\":422,\"body\":\"no\"}",
                    _ => "",
                };
                let text = format!("{{\"state\":\"{word}\",\"callId\":\"{id}\"{result}}}");
                self.answers(back, 200, "", &text);
            }
        }
    }

    /// A request to undo a call: done, refused while it works, or an error before or after.
    pub(crate) fn undo_arrives(&mut self, asked: &Asked) {
        let (back, id, now) = (asked.back, asked.id.clone(), self.now());
        let plan = self.plan.tool.clone();
        if self.dice.percent(plan.breaks_before) {
            self.say(|| format!("tool  breaks before it undoes {id}"));
            return self.answers(back, 500, "", "broken");
        }
        let record = self.record(asked.place());
        if record.working > 0 {
            self.say(|| format!("tool  works on {id}: not undone"));
            return self.answers(back, 409, "", "it is being done");
        }
        if record.undone_at.is_none() {
            record.undone_at = Some(now);
            self.say(|| format!("tool  has undone {id}"));
            self.undone(&id);
        }
        if self.dice.percent(plan.breaks_after) {
            return self.answers(back, 503, "", "broken after all");
        }
        self.answers(back, 204, "", "");
    }

    /// The receipt, unless it comes from a copy that has lost the call: which it does only once the
    /// gateway has on record that the tool knows it, or that its answer is being told.
    fn remembered(&mut self, place: Place<'_>) -> Said {
        let (said, forgets) = (self.receipt(place), self.plan.tool.forgets);
        let lost = forgets > 0 && self.dice.percent(forgets);
        // What is told while it arrives may be undone before its end is on record, as documented.
        let undoes = self.plan.rules.undoes;
        let known = |row: CallView| row.recognised || (row.told && !undoes);
        if lost && self.row(place.id).is_some_and(known) {
            self.truth.reached.at("forgotten receipt");
            return Said::NotFound;
        }
        said
    }

    fn receipt(&mut self, place: Place<'_>) -> Said {
        let (now, plan) = (self.now(), self.plan.tool.clone());
        let Some(record) = self.tool.records.get(&self.key(place)) else {
            return Said::NotFound;
        };
        let shows = |at: Option<u64>| at.is_some_and(|at| at + plan.lag_ms <= now);
        let forgotten = |at: Option<u64>| {
            at.zip(plan.retention_ms)
                .is_some_and(|(at, kept)| at + kept <= now)
        };
        let known = match plan.receipts {
            Receipts::None | Receipts::NeverKnows => false,
            Receipts::Arrival => shows(record.seen_at),
            Receipts::Commit | Receipts::Lying => {
                shows(record.done_at) || (record.working == 0 && shows(record.refused_at))
            }
        };
        if !known || forgotten(record.seen_at) {
            return Said::NotFound;
        }
        Said::Word(if shows(record.done_at) {
            "SUCCESS"
        } else if record.working > 0 || record.done_at.is_some() {
            "PROCESSING"
        } else if shows(record.refused_at) {
            "FAILED"
        } else {
            "RECEIVED"
        })
    }

    fn record(&mut self, place: Place<'_>) -> &mut Record {
        let key = self.key(place);
        self.tool.records.entry(key).or_default()
    }

    /// Whether the tool keeps anything about this id.
    fn is_kept(&self, place: Place<'_>) -> bool {
        self.tool.records.contains_key(&self.key(place))
    }

    fn key(&self, Place { site, id }: Place<'_>) -> (usize, String) {
        let shared = self.plan.rules.shared;
        (if shared { 0 } else { site }, id.to_owned())
    }
}

impl Sent {
    fn place(&self) -> Place<'_> {
        let (site, id) = (self.site, &self.id);
        Place { site, id }
    }
}

impl Asked {
    fn place(&self) -> Place<'_> {
        let (site, id) = (self.site, &self.id);
        Place { site, id }
    }
}
