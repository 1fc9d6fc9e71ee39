//! How a call in memory leaves the line, and how it ends.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::Row;
use crate::call::receipt::State;
use crate::call::time::Wall;
use crate::ledger::view::DeadLetter;
use crate::ledger::{DeadState, Entry, News, Owner, Park, Place, SettledBy, Settlement, Verdict};

impl Row {
    pub(in crate::ledger::memory) fn reversed(&mut self, now: Wall) {
        self.end(now, Verdict::Failed, SettledBy::Reversal);
        let Some(letter) = &mut self.view.dead_letter else {
            return;
        };
        letter.release(DeadState::Reversed);
        letter.next_retry_time = None;
        letter.ended_at = Some(now);
        self.view.history.push(Entry::Parked {
            at: now,
            state: DeadState::Reversed,
            reason: "reversed".into(),
            round: letter.round,
        });
    }

    pub(in crate::ledger::memory) fn park(&mut self, now: Wall, how: Park) {
        let view = &mut self.view;
        let (state, due, ended_at) = match how.place {
            Place::Queued { due } => (DeadState::Queued, Some(due), None),
            Place::Manual => (DeadState::Manual, None, None),
            Place::NeverSent => (DeadState::Failed, None, Some(now)),
        };
        view.updated_at = now;
        view.state = match (how.place, how.reached) {
            (Place::NeverSent, _) => State::Failed,
            (_, true) => State::Unknown,
            (_, false) => State::Received,
        };
        if how.kept.is_some() {
            view.kept.clone_from(&how.kept);
        }
        view.dead_letter = Some(DeadLetter {
            row: view.row,
            life: view.life,
            call_id: view.call_id.clone(),
            route: Arc::clone(&view.route),
            client: view.client.clone(),
            business_key: view.business_key.clone(),
            idempotency_key: view.idempotency_key.clone(),
            reason: Arc::from(&*how.reason),
            last_error: how.last_error,
            fail_count: 0,
            next_retry_time: due,
            create_time: now,
            state,
            round: 0,
            owner: None,
            fence: self.fence,
            lease_until: None,
            ended_at,
            by_hand: false,
            reversals: 0,
            last_receipt: view.last_receipt(),
            begun_by: (how.place != Place::NeverSent).then(|| view.owner.clone()),
        });
        view.history.push(Entry::Parked {
            at: now,
            state,
            reason: how.reason,
            round: 0,
        });
        if how.place == Place::NeverSent {
            self.end(now, Verdict::Failed, SettledBy::NeverSent);
            self.view.binds = false;
            self.key_binds = false;
        }
    }

    pub(in crate::ledger::memory) fn end(&mut self, now: Wall, verdict: Verdict, by: SettledBy) {
        self.view.state = verdict.state();
        self.view.kept = None;
        self.view.updated_at = now;
        (self.view.owner, self.view.lease_until) = (Owner::nobody(), Wall(0));
        self.touched = self.touched.max(now);
        self.view.settled = Some(Settlement {
            verdict,
            by,
            at: now,
            reply: None,
            document: None,
        });
    }

    pub(in crate::ledger::memory) fn settle(&mut self, now: Wall, news: News) {
        let (verdict, bindings) = (news.verdict(), news.bindings());
        let (by, told, receipt) = match news {
            News::Answer { n, reply, .. } | News::Unbinding { n, reply } => {
                (SettledBy::Answer(n), Some(reply), None)
            }
            News::Receipt {
                reply, document, ..
            } => (SettledBy::Receipt, reply, document),
        };
        self.end(now, verdict, by);
        self.view.binds = bindings.id;
        self.key_binds &= bindings.key;
        if let Some(settlement) = &mut self.view.settled {
            settlement.reply = told;
            settlement.document = receipt;
        }
        if let Some(letter) = &mut self.view.dead_letter {
            letter.release(match verdict {
                Verdict::Success => DeadState::Settled,
                Verdict::Failed => DeadState::Failed,
            });
            letter.next_retry_time = None;
            letter.ended_at = Some(now);
        }
    }

    /// Settles the call as an operator says it ended.
    pub(in crate::ledger::memory) fn resolve(
        &mut self,
        now: Wall,
        verdict: Verdict,
        document: Option<Bytes>,
    ) {
        let news = News::Receipt {
            verdict,
            reply: None,
            document,
        };
        self.settle(now, news);
        if let Some(settlement) = &mut self.view.settled {
            settlement.by = SettledBy::Operator;
        }
    }

    /// Ends the dead letter; what became of the call stays unknown.
    pub(in crate::ledger::memory) fn discard(&mut self, now: Wall) {
        self.view.updated_at = now;
        // Also of what was never sent: a human has given it up.
        self.view.state = State::Unknown;
        self.touched = self.touched.max(now);
        if let Some(letter) = &mut self.view.dead_letter {
            letter.release(DeadState::Discarded);
            letter.next_retry_time = None;
            letter.ended_at = Some(now);
        }
    }

    /// Whether nothing needs the row any more.
    pub(in crate::ledger::memory) fn is_ripe(&self, now: Wall, retention: Duration) -> bool {
        // A human gave up the discarded ones: they are over as well.
        let letter = self.view.dead_letter.as_ref();
        let given_up = letter.is_some_and(|letter| letter.state == DeadState::Discarded);
        let ended = self.view.settled.is_some() || given_up;
        let forgotten = ended && self.touched.after(self.window) <= now;
        let over =
            |letter: &DeadLetter| letter.ended_at.is_some_and(|at| at.after(retention) <= now);
        forgotten && self.past.iter().chain(&self.view.dead_letter).all(over)
    }
}
