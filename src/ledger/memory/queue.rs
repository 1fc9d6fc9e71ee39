//! The compensation queue in memory: due work, loans of one dead letter, the sweep after a start.

use super::Books;
use crate::call::time::Wall;
use crate::ledger::{DeadState, Due, Owner, OwnerTest, Park, Place, Recovered, RowId, Taker};

/// Who claims one dead letter, and until when.
pub(super) struct Lease {
    pub(super) taker: Taker,
    pub(super) owner: Owner,
    pub(super) now: Wall,
    pub(super) until: Wall,
}

impl Books {
    pub(super) fn claim_due(
        &mut self,
        owner: &Owner,
        now: Wall,
        lease_until: Wall,
        limit: usize,
    ) -> Vec<Due> {
        self.give_back_by_hand(now);
        let mut due: Vec<_> = self
            .rows
            .values()
            .filter_map(|row| Some((row.due(now)?, row.view.row)))
            .collect();
        due.sort();
        due.truncate(limit);
        due.into_iter()
            .filter_map(|(_, row)| {
                Some(
                    self.rows
                        .get_mut(&row)?
                        .claim_round(owner, now, lease_until),
                )
            })
            .collect()
    }

    pub(super) fn claim_letter(&mut self, row: RowId, life: u32, lease: &Lease) -> Option<Due> {
        let row = self.rows.get_mut(&row)?;
        row.held()
            .lends_to(lease.taker, life)
            .then(|| row.claim_round(&lease.owner, lease.now, lease.until))
    }

    /// What an operator's order left behind whose lease ran out goes back in front of a human.
    pub(super) fn give_back_by_hand(&mut self, now: Wall) {
        let letters = self
            .rows
            .values_mut()
            .filter_map(|row| row.view.dead_letter.as_mut());
        for letter in letters.filter(|letter| letter.by_hand) {
            if letter.lease_until.is_some_and(|until| until <= now) {
                letter.give_back();
            }
        }
    }

    pub(super) fn recover(&mut self, owner: &Owner, now: Wall, dead: OwnerTest) -> Recovered {
        let is_dead = |holder: &Owner, lease: Wall| {
            holder != owner && (dead == OwnerTest::AllOthers || lease <= now)
        };
        let mut recovered = Recovered::default();
        for row in self.rows.values_mut() {
            if let Some(letter) = &mut row.view.dead_letter {
                let holder = letter.owner.clone().zip(letter.lease_until);
                if holder.is_some_and(|(holder, lease)| is_dead(&holder, lease)) {
                    letter.give_back();
                    if letter.state == DeadState::Reversing {
                        letter.next_retry_time = Some(now);
                    }
                    recovered.requeued += 1;
                }
            } else if row.view.settled.is_none() && is_dead(&row.view.owner, row.view.lease_until) {
                let sent = row.view.sends > 0;
                let lost = sent || row.promised;
                *(if lost {
                    &mut recovered.parked
                } else {
                    &mut recovered.never_sent
                }) += 1;
                row.park(
                    now,
                    Park {
                        reason: if lost { "crash" } else { "never-sent" }.into(),
                        place: if lost {
                            Place::Queued { due: now }
                        } else {
                            Place::NeverSent
                        },
                        reached: sent,
                        last_error: "the gateway ended while the call was in line".into(),
                        kept: None,
                    },
                );
            }
        }
        recovered
    }
}
