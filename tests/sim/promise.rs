//! What a caller was promised, held against what became of it.

use callgate::call::receipt::State as CallState;
use callgate::ledger::{CallView, DeadState, Entry};

use crate::world::State;

impl State {
    /// On whose behalf a dead letter is sent again.
    pub(crate) fn notes_who_resends(&mut self, row: &CallView) {
        let Some(letter) = &row.dead_letter else {
            return;
        };
        let ordered = self.disk.orders.lock().contains(&(row.row, letter.fence));
        if ordered {
            self.may_die_of_a_job(8);
        }
        self.truth
            .reached
            .at(if self.is_repeat(row.row, letter.fence) {
                "resend by a repeat"
            } else if ordered {
                "resend by an operator"
            } else {
                "resend by a round"
            });
    }

    /// A caller was promised the call: it must be on record.
    pub(crate) fn accepted(&mut self, id: &str) {
        self.truth.reached.at("accepted");
        match self.row(id) {
            Some(row) if row.promised => {
                self.facts(id).promised.insert(row.life);
            }
            Some(_) | None => self.breaks("what is accepted is on record", id),
        }
    }

    /// What has begun to reach its caller is not sent again.
    pub(crate) fn not_once_told(&mut self, row: &CallView, attempt: u32) {
        if row.told {
            let what = format!("{} #{attempt}", row.call_id);
            self.breaks("what was told in part is not sent again", &what);
        }
    }

    /// What the record calls never sent has not left; what was promised and never reached the tool
    /// waits in the queue, which has tried it as well.
    pub(crate) fn promise_is_kept(&mut self, id: &str, row: &CallView) {
        let mut left = self.facts(id).left.iter();
        if row.state == CallState::Received && left.any(|(life, _)| *life == row.life) {
            self.breaks("what has left is not called never sent", id);
        }
        let letter = row.dead_letter.as_ref().map(|letter| letter.state);
        if letter == Some(DeadState::Discarded) {
            // A human gave it up.
            return;
        }
        let open = row.settled.is_none() && row.promised;
        let waits = open && row.state == CallState::Received;
        let disk = &self.plan.disk;
        // On a failing disk the end of a send can be on record later than a round has judged it.
        if disk.fails > 0 || disk.hangs > 0 {
            return;
        }
        // One whose reversal was ordered is sent by no door any more, so it waits for a human.
        let undone = row.dead_letter.as_ref().is_some_and(|it| it.reversals > 0);
        if open && letter == Some(DeadState::Manual) && !undone && !row.may_have_left() {
            self.breaks("what is accepted and was never sent stays queued", id);
        }
        if !waits {
            return;
        }
        self.truth.reached.at("promised and never reached");
        let parked = |entry: &Entry| matches!(entry, Entry::Parked { .. });
        let in_queue = row.history.iter().skip_while(|entry| !parked(entry));
        let tried = |entry: &Entry| matches!(entry, Entry::Sent { .. });
        if !in_queue.clone().any(tried) {
            self.breaks("what is accepted is sent by the queue", id);
        }
    }
}
