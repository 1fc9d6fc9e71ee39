//! The same request under a new call id (`detect_new_ids`): a caller that leaves its ids to the
//! gateway, and repeats.
//!
//! Such a repeat cannot join the first call, because nothing says that it is one. But an identical
//! request of the same client, under an id that a gateway has just made and without a key, while
//! the first one is still open, is more likely a repeat than a second order. Calls in line are
//! found here; those in the compensation queue by the ledger, inside the claim. Each call stands
//! here from before its claim until it is told or parked, so there is no moment between the two at
//! which a second one could slip through. Deliberately absent: calls of other processes, and
//! anything about a call that is over.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use parking_lot::Mutex;

use super::Route;
use super::running::Running;
use super::told::{Problem, Told};
use super::visit::Visit;
use crate::call::code::{Code, Repeat, Sent};
use crate::call::id::{CallId, IdSource};
use crate::call::time::Mono;
use crate::config::route::DetectNewIds;

/// The calls in line by what they ask, under a hash of it that nobody outside can predict.
#[derive(Debug, Default)]
pub(super) struct Alikes(DashMap<u128, Group>);

/// Calls that ask for the same; nearly always one.
#[derive(Debug)]
struct Group {
    first: Arc<Running>,
    others: Vec<Arc<Running>>,
}

/// Lines about suspected repeats in one second of one route. A caller that does nothing else would
/// drown the log; the counter has them all.
const LINES_PER_SECOND: u64 = 10;

/// How many lines a route has written in which second, and how many it has left out since.
#[derive(Debug, Default)]
pub struct Lines(Mutex<Written>);

#[derive(Debug, Default)]
struct Written {
    second: u64,
    lines: u64,
    left_out: u64,
}

/// Where a call stands among those that ask for the same; dropping it takes it out.
#[derive(Debug)]
pub(super) struct Stand {
    alikes: Arc<Alikes>,
    running: Arc<Running>,
    hash: u128,
}

impl Alikes {
    /// Takes a stand for `running`. With it, or instead of it when `alone` is demanded, comes the
    /// id of the one that stood there before.
    pub(super) fn stand(
        self: &Arc<Self>,
        hash: u128,
        running: &Arc<Running>,
        alone: bool,
    ) -> (Option<Stand>, Option<CallId>) {
        let before = match self.0.entry(hash) {
            Entry::Vacant(free) => {
                let first = Arc::clone(running);
                let others = Vec::new();
                free.insert(Group { first, others });
                None
            }
            Entry::Occupied(mut taken) => {
                let first = taken.get().first.call_id().clone();
                if alone {
                    return (None, Some(first));
                }
                taken.get_mut().others.push(Arc::clone(running));
                Some(first)
            }
        };
        let stand = Stand {
            alikes: Arc::clone(self),
            running: Arc::clone(running),
            hash,
        };
        (Some(stand), before)
    }

    /// How many kinds of requests are in line.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let Entry::Occupied(mut taken) = self.alikes.0.entry(self.hash) else {
            return;
        };
        let group = taken.get_mut();
        if !Arc::ptr_eq(&group.first, &self.running) {
            group
                .others
                .retain(|other| !Arc::ptr_eq(other, &self.running));
        } else if group.others.is_empty() {
            taken.remove();
        } else {
            group.first = group.others.remove(0);
        }
    }
}

impl Lines {
    /// Whether a line may be written in this second, and then how many were left out before it.
    fn next(&self, now: Mono) -> Option<u64> {
        let second = now.0 / 1_000_000_000;
        let mut written = self.0.lock();
        if written.second != second {
            written.second = second;
            written.lines = 0;
        }
        if written.lines == LINES_PER_SECOND {
            written.left_out += 1;
            return None;
        }
        written.lines += 1;
        Some(std::mem::take(&mut written.left_out))
    }
}

impl Visit {
    /// Whether nothing but what it asks could show that this request is a repeat: its id is new,
    /// and it has no key.
    pub(super) fn is_nameless(&self) -> bool {
        self.request.source == IdSource::Gateway && self.asked.key.is_none()
    }

    /// Counts and tells that `first` asked for the same. What the caller is told, where the route
    /// refuses such a request.
    pub(super) fn suspected(&self, first: &CallId, now: Mono) -> Option<Told> {
        let request = &self.request;
        let route: &Route = &request.route;
        route.metrics.suspected.inc();
        if route.conf.detect_new_ids == DetectNewIds::Block {
            return Some(Told {
                original: Some(first.clone()),
                ..Told::refused(self.named(), problem(first))
            });
        }
        let left_out = route.repeats_logged.next(now)?;
        tracing::warn!(
            call_id = %request.call_id,
            first_call_id = %first,
            route = &*route.conf.name,
            client = request.client.as_str(),
            left_out,
            "the same request is still open under another call id; this one is sent as well, since \
             it came without a call id or key (detect_new_ids: warn)"
        );
        None
    }
}

/// What a request is told that is more likely a repeat than a second order.
fn problem(first: &CallId) -> Problem {
    let detail = format!(
        "The same request is open as the call {first}. This one came without a call id and was not \
         sent. If it is a repeat, send it with the id {first}; if it is another operation, give it \
         a call id or an idempotency key of its own."
    );
    Problem {
        more: vec![("firstCallId", first.as_str().into())],
        ..Problem::new(Code::NewIdForRunningCall, detail, Sent::No, Repeat::Never)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_few_and_say_what_they_leave_out() {
        let lines = Lines::default();
        let at = |ms: u64| Mono(ms * 1_000_000);
        let first: Vec<_> = (0..13).map(|n| lines.next(at(5_000 + n))).collect();
        assert_eq!(first[..10], [Some(0); 10]);
        assert_eq!(first[10..], [None; 3]);
        assert_eq!(lines.next(at(6_000)), Some(3));
        assert_eq!(lines.next(at(6_001)), Some(0));
    }
}
