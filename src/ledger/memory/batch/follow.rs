//! What happens to batches afterwards: items follow their calls, and old batches go.

use std::sync::Arc;

use super::Batch;
use crate::call::id::{CallId, ClientName};
use crate::call::time::Wall;
use crate::ledger::batch::{FollowLook, Followed, ItemState, outcome_of};
use crate::ledger::memory::Books;
use crate::ledger::{Purged, SettledBy, Verdict};

impl Books {
    pub(super) fn follow(&mut self, look: &FollowLook, now: Wall) -> Followed {
        let over = Followed {
            ended: 0,
            next: None,
        };
        let (id, client) = (look.batch, &look.client);
        let Some(batch) = self.batches.batches.get(&id) else {
            return over;
        };
        let open: Vec<(u32, CallId)> = batch
            .items
            .range(look.after.saturating_add(1)..)
            .filter(|(_, item)| item.view.state == ItemState::Unresolved)
            .filter_map(|(line, item)| Some((*line, item.view.call_id.clone()?)))
            .take(look.limit)
            .collect();
        let mut ended = 0;
        for (line, call_id) in &open {
            let mut names = std::iter::once(client).chain(client.formerly());
            let end = names.find_map(|name| self.end_of(name, call_id));
            let Some((verdict, by, sends, status)) = end else {
                continue;
            };
            let batch = self.batches.batches.get_mut(&id).expect("it was there");
            let item = batch.items.get_mut(line).expect("it was there");
            let state = match verdict {
                Verdict::Success => ItemState::Done,
                Verdict::Failed => ItemState::Refused,
            };
            batch.view.counts.moved(ItemState::Unresolved, state);
            batch.view.counts.by_receipt += i64::from(outcome_of(by) == "receipt");
            batch.view.updated_at = now;
            item.view.state = state;
            item.view.updated_at = now;
            item.view.attempts = sends;
            item.view.status = status.or(item.view.status);
            item.view.outcome = Some(Arc::from(outcome_of(by)));
            if state == ItemState::Done {
                item.view.error = None;
            }
            ended += 1;
        }
        Followed {
            ended,
            next: open.last().map(|(line, _)| *line),
        }
    }

    /// How the call of this id ended, or the one whose key it came with.
    fn end_of(
        &self,
        client: &ClientName,
        call_id: &CallId,
    ) -> Option<(Verdict, SettledBy, u32, Option<u16>)> {
        let own = self.rows.values();
        let own = own.filter(|row| row.view.call_id == *call_id && row.view.client == *client);
        let row = self
            .aliases_of(call_id, |of| of == client)
            .chain(own)
            .next()?;
        let settled = row.view.settled.as_ref()?;
        let status = settled.reply.as_ref().map(|reply| reply.status.as_u16());
        Some((settled.verdict, settled.by, row.view.sends, status))
    }

    pub(super) fn purge_batches(&mut self, before: Wall, limit: usize) -> Purged {
        let batches = &mut self.batches.batches;
        let is_ripe = |batch: &&Batch| {
            let counts = &batch.view.counts;
            let open = counts.unresolved + counts.to_run();
            batch.view.ended_at.is_some_and(|at| at <= before) && open == 0
        };
        let Some(id) = batches.values().find(is_ripe).map(|batch| batch.view.id) else {
            return Purged {
                calls: 0,
                more: false,
            };
        };
        let batch = batches.get_mut(&id).expect("it was found");
        let lines: Vec<u32> = batch.items.keys().copied().take(limit).collect();
        for line in &lines {
            batch.items.remove(line);
        }
        if lines.len() < limit {
            batches.remove(&id);
        }
        Purged {
            calls: lines.len() as u64,
            more: true,
        }
    }
}
